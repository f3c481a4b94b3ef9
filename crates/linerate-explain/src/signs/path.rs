//! How the round trip varies: a queue on the path that fills and drains, or hiccups.

use crate::call::{Call, ms, syn_round_trip};
use crate::probe::{Experiment, Observation};
use crate::record::Record;
use crate::stats::{Estimate, median, order_p_value, shift};

/// Handshakes needed to distinguish a queue from hiccups.
const ENOUGH: usize = 16;
/// Handshakes of a quiet path differ by less than this.
pub(crate) const SIGN_MS: f64 = 5.0;
/// Least distance between the fastest and the slowest 10 % of handshakes if a queue fills or
/// drains.
const RANGE_MS: f64 = 12.0;
/// The same as a share of the least round trip.
const RANGE_SHARE: f64 = 0.1;
/// Chance that times in random order follow one another so closely, at most.
pub(crate) const CHANCE: f64 = 0.001;

/// Times of handshakes that were made one right after the other.
fn series(record: &Record) -> Vec<f64> {
    let to = record.addresses().get(record.chosen()).copied();
    let connects = record.connects().into_iter().filter(|c| c.error.is_none() && Some(c.address) == to);
    connects.filter(|c| c.facts.total_retrans == 0).map(|c| ms(syn_round_trip(c.took, &c.facts))).collect()
}

/// Times of all handshakes; one for those made at once.
pub(crate) fn handshakes(record: &Record) -> Vec<f64> {
    let one = |observation: &Observation| match observation {
        Observation::Call(c) if c.fresh && !c.syn_again() && c.answer().is_some() => {
            Some(ms(c.syn_round_trip()))
        }
        Observation::Burst(calls) => {
            let all: Vec<f64> =
                calls.iter().filter(|c| !c.syn_again()).map(|c| ms(c.syn_round_trip())).collect();
            (!all.is_empty()).then(|| median(&all))
        }
        _ => None,
    };
    let mut all = series(record);
    all.extend(record.entries().iter().filter_map(|(_, observation)| one(observation)).filter(|t| *t > 0.0));
    all
}

/// How the round trip behaves while it is looked at, milliseconds.
pub(crate) struct Path {
    pub(crate) least: f64,
    pub(crate) typical: f64,
    /// The 10th percentile; `high` is the 90th.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Handshakes that followed one another.
    series: Vec<f64>,
    pub(crate) samples: usize,
}

impl Path {
    pub(crate) fn of(record: &Record) -> Option<Path> {
        let times = handshakes(record);
        let series = series(record);
        if series.len() < ENOUGH {
            return None;
        }
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let tenth = sorted.len() / 10;
        Some(Path {
            least: record.rtt_ms().min(sorted[0]),
            typical: median(&times),
            low: sorted[tenth],
            high: sorted[sorted.len() - 1 - tenth],
            series,
            samples: times.len(),
        })
    }

    pub(crate) fn varies(&self) -> bool {
        let range = self.high - self.low;
        range >= RANGE_MS.max(RANGE_SHARE * self.least) && self.typical - self.least >= SIGN_MS
    }

    /// How likely handshakes that follow one another differ so little by chance.
    pub(crate) fn chance(&self) -> f64 {
        order_p_value(&self.series)
    }
}

/// Handshakes from which on the slowest and the fastest 10 % say how much the path varies.
const MANY: usize = 10;

/// How far handshakes are apart, milliseconds: what the path alone may add to a call. Of many, 8 in
/// 10.
pub(crate) fn spread_ms(record: &Record) -> f64 {
    let mut times = handshakes(record);
    if record.is_loopback() || times.len() < 2 {
        return 0.0;
    }
    times.sort_by(f64::total_cmp);
    let out = if times.len() >= MANY { times.len() / 10 } else { 0 };
    times[times.len() - 1 - out] - times[out]
}

/// The round trip in the middle: of a path that varies, that of handshakes.
pub(crate) fn typical_ms(record: &Record) -> f64 {
    if spread_ms(record) < SIGN_MS {
        record.rtt_ms()
    } else {
        median(&handshakes(record)).max(record.rtt_ms())
    }
}

/// How much longer calls wait than handshakes take (Hodges and Lehmann), where the path varies: the
/// distance to the fastest of them would be the path's.
pub(crate) fn beyond_jitter(record: &Record) -> Option<Estimate> {
    let times = handshakes(record);
    if times.len() < MANY || spread_ms(record) < SIGN_MS {
        return None;
    }
    let mut waits: Vec<f64> =
        record.group().iter().filter(|c| !c.lossy()).map(|c| ms(c.wait_for_whole())).collect();
    waits.extend(record.times(Experiment::Tail, 0, Call::wait_for_whole));
    (waits.len() >= 2).then(|| shift(&waits, &times))
}

/// Handshakes vary as behind a queue that fills and drains: each takes about as long as the one
/// before it.
pub(crate) fn queues(record: &Record) -> bool {
    Path::of(record).is_some_and(|path| path.varies() && path.chance() <= CHANCE)
}

/// Time that calls on new connections wait beyond the round trip of that moment, as their own
/// handshakes show it; if a queue makes the round trip long.
pub(crate) fn beyond_handshake_ms(record: &Record) -> Option<f64> {
    let beyond = |c: &&Call| (ms(c.wait_for_whole()) - ms(c.syn_round_trip())).max(0.0);
    queues(record).then(|| median(&clean(record).iter().map(beyond).collect::<Vec<_>>()))
}

/// Calls on new connections without loss.
pub(crate) fn clean(record: &Record) -> Vec<&Call> {
    let calls = record.calls().map(|(_, call)| call).chain(record.bursts().flatten());
    calls.filter(|c| c.fresh && c.answer().is_some() && !c.syn_again() && !c.lossy()).collect()
}
