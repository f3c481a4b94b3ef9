//! The server behind a proxy closes idle connections sooner than the proxy does, and a request that the
//! proxy sends just then is lost.
//!
//! Experiment, with `--origin` and time enough (`--budget`): how long the server behind keeps an idle
//! connection; then calls through the proxy that reach it just before that time, each after another pause,
//! against calls in its middle. Calls that a busy machine made too late tell nothing: then it is done again.

use std::time::Duration;

use crate::call::{Call, Why, ms};
use crate::evidence::Grounds;
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Observation, OriginIdleLimit, Probe, Variation};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::stats::{median, more_often};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "idle-limit-order",
    title: "the server behind the proxy closes idle connections sooner than the proxy, and requests sent just then are lost",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::Unequal,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "A proxy or balancer keeps connections to the server behind it, to use them again. If the server closes an idle one first (Node after 5 s, gunicorn after 2 s, \
         balancers after 60 s), a request that is on the way meets a closed door: the caller gets 502, or no answer. It happens seldom, after pauses, and no \
         log of the server has it. Each limit must be longer than that of the hop in front of it.",
    lanes: ["proxy", "server"],
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer"),
        PictureStep::Then(5000.0, "idle"),
        PictureStep::From("FIN: the server closes"),
        PictureStep::LostTo("too late: the caller gets 502"),
    ],
    more: &[fix(
        "Kubernetes",
        "the ingress' upstream keep-alive time-out below that of the pods; a preStop pause, so that pods end later than their connections",
    )],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Node",
        change: "server.keepAliveTimeout (5 s) above the balancer's limit: 65_000 for 60 s; headersTimeout above that",
    },
    RuleFix { software: "gunicorn", change: "--keep-alive (2 s) above the proxy's limit: 75" },
    RuleFix {
        software: "Apache httpd",
        change: "KeepAliveTimeout (5 s) above the proxy's limit; as a proxy: ttl= of ProxyPass below the server's",
    },
    RuleFix {
        software: "nginx",
        change: "as a proxy: keepalive_timeout in the upstream block below the server's",
    },
    RuleFix {
        software: "HAProxy",
        change: "retry-on conn-failure empty-response; pool-purge-delay below the server's limit",
    },
    RuleFix {
        software: "any balancer",
        change: "its idle time-out towards servers below theirs (ALB: 60 s, and the server more)",
    },
];

/// Time for all from which on it is tried: it takes twice the server's limit.
const ON_DEMAND: Duration = Duration::from_secs(30);
/// Share of it that the server is watched for.
const WATCHED: u32 = 4;
/// The longest it is. Reason: 60 s is the usual limit of balancers.
const MOST: Duration = Duration::from_secs(65);
/// How long before the limit calls reach the proxy, tenths of milliseconds. Reason: what is lost is what is
/// sent in the last round trip between the proxy and the server, and how long that takes is not known; a busy
/// machine makes calls some tens of milliseconds late.
const BEFORE: [u64; 16] = [5, 10, 20, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560];
/// How often it is done, where calls were late or few were lost.
const ROUNDS: usize = 3;
/// From this share of the calls on that were made too late it is done again.
const LATE: f64 = 0.25;
/// Calls in the middle of the limit.
const MIDDLE: u8 = 4;
/// How likely chance may be to have done it.
const CHANCE: f64 = 0.01;

fn limit(record: &Record) -> Option<&OriginIdleLimit> {
    record.entries().iter().find_map(|(_, seen)| match seen {
        Observation::IdleLimit(limit) => Some(&**limit),
        _ => None,
    })
}

/// Calls just before the limit, each with how long its connection had been idle before it.
fn near(record: &Record) -> Vec<(Duration, &Call)> {
    let mut near = Vec::new();
    let mut before: Option<&Call> = None;
    for (probe, call) in record.calls().filter(|(p, _)| p.experiment == Experiment::IdleOrder && p.arm == 1) {
        if probe.pause.is_zero() {
            before = Some(call);
        } else if let Some(first) = before.take()
            && !call.failure().is_some_and(|f| f.why == Why::Cut)
        {
            let begun = u64::try_from(call.began_ns.saturating_sub(first.began_ns)).unwrap_or(0);
            near.push((Duration::from_nanos(begun).saturating_sub(first.total), call));
        }
    }
    near
}

/// Whether calls are to be made at the limit: not yet, or they were late, or too few of them were lost to
/// exclude chance.
fn is_wanted(record: &Record) -> bool {
    let Some(closed) = limit(record).and_then(|limit| limit.closed) else { return false };
    let near = near(record);
    let rounds = near.len().div_ceil(BEFORE.len());
    if rounds == 0 {
        return !record.tried(Experiment::IdleOrder);
    }
    let late = near.iter().filter(|(idle, _)| *idle >= closed).count() as f64 > LATE * near.len() as f64;
    let lost = near.iter().any(|(_, call)| is_lost(call));
    let unclear = if lost { chance(record).is_some_and(|chance| chance > CHANCE) } else { late };
    rounds < ROUNDS && unclear && !record.given_up.contains(&Experiment::IdleOrder)
}

