//! The series of a run, in as many points as a page bears.

use crate::limits::PAGE_POINTS;
use crate::schema::outcome::{Document, Interval};
use crate::units;

/// One point of all pictures, and one row of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    /// Its end, seconds.
    pub(super) t_s: f64,
    pub(super) rate_rps: f64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    /// `p50` and `p99` where they are bounds.
    pub(super) at_least: Vec<String>,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    pub(super) bad: u64,
    /// Bytes per second.
    pub(super) sent: Option<f64>,
    pub(super) received: Option<f64>,
    /// Cores.
    pub(super) client_busy: Option<f64>,
    pub(super) server_busy: Option<f64>,
    pub(super) server_rss: Option<f64>,
    pub(super) retransmits: Option<u64>,
    pub(super) out_of_order: Option<u64>,
    /// Of segments that were counted one by one, in both directions.
    pub(super) captured_again: Option<u64>,
    pub(super) duplicate_acks: Option<u64>,
    pub(super) zero_windows: Option<u64>,
    pub(super) windows_full: Option<u64>,
    /// Milliseconds.
    pub(super) window_closed: Option<f64>,
    /// Latencies by bucket.
    pub(super) spread: Vec<(u32, u64)>,
}

impl Point {
    /// A percentile with its unit, and a sign where the true one is at least that.
    pub(super) fn shown(&self, id: &str, us: Option<f64>) -> String {
        let least = if self.at_least.iter().any(|row| row == id) { "≥ " } else { "" };
        us.map_or("-".to_owned(), |us| format!("{least}{}", units::time_us(us, true)))
    }
}

/// The points of a document; each joins as many seconds as needed.
pub(super) fn of(document: &Document) -> Vec<Point> {
    let group = document.series.len().div_ceil(PAGE_POINTS).max(1);
    let mut before = 0.0;
    let mut points = Vec::new();
    for intervals in document.series.chunks(group) {
        let end = intervals[intervals.len() - 1].t_s;
        // Seconds that are missing leave a gap, not a slow stretch.
        let lasted = (end - before).min(typical(document) * intervals.len() as f64).max(1e-3);
        points.push(joined(intervals, end, lasted));
        before = end;
    }
    let watched = document.server.iter().flat_map(|server| &server.series);
    for second in watched {
        let near = points.iter_mut().find(|p| second.t_s <= p.t_s + 0.5);
        if let Some(point) = near {
            point.server_busy = second.busy;
            point.server_rss = second.rss_mb.map(|mb| mb * 1e6);
        }
    }
    points
}

/// The usual length of an interval.
fn typical(document: &Document) -> f64 {
    document.series.first().map_or(1.0, |first| first.t_s)
}

