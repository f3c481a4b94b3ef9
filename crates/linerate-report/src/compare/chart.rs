//! Ratios with their intervals, and the rounds one by one, as SVG. The page's style has the classes
//! (`ci`, `mark`, `round`, `one`, `path`, `a`, `b`).

use std::fmt::Write as _;

use super::words::{self, in_order};
use crate::markup::escape;
use crate::schema::comparison::{Document, Metric, Round};

/// Width, user units.
const WIDTH: f64 = 560.0;
/// Left and right end of the axis.
const AXIS: [f64; 2] = [198.0, 540.0];
/// From one metric to the next.
const ROW: f64 = 34.0;
/// The most that an axis reaches, as a logarithm. Reason: one ratio of a million would leave no
/// room for the others.
const FAR: f64 = 9.2;

/// A logarithmic axis of ratios around 1.
struct Axis {
    reach: f64,
}

impl Axis {
    /// One that holds all intervals.
    fn of(metrics: &[(String, String, &Metric)]) -> Axis {
        let ends = metrics.iter().flat_map(|(_, _, m)| m.ci95.or(m.ratio.map(|ratio| [ratio; 2])));
        let reach = ends.flatten().map(|r| r.ln().abs()).filter(|r| r.is_finite()).fold(0.0, f64::max);
        Axis { reach: (reach * 1.15).clamp(0.02, FAR) }
    }

    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.ln() / self.reach).clamp(-1.0, 1.0);
        f64::midpoint(AXIS[0], AXIS[1]) + share * (AXIS[1] - AXIS[0]) / 2.0
    }

    /// Round ratios that fit: 1 and some to each side.
    fn ticks(&self) -> Vec<f64> {
        const STEPS: [f64; 10] = [1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0];
        let fits = |step: &&f64| step.ln() * 3.0 >= self.reach;
        let step = STEPS.iter().find(fits).copied().unwrap_or(100.0).ln();
        let n = (self.reach / step).floor() as i32;
        (-n..=n).map(|i| (f64::from(i) * step).exp()).collect()
    }
}

/// A ratio without zeros at its end: `1.02`, `2`, `100`.
fn label(tick: f64) -> String {
    let text = words::ratio(tick);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Each metric's ratio with its interval, and each round as a dot.
pub(super) fn ratios(document: &Document) -> String {
    let metrics = in_order(document);
    let axis = Axis::of(&metrics);
    let bottom = 18.0 + ROW * metrics.len() as f64;
    let height = bottom + 34.0;
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="B over A for each metric, with 95 % intervals">"#
    );
    for tick in axis.ticks() {
        let x = axis.x(tick);
        let class = if (tick - 1.0).abs() < 1e-9 { "one" } else { "axis" };
        let text = label(tick);
        let _ = write!(
            svg,
            r#"<line class="{class}" x1="{x:.1}" y1="12" x2="{x:.1}" y2="{bottom}"/><text class="time" x="{x:.1}" y="{:.1}" text-anchor="middle">{text}</text>"#,
            bottom + 14.0
        );
    }
    for (i, (id, title, m)) in metrics.iter().enumerate() {
        let y = 18.0 + ROW * (i as f64 + 0.5);
        row(&mut svg, &axis, y, document, (id, title, m));
    }
    let _ = write!(
        svg,
        r#"<text class="time" x="{:.1}" y="{:.1}" text-anchor="middle">B over A (a logarithmic axis)</text></svg>"#,
        f64::midpoint(AXIS[0], AXIS[1]),
        bottom + 29.0
    );
    svg
}

