//! A run of `load` as one page of HTML that needs nothing else.

pub(crate) mod chart;
mod concurrency;
mod courses;
mod fine;
mod knee;
mod points;
mod segments;
mod spread;
mod steps;

use std::fmt::Write as _;

use base64::Engine as _;
use linerate_load::histogram::Histogram;

use crate::formats::found;
use crate::markup::escape;
use crate::passive::page::{checked, footer, list, page};
use crate::schema::line::ShapedLine;
use crate::schema::outcome::{Document, Latency, Named, Sample, Server};
use crate::style::{Style, clean};
use crate::{limits, units};
use chart::{ChartLine, Scale};
pub use concurrency::document as concurrency;
use points::Point;
use steps::CurveScale;

/// Values that are shown as whole numbers.
const WHOLE: Scale = Scale::Linear(1.0);

/// Moves a line through the pictures by pointer and by keyboard, and reads out its row of the table.
const CURSOR: &str = include_str!("cursor.js");

/// The page.
pub fn to_string(document: &Document) -> String {
    let points = points::of(document);
    let mut out = String::new();
    head(&mut out, document);
    list(&mut out, "Before you believe it", document.warnings.iter().map(|w| escape(w)));
    checks(&mut out, document);
    figures(&mut out, document);
    if let Some(find) = &document.find {
        knee::section(&mut out, find);
    }
    over_time(&mut out, document, &points);
    fine::section(&mut out, document, &points);
    latencies(&mut out, document, &points);
    segments::section(&mut out, document);
    trouble(&mut out, document);
    by_name(&mut out, document);
    courses::section(&mut out, document, &points);
    by_flow(&mut out, document);
    samples(&mut out, &document.samples);
    if let Some(machines) = &document.machines {
        crate::machines::page(&mut out, machines);
    }
    footer(&mut out, &document.environment, document.started_at.as_deref());
    let _ = write!(out, "<script>{CURSOR}</script>");
    page(&title(document), &out)
}

/// The page's name in a list of tabs: the verdict, the errors, and the target.
fn title(document: &Document) -> String {
    let target = clean(&document.target);
    match verdict(document) {
        Some((word, errors)) => format!("{word}, {errors}: {target} - linerate load"),
        None => format!("{target} - linerate load"),
    }
}

/// Whether the run was fine, and its errors; `None` where a search or an earlier version has none.
fn verdict(document: &Document) -> Option<(&'static str, String)> {
    let verdict = document.verdict.as_ref().filter(|_| document.find.is_none())?;
    let word = match verdict.errors_share {
        _ if !verdict.pass || document.complete == Some(false) => "FAILED",
        _ if document.interrupted => "interrupted",
        0.0 => "OK",
        _ => "no check failed",
    };
    let errors = match verdict.errors_share {
        0.0 => "no errors".to_owned(),
        share => format!("{} errors", units::percent(share)),
    };
    Some((word, errors))
}

/// Microseconds with their unit.
fn us(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |v| units::time_us(v, true))
}

/// A percentile with its unit, and a sign where the true one is at least that.
fn row(latency: &Latency, id: &str, value: Option<f64>) -> String {
    let least = if latency.at_least.iter().any(|p| p == id) { "≥ " } else { "" };
    format!("{least}{}", us(value))
}

fn main_latency(document: &Document) -> Option<&Latency> {
    document.latency_us.from_due.as_ref().or(document.latency_us.from_sent.as_ref())
}

