//! Figures of the calls to one server, or to all.

use std::net::SocketAddr;

use hdrhistogram::Histogram;

use crate::passive::limits::{COSTS, CaptureLimits, EVIDENCE, SLOW_NS};
use crate::passive::observation::{LateSegments, Observation, ObservedCall, Sums, TroubleCount};
use crate::rule::Cause;

/// Figures of calls.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// Of them those that calls have, the connections, and the least round trip.
    pub(super) sums: Sums,
    pub(super) late: LateSegments,
    /// Segments among those lost that came after all; they may have been counted in a window before.
    pub(super) undone: u64,
    slowest: Vec<ObservedCall>,
    seen: Vec<TroubleCount>,
    /// The cost of each kind of trouble, call by call, as far as kept.
    costs: Vec<Vec<i64>>,
    /// Costs that were not kept.
    pub(super) costs_beyond: u64,
    totals: Histogram<u64>,
    thinks: Histogram<u64>,
}

/// An hour: what is longer counts as this.
const LONGEST_US: u64 = 3_600_000_000;

impl Default for Figures {
    fn default() -> Figures {
        // Three digits, in microseconds. It grows with what it counts: most captures are short.
        let histogram = || Histogram::new(3).unwrap_or_else(|_| unreachable!("fixed digits"));
        Figures {
            sums: Sums::default(),
            late: LateSegments::default(),
            undone: 0,
            slowest: Vec::new(),
            seen: Vec::new(),
            costs: Vec::new(),
            costs_beyond: 0,
            totals: histogram(),
            thinks: histogram(),
        }
    }
}

