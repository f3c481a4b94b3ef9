//! The server works: the request has arrived, and nothing comes for a while.
//!
//! Symptom: the time from the request's last byte to the response's first one (or a pause in the
//! middle of the response) is beyond the network's round trip. It is what is left when the levers of
//! the connection move nothing.

use super::{
    bandwidth, compression, connection_limit, cork, in_the_process, one_slow_backend, periodic_stall, pinned,
    rate_limit, request_held, server_nagle, server_queueing, server_send_buffer, upstream_wait,
};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, CallProbe, Experiment};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded};
use crate::signs::pace::{self, PausePace};
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::signs::{at_once, by_connection, congestion, pieces, scattered};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "server-think",
    title: "the server works that long on the request before its answer is complete",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the server works"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Unseen,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // The server lets a call in late, or holds its response back, and works no longer for it.
            &server_queueing::CAUSE,
            &pinned::CAUSE,
            &cork::CAUSE,
            &server_send_buffer::CAUSE,
            &compression::CAUSE,
            // A server that reads slowly has not begun to work.
            &request_held::ZERO_WINDOW,
            &request_held::SEND_BUFFER,
            // It cannot work: it gets no processor, or does something else.
            &in_the_process::THROTTLED,
            &in_the_process::CONTENDED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
            // It works on something else at regular intervals, or looks for calls then.
            &periodic_stall::CAUSE,
            // The one behind it works.
            &one_slow_backend::CAUSE,
            &upstream_wait::CAUSE,
        ],
        asks: &[
            // A pause that our acknowledgement ends is no work, nor is one that may be of that kind.
            &server_nagle::CAUSE,
            // Once its turn has come, the time of a call is the server's work.
            &rate_limit::CAUSE,
            // With a limit of connections, calls on several of them tell nothing of workers.
            &connection_limit::CAUSE,
            // A line or a limiter spreads the body, and no work.
            &bandwidth::CAUSE,
        ],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The request has arrived, and the server works on it: queries, files, other services, computing. Seen from outside that is one long wait. The network and \
         the connection are not at fault, and nothing about them will help.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(40.0, "the server works"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Linux, macOS, Windows",
        "look at what it does while a call runs: perf, Instruments, Windows Performance Recorder",
    )],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the server takes its time before the first byte of its answer",
    fixes: &[fix(
        "the server",
        "what it waits for is not in the packets: look at its own threads, queries and calls",
    )],
    verify: "linerate explain URL --pid PID",
    pause: None,
    of_connections: false,
    doubts: PacketDoubt::None,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "profile the handler of this path: time is spent above TCP (database, locks, remote calls, serialisation)",
    },
    RuleFix {
        software: "any server, where the answer pauses in its middle",
        change: "look for a limit of bandwidth (limit_rate in nginx, a traffic shaper) and for a slow source of the body",
    },
    RuleFix {
        software: "behind a proxy",
        change: "run explain from the proxy against its backend: a wait there looks like thinking from here",
    },
    RuleFix {
        software: "JVM",
        change: "async-profiler in wall-clock mode; thread dumps while calls are in flight",
    },
    RuleFix { software: "Go", change: "net/http/pprof, the execution tracer" },
    RuleFix { software: "Node", change: "--cpu-prof, or clinic doctor; look for awaited calls in sequence" },
    RuleFix { software: "Python", change: "py-spy dump and record on the worker" },
];

/// Experiments that other rules leave open: calls at once, once more, then a round of calls on each of several
/// connections. It comes last, since rare causes need their calls first; and calls at once have shown
/// more connections by then.
fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let burst = if judged.names(&rate_limit::CAUSE) { Vec::new() } else { at_once::burst(record) };
    if !burst.is_empty() || judged.names(&connection_limit::CAUSE) {
        return burst;
    }
    by_connection::round(record)
}

/// Calls from which on the least of them is no chance.
const ENOUGH_CALLS: usize = 10;
/// Of fewer, where it is this many times as long.
const FEW_TIMES: f64 = 3.0;

/// Of the quickest calls, so many tell the least wait. Reason: what one of them waited for a processor here
/// may have been before it began.
const QUICKEST: usize = 3;

/// Calls with nothing changed that would make them wait for something else.
fn plain_calls(record: &Record) -> Vec<&Call> {
    let alike = |p: &CallProbe| {
        let soon = p.experiment == Experiment::Paced && p.arm == pace::SOON;
        let plain = matches!(
            p.experiment,
            Experiment::Observe | Experiment::Tail | Experiment::PerConnection | Experiment::Scattered
        );
        soon || plain && p.arm == 0
    };
    record.calls().filter(|(p, c)| alike(p) && c.answer().is_some() && !c.lossy()).map(|(_, c)| c).collect()
}

/// What none of these calls explains by a processor that somebody else had, milliseconds.
#[derive(Clone, Copy, Debug)]
struct OwnWait {
    /// The least that any of them waited beyond a round trip, less what we waited for a processor in it.
    /// Work is in all of them, whatever else this machine does.
    least: f64,
    /// What they waited in the middle, less all the time in which anything on this machine waited for a
    /// processor: whoever that was, the rest of the wait has another reason.
    alone: f64,
    /// How many they are.
    calls: usize,
}

