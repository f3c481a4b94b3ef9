//! Predicts the time of a call once a cause is fixed. Where an experiment's lever takes the cause away,
//! its calls are measurements of the fixed call; so are calls that the cause spared. Else what the
//! cause costs is taken off. Pure functions.

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::Proof;
use crate::parts::Forecast;
use crate::prediction::Prediction;
use crate::probe::Experiment;
use crate::record::{Record, median_of};
use crate::shown;
use crate::signs::first;
use crate::stats::{Estimate, median, middle};
use crate::times::{CallPart, CallTimes, explained, plain};
use crate::verdict::Verdict;

/// Share of a cause's cost that must be seen in the calls' times for it to be taken off them.
const HELD: f64 = 0.8;
/// Calls below which no interval is given.
const LEAST: usize = 2;

/// The time of the call without the cause, where it can be predicted.
pub(crate) fn of(record: &Record, verdict: &Verdict) -> Option<Prediction> {
    // How much of its work a server can be spared is not seen from outside, nor how much of a body, nor how long the way is
    // when a queue on it never empties; what is merely possible may take nothing away.
    let cause = verdict.cause();
    if matches!(cause.forecast, Forecast::Unseen) || verdict.proof() == Proof::Possible || verdict.fails() {
        return None;
    }
    let part = cause.part;
    if matches!(cause.forecast, Forecast::Warm) {
        return warm(record, part);
    }
    let times = CallTimes::seen(record);
    let before_ms = median(times.of(part));
    let (before_ms, after, measured) = match spared(record, verdict, part) {
        // A cost that only some calls meet (after a pause) is not in the middle of all.
        Some(times) => (before_ms.max(hit(record, verdict, part)), middle(&times), true),
        None if before_ms >= HELD * verdict.cost_ms() => {
            (before_ms, taken_off(record, verdict, times.of(part))?, false)
        }
        // The explained calls were spared: the experiment has both kinds.
        None => {
            let trial = verdict.trials().first().filter(|t| t.with.len() >= LEAST)?;
            (trial.before_ms(), middle(&trial.with), true)
        }
    };
    // No call takes less than a round trip.
    let least = if part == CallPart::FirstByte { 0.0 } else { record.rtt_ms() };
    let after = once_more(after);
    let after =
        Estimate { value: after.value.max(least), low: after.low.max(least), high: after.high.max(least) };
    (after.value < before_ms).then_some(Prediction { part, before_ms, after, measured })
}

/// The predicted first call to a warm server: as long as later ones on new
/// connections.
fn warm(record: &Record, part: CallPart) -> Option<Prediction> {
    let before_ms = ms(first::first(record)?.total);
    let later = first::later(record).into_iter().filter(|c| c.fresh).map(|c| ms(c.total));
    let later: Vec<f64> = later.collect();
    (later.len() >= LEAST).then(|| Prediction { part, before_ms, after: middle(&later), measured: true })
}

/// Milliseconds of calls that were made without the cause; at least two.
fn spared(record: &Record, verdict: &Verdict, part: CallPart) -> Option<Vec<f64>> {
    let total = |calls: &[&Call]| calls.iter().map(|c| ms(c.total)).collect::<Vec<f64>>();
    let without = |hit: fn(&Call) -> bool, calls: Vec<&Call>| {
        total(&calls.into_iter().filter(|c| !hit(c)).collect::<Vec<_>>())
    };
    let times = match verdict.cause().forecast {
        Forecast::Spared(met) => {
            without(met, if part == CallPart::New { plain(record, true) } else { explained(record) })
        }
        Forecast::Segments => {
            [1, 2].into_iter().flat_map(|arm| total(&record.arm(Experiment::Segment, arm))).collect()
        }
        // A cache answers at once.
        Forecast::Cached => total(&explained(record)),
        // Of several name servers one does answer.
        Forecast::OtherNameServer => {
            let servers = record.name_servers().unwrap_or_default();
            let quickest = servers.iter().filter_map(|s| s.v4).min().map_or(0.0, ms);
            total(&explained(record)).into_iter().map(|t| t + quickest).collect()
        }
        // The lookup stays, as long as it takes in any of those that were made.
        Forecast::OtherAddress => {
            let calls = total(&explained(record));
            record.lookups().iter().flat_map(|l| calls.iter().map(|t| t + ms(l.took))).collect()
        }
        Forecast::LastHop => last_hop(record),
        // A resumed session spares more than they cost: the rest of a full handshake stays.
        Forecast::Cost => Vec::new(),
        Forecast::Unseen | Forecast::Warm => return None,
        forecast => {
            let calls = verdict.trials().first().and_then(|trial| shown::calls_of(record, trial));
            let ([_, with], _) = calls?;
            let opening = match forecast {
                Forecast::LeverUnpaused => {
                    return Some(unpaused(record, verdict, with)).filter(|times| times.len() >= LEAST);
                }
                Forecast::LeverAtProxy => {
                    let added = proxy_adds(record);
                    return Some(with.iter().map(|c| ms(c.connect + c.send + c.wait) + added).collect());
                }
                // An opened connection that has grown its window, opened anew.
                Forecast::LeverAndOpening => median_of(&record.fresh(), Call::opening),
                _ => 0.0,
            };
            match part {
                CallPart::FirstByte => with.iter().map(|c| ms(c.opening() + c.send + c.wait)).collect(),
                _ => with.iter().map(|c| as_explained(record, part, c) + opening).collect(),
            }
        }
    };
    (times.len() >= LEAST).then_some(times)
}

