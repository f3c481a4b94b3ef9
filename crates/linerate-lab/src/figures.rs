//! The figures of one run that are compared, and which way they are better.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use linerate_load::{Outcome, Plan};

use crate::latencies::{RunLatencies, Statistic};
use crate::servers::Usage;

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Requests per second.
    PerSecond,
    /// Microseconds.
    Micros,
    /// A million bytes.
    Megabytes,
    /// A number of something, for each request.
    PerRequest,
}

/// Something that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabMetric {
    /// Its name in documents.
    pub id: &'static str,
    /// Its name in a check, beside `id`.
    pub short: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// Its unit.
    pub unit: MetricUnit,
    /// Whether more of it is better.
    pub more_is_better: bool,
}

const fn less(id: &'static str, short: &'static str, title: &'static str, unit: MetricUnit) -> LabMetric {
    LabMetric { id, short, title, unit, more_is_better: false }
}

/// All of them, in the order of reports.
pub const METRICS: [LabMetric; 11] = [
    LabMetric {
        id: "rate_rps",
        short: "rate",
        title: "requests/s",
        unit: MetricUnit::PerSecond,
        more_is_better: true,
    },
    less("mean_us", "mean", "mean latency", MetricUnit::Micros),
    less("p50_us", "p50", "p50 latency", MetricUnit::Micros),
    less("p90_us", "p90", "p90 latency", MetricUnit::Micros),
    less("p99_us", "p99", "p99 latency", MetricUnit::Micros),
    less("p999_us", "p99.9", "p99.9 latency", MetricUnit::Micros),
    less("cpu_us_per_request", "cpu", "server CPU/request", MetricUnit::Micros),
    less("rss_mb", "rss", "server memory", MetricUnit::Megabytes),
    less("context_switches_per_request", "switches", "switches/request", MetricUnit::PerRequest),
    less("run_queue_wait_us_per_request", "wait", "wait for core/request", MetricUnit::Micros),
    less("client_cpu_us_per_request", "client_cpu", "client CPU/request", MetricUnit::Micros),
];

/// The metric of a name, long or short.
pub fn metric(name: &str) -> Option<&'static LabMetric> {
    METRICS.iter().find(|m| m.id == name || m.short == name || (m.id == "p999_us" && name == "p999"))
}

/// What the server's processes used while a run was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUse {
    /// Processor time.
    pub cpu: Duration,
    /// Time for which threads were runnable and had no core.
    pub waited: Duration,
    /// Context switches.
    pub switches: u64,
    /// The most memory that was resident, bytes.
    pub rss: u64,
}

impl ServerUse {
    /// From one look to another; `peak`: the most memory that was seen between them.
    pub fn between(before: &Usage, after: &Usage, peak: u64) -> ServerUse {
        ServerUse {
            cpu: after.cpu_since(before),
            waited: after.waited_since(before),
            switches: after.switches_since(before),
            rss: peak.max(after.rss).max(before.rss),
        }
    }
}

/// What one run says about one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFigures {
    /// Values by the `id` of their metric; one that was not measured is not there. Rates and costs are those of good
    /// responses.
    pub values: BTreeMap<&'static str, f64>,
    /// Values that it lacks, and why.
    pub missing: BTreeMap<&'static str, &'static str>,
    /// Of these, latencies that are at least that: requests without a good response stand there.
    pub at_least: BTreeSet<&'static str>,
    /// Whether its rate is only known to be below the one given: not a single good response came.
    pub is_rate_bound: bool,
    /// Its latencies; empty where they were not measured.
    pub latencies: RunLatencies,
    /// Of each named request, where the plan has several.
    pub by_name: BTreeMap<String, RunLatencies>,
    /// Requests sent, answered, and everything that did not go as it should.
    pub sent: u64,
    /// Whole responses.
    pub answered: u64,
    /// Failed, unknown, bad, unsent and unsolicited.
    pub errors: u64,
    /// Responses that were not good.
    pub bad: u64,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    /// Bytes received.
    pub received: u64,
    /// The share of the line's capacity that the busier direction took, where its speed is known.
    pub line_share: Option<f64>,
    /// The shortest and the longest latency, microseconds. Not compared: each is a single request.
    pub extremes_us: Option<(f64, f64)>,
    /// Requests that may have left during the warm-up and been answered after it.
    pub carried_over: u64,
    /// How long was measured.
    pub duration: Duration,
    /// Why the client was the limit, if it was.
    pub client_limit: Option<String>,
    /// Share of the time for which our sending threads wanted a core and got none.
    pub client_waited: f64,
    /// Share of the time for which the server's threads wanted a core and got none.
    pub server_waited: Option<f64>,
    /// Checks of this run that failed, in words.
    pub failed_checks: Vec<String>,
    /// Not a single connection could be opened.
    pub unreachable: bool,
    /// Our client failed, so the run says nothing about the server.
    pub is_broken: bool,
    /// Why the run does not count, if it does not.
    pub fault: Option<String>,
}

