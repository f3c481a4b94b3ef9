//! Whether the server stayed the same while it was looked at. When it did not, arms that were
//! compared differ in more than the one thing that was changed, and nothing that rests on them may
//! be said.

use std::collections::BTreeMap;

use crate::call::{Call, CallStage, Why, ms};
use crate::diagnosis::RuledOut;
use crate::parts::ServerChange;
use crate::probe::{CallProbe, Experiment, Lane, Variation};
use crate::record::{Record, median_of};
use crate::rule::Cause;
use crate::signs::scattered;
use crate::verdict::Verdict;
use crate::words::say;

/// Calls that must have failed one after the other, at the end, before that is a change.
const FAILED: usize = 3;
/// Calls on each side of a moment.
const LEAST: usize = 3;
/// A difference below this is no change, milliseconds.
const APART_MS: f64 = 5.0;

/// Takes back what cannot be said of a server that changed; how it changed, in words.
pub(crate) fn weigh(
    record: &Record,
    named: &mut Vec<Verdict>,
    ruled_out: &mut Vec<RuledOut>,
) -> Option<String> {
    let any = |change| named.iter().any(|verdict| verdict.cause().server_changed == change);
    // A queue in the network fills with each call; which connection a call is on knows no order.
    let fills = any(ServerChange::Slower);
    // A limiter decides by how many calls there were.
    let limited = any(ServerChange::Refuses);
    // These are such changes: of the way, and from one connection to the next.
    let told = fills || limited || any(ServerChange::Unequal);
    let how = statuses(record)
        .filter(|_| !limited)
        .or_else(|| failures(record))
        .or_else(|| slows_down(record).filter(|_| !fills && !limited))
        .or_else(|| times(record).filter(|_| !told))?;
    let stands = |cause: &Cause| cause.server_changed == ServerChange::Stands;
    named.retain(|verdict| stands(verdict.cause()));
    ruled_out.retain(|ruled_out| stands(ruled_out.cause));
    Some(format!("the server changed while we looked: {how}"))
}

/// Calls of the same request, in order.
fn alike(record: &Record) -> impl Iterator<Item = (&CallProbe, &Call)> {
    record.calls().filter(|(probe, _)| {
        !matches!(probe.experiment, Experiment::Redirect | Experiment::Packed | Experiment::IdleOrder)
            && !matches!(probe.variation, Variation::Target(_) | Variation::Origin | Variation::Range(_))
    })
}

/// Responses of several kinds to the same request.
fn statuses(record: &Record) -> Option<String> {
    let mut by_status: BTreeMap<u16, usize> = BTreeMap::new();
    for (probe, call) in alike(record) {
        // A server may refuse what an experiment asks for.
        let asked = probe.variation != Variation::None;
        let status = call.answer().map(|a| a.status).filter(|s| !(asked && matches!(s, 406 | 415 | 417)));
        *by_status.entry(status.unwrap_or(0)).or_default() += usize::from(status.is_some());
    }
    by_status.retain(|_, n| *n > 0);
    let mut kinds: Vec<u16> = by_status.keys().map(|s| s / 100).collect();
    kinds.dedup();
    if kinds.len() < 2 || one_of_many(record).is_some() {
        return None;
    }
    let mut told: Vec<(usize, u16)> = by_status.into_iter().map(|(status, n)| (n, status)).collect();
    told.sort_by(|a, b| b.cmp(a));
    let told: Vec<String> = told.iter().map(|(n, status)| format!("{status} {n} times")).collect();
    Some(format!("the same request was answered {}", told.join(", ")))
}

/// Answers from which on another one among them says nothing of the others.
const MANY: usize = 20;

/// One answer of another kind among many, and more after it: it does not make the server another one.
pub(crate) fn one_of_many(record: &Record) -> Option<String> {
    let statuses: Vec<u16> = alike(record)
        .filter(|(p, _)| p.variation == Variation::None)
        .filter_map(|(_, c)| c.answer())
        .map(|a| a.status)
        .collect();
    let usual = statuses.first().filter(|_| statuses.len() >= MANY)? / 100;
    let mut others = statuses.iter().enumerate().filter(|(_, s)| **s / 100 != usual);
    let (at, status) = others.next()?;
    (others.next().is_none() && at + 1 < statuses.len())
        .then(|| format!("one of {} answers had status {status}", statuses.len()))
}

