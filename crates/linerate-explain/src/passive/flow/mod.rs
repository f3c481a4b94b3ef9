//! TCP connections of a capture.

mod calls;
mod connection;
mod demand;
mod lately;
mod reassembly;
mod sealed;
mod sequence;
mod stall;
mod tally;
mod trace;
mod window;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hdrhistogram::Histogram;

pub(crate) use calls::ms;
pub(super) use lately::Lately;
pub(crate) use reassembly::{Budget, Piece};
pub use sequence::{MarkCounts, Marks};
pub use tally::{Tally, Told};

use connection::{Connection, Shared};
use demand::Demand;

use super::limits::{CLIENTS, COSTS, EVIDENCE, Limits, SLOW_NS};
use super::observation::{Call, ConnectionSummary, Fault, Observation, Seen, Sums};
use super::packet::{Endpoint, Segment};
use super::tls::KeyLog;

/// Figures of all connections.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) marks: MarkCounts,
    pub(super) sums: Sums,
    demand: Demand,
    connections: Vec<ConnectionSummary>,
    slowest: Vec<Call>,
    seen: Vec<Seen>,
    /// The cost of each kind of trouble, call by call, as far as kept.
    costs: Vec<Vec<i64>>,
    pub(super) faults: Vec<Fault>,
    /// The shortest time in which each server acknowledged anything.
    bounds: Vec<(SocketAddr, i64)>,
    totals: Histogram<u64>,
    thinks: Histogram<u64>,
}

impl Record {
    fn new() -> Record {
        // Three digits of up to an hour, in microseconds; what is longer counts as an hour.
        let histogram = || {
            let mut h = Histogram::new_with_bounds(1, 3_600_000_000, 3)
                .unwrap_or_else(|_| unreachable!("fixed bounds"));
            h.auto(true);
            h
        };
        Record {
            marks: MarkCounts::default(),
            sums: Sums::default(),
            demand: Demand::default(),
            connections: Vec::new(),
            slowest: Vec::new(),
            seen: Vec::new(),
            costs: Vec::new(),
            faults: Vec::new(),
            bounds: Vec::new(),
            totals: histogram(),
            thinks: histogram(),
        }
    }

    /// A handshake's round trip.
    fn opened(&mut self, rtt_ns: i64) {
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
    fn call(&mut self, mut call: Call, first: bool, limits: &Limits, trace: impl Fn(&mut Call)) {
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
        self.totals.saturating_record(micros(call.total_ns));
        self.thinks.saturating_record(micros(call.think_ns));
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
    fn list(&mut self, summary: ConnectionSummary, most: usize) {
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

    fn into_observation(mut self) -> Observation {
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

/// The connections being watched.
#[derive(Debug)]
pub(super) struct Flows {
    limits: Limits,
    keys: Option<Arc<KeyLog>>,
    budget: Budget,
    record: Record,
    by_ends: HashMap<[Endpoint; 2], usize>,
    connections: Vec<Connection>,
    /// Ends of the last segment and their place: segments come in runs.
    last: Option<([Endpoint; 2], usize)>,
    /// Where the search for a quiet connection continues.
    hand: usize,
    ids: u64,
}

impl Flows {
    pub(super) fn new(limits: Limits) -> Flows {
        Flows {
            limits,
            keys: None,
            budget: Budget::new(limits.held_bytes),
            record: Record::new(),
            by_ends: HashMap::new(),
            connections: Vec::new(),
            last: None,
            hand: 0,
            ids: 0,
        }
    }

    pub(super) fn set_keys(&mut self, keys: Option<Arc<KeyLog>>) {
        self.keys = keys;
    }

    pub(super) fn segment(&mut self, s: &Segment<'_>, now: i64) {
        let ends = if s.src <= s.dst { [s.src, s.dst] } else { [s.dst, s.src] };
        let found = match self.last {
            Some((last, at)) if last == ends => Some(at),
            _ => self.by_ends.get(&ends).copied(),
        };
        let mut reused = false;
        let at = match found {
            Some(at) if self.connections[at].is_reused_by(s) => {
                reused = true;
                self.replace(at, s, now, ends);
                at
            }
            Some(at) => at,
            None => self.add(s, now, ends),
        };
        self.last = Some((ends, at));
        let mut shared = Shared {
            limits: &self.limits,
            budget: &self.budget,
            keys: self.keys.as_deref(),
            record: &mut self.record,
        };
        self.connections[at].segment(s, now, reused, &mut shared);
    }

    fn fresh(&mut self, s: &Segment<'_>, now: i64) -> Connection {
        self.ids += 1;
        self.record.sums.connections += 1;
        Connection::new(self.ids, s, now, &self.limits)
    }

    /// Adds a connection. If the table is full, the quietest one is dropped.
    fn add(&mut self, s: &Segment<'_>, now: i64, ends: [Endpoint; 2]) -> usize {
        if self.connections.len() < self.limits.connections.max(1) {
            let fresh = self.fresh(s, now);
            self.connections.push(fresh);
            self.by_ends.insert(ends, self.connections.len() - 1);
            return self.connections.len() - 1;
        }
        // Drops a connection that had no packet since the clock hand last passed it.
        loop {
            self.hand = (self.hand + 1) % self.connections.len();
            if !std::mem::take(&mut self.connections[self.hand].recent) {
                break;
            }
        }
        self.record.sums.evicted += 1;
        let at = self.hand;
        self.replace(at, s, now, ends);
        at
    }

    fn replace(&mut self, at: usize, s: &Segment<'_>, now: i64, ends: [Endpoint; 2]) {
        let fresh = self.fresh(s, now);
        let old = std::mem::replace(&mut self.connections[at], fresh);
        let [a, b] = old.ends;
        self.by_ends.remove(&if a <= b { [a, b] } else { [b, a] });
        self.by_ends.insert(ends, at);
        let mut shared = Shared {
            limits: &self.limits,
            budget: &self.budget,
            keys: self.keys.as_deref(),
            record: &mut self.record,
        };
        old.finish(&mut shared);
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.record.sums.requests
    }

    pub(super) fn finish(mut self) -> Observation {
        for connection in std::mem::take(&mut self.connections) {
            let mut shared = Shared {
                limits: &self.limits,
                budget: &self.budget,
                keys: self.keys.as_deref(),
                record: &mut self.record,
            };
            connection.finish(&mut shared);
        }
        self.record.into_observation()
    }
}
