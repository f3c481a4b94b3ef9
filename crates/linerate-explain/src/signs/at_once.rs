//! Signs in concurrent calls beside single calls: how many are served at once, or a queue in which
//! each waits for the previous one.

use super::wait::{WORK_MS, beyond_rtt};
use crate::call::{Call, ms};
use crate::probe::{Block, Experiment, Probe};
use crate::record::Record;
use crate::stats::{median, p_value, shift, slope};

/// Calls made at once.
pub(crate) const CALLS: u8 = 8;

/// How far a wait may be from a whole number of turns, as a share of one.
const OFF: f64 = 0.25;

/// Milliseconds that calls waited which were made one at a time: all of them, since the fewer there
/// are the more a hiccup counts.
pub(crate) fn alone(record: &Record) -> Vec<f64> {
    let mut all: Vec<f64> = record.group().iter().map(|c| ms(c.wait)).collect();
    all.extend(record.times(Experiment::Tail, 0, |c| c.wait));
    all.extend(record.times(Experiment::Paced, 0, |c| c.wait));
    all
}

/// Milliseconds from the request to the first byte: of calls alone, and of those made at once, in
/// the order they ended.
pub(crate) fn both(record: &Record) -> Option<(Vec<f64>, Vec<f64>)> {
    let alone = alone(record);
    let mut at_once: Vec<f64> =
        record.bursts().flatten().filter(|c| c.answer().is_some()).map(|c| ms(c.first_wait())).collect();
    at_once.sort_by(f64::total_cmp);
    (alone.len() >= 3 && at_once.len() >= usize::from(CALLS) / 2).then_some((alone, at_once))
}

/// The result of one burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BurstResult {
    /// This many are served at once, and the next ones when those are done.
    Stairs(usize),
    /// Each waits this many milliseconds longer than the one before it.
    Line(f64),
    /// They wait longer than one alone, and not as in a line.
    Unclear,
    /// As one alone.
    Nothing,
}

/// The result of each burst.
pub(crate) fn seen(record: &Record) -> Vec<BurstResult> {
    record.bursts().map(|burst| one(record, burst)).collect()
}

/// Several calls at once, where calls wait for long and the bursts so far leave it unclear what for.
pub(crate) fn burst(record: &Record) -> Vec<Block> {
    let slow = beyond_rtt(record) >= WORK_MS * 0.8;
    let given_up = record.given_up.contains(&Experiment::Burst);
    if !slow || !record.settings.may_repeat || record.group().is_empty() || given_up {
        return Vec::new();
    }
    // A second time if the first is unclear, and a third if they disagree, so that a single hiccup
    // decides nothing.
    let seen = seen(record);
    let more = match seen.as_slice() {
        [] => true,
        [one] => *one != BurstResult::Nothing,
        [one, two] => matches!(
            (one, two),
            (BurstResult::Line(_), BurstResult::Unclear) | (BurstResult::Unclear, BurstResult::Line(_))
        ),
        _ => false,
    };
    if more { vec![vec![Probe::Burst(CALLS)]] } else { Vec::new() }
}

