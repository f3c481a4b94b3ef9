//! Several calls on each of several new connections: whether the connection decides how long a call
//! waits.

use super::wait::WORK_MS;
use super::{new_connections, path};
use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::probe::{Block, CallProbe, Experiment, Lane, Probe};
use crate::record::{Record, median_of};

/// New connections of a round and calls on each: the first call classifies the connection, the
/// others test that. If the first round shows a difference, a second one always follows, and a third
/// one where two leave it open. Calls on one connection are not independent samples, so each
/// connection counts once, and a single slow one may be chance. By a hash, all six of a round can
/// also meet workers of one kind.
pub(crate) const CONNECTIONS: u8 = 6;
pub(crate) const CALLS: usize = 2;
const ROUNDS: usize = 3;
/// Connections of either kind that it takes.
pub(crate) const EACH: usize = 2;

/// Time that a call waits beyond a round trip.
fn beyond(record: &Record, call: &Call) -> f64 {
    (ms(call.wait) - record.rtt_ms()).max(0.0)
}

/// Some are quick, and some slow.
fn split(times: &[f64]) -> bool {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    most - least >= WORK_MS && least <= 0.5 * most
}

/// Connections answered differently: the kept one and new ones, or new ones among themselves. What the
/// path varies by is no such difference.
fn sign(record: &Record) -> bool {
    let (met, spread) = (met(record), path::spread_ms(record));
    let range = |times: &[f64]| {
        let most = times.iter().copied().fold(0.0, f64::max);
        most - times.iter().copied().fold(f64::INFINITY, f64::min)
    };
    split(&met) && (spread < path::SIGN_MS || range(&met) >= WORK_MS + 1.5 * spread)
}

/// One busy worker makes two groups with a gap between them; work of varying length fills the
/// range.
fn two_kinds(record: &Record) -> bool {
    let mut all = met(record);
    all.sort_by(f64::total_cmp);
    let widest = all.windows(2).map(|w| w[1] - w[0]).fold(0.0, f64::max);
    let range = all.last().zip(all.first()).map_or(0.0, |(most, least)| most - least);
    widest >= WORK_MS && 2.0 * widest > range
}

/// Times that calls waited on the connections before the experiment.
fn met(record: &Record) -> Vec<f64> {
    let all = |calls: Vec<&Call>| calls.iter().map(|c| beyond(record, c)).collect::<Vec<_>>();
    let mut fresh = all(record.fresh());
    let kept = median_of(&record.reused(), |c| c.wait) - record.rtt_ms();
    if kept >= WORK_MS {
        fresh.push(kept);
        // Calls at once show connections that were not met before.
        fresh.extend(all(record.bursts().flatten().filter(|c| c.answer().is_some()).collect()));
    }
    fresh
}

/// Connections of the experiment so far.
pub(crate) fn made(record: &Record) -> usize {
    record.by_connection(Experiment::PerConnection).len()
}

/// The calls of a round of the experiment, where there is a sign and they may be made; none when
/// the rounds so far are enough.
pub(crate) fn round(record: &Record) -> Vec<Block> {
    let lost = !new_connections::syns(record).0.is_empty();
    let made = made(record);
    let sorted = sorted(record);
    let enough = match made.div_ceil(usize::from(CONNECTIONS)) {
        0 => record.tried(Experiment::PerConnection),
        1 => !(two_kinds(record) || sorted.is_worth_another_round()),
        rounds => rounds >= ROUNDS || !sorted.is_open(made),
    };
    // Later rounds take what is left.
    let left = record.calls_allowed().saturating_sub(record.calls_made()) / CALLS;
    let connections = if made == 0 {
        CONNECTIONS
    } else {
        u8::try_from(left).map_or(CONNECTIONS, |left| left.min(CONNECTIONS))
    };
    if path::queues(record) || lost || enough || !sign(record) || !record.settings.may_repeat {
        return Vec::new();
    }
    let first = Experiment::PerConnection.first_lane() + made as u8;
    let block = |n: u8| {
        let lane = Lane::Kept(first + n);
        let mut probe = CallProbe::plain(Experiment::PerConnection, 0, lane);
        probe.writes = record.settings.writes;
        let mut block = vec![Probe::Call(Box::new(probe.clone())); CALLS - 1];
        // A server may have few connections to give.
        probe.closes = true;
        block.push(Probe::Call(Box::new(probe)));
        block
    };
    (0..connections).map(block).collect()
}