impl OwnWait {
    fn most(self) -> f64 {
        self.least.max(self.alone)
    }

    fn in_words(self) -> String {
        if self.alone > self.least {
            return format!(
                "{} calls waited {} in the middle beyond a round trip while nothing on this machine waited for a processor",
                self.calls,
                say(self.alone)
            );
        }
        format!(
            "of {} calls none had its response sooner than {} after a round trip, less what it waited for a processor",
            self.calls,
            say(self.least)
        )
    }
}

fn own_wait(record: &Record) -> OwnWait {
    let calls = plain_calls(record);
    let mut waits: Vec<(f64, f64)> = calls.iter().map(|c| (ms(c.wait_for_whole()), ms(c.starved))).collect();
    waits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = waits.first().map_or(0.0, |w| w.0);
    let least =
        waits.iter().take(QUICKEST).map(|(wait, starved)| (wait - starved).min(most)).fold(0.0, f64::max);
    let apart: Option<Vec<f64>> =
        calls.iter().map(|c| Some(ms(c.wait_for_whole().saturating_sub(c.contended?)))).collect();
    let alone = apart.filter(|apart| apart.len() >= ENOUGH_CALLS).map_or(0.0, |apart| median(&apart));
    let [least, alone] = [least, alone].map(|wait| (wait - record.rtt_ms()).max(0.0));
    OwnWait { least, alone, calls: waits.len() }
}

/// A pause in the middle of the response that no round trip explains and no acknowledgement moves.
fn pause(record: &Record, judged: &Judged<'_>) -> f64 {
    if !matches!(judged.of(&bandwidth::CAUSE), Judgement::Silent | Judgement::RuledOut(_)) {
        return 0.0;
    }
    if apart_ms(record, judged).is_some() {
        return record.typical(|c| c.receive);
    }
    let gap = median_of(&record.group(), Call::longest_gap);
    // Nor where it is unclear.
    let follows_us = matches!(judged.of(&server_nagle::CAUSE), Judgement::Named(_) | Judgement::Open(_));
    let lossy = record.group().iter().filter(|c| c.lossy()).count() * 2 > record.group().len();
    // A round trip between two bursts is the congestion window's, and a slow link spreads a response
    // evenly.
    let before = record.group().iter().map(|c| c.bytes_before_gap()).max().unwrap_or(0);
    let window = if before < congestion::FIRST_WINDOW { 0.0 } else { 2.0 * record.rtt_ms() };
    let alone = gap > window + WORK_MS && gap > 0.5 * record.typical(|c| c.receive);
    if alone && !follows_us && !lossy { gap } else { 0.0 }
}

/// Pauses between the pieces of a response that the server makes itself.
fn apart_ms(record: &Record, judged: &Judged<'_>) -> Option<f64> {
    let others = judged.names_any(&[&server_nagle::CAUSE, &bandwidth::CAUSE]);
    pieces::apart_ms(record).filter(|_| !others)
}

/// The part of the time to the first byte that our own client's Nagle took: another rule reports it.
fn held_here(record: &Record) -> f64 {
    let trial = record.trial(Experiment::NoDelay, "", "", Call::to_first_byte);
    trial.filter(|t| t.moved(1.0)).map_or(0.0, |t| t.effect.value)
}

/// Whole times that programs wait for are multiples of this, milliseconds.
const TIMER_MS: f64 = 500.0;
/// How near to one each call is, as a share.
const TIMER_NEAR: f64 = 0.01;

/// All calls wait the same, and that is a time that people set.
fn timer(calls: &[&Call]) -> Option<String> {
    let waits: Vec<f64> = calls.iter().map(|c| ms(c.wait)).collect();
    let middle = median(&waits);
    let whole = (middle / TIMER_MS).round() * TIMER_MS;
    let all =
        waits.len() >= 3 && whole > 0.0 && waits.iter().all(|w| (w - whole).abs() <= TIMER_NEAR * whole);
    all.then(|| {
        format!(
            "all {} calls wait {} to within 1 %: a timer runs out there (a long poll, or a time-out towards something behind it); work \
             varies more",
            waits.len(),
            say(whole)
        )
    })
}

/// With what else was seen of it.
fn beside(record: &Record, calls: &[&Call], mut verdict: Verdict) -> Verdict {
    if let Some(served) = at_once::served(record) {
        verdict = verdict.saying(format!(
            "it serves {served} at once: a call alone takes {}, and call {} waits until one of them has ended",
            say(median(&at_once::alone(record))),
            served + 1
        ));
    } else if let Some((alone, together)) = at_once::both(record) {
        verdict = verdict.saying(format!(
            "a call alone takes {}, one of several at once {} in the middle",
            say(median(&alone)),
            say(median(&together))
        ));
    }
    if let Some(timer) = timer(calls) {
        verdict = verdict.saying(timer);
    }
    if let Some(server) = calls.first().and_then(|c| c.answer()).and_then(|a| a.field("server-timing")) {
        verdict = verdict.saying(format!("the server says of itself: Server-Timing: {server}"));
    }
    verdict
}

