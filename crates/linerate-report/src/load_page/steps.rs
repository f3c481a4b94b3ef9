//! The latency of each step of a flow as a small curve over the percentiles.

use std::fmt::Write as _;

use crate::schema::outcome::{Latency, Named};

/// Size of a curve.
const SIZE: (f64, f64) = (120.0, 28.0);

/// The scale that all curves share, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CurveScale {
    least: f64,
    most: f64,
}

/// Percentiles, and how many nines each is from the left.
fn points(latency: &Latency) -> impl Iterator<Item = (f64, f64)> {
    let all =
        [(0.3, latency.p50), (1.0, latency.p90), (1.3, latency.p95), (2.0, latency.p99), (3.0, latency.p999)];
    all.into_iter().filter_map(|(nines, us)| Some((nines, us.filter(|us| *us > 0.0)?)))
}

impl CurveScale {
    /// One for all of these; `None`: there is nothing to draw.
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Named>) -> Option<CurveScale> {
        let values: Vec<f64> =
            all.filter_map(|named| named.latency_us.as_ref()).flat_map(points).map(|(_, us)| us).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        (most > 0.0).then_some(CurveScale { least, most: most.max(least * 1.1) })
    }

    /// The curve of one, as SVG.
    pub(super) fn curve(self, latency: &Latency) -> String {
        let (width, height) = SIZE;
        let mut svg = format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"p50 to p99.9\"><polyline fill=\"none\" stroke=\"currentColor\" points=\""
        );
        let of_all = (self.most / self.least).ln();
        for (nines, us) in points(latency) {
            let x = 2.0 + (width - 4.0) * (nines - 0.3) / 2.7;
            let y = height - 2.0 - (height - 4.0) * (us / self.least).ln() / of_all;
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        svg + "\"/></svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_within_the_scale_of_all() {
        let of = |p90: Option<f64>, p99: f64| Latency {
            count: 9,
            min: None,
            mean: None,
            p50: Some(100.0),
            p90,
            p95: None,
            p99: Some(p99),
            p999: None,
            p9999: None,
            max: None,
            at_least: Vec::new(),
        };
        let (flat, steep) = (of(Some(100.0), 100.0), of(None, 10_000.0));
        let scale = CurveScale { least: 100.0, most: 10_000.0 };
        assert!(scale.curve(&flat).contains("2.0,26.0 32.1,26.0 "), "{}", scale.curve(&flat));
        assert!(scale.curve(&steep).contains("2.0,26.0 75.0,2.0 "), "{}", scale.curve(&steep));
        assert_eq!(CurveScale::of(std::iter::empty()), None);
    }
}