/// The result of the experiment.
pub(crate) enum Sorted {
    /// It was not made.
    Untried,
    /// The connections' first calls do not differ.
    Alike,
    /// There are fewer of one kind than can be compared.
    Single(usize),
    /// Later calls on slow connections against later calls on quick ones; how many connections
    /// there were of each.
    Apart(Trial, usize, usize),
}

pub(crate) fn sorted(record: &Record) -> Sorted {
    let connections: Vec<Vec<f64>> = record
        .by_connection(Experiment::PerConnection)
        .iter()
        .filter(|calls| calls.len() == CALLS && calls.iter().all(|c| c.answer().is_some() && !c.lossy()))
        .map(|calls| calls.iter().map(|c| beyond(record, c)).collect())
        .collect();
    if connections.len() * 2 < usize::from(CONNECTIONS) {
        return Sorted::Untried;
    }
    let first: Vec<f64> = connections.iter().map(|calls| calls[0]).collect();
    if !split(&first) {
        return Sorted::Alike;
    }
    let middle = f64::midpoint(
        first.iter().copied().fold(f64::INFINITY, f64::min),
        first.iter().copied().fold(0.0, f64::max),
    );
    let (slow, quick): (Vec<_>, Vec<_>) = connections.iter().partition(|calls| calls[0] > middle);
    let later = |all: &[&Vec<f64>]| all.iter().flat_map(|calls| &calls[1..]).copied().collect::<Vec<f64>>();
    let name = "calls on another connection";
    match Trial::of(name, "a connection whose first call was quick", later(&slow), later(&quick)) {
        Some(trial) => Sorted::Apart(trial, slow.len(), quick.len()),
        None => Sorted::Single(slow.len() + quick.len()),
    }
}

impl Sorted {
    /// A first round that a second one is worth.
    fn is_worth_another_round(&self) -> bool {
        match self {
            Sorted::Apart(trial, ..) => trial.effect.value >= WORK_MS,
            Sorted::Single(_) => true,
            Sorted::Untried | Sorted::Alike => false,
        }
    }

    /// Two rounds that do not tell whether the connection decides, after `made` connections.
    fn is_open(&self, made: usize) -> bool {
        match self {
            Sorted::Apart(trial, slow, quick) => {
                let told = decides(trial) && enough_of_each(made, *slow, *quick);
                !(told || trial.excludes(WORK_MS))
            }
            Sorted::Single(_) => true,
            Sorted::Untried | Sorted::Alike => false,
        }
    }
}

/// The connection decides: every later call on a slow one is slower than all on quick ones, but for
/// one in ten that a hiccup of a machine has touched.
pub(crate) fn decides(trial: &Trial) -> bool {
    let hiccups = (trial.without.len() + trial.with.len()) / 10;
    let (mut slow, mut quick) = (trial.without.clone(), trial.with.clone());
    slow.sort_by(f64::total_cmp);
    quick.sort_by(|a, b| b.total_cmp(a));
    let apart = (0..=hiccups)
        .any(|n| slow.get(n).zip(quick.get(hiccups - n)).is_some_and(|(least, most)| *least > 1.5 * most));
    trial.moved(WORK_MS) && apart
}

/// Enough connections of either kind among `made`, in two rounds.
pub(crate) fn enough_of_each(made: usize, slow: usize, quick: usize) -> bool {
    slow >= EACH && quick >= EACH && made > usize::from(CONNECTIONS)
}