/// The server responded at first, and then no more.
fn failures(record: &Record) -> Option<String> {
    let calls: Vec<&Call> = alike(record)
        .map(|(_, call)| call)
        .filter(|c| !c.failure().is_some_and(|f| matches!(f.why, Why::NoLever | Why::NoPort | Why::Cut)))
        .collect();
    let answered = calls.iter().filter(|c| c.answer().is_some()).count();
    let last = calls.iter().rev().take_while(|c| c.failure().is_some()).count();
    let ended = &calls[calls.len() - last..];
    let refused = calls.iter().filter(|c| c.failure().is_some_and(|f| f.why == Why::Refused)).count();
    // A call that hangs takes seconds: there is no time for many of them. A lost packet hangs none
    // for that long.
    let hangs = |c: &&Call| {
        c.failure().is_some_and(|f| {
            f.why == Why::TimedOut && matches!(f.stage, CallStage::Tls | CallStage::Wait | CallStage::Receive)
        })
    };
    let hung = ended.iter().copied().filter(hangs).count();
    let fresh = ended.iter().any(|c| c.fresh);
    if answered < 2 || !(refused > 0 || hung >= 2 || (last >= FAILED && fresh)) {
        return None;
    }
    let words = calls.iter().rev().find_map(|c| c.failure()).map(|f| f.words.as_str()).unwrap_or_default();
    let failed = calls.iter().filter(|c| c.failure().is_some()).count();
    Some(format!("of {} calls it answered {answered}, then {failed} failed: {words}", calls.len()))
}

/// Calls beyond the first few that a server may take to warm up.
const WARMING: usize = 4;

/// It is warming up, as a JVM does while it compiles: of its first calls on a connection each is
/// quicker than nearly all before it, and more than one of them is not yet what they come to. Work
/// whose length varies comes in any order; and where one call met something (a blocked event loop),
/// those after it may fall by microseconds, as caches fill.
pub(crate) fn warms_up(record: &Record) -> bool {
    let waits: Vec<f64> = record.reused().iter().map(|c| ms(c.wait) - record.rtt_ms()).collect();
    let ([first, second, ..], Some(last)) = (waits.as_slice(), waits.last()) else { return false };
    let pairs = waits.len() * (waits.len() - 1) / 2;
    let falls = waits
        .iter()
        .enumerate()
        .map(|(i, a)| waits[i + 1..].iter().filter(|b| *b < a).count())
        .sum::<usize>();
    // Kendall's test: of six calls in any order 14 of the 15 pairs fall in less than one of a
    // hundred cases.
    waits.len() > WARMING && falls + 1 >= pairs && first.min(*second) > 2.0 * last + APART_MS / 2.0
}

/// Calls from which on an order is none by chance.
const IN_ORDER: usize = 8;
/// Of all pairs of calls, those that may be out of order: one in this many.
const OUT_OF_ORDER: usize = 20;

/// Each call takes longer than nearly all before it: what it looks through grows, or it holds
/// somebody who calls often back more and more.
fn slows_down(record: &Record) -> Option<String> {
    let plain = |p: &CallProbe| {
        matches!(p.experiment, Experiment::Observe | Experiment::Tail | Experiment::PerConnection)
    };
    let calls: Vec<&Call> = alike(record)
        .filter(|(p, c)| plain(p) && p.arm == 0 && !c.fresh && c.answer().is_some() && !c.lossy())
        .map(|(_, c)| c)
        .collect();
    let waits: Vec<f64> = calls.iter().map(|c| ms(c.wait)).collect();
    let (first, last) = (waits.first()?, waits.last()?);
    let pairs = waits.len() * (waits.len() - 1) / 2;
    let falls = waits
        .iter()
        .enumerate()
        .map(|(i, a)| waits[i + 1..].iter().filter(|b| *b <= a).count())
        .sum::<usize>();
    let slower = waits.len() >= IN_ORDER && falls * OUT_OF_ORDER <= pairs && *last > 1.5 * first + APART_MS;
    let [first, last] = [*first, *last].map(say);
    slower
        .then(|| format!("the same call waited {first} at first and {last} later, a little longer each time"))
}

