//! The server's kernel has the connection, but the server does not accept it: the connection waits
//! in the accept queue, or finds it full.
//!
//! Symptom: the first call of a connection waits for its response, and later ones on it do not.
//! Several connections at once lose SYNs, in steps of a second. Evidence: TcpExt ListenOverflows,
//! if the server is on this machine.

use super::{connection_limit, pinned};
use crate::call::{Call, ms};
use crate::evidence::{Grounds, Proof, Trial};
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, Experiment, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judged, Judgement, Rule, excluded};
use crate::signs::new_connections::{
    self, Resent, WAITED_MS, first_waits, grows, lost_only_at_once, syns, waited,
};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static CAUSE: Cause = Cause {
    id: "accept-queue",
    title: "connections wait in the server's accept queue: the server is slow to accept them",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Machine,
    part: CallPart::New,
    pause: Some("until the server accepts"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Cost,
    packets: None,
    page: PAGE,
    rule: Rule::Beside {
        // The server has accepted a connection that waits for another to end, or for a busy worker.
        hidden_by: &[&connection_limit::CAUSE, &pinned::CAUSE],
        asks: &[],
        wants,
        judge,
    },
};

const PAGE: CausePage = CausePage {
    what: "The kernel opens connections for the server and keeps them in a queue until the program accepts them. A program that does not \
         come to accept (it is busy, or has too few threads) leaves them there: the connection stands, and nobody reads the request. When the \
         queue is full, the kernel drops what asks for more, and callers ask again after a second.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("SYN"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::Wait(150.0, "in the queue until the program accepts"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("macOS", "sysctl kern.ipc.somaxconn (128 by default) bounds each backlog"),
        fix("Windows", "SOMAXCONN as the backlog of listen(); in .NET Socket.Listen(backlog)"),
        fix(
            "Go",
            "net.Listen takes net.core.somaxconn by itself; accept in a loop that only starts goroutines",
        ),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "accept on a thread that does nothing else; a longer backlog only hides a short burst (listen(), net.core.somaxconn)",
    },
    RuleFix { software: "nginx", change: "listen ... backlog=4096 reuseport, multi_accept on" },
    RuleFix { software: "Tomcat", change: "acceptCount, maxConnections and maxThreads on the Connector" },
    RuleFix {
        software: "JDK HttpServer",
        change: "the backlog in HttpServer.create(address, backlog), and an executor",
    },
    RuleFix {
        software: "Python socketserver",
        change: "request_queue_size above 5, and ThreadingHTTPServer",
    },
    RuleFix { software: "Node", change: "work that blocks the event loop also blocks accepting" },
    RuleFix {
        software: "Linux",
        change: "net.core.somaxconn, net.ipv4.tcp_max_syn_backlog; watch: nstat -az TcpExtListenOverflows",
    },
];

/// Calls of these are made without a lever.
fn as_they_are(experiment: Experiment) -> bool {
    matches!(experiment, Experiment::Observe | Experiment::Tail)
}

/// Every segment on connections that were accepted came through: then it is not the path that loses
/// SYNs.
fn later_calls_lose_nothing(record: &Record) -> bool {
    record.calls().filter(|(_, c)| !c.fresh).all(|(_, c)| c.answer().is_some() && !c.lossy())
}

/// Connections of ours that a full accept queue rejected. The kernel counts those of all ports. So
/// the counter concerns this server only if one of our SYNs was retransmitted meanwhile, or if the
/// port's own queue was seen full.
fn overflows(record: &Record) -> u64 {
    let one = |call: &Call, ours: bool| if ours || call.queue_full { call.overflows } else { 0 };
    let calls: u64 = record.calls().map(|(_, c)| one(c, c.syn_lost())).sum();
    // The first one's count is that of all of them.
    let again = |burst: &[Call]| burst.iter().any(|c| c.syn_lost());
    let bursts: u64 = record.bursts().map(|b| b.first().map_or(0, |c| one(c, again(b)))).sum();
    calls + bursts
}

/// The port's own queue was full, or one of our SYNs was retransmitted while the kernel counted a
/// rejected one.
fn ran_over(record: &Record) -> bool {
    overflows(record) > 0
}

fn wants(record: &Record, judged: &Judged<'_>) -> Vec<Block> {
    let sign = waited(record) >= WAITED_MS || !syns(record).0.is_empty();
    // Several that hang as the first ones did would take all the time there is.
    let starved = syns(record).0.is_empty() && new_connections::starved(record) > 0;
    if sign && record.settings.may_repeat && !record.burst_tried() && !judged.hides_it() && !starved {
        vec![vec![Probe::Burst(6)]]
    } else {
        Vec::new()
    }
}

