//! One direction of the box, in virtual time: decides the fate of a frame and when it arrives.
//!
//! The stages of a frame, in order: targeted drops, the MTU, loss, the queue in front of the link,
//! the link's rate, the delay line. No I/O and no clock: time is passed in as the duration since
//! the box was started.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::conditions::Conditions;
use crate::limits;
use crate::packet::FrameFacts;
use crate::rule::Rules;
use linerate_base::Random;

/// Counters of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames received; ARP and neighbour discovery are not counted.
    pub received: u64,
    /// Frames delivered, including duplicates.
    pub delivered: u64,
    /// Dropped by a rule.
    pub targeted: u64,
    /// Dropped because they exceed the MTU.
    pub too_big: u64,
    /// Dropped at random.
    pub lost: u64,
    /// Dropped because the link's queue was full.
    pub queue_full: u64,
    /// Dropped because too many bytes were in flight. Unintended: a run with any does not have the
    /// stated conditions.
    pub overflow: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delayed behind later ones.
    pub reordered: u64,
}

impl FrameCounts {
    /// All frames that were not delivered.
    pub fn dropped(&self) -> u64 {
        self.targeted + self.too_big + self.lost + self.queue_full + self.overflow
    }
}

/// The fate of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameFate {
    /// It is in flight.
    Held,
    /// It is dropped; its buffer can be reused.
    Dropped(Vec<u8>),
    /// It is dropped, and a router would report that.
    TooBig(Vec<u8>),
}

/// A frame on the delay line, ordered by due time, then by arrival.
#[derive(Debug)]
struct DelayedFrame {
    due: Duration,
    number: u64,
    frame: Vec<u8>,
}

