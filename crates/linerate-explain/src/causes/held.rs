//! Calls on new connections wait or fail since the server has no place for them: its table of
//! descriptors is full, or all its workers are held by other connections.
//!
//! Evidence, on the server's machine alone: the process has as many descriptors open as it may (`fd-limit`);
//! connections wait in the accept queue while nothing happens on those that were accepted, and their
//! number stays the same (`workers-held`).

use super::connection_limit;
use crate::call::{Call, Crowd, Why, ms};
use crate::evidence::{Grounds, Proof};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::CallProbe;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, nothing, nothing_beside};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static DESCRIPTORS: Cause = Cause {
    id: "fd-limit",
    title: "the server has as many files and sockets open as it may, and accepts no more connections",
    fixes: &[
        RuleFix { software: "systemd", change: "LimitNOFILE=65536 in the unit" },
        RuleFix {
            software: "Docker, Kubernetes",
            change: "--ulimit nofile=65536:65536; containerd's LimitNOFILE",
        },
        RuleFix { software: "nginx", change: "worker_rlimit_nofile at least twice worker_connections" },
        RuleFix {
            software: "any server",
            change: "ulimit -n higher; ls -l /proc/PID/fd shows what is open: connections that nobody closes, files and pipes that leak",
        },
        RuleFix { software: "any server that many idle clients keep", change: "a shorter idle time-out" },
    ],
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Lever,
    packets: None,
    page: DESCRIPTORS_PAGE,
    rule: Rule::Alone { wants: nothing, judge: descriptors },
};

const DESCRIPTORS_PAGE: CausePage = CausePage {
    what: "Each connection and each open file is a descriptor, and a process may have only so many (ulimit -n). When all are taken, the kernel still completes \
         handshakes, and the server cannot accept what they opened: new calls hang or are closed at once, while those on connections that stand go on.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::From("SYN, ACK: by the kernel"),
        PictureStep::To("request"),
        PictureStep::Wait(4000.0, "accept fails: too many open files"),
    ],
    more: &[fix("Linux", "prlimit --pid PID --nofile=65536 changes it while the process runs")],
};

pub(crate) static WORKERS: Cause = Cause {
    id: "workers-held",
    title: "all workers of the server are held by other connections, and new ones wait until one is let go",
    fixes: &[
        RuleFix {
            software: "Apache httpd",
            change: "the event MPM instead of prefork; KeepAliveTimeout 2; MaxRequestWorkers higher",
        },
        RuleFix {
            software: "gunicorn",
            change: "threads or an async worker class instead of sync; a proxy in front that keeps idle connections (nginx)",
        },
        RuleFix { software: "PHP-FPM", change: "pm.max_children higher; pm.status_path shows what they do" },
        RuleFix {
            software: "Tomcat, Jetty",
            change: "the NIO connector, which has no thread for each idle connection; maxThreads higher where threads wait for something behind",
        },
        RuleFix {
            software: "any server with a worker for each connection",
            change: "an idle time-out of a second or two, or a proxy in front of it",
        },
    ],
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::New,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Lever,
    packets: None,
    page: WORKERS_PAGE,
    rule: Rule::Beside {
        hidden_by: &[&DESCRIPTORS, &connection_limit::CAUSE],
        asks: &[],
        wants: nothing_beside,
        judge: workers,
    },
};

const WORKERS_PAGE: CausePage = CausePage {
    what: "The server has so many workers, each serves one connection, and all of them are taken: by clients that keep a connection open and send nothing, or by \
         calls that wait for something behind the server. It has nothing to do, and a new connection waits until another one is let go.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::From("SYN, ACK: by the kernel"),
        PictureStep::To("request"),
        PictureStep::Wait(5000.0, "until an idle connection is closed"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "clients",
        "close connections that are not used for a while, and open no more than they need",
    )],
};

/// A call on a new connection that takes longer waited for a place, milliseconds.
const WAITED_MS: f64 = 100.0;
/// Samples that show it.
const ENOUGH_SAMPLES: usize = 2;
/// Or the time that a single one waited, milliseconds.
const ENOUGH_MS: f64 = 1_000.0;

/// Calls on new connections that waited for long, or had no answer.
fn kept_waiting(record: &Record) -> Vec<&Call> {
    let late = |c: &Call| {
        let gone = |why| matches!(why, Why::TimedOut | Why::Reset | Why::ClosedEarly | Why::Cut);
        c.failure().map_or(ms(c.first_wait()) >= WAITED_MS, |f| gone(f.why))
    };
    let is_new = |(p, c): &(&CallProbe, &Call)| c.fresh && p.is_plain();
    record.calls().filter(is_new).map(|(_, c)| c).filter(|c| late(c)).collect()
}

