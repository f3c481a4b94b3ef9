//! Where a connection carries HTTP/2: how it is found, and what TCP does to its streams.

use crate::passive::h2::{Sniffed, begins};
use crate::passive::observation::Carried;
use crate::passive::packet::Segment;

use super::FlowConnection;
use crate::passive::flow::http2::{At, StreamFlow};
use crate::passive::flow::pending::{overtaken, stalled};
use crate::passive::flow::reassembly::StreamPiece;
use crate::passive::flow::record::SharedRecord;
use crate::passive::flow::sequence::before;
use crate::passive::flow::stall::Stall;
use crate::passive::flow::streams::Around;

impl FlowConnection {
    /// The next part of what the connection carries.
    pub(super) fn content(
        &mut self,
        dir: usize,
        piece: StreamPiece<'_>,
        at: At,
        now: i64,
        shared: &mut SharedRecord<'_>,
    ) {
        if self.http2.is_none() && !self.is_http1(dir, piece, at, now, shared) {
            return;
        }
        match self.http2.take() {
            Some(mut http2) => {
                http2.take(dir, piece, at, &mut self.around(now, shared));
                self.http2 = Some(http2);
            }
            None => self.plain(dir, piece, now, shared),
        }
    }

    /// Looks whether HTTP/2 begins, and turns to it if so. Returns false if the piece is held back.
    fn is_http1(
        &mut self,
        dir: usize,
        piece: StreamPiece<'_>,
        at: At,
        now: i64,
        shared: &mut SharedRecord<'_>,
    ) -> bool {
        let StreamPiece::Data(data) = piece else {
            self.end_sniff(dir, now, shared);
            return true;
        };
        if !self.directions[dir].sniff.0.is_over() {
            match self.directions[dir].sniff.0.look(data) {
                Sniffed::NotYet => {
                    self.directions[dir].sniff.1.get_or_insert(at);
                    return false;
                }
                Sniffed::Preface => self.turn_to_http2(dir, None, now, shared),
                Sniffed::Settings => {
                    // They may come again: a connection whose opening was not captured may be
                    // older.
                    let is_new = self.handshake.is_some() || self.record_began.is_some();
                    self.turn_to_http2(1 - dir, (!is_new).then_some(dir), now, shared);
                }
                Sniffed::No => self.end_sniff(dir, now, shared),
            }
        }
        let untouched = matches!(self.carried, Carried::Nothing | Carried::Other) && self.calls.is_idle();
        if self.http2.is_none()
            && untouched
            && let Some(by_client) = begins(data)
        {
            let client = match by_client.filter(|_| !self.client_known) {
                Some(true) => dir,
                Some(false) => 1 - dir,
                None => self.client,
            };
            self.turn_to_http2(client, Some(dir), now, shared);
        }
        true
    }

    /// HTTP/2 begins, or continues in direction `from`.
    fn turn_to_http2(&mut self, client: usize, from: Option<usize>, now: i64, shared: &mut SharedRecord<'_>) {
        self.client = client;
        self.client_known |= from.is_none();
        self.carried = Carried::Http2;
        self.http2 = Some(Box::new(StreamFlow::new(client, from, now, shared.limits)));
        for dir in [0, 1] {
            self.end_sniff(dir, now, shared);
        }
    }

    /// Ends sniffing in one direction, and reads the bytes that were held back.
    pub(super) fn end_sniff(&mut self, dir: usize, now: i64, shared: &mut SharedRecord<'_>) {
        let held = self.directions[dir].sniff.0.end();
        if let Some(at) = self.directions[dir].sniff.1.take() {
            let before = self.record_began.replace(at.spot.begun);
            self.content(dir, StreamPiece::Data(&held), at, now, shared);
            self.record_began = before;
        }
    }

    /// A segment was retransmitted.
    pub(super) fn lost_segment(
        &mut self,
        dir: usize,
        s: &Segment<'_>,
        now: i64,
        (waited, fast): (i64, bool),
        shared: &mut SharedRecord<'_>,
    ) {
        let Some(mut http2) = self.http2.take() else {
            return self.calls.lost_segment(now, waited, dir == self.client, fast);
        };
        let bytes = &self.directions[dir].bytes;
        let was_there = bytes.next().is_some_and(|next| before(s.seq, next));
        // The bytes behind it may have come long before it.
        let waited = bytes.held_since().map_or(waited, |since| waited.max(now - since));
        let end = s.seq.wrapping_add(s.len);
        let around = self.around(now, shared);
        http2.lost_segment(dir, (s.seq, end), was_there, (waited, fast), &around);
        self.http2 = Some(http2);
    }

    /// Segments came behind later ones, which waited for them.
    pub(super) fn overtaken(&mut self, dir: usize, now: i64, segments: u32, waited: i64) {
        let from_client = dir == self.client;
        match &mut self.http2 {
            None => self.calls.overtaken(now, segments, waited, from_client),
            Some(http2) => {
                let what = if from_client { "request" } else { "answer" };
                http2.stalled(dir, overtaken(segments, now - waited, waited, what));
            }
        }
    }

    /// A segment seems to have been held back until an ACK came.
    pub(super) fn stalled(&mut self, dir: usize, stall: Stall, from_client: bool) {
        if let Some(http2) = &mut self.http2 {
            // Before the request is whole, its client's segments belong to it.
            if http2.streams.is_waiting() || (from_client && !http2.streams.is_idle()) {
                http2.stalled(dir, stalled(stall, from_client));
            }
        } else if self.directions[dir].messages.in_message() || (!from_client && self.calls.is_waiting()) {
            self.calls.stalled(stall, from_client);
        }
    }

    pub(super) fn around<'a, 's>(&'a mut self, now: i64, shared: &'a mut SharedRecord<'s>) -> Around<'a, 's> {
        Around { now, times: self.times(), trace: &mut self.trace, shared }
    }
}
