//! How fast a response comes: as an even flow, in lumps at regular intervals, or otherwise.

use std::time::Duration;

use crate::call::{Call, CallStage, Why, ms};
use crate::probe::{Experiment, Variation};
use crate::record::Record;
use crate::stats::median;

/// Rates from which on no call is slow for them, bytes per second.
const QUICK: f64 = 12.5e6;
/// Bytes of a response from which on they show a rate.
const ENOUGH_BYTES: u64 = 16_000;
/// Receives of a response from which on they show a rate.
const ENOUGH_RECEIVES: usize = 12;
/// From the first to the last byte of a response whose rate counts, milliseconds.
const LASTS_MS: f64 = 100.0;
/// A quarter of an even flow takes at least this share of the mean of all.
const EVEN_LEAST: f64 = 0.6;
/// A quarter of an even flow takes at most this many times the mean of all.
const EVEN_MOST: f64 = 1.5;
/// Longest pause of an even flow, as a share of all its time.
const EVEN_PAUSE: f64 = 0.125;
/// The longest pause where segments were sent again: until then what follows them waits in our kernel,
/// and comes all at once, so that quarters tell nothing.
const PAUSE_LOSSY: f64 = 0.5;
/// Shorter pauses than this share of the longest one are within a lump.
const WITHIN: f64 = 0.2;
/// Bytes of a lump that is none of single segments.
const LUMP: f64 = 4_000.0;
/// Least interval between lumps, milliseconds.
const APART_MS: f64 = 15.0;
/// Least interval between lumps in round trips: a window is let through once in each.
const APART_TRIPS: f64 = 2.0;
/// How far lumps and their intervals may be from those in the middle.
const ALIKE: std::ops::RangeInclusive<f64> = 0.65..=1.35;
/// Bytes of a few segments: more at once were not sent by a line of such a rate.
const SEGMENTS: f64 = 4_500.0;

/// How a response comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlowShape {
    /// As a line carries it, so many bytes per second, in pieces of this many bytes.
    Even(f64, f64),
    /// As much again and again, at regular intervals: bytes per second, bytes, milliseconds.
    Lumps(f64, f64, f64),
    /// In two parts with a pause between them: bytes per second until its end.
    Pause(f64),
}

impl FlowShape {
    /// Bytes per second.
    pub(crate) fn rate(self) -> f64 {
        match self {
            FlowShape::Even(rate, _) | FlowShape::Lumps(rate, ..) | FlowShape::Pause(rate) => rate,
        }
    }

    /// Its pieces are those of a line: a few segments.
    pub(crate) fn is_of_segments(self) -> bool {
        matches!(self, FlowShape::Even(_, bytes) if bytes <= SEGMENTS)
    }

    fn is_steady(self) -> bool {
        !matches!(self, FlowShape::Pause(_))
    }
}

/// Receives as times, milliseconds, and bytes.
fn received(call: &Call) -> Vec<(f64, f64)> {
    call.receives.iter().map(|r| (ms(r.at), f64::from(r.bytes))).collect()
}

/// What came together.
fn lumps(received: &[(f64, f64)], longest: f64) -> Vec<(f64, f64)> {
    let mut lumps: Vec<(f64, f64)> = Vec::new();
    let mut last = f64::NEG_INFINITY;
    for (at, bytes) in received {
        match lumps.last_mut() {
            Some(lump) if at - last < WITHIN * longest => lump.1 += bytes,
            _ => lumps.push((*at, *bytes)),
        }
        last = *at;
    }
    lumps
}

/// The shape of one response; `None`: another one, or too short to show any.
pub(crate) fn shape(call: &Call, rtt: f64) -> Option<FlowShape> {
    let all = received(call);
    let (first, last) = (all.first()?.0, all.last()?.0);
    let (span, bytes) = (last - first, all.iter().map(|r| r.1).sum::<f64>());
    if span < LASTS_MS || bytes < ENOUGH_BYTES as f64 || 2.0 * ms(call.starved) > span {
        return None;
    }
    let longest = all.windows(2).map(|w| w[1].0 - w[0].0).fold(0.0, f64::max);
    let lumps = || in_lumps(&lumps(&all, longest), longest, span, rtt);
    let shape = match call.lossy() {
        true => uneven(&all, longest, span).or_else(lumps)?,
        false => lumps().or_else(|| even(&all, longest, span))?,
    };
    (shape.rate() < QUICK).then_some(shape)
}

fn in_lumps(lumps: &[(f64, f64)], longest: f64, span: f64, rtt: f64) -> Option<FlowShape> {
    if longest < APART_MS.max(APART_TRIPS * rtt) {
        return None;
    }
    match lumps {
        [] | [_] => None,
        [first, second] => {
            let large = first.1.min(second.1) >= LUMP && longest >= span / 2.0;
            large.then(|| FlowShape::Pause(1e3 * first.1 / (second.0 - first.0)))
        }
        // The first may be larger, and the last is what is left.
        [first, between @ .., last] => {
            let sizes: Vec<f64> = between.iter().map(|l| l.1).collect();
            let size = median(&sizes);
            let apart: Vec<f64> = lumps.windows(2).map(|w| w[1].0 - w[0].0).collect();
            let every = median(&apart);
            let off = |values: &[f64], middle: f64| {
                values.iter().filter(|v| !ALIKE.contains(&(*v / middle))).count()
            };
            let regular = off(&sizes, size) * 4 <= sizes.len() && off(&apart, every) * 4 <= apart.len();
            let near = first.1 >= size / 3.0 && last.1 <= 1.35 * size;
            (size >= LUMP && regular && near).then(|| FlowShape::Lumps(1e3 * size / every, size, every))
        }
    }
}

