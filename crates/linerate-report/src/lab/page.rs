//! A scenario as one page of HTML that needs nothing else.

use std::fmt::Write as _;

use super::cells::{cell, columns, figure, ratio};
use super::{curves, dashes, method, missing, over_line};
use crate::markup::escape;
use crate::passive::page::{footer, list, page};
use crate::schema::lab::{Document, Group, Row, Verdict};
use crate::units;

/// The page.
pub fn to_string(document: &Document) -> String {
    let mut out = format!(
        "<h1>{}</h1><p class=\"lead\">{}</p><p class=\"source\">{}</p>",
        escape(&document.scenario),
        escape(&document.about),
        escape(&method(document))
    );
    if document.interrupted {
        out.push_str("<p class=\"lead\"><b class=\"warn\">Interrupted: these are the rounds so far.</b></p>");
    }
    if let Some(svg) = held_up(document) {
        let _ = write!(
            out,
            "<section><h2>Quick requests that were held up <small>they took at least 10 ms longer than the quickest one</small></h2><figure>{svg}</figure></section>"
        );
    }
    for group in document.groups.iter().filter(|g| !g.rows.is_empty()) {
        let _ =
            write!(out, "<section><h2>{} <small>{}</small></h2>", escape(&group.name), escape(&group.about));
        if let Some(text) = over_line(group) {
            let _ = write!(out, "<p class=\"source\">{}</p>", escape(&text));
        }
        out.push_str("<div class=\"diagrams\">");
        for (id, title) in [
            ("rate_rps", "Requests per second"),
            ("quick_held_up", "Quick requests held up"),
            ("p99_us", "p99 latency"),
            ("cpu_us_per_request", "Server CPU for each request"),
        ] {
            let is_of_all = id == "p99_us" && group.rows.iter().any(|r| r.quick.is_some());
            let svg = || curves::over_cores(group, id, title).or_else(|| bars(group, id, title));
            if let Some(svg) = svg().filter(|_| !is_of_all) {
                let _ = write!(out, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
            }
        }
        out.push_str("</div>");
        table(&mut out, group);
        out.push_str("</section>");
    }
    if let Some(text) = dashes(document) {
        let _ = write!(out, "<p class=\"source\">{}</p>", escape(text));
    }
    list(
        &mut out,
        "Left out",
        missing(document).into_iter().map(|m| {
            let install = match m.install {
                "" => String::new(),
                install => format!(" Install it: <code>{}</code>", escape(install)),
            };
            format!("{}: {}.{install}", escape(&m.rows.join("; ")), escape(m.why))
        }),
    );
    list(&mut out, "Before you believe it", document.warnings.iter().map(|w| escape(w)));
    footer(&mut out, &document.environment, document.started_at.as_deref());
    page("linerate lab", &out)
}

/// A metric as bars; `None` where fewer than two rows have it.
fn bars(group: &Group, id: &str, title: &str) -> Option<String> {
    let rows: Vec<(&Row, f64)> = group.rows.iter().filter_map(|r| Some((r, figure(r, id)?))).collect();
    let most = rows.iter().map(|(_, v)| *v).fold(0.0, f64::max);
    if rows.len() < 2 || most <= 0.0 {
        return None;
    }
    let height = ROW * rows.len() as f64 + 8.0;
    let mut svg = format!(r#"<svg viewBox="0 0 560 {height}" role="img" aria-label="{title}, row by row">"#);
    for (i, (row, v)) in rows.iter().enumerate() {
        bar(&mut svg, 4.0 + ROW * i as f64, &row.name, v / most, &cell(row, id, true));
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Where bars begin and end, and how far apart they are.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 470.0;
const ROW: f64 = 28.0;
/// Width of a character of the monospaced font, of its height. A long name gets smaller where letters are large.
const WIDE: f64 = 0.61;

/// One bar with its name and its value; `share` of 1 is the longest.
fn bar(svg: &mut String, y: f64, name: &str, share: f64, said: &str) {
    let width = ((RIGHT - LEFT) * share).max(1.0);
    let room = (LEFT - 10.0) / (name.chars().count() as f64 * WIDE);
    let _ = write!(
        svg,
        r#"<text class="name" style="font-size:min(1em,{room:.1}px)" x="{}" y="{:.1}" text-anchor="end">{}</text><rect class="bar" x="{LEFT}" y="{:.1}" width="{width:.1}" height="16" rx="2"/><text x="{:.1}" y="{:.1}">{}</text>"#,
        LEFT - 8.0,
        y + 15.0,
        escape(name),
        y + 3.0,
        LEFT + width + 6.0,
        y + 15.0,
        escape(said)
    );
}

/// All groups with quick requests side by side, on one scale; `None` where there are fewer than two.
fn held_up(document: &Document) -> Option<String> {
    let share = |row: &Row| figure(row, "quick_held_up");
    let groups: Vec<&Group> =
        document.groups.iter().filter(|g| g.rows.iter().any(|r| r.quick.is_some())).collect();
    let rows: usize = groups.iter().map(|g| g.rows.len()).sum();
    let most = groups.iter().flat_map(|g| &g.rows).filter_map(share).fold(0.0, f64::max);
    if groups.len() < 2 || most <= 0.0 {
        return None;
    }
    let height = ROW * (rows + groups.len()) as f64 + 8.0;
    let mut svg = format!(
        r#"<svg viewBox="0 0 560 {height}" role="img" aria-label="Share of quick requests that were held up, group by group">"#
    );
    let mut y = 4.0;
    for group in groups {
        let _ = write!(svg, r#"<text class="name" x="8" y="{:.1}">{}</text>"#, y + 20.0, escape(&group.name));
        y += ROW;
        for row in &group.rows {
            let value = share(row);
            let said = value.map_or_else(|| "-".to_owned(), units::percent);
            bar(&mut svg, y, &row.name, value.unwrap_or(0.0) / most, &said);
            y += ROW;
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn table(out: &mut String, group: &Group) {
    let columns = columns(group);
    out.push_str("<div class=\"wide\"><table class=\"many\"><thead><tr><th class=\"l\">row</th>");
    for (_, title) in &columns {
        let _ = write!(out, "<th>{title}</th>");
    }
    out.push_str("<th>ratio of requests/s</th><th class=\"l\">against the first</th><th>errors</th></tr></thead><tbody>");
    for row in &group.rows {
        let _ = write!(out, "<tr><th class=\"l\" scope=\"row\">{}</th>", escape(&row.name));
        for (id, _) in &columns {
            let _ = write!(out, "<td>{}</td>", escape(&cell(row, id, true)));
        }
        let verdict = row.metrics.get("rate_rps").map(|m| m.verdict).unwrap_or_default();
        let (class, word) = match verdict {
            Verdict::None => ("", ""),
            Verdict::Better => ("good", "faster"),
            Verdict::Worse => ("bad", "slower"),
            Verdict::NoDifference => ("", "no difference seen"),
            Verdict::TooFewRounds => ("", "too few rounds"),
            Verdict::NotMeasured => ("", "not measured"),
        };
        let _ = write!(
            out,
            "<td class=\"r\">{}</td><td class=\"v\"><span class=\"{class}\">{word}</span></td><td>{}</td></tr>",
            escape(&ratio(group, row)),
            units::count(row.errors)
        );
    }
    out.push_str(
        "</tbody></table></div><details><summary>How each row was sent</summary><table class=\"fixes\">",
    );
    for row in &group.rows {
        let fault: String = super::left_out(row)
            .iter()
            .map(|said| format!(" <span class=\"bad\">{}</span>", escape(said)))
            .collect();
        let _ = write!(
            out,
            "<tr><th class=\"l\">{}</th><td class=\"l\">{}{fault}<br><small>{} to <code>{}</code>: {}</small></td></tr>",
            escape(&row.name),
            escape(&row.about),
            escape(&row.flags),
            escape(&row.target),
            escape(&row.sending)
        );
    }
    out.push_str("</table></details>");
}