fn row(svg: &mut String, axis: &Axis, y: f64, document: &Document, of: (&str, &str, &Metric)) {
    let (id, title, m) = of;
    let class = match m.verdict.as_str() {
        side @ ("a" | "b") if words::stands(m) => side,
        _ => "none",
    };
    let _ = write!(
        svg,
        r#"<text class="name" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
        AXIS[0] - 10.0,
        y + 4.0,
        escape(title)
    );
    for (n, round) in counted(document).enumerate() {
        let value = |run: &crate::schema::comparison::Run| run.values.get(id).copied();
        let (Some(a), Some(b)) = (value(&round.a), value(&round.b)) else { continue };
        let off = [-4.0, 0.0, 4.0][n % 3];
        let _ =
            write!(svg, r#"<circle class="round" cx="{:.1}" cy="{:.1}" r="2.4"/>"#, axis.x(b / a), y + off);
    }
    if let Some([low, high]) = m.ci95 {
        let (low, high) = (axis.x(low), axis.x(high));
        let _ = write!(
            svg,
            r#"<path class="ci {class}" fill="none" d="M{low:.1} {:.1}v10m0 -5H{high:.1}m0 -5v10"/>"#,
            y - 5.0
        );
    }
    let Some(x) = m.ratio.map(|ratio| axis.x(ratio)) else {
        let _ = write!(
            svg,
            r#"<text class="time" x="{}" y="{:.1}">{}</text>"#,
            AXIS[0],
            y + 4.0,
            escape(&m.verdict)
        );
        return;
    };
    let _ = write!(
        svg,
        r#"<rect class="mark {class}" x="{:.1}" y="{:.1}" width="8" height="8" transform="rotate(45 {x:.1} {y:.1})"/>"#,
        x - 4.0,
        y - 4.0
    );
}

/// The rounds that count.
fn counted(document: &Document) -> impl Iterator<Item = &Round> {
    document.rounds.iter().filter(|r| r.a.fault.is_none() && r.b.fault.is_none())
}

/// A metric of both sides over the rounds; `None` for fewer than two.
pub(super) fn rounds(document: &Document, id: &str, title: &str) -> Option<String> {
    const HEIGHT: f64 = 190.0;
    const LEFT: f64 = 86.0;
    const TOP: f64 = 24.0;
    const BOTTOM: f64 = 156.0;
    let pairs: Vec<[f64; 2]> =
        counted(document).filter_map(|r| Some([*r.a.values.get(id)?, *r.b.values.get(id)?])).collect();
    if pairs.len() < 2 {
        return None;
    }
    let top = pairs.iter().flatten().copied().fold(0.0, f64::max) * 1.05;
    let x = |i: usize| LEFT + (WIDTH - 16.0 - LEFT) * i as f64 / (pairs.len() - 1) as f64;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * (value / top).clamp(0.0, 1.0);
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}: A and B, round by round">"#,
        escape(title)
    );
    for i in 0..=4 {
        let value = top * f64::from(i) / 4.0;
        let _ = write!(
            svg,
            r#"<line class="axis" x1="{LEFT}" y1="{0:.1}" x2="{1}" y2="{0:.1}"/><text class="time" x="{2}" y="{3:.1}" text-anchor="end">{4}</text>"#,
            y(value),
            WIDTH - 16.0,
            LEFT - 8.0,
            y(value) + 4.0,
            escape(&if i == 0 { "0".to_owned() } else { words::value(id, value, true) })
        );
    }
    for (side, class) in [(0, "a"), (1, "b")] {
        let points: Vec<String> =
            pairs.iter().enumerate().map(|(i, pair)| format!("{:.1},{:.1}", x(i), y(pair[side]))).collect();
        let _ = write!(svg, r#"<polyline class="path {class}" points="{}"/>"#, points.join(" "));
        for (i, pair) in pairs.iter().enumerate() {
            let (x, y) = (x(i), y(pair[side]));
            // By shape as well as by colour.
            let _ = match side {
                0 => write!(svg, r#"<circle class="mark a" cx="{x:.1}" cy="{y:.1}" r="3"/>"#),
                _ => write!(
                    svg,
                    r#"<rect class="mark b" x="{:.1}" y="{:.1}" width="6" height="6"/>"#,
                    x - 3.0,
                    y - 3.0
                ),
            };
        }
    }
    let _ = write!(
        svg,
        r#"<text class="a" x="{LEFT}" y="14">● A</text><text class="b" x="{}" y="14">■ B</text><text class="time" x="{}" y="{}" text-anchor="middle">rounds 1 to {}</text></svg>"#,
        LEFT + 46.0,
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 12.0,
        pairs.len()
    );
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_ratios_keep_their_zeros() {
        for (tick, text) in [(1.0, "1"), (1.05, "1.05"), (10.0, "10"), (100.0, "100"), (10_000.0, "10,000")] {
            assert_eq!(label(tick), text);
        }
    }

    #[test]
    fn an_axis_has_round_ticks_and_one_in_the_middle() {
        for reach in [0.02, 0.05, 0.1, 0.5, 2.0, 9.2] {
            let axis = Axis { reach };
            let ticks = axis.ticks();
            assert!((3..=9).contains(&ticks.len()), "{reach}: {ticks:?}");
            assert_eq!(axis.x(1.0), f64::midpoint(AXIS[0], AXIS[1]));
            assert!(axis.x(1e9) <= AXIS[1] && axis.x(1e-9) >= AXIS[0]);
        }
    }
}
