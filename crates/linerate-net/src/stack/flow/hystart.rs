//! HyStart++ (RFC 9406): the first slow start ends when round trips grow, before the queue at the
//! bottleneck is full. It first slows down (conservative slow start), and resumes if round trips
//! shrink again.
//!
//! It also uses the other sign of the original HyStart (Ha and Rhee, 2011), as Linux does: a train
//! of closely spaced ACKs that lasts as long as the smallest round trip. The path is then full.
//! Pacing alone spreads ACKs over half of it.

use crate::Time;
use crate::stack::wire::Seq;

/// Section 4.3: by how many microseconds a round's smallest round trip has to grow, at least and at
/// most, and the fraction of it.
const LEAST_US: u32 = 4_000;
const MOST_US: u32 = 16_000;
const PART: u32 = 8;
/// Samples before a round is judged.
const SAMPLES: u8 = 8;
/// Conservative slow start grows by this fraction, for this many rounds.
const GROWTH_PART: u32 = 4;
const ROUNDS: u8 = 5;
/// Largest gap between ACKs of one train, microseconds, and the round trips for which trains are
/// meaningful. Reason: as Linux; below, a train is as long as a turn of the machine.
const TRAIN_US: u32 = 2_000;
const TRAIN_LEAST_RTT_US: u32 = 2_000;

/// State of slow start's rounds. Microseconds; `u32::MAX`: unknown yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// The round ends when something from here on is acknowledged; `None`: none began.
    round: Option<Seq>,
    last: u32,
    current: u32,
    /// The smallest round trip when conservative slow start began.
    baseline: u32,
    samples: u8,
    /// Remaining rounds of conservative slow start; zero: not active.
    left: u8,
    /// When the round began, and the latest ACK of the train that began with it, in microseconds of
    /// a wrapping clock.
    began: u32,
    train: u32,
}

impl Default for HyStart {
    fn default() -> Self {
        HyStart {
            round: None,
            last: u32::MAX,
            current: u32::MAX,
            baseline: u32::MAX,
            samples: 0,
            left: 0,
            began: 0,
            train: 0,
        }
    }
}

impl HyStart {
    /// Handles an ACK up to `ack` in slow start; `nxt` is sent next. `least_ns`: the smallest round
    /// trip ever. Returns `true` if slow start is over.
    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        ack: Seq,
        nxt: Seq,
        rtt_ns: Option<u64>,
        least_ns: u64,
    ) -> bool {
        let now = (now.as_nanos() / 1000) as u32;
        if self.round.is_none_or(|end| ack.gt(end)) {
            (self.last, self.current, self.samples) = (self.current, u32::MAX, 0);
            (self.began, self.train) = (now, now);
            let first = self.round.replace(nxt).is_none();
            if self.left > 0 && !first {
                self.left -= 1;
                if self.left == 0 {
                    return true;
                }
            }
        }
        if let Some(ns) = rtt_ns {
            self.current = self.current.min(u32::try_from(ns / 1000).unwrap_or(u32::MAX));
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        self.note_train(now, u32::try_from(least_ns / 1000).unwrap_or(u32::MAX));
        false
    }

    fn note_train(&mut self, now: u32, least: u32) {
        if now.wrapping_sub(self.train) > TRAIN_US || least < TRAIN_LEAST_RTT_US {
            return;
        }
        self.train = now;
        if self.left == 0 && self.samples >= SAMPLES && now.wrapping_sub(self.began) > least {
            // Shorter round trips would not contradict it.
            (self.baseline, self.left) = (0, ROUNDS);
        }
    }

    fn judge(&mut self) {
        if self.left > 0 {
            if self.current < self.baseline {
                (self.baseline, self.left) = (u32::MAX, 0);
            }
        } else if self.last != u32::MAX
            && self.current >= self.last.saturating_add((self.last / PART).clamp(LEAST_US, MOST_US))
        {
            (self.baseline, self.left) = (self.current, ROUNDS);
        }
    }

    /// How much the window grows for this many acknowledged bytes.
    pub(super) fn growth(&self, acked: u32) -> u32 {
        if self.left > 0 { acked / GROWTH_PART } else { acked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ten ACKs in a round of a thousand bytes, this many milliseconds apart.
    fn round(h: &mut HyStart, nth: u32, rtt_ms: u64, apart_ms: u64) -> bool {
        let end = Seq(nth * 1000 + 1000);
        let at = |i: u64| Time::from_nanos((u64::from(nth) * 100 + i * apart_ms) * MS);
        (0..10).any(|i| {
            h.handle_ack(at(i.into()), Seq(nth * 1000 + i * 100 + 1), end, Some(rtt_ms * MS), 40 * MS)
        })
    }

    /// RFC 9406 section 4.2: round trips that grow by an eighth end slow start, after five rounds
    /// at a quarter of the growth.
    #[test]
    fn longer_round_trips_end_slow_start() {
        let mut h = HyStart::default();
        assert!(!round(&mut h, 0, 40, 0) && !round(&mut h, 1, 44, 0));
        assert_eq!(h.growth(1000), 1000, "four milliseconds are less than an eighth of forty");
        assert!(!round(&mut h, 2, 50, 0));
        assert_eq!(h.growth(1000), 250);
        let over: Vec<bool> = (3..8).map(|nth| round(&mut h, nth, 50 + u64::from(nth), 0)).collect();
        assert_eq!(over, [false, false, false, false, true]);
    }

    /// The same section: if round trips shrink again, slow start resumes.
    #[test]
    fn shorter_round_trips_take_it_back() {
        let mut h = HyStart::default();
        round(&mut h, 0, 40, 0);
        round(&mut h, 1, 60, 0);
        assert_eq!(h.growth(1000), 250);
        round(&mut h, 2, 41, 0);
        assert_eq!(h.growth(1000), 1000);
    }

    #[test]
    fn a_train_of_a_round_trip_ends_slow_start() {
        let mut h = HyStart::default();
        round(&mut h, 0, 40, 1);
        assert_eq!(h.growth(1000), 1000, "nine milliseconds");
        round(&mut h, 1, 40, 5);
        assert_eq!(h.growth(1000), 1000, "45 milliseconds, but no train");
        let mut h = HyStart::default();
        for i in 0..42 {
            assert_eq!(h.growth(1000), 1000, "{i} ms of forty");
            h.handle_ack(Time::from_nanos(i * MS), Seq(i as u32), Seq(100), Some(40 * MS), 40 * MS);
        }
        assert_eq!(h.growth(1000), 250);
    }
}