/// Times without a response, seconds: the longest silence, and intervals in which none came.
pub(super) fn silences(document: &Document, points: &[Point]) -> Vec<(f64, f64)> {
    let named = document.silence.iter().filter(|silence| silence.longest_s >= 1.0);
    let mut all: Vec<(f64, f64)> = named.map(|s| (s.from_s, s.from_s + s.longest_s)).collect();
    let begins = std::iter::once(0.0).chain(points.iter().map(|p| p.t_s));
    let empty = points.iter().zip(begins).filter(|(p, _)| p.rate_rps == 0.0);
    all.extend(empty.map(|(p, begin)| (begin, p.t_s)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn joined(intervals: &[Interval], t_s: f64, lasted: f64) -> Point {
    let n = intervals.len() as f64;
    let most = |of: fn(&Interval) -> Option<f64>| intervals.iter().filter_map(of).reduce(f64::max);
    let count = |of: fn(&Interval) -> Option<u64>| {
        intervals.iter().filter_map(of).fold(None, |sum: Option<u64>, n| Some(sum.unwrap_or(0) + n))
    };
    let a_second = |bytes: Option<u64>| bytes.map(|b| b as f64 / lasted);
    let waits: Vec<f64> = intervals.iter().filter_map(|i| Some(i.tcp?.rwnd_limited_ms)).collect();
    Point {
        t_s,
        rate_rps: intervals.iter().map(|i| i.rate_rps).sum::<f64>() / n,
        p50_us: most(|i| i.p50_us),
        p99_us: most(|i| i.p99_us),
        at_least: intervals.iter().flat_map(|i| i.at_least.iter().cloned()).collect(),
        failed: intervals.iter().map(|i| i.failed).sum(),
        unknown: intervals.iter().map(|i| i.unknown).sum(),
        bad: intervals.iter().map(|i| i.bad).sum(),
        sent: a_second(count(|i| Some(i.bytes?.sent))),
        received: a_second(count(|i| Some(i.bytes?.received))),
        client_busy: most(|i| i.client_busy),
        retransmits: count(|i| Some(i.tcp?.retransmits)),
        out_of_order: count(|i| Some(i.tcp?.out_of_order)),
        captured_again: count(|i| captured(i, "retransmission")),
        duplicate_acks: count(|i| captured(i, "duplicate_ack")),
        zero_windows: count(|i| captured(i, "zero_window")),
        windows_full: count(|i| captured(i, "window_full")),
        window_closed: (!waits.is_empty()).then(|| waits.iter().sum()),
        spread: merged(intervals.iter().filter_map(|i| i.latencies.as_deref())),
        ..Point::default()
    }
}

/// An event of segments that were counted one by one, in both directions; `None` where nobody counted it.
fn captured(interval: &Interval, event: &str) -> Option<u64> {
    let segments = interval.segments.as_ref()?;
    let each = [&segments.sent, &segments.received].map(|way| way.events.get(event).copied());
    each.into_iter().flatten().reduce(|sum, n| sum + n)
}

/// Buckets of several intervals, added up.
fn merged<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<(u32, u64)> {
    let mut sums = std::collections::BTreeMap::new();
    for (bucket, n) in texts.flat_map(parsed) {
        *sums.entry(bucket).or_insert(0u64) += n;
    }
    sums.into_iter().collect()
}

/// `K:N,N,...` as buckets with their counts; what is no number is left out.
pub(super) fn parsed(text: &str) -> Vec<(u32, u64)> {
    /// The bucket of the longest latency that a histogram has.
    const LAST: u32 = 168;
    let Some((first, counts)) = text.split_once(':') else { return Vec::new() };
    let Ok(first) = first.parse::<u32>() else { return Vec::new() };
    let numbers = counts.split(',').map(|n| n.parse().unwrap_or(0));
    (first..=LAST).zip(numbers).filter(|(_, n)| *n > 0).collect()
}

/// Where a bucket begins, microseconds.
pub(super) fn begins_us(bucket: u32) -> f64 {
    2f64.powf(f64::from(bucket) / 4.0) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_and_the_seconds_in_it_are_one_band() {
        let silence = crate::schema::outcome::Silence { longest_s: 2.5, from_s: 1.2 };
        let point = |t_s, rate_rps| Point { t_s, rate_rps, ..Point::default() };
        let points = [point(1.0, 9.0), point(2.0, 2.0), point(3.0, 0.0), point(4.0, 3.0), point(5.0, 0.0)];
        let (plan, outcome) = (crate::testing::plan_closed(), crate::testing::outcome_closed());
        let environment = crate::testing::environment();
        let report = crate::Report { plan: &plan, outcome: &outcome, checks: &[], environment: &environment };
        let document = Document { silence: Some(silence), ..crate::json::document(&report) };
        assert_eq!(silences(&document, &points), [(1.2, 3.7), (4.0, 5.0)]);
    }

    #[test]
    fn buckets_are_read_and_nonsense_is_left_out() {
        assert_eq!(parsed("66:9,0,1"), [(66, 9), (68, 1)]);
        assert_eq!(parsed("0:"), []);
        assert_eq!(parsed("x:1"), []);
        assert_eq!(parsed("4294967295:1,2"), []);
        assert!((begins_us(40) - 1.024).abs() < 1e-9);
    }
}
