//! The name has addresses that lead nowhere, and clients try them first: IPv6 ones where IPv4 would
//! work (or the reverse), or the first of several of one kind.
//!
//! Experiment: a connection to each address on its own.

use std::net::SocketAddr;

use crate::call::ms;
use crate::evidence::Grounds;
use crate::parts::{CausePage, ENDS, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::Connected;
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded, nothing};
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static OTHER_FAMILY: Cause = Cause {
    id: "ipv6-fallback",
    title: "the name's first addresses cannot be reached: clients lose time on them before they try the next",
    fixes: FAMILY_FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Lookup,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::OtherAddress,
    packets: None,
    page: OTHER_FAMILY_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &OTHER_FAMILY, |lost, good| lost.is_ipv4() != good.is_ipv4()),
    },
};

const OTHER_FAMILY_PAGE: CausePage = CausePage {
    what: "The name has an IPv6 and an IPv4 address, and one of them leads nowhere. A client that tries the dead one first waits until it gives up. Good ones \
         try the other after 250 ms (\"happy eyeballs\"), older ones after seconds.",
    lanes: ENDS,
    picture: &[
        PictureStep::LostTo("SYN over IPv6"),
        PictureStep::Wait(1200.0, "until it gives up"),
        PictureStep::To("SYN over IPv4"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("Windows", "netsh interface ipv6 show prefixpolicies; prefer IPv4 (DisabledComponents=0x20)"),
        fix("Python", "aiohttp and httpx with happy eyeballs; requests tries one address after the other"),
    ],
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

pub(crate) static SAME_FAMILY: Cause = Cause {
    id: "dead-address",
    title: "the name's first address does not answer: clients lose time on it before they try the next",
    fixes: ADDRESS_FIXES,
    verify: "name servers change the order of addresses: run it some times",
    place: FaultPlace::Network,
    part: CallPart::Lookup,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::OtherAddress,
    packets: None,
    page: SAME_FAMILY_PAGE,
    rule: Rule::Alone {
        wants: nothing,
        judge: |record| judge(record, &SAME_FAMILY, |lost, good| lost.is_ipv4() == good.is_ipv4()),
    },
};

const SAME_FAMILY_PAGE: CausePage = CausePage {
    what: "The name has several addresses, and one of them leads nowhere: its machine was switched off, and the name servers were not told. A client that \
         gets it first sends its SYN there and waits, for seconds or minutes, before it tries the next one. Name servers often change the order, \
         so that only some calls meet it.",
    lanes: ENDS,
    picture: &[
        PictureStep::LostTo("SYN to the first address"),
        PictureStep::Wait(1200.0, "until it gives up"),
        PictureStep::To("SYN to the second"),
        PictureStep::From("SYN, ACK"),
        PictureStep::To("request"),
        PictureStep::From("answer"),
    ],
    more: &[
        fix("Kubernetes", "a headless service lists pods that are ready alone: readiness probes"),
        fix("Python", "requests: timeout=(connect, read); it tries one address after the other"),
    ],
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
