//! HTTP/2 on a connection of ours.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_http::client::Expect;
use linerate_http::h2::FRAME_HEAD;
use linerate_net::Time;
use linerate_net::instrument::{self, Facts};

use super::answer::Answering;
use super::disorder::Disorder;
use super::exchange::{Plan, failed};
use super::wire::{Came, LostWire, ProbeWire};
use crate::call::{Call, CallStage, Failure, Streamed, Why};
use crate::limits;

impl ProbeWire {
    /// Whether it carries HTTP/2.
    pub(super) fn is_streamed(&self) -> bool {
        self.streams.is_some()
    }

    /// Whether another stream may be opened.
    pub(super) fn takes_more(&self) -> bool {
        self.streams.as_ref().is_some_and(|s| s.client.room() > 0)
    }

    /// The windows and limits of HTTP/2 on this connection; all zero where it speaks HTTP/1.1.
    pub(super) fn streamed(&self) -> Streamed {
        let Some(streams) = &self.streams else { return Streamed::default() };
        let settings = streams.client.settings();
        Streamed {
            window: streams.window,
            most_streams: settings.max_concurrent_streams,
            their_window: settings.initial_window_size,
        }
    }

    /// Reads what has come on an idle connection. Says whether it may carry another request: a client
    /// looks before it sends.
    pub(super) fn is_fit(&mut self) -> bool {
        if self.streams.is_none() {
            return true;
        }
        let (mut buffer, mut plain) = ([0; 4096], Vec::new());
        loop {
            match self.read(&mut buffer, &mut plain, instrument::now()) {
                Ok(Came::Bytes(_)) => {
                    let streams = self.streams.as_mut();
                    streams.into_iter().for_each(|s| s.hear(&plain, &mut []));
                }
                Ok(Came::Nothing) => {}
                Ok(Came::Ended { .. }) | Err(LostWire::Tls(_)) => return false,
                Err(LostWire::Socket(e)) => {
                    return e.error.kind() == ErrorKind::TimedOut && self.takes_more();
                }
            }
        }
    }

    /// Opens a stream for the response at that place. Returns its number and the bytes to write.
    pub(super) fn open_stream(
        &mut self,
        at: u32,
        block: &[u8],
        expect: Expect,
        ends: bool,
    ) -> (u32, Vec<u8>) {
        let Some(streams) = &mut self.streams else { return (0, Vec::new()) };
        let mut out = std::mem::take(streams.client.take_control());
        let id = streams.client.open(at, block, expect, ends, &mut out);
        (id, out)
    }

    /// Appends as much of a body as the windows admit.
    pub(super) fn put_body(&mut self, id: u32, body: &mut &[u8], out: &mut Vec<u8>) {
        let Some(streams) = &mut self.streams else { return };
        while !body.is_empty() {
            let Some(room) = streams.client.data_room(id) else {
                // The stream is closed: the rest is not wanted.
                *body = &[];
                return;
            };
            let len = body.len().min(room as usize);
            if len == 0 {
                return;
            }
            let (piece, rest) = body.split_at(len);
            out.reserve(FRAME_HEAD + len);
            streams.client.write_data(id, len as u32, rest.is_empty(), out);
            out.extend_from_slice(piece);
            *body = rest;
        }
    }

    /// Hands received bytes to the responses. Returns the protocol's own bytes to send.
    pub(super) fn hear(&mut self, plain: &[u8], answers: &mut [Answering]) -> Vec<u8> {
        let Some(streams) = &mut self.streams else { return Vec::new() };
        streams.hear(plain, answers);
        std::mem::take(streams.client.take_control())
    }

    fn room(&self) -> usize {
        self.streams.as_ref().map_or(0, |s| s.client.room() as usize)
    }
}

/// One of several calls at once on a connection.
struct One {
    opened: Option<Time>,
    written: Time,
    first: Option<Time>,
    last: Time,
    end: Option<Result<crate::call::ProbeResponse, Failure>>,
    /// Bytes of it may have been in a segment that was missing.
    lost: bool,
    /// How long its last bytes waited behind such a segment of others.
    held: Duration,
}

impl One {
    fn waiting(start: Time) -> One {
        let (lost, held) = (false, Duration::ZERO);
        One { opened: None, written: start, first: None, last: start, end: None, lost, held }
    }

    /// Notes what could be read of its response. Says whether that was anything.
    fn note(&mut self, answer: &mut Answering, at: Time) -> bool {
        let touched = std::mem::take(&mut answer.touched);
        if touched {
            self.first.get_or_insert(at);
            self.last = at;
        }
        if self.end.is_none() {
            self.end = answer.end();
        }
        touched
    }
}

