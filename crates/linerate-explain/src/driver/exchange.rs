//! One request and its answer over an instrumented connection.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_http::client::{Expect, HeadCache, HeadView, Limits, Part, ResponseReader};
use linerate_net::Time;
use linerate_net::instrument::{self, Facts, Levers, Probe as Socket, Stage as At, Stamped};
use linerate_net::sock_diag::{State, TcpSocket, tcp_sockets};

use super::wire::{Came, Lost, Prepared, Speak, Wire};
use super::{failure, why_of};
use crate::call::{Answer, Call, Failure, KEPT_FIELDS, Stage, Why};
use crate::coding::Coded;
use crate::limits;
use crate::local::schedstat;
use crate::probe::Writes;
use crate::software::{LOOKS_LIKE, by_head};

/// What is sent and how.
pub(super) struct Plan {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) expect: Expect,
    pub(super) writes: Writes,
    pub(super) waits_for_continue: bool,
    pub(super) patience: Duration,
}

/// On a new connection; the connection comes back when it may carry another request.
/// Whatever is not done at `end` is cut short.
pub(super) fn anew(
    to: SocketAddr,
    levers: &Levers,
    speak: Option<Speak<'_>>,
    plan: &Plan,
    end: Time,
) -> (Call, Option<Wire>) {
    let prepared = speak.as_ref().map(Speak::prepare);
    let start = instrument::now();
    match Socket::connect(to, levers, end.min(start + limits::CONNECT_TIME)) {
        Ok(socket) => {
            let connect_facts = socket.facts();
            let connect = socket.connected() - start;
            let local = socket.local();
            let mut call = Call { fresh: true, connect, connect_facts, local, ..Call::default() };
            let mut wire = Wire::plain(socket);
            if let (Some(speak), Some(prepared)) = (&speak, prepared)
                && let Err(failure) = shake(&mut wire, (speak, prepared), &mut call, to, plan, end)
            {
                call.end = Some(Err(failure));
                return (call, None);
            }
            let before = Facts::default();
            let (mut call, wire) = Exchange { call, start, to, wire, plan, before, end, wrote: start }.run();
            if let (Some(handshake), Some(speak)) = (&mut call.tls, &speak) {
                handshake.given = Wire::given(speak);
            }
            (call, wire)
        }
        Err(e) => {
            let mut why = if matches!(e.stage, At::Lever(_)) { Why::NoLever } else { why_of(&e.error) };
            if why == Why::TimedOut && e.at >= end {
                why = Why::Cut;
            }
            let end = Some(Err(Failure { why, ..failure(Stage::Connect, &e.error, to) }));
            let took = e.at - start;
            let call = Call {
                fresh: true,
                connect: took,
                connect_facts: *e.facts,
                total: took,
                facts: *e.facts,
                end,
                ..Call::default()
            };
            (call, None)
        }
    }
}

/// The TLS handshake of a call.
fn shake(
    wire: &mut Wire,
    (speak, prepared): (&Speak<'_>, Prepared),
    call: &mut Call,
    to: SocketAddr,
    plan: &Plan,
    end: Time,
) -> Result<(), Failure> {
    call.began_ns = wall_ns().saturating_sub(call.connect.as_nanos() as i64);
    let deadline = end.min(instrument::now() + plan.patience);
    let (handshake, done) = wire.shake(speak, prepared, call.connect, deadline);
    // Stamps of the handshake's bytes are not those of the request's.
    drop(wire.socket().stamps());
    call.total = call.connect + handshake.took;
    call.tls = Some(Box::new(handshake));
    done.map_err(|lost| {
        call.facts = wire.socket().facts();
        let mut failure = failed(Stage::Tls, lost, to);
        if failure.why == Why::TimedOut && deadline == end {
            failure.why = Why::Cut;
        }
        failure
    })
}

/// Why nothing more passed.
fn failed(stage: Stage, lost: Lost, to: SocketAddr) -> Failure {
    match lost {
        Lost::Socket(e) => failure(stage, &e.error, to),
        Lost::Tls(words) => Failure { stage, why: Why::Tls, words },
    }
}

/// On a connection that is there already.
pub(super) fn again(mut wire: Wire, plan: &Plan, end: Time) -> (Call, Option<Wire>) {
    let before = wire.socket().facts();
    drop(wire.socket().stamps());
    let to = wire.look().peer().unwrap_or(([0, 0, 0, 0], 0).into());
    let start = instrument::now();
    let call = Call { local: wire.look().local(), ..Call::default() };
    Exchange { call, start, to, wire, plan, before, end, wrote: start }.run()
}

/// How receiving ended, and when the request had been written at the latest.
struct Received {
    end: Result<Answer, Failure>,
    written: Time,
}

struct Exchange<'a> {
    call: Call,
    start: Time,
    to: SocketAddr,
    wire: Wire,
    plan: &'a Plan,
    before: Facts,
    /// When it is cut short.
    end: Time,
    /// When the last write began.
    wrote: Time,
}

