//! Marks each segment by its sequence numbers. Names and rules are those of Wireshark's TCP
//! analysis (User's Guide, section 7.5), so that counts can be compared with its own.

use std::collections::VecDeque;

use crate::passive::limits::UNACKED;
use crate::passive::packet::{Segment, flag};

/// Marks of a segment; it may have several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks(u16);

macro_rules! marks {
    ($($name:ident $bit:literal $word:literal $words:literal)*) => {
        impl Marks {
            $(#[doc = $words] pub const $name: Marks = Marks(1 << $bit);)*
            /// All of them, with the name used in machine-readable results and the words for
            /// people.
            pub const ALL: [(Marks, &'static str, &'static str); [$($bit),*].len()] =
                [$((Marks::$name, $word, $words)),*];
        }
    };
}

marks! {
    RETRANSMISSION 0 "retransmission" "retransmission"
    FAST_RETRANSMISSION 1 "fast_retransmission" "fast retransmission"
    SPURIOUS_RETRANSMISSION 2 "spurious_retransmission" "spurious retransmission"
    DUPLICATE_ACK 3 "duplicate_ack" "duplicate ACK"
    OUT_OF_ORDER 4 "out_of_order" "out of order"
    LOST_SEGMENT 5 "lost_segment" "previous segment not captured"
    ACK_LOST_SEGMENT 6 "ack_lost_segment" "acknowledges a segment not captured"
    ZERO_WINDOW 7 "zero_window" "zero window"
    ZERO_WINDOW_PROBE 8 "zero_window_probe" "zero-window probe"
    ZERO_WINDOW_PROBE_ACK 9 "zero_window_probe_ack" "ACK of a zero-window probe"
    WINDOW_FULL 10 "window_full" "window full"
    WINDOW_UPDATE 11 "window_update" "window update"
    KEEP_ALIVE 12 "keep_alive" "keep-alive"
    KEEP_ALIVE_ACK 13 "keep_alive_ack" "ACK of a keep-alive"
    REUSED_PORTS 14 "reused_ports" "port numbers reused"
}

impl Marks {
    /// Whether the segment has no mark.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Any of `other` is among them.
    pub fn has(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }

    /// With `other` too.
    pub(crate) fn add(&mut self, other: Marks) {
        self.0 |= other.0;
    }

    /// Each of them as words for people.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Marks::ALL.into_iter().filter(move |(mark, ..)| self.has(*mark)).map(|(.., words)| words)
    }

    /// Marks of any kind of retransmission.
    pub(crate) const RESENT: Marks = Marks(0b111);
}

/// How often each mark was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkCounts([u64; Marks::ALL.len()]);

impl MarkCounts {
    pub(crate) fn count(&mut self, marks: Marks) {
        let mut rest = marks.0;
        while rest != 0 {
            self.0[rest.trailing_zeros() as usize] += 1;
            rest &= rest - 1;
        }
    }

    /// Adds other counts.
    pub(crate) fn add(&mut self, other: &MarkCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine += others);
    }

    /// How often `mark` (one of [`Marks::ALL`]) was seen.
    pub fn of(&self, mark: Marks) -> u64 {
        self.0[mark.0.trailing_zeros() as usize % self.0.len()]
    }

    /// Names and counts of those that were seen.
    pub fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Marks::ALL.into_iter().zip(self.0).filter(|(_, n)| *n > 0).map(|((_, name, _), n)| (name, n))
    }
}

/// One direction's sequence space.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// First sequence number seen.
    pub(super) base: Option<u32>,
    /// After the highest byte seen.
    pub(super) next: Option<u32>,
    next_time: i64,
    /// After the highest byte seen without a hole before it: what the peer can acknowledge.
    to_ack: Option<u32>,
    last_ack: Option<u32>,
    last_ack_time: i64,
    window: u16,
    window_seen: bool,
    /// `None`: no SYN was seen, so whether windows are scaled isn't known.
    pub(super) scale: Option<u8>,
    /// A segment without SYN came: from then on windows are scaled.
    scaled: bool,
    duplicate_acks: u32,
    last_marks: Marks,
    /// Start and end of what was sent and not acknowledged.
    unacked: VecDeque<(u32, u32)>,
}

