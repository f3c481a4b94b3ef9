//! HTTP/2, with observations made up: our windows, the server's limit of streams, and what one lost
//! segment holds up.

use std::time::Duration;

use crate::call::{Call, ProbeResponse, ReceivedBytes, Streamed};
use crate::diagnosis::{Diagnosis, Whole};
use crate::passive::LateSegments;
use crate::planner::Planner;
use crate::probe::{CallProbe, Lane, Observation, Probe, Together};
use crate::record::Settings;
use crate::signs::streams::stops;

const RTT: f64 = 40.0;

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// A call over HTTP/2 with a response of this many bytes, which takes this long from its first to its last.
fn call(fresh: bool, n: usize, (body_bytes, receive): (u64, f64), limit: Option<u32>) -> Call {
    let noise = 0.1 * ((n * 7) % 5) as f64;
    let connect = if fresh { RTT } else { 0.0 };
    let total = connect + RTT + receive + noise;
    // In bursts, a round trip apart.
    let bursts = (receive / RTT).ceil().max(1.0);
    let received = |i: u32| ReceivedBytes {
        at: ms(total - receive + receive * f64::from(i) / bursts),
        bytes: (body_bytes as f64 / (bursts + 1.0)) as u32,
    };
    let mut call = Call {
        fresh,
        connect: ms(connect),
        wait: ms(RTT + noise),
        receive: ms(receive),
        total: ms(total),
        receives: (0..=bursts as u32).map(received).collect(),
        streamed: Some(Streamed { window: 65_535, most_streams: limit, their_window: 65_535 }),
        end: Some(Ok(ProbeResponse { status: 200, reusable: true, body_bytes, ..ProbeResponse::default() })),
        ..Call::default()
    };
    call.facts.min_rtt_us = (RTT * 1e3) as u32;
    (call.facts.data_segs_in, call.facts.data_segs_out) = (10, 2);
    call
}

/// The calls of a round at once, by their connection and their place on it.
type Round<'a> = &'a dyn Fn(usize, &Together, usize, usize) -> Call;

fn diagnose(window: u32, one: &dyn Fn(usize, &CallProbe, bool) -> Call, round: Round<'_>) -> Diagnosis {
    let settings = Settings { addresses: vec![([127, 0, 0, 2], 80).into()], window, ..Settings::default() };
    let mut planner = Planner::new(settings);
    let mut open = std::collections::HashSet::new();
    let (mut n, mut elapsed) = (0, Duration::ZERO);
    while let Some(probe) = planner.poll_probe(elapsed) {
        n += 1;
        let plain = CallProbe::plain(crate::probe::Experiment::Observe, 0, Lane::Fresh);
        let mut fresh = |probe: &CallProbe| match probe.lane {
            Lane::Fresh => true,
            Lane::Kept(lane) => open.insert(lane),
        };
        let observation = match &probe {
            Probe::Call(call) => Observation::Call(Box::new(one(n, call, fresh(call)))),
            Probe::SideBySide(lanes) => Observation::SideBySide(
                lanes.iter().map(|calls| calls.iter().map(|c| one(n, c, fresh(c))).collect()).collect(),
            ),
            Probe::Scattered(times) => {
                let kept = CallProbe::plain(crate::probe::Experiment::Scattered, 0, Lane::Kept(0));
                Observation::Scattered(times.iter().map(|_| one(n, &kept, false)).collect())
            }
            Probe::Burst(calls) => Observation::Burst((0..*calls).map(|_| one(n, &plain, true)).collect()),
            Probe::Together(t) => {
                let each = usize::from(t.calls / t.connections);
                let place = |i: usize| (i / each, i % each);
                let calls = |r: usize| {
                    (0..usize::from(t.calls)).map(|i| round(r, t, place(i).0, place(i).1)).collect()
                };
                Observation::Together((0..usize::from(t.rounds)).map(calls).collect())
            }
            Probe::Connect(_) => Observation::Connected(crate::probe::Connected {
                address: ([127, 0, 0, 2], 80).into(),
                took: ms(RTT),
                error: None,
                facts: linerate_net::instrument::Facts::default(),
            }),
            other => panic!("{other:?} is not needed here"),
        };
        elapsed += ms(5.0);
        planner.handle_observation(probe, observation);
    }
    planner.diagnose()
}

