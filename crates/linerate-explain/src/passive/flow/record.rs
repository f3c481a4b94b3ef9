//! Figures of all connections, and what they share.

use std::net::SocketAddr;

use hdrhistogram::Histogram;

use crate::passive::limits::{CLIENTS, COSTS, EVIDENCE, Limits, SLOW_NS, UNREAD};
use crate::passive::observation::{Call, ConnectionSummary, Fault, Observation, Seen, StreamLimit, Sums};
use crate::passive::tls::KeyLog;

use super::demand::Demand;
use super::reassembly::Budget;
use super::sequence::MarkCounts;

/// State that all connections share.
pub(super) struct Shared<'a> {
    pub(super) limits: &'a Limits,
    pub(super) budget: &'a Budget,
    pub(super) keys: Option<&'a KeyLog>,
    pub(super) record: &'a mut Record,
}

/// Figures of all connections.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) marks: MarkCounts,
    pub(super) sums: Sums,
    pub(super) demand: Demand,
    connections: Vec<ConnectionSummary>,
    slowest: Vec<Call>,
    seen: Vec<Seen>,
    /// The cost of each kind of trouble, call by call, as far as kept.
    costs: Vec<Vec<i64>>,
    pub(super) faults: Vec<Fault>,
    stream_limits: Vec<StreamLimit>,
    unread: Vec<(String, u64)>,
    /// The shortest time in which each server acknowledged anything.
    bounds: Vec<(SocketAddr, i64)>,
    totals: Histogram<u64>,
    thinks: Histogram<u64>,
}

/// An hour: what is longer counts as this.
const LONGEST_US: u64 = 3_600_000_000;

impl Record {
    pub(super) fn new() -> Record {
        // Three digits, in microseconds. It grows with what it counts: most captures are short.
        let histogram = || Histogram::new(3).unwrap_or_else(|_| unreachable!("fixed digits"));
        Record {
            marks: MarkCounts::default(),
            sums: Sums::default(),
            demand: Demand::default(),
            connections: Vec::new(),
            slowest: Vec::new(),
            seen: Vec::new(),
            costs: Vec::new(),
            faults: Vec::new(),
            stream_limits: Vec::new(),
            unread: Vec::new(),
            bounds: Vec::new(),
            totals: histogram(),
            thinks: histogram(),
        }
    }

    /// A connection of HTTP/2 is read no further.
    pub(super) fn unread(&mut self, why: &str) {
        if let Some((_, connections)) = self.unread.iter_mut().find(|(known, _)| known == why) {
            *connections += 1;
        } else if self.unread.len() < UNREAD {
            self.unread.push((why.to_owned(), 1));
        } else if let Some((last, connections)) = self.unread.last_mut() {
            *last = "for several reasons".to_owned();
            *connections += 1;
        }
    }

    /// The client of a connection had as many streams open as its server admits.
    pub(super) fn stream_limit(&mut self, counts: StreamLimit, ends: (SocketAddr, SocketAddr), most: usize) {
        if self.stream_limits.len() < most {
            self.stream_limits.push(StreamLimit { ends: Some(ends), ..counts });
        }
    }