/// `a` is before `b` in sequence space.
#[inline]
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Without a handshake in the capture, a segment later than this after the highest one is a
/// retransmission, not disorder.
const DISORDER_NS: i64 = 3_000_000;
/// A repetition so soon after duplicate ACKs is a fast retransmission.
const FAST_NS: i64 = 20_000_000;

/// Marks the next segment `s` of direction `me`, from what both directions sent before; then
/// remembers it. `rtt_ns`: of the handshake, if it was captured.
pub(super) fn analyse(
    me: &mut Side,
    peer: &mut Side,
    s: &Segment<'_>,
    now: i64,
    rtt_ns: Option<i64>,
) -> Marks {
    me.base.get_or_insert(if s.has(flag::SYN) { s.seq } else { s.seq.wrapping_sub(1) });
    if s.has(flag::SYN) {
        me.scale = Some(s.scale.unwrap_or(0));
    }
    let mut marks = Marks::default();
    let ended = about_windows(me, peer, s, &mut marks);
    if !ended && marks.has(Marks::DUPLICATE_ACK) {
        me.duplicate_acks += 1;
    }
    if me.last_ack != Some(s.ack) {
        me.duplicate_acks = 0;
    }
    acked_unseen(me, peer, s, &mut marks);
    if s.len > 0 || s.has(flag::SYN | flag::FIN) {
        repeated(me, peer, s, now, rtt_ns, &mut marks);
    }
    remember(me, peer, s, now, marks);
    marks
}

/// Window, keep-alive and duplicate-ACK rules; true when one of them says all there is to say.
fn about_windows(me: &Side, peer: &Side, s: &Segment<'_>, marks: &mut Marks) -> bool {
    let plain = !s.has(flag::SYN | flag::FIN | flag::RST);
    let at_next = me.next == Some(s.seq);
    let same_ack = me.last_ack == Some(s.ack);
    let same_window = me.window_seen && s.window == me.window;
    if s.len == 1 && at_next && peer.window_seen && peer.window == 0 {
        marks.add(Marks::ZERO_WINDOW_PROBE);
        return true;
    }
    if s.window == 0 && plain {
        marks.add(Marks::ZERO_WINDOW);
    }
    if me.next.is_some_and(|next| before(next, s.seq)) && !s.has(flag::RST) {
        marks.add(Marks::LOST_SEGMENT);
    }
    if s.len <= 1 && me.next.is_some_and(|next| s.seq == next.wrapping_sub(1)) && plain {
        marks.add(Marks::KEEP_ALIVE);
    }
    if s.len == 0 && s.window != 0 && me.window_seen && s.window != me.window && at_next && same_ack && plain
    {
        marks.add(Marks::WINDOW_UPDATE);
    }
    if s.len > 0 && plain && fills_window(peer, s) {
        marks.add(Marks::WINDOW_FULL);
    }
    let echo = s.len == 0 && same_window && at_next && plain;
    if echo && same_ack && peer.last_marks.has(Marks::KEEP_ALIVE) {
        marks.add(Marks::KEEP_ALIVE_ACK);
        return true;
    }
    let probe_ack = same_ack || me.last_ack.is_some_and(|ack| s.ack == ack.wrapping_add(1));
    if echo && s.window == 0 && probe_ack && peer.last_marks.has(Marks::ZERO_WINDOW_PROBE) {
        marks.add(Marks::ZERO_WINDOW_PROBE_ACK);
        return true;
    }
    if echo && s.window != 0 && same_ack {
        marks.add(Marks::DUPLICATE_ACK);
    }
    false
}

/// The segment ends where the peer's window does.
fn fills_window(peer: &Side, s: &Segment<'_>) -> bool {
    let (Some(ack), Some(scale)) = (peer.last_ack, peer.scale) else { return false };
    let window = u32::from(peer.window) << if peer.scaled { scale } else { 0 };
    s.seq.wrapping_add(s.len) == ack.wrapping_add(window)
}

