//! The server writes its response in two pieces with Nagle's algorithm on. The second waits for our
//! acknowledgement of the first, which we delay.
//!
//! Symptom: after the first call of a connection, a pause of about 40 ms within the response.
//! Experiment: acknowledging at once (TCP_QUICKACK) removes the pause. An acknowledgement that is
//! 8, 16, 24, 32 ms late (TCP_DELACK_MAX_US) makes a pause of that length, slope 1. A server that
//! works between head and body reacts to neither.

use std::time::Duration;

use crate::arms::{arms, on_new_lanes, side_by_side};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof, Trial};
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::probe::{Block, CallProbe, DOSES_MS, Experiment, Writes};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, not_moved};
use crate::signs::flow::{self, FlowShape};
use crate::signs::pace::{self, PausePace};
use crate::signs::streams;
use crate::stats::{Estimate, slope};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

/// The server's small write waits for our delayed ACK.
pub static CAUSE: Cause = Cause {
    id: "server-nagle-delayed-ack",
    title: "the server holds the second part of its answer back until we acknowledge the first (Nagle's algorithm meeting delayed ACKs)",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: Some("the rest waits for our ACK"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::LeverUnpaused,
    packets: Some(PACKETS),
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "Two good ideas that meet badly. Nagle's algorithm (in the sender) holds a small packet back while an earlier one is not \
         acknowledged. Delayed acknowledgements (in the receiver) wait some 40 ms for data to travel with. A server that writes its answer in two \
         pieces meets both: its second piece waits for our acknowledgement, and our acknowledgement waits for its second piece. Nobody \
         computes anything meanwhile.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::From("answer, first part"),
        PictureStep::Wait(41.6, "the rest waits for the ACK, the ACK for the rest"),
        PictureStep::To("ACK"),
        PictureStep::From("answer, the rest"),
    ],
    more: &[
        fix(
            "macOS, Windows",
            "the same option: TCP_NODELAY on the accepted socket (on Windows delayed ACKs wait 40 to 200 ms)",
        ),
        fix(
            "Linux, as the caller",
            "ip route change ... quickack 1 acknowledges at once: it hides the fault, and the server keeps it",
        ),
    ],
};

const PACKETS: PacketSigns = PacketSigns {
    title: "the server's answer leaves in parts, and the rest waits for the client's delayed ACK (Nagle's algorithm)",
    fixes: &[
        fix("any server", "TCP_NODELAY on accepted connections, or header and body in one write"),
        fix("JDK HttpServer", "-Dsun.net.httpserver.nodelay=true"),
        fix("Netty", "childOption(ChannelOption.TCP_NODELAY, true)"),
        fix("Node.js", "http.createServer({ noDelay: true }) (its default since 18)"),
        fix("Python http.server", "a handler with wbufsize = -1, so that header and body leave in one write"),
    ],
    verify: "linerate explain URL proves or refutes it by acknowledging at once",
    pause: Some("the server's next part waits for the client's ACK"),
    of_connections: false,
    doubts: PacketDoubt::Note,
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "JDK HttpServer",
        change: "start with -Dsun.net.httpserver.nodelay=true, or wrap the response body in a BufferedOutputStream so that head and body leave in one write",
    },
    RuleFix {
        software: "Netty",
        change: ".childOption(ChannelOption.TCP_NODELAY, true), and one writeAndFlush for head and content",
    },
    RuleFix {
        software: "Tomcat",
        change: "socket.tcpNoDelay=\"true\" on the Connector (the default since 6; check that nobody turned it off)",
    },
    RuleFix {
        software: "nginx",
        change: "tcp_nodelay on; (the default) also in the server block that answers, and tcp_nopush only together with sendfile",
    },
    RuleFix { software: "HAProxy", change: "option http-no-delay where answers are interactive" },
    RuleFix {
        software: "Node",
        change: "leave noDelay at true in http.createServer, and res.end(body) instead of write and end",
    },
    RuleFix {
        software: "Python http.server",
        change: "wbufsize = -1 in the handler so that head and body leave together, or disable_nagle_algorithm = True",
    },
    RuleFix { software: "Go", change: "the default is right; remove SetNoDelay(false)" },
    RuleFix { software: ".NET", change: "NoDelay = true on the socket; Kestrel's default is right" },
    RuleFix {
        software: "Rust hyper/axum",
        change: "set_nodelay(true) on the accepted stream (axum: serve(..).tcp_nodelay(true))",
    },
    RuleFix {
        software: "any server",
        change: "setsockopt(TCP_NODELAY), and writev head and body in one call",
    },
];

