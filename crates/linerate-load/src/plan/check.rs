//! Checks such as `p99<50ms`, `errors<0.1%`, `rate>10k`: parses them and compares them with an
//! outcome.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::InvalidPlan;
use super::units::{parse_decimal, parse_scaled, quoted, shown_number, shown_us};
use crate::Outcome;
use crate::outcome::{Latency, NamedFigures, Window};

/// The forms of a check, for messages.
const EXAMPLES: &str = "write for example p99<50ms, mean<=2ms, errors<0.1%, errors<=0, rate>10k, answered>=1000 or login.p99<50ms";

/// `p99<50ms`: something measured, a comparison, a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// As the user wrote it.
    pub expr: String,
    /// Of which requests, by their name; `None`: of all.
    #[serde(default)]
    pub name: Option<String>,
    /// The quantity that is compared with the limit.
    pub metric: Metric,
    /// How it is compared.
    pub comparison: Comparison,
    /// The limit, in the metric's unit (microseconds, requests/s, a share of 1, a count).
    pub limit: f64,
}

/// The quantity that a check compares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Metric {
    /// A percentile (0 to 100) of the latency, microseconds: from due in an open loop, from sent in a closed one.
    Percentile(f64),
    /// Mean of that latency, microseconds.
    Mean,
    /// Largest, microseconds.
    Max,
    /// Smallest, microseconds.
    Min,
    /// Answered requests per second.
    Rate,
    /// (failed + unknown + bad + unsent + unsolicited) / (sent + unsent), a share of 1.
    ErrorShare,
    /// failed + unknown + bad + unsent + unsolicited, a count.
    Errors,
    /// Requests answered, a count.
    Answered,
    /// Responses that no request had asked for, a count.
    Unsolicited,
    /// Responses in another order than their requests (with a tag), a count.
    OutOfOrder,
    /// Responses that were as their step expects, a share of 1 of all such steps' requests.
    ExpectPass,
}

/// How a check compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// A check and what it found.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckResult {
    /// As the user wrote it.
    pub expr: String,
    /// The measured value, in the metric's unit; `None` if there was no sample.
    pub value: Option<f64>,
    /// Requests without a good response stand there: the true value is at least that.
    pub at_least: bool,
    /// Whether it held. A check that could not be measured did not.
    pub pass: bool,
    /// The value in words (`61.2 ms`), or the reason for its absence.
    pub shown: String,
}

impl Check {
    /// Reads a metric, a comparison and a limit. The error says what would be right.
    ///
    /// ```
    /// use linerate_load::plan::Check;
    ///
    /// assert!(Check::parse("p99<50ms").is_ok());
    /// assert!(Check::parse("p99 is low").is_err());
    /// ```
    pub fn parse(expr: &str) -> Result<Check, InvalidPlan> {
        let fail = |why: String| format!("check {}: {why}", quoted(expr));
        let text = expr.trim();
        // A request's name may hold an equals sign; a limit holds no comparison.
        let last = text.rfind(['<', '>']).or_else(|| text.find(['=', '!', '≤', '≥']));
        let Some(at) = last else {
            return Err(fail(format!("there is no comparison in it; {EXAMPLES}")).into());
        };
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let (comparison, limit) = match rest {
            r if r.starts_with("<=") => (Comparison::AtMost, &r[2..]),
            r if r.starts_with(">=") => (Comparison::AtLeast, &r[2..]),
            r if r.starts_with('<') => (Comparison::Less, &r[1..]),
            r if r.starts_with('>') => (Comparison::Greater, &r[1..]),
            _ => return Err(fail(format!("comparisons are <, <=, > and >=; {EXAMPLES}")).into()),
        };
        let limit = limit.trim();
        let (request, metric) = parse_named(name).map_err(fail)?;
        let (metric, limit) = parse_limit(metric, limit).map_err(fail)?;
        Ok(Check { expr: text.to_owned(), name: request.map(str::to_owned), metric, comparison, limit })
    }

