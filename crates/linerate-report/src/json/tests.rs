use super::*;
use crate::schema::outcome::Document;
use crate::testing;
use linerate_load::{Outcome, Plan};

fn written(plan: &Plan, outcome: &Outcome) -> String {
    let environment = testing::environment();
    let checks = testing::checked(plan, outcome);
    to_string(&Report { plan, outcome, checks: &checks, environment: &environment })
}

fn read(plan: &Plan, outcome: &Outcome) -> Document {
    serde_json::from_str(&written(plan, outcome)).expect("our own document")
}

fn checks() -> Vec<Check> {
    ["p99<50ms", "errors<0.01%"].map(|expr| Check::parse(expr).expect("a check")).to_vec()
}

#[test]
fn the_whole_document() {
    let plan = Plan { checks: checks(), ..testing::plan_closed() };
    insta::assert_snapshot!(written(&plan, &testing::outcome_closed()));
}

#[test]
fn the_counts_add_up() {
    for (plan, outcome) in [
        (testing::plan_closed(), testing::outcome_closed()),
        (testing::plan_closed(), testing::quiet_outcome()),
        (testing::plan_open(), testing::outcome_open()),
        (testing::plan_closed(), Outcome::default()),
    ] {
        let d = read(&plan, &outcome);
        assert_eq!(d.schema, "linerate.outcome/1");
        assert_eq!(d.requests.sent, d.requests.answered + d.requests.failed + d.requests.unknown);
        assert_eq!(d.failures.values().sum::<u64>(), d.requests.failed);
        assert_eq!(d.failures.len(), Failure::ALL.len());
        assert_eq!(d.status.values().sum::<u64>(), d.requests.answered);
    }
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let plan = Plan { checks: checks(), ..testing::plan_open() };
    let d = read(&plan, &testing::outcome_open());
    let again: Document = serde_json::from_str(&serde_json::to_string(&d).expect("json")).expect("ours");
    assert_eq!(again, d);
}

/// Names that scripts rely on.
const CONTRACT: &[&str] = &[
    "/schema",
    "/target",
    "/plan",
    "/started_at",
    "/duration_s",
    "/rate_rps",
    "/requests/sent",
    "/requests/answered",
    "/requests/failed",
    "/requests/unknown",
    "/requests/resent",
    "/requests/unsent",
    "/bad/status",
    "/bad/body",
    "/failures/connect",
    "/failures/timeout",
    "/failures/reset",
    "/failures/closed_early",
    "/failures/malformed",
    "/failures/ports_exhausted",
    "/status",
    "/bytes/sent",
    "/line",
    "/bytes/received",
    "/latency_us/from_due",
    "/latency_us/from_sent/count",
    "/latency_us/from_sent/min",
    "/latency_us/from_sent/mean",
    "/latency_us/from_sent/p50",
    "/latency_us/from_sent/p90",
    "/latency_us/from_sent/p95",
    "/latency_us/from_sent/p99",
    "/latency_us/from_sent/p999",
    "/latency_us/from_sent/p9999",
    "/latency_us/from_sent/max",
    "/latency_us/connect/count",
    "/latency_us/first_byte/count",
    "/connections/opened",
    "/connections/closed_by_peer",
    "/connections/requests_resent",
    "/tcp/retransmits",
    "/tcp/out_of_order",
    "/tcp/zero_window_ms",
    "/tcp/rtt_min_us",
    "/tcp/rwnd_limited_ms",
    "/tcp/sndbuf_limited_ms",
    "/tcp/duplicates_reported",
    "/tcp/reordered",
    "/tcp/looked_at",
    "/tcp/looks",
    "/tcp/peer_window_closed",
    "/tcp/own_window_closed",
    "/tcp/segments",
    "/client/cpu_s",
    "/client/core_busy",
    "/client/cpu_us_per_request",
    "/client/context_switches",
    "/client/lateness_us_p99",
    "/client/saturated",
    "/client/reason",
    "/series",
    "/checks",
    "/warnings",
    "/requests_by_name",
    "/samples",
    "/histogram",
    "/environment/command",
    "/environment/version",
    "/environment/kernel",
    "/environment/cpus",
    "/environment/io",
];

#[test]
fn every_name_of_the_contract_is_there_even_when_nothing_happened() {
    let value: serde_json::Value =
        serde_json::from_str(&written(&testing::plan_closed(), &Outcome::default())).expect("json");
    for path in CONTRACT {
        assert!(value.pointer(path).is_some(), "{path}");
    }
}

