//! The load generator looked at by itself: was it the limit, and was it disturbed?

use std::time::{Duration, Instant};

use linerate_net::machine::{self, ClocksAhead};

use crate::outcome::{ClientFigures, Outcome};
use crate::plan::{Pace, Plan, Way};

/// Busy share of a core from which the client is held to be the limit.
const BUSY: f64 = 0.95;
/// Share of the time for which the sending threads waited for a core, from which on the client is
/// held to be the limit.
const AWAY: f64 = 0.2;
/// A suspension is longer than that. Reason: two clocks are not read at the same moment.
const SUSPENDED: Duration = Duration::from_millis(100);
/// A wall clock that gains more than that while it is measured was not merely corrected.
const CLOCK_SET: Duration = Duration::from_secs(1);
/// Busy share below which a closed loop waits for the server, not for its core.
const ITS_PART: f64 = 0.3;
/// Share of the CPU time from which a script is named.
const SCRIPTS: f64 = 0.1;
/// Share of the requests due that never left, from which on the rate was missed.
const MISSED: f64 = 0.001;
/// Lateness at the 99th percentile from which an open loop was not kept, nanoseconds.
const LATE_NS: u64 = 1_000_000;

/// Observes the calling thread from `begin` to `end`.
#[derive(Debug)]
pub(crate) struct ThreadWatch {
    begun: Instant,
    cpu_ns: u64,
    waiting_ns: u64,
    switches: u64,
    ahead: ClocksAhead,
}

fn waiting_ns() -> u64 {
    machine::thread_sched_stat().map_or(0, |s| s.waiting_ns)
}

fn switches() -> u64 {
    let s = machine::thread_context_switches();
    s.voluntary + s.involuntary
}

impl ThreadWatch {
    pub(crate) fn begin() -> ThreadWatch {
        ThreadWatch {
            begun: Instant::now(),
            cpu_ns: machine::thread_cpu_time_ns(),
            waiting_ns: waiting_ns(),
            switches: switches(),
            ahead: machine::clocks_ahead(),
        }
    }

    /// The figures at the end of the run.
    pub(crate) fn end(&self) -> ClientFigures {
        let watched = self.begun.elapsed();
        let wall = watched.as_secs_f64();
        let cpu = Duration::from_nanos(machine::thread_cpu_time_ns().saturating_sub(self.cpu_ns));
        ClientFigures {
            cpu,
            core_busy: if wall > 0.0 { (cpu.as_secs_f64() / wall).min(1.0) } else { 0.0 },
            run_queue_wait: Duration::from_nanos(waiting_ns().saturating_sub(self.waiting_ns)),
            watched,
            context_switches: switches().saturating_sub(self.switches),
            threads: 1,
            suspended: suspended(self.ahead, machine::clocks_ahead()),
            ..ClientFigures::default()
        }
    }
}

/// For how long the machine was suspended between two looks: a clock that runs on meanwhile is further
/// ahead of one that does not. What is less may be the time service that corrects the clock.
fn suspended(before: ClocksAhead, after: ClocksAhead) -> Duration {
    let further = |before: u64, after: u64, least: Duration| {
        // A difference of wall-clock time may be negative, and then wraps.
        let by = after.wrapping_sub(before).cast_signed();
        Some(Duration::from_nanos(u64::try_from(by).unwrap_or(0))).filter(|by| *by >= least)
    };
    let boot = further(before.boot_ns, after.boot_ns, SUSPENDED);
    boot.or(further(before.wall_ns, after.wall_ns, CLOCK_SET)).unwrap_or_default()
}