/// Bytes that came after the first of them, and the middle of their pieces.
fn after_first(all: &[(f64, f64)]) -> (f64, f64) {
    let sizes: Vec<f64> = all[1..].iter().map(|r| r.1).collect();
    (sizes.iter().sum(), median(&sizes))
}

/// The flow of a line on which segments were lost.
fn uneven(all: &[(f64, f64)], longest: f64, span: f64) -> Option<FlowShape> {
    let (bytes, piece) = after_first(all);
    (all.len() >= ENOUGH_RECEIVES && longest <= PAUSE_LOSSY * span)
        .then(|| FlowShape::Even(1e3 * bytes / span, piece))
}

fn even(all: &[(f64, f64)], longest: f64, span: f64) -> Option<FlowShape> {
    if all.len() < ENOUGH_RECEIVES || longest > EVEN_PAUSE * span {
        return None;
    }
    let (bytes, piece) = after_first(all);
    let mut come = 0.0;
    let mut ends = vec![all[0].0];
    for (at, more) in &all[1..] {
        come += more;
        while ends.len() < 5 && come >= bytes * ends.len() as f64 / 4.0 {
            ends.push(*at);
        }
    }
    let quarters: Vec<f64> = ends.windows(2).map(|w| (w[1] - w[0]) / (span / 4.0)).collect();
    // A shaper lets the beginning through, as much as it has saved up: the rate is that of the rest.
    let even = quarters.iter().enumerate().all(|(i, q)| (i == 0 || *q >= EVEN_LEAST) && *q <= EVEN_MOST);
    (even && quarters.len() == 4)
        .then(|| FlowShape::Even(750.0 * bytes / (ends[4] - ends[1]).max(1e-3), piece))
}

/// It was still coming when it was cut short.
pub(crate) fn was_coming(call: &Call) -> bool {
    let cut = |why| matches!(why, Why::TimedOut | Why::Cut);
    let came: u64 = call.receives.iter().map(|r| u64::from(r.bytes)).sum();
    call.failure().is_some_and(|f| f.stage == CallStage::Receive && cut(f.why)) && came >= ENOUGH_BYTES
}

/// The calls whose responses show a rate: those that are explained, or where all were cut, these.
pub(crate) fn samples(record: &Record) -> Vec<&Call> {
    let group: Vec<&Call> =
        record.group().into_iter().filter(|c| c.answer().is_some_and(|a| !a.endless)).collect();
    if group.is_empty() { record.observed().filter(|c| was_coming(c)).collect() } else { group }
}

/// From the first byte to the last one that came, milliseconds.
pub(crate) fn span_ms(call: &Call) -> f64 {
    let ends = call.receives.first().zip(call.receives.last());
    ends.map_or(0.0, |(first, last)| ms(last.at.saturating_sub(first.at)))
}

/// Bytes that came.
pub(crate) fn bytes(call: &Call) -> f64 {
    call.receives.iter().map(|r| f64::from(r.bytes)).sum()
}

