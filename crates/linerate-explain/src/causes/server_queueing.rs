//! The request waits in the server for its turn behind others.
//!
//! Symptom: the wait for the first byte is many times what one more request adds. Experiment:
//! several calls at once; each that is one place further back waits longer by the time of one
//! request. A call alone that waits many such times may have stood in a line, but not behind ours:
//! that takes other callers, who are seen (`--pid`, this machine's sockets) or come and go.

use super::{in_the_process, pinned, rate_limit};
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::Block;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded};
use crate::signs::at_once;
use crate::signs::wait::{WORK_MS, beyond_rtt};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "server-queueing",
    title: "the request waits in the server behind others for its turn",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("behind other requests"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        hidden_by: &[
            // A server that gets no processor makes all wait, and not for one another.
            &in_the_process::THROTTLED,
            &in_the_process::CONTENDED,
            &in_the_process::GC,
            &in_the_process::BLOCKED,
            // A busy worker, or a limit of the rate, makes calls wait as a line does.
            &pinned::CAUSE,
            &rate_limit::CAUSE,
        ],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The server has only so many workers, and more calls than that come at once. The rest stands in a line. A call alone is quick; among others it waits for those before it.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request"),
        PictureStep::Wait(41.0, "behind other requests"),
        PictureStep::Then(5.0, "the server works"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("Go", "a semaphore or a database pool (SetMaxOpenConns) that is too small is such a line"),
        fix("nginx", "max_conns of the upstream, or a backend with too few workers"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Tomcat",
        change: "maxThreads on the Connector; look at the executor's queue and at what its threads wait for",
    },
    RuleFix {
        software: "JDK HttpServer",
        change: "setExecutor(Executors.newFixedThreadPool(n)): the default answers one request at a time",
    },
    RuleFix {
        software: "Node, Python asyncio",
        change: "one core works on one request at a time: more processes (cluster, gunicorn -w), or less work in each",
    },
    RuleFix { software: "PHP-FPM, gunicorn, Puma", change: "more workers (pm.max_children, -w, threads)" },
    RuleFix {
        software: "connection pools",
        change: "a pool of database connections that is too small is such a line, too",
    },
    RuleFix {
        software: "any server",
        change: "more workers, or less that each of them waits for; refuse early instead of a long line",
    },
];

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    if judged.names(&rate_limit::CAUSE) { Vec::new() } else { at_once::burst(record) }
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let wait = beyond_rtt(record);
    if wait < WORK_MS * 0.8 {
        return Judgement::Silent;
    }
    let Some((alone, together)) = at_once::both(record) else {
        return Judgement::Open(
            "whether the server works or the request waits behind others needs several calls at once"
                .to_owned(),
        );
    };
    if let Some(served) = at_once::served(record) {
        return excluded(format!(
            "the server serves {served} at once; a call alone takes {}, and only call {} waits for one of ours to end",
            say(median(&alone)),
            served + 1
        ));
    }
    let Some(each) = at_once::line(record) else {
        return excluded(format!(
            "{} calls at once do not stand in a line: {} in the middle, one alone {}",
            together.len(),
            say(median(&together)),
            say(median(&alone))
        ));
    };
    if each > 0.6 * wait || each < 0.2 {
        return excluded(format!(
            "calls at once wait for one another, but a call alone takes as long as each of them adds ({})",
            say(each)
        ));
    }
    let Some(whose) = whose(record, wait / each) else {
        let least = alone.iter().copied().fold(f64::INFINITY, f64::min);
        return Judgement::Open(format!(
            "unclear: each of {} calls at once waits {} longer than the one before it, and a call alone takes {}, never less than {}: \
             whether it waits behind other callers' calls or the server works that long is seen with --pid",
            together.len(),
            say(each),
            say(median(&alone)),
            say(least)
        ));
    };
    let words = format!(
        "each of {} calls at once waits {} longer than the one before it: that is what one request takes; a call alone waits {}, \
         {:.0} times that",
        together.len(),
        say(each),
        say(wait),
        wait / each
    );
    let verdict = Verdict::new(&CAUSE, wait - each, Grounds::Seen { words, alone: true }).saying(whose);
    Judgement::Named(Box::new(verdict.at_most(Proof::Likely)))
}

/// The other callers that a single call of ours can have waited for, `times` of them. In words;
/// `None` if there is no sign of any.
fn whose(record: &Record, times: f64) -> Option<String> {
    // Where programs compete for this machine's processors, calls differ for that alone.
    if at_once::others_come_and_go(record) && !record.is_contended() {
        return Some("some calls alone are much quicker: others' calls come and go".to_owned());
    }
    // Each has one call in the line; some may be between two.
    let others = at_once::others(record).filter(|n| *n as f64 >= 0.5 * (times - 1.0))?;
    Some(format!("{others} connections of other callers stood at the server's port meanwhile"))
}