fn head(out: &mut String, document: &Document) {
    let r = &document.requests;
    let failed = document.checks.iter().any(|c| !c.pass)
        || document.unreachable.is_some()
        || document.aborted.is_some()
        || document.complete == Some(false)
        || (r.answered == 0 && r.sent > 0);
    let word = verdict(document);
    let failed =
        document.verdict.as_ref().map_or(failed, |verdict| !verdict.pass || document.complete == Some(false));
    let class = if failed { "bad" } else { "" };
    let mut title = format!("{} requests/s", units::rate(document.rate_rps));
    if let Some(latency) = main_latency(document).filter(|l| l.count > 0) {
        let (p50, p99) = (row(latency, "p50", latency.p50), row(latency, "p99", latency.p99));
        let _ = write!(title, ", median {p50}, p99 {p99}");
    }
    if let Some((find, highest)) = document.find.as_ref().and_then(|f| Some((f, crate::find::highest(f)?))) {
        title = format!("{highest} with {}", clean(&find.expr));
    }
    if document.unreachable.is_some() {
        title = "the target could not be reached".to_owned();
    }
    if let Some((word, errors)) = word {
        title = format!("{word}, {errors}: {title}");
    }
    let _ = write!(out, "<h1 class=\"{class}\">{}</h1>", escape(&title));
    let _ = write!(
        out,
        "<p class=\"source\"><code>{}</code>: {}</p>",
        escape(&requested(document)),
        escape(&method(document))
    );
    for reason in document.verdict.iter().flat_map(|verdict| &verdict.reasons) {
        let _ = write!(out, "<p class=\"lead\"><span class=\"bad\">FAILED:</span> {}</p>", escape(reason));
    }
    let has_reasons = document.verdict.is_some();
    let not_complete = document.machines.as_ref().and_then(crate::machines::not_complete);
    let notes = [
        (
            "NOT complete",
            not_complete.as_deref().map(|why| why.trim_start_matches("the run is NOT complete: ")),
        ),
        ("Not reached", document.unreachable.as_deref().filter(|_| !has_reasons)),
        ("Ended early", document.aborted.as_deref().filter(|_| !has_reasons)),
        ("Interrupted", document.interrupted.then_some("these are the figures until then")),
        ("The client was the limit", document.client.reason.as_deref().filter(|_| document.client.saturated)),
    ];
    for (name, text) in notes.iter().filter_map(|(name, text)| text.map(|text| (name, text))) {
        let _ = write!(out, "<p class=\"lead\"><span class=\"bad\">{name}:</span> {}</p>", escape(text));
    }
}

/// What was sent, and where to.
fn requested(document: &Document) -> String {
    let target = &document.target;
    match document.plan.templates.as_slice() {
        [] => target.clone(),
        [raw] if raw.method.is_empty() => format!("{} to {target}", raw.name),
        [one] => format!("{} {target}", one.method),
        several => format!("{} different requests to {target}", several.len()),
    }
}

/// One sentence about the load: connections, pipelining, rate and duration.
fn method(document: &Document) -> String {
    let plan = &document.plan;
    let mut text = units::several(u64::from(plan.connections), "connection", "connections");
    if plan.pipeline > 1 {
        let _ = write!(text, " with {} requests in flight on each", plan.pipeline);
    }
    if let Some(n) = plan.per_connection {
        let _ = write!(text, ", closed after {}", units::several(u64::from(n), "request", "requests"));
    }
    match (plan.loop_kind.as_str(), plan.rate.as_deref()) {
        ("open", Some([one])) if one.from_rps == one.to_rps => {
            let _ = write!(text, ", {} requests/s due", units::rate(one.to_rps));
        }
        ("open", _) => text += ", a rate in steps",
        ("trace", _) => text += ", a recorded log",
        _ => text += ", as fast as responses came",
    }
    let _ = write!(text, ", for {} s", units::short_seconds(document.duration_s));
    if plan.warm_up_s > 0.0 {
        let _ = write!(text, " after a warm-up of {} s", units::short_seconds(plan.warm_up_s));
    }
    if !document.protocol.is_empty() {
        let _ = write!(text, "; {}", document.protocol);
    }
    text
}

fn checks(out: &mut String, document: &Document) {
    let items = document.checks.iter().map(|check| checked(check.pass, &check.expr, &found(check, true)));
    list(out, "Checks", items);
}

