//! What an agent measured in one interval: counts and a histogram that add up exactly.

use std::collections::BTreeMap;

use linerate_load::Snapshot;
use linerate_load::histogram::Histogram;
use linerate_load::outcome::{Bad, Bytes, Connections, Failures, Outcome, Ranked, Requests, TcpEvents};
use linerate_load::plan::{Pace, Plan};
use serde::{Deserialize, Serialize};

/// Counts and latencies of one interval, or of several added up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IntervalFigures {
    /// Requests.
    pub requests: Requests,
    /// Responses that were not good.
    pub bad: Bad,
    /// Failures by reason.
    pub failures: Failures,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    /// Bytes sent and received.
    pub bytes: Bytes,
    /// Connections.
    pub connections: Connections,
    /// TCP events of sampled connections.
    pub tcp: TcpEvents,
    /// Latencies of good responses, nanoseconds: from due in an open loop, from sent in a closed one.
    pub latency: Histogram,
    /// How long requests without a good response were waited for.
    #[serde(default)]
    pub waited: Histogram,
}

impl IntervalFigures {
    /// The state of a run at one moment.
    pub fn of_snapshot(snapshot: &Snapshot) -> IntervalFigures {
        IntervalFigures {
            requests: snapshot.requests,
            bad: snapshot.bad,
            failures: snapshot.failures.clone(),
            status: snapshot.status.clone(),
            bytes: snapshot.bytes,
            connections: snapshot.connections,
            tcp: snapshot.tcp,
            latency: snapshot.latency.clone(),
            waited: snapshot.waited.clone(),
        }
    }

    /// The same figures at the end of a run.
    pub fn of_outcome(outcome: &Outcome) -> IntervalFigures {
        IntervalFigures {
            requests: outcome.requests,
            bad: outcome.bad,
            failures: outcome.failures.clone(),
            status: outcome.status.clone(),
            bytes: outcome.bytes,
            connections: outcome.connections,
            tcp: outcome.tcp.events,
            latency: outcome.latency.main().good.clone(),
            waited: outcome.latency.waited.clone(),
        }
    }

    /// The latency, with requests without a good response behind all others.
    pub fn ranked(&self) -> Ranked<'_> {
        Ranked { good: &self.latency, waited: &self.waited }
    }

    /// What came since an earlier state of the same run.
    #[must_use]
    pub fn since(&self, earlier: &IntervalFigures) -> IntervalFigures {
        let before = |status: &u16| earlier.status.get(status).copied().unwrap_or(0);
        let status = self.status.iter().map(|(code, n)| (*code, n.saturating_sub(before(code))));
        let (mut latency, mut waited) = (self.latency.clone(), self.waited.clone());
        latency.subtract(&earlier.latency);
        waited.subtract(&earlier.waited);
        IntervalFigures {
            requests: self.requests.since(&earlier.requests),
            bad: self.bad.since(&earlier.bad),
            failures: self.failures.since(&earlier.failures),
            status: status.filter(|(_, n)| *n > 0).collect(),
            bytes: self.bytes.since(&earlier.bytes),
            connections: self.connections.since(&earlier.connections),
            tcp: self.tcp.since(&earlier.tcp),
            latency,
            waited,
        }
    }

    /// Adds another interval's, or another agent's.
    pub fn merge(&mut self, other: &IntervalFigures) {
        self.requests.merge(&other.requests);
        self.bad.merge(&other.bad);
        self.failures.merge(&other.failures);
        for (status, n) in &other.status {
            *self.status.entry(*status).or_default() += n;
        }
        self.bytes.merge(&other.bytes);
        self.connections.merge(&other.connections);
        self.tcp.merge(&other.tcp);
        self.latency.merge(&other.latency);
        self.waited.merge(&other.waited);
    }

    /// The outcome of a part of a run whose end is not known. Requests that were in flight count as
    /// unknown.
    pub fn into_outcome(self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome {
            requests: self.requests,
            bad: self.bad,
            failures: self.failures,
            status: self.status,
            bytes: self.bytes,
            connections: self.connections,
            ..Outcome::default()
        };
        let r = &mut outcome.requests;
        r.unknown = r.sent.saturating_sub(r.answered).saturating_sub(r.failed);
        r.sent = r.answered + r.failed + r.unknown;
        outcome.tcp.events = self.tcp;
        outcome.latency.waited = self.waited;
        let r = &outcome.requests;
        let lost = (r.failed + r.unknown + r.unsent + outcome.bad.total())
            .saturating_sub(outcome.latency.waited.count());
        if lost > 0 && !plan.throughput {
            // How long those in flight were waited for went down with the agent: not at all is the least.
            outcome.latency.waited.record(0, lost);
        }
        match plan.pace {
            Pace::Closed => outcome.latency.from_sent = self.latency,
            Pace::Open { .. } | Pace::Trace(_) => outcome.latency.from_due = Some(self.latency),
        }
        outcome
    }
}
