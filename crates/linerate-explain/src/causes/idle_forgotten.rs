//! Something between client and server (a NAT, a firewall, a balancer) forgets connections that are idle
//! for long, and tells neither end.
//!
//! Experiment, where there is time for it (`--budget`): connections that are left idle for longer and
//! longer, with a call before and after; beside them others of the same age on which calls come more
//! often. A server that gives up an idle connection closes it (FIN), which a client sees before it sends:
//! that is another thing. Lost is a call on a connection that nobody had closed: its request is not even
//! acknowledged, or is answered by a reset.

use std::time::Duration;

use crate::call::{Call, CallStage, Why, ms};
use crate::evidence::{Grounds, Proof};
use crate::limits::MARGIN;
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, IdleSpan, IdleTrial, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule};
use crate::stats::{median, more_often};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "idle-forgotten",
    title: "something on the way forgets idle connections, and calls on them are lost",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Unseen,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "NATs, firewalls and balancers keep a table of connections, and drop from it what was idle for long (AWS NAT gateways and network balancers after \
         350 s, Azure after 4 min, many home routers after less). Neither end hears of it. The next request on such a connection is dropped, and its \
         client waits for its time-out; or it is answered by a reset. A pool that keeps connections for longer meets it after each quiet time.",
    lanes: ["client", "server"],
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer"),
        PictureStep::Then(350_000.0, "idle: the table forgets the connection"),
        PictureStep::LostTo("request: dropped on the way"),
        PictureStep::Wait(1_000.0, "sent again, and dropped again"),
    ],
    more: &[
        fix(
            "Linux",
            "net.ipv4.tcp_keepalive_time below the limit (7200 s by default), for programs that set SO_KEEPALIVE",
        ),
        fix(
            "HAProxy, nginx as a proxy",
            "the idle limit of connections to servers below it (pool-purge-delay; keepalive_timeout in upstream)",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any client",
        change: "an idle limit of its pool below the pause that was found; or TCP keepalive (SO_KEEPALIVE, TCP_KEEPIDLE) below it",
    },
    RuleFix {
        software: "Go",
        change: "http.Transport.IdleConnTimeout (90 s) and net.Dialer.KeepAlive (15 s) below it",
    },
    RuleFix {
        software: "JDK",
        change: "jdk.httpclient.keepalive.timeout (30 s) below it; Apache HttpClient: evictIdleConnections",
    },
    RuleFix {
        software: "Node",
        change: "http.Agent with keepAlive and timeout below it; socket.setKeepAlive",
    },
    RuleFix {
        software: "database pools",
        change: "HikariCP: keepaliveTime, maxLifetime; SQLAlchemy: pool_recycle, pool_pre_ping; libpq: keepalives_idle below it",
    },
];

/// Time for all from which on it is tried: it takes long.
const ON_DEMAND: Duration = Duration::from_secs(60);
/// The longest pause of each step, as shares of it. Reason: most of the time is for the last one.
const STEPS: [f64; 2] = [0.04, 0.4];
/// Pauses of a step.
const PAUSES: u32 = 6;
/// The shortest pause, as a share of the first step's longest.
const LEAST: f64 = 0.125;
/// Share of a pause that is known to do no harm, for connections of the same age on which calls come
/// more often.
const OFTEN: f64 = 0.9;
/// Such connections.
const CONTROLS: usize = 2;
/// Calls on each, at most.
const MOST_OFTEN: f64 = 20.0;
/// Calls that take longer, milliseconds, are not made after pauses: one that is not answered must be told.
const QUICK_MS: f64 = 1_000.0;
/// Share of the time until which all must have ended.
const UNTIL: f64 = 0.95;
/// Lost pauses before the server's own limit lie so far apart, as a share of the shortest, if the way forgets. Reason: a
/// request meets the moment at which the server closes only near its limit.
const APART: f64 = 0.25;
/// How likely chance may be to have done it.
const CHANCE: f64 = 0.01;