fn ids(d: &Diagnosis) -> Vec<&str> {
    d.causes.iter().map(|c| c.id()).collect()
}

fn nothing_at_once(_: usize, t: &Together, _: usize, _: usize) -> Call {
    panic!("{t:?} is not needed here")
}

const BODY: u64 = 300_000;

#[test]
fn a_small_window_is_proved_by_larger_ones() {
    let through = |n: usize, probe: &CallProbe, fresh: bool| {
        let window = u64::from(probe.window.unwrap_or(65_535));
        call(fresh, n, (BODY, 3.0 + RTT * stops(BODY, window)), Some(100))
    };
    let d = diagnose(65_535, &through, &nothing_at_once);
    assert_eq!(ids(&d), ["h2-flow-control"], "{d:#?}");
    let cause = &d.causes[0];
    assert_eq!(cause.proof().name(), "proved");
    assert!(cause.evidence().iter().any(|e| e.starts_with("dose-response")), "{:?}", cause.evidence());
    let predicted = cause.predicted().expect("a prediction");
    assert!((43.0..45.0).contains(&predicted.after.value), "{predicted:?}");
}

/// A slow line looks alike: a response as large takes as long, and larger windows change nothing.
#[test]
fn a_slow_line_is_no_small_window() {
    let slow = |n: usize, _: &CallProbe, fresh: bool| call(fresh, n, (BODY, 250.0), Some(100));
    let d = diagnose(65_535, &slow, &nothing_at_once);
    assert!(!ids(&d).contains(&"h2-flow-control"), "{d:#?}");
    assert!(d.ruled_out.iter().any(|r| r.cause.id == "h2-flow-control"), "{:?}", d.ruled_out);
    // Windows that are large enough: the cost for a client with the usual ones is reported.
    let d = diagnose(16 << 20, &|n, _, fresh| call(fresh, n, (BODY, 3.0), Some(100)), &nothing_at_once);
    assert!(d.limits.iter().any(|l| l.contains("--h2-window 65535 explains")), "{:?}", d.limits);
}

#[test]
fn calls_wait_for_a_stream() {
    let alone = |n: usize, _: &CallProbe, fresh: bool| call(fresh, n, (1000, 0.0), Some(2));
    let limited = |r: usize, _: &Together, _: usize, place: usize| {
        let turn = (place / 2) as f64 * RTT;
        let one = call(false, r + place, (1000, 0.0), Some(2));
        Call { queued: ms(turn), total: one.total + ms(turn), ..one }
    };
    let d = diagnose(16 << 20, &alone, &limited);
    assert_eq!(ids(&d), ["h2-stream-limit"], "{d:#?}");
    assert_eq!(d.causes[0].proof().name(), "proved");
    // A server that admits two, and works on one call at a time whatever the connection: both arms
    // wait alike.
    let busy = |r: usize, t: &Together, connection: usize, place: usize| {
        let turn = (connection * usize::from(t.calls / t.connections) + place) as f64 * 10.0;
        let one = call(false, r + place, (1000, 0.0), Some(2));
        Call { wait: one.wait + ms(turn), total: one.total + ms(turn), ..one }
    };
    let d = diagnose(16 << 20, &alone, &busy);
    assert!(!ids(&d).contains(&"h2-stream-limit"), "{d:#?}");
    // The usual limit needs no experiment.
    let d = diagnose(16 << 20, &|n, _, fresh| call(fresh, n, (1000, 0.0), Some(100)), &nothing_at_once);
    assert_eq!(d.whole, Whole::Healthy, "{d:#?}");
}

/// Each fourth call loses a segment.
fn lossy(n: usize, _: &CallProbe, fresh: bool) -> Call {
    let mut one = call(fresh, n, (10_000, 0.0), Some(100));
    if n.is_multiple_of(4) {
        one.facts.rcv_ooopack = 1;
        (one.receive, one.total) = (ms(RTT), one.total + ms(RTT));
    }
    one
}

