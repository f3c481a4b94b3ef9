//! What became of the segments of one direction that came late: lost and sent again, overtaken by
//! later ones on the way, or sent again though the first had arrived.
//!
//! Behind the place of a loss a hole is seen, and what fills it tells: a segment that was sent
//! before those that overtook it (its timestamp is older, or it comes sooner than a round trip) was
//! never lost. Before that place a segment is seen twice, and the peer tells: by DSACK (RFC 2883),
//! or by an ACK that the first one caused (Eifel, RFC 3522).

use std::collections::VecDeque;

use crate::passive::limits::LATE;
use crate::passive::packet::{Segment, flag};

use super::sequence::before;

/// What became of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was lost, and came again.
    Lost,
    /// Later ones overtook it.
    Overtaken,
    /// It was sent again though the first had arrived.
    #[default]
    Needless,
}

/// A segment that came late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) fate: Fate,
    /// It fills a hole.
    pub(super) filled: bool,
    /// How long what had come behind it waited for it, as far as no other one before it has that
    /// time, nanoseconds.
    pub(super) held: i64,
    /// It shows that others were not lost.
    pub(super) undone: Undone,
}

/// Segments that seemed to be lost and were not: what they had cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undone {
    pub(super) segments: u32,
    /// The time that had been told of them.
    pub(super) told: i64,
    /// Of them, those that others had overtaken, and how long these waited.
    pub(super) overtaken: u32,
    pub(super) held: i64,
    /// When the first of them had come again.
    pub(super) at: i64,
}

/// Bytes that were not seen though later ones were.
#[derive(Clone, Copy, Debug)]
struct Hole {
    start: u32,
    end: u32,
    /// When the first one behind it came, and its timestamp.
    since: i64,
    stamp: Option<u32>,
}

/// A segment that was told of as lost.
#[derive(Clone, Copy, Debug)]
struct Again {
    start: u32,
    end: u32,
    at: i64,
    stamp: Option<u32>,
    told: i64,
    /// Since when it was lacking: seen here, or told by the peer.
    lacked: Option<i64>,
    /// It filled a hole, so that the first one was not seen.
    filled: bool,
    acked: bool,
}

/// The segments of one direction.
#[derive(Debug, Default)]
pub(super) struct Order {
    next: Option<u32>,
    holes: VecDeque<Hole>,
    again: VecDeque<Again>,
    /// Waiting was told up to this time.
    told: i64,
    /// The peer's last ACK, its first blocks, and since when it says the same.
    acked: Option<u32>,
    sacked: [Option<(u32, u32)>; 2],
    lacked: Option<i64>,
    /// The first timestamp and when it came; and the last.
    stamps: Option<((u32, i64), (u32, i64))>,
}

/// Without a handshake in the capture, what comes later than this was sent again.
const DISORDER_NS: i64 = 3_000_000;
/// A clock of timestamps ticks at least that often (RFC 7323, section 5.4, allows a second; systems
/// in use tick each millisecond or each 10), as long as it is not known, nanoseconds.
const TICK_NS: i64 = 10_000_000;
/// Ticks from which on their length is known.
const TICKS: u32 = 20;

