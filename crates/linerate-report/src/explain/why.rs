//! Explains a cause to a reader who is new to it, as text and as a page.

use std::fmt::Write as _;

use linerate_explain::causes::{Cause, PictureStep};
use linerate_explain::pages::all;

use super::words::capital;
use crate::Style;
use crate::diagram::{self, Arrow, Diagram, DiagramRow};
use crate::markup::escape;
use crate::passive::page::{diagrams, page};

/// Columns of running text.
const TEXT: u16 = 100;

/// All causes there are pages of, a line each.
pub fn list(style: Style) -> String {
    let style = Style { width: style.width.clamp(40, TEXT), ..style };
    let mut out = String::new();
    for cause in all() {
        let lines = Style { width: style.width.saturating_sub(28).max(20), ..style }.wrapped("", cause.title);
        for (i, line) in lines.lines().enumerate() {
            let id = if i == 0 { cause.id } else { "" };
            let _ = writeln!(out, "  {id:<26}{line}");
        }
    }
    out
}

/// The page as text.
pub fn to_string(cause: &Cause, style: Style) -> String {
    let style = Style { width: style.width.clamp(40, TEXT), ..style };
    let mut out = String::new();
    let heading = |out: &mut String, text: &str| {
        let _ = writeln!(out, "\n{}", style.bold(text));
    };
    let _ = writeln!(out, "{}", style.bold(cause.id));
    let _ = writeln!(out, "{}", style.wrapped("", &format!("{}.", capital(cause.title))));
    heading(&mut out, "What it is");
    let _ = writeln!(out, "{}", style.wrapped("  ", cause.page.what));
    heading(&mut out, "A picture (the times are an example)");
    out.push_str(&diagram::to_text(&picture(cause), style));
    heading(&mut out, "What to change");
    for (software, change) in fixes(cause) {
        let width = style.width.saturating_sub(4).max(20);
        let words = Style { width, ..style }.wrapped("", &format!("{software}: {change}"));
        for (i, line) in words.lines().enumerate() {
            let _ = writeln!(out, "{}{line}", if i == 0 { "  - " } else { "    " });
        }
    }
    heading(&mut out, "Is it that?");
    let _ = writeln!(out, "  {}", TEST_IT);
    out
}

/// The command that tests for the cause.
const TEST_IT: &str = "linerate explain --json why.json URL";

/// The fixes, grouped by software.
fn fixes(cause: &Cause) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    for fix in cause.all_fixes() {
        match all.iter_mut().find(|(software, _)| *software == fix.software) {
            // The page has it already, with more words.
            Some((_, change)) if change.contains(fix.change) => {}
            Some((_, change)) => change.push_str(&format!("; {}", fix.change)),
            None => all.push((fix.software, fix.change.to_owned())),
        }
    }
    all
}

/// The page as self-contained HTML.
pub fn to_html(cause: &Cause) -> String {
    let all = [picture(cause)];
    let mut out = format!(
        "<h1>{}</h1><p class=\"lead\">{}.</p><section><h2>What it is</h2><p>{}</p></section><section><h2>A picture \
         <small>the times are an example</small></h2>{}</section><section><h2>What to change</h2><table class=\"fixes\">",
        escape(cause.id),
        escape(&capital(cause.title)),
        escape(cause.page.what),
        diagrams(&all, all.iter().map(diagram::to_svg))
    );
    for (software, change) in fixes(cause) {
        let (software, change) = (escape(software), escape(&change));
        let _ = write!(out, "<tr><th class=\"l\">{software}</th><td class=\"l\">{change}</td></tr>");
    }
    let _ = write!(
        out,
        "</table></section><section><h2>Is it that?</h2><p><code>{}</code></p></section>",
        escape(TEST_IT)
    );
    page(&format!("{} - linerate explain", cause.id), &out)
}

/// Between two packets in a picture, milliseconds.
const APART: f64 = 0.2;

fn picture(cause: &Cause) -> Diagram {
    let mut at_ms = 0.0;
    let mut rows = Vec::new();
    for step in cause.page.picture {
        let mut arrow = |label: &str, to_server: bool, lost: bool| {
            let notes = if lost { vec!["lost".to_owned()] } else { Vec::new() };
            rows.push(DiagramRow::Arrow(Arrow {
                at_ms,
                to_server,
                label: label.to_owned(),
                notes,
                bad: lost,
            }));
        };
        match *step {
            PictureStep::To(label) => arrow(label, true, false),
            PictureStep::From(label) => arrow(label, false, false),
            PictureStep::LostTo(label) => arrow(label, true, true),
            PictureStep::LostFrom(label) => arrow(label, false, true),
            PictureStep::Wait(ms, why) => rows.push(DiagramRow::Pause { ms, why: why.to_owned(), bad: true }),
            PictureStep::Then(ms, why) => {
                rows.push(DiagramRow::Pause { ms, why: why.to_owned(), bad: false })
            }
        }
        at_ms += match *step {
            PictureStep::Wait(ms, _) | PictureStep::Then(ms, _) => ms,
            _ => APART,
        };
    }
    Diagram { title: String::new(), lanes: cause.page.lanes.map(str::to_owned), rows }
}

#[cfg(test)]
mod tests {
    use linerate_explain::pages::of;

    use super::*;

    #[test]
    fn each_page_fits_and_has_all_its_parts() {
        for cause in all() {
            for width in [60, 80] {
                let text = to_string(cause, Style { width, ..Style::default() });
                let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
                assert!(longest <= usize::from(width), "{}: {longest} of {width}\n{text}", cause.id);
                // A truncated label is useless.
                assert!(!text.contains("... ─") && !text.contains("...\u{2500}"), "{text}");
                for part in ["What it is", "A picture", "What to change"] {
                    assert!(text.contains(part), "{text}");
                }
            }
            let ascii = to_string(cause, Style { unicode: false, ..Style::default() });
            assert!(ascii.is_ascii(), "{ascii}");
            let html = to_html(cause);
            assert!(html.matches("<svg ").count() == 1 && html.ends_with("</html>\n"), "{}", cause.id);
            for fix in cause.all_fixes() {
                assert!(html.contains(&escape(fix.change)), "{}: {}", cause.id, fix.change);
            }
            for (software, change) in fixes(cause) {
                let said = change.matches("-Dsun.net.httpserver.nodelay=true").count();
                assert!(said <= 1, "{}: {software}: {change}", cause.id);
            }
            assert!(list(Style::default()).contains(&format!("  {} ", cause.id)), "{}", cause.id);
        }
        assert!(of("no-such-cause").is_none());
    }
}
