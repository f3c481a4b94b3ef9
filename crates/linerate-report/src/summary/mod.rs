//! The end of a run, for a terminal: the figure first, then what it rests on, then what to doubt.

mod failures;
mod latency;
mod page;
mod sections;

use linerate_load::outcome::Failure;
use linerate_load::plan::flow::FlowHost;
use linerate_load::plan::flow::{FlowPlan, UserPace};
use linerate_load::plan::units::shown_duration;
use linerate_load::plan::{Arrival, Pace, Rate, RateStep, Way};
use linerate_load::{Outcome, Plan};

pub use self::page::SummaryLength;
use self::page::{Mark, SummaryText};
use crate::style::Style;
use crate::{Report, doubts, figures, units, verdict};

/// The summary. What failed, what to doubt and the checks stand in it at any length.
pub fn to_string(report: &Report<'_>, length: SummaryLength, style: Style) -> String {
    let style = Style { width: style.width.min(crate::limits::WIDTH), ..style };
    let mut page = SummaryText { style, length, grouped: false, out: String::new() };
    let Report { plan, outcome, checks, .. } = *report;
    headline(&mut page, plan, outcome);
    if length == SummaryLength::Short {
        short(&mut page, report);
        return page.out;
    }
    if let Some(why) = &outcome.unreachable {
        page.blank();
        page.marked(Mark::Bad, &not_reached(plan, why));
        return page.out;
    }
    if plan.throughput {
        page.blank();
        page.line(&style.dim("No latencies: --throughput lets answers wait to be seen together."));
    } else {
        latency::write(&mut page, plan, outcome);
    }
    sections::answers(&mut page, outcome);
    sections::names(&mut page, outcome);
    sections::flows(&mut page, outcome);
    failures::write(&mut page, plan, outcome);
    sections::connections(&mut page, plan, outcome);
    sections::client(&mut page, plan, outcome);
    notes(&mut page, plan, outcome);
    sections::checks(&mut page, checks);
    page.out
}

fn short(page: &mut SummaryText, report: &Report<'_>) {
    let Report { plan, outcome, checks, .. } = *report;
    if let Some(why) = &outcome.unreachable {
        page.marked(Mark::Bad, &not_reached(plan, why));
        return;
    }
    if !plan.throughput && !outcome.latency.main().is_empty() {
        let percentile = |(name, percent): (&str, f64)| {
            let found = outcome.percentile(percent);
            format!("{name} {}", page.bound(found.ns as f64, found.at_least))
        };
        let parts = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("max", 100.0)].map(percentile);
        page.labelled("latency", &parts.join(", "));
    }
    let r = &outcome.requests;
    let parts = [
        (r.failed, "failed"),
        (r.unknown, "unknown"),
        (outcome.bad.total(), "bad"),
        (r.unsent, "unsent"),
        (r.unsolicited_responses, "unsolicited"),
    ];
    let wrong = parts.iter().filter(|(n, _)| *n > 0);
    let wrong: Vec<String> = wrong
        .map(|(n, what)| format!("{} {what}{}", units::count(*n), most_frequent(outcome, what)))
        .collect();
    if !wrong.is_empty() {
        page.marked(Mark::Bad, &wrong.join(", "));
    }
    sections::insecure(page, plan);
    sections::checks(page, checks);
}

fn not_reached(plan: &Plan, why: &str) -> String {
    let others = plan.flows.iter().flat_map(|flows| &flows.hosts);
    let is_other = |host: &&FlowHost| why.starts_with(&format!("{}: ", host.target.authority));
    if let Some(FlowHost { target, .. }) = others.into_iter().find(is_other) {
        return format!("{} could not be reached{}", target.authority, &why[target.authority.len()..]);
    }
    format!("{}{} could not be reached: {why}", plan.target.authority, plan.route.shown())
}

/// What is sent, and where to: `GET http://127.0.0.1:8080/`.
pub(crate) fn requested(plan: &Plan) -> String {
    let url = &plan.target.url;
    match plan.requests.as_slice() {
        [raw] if raw.is_raw() => format!("{} to {url}", crate::style::clean(&raw.name)),
        [one] => match only_host(plan) {
            Some(host) => format!("{} {}{}", one.method, host.target.url, one.path),
            None => format!("{} {url}", one.method),
        },
        several => format!("{} different requests to {url}{}", several.len(), other_hosts(plan)),
    }
}

/// The host of the only request, where that is not the plan's target.
fn only_host(plan: &Plan) -> Option<&FlowHost> {
    let flows = plan.flows.as_ref()?;
    flows.hosts.get(flows.hosts_by_request(1).first()?.checked_sub(1)?)
}

/// The hosts beside the target, as far as they fit into a line.
fn other_hosts(plan: &Plan) -> String {
    let hosts = plan.flows.as_ref().map(|flows| flows.hosts.as_slice()).unwrap_or_default();
    match hosts {
        [] => String::new(),
        [one] => format!(" and {}", one.target.url),
        several => format!(" and {} other hosts", several.len()),
    }
}

