//! Saved documents of runs, side by side, and of diagnoses.

use linerate_load::plan::Check;
use serde_json::Value;

use crate::schema::outcome::{Document, Latency};
use crate::style::{Style, clean};
use crate::units;

/// Columns of a file.
const COLUMN: usize = 16;
/// Columns of a row's name.
const NAME: usize = 18;

/// What a row shows: its name, the value of a document, its unit, and whether it has a ratio.
type Row = (&'static str, fn(&Document) -> Option<f64>, fn(f64) -> String, bool);

fn latency(document: &Document) -> Option<&Latency> {
    document.latency_us.from_due.as_ref().or(document.latency_us.from_sent.as_ref())
}

fn micros(value: f64) -> String {
    units::time_us(value, true)
}

fn whole(value: f64) -> String {
    units::count(value as u64)
}

/// The share of a document's responses that were good: what is per second or per request counts these alone.
fn share_of_good(document: &Document) -> Option<f64> {
    let share = 1.0 - document.bad.total() as f64 / document.requests.answered.max(1) as f64;
    (share > 0.0).then_some(share)
}

const ROWS: [Row; 15] = [
    ("requests/s", |d| Some(d.rate_rps * share_of_good(d).unwrap_or(0.0)), units::rate, true),
    ("mean", |d| latency(d)?.mean, micros, true),
    ("p50", |d| latency(d)?.p50, micros, true),
    ("p90", |d| latency(d)?.p90, micros, true),
    ("p99", |d| latency(d)?.p99, micros, true),
    ("p99.9", |d| latency(d)?.p999, micros, true),
    ("max", |d| latency(d)?.max, micros, true),
    ("client CPU/request", |d| Some(d.client.cpu_us_per_request? / share_of_good(d)?), micros, true),
    ("sent", |d| Some(d.requests.sent as f64), whole, false),
    ("answered", |d| Some(d.requests.answered as f64), whole, false),
    ("failed", |d| Some(d.requests.failed as f64), whole, false),
    ("unknown", |d| Some(d.requests.unknown as f64), whole, false),
    ("bad", |d| Some((d.bad.total()) as f64), whole, false),
    ("unsent", |d| Some(d.requests.unsent as f64), whole, false),
    ("measured", |d| Some(d.duration_s), |s| format!("{} s", units::short_seconds(s)), false),
];

/// Runs side by side: a column for each, with the ratio to the first.
pub fn outcomes(runs: &[(String, Document)], style: Style) -> String {
    let mut out = String::new();
    for (i, (file, document)) in runs.iter().enumerate() {
        let when = document.started_at.as_deref().unwrap_or("never measured");
        line(&mut out, &format!("{} {}  {}", style.bold(&number(i)), clean(file), style.dim(&clean(when))));
        line(&mut out, &style.wrapped("    ", &document.environment.command));
    }
    line(&mut out, "");
    let fits = (usize::from(style.width).saturating_sub(NAME + 2) / (COLUMN + 1)).max(1);
    // More files than columns go below each other, each group beside the first file.
    let first = &runs[0];
    let others: Vec<usize> = (1..runs.len()).collect();
    let groups: Vec<&[usize]> =
        if others.is_empty() { vec![&[]] } else { others.chunks(fits.max(2) - 1).collect() };
    for (i, group) in groups.iter().enumerate() {
        if i > 0 {
            line(&mut out, "");
        }
        let columns: Vec<(usize, &Document)> =
            std::iter::once((0, &first.1)).chain(group.iter().map(|i| (*i, &runs[*i].1))).collect();
        table(&mut out, style, &columns);
    }
    notes(&mut out, runs, style);
    out
}

fn number(i: usize) -> String {
    format!("[{}]", i + 1)
}

fn table(out: &mut String, style: Style, columns: &[(usize, &Document)]) {
    let heads: Vec<String> = columns.iter().map(|(i, _)| format!("{:>COLUMN$}", number(*i))).collect();
    line(out, &style.bold(&format!("{:<NAME$} {}", "", heads.join(" "))));
    for (name, value, shown, has_ratio) in ROWS {
        let values: Vec<Option<f64>> = columns.iter().map(|(_, d)| value(d)).collect();
        // Nothing failed anywhere: no row.
        let counts = !has_ratio && !["sent", "answered", "measured"].contains(&name);
        if values.iter().all(Option::is_none) || (counts && values.iter().all(|v| *v == Some(0.0))) {
            continue;
        }
        let cell = |(n, value): (usize, &Option<f64>)| {
            let Some(value) = value else { return format!("{:>COLUMN$}", "-") };
            // A request without a good response stands there: of bounds there is no ratio.
            let is_bound = |n: usize| {
                let row = name.replace('.', "");
                latency(columns[n].1).is_some_and(|l| l.at_least.contains(&row))
            };
            if is_bound(n) {
                return format!("{:>COLUMN$}", format!(">= {}", shown(*value)));
            }
            let has_ratio = has_ratio && !is_bound(0);
            let first = values[0].filter(|first| *first > 0.0);
            let text = match first {
                Some(first) if n > 0 && has_ratio => {
                    format!("{} {:>5}x", shown(*value), units::three_digits(value / first))
                }
                _ => shown(*value),
            };
            format!("{text:>COLUMN$}")
        };
        let cells: Vec<String> = values.iter().enumerate().map(cell).collect();
        line(out, &format!("{name:<NAME$} {}", cells.join(" ")));
    }
}

/// What each run warned of, and the checks that failed.
fn notes(out: &mut String, runs: &[(String, Document)], style: Style) {
    if runs.len() > 1 {
        line(out, "");
        let text = "Single runs at different times: a ratio may be the machine's. linerate compare runs both sides in turns.";
        line(out, &style.dim(&style.wrapped("", text)));
    }
    if runs.iter().any(|(_, document)| document.bad.total() > 0) {
        line(out, &style.dim(&style.wrapped("", "requests/s and CPU/request are those of good responses.")));
    }
    for (i, (_, document)) in runs.iter().enumerate() {
        let mut all: Vec<(String, String)> = Vec::new();
        if let Some(why) = &document.unreachable {
            all.push((style.bad("FAILED"), format!("it could not be reached: {why}")));
        }
        let client = document.client.reason.as_ref().filter(|_| document.client.saturated);
        all.extend(client.map(|why| (style.warn("note  "), format!("the client was the limit: {why}"))));
        all.extend(document.warnings.iter().map(|w| (style.warn("note  "), w.clone())));
        all.extend(document.checks.iter().map(|check| {
            let mark = if check.pass { style.good("ok    ") } else { style.bad("FAILED") };
            let metric = Check::parse(&check.expr).ok().map(|known| known.metric);
            let shown = |v: f64| metric.map_or_else(|| format!("{v}"), |metric| metric.shown(v));
            let least = if check.at_least { ">= " } else { "" };
            let value = check.value.map_or("not measured".to_owned(), |v| format!("{least}{}", shown(v)));
            (mark, format!("{}: {value}", check.expr))
        }));
        for (mark, text) in all {
            let wrapped = style.wrapped("            ", &text);
            line(out, &format!("{:<4} {mark} {}", number(i), wrapped.trim_start()));
        }
    }
}

/// A diagnosis again: the verdict, what it rests on, and what to change.
pub fn diagnosis(document: &Value, style: Style) -> String {
    let mut out = String::new();
    let text = |value: &Value, key: &str| value[key].as_str().map(clean).unwrap_or_default();
    let verdict = text(document, "verdict");
    let colour = match verdict.as_str() {
        "healthy" => style.good(&verdict),
        "caused" => style.bad(&verdict),
        _ => style.warn(&verdict),
    };
    let of = [text(document, "target"), text(document, "source")].join("");
    line(&mut out, &format!("{colour}  {of}"));
    for (name, key) in
        [("total", "total_ms"), ("connect", "connect_ms"), ("wait", "wait_ms"), ("receive", "receive_ms")]
    {
        if let Some(ms) = document["call"][key].as_f64() {
            line(&mut out, &format!("  {name:<8} {}", units::time_us(ms * 1e3, style.unicode)));
        }
    }
    let list = |key: &str| document[key].as_array().cloned().unwrap_or_default();
    for cause in list("causes") {
        let cost = cause["cost_ms"]
            .as_f64()
            .map_or(String::new(), |ms| format!(": {} a call", units::time_us(ms * 1e3, style.unicode)));
        line(&mut out, "");
        line(&mut out, &format!("{}{cost}", style.bold(&text(&cause, "id"))));
        line(&mut out, &style.wrapped("  ", &text(&cause, "title")));
        for evidence in cause["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            line(&mut out, &style.wrapped("    ", &format!("seen: {evidence}")));
        }
        for fix in cause["fixes"].as_array().into_iter().flatten() {
            line(
                &mut out,
                &style
                    .wrapped("    ", &format!("change, {}: {}", text(fix, "software"), text(fix, "change"))),
            );
        }
        line(&mut out, &style.wrapped("    ", &format!("verify: {}", text(&cause, "verify"))));
    }
    let ruled_out: Vec<String> = list("ruled_out").iter().map(|r| text(r, "id")).collect();
    if !ruled_out.is_empty() {
        line(&mut out, "");
        line(&mut out, &style.wrapped("", &format!("Ruled out: {}", ruled_out.join(", "))));
    }
    for limit in list("limits").iter().filter_map(Value::as_str) {
        line(&mut out, &style.wrapped("", &format!("note: {limit}")));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}