impl Exchange<'_> {
    fn run(mut self) -> (Call, Option<Wire>) {
        let deadline = self.end.min(instrument::now() + self.plan.patience);
        let mut answer = Answering::new(self.plan.expect);
        let began = instrument::now();
        // What we do between the handshake and the first write (asking the kernel for its counters)
        // is ours, not the call's.
        let opening = self.call.opening();
        self.start = Time::from_nanos(began.as_nanos().saturating_sub(opening.as_nanos() as u64));
        self.call.began_ns = wall_ns().saturating_sub(opening.as_nanos() as i64);
        let sent = self.send(deadline, &mut answer);
        let written = instrument::now();
        self.call.send = written - began;
        let received = match sent {
            Ok(()) => self.receive(deadline, written, &mut answer),
            Err(e) => self.refused_or(deadline, written, &mut answer, e),
        };
        let (mut end, written) = (received.end, received.written);
        self.call.send = written - began;
        if let Err(failure) = &mut end
            && failure.why == Why::TimedOut
            && deadline == self.end
        {
            failure.why = Why::Cut;
        }
        // The call ends with its last byte.
        let ended = written + self.call.wait + self.call.receive;
        self.call.total = ended - self.start;
        self.call.facts = self.wire.look().facts().since(&self.before);
        self.read_stamps(written);
        if end.is_ok()
            && let Some(fault) = answer.fault()
        {
            let words = format!("{} {fault}", self.to);
            end = Err(Failure { stage: Stage::Receive, why: Why::Malformed, words });
        }
        let reusable = end.as_ref().is_ok_and(|a| a.reusable);
        self.call.end = Some(end);
        (self.call, reusable.then_some(self.wire))
    }

    fn write(&mut self, bytes: &[u8], deadline: Time) -> Result<(), Lost> {
        self.wrote = self.wire.write(bytes, deadline)?;
        Ok(())
    }

    fn send(&mut self, deadline: Time, answer: &mut Answering) -> Result<(), Lost> {
        let plan = self.plan;
        if plan.waits_for_continue {
            self.write(&plan.head, deadline)?;
            let held = instrument::now();
            let patience = (held + limits::CONTINUE_TIME).min(deadline);
            let (mut buffer, mut plain) = ([0; 4096], Vec::new());
            while !answer.decided() {
                match self.wire.read(&mut buffer, &mut plain, patience) {
                    Ok(Came::Bytes(receives)) => {
                        answer.take(&plain);
                        if let Some((at, _)) = receives.last().filter(|_| answer.interim) {
                            self.call.continued = Some(*at - self.start);
                        }
                    }
                    Ok(Came::Nothing) => {}
                    // The end is seen again when the answer is read.
                    Ok(Came::Ended { .. }) => break,
                    Err(Lost::Socket(e)) if e.error.kind() == std::io::ErrorKind::TimedOut => break,
                    Err(e) => return Err(e),
                }
            }
            self.call.held_for_continue = Some(instrument::now() - held);
            if answer.interim || !answer.decided() {
                self.write(&plan.body, deadline)?;
            }
            return Ok(());
        }
        match plan.writes {
            Writes::Apart if !plan.body.is_empty() => {
                self.write(&plan.head, deadline)?;
                self.write(&plan.body, deadline)?;
            }
            _ => {
                let whole = [plan.head.as_slice(), plan.body.as_slice()].concat();
                self.write(&whole, deadline)?;
            }
        }
        Ok(())
    }

    /// A server may answer and close before it has read all: then the answer counts.
    fn refused_or(&mut self, deadline: Time, written: Time, answer: &mut Answering, lost: Lost) -> Received {
        let sent = failed(Stage::Send, lost, self.to);
        if sent.why == Why::TimedOut {
            return Received { end: Err(sent), written };
        }
        let received = self.receive(deadline, written, answer);
        Received { end: received.end.map_err(|_| sent), ..received }
    }

    fn receive(&mut self, deadline: Time, written: Time, answer: &mut Answering) -> Received {
        let (mut buffer, mut plain) = (vec![0; 64 << 10], Vec::new());
        let mut first = None;
        let mut last = written;
        let end = loop {
            if let Some(end) = answer.end() {
                break end;
            }
            match self.wire.read(&mut buffer, &mut plain, deadline) {
                Ok(Came::Nothing) => {}
                Ok(Came::Ended { at, cut }) => {
                    let end = answer.closed(self.to, cut);
                    if end.is_ok() && first.is_some() {
                        // What ends with the connection is whole when that is closed.
                        self.call.closed_after = Some(at - last);
                        last = at;
                    }
                    break end;
                }
                Ok(Came::Bytes(receives)) => {
                    for (at, bytes) in receives {
                        first.get_or_insert(at);
                        last = at;
                        self.note(at, bytes);
                    }
                    answer.take(&plain);
                    if answer.bytes > limits::ANSWER_BYTES {
                        let words = format!("the answer is larger than {} MiB", limits::ANSWER_BYTES >> 20);
                        break Err(Failure { stage: Stage::Receive, why: Why::Other, words });
                    }
                }
                Err(Lost::Tls(words)) => {
                    // A server of TLS 1.3 refuses our certificate when its part of the handshake is over.
                    let stage = if first.is_some() { Stage::Receive } else { Stage::Tls };
                    break Err(Failure { stage, why: Why::Tls, words });
                }
                Err(Lost::Socket(e)) => {
                    let stage = if first.is_some() { Stage::Receive } else { Stage::Wait };
                    let failure = failure(stage, &e.error, self.to);
                    let patient = failure.why == Why::TimedOut && deadline < self.end;
                    if patient && let Some(stream) = answer.stream() {
                        last = first.unwrap_or(e.at);
                        self.call.receives.truncate(1);
                        break Ok(stream);
                    }
                    last = e.at;
                    break Err(answer.unfinished(failure, self.to, self.plan.patience));
                }
            }
        };
        // What came before the request was sent is no answer to it.
        answer.came_before |= !self.call.fresh && first.is_some_and(|at| at + EARLY < self.start);
        let first = first.unwrap_or(last);
        // It may arrive before we get the processor back to see that the request is written: then
        // it left when the write began.
        let written = if first < written { self.wrote.min(first) } else { written };
        self.call.wait = first - written;
        self.call.receive = last - first;
        Received { end, written }
    }

    fn note(&mut self, at: Time, bytes: usize) {
        if self.call.receives.len() < limits::RECEIVES {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.call.receives.push(crate::call::Received { at: at - self.start, bytes });
        }
    }

    fn read_stamps(&mut self, written: Time) {
        let stamps = self.wire.socket().stamps();
        let sent = stamps.iter().filter(|s| s.what == Stamped::Sent).max_by_key(|s| s.last_byte);
        self.call.held_in_tcp = sent.map(|s| s.at - written);
        let first = stamps.iter().filter(|s| s.what == Stamped::Acknowledged).min_by_key(|s| s.last_byte);
        self.call.acknowledged = first.map(|s| s.at - written);
    }
}

