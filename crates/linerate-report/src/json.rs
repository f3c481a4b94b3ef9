//! The outcome as a document of [`crate::schema`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use linerate_base::{CalendarDay, DAY_S};
use linerate_explain::Diagnosis;
use linerate_load::histogram::Histogram;
use linerate_load::outcome::{self, Failure, HandshakeCounts, Ranked};
use linerate_load::plan::check::CheckResult;
use linerate_load::plan::tls::Trust;
use linerate_load::plan::{Arrival, Check, Metric, Order, Pace};
use linerate_load::{Outcome, Plan};

use crate::schema::fine::FineInterval;
use crate::schema::outcome as schema;
use crate::schema::passive::Segment;
use crate::schema::plan as schema_plan;
use crate::schema::quic::{Quic, QuicRtt};
use crate::{Report, doubts, figures};

/// The document as indented JSON, with a line end.
pub fn to_string(report: &Report<'_>) -> String {
    text_of(&document(report))
}

/// A document as indented JSON, with a line end.
pub fn text(document: &schema::Document) -> String {
    text_of(document)
}

/// Adds what `linerate explain` found of the worst request.
pub fn explain(document: &mut schema::Document, diagnosis: &Diagnosis, environment: &crate::Environment) {
    document.diagnosis = serde_json::to_value(crate::explain::document(diagnosis, environment)).ok();
}

