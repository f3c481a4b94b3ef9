//! Responses, request names, connections, the client itself, checks.

use linerate_load::outcome::{Ranked, SegmentCounts, Tcp};
use linerate_load::plan::Way;
use linerate_load::plan::check::CheckResult;
use linerate_load::plan::tls::Trust;
use linerate_load::{Outcome, Plan};

use super::page::{Mark, SummaryText};
use crate::{figures, limits, units};

pub(super) fn answers(page: &mut SummaryText, outcome: &Outcome) {
    if outcome.status.is_empty() {
        return;
    }
    page.blank();
    let mut by_count: Vec<(u16, u64)> = outcome.status.iter().map(|(status, n)| (*status, *n)).collect();
    by_count.sort_by_key(|(status, n)| (std::cmp::Reverse(*n), *status));
    let mut parts: Vec<String> = by_count
        .iter()
        .take(limits::STATUSES)
        .map(|(status, n)| format!("{status}: {}", units::count(*n)))
        .collect();
    let rest: u64 = by_count.iter().skip(limits::STATUSES).map(|(_, n)| n).sum();
    if rest > 0 {
        parts.push(format!("others: {}", units::count(rest)));
    }
    page.labelled("status", &parts.join(", "));
    page.grouped = outcome.bad.total() == 0;
    bad(page, outcome);
}

fn bad(page: &mut SummaryText, outcome: &Outcome) {
    let bad = outcome.bad;
    if bad.total() == 0 {
        return;
    }
    let parts: Vec<String> = [
        (bad.status, "by status"),
        (bad.body, "by body"),
        (bad.encoding, "not to be decoded"),
        (bad.tag, "by tag"),
        (bad.trailer, "by trailer"),
        (bad.take, "by a missing value"),
        (bad.expect, "not as expected"),
    ]
    .iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("{} {what}", units::count(*n)))
    .collect();
    page.labelled("bad answers", &parts.join(", "));
    // One of each kind: the same page three times shows no more than once.
    let mut seen = Vec::new();
    for sample in outcome.samples.iter().filter(|s| {
        s.status.is_some()
            && (s.why.starts_with("bad") || s.why.starts_with("value") || s.why.starts_with("not as"))
    }) {
        let kind = (&sample.request, &sample.why, sample.status);
        if seen.contains(&kind) || seen.len() == limits::BAD_SAMPLES {
            continue;
        }
        seen.push(kind);
        let at = units::time_us(sample.due_us, page.style.unicode);
        page.labelled("", &format!("at {at}, {}: {}", sample.request, sample.why));
        for line in sample.head.lines().filter(|l| !l.is_empty()).take(limits::HEAD_LINES) {
            let room = usize::from(page.style.width).saturating_sub(18);
            // A server's bytes must not steer the terminal.
            let shown: String = line.chars().filter(|c| !c.is_control()).take(room).collect();
            let shown = page.style.dim(&format!("                | {shown}"));
            page.line(&shown);
        }
        quoted(page, "body", &sample.body, limits::BODY_LINES);
        quoted(page, "sent", &sample.sent, 1);
    }
}

/// The first lines of a text that was sent or received, as far as they fit.
fn quoted(page: &mut SummaryText, what: &str, text: &str, most: usize) {
    let room = usize::from(page.style.width).saturating_sub(24);
    // A server's bytes must not steer the terminal.
    let visible = |c: char| if c.is_control() { c.escape_default().collect() } else { vec![c] };
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(most);
    for (at, line) in lines.enumerate() {
        let shown: String = line.chars().flat_map(visible).take(room).collect();
        let before = if at == 0 { format!("{what}:") } else { " ".repeat(what.len() + 1) };
        let shown = page.style.dim(&format!("                {before} {shown}"));
        page.line(&shown);
    }
}

/// A percentile of a row.
fn percentile(page: &SummaryText, of: Ranked<'_>, percent: f64) -> String {
    let found = of.percentile(percent);
    if of.is_empty() { "-".to_owned() } else { page.bound(found.ns as f64, found.at_least) }
}

