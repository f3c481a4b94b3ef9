//! Lines over time, as SVG.

use std::fmt::Write as _;

use crate::markup::escape;

/// Width and height, user units.
pub(crate) const SIZE: [f64; 2] = [560.0, 190.0];
/// The area that values are drawn in: left, right, top, bottom.
pub(crate) const AREA: [f64; 4] = [74.0, 546.0, 26.0, 158.0];

/// One line of a picture.
pub(super) struct ChartLine<'a> {
    pub(super) name: &'a str,
    /// `a`, `b` or `bad` of the page's style.
    pub(super) class: &'a str,
    pub(super) values: Vec<Option<f64>>,
}

/// How values are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    Log,
    /// From 0; labels differ at least by this, as their unit shows.
    Linear(f64),
}

/// A vertical axis.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// The least step between labels.
    least: f64,
}

impl Axis {
    /// From 0 to above all values.
    pub(crate) fn linear(values: impl Iterator<Item = f64>, least: f64) -> Axis {
        let high = values.fold(0.0, f64::max);
        Axis { low: 0.0, high: if high > 0.0 { (high * 1.05).max(least) } else { 1.0 }, log: false, least }
    }

    /// Around all positive values.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = values
            .filter(|v| *v > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
        if low > high {
            return Axis { low: 1.0, high: 10.0, log: true, least: 0.0 };
        }
        // At least a factor of 4, so that a steady line is not drawn as a mountain.
        let (low, high) = (low * 0.85, high * 1.15);
        let wide = (4.0 / (high / low)).max(1.0).sqrt();
        Axis { low: low / wide, high: high * wide, log: true, least: 0.0 }
    }

    /// The place of a value, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(1e-9) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// Round values on it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = round_step((self.high / 4.0).max(self.least));
            let n = (self.high / step).floor() as i32;
            return (0..=n).map(|i| f64::from(i) * step).collect();
        }
        let decades = (self.high / self.low).log10();
        let of_decade: &[f64] = match decades {
            d if d < 1.3 => &[1.0, 2.0, 5.0],
            d if d < 3.3 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (from..=to).flat_map(|d| of_decade.iter().map(move |m| m * 10f64.powi(d)));
        let fit: Vec<f64> = all.filter(|t| *t >= self.low && *t <= self.high).collect();
        let each = fit.len().div_ceil(7).max(1);
        fit.into_iter().step_by(each).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least so much.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= least * 0.999).unwrap_or(power * 10.0)
}

