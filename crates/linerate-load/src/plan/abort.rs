//! `--abort-on 'errors>5%@10s'`: a run that ends early when something holds over the last while.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::InvalidPlan;
use super::check::CheckResult;
use super::units::{parse_duration, quoted, shown_duration};
use super::{Check, limits::ABORT_LOOKS, limits::ABORT_WINDOW};
use crate::Outcome;
use crate::outcome::{Latency, NamedFigures, Snapshot, Window};

/// A condition that ends a run early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbortOn {
    /// As the user wrote it.
    pub expr: String,
    /// The condition, written like a check.
    pub check: Check,
    /// Over how long.
    pub window: Duration,
}

impl AbortOn {
    /// Reads `CHECK@TIME`. The error says what would be right.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use linerate_load::plan::abort::AbortOn;
    ///
    /// assert_eq!(AbortOn::parse("errors>5%@10s")?.window, Duration::from_secs(10));
    /// # Ok::<(), linerate_load::plan::InvalidPlan>(())
    /// ```
    pub fn parse(text: &str) -> Result<AbortOn, InvalidPlan> {
        const EXAMPLE: &str = "write for example errors>5%@10s or p99>1s@30s";
        let fail = |why: String| format!("{}: {why}", quoted(text));
        let Some((check, window)) = text.trim().rsplit_once('@') else {
            return Err(fail(format!("it does not say over how long; {EXAMPLE}")).into());
        };
        let window = parse_duration(window.trim()).map_err(|why| fail(format!("{why}; {EXAMPLE}")))?;
        if !ABORT_WINDOW.contains(&window) {
            let (least, most) = (shown_duration(*ABORT_WINDOW.start()), shown_duration(*ABORT_WINDOW.end()));
            return Err(fail(format!("the time must be between {least} and {most}")).into());
        }
        let check = Check::parse(check)?;
        Ok(AbortOn { expr: text.trim().to_owned(), check, window })
    }
}

/// Looks at a run while it lasts. Sans-IO: it is given snapshots.
#[derive(Debug)]
pub struct AbortWatch {
    conditions: Vec<AbortOn>,
    longest: Duration,
    kept: VecDeque<Snapshot>,
}

impl AbortWatch {
    /// One that looks for these.
    pub fn new(conditions: &[AbortOn]) -> AbortWatch {
        let longest = conditions.iter().map(|c| c.window).max().unwrap_or_default();
        AbortWatch { conditions: conditions.to_vec(), longest, kept: VecDeque::new() }
    }

    /// The first condition that has held for its time, with the measured value in words.
    pub fn look(&mut self, now: &Snapshot) -> Option<String> {
        if self.conditions.is_empty() || !now.measuring {
            return None;
        }
        let step = self.longest / ABORT_LOOKS;
        let is_new = |last: &Snapshot| now.elapsed.saturating_sub(last.elapsed) >= step;
        if self.kept.back().is_none_or(is_new) {
            self.kept.push_back(Snapshot { series: Vec::new(), ..now.clone() });
        }
        while self.kept.get(1).is_some_and(|next| now.elapsed.saturating_sub(next.elapsed) >= self.longest) {
            self.kept.pop_front();
        }
        self.conditions.iter().find_map(|condition| {
            let old = |kept: &&Snapshot| now.elapsed.saturating_sub(kept.elapsed) >= condition.window;
            let then = self.kept.iter().rev().find(old)?;
            let CheckResult { pass, value, shown, .. } = condition.check.evaluate(&between(then, now));
            let text =
                || format!("{}: {shown} over the last {}", condition.expr, shown_duration(condition.window));
            (pass && value.is_some()).then(text)
        })
    }
}

