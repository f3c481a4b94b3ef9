//! Looking the name up takes a good part of the call.
//!
//! Experiment: the address is known beforehand; what is left of the call is what was measured
//! beside the lookup.

use super::{Cause, Fix, Judgement, dns_timeout, excluded, nothing, say};
use crate::call::ms;
use crate::evidence::Grounds;
use crate::record::Record;
use crate::stats::median;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "dns-slow",
    title: "looking up the server's name is slow",
    fixes: FIXES,
    verify: "and beside it with the address in place of the name",
    wants: nothing,
    judge,
};

pub(super) const FIXES: &[Fix] = &[
    Fix {
        software: "the machine",
        change: "a caching resolver nearby (systemd-resolved, unbound, dnsmasq, nscd); in Kubernetes NodeLocal DNSCache",
    },
    Fix {
        software: "resolv.conf",
        change: "name servers that answer first; fewer search domains; options ndots:1 where names are whole (a trailing dot does the same for one name)",
    },
    Fix { software: "JVM", change: "networkaddress.cache.ttl in java.security" },
    Fix { software: "any client", change: "keep connections: a lookup is then paid once" },
];

/// Below this a lookup is what lookups take.
pub(super) const SLOW_MS: f64 = 20.0;

/// The first lookup is what a call pays; later ones may come from a cache.
pub(super) fn lookup_ms(record: &Record) -> Option<f64> {
    let lookups = record.lookups();
    lookups.first().map(|l| ms(l.took))
}

fn judge(record: &Record) -> Judgement {
    let Some(took) = lookup_ms(record).filter(|_| record.settings.named) else { return Judgement::Silent };
    let rest = record.typical(|c| c.total);
    if took < SLOW_MS || took < 0.3 * rest {
        return excluded(format!("the name is looked up in {}", say(took)));
    }
    if dns_timeout::unanswered(record).is_some() {
        return Judgement::Silent;
    }
    let again: Vec<f64> = record.lookups().iter().skip(1).map(|l| ms(l.took)).collect();
    let words =
        format!("the name's lookup takes {}; the call with the address at hand {}", say(took), say(rest));
    let mut verdict = Verdict::new(&CAUSE, took, Grounds::Counted { words, share: 1.0 });
    if !again.is_empty() {
        verdict = verdict.saying(format!("looked up again: {}", say(median(&again))));
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
