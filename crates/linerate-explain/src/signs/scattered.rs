//! Calls at times that were drawn beforehand, whatever the server does meanwhile: which of them were
//! slow, and whether they met a server that stops at regular intervals. Calls that follow one another
//! ride in the gaps of such a server.

use super::path;
use super::wait::WORK_MS;
use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::limits;
use crate::probe::Experiment;
use crate::record::Record;
use crate::stats::{median, more_often};

/// A call, times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrived {
    /// When it reached the server, since the first of them began.
    pub(crate) at: f64,
    /// What it waited for its first byte.
    pub(crate) wait: f64,
    /// The part of the wait in which we, or the server where that is known, had no processor.
    pub(crate) starved: f64,
    /// The part in which we had none.
    pub(crate) starved_here: f64,
}

/// All of them, in the order in which they began.
pub(crate) fn all(record: &Record) -> Vec<Arrived> {
    let calls = record.calls().filter(|(p, c)| p.experiment == Experiment::Scattered && c.answer().is_some());
    let calls: Vec<&Call> = calls.map(|(_, c)| c).filter(|c| !c.lossy() && !c.syn_again()).collect();
    let first = calls.iter().map(|c| c.began_ns).min().unwrap_or_default();
    let one = |call: &&Call| Arrived {
        at: (call.began_ns - first) as f64 / 1e6 + ms(call.opening() + call.queued + call.send),
        wait: ms(call.wait),
        starved: starved_ms(call),
        starved_here: ms(call.starved),
    };
    calls.iter().map(one).collect()
}

/// How long a call waited for a processor: here, and in the server where that is known.
pub(crate) fn starved_ms(call: &Call) -> f64 {
    let server = call.server.as_deref().map_or(0.0, |s| {
        // Not while its control group kept it from running, nor while a collector did.
        ms(s.waited.saturating_sub(s.throttled + s.collected))
    });
    ms(call.starved) + server
}

/// A slow call takes this many times what usual ones take beyond the round trip.
const SLOW_TIMES: f64 = 4.0;
/// A slow call takes at least this much longer than usual ones, milliseconds.
const SLOW_MS: f64 = WORK_MS;
/// Slow calls that are no chance.
const OFTEN_CALLS: usize = 3;
/// Share of slow calls that is no chance.
const OFTEN_SHARE: f64 = 0.1;

/// Calls that were slow at random times, each less what it waited for a processor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slow {
    /// What each of them waited beyond the usual, milliseconds.
    pub(crate) beyond: Vec<f64>,
    /// All calls at random times.
    pub(crate) of: usize,
    /// What the others waited, in the middle.
    pub(crate) usual: f64,
    /// From how much beyond that on they are slow.
    least: f64,
}

/// How likely chance may make calls slow more often than handshakes.
const ALIKE: f64 = 0.02;

impl Slow {
    /// More of them than a hiccup or two.
    pub(crate) fn is_often(&self) -> bool {
        self.beyond.len() >= OFTEN_CALLS && self.beyond.len() as f64 >= OFTEN_SHARE * self.of as f64
    }

    /// The path varies, and calls are slow hardly more often than handshakes.
    pub(crate) fn is_of_the_path(&self, record: &Record) -> bool {
        let times = path::handshakes(record);
        let usual = median(&times);
        let varies = times.iter().any(|t| *t > usual + path::SIGN_MS);
        let slow = times.iter().filter(|t| **t > usual + self.least).count();
        varies && more_often(self.beyond.len(), self.of, slow, times.len()) > ALIKE
    }
}

/// The slow ones; `None` where such calls were not made.
pub(crate) fn slow(record: &Record) -> Option<Slow> {
    let all = all(record);
    if all.is_empty() {
        return None;
    }
    let waits: Vec<f64> = all.iter().map(|a| a.wait).collect();
    // Most calls at random times may be slow, and those one right after another quick.
    let usual = median(&waits).min(record.typical(|c| c.wait));
    let least = SLOW_MS.max(SLOW_TIMES * (usual - record.rtt_ms())) + path::spread_ms(record);
    let beyond = all.iter().map(|a| a.wait - a.starved - usual).filter(|b| *b > least).collect();
    Some(Slow { beyond, of: all.len(), usual, least })
}

/// A server that answers nothing for a while at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period {
    /// From the end of one stall to the end of the next, milliseconds.
    pub(crate) ms: f64,
    /// How long each lasts.
    pub(crate) length: f64,
    /// When one ended, on the time of [`Arrived::at`].
    pub(crate) end: f64,
    /// Calls that met one.
    pub(crate) met: usize,
    /// What calls wait that meet none.
    pub(crate) floor: f64,
    /// There is no gap: it answers on a tick.
    pub(crate) is_tick: bool,
}

