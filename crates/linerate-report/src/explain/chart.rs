//! Experiments as small pictures: each call as a dot, before and after; and how the time follows a
//! lever.

use std::fmt::Write as _;

use linerate_explain::evidence::Trial;
use linerate_explain::shown::Dose;
use linerate_explain::stats::Estimate;

use super::words::time;
use crate::markup::escape;

/// Width of both, user units.
const WIDTH: f64 = 560.0;
/// Left and right end of the axis.
const AXIS: [f64; 2] = [130.0, 525.0];
/// Calls drawn of each arm. Reason: an experiment has a dozen.
const DOTS: usize = 60;

/// Two rows of dots over one axis of time. Classes (`dot`, `mid`, `axis`, `name`) are styled by the
/// page.
pub(super) fn trial(trial: &Trial) -> String {
    let most = trial.without.iter().chain(&trial.with).copied().fold(0.0, f64::max);
    let axis = Axis::to(most);
    let mut svg = open(112.0, &format!("{}: each call as a dot", trial.name));
    axis.draw(&mut svg, 20.0, 84.0);
    for (y, class, name, times, middle) in [
        (36.0, "bad", "as it is", &trial.without, trial.before_ms()),
        (66.0, "good", "changed", &trial.with, trial.after_ms()),
    ] {
        let _ = write!(
            svg,
            r#"<text class="name" x="{}" y="{}" text-anchor="end">{name}</text>"#,
            AXIS[0] - 12.0,
            y + 4.0
        );
        for (i, ms) in times.iter().take(DOTS).enumerate() {
            // Calls that took the same time lie beside each other.
            let off = [0.0, -5.0, 5.0][i % 3];
            let (x, y) = (axis.x(*ms), y + off);
            let _ = write!(svg, r#"<circle class="dot {class}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#);
        }
        let x = axis.x(middle);
        let _ = write!(
            svg,
            r#"<line class="mid {class}" x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{:.1}"/>"#,
            y - 11.0,
            y + 11.0
        );
        // The label goes to the side of the dots that has room.
        let right = times.iter().copied().fold(0.0, f64::max).max(middle);
        let (at, anchor) = if axis.x(right) > AXIS[1] - 80.0 {
            (axis.x(times.iter().copied().fold(middle, f64::min)) - 10.0, "end")
        } else {
            (axis.x(right) + 10.0, "start")
        };
        let _ = write!(
            svg,
            r#"<text class="{class}" x="{at:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            y + 4.0,
            time(middle, true)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The lever to the right, the time it took upwards, and the line that was fitted.
pub(super) fn doses(doses: &[Dose], slope: Estimate) -> String {
    const HEIGHT: f64 = 210.0;
    const BOTTOM: f64 = 170.0;
    const TOP: f64 = 22.0;
    let all = || doses.iter().flat_map(|d| d.took_ms.iter().take(DOTS).map(move |ms| (d.lever_ms, *ms)));
    let most = all().map(|(_, ms)| ms).fold(1.0, f64::max);
    let axis = Axis::to(doses.iter().map(|d| d.lever_ms).fold(1.0, f64::max) * 1.1);
    let top = nice(most) * (most / nice(most)).ceil();
    let y = |ms: f64| BOTTOM - (BOTTOM - TOP) * (ms / top).clamp(0.0, 1.0);
    let mut svg = open(HEIGHT, "time of the answer over the delay of our acknowledgement");
    axis.draw(&mut svg, TOP, BOTTOM);
    for i in 0..=4 {
        let ms = top * f64::from(i) / 4.0;
        let _ = write!(
            svg,
            r#"<text class="time" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
            AXIS[0] - 8.0,
            y(ms) + 4.0,
            tick(ms)
        );
    }
    // Through the middle of all, as Theil and Sen have it.
    let middle = |values: Vec<f64>| linerate_explain::stats::median(&values);
    let (x0, y0) = (middle(all().map(|p| p.0).collect()), middle(all().map(|p| p.1).collect()));
    let at = |lever: f64| y0 + slope.value * (lever - x0);
    let ends = [doses.first(), doses.last()].map(|d| d.map_or(0.0, |d| d.lever_ms));
    let _ = write!(
        svg,
        r#"<line class="mid bad" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
        axis.x(ends[0]),
        y(at(ends[0])),
        axis.x(ends[1]),
        y(at(ends[1]))
    );
    for (lever, ms) in all() {
        let _ =
            write!(svg, r#"<circle class="dot bad" cx="{:.1}" cy="{:.1}" r="3.5"/>"#, axis.x(lever), y(ms));
    }
    let _ = write!(
        svg,
        r#"<text class="time" x="{}" y="{}" text-anchor="middle">our acknowledgement's delay</text></svg>"#,
        (AXIS[0] + AXIS[1]) / 2.0,
        HEIGHT - 6.0
    );
    svg
}

fn open(height: f64, label: &str) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#, escape(label))
}

/// From 0 to beyond what is shown, milliseconds.
struct Axis {
    step: f64,
    steps: u32,
}

impl Axis {
    fn to(most: f64) -> Axis {
        let step = nice(most.max(1e-3));
        Axis { step, steps: ((most / step).ceil() as u32).max(1) }
    }

    fn x(&self, ms: f64) -> f64 {
        AXIS[0] + (AXIS[1] - AXIS[0]) * (ms / (self.step * f64::from(self.steps))).clamp(0.0, 1.0)
    }

    /// Lines from `top` to `bottom`, their times below.
    fn draw(&self, svg: &mut String, top: f64, bottom: f64) {
        for i in 0..=self.steps {
            let ms = self.step * f64::from(i);
            let x = self.x(ms);
            let _ = write!(
                svg,
                r#"<line class="axis" x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{bottom}"/><text class="time" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 14.0,
                tick(ms)
            );
        }
    }
}

/// A round time at an axis: `0`, `20 ms`, `2.5 ms`.
fn tick(ms: f64) -> String {
    let text = time(ms, true);
    match text.split_once(' ') {
        Some(_) if ms == 0.0 => "0".to_owned(),
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A step of 1, 2 or 5 times a power of ten, so that there are three to six of them.
fn nice(most: f64) -> f64 {
    let raw = most / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= raw).unwrap_or(10.0);
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_no_digits_that_say_nothing() {
        let said = [0.0, 0.0002, 0.05, 2.5, 10.0, 100.0, 1000.0].map(tick);
        assert_eq!(said, ["0", "0.2 µs", "50 µs", "2.5 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn an_axis_has_few_round_steps_and_holds_everything() {
        for most in [0.001, 0.07, 1.0, 4.9, 44.3, 99.0, 100.1, 4000.0] {
            let axis = Axis::to(most);
            assert!((2..=6).contains(&axis.steps), "{most}: {} of {}", axis.steps, axis.step);
            assert!(axis.x(most) <= AXIS[1] + 1e-6 && axis.x(0.0) == AXIS[0]);
        }
    }
}