/// Longest time, beside a quarter of the round trip, that our acknowledgement and the server's reaction to it
/// take, milliseconds. Reason: where a pause that acknowledging at once leaves is longer, the server makes it.
const REACTION_MS: f64 = 5.0;

/// Calls that acknowledged at once spared the delay, and not the way there and back that the rest
/// of the response waited for. Of calls with nothing changed, the pause tells both; it is what is left where
/// the server pauses by itself. All together vary less than those of one arm, and a call in which the
/// lever failed does no harm.
fn unpaused(record: &Record, verdict: &Verdict, with: Vec<&Call>) -> Vec<f64> {
    let pause = median_of(&with, Call::longest_gap);
    let by_server = pause - record.rtt_ms() > REACTION_MS.max(record.rtt_ms() / 4.0);
    let held =
        verdict.trials().first().map_or(0.0, |t| if by_server { t.effect.value } else { t.before_ms() });
    let left = |c: &Call| ms(c.total) - ms(c.longest_gap()).min(held);
    let at_once: Vec<f64> = with.iter().map(|c| left(c)).collect();
    if at_once.len() >= LEAST && median(&at_once) < AWAKE_MS {
        return at_once;
    }
    explained(record).into_iter().map(left).chain(at_once).collect()
}

/// Below this, milliseconds, a call is longer because a processor slept through the pause of the one before. Calls
/// that follow one another at once, as fixed ones do, are awake.
const AWAKE_MS: f64 = 2.0;

/// The time that the proxy adds to a call beside holding it back: its last byte comes so much later than at
/// the server behind.
fn proxy_adds(record: &Record) -> f64 {
    let last = |arm| {
        let calls = record.arm(Experiment::Origin, arm);
        median_of(&calls, |c| c.send + c.wait + c.receive)
    };
    (last(0) - last(1)).max(0.0)
}

/// The time of an experiment's call as one of those that are explained: on a kept
/// connection nothing is opened.
fn as_explained(record: &Record, part: CallPart, call: &Call) -> f64 {
    let kept = part == CallPart::Call && record.reused().len() >= 2;
    ms(call.total) - if kept { ms(call.opening()) } else { 0.0 }
}

/// The interval of a middle that is measured once more, with as much noise as ours: both vary.
fn once_more(after: Estimate) -> Estimate {
    let wider = |side: f64| (side - after.value) * std::f64::consts::SQRT_2;
    Estimate { low: after.value + wider(after.low), high: after.value + wider(after.high), ..after }
}

/// The time of the experiment's calls that meet the cause, in the middle; 0 without one.
fn hit(record: &Record, verdict: &Verdict, part: CallPart) -> f64 {
    let calls = verdict.trials().first().and_then(|trial| shown::calls_of(record, trial));
    let Some(([without, _], _)) = calls.filter(|_| part != CallPart::FirstByte) else { return 0.0 };
    median(&without.iter().map(|c| as_explained(record, part, c)).collect::<Vec<_>>())
}

/// The last of the calls that a redirect leads over: made once, so that it varies as the first ones
/// do is taken for granted.
fn last_hop(record: &Record) -> Vec<f64> {
    let hops = record.calls().filter(|(p, c)| p.experiment == Experiment::Redirect && c.answer().is_some());
    let Some((_, last)) = hops.last() else { return Vec::new() };
    let first: Vec<f64> = record.group().iter().map(|c| ms(c.total)).collect();
    let off = ms(last.total) - median(&first);
    first.into_iter().map(|t| (t + off).max(0.0)).collect()
}