/// Calls at random times wait at least half as long: it is not the pace.
fn waits_at_random(record: &Record, before: f64) -> bool {
    let waits: Vec<f64> = scattered::all(record).iter().map(|a| a.wait).collect();
    !waits.is_empty() && median(&waits) - record.rtt_ms() >= before / 2.0
}

/// Why the calls' own waits do not tell, on a busy machine.
fn among_others(record: &Record, within: f64, own: OwnWait) -> Option<String> {
    if own.alone >= WORK_MS {
        return None;
    }
    let OwnWait { least, calls, .. } = own;
    let paused = if within > 0.0 { record.quickest(|c| c.receive).min(within) } else { 0.0 };
    let enough = calls >= ENOUGH_CALLS || least + paused >= FEW_TIMES * WORK_MS;
    (least + paused < WORK_MS || !enough).then(|| {
        format!(
            "unclear: of {calls} calls one had its response {} after a round trip, less what it waited for a processor here, and other \
             programs compete for this machine's processors; a quieter machine would tell",
            say(least + paused)
        )
    })
}

/// Where the time goes: before the response, or within it, in pieces that are so far apart.
fn in_words(record: &Record, apart: Option<f64>, before: f64, within: f64) -> String {
    match apart {
        Some(apart) if within > before => format!(
            "the answer comes in pieces, {} apart, over {}, and no round trip or acknowledgement explains that: the server makes them as \
             it goes",
            say(apart),
            say(within)
        ),
        None if within > before => format!(
            "the answer pauses for {} in its middle, and acknowledging earlier does not change that",
            say(within)
        ),
        _ => format!(
            "from the request's last byte to the answer's first one: {}, of which the network's round trip is {}",
            say(before + record.rtt_ms()),
            say(record.rtt_ms())
        ),
    }
}

/// What may be another reason for the wait, and was not told apart.
fn untold(record: &Record, judged: &Judged<'_>, pace: &PausePace, before: f64) -> Option<&'static str> {
    let refused = judged.names(&rate_limit::CAUSE);
    let unclear = matches!(pace, PausePace::Same(trial) if trial.is_unclear(pace::least_ms(record)));
    match pace {
        PausePace::Untried if !refused => Some(
            "whether calls wait for our own pace (a rate limiter) was not tested: calls after a pause would tell",
        ),
        PausePace::Same(_) if unclear && !waits_at_random(record, before) => {
            Some("whether the wait depends on our own pace is unclear: times vary too much")
        }
        PausePace::Otherwise(..) => {
            Some("a pause before a call changes how long it waits, and work does not depend on that")
        }
        _ if matches!(judged.of(&pinned::CAUSE), Judgement::Open(_)) => {
            Some("whether some connections meet a busy worker and others do not is unclear")
        }
        _ => None,
    }
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    let calls = record.group();
    if calls.is_empty() {
        return Judgement::Silent;
    }
    let (mut before, within) = ((beyond_rtt(record) - held_here(record)).max(0.0), pause(record, judged));
    let pace = pace::seen(record);
    let alone = pace.alone_ms();
    let limited = alone.is_some() || judged.names(&rate_limit::CAUSE);
    if limited {
        // Once its turn has come, the time of a call is the server's work.
        before = (alone.unwrap_or(0.0) - record.rtt_ms()).max(0.0);
    }
    let work = before + within;
    if work < WORK_MS {
        return excluded(format!(
            "the answer begins {} after a round trip; work below {WORK_MS:.0} ms is not judged",
            say(before)
        ));
    }
    if calls.len() == 1 && work < FEW_TIMES * WORK_MS {
        return Judgement::Open(format!(
            "unclear: one call alone had its response {} after a round trip, as a hiccup of a machine or a first call may; more calls would \
             tell",
            say(work)
        ));
    }
    // Where programs compete for this machine's processors, a server on it waits for one in some calls.
    let bounded = (!limited && record.is_contended()).then(|| own_wait(record));
    if let Some(unclear) = bounded.and_then(|own| among_others(record, within, own)) {
        return Judgement::Open(unclear);
    }
    if let Some(own) = bounded {
        before = before.min(own.most());
    }
    let work = before + within;
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let words = in_words(record, apart_ms(record, judged), before, within);
    let grounds = match bounded {
        // The kernel's count of what each call waited for a processor is taken off.
        Some(own) => {
            Grounds::Counted { words: format!("on a busy machine: {}; {words}", own.in_words()), share: 0.0 }
        }
        None => Grounds::Seen { words, alone: true },
    };
    let verdict = beside(record, &calls, Verdict::new(&CAUSE, work, grounds));
    if let Some(words) = untold(record, judged, &pace, before) {
        return Judgement::Named(Box::new(verdict.saying(words).at_most(Proof::Possible)));
    }
    // From outside nothing tells work from waiting for somebody else.
    Judgement::Named(Box::new(verdict.at_most(Proof::Likely)))
}