/// Calls elsewhere, and how many of them were lost.
fn elsewhere(record: &Record) -> (usize, usize) {
    let near = |p: &CallProbe| p.experiment == Experiment::IdleOrder && p.arm == 1 && !p.pause.is_zero();
    let others = record.calls().filter(|(p, c)| {
        p.variation == Variation::None && !near(p) && !c.failure().is_some_and(|f| f.why == Why::Cut)
    });
    others.fold((0, 0), |(all, lost), (_, c)| (all + 1, lost + usize::from(is_lost(c))))
}

/// How likely it is that as many are lost at the limit by chance.
fn chance(record: &Record) -> Option<f64> {
    let (near, (others, elsewhere)) = (near(record), elsewhere(record));
    let lost = near.iter().filter(|(_, call)| is_lost(call)).count();
    (!near.is_empty()).then(|| more_often(lost, near.len(), elsewhere, others))
}

fn wants(record: &Record) -> Vec<Block> {
    let settings = &record.settings;
    if settings.origin.is_none() || !settings.may_repeat || settings.budget < ON_DEMAND {
        return Vec::new();
    }
    let Some(limit) = limit(record) else {
        return vec![vec![Probe::IdleLimit(MOST.min(settings.budget / WATCHED))]];
    };
    let Some(closed) = limit.closed.filter(|_| is_wanted(record)) else {
        return Vec::new();
    };
    let way = Duration::from_secs_f64(record.rtt_ms() / 1e3);
    let lane = |n: usize, arm: u8, idle: Duration| {
        let lane = Lane::Kept(Experiment::IdleOrder.first_lane() + n as u8);
        let first =
            CallProbe { writes: settings.writes, ..CallProbe::plain(Experiment::IdleOrder, arm, lane) };
        // The proxy's connection is idle while both ways to us are gone, too.
        let later = CallProbe { pause: idle.saturating_sub(way), ..first.clone() };
        vec![first, later]
    };
    let before = BEFORE.iter().map(|tenths| closed.saturating_sub(Duration::from_micros(100 * tenths)));
    let middle = (0..MIDDLE).map(|_| closed / 2);
    let lanes = before.map(|idle| (1, idle)).chain(middle.map(|idle| (0, idle)));
    vec![vec![Probe::SideBySide(lanes.enumerate().map(|(n, (arm, idle))| lane(n, arm, idle)).collect())]]
}

/// A gateway's word that the server behind did not answer, or none at all.
fn is_lost(call: &Call) -> bool {
    let closed = |why| matches!(why, Why::Reset | Why::ClosedEarly | Why::TimedOut);
    call.answer().is_some_and(|a| matches!(a.status, 502..=504))
        || call.failure().is_some_and(|f| closed(f.why))
}