fn descriptors(record: &Record) -> Judgement {
    let waited = kept_waiting(record);
    let full: Vec<(&Call, (u64, u64))> = waited
        .iter()
        .filter_map(|c| Some((*c, c.server.as_deref()?.files?)))
        .filter(|(_, (open, limit))| open >= limit)
        .collect();
    let Some((_, (_, limit))) = full.first() else { return Judgement::Silent };
    let failed = full.iter().filter(|(c, _)| c.answer().is_none()).count();
    let words = format!(
        "in {} of {} calls on new connections that waited or failed, the process had {limit} of {limit} descriptors open (/proc/PID/fd): it cannot \
         accept one more",
        full.len(),
        waited.len()
    );
    let cost = median(&full.iter().map(|(c, _)| ms(c.total)).collect::<Vec<_>>());
    let share = full.len() as f64 / waited.len() as f64;
    let verdict = Verdict::new(&DESCRIPTORS, cost, Grounds::Counted { words, share });
    // One may be late for another reason at the same time.
    let verdict = if full.len() < 2 { verdict.at_most(Proof::Likely) } else { verdict };
    Judgement::Named(Box::new(if failed > 0 { verdict.failing() } else { verdict }))
}

fn workers(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let waited = kept_waiting(record);
    let crowds: Vec<(&Call, Crowd)> = waited.iter().filter_map(|c| Some((*c, c.crowd?))).collect();
    let held: Vec<&(&Call, Crowd)> = crowds
        .iter()
        .filter(|(_, crowd)| crowd.waiting > 0 && crowd.accepted > 0 && crowd.idle == crowd.accepted)
        .collect();
    let most = held.iter().map(|(_, crowd)| crowd.accepted).max().unwrap_or(0);
    let same = held.iter().filter(|(_, crowd)| crowd.accepted == most).count();
    // What works or waits for a processor does not merely hold a place.
    let busy = held.iter().any(|(c, _)| c.server.as_deref().is_some_and(|s| 4 * s.ran > c.total));
    let long = held.iter().any(|(c, _)| ms(c.total) >= ENOUGH_MS);
    if same < ENOUGH_SAMPLES && !long || 2 * same < crowds.len() || busy {
        return Judgement::Silent;
    }
    let waits = held.iter().map(|(_, crowd)| crowd.waiting).max().unwrap_or(0);
    let words = format!(
        "while {same} calls waited on new connections, {waits} of these stood in the accept queue; {most} connections were accepted, on none of \
         them was anything unread or under way, and no more than these {most} were ever accepted (sock_diag)"
    );
    let cost = median(&held.iter().map(|(c, _)| ms(c.total)).collect::<Vec<_>>());
    let verdict = Verdict::new(&WORKERS, cost, Grounds::Seen { words, alone: true }).at_most(Proof::Likely);
    let verdict = verdict.saying(format!(
        "a worker that waits for something behind it (a database) on each of these {most} looks the same; a new connection waits {}",
        say(cost)
    ));
    let failed = held.iter().all(|(c, _)| c.answer().is_none());
    Judgement::Named(Box::new(if failed { verdict.failing() } else { verdict }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{CallStage, Failure};
    use crate::local::Spent;
    use crate::probe::{Experiment, Lane, Observation, Probe};
    use crate::record::Settings;
    use crate::rule::Judgements;

    const fn other(id: &'static str) -> Cause {
        Cause { id, ..Cause::BLANK }
    }

    /// What is named of two calls on new connections that hang, in this crowd, with so many descriptors.
    fn named(crowd: Crowd, files: (u64, u64)) -> Vec<&'static str> {
        static LIMIT: Cause = other("connection-limit");
        let mut record = Record::new(Settings::default());
        for _ in 0..2 {
            let total = Duration::from_secs(4);
            let failure = Failure { stage: CallStage::Wait, why: Why::TimedOut, words: String::new() };
            let server = Some(Box::new(Spent { files: Some(files), ..Spent::default() }));
            let call = Call {
                fresh: true,
                total,
                wait: total,
                crowd: Some(crowd),
                server,
                end: Some(Err(failure)),
                ..Call::default()
            };
            let probe = CallProbe::plain(Experiment::Observe, 0, Lane::Fresh);
            record.push(Probe::Call(Box::new(probe)), Observation::Call(Box::new(call)));
        }
        let all: [&Cause; 3] = [&DESCRIPTORS, &WORKERS, &LIMIT];
        let judgements = Judgements::new(&record, &all);
        let is_named = |c: &&&Cause| matches!(judgements.of(c.id), Judgement::Named(_));
        all.iter().filter(is_named).map(|c| c.id).collect()
    }

    #[test]
    fn a_full_table_and_held_workers_are_told_apart() {
        let held = Crowd { waiting: 1, accepted: 4, idle: 4 };
        assert_eq!(named(held, (28, 28)), ["fd-limit"]);
        assert_eq!(named(held, (28, 1024)), ["workers-held"]);
        // It reads nothing at all.
        assert_eq!(named(Crowd { idle: 1, ..held }, (28, 1024)), [""; 0]);
        assert_eq!(named(Crowd { waiting: 0, ..held }, (28, 1024)), [""; 0]);
    }
}
