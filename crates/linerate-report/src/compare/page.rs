//! A comparison as one page of HTML that needs nothing else.

use std::fmt::Write as _;

use super::chart;
use super::words::{self, NO_DIFFERENCE, NOT_MEASURED, TOO_FEW_ROUNDS, in_order};
use crate::markup::escape;
use crate::passive::page::{checked, footer, list, page};
use crate::schema::comparison::{Check, Document, Run};

/// Metrics whose rounds are drawn.
const DRAWN: [&str; 4] = ["rate_rps", "p50_us", "p99_us", "cpu_us_per_request"];

/// The page.
pub fn to_string(document: &Document) -> String {
    let mut out = String::new();
    let failed = document.checks.iter().any(|c| !c.pass) || document.broken.is_some();
    let class = if failed { "bad" } else { "" };
    let _ = write!(out, "<h1 class=\"{class}\">{}</h1>", escape(&words::headline(document)));
    let _ = write!(out, "<p class=\"source\">{}</p>", escape(&words::method(document)));
    if document.interrupted {
        out.push_str("<p class=\"lead\"><b class=\"warn\">Interrupted: these are the rounds so far.</b></p>");
    }
    if let Some(why) = &document.broken {
        let lines: Vec<String> = why.lines().map(escape).collect();
        let _ = write!(
            out,
            "<p class=\"lead\"><span class=\"bad\">Ended early:</span> {}</p>",
            lines.join("<br>")
        );
    }
    sides(&mut out, document);
    if !document.metrics.is_empty() {
        let _ = write!(
            out,
            "<section><h2>B over A <small>diamonds are the ratios of all rounds, bars their 95 % intervals, dots single \
             rounds</small></h2><div class=\"diagrams\"><figure>{}</figure></div>",
            chart::ratios(document)
        );
        table(&mut out, document);
        out.push_str("</section>");
    }
    since(&mut out, document);
    let mut said = words::differences(document);
    said.extend(words::explanations(document));
    list(&mut out, "What this says", said.iter().map(|s| escape(s)));
    list(&mut out, "Before you believe it", document.warnings.iter().map(|w| escape(w)));
    checks(&mut out, document);
    rounds(&mut out, document);
    footer(&mut out, &document.environment, document.started_at.as_deref());
    page("linerate compare", &out)
}

fn sides(out: &mut String, document: &Document) {
    out.push_str("<section><h2>The two</h2><table class=\"fixes\">");
    for (name, side) in [("A", &document.a), ("B", &document.b)] {
        let mut text = format!("<code>{}</code>", escape(&side.given));
        if side.target != side.given {
            let _ = write!(text, " at {}", escape(&side.target));
        }
        if !side.flags.is_empty() {
            let _ = write!(text, " with <code>{}</code>", escape(&side.flags));
        }
        let _ = write!(text, "<br><small>{}", escape(&side.sending));
        if !side.server_cores.is_empty() {
            let cores: Vec<String> = side.server_cores.iter().map(usize::to_string).collect();
            let _ = write!(text, "; the server on core {}", cores.join(", "));
        }
        let _ = write!(out, "<tr><th class=\"l\">{name}</th><td class=\"l\">{text}</small></td></tr>");
    }
    out.push_str("</table></section>");
}

fn table(out: &mut String, document: &Document) {
    out.push_str(
        "<div class=\"wide\"><table><thead><tr><th class=\"l\">metric</th><th>A</th><th>B</th><th>B/A</th><th>95 % interval</th>\
         <th class=\"l\">verdict</th><th>p</th><th>p, corrected</th><th>rounds</th></tr></thead><tbody>",
    );
    for (id, title, m) in in_order(document) {
        let verdict = match m.verdict.as_str() {
            none @ (NO_DIFFERENCE | TOO_FEW_ROUNDS | NOT_MEASURED) => none.to_owned(),
            side if words::stands(m) => {
                format!("<b class=\"good\">{} is better</b>", escape(&side.to_ascii_uppercase()))
            }
            side => format!("{} looks better?", escape(&side.to_ascii_uppercase())),
        };
        let p = |p: Option<f64>| {
            p.map_or("-".to_owned(), |p| if p < 0.0001 { "&lt;0.0001".to_owned() } else { format!("{p:.4}") })
        };
        let [a, b] = words::sides(&id, m, true).map(|value| escape(&value));
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}</th><td>{a}</td><td>{b}</td><td>{}</td><td>{}</td><td class=\"v\">{verdict}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&title),
            escape(&words::ratio_of(m)),
            words::interval(m.ci95),
            p(m.p_value),
            p(m.p_corrected),
            words::rounds_of(m)
        );
    }
    out.push_str("</tbody></table></div>");
}