pub(super) fn names(page: &mut SummaryText, outcome: &Outcome) {
    if outcome.by_name.len() < 2 {
        return;
    }
    page.blank();
    let widest = outcome.by_name.keys().map(|name| name.chars().count()).max().unwrap_or(0).clamp(7, 30);
    let head = format!(
        "{:<widest$} {:>12} {:>8} {:>8} {:>10} {:>10}",
        "request", "answered", "failed", "bad", "p50", "p99"
    );
    let head = page.style.bold(&head);
    page.line(&head);
    for (name, named) in outcome.by_name.iter().take(limits::NAMES) {
        let short: String = name.chars().take(widest).collect();
        let percentile = |p: f64| percentile(page, named.ranked(), p);
        let line = format!(
            "{short:<widest$} {:>12} {:>8} {:>8} {:>10} {:>10}",
            units::count(named.requests.answered),
            units::count(named.requests.failed + named.requests.unknown),
            units::count(named.bad.total()),
            percentile(50.0),
            percentile(99.0),
        );
        page.line(&line);
    }
    let rest = outcome.by_name.len().saturating_sub(limits::NAMES);
    if rest > 0 {
        let more = format!("and {rest} more, all in the JSON");
        let more = page.style.dim(&more);
        page.line(&more);
    }
}

/// Iterations by flow, and why some failed.
pub(super) fn flows(page: &mut SummaryText, outcome: &Outcome) {
    if outcome.flows.is_empty() {
        return;
    }
    page.blank();
    let widest = outcome.flows.keys().map(|name| name.chars().count()).max().unwrap_or(0).clamp(7, 30);
    let head = format!(
        "{:<widest$} {:>12} {:>8} {:>8} {:>10} {:>10}",
        "flow", "done", "failed", "stopped", "p50", "p99"
    );
    let head = page.style.bold(&head);
    page.line(&head);
    for (name, flow) in outcome.flows.iter().take(limits::NAMES) {
        let short: String = name.chars().take(widest).collect();
        let percentile = |p: f64| percentile(page, flow.ranked(), p);
        let line = format!(
            "{short:<widest$} {:>12} {:>8} {:>8} {:>10} {:>10}",
            units::count(flow.done),
            units::count(flow.failed),
            units::count(flow.stopped),
            percentile(50.0),
            percentile(99.0),
        );
        page.line(&line);
        for (cause, n) in &flow.causes {
            // Part of it may be a server's.
            let cause: String = cause.chars().filter(|c| !c.is_control()).collect();
            page.line(&page.style.dim(&format!("  {} failed at {cause}", units::count(*n))));
        }
        if flow.unstarted > 0 {
            let text = format!(
                "  {} users were due and never began: too many were there (users, or --users, is the most)",
                units::count(flow.unstarted)
            );
            page.line(&page.style.bold(&text));
        }
        if flow.redirects > 0 {
            page.line(&page.style.dim(&format!("  {} redirects followed", units::count(flow.redirects))));
        }
        if flow.skipped > 0 {
            page.line(&page.style.dim(&format!("  {} requests skipped", units::count(flow.skipped))));
        }
    }
}

pub(super) fn connections(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    page.gap();
    let c = &outcome.connections;
    let mut text = format!("{} opened", units::count(c.opened));
    if c.opened > u64::from(plan.connections) && !outcome.duration.is_zero() {
        text += &format!(" ({}/s)", units::rate(outcome.per_second(c.opened)));
    }
    if c.failed > 0 {
        text += &format!(", {} could not be opened", units::count(c.failed));
        let kinds = [(c.refused, "refused"), (c.hanging, "never answered")];
        let kinds: Vec<String> = kinds
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{} {what}", units::count(*n)))
            .collect();
        if !kinds.is_empty() {
            text += &format!(" ({})", kinds.join(", "));
        }
    }
    if c.closed_by_peer > 0 {
        text += &format!(", {} closed by the server", units::count(c.closed_by_peer));
    }
    if let Some(limit) = c.learnt_limit {
        text += &format!(
            " (it closes after {}, seen on {})",
            units::several(u64::from(limit), "request", "requests"),
            units::several(c.learnt_on, "connection", "connections")
        );
    }
    page.labelled("connections", &text);
    http(page, plan, outcome);
    quic(page, outcome);
    tls(page, plan, outcome);
    tcp(page, outcome);
}

/// The code by which a server refuses a stream.
fn refusal(outcome: &Outcome) -> &'static str {
    if outcome.http.h3 > 0 { "H3_REQUEST_REJECTED" } else { "REFUSED_STREAM" }
}

