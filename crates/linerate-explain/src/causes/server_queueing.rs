//! The request waits in the server for its turn behind others.
//!
//! Symptom: the wait for the first byte is many times what one more request adds. Experiment: several calls at once; each that is
//! one place further back waits longer by the time of one request. When a call alone already waits many such times, it stood in a line.

use super::{Cause, Fix, Judgement, say, server_think};
use crate::call::ms;
use crate::evidence::{Grounds, Proof};
use crate::probe::Probe;
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

pub(super) fn wants(record: &Record) -> Vec<Probe> {
    let slow = server_think::beyond_rtt(record) >= server_think::WORK_MS * 0.8;
    // A second time, so that one hiccup decides nothing.
    if slow && record.settings.may_repeat && !record.burst_tried() && !record.group().is_empty() {
        vec![Probe::Burst(AT_ONCE)]
    } else {
        Vec::new()
    }
}

/// Milliseconds from the request to the first byte: of calls alone, and of those made at once, in the order they ended.
pub(super) fn burst_of(record: &Record) -> Option<(Vec<f64>, Vec<f64>)> {
    let alone: Vec<f64> = record.group().iter().map(|c| ms(c.wait)).collect();
    let mut at_once: Vec<f64> =
        record.bursts().flatten().filter(|c| c.answer().is_some()).map(|c| ms(c.wait)).collect();
    at_once.sort_by(f64::total_cmp);
    (alone.len() >= 3 && at_once.len() >= usize::from(AT_ONCE) / 2).then_some((alone, at_once))
}

fn judge(record: &Record) -> Judgement {
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
    let longer = shift(&at_once, &alone);
    let one_by_one = p_value(&at_once, &alone) <= 0.02 && longer.low > 0.0 && longer.value > 0.1 * wait;
    if !one_by_one {
        return Judgement::RuledOut(format!(
            "{} calls at once wait no longer ({}) than one alone ({})",
            at_once.len(),
            say(median(&at_once)),
            say(median(&alone))
        ));
    }
    let places: Vec<(f64, f64)> = at_once.iter().enumerate().map(|(i, t)| (i as f64, *t)).collect();
    let each = slope(&places).map_or(0.0, |s| s.value);
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
