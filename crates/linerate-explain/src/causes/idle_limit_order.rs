//! The server behind a proxy closes idle connections sooner than the proxy does, and a request that the
//! proxy sends just then is lost.
//!
//! Experiment, with `--origin` and time enough (`--budget`): how long the server behind keeps an idle
//! connection; then calls through the proxy that reach it just before that time, each after another pause,
//! against calls in its middle. A proxy may have one connection for all of them, and then only the first
//! call of a round meets an old one: each round begins at another time before the limit, and the calls in
//! the middle have a round of their own. Calls that a busy machine made too late tell nothing.

use std::time::Duration;

use crate::call::{Call, Why, ms};
use crate::evidence::Grounds;
use crate::limits::MARGIN;
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
/// Rounds, each with so many of these pauses: it begins 256, 64, 16, 128 and 32 ms before the limit.
const ROUNDS: [usize; 5] = [16, 12, 8, 14, 10];
/// Share of the time until which another round may end.
const ROUNDS_UNTIL: f64 = 0.8;
/// From this share of the calls on that were made too late, nothing is known of those in time.
const LATE: f64 = 0.25;
/// Calls in the middle of the limit.
const MIDDLE: usize = 4;
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
    for (probe, call) in record.calls().filter(|(p, _)| is_near(p)) {
        if probe.pause.is_zero() {
            before = Some(call);
        } else if let Some(first) = before.take().filter(|first| first.answer().is_some())
            && !call.failure().is_some_and(|f| f.why == Why::Cut)
        {
            let begun = u64::try_from(call.began_ns.saturating_sub(first.began_ns)).unwrap_or(0);
            near.push((Duration::from_nanos(begun).saturating_sub(first.total), call));
        }
    }
    near
}

/// A call just before the limit, or the one before it.
fn is_near(probe: &CallProbe) -> bool {
    probe.experiment == Experiment::IdleOrder && probe.arm == 1
}

/// How many calls the next round has; `None`: it is proved, or there was no other round, or no time for it.
fn next_round(record: &Record, closed: Duration) -> Option<usize> {
    let calls = record.calls().filter(|(probe, _)| is_near(probe) && !probe.pause.is_zero()).count();
    let made = (0..ROUNDS.len()).take_while(|n| ROUNDS[..=*n].iter().sum::<usize>() <= calls).count();
    if made == 0 {
        return (!record.tried(Experiment::IdleOrder)).then_some(ROUNDS[0]);
    }
    let has = record.settings.budget.mul_f64(ROUNDS_UNTIL);
    let lost = near(record).iter().any(|(_, call)| is_lost(call));
    let proved = lost && chance(record).is_some_and(|chance| chance <= CHANCE);
    let fits = record.elapsed + closed.mul_f64(MARGIN) < has;
    ROUNDS.get(made).copied().filter(|_| fits && !proved && !record.given_up.contains(&Experiment::IdleOrder))
}

/// Nothing was lost, and too few of the calls were in time to say that nothing is: what is left unknown.
pub(crate) fn unseen(record: &Record) -> Option<String> {
    let closed = limit(record)?.closed?;
    let near = near(record);
    if near.iter().any(|(_, call)| is_lost(call)) {
        return None;
    }
    let late = near.iter().filter(|(idle, _)| *idle >= closed).count();
    let few = late as f64 > LATE * near.len() as f64;
    (near.is_empty() || few).then(|| {
        format!(
            "the server behind closes idle connections after {}, and of {} calls that were to come just before that {late} came after it, by this \
             machine's fault: whether such calls are lost is not known",
            say(ms(closed)),
            near.len()
        )
    })
}

