//! `p99 ratio<1.05`: what a comparison must say, as a gate for scripts.

use linerate_load::plan::Comparison as Operator;
use linerate_load::plan::units::{parse_decimal, quoted};

use crate::comparison::{ComparedMetric, MetricVerdict, Pair, RatioChange, Rounds};
use crate::figures::{self, LabMetric, METRICS};
use crate::invalid::InvalidLab;
use crate::limits::LEAST_ROUNDS;

/// The forms of a check, for messages.
const EXAMPLES: &str = "write for example 'p99 ratio<1.05', 'rate lo>0.95' or 'cpu change<1.1'";

/// What of a metric is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedQuantity {
    /// B's value over A's.
    Ratio,
    /// The lower end of its interval.
    Low,
    /// The upper end of its interval.
    High,
    /// The ratio over that of the saved comparison (`--baseline`).
    Change,
}

/// A metric, what of it, a comparison and a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricCheck {
    /// As the user wrote it.
    pub expr: String,
    /// Of which metric.
    pub metric: &'static LabMetric,
    /// What of it.
    pub looked: CheckedQuantity,
    /// How it is compared.
    pub operator: Operator,
    /// With what.
    pub limit: f64,
}

/// A check and what it found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// As the user wrote it.
    pub expr: String,
    /// The value that was compared; `None` if there was none.
    pub value: Option<f64>,
    /// Whether it held. A check that could not be measured did not.
    pub pass: bool,
    /// The value in words, and how sure it is.
    pub shown: String,
}

impl MetricCheck {
    /// Reads it.
    ///
    /// # Errors
    /// It is none: what would be right.
    pub fn parse(text: &str) -> Result<MetricCheck, InvalidLab> {
        let fail = |why: String| InvalidLab(format!("check {}: {why}", quoted(text)));
        let expr = text.trim();
        let Some(at) = expr.find(['<', '>', '=', '!']) else {
            return Err(fail(format!("there is no comparison in it; {EXAMPLES}")));
        };
        let (operator, limit) = match &expr[at..] {
            r if r.starts_with("<=") => (Operator::AtMost, &r[2..]),
            r if r.starts_with(">=") => (Operator::AtLeast, &r[2..]),
            r if r.starts_with('<') => (Operator::Less, &r[1..]),
            r if r.starts_with('>') => (Operator::Greater, &r[1..]),
            _ => return Err(fail(format!("comparisons are <, <=, > and >=; {EXAMPLES}"))),
        };
        let words: Vec<&str> = expr[..at].split_whitespace().collect();
        let [name, looked] = words.as_slice() else {
            return Err(fail(format!(
                "a metric and ratio, lo, hi or change stand before the comparison; {EXAMPLES}"
            )));
        };
        let Some(metric) = figures::metric(name) else {
            let known: Vec<&str> = METRICS.iter().map(|m| m.short).collect();
            return Err(fail(format!("{} is not compared; known are {}", quoted(name), known.join(", "))));
        };
        let looked = match *looked {
            "ratio" => CheckedQuantity::Ratio,
            "lo" => CheckedQuantity::Low,
            "hi" => CheckedQuantity::High,
            "change" => CheckedQuantity::Change,
            other => {
                return Err(fail(format!(
                    "{} is not known of a metric; ratio, lo and hi (the ends of its interval) and change are",
                    quoted(other)
                )));
            }
        };
        let limit = parse_decimal(limit.trim()).filter(|n| *n > 0.0).ok_or_else(|| {
            fail(format!("the limit {} is no ratio such as 1.05; {EXAMPLES}", quoted(limit.trim())))
        })?;
        Ok(MetricCheck { expr: expr.to_owned(), metric, looked, operator, limit })
    }