/// A shorter pause is not a stall: delayed acknowledgements last 40 ms, and at least two ticks of
/// the kernel.
const PAUSE_MS: f64 = 4.0;
/// Slope from which a pause follows the acknowledgement; random work stayed below 0.28 in 32 runs,
/// stalls were above 0.52.
const FOLLOWS: f64 = 0.4;
/// Slope below which that the pause follows is no more than possible.
const RANDOM: f64 = 0.28;

fn within(call: &Call) -> Duration {
    call.receive
}

/// It pauses, and not as a slow line does after each segment.
fn pauses(record: &Record, call: &Call) -> bool {
    let by_line = flow::shape(call, record.rtt_ms()).is_some_and(FlowShape::is_of_segments);
    ms(call.longest_gap()) >= PAUSE_MS && !by_line
}

/// Of calls on kept connections with nothing changed, after the look as well: those that pause, and all.
/// Reason: on a busy machine the few calls of the look may all be spared.
fn later(record: &Record) -> (usize, usize) {
    let plain = |p: &CallProbe| {
        let same =
            matches!(p.experiment, Experiment::Tail | Experiment::PerConnection | Experiment::Scattered);
        same && p.arm == 0
    };
    let calls = record.calls().filter(|(p, c)| plain(p) && !c.fresh && c.answer().is_some());
    calls.fold((0, 0), |(paused, all), (_, c)| (paused + usize::from(pauses(record, c)), all + 1))
}

/// Of later calls, so many must pause, and one in so many.
const LATER: usize = 3;

fn sign(record: &Record) -> bool {
    let reused = record.reused();
    // A busy machine spares some calls: two that pause are a sign, too.
    let paused = reused.iter().filter(|c| pauses(record, c)).count();
    let (late, all) = later(record);
    reused.len() >= 2 && (2 * paused >= reused.len() || paused >= 2 || late >= LATER && LATER * late >= all)
}

fn quick(record: &Record) -> Option<Trial> {
    record.trial(Experiment::QuickAck, "acknowledge at once", "TCP_QUICKACK after each receive", within)
}

/// Least time that the kernel option must remove.
const MOVED_MS: f64 = PAUSE_MS / 2.0;
/// Times that more blocks are made where a machine is too busy for the first ones to tell.
const MORE: usize = 3;

/// Calls of an experiment, those that open a connection included.
fn made(record: &Record, experiment: Experiment) -> usize {
    record.calls().filter(|(p, _)| p.experiment == experiment).count()
}

/// Blocks of the two arms, on connections that no other block had.
fn blocks(record: &Record, blocks: u8) -> Vec<Block> {
    // If the client's half is tested too, calls must remain for it.
    let n = if record.settings.writes == Writes::Apart { 2 } else { 3 };
    let arms = arms(Experiment::QuickAck, 2, blocks, n, |p| {
        p.writes = record.settings.writes;
        p.levers.quick_ack = p.arm == 1;
    });
    side_by_side(record, on_new_lanes(record, arms))
}

fn doses(record: &Record, blocks: u8) -> Vec<Block> {
    let arms = arms(Experiment::Dose, DOSES_MS.len() as u8, blocks, 2, |p| {
        p.writes = record.settings.writes;
        p.levers.delayed_ack = Some(Duration::from_millis(DOSES_MS[usize::from(p.arm)]));
    });
    side_by_side(record, on_new_lanes(record, arms))
}