pub(crate) fn text_of(document: &impl serde::Serialize) -> String {
    // Only maps with keys that are no strings can fail here, and there are none.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// The document.
pub fn document(report: &Report<'_>) -> schema::Document {
    let Report { plan, outcome, checks, environment } = *report;
    let latencies_told = !plan.throughput;
    schema::Document {
        schema: schema::SCHEMA.to_owned(),
        target: plan.target.url.clone(),
        plan: plan_of(plan),
        started_at: outcome.started_at.map(rfc3339),
        duration_s: seconds(outcome.duration),
        rate_rps: round3(outcome.rate_rps()),
        window: schema::Window { answered: outcome.window.answered, seconds: seconds(outcome.window.time) },
        requests: requests(&outcome.requests),
        bad: bad(outcome.bad),
        failures: Failure::ALL.map(|f| (f.name().to_owned(), outcome.failures.count(f))).into(),
        failures_in_detail: failures_in_detail(&outcome.failures),
        failures_detail: outcome.failures.codes().clone(),
        failure_details: outcome.failures.details.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        status: outcome.status.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
        tolerated: outcome.tolerated.clone(),
        bytes: schema::Bytes { sent: outcome.bytes.sent, received: outcome.bytes.received },
        protocol: figures::protocol(outcome).to_owned(),
        http2: http2(outcome),
        quic: outcome.quic.as_ref().map(|quic| self::quic(quic, outcome.requests.answered)),
        tls: outcome.tls.as_ref().map(|counts| tls(counts, plan)),
        dns: outcome.lookups.as_ref().map(|lookups| schema::Lookups {
            looked_up_again: lookups.again,
            changed: lookups.changed,
            failed: lookups.failed,
            addresses: lookups.addresses.iter().map(|address| address.ip().to_string()).collect(),
        }),
        line: outcome.line.as_ref().map(|line| schema::Line {
            interface: line.interface.clone(),
            bits_per_s: line.bits_per_second,
            received_share: round6(figures::line_share(outcome.window.bytes.received, line, outcome)),
            sent_share: round6(figures::line_share(outcome.window.bytes.sent, line, outcome)),
        }),
        latency_us: latencies(outcome, latencies_told),
        connections: connections(outcome),
        silence: outcome.silence().map(silence),
        outage: outcome.outage().map(silence),
        verdict: Some(verdict(report)),
        tcp: tcp(outcome),
        client: client(report),
        server: None,
        series: outcome.series.iter().map(|i| interval(i, &outcome.tcp, latencies_told)).collect(),
        series_fine: fine(&outcome.series_fine),
        checks: plan.checks.iter().zip(checks).map(|(check, found)| checked(check, found)).collect(),
        warnings: doubts::warnings(plan, outcome),
        requests_by_name: by_name(outcome, latencies_told),
        flows: flows(outcome),
        samples: outcome.samples.iter().map(|s| sample(s, latencies_told)).collect(),
        histogram: latencies_told.then(|| encoded(&outcome.latency)),
        histogram_unit: "us".to_owned(),
        interrupted: outcome.interrupted,
        aborted: outcome.aborted.clone(),
        unreachable: outcome.unreachable.clone(),
        environment: self::environment(environment, &outcome.io),
        find: None,
        diagnosis: None,
        machines: None,
        agents: None,
        complete: None,
        request_log: None,
        shaped_line: None,
    }
}

/// Where it happened.
pub fn environment(environment: &crate::Environment, io: &str) -> schema::Environment {
    schema::Environment {
        command: environment.command.clone(),
        version: environment.version.clone(),
        kernel: environment.kernel.clone(),
        cpus: environment.cpus,
        host: environment.host.clone(),
        io: io.to_owned(),
    }
}

fn failures_in_detail(failures: &outcome::Failures) -> BTreeMap<String, BTreeMap<String, u64>> {
    failures.in_detail().iter().map(|(reason, details)| ((*reason).to_owned(), details.clone())).collect()
}

/// To three decimals, so that a nanosecond is the last digit of a microsecond.
fn round3(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// To six decimals, for shares; what is written so is read back as the same number.
pub(crate) fn round6(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Seconds to the microsecond.
fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

fn http2(outcome: &outcome::Outcome) -> Option<schema::Http2> {
    let facts = &outcome.http;
    (facts.h2 > 0).then(|| schema::Http2 {
        connections: facts.h2,
        max_concurrent_streams: facts.max_concurrent_streams,
        most_concurrent_streams: facts.most_concurrent_streams,
        no_streams_s: seconds(Duration::from_nanos(facts.shut_ns)),
        held_up: schema::HeldUp {
            requests: facts.held_bodies,
            bytes: facts.held_bytes,
            longest_s: seconds(Duration::from_nanos(facts.held_ns)),
        },
        refused: facts.refused,
        goaways: facts.go_aways,
        resets: facts.resets.clone(),
    })
}

fn quic(figures: &outcome::QuicFigures, answered: u64) -> Quic {
    let us = |ns: f64| round3(ns / 1e3);
    Quic {
        handshakes: figures.handshakes,
        retries: figures.retries,
        lost: figures.lost,
        packets: figures.packets,
        rtt_us: figures.rtt_mean_ns().map(|mean| QuicRtt {
            min: us(figures.rtt_min_ns as f64),
            mean: us(mean),
            max: us(figures.rtt_max_ns as f64),
        }),
        ecn: figures.marked,
        datagrams_per_request: figures.datagrams_per(answered).map(round3),
        drops_here: figures.dropped_here(),
    }
}

fn tls(counts: &HandshakeCounts, plan: &Plan) -> schema::Tls {
    let usual = counts.usual();
    schema::Tls {
        full: counts.full,
        resumed: counts.resumed,
        version: usual.map(|agreed| agreed.version.clone()),
        cipher: usual.map(|agreed| agreed.cipher.clone()),
        failed: counts.failed.clone(),
        verified: plan.all_tls().next().is_some() && plan.all_tls().all(|tls| tls.trust != Trust::Anybody),
    }
}

fn requests(r: &outcome::Requests) -> schema::Requests {
    schema::Requests {
        sent: r.sent,
        answered: r.answered,
        failed: r.failed,
        unknown: r.unknown,
        resent: r.resent,
        unsent: r.unsent,
        unsent_full: r.unsent_full,
        unsent_unopened: r.unsent_unopened,
        unsent_shut: r.unsent_shut,
        unsent_missed: r.unsent_missed,
        expecting: r.expecting,
        met: r.met,
        unsolicited_responses: r.unsolicited_responses,
        out_of_order_responses: r.out_of_order_responses,
    }
}

fn bad(b: outcome::Bad) -> schema::Bad {
    schema::Bad {
        status: b.status,
        body: b.body,
        encoding: b.encoding,
        tag: b.tag,
        trailer: b.trailer,
        take: b.take,
        expect: b.expect,
    }
}

fn latencies(outcome: &outcome::Outcome, told: bool) -> schema::Latencies {
    let l = &outcome.latency;
    schema::Latencies {
        from_due: (l.from_due.is_some() && told).then(|| ranked(l.main())),
        from_sent: told.then(|| ranked(l.sent())),
        answered: told.then(|| latency(l.main().good)),
        connect: Some(latency(&l.connect)),
        tls: outcome.tls.is_some().then(|| latency(&l.tls)),
        first_byte: told.then(|| latency(&l.first_byte)),
    }
}

/// A latency with requests without a good response behind all others.
fn ranked(of: Ranked<'_>) -> schema::Latency {
    let mut at_least = Vec::new();
    let mut note = |name: &str, ns: f64, is_bound: bool| {
        if is_bound {
            at_least.push(name.to_owned());
        }
        (!of.is_empty()).then(|| round3(ns / 1e3))
    };
    let mut percentile = |name: &str, percent| {
        let found = of.percentile(percent);
        note(name, found.ns as f64, found.at_least)
    };
    let with = schema::Latency {
        count: of.count(),
        p50: percentile("p50", 50.0),
        p90: percentile("p90", 90.0),
        p95: percentile("p95", 95.0),
        p99: percentile("p99", 99.0),
        p999: percentile("p999", 99.9),
        p9999: percentile("p9999", 99.99),
        max: percentile("max", 100.0),
        ..latency(of.good)
    };
    let (mean, is_bound) = of.mean_ns();
    let mean = note("mean", mean, is_bound);
    schema::Latency { mean, at_least, ..with }
}

fn latency(h: &Histogram) -> schema::Latency {
    let some = |value: f64| (h.count() > 0).then(|| round3(value / 1e3));
    let percentile = |p: f64| some(h.percentile_ns(p) as f64);
    schema::Latency {
        count: h.count(),
        min: some(h.min_ns() as f64),
        mean: some(h.mean_ns()),
        p50: percentile(50.0),
        p90: percentile(90.0),
        p95: percentile(95.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        p9999: percentile(99.99),
        max: some(h.max_ns() as f64),
        at_least: Vec::new(),
    }
}

fn connections(outcome: &outcome::Outcome) -> schema::Connections {
    let c = &outcome.connections;
    schema::Connections {
        opened: c.opened,
        failed: c.failed,
        refused: c.refused,
        hanging: c.hanging,
        unaccepted: c.unaccepted,
        down_s: outcome.down.as_ref().map_or(0.0, |down| seconds(down.spans.total())),
        closed_by_peer: c.closed_by_peer,
        requests_resent: c.requests_resent,
        learnt_limit: c.learnt_limit,
        learnt_on: c.learnt_on,
    }
}

fn silence(found: outcome::Silence) -> schema::Silence {
    schema::Silence { longest_s: seconds(found.lasted), from_s: seconds(found.from) }
}

fn verdict(report: &Report<'_>) -> schema::Verdict {
    let reasons = crate::verdict::reasons(report.plan, report.outcome);
    schema::Verdict {
        pass: reasons.is_empty() && report.checks.iter().all(|check| check.pass),
        reasons,
        errors_share: round6(report.outcome.errors() as f64 / report.outcome.requests.due().max(1) as f64),
    }
}

fn tcp(outcome: &Outcome) -> schema::Tcp {
    let t = &outcome.tcp;
    schema::Tcp {
        retransmits: t.retransmits,
        out_of_order: t.out_of_order,
        zero_window_ms: round3(t.zero_window_us as f64 / 1e3),
        rwnd_limited_ms: round3(t.zero_window_us as f64 / 1e3),
        sndbuf_limited_ms: round3(t.events.sndbuf_limited_us as f64 / 1e3),
        duplicates_reported: t.events.duplicates_reported,
        reordered: t.events.reordered,
        rtt_min_us: t.rtt_min_us,
        overrun: t.overrun,
        looked_at: t.looked_at,
        looks: t.events.looks,
        peer_window_closed: t.events.peer_window_closed,
        own_window_closed: t.events.own_window_closed,
        segments: t.segments.as_ref().map(|s| segments(s, t)),
        first_connection: first_connection(outcome),
        stack: t.stack.map(|stack| {
            stack.counters().iter().chain(&stack.now()).map(|(name, n)| ((*name).to_owned(), *n)).collect()
        }),
    }
}

fn first_connection(outcome: &Outcome) -> Option<Vec<Segment>> {
    let packet = |p: &outcome::CapturedPacket| Segment {
        at_ms: round3(p.at_ns as f64 / 1e6),
        from: if p.from_server { "server" } else { "client" }.to_owned(),
        flags: p.flags,
        seq: p.seq,
        ack: p.ack,
        bytes: p.bytes,
        window: p.window,
        marks: p.marks.clone(),
    };
    let packets = &outcome.first_connection;
    (!packets.is_empty()).then(|| packets.iter().map(packet).collect())
}

fn segments(s: &outcome::Segments, t: &outcome::Tcp) -> schema::Segments {
    let counts = |c: &outcome::SegmentCounts| schema::SegmentCounts {
        segments: c.segments,
        events: c.iter().map(|(event, n)| (event.name().to_owned(), n)).collect(),
    };
    schema::Segments {
        source: if t.stack.is_some() { "stack" } else { "capture" }.to_owned(),
        sent: counts(&s.sent),
        received: counts(&s.received),
        missed: s.missed,
    }
}

fn tcp_second(e: &outcome::TcpEvents) -> schema::TcpSecond {
    schema::TcpSecond {
        retransmits: e.retransmits,
        duplicates_reported: e.duplicates_reported,
        reordered: e.reordered,
        out_of_order: e.out_of_order,
        rwnd_limited_ms: round3(e.rwnd_limited_us as f64 / 1e3),
        sndbuf_limited_ms: round3(e.sndbuf_limited_us as f64 / 1e3),
        looks: e.looks,
        peer_window_closed: e.peer_window_closed,
        own_window_closed: e.own_window_closed,
    }
}

fn client(report: &Report<'_>) -> schema::Client {
    let c = &report.outcome.client;
    let late = report.plan.counts_from_due() && c.lateness.count() > 0;
    schema::Client {
        cpu_s: seconds(c.cpu),
        core_busy: round3(c.core_busy),
        cpu_us_per_request: figures::cpu_us_per_request(report.outcome).map(round3),
        run_queue_wait_s: seconds(c.run_queue_wait),
        script_us: figures::script_us(report.outcome).map(round3),
        disturbed_ms: round3(c.disturbed.as_secs_f64() * 1e3),
        stood_still_ms: round3(c.stood_still.as_secs_f64() * 1e3),
        suspended_ms: round3(c.suspended.as_secs_f64() * 1e3),
        context_switches: c.context_switches,
        lateness_us_p99: late.then(|| round3(c.lateness.percentile_ns(99.0) as f64 / 1e3)),
        threads: c.threads,
        saturated: c.saturated,
        reason: c.reason.clone(),
    }
}

fn interval(i: &outcome::Interval, tcp: &outcome::Tcp, told: bool) -> schema::Interval {
    schema::Interval {
        t_s: round3(i.t_s),
        rate_rps: round3(i.rate_rps),
        p50_us: i.p50_us.filter(|_| told).map(round3),
        p99_us: i.p99_us.filter(|_| told).map(round3),
        at_least: [("p50", i.p50_at_least), ("p99", i.p99_at_least)]
            .into_iter()
            .filter(|(_, is_bound)| *is_bound && told)
            .map(|(name, _)| name.to_owned())
            .collect(),
        failed: i.failed,
        unknown: i.unknown,
        bad: i.bad,
        tcp: (i.tcp.looks > 0).then(|| tcp_second(&i.tcp)),
        segments: i.segments.as_ref().map(|s| segments(s, tcp)),
        bytes: Some(schema::Bytes { sent: i.bytes.sent, received: i.bytes.received }),
        client_busy: i.client_busy.map(round3),
        latencies: told.then(|| spread(&i.spread)),
    }
}

/// What came from each sample to the next.
fn fine(samples: &[outcome::FineSample]) -> Option<Vec<FineInterval>> {
    let begins = std::iter::once(outcome::FineSample::default()).chain(samples.iter().copied());
    let step = |(begin, end): (outcome::FineSample, &outcome::FineSample)| {
        let seconds = (end.t_s - begin.t_s).max(1e-6);
        let cpu = |begin, end| -> Option<f64> { Some((end? - begin?) / seconds) };
        FineInterval {
            t_s: round3(end.t_s),
            rate_rps: round3(end.answered.saturating_sub(begin.answered) as f64 / seconds),
            failed: end.failed.saturating_sub(begin.failed),
            unknown: end.unknown.saturating_sub(begin.unknown),
            bad: end.bad.saturating_sub(begin.bad),
            bytes_sent: end.bytes_sent.saturating_sub(begin.bytes_sent),
            bytes_received: end.bytes_received.saturating_sub(begin.bytes_received),
            in_flight: end.in_flight,
            client_busy: cpu(begin.client_cpu_s, end.client_cpu_s).map(round3),
            server_busy: end.server_busy.map(round3),
            duplicate_acks: end.segments.map(|s| s.duplicate_acks),
            zero_windows: end.segments.map(|s| s.zero_windows),
            windows_full: end.segments.map(|s| s.windows_full),
            retransmissions: end.segments.map(|s| s.retransmissions),
        }
    };
    (!samples.is_empty()).then(|| begins.zip(samples).map(step).collect())
}

/// As a word, because a list of numbers would take a line for each.
fn spread(spread: &outcome::Spread) -> String {
    let (first, counts) = spread.counts();
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    format!("{first}:{}", counts.join(","))
}

fn checked(check: &Check, found: &CheckResult) -> schema::Check {
    let unit = match check.metric {
        Metric::Percentile(_) | Metric::Mean | Metric::Max | Metric::Min => "us",
        Metric::Rate => "1/s",
        Metric::ErrorShare | Metric::ExpectPass => "share",
        Metric::Errors | Metric::Answered | Metric::Unsolicited | Metric::OutOfOrder => "count",
    };
    let value = found.value.map(|v| if unit == "share" { v } else { round3(v) });
    schema::Check {
        expr: found.expr.clone(),
        value,
        unit: unit.to_owned(),
        at_least: found.at_least,
        pass: found.pass,
    }
}

fn by_name(outcome: &outcome::Outcome, told: bool) -> BTreeMap<String, schema::Named> {
    let named = |n: &outcome::NamedFigures| schema::Named {
        requests: requests(&n.requests),
        bad: bad(n.bad),
        latency_us: told.then(|| ranked(n.ranked())),
        answered_us: told.then(|| latency(&n.latency)),
        series: (!n.course.is_empty()).then(|| step_series(&n.course, outcome)),
    };
    outcome.by_name.iter().map(|(name, n)| (name.clone(), named(n))).collect()
}

/// The course of a step.
fn step_series(course: &outcome::StepCourse, outcome: &outcome::Outcome) -> schema::StepSeries {
    let mut series = schema::StepSeries::default();
    let (run_s, ended_s) = (outcome.window.time.as_secs_f64(), outcome.duration.as_secs_f64());
    let course = course.clone().until(run_s);
    for point in course.points(run_s, ended_s) {
        let interval = point.interval;
        series.t_s.push(round3(point.t_s));
        series.rate_rps.push(point.lasted_s.map(|lasted_s| round3(interval.answered as f64 / lasted_s)));
        series.failed.push(interval.failed);
        series.unknown.push(interval.unknown);
        series.bad.push(interval.bad);
        for (percent, values, bounds) in [
            (50.0, &mut series.p50_us, &mut series.p50_at_least),
            (99.0, &mut series.p99_us, &mut series.p99_at_least),
        ] {
            let found = interval.percentile_us(percent);
            values.push(found.map(|(us, _)| round3(us)));
            bounds.push(found.is_some_and(|(_, at_least)| at_least));
        }
    }
    series
}

fn flows(outcome: &outcome::Outcome) -> BTreeMap<String, schema::FlowCounts> {
    let counts = |flow: &outcome::FlowFigures| schema::FlowCounts {
        done: flow.done,
        failed: flow.failed,
        stopped: flow.stopped,
        unstarted: flow.unstarted,
        skipped_requests: flow.skipped,
        redirects: flow.redirects,
        duration_us: (!flow.ranked().is_empty()).then(|| ranked(flow.ranked())),
        done_us: (flow.done > 0).then(|| latency(&flow.duration)),
        causes: flow.causes.clone(),
    };
    outcome.flows.iter().map(|(name, flow)| (name.clone(), counts(flow))).collect()
}

fn sample(s: &outcome::Sample, told: bool) -> schema::Sample {
    schema::Sample {
        due_us: round3(s.due_us),
        latency_us: s.latency_us.filter(|_| told).map(round3),
        status: s.status,
        why: s.why.clone(),
        request: s.request.clone(),
        head: s.head.clone(),
        body: s.body.clone(),
        sent: s.sent.clone(),
    }
}

/// HdrHistogram V2, deflated, base64, in microseconds.
fn encoded(l: &outcome::Latency) -> String {
    const HOUR_US: u64 = linerate_load::histogram::LARGEST_NS / 1_000;
    let Ok(mut micros) = hdrhistogram::Histogram::<u64>::new_with_bounds(1, HOUR_US, 3) else {
        return String::new();
    };
    for (nanos, n) in l.main().good.iter_recorded() {
        micros.saturating_record_n((nanos + 500) / 1_000, n);
    }
    let mut bytes = Vec::new();
    // Writing into memory cannot fail.
    let _ = V2DeflateSerializer::new().serialize(&micros, &mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A Unix socket stands for those of a plan that has one.
fn addresses(plan: &Plan) -> Vec<String> {
    let all = plan.target.addresses.iter().filter(|_| plan.route.unix.is_none());
    all.map(ToString::to_string).collect()
}

fn plan_of(plan: &linerate_load::Plan) -> schema_plan::Plan {
    let (loop_kind, rate, arrival) = pace(&plan.pace);
    schema_plan::Plan {
        addresses: addresses(plan),
        unix_socket: plan.route.unix.as_ref().map(|path| path.display().to_string()),
        connect_to: plan.route.instead.clone(),
        hosts: plan.flows.iter().flat_map(|f| &f.hosts).map(|host| host.target.url.clone()).collect(),
        proxy: plan.route.proxy.as_ref().map(|proxy| schema_plan::Proxy {
            url: proxy.url.clone(),
            from: proxy.from.clone(),
            tunnel: proxy.tunnel.is_some(),
        }),
        haproxy_protocol: plan.route.haproxy.map(|version| version.name().to_owned()),
        connections: plan.connections,
        pipeline: plan.depth,
        per_connection: plan.per_connection,
        resend: plan.resend.name().to_owned(),
        requests: plan.stop.requests,
        duration_s: plan.stop.duration.map(|d| d.as_secs_f64()),
        loop_kind: loop_kind.to_owned(),
        rate,
        arrival: arrival.map(str::to_owned),
        threads: plan.threads,
        way: plan.way.name().to_owned(),
        io: plan.io.name().to_owned(),
        http: plan.http.version.name().to_owned(),
        interface: plan.interface.clone(),
        from: plan.from.iter().map(ToString::to_string).collect(),
        timeout_s: plan.timeout.as_secs_f64(),
        warm_up_s: plan.warm_up.as_secs_f64(),
        tag: plan.tag.clone(),
        throughput: plan.throughput,
        seed: plan.seed,
        order: if matches!(plan.order, Order::Weighted) { "weighted" } else { "listed" }.to_owned(),
        templates: plan.requests.iter().map(template).collect(),
        data: plan
            .data
            .iter()
            .map(|d| schema_plan::DataSet {
                name: d.name.clone(),
                columns: d.columns.clone(),
                rows: d.rows.len() as u64,
            })
            .collect(),
    }
}

fn pace(pace: &Pace) -> (&'static str, Option<Vec<schema_plan::RateStep>>, Option<&'static str>) {
    match pace {
        Pace::Closed => ("closed", None, None),
        Pace::Trace(_) => ("trace", None, None),
        Pace::Open { rate, arrival } => {
            let steps = rate.steps.iter().map(|s| schema_plan::RateStep {
                from_rps: s.from,
                to_rps: s.to,
                lasts_s: s.lasts.map(|d| d.as_secs_f64()),
            });
            let arrival = match arrival {
                Arrival::Constant => "constant",
                Arrival::Poisson => "poisson",
            };
            ("open", Some(steps.collect()), Some(arrival))
        }
    }
}

fn template(request: &linerate_load::plan::Request) -> schema_plan::Template {
    schema_plan::Template {
        name: request.name.clone(),
        weight: request.weight,
        method: request.method.clone(),
        path: request.path.clone(),
        headers: request.fields.iter().map(|(n, v)| (n.clone(), masked(n, v))).collect(),
        body_bytes: request.body.as_ref().map_or(0, |b| b.len() as u64),
        expect_status: request.expect.status.clone(),
        expect_body: request.expect.body.clone(),
        expect_trailer: request.expect.trailer.clone(),
    }
}

/// A field's value, unless it is a secret: results are passed around and kept.
fn masked(name: &str, value: &str) -> String {
    if is_secret(name) { "***".to_owned() } else { value.to_owned() }
}

/// Whether a field's value is a secret.
pub fn is_secret(name: &str) -> bool {
    let secret = ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password", "session"];
    let name = name.to_ascii_lowercase();
    secret.iter().any(|s| name.contains(s))
}

/// A time as RFC 3339 in UTC with milliseconds.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second_of_day) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
    let day = CalendarDay::at(days as i64);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

#[cfg(test)]
mod tests;
