//! Looking the name up takes a good part of the call. One reason has a name of its own: a name
//! server does not respond, and the resolver waits for it before it asks the next one.
//!
//! Experiment: the address is known beforehand; what is left of the call is what was measured
//! beside the lookup. A lookup of whole seconds (5 s by default) is the symptom of a silent name
//! server. Experiment: query each name server directly.

use crate::call::ms;
use crate::evidence::Grounds;
use crate::limits::LOOKUPS;
use crate::parts::{CausePage, FaultPlace, Forecast, PictureStep, RuleFix, ServerChange, fix};
use crate::probe::{Block, NameServer, Probe};
use crate::record::Record;
use crate::rule::{AGAIN, Cause, Judgement, Rule, excluded};
use crate::stats::median;
use crate::times::CallPart;
use crate::verdict::Verdict;
use crate::words::say;

pub(crate) static SLOW: Cause = Cause {
    id: "dns-slow",
    title: "looking up the server's name is slow",
    fixes: FIXES,
    verify: "and beside it with the address in place of the name",
    place: FaultPlace::Network,
    part: CallPart::Lookup,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::Cached,
    packets: None,
    page: SLOW_PAGE,
    rule: Rule::Alone { wants: again, judge: slow },
};

const SLOW_PAGE: CausePage = CausePage {
    what: "Before a call its name must become an address. The name server that is asked takes long, because it is far away, busy, or asks others itself. \
             Every call that looks the name up pays for it.",
    lanes: ["client", "name server"],
    picture: &[
        PictureStep::To("A server.example?"),
        PictureStep::Wait(300.0, "the name server works"),
        PictureStep::From("192.0.2.7"),
    ],
    more: &[
        fix("Linux", "a cache on the machine: systemd-resolved, dnsmasq or nscd"),
        fix(
            "macOS, Windows",
            "they cache by themselves: check the configured servers (scutil --dns, ipconfig /all)",
        ),
        fix("Go, Python", "they do not cache: keep connections, or put a cache on the machine"),
    ],
};

pub(crate) static TIMEOUT: Cause = Cause {
    id: "dns-timeout",
    title: "a name server does not answer, and each lookup waits for it first",
    fixes: FIXES,
    verify: AGAIN,
    place: FaultPlace::Network,
    part: CallPart::Lookup,
    pause: None,
    server_changed: ServerChange::Stands,
    forecast: Forecast::OtherNameServer,
    packets: None,
    page: TIMEOUT_PAGE,
    rule: Rule::Alone { wants: ask_directly, judge: timeout },
};

const TIMEOUT_PAGE: CausePage = CausePage {
    what: "Several name servers are configured, and the first does not answer. The resolver waits (5 s by default) before it asks the next one, at \
             every single lookup: it does not remember who was silent.",
    lanes: ["client", "first name server"],
    picture: &[
        PictureStep::LostTo("A server.example?"),
        PictureStep::Wait(5000.0, "until the resolver gives up"),
        PictureStep::To("the next one is asked"),
        PictureStep::From("192.0.2.7"),
    ],
    more: &[
        fix(
            "macOS",
            "System Settings, Network, DNS: remove the server that is silent (scutil --dns shows them)",
        ),
        fix("Windows", "ipconfig /all; remove it from the adapter's list"),
    ],
};

const FIXES: &[RuleFix] = &[
    RuleFix {
        software: "the machine",
        change: "a caching resolver nearby (systemd-resolved, unbound, dnsmasq, nscd); in Kubernetes NodeLocal DNSCache",
    },
    RuleFix {
        software: "resolv.conf",
        change: "name servers that answer first; fewer search domains; options ndots:1 where names are whole (a trailing dot does the same for one name)",
    },
    RuleFix {
        software: "glibc",
        change: "where one of the two replies (IPv4, IPv6) gets lost: options single-request-reopen in resolv.conf; where nobody needs IPv6: options no-aaaa (2.36)",
    },
    RuleFix { software: "JVM", change: "networkaddress.cache.ttl in java.security" },
    RuleFix { software: "any client", change: "keep connections: a lookup is then paid once" },
];

/// Below this a lookup is what lookups take.
const SLOW_MS: f64 = 20.0;
/// A lookup that waited for a timeout takes most of a second at least (`options timeout:1`).
const WAITED_MS: f64 = 700.0;

/// The first lookup is what a call pays; later ones may come from a cache.
fn lookup_ms(record: &Record) -> Option<f64> {
    let lookups = record.lookups();
    lookups.first().map(|l| ms(l.took))
}

/// Lookups beyond the first ones: one that waits for a time-out now and then is in few of them.
fn again(record: &Record) -> Vec<Block> {
    let lookups = record.lookups();
    let quick = lookups.iter().all(|l| ms(l.took) < QUICK_MS && !l.addresses.is_empty());
    if record.settings.named && !lookups.is_empty() && quick && lookups.len() < LOOKUPS {
        // One at a time: after a slow one no more.
        vec![vec![Probe::Resolve]]
    } else {
        Vec::new()
    }
}

/// Lookups that are quicker cost nothing to be made again, milliseconds.
const QUICK_MS: f64 = 100.0;

