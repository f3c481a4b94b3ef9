//! One request and its response over an instrumented connection.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_http::client::Expect;
use linerate_net::instrument::{self, Facts, Levers, Probe as Socket, ProbeStage as At, Stamped};
use linerate_net::sock_diag::{SocketState, TcpSocket, tcp_sockets};
use linerate_net::{Time, machine};

use super::answer::Answering;
use super::counters::counter;
use super::errors::{failure, why_of};
use super::http::Http;
use super::wire::{Came, LostWire, Prepared, ProbeWire, Speak};
use crate::call::{Call, CallStage, Failure, ProbeResponse, Why};
use crate::limits;
use crate::probe::Writes;

/// A request, how it is written, and how long to wait for its response.
pub(super) struct Plan {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) expect: Expect,
    pub(super) writes: Writes,
    pub(super) waits_for_continue: bool,
    pub(super) patience: Duration,
    /// Look at what compression would make of the response.
    pub(super) packs: bool,
    /// Which HTTP a connection is to speak.
    pub(super) http: Http,
    /// The field block over HTTP/2; empty where HTTP/2 cannot carry the request.
    pub(super) block: Vec<u8>,
    /// The windows that we announce.
    pub(super) window: u32,
}

/// On a new connection; the connection comes back when it may carry another request.
/// Whatever is not done at `end` is cut short.
pub(super) fn anew(
    to: SocketAddr,
    levers: &Levers,
    speak: Option<Speak<'_>>,
    plan: &Plan,
    end: Time,
) -> (Call, Option<ProbeWire>) {
    let prepared = speak.as_ref().map(Speak::prepare);
    let start = instrument::now();
    match Socket::connect(to, levers, end.min(start + limits::CONNECT_TIME)) {
        Ok(socket) => {
            let connect_facts = socket.facts();
            let connect = socket.connected() - start;
            let local = socket.local();
            let mut call = Call { fresh: true, connect, connect_facts, local, ..Call::default() };
            let mut wire = ProbeWire::plain(socket);
            if let (Some(speak), Some(prepared)) = (&speak, prepared)
                && let Err(failure) = shake(&mut wire, (speak, prepared), &mut call, to, plan, end)
            {
                call.end = Some(Err(failure));
                return (call, None);
            }
            if let Err(words) = wire.agree(plan.http, plan.window) {
                call.end = Some(Err(Failure { stage: CallStage::Tls, why: Why::Tls, words }));
                return (call, None);
            }
            if wire.is_streamed() && plan.writes == Writes::One {
                // As all clients of HTTP/2 do, since they write several small frames.
                wire.socket().set_nodelay();
            }
            let before = Facts::default();
            let (mut call, wire) = Exchange { call, start, to, wire, plan, before, end, wrote: start }.run();
            if let (Some(handshake), Some(speak)) = (&mut call.tls, &speak) {
                handshake.given = ProbeWire::given(speak);
            }
            (call, wire)
        }
        Err(e) => {
            let mut why = if matches!(e.stage, At::Lever(_)) { Why::NoLever } else { why_of(&e.error) };
            if why == Why::TimedOut && e.at >= end {
                why = Why::Cut;
            }
            let end = Some(Err(Failure { why, ..failure(CallStage::Connect, &e.error, to) }));
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
    wire: &mut ProbeWire,
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
        let mut failure = failed(CallStage::Tls, lost, to);
        if failure.why == Why::TimedOut && deadline == end {
            failure.why = Why::Cut;
        }
        failure
    })
}

/// Why nothing more passed.
pub(super) fn failed(stage: CallStage, lost: LostWire, to: SocketAddr) -> Failure {
    match lost {
        LostWire::Socket(e) => failure(stage, &e.error, to),
        LostWire::Tls(words) => Failure { stage, why: Why::Tls, words },
    }
}

/// On a connection that is there already.
pub(super) fn again(mut wire: ProbeWire, plan: &Plan, end: Time) -> (Call, Option<ProbeWire>) {
    let before = wire.socket().begin();
    drop(wire.socket().stamps());
    let to = wire.look().peer().unwrap_or(([0, 0, 0, 0], 0).into());
    let start = instrument::now();
    let call = Call { local: wire.look().local(), ..Call::default() };
    Exchange { call, start, to, wire, plan, before, end, wrote: start }.run()
}

/// How receiving ended, and when the request had been written at the latest.
struct ReceivingEnd {
    end: Result<ProbeResponse, Failure>,
    written: Time,
}

struct Exchange<'a> {
    call: Call,
    start: Time,
    to: SocketAddr,
    wire: ProbeWire,
    plan: &'a Plan,
    before: Facts,
    /// When it is cut short.
    end: Time,
    /// When the last write began.
    wrote: Time,
}