impl Order {
    /// New bytes, or old ones: what that says. `rtt`: between the ends, where it is known.
    pub(super) fn segment(&mut self, s: &Segment<'_>, now: i64, rtt: Option<i64>) -> Option<Late> {
        let (start, end) = (s.seq, s.seq.wrapping_add(s.len));
        self.clock(s, now);
        let Some(next) = self.next else {
            self.next = Some(end);
            return None;
        };
        if before(next, end) {
            self.next = Some(end);
        }
        if !before(start, next) {
            if before(next, start) && self.holes.len() < LATE {
                let stamp = s.stamps.map(|(stamp, _)| stamp);
                self.holes.push_back(Hole { start: next, end: start, since: now, stamp });
            }
            return None;
        }
        if let Some(at) = self.holes.iter().position(|h| before(start, h.end) && before(h.start, end)) {
            let hole = self.holes[at];
            let fate = if self.was_overtaken(s, &hole, now, rtt) { Fate::Overtaken } else { Fate::Lost };
            self.fill(at, start, end);
            self.lacked = None;
            let held = self.held(hole.since, now);
            if fate == Fate::Lost {
                self.told_of(s, now, held, (Some(hole.since), true));
            }
            return Some(Late { fate, filled: true, held, undone: Undone::default() });
        }
        let is_there = |blocks: &[Option<(u32, u32)>; 2]| {
            blocks.iter().flatten().any(|(from, to)| !before(start, *from) && !before(*to, end))
        };
        if self.acked.is_some_and(|acked| !before(acked, end)) || is_there(&self.sacked) {
            return Some(Late { undone: self.was_first(s, now), ..Late::default() });
        }
        let undone = self.was_first(s, now);
        if undone.segments > 0 {
            return Some(Late { undone, ..Late::default() });
        }
        // Its peer has it a round trip later.
        let lacked = self.lacked.filter(|_| self.acked == Some(start) || self.sacked[0].is_some());
        let until = now.saturating_add(rtt.unwrap_or(0));
        let held = lacked.map_or(0, |since| self.held(since, until));
        self.told_of(s, now, held, (lacked, false));
        Some(Late { fate: Fate::Lost, held, ..Late::default() })
    }

    fn told_of(&mut self, s: &Segment<'_>, at: i64, told: i64, (lacked, filled): (Option<i64>, bool)) {
        if self.again.len() >= LATE {
            self.again.pop_front();
        }
        let (start, end) = (s.seq, s.seq.wrapping_add(s.len));
        let stamp = s.stamps.map(|(stamp, _)| stamp);
        self.again.push_back(Again { start, end, at, stamp, told, lacked, filled, acked: false });
    }

    /// What filled a hole was sent again, and now the first one comes: it was not lost.
    fn was_first(&mut self, s: &Segment<'_>, now: i64) -> Undone {
        let mut undone = Undone::default();
        let Some((stamp, _)) = s.stamps else { return undone };
        let (start, end) = (s.seq, s.seq.wrapping_add(s.len));
        self.again.retain(|again| {
            let older = again.filled && again.stamp.is_some_and(|filler| !before(filler, stamp));
            let is = older && before(again.start, end) && before(start, again.end);
            if is {
                undone.add(again, now);
            }
            !is
        });
        undone
    }

    /// A segment of the peer: were any that came again not lost?
    pub(super) fn peer(&mut self, s: &Segment<'_>, now: i64, rtt: Option<i64>) -> Undone {
        let mut undone = Undone::default();
        if !s.has(flag::ACK) {
            return undone;
        }
        let duplicate = duplicate(s);
        let advances = self.acked.is_none_or(|acked| before(acked, s.ack));
        let echo = s.stamps.map(|(_, echo)| echo);
        let mut repaired = false;
        self.again.retain_mut(|again| {
            let twice =
                duplicate.is_some_and(|(from, to)| before(again.start, to) && before(from, again.end));
            let covers = advances && !again.acked && !again.filled && !before(s.ack, again.end);
            let by_first = covers
                && match echo.zip(again.stamp) {
                    Some((echo, stamp)) => before(echo, stamp),
                    None => rtt.is_some_and(|rtt| now - again.at < rtt / 2),
                };
            again.acked |= covers;
            let is = by_first || twice && !again.filled;
            if is {
                undone.add(again, now);
            }
            repaired |= covers;
            !is
        });
        if advances {
            // The peer lacked what had been seen here, and has it though nothing was sent again.
            let seen = self.acked.is_some_and(|acked| self.holes.iter().all(|hole| hole.start != acked));
            if let Some(since) = self.lacked.filter(|_| seen && !repaired && self.sacked[0].is_some()) {
                undone.overtaken += 1;
                undone.held = undone.held.max(now - since);
            }
            self.acked = Some(s.ack);
            self.lacked = None;
            // What it has and we did not see is no loss.
            self.holes.retain(|hole| before(s.ack, hole.end));
        }
        let next = self.next.unwrap_or(s.ack);
        let beyond = |block: &(u32, u32)| before(s.ack, block.0) && !before(next, block.1);
        let blocks = if duplicate.is_some() { [s.sacks[1], None] } else { s.sacks };
        self.sacked = blocks.map(|block| block.filter(beyond));
        let says_again = s.len == 0 && !advances && duplicate.is_none() && before(s.ack, next);
        if self.sacked[0].is_some() || says_again {
            self.lacked.get_or_insert(now);
        }
        undone
    }

