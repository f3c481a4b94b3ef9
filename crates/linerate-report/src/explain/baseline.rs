//! A diagnosis that was kept, and what has become of its causes since.

use linerate_explain::Diagnosis;
use linerate_explain::baseline::{BaselinePace, Before, Change, Compared, compare, pace};
use linerate_explain::causes;
use linerate_explain::evidence::Proof;
use linerate_explain::stats::{Estimate, median};
use linerate_explain::times::{CallPart, CallTimes};
use serde_json::Value;

use super::words::time;
use crate::limits::{BASELINE_CAUSES, BASELINE_TIMES};
use crate::schema::diagnosis::SCHEMA;
use crate::units;

/// A document that `--json` wrote earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Its name, for reports.
    file: String,
    target: String,
    method: String,
    causes: Vec<Before>,
    times: CallTimes,
}

/// Why a document is of no use here: what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The problem, noun first.
    pub message: String,
    /// The advice after `hint:`.
    pub hint: String,
}

const MADE_BY: &str = "it is written by: linerate explain --json FILE URL";

impl Baseline {
    /// Reads a document, which `file` names.
    ///
    /// # Errors
    /// It is none, or none of a diagnosis that made calls.
    pub fn parse(file: &str, text: &str) -> Result<Baseline, Unfit> {
        let unfit = |message: String, hint: &str| Unfit {
            message: format!("{file} {message}"),
            hint: hint.to_owned(),
        };
        let document: Value = serde_json::from_str(text).map_err(|e| {
            let at = format!("line {}, column {}", e.line(), e.column());
            match e.is_eof() {
                _ if text.trim().is_empty() => unfit("is empty".to_owned(), MADE_BY),
                true => {
                    unfit(format!("ends in the middle ({at})"), "it was not written whole: make it again")
                }
                false => unfit(format!("is no JSON ({at})"), MADE_BY),
            }
        })?;
        match document["schema"].as_str() {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(unfit(
                    format!("is a document of {}, not of {SCHEMA}", printable(other)),
                    MADE_BY,
                ));
            }
            None => return Err(unfit(format!("has no \"schema\": {SCHEMA:?}"), MADE_BY)),
        }
        let word = |name: &str| document[name].as_str().map(str::to_owned);
        if document["mode"] == "passive" {
            return Err(unfit(
                "is of packets (--pcap, --capture), and has no calls to compare with".to_owned(),
                MADE_BY,
            ));
        }
        let (Some(target), true) = (word("target"), document["times_ms"].is_object()) else {
            return Err(unfit(
                "has no times of calls (\"times_ms\")".to_owned(),
                "an older linerate wrote it: make it again with this one, before the fix",
            ));
        };
        let mut times = CallTimes::default();
        for part in CallPart::ALL {
            *times.of_mut(part) = numbers(&document["times_ms"][part.name()]);
        }
        let causes = document["causes"].as_array().map_or(&[][..], Vec::as_slice);
        let causes = causes.iter().take(BASELINE_CAUSES).filter_map(|c| cause(c, &times)).collect();
        let method = word("method").unwrap_or_else(|| "GET".to_owned());
        Ok(Baseline { file: file.to_owned(), target, method, causes, times })
    }

    /// The parts of calls that its causes are in.
    pub fn parts(&self) -> Vec<CallPart> {
        let mut parts: Vec<CallPart> = self.causes.iter().map(|cause| cause.part).collect();
        parts.dedup();
        parts
    }

    /// Whether it is of the same call: also at another host or port, so that staging can be compared
    /// with production.
    ///
    /// # Errors
    /// It is of another one.
    pub fn is_of(&self, url: &str, method: &str) -> Result<(), Unfit> {
        let same = match (pieces(&self.target), pieces(url)) {
            (Some([scheme, _, path]), Some([other, _, rest])) => scheme == other && path == rest,
            _ => self.target == url,
        };
        if same && self.method == method {
            return Ok(());
        }
        Err(Unfit {
            message: format!(
                "{} is of {} {}, not of {method} {url}",
                self.file,
                printable(&self.method),
                printable(&self.target)
            ),
            hint: "compare the same call before and after the fix; host and port may be others".to_owned(),
        })
    }
}

/// Escapes text from a file for one line of output.
fn printable(text: &str) -> String {
    const MOST: usize = 200;
    text.chars().filter(|c| !c.is_control()).take(MOST).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(Value::as_f64).filter(|t| t.is_finite() && *t >= 0.0).take(BASELINE_TIMES).collect()
}

fn cause(value: &Value, times: &CallTimes) -> Option<Before> {
    let id = printable(value["id"].as_str()?);
    let part = value["part"]
        .as_str()
        .and_then(CallPart::named)
        .unwrap_or_else(|| causes::find(&id).map_or(CallPart::Call, |cause| cause.part));
    let figure = |v: &Value| v.as_f64().filter(|v| v.is_finite() && *v >= 0.0);
    let predicted = &value["predicted"];
    let ends = &predicted["ci95_ms"];
    let predicted = figure(&predicted["after_ms"])
        .zip(figure(&ends[0]).zip(figure(&ends[1])))
        .map(|(value, (low, high))| Estimate { value, low, high });
    let cost_ms = figure(&value["cost_ms"])?;
    let rest_ms = rest(part, times);
    Some(Before { id, cost_ms, part, times: times.of(part).to_vec(), rest_ms, predicted })
}

