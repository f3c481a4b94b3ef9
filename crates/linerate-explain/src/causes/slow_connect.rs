//! Opening a connection takes much longer than a round trip on it, and no SYN is lost: something on the
//! way holds SYNs or SYN-ACKs back.
//!
//! Evidence: the kernel's round trip of the handshake, which involves no server program, beside what
//! a whole call waits on the connection. Nearly all handshakes are so slow: a queue or a radio delays
//! some.

use super::{bufferbloat, path_jitter, syn_loss, time_wait};
use crate::call::{Call, ms};
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Probe};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule};
use crate::signs::path;
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "slow-connect",
    title: "opening a connection takes much longer than a round trip on it, and no SYN is lost",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[&syn_loss::CAUSE, &time_wait::CAUSE, &bufferbloat::CAUSE, &path_jitter::CAUSE],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "Opening a connection takes far longer than a round trip on one that stands, though no SYN is lost. Something on the way treats the first packets of a \
         connection in another way than all later ones: a firewall that asks somebody, a SYN proxy, a tunnel or a radio that has to wake up first.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::Wait(400.0, "held on the way"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::Then(20.0, "a round trip"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "macOS, Windows",
        "endpoint protection and content filters look at each new connection: test without them",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "firewalls, load balancers",
        change: "SYN proxies and SYN authentication, rules that ask another system for each new connection, limits that delay instead of dropping",
    },
    RuleFix {
        software: "the path",
        change: "tcptraceroute (or traceroute -T -p PORT) shows from which hop on a SYN takes that long and other packets do not; tunnels and radios that wake up for the first packet",
    },
    RuleFix {
        software: "any client",
        change: "keep connections, so that the handshake is paid once; open them before they are needed",
    },
];

/// Time that a handshake takes beyond a round trip, milliseconds.
const BEYOND_MS: f64 = 20.0;
/// The same in round trips, which are added.
const BEYOND_TRIPS: f64 = 1.0;
/// Handshakes that make it plain.
const ENOUGH: usize = 6;

/// Handshakes; and the round trip on connections that stand: what the quickest calls wait in the middle,
/// or less where the kernel counted less.
fn seen(record: &Record) -> Option<(Vec<f64>, f64)> {
    let times = path::handshakes(record);
    let reused = record.reused();
    if record.is_loopback() || times.len() < 2 || reused.len() < 2 {
        return None;
    }
    let counted: Vec<f64> =
        reused.iter().map(|c| f64::from(c.facts.min_rtt_us) / 1e3).filter(|rtt| *rtt > 0.0).collect();
    let wait = median_of(&reused, |c: &Call| c.wait);
    Some((times, if counted.is_empty() { wait } else { wait.min(median(&counted)) }))
}

fn is_slow(took: f64, rtt: f64) -> bool {
    took - rtt >= BEYOND_MS + BEYOND_TRIPS * rtt
}

/// More handshakes where the first ones are slow.
fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let Some((times, rtt)) = seen(record).filter(|_| record.settings.may_repeat && !judged.hides_it()) else {
        return Vec::new();
    };
    let sign = is_slow(median(&times), rtt) && times.len() < ENOUGH;
    if sign { vec![vec![Probe::Connect(record.chosen()); ENOUGH - times.len()]] } else { Vec::new() }
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let Some((times, rtt)) = seen(record).filter(|_| !judged.hides_it()) else { return Judgement::Silent };
    let slow = times.iter().filter(|t| is_slow(**t, rtt)).count();
    if 4 * slow < 3 * times.len() {
        return Judgement::Silent;
    }
    let cost = median(&times) - rtt;
    let words = format!(
        "{slow} of {} handshakes, which take no server program, took {} in the middle (by our kernel's count), and a round trip on a \
         connection that stands takes {}; no SYN was sent again",
        times.len(),
        say(median(&times)),
        say(rtt)
    );
    let first = record.fresh().iter().map(|c| ms(c.total)).fold(f64::INFINITY, f64::min);
    let all = times.len() >= ENOUGH && slow == times.len();
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: if all { 1.0 } else { 0.5 } });
    Judgement::Named(Box::new(verdict.saying(format!(
        "a call on a new connection takes {} at least, one on a kept connection {}",
        say(first),
        say(record.typical(|c| c.total))
    ))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::ProbeResponse;
    use crate::probe::{CallProbe, Experiment, Lane, Observation};
    use crate::record::Settings;
    use crate::rule::Judgements;

    const fn other(id: &'static str) -> Cause {
        Cause { id, ..Cause::BLANK }
    }

    /// Connections that are opened in so long, and calls that wait so long on them.
    fn judged(connects: &[f64], wait: f64) -> Judgement {
        static OTHERS: [Cause; 4] =
            [other("syn-loss"), other("time-wait-collision"), other("bufferbloat"), other("path-jitter")];
        let t = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let mut record =
            Record::new(Settings { addresses: vec![([192, 0, 2, 1], 80).into()], ..Settings::default() });
        let mut push = |fresh: bool, connect: f64| {
            let end = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
            let mut call = Call {
                fresh,
                connect: t(connect),
                wait: t(wait),
                total: t(connect + wait),
                end,
                ..Call::default()
            };
            call.facts.min_rtt_us = 20_000;
            let lane = if fresh { Lane::Fresh } else { Lane::Kept(0) };
            let probe = CallProbe::plain(Experiment::Observe, 0, lane);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        };
        connects.iter().for_each(|connect| push(true, *connect));
        (0..4).for_each(|_| push(false, 0.0));
        let mut all: Vec<&'static Cause> = OTHERS.iter().collect();
        all.push(&CAUSE);
        Judgements::new(&record, &all).of("slow-connect").clone()
    }

    #[test]
    fn a_handshake_that_takes_longer_than_a_round_trip_is_held_back() {
        let Judgement::Named(verdict) = judged(&[420.0, 421.0, 420.5, 420.2, 422.0, 420.1], 21.0) else {
            unreachable!("400 ms more than a round trip")
        };
        assert!((verdict.cost_ms() - 400.0).abs() < 5.0, "{verdict:?}");
        assert!(matches!(judged(&[20.1, 20.3, 20.2, 20.4], 21.0), Judgement::Silent));
        // Some are late, as behind a radio.
        assert!(matches!(judged(&[20.1, 90.3, 20.2, 80.4], 21.0), Judgement::Silent));
    }
}
