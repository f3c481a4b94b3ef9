//! Figures that follow from an outcome by arithmetic.

use linerate_load::histogram::Histogram;
use linerate_load::outcome::{PhysicalLine, Requests};
use linerate_load::{Outcome, Plan};

use crate::units;

/// The share of the line's capacity that `bytes` took.
pub(crate) fn line_share(bytes: u64, line: &PhysicalLine, outcome: &Outcome) -> f64 {
    outcome.per_second(bytes) * 8.0 / (line.bits_per_second.max(1) as f64)
}

/// The latencies of good responses that checks and single figures mean: from due in an open loop,
/// from sent in a closed one. `None` when the plan gave latencies up or none was measured.
pub(crate) fn main_latency<'a>(plan: &Plan, outcome: &'a Outcome) -> Option<&'a Histogram> {
    (!plan.throughput && outcome.main_latency().count() > 0).then(|| outcome.main_latency())
}

/// Processor time of the client per answered request, microseconds.
pub(crate) fn cpu_us_per_request(outcome: &Outcome) -> Option<f64> {
    // Work for requests of the warm-up is measured too, so their responses count.
    (outcome.arrived > 0).then(|| outcome.client.cpu.as_secs_f64() * 1e6 / outcome.arrived as f64)
}

/// CPU time in the plan's script for each response, microseconds.
pub(crate) fn script_us(outcome: &Outcome) -> Option<f64> {
    let spent = outcome.client.script;
    (outcome.arrived > 0 && !spent.is_zero()).then(|| spent.as_secs_f64() * 1e6 / outcome.arrived as f64)
}

/// Why requests that were due never left, as far as that is known.
pub(crate) fn unsent_because(requests: &Requests) -> Option<String> {
    let reasons = [
        (requests.unsent_full, "every connection was waiting for an answer"),
        (requests.unsent_unopened, "not all connections could be opened in time"),
        (requests.unsent_shut, "the server admitted no streams"),
        (requests.unsent_missed, "an agent was not there when they were due"),
    ];
    let reasons: Vec<_> = reasons.into_iter().filter(|(n, _)| *n > 0).collect();
    match reasons[..] {
        [] => None,
        [(n, why)] if n == requests.unsent => Some(why.to_owned()),
        _ => {
            let each = reasons.iter().map(|(n, why)| format!("{} because {why}", units::count(*n)));
            Some(each.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Share of the time the sending threads wanted a core and did not get it.
pub(crate) fn wait_share(outcome: &Outcome) -> f64 {
    let wait = outcome.client.run_queue_wait.as_secs_f64();
    let wanted = wait + outcome.client.cpu.as_secs_f64();
    if wanted > 0.0 { wait / wanted } else { 0.0 }
}

/// Whether a percentile has enough samples beyond it to be believed.
pub(crate) fn rests_on_enough(samples: u64, percent: f64) -> bool {
    let beyond = samples as f64 * (100.0 - percent) / 100.0;
    // 100 - 99.9 is a little less than 0.1 in binary.
    beyond >= crate::limits::BEYOND - 1e-6
}

/// The protocol that connections spoke.
pub(crate) fn protocol(outcome: &Outcome) -> &'static str {
    if outcome.http.h3 > 0 {
        return "HTTP/3";
    }
    match (outcome.http.h1, outcome.http.h2) {
        (_, 0) => "HTTP/1.1",
        (0, _) => "HTTP/2",
        _ => "HTTP/1.1 and HTTP/2",
    }
}