/// What became of a connection that was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleFate {
    /// It carried the next call.
    Alive,
    /// The server had closed it, and said so.
    Closed,
    /// Nothing of the request was acknowledged.
    Silent,
    /// The request was answered by a reset.
    Reset,
}

impl IdleFate {
    fn is_lost(self) -> bool {
        matches!(self, IdleFate::Silent | IdleFate::Reset)
    }
}

/// `None`: the call tells nothing of its connection.
fn fate(call: &Call) -> Option<IdleFate> {
    if call.fresh {
        return Some(IdleFate::Closed);
    }
    let Some(failure) = call.failure() else { return Some(IdleFate::Alive) };
    let waits = matches!(failure.stage, CallStage::Send | CallStage::Wait);
    match failure.why {
        Why::Reset if waits => Some(IdleFate::Reset),
        // The server's own limit may end the wait: its FIN comes through where our request did not.
        Why::TimedOut | Why::ClosedEarly if waits && call.facts.bytes_acked == 0 => Some(IdleFate::Silent),
        _ => None,
    }
}

/// A pause before a call, and what became of the connection.
type IdlePause = (Duration, IdleFate);

/// The pauses of a connection.
fn pauses(trial: &IdleTrial) -> impl Iterator<Item = IdlePause> {
    let pairs = trial.calls.windows(2).take_while(|pair| pair[0].answer().is_some());
    pairs.filter_map(|pair| {
        let begun = u64::try_from(pair[1].began_ns.saturating_sub(pair[0].began_ns)).unwrap_or(0);
        Some((Duration::from_nanos(begun).saturating_sub(pair[0].total), fate(&pair[1])?))
    })
}

fn all_pauses(record: &Record) -> Vec<IdlePause> {
    record.idle_steps().flatten().flat_map(pauses).collect()
}

/// The longest pause that did no harm among those shorter than any that did, and the shortest one that did.
fn limit(all: &[IdlePause]) -> (Duration, Option<Duration>) {
    let gone = all.iter().filter(|(_, fate)| *fate != IdleFate::Alive).map(|(idle, _)| *idle).min();
    let kept =
        all.iter().filter(|(idle, fate)| *fate == IdleFate::Alive && gone.is_none_or(|gone| *idle < gone));
    (kept.map(|(idle, _)| *idle).max().unwrap_or_default(), gone)
}

/// Longer and longer pauses above one and up to another, and connections of the same age beside them on
/// which calls come more often.
fn step(known: Duration, longest: Duration) -> Vec<Block> {
    let apart = longest.saturating_sub(known) / PAUSES;
    let mut spans: Vec<IdleSpan> =
        (1..=PAUSES).map(|n| IdleSpan { pause: known + apart * n, times: 1 }).collect();
    let pause = known.mul_f64(OFTEN);
    let times = (longest.as_secs_f64() / pause.as_secs_f64().max(0.001)).ceil().clamp(2.0, MOST_OFTEN) as u8;
    spans.extend(std::iter::repeat_n(IdleSpan { pause, times }, CONTROLS));
    vec![vec![Probe::IdleSpans(spans)]]
}

fn wants(record: &Record) -> Vec<Block> {
    let settings = &record.settings;
    let quick = record.reused().len() >= 2 && record.typical(|c| c.total) < QUICK_MS;
    if !settings.may_repeat || settings.budget < ON_DEMAND || !quick {
        return Vec::new();
    }
    let fits = |longest: Duration| record.elapsed + longest.mul_f64(MARGIN) < settings.budget.mul_f64(UNTIL);
    let steps: Vec<Vec<IdlePause>> =
        record.idle_steps().map(|trials| trials.iter().flat_map(pauses).collect()).collect();
    let (kept, gone) = limit(&steps.concat());
    let Some(gone) = gone else {
        let Some(share) = STEPS.get(steps.len()) else { return Vec::new() };
        let longest = settings.budget.mul_f64(*share);
        let known = if steps.is_empty() { longest.mul_f64(LEAST) } else { kept };
        return if fits(longest) { step(known, longest) } else { Vec::new() };
    };
    // Once more between the two.
    let lossy = steps.iter().filter(|step| step.iter().any(|(_, fate)| fate.is_lost())).count();
    if lossy == 1 && !kept.is_zero() && fits(gone) { step(kept, gone) } else { Vec::new() }
}