/// In each round one segment is lost, that of the first call of a connection.
fn shared(held: bool) -> impl Fn(usize, &Together, usize, usize) -> Call {
    move |r: usize, t: &Together, connection: usize, place: usize| {
        let mut one = call(false, r + place, (10_000, 0.0), Some(100));
        let lost = connection == r % usize::from(t.connections);
        one.facts.rcv_ooopack = u32::from(lost);
        // The segments behind it had arrived, and could not be read.
        let behind = lost && place > 0 && held;
        if lost && (place == 0 || held) {
            (one.receive, one.total) = (ms(RTT), one.total + ms(RTT));
        }
        one.held_behind = ms(if behind { RTT - 1.0 } else { 0.0 });
        one
    }
}

/// Segments that others overtook hold calls up, too; the packets show that nothing was lost.
#[test]
fn an_overtaken_segment_is_no_lost_one() {
    let overtaken = |call: Call| Call {
        late: Some(LateSegments { overtaken: 1, ..LateSegments::default() })
            .filter(|_| call.facts.rcv_ooopack > 0),
        ..call
    };
    let d = diagnose(
        16 << 20,
        &|n, probe, fresh| overtaken(lossy(n, probe, fresh)),
        &|r, t, connection, place| overtaken(shared(true)(r, t, connection, place)),
    );
    assert!(ids(&d).contains(&"reordering") && !ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
}

#[test]
fn one_lost_segment_holds_up_all_streams() {
    let d = diagnose(16 << 20, &lossy, &shared(true));
    assert!(ids(&d).starts_with(&["packet-loss"]) && ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
    let cause = d.causes.iter().find(|c| c.id() == "h2-head-of-line").expect("named");
    assert_eq!(cause.proof().name(), "proved");
    // A loss that holds up the one call whose segment it was, wherever it is: as over HTTP/3.
    let d = diagnose(16 << 20, &lossy, &shared(false));
    assert!(!ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
    let why = d.ruled_out.iter().find(|r| r.cause.id == "h2-head-of-line").expect("ruled out");
    assert!(why.why.contains("10 of 10 rounds"), "{}", why.why);
    // Few calls were held up: it says how many more would tell.
    let rarely = |r: usize, _: &Together, connection: usize, place: usize| {
        let lost = r == 2 && connection == 0;
        let mut one = call(false, r + place, (10_000, 0.0), Some(100));
        one.facts.rcv_ooopack = u32::from(lost);
        one.held_behind = ms(if lost && place == 7 { RTT } else { 0.0 });
        one
    };
    let d = diagnose(16 << 20, &lossy, &rarely);
    assert!(!ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
    let unclear = d.limits.iter().find(|l| l.starts_with("h2-head-of-line: unclear")).expect("a word");
    assert!(unclear.contains("2 of 10 rounds") && unclear.ends_with(" more calls would tell"), "{unclear}");
    // As many calls that lost nothing are slow on a connection each: it is no matter of sharing one.
    let slow = |r: usize, t: &Together, connection: usize, place: usize| {
        let mut one = shared(true)(r, t, connection, place);
        if t.connections > 1 && connection >= 3 {
            one.total += ms(RTT);
            one.facts.rcv_ooopack = 0;
        }
        one.held_behind = ms(if t.connections == 1 && place >= 3 { RTT } else { 0.0 });
        one
    };
    let d = diagnose(16 << 20, &lossy, &slow);
    assert!(!ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
    // One stream at a time: nothing can wait behind another.
    let single = |n: usize, probe: &CallProbe, fresh: bool| {
        let streamed = Some(Streamed { window: 65_535, most_streams: Some(1), their_window: 65_535 });
        Call { streamed, ..lossy(n, probe, fresh) }
    };
    let d = diagnose(16 << 20, &single, &|r, t, _, place| {
        assert_eq!(t.experiment, crate::probe::Experiment::Streams);
        call(false, r + place, (10_000, 0.0), Some(1))
    });
    assert!(!ids(&d).contains(&"h2-head-of-line"), "{d:#?}");
}
