//! The course of a run in steps of 10 and 100 ms: sums, looked at while it lasts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SegmentEvent, Segments};

/// Step at the beginning. Reason: a run that is over after a second is seen as a curve.
const FINE: Duration = Duration::from_millis(10);
/// From this time on there is a look each 100 ms.
const FINE_UNTIL: Duration = Duration::from_secs(2);
/// The step then.
const COARSE: Duration = Duration::from_millis(100);
/// Samples kept; beyond, every second one goes. Reason: a week must not grow memory.
const SAMPLES: usize = 4096;

/// Sums at one moment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FineSample {
    /// Seconds from the beginning of measuring.
    pub t_s: f64,
    /// Whole responses so far.
    pub answered: u64,
    /// Failed so far.
    pub failed: u64,
    /// Of unknown end so far.
    #[serde(default)]
    pub unknown: u64,
    /// Responses so far that were not good.
    #[serde(default)]
    pub bad: u64,
    /// Bytes of requests so far.
    pub bytes_sent: u64,
    /// Bytes of responses so far.
    pub bytes_received: u64,
    /// Requests in flight now; `None` at the end.
    pub in_flight: Option<u64>,
    /// Processor time of the sending threads so far, seconds; `None` at the end, and where they are not watched.
    pub client_cpu_s: Option<f64>,
    /// Cores that the server kept busy since the sample before; `None` where it was not looked at.
    #[serde(default)]
    pub server_busy: Option<f64>,
    /// Segments since the sample before; `None` where they were not counted one by one.
    #[serde(default)]
    pub segments: Option<FineSegments>,
}

/// Segments of a step, of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FineSegments {
    /// ACKs that repeat the one before them.
    pub duplicate_acks: u64,
    /// Announcements of a closed window.
    pub zero_windows: u64,
    /// Segments that end where the receiver's window does.
    pub windows_full: u64,
    /// Sent again, of whatever kind.
    pub retransmissions: u64,
}

impl FineSegments {
    /// The events of these segments.
    pub fn of(segments: &Segments) -> FineSegments {
        let both =
            |event| [&segments.sent, &segments.received].iter().filter_map(|way| way.of(event)).sum::<u64>();
        FineSegments {
            duplicate_acks: both(SegmentEvent::DuplicateAck),
            zero_windows: both(SegmentEvent::ZeroWindow),
            windows_full: both(SegmentEvent::WindowFull),
            retransmissions: both(SegmentEvent::Retransmission),
        }
    }
}

/// The samples of a run so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct FineSeries {
    samples: Vec<FineSample>,
    step: Duration,
}

impl FineSeries {
    /// How long until the next look.
    pub(crate) fn pause(&self) -> Duration {
        let early = self.samples.last().is_none_or(|last| last.t_s < FINE_UNTIL.as_secs_f64());
        if early { FINE } else { COARSE }
    }

    /// Takes a sample, unless one was taken just before.
    pub(crate) fn push(&mut self, sample: FineSample) {
        let last = self.samples.last().map(|last| last.t_s);
        // The first one may be taken right at the beginning.
        if last.is_some_and(|last| sample.t_s - last < 0.5 * self.step.max(FINE).as_secs_f64()) {
            return;
        }
        self.samples.push(sample);
        if self.step < COARSE && sample.t_s >= FINE_UNTIL.as_secs_f64() {
            self.thin_out(COARSE);
        }
        if self.samples.len() >= SAMPLES {
            self.thin_out(self.step.max(FINE) * 2);
        }
    }

    /// Keeps samples that are this far apart; the last one stays.
    fn thin_out(&mut self, step: Duration) {
        self.step = step;
        let newest = self.samples.last().map_or(0.0, |last| last.t_s);
        let mut kept = f64::MIN;
        self.samples.retain(|sample| {
            let keeps = sample.t_s - kept >= 0.9 * step.as_secs_f64() || sample.t_s >= newest;
            kept = if keeps { sample.t_s } else { kept };
            keeps
        });
    }

    /// All of them, with the run's sums at its end.
    pub(crate) fn finish(mut self, end: FineSample) -> Vec<FineSample> {
        self.samples.retain(|sample| sample.t_s < end.t_s && sample.answered <= end.answered);
        if self.samples.is_empty() && end.answered + end.failed + end.unknown == 0 {
            return Vec::new();
        }
        self.samples.push(end);
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> FineSample {
        FineSample { t_s: ms as f64 / 1e3, answered: ms, ..FineSample::default() }
    }

    #[test]
    fn steps_are_of_10_ms_and_of_100_ms_in_a_longer_run() {
        let mut series = FineSeries::default();
        for ms in (10..=1500).step_by(10) {
            series.push(at(ms));
        }
        let short = series.clone().finish(at(1510));
        assert_eq!((short.len(), short[0].t_s, short[150].t_s), (151, 0.01, 1.51));
        for ms in (1510..=3000).step_by(10) {
            series.push(at(ms));
        }
        let long = series.finish(at(3050));
        assert!((25..=60).contains(&long.len()), "{}", long.len());
        assert!(long.windows(2).all(|w| w[0].t_s < w[1].t_s));
        assert_eq!(long.last().map(|last| (last.t_s, last.answered)), Some((3.05, 3050)));
    }

    #[test]
    fn a_week_does_not_grow_memory() {
        let mut series = FineSeries::default();
        for tenth in 1..=200_000 {
            series.push(at(tenth * 100));
            assert!(series.samples.len() < SAMPLES);
        }
        assert!(series.samples.len() > SAMPLES / 4);
    }

    #[test]
    fn a_run_without_anything_has_none() {
        assert!(FineSeries::default().finish(FineSample::default()).is_empty());
        assert_eq!(FineSeries::default().finish(at(3)).len(), 1);
    }
}
