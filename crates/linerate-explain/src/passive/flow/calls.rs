//! Makes calls of one connection's requests and responses, with the parts of their time and the
//! events that cost it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::passive::cause;
use crate::passive::limits::NOTES;
use crate::passive::observation::{Call, Handshake, Note};

use super::connection::Shared;
use super::stall::Stall;
use super::trace::Trace;

/// Facts about the connection that a call needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) connection: u64,
    /// The client's direction.
    pub(super) client: usize,
    pub(super) ends: (SocketAddr, SocketAddr),
    pub(super) handshake: Option<Handshake>,
    /// The shortest time until the server acknowledged data, as an upper bound of the round trip.
    /// Used if no handshake was captured.
    pub(super) rtt_bound: Option<i64>,
}

/// A request whose response is not complete yet.
#[derive(Debug, Default)]
struct Pending {
    method: String,
    target: String,
    begun: i64,
    head: i64,
    end: Option<i64>,
    /// `Expect: 100-continue`, and when the body's first bytes came.
    expects: bool,
    body: Option<i64>,
    interim: Option<i64>,
    /// The response's status and first byte.
    answer: Option<(u16, i64)>,
    losses: [Loss; 2],
    /// Segments that had to wait for room in a window that was small: the server's, the client's.
    small: [Small; 2],
    notes: Vec<Note>,
}

/// A connection that is closed sooner after its last byte is closed at once, nanoseconds.
const LATE_NS: i64 = 10_000_000;

/// Retransmitted segments of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    segments: u32,
    fast: u32,
    first: i64,
    cost: i64,
}

/// A window that was smaller than half its size, and full.
#[derive(Clone, Copy, Debug, Default)]
struct Small {
    segments: u32,
    first: i64,
    cost: i64,
    least: u32,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    pending: VecDeque<Pending>,
    /// An interim response is being read.
    interim: bool,
    pub(super) requests: u64,
    pub(super) answers: u64,
    answered: u64,
    /// A request was sent before the response to the previous one.
    pipelined: bool,
    last_end: Option<i64>,
}

impl Calls {
    /// An interim response is being read.
    pub(super) fn in_interim(&self) -> bool {
        self.interim
    }

    /// The time at which the last complete response ended.
    pub(super) fn last_end(&self) -> Option<i64> {
        self.last_end
    }

    /// A call came to its end.
    pub(super) fn any_whole(&self) -> bool {
        self.answered > 0
    }

    /// The response ended with its connection, this long after its last byte.
    pub(super) fn closed_late(&mut self, last: i64, cost: i64) {
        if cost < LATE_NS || self.pending.front().is_none_or(|p| p.answer.is_none()) {
            return;
        }
        let text = format!(
            "the answer says nowhere how long it is: its end is the connection's, which the server closed {} after the last byte",
            ms(cost)
        );
        self.note(Note { id: cause::LATE_CLOSE, at_ns: last, cost_ns: cost, text });
    }

