//! The server's process is stopped: the kernel opens connections and takes requests, and no
//! response comes.
//!
//! Evidence: the state of its threads, looked at before and after each call (`--pid`, or found by
//! its listening socket).

use crate::call::{Call, Why, ms};
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::record::Record;
use crate::rule::{Cause, Judgement, Rule, excluded, nothing};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "stopped",
    title: "the server's process is stopped by a signal or a debugger, and answers nobody",
    fixes: FIXES,
    verify: "",
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("its process is stopped"),
    server_changed: ServerChange::Stands,
    forecast: Forecast::Lever,
    packets: None,
    page: PAGE,
    rule: Rule::Alone { wants: nothing, judge },
};

const PAGE: CausePage = CausePage {
    what: "The server's process was stopped (SIGSTOP, a debugger, Ctrl-Z). The kernel still opens connections and takes requests, and nobody answers them.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::LostTo("nobody reads it"),
        PictureStep::Wait(4000.0, "the process is stopped"),
    ],
    more: &[
        fix("Linux, macOS", "kill -CONT PID; ps -o stat shows a T"),
        fix("Windows", "Resume in Process Explorer, or detach the debugger"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Linux, macOS",
        change: "kill -CONT PID, or fg in the shell that shows it as stopped",
    },
    RuleFix { software: "containers", change: "docker unpause; a frozen control group looks the same" },
    RuleFix { software: "any server", change: "detach the debugger, or let it run on" },
];

fn judge(record: &Record) -> Judgement {
    let calls: Vec<&Call> = record.observed().filter(|c| c.server.is_some()).collect();
    let stopped = |c: &&Call| c.server.as_deref().is_some_and(|s| s.stopped > 0);
    let hangs = |c: &&Call| c.failure().is_some_and(|f| matches!(f.why, Why::TimedOut | Why::Cut));
    let hung: Vec<&Call> = calls.iter().copied().filter(|c| stopped(c) && hangs(c)).collect();
    let Some(last) = hung.last().and_then(|c| c.server.as_deref()) else {
        return match calls.iter().any(hangs) {
            true => excluded("no thread of the server was stopped by a signal or a debugger"),
            false => Judgement::Silent,
        };
    };
    let cost = median(&hung.iter().map(|c| ms(c.total)).collect::<Vec<_>>());
    let words = format!(
        "{} of {} calls got no response within {}, and {} of the {} threads of the server were stopped by a signal or a debugger",
        hung.len(),
        record.observed().count(),
        say(cost),
        last.stopped,
        last.threads
    );
    // One of several threads may be another's debugger's.
    let share = f64::from(last.stopped) / f64::from(last.threads.max(1));
    Judgement::Named(Box::new(Verdict::new(&CAUSE, cost, Grounds::Counted { words, share }).failing()))
}