/// Says whether the client was the limit, once everything is known: a closed loop whose core had no
/// time left, or an open loop that missed its rate because requests left late.
pub(crate) fn judge(plan: &Plan, outcome: &mut Outcome) {
    let client = &outcome.client;
    let late = client.lateness.percentile_ns(99.0);
    // What found every connection waiting, or too few of them open, waited for the server.
    let r = &outcome.requests;
    let held_up_here = r.unsent.saturating_sub(r.unsent_full + r.unsent_unopened + r.unsent_shut);
    let missed = held_up_here as f64 > MISSED * r.due() as f64;
    let waited = client.waited_share(outcome.duration);
    // Blocking threads share cores among themselves, so their waiting proves nothing.
    let alone = matches!(plan.way, Way::Loop | Way::Poll);
    let reason = if plan.pace == Pace::Closed && client.core_busy >= BUSY {
        Some(format!(
            "the busiest sending thread used {:.0} % of its core: the server may be able to do more",
            client.core_busy * 100.0
        ))
    } else if alone
        && client.core_busy >= ITS_PART
        && client.core_busy + waited >= BUSY
        && plan.pace == Pace::Closed
    {
        Some(format!(
            "other work took {:.0} % of the time of the sending threads, and they used the rest",
            waited * 100.0
        ))
    } else if plan.pace != Pace::Closed && missed && late >= LATE_NS {
        let ms = late as f64 / 1e6;
        Some(format!("requests left up to {ms:.1} ms late (99th percentile), and the rate was not reached"))
    } else if alone && waited > AWAY {
        Some(format!("the sending threads waited for a core for {:.0} % of the time", waited * 100.0))
    } else {
        None
    };
    let share = client.script.as_secs_f64() / client.cpu.as_secs_f64().max(1e-9);
    let reason = reason.map(|why| match share >= SCRIPTS {
        true => format!("{why}; the plan's script took {:.0} % of their CPU time", share * 100.0),
        false => why,
    });
    outcome.client.saturated = reason.is_some();
    outcome.client.reason = reason;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Rate, Target};

    fn closed() -> Plan {
        Plan::get(Target::at(([127, 0, 0, 1], 80).into()), "/")
    }

    fn limited(plan: &Plan, outcome: &Outcome) -> bool {
        let mut outcome = outcome.clone();
        judge(plan, &mut outcome);
        assert_eq!(outcome.client.saturated, outcome.client.reason.is_some());
        outcome.client.saturated
    }

    #[test]
    fn a_script_that_keeps_the_client_busy_is_named() {
        let mut outcome = Outcome::default();
        outcome.client.core_busy = 0.99;
        outcome.client.cpu = Duration::from_secs(4);
        for (script, is_named) in [(0, false), (3, true)] {
            outcome.client.script = Duration::from_secs(script);
            judge(&closed(), &mut outcome);
            let reason = outcome.client.reason.clone().unwrap_or_default();
            assert_eq!(
                reason.contains("the plan's script took 75 % of their CPU time"),
                is_named,
                "{reason}"
            );
        }
    }

    #[test]
    fn a_clock_that_ran_on_alone_is_a_suspension() {
        let at = |boot_s: u64, wall_s: i64| ClocksAhead {
            boot_ns: boot_s * 1_000_000_000,
            wall_ns: (wall_s * 1_000_000_000).cast_unsigned(),
        };
        assert_eq!(suspended(at(5, 100), at(8, 103)), Duration::from_secs(3));
        // A virtual machine that was stopped by its host learns it from the wall clock alone.
        assert_eq!(suspended(at(5, -1), at(5, 4)), Duration::from_secs(5));
        assert_eq!(suspended(at(5, 4), at(5, 2)), Duration::ZERO);
        let corrected = ClocksAhead { boot_ns: 50_000_000, wall_ns: 900_000_000 };
        assert_eq!(suspended(at(0, 0), corrected), Duration::ZERO);
    }

    #[test]
    fn a_client_that_waits_for_a_core_is_the_limit() {
        let mut outcome = Outcome { duration: Duration::from_secs(10), ..Outcome::default() };
        outcome.client.threads = 1;
        outcome.client.core_busy = 0.002;
        outcome.client.run_queue_wait = Duration::from_secs(2);
        assert!(!limited(&closed(), &outcome), "20 % of the time");
        outcome.client.run_queue_wait = Duration::from_secs(9);
        assert!(limited(&closed(), &outcome));
        let threads = Plan { way: Way::Threads, ..closed() };
        assert!(!limited(&threads, &outcome), "they share cores among themselves");
        let rate = Rate::constant(100.0);
        let open = Plan { pace: Pace::Open { rate, arrival: Default::default() }, ..closed() };
        assert!(limited(&open, &outcome));
        outcome.client.core_busy = 0.6;
        assert!(limited(&closed(), &outcome));
        outcome.client.run_queue_wait = Duration::from_secs(1);
        assert!(!limited(&closed(), &outcome));
        outcome.client.core_busy = 0.96;
        assert!(limited(&closed(), &outcome));
    }

    #[test]
    fn an_open_loop_is_limited_where_it_misses_its_rate_by_leaving_late() {
        let rate = Rate::constant(100.0);
        let open = Plan { pace: Pace::Open { rate, arrival: Default::default() }, ..closed() };
        let mut outcome = Outcome { duration: Duration::from_secs(10), ..Outcome::default() };
        outcome.requests.sent = 1000;
        outcome.client.core_busy = 1.0;
        outcome.client.lateness.record(5_000_000, 1000);
        assert!(!limited(&open, &outcome), "the rate was reached");
        outcome.requests.unsent = 10;
        assert!(limited(&open, &outcome));
        outcome.requests.unsent_full = 9;
        assert!(!limited(&open, &outcome), "the server held nearly all of them up, though some left late");
        outcome.requests.unsent_full = 0;
        outcome.client.lateness = Default::default();
        assert!(!limited(&open, &outcome), "the server held them up");
    }
}
