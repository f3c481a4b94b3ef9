//! Whether probes can end in the time that is left: by what calls took so far.

use std::collections::HashSet;
use std::time::Duration;

use crate::call::Call;
use crate::limits::{FAMILY_TIME, IDLE_PATIENCE, MARGIN, NAME_SERVER_TIME};
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe, Variation};
use crate::record::Record;

/// The experiments that a probe belongs to.
pub(super) fn experiments(probe: &Probe) -> Vec<Experiment> {
    match probe {
        Probe::Call(call) => vec![call.experiment],
        Probe::Burst(_) => vec![Experiment::Burst],
        Probe::Held(..) => vec![Experiment::Held],
        Probe::Together(t) => vec![t.experiment],
        Probe::Scattered(_) => vec![Experiment::Scattered],
        Probe::Rate(..) => vec![Experiment::Rate],
        Probe::IdleLimit(_) => vec![Experiment::IdleOrder],
        Probe::Behind(_) => vec![Experiment::Behind],
        Probe::IdleSpans(_) => vec![Experiment::IdleSpans],
        Probe::SideBySide(lanes) => lanes.iter().flatten().map(|c| c.experiment).take(1).collect(),
        _ => Vec::new(),
    }
}

/// The time a batch takes, with a margin.
pub(super) fn needs(record: &Record, batch: &[Block]) -> Duration {
    let mut costs = Costs::of(record);
    let all: f64 = batch.iter().flatten().map(|probe| costs.probe(record, probe)).sum();
    Duration::from_secs_f64(all * MARGIN)
}

/// Time that calls took so far, seconds, on new and on reused connections.
struct Costs {
    fresh: f64,
    kept: f64,
    /// Of that, what the wait for `100 Continue` took.
    held: f64,
    /// Time of a handshake.
    connect: f64,
    open: HashSet<u8>,
}

impl Costs {
    fn of(record: &Record) -> Costs {
        let mean = |calls: Vec<&Call>| {
            let all: f64 = calls.iter().map(|c| c.total.as_secs_f64()).sum();
            (!calls.is_empty()).then(|| all / calls.len() as f64)
        };
        let (fresh, kept) = (mean(record.fresh()), mean(record.reused()));
        let held = record.observed().filter_map(|c| c.held_for_continue).min().unwrap_or_default();
        let least = 1e-4;
        Costs {
            fresh: fresh.or(kept).unwrap_or(least),
            kept: kept.or(fresh).unwrap_or(least),
            held: held.as_secs_f64(),
            connect: record
                .fresh()
                .iter()
                .map(|c| c.connect.as_secs_f64())
                .reduce(f64::max)
                .unwrap_or(FAMILY_TIME.as_secs_f64()),
            open: HashSet::new(),
        }
    }

    fn call(&mut self, probe: &CallProbe) -> f64 {
        let again = matches!(probe.lane, Lane::Kept(lane) if !self.open.insert(lane));
        let later = probe.pause + probe.levers.delayed_ack.unwrap_or_default();
        let spared = if probe.variation == Variation::WithoutExpect { self.held } else { 0.0 };
        let usual = if again { self.kept } else { self.fresh };
        let usual = usual.min(probe.patience.as_secs_f64());
        // Twice the window is half of the round trips.
        let usual = if probe.window.is_some() { usual / 2.0 } else { usual };
        usual + later.as_secs_f64() - spared
    }

    fn probe(&mut self, record: &Record, probe: &Probe) -> f64 {
        match probe {
            Probe::Call(call) => self.call(call),
            // If they queue, the last one waits for all others.
            Probe::Burst(_) => 2.0 * self.fresh,
            Probe::Rate(_, cut) => cut.as_secs_f64(),
            Probe::SideBySide(lanes) => {
                lanes.iter().map(|lane| lane.iter().map(|c| self.call(c)).sum()).fold(0.0, f64::max)
            }
            Probe::Resolve => record.lookups().first().map_or(0.0, |l| l.took.as_secs_f64()),
            Probe::NameServers => NAME_SERVER_TIME.as_secs_f64(),
            Probe::Held(_, time) => time.as_secs_f64() + self.fresh,
            Probe::Scattered(times) => {
                times.last().map_or(0.0, Duration::as_secs_f64) + 2.0 * self.kept.max(self.fresh)
            }
            // As many turns as the server's limit of streams makes.
            Probe::Together(t) => self.fresh + 3.0 * f64::from(t.rounds) * self.kept,
            Probe::Connect(_) => self.connect,
            Probe::IdleLimit(time) => time.as_secs_f64() + self.fresh,
            Probe::Behind(behind) => behind.time.as_secs_f64(),
            Probe::IdleSpans(spans) => {
                let longest = spans.iter().map(|s| s.pause.as_secs_f64() * f64::from(s.times));
                longest.fold(0.0, f64::max) + IDLE_PATIENCE.as_secs_f64()
            }
        }
    }
}
