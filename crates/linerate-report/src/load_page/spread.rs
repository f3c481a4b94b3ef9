//! Latencies over time as a heat map, and all of them on a logarithmic axis.

use std::fmt::Write as _;

use super::chart::{self, AREA, Axis, SIZE, TimeAxis};
use super::points::{Point, begins_us};
use crate::limits::HEAT_COLUMNS;
use crate::units;

/// Shades of the heat map.
const SHADES: usize = 8;

/// The heat map; `None` without latencies.
pub(super) fn heat(points: &[Point]) -> Option<String> {
    let first = points.iter().filter_map(|p| p.spread.first()).map(|(k, _)| *k).min()?;
    let last = points.iter().filter_map(|p| p.spread.last()).map(|(k, _)| *k).max()? + 1;
    let group = points.len().div_ceil(HEAT_COLUMNS).max(1);
    let height = 260.0;
    let bottom = height - 32.0;
    let rows = f64::from(last - first);
    let y = |bucket: f64| bottom - (bottom - 12.0) * (bucket - f64::from(first)) / rows;
    let x = TimeAxis::until(points.last()?.t_s);
    let mut shades: [String; SHADES] = Default::default();
    let mut begin = 0.0;
    for column in points.chunks(group) {
        let end = column[column.len() - 1].t_s;
        let mut counts = std::collections::BTreeMap::new();
        for (bucket, n) in column.iter().flat_map(|p| &p.spread) {
            *counts.entry(*bucket).or_insert(0u64) += n;
        }
        let all: u64 = counts.values().sum();
        for (bucket, n) in counts {
            // By the logarithm, so that one late response in ten thousand can be seen.
            let share = (n as f64 / all as f64).log10();
            let shade = ((share + 4.0) / 4.0 * SHADES as f64).clamp(0.0, SHADES as f64 - 1.0) as usize;
            let (left, right) = (x.x(begin), x.x(end));
            let (top, below) = (y(f64::from(bucket + 1)), y(f64::from(bucket)));
            let _ = write!(
                shades[shade],
                "M{left:.1} {top:.1}h{w:.1}v{h:.1}h-{w:.1}z",
                w = right - left,
                h = below - top
            );
        }
        begin = end;
    }
    let mut svg = chart::open(
        "Latencies over time: the stronger the color, the larger the share of a moment's responses",
        height,
    );
    let ends = [begins_us(first), begins_us(last)];
    for tick in decades(ends) {
        let at = y((tick * 1e3).log2() * 4.0);
        chart::level(&mut svg, at, &units::time_us(tick, true));
    }
    for (shade, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let opacity = 0.12 + 0.88 * (shade as f64 / (SHADES - 1) as f64).powf(1.3);
        let _ = write!(svg, r#"<path class="heat" fill-opacity="{opacity:.2}" d="{path}"/>"#);
    }
    let mut axis = String::new();
    x.draw(&mut axis);
    // Drawn for the height of lines over time.
    let _ = write!(svg, r#"<g transform="translate(0 {:.1})">{axis}</g></svg>"#, bottom - AREA[3]);
    Some(svg)
}

/// Round times between two, microseconds.
fn decades([low, high]: [f64; 2]) -> Vec<f64> {
    Axis::log([low / 0.85, high / 1.15].into_iter())
        .ticks()
        .into_iter()
        .filter(|t| (low..=high).contains(t))
        .collect()
}

/// All latencies, in microseconds with their counts, as bars on a logarithmic axis; `marks`:
/// percentiles to name.
pub(super) fn histogram(recorded: &[(u64, u64)], marks: &[(&str, f64)]) -> Option<String> {
    let bucket = |us: f64| (us.max(1e-3) * 1e3).log2() * 4.0;
    let mut bars = std::collections::BTreeMap::new();
    for (us, n) in recorded {
        *bars.entry(bucket(*us as f64).floor() as i64).or_insert(0u64) += n;
    }
    let (first, last) = (*bars.first_key_value()?.0, *bars.last_key_value()?.0 + 1);
    let (first, last) = (first - 1, last + 1);
    let most = *bars.values().max()? as f64;
    let all: u64 = bars.values().sum();
    let height = 220.0;
    let (top, bottom) = (46.0, height - 32.0);
    let x = |b: f64| AREA[0] + (AREA[1] - AREA[0]) * (b - first as f64) / (last - first) as f64;
    // A logarithm here too: the tail is what one looks for.
    let tall = |n: f64| (n.ln_1p() / most.ln_1p()).clamp(0.0, 1.0);
    let y = |n: f64| bottom - (bottom - top) * tall(n);
    let mut svg = chart::open("Histogram of latencies; both axes are logarithmic", height);
    let mut tick = 1.0;
    while tick <= most {
        let at = y(tick);
        chart::level(&mut svg, at, &units::count(tick as u64));
        tick *= if most > 1e5 { 100.0 } else { 10.0 };
    }
    for (b, n) in &bars {
        let (left, right) = (x(*b as f64), x(*b as f64 + 1.0));
        let _ = write!(
            svg,
            r#"<rect class="bar" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"><title>{} to {}: {} ({})</title></rect>"#,
            left + 0.5,
            y(*n as f64),
            (right - left - 1.0).max(0.5),
            bottom - y(*n as f64),
            units::time_us(2f64.powf(*b as f64 / 4.0) / 1e3, true),
            units::time_us(2f64.powf((*b as f64 + 1.0) / 4.0) / 1e3, true),
            units::count(*n),
            units::percent(*n as f64 / all as f64)
        );
    }
    names(&mut svg, marks, &|us| x(bucket(us)), [top, bottom]);
    let ends = [first, last].map(|b| 2f64.powf(b as f64 / 4.0) / 1e3);
    for tick in decades(ends) {
        let _ = write!(
            svg,
            r#"<text class="time" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            x(bucket(tick)),
            bottom + 17.0,
            units::time_us(tick, true)
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Percentiles as lines with their names, in two rows so that they do not cover each other.
fn names(svg: &mut String, marks: &[(&str, f64)], x: &dyn Fn(f64) -> f64, [top, bottom]: [f64; 2]) {
    let mut ends = [f64::MIN; 3];
    for (name, us) in marks {
        let at = x(*us);
        let half = 4.0 * name.chars().count() as f64 + 3.0;
        let place = at.clamp(half, SIZE[0] - half);
        let Some(row) = (0..3).find(|row| ends[*row] <= place - half) else { continue };
        ends[row] = place + half;
        let _ = write!(
            svg,
            r#"<line class="one" x1="{at:.1}" y1="{:.1}" x2="{at:.1}" y2="{bottom:.1}"/><text class="b" x="{place:.1}" y="{:.1}" text-anchor="middle">{name}</text>"#,
            top - 2.0 - 13.0 * row as f64,
            top - 5.0 - 13.0 * row as f64
        );
    }
}
