//! The offset between two clocks, by the exchange with the smallest round trip (RFC 5905 section 8
//! calls this the minimum filter).

use std::time::Duration;

/// What one exchange says about another machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Add this to our time for the other's, nanoseconds.
    pub offset_ns: i64,
    /// The offset is wrong by at most this: half the round trip, nanoseconds.
    pub uncertainty_ns: u64,
}

/// Exchanges before the offset is used. Reason: one of this many finds all queues empty.
pub const EXCHANGES: u32 = 50;

/// Most uncertainty with which agents start together. Reason: `linerate` promises a common start
/// within 2 ms on a local network; over long ways a quarter of a second is still a fair start.
pub const TOLERABLE: Duration = Duration::from_millis(250);

/// Keeps the exchange that says most.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockFilter(Option<ClockOffset>);

impl ClockFilter {
    /// An exchange: our time when the request left, the other's time, our time when its reply came.
    /// All in nanoseconds; exchanges that cannot be are ignored.
    pub fn add(&mut self, left: u64, theirs: u64, came: u64) {
        let Some(round_trip) = came.checked_sub(left) else { return };
        let uncertainty_ns = round_trip.div_ceil(2);
        if self.0.is_some_and(|best| best.uncertainty_ns <= uncertainty_ns) {
            return;
        }
        let middle = i128::from(left) + i128::from(uncertainty_ns);
        let Ok(offset_ns) = i64::try_from(i128::from(theirs) - middle) else { return };
        self.0 = Some(ClockOffset { offset_ns, uncertainty_ns });
    }

    /// The best so far.
    pub fn best(&self) -> Option<ClockOffset> {
        self.0
    }
}

impl ClockOffset {
    /// The moment on our clock that is `theirs` on the other's, nanoseconds.
    pub fn ours(&self, theirs: u64) -> u64 {
        let ours = i128::from(theirs) - i128::from(self.offset_ns);
        u64::try_from(ours.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_decides() {
        let mut filter = ClockFilter::default();
        assert_eq!(filter.best(), None);
        // The other clock is 1000 ahead. The way there takes 100, 10, 40; the way back 20, 10, 400.
        for (left, there, back) in [(0, 100, 20), (5_000, 10, 10), (9_000, 40, 400)] {
            filter.add(left, left + there + 1_000, left + there + back);
        }
        let best = filter.best().unwrap();
        assert_eq!(best, ClockOffset { offset_ns: 1_000, uncertainty_ns: 10 });
        assert_eq!(best.ours(51_000), 50_000);
        filter.add(10, 0, 5);
        assert_eq!(filter.best(), Some(best));
    }

    #[test]
    fn the_error_stays_within_the_uncertainty() {
        for (there, back) in [(0, 100), (100, 0), (37, 5)] {
            let mut filter = ClockFilter::default();
            filter.add(1_000_000, 500_000 + there, 1_000_000 + there + back);
            let best = filter.best().unwrap();
            let error = best.offset_ns + 500_000;
            assert!(error.unsigned_abs() <= best.uncertainty_ns, "{error} {best:?}");
        }
    }
}