    /// Holds it against what was measured.
    pub fn evaluate(&self, outcome: &Outcome) -> CheckResult {
        let measured = match self.name.as_ref().map(|name| outcome.by_name.get(name)) {
            // If all requests have one name, their figures are those of the run.
            None | Some(None) => measure(self.metric, outcome),
            Some(Some(named)) => measure(self.metric, &alone(named, outcome)),
        };
        let pass = measured.as_ref().is_ok_and(|measured| self.holds(measured));
        let shown = match &measured {
            Ok(Measured { value, bound: Bound::None }) => self.metric.shown(*value),
            Ok(Measured { value, bound: Bound::Beyond }) => {
                format!(">= {}: a request without a good response stands there", self.metric.shown(*value))
            }
            Ok(Measured { value, bound: Bound::Floor }) => {
                let counted = "requests without a good response count with the time they were waited for";
                format!(">= {}: {counted}", self.metric.shown(*value))
            }
            Err(why) => format!("not measured: {why}"),
        };
        let at_least = measured.as_ref().is_ok_and(|measured| measured.bound != Bound::None);
        let value = measured.ok().map(|measured| measured.value);
        CheckResult { expr: self.expr.clone(), value, at_least, pass, shown }
    }

    fn holds(&self, measured: &Measured) -> bool {
        // A request without a good response is later than any limit.
        let value = if measured.bound == Bound::Beyond { f64::INFINITY } else { measured.value };
        match self.comparison {
            Comparison::Less => value < self.limit,
            Comparison::AtMost => value <= self.limit,
            Comparison::Greater => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
        }
    }
}

/// The measured value, in the metric's unit.
#[derive(Clone, Copy, Debug)]
struct Measured {
    value: f64,
    bound: Bound,
}

/// What requests without a good response do to a measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    None,
    /// One of them stands there: beyond every limit.
    Beyond,
    /// They are in it with the least that they can be.
    Floor,
}

impl Metric {
    /// Whether it is a latency, microseconds.
    pub fn is_latency(self) -> bool {
        matches!(self, Metric::Percentile(_) | Metric::Mean | Metric::Max | Metric::Min)
    }

    /// A value of the metric with its unit.
    pub fn shown(self, value: f64) -> String {
        match self {
            Metric::Percentile(_) | Metric::Mean | Metric::Max | Metric::Min => shown_us(value),
            Metric::Rate => format!("{}/s", shown_number(value)),
            Metric::ErrorShare | Metric::ExpectPass => format!("{} %", shown_number(value * 100.0)),
            Metric::Errors | Metric::Answered | Metric::Unsolicited | Metric::OutOfOrder => {
                format!("{value:.0}")
            }
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
        })
    }
}

/// A metric, or that of requests of a name: `login.p99`.
fn parse_named(text: &str) -> Result<(Option<&str>, Metric), String> {
    let whole = parse_metric(text);
    if let Ok(metric) = whole {
        return Ok((None, metric));
    }
    let split = |(at, _): (usize, &str)| Some((text[..at].trim(), parse_metric(text[at + 1..].trim()).ok()?));
    match text.match_indices('.').find_map(split) {
        Some(("", _)) | None => whole.map(|metric| (None, metric)),
        Some((_, Metric::Unsolicited | Metric::OutOfOrder)) => {
            Err("unsolicited and out_of_order are counted for the whole run alone".to_owned())
        }
        Some((name, metric)) => Ok((Some(name), metric)),
    }
}

/// The part of a run that consists of requests of one name, as a run of its own.
fn alone(named: &NamedFigures, whole: &Outcome) -> Outcome {
    let (good, waited) = (named.latency.clone(), named.waited.clone());
    let latency = match &whole.latency.from_due {
        Some(_) => Latency { from_due: Some(good), waited, ..Latency::default() },
        None => Latency { from_sent: good, waited, ..Latency::default() },
    };
    Outcome {
        duration: whole.duration,
        window: Window { answered: named.in_window, ..whole.window },
        requests: named.requests,
        bad: named.bad,
        latency,
        ..Outcome::default()
    }
}

/// The metric of a name; `errors` may yet become a share by its limit's unit.
fn parse_metric(name: &str) -> Result<Metric, String> {
    match name {
        "mean" | "avg" => return Ok(Metric::Mean),
        "min" => return Ok(Metric::Min),
        "max" => return Ok(Metric::Max),
        "rate" => return Ok(Metric::Rate),
        "errors" => return Ok(Metric::Errors),
        "answered" => return Ok(Metric::Answered),
        "unsolicited" => return Ok(Metric::Unsolicited),
        "out_of_order" => return Ok(Metric::OutOfOrder),
        "expect.pass" => return Ok(Metric::ExpectPass),
        "median" => return Ok(Metric::Percentile(50.0)),
        _ => {}
    }
    let percent = name.strip_prefix('p').and_then(parse_percent);
    percent.map(Metric::Percentile).ok_or_else(|| {
        let names =
            "p50, p99, p99.9 (or p999), mean, min, max, rate, errors, answered, expect.pass, unsolicited and out_of_order";
        format!("{} is not measured; known are {names}", quoted(name))
    })
}