impl Figures {
    /// A call is whole. `trace` gives its segments, when they are wanted.
    pub(super) fn call(
        &mut self,
        mut call: ObservedCall,
        first: bool,
        limits: &CaptureLimits,
        trace: impl Fn(&mut ObservedCall),
    ) {
        let sums = &mut self.sums;
        sums.answered += 1;
        sums.first_calls += u64::from(first && call.connect_ns > 0);
        sums.connect_ns = sums.connect_ns.saturating_add(call.connect_ns);
        sums.total_ns = sums.total_ns.saturating_add(call.total_ns);
        sums.send_ns = sums.send_ns.saturating_add(call.send_ns);
        sums.wait_ns = sums.wait_ns.saturating_add(call.network_ns);
        sums.queued += u64::from(call.queued_ns > 0);
        sums.queued_ns = sums.queued_ns.saturating_add(call.queued_ns);
        sums.think_ns = sums.think_ns.saturating_add(call.think_ns);
        sums.receive_ns = sums.receive_ns.saturating_add(call.receive_ns);
        for (histogram, ns) in [(&mut self.totals, call.total_ns), (&mut self.thinks, call.think_ns)] {
            // It fails only where memory cannot be addressed.
            let _ = histogram.record(micros(ns).min(LONGEST_US));
        }
        self.slow(&call);
        let mut traced = false;
        let mut wanted = |call: &mut ObservedCall| {
            if !std::mem::replace(&mut traced, true) {
                trace(call);
            }
        };
        for cause in noted(&call) {
            let notes: Vec<_> = call.notes.iter().filter(|n| n.cause == cause).cloned().collect();
            let cost = notes.iter().fold(0i64, |sum, n| sum.saturating_add(n.cost_ns));
            let known = self.seen.iter().position(|s| s.cause == cause);
            let at = known.unwrap_or(self.seen.len());
            let seen = match known {
                Some(at) => &mut self.seen[at],
                None => {
                    self.seen.push(TroubleCount::of(cause));
                    self.costs.push(Vec::new());
                    let last = self.seen.len() - 1;
                    &mut self.seen[last]
                }
            };
            match self.costs.get_mut(at).filter(|c| c.len() < COSTS) {
                Some(costs) => costs.push(cost),
                None => self.costs_beyond += 1,
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

    /// Counts a call whose server was slow, or whose response had a pause that nothing explains.
    fn slow(&mut self, call: &ObservedCall) {
        if call.think_ns >= SLOW_NS {
            self.sums.slow_thinks += 1;
            self.sums.slow_think_ns = self.sums.slow_think_ns.saturating_add(call.think_ns);
        }
        let explained = call.notes.iter().fold(0i64, |sum, n| sum.saturating_add(n.cost_ns));
        let pause = call.pause_ns.saturating_sub(explained);
        if pause >= SLOW_NS.saturating_add(2 * call.network_ns) {
            self.sums.paused += 1;
            self.sums.paused_ns = self.sums.paused_ns.saturating_add(pause);
        }
    }

    /// Adds those of other calls.
    pub(super) fn add(&mut self, other: Figures, limits: &CaptureLimits) {
        self.sums.add(&other.sums);
        self.late.add(other.late);
        self.undone += other.undone;
        self.costs_beyond += other.costs_beyond;
        for (mine, others) in [(&mut self.totals, other.totals), (&mut self.thinks, other.thinks)] {
            // It fails only where memory cannot be addressed.
            let _ = mine.add(others);
        }
        for (seen, costs) in other.seen.into_iter().zip(other.costs) {
            match self.seen.iter().position(|s| s.cause == seen.cause) {
                None => {
                    self.seen.push(seen);
                    self.costs.push(costs);
                }
                Some(at) => {
                    self.seen[at].add(seen);
                    let room = COSTS.saturating_sub(self.costs[at].len());
                    self.costs_beyond += costs.len().saturating_sub(room) as u64;
                    self.costs[at].extend(costs.into_iter().take(room));
                }
            }
        }
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
        self.slowest.truncate(limits.slowest);
    }

    pub(super) fn into_observation(mut self) -> Observation {
        const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];
        let of = |h: &Histogram<u64>| QUANTILES.map(|q| h.value_at_quantile(q) as i64 * 1000);
        self.sums.total_quantiles_ns = of(&self.totals);
        self.sums.think_quantiles_ns = of(&self.thinks);
        // In the middle of the slow ones.
        let slow = self.sums.slow_thinks as f64 / self.sums.answered.max(1) as f64;
        self.sums.slow_think_median_ns = self.thinks.value_at_quantile(1.0 - slow / 2.0) as i64 * 1000;
        for (seen, costs) in self.seen.iter_mut().zip(&mut self.costs) {
            costs.sort_unstable();
            seen.median_ns = costs.get(costs.len() / 2).copied().unwrap_or(0);
        }
        Observation {
            sums: self.sums,
            late: LateSegments { lost: self.late.lost.saturating_sub(self.undone), ..self.late },
            slowest: self.slowest,
            seen: self.seen,
            ..Observation::default()
        }
    }

    /// With what `all` has of that server besides.
    pub(super) fn of_server(
        self,
        server: Option<SocketAddr>,
        all: &Observation,
        bounds: &[(SocketAddr, i64)],
    ) -> Observation {
        let mut seen = self.into_observation();
        seen.sums.rtt_bound_ns = bounds.iter().find(|(of, _)| Some(*of) == server).map(|(_, least)| *least);
        let of = |ends: (SocketAddr, SocketAddr)| Some(ends.1) == server;
        Observation {
            connections: all.connections.iter().filter(|c| Some(c.server) == server).cloned().collect(),
            pools: all.pools.iter().filter(|p| Some(p.server) == server).copied().collect(),
            faults: all.faults.iter().filter(|f| of(f.ends)).copied().collect(),
            stream_limits: all.stream_limits.iter().filter(|l| l.ends.is_some_and(of)).copied().collect(),
            ..seen
        }
    }
}

impl TroubleCount {
    fn of(cause: &'static Cause) -> TroubleCount {
        TroubleCount {
            cause,
            calls: 0,
            cost_ns: 0,
            worst_ns: 0,
            median_ns: 0,
            total_ns: 0,
            evidence: Vec::new(),
            example: ObservedCall::default(),
        }
    }

    fn add(&mut self, other: TroubleCount) {
        self.calls += other.calls;
        self.cost_ns = self.cost_ns.saturating_add(other.cost_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        let room = EVIDENCE.saturating_sub(self.evidence.len());
        self.evidence.extend(other.evidence.into_iter().take(room));
        if other.worst_ns > self.worst_ns {
            self.worst_ns = other.worst_ns;
            self.example = other.example;
        }
    }
}

impl Sums {
    /// All that is not of calls.
    pub(super) fn with_calls(self, calls: Sums) -> Sums {
        Sums {
            answered: calls.answered,
            first_calls: calls.first_calls,
            slow_thinks: calls.slow_thinks,
            queued: calls.queued,
            paused: calls.paused,
            paused_ns: calls.paused_ns,
            connect_ns: calls.connect_ns,
            total_ns: calls.total_ns,
            send_ns: calls.send_ns,
            wait_ns: calls.wait_ns,
            queued_ns: calls.queued_ns,
            think_ns: calls.think_ns,
            receive_ns: calls.receive_ns,
            slow_think_ns: calls.slow_think_ns,
            slow_think_median_ns: calls.slow_think_median_ns,
            total_quantiles_ns: calls.total_quantiles_ns,
            think_quantiles_ns: calls.think_quantiles_ns,
            rtt_min_ns: calls.rtt_min_ns,
            ..self
        }
    }
}

fn micros(ns: i64) -> u64 {
    u64::try_from(ns / 1000).unwrap_or(0)
}

/// The causes noted in a call, each once.
fn noted(call: &ObservedCall) -> Vec<&'static Cause> {
    let mut causes: Vec<_> = call.notes.iter().map(|n| n.cause).collect();
    causes.sort_unstable_by_key(|cause| cause.id);
    causes.dedup();
    causes
}