fn judge(record: &Record) -> Judgement {
    let all = all_pauses(record);
    if all.is_empty() {
        return Judgement::Silent;
    }
    let (kept, gone) = limit(&all);
    let Some(gone) = gone else {
        return Judgement::Open(format!(
            "a note and no cause: connections that were idle for up to {} carried the next call; a longer pause takes a larger --budget (NATs and balancers \
             of clouds forget connections after 240 to 350 s: --budget 15m)",
            say(ms(kept))
        ));
    };
    let (lost, long) = (lost_from(&all, gone), all.iter().filter(|(idle, _)| *idle >= gone).count());
    if lost.is_empty() {
        return Judgement::Open(format!(
            "a note and no cause: the server closes idle connections after {} to {} (FIN, or a reset), which a client sees before it sends",
            say(ms(kept)),
            say(ms(gone))
        ));
    }
    if let Some(words) = unclear(&all) {
        return Judgement::Open(words);
    }
    let verdict = named(record, &all, (kept, gone), &lost);
    Judgement::Named(Box::new(match lost.len() == long {
        true => verdict,
        false => verdict
            .at_most(Proof::Likely)
            .saying("after longer pauses the server has closed the connection itself"),
    }))
}

/// What became of the calls that were lost after this pause or a longer one.
fn lost_from(all: &[IdlePause], gone: Duration) -> Vec<IdleFate> {
    all.iter().filter(|(idle, fate)| *idle >= gone && fate.is_lost()).map(|(_, fate)| *fate).collect()
}

/// Calls were lost, and who did it cannot be told: the server's own limit is near.
pub(crate) fn unseen(record: &Record) -> Option<String> {
    unclear(&all_pauses(record))
}

fn unclear(all: &[IdlePause]) -> Option<String> {
    let gone = limit(all).1?;
    let (lost, long) = (lost_from(all, gone).len(), all.iter().filter(|(idle, _)| *idle >= gone).count());
    if lost == 0 || lost == long {
        return None;
    }
    let closed = all.iter().filter(|(idle, fate)| *idle >= gone && !fate.is_lost()).map(|(idle, _)| *idle);
    let first = closed.min().unwrap_or(Duration::MAX);
    let pauses = all.iter().filter(|(_, fate)| fate.is_lost()).map(|(idle, _)| *idle);
    let longest = pauses.max().unwrap_or_default();
    if longest < first && longest >= gone.mul_f64(1.0 + APART) {
        return None;
    }
    Some(format!(
        "of {long} calls after a pause of {} or more {lost} were lost, and the others found the connection open, or closed by the server: a request \
         that meets the server's own limit looks the same (keep-alive-race)",
        say(ms(gone))
    ))
}