fn wants(record: &Record) -> Vec<Block> {
    if !sign(record) || !record.settings.may_repeat || streams::limited_by_window(record) {
        return Vec::new();
    }
    if !record.tried(Experiment::QuickAck) {
        return blocks(record, 2);
    }
    let Some(trial) = quick(record) else { return Vec::new() };
    if trial.is_unclear(MOVED_MS) {
        // A busy machine makes the noise wide: more calls narrow it.
        let again = made(record, Experiment::QuickAck) < 16 + 8 * MORE;
        let given_up = record.given_up.contains(&Experiment::QuickAck);
        return if again && !given_up { blocks(record, 1) } else { Vec::new() };
    }
    if !trial.moved(MOVED_MS)
        || !record.settings.delayed_ack_lever
        || record.given_up.contains(&Experiment::Dose)
    {
        return Vec::new();
    }
    match dose(record) {
        None if !record.tried(Experiment::Dose) => doses(record, 2),
        Some(dose) if follows(dose).is_none() && made(record, Experiment::Dose) < 36 => doses(record, 1),
        _ => Vec::new(),
    }
}

/// Whether the pause follows the acknowledgement. `None`: the interval holds both.
fn follows(dose: Estimate) -> Option<bool> {
    if dose.high < FOLLOWS { Some(false) } else { (dose.low > 0.0 && dose.value >= FOLLOWS).then_some(true) }
}

/// How much longer the response takes for each millisecond by which the acknowledgement is later.
pub(crate) fn dose(record: &Record) -> Option<Estimate> {
    let mut points = Vec::new();
    for (arm, dose) in DOSES_MS.iter().enumerate() {
        points.extend(record.arm(Experiment::Dose, arm as u8).iter().map(|c| (*dose as f64, ms(within(c)))));
    }
    if points.len() < 2 * DOSES_MS.len() { None } else { slope(&points) }
}

/// What a delayed acknowledgement of Linux takes, milliseconds.
const DELAYED_ACK_MS: std::ops::RangeInclusive<f64> = 36.0..=48.0;

const BEHIND: &[RuleFix] = &[RuleFix {
    software: "any server that passes calls on",
    change: "run it from there against its backend: linerate explain http://BACKEND/; the backend then sets TCP_NODELAY, or writes head and body in one call",
}];

/// Nothing comes for as long as an acknowledgement is delayed, and it is not ours: the server waits
/// for the rest of a response itself, from one behind it whose acknowledgements it delays.
fn behind(record: &Record) -> Option<Verdict> {
    let PausePace::Step(trial) = pace::seen(record) else { return None };
    let mut waits = trial.without.clone();
    waits.sort_by(f64::total_cmp);
    // What a busy machine adds is not in the quicker ones.
    let least = waits.get(waits.len() / 4).copied().unwrap_or_default() - trial.after_ms();
    if !DELAYED_ACK_MS.contains(&least) {
        return None;
    }
    let words = format!(
        "right after another call each waits {} for its first byte, after short pauses as long or not at all, and after longer ones {}: so \
         long, and under that condition, Linux delays an acknowledgement",
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    let verdict = Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).at_most(Proof::Likely);
    let verdict = verdict.titled(
        "it looks like Nagle's algorithm meeting delayed ACKs behind the server that answers, between a proxy and its backend, say",
    );
    Some(verdict.saying(words).advising(BEHIND))
}

fn judge(record: &Record) -> Judgement {
    if !sign(record) {
        return match behind(record) {
            Some(verdict) => Judgement::Named(Box::new(verdict)),
            None => no_pause(record),
        };
    }
    if streams::limited_by_window(record) {
        return excluded("the answer pauses on the way, and with larger HTTP/2 windows of ours it does not");
    }
    let Some(trial) = quick(record) else {
        return Judgement::Open(
            "the answer pauses on the way, which Nagle's algorithm and delayed ACKs can cause; telling needs the call repeated \
             (--repeat-unsafe for methods other than GET and HEAD) on a connection that the server keeps"
                .to_owned(),
        );
    };
    if !trial.moved(MOVED_MS) {
        let times = format!("{} without, {} with", say(trial.before_ms()), say(trial.after_ms()));
        let words = if trial.excludes(MOVED_MS) {
            format!("the answer pauses on the way, and acknowledging at once does not change that: {times}")
        } else {
            format!(
                "the answer pauses on the way; acknowledging at once may change that: {times}, but times vary too much"
            )
        };
        return not_moved(&trial, MOVED_MS, &words);
    }
    let dose = dose(record);
    if let Some(dose) = dose.filter(|d| follows(*d) == Some(false)) {
        return excluded(format!(
            "later acknowledgements do not make it later: slope {:.2} ({:.2} to {:.2})",
            dose.value, dose.low, dose.high
        ));
    }
    if let Some(words) = looks_otherwise(record) {
        return Judgement::Open(words);
    }
    Judgement::Named(Box::new(verdict(record, trial, dose)))
}