fn headline(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let style = page.style;
    let requests = format!("{}{}", requested(plan), plan.route.shown());
    page.line(&style.bold(&requests));
    page.line(&style.wrapped("", &done(plan, outcome)));
    if outcome.interrupted {
        page.line(&style.warn("Interrupted: these are the results so far."));
    }
    if outcome.unreachable.is_some() {
        return;
    }
    page.blank();
    let requests = &outcome.requests;
    let rate = format!("{} requests/s", units::rate(outcome.rate_rps()));
    let errors = match outcome.errors() as f64 / requests.due().max(1) as f64 {
        0.0 => String::new(),
        share => format!("{} errors", units::percent(share)),
    };
    let answered = answered_in(outcome, style);
    // Both texts and what stands between them.
    let columns = [&rate, &errors, &answered].map(|text| text.chars().count()).iter().sum::<usize>() + 5;
    let between = if columns > usize::from(style.width) { "\n" } else { "   " };
    let errors = if errors.is_empty() { errors } else { format!(", {}", style.bad(&errors)) };
    page.line(&format!("{}{errors}{between}{answered}", style.bold(&rate)));
    page.line(&format!(
        "{}/s received, {}/s sent",
        units::bytes(outcome.per_second(outcome.window.bytes.received)),
        units::bytes(outcome.per_second(outcome.window.bytes.sent)),
    ));
    if let Some(line) = &outcome.line {
        let share = |bytes| units::percent(figures::line_share(bytes, line, outcome));
        page.line(&style.wrapped(
            "",
            &format!(
                "of the {}bit/s of {}: {} received, {} sent (without headers)",
                units::bytes(line.bits_per_second as f64).trim_end_matches('B'),
                line.interface,
                share(outcome.window.bytes.received),
                share(outcome.window.bytes.sent)
            ),
        ));
    }
    faults(page, plan, outcome);
    unaccepted(page, outcome);
}

/// The most frequent reason of what went wrong, in brackets.
fn most_frequent(outcome: &Outcome, what: &str) -> String {
    let reason = match what {
        "failed" => {
            let most = Failure::ALL.into_iter().max_by_key(|why| outcome.failures.count(*why));
            most.map(|why| why.name().to_owned())
        }
        "bad" if outcome.bad.status > 0 => {
            let errors = outcome.status.iter().filter(|(status, _)| **status >= 400);
            errors.max_by_key(|(_, n)| **n).map(|(status, _)| format!("status {status}"))
        }
        _ => None,
    };
    reason.map_or(String::new(), |reason| format!(" ({reason})"))
}

/// What was answered in which time. The last response may come long after sending has ended, and the
/// rate does not count that time.
fn answered_in(outcome: &Outcome, style: Style) -> String {
    let time = |time: std::time::Duration| units::time_ns(time.as_nanos() as f64, style.unicode);
    let answered = units::count(outcome.requests.answered);
    let window = outcome.window.time;
    if outcome.duration > window + window / crate::limits::LATE_PART {
        let late = time(outcome.duration.saturating_sub(window));
        return format!("{answered} answered, sent in {}, the last answered {late} later", time(window));
    }
    format!("{answered} answered in {}", time(outcome.duration))
}

/// Why the exit code is 1 whatever the checks found, a line for each reason; and that the server was out of reach for
/// a moment.
fn faults(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let reasons = verdict::reasons(plan, outcome);
    let moment = verdict::out_of_reach(outcome).filter(|_| !outcome.was_down());
    let lines: Vec<_> = reasons
        .iter()
        .map(|why| (Mark::Bad, why))
        .chain(moment.iter().map(|why| (Mark::Doubt, why)))
        .collect();
    if !lines.is_empty() {
        page.blank();
    }
    for (mark, why) in lines {
        page.marked(mark, why);
    }
}

/// That the server accepts no connections, in a line.
fn unaccepted(page: &mut SummaryText, outcome: &Outcome) {
    let waiting = outcome.connections.unaccepted;
    if waiting > 0 {
        page.blank();
        let waiting = units::several(waiting, "connection waits", "connections wait");
        page.marked(Mark::Bad, &format!("the server accepts no connections: {waiting} in its queue"));
    }
}

/// The load in one line: "64 connections, 1 in flight on each, 2 threads, epoll; closed loop, for 10s".
pub fn done(plan: &Plan, outcome: &Outcome) -> String {
    let mut parts = vec![sending(plan)];
    if let Some(n) = plan.per_connection {
        parts.push(format!("closed after {}", units::several(u64::from(n), "request", "requests")));
    }
    if outcome.client.threads > 0 && plan.way == Way::Loop {
        parts.push(units::several(u64::from(outcome.client.threads), "thread", "threads"));
    }
    if !outcome.io.is_empty() {
        parts.push(outcome.io.clone());
    }
    if plan.from.len() > 1 {
        parts.push(format!("from {} addresses", plan.from.len()));
    }
    if plan.target.addresses.len() > 1 {
        parts.push(format!("to {} addresses", plan.target.addresses.len()));
    }
    format!("{}; {}", parts.join(", "), pacing(plan))
}