/// The shape in which responses come, where half of them have the same one; with the rate and the other
/// figures in the middle of them.
pub(crate) fn usual(record: &Record) -> Option<FlowShape> {
    let (samples, rtt) = (samples(record), record.rtt_ms());
    let shapes: Vec<FlowShape> = samples.iter().filter_map(|c| shape(c, rtt)).collect();
    // A kernel that hands segments on together makes lumps of a line's even flow.
    let steady = 2 * shapes.iter().filter(|s| s.is_steady()).count() >= shapes.len();
    let alike: Vec<FlowShape> = shapes.into_iter().filter(|s| s.is_steady() == steady).collect();
    if alike.is_empty() || 2 * alike.len() < samples.len() {
        return None;
    }
    let rates: Vec<f64> = alike.iter().map(|s| s.rate()).collect();
    // Bytes per second are the same each time.
    let rate = median(&rates);
    let same = rates.iter().filter(|r| ALIKE.contains(&(*r / rate))).count();
    if 4 * same < 3 * rates.len() {
        return None;
    }
    let off = |shape: &FlowShape| (!shape.is_of_segments(), (shape.rate() - rate).abs());
    alike.into_iter().min_by(|a, b| {
        let (a, b) = (off(a), off(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

/// Most of a call is the time of its body, and that is long: more calls of it tell nothing new.
pub(crate) fn owns(call: &Call) -> bool {
    let span = span_ms(call);
    was_coming(call)
        || span >= 5.0 * LASTS_MS && span >= 0.8 * ms(call.total) && bytes(call) >= ENOUGH_BYTES as f64
}

/// How long calls of the experiment may take: until their first byte, and so much of their body.
pub(crate) fn cut_after(record: &Record) -> (Duration, Duration) {
    let samples = samples(record);
    let span = median(&samples.iter().map(|c| span_ms(c)).collect::<Vec<_>>());
    let opening = record.observed().map(|c| ms(c.opening() + c.send + c.wait)).fold(0.0, f64::max);
    let time = (0.9 * span).clamp(LASTS_MS / 2.0, 800.0);
    (Duration::from_secs_f64((opening + time) / 1e3), Duration::from_secs_f64(time / 1e3))
}

/// Bytes of a response until so long after its beginning.
fn until(call: &Call, time: Duration) -> f64 {
    let Some(first) = call.receives.first() else { return 0.0 };
    let in_time = call.receives.iter().filter(|r| r.at <= first.at + time);
    in_time.map(|r| f64::from(r.bytes)).sum()
}

/// What two calls at once receive together beside what one alone does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SharedRate {
    /// How many times as much.
    pub(crate) times: f64,
    /// The share of that which the one with less of it gets.
    pub(crate) least: f64,
}

/// The result of calls alone and two at once.
pub(crate) fn together(record: &Record) -> Option<SharedRate> {
    let (_, time) = cut_after(record);
    let (mut alone, mut both, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for calls in record.rates() {
        let amounts: Vec<f64> = calls.iter().map(|c| until(c, time)).collect();
        match amounts.as_slice() {
            [one] => alone.push(*one),
            [a, b] => {
                both.push(a + b);
                least.push(a.min(*b) / (a + b).max(1.0));
            }
            _ => {}
        }
    }
    (!alone.is_empty() && !both.is_empty() && median(&alone) > 0.0)
        .then(|| SharedRate { times: median(&both) / median(&alone), least: median(&least) })
}

/// The part of the response that was asked for came as fast: it is there already, and somebody slows it
/// down. `None`: the server sends no parts, or none was asked for.
pub(crate) fn part_as_fast(record: &Record) -> Option<bool> {
    let parts = record.calls().filter(|(p, _)| p.experiment == Experiment::Part);
    let (probe, part) = parts.filter(|(_, c)| c.answer().is_some_and(|a| a.status == 206)).last()?;
    let Variation::Range(wanted) = probe.variation else { return None };
    let whole = samples(record);
    let at = |call: &&Call| {
        let mut come = 0.0;
        let reached = call.receives.iter().find(|r| {
            come += f64::from(r.bytes);
            come >= wanted as f64
        })?;
        Some(ms(reached.at.saturating_sub(call.receives.first()?.at)))
    };
    let predicted = median(&whole.iter().filter_map(at).collect::<Vec<_>>());
    let took = span_ms(part);
    Some((took - predicted).abs() <= (0.35 * predicted).max(LASTS_MS / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ReceivedBytes;

    fn call(pieces: impl IntoIterator<Item = (f64, u32)>) -> Call {
        let receive =
            |(at, bytes): (f64, u32)| ReceivedBytes { at: Duration::from_secs_f64(at / 1e3), bytes };
        Call { receives: pieces.into_iter().map(receive).collect(), ..Call::default() }
    }

    #[test]
    fn a_line_a_limit_and_a_pause_have_their_shapes() {
        // A segment each 5.8 ms, with what a shaper had saved up at first.
        let line = call((0..200).map(|n| (f64::from(n.max(20) - 20) * 5.8, 1448)));
        let Some(shape) = shape(&line, 0.1) else { unreachable!("a flow") };
        assert!(shape.is_of_segments() && (240e3..270e3).contains(&shape.rate()), "{shape:?}");
        // nginx's limit_rate: as much as it has saved up for a second, each second.
        let limit = call([(0.0, 250_000), (1001.0, 250_000), (2002.0, 60_000)]);
        assert!(
            matches!(super::shape(&limit, 0.1), Some(FlowShape::Lumps(rate, ..)) if (rate - 250e3).abs() < 1e3)
        );
        let pause = call([(0.0, 8000), (0.1, 8000), (400.0, 8000), (400.2, 8000)]);
        assert!(matches!(super::shape(&pause, 0.1), Some(FlowShape::Pause(_))));
        // A window for each round trip is no limit of a rate.
        let window = call((0..20).map(|n| (f64::from(n) * 40.0, 16_000)));
        assert_eq!(super::shape(&window, 40.0).filter(|s| !matches!(s, FlowShape::Even(..))), None);
        // It grows.
        let slow_start = call((0..7).flat_map(|n| (0..10 << n).map(move |_| (f64::from(n) * 40.0, 1448))));
        assert_eq!(super::shape(&slow_start, 40.0), None);
        let quick = call((0..400).map(|n| (f64::from(n) * 0.5, 65_000)));
        assert_eq!(super::shape(&quick, 0.1), None, "above 100 Mbit/s nothing is slow");
        let words = call((0..50).map(|n| (f64::from(n) * 20.0, 12)));
        assert_eq!(super::shape(&words, 0.1), None);
    }
}
