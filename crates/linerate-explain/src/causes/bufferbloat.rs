//! A queue on the path is full of other packets, and ours wait in it.
//!
//! Symptom: a handshake, which involves no server program, takes much longer than the shortest
//! round trip. Experiment: more handshakes, one after the other. A queue fills and drains steadily:
//! its delay changes little from one handshake to the next and much within seconds. Hiccups of a
//! radio or a machine come one by one. Evidence: a call on a new connection waits for its response
//! as long as its own handshake took, so the network causes the wait.

use super::{Block, Cause, Fix, Judgement, excluded, say};
use crate::call::{Call, ms};
use crate::evidence::Grounds;
use crate::probe::{Observation, Probe};
use crate::record::Record;
use crate::stats::{median, order_p_value};
use crate::verdict::Verdict;

pub(super) static CAUSE: Cause = Cause {
    id: "bufferbloat",
    title: "a queue on the way is full: packets wait in it behind others' (bufferbloat)",
    fixes: FIXES,
    verify: super::AGAIN,
    wants,
    judge,
};

const FIXES: &[Fix] = &[
    Fix {
        software: "Linux routers",
        change: "tc qdisc replace dev IF root cake bandwidth RATE, a little below the link's rate, or fq_codel: a queue per flow, kept short",
    },
    Fix {
        software: "OpenWrt, home and office routers",
        change: "Smart Queue Management (sqm-scripts) on the link to the provider, both directions",
    },
    Fix {
        software: "Linux senders",
        change: "net.ipv4.tcp_congestion_control=bbr, which keeps the queue short; net.core.default_qdisc=fq",
    },
    Fix {
        software: "whoever fills it",
        change: "bulk transfers below the link's rate (rsync --bwlimit, rclone --bwlimit, nginx limit_rate), or at another time",
    },
    Fix {
        software: "switches and routers with ECN",
        change: "AQM with marking, and net.ipv4.tcp_ecn=1 at both ends",
    },
];

/// Handshakes that are made one after the other where their times differ.
const HANDSHAKES: usize = 24;
/// Handshakes needed to distinguish a queue from hiccups.
const ENOUGH: usize = 16;
/// Handshakes of a quiet path differ by less than this.
const SIGN_MS: f64 = 5.0;
/// Least distance between the fastest and the slowest 10 % of handshakes if a queue fills or
/// drains.
const RANGE_MS: f64 = 12.0;
/// The same as a share of the least round trip.
const RANGE_SHARE: f64 = 0.1;
/// Chance that times in random order follow one another so closely, at most.
const CHANCE: f64 = 0.003;

/// Times of handshakes that were made one right after the other.
fn series(record: &Record) -> Vec<f64> {
    let to = record.addresses().get(record.chosen()).copied();
    let connects = record.connects().into_iter().filter(|c| c.error.is_none() && Some(c.address) == to);
    connects.filter(|c| c.facts.total_retrans == 0).map(|c| ms(c.took)).collect()
}

/// Times of all handshakes; one for those made at once.
fn handshakes(record: &Record) -> Vec<f64> {
    let one = |observation: &Observation| match observation {
        Observation::Call(c) if c.fresh && !c.syn_again() && c.answer().is_some() => Some(ms(c.connect)),
        Observation::Burst(calls) => {
            let all: Vec<f64> = calls.iter().filter(|c| !c.syn_again()).map(|c| ms(c.connect)).collect();
            (!all.is_empty()).then(|| median(&all))
        }
        _ => None,
    };
    let mut all = series(record);
    all.extend(record.entries().iter().filter_map(|(_, observation)| one(observation)).filter(|t| *t > 0.0));
    all
}

/// How the round trip behaves while it is looked at, milliseconds.
struct Path {
    least: f64,
    typical: f64,
    /// The 10th percentile; `high` is the 90th.
    low: f64,
    high: f64,
    /// Handshakes that followed one another.
    series: Vec<f64>,
    samples: usize,
}