impl Exchange<'_> {
    fn run(mut self) -> (Call, Option<ProbeWire>) {
        let deadline = self.end.min(instrument::now() + self.plan.patience);
        let mut answer = Answering::new(self.plan.expect);
        answer.samples(self.plan.packs);
        let began = instrument::now();
        // Our work between the handshake and the first write (asking the kernel for its counters)
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
        if self.call.acknowledged.is_none() {
            self.read_stamps(written);
        }
        self.call.packs_to = answer.packs_to();
        if end.is_ok()
            && let Some(fault) = answer.fault()
        {
            let words = format!("{} {fault}", self.to);
            end = Err(Failure { stage: CallStage::Receive, why: Why::Malformed, words });
        }
        if self.wire.is_streamed() {
            self.call.streamed = Some(self.wire.streamed());
            if let Ok(answer) = &mut end {
                answer.reusable &= self.wire.takes_more();
            }
        }
        let reusable = end.as_ref().is_ok_and(|a| a.reusable);
        self.call.end = Some(end);
        (self.call, reusable.then_some(self.wire))
    }

    fn write(&mut self, bytes: &[u8], deadline: Time) -> Result<(), LostWire> {
        self.wrote = self.wire.write(bytes, deadline)?;
        Ok(())
    }

    fn send(&mut self, deadline: Time, answer: &mut Answering) -> Result<(), LostWire> {
        if self.wire.is_streamed() {
            return self.send_stream(deadline, answer);
        }
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
                    // The end is seen again when the response is read.
                    Ok(Came::Ended { .. }) => break,
                    Err(LostWire::Socket(e)) if e.error.kind() == std::io::ErrorKind::TimedOut => break,
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

    /// A server may answer and close before it has read all: then the response counts.
    fn refused_or(
        &mut self,
        deadline: Time,
        written: Time,
        answer: &mut Answering,
        lost: LostWire,
    ) -> ReceivingEnd {
        let sent = failed(CallStage::Send, lost, self.to);
        if sent.why == Why::TimedOut {
            return ReceivingEnd { end: Err(sent), written };
        }
        let received = self.receive(deadline, written, answer);
        ReceivingEnd { end: received.end.map_err(|_| sent), ..received }
    }

    fn receive(&mut self, deadline: Time, written: Time, answer: &mut Answering) -> ReceivingEnd {
        let (mut buffer, mut plain) = (vec![0; 64 << 10], Vec::new());
        let mut first = None;
        let mut last = written;
        let end = loop {
            if let Some(end) = answer.end() {
                break end;
            }
            match self.wire.read(&mut buffer, &mut plain, deadline) {
                Ok(Came::Nothing) => {}
                Ok(Came::Ended { at, .. }) if self.wire.is_streamed() => {
                    last = at;
                    break Err(answer.stream_closed(self.to));
                }
                Ok(Came::Ended { at, cut }) => {
                    let end = answer.closed(self.to, cut);
                    if end.is_ok() && first.is_some() {
                        // A response that ends with the connection is whole when that is closed.
                        self.call.closed_after = Some(at - last);
                        last = at;
                    }
                    break end;
                }
                Ok(Came::Bytes(receives)) => {
                    if self.wire.is_streamed() && !self.hear(&plain, answer, written, deadline) {
                        // Frames about the connection are no part of the response.
                        continue;
                    }
                    for (at, bytes) in receives {
                        first.get_or_insert(at);
                        last = at;
                        self.note(at, bytes);
                    }
                    if !self.wire.is_streamed() {
                        answer.take(&plain);
                    }
                    if answer.bytes > limits::ANSWER_BYTES {
                        let words = format!("the answer is larger than {} MiB", limits::ANSWER_BYTES >> 20);
                        break Err(Failure { stage: CallStage::Receive, why: Why::Other, words });
                    }
                }
                Err(LostWire::Tls(words)) => {
                    // A server of TLS 1.3 refuses our certificate when its part of the handshake is over.
                    let stage = if first.is_some() { CallStage::Receive } else { CallStage::Tls };
                    break Err(Failure { stage, why: Why::Tls, words });
                }
                Err(LostWire::Socket(e)) => {
                    let stage = if first.is_some() { CallStage::Receive } else { CallStage::Wait };
                    let failure = failure(stage, &e.error, self.to);
                    let patient = failure.why == Why::TimedOut && deadline < self.end;
                    if patient && let Some(stream) = answer.stream() {
                        last = first.unwrap_or(e.at);
                        self.call.receives.truncate(1);
                        break Ok(stream);
                    }
                    let came = (last - first.unwrap_or(last), e.at - std::mem::replace(&mut last, e.at));
                    break Err(answer.unfinished(failure, self.to, self.plan.patience, came));
                }
            }
        };
        // Bytes that came before the request was sent are no response to it.
        answer.came_before |= !self.call.fresh && first.is_some_and(|at| at + EARLY < self.start);
        let first = first.unwrap_or(last);
        // It may arrive before we get the processor back to see that the request is written: then
        // it left when the write began.
        let written = if first < written { self.wrote.min(first) } else { written };
        self.call.wait = first - written;
        self.call.receive = last - first;
        ReceivingEnd { end, written }
    }

    /// Sends the request as a stream: its head and what the windows admit of its body, then the rest
    /// as they grow.
    fn send_stream(&mut self, deadline: Time, answer: &mut Answering) -> Result<(), LostWire> {
        let plan = self.plan;
        let apart = plan.writes == Writes::Apart || plan.waits_for_continue;
        let (id, mut out) = self.wire.open_stream(0, &plan.block, plan.expect, plan.body.is_empty());
        let mut body = plan.body.as_slice();
        if apart && !body.is_empty() {
            self.write(&std::mem::take(&mut out), deadline)?;
        }
        if plan.waits_for_continue {
            let held = instrument::now();
            let patience = (held + limits::CONTINUE_TIME).min(deadline);
            while !answer.decided() {
                match self.read_frames(answer, patience) {
                    Ok(Some(at)) if answer.interim => self.call.continued = Some(at - self.start),
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(LostWire::Socket(e)) if e.error.kind() == std::io::ErrorKind::TimedOut => break,
                    Err(e) => return Err(e),
                }
            }
            self.call.held_for_continue = Some(instrument::now() - held);
            if answer.decided() && !answer.interim {
                return Ok(());
            }
        }
        loop {
            self.wire.put_body(id, &mut body, &mut out);
            if !out.is_empty() {
                self.write(&std::mem::take(&mut out), deadline)?;
            }
            if body.is_empty() || answer.end().is_some() {
                return Ok(());
            }
            // The server's window is full: it says when there is room again.
            let waited = instrument::now();
            let read = self.read_frames(answer, deadline)?;
            self.call.held_by_window += instrument::now() - waited;
            if read.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads frames once, and answers those that want it. Returns when they came; `None`: the peer
    /// has closed.
    fn read_frames(&mut self, answer: &mut Answering, deadline: Time) -> Result<Option<Time>, LostWire> {
        let (mut buffer, mut plain) = ([0; 16 << 10], Vec::new());
        match self.wire.read(&mut buffer, &mut plain, deadline)? {
            Came::Bytes(receives) => {
                let now = instrument::now();
                self.hear(&plain, answer, now, deadline);
                Ok(Some(receives.last().map_or(now, |(at, _)| *at)))
            }
            Came::Nothing => Ok(Some(instrument::now())),
            Came::Ended { .. } => Ok(None),
        }
    }

    /// Hands received bytes to the response. Says whether any of them belong to it.
    fn hear(&mut self, plain: &[u8], answer: &mut Answering, written: Time, deadline: Time) -> bool {
        answer.bytes += plain.len() as u64;
        let control = self.wire.hear(plain, std::slice::from_mut(answer));
        if !control.is_empty() {
            if self.call.acknowledged.is_none() {
                // Stamps of what follows are none of the request's.
                self.read_stamps(written);
            }
            // Where the connection failed, the next read says why.
            let _ = self.wire.write(&control, deadline);
        }
        std::mem::take(&mut answer.touched)
    }

    fn note(&mut self, at: Time, bytes: usize) {
        if self.call.receives.len() < limits::RECEIVES {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.call.receives.push(crate::call::ReceivedBytes { at: at - self.start, bytes });
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

/// Bytes that arrive this long before a request was sent cannot be its response. Reason: the kernel's clock and
/// ours are converted into each other.
const EARLY: Duration = Duration::from_micros(100);

/// The time by which packets are stamped, nanoseconds since 1970.
fn wall_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
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
        s.state == SocketState::LISTEN && s.local.port() == to.port() && here
    };
    let full = |s: &TcpSocket| s.receive_queue > 0 && s.receive_queue >= s.send_queue;
    tcp_sockets(limits::SOCKETS).is_ok_and(|(all, _)| all.iter().any(|s| listens(s) && full(s)))
}

/// How long the calling thread has been ready to run and waited for a processor.
pub(super) fn waited_here() -> Duration {
    machine::thread_sched_stat().map_or(Duration::ZERO, |stat| Duration::from_nanos(stat.waiting_ns))
}