impl PartialEq for DelayedFrame {
    fn eq(&self, other: &DelayedFrame) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for DelayedFrame {}
impl PartialOrd for DelayedFrame {
    fn partial_cmp(&self, other: &DelayedFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DelayedFrame {
    fn cmp(&self, other: &DelayedFrame) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// The state of one direction.
#[derive(Debug)]
pub(crate) struct DirectionQueue {
    conditions: Conditions,
    rules: Rules,
    random: Random,
    /// When the link has sent everything queued.
    link_free: Duration,
    /// When the last frame in order is due.
    last_due: Duration,
    line: BinaryHeap<Reverse<DelayedFrame>>,
    held_bytes: usize,
    number: u64,
    counts: FrameCounts,
}

impl DirectionQueue {
    /// A direction without frames in flight.
    pub(crate) fn new(conditions: Conditions) -> DirectionQueue {
        DirectionQueue {
            rules: Rules::new(conditions.drops.clone()),
            random: Random::new(conditions.seed),
            conditions,
            link_free: Duration::ZERO,
            last_due: Duration::ZERO,
            line: BinaryHeap::new(),
            held_bytes: 0,
            number: 0,
            counts: FrameCounts::default(),
        }
    }

    /// Changes the conditions. Frames in flight arrive as decided before; rules and random numbers
    /// restart.
    pub(crate) fn change(&mut self, conditions: Conditions) {
        self.rules = Rules::new(conditions.drops.clone());
        self.random = Random::new(conditions.seed);
        self.conditions = conditions;
    }

    pub(crate) fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    pub(crate) fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// When the next frame is due.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.line.peek().map(|h| h.0.due)
    }

    /// Decides the fate of a frame that arrives now.
    pub(crate) fn handle_frame(&mut self, now: Duration, frame: Vec<u8>, packet: &FrameFacts) -> FrameFate {
        self.counts.received += 1;
        // Always drawn, so that the fate of one frame does not depend on another's.
        let lost = self.random.happens(self.conditions.loss);
        let twice = self.random.happens(self.conditions.duplicate);
        let late = self.random.happens(self.conditions.reorder);
        let jitter = self.conditions.jitter.mul_f64(self.random.unit());
        if self.rules.drop(packet) {
            self.counts.targeted += 1;
            return FrameFate::Dropped(frame);
        }
        if self.conditions.mtu.is_some_and(|mtu| packet.ip_bytes > mtu) {
            self.counts.too_big += 1;
            let silent = self.conditions.black_hole || !packet.whole;
            return if silent { FrameFate::Dropped(frame) } else { FrameFate::TooBig(frame) };
        }
        if lost {
            self.counts.lost += 1;
            return FrameFate::Dropped(frame);
        }
        if self.held_bytes + frame.len() > limits::HELD_BYTES {
            self.counts.overflow += 1;
            return FrameFate::Dropped(frame);
        }
        let Some(sent) = self.through_the_link(now, frame.len()) else {
            self.counts.queue_full += 1;
            return FrameFate::Dropped(frame);
        };
        let due = sent + self.conditions.delay + jitter;
        let due = if late {
            self.counts.reordered += 1;
            due + self.conditions.reorder_by
        } else {
            self.last_due = self.last_due.max(due);
            self.last_due
        };
        if twice {
            self.counts.duplicated += 1;
            self.hold(due, frame.clone());
        }
        self.hold(due, frame);
        FrameFate::Held
    }

    /// Puts a frame that the box itself sends on the line.
    pub(crate) fn handle_own(&mut self, now: Duration, frame: Vec<u8>) {
        self.hold(now + self.conditions.delay, frame);
    }

    /// When the link will have sent this many bytes; `None` if its queue is full.
    fn through_the_link(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let Some(rate) = self.conditions.rate else { return Some(now) };
        let waits = self.link_free.saturating_sub(now);
        let backlog = waits.as_secs_f64() * rate as f64 / 8.0;
        // Rounding of times must not drop a frame that just fits.
        if backlog + bytes as f64 > self.conditions.queue.unwrap_or(limits::DEFAULT_QUEUE) as f64 + 1.0 {
            return None;
        }
        self.link_free = self.link_free.max(now) + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
        Some(self.link_free)
    }

    fn hold(&mut self, due: Duration, frame: Vec<u8>) {
        self.held_bytes += frame.len();
        self.number += 1;
        self.line.push(Reverse(DelayedFrame { due, number: self.number, frame }));
    }

    /// The next frame that is due.
    pub(crate) fn poll_deliver(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.line.peek()?.0.due > now {
            return None;
        }
        let frame = self.line.pop()?.0.frame;
        self.held_bytes -= frame.len();
        self.counts.delivered += 1;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{parse, testing};
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends a segment of `payload` bytes at each of these times; returns when each arrives, by its
    /// sequence number.
    fn arrivals(
        conditions: Conditions,
        times: &[Duration],
        payload: usize,
    ) -> (Vec<(u32, Duration)>, FrameCounts) {
        conditions.check().expect("they can be");
        let mut d = DirectionQueue::new(conditions);
        let mut all = Vec::new();
        for (i, now) in times.iter().enumerate() {
            drain(&mut d, *now, &mut all);
            let frame = testing::segment(0x10, i as u32, payload);
            let packet = parse(&frame);
            d.handle_frame(*now, frame, &packet);
        }
        drain(&mut d, Duration::MAX, &mut all);
        (all, d.counts())
    }

    fn drain(d: &mut DirectionQueue, until: Duration, all: &mut Vec<(u32, Duration)>) {
        while let Some(due) = d.next_deadline().filter(|t| *t <= until) {
            assert!(
                d.poll_deliver(due.saturating_sub(Duration::from_nanos(1))).is_none_or(|_| due.is_zero())
            );
            let Some(frame) = d.poll_deliver(due) else { continue };
            let crate::packet::FrameKind::Tcp(t) = parse(&frame).kind else { panic!("not a segment") };
            all.push((t.sequence, due));
        }
    }

    fn at_once(n: usize) -> Vec<Duration> {
        vec![MS; n]
    }

    #[test]
    fn delay_is_exact() {
        let c = Conditions { delay: 20 * MS, ..Conditions::default() };
        let (all, counts) = arrivals(c, &[MS, 2 * MS, 30 * MS], 100);
        assert_eq!(all, [(0, 21 * MS), (1, 22 * MS), (2, 50 * MS)]);
        assert_eq!((counts.received, counts.delivered, counts.dropped()), (3, 3, 0));
    }

    #[test]
    fn a_rate_spaces_frames_by_their_size() {
        // 1250 bytes at 10 Mbit/s take a millisecond each.
        let c = Conditions { rate: Some(10_000_000), ..Conditions::default() };
        let (all, _) = arrivals(c, &at_once(3), 1250 - 54);
        assert_eq!(all, [(0, 2 * MS), (1, 3 * MS), (2, 4 * MS)]);
    }

    #[test]
    fn a_queue_delays_and_then_drops() {
        let c = Conditions { rate: Some(10_000_000), queue: Some(12_500), ..Conditions::default() };
        let (all, counts) = arrivals(c, &at_once(30), 1250 - 54);
        assert_eq!(all.len(), 10, "ten frames fill it");
        assert_eq!(all.last(), Some(&(9, 11 * MS)), "the last waited for all before it: bufferbloat");
        assert_eq!(counts.queue_full, 20);
    }

    #[test]
    fn loss_is_as_often_as_asked_and_repeats_with_the_seed() {
        let c = |seed| Conditions { loss: 0.01, seed, ..Conditions::default() };
        let run = |seed| arrivals(c(seed), &at_once(20_000), 0);
        let (all, counts) = run(7);
        assert!((150..250).contains(&counts.lost), "{counts:?}");
        assert_eq!(run(7).0, all);
        assert_ne!(run(8).0, all);
    }

    #[test]
    fn reordered_frames_come_behind_later_ones() {
        let c = Conditions { reorder: 0.1, reorder_by: 3 * MS, delay: MS, ..Conditions::default() };
        let times: Vec<Duration> = (0..200).map(|i| i * MS).collect();
        let (all, counts) = arrivals(c, &times, 0);
        assert_eq!(all.len(), 200);
        let late = all.iter().filter(|(n, t)| *t == (*n + 4) * MS).count() as u64;
        assert_eq!(late, counts.reordered);
        assert!(late > 5 && all.windows(2).any(|w| w[0].0 > w[1].0));
    }

    #[test]
    fn jitter_keeps_the_order() {
        let c = Conditions { jitter: 5 * MS, delay: MS, ..Conditions::default() };
        let times: Vec<Duration> = (0..500).map(|i| i * MS).collect();
        let (all, _) = arrivals(c, &times, 0);
        assert!(all.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(all.iter().all(|(n, t)| *t >= (*n + 1) * MS && *t <= (*n + 6) * MS));
    }

    #[test]
    fn duplicates() {
        let c = Conditions { duplicate: 1.0, ..Conditions::default() };
        let (all, counts) = arrivals(c, &at_once(3), 0);
        assert_eq!(all.iter().map(|a| a.0).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!((counts.received, counts.delivered, counts.duplicated), (3, 6, 3));
    }

    #[test]
    fn what_is_too_big_is_answered_or_vanishes() {
        for (black_hole, answered) in [(false, true), (true, false)] {
            let c = Conditions { mtu: Some(1400), black_hole, ..Conditions::default() };
            let mut d = DirectionQueue::new(c);
            let fits = testing::segment(0x10, 0, 1360);
            let p = parse(&fits);
            assert_eq!(d.handle_frame(MS, fits, &p), FrameFate::Held);
            let big = testing::segment(0x10, 0, 1361);
            let p = parse(&big);
            assert_eq!(matches!(d.handle_frame(MS, big, &p), FrameFate::TooBig(_)), answered);
            assert_eq!(d.counts().too_big, 1);
        }
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let c = Conditions { delay: 60_000 * MS, ..Conditions::default() };
        let n = limits::HELD_BYTES / 1454 + 10;
        let (all, counts) = arrivals(c, &at_once(n), 1400);
        assert_eq!(counts.overflow, 10);
        assert_eq!(all.len() as u64, counts.delivered);
    }

    #[test]
    fn a_change_does_not_touch_what_is_under_way() {
        let mut d = DirectionQueue::new(Conditions { delay: 20 * MS, ..Conditions::default() });
        let frame = testing::segment(0x10, 0, 0);
        let p = parse(&frame);
        d.handle_frame(MS, frame.clone(), &p);
        d.change(Conditions { drops: vec!["any=all".parse().expect("a rule")], ..Conditions::default() });
        assert!(matches!(d.handle_frame(MS, frame, &p), FrameFate::Dropped(_)));
        assert_eq!(d.next_deadline(), Some(21 * MS));
    }

    proptest! {
        /// No frame is lost unintentionally: each one was delivered or is counted as dropped.
        #[test]
        fn it_adds_up(
            loss in 0.0..0.3f64,
            duplicate in 0.0..0.3f64,
            reorder in 0.0..0.3f64,
            rate in prop::option::of(1_000_000u64..100_000_000),
            gaps in prop::collection::vec(0u64..3000, 1..200),
            seed: u64,
        ) {
            let c = Conditions { loss, duplicate, reorder, rate, seed, delay: 5 * MS, jitter: MS, ..Conditions::default() };
            let mut now = Duration::ZERO;
            let times: Vec<Duration> = gaps.iter().map(|g| { now += Duration::from_micros(*g); now }).collect();
            let (all, counts) = arrivals(c, &times, 500);
            prop_assert_eq!(counts.received, times.len() as u64);
            prop_assert_eq!(counts.delivered, all.len() as u64);
            prop_assert_eq!(counts.received - counts.dropped() + counts.duplicated, counts.delivered);
            for (n, t) in all {
                prop_assert!(t >= times[n as usize] + 5 * MS);
            }
        }
    }
}
