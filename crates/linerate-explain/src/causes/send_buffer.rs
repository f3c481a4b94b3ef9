//! Our send buffer is too small for the path: it allows too few bytes in flight.
//!
//! Evidence: the kernel counts the time during which the send buffer held us back
//! (`tcpi_sndbuf_limited`).

use super::{Cause, Fix, Judgement, nothing, zero_window};
use crate::record::Record;

pub(super) static CAUSE: Cause = Cause {
    id: "send-buffer",
    title: "the send buffer is too small for this path: too little is on the way at once",
    fixes: FIXES,
    verify: super::AGAIN,
    wants: nothing,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "Linux",
        change: "net.ipv4.tcp_wmem's maximum at least the path's rate times its round trip",
    },
    Fix {
        software: "any client or server",
        change: "remove setsockopt(SO_SNDBUF): it switches the kernel's own sizing off",
    },
    Fix { software: "nginx", change: "listen ... sndbuf= removed; Netty: no SO_SNDBUF child option" },
];

fn judge(record: &Record) -> Judgement {
    zero_window::judge_counter(record, &CAUSE, |c| c.facts.sndbuf_limited_us, "our send buffer")
}