/// The figures of the whole run, as tiles.
fn figures(out: &mut String, document: &Document) {
    let r = &document.requests;
    let bad = document.bad.total();
    let mut tiles = vec![
        ("answered", units::count(r.answered)),
        ("failed", units::count(r.failed)),
        ("unknown", units::count(r.unknown)),
        ("bad", units::count(bad)),
    ];
    if document.plan.loop_kind != "closed" {
        tiles.push(("never sent", units::count(r.unsent)));
    }
    let a_second = |bytes: u64| format!("{}/s", units::bytes(bytes as f64 / document.duration_s.max(1e-9)));
    tiles.push(("received", a_second(document.bytes.received)));
    tiles.push(("sent", a_second(document.bytes.sent)));
    tiles.push(("client CPU/request", us(document.client.cpu_us_per_request)));
    tiles.push(("retransmitted", units::count(document.tcp.retransmits)));
    if let Some(server) = &document.server {
        tiles.push(("server CPU/request", us(server.cpu_us_per_request)));
        tiles.push(("server memory", server.rss_mb.map_or("-".to_owned(), |mb| units::bytes(mb * 1e6))));
    }
    out.push_str("<section><h2>The run</h2><dl class=\"tiles\">");
    for (name, value) in tiles {
        let class = if ["failed", "unknown", "bad", "never sent"].contains(&name) && value != "0" {
            "bad"
        } else {
            ""
        };
        let _ = write!(out, "<div><dt>{name}</dt><dd class=\"{class}\">{}</dd></div>", escape(&value));
    }
    out.push_str("</dl>");
    if let Some(server) = &document.server {
        let _ = write!(out, "<p>{}</p>", escape(&of_server(server)));
        if let Some(found) = &server.concurrency {
            out.push_str(&concurrency::html(found));
        }
    }
    out.push_str("</section>");
}

/// The server's process, for a terminal.
pub fn server(server: &Server, style: Style) -> String {
    let line = |name: &str, value: &str| format!("  {name:<18}{value}\n");
    let mut out = format!("\n{}\n", style.bold(&format!("server    {}", named(server))));
    let share = server
        .useful_share
        .map_or(String::new(), |s| format!(", {} of it in its own code", units::percent(s)));
    if let Some(us) = server.cpu_us_per_request {
        out += &line("CPU/request", &format!("{}{share}", units::time_us(us, style.unicode)));
    }
    if let Some(switches) = server.context_switches {
        out += &line("context switches", &units::count(switches));
    }
    if let Some(seconds) = server.run_queue_wait_s {
        out += &line("waited for a core", &format!("{} s", units::three_digits(seconds)));
    }
    if let Some(mb) = server.rss_mb {
        out += &line("memory", &units::bytes(mb * 1e6));
    }
    if let Some(found) = &server.concurrency {
        out += &concurrency::text(found, style);
    }
    out
}

/// The shaped line for the terminal, as a section of the summary: what it was, and what it did.
pub fn shaped_line(line: &ShapedLine, style: Style) -> String {
    let mut out = format!("\n{}\n", style.bold(&format!("line      {}", clean(&line.text))));
    for (name, frames) in [("to the server", line.up), ("from the server", line.down)] {
        let dropped = [("lost", frames.lost), ("dropped from its full queue", frames.queue_full)];
        let dropped: String = dropped
            .iter()
            .filter(|d| d.1 > 0)
            .map(|(how, n)| format!(", {} {how}", units::count(*n)))
            .collect();
        out += &format!("  {name:<18}{} packets{dropped}\n", units::count(frames.sent));
    }
    out
}

/// The process with its number, or the page that it was read from.
fn named(server: &Server) -> String {
    let name = clean(&server.name);
    match server.pid {
        Some(pid) => format!("{name}, PID {pid}"),
        None => name,
    }
}

