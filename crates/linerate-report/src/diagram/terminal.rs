//! For a terminal.

use super::{Arrow, Diagram, DiagramRow, time, words};
use crate::style::{Style, clean};

/// Columns for the time.
const TIME: usize = 11;

/// The diagram as lines.
pub fn to_text(diagram: &Diagram, style: Style) -> String {
    let width = usize::from(style.width.min(crate::limits::WIDTH));
    // Time, two lanes, and what is between them.
    let between = width.saturating_sub(TIME + 4).clamp(20, 70);
    let mut out = String::new();
    if !diagram.title.is_empty() {
        line(&mut out, &style.bold(&cut(&clean(&diagram.title), width)));
    }
    let [left, right] = diagram.lanes.each_ref().map(|l| clean(l));
    let room = (between + 2).saturating_sub(left.chars().count() + right.chars().count()).max(1);
    line(&mut out, &format!("{:TIME$} {left}{}{right}", "", " ".repeat(room)));
    for row in &diagram.rows {
        match row {
            DiagramRow::Arrow(arrow) => arrow_line(&mut out, arrow, between, style),
            DiagramRow::Pause { ms, why, bad } => {
                let what = format!("{} {why}", time(*ms, style.unicode));
                let (dots, rest) = (if style.unicode { "┊" } else { ":" }, cut(&clean(&what), between - 2));
                let text = format!("{rest:^between$}");
                let text = if *bad { style.bad(&text) } else { style.dim(&text) };
                line(&mut out, &format!("{:TIME$} {dots}{text}{dots}", ""));
            }
            DiagramRow::LeftOut(n) => {
                let text = crate::units::several(*n, "more segment", "more segments");
                let text = format!("... {text} ...");
                line(&mut out, &format!("{:TIME$} {text:^w$}", "", w = between + 2));
            }
        }
    }
    out
}

/// Columns from which two diagrams stand next to each other. Reason: each needs some 50 for its
/// labels.
const BESIDE: u16 = 104;
/// Columns between them.
const GAP: u16 = 3;

/// Diagrams next to each other where there is room, else under each other.
pub fn beside(diagrams: &[Diagram], style: Style) -> String {
    let [left, right] = diagrams else {
        return diagrams.iter().map(|d| to_text(d, style)).collect::<Vec<_>>().join("\n");
    };
    if style.width < BESIDE {
        return [to_text(left, style), to_text(right, style)].join("\n");
    }
    let half = Style { width: (style.width.min(2 * crate::limits::WIDTH) - GAP) / 2, ..style };
    let [left, right] = [left, right].map(|d| to_text(d, half));
    let (mut left, mut right) = (left.lines(), right.lines());
    let mut out = String::new();
    loop {
        let (a, b) = (left.next(), right.next());
        if a.is_none() && b.is_none() {
            return out;
        }
        let a = a.unwrap_or_default();
        let room = usize::from(half.width + GAP).saturating_sub(columns(a));
        line(&mut out, &format!("{a}{}{}", " ".repeat(room), b.unwrap_or_default()));
    }
}

/// Columns a line takes: escape sequences take none.
fn columns(line: &str) -> usize {
    let mut n = 0;
    let mut escaped = false;
    for c in line.chars() {
        match (escaped, c) {
            (false, '\x1b') => escaped = true,
            (true, 'm') => escaped = false,
            (true, _) => {}
            (false, _) => n += 1,
        }
    }
    n
}

fn arrow_line(out: &mut String, arrow: &Arrow, between: usize, style: Style) {
    let (lane, dash, to, from) =
        if style.unicode { ("│", "─", "▶", "◀") } else { ("|", "-", ">", "<") };
    let label = cut(&clean(&words(arrow)), between - 8);
    let dashes = between.saturating_sub(label.chars().count() + 3);
    let (before, after) = (dashes / 2, dashes - dashes / 2);
    let shown = if arrow.bad { style.bad(&label) } else { label };
    let body = if arrow.to_server {
        format!("{} {shown} {}{to}", dash.repeat(before), dash.repeat(after))
    } else {
        format!("{from}{} {shown} {}", dash.repeat(before), dash.repeat(after))
    };
    line(out, &format!("{:>TIME$} {lane}{body}{lane}", time(arrow.at_ms, style.unicode)));
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(3)).collect();
    short.push_str("...");
    short
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}
