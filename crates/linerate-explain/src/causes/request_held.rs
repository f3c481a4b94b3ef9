//! A window holds the request back: the server reads it slowly, so its receive window is full, or
//! our send buffer is too small for the path.
//!
//! Evidence: the kernel counts the time that either held us back (`tcpi_rwnd_limited`,
//! `tcpi_sndbuf_limited`).

use crate::call::{Call, ms};
use crate::evidence::Grounds;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, RuleFix, excluded, nothing};
use crate::stats::median;
use crate::verdict::Verdict;
use crate::words::say;

pub(super) static ZERO_WINDOW: Cause = Cause {
    id: "zero-window",
    title: "the server reads the request slowly: its receive window is full",
    fixes: WINDOW_FIXES,
    verify: AGAIN,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| {
            judge(record, &ZERO_WINDOW, |c| c.facts.rwnd_limited_us, "the server's receive window")
        },
    },
};

const WINDOW_FIXES: &[RuleFix] = &[
    RuleFix {
        software: "any server",
        change: "read the body as it comes, apart from what is done with it; what slows reading down is disk, parsing, a lock, a remote store",
    },
    RuleFix {
        software: "nginx",
        change: "client_body_buffer_size, proxy_request_buffering on (reads at full speed whatever the backend does)",
    },
    RuleFix {
        software: "Netty, Node, Reactor",
        change: "back-pressure that pauses reading (autoRead false, stream.pause()): look at who does not drain",
    },
    RuleFix { software: "Linux", change: "net.ipv4.tcp_rmem's maximum on long fat paths" },
];

pub(super) static SEND_BUFFER: Cause = Cause {
    id: "send-buffer",
    title: "the send buffer is too small for this path: too little is on the way at once",
    fixes: BUFFER_FIXES,
    verify: AGAIN,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &SEND_BUFFER, |c| c.facts.sndbuf_limited_us, "our send buffer"),
    },
};

const BUFFER_FIXES: &[RuleFix] = &[
    RuleFix {
        software: "Linux",
        change: "net.ipv4.tcp_wmem's maximum at least the path's rate times its round trip",
    },
    RuleFix {
        software: "any client or server",
        change: "remove setsockopt(SO_SNDBUF): it switches the kernel's own sizing off",
    },
    RuleFix { software: "nginx", change: "listen ... sndbuf= removed; Netty: no SO_SNDBUF child option" },
];

/// The judgement by the time that the kernel counted in which `what` held the request back.
fn judge(record: &Record, cause: &'static Cause, counter: fn(&Call) -> u64, what: &str) -> Judgement {
    if record.settings.body_bytes == 0 {
        return Judgement::Silent;
    }
    // A call that did not end within its time counts, too: it may be the reason.
    let calls: Vec<&Call> = record
        .observed()
        .filter(|c| c.send + c.wait > std::time::Duration::ZERO || c.failure().is_some())
        .collect();
    let held: Vec<f64> = calls.iter().map(|c| counter(c) as f64 / 1e3).collect();
    let excess: Vec<f64> = calls.iter().map(|c| (ms(c.total) - 2.0 * record.rtt_ms()).max(0.001)).collect();
    let (cost, share) = (median(&held), median(&held) / median(&excess).max(0.001));
    if cost < 5.0 || share < 0.2 {
        return excluded(format!("{what} held the request back for {} only", say(cost)));
    }
    let words = format!(
        "the kernel counted {} of {} in which {what} held us back ({:.0} %)",
        say(cost),
        say(median(&excess)),
        100.0 * share
    );
    Judgement::Named(Box::new(Verdict::new(cause, cost, Grounds::Counted { words, share })))
}