/// What a call on a connection that stands takes of such a part, milliseconds.
fn rest(part: CallPart, times: &CallTimes) -> f64 {
    match part {
        CallPart::New | CallPart::Full | CallPart::Lookup => median(&times.call),
        CallPart::Call | CallPart::FirstByte => 0.0,
    }
}

/// Scheme, host with port, and the rest of a URL.
fn pieces(url: &str) -> Option<[&str; 3]> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some([scheme, &rest[..end], &rest[end..]])
}

/// An earlier diagnosis compared with the present one.
#[derive(Clone, Debug, PartialEq)]
pub struct Since {
    /// The file that has it.
    pub file: String,
    /// The URL then, where host or port were others.
    pub elsewhere: Option<String>,
    /// Its causes, each with what became of it.
    pub causes: Vec<(Before, Compared)>,
    /// If it named no cause: the calls' times then and now.
    pub calls: Option<Calls>,
}

/// Calls then and now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calls {
    /// How they compare.
    pub pace: BaselinePace,
    /// In the middle, milliseconds.
    pub before_ms: f64,
    /// Median of the present calls, milliseconds.
    pub now_ms: f64,
    /// Probability that the difference is not chance.
    pub confidence: Option<f64>,
}

impl Since {
    /// Of a diagnosis that was made again.
    pub fn of(before: &Baseline, now: &Diagnosis) -> Since {
        let named = |id: &str| now.causes.iter().any(|c| c.id() == id && c.proof() > Proof::Possible);
        let one = |b: &Before| {
            (b.clone(), compare(b, now.times.of(b.part), rest(b.part, &now.times), named(&b.id)))
        };
        let calls = before.causes.is_empty().then(|| {
            let (then, now) = (before.times.of(CallPart::Call), now.times.of(CallPart::Call));
            let (pace, confidence) = pace(then, now);
            Calls { pace, before_ms: median(then), now_ms: median(now), confidence }
        });
        let elsewhere = (before.target != now.url).then(|| printable(&before.target));
        Since { file: before.file.clone(), elsewhere, causes: before.causes.iter().map(one).collect(), calls }
    }

    /// All causes of the earlier diagnosis are gone, and no call became slower.
    pub fn is_fine(&self) -> bool {
        self.causes.iter().all(|(_, c)| c.change == Change::Gone)
            && self.calls.is_none_or(|c| c.pace != BaselinePace::Slower)
    }

    /// In words, the most important last.
    pub(super) fn lines(&self, unicode: bool) -> Vec<String> {
        let t = |ms| time(ms, unicode);
        let mut lines = Vec::new();
        if let Some(url) = &self.elsewhere {
            lines.push(format!(
                "it is of {url}, another server: what differs between the two is compared as well"
            ));
        }
        for (before, compared) in self.causes.iter().rev() {
            if let Some((predicted, held)) = before.predicted.zip(compared.held) {
                lines.push(format!(
                    "predicted: {} ({} to {}), which {}",
                    t(predicted.value),
                    t(predicted.low),
                    t(predicted.high),
                    match held {
                        true => "held",
                        false if compared.now_ms < predicted.low => "did not hold: it is quicker",
                        false => "did not hold",
                    }
                ));
            }
            let name = if self.causes.len() > 1 { format!("{}: ", before.id) } else { String::new() };
            lines.push(format!("{name}{}", verdict(before, compared, unicode)));
        }
        if let Some(calls) = &self.calls {
            lines.push("it named no cause".to_owned());
            lines.push(format!(
                "{}: {} before, {} now{}",
                calls.pace.name(),
                t(calls.before_ms),
                t(calls.now_ms),
                calls.confidence.map_or(String::new(), confident)
            ));
        }
        lines
    }

    /// The heading of the comparison.
    pub(super) fn heading(&self) -> String {
        let ids: Vec<&str> = self.causes.iter().map(|(b, _)| b.id.as_str()).collect();
        if ids.is_empty() {
            format!("Since {}", self.file)
        } else {
            format!("Since {}: {}", self.file, ids.join(", "))
        }
    }
}

fn confident(confidence: f64) -> String {
    // No figure from some calls stands for certainty.
    format!(" ({:.0} % confident)", (100.0 * confidence).floor().min(99.0))
}

fn verdict(before: &Before, compared: &Compared, unicode: bool) -> String {
    let part = before.part.words().map_or(String::new(), |w| format!(" {w}"));
    let times =
        format!("{} before, {} now{part}", time(compared.before_ms, unicode), time(compared.now_ms, unicode));
    let end = match compared.change {
        Change::Unclear(0) => {
            "; the calls' times do not hold what it cost, and it is not named again".to_owned()
        }
        Change::Unclear(n) => {
            let what =
                if before.part == CallPart::Lookup { ["lookup", "lookups"] } else { ["call", "calls"] };
            format!("; {} more {} would tell", units::count(n as u64), if n == 1 { what[0] } else { what[1] })
        }
        _ => compared.confidence.map_or_else(|| " (it is named again)".to_owned(), confident),
    };
    format!("{}: {times}{end}", compared.change.name())
}