/// `50`, `99.9`, and `999`, `9999` as the reports name them: nines after the point are run on.
fn parse_percent(digits: &str) -> Option<f64> {
    let percent = parse_decimal(digits)?;
    if percent <= 100.0 {
        return Some(percent);
    }
    let nines = digits.len() >= 3 && digits.bytes().all(|b| b == b'9');
    if nines { format!("99.{}", &digits[2..]).parse().ok() } else { None }
}

/// The limit in the metric's unit; with `%` errors are a share.
fn parse_limit(metric: Metric, text: &str) -> Result<(Metric, f64), String> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let Some(number) = parse_decimal(&text[..digits]) else {
        return Err(format!("the limit {} does not begin with a number; {EXAMPLES}", quoted(text)));
    };
    let unit = text[digits..].trim();
    if metric.is_latency() {
        let per_unit = match unit {
            "us" | "µs" | "μs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            "ns" => 1e-3,
            "" => return Err(format!("the limit needs a unit: {number}us, {number}ms or {number}s")),
            _ => return Err(format!("{} is no unit of time; use us, ms or s", quoted(unit))),
        };
        return Ok((metric, number * per_unit));
    }
    if metric == Metric::ExpectPass && unit != "%" {
        return Err(format!("expect.pass is a share, such as 99%, not {}", quoted(text)));
    }
    if matches!(metric, Metric::Errors | Metric::ExpectPass) {
        let share = if metric == Metric::Errors { Metric::ErrorShare } else { metric };
        return match number {
            _ if unit != "%" => parse_count(metric, text),
            n if n <= 100.0 => Ok((share, n / 100.0)),
            _ => Err("a share is at most 100%".to_owned()),
        };
    }
    parse_count(metric, text)
}

fn parse_count(metric: Metric, text: &str) -> Result<(Metric, f64), String> {
    let count = if metric == Metric::Rate { text.strip_suffix("/s").unwrap_or(text) } else { text };
    parse_scaled(count.trim()).map(|limit| (metric, limit)).ok_or_else(|| match metric {
        Metric::Errors => format!("errors are a count or a share, such as 10 or 0.1%, not {}", quoted(text)),
        Metric::Rate => {
            format!("a rate is requests per second, such as 500, 10k or 1.5M, not {}", quoted(text))
        }
        _ => format!("it is a count, such as 1000, 10k or 1M, not {}", quoted(text)),
    })
}