fn sending(plan: &Plan) -> String {
    let connections = units::several(u64::from(plan.connections), "connection", "connections");
    match plan.way {
        Way::Poll => "one request at a time on one connection".to_owned(),
        Way::Threads => format!("{connections}, a blocking thread for each"),
        Way::Async => format!("{connections}, an async task for each"),
        Way::Loop => match &plan.flows {
            Some(flows) => of_users(plan, flows, &connections),
            None => {
                format!("{connections}, {} in flight on each", units::count(u64::from(plan.depth)))
            }
        },
    }
}

/// Connections of the users of flows.
fn of_users(plan: &Plan, flows: &FlowPlan, connections: &str) -> String {
    let each = plan.connections_each();
    let hosts = plan.host_count();
    let at_each =
        if hosts > 1 { &format!("up to {connections} to each of {hosts} hosts") } else { connections };
    match (flows.own_connections, each) {
        (false, 1) => match flows.widest() {
            1 => format!("{at_each}, 1 request of a user in flight"),
            several => format!("{at_each}, up to {several} requests of a user in flight"),
        },
        (false, each) if hosts > 1 => format!("{at_each}, {each} for each user"),
        (false, each) => format!("up to {connections}, {each} for each user"),
        (true, each) => {
            let users = units::several(u64::from(flows.users), "user", "users");
            let own = if each == 1 { "a connection".to_owned() } else { format!("up to {each} connections") };
            let to = if hosts > 1 { " to each host" } else { "" };
            format!("up to {users} at a time, {own}{to} for each iteration")
        }
    }
}

fn users(flows: Option<&FlowPlan>) -> String {
    match flows.map(|flows| &flows.pace) {
        Some(UserPace::Arriving(rate, _)) => {
            format!("{rate} new users/s, which send the steps of flows in turn")
        }
        Some(UserPace::Stages(stages)) => format!("{stages} users, which send the steps of flows in turn"),
        Some(UserPace::Always) | None => "users that send the steps of flows in turn".to_owned(),
    }
}

fn pacing(plan: &Plan) -> String {
    let mut text = match &plan.pace {
        Pace::Closed if plan.flows.is_some() => users(plan.flows.as_ref()),
        Pace::Closed => "closed loop".to_owned(),
        Pace::Trace(times) => {
            format!("open loop, {} replayed at their times", units::count(times.len() as u64))
        }
        Pace::Open { rate, arrival } => {
            let arrival = match arrival {
                Arrival::Constant => "evenly spaced",
                Arrival::Poisson => "Poisson arrivals",
            };
            format!("open loop, {}, {arrival}", rate_in_words(rate))
        }
    };
    match (plan.stop.requests, plan.stop.duration) {
        (Some(n), None) => text += &format!(", {}", units::several(n, "request", "requests")),
        (None, Some(time)) => text += &format!(", for {}", shown_duration(time)),
        (Some(n), Some(time)) => {
            text += &format!(
                ", at most {} or {}",
                units::several(n, "request", "requests"),
                shown_duration(time)
            );
        }
        (None, None) => {}
    }
    if !plan.warm_up.is_zero() {
        text += &format!(", after a warm-up of {}", shown_duration(plan.warm_up));
    }
    text
}

fn rate_in_words(rate: &Rate) -> String {
    let step = |s: &RateStep| {
        let slope = if s.from == s.to {
            format!("{}/s", units::rate(s.from))
        } else {
            format!("{}/s to {}/s", units::rate(s.from), units::rate(s.to))
        };
        s.lasts.map_or_else(|| slope.clone(), |time| format!("{slope} in {}", shown_duration(time)))
    };
    rate.steps.iter().map(step).collect::<Vec<_>>().join(", then ")
}

fn notes(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let client = &outcome.client;
    let limit = client.saturated.then(|| {
        let why = client.reason.as_deref().unwrap_or("its cores had no time left");
        let remedy = match client.core_busy >= 0.9 {
            true if plan.flows.is_some() => " (more cores (-t) lift it)",
            true if plan.throughput => " (more cores (-t) or deeper pipelines (-p) lift it)",
            true => " (more cores (-t), deeper pipelines (-p) or --throughput lift it)",
            false => "",
        };
        format!("the client was the limit: {why}{remedy}")
    });
    let notes: Vec<String> = limit.into_iter().chain(doubts::warnings(plan, outcome)).collect();
    if notes.is_empty() {
        return;
    }
    page.gap();
    for note in notes {
        page.marked(Mark::Doubt, &note);
    }
}

#[cfg(test)]
mod tests;