/// The outcome of the time between two snapshots.
fn between(then: &Snapshot, now: &Snapshot) -> Outcome {
    let time = now.elapsed - then.elapsed;
    let mut outcome = Outcome { duration: time, ..Outcome::default() };
    let (r, a, b) = (&mut outcome.requests, &now.requests, &then.requests);
    r.answered = a.answered.saturating_sub(b.answered);
    r.failed = a.failed.saturating_sub(b.failed);
    r.unknown = a.unknown.saturating_sub(b.unknown);
    r.unsolicited_responses = a.unsolicited_responses.saturating_sub(b.unsolicited_responses);
    r.out_of_order_responses = a.out_of_order_responses.saturating_sub(b.out_of_order_responses);
    // A request that is due and could not leave has missed its time already.
    r.unsent = now.overdue.saturating_sub(then.overdue);
    // Requests in flight are neither good nor bad yet.
    r.sent = r.answered + r.failed + r.unknown;
    outcome.window = Window { answered: r.answered, time, ..Window::default() };
    (r.expecting, r.met) = (a.expecting.saturating_sub(b.expecting), a.met.saturating_sub(b.met));
    outcome.bad.status = now.bad.total().saturating_sub(then.bad.total());
    let (mut from_sent, mut waited) = (now.latency.clone(), now.waited.clone());
    from_sent.subtract(&then.latency);
    waited.subtract(&then.waited);
    outcome.latency = Latency { from_sent, waited, ..Latency::default() };
    let named = |(name, now): (&String, &NamedFigures)| {
        let mut added = now.since(then.by_name.get(name));
        let requests = &mut added.requests;
        requests.sent = requests.answered + requests.failed + requests.unknown;
        added.in_window = requests.answered;
        (name.clone(), added)
    };
    outcome.by_name = now.by_name.iter().map(named).collect();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, answered: u64, failed: u64) -> Snapshot {
        let mut snapshot =
            Snapshot { elapsed: Duration::from_millis(ms), measuring: true, ..Snapshot::default() };
        snapshot.requests.answered = answered;
        snapshot.requests.failed = failed;
        snapshot
    }

    #[test]
    fn only_what_held_over_the_whole_time_counts() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("errors>5%@2s").unwrap()]);
        // Two failures at once, then a second without.
        for (ms, answered, failed) in [(0, 0, 0), (500, 10, 2), (1000, 60, 2), (1500, 90, 2), (2000, 120, 2)]
        {
            assert_eq!(watch.look(&at(ms, answered, failed)), None, "{ms}");
        }
        assert_eq!(watch.look(&at(2500, 140, 4)), None);
        let said = watch.look(&at(3000, 150, 12)).unwrap();
        assert_eq!(said, "errors>5%@2s: 10 % over the last 2s");
    }

    #[test]
    fn requests_that_cannot_leave_are_errors() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("errors>50%@2s").unwrap()]);
        let stalled = |ms, answered, overdue| Snapshot { overdue, ..at(ms, answered, 0) };
        for (ms, answered, overdue) in [(0, 0, 0), (1000, 100, 0), (2000, 200, 60), (3000, 210, 80)] {
            assert_eq!(watch.look(&stalled(ms, answered, overdue)), None, "{ms}");
        }
        let said = watch.look(&stalled(4000, 210, 250)).unwrap();
        assert_eq!(said, "errors>50%@2s: 95 % over the last 2s");
    }

    #[test]
    fn a_rate_that_falls_ends_a_run() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("rate<50@2s").unwrap()]);
        for (ms, answered) in [(0, 0), (1000, 100), (2000, 200), (3000, 250)] {
            assert_eq!(watch.look(&at(ms, answered, 0)), None, "{ms}");
        }
        assert_eq!(watch.look(&at(4000, 260, 0)).unwrap(), "rate<50@2s: 30/s over the last 2s");
    }

    #[test]
    fn the_requests_of_a_name_end_a_run() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("login.errors>50%@1s").unwrap()]);
        let named = |ms, answered, bad| {
            let mut snapshot = at(ms, 1000 * answered, 0);
            let mut login = NamedFigures::default();
            (login.requests.sent, login.requests.answered, login.bad.status) = (answered + 9, answered, bad);
            snapshot.by_name.insert("login".to_owned(), login);
            snapshot
        };
        for (ms, answered, bad) in [(0, 10, 10), (1000, 20, 13), (2000, 30, 17)] {
            assert_eq!(watch.look(&named(ms, answered, bad)), None, "{ms}");
        }
        let said = watch.look(&named(3000, 40, 23)).unwrap();
        assert_eq!(said, "login.errors>50%@1s: 60 % over the last 1s");
    }

    #[test]
    fn nothing_ends_a_run_of_which_nothing_is_known() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("p99>1ms@1s").unwrap()]);
        assert_eq!(watch.look(&at(0, 0, 0)), None);
        assert_eq!(watch.look(&at(5000, 0, 0)), None);
        let mut warm = AbortWatch::new(&[AbortOn::parse("errors>0@1s").unwrap()]);
        assert_eq!(warm.look(&Snapshot { measuring: false, ..at(0, 0, 0) }), None);
        assert_eq!(warm.look(&Snapshot { measuring: false, ..at(5000, 0, 9) }), None);
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut watch = AbortWatch::new(&[AbortOn::parse("errors>5%@1h").unwrap()]);
        (0..100_000).for_each(|i| assert_eq!(watch.look(&at(100 * i, i, 0)), None));
        assert!(watch.kept.len() <= ABORT_LOOKS as usize + 2, "{}", watch.kept.len());
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, words) in [
            ("errors>5%", "does not say over how long"),
            ("errors>5%@", "errors>5%@10s"),
            ("errors>5%@fast", "errors>5%@10s"),
            ("errors>5%@1ms", "between 1s and 1h"),
            ("errors@10s", "no comparison"),
        ] {
            let error = AbortOn::parse(text).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
