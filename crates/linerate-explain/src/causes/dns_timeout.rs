//! A name server does not respond, and the resolver waits for it before it asks the next one.
//!
//! Symptom: lookups of whole seconds (5 s by default). Experiment: query each name server directly.

use super::{Block, Cause, Judgement, dns_slow, excluded, say};
use crate::call::ms;
use crate::evidence::Grounds;
use crate::probe::{NameServer, Probe};
use crate::record::Record;
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "dns-timeout",
    title: "a name server does not answer, and each lookup waits for it first",
    fixes: dns_slow::FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

/// A lookup that waited for a timeout takes most of a second at least (`options timeout:1`).
const WAITED_MS: f64 = 700.0;

fn wants(record: &Record) -> Vec<Block> {
    let slow = dns_slow::lookup_ms(record).is_some_and(|took| took >= dns_slow::SLOW_MS);
    if record.settings.named && slow && record.name_servers().is_none() {
        vec![vec![Probe::NameServers]]
    } else {
        Vec::new()
    }
}

/// The first name server that does not respond, for either family.
pub(super) fn unanswered(record: &Record) -> Option<&NameServer> {
    dns_slow::lookup_ms(record).filter(|took| *took >= WAITED_MS)?;
    record.name_servers()?.iter().find(|s| s.v4.is_none() || s.v6.is_none())
}

fn judge(record: &Record) -> Judgement {
    let Some(took) = dns_slow::lookup_ms(record).filter(|_| record.settings.named) else {
        return Judgement::Silent;
    };
    let Some(silent) = unanswered(record) else {
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
    let words = format!(
        "the lookup takes {}; name server {}, asked directly, {what} within a second",
        say(took),
        silent.address
    );
    let mut verdict = Verdict::new(&CAUSE, took, Grounds::Counted { words, share: 1.0 });
    for server in record.name_servers().unwrap_or_default().iter().filter(|s| s.address != silent.address) {
        if let Some(time) = server.v4 {
            verdict = verdict.saying(format!("name server {} answers in {}", server.address, say(ms(time))));
        }
    }
    Judgement::Named(Box::new(verdict))
}