/// What arrives so long before a request was sent cannot be its answer. Reason: the kernel's clock and
/// ours are converted into each other.
const EARLY: Duration = Duration::from_micros(100);

/// An answer as it comes.
struct Answering {
    reader: ResponseReader,
    cache: HeadCache,
    expect: Expect,
    answer: Answer,
    interim: bool,
    bytes: u64,
    /// Bytes of content so far.
    content: u64,
    /// The content, where its coding can be checked.
    coded: Option<Coded>,
    /// Bytes behind the end of the answer.
    behind: usize,
    /// It began before the request was sent.
    came_before: bool,
    end: Option<Result<Answer, Failure>>,
}

impl Answering {
    fn new(expect: Expect) -> Answering {
        Answering {
            reader: ResponseReader::new(Limits::default()),
            cache: HeadCache::new(),
            expect,
            answer: Answer::default(),
            interim: false,
            bytes: 0,
            content: 0,
            coded: None,
            behind: 0,
            came_before: false,
            end: None,
        }
    }

    /// Whether `100 Continue` or a final answer has come.
    fn decided(&self) -> bool {
        self.interim || self.answer.status != 0 || self.end.is_some()
    }

    fn take(&mut self, mut input: &[u8]) {
        if self.bytes == 0 && is_tls(input) {
            let words = "it speaks TLS there: write https:// instead of http://".to_owned();
            self.end = Some(Err(Failure { stage: Stage::Receive, why: Why::Malformed, words }));
        }
        self.bytes += input.len() as u64;
        while self.end.is_none() {
            match self.reader.next(&mut self.cache, &mut input, self.expect) {
                Ok(None) => return,
                Ok(Some(Part::Interim(_))) => self.interim = true,
                Ok(Some(Part::Head(head))) => {
                    self.answer = facts_of(&head);
                    let coding = self.answer.field("content-encoding");
                    self.coded = coding.and_then(|coding| Coded::of(self.answer.status, coding));
                }
                Ok(Some(Part::Body(piece))) => {
                    self.content += piece.len() as u64;
                    self.coded.iter_mut().for_each(|coded| coded.take(piece));
                    look_at_page(&mut self.answer, piece);
                }
                Ok(Some(Part::Trailers(_))) => {}
                Ok(Some(Part::End(end))) => {
                    self.answer.reusable = end.reusable;
                    self.answer.body_bytes = end.body_bytes;
                    self.end = Some(Ok(self.answer.clone()));
                }
                Err(error) => {
                    let words = error.to_string();
                    self.end = Some(Err(Failure { stage: Stage::Receive, why: Why::Malformed, words }));
                }
            }
        }
        // Clients skip empty lines between answers.
        if input.iter().any(|b| !b"\r\n".contains(b)) {
            self.behind += input.len();
        }
    }