/// What QUIC went through.
fn quic(page: &mut SummaryText, outcome: &Outcome) {
    let Some(quic) = &outcome.quic else { return };
    let mut parts = vec![units::several(quic.handshakes, "handshake", "handshakes")];
    if let Some(mean) = quic.rtt_mean_ns() {
        parts.push(format!("round trip {} on average", page.time(mean)));
    }
    parts.push(format!(
        "{} lost of {}",
        units::count(quic.lost),
        units::several(quic.packets, "packet", "packets")
    ));
    if let Some(each) = quic.datagrams_per(outcome.requests.answered) {
        parts.push(format!("{each:.2} datagrams per response"));
    }
    if quic.retries > 0 {
        parts
            .push(format!("{} of the server", units::several(quic.retries, "Retry packet", "Retry packets")));
    }
    if quic.marked > 0 {
        let marked = units::several(quic.marked, "datagram", "datagrams");
        parts.push(format!("{marked} marked for congestion (ECN)"));
    }
    page.labelled("quic", &parts.join(", "));
}

/// What there is to say of the protocol, where it was not HTTP/1.1 without a choice.
fn http(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let facts = &outcome.http;
    if facts.h1 + facts.h2 + facts.h3 == 0 {
        return;
    }
    let mut text = figures::protocol(outcome).to_owned();
    if facts.h2 > 0 {
        text += &match facts.max_concurrent_streams {
            Some(least) if facts.most_concurrent_streams.is_some_and(|most| most > least) => {
                let most = facts.most_concurrent_streams.unwrap_or(least);
                format!(", the server admits {least} to {} on a connection", streams(most))
            }
            Some(most) if most < plan.depth => {
                format!(", the server admits {} on a connection, fewer than -p", streams(most))
            }
            Some(most) => format!(", the server admits {} on a connection", streams(most)),
            None => ", the server names no limit of streams".to_owned(),
        };
    }
    if facts.shut_ns > 0 {
        let longest = units::time_ns(facts.shut_ns as f64, page.style.unicode);
        text += &format!("; it admitted none for {longest}");
    }
    if facts.held_bodies > 0 {
        let bodies = units::several(facts.held_bodies, "request body", "request bodies");
        let longest = units::time_ns(facts.held_ns as f64, page.style.unicode);
        let bytes = units::bytes(facts.held_bytes as f64);
        text +=
            &format!("; its windows held {bodies} up: {bytes} did not leave, for {longest} at the longest");
    }
    if facts.refused > 0 {
        let refused = units::several(facts.refused, "stream", "streams");
        text += &format!("; it refused {refused} unprocessed ({}, GOAWAY)", refusal(outcome));
    }
    if facts.go_aways > 0 {
        let ended = units::several(facts.go_aways, "connection", "connections");
        text += &format!("; it ended {ended} by GOAWAY");
    }
    for (code, n) in &facts.resets {
        text += &format!("; it reset {}: {code}", units::several(*n, "stream", "streams"));
    }
    page.labelled("http", &text);
}

fn streams(n: u32) -> String {
    units::several(u64::from(n), "stream", "streams")
}

fn tls(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let Some(counts) = &outcome.tls else { return };
    let mut text = counts.usual().map_or_else(
        || "no handshake succeeded".to_owned(),
        |agreed| format!("{} {}", agreed.version, agreed.cipher),
    );
    let full = units::several(counts.full, "full handshake", "full handshakes");
    text += &format!(", {full}, {} resumed", units::count(counts.resumed));
    for (why, count) in &counts.failed {
        text += &format!("; {} failed: {why}", units::count(*count));
    }
    page.labelled("tls", &text);
    insecure(page, plan);
}

/// A run that verified no certificate gets a line that says so.
pub(super) fn insecure(page: &mut SummaryText, plan: &Plan) {
    if plan.all_tls().any(|tls| tls.trust == Trust::Anybody) {
        page.marked(Mark::Doubt, "--insecure: the server's certificate was not checked");
    }
}