/// The time left of calls when the cause's part is taken off each, or of all what it costs in the
/// middle.
fn taken_off(record: &Record, verdict: &Verdict, times: &[f64]) -> Option<Estimate> {
    if times.len() < LEAST {
        return None;
    }
    if matches!(verdict.cause().forecast, Forecast::LargeWindow) {
        if let Some(after) = through_a_large_window(record) {
            return Some(after);
        }
        let left = |c: &&Call| ms(c.total.saturating_sub(read_slowly(record, c)));
        return Some(middle(&explained(record).iter().map(left).collect::<Vec<_>>()));
    }
    if let Forecast::Counted(lost) = verdict.cause().forecast {
        let left = |c: &&Call| ms(c.total.saturating_sub(lost(c)));
        return Some(middle(&explained(record).iter().map(left).collect::<Vec<_>>()));
    }
    let all = middle(times);
    let trial = verdict.trials().first().filter(|t| {
        // The experiment may have made it worse than it is.
        (t.effect.value - verdict.cost_ms()).abs() <= 0.1 * verdict.cost_ms()
    });
    Some(match trial {
        Some(trial) => {
            let by = trial.effect;
            Estimate { value: all.value - by.value, low: all.value - by.high, high: all.value - by.low }
        }
        None => {
            let cost = verdict.cost_ms();
            Estimate { value: all.value - cost, low: all.low - cost, high: all.high - cost }
        }
    })
}

/// Share of the body from which on a window lets all of it through in some round trips.
const LARGE: f64 = 0.25;

/// The time of calls whose window was small from their beginning to their end, once it is not. Then
/// each round trip of the request waited for the server's reading, also those that the kernel counts
/// as under way and not as held back: all of its time goes, and the round trips of such a body come.
fn through_a_large_window(record: &Record) -> Option<Estimate> {
    let body = record.settings.body_bytes as f64;
    let calls = explained(record);
    let small = |c: &&Call| {
        let (window, busy) = (f64::from(c.facts.snd_wnd), c.facts.busy_us);
        busy > 0 && window > 0.0 && window < LARGE * body && c.facts.rwnd_limited_us * 5 > busy
    };
    if calls.is_empty() || !calls.iter().all(small) {
        return None;
    }
    let of = |windows: f64| {
        let one = |c: &&Call| round_trips(c, body) * record.rtt_ms() + unread(c, body, windows);
        middle(&calls.iter().map(one).collect::<Vec<_>>())
    };
    // An update of the window comes when half of it is read: between one and two of them wait.
    Some(Estimate { value: of(1.5).value, low: of(2.0).low, high: of(1.0).high + STEP_MS })
}

/// Steps in which the kernel tells its own time (at 250 ticks a second).
const STEP_MS: f64 = 4.0;

/// Milliseconds of a call beside sending its body, and beside reading what of that the server had
/// in its buffer in the end: `windows` windows.
fn unread(call: &Call, body: f64, windows: f64) -> f64 {
    let busy = call.facts.busy_us as f64 / 1e3;
    let drained = windows * busy * f64::from(call.facts.snd_wnd) / body.max(1.0);
    (ms(call.total) - ms(call.connect) - busy - drained).max(0.0)
}

/// Round trips of such a body through windows of the usual sizes: ten segments at first, twice as many
/// each time (RFC 6928); on a kept connection they have grown, and 64 KiB is the server's first window.
fn round_trips(call: &Call, body: f64) -> f64 {
    let (first, opening) = if call.fresh { (14_600.0, 1.0) } else { (65_536.0, 0.0) };
    opening + (body / first + 1.0).log2().ceil().max(1.0)
}