/// Seconds as `40 s`, `5 min` or `2 h`.
fn time(seconds: f64, step: f64) -> String {
    match step {
        s if s >= 3600.0 => format!("{:.0} h", seconds / 3600.0),
        s if s >= 60.0 => format!("{:.0} min", seconds / 60.0),
        s if s >= 1.0 => format!("{seconds:.0} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// The horizontal axis of times, and the place of one.
pub(super) struct TimeAxis {
    last: f64,
}

impl TimeAxis {
    pub(super) fn until(last: f64) -> TimeAxis {
        TimeAxis { last: last.max(1e-3) }
    }

    pub(super) fn x(&self, t: f64) -> f64 {
        AREA[0] + (AREA[1] - AREA[0]) * (t / self.last).clamp(0.0, 1.0)
    }

    /// Its ticks as SVG.
    pub(super) fn draw(&self, svg: &mut String) {
        const STEPS: [f64; 15] = [
            0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 86_400.0,
        ];
        let step = STEPS.into_iter().find(|s| self.last / s <= 7.0).unwrap_or(self.last / 5.0);
        for i in 0..=(self.last / step).floor() as i32 {
            let t = f64::from(i) * step;
            // Around the end of the axis a label would leave the picture.
            let at_end = self.x(t) > AREA[1] - 10.0;
            let (x, anchor) = if at_end { (SIZE[0] - 2.0, "end") } else { (self.x(t), "middle") };
            let _ = write!(
                svg,
                r#"<text class="time" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                AREA[3] + 17.0,
                time(t, if i == 0 { 1.0 } else { step })
            );
        }
    }
}

/// The opening tag. A key press moves a line through all pictures of the page that have it.
pub(crate) fn open(label: &str, height: f64) -> String {
    format!(r#"<svg viewBox="0 0 {} {height}" role="img" aria-label="{}">"#, SIZE[0], escape(label))
}

/// Horizontal lines with their values.
pub(crate) fn grid(svg: &mut String, axis: &Axis, shown: &dyn Fn(f64) -> String) {
    for tick in axis.ticks() {
        let label = if tick == 0.0 { "0".to_owned() } else { shown(tick) };
        level(svg, y(axis, tick), &label);
    }
}

/// A horizontal line at a height, and what it stands for.
pub(super) fn level(svg: &mut String, y: f64, label: &str) {
    let _ = write!(
        svg,
        r#"<line class="axis" x1="{}" y1="{y:.1}" x2="{}" y2="{y:.1}"/><text class="time" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
        AREA[0],
        AREA[1],
        AREA[0] - 7.0,
        y + 4.0,
        escape(label)
    );
}

fn y(axis: &Axis, value: f64) -> f64 {
    AREA[3] - (AREA[3] - AREA[2]) * axis.share(value)
}

/// Lines over time; `None` where there is no value at all. `silent`: times without a response, which are shaded.
/// `shown` writes a value with its unit.
pub(super) fn over_time(
    title: &str,
    (times, silent): (&[f64], &[(f64, f64)]),
    lines: &[ChartLine<'_>],
    scale: Scale,
    shown: &dyn Fn(f64) -> String,
) -> Option<String> {
    let values = || lines.iter().flat_map(|l| l.values.iter().copied().flatten());
    values().next()?;
    let axis = match scale {
        Scale::Log => Axis::log(values()),
        Scale::Linear(least) => Axis::linear(values(), least),
    };
    let x = TimeAxis::until(times.last().copied().unwrap_or(1.0));
    let mut svg = open(&format!("{title} over time"), SIZE[1]);
    for (from, to) in silent {
        let (left, right) = (x.x(*from), x.x(*to));
        let _ = write!(
            svg,
            r#"<rect class="silence" x="{left:.1}" y="{}" width="{:.1}" height="{}"><title>no response</title></rect>"#,
            AREA[2],
            (right - left).max(1.0),
            AREA[3] - AREA[2]
        );
    }
    grid(&mut svg, &axis, shown);
    x.draw(&mut svg);
    let mut legend = AREA[0];
    for line in lines {
        path(&mut svg, line, times, &x, &axis);
        if lines.len() > 1 {
            let mark = if line.class == "a" { "╍" } else { "━" };
            let _ = write!(
                svg,
                r#"<text class="{}" x="{legend}" y="14">{mark} {}</text>"#,
                line.class,
                escape(line.name)
            );
            legend += 30.0 + 9.0 * line.name.chars().count() as f64;
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn path(svg: &mut String, line: &ChartLine<'_>, times: &[f64], x: &TimeAxis, axis: &Axis) {
    let mut runs: Vec<Vec<String>> = vec![Vec::new()];
    for (t, value) in times.iter().zip(&line.values) {
        match value {
            Some(value) => {
                let place = format!("{:.1},{:.1}", x.x(*t), y(axis, *value));
                runs.last_mut().into_iter().for_each(|run| run.push(place.clone()));
            }
            None => runs.push(Vec::new()),
        }
    }
    for run in runs.iter().filter(|run| !run.is_empty()) {
        if let [one] = run.as_slice() {
            let (x, y) = one.split_once(',').unwrap_or_default();
            let _ = write!(svg, r#"<circle class="mark {}" cx="{x}" cy="{y}" r="2.5"/>"#, line.class);
        } else {
            let _ = write!(svg, r#"<polyline class="path {}" points="{}"/>"#, line.class, run.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_some_round_ticks() {
        for high in [0.003, 1.0, 7.0, 99.0, 123_456.0] {
            let ticks = Axis::linear([high].into_iter(), 0.0).ticks();
            assert!((3..=6).contains(&ticks.len()), "{high}: {ticks:?}");
            let ticks = Axis::log([high, high * 300.0].into_iter()).ticks();
            assert!((2..=7).contains(&ticks.len()), "{high}: {ticks:?}");
            let ticks = Axis::log([high].into_iter()).ticks();
            assert!((1..=7).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }

    /// One failure is not 0, 0, 1, and a core that is hardly busy not 0, 0.01, 0.01.
    #[test]
    fn no_two_labels_are_the_same() {
        for (high, least, digits) in [(1.0, 1.0, 0), (2.0, 1.0, 0), (0.012, 0.01, 2), (0.003, 0.01, 2)] {
            let ticks = Axis::linear([high].into_iter(), least).ticks();
            let mut labels: Vec<String> = ticks.iter().map(|t| format!("{t:.digits$}")).collect();
            let all = labels.len();
            labels.dedup();
            assert!(all == labels.len() && all >= 2, "{high}: {labels:?}");
        }
    }

    #[test]
    fn the_last_time_ends_within_the_picture() {
        for last in [1.0, 7.0, 600.0, 3600.0] {
            let mut svg = String::new();
            TimeAxis::until(last).draw(&mut svg);
            let (_, label) = svg.rsplit_once("<text").unwrap();
            assert!(label.contains(r#"x="558.0""#) && label.contains(r#"text-anchor="end""#), "{label}");
        }
    }

    #[test]
    fn gaps_stay_gaps_and_nothing_is_no_picture() {
        let line = |values: Vec<Option<f64>>| [ChartLine { name: "p50", class: "a", values }];
        let shown = |v: f64| v.to_string();
        assert_eq!(over_time("x", (&[1.0], &[]), &line(vec![None]), Scale::Linear(0.0), &shown), None);
        let values = vec![Some(1.0), Some(2.0), None, Some(3.0)];
        let silent = [(2.0, 3.0)];
        let svg =
            over_time("x", (&[1.0, 2.0, 3.0, 4.0], &silent), &line(values), Scale::Log, &shown).unwrap();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (1, 1));
        assert_eq!(svg.matches(r#"class="silence""#).count(), 1);
    }
}