impl RunFigures {
    /// The run that has this outcome.
    pub fn of(plan: &Plan, outcome: &Outcome, server: Option<&ServerUse>) -> RunFigures {
        let answered = outcome.requests.answered;
        let wanted = outcome.client.cpu + outcome.client.run_queue_wait;
        let shown = |check: &linerate_load::plan::Check| {
            let found = check.evaluate(outcome);
            (!found.pass).then(|| format!("{}: {}", found.expr, found.shown))
        };
        let mut at_least = BTreeSet::new();
        let (values, missing) = values(plan, outcome, server, &mut at_least);
        RunFigures {
            values,
            missing,
            at_least,
            is_rate_bound: outcome.requests.answered == 0 || outcome.good_rate_rps() < least_rate(outcome),
            latencies: if plan.throughput { RunLatencies::default() } else { RunLatencies::of(outcome) },
            by_name: outcome
                .by_name
                .iter()
                .map(|(name, of)| (name.clone(), RunLatencies::new(&of.latency, &of.waited)))
                .collect(),
            sent: outcome.requests.sent,
            answered,
            errors: outcome.errors(),
            bad: outcome.bad.total(),
            status: outcome.status.clone(),
            received: outcome.bytes.received,
            line_share: line_share(outcome),
            extremes_us: extremes(plan, outcome),
            carried_over: carried_over(plan, outcome),
            duration: outcome.duration,
            client_limit: outcome.client.reason.clone().filter(|_| outcome.client.saturated),
            client_waited: share(outcome.client.run_queue_wait, wanted),
            server_waited: server.map(|s| share(s.waited, s.waited + s.cpu)),
            failed_checks: plan.checks.iter().filter_map(shown).collect(),
            unreachable: outcome.unreachable.is_some(),
            is_broken: outcome.broken.is_some(),
            fault: fault(outcome),
        }
    }

    /// Whether its latencies count: a run of the server's in which nothing was answered has some.
    pub fn has_latencies(&self) -> bool {
        !self.latencies.is_empty() && !self.is_broken
    }

    /// Whether not a single response was good.
    pub fn is_all_bad(&self) -> bool {
        self.answered == 0 || self.bad >= self.answered
    }

    /// The statuses that came, the most frequent first.
    pub fn statuses(&self) -> Vec<u16> {
        let mut all: Vec<(u64, u16)> = self.status.iter().map(|(s, n)| (*n, *s)).collect();
        all.sort_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, status)| status).collect()
    }
}