/// Calls elsewhere, and how many of them were lost. The first ones of a round may meet connections of the
/// round before.
fn elsewhere(record: &Record) -> (usize, usize) {
    let others = record.calls().filter(|(p, c)| {
        p.variation == Variation::None && !is_near(p) && !c.failure().is_some_and(|f| f.why == Why::Cut)
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
    let Some((closed, calls)) = limit.closed.and_then(|closed| Some((closed, next_round(record, closed)?)))
    else {
        return Vec::new();
    };
    let way = Duration::from_secs_f64(record.rtt_ms() / 1e3);
    let lane = |(n, idle): (usize, Duration), arm: u8| {
        let lane = Lane::Kept(Experiment::IdleOrder.first_lane() + n as u8);
        let first =
            CallProbe { writes: settings.writes, ..CallProbe::plain(Experiment::IdleOrder, arm, lane) };
        // The proxy's connection is idle while both ways to us are gone, too.
        let later = CallProbe { pause: idle.saturating_sub(way), ..first.clone() };
        vec![first, later]
    };
    let before = BEFORE.iter().take(calls);
    let before = before.map(|tenths| closed.saturating_sub(Duration::from_micros(100 * tenths)));
    let mut rounds = vec![vec![Probe::SideBySide(before.enumerate().map(|at| lane(at, 1)).collect())]];
    if !record.tried(Experiment::IdleOrder) {
        let middle = (0..MIDDLE).map(|n| lane((n, closed / 2), 0));
        rounds.push(vec![Probe::SideBySide(middle.collect())]);
    }
    rounds
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
    let verdict = Verdict::new(&CAUSE, cost + after, grounds).failing().by_failures();
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
        let [round, middle] = &wants(&record)[..] else { unreachable!("two blocks") };
        let [Probe::SideBySide(lanes)] = &round[..] else { unreachable!("side by side") };
        assert_eq!((lanes.len(), lanes[3][1].pause), (BEFORE.len(), Duration::from_millis(4_996)));
        make(&mut record, &middle[0], &[Ok(usual)], usual, Duration::ZERO);
        make(&mut record, &round[0], near, usual, late_by);
        record
    }

    /// Its calls after a pause get these, so late; those before them what is usual.
    fn make(record: &mut Record, probe: &Probe, later: &[Result<u16, Why>], usual: u16, late_by: Duration) {
        let Probe::SideBySide(lanes) = probe else { unreachable!("side by side") };
        let calls = lanes.iter().zip(later.iter().cycle()).map(|(lane, end)| {
            let begun = (lane[1].pause + late_by).as_nanos();
            let began_ns = i64::try_from(begun).expect("some seconds");
            vec![call(Ok(usual)), Call { began_ns, ..call(*end) }]
        });
        record.push(probe.clone(), Observation::SideBySide(calls.collect()));
    }

    /// How many calls each further round has, and how long before the limit it begins, milliseconds.
    fn further(mut record: Record, later: &[Result<u16, Why>], late_by: Duration) -> Vec<(usize, u128)> {
        let mut rounds = Vec::new();
        while let [round] = &wants(&record)[..] {
            let Probe::SideBySide(lanes) = &round[0] else { unreachable!("side by side") };
            let least = lanes.iter().map(|lane| lane[1].pause.as_millis()).min().expect("some");
            rounds.push((lanes.len(), 5_000 - least));
            make(&mut record, &round[0], later, 200, late_by);
        }
        rounds
    }

    #[test]
    fn each_round_begins_at_another_time_before_the_limit() {
        let one = std::iter::once(Ok(502)).chain(std::iter::repeat_n(Ok(200), 15)).collect::<Vec<_>>();
        let all = [(12, 64), (8, 16), (14, 128), (10, 32)];
        for near in [&[Ok(200)][..], &one] {
            let record = recorded(near, 200, Duration::ZERO);
            assert_eq!(further(record, &[Ok(200)], Duration::ZERO), all, "{near:?}");
        }
        let proved = recorded(&[Ok(502)], 200, Duration::ZERO);
        assert!(wants(&proved).is_empty());
        let mut late = recorded(&[Ok(200)], 200, Duration::ZERO);
        late.elapsed = Duration::from_secs(30);
        assert!(wants(&late).is_empty(), "there is no time for another one");
    }

    #[test]
    fn calls_that_came_too_late_tell_nothing() {
        let late = recorded(&[Ok(200)], 200, Duration::from_millis(300));
        assert_eq!(near(&late).len(), BEFORE.len());
        let words = judge(&late);
        assert!(
            matches!(&words, Judgement::Open(words) if words.contains("(16 of them came after that")),
            "{words:?}"
        );
        assert!(
            unseen(&late).is_some_and(|words| words.contains("of 16 calls that were to come just before"))
        );
        assert_eq!(unseen(&recorded(&[Ok(200)], 200, Duration::ZERO)), None, "all of them were in time");
        assert_eq!(unseen(&recorded(&[Ok(502)], 200, Duration::from_millis(300))), None, "some were lost");
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
