//! As SVG: the pauses to scale, as far as a page allows.

use std::fmt::Write as _;

use super::{Arrow, Diagram, DiagramRow, time, words};
use crate::markup::escape;

/// Width of one diagram, user units.
const WIDTH: f64 = 560.0;
/// Horizontal positions of the client's and the server's lane.
const LANES: [f64; 2] = [90.0, 540.0];
/// From one arrow to the next.
const STEP: f64 = 24.0;
/// The most a pause takes.
const PAUSE: f64 = 160.0;
/// How much lower an arrow ends than it begins: it takes time.
const SLANT: f64 = 8.0;

/// The diagram as an `svg` element. Its classes (`lane`, `arrow`, `bad`, `pause`, `time`) are
/// styled by the page.
pub fn to_svg(diagram: &Diagram) -> String {
    to_scale(diagram, pauses_ms(diagram))
}

/// Several diagrams whose pauses have the same scale, so that they can be compared.
pub fn to_svgs(diagrams: &[Diagram]) -> Vec<String> {
    let whole = diagrams.iter().map(pauses_ms).fold(0.0, f64::max);
    diagrams.iter().map(|d| to_scale(d, whole)).collect()
}

fn pauses_ms(diagram: &Diagram) -> f64 {
    diagram.rows.iter().map(|r| if let DiagramRow::Pause { ms, .. } = r { *ms } else { 0.0 }).sum()
}

/// `whole`: the milliseconds of pause that take all the room there is for them.
fn to_scale(diagram: &Diagram, whole: f64) -> String {
    let mut body = String::new();
    let mut y = 34.0;
    for row in &diagram.rows {
        match row {
            DiagramRow::Arrow(arrow) => {
                draw_arrow(&mut body, arrow, y);
                y += STEP;
            }
            DiagramRow::Pause { ms, why, bad } => {
                let share = if whole > 0.0 { ms / whole } else { 0.0 };
                let height = STEP + PAUSE * share;
                draw_pause(&mut body, *ms, why, *bad, y, height);
                y += height + STEP / 2.0;
            }
            DiagramRow::LeftOut(n) => {
                let middle = (LANES[0] + LANES[1]) / 2.0;
                let text = crate::units::several(*n, "more segment", "more segments");
                let _ = write!(
                    body,
                    r#"<text class="note" x="{middle}" y="{:.1}" text-anchor="middle">… {text} …</text>"#,
                    y + 2.0
                );
                y += STEP;
            }
        }
    }
    let height = y + 10.0;
    let mut out = format!(
        r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">"#,
        escape(&diagram.title)
    );
    for (x, (name, anchor)) in LANES.iter().zip(diagram.lanes.iter().zip(["start", "end"])) {
        let from = if anchor == "start" { x - 80.0 } else { *x };
        let _ = write!(
            out,
            r#"<line class="lane" x1="{x}" y1="20" x2="{x}" y2="{:.0}"/><text class="name" x="{from}" y="13" text-anchor="{anchor}">{}</text>"#,
            height - 4.0,
            escape(name)
        );
    }
    out.push_str(&body);
    out.push_str("</svg>");
    out
}

fn draw_arrow(out: &mut String, arrow: &Arrow, y: f64) {
    let [left, right] = LANES;
    let (from, to) = if arrow.to_server { (left, right) } else { (right, left) };
    let end = y + SLANT;
    // The head's two other corners.
    let back = if arrow.to_server { to - 8.0 } else { to + 8.0 };
    let class = if arrow.bad { "arrow bad" } else { "arrow" };
    let _ = write!(
        out,
        r#"<g class="{class}"><line x1="{from}" y1="{y:.1}" x2="{to}" y2="{end:.1}"/><polygon points="{to},{end:.1} {back},{:.1} {back},{:.1}"/><text x="{}" y="{:.1}" text-anchor="middle">{}</text></g>"#,
        end - 4.0,
        end + 4.0,
        (left + right) / 2.0,
        y - 0.5,
        escape(&shortened(&words(arrow))),
    );
    // The time stands at the left for either sender.
    let _ = write!(
        out,
        r#"<text class="time" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
        left - 8.0,
        y + 4.0,
        time(arrow.at_ms, true)
    );
}

fn draw_pause(out: &mut String, ms: f64, why: &str, bad: bool, y: f64, height: f64) {
    let [left, right] = LANES;
    let class = if bad { "pause bad" } else { "pause" };
    let top = y - STEP / 2.0 + SLANT / 2.0;
    let _ = write!(
        out,
        r#"<g class="{class}"><rect x="{}" y="{top:.1}" width="{}" height="{height:.1}"/><text x="{}" y="{:.1}" text-anchor="middle">{} {}</text></g>"#,
        left + 1.0,
        right - left - 2.0,
        (left + right) / 2.0,
        top + height / 2.0 + 4.0,
        time(ms, true),
        escape(&shortened(why)),
    );
}

/// As much as fits between the lanes.
fn shortened(text: &str) -> String {
    const MOST: usize = 74;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}
