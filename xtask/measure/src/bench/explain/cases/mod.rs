//! All cases, by where the fault is.

mod alike;
mod connection;
mod http;
mod odd;
mod server;
mod streams;
mod tls;

use super::case::Case;

/// All of them, in the order of the table.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    connection::CASES
        .iter()
        .chain(http::CASES)
        .chain(server::CASES)
        .chain(odd::CASES)
        .chain(alike::CASES)
        .chain(tls::CASES)
        .chain(streams::CASES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::explain::case::{NOT_INJECTED, ON_THE_WAY};
    use crate::net::NetImpairments;

    #[test]
    fn names_are_their_own_and_networks_can_be() {
        let names: Vec<_> = all().map(|c| c.name).collect();
        for (i, case) in all().enumerate() {
            assert!(!names[..i].contains(&case.name), "{} twice", case.name);
            NetImpairments::parse(case.net).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(!case.rtts.is_empty() && case.path.starts_with('/'), "{}", case.name);
            assert!(!case.alike || !ON_THE_WAY.contains(&case.truth), "{}", case.name);
        }
    }

    /// Each of the ids in CLI.md is injected, or listed with the reason why not.
    #[test]
    fn every_cause_is_injected_or_excused() {
        let in_the_server = [
            "expect-continue",
            "no-keep-alive",
            "proxy-buffering",
            "compression",
            "redirects",
            "server-think",
            "server-queueing",
            "event-loop-blocked",
            "gc-pause",
            "cpu-throttled",
            "cpu-contention",
            "reverse-dns",
            "connection-limit",
            "pinned-to-busy-worker",
            "cold-start",
            "late-close",
            "cork",
            "server-send-buffer",
            "rate-limit",
            "periodic-stall",
            "h2-stream-limit",
            "fd-limit",
            "idle-limit-order",
            "upstream-pool",
            "proxy-connects-per-call",
        ];
        for id in ON_THE_WAY.iter().chain(&in_the_server) {
            let excused = NOT_INJECTED.iter().any(|(other, _)| other == id);
            assert!(excused || all().any(|c| c.truth == *id), "{id} is neither injected nor excused");
        }
    }
}
