//! Calls that are watched without end: a screen like that of `linerate top` ([`draw`]), and a line of
//! JSON for each window ([`to_json`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use linerate_explain::passive::live::{LiveServer, LiveWindow, WaitingCalls};
use linerate_explain::passive::words::{self, PassiveVerdict};
use linerate_explain::passive::{ClientProcess, Observation};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::{Line, Span};

use super::json::{ms as rounded_ms, seen_cause, sure};
use super::ms;
use crate::schema::live as schema;
use crate::style::Style;
use crate::top::{labelled, render};
use crate::units;

/// A window and what stands beside it.
#[derive(Clone, Copy, Debug)]
pub struct LiveView<'a> {
    /// The window that ended last.
    pub window: &'a LiveWindow,
    /// What was seen since the beginning.
    pub total: &'a LiveWindow,
    /// How long the window was, seconds.
    pub window_s: f64,
    /// What watching cost in it.
    pub own_cpu: schema::LiveCpu,
    /// Names of processes.
    pub names: &'a BTreeMap<u32, String>,
    /// Processes that have the server's ends of connections.
    pub serving: &'a BTreeMap<SocketAddr, Vec<u32>>,
}

/// What is known between two windows.
#[derive(Clone, Copy, Debug)]
pub struct LiveProgress {
    /// Time since watching began, seconds.
    pub watched_s: f64,
    /// Time until the window ends, seconds.
    pub next_s: f64,
    /// Packets since the beginning.
    pub packets: u64,
    /// Requests since the beginning.
    pub requests: u64,
}

fn process(view: &LiveView<'_>, pid: u32) -> schema::LiveProcess {
    schema::LiveProcess { pid, name: view.names.get(&pid).cloned().unwrap_or_default() }
}

fn serving(view: &LiveView<'_>, server: Option<SocketAddr>) -> Vec<schema::LiveProcess> {
    let pids = server.and_then(|server| view.serving.get(&server));
    pids.into_iter().flatten().map(|pid| process(view, *pid)).collect()
}

