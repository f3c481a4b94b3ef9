//! Screens as a picture: one, or several that take turns.

use std::fmt::Write;

use super::terminal::{Cell, CellStyle, Screen};

const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 16.0;

/// Seconds that each screen is shown, and the last one.
const SHOWN: (f64, f64) = (0.6, 6.0);

/// Colours on a light and on a dark ground, by their number.
const COLOURS: [(&str, &str); 8] = [
    ("#57606a", "#8b949e"),
    ("#b3261e", "#ff8a80"),
    ("#1a7f37", "#56d364"),
    ("#8a5a00", "#e3b341"),
    ("#0550ae", "#79c0ff"),
    ("#8250df", "#d2a8ff"),
    ("#0a6b7c", "#56d4dd"),
    ("#24292f", "#e6edf3"),
];

/// The picture; `typed` stands behind a neutral prompt.
pub(super) fn picture(typed: &str, frames: &[Screen], columns: usize, rows: usize) -> String {
    let lines = frames.iter().map(Vec::len).max().unwrap_or(0).min(rows) + 2;
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = lines as f64 * CELL.1 + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"{}\">\n<style>\n{}</style>\n<rect class=\"g\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        escape(typed),
        style(frames.len())
    );
    text(0, 0, "$", CellStyle { dim: true, ..CellStyle::default() }, &mut out);
    text(2, 0, typed, CellStyle { bold: true, ..CellStyle::default() }, &mut out);
    for (i, screen) in frames.iter().enumerate() {
        let class = if i + 1 == frames.len() { "f l" } else { "f" };
        let _ = writeln!(out, "<g class=\"{class}\" id=\"f{i}\">");
        for (row, cells) in screen.iter().take(rows).enumerate() {
            line(cells, row + 2, &mut out);
        }
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Each screen has its part of the time; without motion only the last is seen.
fn style(frames: usize) -> String {
    let mut out = String::from(
        "text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre; fill: #24292f; }\n\
         .g { fill: #f6f8fa; stroke: #d0d7de; }\n.b { font-weight: 700; }\n.d { opacity: .65; }\n",
    );
    for (i, (light, _)) in COLOURS.iter().enumerate() {
        let _ = writeln!(out, ".c{i} {{ fill: {light}; }}");
    }
    out.push_str("@media (prefers-color-scheme: dark) {\ntext { fill: #e6edf3; }\n.g { fill: #0d1117; stroke: #30363d; }\n");
    for (i, (_, dark)) in COLOURS.iter().enumerate() {
        let _ = writeln!(out, ".c{i} {{ fill: {dark}; }}");
    }
    out.push_str("}\n");
    if frames < 2 {
        return out;
    }
    let all = SHOWN.0 * (frames - 1) as f64 + SHOWN.1;
    out.push_str(".f { visibility: hidden; }\n.l { visibility: visible; }\n@media (prefers-reduced-motion: no-preference) {\n");
    for i in 0..frames {
        let begin = 100.0 * SHOWN.0 * i as f64 / all;
        let end = if i + 1 == frames { 100.0 } else { begin + 100.0 * SHOWN.0 / all };
        let before = if i == 0 { String::new() } else { "0% { visibility: hidden; } ".to_owned() };
        let after =
            if i + 1 == frames { String::new() } else { format!(" {end:.2}% {{ visibility: hidden; }}") };
        let _ = writeln!(
            out,
            "#f{i} {{ animation: k{i} {all:.1}s step-end infinite; }}\n\
             @keyframes k{i} {{ {before}{begin:.2}% {{ visibility: visible; }}{after} }}"
        );
    }
    out.push_str("}\n");
    out
}

/// A line, each run of one look as a text.
fn line(cells: &[Cell], row: usize, out: &mut String) {
    let mut at = 0;
    for run in cells.chunk_by(|a, b| a.look == b.look) {
        let words: String = run.iter().map(|c| c.character).collect();
        text(at, row, &words, run[0].look, out);
        at += run.len();
    }
}

/// A text from a column on. Its width is fixed, so that columns stand below each other in any font.
fn text(column: usize, row: usize, words: &str, look: CellStyle, out: &mut String) {
    let blank = words.chars().take_while(|c| *c == ' ').count();
    let words = words.trim();
    if words.is_empty() {
        return;
    }
    let mut class = String::new();
    let number = look.colour.map(|c| c % 8);
    for (on, name) in [(look.bold, "b".to_owned()), (look.dim, "d".to_owned())] {
        if on {
            class.push_str(&format!("{name} "));
        }
    }
    class.extend(number.map(|n| format!("c{n}")));
    let class = if class.is_empty() { class } else { format!(" class=\"{}\"", class.trim()) };
    let x = MARGIN + (column + blank) as f64 * CELL.0;
    let y = MARGIN + (row + 1) as f64 * CELL.1 - 5.0;
    let length = words.chars().count() as f64 * CELL.0;
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.0}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         xml:space=\"preserve\"{class}>{}</text>",
        escape(words)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(words: &str) -> Screen {
        vec![words.chars().map(|character| Cell { character, look: CellStyle::default() }).collect()]
    }

    #[test]
    fn several_screens_take_turns_and_the_last_stays() {
        let shown = picture("linerate load 'a<b'", &[screen("one"), screen("  two")], 40, 10);
        assert!(shown.contains(">one</text>") && shown.contains(">two</text>"), "{shown}");
        assert!(shown.contains("linerate load 'a&lt;b'") && shown.contains("<g class=\"f l\" id=\"f1\">"));
        assert_eq!(shown.matches("@keyframes").count(), 2);
        assert!(!picture("x", &[screen("one")], 40, 10).contains("@keyframes"));
    }
}
