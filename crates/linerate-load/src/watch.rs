//! The load generator looked at by itself: was it the limit?

use std::time::{Duration, Instant};

use linerate_net::machine;

use crate::outcome::{Client, Outcome};

/// Busy share of a core from which the client is held to be the limit.
const BUSY: f64 = 0.95;
/// Share of the time a thread waited for its core from which others are held to have taken it.
const WAITED: f64 = 0.10;
/// Lateness at the 99th percentile from which an open loop was not kept, nanoseconds.
const LATE_NS: u64 = 1_000_000;

/// Observes the calling thread from `begin` to `end`.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: Instant,
    cpu_ns: u64,
    waiting_ns: u64,
    switches: u64,
}

fn waiting_ns() -> u64 {
    machine::thread_sched_stat().map_or(0, |s| s.waiting_ns)
}

fn switches() -> u64 {
    let s = machine::thread_context_switches();
    s.voluntary + s.involuntary
}

impl Watch {
    pub(crate) fn begin() -> Watch {
        Watch {
            begun: Instant::now(),
            cpu_ns: machine::thread_cpu_time_ns(),
            waiting_ns: waiting_ns(),
            switches: switches(),
        }
    }

    /// What was seen.
    pub(crate) fn end(&self) -> Client {
        let wall = self.begun.elapsed().as_secs_f64();
        let cpu = Duration::from_nanos(machine::thread_cpu_time_ns().saturating_sub(self.cpu_ns));
        Client {
            cpu,
            core_busy: if wall > 0.0 { (cpu.as_secs_f64() / wall).min(1.0) } else { 0.0 },
            run_queue_wait: Duration::from_nanos(waiting_ns().saturating_sub(self.waiting_ns)),
            context_switches: switches().saturating_sub(self.switches),
            threads: 1,
            ..Client::default()
        }
    }

    /// The same, of a thread that has a core of its own: whoever kept it from that is named.
    pub(crate) fn end_on_own_core(&self) -> Client {
        let mut client = self.end();
        let wall = self.begun.elapsed().as_secs_f64();
        let share = if wall > 0.0 { client.run_queue_wait.as_secs_f64() / wall } else { 0.0 };
        if share >= WAITED {
            client.saturated = true;
            client.reason = Some(format!(
                "other work on this machine kept a sending thread from its core for {:.0} % of the time",
                share * 100.0
            ));
        }
        client
    }
}

/// Says whether the client was the limit, once everything is known.
pub(crate) fn judge(outcome: &mut Outcome) {
    let client = &mut outcome.client;
    let late = client.lateness.percentile_ns(99.0);
    let reason = if client.reason.is_some() {
        return;
    } else if client.core_busy >= BUSY {
        format!(
            "the busiest sending thread used {:.0} % of its core: the server may be able to do more",
            client.core_busy * 100.0
        )
    } else if late >= LATE_NS {
        format!(
            "requests left up to {:.1} ms late (99th percentile): the schedule was not kept",
            late as f64 / 1e6
        )
    } else {
        return;
    };
    client.saturated = true;
    client.reason = Some(reason);
}