/// The server in a sentence.
fn of_server(server: &Server) -> String {
    let useful = server.useful_share.map_or(String::new(), |share| {
        format!(" ({} of it in its own code, the rest in the kernel)", units::percent(share))
    });
    let cpu = server.cpu_s.map(|s| format!("used {} s of CPU time{useful}", units::three_digits(s)));
    let waited = server.run_queue_wait_s.map(|s| format!("waited {} s for a core", units::three_digits(s)));
    let switched = server.context_switches.map(|n| format!("switched context {} times", units::count(n)));
    let memory = server.rss_mb.map(|mb| format!("held at most {} of memory", units::bytes(mb * 1e6)));
    let parts: Vec<String> = [cpu, waited, switched, memory].into_iter().flatten().collect();
    let (last, before) = parts.split_last().map_or((String::new(), String::new()), |(last, before)| {
        (last.clone(), if before.is_empty() { String::new() } else { before.join(", ") + " and " })
    });
    format!("The server ({}) {before}{last}.", named(server))
}

fn figure(out: &mut String, caption: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        let _ = write!(out, "<figure><figcaption>{caption}</figcaption>{svg}</figure>");
    }
}

fn over_time(out: &mut String, document: &Document, points: &[Point]) {
    if points.len() < 2 {
        return;
    }
    let times: Vec<f64> = points.iter().map(|p| p.t_s).collect();
    let line = |name, class, of: &dyn Fn(&Point) -> Option<f64>| ChartLine {
        name,
        class,
        values: points.iter().map(of).collect(),
    };
    let silent = points::silences(document, points);
    let draw = |title, lines: &[ChartLine<'_>], scale, shown: &dyn Fn(f64) -> String| {
        chart::over_time(title, (&times, &silent), lines, scale, shown)
    };
    out.push_str(
        "<section><h2>Over time <small class=\"keys\">arrow keys move through the seconds</small></h2>\
         <p id=\"row\" class=\"source\" aria-live=\"polite\"></p><div class=\"diagrams timed\" tabindex=\"0\" role=\"group\" aria-label=\"Pictures over time\">",
    );
    // What the small steps draw of all seconds is not drawn again.
    let seconds = !fine::covers(document, times.last().copied());
    let rate = [line("rate", "b", &|p| Some(p.rate_rps).filter(|_| seconds))];
    let title = "Responses per second";
    figure(out, title, draw(title, &rate, Scale::Linear(0.01), &units::rate));
    let latency = [line("p99", "a", &|p| p.p99_us), line("median", "b", &|p| p.p50_us)];
    figure(out, "Latency (logarithmic)", draw("Latency", &latency, Scale::Log, &|v| units::time_us(v, true)));
    let wrong = went_wrong(points);
    let title = "Failed, unknown and bad requests";
    figure(out, title, draw(title, &wrong, WHOLE, &|v| units::count(v as u64)));
    let bytes = [
        line("received", "b", &|p| p.received.filter(|_| seconds)),
        line("sent", "a", &|p| p.sent.filter(|_| seconds)),
    ];
    figure(out, "Bytes per second", draw("Bytes per second", &bytes, WHOLE, &units::bytes));
    let both = document.server.is_some();
    let mut cpu = vec![line("client", "b", &|p| p.client_busy.filter(|_| seconds || both))];
    if both {
        cpu.push(line("server", "a", &|p| p.server_busy));
    }
    let title = if both { "Busy cores" } else { "Busy cores of the client" };
    figure(out, title, draw(title, &cpu, Scale::Linear(0.01), &|v| format!("{v:.2}")));
    let memory = [line("memory", "a", &|p| p.server_rss)];
    figure(out, "Memory of the server", draw("Memory of the server", &memory, WHOLE, &units::bytes));
    let counted = points.iter().any(|p| p.retransmits.unwrap_or(0) + p.out_of_order.unwrap_or(0) > 0);
    if counted {
        let tcp = [
            line("retransmitted", "bad", &|p| p.retransmits.map(|n| n as f64)),
            line("out of order", "b", &|p| p.out_of_order.map(|n| n as f64)),
        ];
        figure(out, "TCP segments", draw("TCP segments", &tcp, WHOLE, &|v| units::count(v as u64)));
    }
    for (title, lines) in captured(points) {
        figure(out, title, draw(title, &lines, WHOLE, &|v| units::count(v as u64)));
    }
    let waited = points.iter().any(|p| p.window_closed.is_some_and(|ms| ms > 0.0));
    if waited {
        let window = [line("window", "a", &|p| p.window_closed)];
        figure(
            out,
            "Time that the server's window held data back",
            draw("Window", &window, WHOLE, &|v| format!("{v:.0} ms")),
        );
    }
    out.push_str("</div>");
    let no_segments = !counted && document.tcp.looked_at > 0;
    not_drawn(out, wrong.is_empty(), no_segments);
    table(out, points);
    out.push_str("</section>");
}