/// The window as one line of JSON, with a line end. `at`: when it ended.
pub fn to_json(view: &LiveView<'_>, source: &str, watched_s: f64, at: SystemTime) -> String {
    let (window, total) = (view.window, view.total);
    let p = &window.seen.packets;
    let left_out = total.seen.left_out;
    let document = schema::LiveDocument {
        schema: schema::SCHEMA.to_owned(),
        source: source.to_owned(),
        at: crate::json::rfc3339(at),
        window_s: rounded(view.window_s),
        watched_s: rounded(watched_s),
        verdict: window.verdict().name().to_owned(),
        calls: calls(&window.seen, window.waiting, view.window_s),
        servers: window.servers.iter().map(|server| server_figures(view, server)).collect(),
        since_start: schema::LiveTotal {
            verdict: total.verdict().name().to_owned(),
            answered: total.seen.sums.answered,
            unanswered: total.seen.sums.unanswered,
            causes: total.findings.iter().map(seen_cause).collect(),
        },
        packets: schema::LivePackets { seen: p.all, dropped: p.dropped, share: p.share() },
        own_cpu: view.own_cpu,
        connections_open: window.open,
        left_out: schema::LiveLeftOut {
            servers: left_out.servers,
            clients: left_out.clients,
            costs: left_out.costs,
        },
        limits: words::limits(&window.seen),
    };
    // Serialisation fails only for maps whose keys are not strings, and the document has none.
    let mut text = serde_json::to_string(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// To the millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

fn calls(seen: &Observation, waiting: WaitingCalls, window_s: f64) -> schema::LiveCalls {
    let s = &seen.sums;
    let [p50, p90, p99, max] = s.total_quantiles_ns.map(|ns| ns / 1_000);
    schema::LiveCalls {
        answered: s.answered,
        unanswered: s.unanswered,
        rate_rps: rounded(rate(s.answered, window_s)),
        waiting: waiting.calls,
        longest_wait_ms: rounded_ms(waiting.oldest_ns),
        latency_us: (s.answered > 0).then_some(schema::LiveLatency { p50, p90, p99, max }),
    }
}

fn rate(calls: u64, window_s: f64) -> f64 {
    calls as f64 / window_s.max(1e-3)
}

fn server_figures(view: &LiveView<'_>, of: &LiveServer) -> schema::LiveServerFigures {
    schema::LiveServerFigures {
        server: of.server.map(|server| server.to_string()),
        processes: serving(view, of.server),
        verdict: of.verdict().name().to_owned(),
        calls: calls(&of.seen, of.waiting, view.window_s),
        causes: of.findings.iter().map(seen_cause).collect(),
        clients: of.clients.iter().map(|client| client_figures(view, client)).collect(),
    }
}

fn client_figures(view: &LiveView<'_>, client: &ClientProcess) -> schema::LiveClient {
    let loss = |(id, calls, cost_ns): (&str, u64, i64)| schema::LiveLoss {
        id: id.to_owned(),
        calls,
        cost_ms: rounded_ms(each(cost_ns, calls)),
    };
    schema::LiveClient {
        process: client.pid.map(|pid| process(view, pid)),
        address: client.client.to_string(),
        calls: client.calls,
        assumed: client.assumed,
        mean_ms: rounded_ms(each(client.total_ns, client.calls)),
        lost: losses(client).into_iter().map(loss).collect(),
    }
}

fn each(ns: i64, calls: u64) -> i64 {
    ns / i64::try_from(calls.max(1)).unwrap_or(i64::MAX)
}

/// What cost a client time, most costly first: the cause, in how many calls, and how much in all.
fn losses(client: &ClientProcess) -> Vec<(&'static str, u64, i64)> {
    let mut all: Vec<_> = client.troubles.iter().map(|t| (t.cause.id, t.calls, t.cost_ns)).collect();
    all.sort_by_key(|(id, _, cost_ns)| (std::cmp::Reverse(*cost_ns), *id));
    all
}

/// Shows the last window. `None`: none has ended yet.
pub fn draw(title: &str, now: LiveProgress, view: Option<&LiveView<'_>>, area: Rect, buf: &mut Buffer) {
    render(lines(title, now, view, area), area, buf);
}

fn lines(title: &str, now: LiveProgress, view: Option<&LiveView<'_>>, area: Rect) -> Vec<Line<'static>> {
    let dim = Look::new().add_modifier(Modifier::DIM);
    let bold = Look::new().add_modifier(Modifier::BOLD);
    let head = format!("  watched for {}  q ends it and reports", watched(now.watched_s));
    let mut all = vec![Line::from(vec![Span::styled(title.to_owned(), bold), Span::styled(head, dim)])];
    let Some(view) = view else {
        let so_far = format!(
            "{}, {} so far; the first verdict comes in {:.0} s",
            units::several(now.requests, "request", "requests"),
            units::several(now.packets, "packet", "packets"),
            now.next_s.max(0.0).ceil()
        );
        all.push(Line::raw(so_far));
        return all;
    };
    let window = view.window;
    all.extend([
        labelled(
            "calls",
            vec![Span::raw(calls_text(view))].into_iter().chain(wait(window.waiting)).collect(),
        ),
        labelled("packets", packets(view)),
        labelled("this tool", vec![Span::raw(own(view))]),
        labelled("since start", since_start(view.total)),
        Line::default(),
    ]);
    let heading = format!("last {} s", units::short_seconds(view.window_s));
    all.push(Line::styled(
        row(usize::from(area.width), [&heading, "calls/s", "median", "99 %", "slowest", "verdict"]),
        bold,
    ));
    if window.servers.is_empty() {
        all.push(Line::styled("no call", dim));
    }
    for server in &window.servers {
        all.extend(server_lines(view, server, usize::from(area.width)));
    }
    let limits = words::limits(&window.seen);
    if !limits.is_empty() {
        all.push(Line::default());
        let style = Style { width: area.width, ..Style::default() };
        let wrapped = limits.iter().map(|text| style.wrapped("", text)).collect::<Vec<_>>().join("\n");
        all.extend(wrapped.lines().map(|text| Line::styled(text.to_owned(), dim)));
    }
    all
}

fn watched(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

fn calls_text(view: &LiveView<'_>) -> String {
    let s = &view.window.seen.sums;
    let [median, _, p99, _] = s.total_quantiles_ns;
    let mut text = format!("{}/s", units::rate(rate(s.answered, view.window_s)));
    if s.answered > 0 {
        text += &format!(", median {}, 99 % within {}", ms(median, true), ms(p99, true));
    }
    if s.unanswered > 0 {
        text += &format!(", {} unanswered", units::count(s.unanswered));
    }
    text
}

/// Calls that wait; longer than a second is remarkable.
fn wait(waiting: WaitingCalls) -> Option<Span<'static>> {
    let text = format!(
        ", {} {}, the oldest for {}",
        units::count(waiting.calls),
        if waiting.calls == 1 { "waits" } else { "wait" },
        ms(waiting.oldest_ns, true)
    );
    let look = if waiting.oldest_ns > 1_000_000_000 { Look::new().fg(Color::Red) } else { Look::new() };
    (waiting.calls > 0).then(|| Span::styled(text, look))
}

fn packets(view: &LiveView<'_>) -> Vec<Span<'static>> {
    let p = &view.window.seen.packets;
    let text = format!("{}/s", units::rate(rate(p.all, view.window_s)));
    let share = match p.dropped {
        0 => Span::raw(", all of them seen"),
        dropped => Span::styled(
            format!(", {} of them seen: {} dropped", percent(p.share()), units::count(dropped)),
            Look::new().fg(Color::Red),
        ),
    };
    vec![Span::raw(text), share]
}

/// A share that is not all is not shown as all.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

fn own(view: &LiveView<'_>) -> String {
    let cpu = view.own_cpu;
    let of = |seconds: f64| units::percent(seconds / view.window_s.max(1e-3));
    format!(
        "{} of a core: {} user, {} kernel; {}",
        units::percent(cpu.core_share),
        of(cpu.user_s),
        of(cpu.kernel_s),
        units::several(view.window.open as u64, "connection", "connections")
    )
}

fn since_start(total: &LiveWindow) -> Vec<Span<'static>> {
    let verdict = total.verdict();
    let calls = units::several(total.seen.sums.answered, "call", "calls");
    let causes: Vec<&str> = total.findings.iter().map(|f| f.cause.id).collect();
    let mut text = format!(" in {calls}");
    if !causes.is_empty() {
        text += &format!(": {}", causes.join(", "));
    }
    vec![Span::styled(verdict.name(), colour(verdict)), Span::raw(text)]
}

fn colour(verdict: PassiveVerdict) -> Look {
    match verdict {
        PassiveVerdict::Healthy => Look::new().fg(Color::Green),
        PassiveVerdict::Caused => Look::new().fg(Color::Red),
        PassiveVerdict::Inconclusive => Look::new().fg(Color::Yellow),
    }
}

/// The cells of a server, under one another; the last one is as long as it wants.
fn row(width: usize, [server, rate, median, p99, slowest, verdict]: [&str; 6]) -> String {
    if width >= 90 {
        format!("{server:<30} {rate:>9} {median:>9} {p99:>9} {slowest:>9}  {verdict}")
    } else {
        format!("{server:<21} {rate:>8} {median:>8} {p99:>8} {slowest:>8}  {verdict}")
    }
}

fn server_lines(view: &LiveView<'_>, of: &LiveServer, width: usize) -> Vec<Line<'static>> {
    let name = of.server.map_or("other servers".to_owned(), |server| server.to_string());
    let s = &of.seen.sums;
    let [median, _, p99, most] = match s.answered {
        0 => [(); 4].map(|()| "-".to_owned()),
        _ => s.total_quantiles_ns.map(|ns| ms(ns, true)),
    };
    let verdict = of.verdict();
    let text = row(width, [&name, &units::rate(rate(s.answered, view.window_s)), &median, &p99, &most, ""]);
    let mut all = vec![Line::from(vec![Span::raw(text), Span::styled(verdict.name(), colour(verdict))])];
    for f in &of.findings {
        let seen = match f.of {
            0 => String::new(),
            of => format!(" in {} of {}", units::count(f.calls), units::several(of, "call", "calls")),
        };
        let text = format!("  {}: {}{seen} ({})", f.cause.id, ms(f.cost_ns, true), sure(f.confidence));
        all.push(Line::styled(text, colour(verdict)));
    }
    if let Some(waits) = wait(of.waiting) {
        let text = waits.content.trim_start_matches(", ").to_owned();
        all.push(Line::from(vec![Span::raw("  "), Span::styled(text, waits.style)]));
    }
    let served: Vec<String> =
        serving(view, of.server).iter().map(|p| format!("{} {}", p.name, p.pid)).collect();
    if !served.is_empty() {
        all.push(Line::raw(format!("  served by {}", served.join(", "))));
    }
    all.extend(of.clients.iter().flat_map(|client| client_lines(view, client)));
    all
}

fn client_lines(view: &LiveView<'_>, client: &ClientProcess) -> Vec<Line<'static>> {
    let who = match client.pid {
        Some(pid) => {
            let process = process(view, pid);
            format!("{} {} at {}", process.name, process.pid, client.client)
        }
        None => format!("an unknown process at {}", client.client),
    };
    let mut text = format!(
        "  called by {who}: {}/s, {} on average",
        units::rate(rate(client.calls, view.window_s)),
        ms(each(client.total_ns, client.calls), true)
    );
    if client.assumed > 0 {
        text += &format!("; {} by its address", units::count(client.assumed));
    }
    let mut all = vec![Line::raw(text)];
    if let Some((id, calls, cost_ns)) = losses(client).first().filter(|(.., cost_ns)| *cost_ns > 0) {
        let lost = ms(each(*cost_ns, *calls), true);
        let calls = units::several(*calls, "call", "calls");
        all.push(Line::raw(format!("    {lost} each by {id} in {calls}")));
    }
    all
}

#[cfg(test)]
mod tests;