    /// Compares it with what was measured.
    pub fn evaluate(&self, verdicts: &[ComparedMetric], since: &[RatioChange]) -> Checked {
        if self.looked == CheckedQuantity::Change {
            let found = since.iter().find(|s| s.metric.id == self.metric.id);
            return match found.map(|s| (s.change, s.ci95)) {
                None => self.failed(None, "not measured in both comparisons".to_owned()),
                Some((change, None)) => self.too_few(Some(change), ""),
                Some((change, ci95)) => self.compared(change, ci95),
            };
        }
        let Some(found) = verdicts.iter().find(|c| c.metric.id == self.metric.id) else {
            return self.failed(None, "not measured on both sides".to_owned());
        };
        match found.verdict {
            MetricVerdict::NotMeasured if found.at_least != [false; 2] => {
                let of = match found.at_least {
                    [true, true] => "both sides",
                    [true, false] => "A",
                    [false, _] => "B",
                };
                self.failed(
                    None,
                    format!("not measured: requests of {of} without a good response stand there"),
                )
            }
            MetricVerdict::NotMeasured => self.failed(None, "not measured: too few requests".to_owned()),
            MetricVerdict::TooFewRounds => {
                let ratio = found.ratio.filter(|_| self.looked == CheckedQuantity::Ratio);
                self.too_few(ratio, bound(found.at_least))
            }
            _ => {
                let value = match self.looked {
                    CheckedQuantity::Low => found.ci95.map(|ci| ci.0),
                    CheckedQuantity::High => found.ci95.map(|ci| ci.1),
                    _ => found.ratio,
                };
                value.map_or_else(
                    || self.failed(None, "not measured on both sides".to_owned()),
                    |value| self.bounded(found.at_least, value, found.ci95),
                )
            }
        }
    }

    /// Compares a ratio, of which one side may be a bound.
    fn bounded(&self, at_least: Pair<bool>, value: f64, ci95: Option<(f64, f64)>) -> Checked {
        let wants_less = matches!(self.operator, Operator::Less | Operator::AtMost);
        let side = match at_least {
            [false, false] => return self.compared(value, ci95),
            [true, _] => "A",
            [false, true] => "B",
        };
        let is = bound(at_least);
        // An upper bound proves that a ratio is small enough, a lower one that it is large enough.
        let proves = wants_less == at_least[0];
        let shown = format!("{is}{value:.3}: requests of {side} without a good response stand there");
        Checked { pass: proves && self.holds(value), ..self.failed(Some(value), shown) }
    }

    fn compared(&self, value: f64, ci95: Option<(f64, f64)>) -> Checked {
        let sure = match (self.looked, ci95) {
            (CheckedQuantity::Low | CheckedQuantity::High, _) | (_, None) => String::new(),
            (_, Some((low, high))) if self.holds(low) == self.holds(high) => {
                format!(", sure at 95 % ({low:.3} to {high:.3})")
            }
            (_, Some((low, high))) => {
                format!(", not sure: the 95 % interval {low:.3} to {high:.3} holds {}", self.limit)
            }
        };
        let pass = self.holds(value);
        Checked { pass, ..self.failed(Some(value), format!("{value:.3}{sure}")) }
    }

    fn too_few(&self, value: Option<f64>, bound: &str) -> Checked {
        let seen = value.map_or(String::new(), |value| format!("{bound}{value:.3}, but "));
        self.failed(value, format!("{seen}too few rounds: at least {LEAST_ROUNDS} must count"))
    }

    fn failed(&self, value: Option<f64>, shown: String) -> Checked {
        Checked { expr: self.expr.clone(), value, pass: false, shown }
    }

    fn holds(&self, value: f64) -> bool {
        match self.operator {
            Operator::Less => value < self.limit,
            Operator::AtMost => value <= self.limit,
            Operator::Greater => value > self.limit,
            Operator::AtLeast => value >= self.limit,
        }
    }
}

impl Rounds {
    /// The checks and what became of them.
    pub fn checked(&self, checks: &[MetricCheck], since: &[RatioChange]) -> Vec<Checked> {
        let verdicts = self.verdicts();
        checks.iter().map(|check| check.evaluate(&verdicts, since)).collect()
    }
}

