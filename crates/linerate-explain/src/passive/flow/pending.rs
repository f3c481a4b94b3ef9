//! A request whose response is still to come, and what cost it time.

use std::net::SocketAddr;

use crate::causes::{
    client_nagle, client_slow_reader, expect_continue, packet_loss, reordering, request_held, server_nagle,
    syn_loss, time_wait,
};
use crate::passive::limits::NOTES;
use crate::passive::observation::{Handshake, LateSegments, Note, ObservedCall};

use super::order::Undone;
use super::stall::Stall;

/// A response of fewer bytes leaves at once, however far it goes: within the first window (RFC 6928).
const SMALL: u64 = 10_000;

/// Facts about the connection that a call needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingTimes {
    pub(super) connection: u64,
    /// The client's direction.
    pub(super) client: usize,
    pub(super) ends: (SocketAddr, SocketAddr),
    pub(super) handshake: Option<Handshake>,
    /// The shortest time until the server acknowledged data, as an upper bound of the round trip.
    /// Used if no handshake was captured.
    pub(super) rtt_bound: Option<i64>,
    /// How long the client's window had kept the server from sending, until now.
    pub(super) kept: Kept,
}

/// How long the window of one end kept the other one from sending.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    all: i64,
    /// Of it, because what had come was not read.
    unread: i64,
}

impl Kept {
    pub(super) fn add(&mut self, time: i64, unread: bool) {
        self.all = self.all.saturating_add(time.max(0));
        self.unread = self.unread.saturating_add(if unread { time.max(0) } else { 0 });
    }
}

/// When a response ended, and what the client's window had kept back by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at: i64,
    pub(super) kept: Kept,
}

/// A request whose response is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) begun: i64,
    pub(super) head: i64,
    pub(super) end: Option<i64>,
    /// `Expect: 100-continue`, and when the body's first bytes came.
    pub(super) expects: bool,
    pub(super) body: Option<i64>,
    pub(super) interim: Option<i64>,
    /// The response's status and first byte.
    pub(super) answer: Option<(u16, i64)>,
    /// How long the client's window had kept the server from sending, before it.
    pub(super) kept: Kept,
    /// How long it waited behind responses that the client did not read.
    pub(super) unread: i64,
    pub(super) losses: [Loss; 2],
    /// Segments that were taken for lost.
    pub(super) told: u64,
    /// Segments that others had overtaken.
    pub(super) overtaken: [Loss; 2],
    /// Segments that had to wait for room in a window that was small: the server's, the client's.
    pub(super) small: [Small; 2],
    pub(super) response: ResponsePauses,
    pub(super) notes: Vec<Note>,
}

/// New data of a response, and the longest pause in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponsePauses {
    last: Option<i64>,
    longest: i64,
    bytes: u64,
}

impl ResponsePauses {
    pub(super) fn data(&mut self, now: i64, bytes: u32) {
        self.longest = self.longest.max(self.last.map_or(0, |last| now - last));
        self.last = Some(now);
        self.bytes += u64::from(bytes);
    }
}

/// Segments of one direction that came late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    segments: u32,
    fast: u32,
    first: i64,
    cost: i64,
}

impl Loss {
    fn add(&mut self, now: i64, segments: u32, waited: i64) {
        if self.segments == 0 {
            self.first = now - waited;
        }
        self.segments += segments;
        self.cost = self.cost.saturating_add(waited);
    }
}

/// A window that was full, and whose receiver did not read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Small {
    segments: u32,
    first: i64,
    cost: i64,
    least: u32,
}