    fn end(&self) -> Option<Result<Answer, Failure>> {
        self.end.clone()
    }

    /// What is wrong with an answer that ended, in words that follow the server's name.
    fn fault(&self) -> Option<String> {
        if self.came_before {
            return Some(
                "sends bytes behind the end of its answer: they came before we sent the next request, and clients take them for the answer \
                 to that"
                    .to_owned(),
            );
        }
        if self.behind > 0 {
            let length = self.answer.field("content-length");
            let said = match length {
                _ if self.content == 0 => "which has no body".to_owned(),
                Some(length) => format!("whose Content-Length is {length}"),
                None => "whose chunks ended".to_owned(),
            };
            let bytes = if self.behind == 1 { "byte" } else { "bytes" };
            return Some(format!(
                "sends {} {bytes} behind the end of its answer, {said}: clients that keep the connection take them for the next answer",
                self.behind
            ));
        }
        if self.answer.endless { None } else { self.coded.as_ref()?.fault() }
    }

    /// A stream of events that has begun: it ends when its reader leaves.
    fn stream(&self) -> Option<Answer> {
        let kind = self.answer.field("content-type")?.to_ascii_lowercase();
        let streams = kind.starts_with("text/event-stream") || kind.starts_with("multipart/x-mixed-replace");
        let answer =
            Answer { endless: true, reusable: false, body_bytes: self.content, ..self.answer.clone() };
        streams.then_some(answer)
    }

    /// What a response lacks that did not end, in words.
    fn unfinished(&self, failure: Failure, to: SocketAddr, patience: Duration) -> Failure {
        if failure.why != Why::TimedOut {
            return failure;
        }
        let words = match failure.stage {
            Stage::Wait => format!(
                "{} within {:.0} s: it hangs, or it waits for an event (a long poll)",
                failure.words,
                patience.as_secs_f64()
            ),
            Stage::Receive if self.answer.status != 0 => self.lacks(to),
            _ => failure.words,
        };
        Failure { words, ..failure }
    }

    /// The part that is missing of a response whose head came.
    fn lacks(&self, to: SocketAddr) -> String {
        let came = self.content;
        let chunked = self
            .answer
            .field("transfer-encoding")
            .is_some_and(|t| t.to_ascii_lowercase().contains("chunked"));
        let length = self.answer.field("content-length").and_then(|l| l.trim().parse::<u64>().ok());
        match length {
            _ if chunked => format!(
                "{to} begins its answer and does not end it: it sends chunks ({came} bytes of content), and the last one, which ends the \
                 body, never comes"
            ),
            Some(length) => format!(
                "{to} begins its answer and does not end it: it says Content-Length: {length} and sends {came} bytes; the other {} never \
                 come",
                length.saturating_sub(came)
            ),
            None => format!(
                "{to} begins its answer and does not end it: it says no length, so that its end is that of the connection, and it does \
                 not close that ({came} bytes came)"
            ),
        }
    }

