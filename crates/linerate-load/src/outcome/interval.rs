//! One second: its percentiles, and seconds that become one.

use super::{Bytes, Interval, Ranked, Segments, Spread, TcpEvents};

/// A percentile of a second, microseconds, and whether the true one is at least that.
type Row = (Option<f64>, bool);

impl Interval {
    /// With the percentiles of what was recorded in it. A second without a response has none.
    #[must_use]
    pub fn with_percentiles(self, latency: Ranked<'_>, has_responses: bool) -> Interval {
        let row = |percent| {
            let found = latency.percentile(percent);
            let known = has_responses && !latency.is_empty();
            (known.then_some(found.ns as f64 / 1e3), known && found.at_least)
        };
        self.with_rows(row(50.0), row(99.0))
    }

    /// This one, counted as of one second, if it lasted so many seconds; `None` where that is no time.
    pub(crate) fn lasting(self, seconds: f64) -> Option<Interval> {
        // A rate over less would be no rate.
        const LEAST: f64 = 0.001;
        (seconds >= LEAST).then(|| Interval {
            t_s: self.t_s - 1.0 + seconds,
            rate_rps: self.rate_rps / seconds,
            client_busy: self.client_busy.map(|busy| busy / seconds),
            ..self
        })
    }

    /// Several in their order as one. Of percentiles the largest stays.
    pub(crate) fn merged(seconds: &[Interval]) -> Interval {
        let larger = |a: Row, b: Row| (a.0.into_iter().chain(b.0).reduce(f64::max), a.1 || b.1);
        let of = |row: fn(&Interval) -> Row| seconds.iter().map(row).fold((None, false), larger);
        let merged = Interval {
            t_s: seconds.last().map_or(0.0, |last| last.t_s),
            rate_rps: mean(seconds.iter().map(|i| i.rate_rps)).unwrap_or(0.0),
            failed: seconds.iter().map(|i| i.failed).sum(),
            unknown: seconds.iter().map(|i| i.unknown).sum(),
            bad: seconds.iter().map(|i| i.bad).sum(),
            tcp: seconds.iter().fold(TcpEvents::default(), |mut sum, i| {
                sum.merge(&i.tcp);
                sum
            }),
            segments: seconds.iter().fold(None, |mut sum, i| {
                Segments::merge_options(&mut sum, i.segments.as_ref());
                sum
            }),
            bytes: seconds.iter().fold(Bytes::default(), |mut sum, i| {
                sum.merge(&i.bytes);
                sum
            }),
            client_busy: mean(seconds.iter().filter_map(|i| i.client_busy)),
            spread: seconds.iter().fold(Spread::default(), |sum, i| sum.plus(&i.spread)),
            ..Interval::default()
        };
        merged.with_rows(of(|i| (i.p50_us, i.p50_at_least)), of(|i| (i.p99_us, i.p99_at_least)))
    }

    fn with_rows(self, p50: Row, p99: Row) -> Interval {
        let ((p50_us, p50_at_least), (p99_us, p99_at_least)) = (p50, p99);
        Interval { p50_us, p50_at_least, p99_us, p99_at_least, ..self }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    #[test]
    fn a_second_without_a_response_has_no_percentiles() {
        let (mut good, mut waited) = (Histogram::new(), Histogram::new());
        let second = |good: &Histogram, waited: &Histogram, responses| {
            Interval::default().with_percentiles(Ranked { good, waited }, responses)
        };
        assert_eq!(second(&good, &waited, false), Interval::default());
        waited.record(1_000_000_000, 1);
        assert_eq!(second(&good, &waited, false), Interval::default());
        good.record(2_000_000, 9);
        let mixed = second(&good, &waited, true);
        assert!(mixed.p50_us.is_some_and(|us| (us - 2_000.0).abs() < 5.0) && !mixed.p50_at_least);
        assert!(mixed.p99_us > Some(999_000.0) && mixed.p99_at_least);
        let merged = Interval::merged(&[mixed.clone(), Interval::default()]);
        assert_eq!(merged, mixed);
    }
}