impl Pending {
    /// The parts of a call whose response ended now.
    /// `last`: the response before it on the connection. `first`: it is the first call of the
    /// connection.
    pub(super) fn measure(
        &mut self,
        now: i64,
        last: Option<Ended>,
        times: &PendingTimes,
        first: bool,
    ) -> ObservedCall {
        let (status, answered) = self.answer.unwrap_or((0, now));
        // The response came before the request was complete, so there was no wait.
        let sent = self.end.unwrap_or(answered).min(answered);
        let behind = last.map_or(0, |last| (last.at - sent).clamp(0, answered - sent));
        let waited = (answered - sent - behind).max(0);
        // What it waited for because the client did not read is no queue.
        let kept = last.map_or(0, |last| (last.kept.all - self.kept.all).clamp(0, behind));
        self.unread = last.map_or(0, |last| (last.kept.unread - self.kept.unread).clamp(0, kept));
        let to_server = times.handshake.and_then(|h| h.to_server_ns);
        let network = to_server.or(times.rtt_bound).unwrap_or(0).clamp(0, waited);
        let opening = times.handshake.filter(|_| first);
        let connect = opening.and_then(|h| h.whole_ns).unwrap_or(0);
        let start = opening.map_or(self.begun, |h| h.syn_ns.min(self.begun));
        ObservedCall {
            connection: times.connection,
            ends: Some(times.ends),
            method: self.method.clone(),
            target: self.target.clone(),
            status,
            start_ns: start,
            connect_ns: connect,
            idle_ns: (self.begun - start - connect).max(0),
            send_ns: (sent - self.begun).max(0),
            queued_ns: behind - kept,
            network_ns: network,
            think_ns: waited - network,
            receive_ns: (now - answered).max(0).saturating_add(kept),
            total_ns: connect.saturating_add((now - self.begun).max(0)),
            rtt_known: to_server.is_some(),
            // The records of TLS tell no response from session tickets.
            pause_ns: if status != 0 && self.response.bytes < SMALL { self.response.longest } else { 0 },
            ..ObservedCall::default()
        }
    }

    /// A segment was retransmitted, after a pause of `waited`.
    pub(super) fn lost_segment(&mut self, now: i64, waited: i64, from_client: bool, fast: bool) {
        let loss = &mut self.losses[usize::from(!from_client)];
        loss.fast += u32::from(fast);
        loss.add(now, 1, waited);
        self.told += 1;
    }

    /// Segments came later than others that were sent after them, which waited for so long.
    pub(super) fn overtaken(&mut self, now: i64, segments: u32, waited: i64, from_client: bool) {
        self.overtaken[usize::from(!from_client)].add(now, segments, waited);
    }

    /// Segments that seemed to be lost were not.
    pub(super) fn undo(&mut self, from_client: bool, undone: Undone) {
        if undone.at < self.begun {
            return;
        }
        let loss = &mut self.losses[usize::from(!from_client)];
        loss.segments = loss.segments.saturating_sub(undone.segments);
        loss.fast = loss.fast.min(loss.segments);
        loss.cost = if loss.segments == 0 { 0 } else { (loss.cost - undone.told).max(0) };
    }

    /// A segment had waited for room in the window of one end, which was open for `size` bytes.
    pub(super) fn small_window(&mut self, since: i64, cost: i64, size: u32, of_client: bool) {
        if since < self.begun {
            return;
        }
        let small = &mut self.small[usize::from(of_client)];
        if small.segments == 0 {
            (small.first, small.least) = (since, size);
        }
        small.segments += 1;
        small.least = small.least.min(size);
        small.cost = small.cost.saturating_add(cost);
    }

    pub(super) fn note(&mut self, note: Note) {
        if self.notes.len() < NOTES && note.at_ns >= self.begun {
            self.notes.push(note);
        }
    }

    /// The notes of the call, with those that only the complete call shows. `opening`: of the
    /// connection, if this is its first call.
    pub(super) fn notes_into(&mut self, call: &mut ObservedCall, opening: Option<Handshake>) {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(opening.filter(|h| h.syns > 1).map(sent_again));
        for (small, (cause, who, what)) in self.small.iter().zip([
            (&request_held::ZERO_WINDOW, "server", "request"),
            (&client_slow_reader::CAUSE, "client", "answer"),
        ]) {
            if small.segments > 0 {
                let text = format!(
                    "{} segments of the {what} waited {} for room in the {who}'s window, which admitted {} bytes at its smallest: it was not \
                     read as fast as it came",
                    small.segments,
                    ms(small.cost),
                    small.least
                );
                notes.push(Note { cause, at_ns: small.first, cost_ns: small.cost, text });
            }
        }
        if self.unread > 0 {
            let text = format!(
                "it waited {} behind earlier answers, while the client's window was full: it did not read them as fast as they came",
                ms(self.unread)
            );
            notes.push(Note {
                cause: &client_slow_reader::CAUSE,
                at_ns: self.head,
                cost_ns: self.unread,
                text,
            });
        }
        let all = |sides: &[Loss; 2]| sides.iter().map(|side| u64::from(side.segments)).sum();
        call.late = LateSegments {
            lost: all(&self.losses),
            told: self.told,
            overtaken: all(&self.overtaken),
            needless: self.told.saturating_sub(all(&self.losses)),
        };
        notes.extend(self.late_notes());
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
            notes.push(Note { cause: &expect_continue::CAUSE, at_ns: self.head, cost_ns: waited, text });
        }
        notes.sort_by_key(|n| n.at_ns);
        call.notes = notes;
    }
}