    /// The peer has closed; `cut`: without the end that TLS has.
    fn closed(&mut self, to: SocketAddr, cut: bool) -> Result<Answer, Failure> {
        match self.reader.finish() {
            Ok(Some(_)) if cut => {
                let words = format!(
                    "{to} closed the connection without TLS's close_notify in an answer that ends with its connection: whether that is whole \
                     cannot be told (RFC 9112 section 9.8)"
                );
                Err(Failure { stage: Stage::Receive, why: Why::ClosedEarly, words })
            }
            Ok(Some(end)) => {
                self.answer.body_bytes = end.body_bytes;
                self.answer.reusable = false;
                Ok(self.answer.clone())
            }
            _ => {
                let stage = if self.bytes > 0 { Stage::Receive } else { Stage::Wait };
                let length = self.answer.field("content-length").filter(|_| self.answer.status != 0);
                let words = if let Some(length) = length {
                    format!(
                        "{to} closed the connection in the middle of its answer: {} of the {length} bytes that Content-Length promises",
                        self.content
                    )
                } else if self.bytes > 0 {
                    format!("{to} closed the connection in the middle of its answer")
                } else {
                    format!("{to} closed the connection without an answer")
                };
                Err(Failure { stage, why: Why::ClosedEarly, words })
            }
        }
    }
}

/// The time by which packets are stamped, nanoseconds since 1970.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// An alert or a handshake record (RFC 8446, section 5.1): what a TLS server answers to a request
/// in clear.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, 0..=4, ..])
}

/// The beginning of an error page: many servers are known by theirs.
fn look_at_page(answer: &mut Answer, piece: &[u8]) {
    const ENOUGH: usize = 512;
    let known = answer.field("server").is_some() || answer.field(LOOKS_LIKE).is_some();
    if answer.status >= 400 && !known {
        let page = String::from_utf8_lossy(&piece[..piece.len().min(ENOUGH)]).into_owned();
        answer.fields.push((LOOKS_LIKE.to_owned(), page));
    }
}

fn facts_of(head: &HeadView<'_>) -> Answer {
    let kept = |name: &&str| {
        let value = head.get(name.as_bytes())?;
        Some(((*name).to_owned(), String::from_utf8_lossy(&value[..value.len().min(512)]).into_owned()))
    };
    let mut fields: Vec<(String, String)> = KEPT_FIELDS.iter().filter_map(kept).collect();
    if let Some(software) = by_head(head.fields()) {
        fields.push((LOOKS_LIKE.to_owned(), software.to_owned()));
    }
    Answer { status: head.status(), fields, ..Answer::default() }
}

/// TcpExt ListenOverflows of this machine (this network namespace), when `to` is on it.
pub(super) fn overflows(to: SocketAddr) -> u64 {
    let local = match to.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    if !local {
        return 0;
    }
    std::fs::read_to_string("/proc/net/netstat").map_or(0, |text| counter(&text, "ListenOverflows"))
}

/// The accept queue of that very port is full, as the kernel lists it; nothing is known of other
/// machines'.
pub(super) fn queue_full(to: SocketAddr) -> bool {
    let listens = |s: &TcpSocket| {
        let here = s.local.ip() == to.ip() || s.local.ip().is_unspecified();
        s.state == State::LISTEN && s.local.port() == to.port() && here
    };
    let full = |s: &TcpSocket| s.receive_queue > 0 && s.receive_queue >= s.send_queue;
    tcp_sockets(limits::SOCKETS).is_ok_and(|(all, _)| all.iter().any(|s| listens(s) && full(s)))
}

/// How long the calling thread has been ready to run and waited for a processor.
pub(super) fn waited_here() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat(&text).map_or(Duration::ZERO, |(_, waited)| waited)
}

/// A counter of `/proc/net/netstat`: a line of names, then one of values.
pub(super) fn counter(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        if let Some(at) = names.split_whitespace().position(|n| n == name) {
            return values.split_whitespace().nth(at).and_then(|v| v.parse().ok()).unwrap_or(0);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text =
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 333\nIpExt: A\nIpExt: 4\n";
        assert_eq!((counter(text, "ListenOverflows"), counter(text, "A"), counter(text, "B")), (22, 4, 0));
    }
}
