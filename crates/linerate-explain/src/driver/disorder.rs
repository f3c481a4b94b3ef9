//! Segments that came out of order: when the kernel had them, and when they could be read.

use linerate_net::Time;

/// Looks that are kept. Reason: one a millisecond, in a call that may take seconds.
const LOOKS: usize = 8192;

/// The kernel's count of segments out of order since some calls began.
#[derive(Debug, Default)]
pub(super) struct Disorder {
    /// When the count had grown, and to what.
    looks: Vec<(Time, u32)>,
    /// Those that could be read since.
    read: u32,
}

impl Disorder {
    /// The kernel's count at that time.
    pub(super) fn note(&mut self, at: Time, count: u32) {
        let grew = self.looks.last().map_or(count > 0, |(_, last)| count > *last);
        if grew && self.looks.len() < LOOKS {
            self.looks.push((at, count));
        }
    }

    /// Up to `most` segments can be read now, behind one that was missing: when each of them had
    /// arrived, at the latest, in their order. Empty if none was missing.
    pub(super) fn handed_on(&mut self, most: usize) -> Vec<Time> {
        let arrived = self.looks.last().map_or(0, |(_, count)| *count);
        let waiting = arrived.saturating_sub(self.read).min(u32::try_from(most).unwrap_or(u32::MAX));
        let first = self.read;
        self.read += waiting;
        let when = |n| self.looks.iter().find(|(_, count)| *count > n).map(|(at, _)| *at);
        (first..first + waiting).filter_map(when).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_arrived_when_it_was_counted() {
        let at = Time::from_nanos;
        let mut seen = Disorder::default();
        assert_eq!(seen.handed_on(9), []);
        for (time, count) in [(1, 0), (2, 0), (3, 2), (4, 2), (5, 3)] {
            seen.note(at(time), count);
        }
        // Another segment is missing behind the second one.
        assert_eq!(seen.handed_on(2), [at(3), at(3)]);
        seen.note(at(7), 4);
        assert_eq!(seen.handed_on(9), [at(5), at(7)]);
        assert_eq!(seen.handed_on(9), []);
    }
}