    /// A handshake's round trip.
    pub(super) fn opened(&mut self, rtt_ns: i64) {
        self.sums.rtt_min_ns = Some(self.sums.rtt_min_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
    }

    /// Data for that server was acknowledged so long after it was sent.
    pub(super) fn round_trip(&mut self, server: SocketAddr, took_ns: i64) {
        match self.bounds.iter_mut().find(|(known, _)| *known == server) {
            Some((_, least)) => *least = took_ns.min(*least),
            None => self.bounds.push((server, took_ns)),
        }
        self.bounds.truncate(CLIENTS);
    }

    /// An upper bound of the round trip to that server.
    pub(super) fn rtt_bound(&self, server: SocketAddr) -> Option<i64> {
        self.bounds.iter().find(|(known, _)| *known == server).map(|(_, least)| *least)
    }

    /// A call is whole. `trace` gives its segments, when they are wanted.
    pub(super) fn call(&mut self, mut call: Call, first: bool, limits: &Limits, trace: impl Fn(&mut Call)) {
        let sums = &mut self.sums;
        sums.answered += 1;
        sums.first_calls += u64::from(first && call.connect_ns > 0);
        sums.connect_ns = sums.connect_ns.saturating_add(call.connect_ns);
        sums.total_ns = sums.total_ns.saturating_add(call.total_ns);
        sums.send_ns = sums.send_ns.saturating_add(call.send_ns);
        sums.wait_ns = sums.wait_ns.saturating_add(call.network_ns);
        sums.queued_ns = sums.queued_ns.saturating_add(call.queued_ns);
        sums.think_ns = sums.think_ns.saturating_add(call.think_ns);
        sums.receive_ns = sums.receive_ns.saturating_add(call.receive_ns);
        for (histogram, ns) in [(&mut self.totals, call.total_ns), (&mut self.thinks, call.think_ns)] {
            // It fails only where memory cannot be addressed.
            let _ = histogram.record(micros(ns).min(LONGEST_US));
        }
        if call.think_ns >= SLOW_NS {
            self.sums.slow_thinks += 1;
            self.sums.slow_think_ns = self.sums.slow_think_ns.saturating_add(call.think_ns);
        }
        let mut traced = false;
        let mut wanted = |call: &mut Call| {
            if !std::mem::replace(&mut traced, true) {
                trace(call);
            }
        };
        for id in ids(&call) {
            let notes: Vec<_> = call.notes.iter().filter(|n| n.id == id).cloned().collect();
            let cost = notes.iter().fold(0i64, |sum, n| sum.saturating_add(n.cost_ns));
            let known = self.seen.iter().position(|s| s.id == id);
            let at = known.unwrap_or(self.seen.len());
            let seen = match known {
                Some(at) => &mut self.seen[at],
                None => {
                    self.seen.push(Seen { id, ..Seen::default() });
                    self.costs.push(Vec::new());
                    let last = self.seen.len() - 1;
                    &mut self.seen[last]
                }
            };
            if let Some(costs) = self.costs.get_mut(at).filter(|c| c.len() < COSTS) {
                costs.push(cost);
            }
            seen.calls += 1;
            seen.cost_ns = seen.cost_ns.saturating_add(cost);
            seen.total_ns = seen.total_ns.saturating_add(call.total_ns);
            if seen.evidence.len() < EVIDENCE {
                seen.evidence
                    .extend(notes.first().map(|n| format!("{} {}: {}", call.method, call.target, n.text)));
            }
            if cost > seen.worst_ns || seen.calls == 1 {
                wanted(&mut call);
                seen.worst_ns = cost;
                seen.example = call.clone();
            }
        }
        let at = self.slowest.partition_point(|c| c.total_ns >= call.total_ns);
        if at < limits.slowest {
            wanted(&mut call);
            self.slowest.truncate(limits.slowest - 1);
            self.slowest.insert(at, call);
        }
    }

    /// A connection ended. The most notable ones are kept.
    pub(super) fn list(&mut self, summary: ConnectionSummary, most: usize) {
        if self.connections.len() < most {
            self.connections.push(summary);
            return;
        }
        let weight = |c: &ConnectionSummary| {
            let marks: u64 = c.marks.iter().flat_map(MarkCounts::seen).map(|(_, n)| n).sum();
            marks * 1000 + c.requests
        };
        let least = self.connections.iter().enumerate().min_by_key(|(_, c)| weight(c)).map(|(at, _)| at);
        if let Some(at) = least.filter(|at| weight(&self.connections[*at]) < weight(&summary)) {
            self.connections[at] = summary;
        }
    }

    pub(super) fn into_observation(mut self) -> Observation {
        const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];
        let of = |h: &Histogram<u64>| QUANTILES.map(|q| h.value_at_quantile(q) as i64 * 1000);
        self.sums.total_quantiles_ns = of(&self.totals);
        self.sums.think_quantiles_ns = of(&self.thinks);
        // In the middle of the slow ones.
        let slow = self.sums.slow_thinks as f64 / self.sums.answered.max(1) as f64;
        self.sums.slow_think_median_ns = self.thinks.value_at_quantile(1.0 - slow / 2.0) as i64 * 1000;
        self.sums.rtt_bound_ns = self.bounds.iter().map(|(_, least)| *least).min();
        for (seen, costs) in self.seen.iter_mut().zip(&mut self.costs) {
            costs.sort_unstable();
            seen.median_ns = costs.get(costs.len() / 2).copied().unwrap_or(0);
        }
        self.connections.sort_by_key(|c| c.id);
        Observation {
            marks: self.marks,
            sums: self.sums,
            connections: self.connections,
            slowest: self.slowest,
            seen: self.seen,
            pools: self.demand.pools(),
            faults: self.faults,
            stream_limits: self.stream_limits,
            unread: self.unread,
            ..Observation::default()
        }
    }
}

fn micros(ns: i64) -> u64 {
    u64::try_from(ns / 1000).unwrap_or(0)
}

/// The causes noted in a call, each once.
fn ids(call: &Call) -> Vec<&'static str> {
    let mut ids: Vec<_> = call.notes.iter().map(|n| n.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
