//! What the rounds of a row showed, for its words.

use linerate_lab::figures::RunFigures;
use linerate_load::Plan;
use linerate_load::plan::Way;
use linerate_load::plan::http::Http;

use crate::ways::Seen;

/// Cores that a row's servers and its client have, each their own; 0: they were given none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) client: usize,
}

/// A share of the time in which threads wanted a core, as a share of all time.
fn of_all(waited: f64, used: f64) -> f64 {
    let waited = waited.min(0.99);
    waited / (1.0 - waited) * used
}

/// Share of the time in which other programs had the server's cores. Its threads wait for each other, too: what they
/// used themselves no other program had. `cores` of its own; 0: it was given none.
pub(super) fn taken(run: &RunFigures, cores: usize) -> f64 {
    let value = |id: &str| run.values.get(id).copied().unwrap_or(0.0);
    let used = value("cpu_us_per_request") * value("rate_rps") / 1e6;
    let waited = of_all(run.server_waited.unwrap_or(0.0), used);
    let cores = cores as f64;
    if cores > 0.0 { waited.min((cores - used).max(0.0)) } else { waited }
}

/// The middle of what the rounds say.
pub(super) fn of(name: &str, plan: &Plan, runs: &[RunFigures], cores: Cores) -> Seen {
    let middle = |values: Vec<f64>| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let value = |id: &str| middle(runs.iter().filter_map(|run| run.values.get(id).copied()).collect());
    let rate = value("rate_rps").unwrap_or(0.0);
    let cpu = ["client_cpu_us_per_request", "cpu_us_per_request"].map(value);
    let used = cpu.map(|us| us.map(|us| us * rate / 1e6));
    let baseline = plan.way != Way::Loop;
    let waited = middle(runs.iter().map(|run| run.client_waited).collect()).unwrap_or(0.0);
    let client = of_all(waited, used[0].unwrap_or(0.0));
    let server = middle(runs.iter().map(|run| taken(run, cores.server)).collect()).unwrap_or(0.0);
    let held_up = server.max(if baseline { 0.0 } else { client });
    let share = |cores: usize, used: Option<f64>| used.filter(|_| cores > 0).map(|used| used / cores as f64);
    let lost: u64 = runs.iter().map(|run| run.errors).sum();
    let sent: u64 = runs.iter().map(|run| run.sent).sum();
    Seen {
        name: name.to_owned(),
        connections: plan.connections,
        depth: plan.depth,
        per_connection: plan.per_connection,
        streams: plan.http.version == Http::Two,
        baseline,
        rate_rps: rate,
        p50_us: value("p50_us").unwrap_or(0.0),
        cpu_us: cpu,
        cores: used,
        busiest: [share(cores.client, used[0]), share(cores.server, used[1])],
        machine: None,
        held_up,
        errors: lost as f64 / sent.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_each_other_name_no_other_program() {
        let run = |us: f64, waited: f64| RunFigures {
            values: [("cpu_us_per_request", us), ("rate_rps", 10_000.0)].into(),
            server_waited: Some(waited),
            ..RunFigures::default()
        };
        let near = |is: f64, wanted: f64| assert!((is - wanted).abs() < 1e-9, "{is}, not {wanted}");
        // A thousand processes keep one core busy, and nearly all of them wait for it.
        near(taken(&run(98.0, 0.98), 1), 0.02);
        // One thread has half of the core and wants all of it.
        near(taken(&run(50.0, 0.5), 1), 0.5);
        near(taken(&run(50.0, 0.5), 0), 0.5);
    }
}