fn since(out: &mut String, document: &Document) {
    let Some(baseline) = &document.baseline else { return };
    let when = baseline.started_at.as_deref().map_or(String::new(), |at| format!(", {at}"));
    let _ = write!(
        out,
        "<section><h2>B over A since then <small>{}{}</small></h2><div class=\"wide\"><table><thead><tr><th class=\"l\">metric</th>\
         <th>then</th><th>now</th><th>change</th><th>95 % interval</th><th class=\"l\">B is</th></tr></thead><tbody>",
        escape(&baseline.file),
        escape(&when)
    );
    for (_, title, c) in words::since(baseline) {
        let class = match c.verdict.as_str() {
            "better" => "good",
            "worse" => "bad",
            _ => "",
        };
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"l\"><span class=\"{class}\">{}</span></td></tr>",
            escape(&title),
            words::ratio(c.then),
            words::ratio(c.now),
            words::ratio(c.change),
            words::interval(c.ci95),
            escape(&c.verdict)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn checks(out: &mut String, document: &Document) {
    let line = |c: &Check| checked(c.pass, &c.expr, &escape(&c.shown));
    list(out, "Checks", document.checks.iter().map(line));
}

fn rounds(out: &mut String, document: &Document) {
    if document.rounds.is_empty() {
        return;
    }
    out.push_str("<section><h2>Round by round</h2><div class=\"diagrams\">");
    let metrics = in_order(document);
    for (id, title, _) in metrics.iter().filter(|(id, _, _)| DRAWN.contains(&id.as_str())) {
        if let Some(svg) = chart::rounds(document, id, title) {
            let _ = write!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(title));
        }
    }
    out.push_str("</div><details><summary>All runs as a table</summary><div class=\"wide\"><table><thead><tr><th>round</th><th class=\"l\">side</th>");
    for (_, title, _) in &metrics {
        let _ = write!(out, "<th>{}</th>", escape(title));
    }
    out.push_str("<th>responses</th><th>errors</th><th class=\"l\">remarkable</th></tr></thead><tbody>");
    for (i, round) in document.rounds.iter().enumerate() {
        let mut pair = [("A", &round.a), ("B", &round.b)];
        if round.first == "b" {
            pair.reverse();
        }
        for (name, run) in pair {
            row(out, i + 1, name, run, metrics.iter().map(|(id, _, _)| id.as_str()));
        }
    }
    out.push_str("</tbody></table></div></details></section>");
}

fn row<'a>(out: &mut String, round: usize, name: &str, run: &Run, ids: impl Iterator<Item = &'a str>) {
    let _ = write!(out, "<tr><td>{round}</td><td class=\"l\">{name}</td>");
    for id in ids {
        let value = run.values.get(id).map_or("-".to_owned(), |v| words::value(id, *v, true));
        let bound = if run.at_least.iter().any(|bound| bound == id) { "&ge; " } else { "" };
        let _ = write!(out, "<td>{bound}{value}</td>");
    }
    let remarkable = run.fault.as_deref().or(run.client_limit.as_deref().map(|_| "the client was the limit"));
    let _ = write!(
        out,
        "<td>{}</td><td>{}</td><td class=\"l\">{}</td></tr>",
        crate::units::count(run.answered),
        crate::units::count(run.errors),
        escape(remarkable.unwrap_or_default())
    );
}
