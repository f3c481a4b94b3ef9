//! Times for which a sending thread stood still: stopped, suspended, or without its core.

use std::time::Duration;

use linerate_net::Time;

use crate::limits::LEAST_GAP;

/// The gaps of one thread. A gap is time beyond the wait that the loop asked for, so a silent server
/// is none.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// The longest.
    pub(crate) longest: Duration,
    /// All together.
    pub(crate) total: Duration,
    /// Where the gap before this turn began.
    since: Option<Time>,
}

impl Gaps {
    /// A wait that was asked for until a time has ended now.
    pub(crate) fn note(&mut self, until: Time, now: Time, measuring: bool) {
        let gap = now - until;
        self.since = (gap >= LEAST_GAP).then_some(until);
        if self.since.is_some() && measuring {
            self.longest = self.longest.max(gap);
            self.total += gap;
        }
    }

    /// Since when a place that is found free now has been free: a response that came during a gap was
    /// there before we looked.
    pub(super) fn free_since(&self, now: Time) -> Time {
        self.since.unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn only_time_beyond_the_wait_is_a_gap() {
        let mut gaps = Gaps::default();
        // A server that is silent for ten seconds: each wait ends when it should, or a little later.
        for ms in (50..10_000).step_by(50) {
            gaps.note(at(ms), at(ms + 1), true);
        }
        assert_eq!((gaps.longest, gaps.free_since(at(7))), (Duration::ZERO, at(7)));
        // An event ends a wait early.
        gaps.note(at(10_050), at(10_010), true);
        assert_eq!(gaps.longest, Duration::ZERO);
        gaps.note(at(10_100), at(12_100), true);
        assert_eq!((gaps.longest, gaps.free_since(at(12_100))), (Duration::from_secs(2), at(10_100)));
        gaps.note(at(12_150), at(12_650), true);
        gaps.note(at(13_000), at(13_900), false);
        assert_eq!((gaps.longest.as_millis(), gaps.total.as_millis()), (2_000, 2_500));
        gaps.note(at(14_000), at(14_000), true);
        assert_eq!(gaps.free_since(at(14_000)), at(14_000));
    }
}
