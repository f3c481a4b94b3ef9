//! The name has IPv6 addresses that lead nowhere, and clients try them first.
//!
//! Experiment: a connection to each address on its own.

use std::net::SocketAddr;

use super::{Cause, Fix, Judgement, excluded, nothing, say};
use crate::call::ms;
use crate::evidence::Grounds;
use crate::probe::Connected;
use crate::record::Record;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "ipv6-fallback",
    title: "the name's first addresses cannot be reached: clients lose time on them before they try the next",
    fixes: FIXES,
    verify: super::AGAIN,
    wants: nothing,
    judge,
};

const FIXES: &[Fix] = &[
    Fix { software: "DNS", change: "remove the AAAA record, or make the server reachable by IPv6" },
    Fix {
        software: "firewalls on the way",
        change: "reject (ICMPv6) instead of dropping, so that clients give up at once",
    },
    Fix { software: "JVM", change: "-Djava.net.preferIPv4Stack=true where there is no IPv6" },
    Fix { software: "glibc", change: "/etc/gai.conf: precedence ::ffff:0:0/96 100" },
    Fix {
        software: "curl, Go, Node 20+",
        change: "they try both after 200 to 300 ms (RFC 8305); older clients wait for the time-out",
    },
];

/// A time below which going on to the next address does not matter.
const LOST_MS: f64 = 50.0;

/// Attempts before the first address that a connection could be had to which are of the kind, and
/// that one.
fn attempts(record: &Record, of_the_kind: Kind) -> Option<(Vec<&Connected>, &Connected)> {
    let connects = record.connects();
    let good = connects.iter().position(|c| c.error.is_none())?;
    let lost = connects[..good].iter().filter(|c| of_the_kind(&c.address, &connects[good].address));
    Some((lost.copied().collect(), connects[good]))
}

/// Whether an address that was tried in vain is of the kind that is looked for, beside the one that
/// was reached.
type Kind = fn(&SocketAddr, &SocketAddr) -> bool;

fn other_family(lost: &SocketAddr, good: &SocketAddr) -> bool {
    lost.is_ipv4() != good.is_ipv4()
}

fn judge(record: &Record) -> Judgement {
    judge_first(record, &CAUSE, other_family)
}

/// The cost of trying addresses of the kind in vain.
pub(super) fn judge_first(record: &Record, cause: &'static Cause, of_the_kind: Kind) -> Judgement {
    let Some((lost, good)) = attempts(record, of_the_kind) else { return Judgement::Silent };
    if lost.is_empty() {
        let mut pairs = record.connects().into_iter().filter(|c| c.address != good.address);
        return if pairs.any(|c| of_the_kind(&c.address, &good.address)) {
            excluded("the address that is tried first can be reached".to_owned())
        } else {
            Judgement::Silent
        };
    }
    let cost: f64 = lost.iter().map(|c| ms(c.took)).sum();
    let first = lost[0];
    let why = first.error.as_deref().unwrap_or_default();
    if cost < LOST_MS {
        return excluded(format!("{} fails at once ({why}): little is lost", first.address.ip()));
    }
    let words = format!(
        "{} is tried first and does not connect within {} ({why}); {} connects in {}",
        first.address.ip(),
        say(cost),
        good.address.ip(),
        say(ms(good.took))
    );
    Judgement::Named(Box::new(Verdict::new(cause, cost, Grounds::Counted { words, share: 1.0 })))
}