    /// No request waits for its response.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// A complete request waits for its response.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.front().is_some_and(|p| p.end.is_some())
    }

    /// The method of the request that is answered next.
    pub(super) fn method(&self) -> Option<&str> {
        self.pending.front().map(|p| p.method.as_str())
    }

    /// A request's head. `unseen`: the client has acknowledged bytes of the server that were not
    /// seen.
    pub(super) fn request(
        &mut self,
        (method, target): (&str, &str),
        expects: bool,
        begun: i64,
        now: i64,
        unseen: bool,
        shared: &mut Shared<'_>,
    ) {
        self.requests += 1;
        shared.record.sums.requests += 1;
        if !self.pending.is_empty() && !unseen {
            self.pipelined = true;
            shared.record.sums.pipelined += 1;
        }
        if self.pending.len() >= shared.limits.pending {
            self.pending.pop_front();
            shared.record.sums.unanswered += 1;
        }
        let (method, target) = (method.to_owned(), target.to_owned());
        self.pending.push_back(Pending { method, target, begun, head: now, expects, ..Pending::default() });
    }

    /// More of the request came.
    pub(super) fn request_data(&mut self, now: i64) {
        if let Some(last) = self.pending.back_mut().filter(|p| p.end.is_none()) {
            last.body.get_or_insert(now);
        }
    }

    pub(super) fn request_end(&mut self, now: i64, cut: bool) {
        if let Some(last) = self.pending.back_mut().filter(|p| p.end.is_none() && !cut) {
            last.end = Some(now);
        }
    }

    /// A response's head; `begun`: the time of its first byte.
    pub(super) fn answer(&mut self, status: u16, begun: i64, now: i64, shared: &mut Shared<'_>) {
        self.interim = (100..200).contains(&status) && status != 101;
        if self.interim {
            shared.record.sums.interim += 1;
            if let Some(first) = self.pending.front_mut() {
                first.interim.get_or_insert(now);
            }
            return;
        }
        self.answers += 1;
        shared.record.sums.answers += 1;
        match self.pending.front_mut() {
            Some(first) => first.answer = Some((status, begun)),
            None => shared.record.sums.orphans += 1,
        }
    }

    pub(super) fn answer_end(
        &mut self,
        now: i64,
        cut: bool,
        times: &Times,
        trace: &mut Trace,
        shared: &mut Shared<'_>,
    ) {
        if std::mem::take(&mut self.interim) {
            return;
        }
        if self.pending.front().is_none_or(|p| p.answer.is_none()) {
            return;
        }
        let Some(mut done) = self.pending.pop_front() else { return };
        if cut {
            shared.record.sums.unanswered += 1;
            return;
        }
        let first = self.answered == 0 && self.requests as usize == 1 + self.pending.len();
        self.answered += 1;
        let mut call = self.measure(&done, now, times, first);
        done.notes_into(&mut call, times.handshake.filter(|_| first));
        self.last_end = Some(now);
        trace.spent = true;
        shared.record.call(call, first, shared.limits, |call| trace.give(call, times.client));
    }

    /// The parts of a call whose response ended now.
    fn measure(&self, done: &Pending, now: i64, times: &Times, first: bool) -> Call {
        let (status, answered) = done.answer.unwrap_or((0, now));
        // The response came before the request was complete, so there was no wait.
        let sent = done.end.unwrap_or(answered).min(answered);
        let queued = self.last_end.map_or(0, |last| (last - sent).clamp(0, answered - sent));
        let waited = (answered - sent - queued).max(0);
        let to_server = times.handshake.and_then(|h| h.to_server_ns);
        let network = to_server.or(times.rtt_bound).unwrap_or(0).clamp(0, waited);
        let opening = times.handshake.filter(|_| first);
        let connect = opening.and_then(|h| h.whole_ns).unwrap_or(0);
        let start = opening.map_or(done.begun, |h| h.syn_ns.min(done.begun));
        Call {
            connection: times.connection,
            ends: Some(times.ends),
            method: done.method.clone(),
            target: done.target.clone(),
            status,
            start_ns: start,
            connect_ns: connect,
            idle_ns: (done.begun - start - connect).max(0),
            send_ns: (sent - done.begun).max(0),
            queued_ns: queued,
            network_ns: network,
            think_ns: waited - network,
            receive_ns: (now - answered).max(0),
            total_ns: connect.saturating_add((now - done.begun).max(0)),
            rtt_known: to_server.is_some(),
            ..Call::default()
        }
    }

    /// A hole in the requests: the bytes behind it are unknown. Returns whether a request was being
    /// read.
    pub(super) fn requests_lost(&mut self) -> bool {
        let last = self.pending.back_mut().filter(|p| p.end.is_none());
        last.map(|last| last.end = Some(last.head)).is_some()
    }

    /// A hole in the responses. Without pipelining the next response belongs to the last request;
    /// with it, the request is unknown. Returns whether a response was being read.
    pub(super) fn answers_lost(&mut self, shared: &mut Shared<'_>) -> bool {
        self.interim = false;
        let open = self.pending.front().is_some_and(|p| p.answer.is_some());
        let keep = usize::from(!self.pipelined && self.pending.back().is_some_and(|p| p.answer.is_none()));
        let lost = self.pending.len().saturating_sub(keep);
        self.pending.drain(..lost);
        shared.record.sums.unanswered += lost as u64;
        open
    }

    /// A segment was retransmitted, after a pause of `waited`.
    pub(super) fn lost_segment(&mut self, now: i64, waited: i64, from_client: bool, fast: bool) {
        if let Some(first) = self.pending.front_mut() {
            let loss = &mut first.losses[usize::from(!from_client)];
            if loss.segments == 0 {
                loss.first = now - waited;
            }
            loss.segments += 1;
            loss.fast += u32::from(fast);
            loss.cost = loss.cost.saturating_add(waited);
        }
    }

    /// The window of one end was closed for `cost`.
    pub(super) fn closed_window(&mut self, since: i64, cost: i64, of_client: bool) {
        let (id, who, what) = match of_client {
            true => (cause::CLIENT_SLOW_READER, "client", "answer"),
            false => (cause::ZERO_WINDOW, "server", "request"),
        };
        let text = format!(
            "the {who}'s window was closed for {}: it did not read the {what} as fast as it came",
            ms(cost)
        );
        self.note(Note { id, at_ns: since, cost_ns: cost, text });
    }

    /// A segment had waited for room in the window of one end, which was open for `size` bytes.
    pub(super) fn small_window(&mut self, since: i64, cost: i64, size: u32, of_client: bool) {
        if let Some(first) = self.pending.front_mut().filter(|p| since >= p.begun) {
            let small = &mut first.small[usize::from(of_client)];
            if small.segments == 0 {
                (small.first, small.least) = (since, size);
            }
            small.segments += 1;
            small.least = small.least.min(size);
            small.cost = small.cost.saturating_add(cost);
        }
    }

    pub(super) fn stalled(&mut self, stall: Stall, from_client: bool) {
        let (id, who, peer, what) = if from_client {
            (cause::CLIENT_NAGLE, "client", "server", "request")
        } else {
            (cause::SERVER_NAGLE, "server", "client", "answer")
        };
        let text = format!(
            "the {who} sent part of its {what}, then nothing until the {peer}'s ACK came {} later; the rest followed {} after that ACK",
            ms(stall.ack_after),
            ms(stall.data_after)
        );
        self.note(Note {
            id,
            at_ns: stall.from,
            cost_ns: stall.ack_after.saturating_add(stall.data_after),
            text,
        });
    }

    fn note(&mut self, note: Note) {
        if let Some(first) =
            self.pending.front_mut().filter(|p| p.notes.len() < NOTES && note.at_ns >= p.begun)
        {
            first.notes.push(note);
        }
    }

    pub(super) fn finish(&mut self, shared: &mut Shared<'_>) {
        shared.record.sums.unanswered += self.pending.len() as u64;
        self.pending.clear();
    }
}