/// A call that waits this long beyond the quickest met a stall, milliseconds.
const MET_MS: f64 = 2.0;
/// It waits at least this share of the longest.
const MET_SHARE: f64 = 0.1;
/// Calls that met a stall from which on a period shows.
const LEAST_MET: usize = 5;
/// Stalls from which on a period shows.
const LEAST_STALLS: usize = 4;
/// Calls whose answers come so close together, milliseconds, met the same stall.
const SAME_MS: f64 = 3.0;
/// Shortest period that is told from noise, milliseconds.
const PERIOD_MS: f64 = 8.0;
/// Least number of periods in all the time.
const LEAST_PERIODS: f64 = 3.0;
/// Of the ends of stalls, the share that must lie within a window of the period.
const WITHIN: f64 = 0.9;
/// The widest such window, as a share of the period.
const WINDOW: f64 = 0.2;
/// How likely chance may be to have done it.
const CHANCE: f64 = 1e-4;
/// Share of all calls whose wait the period must explain.
const EXPLAINED: f64 = 0.85;

impl Period {
    /// Share of the time in which calls wait.
    pub(crate) fn share(&self) -> f64 {
        (self.length / self.ms).min(1.0)
    }

    /// What a call waits that arrives then.
    fn predicted(&self, at: f64) -> f64 {
        let left = (self.end - at).rem_euclid(self.ms);
        if left <= self.length { left } else { 0.0 }
    }
}

/// Shortest period, milliseconds, where programs compete for processors: each gets one for some
/// milliseconds, in turns.
const CONTENDED_PERIOD_MS: f64 = 40.0;

/// The period in which the server stops, where calls at random times show one.
pub(crate) fn period(record: &Record) -> Option<Period> {
    let contended = record.is_contended();
    find(&all(record), record.rtt_ms()).filter(|p| !contended || p.ms >= CONTENDED_PERIOD_MS)
}

/// Share of a period from which on a stall leaves no gap.
const NO_GAP: f64 = 0.8;

/// The longest period that explains the waits, of which the network takes that long. What the server
/// waited for processors is not taken off: that is the sum of all its threads, also of those that no
/// call waits for, and comes at no regular times.
fn find(all: &[Arrived], rtt: f64) -> Option<Period> {
    let floor = all.iter().map(|a| a.wait).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|a| a.wait - floor).fold(0.0, f64::max);
    let late = |a: &&Arrived| a.wait - a.starved_here - floor >= MET_MS.max(MET_SHARE * most);
    let met: Vec<Arrived> = all.iter().filter(late).copied().collect();
    let mut ends: Vec<f64> = met.iter().map(|a| a.at + a.wait - floor).collect();
    ends.sort_by(f64::total_cmp);
    let ends: Vec<f64> = ends.chunk_by(|a, b| b - a < SAME_MS).map(|group| group[0]).collect();
    if met.len() < LEAST_MET || ends.len() < LEAST_STALLS {
        return None;
    }
    let (ms, end) = folded(&ends)?;
    let mut lengths: Vec<f64> = met.iter().map(|a| a.wait - floor).collect();
    lengths.sort_by(|a, b| b.total_cmp(a));
    let explains = |length: &f64| {
        // On a tick it is chance how long the quickest call waits.
        let is_tick = length + floor - rtt >= NO_GAP * ms;
        let period = Period { ms, length: length.min(ms), end, met: met.len(), floor, is_tick };
        let near = |a: &&Arrived| {
            let off = (a.wait - a.starved_here - floor - period.predicted(a.at)).abs();
            // Right at its end or beginning it is met or not.
            off <= SAME_MS.max(0.1 * ms) || (off - ms).abs() <= SAME_MS
        };
        (all.iter().filter(near).count() as f64 >= EXPLAINED * all.len() as f64).then_some(period)
    };
    // The longest may be a hiccup.
    lengths.iter().take(2).find_map(explains)
}

/// The longest period after which these moments come again, and one of them.
fn folded(moments: &[f64]) -> Option<(f64, f64)> {
    let (first, last) = (moments.first()?, moments.last()?);
    let span = last - first;
    let step = 0.05 / span.max(1.0);
    let (lowest, highest) = (LEAST_PERIODS / span.max(1.0), 1.0 / PERIOD_MS);
    let tries = ((highest - lowest) / step).ceil().max(0.0);
    let mut best: Option<(f64, f64, f64)> = None;
    for n in 0..tries as usize {
        let often = lowest + n as f64 * step;
        if best.is_some_and(|(found, ..)| often > 1.03 * found) {
            break;
        }
        let (width, middle) = window(moments, first, often);
        let chance = by_chance(moments.len(), width, tries);
        if width <= WINDOW && chance <= CHANCE && best.is_none_or(|(_, least, _)| width < least) {
            best = Some((often, width, middle));
        }
    }
    best.map(|(often, _, middle)| (1.0 / often, first + middle / often))
}

