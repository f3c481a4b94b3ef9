//! Makes calls of one connection's requests and responses, with the parts of their time and the
//! events that cost it.

use std::collections::VecDeque;

use crate::causes::late_close;
use crate::passive::observation::Note;

use super::order::Undone;
use super::pending::{Ended, Kept, Pending, PendingTimes, ResponsePauses, closed_window, ms, stalled};
use super::record::SharedRecord;
use super::stall::Stall;
use super::trace::Trace;

/// A connection that is closed sooner after its last byte is closed at once, nanoseconds.
const LATE_NS: i64 = 10_000_000;

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
    last: Option<Ended>,
}

impl Calls {
    /// An interim response is being read.
    pub(super) fn in_interim(&self) -> bool {
        self.interim
    }

    /// The time at which the last complete response ended.
    pub(super) fn last_end(&self) -> Option<i64> {
        self.last.map(|last| last.at)
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
        self.note(Note { cause: &late_close::CAUSE, at_ns: last, cost_ns: cost, text });
    }

    /// No request waits for its response.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// A response is being read.
    pub(super) fn is_answering(&self) -> bool {
        self.pending.front().is_some_and(|p| p.answer.is_some())
    }

    /// A complete request waits for its response.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.front().is_some_and(|p| p.end.is_some())
    }

    /// Since when the oldest request waits, and how many do.
    pub(super) fn waiting(&self) -> Option<(i64, u64)> {
        self.pending.front().map(|oldest| (oldest.begun, self.pending.len() as u64))
    }

    /// The method of the request that is answered next.
    pub(super) fn method(&self) -> Option<&str> {
        self.pending.front().map(|p| p.method.as_str())
    }

    /// A request's head. `unseen`: the client has acknowledged bytes of the server that were not
    /// seen. `kept`: by the client's window, before.
    pub(super) fn request(
        &mut self,
        (method, target): (&str, &str),
        expects: bool,
        (begun, now): (i64, i64),
        (unseen, kept): (bool, Kept),
        shared: &mut SharedRecord<'_>,
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
        let head = Pending { method, target, begun, head: now, expects, kept, ..Pending::default() };
        self.pending.push_back(head);
    }

    /// More of the request came.
    pub(super) fn request_data(&mut self, now: i64) {
        if let Some(last) = self.pending.back_mut().filter(|p| p.end.is_none()) {
            last.body.get_or_insert(now);
        }
    }

    /// New data of the server.
    pub(super) fn answer_data(&mut self, now: i64, bytes: u32) {
        if let Some(first) = self.pending.front_mut() {
            first.response.data(now, bytes);
        }
    }

    pub(super) fn request_end(&mut self, now: i64, cut: bool) {
        if let Some(last) = self.pending.back_mut().filter(|p| p.end.is_none() && !cut) {
            last.end = Some(now);
        }
    }

    /// A response's head; `begun`: the time of its first byte.
    pub(super) fn answer(&mut self, status: u16, begun: i64, now: i64, shared: &mut SharedRecord<'_>) {
        self.interim = (100..200).contains(&status) && status != 101;
        if self.interim {
            shared.record.sums.interim += 1;
            if let Some(first) = self.pending.front_mut() {
                first.interim.get_or_insert(now);
                first.response = ResponsePauses::default();
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
        times: &PendingTimes,
        trace: &mut Trace,
        shared: &mut SharedRecord<'_>,
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
        let mut call = done.measure(now, self.last, times, first);
        done.notes_into(&mut call, times.handshake.filter(|_| first));
        self.last = Some(Ended { at: now, kept: times.kept });
        trace.spent = true;
        shared.record.call(call, first, shared.limits, |call| trace.give(call, times.client));
    }

    /// A hole in the requests: the bytes behind it are unknown. Returns whether a request was being
    /// read.
    pub(super) fn requests_lost(&mut self) -> bool {
        let last = self.pending.back_mut().filter(|p| p.end.is_none());
        last.map(|last| last.end = Some(last.head)).is_some()
    }

    /// A hole in the responses. Without pipelining the next response belongs to the last request;
    /// with it, the request is unknown. Returns whether a response was being read.
    pub(super) fn answers_lost(&mut self, shared: &mut SharedRecord<'_>) -> bool {
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
            first.lost_segment(now, waited, from_client, fast);
        }
    }

    /// Segments came behind later ones.
    pub(super) fn overtaken(&mut self, now: i64, segments: u32, waited: i64, from_client: bool) {
        if let Some(first) = self.pending.front_mut() {
            first.overtaken(now, segments, waited, from_client);
        }
    }

    /// Segments that seemed to be lost were not.
    pub(super) fn undo(&mut self, from_client: bool, undone: Undone) {
        if let Some(first) = self.pending.front_mut() {
            first.undo(from_client, undone);
        }
    }

    /// The window of one end was closed for `cost`.
    pub(super) fn closed_window(&mut self, since: i64, cost: i64, of_client: bool) {
        self.note(closed_window(since, cost, of_client));
    }

    /// A segment had waited for room in the window of one end, which was open for `size` bytes.
    pub(super) fn small_window(&mut self, since: i64, cost: i64, size: u32, of_client: bool) {
        if let Some(first) = self.pending.front_mut() {
            first.small_window(since, cost, size, of_client);
        }
    }

    pub(super) fn stalled(&mut self, stall: Stall, from_client: bool) {
        self.note(stalled(stall, from_client));
    }

    fn note(&mut self, note: Note) {
        if let Some(first) = self.pending.front_mut() {
            first.note(note);
        }
    }

    pub(super) fn finish(&mut self, shared: &mut SharedRecord<'_>) {
        shared.record.sums.unanswered += self.pending.len() as u64;
        self.pending.clear();
    }
}
