//! What a program did in a part of its run: warm-up, connections and summary fall out.

use anyhow::{Context, Result, ensure};

use crate::bench::figures::median;
use crate::bench::round::ProgramCost;
use crate::bench::server::ServerCounts;

/// Part of a run, seconds after its first request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunWindow {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
}

impl RunWindow {
    /// Requests that came in it, by the server's count, and the program's processor time, seconds.
    pub(super) fn work(self, cost: &ProgramCost, seen: &ServerCounts) -> Result<(f64, f64)> {
        let first = seen.first_us as f64;
        let ticks: Vec<_> =
            seen.ticks_us.iter().map(|(at, n)| ((*at as f64 - first) / 1e6, *n as f64)).collect();
        let late = self.late(cost, seen);
        let cpu: Vec<_> = cost.cpu_over_time_s.iter().map(|(at, cpu)| (at + late, *cpu)).collect();
        let within = |all: &[(f64, f64)]| anyhow::Ok(value_at(all, self.to_s)? - value_at(all, self.from_s)?);
        let (requests, cpu_s) = (within(&ticks)?, within(&cpu)?);
        ensure!(requests > 0.0 && cpu_s > 0.0, "{requests} requests and {cpu_s} s of CPU after the warm-up");
        Ok((requests, cpu_s))
    }

    /// The program's resident memory in it, kB: the median of what was seen.
    pub(super) fn memory_kb(self, cost: &ProgramCost, seen: &ServerCounts) -> Result<f64> {
        let late = self.late(cost, seen);
        let inside = cost.rss_kb.iter().filter(|(at, _)| (self.from_s..self.to_s).contains(&(at + late)));
        median(&inside.map(|(_, kb)| *kb as f64).collect::<Vec<_>>()).context("it ended too early")
    }

    /// What is added to the time since the program's start for the time since its first request, seconds.
    fn late(self, cost: &ProgramCost, seen: &ServerCounts) -> f64 {
        (cost.start_us as f64 - seen.first_us as f64) / 1e6
    }
}

/// A growing count at this time, on a straight line between two notes.
fn value_at(all: &[(f64, f64)], at: f64) -> Result<f64> {
    let after = all.iter().position(|(time, _)| *time >= at).context("it ended too early")?;
    let (time, value) = all[after];
    let Some((before, less)) = after.checked_sub(1).map(|i| all[i]) else { return Ok(value) };
    Ok(less + (value - less) * (at - before) / (time - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_and_end_fall_out() {
        // It starts 1 s before its first request, and works with half a core for 4 s.
        let cost = ProgramCost {
            cpu_s: 9.0,
            wall_s: 6.0,
            delay_s: 0.0,
            max_rss_kb: 0,
            rss_kb: vec![(0.5, 10), (3.5, 700), (4.0, 900), (5.5, 10)],
            cpu_over_time_s: vec![(0.0, 0.0), (1.0, 7.0), (3.0, 8.0), (5.0, 9.0)],
            start_us: 9_000_000,
        };
        let ticks_us = vec![(10_000_000, 1), (12_000_000, 201), (14_000_000, 601)];
        let seen = ServerCounts { first_us: 10_000_000, ticks_us, ..ServerCounts::default() };
        let window = RunWindow { from_s: 1.0, to_s: 3.0 };
        assert_eq!(window.work(&cost, &seen).expect("a whole run"), (300.0, 1.0));
        assert_eq!(window.memory_kb(&cost, &seen).expect("a whole run"), 700.0);
        let late = RunWindow { from_s: 3.0, to_s: 4.5 }.work(&cost, &seen);
        assert_eq!(late.expect_err("no notes").to_string(), "it ended too early");
    }
}
