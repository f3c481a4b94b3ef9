//! The name has addresses that lead nowhere, and clients try them first: IPv6 ones where IPv4 would
//! work (or the reverse), or the first of several of one kind.
//!
//! Experiment: a connection to each address on its own.

use std::net::SocketAddr;

use crate::call::ms;
use crate::evidence::Grounds;
use crate::probe::Connected;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, RuleFix, excluded, nothing};
use crate::verdict::Verdict;
use crate::words::say;

pub(super) static OTHER_FAMILY: Cause = Cause {
    id: "ipv6-fallback",
    title: "the name's first addresses cannot be reached: clients lose time on them before they try the next",
    fixes: FAMILY_FIXES,
    verify: AGAIN,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &OTHER_FAMILY, |lost, good| lost.is_ipv4() != good.is_ipv4()),
    },
};

const FAMILY_FIXES: &[RuleFix] = &[
    RuleFix { software: "DNS", change: "remove the AAAA record, or make the server reachable by IPv6" },
    RuleFix {
        software: "firewalls on the way",
        change: "reject (ICMPv6) instead of dropping, so that clients give up at once",
    },
    RuleFix { software: "JVM", change: "-Djava.net.preferIPv4Stack=true where there is no IPv6" },
    RuleFix { software: "glibc", change: "/etc/gai.conf: precedence ::ffff:0:0/96 100" },
    RuleFix {
        software: "curl, Go, Node 20+",
        change: "they try both after 200 to 300 ms (RFC 8305); older clients wait for the time-out",
    },
];

pub(super) static SAME_FAMILY: Cause = Cause {
    id: "dead-address",
    title: "the name's first address does not answer: clients lose time on it before they try the next",
    fixes: ADDRESS_FIXES,
    verify: "name servers change the order of addresses: run it some times",
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &SAME_FAMILY, |lost, good| lost.is_ipv4() == good.is_ipv4()),
    },
};

const ADDRESS_FIXES: &[RuleFix] = &[
    RuleFix { software: "DNS", change: "remove the dead address, and let health checks do so (a short TTL)" },
    RuleFix {
        software: "firewalls on the way",
        change: "reject instead of dropping, so that clients go on at once",
    },
    RuleFix {
        software: "JVM",
        change: "a connect time-out of a second or two: HttpURLConnection and most clients wait for the system's, which is minutes",
    },
    RuleFix {
        software: "curl, Go, Node 20+",
        change: "curl --connect-timeout, Go's Dialer.Timeout, Node's autoSelectFamilyAttemptTimeout bound what one address costs",
    },
    RuleFix { software: "any client", change: "a connect time-out, and the next address after it" },
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

/// The cost of trying addresses of the kind in vain.
fn judge(record: &Record, cause: &'static Cause, of_the_kind: Kind) -> Judgement {
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