/// Reads a connection with several calls at once.
struct Hearing<'a> {
    wire: &'a mut ProbeWire,
    all: &'a mut [One],
    answers: Vec<Answering>,
    /// Segments that came out of order before.
    before: u32,
    disorder: Disorder,
    /// Bytes to write.
    out: Vec<u8>,
}

impl Hearing<'_> {
    /// Segments that came out of order since the calls began, as the kernel counts.
    fn count(&mut self, facts: &Facts) {
        self.disorder.note(instrument::now(), facts.rcv_ooopack.wrapping_sub(self.before));
    }

    /// Passes on a piece of what was read. Returns whether it was any call's.
    fn piece(&mut self, plain: &[u8], at: Time, then: impl Fn(&mut One, bool)) -> bool {
        let out = self.wire.hear(plain, &mut self.answers);
        self.out.extend(out);
        let mut any = false;
        for (one, answer) in self.all.iter_mut().zip(&mut self.answers) {
            let open = one.end.is_none();
            if one.note(answer, at) {
                any = true;
                then(one, open && one.end.is_some());
            }
        }
        any
    }

    /// Passes on what was read, and finds the calls whose last bytes had waited for a segment that
    /// carried none of theirs.
    fn take(&mut self, plain: &[u8], receives: &[(Time, usize)]) {
        let at = receives.last().map_or_else(instrument::now, |(at, _)| *at);
        let facts = self.wire.look().facts();
        self.count(&facts);
        let bytes = receives.last().map_or(0, |(_, bytes)| *bytes);
        // Over TLS these came before, and belong to the record that was not whole.
        let before = receives.iter().map(|(_, bytes)| bytes).sum::<usize>() - bytes;
        let segment = facts.advmss.max(facts.rcv_mss).max(1) as usize;
        let waited = self.disorder.handed_on(bytes.div_ceil(segment).saturating_sub(1));
        let missing = match waited.is_empty() {
            true => plain.len(),
            false => (before + bytes.saturating_sub(waited.len() * segment).max(segment)).min(plain.len()),
        };
        let (first, mut rest) = plain.split_at(missing);
        self.piece(first, at, |one, _| one.lost |= !waited.is_empty());
        let now = instrument::now();
        let mut next = false;
        for arrived in waited {
            let (piece, after) = rest.split_at(segment.min(rest.len()));
            rest = after;
            // The first frame behind the missing segment may have begun in it.
            let whole = next;
            next |= self.piece(piece, at, |one, ends| {
                one.lost |= !whole;
                if ends && !one.lost {
                    one.held = now - arrived;
                }
            });
        }
        if !rest.is_empty() {
            self.piece(rest, at, |_, _| ());
        }
    }
}

/// This many calls at once on an open connection. Those for which the server admits no stream
/// wait at ours until one ends. The connection comes back when it may carry another request.
pub(super) fn at_once(
    mut wire: ProbeWire,
    plan: &Plan,
    calls: u8,
    end: Time,
) -> (Vec<Call>, Option<ProbeWire>) {
    let before = wire.socket().begin();
    let to = wire.look().peer().unwrap_or(([0, 0, 0, 0], 0).into());
    let start = instrument::now();
    let deadline = end.min(start + plan.patience);
    let mut all: Vec<One> = (0..calls).map(|_| One::waiting(start)).collect();
    let failed = run(&mut wire, plan, &mut all, deadline, (to, &before));
    if let Some(failure) = &failed {
        let why = if failure.why == Why::TimedOut && deadline == end { Why::Cut } else { failure.why };
        let failure = Failure { why, ..failure.clone() };
        all.iter_mut().for_each(|one| {
            one.end.get_or_insert_with(|| Err(failure.clone()));
        });
    }
    let facts = wire.look().facts().since(&before);
    let streamed = wire.streamed();
    let local = wire.look().local();
    let fit = failed.is_none() && wire.takes_more();
    let call = |one: One| {
        let opened = one.opened.unwrap_or(one.last);
        let first = one.first.unwrap_or(one.last);
        let written = one.written.max(opened).min(first);
        Call {
            local,
            queued: opened - start,
            held_behind: one.held,
            send: written - opened,
            wait: first - written,
            receive: one.last - first,
            total: one.last - start,
            facts,
            streamed: Some(streamed),
            end: one.end,
            ..Call::default()
        }
    };
    (all.into_iter().map(call).collect(), fit.then_some(wire))
}