/// The part of a call that a slowly reading server took: while its window was full, and then for its buffered bytes, at
/// the same rate.
fn read_slowly(record: &Record, call: &Call) -> Duration {
    let limited = Duration::from_micros(call.facts.rwnd_limited_us);
    let windows = record.calls().map(|(_, c)| f64::from(c.connect_facts.snd_wnd));
    let (buffer, body) = (windows.fold(0.0, f64::max), record.settings.body_bytes as f64);
    if body <= buffer {
        return limited;
    }
    let rest = limited.mul_f64(buffer / (body - buffer));
    // It may answer while it reads.
    let wait = (call.wait + call.receive).saturating_sub(Duration::from_secs_f64(record.rtt_ms() / 1e3));
    limited + rest.min(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ProbeResponse, ReceivedBytes};
    use crate::causes;
    use crate::evidence::{Grounds, Trial};
    use crate::probe::{CallProbe, Lane, Observation, Probe, Resolved};
    use crate::record::Settings;
    use crate::shown::Metric;

    fn t(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// A call on a kept connection: so long until its first byte, and so long from then on to its
    /// second part.
    fn kept(wait: f64, pause: f64) -> Call {
        let parts = [wait, wait + pause].map(|at| ReceivedBytes { at: t(at), bytes: 50 });
        Call {
            wait: t(wait),
            receive: t(pause),
            total: t(wait + pause),
            receives: parts.to_vec(),
            end: Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() })),
            ..Call::default()
        }
    }

    fn push(record: &mut Record, experiment: Experiment, arm: u8, call: Call) {
        let mut probe = CallProbe::plain(experiment, arm, Lane::Kept(arm));
        probe.levers.quick_ack = experiment == Experiment::QuickAck && arm == 1;
        record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
    }

    /// A verdict that stands on the two arms of an experiment.
    fn moved(record: &Record, id: &str, experiment: Experiment, metric: Metric) -> Verdict {
        let cause = causes::ALL.iter().find(|c| c.id == id).expect("a cause");
        let trial: Trial = record.trial(experiment, "t", "c", metric).expect("two arms");
        Verdict::new(cause, trial.effect.value, Grounds::Moved(trial))
    }

    /// Work that varies from call to call: each arm has too few of them to say what is usual.
    #[test]
    fn all_calls_tell_what_is_left_beside_a_pause() {
        let mut record = Record::new(Settings::default());
        for wait in [5.0, 30.0, 14.0, 9.0, 22.0, 13.0, 16.0] {
            push(&mut record, Experiment::Observe, 0, kept(wait, 42.0));
        }
        for wait in [15.0, 12.0, 35.0, 14.5] {
            push(&mut record, Experiment::QuickAck, 0, kept(wait, 42.0));
        }
        // In the last one the lever failed.
        for (wait, pause) in [(2.0, 0.1), (3.0, 0.1), (4.0, 0.1), (6.0, 42.0)] {
            push(&mut record, Experiment::QuickAck, 1, kept(wait, pause));
        }
        let verdict = moved(&record, "server-nagle-delayed-ack", Experiment::QuickAck, |c| c.receive);
        let after = of(&record, &verdict).expect("a prediction").after;
        assert!((12.0..=14.5).contains(&after.value), "{after:?}");
        assert!(after.low < 10.0 && after.high > 15.0, "{after:?}");
    }

    /// By the round trip, the pause with nothing changed, and the one where we acknowledge at once: what
    /// is left of a call whose first byte came after 5 ms.
    #[test]
    fn a_pause_goes_but_for_the_servers_own() {
        for (rtt_us, pause, at_once, left) in [
            // Our own reaction is none of the fixed call's.
            (50, 42.0, 0.7, 5.0),
            (40_000, 82.0, 41.0, 5.0),
            // The server works before it writes the rest.
            (50, 42.0, 20.0, 25.0),
            (40_000, 82.0, 60.0, 65.0),
        ] {
            let mut record = Record::new(Settings::default());
            let mut push = |experiment, arm, pause| {
                let mut call = kept(5.0, pause);
                call.facts.min_rtt_us = rtt_us;
                push(&mut record, experiment, arm, call);
            };
            for n in 0..4 {
                let noise = f64::from(n) / 100.0;
                push(Experiment::Observe, 0, pause + noise);
                push(Experiment::QuickAck, 0, pause + noise);
                push(Experiment::QuickAck, 1, at_once + noise);
            }
            let verdict = moved(&record, "server-nagle-delayed-ack", Experiment::QuickAck, |c| c.receive);
            let times = spared(&record, &verdict, CallPart::Call).expect("times");
            assert!((middle(&times).value - left).abs() < 0.1, "{rtt_us}, {pause}, {at_once}: {times:?}");
        }
    }

    /// A processor that slept through the last pause makes a call longer that is as short as that.
    #[test]
    fn of_short_calls_those_that_follow_at_once_tell() {
        let mut record = Record::new(Settings::default());
        for n in 0..6 {
            let noise = f64::from(n) / 100.0;
            push(&mut record, Experiment::Observe, 0, kept(0.4 + noise, 42.0));
            push(&mut record, Experiment::QuickAck, 0, kept(0.4 + noise, 42.0));
            push(&mut record, Experiment::QuickAck, 1, kept(0.1 + noise, 0.0));
        }
        let verdict = moved(&record, "server-nagle-delayed-ack", Experiment::QuickAck, |c| c.receive);
        let after = of(&record, &verdict).expect("a prediction").after;
        assert!((after.value - 0.125).abs() < 0.02, "{after:?}");
    }

    /// Without buffering the proxy still forwards.
    #[test]
    fn a_proxy_costs_time_beside_what_it_holds_back() {
        let mut record = Record::new(Settings::default());
        for n in 0..6 {
            let noise = f64::from(n) / 100.0;
            push(&mut record, Experiment::Observe, 0, kept(101.5 + noise, 0.1));
            push(&mut record, Experiment::Origin, 0, kept(101.5 + noise, 0.1));
            push(&mut record, Experiment::Origin, 1, kept(0.2 + noise, 100.2));
        }
        let verdict = moved(&record, "proxy-buffering", Experiment::Origin, Call::to_first_byte);
        let after = of(&record, &verdict).expect("a prediction").after;
        assert!((after.value - 1.4).abs() < 0.1, "1.2 ms more than at the server behind: {after:?}");
    }

    #[test]
    fn each_lookup_tells_how_long_one_takes() {
        let mut record = Record::new(Settings { named: true, ..Settings::default() });
        for took in [2.6, 5.0] {
            let resolved = Resolved { took: t(took), addresses: Vec::new(), error: None };
            record.push(Probe::Resolve, Observation::Resolved(resolved));
        }
        for _ in 0..6 {
            push(&mut record, Experiment::Observe, 0, kept(0.1, 0.0));
        }
        let cause = causes::ALL.iter().find(|c| c.id == "ipv6-fallback").expect("a cause");
        let words = "w".to_owned();
        let verdict = Verdict::new(cause, 1200.0, Grounds::Counted { words, share: 1.0 });
        let times = spared(&record, &verdict, CallPart::Lookup).expect("times");
        let after = middle(&times);
        assert!(after.low < 2.8 && after.high > 5.0, "{after:?}");
    }

    /// As `linerate serve --misbehave slow-read=400000` was measured, 100,000 bytes long; without it
    /// such calls took 1.4 ms, and 83 ms at a round trip of 40 ms.
    #[test]
    fn all_of_an_upload_through_a_small_window_is_the_readers_time() {
        let predicted = |rtt_us: u32, calls: &[(f64, u64, u64)]| {
            let mut record = Record::new(Settings { body_bytes: 100_000, ..Settings::default() });
            for (total, busy, limited) in calls {
                let mut call = kept(*total, 0.0);
                call.facts.busy_us = busy * 1000;
                call.facts.rwnd_limited_us = limited * 1000;
                (call.facts.snd_wnd, call.facts.min_rtt_us) = (2896, rtt_us);
                push(&mut record, Experiment::Observe, 0, call);
            }
            through_a_large_window(&record)
        };
        let near =
            predicted(20, &[(249.5, 232, 176), (263.1, 240, 172), (250.0, 236, 180), (254.6, 236, 172)]);
        let near = near.expect("a prediction");
        assert!(near.value < 12.0 && near.low <= 1.4 && near.high >= 1.4, "{near:?}");
        let far = predicted(40_000, &[(1420.3, 1404, 674), (1363.4, 1344, 660), (1345.0, 1336, 668)]);
        let far = far.expect("a prediction");
        assert!((far.value - 83.0).abs() < 8.3, "{far:?}");
        assert_eq!(predicted(20, &[(263.0, 236, 4)]), None, "it was not the window");
    }

    #[test]
    fn what_a_slow_reader_has_buffered_is_its_time_too() {
        let t = Duration::from_millis;
        let mut call = Call { fresh: true, send: t(100), wait: t(250), total: t(350), ..Call::default() };
        call.facts.rwnd_limited_us = 100_000;
        call.connect_facts.snd_wnd = 60_000;
        let record = |body_bytes| {
            let mut record = Record::new(Settings { body_bytes, ..Settings::default() });
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call.clone())));
            record
        };
        // 40 kB in 100 ms: the 60 kB that are left take 150 ms, and the other 100 ms are work.
        assert_eq!(read_slowly(&record(100_000), &call), t(250));
        assert_eq!(read_slowly(&record(50_000), &call), t(100));
        let short = Call { wait: t(20), ..call.clone() };
        assert_eq!(read_slowly(&record(100_000), &short), t(120));
    }
}