fn tcp(page: &mut SummaryText, outcome: &Outcome) {
    let t = &outcome.tcp;
    if t.looked_at == 0 {
        // Callers that block do not look at their connections; packets are counted all the same.
        return segments(page, outcome);
    }
    if !page.is_full() && is_quiet(t) {
        return segments(page, outcome);
    }
    let mut parts = vec![
        format!("{} sent again", units::several(t.retransmits, "segment", "segments")),
        format!("{} received out of order", units::count(t.out_of_order)),
    ];
    if let Some(stack) = t.stack.filter(|_| t.retransmits > 0) {
        parts.push(format!(
            "of the former {} by RACK, {} tail probes, {} time-outs",
            units::count(stack.fast_retransmits),
            units::count(stack.tail_probes),
            units::count(stack.timeouts)
        ));
    }
    if t.overrun > 0 {
        parts.push(format!(
            "{} lost here before they were looked at",
            units::several(t.overrun, "packet", "packets")
        ));
    }
    let events = &t.events;
    if events.duplicates_reported > 0 {
        parts.push(format!("{} arrived there twice", units::count(events.duplicates_reported)));
    }
    if events.reordered > 0 {
        let times = units::several(events.reordered, "time", "times");
        parts.push(format!("overtook one another {times} on the way there"));
    }
    for (us, what) in
        [(t.zero_window_us, "the server's window"), (events.sndbuf_limited_us, "our send buffer")]
    {
        if us > 0 {
            let held = units::time_us(us as f64, page.style.unicode);
            parts.push(format!("held back by {what} for {held}"));
        }
    }
    for (n, whose) in [(events.peer_window_closed, "the server's"), (events.own_window_closed, "our")] {
        if n > 0 {
            let looks = units::several(events.looks, "look", "looks");
            parts.push(format!("{whose} window closed at {} of {looks}", units::count(n)));
        }
    }
    if let Some(rtt) = t.rtt_min_us {
        let rtt = units::time_us(f64::from(rtt), page.style.unicode);
        parts.push(format!("least round trip {rtt}"));
    }
    let looked = if t.looked_at < outcome.connections.opened {
        format!(" (of {} connections)", units::count(t.looked_at))
    } else {
        String::new()
    };
    page.labelled("tcp", &format!("{}{looked}", parts.join(", ")));
    segments(page, outcome);
}

/// Whether nothing was lost, overtaken or held back on any connection.
fn is_quiet(tcp: &Tcp) -> bool {
    let events = &tcp.events;
    let counts = [
        tcp.retransmits,
        tcp.out_of_order,
        tcp.overrun,
        tcp.zero_window_us,
        events.duplicates_reported,
        events.reordered,
        events.sndbuf_limited_us,
        events.peer_window_closed,
        events.own_window_closed,
    ];
    counts.iter().all(|n| *n == 0)
}

/// Segments that were counted one by one.
fn segments(page: &mut SummaryText, outcome: &Outcome) {
    let Some(segments) = &outcome.tcp.segments else { return };
    let one_way = |counts: &SegmentCounts, what: &str| {
        let events: Vec<String> = counts
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(event, n)| format!("{} {}", units::count(n), event.words(n)))
            .collect();
        let events = if events.is_empty() { "nothing remarkable".to_owned() } else { events.join(", ") };
        format!("{} {what}: {events}", units::count(counts.segments))
    };
    let mut text =
        format!("{}; {}", one_way(&segments.sent, "sent"), one_way(&segments.received, "received"));
    if segments.missed > 0 && outcome.tcp.stack.is_none() {
        text += &format!(
            "; at least, since {} found no room in the capture",
            units::several(segments.missed, "packet", "packets")
        );
    }
    page.labelled("segments", &text);
}

pub(super) fn client(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let c = &outcome.client;
    let mut parts = Vec::new();
    if let Some(each) = figures::cpu_us_per_request(outcome) {
        parts.push(format!("{} of CPU per request", units::time_us(each, page.style.unicode)));
    }
    if let Some(each) = figures::script_us(outcome) {
        parts.push(format!("{} of it in the script", units::time_us(each, page.style.unicode)));
    }
    let busiest = if c.threads > 1 && plan.way == Way::Loop { "its busiest core" } else { "its core" };
    parts.push(format!("{busiest} {} busy", units::percent(c.core_busy)));
    if plan.counts_from_due() && c.lateness.count() > 0 {
        parts.push(format!(
            "requests left late by {} (p50), {} (p99)",
            page.time(c.lateness.percentile_ns(50.0) as f64),
            page.time(c.lateness.percentile_ns(99.0) as f64)
        ));
    }
    let local = plan.target.addresses.iter().any(|a| a.ip().is_loopback());
    if local && page.is_full() {
        parts.push("the server runs on this machine too".to_owned());
    }
    page.labelled("client", &parts.join(", "));
}

pub(super) fn checks(page: &mut SummaryText, checks: &[CheckResult]) {
    if checks.is_empty() {
        return;
    }
    page.blank();
    for check in checks {
        let mark = if check.pass { Mark::Good } else { Mark::Bad };
        page.marked(mark, &format!("{}: {}", check.expr, check.shown));
    }
}
