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
    // A share of the time in which threads wanted a core, as a share of all time.
    let of_all = |waited: Vec<f64>, used: Option<f64>| {
        let waited = middle(waited).unwrap_or(0.0).min(0.99);
        waited / (1.0 - waited) * used.unwrap_or(0.0)
    };
    let client = of_all(runs.iter().map(|run| run.client_waited).collect(), used[0]);
    let server = of_all(runs.iter().filter_map(|run| run.server_waited).collect(), used[1]);
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