/// A call met something that takes more than this many times as long as the median call, and
const SELDOM_TIMES: f64 = 5.0;
/// this many milliseconds besides.
const SELDOM_MS: f64 = 50.0;

/// Calls that were slow now and then.
pub(crate) struct NowAndThen {
    /// More of them than a hiccup explains.
    pub(crate) often: bool,
    /// How many and how slow, in words.
    pub(crate) words: String,
}

/// Calls may be slow because a server that is not known had no processor: programs compete for those
/// of this machine, and it may be on it.
pub(crate) fn may_be_starved(record: &Record) -> bool {
    record.is_contended() && record.calls().all(|(_, c)| c.server.is_none())
}

/// Of the calls with nothing changed those that took far longer than the others, beyond what each of
/// them waited for a processor. The very first is left out, since it finds everything cold.
pub(crate) fn now_and_then(record: &Record) -> Option<NowAndThen> {
    let plain = |p: &CallProbe| {
        let same = matches!(p.experiment, Experiment::Observe | Experiment::Tail | Experiment::PerConnection);
        same && p.arm == 0
    };
    let from = record.warming().count().max(1);
    let calls = record.calls().skip(from).filter(|(p, c)| plain(p) && c.answer().is_some());
    let own = |c: &Call| ms(c.total) - scattered::starved_ms(c);
    let mut took: Vec<(f64, f64)> = calls.map(|(_, c)| (own(c), ms(c.total))).collect();
    if took.len() < 2 * LEAST {
        return None;
    }
    took.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = |calls: &[(f64, f64)]| crate::stats::median(&calls.iter().map(|c| c.1).collect::<Vec<_>>());
    let least = SELDOM_TIMES * middle(&took) + SELDOM_MS;
    let (most, slow) = took.split_at(took.partition_point(|t| t.0 <= least));
    let (all, usual) = (took.len(), say(middle(most)));
    let words = match slow {
        [] => return None,
        [one] => format!("1 of {all} calls took {}, the others {usual}", say(one.1)),
        slow => format!(
            "{} of {all} calls took {}, the others {usual} (in the middle)",
            slow.len(),
            say(middle(slow))
        ),
    };
    Some(NowAndThen { often: slow.len() > 1, words })
}

/// The same of the calls at random times.
pub(crate) fn at_random(record: &Record) -> Option<NowAndThen> {
    let slow = scattered::slow(record).filter(|slow| !slow.beyond.is_empty())?;
    let words = format!(
        "{} of {} calls at random times waited {}, usual is {} (in the middle)",
        slow.beyond.len(),
        slow.of,
        say(slow.usual + crate::stats::median(&slow.beyond)),
        say(slow.usual)
    );
    Some(NowAndThen { often: slow.is_often() && !slow.is_of_the_path(record), words })
}

/// From some moment on, the same call takes a wholly different time.
fn times(record: &Record) -> Option<String> {
    let calls = controls(record);
    let took: Vec<f64> = calls.iter().map(|c| ms(c.total)).collect();
    let at = (LEAST..took.len().saturating_sub(LEAST - 1)).find(|at| apart(took.split_at(*at)))?;
    let [before, after] = [&calls[..at], &calls[at..]].map(|part| say(median_of(part, |c| c.total)));
    Some(format!("the same call took {before} at first and {after} later"))
}