/// SYNs were lost, and nothing else on established connections. A queue that was full at that
/// moment looks the same from outside.
fn turned_away(record: &Record, lost: f64, words: String) -> Judgement {
    let verdict = Verdict::new(&CAUSE, lost - record.rtt_ms(), Grounds::Seen { words, alone: false });
    Judgement::Named(Box::new(verdict.behind().saying(
        "connections that stand lose nothing: the server may have turned those SYNs away (ListenOverflows there tells)".to_owned(),
    )))
}

/// SYNs were lost of connections that were opened at once, and of those alone none: such a queue is
/// too short for so many, and a call alone does not meet it. A limit on new connections looks the
/// same.
fn too_many_at_once([at_once, alone]: [Resent; 2], lost: f64) -> Judgement {
    Judgement::Open(format!(
        "unclear: of {} connections opened several at once {} had to send their SYN again (connected after {}), of {} opened alone none. \
         The server's backlog may be too short for so many at once, or their number is limited (ListenOverflows there tells)",
        at_once.of,
        at_once.again,
        say(lost),
        alone.of
    ))
}

/// Where programs compete for this machine's processors, a server on it waits for one on some new
/// connections, and longer for several at once. Slow accepting delays each of them. Else the reason why
/// that is unclear. A server that starts a process for each connection works meanwhile.
fn among_others(record: &Record, first: &[f64]) -> Option<String> {
    if record.settings.forks {
        return Some(format!(
            "the server starts a process for each connection, and the first answer on one takes {}: that is its work, and no queue",
            say(median(first))
        ));
    }
    let least = first.iter().copied().fold(f64::INFINITY, f64::min);
    (record.is_contended() && least < WAITED_MS).then(|| {
        format!(
            "unclear: the first answer on a new connection took {} at least, and other programs compete for this machine's processors; a \
             quieter machine would tell",
            say(least)
        )
    })
}

fn judge(record: &Record, judged: &Judged<'_>) -> Judgement {
    if judged.hides_it() {
        return Judgement::Silent;
    }
    let (again, all) = syns(record);
    let (waited, overflows) = (waited(record), overflows(record));
    let connects: Vec<f64> = again.iter().map(|c| ms(c.connect)).collect();
    let lost = median(&connects);
    let syn_words = format!(
        "{} of {all} new connections had to send their SYN again (connected after {})",
        again.len(),
        say(lost)
    );
    if waited < WAITED_MS && !ran_over(record) {
        if let Some(resent) = lost_only_at_once(record) {
            return too_many_at_once(resent, lost);
        }
        return if !again.is_empty() && later_calls_lose_nothing(record) {
            turned_away(record, lost, syn_words)
        } else if again.is_empty() && record.fresh().len() >= 2 && record.reused().len() >= 2 {
            excluded(
                "the first call of a connection waits no longer than later ones, and no SYN was lost"
                    .to_owned(),
            )
        } else {
            Judgement::Silent
        };
    }
    if overflows > 0 {
        let words = format!(
            "the kernel counted {overflows} connections turned away at a full accept queue (TcpExt ListenOverflows)"
        );
        let cost = waited.max(lost);
        let verdict = Verdict::new(&CAUSE, cost, Grounds::Counted { words, share: 1.0 });
        let full = "the port's own queue was seen full (sock_diag)";
        let verdict = if again.is_empty() { verdict.saying(full) } else { verdict.saying(syn_words) };
        return Judgement::Named(Box::new(verdict));
    }
    if again.is_empty() && !grows(record) {
        return excluded(
            "the first call of a connection waits, but several at once wait no longer than one".to_owned(),
        );
    }
    if !again.is_empty() && !later_calls_lose_nothing(record) {
        return Judgement::Silent;
    }
    let later: Vec<f64> = record
        .calls()
        .filter(|(p, c)| !c.fresh && c.answer().is_some() && as_they_are(p.experiment))
        .map(|(_, c)| ms(c.wait))
        .collect();
    let first = first_waits(record.observed().chain(record.bursts().flatten()));
    if let Some(unclear) = among_others(record, &first).filter(|_| again.is_empty()) {
        return Judgement::Open(unclear);
    }
    let trial = Trial::of("a connection that was accepted before", "the same connection again", first, later);
    let Some(trial) = trial.filter(|t| t.moved(WAITED_MS / 2.0)) else {
        return if again.is_empty() { Judgement::Silent } else { turned_away(record, lost, syn_words) };
    };
    let words = format!(
        "the kernel connects at once, and the first answer takes {}; on a connection that was accepted, {}",
        say(trial.before_ms()),
        say(trial.after_ms())
    );
    let verdict = Verdict::new(&CAUSE, waited, Grounds::Moved(trial)).saying(words);
    // Work that a server does once per connection (a reverse lookup, a new backend connection)
    // looks the same.
    let verdict = if again.is_empty() { verdict.at_most(Proof::Likely) } else { verdict.saying(syn_words) };
    Judgement::Named(Box::new(verdict))
}
