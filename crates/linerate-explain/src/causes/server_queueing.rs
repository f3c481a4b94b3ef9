//! The request waits in the server for its turn behind others.
//!
//! Symptom: the wait for the first byte is many times what one more request adds. Experiment: several calls at once; each that is
//! one place further back waits longer by the time of one request. When a call alone already waits many such times, it stood in a line.

use super::{Block, Cause, Fix, Judgement, in_the_process, pinned, say, server_think};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof};
use crate::probe::{Experiment, Probe};
use crate::record::Record;
use crate::stats::{median, p_value, shift, slope};
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "server-queueing",
    title: "the request waits in the server behind others for its turn",
    fixes: FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "Tomcat",
        change: "maxThreads on the Connector; look at the executor's queue and at what its threads wait for",
    },
    Fix {
        software: "JDK HttpServer",
        change: "setExecutor(Executors.newFixedThreadPool(n)): the default answers one request at a time",
    },
    Fix {
        software: "Node, Python asyncio",
        change: "one core works on one request at a time: more processes (cluster, gunicorn -w), or less work in each",
    },
    Fix { software: "PHP-FPM, gunicorn, Puma", change: "more workers (pm.max_children, -w, threads)" },
    Fix {
        software: "connection pools",
        change: "a pool of database connections that is too small is such a line, too",
    },
];

/// Calls made at once.
const AT_ONCE: u8 = 8;

pub(super) fn wants(record: &Record) -> Vec<Block> {
    let slow = server_think::beyond_rtt(record) >= server_think::WORK_MS * 0.8;
    if !slow || !record.settings.may_repeat || record.group().is_empty() {
        return Vec::new();
    }
    if record.given_up.contains(&Experiment::Burst) {
        return Vec::new();
    }
    // A second time where it is not clear that none shows, and a third where they disagree, so that one hiccup decides nothing.
    let seen: Vec<Seen> = record.bursts().map(|burst| seen(record, burst)).collect();
    let more = match seen.as_slice() {
        [] => true,
        [one] => *one != Seen::Nothing,
        [one, two] => matches!((one, two), (Seen::Line(_), Seen::Unclear) | (Seen::Unclear, Seen::Line(_))),
        _ => false,
    };
    if more { vec![vec![Probe::Burst(AT_ONCE)]] } else { Vec::new() }
}

/// Milliseconds that calls waited which were made one at a time: all of them, since the fewer there are the more a hiccup counts.
fn alone(record: &Record) -> Vec<f64> {
    let mut all: Vec<f64> = record.group().iter().map(|c| ms(c.wait)).collect();
    all.extend(record.times(Experiment::Tail, 0, |c| c.wait));
    all
}

/// What several calls at once show.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// Each waits so many milliseconds longer than the one before it.
    Line(f64),
    /// They wait longer than one alone, and not as in a line.
    Unclear,
    Nothing,
}

fn seen(record: &Record, burst: &[Call]) -> Seen {
    let mut alone = alone(record);
    alone.sort_by(f64::total_cmp);
    let mut waits: Vec<f64> = burst.iter().filter(|c| c.answer().is_some()).map(|c| ms(c.wait)).collect();
    waits.sort_by(f64::total_cmp);
    let places: Vec<(f64, f64)> = waits.iter().enumerate().map(|(i, t)| (i as f64, *t)).collect();
    let (Some(step), Some(last), Some(longest)) =
        (slope(&places), waits.last(), alone.get(alone.len() * 4 / 5))
    else {
        return Seen::Nothing;
    };
    let step = step.value;
    let longer = shift(&waits, &alone);
    // Calls that work side by side end within the range of calls alone, however wide that is.
    let stood = longer.low > 0.0 && p_value(&waits, &alone) <= 0.02;
    let step_counts = step >= 0.5_f64.max(0.06 * (median(&alone) - record.rtt_ms()));
    if stood && step_counts && *last >= longest + 2.0 * step {
        return Seen::Line(step);
    }
    if median(&waits) > *longest { Seen::Unclear } else { Seen::Nothing }
}

/// How much longer each of several calls at once waits than the one before it, when they stood in a line at least two times of three.
fn line(record: &Record) -> Option<f64> {
    let seen: Vec<Seen> = record.bursts().map(|burst| seen(record, burst)).collect();
    let steps: Vec<f64> =
        seen.iter().filter_map(|s| if let Seen::Line(step) = s { Some(*step) } else { None }).collect();
    (!steps.is_empty() && 2 * steps.len() > seen.len()).then(|| median(&steps))
}

/// Milliseconds from the request to the first byte: of calls alone, and of those made at once, in the order they ended.
pub(super) fn burst_of(record: &Record) -> Option<(Vec<f64>, Vec<f64>)> {
    let alone = alone(record);
    let mut at_once: Vec<f64> =
        record.bursts().flatten().filter(|c| c.answer().is_some()).map(|c| ms(c.wait)).collect();
    at_once.sort_by(f64::total_cmp);
    (alone.len() >= 3 && at_once.len() >= usize::from(AT_ONCE) / 2).then_some((alone, at_once))
}

fn judge(record: &Record) -> Judgement {
    // A server that gets no processor makes all wait, and not for one another.
    if in_the_process::named(record) || pinned::named(record) {
        return Judgement::Silent;
    }
    let wait = server_think::beyond_rtt(record);
    if wait < server_think::WORK_MS * 0.8 {
        return Judgement::Silent;
    }
    let Some((alone, at_once)) = burst_of(record) else {
        return Judgement::Open(
            "whether the server works or the request waits behind others needs several calls at once"
                .to_owned(),
        );
    };
    let Some(each) = line(record) else {
        return Judgement::RuledOut(format!(
            "{} calls at once do not stand in a line: {} in the middle, one alone {}",
            at_once.len(),
            say(median(&at_once)),
            say(median(&alone))
        ));
    };
    if each > 0.6 * wait || each < 0.2 {
        return Judgement::RuledOut(format!(
            "calls at once wait for one another, but a call alone takes as long as each of them adds ({})",
            say(each)
        ));
    }
    let words = format!(
        "each of {} calls at once waits {} longer than the one before it: that is what one request takes; a call alone waits {}, \
         {:.0} times that",
        at_once.len(),
        say(each),
        say(wait),
        wait / each
    );
    let verdict = Verdict::new(&CAUSE, wait - each, Grounds::Seen { words, alone: true });
    Judgement::Named(Box::new(verdict.at_most(Proof::Likely)))
}