fn named(
    record: &Record,
    all: &[IdlePause],
    (kept, gone): (Duration, Duration),
    lost: &[IdleFate],
) -> Verdict {
    let silent = lost.iter().filter(|fate| **fate == IdleFate::Silent).count();
    let (reset, lost) = (lost.len() - silent, lost.len());
    let short = all.iter().filter(|(idle, _)| *idle < gone).count();
    let how = match (silent, reset) {
        (_, 0) => "none of their requests was acknowledged".to_owned(),
        (0, _) => "each request was answered by a reset".to_owned(),
        _ => format!("{silent} requests were not acknowledged, {reset} answered by a reset"),
    };
    let words = format!(
        "{lost} of {lost} calls on connections that had been idle for {} or more were lost, though the server had closed none of these: {how}; of \
         {short} after {} or less none",
        say(ms(gone)),
        say(ms(kept))
    );
    let grounds = match more_often(lost, lost, 0, short) <= CHANCE {
        true => Grounds::Counted { words, share: 1.0 },
        false => Grounds::Seen { words, alone: true },
    };
    let trials: Vec<&IdleTrial> = record.idle_steps().flatten().collect();
    let costs: Vec<f64> = trials
        .iter()
        .flat_map(|trial| &trial.calls)
        .filter(|call| fate(call).is_some_and(IdleFate::is_lost))
        .map(|call| ms(call.total))
        .collect();
    let fresh = crate::record::median_of(&record.fresh(), |c| c.total);
    let verdict = Verdict::new(&CAUSE, median(&costs) + fresh, grounds).failing().by_failures();
    let title = match (silent, reset) {
        (_, 0) => "something on the way forgets idle connections, and drops what comes on them in silence",
        (0, _) => "something on the way forgets idle connections, and answers what comes on them by a reset",
        _ => CAUSE.title,
    };
    let verdict = verdict.titled(title);
    let verdict = verdict.saying(format!("the limit lies between {} and {}", say(ms(kept)), say(ms(gone))));
    let old = trials.iter().filter(|t| t.span.times > 1 && t.span.pause * u32::from(t.span.times) >= gone);
    let whole = old.filter(|t| {
        pauses(t).filter(|(_, fate)| *fate == IdleFate::Alive).count() == usize::from(t.span.times)
    });
    match whole.map(|t| t.span).collect::<Vec<_>>().as_slice() {
        [] => verdict,
        kept @ [first, ..] => verdict.saying(format!(
            "{} connections as old as these, with a call each {}, carried all of theirs: calls or keepalive probes more often than the limit take it away",
            kept.len(),
            say(ms(first.pause))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Failure, ProbeResponse};
    use crate::probe::{CallProbe, Experiment, Lane, Observation};
    use crate::record::Settings;

    fn call(fate: IdleFate, began_ns: i64) -> Call {
        let failed = |why| {
            let words = "lost".to_owned();
            Some(Err(Failure { stage: CallStage::Wait, why, words }))
        };
        let answered = Some(Ok(ProbeResponse { status: 200, reusable: true, ..ProbeResponse::default() }));
        let total = Duration::from_millis(if fate == IdleFate::Silent { 3_000 } else { 1 });
        let end = match fate {
            IdleFate::Alive | IdleFate::Closed => answered,
            IdleFate::Silent => failed(Why::TimedOut),
            IdleFate::Reset => failed(Why::Reset),
        };
        Call { fresh: fate == IdleFate::Closed, began_ns, total, end, ..Call::default() }
    }

    /// The record of a way on which that becomes of a connection after a pause; and the longest pauses of its
    /// steps, milliseconds.
    fn recorded(budget: u64, fate: impl Fn(Duration) -> IdleFate) -> (Record, Vec<u128>) {
        let mut record = Record::new(Settings { budget: Duration::from_secs(budget), ..Settings::default() });
        for _ in 0..4 {
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Kept(0));
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call(IdleFate::Alive, 0))));
        }
        let mut steps = Vec::new();
        while let Some(probe) = wants(&record).into_iter().flatten().next() {
            let Probe::IdleSpans(spans) = &probe else { unreachable!("only these") };
            let trial = |span: &IdleSpan| {
                let mut at = Duration::ZERO;
                let mut calls = vec![call(IdleFate::Alive, 0)];
                for _ in 0..span.times {
                    at += span.pause + Duration::from_millis(1);
                    calls.push(call(fate(span.pause), at.as_nanos() as i64));
                }
                IdleTrial { span: *span, calls }
            };
            let longest = spans.iter().map(|span| span.pause).max().expect("some");
            steps.push((longest + Duration::from_micros(500)).as_millis());
            record.elapsed += longest + Duration::from_secs(3);
            let trials = spans.iter().map(trial).collect();
            record.push(probe.clone(), Observation::IdleSpans(trials));
        }
        (record, steps)
    }

    fn after(seconds: u64, then: IdleFate) -> impl Fn(Duration) -> IdleFate {
        move |pause| if pause < Duration::from_secs(seconds) { IdleFate::Alive } else { then }
    }

    #[test]
    fn the_limit_is_found_and_told_by_what_becomes_of_requests() {
        for (lost, word) in [(IdleFate::Silent, "in silence"), (IdleFate::Reset, "by a reset")] {
            for (budget, limit, steps) in [(60, 2, 2), (60, 15, 3), (900, 350, 3)] {
                let (record, made) = recorded(budget, after(limit, lost));
                let Judgement::Named(verdict) = judge(&record) else {
                    unreachable!("{limit} s: {:?}", judge(&record))
                };
                assert_eq!((verdict.proof(), verdict.fails()), (Proof::Proved, true), "{limit}");
                assert!(verdict.title().contains(word), "{verdict:?}");
                assert!(made.len() >= steps, "{made:?}");
                let says = verdict.evidence().join("; ");
                assert!(says.contains("carried all of theirs"), "{says}");
                let all = all_pauses(&record);
                let (kept, gone) = (limit_of(&all).0.as_secs_f64(), limit_of(&all).1.as_secs_f64());
                assert!(
                    kept < limit as f64 && gone >= limit as f64 && gone - kept < 0.2 * gone,
                    "{kept} {gone}"
                );
            }
        }
    }

    fn limit_of(all: &[IdlePause]) -> (Duration, Duration) {
        let (kept, gone) = limit(all);
        (kept, gone.expect("there is one"))
    }

    #[test]
    fn a_server_that_closes_idle_connections_is_none() {
        let (record, steps) = recorded(60, after(2, IdleFate::Closed));
        let note = judge(&record);
        assert!(
            matches!(&note, Judgement::Open(words) if words.contains("the server closes idle connections")),
            "{note:?}"
        );
        assert_eq!(steps.len(), 1, "no longer pause tells more");
        // One request meets the moment.
        let (race, _) = recorded(60, |pause| match pause.as_millis() {
            0..1_900 => IdleFate::Alive,
            1_900..2_200 => IdleFate::Reset,
            _ => IdleFate::Closed,
        });
        assert!(matches!(judge(&race), Judgement::Open(words) if words.contains("keep-alive-race")));
        assert!(unseen(&race).is_some() && unseen(&record).is_none(), "a lost call is not healthy");
    }

    /// The way drops what the client sends from 1 s on, and the server's FIN at 2 s comes through.
    #[test]
    fn a_way_that_forgets_before_the_server_closes_is_likely() {
        let (record, _) = recorded(60, |pause| match pause.as_millis() {
            0..1_000 => IdleFate::Alive,
            1_000..2_000 => IdleFate::Silent,
            _ => IdleFate::Closed,
        });
        let Judgement::Named(verdict) = judge(&record) else { unreachable!("{:?}", judge(&record)) };
        assert_eq!((verdict.proof(), unseen(&record)), (Proof::Likely, None));
        let ends = |why, acked| {
            let mut call = call(IdleFate::Silent, 0);
            let words = "lost".to_owned();
            call.end = Some(Err(Failure { stage: CallStage::Wait, why, words }));
            call.facts.bytes_acked = acked;
            fate(&call)
        };
        assert_eq!(ends(Why::ClosedEarly, 0), Some(IdleFate::Silent));
        assert_eq!(ends(Why::ClosedEarly, 90), None, "the server had the request");
    }

    #[test]
    fn a_way_that_forgets_nothing_is_none() {
        let (record, steps) = recorded(60, |_| IdleFate::Alive);
        assert_eq!(steps, [2_400, 24_000]);
        assert!(matches!(judge(&record), Judgement::Open(words) if words.contains("idle for up to 24.00 s")));
        let (unasked, steps) = recorded(15, after(2, IdleFate::Silent));
        assert!(steps.is_empty() && judge(&unasked) == Judgement::Silent, "it takes time");
    }
}