/// Calls on kept connections with nothing changed, in order.
fn controls(record: &Record) -> Vec<&Call> {
    // Whatever the lever's strength: where it is the lever that moves them, the strongest comes
    // near to what was there before, so that all strengths together are no change.
    let doses = record.calls().filter(|(p, _)| p.experiment == Experiment::Dose).count();
    let whole = doses > 0 && !record.given_up.contains(&Experiment::Dose);
    let control = |probe: &CallProbe| match probe.experiment {
        Experiment::Observe | Experiment::Tail => true,
        Experiment::QuickAck | Experiment::Idle => probe.arm == 0,
        Experiment::Dose => whole,
        _ => false,
    };
    let kept = |probe: &CallProbe, call: &Call| matches!(probe.lane, Lane::Kept(_)) && !call.fresh;
    let cold = record.warming().count();
    let calls = record.calls().skip(cold).filter(|(p, c)| control(p) && kept(p, c) && c.answer().is_some());
    calls.map(|(_, c)| c).collect()
}

/// Every call of one part takes more than twice as long as any of the other.
fn apart((a, b): (&[f64], &[f64])) -> bool {
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let above = |high: &[f64], low: &[f64]| least(high) > 2.0 * most(low) + APART_MS;
    a.len() + b.len() > 2 * LEAST && (above(a, b) || above(b, a))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Planner;
    use crate::call::{Failure, ProbeResponse, ReceivedBytes};
    use crate::diagnosis::{Diagnosis, Whole};
    use crate::probe::{DOSES_MS, Observation, Probe};
    use crate::record::Settings;

    fn t(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// A call whose response stalls for that long in its middle.
    fn stalls(ms: f64, fresh: bool) -> Call {
        let answer = ProbeResponse { status: 200, reusable: true, body_bytes: 5, ..ProbeResponse::default() };
        Call {
            fresh,
            connect: if fresh { t(0.05) } else { Duration::ZERO },
            wait: t(0.2),
            receive: t(ms),
            total: t(0.2 + ms),
            receives: [0.2, 0.2 + ms].map(|at| ReceivedBytes { at: t(at), bytes: 40 }).to_vec(),
            end: Some(Ok(answer)),
            ..Call::default()
        }
    }

    fn status(status: u16) -> Call {
        let call = stalls(0.1, false);
        let answer = ProbeResponse { status, ..call.answer().cloned().unwrap_or_default() };
        Call { end: Some(Ok(answer)), ..call }
    }

    fn fails(why: Why, stage: CallStage, fresh: bool) -> Call {
        let end = Some(Err(Failure { stage, why, words: "it is gone".to_owned() }));
        Call { end, fresh, ..Call::default() }
    }

    /// Explains a server that responds to call number n (from 0) by `world`.
    fn explained(world: impl Fn(usize, &CallProbe, bool) -> Call) -> Diagnosis {
        let settings = Settings { addresses: vec![([127, 0, 0, 1], 80).into()], ..Settings::default() };
        let mut planner = Planner::new(settings);
        let (mut n, mut open, mut now) = (0, std::collections::HashSet::new(), Duration::ZERO);
        while let Some(probe) = planner.poll_probe(now) {
            let made = match &probe {
                Probe::Call(call) => {
                    let fresh = match call.lane {
                        Lane::Fresh => true,
                        Lane::Kept(lane) => open.insert(lane),
                    };
                    let made = world(n, call, fresh);
                    if let (Lane::Kept(lane), None) = (call.lane, made.answer()) {
                        open.remove(&lane);
                    }
                    n += 1;
                    now += made.total;
                    Observation::Call(Box::new(made))
                }
                Probe::Scattered(times) => {
                    let plain = CallProbe::plain(Experiment::Scattered, 0, Lane::Kept(0));
                    let mut one = |at: &Duration| {
                        n += 1;
                        Call { began_ns: (now + *at).as_nanos() as i64, ..world(n - 1, &plain, false) }
                    };
                    let calls = times.iter().map(&mut one).collect();
                    now += times.last().copied().unwrap_or_default();
                    Observation::Scattered(calls)
                }
                Probe::Burst(calls) => {
                    let plain = CallProbe::plain(Experiment::Burst, 0, Lane::Fresh);
                    Observation::Burst((0..*calls).map(|_| world(n, &plain, true)).collect())
                }
                other => unreachable!("{other:?} is not asked of an address"),
            };
            planner.handle_observation(probe, made);
        }
        planner.diagnose()
    }

    fn changed(diagnosis: &Diagnosis) -> &str {
        assert_eq!(diagnosis.whole, Whole::Inconclusive, "{diagnosis:#?}");
        assert!(diagnosis.causes.is_empty(), "{:#?}", diagnosis.causes);
        let word = diagnosis.limits.first().map(String::as_str).unwrap_or_default();
        assert!(word.starts_with("the server changed while we looked: "), "{word}");
        word
    }

    /// The time that a delayed acknowledgement adds to a call.
    fn held(probe: &CallProbe, fresh: bool) -> f64 {
        if fresh || probe.levers.quick_ack {
            return 0.1;
        }
        probe.levers.delayed_ack.map_or(43.0, |d| ms(d) + 3.0)
    }

    #[test]
    fn one_that_holds_still_is_judged() {
        let diagnosis = explained(|_, probe, fresh| stalls(held(probe, fresh), fresh));
        assert_eq!(diagnosis.causes.first().map(Verdict::id), Some("server-nagle-delayed-ack"));
        let arms = diagnosis.shown.arms.as_ref().expect("the deciding experiment's");
        assert!(ms(arms.without.receive) > 40.0 && ms(arms.with.receive) < 1.0);
        assert_eq!(diagnosis.shown.doses.len(), DOSES_MS.len());
        let thinks = explained(|_, _, fresh| stalls(40.0, fresh));
        assert_eq!(thinks.causes.first().map(Verdict::id), Some("server-think"));
    }

    /// The stall is gone (or is there) from some call on, whatever the lever is: at no moment is a
    /// cause named for it.
    #[test]
    fn one_that_is_mended_meanwhile_is_not() {
        for from in 8..48 {
            let mended =
                explained(|n, probe, fresh| stalls(if n < from { held(probe, fresh) } else { 0.1 }, fresh));
            for cause in &mended.causes {
                assert_eq!(cause.id(), "server-nagle-delayed-ack", "mended at {from}: what was there before");
            }
            let paused = explained(|n, _, fresh| stalls(if n < from { 41.0 } else { 0.1 }, fresh));
            for cause in &paused.causes {
                assert_eq!(cause.id(), "server-think", "quicker from {from} on");
            }
        }
        let word = explained(|n, probe, fresh| stalls(if n < 11 { held(probe, fresh) } else { 0.1 }, fresh));
        assert!(changed(&word).contains("took 43.2 ms at first and 0.30 ms later"), "{:?}", word.limits);
    }

    #[test]
    fn one_whose_answers_change_is_not() {
        let limited = explained(|n, probe, fresh| match n {
            0..15 => stalls(held(probe, fresh), fresh),
            _ => Call { fresh, ..status(503) },
        });
        assert!(changed(&limited).contains("503"), "{:?}", limited.limits);
        let redirected = explained(|_, _, fresh| Call { fresh, ..status(404) });
        assert_eq!(redirected.limits[0], "the call fails with 404", "the same each time");
    }

    #[test]
    fn one_that_goes_away_is_not() {
        for (why, stage) in [
            (Why::Refused, CallStage::Connect),
            (Why::Reset, CallStage::Wait),
            (Why::ClosedEarly, CallStage::Wait),
            (Why::Malformed, CallStage::Receive),
        ] {
            let gone = explained(|n, probe, fresh| match n {
                0..14 => stalls(held(probe, fresh), fresh),
                _ => fails(why, stage, fresh),
            });
            assert!(changed(&gone).contains("it is gone"), "{why:?}: {:?}", gone.limits);
        }
        let hangs = explained(|n, probe, fresh| match n {
            0..14 => stalls(held(probe, fresh), fresh),
            _ => Call { total: t(4000.0), ..fails(Why::TimedOut, CallStage::Wait, fresh) },
        });
        assert!(changed(&hangs).contains("it is gone"), "{:?}", hangs.limits);
    }

    /// A response after that long.
    fn after(ms: f64, fresh: bool) -> Call {
        Call { wait: t(ms), total: t(ms), ..stalls(0.0, fresh) }
    }

    #[test]
    fn one_that_slows_down_with_each_call_is_not() {
        for step in [4.0, 1.0] {
            let slower = explained(|n, _, fresh| after(0.3 + step * n as f64, fresh));
            let word = changed(&slower);
            assert!(word.contains("a little longer each time"), "{step}: {word}");
        }
        // Some connections are slow whenever they are asked.
        let by_connection = explained(|n, probe, fresh| {
            let slow = matches!(probe.lane, Lane::Kept(0 | 121 | 123 | 124));
            after(if slow { 60.0 } else { 0.3 } + n as f64 * 0.001, fresh)
        });
        assert_eq!(by_connection.causes.first().map(|c| c.id()), Some("pinned-to-busy-worker"));
    }

    #[test]
    fn one_that_is_slow_now_and_then_is_not_healthy() {
        let rare = explained(|n, _, fresh| after(if n % 9 == 5 { 300.0 } else { 2.0 }, fresh));
        assert_eq!((rare.whole, rare.causes.len()), (Whole::Inconclusive, 0), "{rare:#?}");
        assert!(rare.limits[0].contains("calls took 300.0 ms"), "{:?}", rare.limits);
        let once = explained(|n, _, fresh| after(if n == 5 { 300.0 } else { 2.0 }, fresh));
        assert_eq!(once.whole, Whole::Healthy, "a hiccup is told, and is no fault: {once:#?}");
        assert!(once.limits.iter().any(|l| l.starts_with("1 of ")), "{:?}", once.limits);
        let cold = explained(|n, _, fresh| after(if n == 0 { 300.0 } else { 2.0 }, fresh));
        assert_eq!(
            (cold.whole, cold.limits.len()),
            (Whole::Healthy, 1),
            "the first call warms up: {cold:#?}"
        );
        assert!(cold.limits[0].starts_with("cold-start: a note and no cause: the first call took 299.9 ms"));
        let colder = explained(|n, _, fresh| after(if n == 0 { 1500.0 } else { 2.0 }, fresh));
        assert_eq!(colder.causes.iter().map(Verdict::id).collect::<Vec<_>>(), ["cold-start"]);
    }

    #[test]
    fn one_that_drops_calls_on_new_connections_too_has_no_race_of_keep_alive() {
        let drops = explained(|n, _, fresh| match n {
            1 | 6 | 14 | 15 | 21 => fails(Why::ClosedEarly, CallStage::Wait, fresh),
            _ => after(1.0, fresh),
        });
        assert_eq!((drops.whole, drops.causes.len()), (Whole::Inconclusive, 0), "{:#?}", drops.causes);
        assert!(drops.limits[0].contains("calls failed: it is gone"), "{:?}", drops.limits);
    }

    #[test]
    fn an_answer_that_is_made_as_it_goes_is_work_and_no_tiny_writes() {
        let stream = |apart: f64| {
            move |_: usize, _: &CallProbe, fresh: bool| {
                let receives: Vec<ReceivedBytes> =
                    (0..40).map(|i| ReceivedBytes { at: t(0.2 + apart * f64::from(i)), bytes: 20 }).collect();
                let mut call = Call { receives, ..stalls(apart * 39.0, fresh) };
                (call.facts.data_segs_in, call.facts.bytes_received) = (40, 800);
                call
            }
        };
        let tokens = explained(stream(20.0));
        let ids: Vec<&str> = tokens.causes.iter().map(|c| c.id()).collect();
        assert_eq!(ids, ["server-think"], "{:#?}", tokens.causes);
        assert!(tokens.causes[0].cost_ms() > 700.0, "{:#?}", tokens.causes);
        let pieces = explained(stream(1.0));
        assert_eq!(pieces.causes[0].id(), "tiny-writes", "{:#?}", pieces.causes);
    }
}
