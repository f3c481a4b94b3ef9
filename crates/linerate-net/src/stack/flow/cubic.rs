//! CUBIC (RFC 9438), with slow start and the initial window of RFC 6928.

use super::hystart::HyStart;
use crate::Time;
use crate::stack::wire::Seq;

/// Multiplicative decrease factor (section 4.6).
const BETA: f32 = 0.7;
/// Constant C (section 5).
const C: f32 = 0.4;
/// Segments of the initial window (RFC 6928), and of the window after an idle time.
const INITIAL_SEGMENTS: u32 = 10;
/// Minimum growth of the window per round trip before the first loss. Reason: slow start may end
/// too early (RFC 9406), and the cubic curve begins flat; Linux does the same.
const UNKNOWN: f32 = 0.05;
/// Upper limit of the congestion window. Reason: no peer's window is larger (RFC 7323: 2 to the
/// 30th).
const MOST: u32 = 1 << 30;

/// The congestion window, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    pub(crate) window: u32,
    pub(crate) threshold: u32,
    mss: u16,
    /// In segments: the window before the last reduction, and Reno's estimate.
    w_max: f32,
    w_reno: f32,
    /// Seconds after the reduction at which `w_max` is reached again.
    k: f32,
    /// When the current curve began; `NEVER`: with the next ACK.
    epoch: Time,
    /// Fraction of a byte carried over.
    carry: f32,
    hystart: HyStart,
    /// There was a loss, so the capacity of the path is roughly known.
    lost_before: bool,
}

impl Congestion {
    pub(crate) fn new(mss: u16) -> Congestion {
        Congestion {
            window: INITIAL_SEGMENTS * u32::from(mss),
            threshold: u32::MAX,
            mss,
            w_max: 0.0,
            w_reno: 0.0,
            k: 0.0,
            epoch: Time::NEVER,
            carry: 0.0,
            hystart: HyStart::default(),
            lost_before: false,
        }
    }

    pub(crate) fn initial(&self) -> u32 {
        INITIAL_SEGMENTS * u32::from(self.mss)
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// An ACK of new bytes came. Returns whether round trips end the first slow start (RFC 9406).
    pub(super) fn note_round_trip(
        &mut self,
        now: Time,
        ack: Seq,
        nxt: Seq,
        rtt_ns: Option<u64>,
        least_ns: u64,
    ) {
        if self.threshold == u32::MAX && self.hystart.handle_ack(now, ack, nxt, rtt_ns, least_ns) {
            self.threshold = self.window;
        }
    }

    /// `acked` bytes were acknowledged outside of recovery, while the window was the limit.
    pub(crate) fn acked(&mut self, now: Time, acked: u32, srtt_ns: u64) {
        let mut left = acked;
        if self.in_slow_start() {
            let grow = left.min(self.threshold - self.window);
            left -= grow;
            // The threshold is unknown as long as HyStart++ is active.
            let grow = if self.threshold == u32::MAX { self.hystart.growth(grow) } else { grow };
            self.window = (self.window + grow).min(MOST);
        }
        if left > 0 {
            self.avoid(now, left, srtt_ns);
        }
    }

    /// Congestion avoidance (sections 4.2 to 4.5).
    fn avoid(&mut self, now: Time, acked: u32, srtt_ns: u64) {
        let mss = f32::from(self.mss);
        let window = self.window as f32 / mss;
        if self.epoch == Time::NEVER {
            (self.epoch, self.w_reno) = (now, window);
            if window < self.w_max {
                self.k = ((self.w_max - window) / C).cbrt();
            } else {
                (self.k, self.w_max) = (0.0, window);
            }
        }
        let t = (now.nanos_since(self.epoch) + srtt_ns) as f32 / 1e9;
        let segments = acked as f32 / mss;
        // Section 4.3: at least as fast as Reno.
        let alpha = if self.w_reno < self.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_reno += alpha * segments / window;
        let cubic = C * (t - self.k).powi(3) + self.w_max;
        let target = cubic.clamp(window, 1.5 * window);
        let mut grown = if cubic < self.w_reno {
            self.w_reno.max(window)
        } else {
            window + (target - window) / window * segments
        };
        if !self.lost_before {
            grown = grown.max(window + UNKNOWN * segments);
        }
        self.carry += (grown - window) * mss;
        let whole = self.carry.max(0.0).floor();
        self.carry -= whole;
        self.window = self.window.saturating_add(whole as u32).min(MOST);
    }

    /// Sets the threshold after a loss (sections 4.6 and 4.7). Recovery sets the window.
    pub(crate) fn lost(&mut self) {
        let window = self.window as f32 / f32::from(self.mss);
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.threshold = ((self.window as f32 * BETA) as u32).max(2 * u32::from(self.mss));
        self.epoch = Time::NEVER;
        self.carry = 0.0;
        self.lost_before = true;
    }

    /// After a timeout: one segment.
    pub(crate) fn collapse(&mut self) {
        self.window = u32::from(self.mss);
        self.epoch = Time::NEVER;
    }

    /// Nothing was sent for longer than a timeout (RFC 5681 section 4.1).
    pub(crate) fn idle(&mut self) {
        self.window = self.window.min(self.initial());
        self.epoch = Time::NEVER;
    }

    /// The state that `undo` restores.
    pub(crate) fn before(&self) -> (u32, u32, bool) {
        (self.window, self.threshold, self.lost_before)
    }

    /// The loss was spurious (RFC 4015): restores the state before it.
    pub(crate) fn undo(&mut self, window: u32, threshold: u32, lost_before: bool) {
        self.window = self.window.max(window);
        (self.threshold, self.lost_before) = (threshold, lost_before);
        self.epoch = Time::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Slow start doubles the window each round trip (RFC 5681 section 3.1).
    #[test]
    fn slow_start_doubles() {
        let mut c = Congestion::new(1000);
        assert_eq!(c.window, 10_000);
        c.acked(Time::ZERO, 10_000, 1);
        assert_eq!(c.window, 20_000);
    }

    /// RFC 9438 section 4.2: after K seconds the window is back where it was before the loss.
    #[test]
    fn after_k_seconds_the_window_is_back() {
        let mut c = Congestion::new(1000);
        c.window = 100_000;
        c.lost();
        assert_eq!(c.threshold, 70_000);
        c.window = c.threshold;
        let rtt = 100_000_000;
        let k = (100.0f32 * 0.3 / 0.4).cbrt();
        let mut now = Time::ZERO;
        let mut seen = Vec::new();
        while now.as_nanos() as f32 / 1e9 < k {
            for _ in 0..10 {
                c.acked(now, c.window / 10, rtt);
                now = now + Duration::from_nanos(rtt / 10);
            }
            seen.push(c.window);
        }
        assert!(seen.is_sorted() && (95_000..108_000).contains(&c.window), "{seen:?}");
    }

    #[test]
    fn a_second_loss_before_that_leaves_room_for_others() {
        let mut c = Congestion::new(1000);
        c.window = 100_000;
        c.lost();
        c.window = 80_000;
        c.lost();
        assert!((c.w_max - 68.0).abs() < 0.01, "section 4.7: {}", c.w_max);
    }
}