/// Events of segments that were counted one by one: the pictures that would not be empty.
fn captured(points: &[Point]) -> Vec<(&'static str, [ChartLine<'static>; 2])> {
    let line = |name, class, of: &dyn Fn(&Point) -> Option<u64>| ChartLine {
        name,
        class,
        values: points.iter().map(|p| of(p).map(|n| n as f64)).collect(),
    };
    let again = [
        line("retransmitted", "bad", &|p| p.captured_again),
        line("duplicate ACKs", "a", &|p| p.duplicate_acks),
    ];
    let windows = [line("closed", "bad", &|p| p.zero_windows), line("full", "b", &|p| p.windows_full)];
    let mut all = vec![
        ("Segments retransmitted, and duplicate ACKs", again),
        ("Segments with a closed or full window", windows),
    ];
    all.retain(|(_, lines)| lines.iter().any(|line| line.values.iter().flatten().any(|n| *n > 0.0)));
    all
}

/// Pictures that are missing since they would be empty.
fn not_drawn(out: &mut String, no_errors: bool, no_segments: bool) {
    let parts = [
        (no_errors, "no request failed, and no response was bad"),
        (no_segments, "the sampled connections retransmitted nothing and received nothing out of order"),
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text).collect();
    if !parts.is_empty() {
        let _ = write!(out, "<p class=\"source\">Not drawn: {}.</p>", parts.join("; "));
    }
}

/// What went wrong over time, a line for each kind that there was.
fn went_wrong(points: &[Point]) -> Vec<ChartLine<'static>> {
    let line = |name, class, of: fn(&Point) -> u64| ChartLine {
        name,
        class,
        values: points.iter().map(|p| Some(of(p) as f64)).collect(),
    };
    let all = [
        line("failed", "bad", |p| p.failed),
        line("unknown", "b", |p| p.unknown),
        line("bad responses", "a", |p| p.bad),
    ];
    all.into_iter().filter(|line| line.values.iter().any(|v| *v > Some(0.0))).collect()
}

fn table(out: &mut String, points: &[Point]) {
    out.push_str(
        "<details><summary>All seconds as a table</summary><div class=\"wide\"><table id=\"series\"><thead><tr><th>until</th>\
         <th>responses/s</th><th>median</th><th>p99</th><th>failed</th><th>unknown</th><th>bad</th><th>received/s</th><th>sent/s</th><th>client cores</th>",
    );
    let server = points.iter().any(|p| p.server_busy.is_some());
    if server {
        out.push_str("<th>server cores</th>");
    }
    out.push_str("<th>retransmitted</th></tr></thead><tbody>");
    let or = |value: Option<f64>, shown: &dyn Fn(f64) -> String| value.map_or("-".to_owned(), shown);
    for p in points {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{:.0} s</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            p.t_s,
            units::rate(p.rate_rps),
            p.shown("p50", p.p50_us),
            p.shown("p99", p.p99_us),
            units::count(p.failed),
            units::count(p.unknown),
            units::count(p.bad),
            or(p.received, &units::bytes),
            or(p.sent, &units::bytes),
            or(p.client_busy, &|v| format!("{v:.2}")),
        );
        if server {
            let _ = write!(out, "<td>{}</td>", or(p.server_busy, &|v| format!("{v:.2}")));
        }
        let _ = write!(out, "<td>{}</td></tr>", p.retransmits.map_or("-".to_owned(), units::count));
    }
    out.push_str("</tbody></table></div></details>");
}

