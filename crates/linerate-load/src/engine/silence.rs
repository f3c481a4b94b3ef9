//! Times without a response, as one core sees them. Sans-IO: told of responses and failures, it says
//! when there was none, and what happened meanwhile.

use std::time::Duration;

use linerate_net::Time;

use crate::outcome::{Quiet, QuietSpan, Spans};

/// Shorter times are not kept.
const LEAST: Duration = Duration::from_millis(100);
/// Failures, and requests that were answered later, this close to one another are noted together.
const CLOSE: Duration = Duration::from_millis(100);
/// Requests that are due this close to one another are waited for all the while: those of a target
/// that accepts and closes fail at once.
const PAUSE: Duration = Duration::from_secs(1);
/// A loop that has not looked for so long cannot say when in this time a response came.
const BLIND: Duration = Duration::from_millis(250);

/// Since when requests are due or in flight, and since when they no longer are.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Time,
    until: Option<Time>,
}

/// Listens for responses.
#[derive(Debug)]
pub(crate) struct SilenceTracker {
    measure_from: Time,
    /// The last response.
    last: Time,
    /// When the loop last looked for responses; `None`: others look, each on its own.
    looked: Option<Time>,
    waiting: Option<Waiting>,
    /// What happened since the last response: all of it, before the span is over.
    waited: Spans,
    failed: Spans,
    quiet: Quiet,
    /// When the last span of `quiet` ended.
    ended: Time,
    sending_until: Option<Time>,
}

impl SilenceTracker {
    pub(crate) fn new(measure_from: Time) -> SilenceTracker {
        SilenceTracker {
            measure_from,
            last: measure_from,
            looked: None,
            waiting: None,
            waited: Spans::default(),
            failed: Spans::default(),
            quiet: Quiet::default(),
            ended: Time::ZERO,
            sending_until: None,
        }
    }

    fn since(&self, at: Time) -> u64 {
        at.nanos_since(self.measure_from)
    }

    /// A response came to a request that was sent then.
    #[inline]
    pub(crate) fn response(&mut self, now: Time, sent: Time) {
        if now.nanos_since(self.last) >= LEAST.as_nanos() as u64 || !self.failed.is_empty() {
            self.end_span(now);
        }
        self.last = now;
        if sent < self.ended {
            self.answered(sent);
        }
    }

    /// A request failed.
    pub(crate) fn failed(&mut self, now: Time) {
        let at = self.since(now);
        if now >= self.measure_from {
            self.failed.insert(at, at + 1, CLOSE.as_nanos() as u64);
        }
    }

    /// The loop looks for responses now; `waits`: requests are due or in flight.
    #[inline]
    pub(crate) fn look(&mut self, now: Time, waits: bool) {
        self.looked = Some(now);
        self.wait(now, waits);
    }

    /// Whether requests are due or in flight.
    #[inline]
    pub(crate) fn wait(&mut self, now: Time, waits: bool) {
        match (&mut self.waiting, waits) {
            (Some(Waiting { until: None, .. }), true) | (None, false) => {}
            (Some(Waiting { until: Some(until), .. }), false) if now - *until < PAUSE => {}
            (Some(Waiting { until, .. }), false) if until.is_none() => *until = Some(now),
            (Some(waiting), true) if waiting.until.is_some_and(|until| now - until < PAUSE) => {
                waiting.until = None;
            }
            _ => {
                self.note_waiting(now);
                self.waiting = waits.then_some(Waiting { since: now, until: None });
            }
        }
    }

    /// Notes how long was waited since the last response.
    fn note_waiting(&mut self, now: Time) {
        if let Some(Waiting { since, until }) = self.waiting {
            let (from, to) = (since.max(self.last).max(self.measure_from), until.unwrap_or(now));
            self.waited.push(self.since(from), self.since(to));
        }
    }

    /// No response came until now.
    #[cold]
    fn end_span(&mut self, now: Time) {
        // A loop that did not look knows only of the time before.
        let end = self.looked.filter(|looked| now - *looked > BLIND).unwrap_or(now);
        self.note_waiting(end);
        let (waiting, failed) = (std::mem::take(&mut self.waited), std::mem::take(&mut self.failed));
        if end - self.last < LEAST || end <= self.measure_from {
            return;
        }
        let (from_ns, to_ns) = (self.since(self.last), self.since(end));
        self.quiet.push(QuietSpan { from_ns, to_ns, waiting, failed, answered: Spans::default() });
        self.ended = end;
    }

