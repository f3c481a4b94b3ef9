//! `--pid`: the cores that the server kept busy in each small step of the run.

use std::time::{Duration, Instant, SystemTime};

use linerate_lab::servers::{Member, Usage, descendants};
use linerate_load::outcome::FineSample;
use linerate_net::machine;

use super::beside::{Look, Looking, SECOND, next_look, thin_out};
use crate::fault::CommandFault;

/// Time between two looks at the beginning, until then, and from then on: those of the small steps.
const FINE: Duration = Duration::from_millis(10);
const FINE_UNTIL: Duration = Duration::from_secs(2);
const COARSE: Duration = Duration::from_millis(100);
/// A step's time on cores is known if looks were no further from each other than so many steps, or than
/// [`COARSE`] and half of it. Reason: what is in between is taken as even.
const STEPS: f64 = 2.0;

/// The server's time on cores at a moment of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BusyLook {
    t_s: f64,
    cpu_s: f64,
}

/// A server whose time on cores is looked at.
#[derive(Debug)]
pub(super) struct BusySteps(Looking<BusyLooks>);

#[derive(Debug)]
struct BusyLooks {
    pid: i32,
    from: SystemTime,
    /// Since when its time is counted, and when its processes were looked for.
    begun: Instant,
    found: Instant,
    /// How long after `from` that was.
    late: Duration,
    members: Vec<Member>,
    last: Usage,
    cpu: Duration,
    looks: Vec<BusyLook>,
    step: Duration,
}

impl BusyLooks {
    fn usage(&mut self) -> Usage {
        if self.found.elapsed() >= SECOND {
            self.members = descendants(self.pid);
            self.found = Instant::now();
        }
        self.members = self.members.iter().filter_map(Member::now).collect();
        Usage::of(&self.members)
    }

    fn note(&mut self) {
        let t_s = (self.late + self.begun.elapsed()).as_secs_f64();
        self.looks.push(BusyLook { t_s, cpu_s: self.cpu.as_secs_f64() });
        if thin_out(&mut self.looks) {
            self.step *= 2;
        }
    }
}

impl Look for BusyLooks {
    fn begin(&mut self) -> Instant {
        self.members = descendants(self.pid);
        self.last = self.usage();
        self.begun = Instant::now();
        self.late = SystemTime::now().duration_since(self.from).unwrap_or_default();
        self.note();
        self.begun + self.step
    }

    fn look(&mut self, _is_last: bool) -> Instant {
        let used = machine::thread_cpu_time_ns();
        let now = self.usage();
        if !now.is_empty() {
            self.cpu += now.cpu_since(&self.last);
            self.last = now;
            self.note();
        }
        let step = if self.begun.elapsed() < FINE_UNTIL { self.step } else { self.step.max(COARSE) };
        next_look(step, used)
    }
}

impl BusySteps {
    /// Looks from then on.
    pub(super) fn watch(pid: i32, from: SystemTime) -> Result<BusySteps, CommandFault> {
        let now = Instant::now();
        let looks = BusyLooks {
            pid,
            from,
            begun: now,
            found: now,
            late: Duration::ZERO,
            members: Vec::new(),
            last: Usage::default(),
            cpu: Duration::ZERO,
            looks: Vec::new(),
            step: FINE,
        };
        Looking::start("busy", from, looks).map(BusySteps)
    }

    /// Ends it, and says of each step how many cores were busy.
    pub(super) fn finish(self, series: &mut [FineSample]) {
        if let Some(seen) = self.0.finish() {
            join(&seen.looks, series);
        }
    }
}

fn join(looks: &[BusyLook], series: &mut [FineSample]) {
    let mut begin = 0.0;
    for step in series {
        let lasted = step.t_s - begin;
        let apart = (STEPS * lasted).max(1.5 * COARSE.as_secs_f64());
        let cpu = |t_s| cpu_at(looks, t_s, apart);
        let used = cpu(begin).zip(cpu(step.t_s)).map(|(before, after)| after - before);
        step.server_busy = used.map(|used| (used / lasted.max(1e-6)).max(0.0));
        begin = step.t_s;
    }
}

/// The time on cores at a moment between two looks that are no further apart than that.
fn cpu_at(looks: &[BusyLook], t_s: f64, apart: f64) -> Option<f64> {
    let after = looks.partition_point(|look| look.t_s < t_s);
    let (next, Some(before)) = (looks.get(after)?, after.checked_sub(1)) else {
        // The first one comes a little late.
        return looks.first().filter(|first| first.t_s - t_s <= apart).map(|first| first.cpu_s);
    };
    let before = looks[before];
    let gap = next.t_s - before.t_s;
    let share = (t_s - before.t_s) / gap.max(1e-9);
    (gap <= apart).then_some(before.cpu_s + share * (next.cpu_s - before.cpu_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(looks: &[(f64, f64)], ends: &[f64]) -> Vec<Option<f64>> {
        let looks: Vec<BusyLook> =
            looks.iter().map(|(t_s, cpu_s)| BusyLook { t_s: *t_s, cpu_s: *cpu_s }).collect();
        let mut series: Vec<FineSample> =
            ends.iter().map(|t_s| FineSample { t_s: *t_s, ..FineSample::default() }).collect();
        join(&looks, &mut series);
        series.iter().map(|step| step.server_busy.map(|busy| (busy * 1e3).round() / 1e3)).collect()
    }

    #[test]
    fn time_on_cores_is_spread_over_the_steps_between_two_looks() {
        let looks = [(0.002, 0.0), (0.012, 0.01), (0.022, 0.03), (0.032, 0.03)];
        assert_eq!(
            busy(&looks, &[0.012, 0.017, 0.022, 0.03]),
            [Some(0.833), Some(2.0), Some(2.0), Some(0.0)]
        );
        // What was not looked at is not known.
        assert_eq!(busy(&looks, &[0.012, 0.04]), [Some(0.833), None]);
        assert_eq!(busy(&[(0.0, 0.0), (5.0, 5.0)], &[1.0, 2.0]), [None, None]);
        assert_eq!(busy(&[], &[0.1]), [None]);
        // Longer steps stand looks that are further apart.
        assert_eq!(busy(&[(0.0, 0.0), (5.0, 5.0), (10.0, 5.0)], &[4.0, 10.0]), [Some(1.0), Some(0.167)]);
    }
}
