//! The name has several addresses of one kind, and the first of them leads nowhere.
//!
//! Experiment: a connection to each address on its own.

use super::{Cause, Fix, Judgement, ipv6_fallback, nothing};
use crate::record::Record;

pub(super) static CAUSE: Cause = Cause {
    id: "dead-address",
    title: "the name's first address does not answer: clients lose time on it before they try the next",
    fixes: FIXES,
    verify: "name servers change the order of addresses: run it some times",
    wants: nothing,
    judge,
};

const FIXES: &[Fix] = &[
    Fix { software: "DNS", change: "remove the dead address, and let health checks do so (a short TTL)" },
    Fix {
        software: "firewalls on the way",
        change: "reject instead of dropping, so that clients go on at once",
    },
    Fix {
        software: "JVM",
        change: "a connect time-out of a second or two: HttpURLConnection and most clients wait for the system's, which is minutes",
    },
    Fix {
        software: "curl, Go, Node 20+",
        change: "curl --connect-timeout, Go's Dialer.Timeout, Node's autoSelectFamilyAttemptTimeout bound what one address costs",
    },
    Fix { software: "any client", change: "a connect time-out, and the next address after it" },
];

fn judge(record: &Record) -> Judgement {
    let same = |lost: &std::net::SocketAddr, good: &std::net::SocketAddr| lost.is_ipv4() == good.is_ipv4();
    ipv6_fallback::judge_first(record, &CAUSE, same)
}