/// The narrowest part of a turn in which nearly all moments lie, and its middle, where there are this
/// many turns in a millisecond.
fn window(moments: &[f64], first: &f64, often: f64) -> (f64, f64) {
    let mut turns: Vec<f64> = moments.iter().map(|m| ((m - first) * often).rem_euclid(1.0)).collect();
    turns.sort_by(f64::total_cmp);
    let within = needed(turns.len());
    let n = turns.len();
    let one = |i: usize| {
        let j = i + within - 1;
        let end = turns[j % n] + if j >= n { 1.0 } else { 0.0 };
        (end - turns[i], f64::midpoint(end, turns[i]))
    };
    (0..n).map(one).fold((f64::INFINITY, 0.0), |best, one| if one.0 < best.0 { one } else { best })
}

/// Moments of so many that must lie within the window.
fn needed(all: usize) -> usize {
    (WITHIN * all as f64).ceil() as usize
}

/// How likely it is that moments at random lie within a window so narrow for one of so many periods.
fn by_chance(all: usize, width: f64, tries: f64) -> f64 {
    let within = needed(all);
    let mut chance = tries * (all * within) as f64 * width.max(1e-6).powi(within as i32 - 1);
    for i in 0..all - within {
        chance *= (all - i) as f64 / (i + 1) as f64;
    }
    chance
}

/// Calls right after the beginning of a stall against calls at moments at which it lets them through.
pub(crate) fn timed(record: &Record) -> Option<Trial> {
    let [without, with] = [0, 1].map(|arm| record.times(Experiment::Timed, arm, |c| c.wait));
    Trial::of("a call at another moment of the period", "when the call is made", without, with)
}

/// The mean gap between calls at random times, in times that a call takes: so a server that works on one
/// at a time keeps up.
const GAP: f64 = 1.5;

/// The mean gap between calls at random times.
pub(crate) fn gap_ms(record: &Record) -> f64 {
    ms(limits::SCATTERED_GAP).max(GAP * record.typical(|c| c.total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_base::Random;

    /// Calls at random times at a server whose waits are given by their moment.
    fn calls(seed: u64, gap: f64, wait: impl Fn(f64, &mut Random) -> f64) -> Vec<Arrived> {
        let mut random = Random::new(seed);
        let mut at = 0.0;
        let one = |_| {
            at += gap * random.exponential();
            let wait = 0.2 + 0.3 * random.unit() + wait(at, &mut random);
            Arrived { at, wait, starved: 0.0, starved_here: 0.0 }
        };
        (0..30).map(one).collect()
    }

    fn stall(period: f64, held: f64) -> impl Fn(f64, &mut Random) -> f64 {
        move |at, _| {
            let phase = at.rem_euclid(period);
            if phase < held { held - phase } else { 0.0 }
        }
    }

    #[test]
    fn a_stall_at_regular_intervals_has_its_period_and_length() {
        for (period, held) in [(120.0, 90.0), (120.0, 40.0), (60.0, 30.0), (300.0, 120.0), (200.0, 60.0)] {
            let mut found = 0;
            for seed in 0..40 {
                let Some(seen) = find(&calls(seed, 60.0, stall(period, held)), 0.0) else { continue };
                assert!((seen.ms - period).abs() < 0.05 * period, "{period} {held}, {seed}: {seen:?}");
                assert!(seen.length <= held + 3.0 && !seen.is_tick, "{period} {held}, {seed}: {seen:?}");
                found += 1;
            }
            assert!(found >= 24, "{period} {held}: {found} of 40");
        }
    }

    #[test]
    fn a_tick_is_a_stall_without_a_gap() {
        for period in [20.0, 40.0, 100.0, 250.0] {
            let mut found = 0;
            for seed in 0..40 {
                let Some(seen) = find(&calls(seed, 60.0, stall(period, period)), 0.0) else { continue };
                assert!((seen.ms - period).abs() < 0.05 * period, "{period}, {seed}: {seen:?}");
                found += 1;
            }
            assert!(found >= 36, "{period}: {found} of 40");
        }
    }

    #[test]
    fn waits_that_know_no_time_have_no_period() {
        let mut found = 0;
        for seed in 0..300 {
            let exponential = calls(seed, 60.0, |_, random| 20.0 * random.exponential());
            let either = calls(seed, 60.0, |_, random| if random.happens(0.3) { 60.0 } else { 0.0 });
            let uniform = calls(seed, 60.0, |_, random| 80.0 * random.unit());
            let constant = calls(seed, 60.0, |_, _| 40.0);
            found += [exponential, either, uniform, constant]
                .iter()
                .filter(|all| find(all, 0.0).is_some())
                .count();
        }
        assert!(found <= 1, "{found} of 1200");
    }
}