fn latencies(out: &mut String, document: &Document, points: &[Point]) {
    let l = &document.latency_us;
    let has_bounds = main_latency(document).is_some_and(|main| !main.at_least.is_empty());
    let all = [
        ("from due", l.from_due.as_ref()),
        ("from sent", l.from_sent.as_ref()),
        ("good responses alone", l.answered.as_ref().filter(|_| has_bounds)),
        ("to the first byte", l.first_byte.as_ref()),
        ("connect", l.connect.as_ref()),
        ("TLS handshake", l.tls.as_ref()),
    ];
    let all: Vec<(&str, &Latency)> =
        all.into_iter().filter_map(|(name, l)| Some((name, l.filter(|l| l.count > 0)?))).collect();
    let Some((_, main)) = all.first() else { return };
    out.push_str("<section><h2>Latency</h2><div class=\"diagrams\">");
    if points.len() > 1 {
        figure(
            out,
            "Over time: the stronger the color, the more of a moment's responses",
            spread::heat(points),
        );
    }
    let marks =
        [("p50", main.p50), ("p90", main.p90), ("p99", main.p99), ("p99.9", main.p999), ("max", main.max)];
    // A bound has no place among good responses.
    let is_bound = |name: &str| main.at_least.iter().any(|row| *row == name.replace('.', ""));
    let marks: Vec<(&str, f64)> = marks
        .into_iter()
        .filter(|(name, _)| !is_bound(name))
        .filter_map(|(name, us)| Some((name, us?)))
        .collect();
    let recorded = recorded(document);
    let caption = if has_bounds {
        "All good responses (both axes logarithmic)"
    } else {
        "All responses (both axes logarithmic)"
    };
    figure(out, caption, spread::histogram(&recorded, &marks));
    out.push_str("</div><div class=\"wide\"><table><thead><tr><th class=\"l\">percentile</th>");
    for (name, _) in &all {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (id, name, of) in PERCENTILES {
        let _ = write!(out, "<tr><th class=\"l\" scope=\"row\">{name}</th>");
        for (_, latency) in &all {
            let _ = write!(out, "<td>{}</td>", row(latency, id, of(latency)));
        }
        out.push_str("</tr>");
    }
    out.push_str("<tr><th class=\"l\" scope=\"row\">samples</th>");
    for (_, latency) in &all {
        let _ = write!(out, "<td>{}</td>", units::count(latency.count));
    }
    out.push_str("</tr></tbody></table></div></section>");
}

/// A percentile: its name in documents, its name for people, its value.
type Percentile = (&'static str, &'static str, fn(&Latency) -> Option<f64>);

const PERCENTILES: [Percentile; 9] = [
    ("min", "minimum", |l| l.min),
    ("mean", "mean", |l| l.mean),
    ("p50", "50 (median)", |l| l.p50),
    ("p90", "90", |l| l.p90),
    ("p95", "95", |l| l.p95),
    ("p99", "99", |l| l.p99),
    ("p999", "99.9", |l| l.p999),
    ("p9999", "99.99", |l| l.p9999),
    ("max", "maximum", |l| l.max),
];

/// The histogram of the document, microseconds; nothing where it has none.
fn recorded(document: &Document) -> Vec<(u64, u64)> {
    let bytes = document
        .histogram
        .as_ref()
        .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    let read = bytes.and_then(|bytes| Histogram::from_bytes(&bytes).ok());
    read.map(|histogram| histogram.iter_recorded().collect()).unwrap_or_default()
}

/// Statuses and failures.
fn trouble(out: &mut String, document: &Document) {
    let failures = document.failures.iter().filter(|(_, n)| **n > 0);
    let rows: Vec<(String, u64, String)> = document
        .status
        .iter()
        .map(|(status, n)| (format!("status {status}"), *n, String::new()))
        .chain(failures.map(|(why, n)| {
            let detail = document.failure_details.get(why).cloned().unwrap_or_default();
            (why.replace('_', " "), *n, detail)
        }))
        .collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("<section><h2>Responses and failures</h2><div class=\"wide\"><table><thead><tr><th class=\"l\">kind</th><th>requests</th><th class=\"l\">first seen</th></tr></thead><tbody>");
    for (name, n, detail) in rows.iter().take(limits::PAGE_ROWS) {
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}</th><td>{}</td><td class=\"l\">{}</td></tr>",
            escape(name),
            units::count(*n),
            escape(detail)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn by_name(out: &mut String, document: &Document) {
    if document.requests_by_name.is_empty() {
        return;
    }
    out.push_str("<section><h2>By request</h2><div class=\"wide\"><table><thead><tr><th class=\"l\">request</th><th>answered</th><th>failed</th><th>bad</th><th>median</th><th>p99</th><th>max</th>");
    let scale = CurveScale::of(document.requests_by_name.values()).filter(|_| !document.flows.is_empty());
    let curve_head = if scale.is_some() { "<th class=\"l\">p50 to p99.9</th>" } else { "" };
    let _ = write!(out, "{curve_head}</tr></thead><tbody>");
    let mut all: Vec<(&String, &Named)> = document.requests_by_name.iter().collect();
    all.sort_by_key(|(_, named)| std::cmp::Reverse(named.requests.sent));
    for (name, named) in all.into_iter().take(limits::PAGE_ROWS) {
        let bad = named.bad.total();
        let of = |id: &str, p: fn(&Latency) -> Option<f64>| {
            named.latency_us.as_ref().map_or("-".to_owned(), |latency| row(latency, id, p(latency)))
        };
        let curve = scale.zip(named.latency_us.as_ref());
        let curve = curve.map(|(scale, l)| format!("<td class=\"l\">{}</td>", scale.curve(l)));
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            escape(name),
            units::count(named.requests.answered),
            units::count(named.requests.failed + named.requests.unknown),
            units::count(bad),
            of("p50", |l| l.p50),
            of("p99", |l| l.p99),
            of("max", |l| l.max),
            curve.unwrap_or_default()
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn by_flow(out: &mut String, document: &Document) {
    if document.flows.is_empty() {
        return;
    }
    out.push_str("<section><h2>By flow</h2><div class=\"wide\"><table><thead><tr><th class=\"l\">flow</th><th>done</th><th>failed</th><th>stopped</th><th>median</th><th>p99</th><th>max</th><th class=\"l\">failed at</th></tr></thead><tbody>");
    for (name, flow) in document.flows.iter().take(limits::PAGE_ROWS) {
        let of = |id: &str, p: fn(&Latency) -> Option<f64>| {
            flow.duration_us.as_ref().map_or("-".to_owned(), |latency| row(latency, id, p(latency)))
        };
        let causes: Vec<String> =
            flow.causes.iter().map(|(cause, n)| format!("{} x {cause}", units::count(*n))).collect();
        let _ = write!(
            out,
            "<tr><th class=\"l\" scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td></tr>",
            escape(name),
            units::count(flow.done),
            units::count(flow.failed),
            units::count(flow.stopped),
            of("p50", |l| l.p50),
            of("p99", |l| l.p99),
            of("max", |l| l.max),
            escape(&causes.join("; "))
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn samples(out: &mut String, samples: &[Sample]) {
    if samples.is_empty() {
        return;
    }
    out.push_str("<section><h2>Slowest and bad requests</h2><div class=\"wide\"><table><thead><tr><th>at</th><th>latency</th><th>status</th><th class=\"l\">why</th><th class=\"l\">request</th></tr></thead><tbody>");
    for s in samples.iter().take(limits::PAGE_SAMPLES) {
        let _ = write!(
            out,
            "<tr><td>{:.3} s</td><td>{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            s.due_us / 1e6,
            us(s.latency_us),
            s.status.map_or("-".to_owned(), |s| s.to_string()),
            escape(&s.why),
            escape(&s.request)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

#[cfg(test)]
mod tests;