/// Of several lookups those that took so much longer than the others that a time-out ran out in them.
fn now_and_then(record: &Record) -> Option<(Vec<f64>, f64)> {
    let times: Vec<f64> = record.lookups().iter().map(|l| ms(l.took)).collect();
    let (slow, quick): (Vec<f64>, Vec<f64>) = times.into_iter().partition(|t| *t >= WAITED_MS);
    let usual = median(&quick);
    (!slow.is_empty() && quick.len() >= 2 && usual < WAITED_MS / 4.0).then_some((slow, usual))
}

/// The names that were asked for before this one, in words.
fn names(record: &Record) -> Option<String> {
    let asked: Vec<&(String, Option<std::time::Duration>)> =
        record.name_servers()?.iter().flat_map(|s| &s.asked).collect();
    let told: Vec<String> = asked
        .iter()
        .map(|(name, took)| format!("{name} ({})", took.map_or("nothing in 1 s".to_owned(), |t| say(ms(t)))))
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "the name has fewer dots than ndots says, so that a resolver asks for {} first, each for IPv4 and IPv6: a dot at its end spares \
             them",
            told.join(", ")
        )
    })
}

fn slow(record: &Record) -> Judgement {
    let Some(took) = lookup_ms(record).filter(|_| record.settings.named) else { return Judgement::Silent };
    let rest = record.typical(|c| c.total);
    if took < SLOW_MS || took < 0.3 * rest {
        return excluded(format!("the name is looked up in {}", say(took)));
    }
    if unanswered(record).is_some() {
        return Judgement::Silent;
    }
    let again: Vec<f64> = record.lookups().iter().skip(1).map(|l| ms(l.took)).collect();
    let words =
        format!("the name's lookup takes {}; the call with the address at hand {}", say(took), say(rest));
    let mut verdict = Verdict::new(&SLOW, took, Grounds::Counted { words, share: 1.0 });
    if !again.is_empty() {
        verdict = verdict.saying(format!("looked up again: {}", say(median(&again))));
    }
    if let Some(names) = names(record) {
        verdict = verdict.saying(names);
    }
    for server in record.name_servers().unwrap_or_default() {
        let said = |t: Option<std::time::Duration>| t.map_or("nothing in 1 s".to_owned(), |t| say(ms(t)));
        verdict = verdict.saying(format!(
            "name server {}, asked directly: IPv4 {}, IPv6 {}",
            server.address,
            said(server.v4),
            said(server.v6)
        ));
    }
    Judgement::Named(Box::new(verdict))
}

fn ask_directly(record: &Record) -> Vec<Block> {
    let slow = lookup_ms(record).is_some_and(|took| took >= SLOW_MS);
    if record.settings.named && slow && record.name_servers().is_none() {
        vec![vec![Probe::NameServers]]
    } else {
        Vec::new()
    }
}

/// The first name server that does not respond, for either family.
fn unanswered(record: &Record) -> Option<&NameServer> {
    lookup_ms(record).filter(|took| *took >= WAITED_MS)?;
    record.name_servers()?.iter().find(|s| s.v4.is_none() || s.v6.is_none())
}

/// Some lookups wait for a time-out, and the name servers reply.
fn seldom(record: &Record, slow: &[f64], usual: f64) -> Verdict {
    let words = format!(
        "{} of {} lookups took {}, the others {}: the resolver's time-out ran out, and it asked again",
        slow.len(),
        record.lookups().len(),
        say(median(slow)),
        say(usual)
    );
    Verdict::new(&TIMEOUT, median(slow) - usual, Grounds::Counted { words, share: 1.0 })
        .titled("lookups wait for a time-out now and then: a query or its reply is lost")
        .saying(
            "glibc sends the queries for IPv4 and IPv6 at once from one port, and some firewalls and NATs (conntrack) lose one of two such: \
             options single-request-reopen sends them one after the other",
        )
}

fn timeout(record: &Record) -> Judgement {
    let Some(took) = lookup_ms(record).filter(|_| record.settings.named) else {
        return Judgement::Silent;
    };
    let Some(silent) = unanswered(record) else {
        if let Some((slow, usual)) = now_and_then(record) {
            return Judgement::Named(Box::new(seldom(record, &slow, usual)));
        }
        return match record.name_servers() {
            Some(servers) if !servers.is_empty() => {
                excluded(format!("all {} name servers answer", servers.len()))
            }
            _ => Judgement::Silent,
        };
    };
    let what = match (silent.v4, silent.v6) {
        (None, None) => "does not answer",
        (None, Some(_)) => "answers for IPv6 addresses, but not for IPv4",
        _ => "answers for IPv4 addresses, but not for IPv6",
    };
    let first =
        record.lookups().first().and_then(|l| l.error.as_ref()).map_or("", |_| " and more: it had not ended");
    let words = format!(
        "the lookup takes {}{first}; name server {}, asked directly, {what} within a second",
        say(took),
        silent.address
    );
    let mut verdict = Verdict::new(&TIMEOUT, took, Grounds::Counted { words, share: 1.0 });
    if silent.v4.is_some() {
        verdict = verdict
            .titled("a name server never answers for IPv6 addresses (AAAA), and each lookup waits for that");
    }
    if let Some(names) = names(record) {
        verdict = verdict.saying(names);
    }
    for server in record.name_servers().unwrap_or_default().iter().filter(|s| s.address != silent.address) {
        if let Some(time) = server.v4 {
            verdict = verdict.saying(format!("name server {} answers in {}", server.address, say(ms(time))));
        }
    }
    Judgement::Named(Box::new(verdict))
}
