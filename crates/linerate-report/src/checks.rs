//! Checks held against what was measured.

use linerate_load::plan::{Check, Comparison, Metric};
use linerate_load::{Outcome, Plan};

use crate::{figures, units};

/// A check and what it found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// As the user wrote it.
    pub expr: String,
    /// What it looked at.
    pub metric: Metric,
    /// What was measured, in the metric's unit; `None` when there is nothing to measure it on.
    pub value: Option<f64>,
    /// Whether it held. A check without a value does not.
    pub pass: bool,
}

impl Checked {
    /// The value in words, with its unit.
    pub fn value_in_words(&self, unicode: bool) -> String {
        let Some(value) = self.value else { return "nothing was measured".to_owned() };
        match self.metric {
            Metric::Percentile(_) | Metric::Mean | Metric::Max | Metric::Min => {
                units::time_us(value, unicode)
            }
            Metric::Rate => format!("{}/s", units::rate(value)),
            Metric::ErrorShare => units::percent(value),
            Metric::Errors | Metric::Answered => units::count(value as u64),
        }
    }
}

/// The plan's checks, one by one, in their order.
pub fn check(plan: &Plan, outcome: &Outcome) -> Vec<Checked> {
    plan.checks.iter().map(|check| check_one(check, plan, outcome)).collect()
}

fn check_one(check: &Check, plan: &Plan, outcome: &Outcome) -> Checked {
    let value = value_of(check.metric, plan, outcome);
    let pass = value.is_some_and(|value| match check.comparison {
        Comparison::Less => value < check.limit,
        Comparison::AtMost => value <= check.limit,
        Comparison::Greater => value > check.limit,
        Comparison::AtLeast => value >= check.limit,
    });
    Checked { expr: check.expr.clone(), metric: check.metric, value, pass }
}

fn value_of(metric: Metric, plan: &Plan, outcome: &Outcome) -> Option<f64> {
    let latency = figures::main_latency(plan, outcome);
    match metric {
        Metric::Percentile(percent) => latency.map(|h| h.percentile_ns(percent) as f64 / 1e3),
        Metric::Mean => latency.map(|h| h.mean_ns() / 1e3),
        Metric::Max => latency.map(|h| h.max_ns() as f64 / 1e3),
        Metric::Min => latency.map(|h| h.min_ns() as f64 / 1e3),
        Metric::Rate => Some(figures::rate_rps(outcome)),
        Metric::ErrorShare => {
            let sent = outcome.requests.sent;
            (sent > 0).then(|| figures::errors(outcome) as f64 / sent as f64)
        }
        Metric::Errors => Some(figures::errors(outcome) as f64),
        Metric::Answered => Some(outcome.requests.answered as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn checked(metric: Metric, comparison: Comparison, limit: f64) -> Checked {
        let check = Check { expr: "x".to_owned(), metric, comparison, limit };
        let plan = Plan { checks: vec![check], ..testing::plan_closed() };
        check_all(&plan, &testing::outcome_closed())
    }

    fn check_all(plan: &Plan, outcome: &Outcome) -> Checked {
        check(plan, outcome).remove(0)
    }

    #[test]
    fn both_sides_of_a_limit() {
        let answered = testing::outcome_closed().requests.answered as f64;
        for (comparison, below, at, above) in [
            (Comparison::Less, false, false, true),
            (Comparison::AtMost, false, true, true),
            (Comparison::Greater, true, false, false),
            (Comparison::AtLeast, true, true, false),
        ] {
            let pass = |limit| checked(Metric::Answered, comparison, limit).pass;
            assert_eq!((pass(answered - 1.0), pass(answered), pass(answered + 1.0)), (below, at, above));
        }
    }

    #[test]
    fn errors_are_failed_unknown_and_bad() {
        let outcome = testing::outcome_closed();
        let expected = outcome.requests.failed + outcome.requests.unknown + outcome.bad.total();
        let count = checked(Metric::Errors, Comparison::AtMost, 1e9);
        assert_eq!(count.value, Some(expected as f64));
        let share = checked(Metric::ErrorShare, Comparison::AtMost, 1.0);
        assert_eq!(share.value, Some(expected as f64 / outcome.requests.sent as f64));
    }

    #[test]
    fn nothing_measured_is_not_a_pass() {
        let check = Check {
            expr: "p99<1s".to_owned(),
            metric: Metric::Percentile(99.0),
            comparison: Comparison::Less,
            limit: 1e6,
        };
        let plan = Plan { checks: vec![check], ..testing::plan_closed() };
        let found = check_all(&plan, &Outcome::default());
        assert_eq!((found.value, found.pass), (None, false));
        assert_eq!(found.value_in_words(false), "nothing was measured");
    }

    #[test]
    fn an_open_loop_is_checked_from_due() {
        let check = Check {
            expr: "max<1s".to_owned(),
            metric: Metric::Max,
            comparison: Comparison::Less,
            limit: 1e6,
        };
        let plan = Plan { checks: vec![check], ..testing::plan_open() };
        let outcome = testing::outcome_open();
        let due = outcome.latency.from_due.as_ref().map(|h| h.max_ns() as f64 / 1e3);
        assert_eq!(check_all(&plan, &outcome).value, due);
    }
}
