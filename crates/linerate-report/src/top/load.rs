//! A running load generator.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_load::Snapshot;
use linerate_load::outcome::{Core, Failure};
use ratatui::style::{Color, Style as Look};
use ratatui::text::{Line, Span};
use serde::{Deserialize, Serialize};

use super::{Change, Loop, each, labelled};
use crate::live::{self, Scene};
use crate::units;

/// The state and progress of a run. Counts begin after the warm-up, and stay 0 until then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// The requests and their target, in words.
    pub title: String,
    /// How far it is.
    pub progress: String,
    /// Requests that left.
    pub sent: u64,
    /// Requests with a complete response.
    pub answered: u64,
    /// Requests that certainly got no response.
    pub failed: u64,
    /// Of unknown end.
    pub unknown: u64,
    /// Due and not sent.
    pub unsent: u64,
    /// Answered, but not as expected.
    pub bad: u64,
    /// In flight now.
    pub in_flight: u64,
    /// Failures by reason, those that happened.
    pub failures: BTreeMap<String, u64>,
    /// Median latency so far, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of latency so far, microseconds.
    pub p99_us: Option<f64>,
    /// Largest latency so far, microseconds.
    pub max_us: Option<f64>,
    /// Of `p50`, `p99` and `max` those at which a request without a good response stands.
    pub at_least: Vec<String>,
    /// Connections that could not be opened.
    pub connections_failed: u64,
    /// Connections that the server ended.
    pub closed_by_peer: u64,
    /// TCP events in words.
    pub tcp: String,
}

impl Load {
    /// Of a run that is shown by that scene.
    pub fn of(scene: &Scene, snapshot: &Snapshot) -> Load {
        let (r, latency) = (&snapshot.requests, snapshot.ranked());
        let known = !latency.is_empty() && !scene.throughput;
        let percentile = |percent| known.then(|| latency.percentile(percent).ns as f64 / 1e3);
        let rows = [("p50", 50.0), ("p99", 99.0), ("max", 100.0)];
        let bounds = rows.into_iter().filter(|(_, percent)| known && latency.percentile(*percent).at_least);
        let failures = Failure::ALL.map(|why| (why.name().to_owned(), snapshot.failures.count(why)));
        Load {
            title: scene.title.clone(),
            progress: scene.progress_words(snapshot),
            sent: r.sent,
            answered: r.answered,
            failed: r.failed,
            unknown: r.unknown,
            unsent: r.unsent,
            bad: snapshot.bad.total(),
            in_flight: snapshot.in_flight,
            failures: failures.into_iter().filter(|(_, n)| *n > 0).collect(),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            max_us: percentile(100.0),
            at_least: bounds.map(|(name, _)| name.to_owned()).collect(),
            connections_failed: snapshot.connections.failed,
            closed_by_peer: snapshot.connections.closed_by_peer,
            tcp: live::tcp_words(snapshot),
        }
    }
}

impl Loop {
    /// A core of a load generator; `cpu_ns`: of its thread.
    pub fn of_core(core: &Core, cpu_ns: u64) -> Loop {
        let [_, by_class @ ..] = core.by_class;
        Loop {
            requests: core.requests.sent,
            by_class,
            accepted: core.connections.opened,
            open: core.open,
            waiting: core.in_flight,
            received: core.bytes.received,
            sent: core.bytes.sent,
            cpu_ns,
            ..Loop::default()
        }
    }
}

pub(super) fn rows(load: &Load, change: &Change<'_>) -> Vec<Line<'static>> {
    let mut rows = vec![labelled("run", vec![Span::raw(load.progress.clone())])];
    let mut requests = vec![Span::raw(format!("{}/s", units::rate(change.rate(|l| l.requests))))];
    requests.extend(super::by_class(change));
    requests.push(Span::raw(format!("  {} in flight", units::count(load.in_flight))));
    rows.push(labelled("requests", requests));
    rows.push(labelled("failures", failures(load, change)));
    let time = |(name, us): (&str, Option<f64>)| {
        let least = if load.at_least.iter().any(|row| row == name) { "≥ " } else { "" };
        format!("{name} {}", us.map_or("-".to_owned(), |us| format!("{least}{}", units::time_us(us, true))))
    };
    let latency = [("p50", load.p50_us), ("p99", load.p99_us), ("max", load.max_us)].map(time);
    rows.push(labelled("latency", vec![Span::raw(latency.join("  "))]));
    let mut connections = format!(
        "{} open  {}/s opened",
        units::count(change.now(|l| l.open)),
        units::rate(change.rate(|l| l.accepted))
    );
    for (n, what) in [(load.connections_failed, "failed"), (load.closed_by_peer, "closed by the server")] {
        if n > 0 {
            connections += &format!("  {} {what}", units::count(n));
        }
    }
    rows.push(labelled("connections", vec![Span::raw(connections)]));
    rows.push(labelled("tcp", vec![Span::raw(load.tcp.clone())]));
    rows
}

fn failures(load: &Load, change: &Change<'_>) -> Vec<Span<'static>> {
    let before = change.before.load.as_ref();
    let named = load.failures.iter().map(|(name, n)| {
        (name.replace('_', " "), *n, before.and_then(|b| b.failures.get(name)).copied().unwrap_or(0))
    });
    let known = |of: fn(&Load) -> u64| (of(load), before.map_or(0, of));
    let others =
        [("bad", known(|l| l.bad)), ("unknown", known(|l| l.unknown)), ("unsent", known(|l| l.unsent))];
    let others = others.into_iter().map(|(name, (now, before))| (name.to_owned(), now, before));
    let parts: Vec<String> = named
        .chain(others)
        .filter(|(_, n, _)| *n > 0)
        .map(|(name, n, before)| {
            let lately = n.saturating_sub(before);
            let lately = if lately > 0 { format!(" (+{})", units::count(lately)) } else { String::new() };
            format!("{name} {}{lately}", units::count(n))
        })
        .collect();
    if parts.is_empty() {
        return vec![Span::styled("none", Look::new().fg(Color::Green))];
    }
    vec![Span::styled(parts.join("  "), Look::new().fg(Color::Red))]
}

/// Headings of the cores.
pub(super) const CORES: &str = "core  requests/s   in flight     open   opened/s      CPU";

pub(super) fn core_row(number: usize, before: &Loop, after: &Loop, elapsed: Duration) -> Line<'static> {
    let cpu = each(before.cpu_ns, after.cpu_ns, elapsed) / 1e9;
    Line::raw(format!(
        "{number:<4} {:>11} {:>11} {:>8} {:>10} {:>8}",
        units::rate(each(before.requests, after.requests, elapsed)),
        units::count(after.waiting),
        units::count(after.open),
        units::rate(each(before.accepted, after.accepted, elapsed)),
        if after.cpu_ns > 0 { units::percent(cpu) } else { "-".to_owned() }
    ))
}
