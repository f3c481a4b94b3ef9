//! For a terminal.

use super::{Arrow, Diagram, Row, beside, time};
use crate::style::Style;

/// Columns for the time.
const TIME: usize = 11;

/// The diagram as lines.
pub fn to_text(diagram: &Diagram, style: Style) -> String {
    let width = usize::from(style.width.min(crate::limits::WIDTH));
    // Time, two lanes, and what is between them.
    let between = width.saturating_sub(TIME + 4).clamp(20, 70);
    let mut out = String::new();
    if !diagram.title.is_empty() {
        line(&mut out, &style.bold(&clean(&diagram.title)));
    }
    let [left, right] = diagram.lanes.each_ref().map(|l| clean(l));
    let room = (between + 2).saturating_sub(left.chars().count() + right.chars().count()).max(1);
    line(&mut out, &format!("{:TIME$} {left}{}{right}", "", " ".repeat(room)));
    for row in &diagram.rows {
        match row {
            Row::Arrow(arrow) => arrow_line(&mut out, arrow, between, style),
            Row::Pause { ms, why, bad } => {
                let what = format!("{} {why}", time(*ms, style.unicode));
                let (dots, rest) = (if style.unicode { "┊" } else { ":" }, cut(&clean(&what), between - 2));
                let text = format!("{rest:^between$}");
                let text = if *bad { style.bad(&text) } else { style.dim(&text) };
                line(&mut out, &format!("{:TIME$} {dots}{text}{dots}", ""));
            }
            Row::LeftOut(n) => {
                let text = crate::units::several(*n, "more segment", "more segments");
                let text = format!("... {text} ...");
                line(&mut out, &format!("{:TIME$} {text:^w$}", "", w = between + 2));
            }
        }
    }
    out
}

fn arrow_line(out: &mut String, arrow: &Arrow, between: usize, style: Style) {
    let (lane, dash, to, from) =
        if style.unicode { ("│", "─", "▶", "◀") } else { ("|", "-", ">", "<") };
    let label = cut(&clean(&beside(arrow)), between - 8);
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

/// What came from elsewhere must not steer the terminal.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
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
