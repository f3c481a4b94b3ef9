//! What is seen of HTTP/2: our windows, the server's limit of streams, and calls that share a
//! connection.

use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::probe::{Experiment, Together};
use crate::record::Record;
use crate::stats::{Estimate, median, slope};

/// Shorter round trips cost a negligible time.
pub(crate) const RTT_MS: f64 = 3.0;
/// The window that HTTP/2 begins with (RFC 9113, section 6.9.2).
pub(crate) const FIRST_WINDOW: u32 = 65_535;
/// How many times as large as it is the window is in the arms of [`Experiment::Window`]; 0: so large
/// that nothing fills it.
pub(crate) const WINDOWS: [u32; 4] = [1, 0, 2, 4];

/// Bytes of the answer that is explained.
pub(crate) fn body(record: &Record) -> u64 {
    record.group().first().and_then(|c| c.answer()).map_or(0, |answer| answer.body_bytes)
}

/// A frame of content, as servers send it unless a client allows more (RFC 9113, section 4.2).
const FRAME: u64 = 16_384;

/// Round trips in which an answer stands still, since the server has sent what our window of so many
/// bytes admits and waits for our word. We give room back by whole frames, when half of a window is
/// used up: on average one and a half are not given back yet.
pub(crate) fn stops(bytes: u64, window: u64) -> f64 {
    let each = window.saturating_sub(FRAME * 3 / 2).max(window / 2).max(1);
    bytes.saturating_sub(window) as f64 / each as f64
}

/// Larger windows against those as they are.
pub(crate) fn window_trial(record: &Record) -> Option<Trial> {
    record.trial(
        Experiment::Window,
        "with a window that is never full",
        "our HTTP/2 windows, of the stream and of the connection",
        |call| call.receive,
    )
}

/// An answer is larger than our window, and the round trip counts: it may be what the answer waits
/// for.
pub(crate) fn may_be_limited(record: &Record) -> bool {
    record.streamed().is_some()
        && record.rtt_ms() >= RTT_MS
        && body(record) > u64::from(record.settings.window)
}

/// Our window is what an answer waits for: larger ones take that away.
pub(crate) fn limited_by_window(record: &Record) -> bool {
    let trial = window_trial(record).filter(|_| record.streamed().is_some());
    trial.is_some_and(|trial| trial.moved(0.7 * record.rtt_ms()))
}

/// How many milliseconds an answer takes longer for each that its stops take by the window.
pub(crate) fn window_dose(record: &Record) -> Option<Estimate> {
    let (rtt, window, body) = (record.rtt_ms(), u64::from(record.settings.window), body(record));
    let mut points = Vec::new();
    for (times, arm) in WINDOWS.iter().zip(0..) {
        let expected = if *times == 0 { 0.0 } else { rtt * stops(body, window * u64::from(*times)) };
        points.extend(record.arm(Experiment::Window, arm).iter().map(|c| (expected, ms(c.receive))));
    }
    let strengths = points.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()).count();
    if strengths < 3 { None } else { slope(&points) }
}

/// The streams that the server admits at once, where it names a limit.
pub(crate) fn limit(record: &Record) -> Option<u32> {
    record.streamed()?.most_streams
}

/// Calls at once that were answered in an experiment's arm, milliseconds of each.
pub(crate) fn together(record: &Record, experiment: Experiment, arm: u8) -> Vec<f64> {
    let rounds = record.together(experiment, arm);
    rounds.into_iter().flatten().filter(|c| c.answer().is_some()).map(|c| ms(c.total)).collect()
}

/// One connection (arm 0) and several (arm 1), in turns.
pub(crate) fn arms(experiment: Experiment, calls: u8, connections: u8, rounds: u8) -> [Together; 2] {
    let arm = |arm, connections| Together { experiment, arm, calls, connections, rounds };
    [arm(0, 1), arm(1, connections)]
}

/// Rounds of calls at once in which segments were lost: the share of their calls that took so many
/// milliseconds longer than a call of a round without loss.
pub(crate) fn delayed(record: &Record, arm: u8, slow_ms: f64) -> Vec<f64> {
    let rounds = [0, 1].map(|arm| record.together(Experiment::HeadOfLine, arm));
    let clean = |round: &&&[Call]| round.iter().all(|c| c.answer().is_some() && !c.lossy());
    let usual = |rounds: &[&[Call]]| -> Vec<f64> {
        rounds.iter().filter(clean).flat_map(|round| round.iter().map(|c| ms(c.total))).collect()
    };
    let mut quick = usual(&rounds[usize::from(arm)]);
    if quick.is_empty() {
        // All rounds met a loss: then the quickest calls were spared.
        let all = rounds[usize::from(arm)].iter().flat_map(|round| round.iter().map(|c| ms(c.total)));
        quick.extend(all.reduce(f64::min));
    }
    let usual = median(&quick);
    let lossy = rounds[usize::from(arm)].iter().filter(|round| round.iter().any(Call::lossy));
    let share = |round: &&[Call]| {
        let slow = round.iter().filter(|c| ms(c.total) > usual + slow_ms).count();
        100.0 * slow as f64 / round.len().max(1) as f64
    };
    lossy.map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::stops;

    #[test]
    fn a_window_admits_so_much_in_a_round_trip() {
        assert_eq!([60_000, 65_535].map(|bytes| stops(bytes, 65_535)), [0.0, 0.0]);
        let far = [106_494, 500_000].map(|bytes| stops(bytes, 65_535));
        // Bursts of 41 kB were measured, 12 for 500 kB.
        assert!(far[0] == 1.0 && (10.0..11.0).contains(&far[1]), "{far:?}");
    }
}
