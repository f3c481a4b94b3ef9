//! Fixed data for this crate's tests.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use linerate_load::histogram::Histogram;
use linerate_load::outcome::{
    Bad, Bytes, ClientFigures, Connections, Failure, Failures, FineSample, Interval, Latency, PhysicalLine,
    Requests, Sample, SegmentCounts, SegmentEvent, Segments, Snapshot, Tcp, TcpEvents, Window,
};
use linerate_load::plan::check::CheckResult;
use linerate_load::plan::{
    Arrival, Expectation, Io, Order, Pace, Rate, RateStep, Request, Resend, Stop, Target, Way,
};
use linerate_load::{Outcome, Plan};

use crate::Environment;

pub(crate) fn checked(plan: &Plan, outcome: &Outcome) -> Vec<CheckResult> {
    plan.checks.iter().map(|check| check.evaluate(outcome)).collect()
}

pub(crate) fn environment() -> Environment {
    Environment {
        command: "linerate load http://127.0.0.1:8080/".to_owned(),
        version: "0.1.0".to_owned(),
        kernel: "Linux 6.18.0".to_owned(),
        cpus: 2,
        host: "bench".to_owned(),
    }
}

pub(crate) fn plan_closed() -> Plan {
    Plan {
        target: Target {
            url: "http://127.0.0.1:8080/".to_owned(),
            authority: "127.0.0.1:8080".to_owned(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
        },
        requests: vec![Request {
            name: "GET /".to_owned(),
            weight: 1.0,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            fields: vec![("Accept".to_owned(), "*/*".to_owned())],
            body: None,
            expect: Expectation::default(),
        }],
        order: Order::Weighted,
        data: Vec::new(),
        connections: 64,
        depth: 1,
        per_connection: None,
        stop: Stop { requests: None, duration: Some(Duration::from_secs(10)) },
        pace: Pace::Closed,
        threads: None,
        way: Way::Loop,
        io: Io::Auto,
        interface: None,
        busy_poll: None,
        pcap_out: None,
        fault: None,
        from: Vec::new(),
        timeout: Duration::from_secs(10),
        warm_up: Duration::ZERO,
        tag: None,
        resend: Resend::Idle,
        route: Default::default(),
        http: Default::default(),
        tls: None,
        throughput: false,
        checks: Vec::new(),
        abort_on: Vec::new(),
        flows: None,
        save_responses: 0,
        seed: 1,
    }
}

pub(crate) fn plan_open() -> Plan {
    let rate = Rate { steps: vec![RateStep { from: 5_000.0, to: 5_000.0, lasts: None }] };
    Plan { pace: Pace::Open { rate, arrival: Arrival::Poisson }, ..plan_closed() }
}

/// What some looks at connections found.
fn events(looks: u64) -> TcpEvents {
    TcpEvents {
        retransmits: 3,
        out_of_order: 1,
        rwnd_limited_us: 12_000,
        looks,
        peer_window_closed: 2,
        ..TcpEvents::default()
    }
}

/// Segments as a capture counts them.
pub(crate) fn segments() -> Segments {
    let mut segments = Segments { missed: 7, ..Segments::default() };
    (segments.sent, segments.received) = (SegmentCounts::nothing(), SegmentCounts::nothing());
    (segments.sent.segments, segments.received.segments) = (100_000, 120_000);
    segments.sent.add(SegmentEvent::Retransmission, 3);
    segments.sent.add(SegmentEvent::FastRetransmission, 1);
    segments.received.add(SegmentEvent::ZeroWindow, 33);
    segments.received.add(SegmentEvent::DuplicateAck, 1);
    segments
}

pub(crate) fn line(bits_per_second: u64) -> PhysicalLine {
    PhysicalLine { interface: "eth0".to_owned(), bits_per_second }
}

fn bell(centre_ns: u64, samples: u64) -> Histogram {
    let mut histogram = Histogram::new();
    for step in 0..20u64 {
        let distance = step.abs_diff(7);
        histogram.record(centre_ns * (step + 3) / 10, samples >> distance);
    }
    histogram
}

/// How long requests without a good response were waited for.
fn waited(requests: u64) -> Histogram {
    let mut histogram = Histogram::new();
    histogram.record(200_000, requests / 2);
    histogram.record(10_000_000_000, requests - requests / 2);
    histogram
}

fn window(answered: u64) -> Window {
    let bytes = Bytes { sent: 9_000_000, received: 80_000_000 };
    Window { answered, bytes, time: Duration::from_secs(10) }
}

/// Nothing in it deserves a warning.
pub(crate) fn quiet_outcome() -> Outcome {
    Outcome {
        started_at: Some(UNIX_EPOCH + Duration::from_millis(1_795_226_640_123)),
        duration: Duration::from_secs(10),
        window: window(100_000),
        arrived: 100_000,
        requests: Requests { sent: 100_000, answered: 100_000, ..Requests::default() },
        status: [(200, 100_000)].into(),
        bytes: Bytes { sent: 9_000_000, received: 80_000_000 },
        latency: Latency {
            from_due: None,
            from_sent: bell(100_000, 40_000),
            connect: bell(40_000, 30),
            tls: Histogram::new(),
            first_byte: bell(95_000, 40_000),
            ..Latency::default()
        },
        connections: Connections { opened: 64, ..Connections::default() },
        client: ClientFigures {
            cpu: Duration::from_millis(820),
            core_busy: 0.41,
            context_switches: 1_234,
            threads: 2,
            ..ClientFigures::default()
        },
        io: "epoll".to_owned(),
        ..Outcome::default()
    }
}

/// A bit of everything that can go wrong, consistent in itself.
pub(crate) fn outcome_closed() -> Outcome {
    let mut failures = Failures::default();
    failures.add(Failure::Timeout, 3);
    failures.add(Failure::Malformed, 2);
    failures.add(Failure::PortsExhausted, 5);
    failures
        .details
        .insert("malformed", "the answer is not HTTP: it begins with \"SSH-2.0-OpenSSH_9.2\"".to_owned());
    failures.details.insert("ports_exhausted", "127.0.0.1:8080".to_owned());
    failures.explain(Failure::Malformed, "the answer is not HTTP: it begins with \"SSH-2.0-OpenSSH_9.2\"", 2);
    failures.explain(Failure::PortsExhausted, "127.0.0.1:8080", 5);
    Outcome {
        requests: Requests {
            sent: 100_014,
            answered: 100_000,
            failed: 10,
            unknown: 4,
            resent: 900,
            unsent: 0,
            ..Requests::default()
        },
        bad: Bad { status: 20, body: 1, ..Bad::default() },
        failures,
        latency: Latency { waited: waited(35), ..quiet_outcome().latency },
        status: [(200, 99_980), (503, 20)].into(),
        connections: Connections {
            opened: 1_064,
            failed: 1,
            closed_by_peer: 1_000,
            requests_resent: 900,
            learnt_limit: Some(100),
            learnt_on: 12,
            ..Connections::default()
        },
        tcp: Tcp {
            retransmits: 3,
            out_of_order: 1,
            zero_window_us: 12_000,
            rtt_min_us: Some(21),
            looked_at: 1_064,
            overrun: 0,
            stack: None,
            events: events(640),
            segments: None,
        },
        client: ClientFigures {
            cpu: Duration::from_millis(9_700),
            core_busy: 0.99,
            run_queue_wait: Duration::from_millis(2_000),
            context_switches: 1_234,
            threads: 1,
            saturated: true,
            reason: Some("its one core was busy 99 % of the time".to_owned()),
            ..ClientFigures::default()
        },
        series_fine: (1u32..=4)
            .map(|i| FineSample {
                t_s: f64::from(i) * 2.5,
                answered: u64::from(i) * 25_000,
                failed: u64::from(i) * 2,
                bytes_sent: u64::from(i) * 1_000_000,
                bytes_received: u64::from(i) * 3_000_000,
                in_flight: (i < 4).then_some(64),
                client_cpu_s: Some(f64::from(i) * 2.4),
                ..FineSample::default()
            })
            .collect(),
        series: (1..=10)
            .map(|i| Interval {
                t_s: f64::from(i),
                rate_rps: 10_000.0 + f64::from(i % 3) * 500.0,
                p50_us: Some(100.0),
                p99_us: Some(180.123_4),
                failed: 1,
                tcp: if i == 4 { events(64) } else { TcpEvents { looks: 64, ..TcpEvents::default() } },
                segments: None,
                bytes: Bytes { sent: 400_000, received: 1_200_000 },
                client_busy: Some(0.97),
                spread: [(66, 9_000), (67, 1_000), (69, 40)].into_iter().collect(),
                ..Interval::default()
            })
            .collect(),
        samples: vec![
            Sample {
                due_us: 1_500.5,
                latency_us: Some(912.25),
                status: Some(503),
                why: "bad status".to_owned(),
                request: "GET /".to_owned(),
                head: "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n".to_owned(),
                body: String::new(),
                sent: String::new(),
            },
            Sample {
                due_us: 9_000.0,
                latency_us: None,
                status: None,
                why: "timeout".to_owned(),
                request: "GET /".to_owned(),
                head: String::new(),
                body: String::new(),
                sent: String::new(),
            },
        ],
        ..quiet_outcome()
    }
}

pub(crate) fn outcome_open() -> Outcome {
    let quiet = quiet_outcome();
    let mut lateness = Histogram::new();
    lateness.record(20_000, 100_000);
    Outcome {
        latency: Latency { from_due: Some(bell(300_000, 40_000)), ..quiet.latency.clone() },
        client: ClientFigures { lateness, ..quiet.client.clone() },
        ..quiet
    }
}

pub(crate) fn snapshot() -> Snapshot {
    let full = outcome_closed();
    Snapshot {
        by_name: Default::default(),
        overdue: 0,
        elapsed: Duration::from_millis(4_200),
        measuring: true,
        measured: Duration::from_millis(4_200),
        requests: Requests { sent: 42_064, answered: 42_000, failed: 10, ..Requests::default() },
        bad: full.bad,
        failures: full.failures.clone(),
        status: [(200, 41_980), (503, 20)].into(),
        in_flight: 64,
        open: 64,
        bytes: Bytes { sent: 4_000_000, received: 34_000_000 },
        stack: None,
        connections: full.connections,
        cores: Vec::new(),
        tcp: events(256),
        looked_at: 64,
        segments: None,
        latency: bell(100_000, 40_000),
        waited: waited(35),
        series: full.series[..4].to_vec(),
        old: None,
        machines: Vec::new(),
    }
}
