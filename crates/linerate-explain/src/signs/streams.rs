//! Signs of HTTP/2: our windows, the server's limit of streams, and calls that share a connection.

use crate::call::{Call, ms};
use crate::evidence::Trial;
use crate::probe::{Experiment, Together};
use crate::record::Record;
use crate::signs::disorder::Usual;
use crate::stats::{Estimate, median, more_often, slope};

/// Shorter round trips cost a negligible time.
pub(crate) const RTT_MS: f64 = 3.0;
/// The window that HTTP/2 begins with (RFC 9113, section 6.9.2).
pub(crate) const FIRST_WINDOW: u32 = 65_535;
/// How many times as large as it is the window is in the arms of [`Experiment::Window`]; 0: so large
/// that nothing fills it.
pub(crate) const WINDOWS: [u32; 4] = [1, 0, 2, 4];

/// Bytes of the response that is explained.
pub(crate) fn body(record: &Record) -> u64 {
    record.group().first().and_then(|c| c.answer()).map_or(0, |answer| answer.body_bytes)
}

/// A frame of content, as servers send it unless a client allows more (RFC 9113, section 4.2).
const FRAME: u64 = 16_384;

/// Round trips in which a response stalls: the server has sent all that our window of `window`
/// bytes admits and waits for our update. We give room back by whole frames, when half of a window is
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

/// A response is larger than our window, and the round trip counts: it may be what the response waits
/// for.
pub(crate) fn may_be_limited(record: &Record) -> bool {
    record.streamed().is_some()
        && record.rtt_ms() >= RTT_MS
        && body(record) > u64::from(record.settings.window)
}

/// Our window is what a response waits for: larger ones take that away.
pub(crate) fn limited_by_window(record: &Record) -> bool {
    let trial = window_trial(record).filter(|_| record.streamed().is_some());
    trial.is_some_and(|trial| trial.moved(0.7 * record.rtt_ms()))
}

/// How many milliseconds a response takes longer for each that its stops take by the window.
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

/// One connection (arm 0) and several (arm 1), in turns.
pub(crate) fn arms(experiment: Experiment, calls: u8, connections: u8, rounds: u8) -> [Together; 2] {
    let arm = |arm, connections| Together { experiment, arm, calls, connections, rounds };
    [arm(0, 1), arm(1, connections)]
}

/// Rounds of calls at once on one connection, and on one each, as segments get lost.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Rounds on one connection.
    pub(crate) rounds: usize,
    /// Those in which a segment was lost. One that others overtook holds calls up as well, and is
    /// not counted.
    pub(crate) lossy: usize,
    /// Those in which calls waited behind it that had lost nothing.
    pub(crate) holding: usize,
    /// Calls that were answered on one connection.
    pub(crate) shared: usize,
    /// Of these, how long those waited, milliseconds, and what they took.
    pub(crate) held: Vec<f64>,
    pub(crate) took: Vec<f64>,
    /// Time beyond the usual of calls on one connection that was such waiting, and of all that lost
    /// nothing.
    pub(crate) owned: f64,
    pub(crate) beyond: f64,
    /// Calls on a connection each that lost nothing, and what they took.
    pub(crate) alone: Vec<f64>,
    /// Of these, calls that were slow as well.
    pub(crate) slow: usize,
}

impl Behind {
    /// The effect in the rounds. A call is slow that takes `slow_ms` milliseconds longer than the usual.
    pub(crate) fn of(record: &Record, slow_ms: f64) -> Behind {
        let [one, each] = [0, 1].map(|arm| record.together(Experiment::HeadOfLine, arm));
        let answered = |calls: &[Call]| -> Vec<Call> {
            calls.iter().filter(|c| c.answer().is_some()).cloned().collect()
        };
        let total = |calls: &[Call]| calls.iter().map(|c| ms(c.total)).collect::<Vec<f64>>();
        let mut seen = Behind { rounds: one.len(), ..Behind::default() };
        let clean: Vec<f64> =
            one.iter().filter(|r| !r.iter().any(Call::lossy)).flat_map(|r| total(&answered(r))).collect();
        // Where all rounds met a loss, the quickest calls were spared.
        let all = one.iter().flat_map(|r| total(&answered(r)));
        let usual = if clean.is_empty() { all.fold(f64::INFINITY, f64::min) } else { median(&clean) };
        let known = Usual::of(record, &one.iter().copied().flatten().collect::<Vec<_>>());
        for round in &one {
            // They share a connection, and its counters: what one of them lost, all did.
            let lost = round.iter().any(|c| known.may_have_lost(c));
            seen.lossy += usize::from(lost);
            let calls = answered(round);
            seen.shared += calls.len();
            let before = seen.held.len();
            for call in calls.iter().filter(|c| !c.held_behind.is_zero()) {
                let beyond = (ms(call.total) - usual).max(0.0);
                let held = ms(call.held_behind);
                seen.beyond += beyond;
                if !lost {
                    continue;
                }
                seen.owned += beyond.min(held);
                if held >= slow_ms {
                    seen.held.push(held);
                    seen.took.push(ms(call.total));
                }
            }
            seen.holding += usize::from(seen.held.len() > before);
        }
        let alone: Vec<Call> = each.iter().flat_map(|r| answered(r)).filter(|c| !c.lossy()).collect();
        seen.alone = total(&alone);
        // Not the middle: half of them may be slow.
        let mut sorted = seen.alone.clone();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted.get(sorted.len() / 4).copied().unwrap_or_default();
        seen.slow = seen.alone.iter().filter(|t| **t > usual + slow_ms).count();
        seen
    }

    /// How likely that many calls are held up on one connection, if calls that lose nothing are as
    /// often slow on a connection each.
    pub(crate) fn chance(&self) -> f64 {
        more_often(self.held.len(), self.shared, self.slow, self.alone.len())
    }
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
