//! Results of the runs, kept in a file (one line of JSON each), so that a table can be measured in
//! slices.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::case::{Case, ON_THE_WAY};

/// One diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiagnosisRun {
    pub(crate) case: String,
    pub(crate) rtt_ms: u64,
    /// `healthy`, `caused`, `inconclusive`.
    pub(crate) verdict: String,
    /// In order: id and cost in milliseconds.
    pub(crate) causes: Vec<(String, f64)>,
    /// How sure each of them is.
    #[serde(default)]
    pub(crate) proofs: Vec<String>,
    /// Ids of the causes that were ruled out.
    #[serde(default)]
    pub(crate) ruled_out: Vec<String>,
    /// From the start of the command to its end, seconds.
    pub(crate) took_s: f64,
    /// How far the parts of the call are from its time, a share of it.
    pub(crate) parts_off: Option<f64>,
    /// The prediction for the call once the correct cause is fixed.
    #[serde(default)]
    pub(crate) predicted: Option<PredictedCall>,
    /// Time of that part of the call without the fault, milliseconds, if measured.
    #[serde(default)]
    pub(crate) fixed_ms: Option<f64>,
    /// Why there was no diagnosis.
    pub(crate) error: Option<String>,
}

/// The prediction for the call after a fix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PredictedCall {
    /// Of which part of it.
    pub(crate) part: String,
    pub(crate) ms: f64,
    /// Its interval.
    #[serde(default)]
    pub(crate) between: Option<(f64, f64)>,
}

impl DiagnosisRun {
    /// Reads the command's document.
    pub(crate) fn of(case: &Case, rtt_ms: u64, took_s: f64, json: &Value) -> DiagnosisRun {
        let causes = json["causes"].as_array().into_iter().flatten();
        let cause = |c: &Value| Some((c["id"].as_str()?.to_owned(), c["cost_ms"].as_f64().unwrap_or(0.0)));
        DiagnosisRun {
            case: case.name.to_owned(),
            rtt_ms,
            verdict: json["verdict"].as_str().unwrap_or("none").to_owned(),
            causes: causes.filter_map(cause).collect(),
            proofs: texts(&json["causes"], "proof"),
            ruled_out: texts(&json["ruled_out"], "id"),
            took_s,
            parts_off: parts_off(&json["call"]),
            predicted: json["causes"].as_array().and_then(|all| {
                let right = all.iter().find(|c| c["id"] == case.truth)?;
                let part = right["part"].as_str()?.to_owned();
                let predicted = &right["predicted"];
                let end = |n: usize| predicted["ci95_ms"][n].as_f64();
                Some(PredictedCall { part, ms: predicted["after_ms"].as_f64()?, between: end(0).zip(end(1)) })
            }),
            fixed_ms: None,
            error: None,
        }
    }

    /// Somebody ended it (Ctrl-C reaches all that runs in the terminal): it says nothing.
    pub(crate) fn was_interrupted(&self) -> bool {
        let ends = ["exit status: 130:", "signal: "];
        self.error.as_deref().is_some_and(|error| ends.iter().any(|end| error.starts_with(end)))
    }

    /// From 1 where the right cause is named first, but for those that it is named behind; `None`:
    /// it is not named.
    pub(crate) fn rank(&self, truth: &str, behind: &[&str]) -> Option<usize> {
        let mut others = self.causes.iter().filter(|c| !behind.contains(&c.0.as_str()));
        others.position(|c| c.0 == truth).map(|i| i + 1)
    }

    /// How far what was predicted is from the call without the fault, as a share of that.
    pub(crate) fn prediction_off(&self) -> Option<f64> {
        let (predicted, fixed) = (self.predicted.as_ref()?, self.fixed_ms?);
        Some((predicted.ms - fixed).abs() / fixed.max(1e-3))
    }

    /// What the call takes without the fault is in the interval that was predicted, or within so
    /// many milliseconds of what was.
    pub(crate) fn prediction_holds(&self, within_ms: f64) -> Option<bool> {
        let (predicted, fixed) = (self.predicted.as_ref()?, self.fixed_ms?);
        let inside = predicted.between.is_some_and(|(low, high)| (low..=high).contains(&fixed));
        Some(inside || (predicted.ms - fixed).abs() <= within_ms)
    }

    /// Causes on the path that were named.
    pub(crate) fn on_the_way(&self) -> impl Iterator<Item = &str> {
        self.causes.iter().map(|c| c.0.as_str()).filter(|id| ON_THE_WAY.contains(id))
    }
}

/// A field of each entry.
fn texts(entries: &Value, field: &str) -> Vec<String> {
    let all = entries.as_array().into_iter().flatten();
    all.map(|entry| entry[field].as_str().unwrap_or_default().to_owned()).collect()
}