/// Those in flight at its end, and those of the time between two snapshots.
fn carried_over(plan: &Plan, outcome: &Outcome) -> u64 {
    const BETWEEN: f64 = 0.15;
    let a_second = outcome.requests.answered as f64 / outcome.duration.as_secs_f64().max(1e-3);
    let late = if plan.warm_up.is_zero() { 0.0 } else { a_second * BETWEEN };
    u64::from(plan.connections) * u64::from(plan.depth) + late as u64
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

fn fault(outcome: &Outcome) -> Option<String> {
    let unreachable = outcome.unreachable.as_ref().map(|why| format!("it could not be reached: {why}"));
    let broken = outcome.broken.as_ref().map(|why| format!("our client failed: {why}"));
    let r = &outcome.requests;
    let none = (r.answered == 0).then(|| match (r.sent, outcome.connections.opened) {
        (0, 0) => "no request left: no connection was open before its end".to_owned(),
        (0, _) => "no request left before its end".to_owned(),
        _ => "no request was answered".to_owned(),
    });
    unreachable.or(broken).or(none)
}

fn extremes(plan: &Plan, outcome: &Outcome) -> Option<(f64, f64)> {
    let latency = outcome.main_latency();
    let measured = !plan.throughput && latency.count() > 0;
    measured.then(|| (latency.min_ns() as f64 / 1e3, latency.max_ns() as f64 / 1e3))
}

fn line_share(outcome: &Outcome) -> Option<f64> {
    let speed = outcome.line.as_ref()?.bits_per_second.max(1) as f64;
    let bytes = outcome.window.bytes.received.max(outcome.window.bytes.sent);
    Some(outcome.per_second(bytes) * 8.0 / speed)
}

/// The rate from which on a round counts. Reason: one without a good response has less than one; of none
/// there is no ratio, and to leave it out would hide the standstill.
fn least_rate(outcome: &Outcome) -> f64 {
    1.0 / outcome.window.time.as_secs_f64()
}

fn values(
    plan: &Plan,
    outcome: &Outcome,
    server: Option<&ServerUse>,
    at_least: &mut BTreeSet<&'static str>,
) -> (BTreeMap<&'static str, f64>, BTreeMap<&'static str, &'static str>) {
    let (mut all, mut missing) = (BTreeMap::new(), BTreeMap::new());
    let (answered, window) = (outcome.requests.answered as f64, outcome.window.time.as_secs_f64());
    if answered == 0.0 || window == 0.0 {
        let why = if answered == 0.0 { "no request was answered" } else { "no time was measured" };
        missing.extend(METRICS.iter().map(|metric| (metric.id, why)));
        if window > 0.0 && outcome.requests.sent > 0 && outcome.broken.is_none() {
            missing.remove("rate_rps");
            all.insert("rate_rps", least_rate(outcome));
        }
        return (all, missing);
    }
    all.insert("rate_rps", outcome.good_rate_rps().max(least_rate(outcome)));
    let latency = outcome.main_latency();
    if !plan.throughput && latency.count() > 0 {
        let (mean_ns, is_bound) = outcome.latency.main().mean_ns();
        all.insert("mean_us", mean_ns / 1e3);
        at_least.extend(is_bound.then_some("mean_us"));
        for (id, percent) in [("p50_us", 50.0), ("p90_us", 90.0), ("p99_us", 99.0), ("p999_us", 99.9)] {
            let found = outcome.percentile(percent);
            all.insert(id, found.ns as f64 / 1e3);
            at_least.extend(found.at_least.then_some(id));
        }
    }
    // Work for requests of the warm-up is measured too, so their responses count. Where none is good, the costs are
    // infinite, and left out below.
    let arrived = outcome.good_of(outcome.arrived.max(1) as f64);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / arrived;
    all.insert("client_cpu_us_per_request", each(outcome.client.cpu));
    if let Some(server) = server {
        all.insert("cpu_us_per_request", each(server.cpu));
        all.insert("rss_mb", server.rss as f64 / 1e6);
        all.insert("context_switches_per_request", server.switches as f64 / arrived);
        all.insert("run_queue_wait_us_per_request", each(server.waited));
    }
    // Of nothing there is no ratio.
    for (id, value) in &all {
        match value {
            value if !value.is_finite() => missing.insert(*id, "no response was good"),
            value if *value <= 0.0 => missing.insert(*id, "it was 0, of which there is no ratio"),
            _ => None,
        };
    }
    all.retain(|id, _| !missing.contains_key(id));
    (all, missing)
}

/// Metrics that at least one of some runs has.
pub fn measured<'a>(runs: impl Iterator<Item = &'a RunFigures>) -> Vec<&'static LabMetric> {
    let (mut names, mut latencies) = (BTreeSet::new(), false);
    for run in runs {
        names.extend(run.values.keys().copied());
        latencies |= run.has_latencies();
    }
    let is = |m: &&LabMetric| names.contains(m.id) || (latencies && Statistic::of(m.id).is_some());
    METRICS.iter().filter(is).collect()
}

#[cfg(test)]
mod tests {
    use linerate_load::plan::Target;

    use super::*;

    #[test]
    fn a_round_whose_responses_all_came_too_late_has_a_rate() {
        let plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        let mut outcome = Outcome::default();
        (outcome.requests.sent, outcome.requests.answered) = (12, 7);
        outcome.window.time = Duration::from_secs(2);
        let rate = |outcome: &Outcome| values(&plan, outcome, None, &mut BTreeSet::new()).0["rate_rps"];
        assert_eq!(rate(&outcome), 0.5, "less than one response in 2 s");
        outcome.window.answered = 7;
        assert_eq!(rate(&outcome), 3.5);
        (outcome.requests.answered, outcome.window.answered) = (0, 0);
        assert_eq!(rate(&outcome), 0.5, "nor one");
        outcome.requests.sent = 0;
        let (none, missing) = values(&plan, &outcome, None, &mut BTreeSet::new());
        assert!(none.is_empty() && missing["rate_rps"] == "no request was answered", "{none:?} {missing:?}");
    }

    #[test]
    fn a_run_without_a_response_says_how_far_it_came() {
        let mut outcome = Outcome::default();
        assert_eq!(fault(&outcome).unwrap(), "no request left: no connection was open before its end");
        outcome.connections.opened = 2;
        assert_eq!(fault(&outcome).unwrap(), "no request left before its end");
        outcome.requests.sent = 1;
        assert_eq!(fault(&outcome).unwrap(), "no request was answered");
    }

    #[test]
    fn bad_responses_improve_neither_rate_nor_cost() {
        let plan = Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/");
        let mut outcome = Outcome::default();
        (outcome.requests.sent, outcome.requests.answered, outcome.arrived) = (1_000, 1_000, 1_000);
        outcome.window.answered = 1_000;
        outcome.window.time = Duration::from_secs(1);
        outcome.client.cpu = Duration::from_millis(10);
        outcome.bad.status = 750;
        let of = |outcome: &Outcome| values(&plan, outcome, None, &mut BTreeSet::new()).0;
        let found = of(&outcome);
        assert_eq!((found["rate_rps"], found["client_cpu_us_per_request"]), (250.0, 40.0));
        outcome.bad.status = 1_000;
        let found = of(&outcome);
        assert_eq!((found["rate_rps"], found.get("client_cpu_us_per_request")), (1.0, None));
    }
}
