//! One direction's bytes in order, holes told as holes, in bounded memory.

use std::cell::Cell;

use crate::passive::limits::HELD_SEGMENTS;

use super::sequence::before;

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPiece<'a> {
    /// Bytes in order.
    Data(&'a [u8]),
    /// That many bytes which the capture does not have.
    Hole(u32),
}

/// Where the next part was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    /// When; that is before what precedes it, for a segment that was held back.
    pub(crate) came: i64,
    /// The number of its first byte.
    pub(crate) seq: u32,
}

/// A segment that came before what precedes it.
#[derive(Debug)]
struct EarlySegment {
    seq: u32,
    len: u32,
    data: Box<[u8]>,
    came: i64,
}

/// Bytes all connections together may still hold back.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<usize>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Budget {
        Budget { left: Cell::new(bytes) }
    }

    /// Takes `n`, if that much is left.
    pub(crate) fn take(&self, n: usize) -> bool {
        let left = self.left.get().checked_sub(n);
        left.is_some_and(|left| {
            self.left.set(left);
            true
        })
    }

    pub(crate) fn give_back(&self, n: usize) {
        self.left.set(self.left.get() + n);
    }
}

/// Puts one direction's segments in order.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    next: Option<u32>,
    held: Vec<EarlySegment>,
    held_bytes: usize,
    /// The peer has acknowledged all before it.
    acked: Option<u32>,
}

impl Reassembly {
    /// The stream starts at `seq` (the SYN's number plus one, or the first byte seen).
    pub(super) fn start(&mut self, seq: u32) {
        self.next.get_or_insert(seq);
    }

    /// The number of the next byte that is expected.
    pub(super) fn next(&self) -> Option<u32> {
        self.next
    }

    /// Nothing is held back.
    pub(super) fn is_in_order(&self) -> bool {
        self.held.is_empty()
    }

    /// The peer acknowledges all before `ack`: a hole before that is one of the capture, not of the
    /// network.
    pub(super) fn acked(&mut self, ack: u32) {
        if self.acked.is_none_or(|before_it| before(before_it, ack)) {
            self.acked = Some(ack);
        }
    }

    /// The peer has acknowledged bytes that did not come by.
    pub(super) fn lacks_acked(&self) -> bool {
        self.acked.zip(self.next).is_some_and(|(acked, next)| before(next, acked))
    }

    /// When the first of the segments was captured that are held back.
    pub(super) fn held_since(&self) -> Option<i64> {
        self.held.iter().map(|held| held.came).min()
    }