fn parts_off(call: &Value) -> Option<f64> {
    let part = |name: &str| call[name].as_f64();
    // Of a shorter call the clock's own reading is more than one per cent.
    let total = part("total_ms").filter(|t| *t >= 1.0)?;
    let parts = ["dns_ms", "connect_ms", "tls_ms", "send_ms", "wait_ms", "receive_ms"];
    let sum: f64 = parts.iter().filter_map(|n| part(n)).sum();
    Some((sum - total).abs() / total)
}

/// Median times of a call's parts in a diagnosis.
pub(crate) fn middles(json: &Value) -> BTreeMap<String, f64> {
    let middle = |times: &Value| {
        let mut all: Vec<f64> = times.as_array()?.iter().filter_map(Value::as_f64).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    };
    let parts = json["times_ms"].as_object().into_iter().flatten();
    parts.filter_map(|(part, times)| Some((part.clone(), middle(times)?))).collect()
}

/// All runs in a file; none if there is no file. A last line that was interrupted while it was
/// written is taken off the file, so that its run is made again.
pub(crate) fn read(path: &Path) -> Result<Vec<DiagnosisRun>> {
    let Ok(mut text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        println!("{}: its last line is incomplete, and is made again", path.display());
        std::fs::OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
        text.truncate(whole);
    }
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), i + 1))
    };
    text.lines().enumerate().map(parse).collect()
}

/// Adds a run to a file, by one write.
pub(crate) fn add(path: &Path, run: &DiagnosisRun) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{}\n", serde_json::to_string(run)?).as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::explain::case::PLAIN;

    #[test]
    fn a_measurement_goes_on_where_it_was_interrupted() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("results");
        let run = |case: &str| DiagnosisRun { case: case.to_owned(), ..DiagnosisRun::default() };
        assert_eq!(read(&path).expect("no file is no error"), []);
        add(&path, &run("a")).expect("written");
        let whole = std::fs::read(&path).expect("there");
        std::fs::write(&path, [whole.as_slice(), &whole[..20]].concat()).expect("written");
        assert_eq!(read(&path).expect("readable"), [run("a")]);
        add(&path, &run("b")).expect("written");
        assert_eq!(read(&path).expect("readable"), [run("a"), run("b")]);
        let ended = |words: &str| DiagnosisRun { error: Some(words.to_owned()), ..run("c") };
        assert!(
            ended("exit status: 130: ").was_interrupted() && ended("signal: 2 (SIGINT): ").was_interrupted()
        );
        assert!(!ended("exit status: 3: refused").was_interrupted() && !run("c").was_interrupted());
        std::fs::write(&path, "{\n").expect("written");
        assert!(read(&path).is_err(), "a whole line that is none is no interruption");
    }

    #[test]
    fn a_diagnosis_is_read() {
        let json = serde_json::json!({
            "verdict": "caused",
            "call": { "dns_ms": 0.0, "connect_ms": 1.0, "send_ms": 1.0, "wait_ms": 7.0, "receive_ms": 0.9, "total_ms": 10.0 },
            "causes": [{ "id": "slow-start", "cost_ms": 5.5, "part": "call", "predicted": { "after_ms": 4.4 } }, { "id": "redirects", "cost_ms": 1.0 }],
            "times_ms": { "call": [9.0, 4.0, 5.0], "with_lookup": [] },
        });
        assert_eq!(middles(&json), [("call".to_owned(), 5.0)].into());
        let mut run = DiagnosisRun::of(&Case { truth: "slow-start", ..PLAIN }, 40, 1.5, &json);
        assert_eq!(run.prediction_off(), None, "nothing to hold it against");
        run.fixed_ms = Some(4.0);
        assert!(run.prediction_off().is_some_and(|off| (off - 0.1).abs() < 1e-9));
        assert_eq!(
            (run.rank("slow-start", &[]), run.rank("redirects", &[]), run.rank("gc-pause", &[])),
            (Some(1), Some(2), None)
        );
        assert_eq!(run.rank("redirects", &["slow-start"]), Some(1), "what it is named behind");
        assert_eq!(run.on_the_way().collect::<Vec<_>>(), ["slow-start"]);
        assert!(run.parts_off.is_some_and(|p| (p - 0.01).abs() < 1e-9));
        let again: DiagnosisRun =
            serde_json::from_str(&serde_json::to_string(&run).expect("JSON")).expect("a run");
        assert_eq!(again, run);
        assert_eq!(DiagnosisRun::of(&PLAIN, 0, 0.0, &Value::Null).verdict, "none");
    }
}