/// What stands before a ratio of which one side is a bound.
fn bound(at_least: Pair<bool>) -> &'static str {
    match at_least {
        [true, false] => "at most ",
        [false, true] => "at least ",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, id, looked, limit) in [
            ("p99 ratio<1.05", "p99_us", CheckedQuantity::Ratio, 1.05),
            (" rate_rps lo >= 0.95", "rate_rps", CheckedQuantity::Low, 0.95),
            ("p99.9 hi<=2", "p999_us", CheckedQuantity::High, 2.0),
            ("cpu change<1.1", "cpu_us_per_request", CheckedQuantity::Change, 1.1),
        ] {
            let check = MetricCheck::parse(text).unwrap();
            assert_eq!((check.metric.id, check.looked, check.limit), (id, looked, limit), "{text}");
        }
    }

    #[test]
    fn says_what_would_be_right() {
        for (text, part) in [
            ("p99<1.05", "ratio, lo, hi or change"),
            ("p99 ratio", "no comparison"),
            ("p99 ratio=1", "comparisons are"),
            ("q99 ratio<1", "known are rate"),
            ("p99 mean<1", "lo and hi"),
            ("p99 ratio<5ms", "no ratio"),
            ("p99 ratio<0", "no ratio"),
            ("", "no comparison"),
        ] {
            let why = MetricCheck::parse(text).unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    fn compared() -> ComparedMetric {
        ComparedMetric {
            metric: figures::metric("p99").unwrap(),
            means: Some([1.0, 1.02]),
            at_least: [false; 2],
            ratio: Some(1.02),
            ci95: Some((0.98, 1.07)),
            p: Some(0.2),
            p_corrected: None,
            rounds: 5,
            rounds_of: 5,
            verdict: MetricVerdict::NoDifference,
            more_rounds: None,
            finds: 0.05,
        }
    }

    fn found(compared: &ComparedMetric, text: &str) -> Checked {
        MetricCheck::parse(text).unwrap().evaluate(std::slice::from_ref(compared), &[])
    }

    #[test]
    fn a_value_on_the_wrong_side_fails_and_says_how_sure_it_is() {
        let compared = compared();
        let found = |text: &str| found(&compared, text);
        assert!(found("p99 ratio<1.05").pass && found("p99 ratio<1.05").shown.contains("not sure"));
        assert!(found("p99 ratio<1.08").shown.contains("sure at 95 %"));
        assert!(!found("p99 hi<1.05").pass && found("p99 lo<1.05").pass);
        assert!(!found("rate ratio<2").pass && found("rate ratio<2").value.is_none());
        assert!(!found("p99 change<2").pass);
    }

    #[test]
    fn what_was_not_measured_passes_no_check() {
        let few = ComparedMetric { ci95: None, p: None, verdict: MetricVerdict::TooFewRounds, ..compared() };
        let said = found(&few, "p99 ratio<1.1");
        assert!(!said.pass && said.value == Some(1.02) && said.shown.contains("too few rounds"), "{said:?}");
        assert!(!found(&few, "p99 hi<9").pass && found(&few, "p99 hi<9").value.is_none());
        let none = ComparedMetric { means: None, ratio: None, verdict: MetricVerdict::NotMeasured, ..few };
        let said = found(&none, "p99 ratio<1.1");
        assert!(!said.pass && said.value.is_none() && said.shown.starts_with("not measured"), "{said:?}");
    }

    #[test]
    fn a_bound_passes_only_the_check_that_it_proves() {
        let b = ComparedMetric { at_least: [false, true], ..compared() };
        assert!(!found(&b, "p99 ratio<1.1").pass && !found(&b, "p99 hi<9").pass);
        assert!(found(&b, "p99 ratio>1.01").pass && !found(&b, "p99 ratio>1.03").pass);
        assert!(found(&b, "p99 ratio<1.1").shown.contains("at least 1.020: requests of B"));
        let a = ComparedMetric { at_least: [true, false], ..compared() };
        assert!(found(&a, "p99 ratio<1.1").pass && !found(&a, "p99 ratio>0.9").pass);
        let few = ComparedMetric { verdict: MetricVerdict::TooFewRounds, ..b };
        assert!(found(&few, "p99 ratio>1.01").shown.starts_with("at least 1.020, but too few rounds"));
    }
}
