//! Server and client on a veth: what both cores do, and the row that says so.

use anyhow::{Context, Result, ensure};

use super::Tools;
use super::figures::{median, of_program};
use super::round::ProgramRun;
use super::scenario::Figure;
use super::table::thousands;

/// The columns of [`row`], after the program's.
pub(super) const HEAD: &str = "requests/s | CPU of both cores, us per request | server core | client core";

/// The time for which both cores were busy.
#[derive(Clone, Copy, Debug)]
pub(super) struct BusyCores {
    pub(super) server_s: f64,
    pub(super) client_s: f64,
}

impl BusyCores {
    /// Since the machine started.
    pub(super) fn now(t: &Tools) -> Result<BusyCores> {
        let text = std::fs::read_to_string("/proc/stat")?;
        Ok(BusyCores { server_s: busy_s(&text, t.cores[0])?, client_s: busy_s(&text, t.cores[1])? })
    }

    /// Since an earlier look.
    pub(super) fn since(self, before: BusyCores) -> BusyCores {
        BusyCores { server_s: self.server_s - before.server_s, client_s: self.client_s - before.client_s }
    }

    /// Microseconds per request, of both ends together: on veth the receiver's network work is done on the
    /// sender's core.
    pub(super) fn each_us(self, requests: f64) -> f64 {
        (self.server_s + self.client_s) * 1e6 / requests.max(1.0)
    }
}

/// The time a core was busy, seconds, by the text of /proc/stat.
fn busy_s(stat: &str, core: usize) -> Result<f64> {
    let name = format!("cpu{core} ");
    let fields = stat.lines().find_map(|l| l.strip_prefix(&name)).context("no such core")?;
    let ticks: Vec<u64> = fields.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    ensure!(ticks.len() >= 7, "/proc/stat has no times");
    // user, nice, system, irq, softirq; clock ticks are 10 ms everywhere Linux runs.
    Ok((ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) as f64 / 100.0)
}

/// The begin of a program's row: medians of its runs that count.
pub(super) fn row(who: &str, runs: &[ProgramRun]) -> String {
    let Some(rate) = of_program(runs, who, Figure::Rate) else { return format!("| {who} | - | - | - | -") };
    let good = || runs.iter().filter(|r| r.program == who && r.fault.is_none());
    let busy =
        |of: fn(&ProgramRun) -> f64| median(&good().map(of).collect::<Vec<_>>()).unwrap_or(0.0) * 100.0;
    let cpu = of_program(runs, who, Figure::Cpu).unwrap_or(0.0);
    let (server, client) = (busy(|r| r.server_busy), busy(|r| r.client_busy));
    format!("| {who} | {} | {cpu:.2} | {server:.0} % | {client:.0} %", thousands(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_while_it_neither_sleeps_nor_waits_for_a_disk() {
        let stat =
            "cpu  9 9 9 9 9 9 9 0 0 0\ncpu0 100 10 40 5000 300 20 30 0 0 0\ncpu1 1 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy_s(stat, 0).expect("times"), 2.0);
        assert_eq!(busy_s(stat, 1).expect("times"), 0.01);
        assert!(busy_s(stat, 2).is_err());
    }
}