impl Path {
    fn of(record: &Record) -> Option<Path> {
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

    fn varies(&self) -> bool {
        let range = self.high - self.low;
        range >= RANGE_MS.max(RANGE_SHARE * self.least) && self.typical - self.least >= SIGN_MS
    }

    /// How likely handshakes that follow one another differ so little by chance.
    fn chance(&self) -> f64 {
        order_p_value(&self.series)
    }
}

fn wants(record: &Record) -> Vec<Block> {
    let times = handshakes(record);
    let most = times.iter().copied().fold(0.0, f64::max);
    let sign = times.len() >= 3 && most - record.rtt_ms() >= SIGN_MS && !record.is_loopback();
    if !sign || !record.settings.may_repeat || record.connects().len() >= HANDSHAKES {
        return Vec::new();
    }
    vec![vec![Probe::Connect(record.chosen()); HANDSHAKES]]
}

/// A queue is what makes the round trip long.
pub(super) fn named(record: &Record) -> bool {
    Path::of(record).is_some_and(|path| path.varies() && path.chance() <= CHANCE)
}

/// Time that calls on new connections wait beyond the round trip of that moment, as their own
/// handshakes show it; if a queue makes the round trip long.
pub(super) fn beyond_handshake_ms(record: &Record) -> Option<f64> {
    let beyond = |c: &&Call| (ms(c.wait) - ms(c.connect)).max(0.0);
    named(record).then(|| median(&clean(record).iter().map(beyond).collect::<Vec<_>>()))
}

/// Calls on new connections without loss.
fn clean(record: &Record) -> Vec<&Call> {
    let calls = record.calls().map(|(_, call)| call).chain(record.bursts().flatten());
    calls.filter(|c| c.fresh && c.answer().is_some() && !c.syn_again() && !c.lossy()).collect()
}

/// Of what calls on new connections wait beyond the least round trip, the share that their own
/// handshakes took as well.
fn share(record: &Record, least: f64) -> f64 {
    let beyond = |t| (ms(t) - least).max(0.0);
    let calls: Vec<(f64, f64)> = clean(record).iter().map(|c| (beyond(c.connect), beyond(c.wait))).collect();
    let waited: f64 = calls.iter().map(|c| c.1).sum();
    calls.iter().map(|(connect, wait)| connect.min(*wait)).sum::<f64>() / waited.max(1e-6)
}

fn judge(record: &Record) -> Judgement {
    if record.is_loopback() {
        return excluded("a loopback address has no queue on the way");
    }
    let Some(path) = Path::of(record) else {
        let times = handshakes(record);
        let most = times.iter().copied().fold(0.0, f64::max);
        return if times.len() >= 3 && most - record.rtt_ms() < SIGN_MS {
            excluded(format!("{} handshakes took {} at most", times.len(), say(most)))
        } else {
            Judgement::Silent
        };
    };
    let range = format!("between {} and {}", say(path.low), say(path.high));
    if !path.varies() {
        return excluded(format!("{} handshakes took {range}", path.samples));
    }
    let chance = path.chance();
    if chance > CHANCE {
        return Judgement::Open(format!(
            "{} handshakes took {range}, and each another time than the one before it: hiccups of a radio, a router or this machine \
             rather than a queue that fills; ping over some minutes would show it",
            path.samples
        ));
    }
    let share = share(record, path.least);
    let words = format!(
        "{} handshakes, which take no server program, took {range} ({} in the middle); the least round trip was {}, and calls waited \
         for their answers as long as their handshakes took ({:.0} % of the wait beyond it)",
        path.samples,
        say(path.typical),
        say(path.least),
        100.0 * share.min(1.0)
    );
    let steady = format!(
        "each takes about as long as the one before it, which chance alone does in {} of 1000 cases (von Neumann's ratio on ranks): a \
         queue that fills and drains",
        (1000.0 * chance).ceil()
    );
    let least =
        "a queue that never empties hides the network's own round trip, so this is the least that it costs";
    let verdict = Verdict::new(&CAUSE, path.typical - path.least, Grounds::Counted { words, share });
    Judgement::Named(Box::new(verdict.saying(steady).saying(least)))
}
