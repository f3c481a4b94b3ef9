//! The server collects small writes (TCP_CORK, MSG_MORE) and does not let go: its kernel sends the
//! rest by itself, 200 ms later.
//!
//! Symptom: the response, or its last part, comes after 200 ms. Experiment: segments of such a size
//! that the response fills them. The kernel holds back a corked segment only while it is not full.

use crate::arms::singles;
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::{Record, median_of};
use crate::rule::{AGAIN, Cause, Judgement, Rule, not_moved};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "cork",
    title: "the server corks its connection and does not let go: the rest of the response waits 200 ms in its kernel",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Wire,
    part: CallPart::Call,
    pause: Some("corked: until the kernel lets go"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server told its kernel to collect small writes (TCP_CORK, or MSG_MORE on the last one) and forgot to let go. The kernel sends the rest by \
         itself after 200 ms.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(200.0, "corked: until the kernel's own time-out"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("any server", "clear TCP_CORK (or no MSG_MORE) with the last write"),
        fix("nginx", "tcp_nopush only together with sendfile, and tcp_nodelay on"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix { software: "any server", change: "clear TCP_CORK after the last write, and no MSG_MORE on it" },
    RuleFix { software: "nginx", change: "tcp_nopush only together with sendfile, and tcp_nodelay on" },
    RuleFix {
        software: "Java",
        change: "no StandardSocketOptions or JNI transport that sets TCP_CORK without clearing it",
    },
    RuleFix {
        software: "Python",
        change: "socket.setsockopt(IPPROTO_TCP, TCP_CORK, 0) when the response is written",
    },
];

/// The kernel's time-out for what is corked is its retransmission time-out: 200 ms at least, and
/// the round trip on top.
const FROM_MS: f64 = 185.0;
/// Beyond it and some round trips it is something else: ticks, and a busy machine.
const BEYOND_MS: f64 = 45.0;
/// Least segment that is tried: bytes of content.
const LEAST_SEGMENT: u64 = 76;
/// Largest segment that is tried: bytes of content.
const MOST_SEGMENT: u64 = 1400;
/// Bytes of TCP options in a segment with time stamps.
const OPTIONS: u32 = 12;
/// Calls of each arm.
const CALLS: usize = 4;
/// The least time that the lever must take away.
const LEAST_MS: f64 = 100.0;

/// The part of a call that the server's kernel may have held back: the longest silence before a byte of
/// the response.
fn silence(call: &Call) -> f64 {
    ms(call.wait).max(ms(call.longest_gap()))
}

/// Bytes of a response, head and all.
fn bytes(call: &Call) -> u64 {
    call.receives.iter().map(|r| u64::from(r.bytes)).sum()
}

fn sign(record: &Record) -> bool {
    let group = record.group();
    let silences: Vec<f64> = group.iter().filter(|c| !c.lossy()).map(|c| silence(c)).collect();
    let most = FROM_MS + BEYOND_MS + 4.0 * record.rtt_ms();
    let in_it = silences.iter().filter(|s| (FROM_MS..most).contains(s)).count();
    silences.len() >= 2 && 3 * in_it >= 2 * silences.len()
}

/// The largest size of segments that divides a response of `bytes` bytes evenly.
fn filling(bytes: u64) -> Option<u64> {
    (LEAST_SEGMENT..=MOST_SEGMENT.min(bytes)).rev().find(|size| bytes.is_multiple_of(*size))
}

fn wants(record: &Record) -> Vec<Block> {
    let size = record.group().first().and_then(|c| filling(bytes(c)));
    let Some(size) = size.filter(|_| sign(record) && record.settings.may_repeat) else { return Vec::new() };
    if record.tried(Experiment::Cork) {
        return Vec::new();
    }
    let probe = |arm: u8| {
        let plain = CallProbe::plain(Experiment::Cork, arm, Lane::Fresh);
        let mut probe = CallProbe { writes: record.settings.writes, ..plain };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        // With time stamps in each segment, and without: which, the peer decides.
        probe.levers.max_segment = [None, Some(size + OPTIONS), Some(size)][usize::from(arm)];
        Probe::Call(Box::new(probe))
    };
    singles((0..CALLS).flat_map(|_| [probe(0), probe(1), probe(2)]).collect())
}

fn trial(record: &Record) -> Option<Trial> {
    let name = "segments that the response fills";
    let of = |arm: u8| {
        let times = |arm| record.times(Experiment::Cork, arm, |c| c.total);
        Trial::of(name, "the size of segments (TCP_MAXSEG)", times(0), times(arm))
    };
    let both = [of(1), of(2)].into_iter().flatten();
    both.max_by(|a, b| a.effect.value.total_cmp(&b.effect.value))
}

fn judge(record: &Record) -> Judgement {
    if !sign(record) {
        return Judgement::Silent;
    }
    let held = median_of(&record.group(), |c| c.wait.max(c.longest_gap()));
    let Some(trial) = trial(record) else {
        return Judgement::Open(format!(
            "the response, or its last part, comes after {}, as where a server corks its connection (TCP_CORK): no segments could be \
             had that the response fills",
            say(held)
        ));
    };
    if !trial.moved(LEAST_MS) {
        let words = format!(
            "in segments that the response fills it takes {}, in others {}: nothing waits in the server's kernel",
            say(trial.after_ms()),
            say(trial.before_ms())
        );
        return not_moved(&trial, LEAST_MS, &words);
    }
    let words = format!(
        "in segments that the response fills it comes after {}, in others after {}: it was written, and its last segment, which was not \
         full, waited for the kernel's time-out of 200 ms",
        say(trial.after_ms()),
        say(trial.before_ms())
    );
    Judgement::Named(Box::new(Verdict::new(&CAUSE, trial.effect.value, Grounds::Moved(trial)).saying(words)))
}

#[cfg(test)]
mod tests {
    use super::filling;

    #[test]
    fn a_size_that_a_response_fills() {
        assert_eq!((filling(120), filling(3000), filling(2 * 1399)), (Some(120), Some(1000), Some(1399)));
        // A prime number of bytes above the largest segment, and a few bytes.
        assert_eq!((filling(1409), filling(75)), (None, None));
    }
}