/// How often the kernel is asked for its counters while nothing can be read.
const LOOK: Duration = Duration::from_millis(1);

/// Until all have ended. Returns why that cannot be.
fn run(
    wire: &mut ProbeWire,
    plan: &Plan,
    all: &mut [One],
    deadline: Time,
    (to, before): (SocketAddr, &Facts),
) -> Option<Failure> {
    let (mut buffer, mut plain) = (vec![0; 64 << 10], Vec::new());
    let answers: Vec<Answering> = all.iter().map(|_| Answering::new(plan.expect)).collect();
    let mut next = 0;
    let mut bodies = vec![plan.body.as_slice(); all.len()];
    let mut ids = vec![0; all.len()];
    // A call alone waits for no other.
    let look = if all.len() > 1 { LOOK } else { plan.patience };
    let (before, disorder) = (before.rcv_ooopack, Disorder::default());
    let mut hearing = Hearing { wire, all, answers, before, disorder, out: Vec::new() };
    while hearing.all.iter().any(|one| one.end.is_none()) {
        let Hearing { wire, all, out, .. } = &mut hearing;
        while next < all.len() && wire.room() > 0 {
            let (id, bytes) = wire.open_stream(next as u32, &plan.block, plan.expect, plan.body.is_empty());
            out.extend(bytes);
            ids[next] = id;
            all[next].opened = Some(instrument::now());
            next += 1;
        }
        for (id, body) in ids.iter().zip(&mut bodies).take(next).filter(|(_, body)| !body.is_empty()) {
            wire.put_body(*id, body, out);
        }
        if !out.is_empty() {
            if let Err(lost) = wire.write(&std::mem::take(out), deadline) {
                return Some(failed(CallStage::Send, lost, to));
            }
            let now = instrument::now();
            all[..next].iter_mut().filter(|one| one.first.is_none()).for_each(|one| one.written = now);
        }
        if all[..next].iter().all(|one| one.end.is_some()) {
            let words = format!("{to} takes no more requests on the connection (GOAWAY)");
            return (next < all.len()).then_some(Failure { stage: CallStage::Send, why: Why::Other, words });
        }
        match wire.read(&mut buffer, &mut plain, deadline.min(instrument::now() + look)) {
            Ok(Came::Bytes(receives)) => hearing.take(&plain, &receives),
            Ok(Came::Nothing) => {}
            Ok(Came::Ended { .. }) => {
                let words = format!("{to} closed the connection before it had answered all");
                return Some(Failure { stage: CallStage::Wait, why: Why::ClosedEarly, words });
            }
            Err(LostWire::Socket(e)) if e.error.kind() == ErrorKind::TimedOut && e.at < deadline => {
                hearing.count(&e.facts);
            }
            Err(lost) => return Some(failed(CallStage::Wait, lost, to)),
        }
    }
    None
}

/// Rounds of calls at once on several connections: between two rounds all have ended.
pub(super) fn rounds(
    wires: Vec<ProbeWire>,
    plan: &Plan,
    (calls, rounds): (u8, u8),
    end: Time,
) -> Vec<Vec<Call>> {
    let mut wires: Vec<Option<ProbeWire>> = wires.into_iter().map(Some).collect();
    let lanes = wires.len().max(1);
    let mut made = Vec::with_capacity(usize::from(rounds));
    for _ in 0..rounds {
        // Connections that came back from the round before are looked at as a client looks.
        for wire in &mut wires {
            *wire = wire.take().and_then(|mut wire| wire.is_fit().then_some(wire));
        }
        if wires.iter().any(Option::is_none) || end - instrument::now() == Duration::ZERO {
            break;
        }
        let shares = (0..lanes).map(|lane| (usize::from(calls) + lanes - 1 - lane) / lanes);
        let shares = shares.map(|share| u8::try_from(share).unwrap_or(limits::AT_ONCE).min(limits::AT_ONCE));
        let results: Vec<(Vec<Call>, Option<ProbeWire>)> = std::thread::scope(|scope| {
            let pairs = wires.iter_mut().zip(shares);
            let threads: Vec<_> = pairs
                .filter_map(|(wire, share)| {
                    let wire = wire.take()?;
                    Some(scope.spawn(move || at_once(wire, plan, share, end)))
                })
                .collect();
            threads.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        let mut round = Vec::new();
        for (slot, (calls, wire)) in wires.iter_mut().zip(results) {
            round.extend(calls);
            *slot = wire;
        }
        made.push(round);
    }
    made
}