impl Pending {
    /// What segments that came late had cost.
    fn late_notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let sides = [("client", "request"), ("server", "answer")];
        for (loss, (who, what)) in self.losses.iter().zip(sides).filter(|(loss, _)| loss.segments > 0) {
            let (n, s) = (loss.segments, if loss.segments == 1 { "" } else { "s" });
            let quick = match loss.fast {
                0 => String::new(),
                fast => format!(", {fast} of them after duplicate ACKs"),
            };
            let text = format!(
                "{n} segment{s} of the {what} had to be sent again{quick}; the {who} waited {} for that, or what came behind",
                ms(loss.cost)
            );
            notes.push(Note { cause: &packet_loss::CAUSE, at_ns: loss.first, cost_ns: loss.cost, text });
        }
        for (late, (_, what)) in self.overtaken.iter().zip(sides).filter(|(late, _)| late.segments > 0) {
            notes.push(overtaken(late.segments, late.first, late.cost, what));
        }
        notes
    }
}

/// Segments were overtaken, and what came before them waited.
pub(super) fn overtaken(segments: u32, at_ns: i64, cost_ns: i64, what: &str) -> Note {
    let text = format!(
        "{segments} segment{} of the {what} came behind later ones, which had to wait for {}: not lost, since what was sent again is newer \
         and takes a round trip",
        if segments == 1 { "" } else { "s" },
        ms(cost_ns)
    );
    Note { cause: &reordering::CAUSE, at_ns, cost_ns, text }
}

/// The window of one end was closed for `cost`.
pub(super) fn closed_window(since: i64, cost: i64, of_client: bool) -> Note {
    let (cause, who, what) = match of_client {
        true => (&client_slow_reader::CAUSE, "client", "answer"),
        false => (&request_held::ZERO_WINDOW, "server", "request"),
    };
    let text = format!(
        "the {who}'s window was closed for {}: it did not read the {what} as fast as it came",
        ms(cost)
    );
    Note { cause, at_ns: since, cost_ns: cost, text }
}

/// A delayed acknowledgement held data back.
pub(super) fn stalled(stall: Stall, from_client: bool) -> Note {
    let (cause, who, peer, what) = if from_client {
        (&client_nagle::CAUSE, "client", "server", "request")
    } else {
        (&server_nagle::CAUSE, "server", "client", "answer")
    };
    let text = match stall.delayed {
        true => format!(
            "the {who} sent part of its {what}, then nothing until the {peer}'s ACK came {} later; the rest followed {} after that ACK",
            ms(stall.ack_after),
            ms(stall.data_after)
        ),
        false => format!(
            "the {who} sent part of its {what}, then nothing for exactly the round trip until the {peer}'s ACK of it had come, which was not \
             late: the rest followed {} after the first part",
            ms(stall.ack_after.saturating_add(stall.data_after))
        ),
    };
    Note { cause, at_ns: stall.from, cost_ns: stall.ack_after.saturating_add(stall.data_after), text }
}

/// The cause of an opening with more than one SYN.
fn sent_again(h: Handshake) -> Note {
    let cost = h.whole_ns.unwrap_or(0) - h.to_server_ns.unwrap_or(0) - h.to_client_ns.unwrap_or(0);
    let (cause, text) = if h.collisions > 0 {
        let text = format!(
            "the SYN was answered by a bare ACK of other numbers: the server still remembers a connection between the same addresses and \
             ports (TIME_WAIT); the client reset that one and sent its SYN again, {} times in all",
            h.syns
        );
        (&time_wait::CAUSE, text)
    } else {
        let text = format!(
            "the SYN was sent {} times: it or its answer was lost, or the server's accept queue was full",
            h.syns
        );
        (&syn_loss::CAUSE, text)
    };
    Note { cause, at_ns: h.syn_ns, cost_ns: cost.max(0), text }
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