    /// It was sent before those that came first.
    fn was_overtaken(&self, s: &Segment<'_>, hole: &Hole, now: i64, rtt: Option<i64>) -> bool {
        let waited = now - hole.since;
        let Some((stamp, first)) = s.stamps.map(|(stamp, _)| stamp).zip(hole.stamp) else {
            return waited < rtt.unwrap_or(DISORDER_NS);
        };
        if stamp != first {
            return before(stamp, first);
        }
        // Sent in the same tick: a repetition comes a round trip later, or within that tick. Where
        // the round trip is short, a handshake may have taken longer.
        let tick = self.tick();
        let rtt = rtt.unwrap_or(DISORDER_NS);
        waited < if rtt < tick { rtt / 2 } else { rtt } || waited > tick.saturating_mul(2)
    }

    fn clock(&mut self, s: &Segment<'_>, now: i64) {
        let Some((stamp, _)) = s.stamps else { return };
        match &mut self.stamps {
            None => self.stamps = Some(((stamp, now), (stamp, now))),
            Some((_, last)) if before(last.0, stamp) => *last = (stamp, now),
            Some(_) => {}
        }
    }

    /// How long a tick of the sender's clock takes.
    fn tick(&self) -> i64 {
        let known = self.stamps.and_then(|((first, began), (last, at))| {
            let ticks = last.wrapping_sub(first);
            (ticks >= TICKS).then(|| (at - began) / i64::from(ticks))
        });
        known.unwrap_or(TICK_NS).clamp(0, TICK_NS)
    }

    /// The time from `since` to `until` that was not told of another one.
    fn held(&mut self, since: i64, until: i64) -> i64 {
        let from = since.max(self.told);
        self.told = self.told.max(until);
        (until - from).max(0)
    }

    fn fill(&mut self, at: usize, start: u32, end: u32) {
        let hole = self.holes[at];
        let (front, back) = (before(hole.start, start), before(end, hole.end));
        match (front, back) {
            (false, false) => drop(self.holes.remove(at)),
            (false, true) => self.holes[at].start = end,
            (true, false) => self.holes[at].end = start,
            (true, true) => {
                self.holes[at].end = start;
                if self.holes.len() < LATE {
                    self.holes.insert(at + 1, Hole { start: end, ..hole });
                }
            }
        }
    }
}

impl Undone {
    fn add(&mut self, again: &Again, now: i64) {
        self.at = if self.segments == 0 { again.at } else { self.at.min(again.at) };
        self.segments += 1;
        self.told = self.told.saturating_add(again.told);
        if let Some(since) = again.lacked {
            self.overtaken += 1;
            let until = if again.filled { again.at } else { now };
            self.held = self.held.max(until - since);
        }
    }
}

/// The bytes that arrived twice, as the first block of an ACK tells (RFC 2883, section 4).
fn duplicate(s: &Segment<'_>) -> Option<(u32, u32)> {
    let [first, second] = s.sacks;
    let (from, to) = first?;
    let within = second.is_some_and(|(start, end)| !before(from, start) && !before(end, to));
    (!before(s.ack, to) || within).then_some((from, to))
}