/// Acknowledged is more than was seen from the peer.
fn acked_unseen(me: &Side, peer: &mut Side, s: &Segment<'_>, marks: &mut Marks) {
    let beyond = peer.to_ack.is_some_and(|limit| before(limit, s.ack)) && s.has(flag::ACK);
    if !beyond {
        return;
    }
    let reopens = me.last_ack.is_some_and(|ack| s.ack == ack.wrapping_add(1))
        && me.next == Some(s.seq)
        && peer.last_marks.has(Marks::ZERO_WINDOW_PROBE);
    if reopens {
        marks.add(Marks::WINDOW_UPDATE);
    } else {
        marks.add(Marks::ACK_LOST_SEGMENT);
        // Told once: the peer has sent it, though we did not see it; and what follows it and was
        // seen.
        let mut tail = s.ack;
        for (start, end) in &peer.unacked {
            if !before(tail, *start) && before(tail, *end) {
                tail = *end;
            }
        }
        peer.to_ack = Some(tail);
    }
}

/// Retransmission of any kind, or out of order: it does not advance the sequence.
fn repeated(me: &Side, peer: &Side, s: &Segment<'_>, now: i64, rtt_ns: Option<i64>, marks: &mut Marks) {
    let Some(next) = me.next else { return };
    if marks.has(Marks::KEEP_ALIVE) || (s.len > 1 && s.seq == next.wrapping_sub(1)) || !before(s.seq, next) {
        return;
    }
    let end = s.seq.wrapping_add(s.len);
    if s.len > 0 && peer.last_ack.is_some_and(|ack| !before(ack, end)) {
        marks.add(Marks::SPURIOUS_RETRANSMISSION);
        marks.add(Marks::RETRANSMISSION);
        return;
    }
    let soon = now.saturating_sub(peer.last_ack_time) < FAST_NS;
    if peer.duplicate_acks >= 2 && peer.last_ack == Some(s.seq) && soon {
        marks.add(Marks::FAST_RETRANSMISSION);
        marks.add(Marks::RETRANSMISSION);
        return;
    }
    let late = now.saturating_sub(me.next_time) >= rtt_ns.unwrap_or(DISORDER_NS);
    let end = end.wrapping_add(u32::from(s.has(flag::SYN | flag::FIN)));
    marks.add(if late || end == next { Marks::RETRANSMISSION } else { Marks::OUT_OF_ORDER });
}

fn remember(me: &mut Side, peer: &mut Side, s: &Segment<'_>, now: i64, marks: Marks) {
    let occupies = s.len > 0 || s.has(flag::SYN | flag::FIN);
    let end = s.seq.wrapping_add(s.len).wrapping_add(u32::from(s.has(flag::SYN | flag::FIN)));
    let probe = marks.has(Marks::ZERO_WINDOW_PROBE);
    if occupies && me.unacked.len() < UNACKED {
        me.unacked.push_back((s.seq, end));
    }
    if !probe {
        if marks.has(Marks::LOST_SEGMENT) && me.to_ack == Some(s.seq) {
            // Acknowledged unseen up to here, and still not seen.
            me.to_ack = me.next;
        } else if me.to_ack.is_none_or(|limit| limit == s.seq) {
            me.to_ack = Some(match me.next {
                // A hole that is filled: all that was seen can be acknowledged.
                Some(next) if me.to_ack.is_some() && before(end, next) => next,
                _ => end,
            });
        }
        if me.next.is_none_or(|next| before(next, end)) {
            me.next = Some(end);
            me.next_time = now;
        }
    }
    me.window = s.window;
    me.window_seen = true;
    me.scaled |= !s.has(flag::SYN);
    if s.has(flag::ACK) {
        me.last_ack = Some(s.ack);
        me.last_ack_time = now;
        while peer.unacked.front().is_some_and(|(_, end)| !before(s.ack, *end)) {
            peer.unacked.pop_front();
        }
        if let Some((start, _)) = peer.unacked.front_mut()
            && before(*start, s.ack)
        {
            *start = s.ack;
        }
    }
    me.last_marks = marks;
}