#[test]
fn only_an_open_loop_has_a_latency_from_due_and_a_lateness() {
    let closed = read(&testing::plan_closed(), &testing::outcome_closed());
    assert_eq!(closed.latency_us.from_due, None);
    assert_eq!(closed.client.lateness_us_p99, None);
    let open = read(&testing::plan_open(), &testing::outcome_open());
    let (due, sent) = (open.latency_us.from_due.expect("due"), open.latency_us.from_sent.expect("sent"));
    assert!(due.p50 > sent.p50);
    assert!((open.client.lateness_us_p99.expect("late") - 20.0).abs() < 0.1);
}

#[test]
fn segments_are_told_by_who_counted_them() {
    let mut outcome = testing::outcome_closed();
    outcome.tcp.segments = Some(testing::segments());
    outcome.series[3].segments = Some(testing::segments());
    let d = read(&testing::plan_closed(), &outcome);
    let told = d.tcp.segments.expect("counted");
    assert_eq!((told.source.as_str(), told.missed), ("capture", 7));
    assert_eq!(told.received.events["zero_window"], 33);
    assert_eq!(told.sent.events.len(), 8, "all are counted by a capture");
    assert_eq!(d.series[3].segments.as_ref(), Some(&told));
    let text = written(&testing::plan_closed(), &outcome);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value.pointer("/tcp/segments/sent/segments"), Some(&100_000.into()));
    assert_eq!(value.pointer("/tcp/segments/sent/retransmission"), Some(&3.into()));
    assert_eq!(value.pointer("/series/3/tcp/peer_window_closed"), Some(&2.into()));
    outcome.tcp.stack = Some(Default::default());
    let d = read(&testing::plan_closed(), &outcome);
    assert_eq!(d.tcp.segments.map(|s| s.source), Some("stack".to_owned()));
}

#[test]
fn the_share_of_the_line() {
    let mut outcome = testing::quiet_outcome();
    assert_eq!(read(&testing::plan_closed(), &outcome).line, None);
    outcome.line = Some(testing::line(1_000_000_000));
    let line = read(&testing::plan_closed(), &outcome).line.expect("known");
    // 80 MB and 9 MB in 10 s.
    assert_eq!((line.interface.as_str(), line.received_share, line.sent_share), ("eth0", 0.064, 0.007_2));
}

#[test]
fn throughput_tells_no_latencies() {
    let plan = Plan { throughput: true, ..testing::plan_closed() };
    let d = read(&plan, &testing::outcome_closed());
    assert_eq!((d.latency_us.from_sent, d.latency_us.first_byte, d.histogram), (None, None, None));
    assert!(d.samples.iter().all(|s| s.latency_us.is_none()));
    assert!(d.series.iter().all(|i| i.p50_us.is_none() && i.p99_us.is_none()));
}

#[test]
fn the_histogram_decodes_to_the_same_distribution_in_microseconds() {
    for (plan, outcome) in
        [(testing::plan_closed(), testing::outcome_closed()), (testing::plan_open(), testing::outcome_open())]
    {
        let d = read(&plan, &outcome);
        let bytes =
            base64::engine::general_purpose::STANDARD.decode(d.histogram.expect("there")).expect("base64");
        let decoded: hdrhistogram::Histogram<u64> = hdrhistogram::serialization::Deserializer::new()
            .deserialize(&mut &bytes[..])
            .expect("V2 deflate");
        let meant = d.latency_us.answered.expect("good responses");
        assert_eq!(decoded.len(), meant.count);
        let p99 = decoded.value_at_quantile(0.99) as f64;
        assert!((p99 - meant.p99.expect("p99")).abs() <= 1.0 + p99 / 1_000.0);
    }
}

#[test]
fn secrets_stay_out() {
    let mut plan = testing::plan_closed();
    plan.requests[0].fields.push(("authorization".to_owned(), "Basic c2VjcmV0".to_owned()));
    assert!(!written(&plan, &testing::quiet_outcome()).contains("c2VjcmV0"));
}

#[test]
fn times_are_rfc_3339() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (1_709_251_199, "2024-02-29T23:59:59.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        (1_798_761_599, "2026-12-31T23:59:59.000Z"),
    ] {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
    }
}