/// Least round trip that a pause can be told from, milliseconds.
const TOLD_MS: f64 = 3.0;

/// Why the pauses may be others, whatever acknowledging at once or later seems to do to them. What is sent
/// again comes after a pause too, and the calls that met it may all be of one arm. And however soon we
/// acknowledge, under Nagle's algorithm the rest of a response comes a round trip after its beginning.
fn looks_otherwise(record: &Record) -> Option<String> {
    let calls = [0, 1].map(|arm| record.arm(Experiment::QuickAck, arm));
    let all = calls.iter().map(Vec::len).sum::<usize>();
    let lossy = calls.iter().flatten().filter(|c| c.lossy()).count();
    if 2 * lossy > all {
        return Some(format!(
            "unclear: the answer pauses on the way, and acknowledging at once seems to spare it that; but {lossy} of these {all} calls \
             lost segments, and sending them again makes such pauses too"
        ));
    }
    let rtt = record.rtt_ms();
    let at_once = calls[1].len();
    let too_soon = calls[1].iter().filter(|c| ms(within(c)) < rtt / 2.0).count();
    (rtt >= TOLD_MS && 4 * too_soon > at_once).then(|| {
        format!(
            "unclear: the answer pauses on the way; but acknowledged at once, {too_soon} of {at_once} answers came whole in less than half a \
             round trip ({}), and Nagle's algorithm would take one",
            say(rtt)
        )
    })
}

fn verdict(record: &Record, trial: Trial, dose: Option<Estimate>) -> Verdict {
    let cost = trial.effect.value;
    let (before, after) = (trial.before_ms(), trial.after_ms());
    let chance = trial.p_value;
    let verdict = Verdict::new(&CAUSE, cost, Grounds::Moved(trial)).saying(format!(
        "from its first to its last byte the answer takes {}; acknowledged at once, {}",
        say(before),
        say(after)
    ));
    let first = median_of(&record.fresh(), within);
    let verdict = if record.fresh().len() >= 2 && first < before / 2.0 {
        verdict.saying(format!(
            "the first call of a connection is spared ({}): there the kernel acknowledges at once by itself",
            say(first)
        ))
    } else {
        verdict
    };
    match dose {
        Some(d) if follows(d) == Some(true) => verdict.with_dose(dose).saying(format!(
            "dose-response: each millisecond the acknowledgement is later makes the answer {:.2} ms later ({:.2} to {:.2}; \
             TCP_DELACK_MAX_US at {:?} ms)",
            d.value, d.low, d.high, DOSES_MS
        )),
        Some(d) => verdict.at_most(if d.value < RANDOM { Proof::Possible } else { Proof::Likely }).saying(format!(
            "how it follows later acknowledgements is unclear: slope {:.2} ({:.2} to {:.2}), since times vary too much",
            d.value, d.low, d.high
        )),
        None if chance <= 0.005 => verdict.saying(NO_LEVER),
        None => verdict.saying(NO_LEVER).at_most(Proof::Likely),
    }
}

/// The judgement on the first calls if the responses do not pause.
fn no_pause(record: &Record) -> Judgement {
    let reused = record.reused();
    let words = format!(
        "no pause within the answers on a kept connection (the longest is {} in the middle of {} calls)",
        say(median_of(&reused, Call::longest_gap)),
        reused.len()
    );
    // Half of the calls without a pause are what a machine does that reads late; one in four with
    // one is Nagle's.
    let paused = reused.iter().filter(|c| pauses(record, c)).count();
    match reused.len() {
        0 | 1 => Judgement::Silent,
        all if 4 * paused >= all => Judgement::Open(format!(
            "unclear: {paused} of {all} answers on a kept connection pause; {} more calls would tell",
            2 * all
        )),
        _ => excluded(words),
    }
}

