//! A comparison for a terminal.

use super::words::{self, NO_DIFFERENCE, NOT_MEASURED, TOO_FEW_ROUNDS, in_order};
use crate::schema::comparison::{Document, Metric, Side};
use crate::style::{Style, clean};

/// Columns of the first column: the longest title.
const TITLE: usize = 21;

/// The whole report.
pub fn to_string(document: &Document, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut out = String::new();
    side(&mut out, style, "A", &document.a);
    side(&mut out, style, "B", &document.b);
    line(&mut out, &style.wrapped("", &words::method(document)));
    if document.interrupted {
        line(&mut out, &style.warn("Interrupted: these are the rounds so far."));
    }
    if let Some(why) = &document.broken {
        line(&mut out, &style.bad("Ended early:"));
        why.lines().for_each(|text| line(&mut out, &format!("  {}", clean(text))));
    }
    line(&mut out, "");
    for text in style.wrapped("", &words::headline(document)).lines() {
        line(&mut out, &style.bold(text));
    }
    if !document.metrics.is_empty() {
        line(&mut out, "");
        table(&mut out, style, document);
    }
    since(&mut out, style, document);
    let explanations = words::explanations(document);
    if !explanations.is_empty() {
        line(&mut out, "");
    }
    for text in explanations {
        item(&mut out, style, &style.dim("-"), 1, &text);
    }
    if !document.warnings.is_empty() {
        line(&mut out, "");
    }
    for text in &document.warnings {
        item(&mut out, style, &style.warn("note"), 4, text);
    }
    if !document.checks.is_empty() {
        line(&mut out, "");
    }
    for check in &document.checks {
        let mark = if check.pass { style.good("ok    ") } else { style.bad("FAILED") };
        item(&mut out, style, &mark, 6, &format!("{}: {}", check.expr, check.shown));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// A mark `columns` wide, and text wrapped beside it.
fn item(out: &mut String, style: Style, mark: &str, columns: usize, text: &str) {
    let indent = " ".repeat(columns + 2);
    let wrapped = style.wrapped(&indent, text);
    line(out, &format!("{mark}  {}", wrapped.trim_start()));
}

fn side(out: &mut String, style: Style, name: &str, side: &Side) {
    let target = if side.target == side.given { String::new() } else { format!(" at {}", side.target) };
    let flags = if side.flags.is_empty() { String::new() } else { format!(" with {}", side.flags) };
    let head = clean(&format!("{}{target}{flags}", side.given));
    let indent = "   ";
    let wrapped = style.wrapped(indent, &head);
    line(out, &format!("{}  {}", style.bold(name), wrapped.trim_start()));
    let mut how = side.sending.clone();
    if !side.server_cores.is_empty() {
        let cores: Vec<String> = side.server_cores.iter().map(usize::to_string).collect();
        how +=
            &format!("; server on {} {}", if cores.len() == 1 { "core" } else { "cores" }, cores.join(","));
    }
    style.wrapped(indent, &how).lines().for_each(|text| line(out, &style.dim(text)));
}

/// Columns that the whole table takes beside its last one. Narrower terminals get it in two parts.
const WHOLE: usize = 68;

fn table(out: &mut String, style: Style, document: &Document) {
    let (sides, ratio) =
        (format!(" {:>10} {:>10}", "A", "B"), format!(" {:>7} {:>15} difference", "B/A", "95 % interval"));
    let of_sides = |id: &str, m: &Metric| {
        let [a, b] = words::sides(id, m, style.unicode);
        format!(" {a:>10} {b:>10}")
    };
    let of_ratio = |m: &Metric| {
        let verdict = match m.verdict.as_str() {
            NO_DIFFERENCE => style.dim("none seen"),
            TOO_FEW_ROUNDS => style.dim("too few rounds"),
            NOT_MEASURED => style.dim("not measured"),
            better => {
                let text = format!("{} better", clean(better).to_ascii_uppercase());
                if words::stands(m) { style.good(&text) } else { style.dim(&format!("{text}?")) }
            }
        };
        format!(" {:>7} {:>15} {verdict}", words::ratio_of(m), words::interval(m.ci95))
    };
    let mut part = |head: &str, row: &dyn Fn(&str, &Metric) -> String| {
        line(out, &style.bold(&format!("{:<TITLE$}{head}", "")));
        for (id, title, m) in in_order(document) {
            line(out, &format!("{:<TITLE$}{}", clean(&title), row(&id, m)));
        }
    };
    let longest = document.metrics.values().map(|m| m.verdict.len()).filter(|len| *len < 15).max();
    if usize::from(style.width) >= WHOLE + longest.unwrap_or(0).max(10) {
        part(&(sides + &ratio), &|id, m| of_sides(id, m) + &of_ratio(m));
    } else {
        part(&sides, &of_sides);
        part(&ratio, &|_, m| of_ratio(m));
    }
}

fn since(out: &mut String, style: Style, document: &Document) {
    let Some(baseline) = &document.baseline else { return };
    line(out, "");
    let when = baseline.started_at.as_deref().map_or(String::new(), |at| format!(" ({at})"));
    line(out, &style.bold(&clean(&format!("B/A since {}{when}", baseline.file))));
    let head =
        format!("{:<TITLE$} {:>10} {:>10} {:>7} {:>15} B is", "", "then", "now", "change", "95 % interval");
    line(out, &head);
    for (_, title, c) in words::since(baseline) {
        let verdict = match c.verdict.as_str() {
            "better" => style.good("better"),
            "worse" => style.bad("worse"),
            TOO_FEW_ROUNDS => style.dim(TOO_FEW_ROUNDS),
            _ => style.dim("no different"),
        };
        let row = format!(
            "{title:<TITLE$} {:>10} {:>10} {:>7} {:>15} ",
            words::ratio(c.then),
            words::ratio(c.now),
            words::ratio(c.change),
            words::interval(c.ci95)
        );
        line(out, &format!("{row}{verdict}"));
    }
}
