//! One lost segment holds up all streams of a connection: TCP hands on nothing that came behind it.
//!
//! Sign: segments get lost, and calls speak HTTP/2. Experiment: the same calls at once on one
//! connection (0) against one connection each (1). Of the rounds in which a segment was lost, the
//! share of calls that took longer than usual is compared: on one connection nearly all, on several
//! those whose own connection lost it.

use super::{Block, Cause, Fix, Judgement, not_moved, say};
use crate::call::{Call, ms};
use crate::evidence::{Exclusion, Grounds, Trial};
use crate::probe::{Experiment, Probe};
use crate::record::Record;
use crate::signs::streams;
use crate::stats::median;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "h2-head-of-line",
    title: "a lost packet holds up all HTTP/2 streams of the connection, not only the one whose packet it was",
    fixes: FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "the path",
        change: "find where packets are lost, as for packet-loss: mtr, ethtool -S, ip -s link",
    },
    Fix {
        software: "browsers, curl",
        change: "HTTP/3 (QUIC), where the server speaks it: there a loss holds up one stream",
    },
    Fix { software: "gRPC", change: "several channels for calls that must not wait for one another" },
    Fix {
        software: "any client",
        change: "some connections instead of one, or HTTP/1.1 with a pool, on paths that lose packets",
    },
];

/// What a call must take longer than the usual one to count as held up, at least; and in round
/// trips.
const SLOW: (f64, f64) = (5.0, 0.5);
/// Calls at once, and how often.
const AT_ONCE: (u8, u8) = (3, 5);
/// Share of the calls, percent, that several connections must spare.
const MOVED: f64 = 20.0;

fn lost(record: &Record) -> bool {
    record.calls().any(|(_, c)| c.lossy()) && record.streamed().is_some()
}

/// As many calls as the server admits.
fn calls(record: &Record) -> u8 {
    streams::limit(record).map_or(AT_ONCE.0, |limit| u8::try_from(limit).unwrap_or(AT_ONCE.0).min(AT_ONCE.0))
}

fn wants(record: &Record) -> Vec<Block> {
    if !lost(record)
        || !record.settings.may_repeat
        || calls(record) < 2
        || record.tried(Experiment::HeadOfLine)
    {
        return Vec::new();
    }
    let arms = streams::arms(Experiment::HeadOfLine, calls(record), calls(record), AT_ONCE.1);
    arms.map(|arm| vec![Probe::Together(arm)]).into()
}

fn judge(record: &Record) -> Judgement {
    if record.streamed().is_none() {
        return Judgement::Silent;
    }
    if !lost(record) {
        let segments: u64 = record
            .calls()
            .map(|(_, c)| u64::from(c.facts.data_segs_in) + u64::from(c.facts.data_segs_out))
            .sum();
        return match segments {
            0 => Judgement::Silent,
            n => Judgement::RuledOut(Exclusion::none_of(
                n,
                "no segment was lost that could hold up other streams",
            )),
        };
    }
    let slow = SLOW.0.max(SLOW.1 * record.rtt_ms());
    let [one, several] = [0, 1].map(|arm| streams::delayed(record, arm, slow));
    let (rounds, others) = (one.len(), several.len());
    let trial =
        Trial::of("a connection each", "how many connections carry the same calls at once", one, several);
    let Some(trial) = trial else {
        return Judgement::Open(format!(
            "segments get lost, and over HTTP/2 one that is lost holds up all streams of its connection; {rounds} rounds of calls at once on \
             one connection and {others} on several met a loss, which is too few to tell what that costs"
        ));
    };
    let times = |arm| median(&streams::together(record, Experiment::HeadOfLine, arm));
    if !trial.moved(MOVED) {
        let words = format!(
            "of calls at once {:.0} % are held up on one connection that loses a segment, {:.0} % where each has its own",
            trial.before_ms(),
            trial.after_ms()
        );
        return not_moved(&trial, MOVED, &words);
    }
    let all: Vec<&Call> =
        record.together(Experiment::HeadOfLine, 0).into_iter().flatten().filter(|c| c.lossy()).collect();
    let held = median(&all.iter().map(|c| ms(c.total)).collect::<Vec<_>>());
    let cost = (held - times(1)).max(0.0);
    let words = format!(
        "{} calls at once: where a segment was lost on their one connection, {:.0} % of them were held up; where each had a connection of its \
         own, {:.0} %; on one connection with a loss a call takes {}, on several {}",
        calls(record),
        trial.before_ms(),
        trial.after_ms(),
        say(held),
        say(times(1))
    );
    // The trial counts shares, not milliseconds: it is told in words. That packets are lost comes first.
    Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: 1.0 }).behind()))
}