const NO_LEVER: &str =
    "this kernel has no TCP_DELACK_MAX_US (Linux 6.16), so there is no dose-response beside it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ProbeResponse, ReceivedBytes};
    use crate::probe::{Lane, Observation, Probe};
    use crate::record::Settings;

    fn t(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    /// Calls at this round trip, whose response pauses for so long as it is, and where we acknowledge
    /// at once; whether they lost segments.
    fn judged(rtt_ms: f64, plain: &[f64], at_once: &[f64], lossy: bool) -> Judgement {
        let mut record = Record::new(Settings { delayed_ack_lever: false, ..Settings::default() });
        let mut push = |experiment, arm, pause: f64| {
            let parts = [rtt_ms, rtt_ms + pause].map(|at| ReceivedBytes { at: t(at), bytes: 50 });
            let mut call = Call {
                wait: t(rtt_ms),
                receive: t(pause),
                total: t(rtt_ms + pause),
                receives: parts.to_vec(),
                end: Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() })),
                ..Call::default()
            };
            call.facts.min_rtt_us = (rtt_ms * 1e3) as u32;
            call.facts.rcv_ooopack = u32::from(lossy);
            let mut probe = CallProbe::plain(experiment, arm, Lane::Kept(arm));
            probe.levers.quick_ack = arm == 1;
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        };
        for pause in plain {
            push(Experiment::Observe, 0, *pause);
        }
        for (plain, at_once) in plain.iter().zip(at_once) {
            push(Experiment::QuickAck, 0, *plain);
            push(Experiment::QuickAck, 1, *at_once);
        }
        judge(&record)
    }

    /// As measured where each sixth of the server's segments got lost.
    #[test]
    fn what_is_sent_again_pauses_too() {
        let plain = [59.3, 59.2, 59.4, 287.3, 291.3, 287.4];
        let chance = [0.0, 0.0, 0.0, 45.9, 44.7, 44.6];
        let unclear = |judged: Judgement| match judged {
            Judgement::Open(words) => words,
            other => panic!("{other:?}"),
        };
        assert!(unclear(judged(40.0, &plain, &chance, true)).contains("12 of these 12 calls lost segments"));
        let words = unclear(judged(40.0, &plain, &chance, false));
        assert!(words.contains("3 of 6 answers came whole in less than half a round trip (40"), "{words}");
        // Nagle's algorithm, far and near.
        for (rtt, at_once) in [(40.0, [41.0; 6]), (0.05, [0.1, 0.2, 0.1, 0.7, 0.2, 0.1])] {
            let paused = [rtt + 41.0, rtt + 42.0, rtt + 41.5, rtt + 43.0, rtt + 42.2, rtt + 41.1];
            assert!(matches!(judged(rtt, &paused, &at_once, false), Judgement::Named(_)), "{rtt}");
        }
    }
    /// A busy machine spared the calls of the look, and those of other experiments paused.
    #[test]
    fn pauses_after_the_look_are_a_sign() {
        let signs = |later: &[f64]| {
            let mut record = Record::new(Settings { may_repeat: true, ..Settings::default() });
            let look = [0.0; 6].iter().map(|pause| (Experiment::Observe, pause));
            for (experiment, pause) in look.chain(later.iter().map(|p| (Experiment::PerConnection, p))) {
                let parts = [1.0, 1.0 + pause].map(|at| ReceivedBytes { at: t(at), bytes: 50 });
                let call = Call {
                    wait: t(1.0),
                    receive: t(*pause),
                    total: t(1.0 + pause),
                    receives: parts.to_vec(),
                    end: Some(Ok(ProbeResponse { status: 200, ..ProbeResponse::default() })),
                    ..Call::default()
                };
                let probe = CallProbe::plain(experiment, 0, Lane::Kept(0));
                record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
            }
            (sign(&record), wants(&record).is_empty())
        };
        assert_eq!(signs(&[41.0, 42.0, 40.9, 0.1, 0.1, 0.1]), (true, false));
        for few in [&[41.0, 42.0, 0.1][..], &[41.0, 42.0, 41.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]] {
            assert_eq!(signs(few), (false, true), "{few:?}");
        }
    }
}