fn judge(record: &Record) -> Judgement {
    let Some(limit) = limit(record) else { return Judgement::Silent };
    if limit.call.answer().is_none() {
        return Judgement::Silent;
    }
    let Some(closed) = limit.closed else {
        return Judgement::Open(format!(
            "a note and no cause: the server behind (--origin) keeps an idle connection for more than {}; the proxy's limit towards it must be shorter \
             than the server's",
            say(ms(limit.watched))
        ));
    };
    let near = near(record);
    let Some(chance) = chance(record) else { return Judgement::Silent };
    let (others, elsewhere) = elsewhere(record);
    let lost: Vec<&(Duration, &Call)> = near.iter().filter(|(_, call)| is_lost(call)).collect();
    let late = near.iter().filter(|(idle, _)| *idle >= closed).count();
    let words = format!(
        "{} of {} calls that the proxy got just before the server behind closes an idle connection (after {}) got 502, 503, 504 or no answer; of {} \
         others {elsewhere}",
        lost.len(),
        near.len(),
        say(ms(closed)),
        others
    );
    if lost.is_empty() || elsewhere > 0 && chance > CHANCE {
        let late = match late {
            0 => String::new(),
            late => format!(" ({late} of them came after that, by this machine's fault)"),
        };
        return Judgement::Open(format!(
            "unclear: {words}{late}; the proxy's limit towards that server must be shorter, or it sends such calls again"
        ));
    }
    let pauses = lost.iter().map(|(idle, _)| ms(*idle));
    let (least, most) =
        pauses.fold((f64::INFINITY, 0.0_f64), |(low, high), idle| (low.min(idle), high.max(idle)));
    let cost = median(&lost.iter().map(|(_, call)| ms(call.total)).collect::<Vec<_>>());
    let grounds = match chance <= CHANCE {
        true => Grounds::Counted { words, share: 1.0 },
        false => Grounds::Seen { words, alone: true },
    };
    let after = record.typical(|c| c.total);
    let verdict = Verdict::new(&CAUSE, cost + after, grounds).failing();
    let verdict = verdict.saying(format!(
        "those were lost whose connection had been idle for {} to {}",
        say(least),
        say(most)
    ));
    Judgement::Named(Box::new(verdict.saying("a caller has to make such a call once more, if it may")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallStage, Failure, ProbeResponse};
    use crate::evidence::Proof;
    use crate::record::Settings;

    fn asked(budget: u64) -> Record {
        let budget = Duration::from_secs(budget);
        Record::new(Settings { origin: Some("http://a/".to_owned()), budget, ..Settings::default() })
    }

    fn call(end: Result<u16, Why>) -> Call {
        let end = match end {
            Ok(status) => Ok(ProbeResponse { status, reusable: true, ..ProbeResponse::default() }),
            Err(why) => Err(Failure { stage: CallStage::Wait, why, words: "closed".to_owned() }),
        };
        Call { total: Duration::from_millis(1), end: Some(end), ..Call::default() }
    }

    /// The judgement where the server behind closes after 5 s, and calls just before get these.
    fn judged(near: &[Result<u16, Why>], usual: u16) -> Judgement {
        judge(&recorded(near, usual, Duration::ZERO))
    }

    /// The same, with calls that come so late.
    fn recorded(near: &[Result<u16, Why>], usual: u16, late_by: Duration) -> Record {
        let mut record = asked(40);
        for _ in 0..16 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call(Ok(usual)))));
        }
        let [first] = &wants(&record)[..] else { unreachable!("one block") };
        assert_eq!(first[0], Probe::IdleLimit(Duration::from_secs(10)));
        let closed = Some(Duration::from_secs(5));
        let seen = OriginIdleLimit { call: call(Ok(200)), closed, watched: Duration::from_secs(5) };
        record.push(first[0].clone(), Observation::IdleLimit(Box::new(seen)));
        let [block] = &wants(&record)[..] else { unreachable!("one block") };
        let [Probe::SideBySide(lanes)] = &block[..] else { unreachable!("side by side") };
        assert_eq!(lanes[3][1].pause, Duration::from_millis(4_996));
        let mut near = near.iter().cycle();
        let calls = lanes.iter().map(|lane| {
            let late = if lane[1].arm == 1 { near.next().copied() } else { None };
            let begun = (lane[1].pause + late_by).as_nanos();
            let began_ns = i64::try_from(begun).expect("some seconds");
            vec![call(Ok(usual)), Call { began_ns, ..call(late.unwrap_or(Ok(usual))) }]
        });
        let calls = Observation::SideBySide(calls.collect());
        record.push(block[0].clone(), calls);
        record
    }

    #[test]
    fn it_is_done_again_where_the_machine_was_late() {
        let (fine, lost) = ([Ok(200)], [Ok(502)]);
        let late = Duration::from_millis(300);
        let again = recorded(&fine, 200, late);
        assert_eq!((wants(&again).len(), near(&again).len()), (1, BEFORE.len()));
        assert!(wants(&recorded(&fine, 200, Duration::ZERO)).is_empty(), "all of them were in time");
        assert!(wants(&recorded(&lost, 200, late)).is_empty(), "it is proved");
        let one = std::iter::once(Ok(502)).chain(std::iter::repeat_n(Ok(200), 15)).collect::<Vec<_>>();
        assert_eq!(wants(&recorded(&one, 200, Duration::ZERO)).len(), 1, "one of 16 may be chance");
        let words = judge(&again);
        assert!(
            matches!(&words, Judgement::Open(words) if words.contains("(16 of them came after that")),
            "{words:?}"
        );
    }

    #[test]
    fn calls_that_are_lost_at_the_limit_alone_prove_it() {
        for lost in [Ok(502), Err(Why::Reset), Err(Why::ClosedEarly)] {
            let proved = judged(&[lost, Ok(200)], 200);
            assert!(
                matches!(&proved, Judgement::Named(v) if v.proof() == Proof::Proved && v.fails()),
                "{proved:?}"
            );
            let one = std::iter::once(lost).chain(std::iter::repeat_n(Ok(200), 15)).collect::<Vec<_>>();
            let one = judged(&one, 200);
            assert!(matches!(&one, Judgement::Named(v) if v.proof() == Proof::Likely), "{one:?}");
        }
        for (near, usual) in [(Ok(200), 200), (Ok(502), 502), (Ok(500), 200), (Err(Why::Cut), 200)] {
            let judged = judged(&[near], usual);
            assert!(!matches!(judged, Judgement::Named(_)), "{judged:?}");
        }
    }

    #[test]
    fn it_is_tried_on_demand_alone() {
        assert!(wants(&asked(15)).is_empty());
        let nobody = Record::new(Settings { budget: Duration::from_secs(60), ..Settings::default() });
        assert!(wants(&nobody).is_empty());
    }
}
