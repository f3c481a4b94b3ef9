//! A window holds the request back: the server reads it slowly, so its receive window is full, or
//! our send buffer is too small for the path.
//!
//! Evidence: the kernel counts the time that either held us back (`tcpi_rwnd_limited`,
//! `tcpi_sndbuf_limited`).

use std::time::Duration;

use crate::call::{Call, ms};
use crate::evidence::Grounds;
use crate::parts::{
    CausePage, ENDS, FaultPlace, Forecast, PacketDoubt, PacketSigns, PictureStep, RuleFix, ServerChange, fix,
};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static ZERO_WINDOW: Cause = Cause {
    id: "zero-window",
    title: "the server reads the request slowly: its receive window is full",
    fixes: WINDOW_FIXES,
    verify: AGAIN,
    place: FaultPlace::Process,
    part: CallPart::Call,
    pause: Some("the window is closed"),
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::LargeWindow,
    packets: Some(ZERO_WINDOW_PACKETS),
    page: ZERO_WINDOW_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| {
            judge(record, &ZERO_WINDOW, |c| c.facts.rwnd_limited_us, "the server's receive window")
        },
    },
};

const ZERO_WINDOW_PAGE: CausePage = CausePage {
    what: "The receiver says with each acknowledgement how much room it has. A server that does not read the body as it comes runs out of room and says 0: \
         the sender must stop until there is some again. The network is idle meanwhile.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("request body"),
        PictureStep::From("ACK, window 0"),
        PictureStep::Wait(150.0, "the window is closed"),
        PictureStep::From("window opens"),
        PictureStep::To("request body goes on"),
        PictureStep::From("answer"),
    ],
    more: &[fix(
        "Go, Python",
        "read the body (io.Copy, async for) before or beside the work, not in between",
    )],
};

const ZERO_WINDOW_PACKETS: PacketSigns = PacketSigns {
    title: "the server did not read the request as fast as it came: its window closed",
    fixes: &[fix(
        "the server",
        "read while it works, with more threads or larger buffers (net.ipv4.tcp_rmem)",
    )],
    verify: "capture again after the change: no zero window",
    pause: Some("the window is closed"),
    of_connections: false,
    doubts: PacketDoubt::None,
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

pub(crate) static SEND_BUFFER: Cause = Cause {
    id: "send-buffer",
    title: "the send buffer is too small for this path: too little is on the way at once",
    fixes: BUFFER_FIXES,
    verify: AGAIN,
    place: FaultPlace::Here,
    part: CallPart::Call,
    pause: None,
    server_changed: ServerChange::TakenBack,
    forecast: Forecast::Counted(|c| Duration::from_micros(c.facts.sndbuf_limited_us)),
    packets: None,
    page: SEND_BUFFER_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &SEND_BUFFER, |c| c.facts.sndbuf_limited_us, "our send buffer"),
    },
};

const SEND_BUFFER_PAGE: CausePage = CausePage {
    what: "What is sent stays in the sender's buffer until it is acknowledged. A buffer smaller than what the path holds (its rate times its round \
         trip) makes the sender stop and wait for acknowledgements, as a slow link would.",
    lanes: ENDS,
    picture: &[
        PictureStep::To("one buffer full"),
        PictureStep::Wait(40.0, "the buffer is full until the ACK"),
        PictureStep::From("ACK"),
        PictureStep::To("the next buffer full"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("macOS", "sysctl net.inet.tcp.autosndbufmax; no SO_SNDBUF in the program"),
        fix("Windows", "no SO_SNDBUF: the system sizes it by itself (ISB)"),
    ],
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