impl Pending {
    /// The notes of the call, with those that only the complete call shows. `opening`: of the
    /// connection, if this is its first call.
    fn notes_into(&mut self, call: &mut Call, opening: Option<Handshake>) {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(opening.filter(|h| h.syns > 1).map(sent_again));
        for (small, (id, who, what)) in self
            .small
            .iter()
            .zip([(cause::ZERO_WINDOW, "server", "request"), (cause::CLIENT_SLOW_READER, "client", "answer")])
        {
            if small.segments > 0 {
                let text = format!(
                    "the {who}'s window shrank to {} bytes, and {} segments of the {what} waited {} for room in it: it was not read as \
                     fast as it came",
                    small.least,
                    small.segments,
                    ms(small.cost)
                );
                notes.push(Note { id, at_ns: small.first, cost_ns: small.cost, text });
            }
        }
        for (loss, (who, what)) in self.losses.iter().zip([("client", "request"), ("server", "answer")]) {
            if loss.segments == 0 {
                continue;
            }
            let (n, s) = (loss.segments, if loss.segments == 1 { "" } else { "s" });
            let quick = if loss.fast > 0 {
                format!(", {} of them after duplicate ACKs", loss.fast)
            } else {
                String::new()
            };
            let text = format!(
                "{n} segment{s} of the {what} had to be sent again{quick}; the {who} waited {} for that",
                ms(loss.cost)
            );
            notes.push(Note { id: cause::PACKET_LOSS, at_ns: loss.first, cost_ns: loss.cost, text });
        }
        if let Some(body) = self.body.filter(|_| self.expects) {
            let waited = body - self.head;
            let got = self.interim.is_some_and(|at| at <= body);
            let text = match got {
                true => format!("the client held its body back for {} until 100 Continue came", ms(waited)),
                false => format!(
                    "the client waited {} for a 100 Continue that did not come, then sent its body",
                    ms(waited)
                ),
            };
            notes.push(Note { id: cause::EXPECT_CONTINUE, at_ns: self.head, cost_ns: waited, text });
        }
        notes.sort_by_key(|n| n.at_ns);
        call.notes = notes;
    }
}

/// The cause of an opening with more than one SYN.
fn sent_again(h: Handshake) -> Note {
    let cost = h.whole_ns.unwrap_or(0) - h.to_server_ns.unwrap_or(0) - h.to_client_ns.unwrap_or(0);
    let (id, text) = if h.collisions > 0 {
        let text = format!(
            "the SYN was answered by a bare ACK of other numbers: the server still remembers a connection between the same addresses and \
             ports (TIME_WAIT); the client reset that one and sent its SYN again, {} times in all",
            h.syns
        );
        (cause::TIME_WAIT_COLLISION, text)
    } else {
        let text = format!(
            "the SYN was sent {} times: it or its answer was lost, or the server's accept queue was full",
            h.syns
        );
        (cause::SYN_LOSS, text)
    };
    Note { id, at_ns: h.syn_ns, cost_ns: cost.max(0), text }
}

/// Milliseconds for people.
pub(crate) fn ms(ns: i64) -> String {
    let ms = ns as f64 / 1e6;
    match ms.abs() {
        0.0..0.095 => format!("{:.0} µs", ms * 1e3),
        0.095..9.95 => format!("{ms:.2} ms"),
        9.95..99.95 => format!("{ms:.1} ms"),
        99.95..9_999.5 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}