    /// A request that was sent in an earlier span, or before, got its response.
    #[cold]
    fn answered(&mut self, sent: Time) {
        let at = self.since(sent);
        let behind = self.quiet.spans.partition_point(|span| span.from_ns <= at);
        let span = behind.checked_sub(1).and_then(|i| self.quiet.spans.get_mut(i));
        if let Some(span) = span.filter(|span| at < span.to_ns && sent >= self.measure_from) {
            span.answered.insert(at, at + 1, CLOSE.as_nanos() as u64);
        }
    }

    /// No further requests are sent.
    pub(crate) fn stop_sending(&mut self, now: Time) {
        self.sending_until.get_or_insert(now);
    }

    /// What was noted, until now.
    pub(crate) fn into_quiet(mut self, now: Time) -> Quiet {
        self.end_span(now);
        let sending_ns = self.since(self.sending_until.unwrap_or(now));
        Quiet { until_ns: self.since(now), sending_ns, ..self.quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::outcome::Silence;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn outcome(tracker: SilenceTracker, end: u64) -> Outcome {
        Outcome { quiet: Some(tracker.into_quiet(at(end))), ..Outcome::default() }
    }

    fn silence(from: u64, lasted: u64) -> Option<Silence> {
        Some(Silence { from: Duration::from_millis(from), lasted: Duration::from_millis(lasted) })
    }

    /// Sees a response every 10 ms until then, each to a request that was sent 5 ms before.
    fn answered(tracker: &mut SilenceTracker, ms: std::ops::Range<u64>) {
        for now in ms.step_by(10) {
            tracker.look(at(now), true);
            tracker.response(at(now), at(now.saturating_sub(5)));
        }
    }

    #[test]
    fn a_target_that_accepts_and_closes_is_an_outage() {
        let mut tracker = SilenceTracker::new(at(0));
        answered(&mut tracker, 0..1000);
        for now in (1000..3500).step_by(20) {
            tracker.look(at(now), now % 40 == 0);
            tracker.failed(at(now));
        }
        answered(&mut tracker, 3500..5000);
        let outcome = outcome(tracker, 5000);
        assert_eq!(outcome.outage(), silence(990, 2505));
        assert_eq!(outcome.silence(), silence(990, 2510));
    }

    /// A stopped server that answers all in the end is silent, and out of reach it was not.
    #[test]
    fn a_stalled_server_is_silent() {
        let mut tracker = SilenceTracker::new(at(0));
        answered(&mut tracker, 0..1000);
        tracker.look(at(1000), true);
        tracker.failed(at(2000));
        (1000..5000).step_by(50).for_each(|now| tracker.look(at(now), true));
        (1000..5000).step_by(10).for_each(|sent| tracker.response(at(5000), at(sent)));
        let outcome = outcome(tracker, 5000);
        assert_eq!((outcome.silence(), outcome.outage()), (silence(990, 4010), None));
    }

    #[test]
    fn nothing_is_missed_while_nothing_is_due() {
        let mut tracker = SilenceTracker::new(at(0));
        answered(&mut tracker, 0..100);
        (100..4000).step_by(50).for_each(|now| tracker.look(at(now), false));
        (4000..4300).step_by(50).for_each(|now| tracker.look(at(now), true));
        tracker.response(at(4300), at(4000));
        assert_eq!(outcome(tracker, 4300).silence(), silence(4000, 300));
    }

    /// A process that was stopped cannot say that no response came meanwhile.
    #[test]
    fn of_a_time_without_a_look_nothing_is_said() {
        for (looks, expected) in [(vec![0, 50, 100, 150], silence(0, 150)), (vec![0, 50], None)] {
            let mut tracker = SilenceTracker::new(at(0));
            looks.into_iter().for_each(|now| tracker.look(at(now), true));
            tracker.response(at(4000), at(0));
            assert_eq!(outcome(tracker, 4000).silence(), expected);
        }
    }

    #[test]
    fn failures_between_responses_are_no_outage() {
        let mut tracker = SilenceTracker::new(at(0));
        for now in (0..5000).step_by(50) {
            tracker.look(at(now), true);
            tracker.failed(at(now));
            tracker.response(at(now), at(now));
        }
        let outcome = outcome(tracker, 5000);
        assert_eq!((outcome.outage(), outcome.silence()), (None, None));
    }
}