    /// A segment of `len` bytes at `seq`, of which `data` was captured at `came`. `each` gets what is
    /// now in order. `limit`: bytes this direction may hold back.
    pub(super) fn segment(
        &mut self,
        (seq, len, came): (u32, u32, i64),
        data: &[u8],
        budget: &Budget,
        limit: usize,
        each: &mut dyn FnMut(StreamPiece<'_>, Caught),
    ) {
        let next = *self.next.get_or_insert(seq);
        if before(next, seq) && !self.is_acked(seq) {
            self.hold((seq, len, came), data, budget, limit, each);
            return;
        }
        if before(next, seq) {
            self.release_until(seq, budget, each);
        }
        self.deliver((seq, len, came), data, each);
        self.release(budget, each);
    }

    /// The peer has acknowledged all before `seq`.
    fn is_acked(&self, seq: u32) -> bool {
        self.acked.is_some_and(|acked| !before(acked, seq))
    }

    /// After an acknowledgement: what it covers is not waited for any more.
    pub(super) fn skip_acked(&mut self, budget: &Budget, each: &mut dyn FnMut(StreamPiece<'_>, Caught)) {
        // Only when it covers a held segment to its end: the packets around an acknowledgement may
        // be captured in disorder.
        while let Some(first) = self.held.first() {
            let (seq, end) = (first.seq, first.seq.wrapping_add(first.len));
            if !self.is_acked(end) {
                return;
            }
            self.release_until(seq, budget, each);
            self.release(budget, each);
        }
    }

    /// No more will come: all that is held, with the holes.
    pub(super) fn end(&mut self, budget: &Budget, each: &mut dyn FnMut(StreamPiece<'_>, Caught)) {
        while let Some(first) = self.held.first() {
            let seq = first.seq;
            self.release_until(seq, budget, each);
            self.release(budget, each);
        }
        self.held = Vec::new();
    }

    fn hold(
        &mut self,
        (seq, len, came): (u32, u32, i64),
        data: &[u8],
        budget: &Budget,
        limit: usize,
        each: &mut dyn FnMut(StreamPiece<'_>, Caught),
    ) {
        let full = self.held.len() >= HELD_SEGMENTS || self.held_bytes + data.len() > limit;
        if full || !budget.take(data.len()) {
            // No room to wait: the hole is taken as one.
            self.end(budget, each);
            if let Some(next) = self.next.filter(|next| before(*next, seq)) {
                each(StreamPiece::Hole(seq.wrapping_sub(next)), Caught { came, seq: next });
                self.next = Some(seq);
            }
            self.deliver((seq, len, came), data, each);
            return;
        }
        self.held_bytes += data.len();
        let at = self.held.partition_point(|h| before(h.seq, seq));
        self.held.insert(at, EarlySegment { seq, len, data: data.into(), came });
    }

    /// A hole up to `seq`, or up to the first segment held before it.
    fn release_until(&mut self, seq: u32, budget: &Budget, each: &mut dyn FnMut(StreamPiece<'_>, Caught)) {
        while let Some(next) = self.next.filter(|next| before(*next, seq)) {
            let to = self.held.first().map_or(seq, |h| if before(h.seq, seq) { h.seq } else { seq });
            if before(next, to) {
                let came = self.held.first().map_or(0, |h| h.came);
                each(StreamPiece::Hole(to.wrapping_sub(next)), Caught { came, seq: next });
                self.next = Some(to);
            }
            if to != seq {
                self.release(budget, each);
            }
        }
    }

    /// The held bytes that are in order now.
    fn release(&mut self, budget: &Budget, each: &mut dyn FnMut(StreamPiece<'_>, Caught)) {
        let ready = |held: &[EarlySegment], next: Option<u32>| {
            held.first().is_some_and(|h| next.is_some_and(|next| !before(next, h.seq)))
        };
        while ready(&self.held, self.next) {
            let held = self.held.remove(0);
            self.held_bytes -= held.data.len();
            budget.give_back(held.data.len());
            self.deliver((held.seq, held.len, held.came), &held.data, each);
        }
    }

    /// The new part of a segment that begins at or before the expected number.
    fn deliver(
        &mut self,
        (seq, len, came): (u32, u32, i64),
        data: &[u8],
        each: &mut dyn FnMut(StreamPiece<'_>, Caught),
    ) {
        let Some(next) = self.next else { return };
        let old = next.wrapping_sub(seq);
        if old >= len {
            return;
        }
        let fresh = data.get(old as usize..).unwrap_or_default();
        if !fresh.is_empty() {
            each(StreamPiece::Data(fresh), Caught { came, seq: next });
        }
        let missing = (len - old) - fresh.len() as u32;
        if missing > 0 {
            each(StreamPiece::Hole(missing), Caught { came, seq: next.wrapping_add(fresh.len() as u32) });
        }
        self.next = Some(seq.wrapping_add(len));
    }

    /// Returns what it holds to the budget.
    pub(super) fn drop_held(&mut self, budget: &Budget) {
        budget.give_back(self.held_bytes);
        self.held_bytes = 0;
        self.held = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that segments (number, bytes) give, and the rest of the budget at the end.
    fn run(segments: &[(u32, &[u8])], acked: Option<u32>) -> (Vec<String>, usize) {
        let (mut r, budget, mut out) = (Reassembly::default(), Budget::new(1000), Vec::new());
        r.start(100);
        let mut note = |p: StreamPiece<'_>, _: Caught| match p {
            StreamPiece::Data(d) => out.push(String::from_utf8_lossy(d).into_owned()),
            StreamPiece::Hole(n) => out.push(format!("<{n}>")),
        };
        for (seq, data) in segments {
            r.segment((*seq, data.len() as u32, 0), data, &budget, 100, &mut note);
        }
        if let Some(ack) = acked {
            r.acked(ack);
            r.skip_acked(&budget, &mut note);
        } else {
            r.end(&budget, &mut note);
        }
        (out, budget.left.get())
    }

    #[test]
    fn order_is_restored_and_repetitions_are_dropped() {
        let (out, left) =
            run(&[(103, b"def"), (100, b"abc"), (101, b"bcd"), (105, b"fgh"), (90, b"old")], None);
        assert_eq!(out, ["abc", "def", "gh"]);
        assert_eq!(left, 1000);
    }

    #[test]
    fn an_acknowledged_hole_is_not_waited_for() {
        assert_eq!(run(&[(100, b"ab"), (105, b"fg")], Some(107)).0, ["ab", "<3>", "fg"]);
        assert_eq!(run(&[(100, b"ab"), (105, b"fg")], Some(105)).0, ["ab"], "it may still come");
    }

    #[test]
    fn the_end_gives_out_what_is_held() {
        assert_eq!(run(&[(104, b"e"), (102, b"c")], None).0, ["<2>", "c", "<1>", "e"]);
    }

    #[test]
    fn no_room_to_wait_makes_a_hole() {
        let long = [b'x'; 60];
        let (out, left) = run(&[(110, &long), (200, &long)], None);
        assert_eq!(out[0], "<10>");
        assert_eq!(out[2], "<30>");
        assert_eq!(left, 1000);
    }
}