fn measure(metric: Metric, outcome: &Outcome) -> Result<Measured, String> {
    let requests = &outcome.requests;
    let exactly = |value| Ok(Measured { value, bound: Bound::None });
    if metric.is_latency() {
        let latency = outcome.latency.main();
        if latency.is_empty() {
            return Err(match requests.due() {
                0 => "no request was sent".to_owned(),
                _ => "no latencies were recorded, as in every run with --throughput".to_owned(),
            });
        }
        let percentile = |percent| {
            let found = latency.percentile(percent);
            let bound = if found.at_least { Bound::Beyond } else { Bound::None };
            Ok(Measured { value: found.ns as f64 / 1e3, bound })
        };
        return match metric {
            Metric::Percentile(percent) => percentile(percent),
            Metric::Max => percentile(100.0),
            Metric::Mean => {
                let (ns, at_least) = latency.mean_ns();
                Ok(Measured { value: ns / 1e3, bound: if at_least { Bound::Floor } else { Bound::None } })
            }
            _ if latency.good.count() == 0 => Err("no response was good".to_owned()),
            _ => exactly(latency.good.min_ns() as f64 / 1e3),
        };
    }
    let errors = outcome.errors() as f64;
    match metric {
        Metric::ExpectPass if requests.expecting == 0 => Err("no step expects anything".to_owned()),
        Metric::ExpectPass => exactly(requests.met as f64 / requests.expecting as f64),
        Metric::Answered => exactly(requests.answered as f64),
        Metric::Unsolicited => exactly(requests.unsolicited_responses as f64),
        Metric::OutOfOrder => exactly(requests.out_of_order_responses as f64),
        Metric::Rate if outcome.window.time.is_zero() => Err("the run took no time".to_owned()),
        Metric::Rate => exactly(outcome.good_rate_rps()),
        _ if requests.due() == 0 => Err("no request was sent".to_owned()),
        Metric::ErrorShare => exactly(errors / requests.due() as f64),
        _ => exactly(errors),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::{Bad, Requests};

    #[test]
    fn reads_what_people_write() {
        use Comparison::{AtLeast, AtMost, Greater, Less};
        for (expr, metric, comparison, limit) in [
            ("p99<50ms", Metric::Percentile(99.0), Less, 50_000.0),
            (" p50 <= 800 us ", Metric::Percentile(50.0), AtMost, 800.0),
            ("p99.9<1s", Metric::Percentile(99.9), Less, 1e6),
            ("p999<1s", Metric::Percentile(99.9), Less, 1e6),
            ("p9999<1.5s", Metric::Percentile(99.99), Less, 1.5e6),
            ("p100<1s", Metric::Percentile(100.0), Less, 1e6),
            ("p0>=1us", Metric::Percentile(0.0), AtLeast, 1.0),
            ("median<1ms", Metric::Percentile(50.0), Less, 1000.0),
            ("mean<2ms", Metric::Mean, Less, 2000.0),
            ("min>10us", Metric::Min, Greater, 10.0),
            ("max<1s", Metric::Max, Less, 1e6),
            ("rate>10k", Metric::Rate, Greater, 10_000.0),
            ("rate>=1.5M/s", Metric::Rate, AtLeast, 1_500_000.0),
            ("errors<0.1%", Metric::ErrorShare, Less, 0.001),
            ("errors <= 5 %", Metric::ErrorShare, AtMost, 0.05),
            ("errors<10", Metric::Errors, Less, 10.0),
            ("errors<=0", Metric::Errors, AtMost, 0.0),
            ("answered>=1M", Metric::Answered, AtLeast, 1e6),
            ("unsolicited<=0", Metric::Unsolicited, AtMost, 0.0),
            ("out_of_order<1", Metric::OutOfOrder, Less, 1.0),
            ("expect.pass>99%", Metric::ExpectPass, Greater, 0.99),
        ] {
            let expected = Check { expr: expr.trim().to_owned(), name: None, metric, comparison, limit };
            assert_eq!(Check::parse(expr), Ok(expected), "{expr}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let wrong = [
            "",
            "p99",
            "p99=50ms",
            "p99!=5ms",
            "p99<",
            "p99<fast",
            "p99<50",
            "p99<50k",
            "p101<5ms",
            "p990<5ms",
            "q99<5ms",
            "latency<5ms",
            "errors<x",
            "errors<5ms",
            "errors<101%",
            "rate>10%",
            "answered>1s",
            "<5",
            "p<5ms",
            "rate>-5",
            "expect.pass>9",
            "expect.pass>101%",
        ];
        let said: String =
            wrong.iter().map(|text| format!("{text:12} -> {}\n", Check::parse(text).unwrap_err())).collect();
        insta::assert_snapshot!(said);
    }

    #[test]
    fn names_stand_before_what_is_measured() {
        for (expr, name, metric) in [
            ("login.p99<50ms", "login", Metric::Percentile(99.0)),
            ("login.p99.9<50ms", "login", Metric::Percentile(99.9)),
            ("api.v1.p99.9 <50ms", "api.v1", Metric::Percentile(99.9)),
            ("GET /?a=b.errors<1%", "GET /?a=b", Metric::ErrorShare),
            ("the list.rate>10", "the list", Metric::Rate),
        ] {
            let check = Check::parse(expr).unwrap();
            assert_eq!((check.name.as_deref(), check.metric), (Some(name), metric), "{expr}");
        }
        assert!(Check::parse("login.unsolicited<1").unwrap_err().to_string().contains("whole run alone"));
        assert!(Check::parse(".p99<1s").is_err() && Check::parse("login.q99<1s").is_err());
        let mut outcome = outcome();
        let mut slow = NamedFigures {
            requests: Requests { sent: 10, answered: 8, failed: 2, ..Requests::default() },
            in_window: 8,
            ..NamedFigures::default()
        };
        slow.latency.record(5_000_000_000, 8);
        outcome.by_name.insert("login".to_owned(), slow);
        assert_eq!(result("login.errors<1%", &outcome), (false, Some(0.2), "20 %".to_owned()));
        assert_eq!(result("login.p50<1s", &outcome).2, "5 s");
        assert_eq!(result("login.rate>1", &outcome), (false, Some(0.8), "0.8/s".to_owned()));
        assert!(result("p50<1s", &outcome).0);
    }

    fn outcome() -> Outcome {
        let time = Duration::from_secs(10);
        let mut outcome = Outcome {
            duration: time,
            window: Window { answered: 990, time, ..Window::default() },
            requests: Requests { sent: 1000, answered: 990, failed: 6, unknown: 4, ..Requests::default() },
            bad: Bad { status: 8, body: 1, tag: 1, ..Bad::default() },
            ..Outcome::default()
        };
        outcome.latency.from_sent.record(1_000_000, 980);
        outcome.latency.from_sent.record(64_000_000, 10);
        outcome
    }

    fn result(expr: &str, outcome: &Outcome) -> (bool, Option<f64>, String) {
        let found = Check::parse(expr).unwrap().evaluate(outcome);
        assert_eq!(found.expr, expr);
        (found.pass, found.value, found.shown)
    }

    #[test]
    fn both_sides_of_each_comparison() {
        let outcome = outcome();
        let pass = |expr: &str| result(expr, &outcome).0;
        assert_eq!((pass("answered<990"), pass("answered<991")), (false, true));
        assert_eq!((pass("answered<=989"), pass("answered<=990")), (false, true));
        assert_eq!((pass("answered>990"), pass("answered>989")), (false, true));
        assert_eq!((pass("answered>=991"), pass("answered>=990")), (false, true));
    }

    #[test]
    fn metrics_come_from_the_figures() {
        let mut outcome = outcome();
        assert_eq!(result("rate>98", &outcome), (false, Some(98.0), "98/s".to_owned()));
        assert_eq!(result("errors<21", &outcome), (true, Some(20.0), "20".to_owned()));
        assert_eq!(result("errors<2%", &outcome), (false, Some(0.02), "2 %".to_owned()));
        let (pass, value, shown) = result("p50<1.1ms", &outcome);
        assert!(pass && (value.unwrap() - 1000.0).abs() < 1.0 && shown == "1 ms", "{value:?} {shown}");
        assert!(!result("p999<50ms", &outcome).0);
        assert!(!result("max<50ms", &outcome).0);
        assert!(result("min<=1.001ms", &outcome).0);
        assert!(result("mean<2ms", &outcome).0);
        // In an open loop the check uses the latency from when a request was due.
        let mut from_due = crate::histogram::Histogram::new();
        from_due.record(5_000_000_000, 990);
        outcome.latency.from_due = Some(from_due);
        assert_eq!(result("p50<1.1ms", &outcome).2, "5 s");
    }

    #[test]
    fn what_was_never_sent_is_an_error_and_later_than_any_limit() {
        let mut outcome = outcome();
        outcome.requests.unsent = 1000;
        assert_eq!(result("errors<51%", &outcome), (false, Some(0.51), "51 %".to_owned()));
        outcome.latency.from_due = Some(outcome.latency.from_sent.clone());
        outcome.latency.waited.record(2_000_000, 1000);
        let (pass, value, shown) = result("p99<1h".replace("1h", "3600s").as_str(), &outcome);
        assert!(!pass && value.unwrap() > 63_000.0, "{value:?}");
        assert_eq!(shown, ">= 64 ms: a request without a good response stands there");
        assert!(result("p99>=1s", &outcome).0);
        assert!(result("p49<1.1ms", &outcome).0);
    }

    #[test]
    fn what_cannot_be_measured_fails_and_says_why() {
        let nothing = Outcome::default();
        let why = |expr: &str, outcome: &Outcome| {
            let (pass, value, shown) = result(expr, outcome);
            assert_eq!((pass, value), (false, None), "{expr}");
            shown
        };
        assert_eq!(why("p99<1s", &nothing), "not measured: no request was sent");
        assert_eq!(why("errors<1%", &nothing), "not measured: no request was sent");
        assert_eq!(why("errors<=0", &nothing), "not measured: no request was sent");
        assert_eq!(why("rate>=0", &nothing), "not measured: the run took no time");
        assert_eq!(result("answered>=1", &nothing), (false, Some(0.0), "0".to_owned()));
        let throughput = Outcome { latency: Default::default(), ..outcome() };
        let words = "not measured: no latencies were recorded, as in every run with --throughput";
        assert_eq!(why("p99<1s", &throughput), words);
    }
}