fn waits(burst: &[Call]) -> Vec<f64> {
    let mut waits: Vec<f64> =
        burst.iter().filter(|c| c.answer().is_some()).map(|c| ms(c.first_wait())).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

fn one(record: &Record, burst: &[Call]) -> BurstResult {
    let mut alone = alone(record);
    alone.sort_by(f64::total_cmp);
    let waits = waits(burst);
    let places: Vec<(f64, f64)> = waits.iter().enumerate().map(|(i, t)| (i as f64, *t)).collect();
    let (Some(step), Some(last), Some(longest)) =
        (slope(&places), waits.last(), alone.get(alone.len() * 4 / 5))
    else {
        return BurstResult::Nothing;
    };
    let turn = median(&alone) - record.rtt_ms();
    let beyond: Vec<f64> = waits.iter().map(|w| w - record.rtt_ms()).collect();
    if let Some(served) = stairs(&beyond, turn) {
        return BurstResult::Stairs(served);
    }
    let step = step.value;
    let longer = shift(&waits, &alone);
    // Calls that work side by side end within the range of calls alone, however wide that is.
    let stood = longer.low > 0.0 && p_value(&waits, &alone) <= 0.02;
    let step_counts = step >= 0.5_f64.max(0.06 * turn);
    if stood && step_counts && *last >= longest + 2.0 * step {
        return BurstResult::Line(step);
    }
    if median(&waits) > *longest { BurstResult::Unclear } else { BurstResult::Nothing }
}

/// How many are served at once, where the sorted `waits` are whole numbers of a `turn`, as many of
/// each.
fn stairs(waits: &[f64], turn: f64) -> Option<usize> {
    if turn <= 1.0 || waits.len() < usize::from(CALLS) / 2 {
        return None;
    }
    let level = |wait: &f64| (wait / turn).round().max(1.0);
    let off = waits.iter().filter(|w| (*w / turn - level(w)).abs() > OFF).count();
    let levels: Vec<f64> = waits.iter().map(level).collect();
    let groups: Vec<usize> = levels.chunk_by(|a, b| a == b).map(<[f64]>::len).collect();
    let (last, full) = groups.split_last()?;
    let served = *full.first()?;
    let whole = full.iter().all(|n| *n == served) && *last <= served;
    let all_there = levels.last() == Some(&(groups.len() as f64));
    (off == 0 && whole && all_there && levels.first() == Some(&1.0)).then_some(served)
}

/// How many calls are served at once, where all bursts show the same.
pub(crate) fn served(record: &Record) -> Option<usize> {
    let seen = seen(record);
    match seen.first()? {
        BurstResult::Stairs(n) if seen.iter().all(|s| s == &BurstResult::Stairs(*n)) => Some(*n),
        _ => None,
    }
}

/// How much longer each of several calls at once waits than the one before it, when they stood in a
/// line at least two times of three.
pub(crate) fn line(record: &Record) -> Option<f64> {
    let seen = seen(record);
    let steps: Vec<f64> = seen
        .iter()
        .filter_map(|s| if let BurstResult::Line(step) = s { Some(*step) } else { None })
        .collect();
    (!steps.is_empty() && 2 * steps.len() > seen.len()).then(|| median(&steps))
}

/// A call alone is much quicker now and then, and of several at once not even the first is: it
/// waited behind others that come and go.
pub(crate) fn others_come_and_go(record: &Record) -> bool {
    let (alone, rtt) = (alone(record), record.rtt_ms());
    let middle = median(&alone) - rtt;
    let quick = alone.iter().filter(|w| **w - rtt <= 0.5 * middle).count();
    let least = record.bursts().filter_map(|b| waits(b).first().copied()).fold(f64::INFINITY, f64::min);
    // One may be a call that some cache answered.
    quick >= 2 && least - rtt >= 0.7 * middle
}

/// Connections of others at the server's port, where that is known.
pub(crate) fn others(record: &Record) -> Option<usize> {
    record.bursts().filter_map(|b| b.first()?.others).max().map(usize::from)
}

#[cfg(test)]
mod tests {
    use super::stairs;

    #[test]
    fn how_many_are_served_at_once() {
        let of = |pool: usize| -> Vec<f64> {
            (0..8).map(|i| 100.0 * ((i / pool) as f64 + 1.0) + i as f64).collect()
        };
        for pool in 1..8 {
            assert_eq!(stairs(&of(pool), 100.0), Some(pool), "{:?}", of(pool));
        }
        assert_eq!(stairs(&of(8), 100.0), None, "eight at once are all there were");
        let line: Vec<f64> = (0..8).map(|i| 41.0 + 5.0 * f64::from(i)).collect();
        assert_eq!(stairs(&line, 41.0), None);
        let random = [3.0, 9.0, 14.0, 22.0, 31.0, 38.0, 60.0, 71.0];
        assert_eq!(stairs(&random, 20.0), None);
        assert_eq!(stairs(&[], 1.0), None);
    }
}
