//! The end of a run: thresholds, summary, exit code.

use std::sync::Arc;
use std::time::Duration;

use linerate_script::{
    CallEnd, JudgedThreshold, RunMetrics, ScriptOptions, ScriptUser, judge, summary_data, summary_export,
    text_summary,
};
use serde_json::{Value, json};

use super::fault::{K6Exit, K6Fault};
use super::shared::{EarlyEnd, RunShared, locked};
use crate::args::K6RunArgs;
use crate::fault::said;
use crate::terminal;

/// From this share on, scripts leave little time for requests.
const BUSY_SCRIPTS: f64 = 0.8;

/// A run that is over.
pub(super) struct RunEnd<'a> {
    pub(super) args: &'a K6RunArgs,
    pub(super) options: &'a ScriptOptions,
    pub(super) shared: &'a RunShared,
    /// Of the whole run.
    pub(super) metrics: RunMetrics,
    /// The script exports `handleSummary`.
    pub(super) has_summary: bool,
    pub(super) elapsed: Duration,
    /// How long scripts ran in it, over all threads.
    pub(super) scripts: Duration,
    pub(super) threads: usize,
    pub(super) setup: Option<Arc<str>>,
    /// Why setup or teardown failed.
    pub(super) fault: Option<K6Fault>,
}

impl RunEnd<'_> {
    /// Prints and writes results. `summarize` calls `handleSummary` with its data.
    pub(super) fn finish(
        self,
        user: &mut ScriptUser,
        summarize: impl FnOnce(&mut ScriptUser, String) -> CallEnd,
    ) -> Result<K6Exit, K6Fault> {
        let (metrics, options) = (&self.metrics, self.options);
        let judged = judge(metrics, &options.thresholds, self.elapsed);
        let judged = judged.map_err(|why| K6Fault::new(K6Exit::BadOptions, why.to_string()))?;
        let data = summary_data(metrics, options, &judged, self.elapsed, self.setup.as_deref());
        if let Some(file) = &self.args.summary_export {
            let mut export = summary_export(&data);
            export["linerate"] = self.accounting();
            write(&file.display().to_string(), format!("{export:#}\n").as_bytes())?;
        }
        if !self.args.no_summary {
            let own =
                if self.has_summary { self.own_summary(summarize(user, data.to_string()))? } else { false };
            if !own {
                print(&text_summary(&data, " ", self.prints_colors()))?;
            }
        }
        self.warn_of_scripts();
        self.warn_of_failed();
        Ok(self.exit(&judged))
    }

    /// Prints and writes what `handleSummary` returned; whether it returned anything.
    fn own_summary(&self, end: CallEnd) -> Result<bool, K6Fault> {
        let text = match end {
            CallEnd::Returned(Some(text)) => text,
            CallEnd::Returned(None) => return Ok(false),
            other => {
                let why = if let CallEnd::Threw(why) = other { why } else { "it took too long".to_owned() };
                eprintln!("error: handleSummary: {why}");
                return Ok(false);
            }
        };
        let all: Value = serde_json::from_str(&text)
            .map_err(|e| K6Fault::new(K6Exit::Other, format!("handleSummary returned no object: {e}")))?;
        for (name, content) in all.as_object().into_iter().flatten() {
            let content = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
            match name.as_str() {
                "stdout" => print(&content)?,
                "stderr" => eprint!("{content}"),
                // As in k6, a file that cannot be written is told, and the run keeps its exit code.
                file => {
                    if let Err(why) = std::fs::write(file, content.as_bytes()) {
                        eprintln!("error: handleSummary: cannot write {file}: {}", said(&why));
                    }
                }
            }
        }
        Ok(true)
    }

    fn prints_colors(&self) -> bool {
        !self.args.no_color && terminal::style(&std::io::stdout()).colour
    }

    /// Counts of ours, which k6's summary has not.
    fn accounting(&self) -> Value {
        let shared = self.shared;
        json!({
            "iterations_begun": RunShared::count(&shared.begun),
            "iterations_completed": RunShared::count(&shared.completed),
            "iterations_interrupted": RunShared::count(&shared.interrupted),
            "run_s": self.elapsed.as_secs_f64(),
            "client": {
                "script_us": self.scripts.as_secs_f64() * 1e6 / (RunShared::count(&shared.begun).max(1) as f64),
                "script_share": self.script_share(),
                "threads": self.threads,
            },
            "ended_early": shared.ended().map(|end| match end {
                EarlyEnd::Aborted(reason) => format!("aborted: {reason}"),
                EarlyEnd::Threshold(words) | EarlyEnd::Broken(words) => words,
                EarlyEnd::Interrupted => "interrupted".to_owned(),
            }),
        })
    }

    /// How much of the threads' time scripts took.
    fn script_share(&self) -> f64 {
        let whole = self.elapsed.as_secs_f64() * self.threads as f64;
        if whole > 0.0 { (self.scripts.as_secs_f64() / whole).min(1.0) } else { 0.0 }
    }

    /// Names scripts that limit a run, unless it is too short to tell.
    fn warn_of_scripts(&self) {
        let share = self.script_share();
        if share > BUSY_SCRIPTS && self.elapsed > Duration::from_secs(1) {
            let (percent, threads) = (share * 100.0, self.threads);
            eprintln!(
                "warning: the script's own code took {percent:.0} % of the time of {threads} thread(s): it limits this run"
            );
        }
    }

    /// Names failed requests where no threshold does: those on durations take a quick failure for a quick response.
    fn warn_of_failed(&self) {
        let failed = self.metrics.named("http_req_failed").map(|metric| &metric.sink);
        let failed = failed.and_then(|sink| sink.value("rate", self.elapsed.as_secs_f64())).unwrap_or(0.0);
        let is_judged = self
            .options
            .thresholds
            .iter()
            .any(|t| ["http_req_failed", "checks"].contains(&t.metric.as_str()));
        if failed > 0.0 && !is_judged {
            let percent = failed * 100.0;
            eprintln!(
                "warning: {percent:.2} % of requests failed, and no threshold is on http_req_failed or checks"
            );
        }
    }

    fn exit(self, judged: &[JudgedThreshold]) -> K6Exit {
        if let Some(fault) = self.fault {
            eprintln!("error: {}", fault.words);
            return fault.exit;
        }
        match self.shared.ended() {
            Some(EarlyEnd::Aborted(reason)) => {
                eprintln!("error: test aborted: {reason}");
                return K6Exit::ScriptAborted;
            }
            Some(EarlyEnd::Broken(why)) => {
                eprintln!("error: {why}");
                return K6Exit::Other;
            }
            Some(EarlyEnd::Interrupted) => return K6Exit::Interrupted,
            Some(EarlyEnd::Threshold(_)) | None => {}
        }
        let failed: Vec<_> = judged.iter().filter(|t| !t.holds).map(|t| t.key.as_str()).collect();
        if !failed.is_empty() {
            eprintln!("error: thresholds on metrics '{}' have been crossed", failed.join(", "));
            return K6Exit::ThresholdsFailed;
        }
        let failed = locked(&self.shared.failed).clone();
        match failed {
            Some(reason) => {
                eprintln!("error: test failed: {reason}");
                K6Exit::MarkedFailed
            }
            None => K6Exit::Fine,
        }
    }
}

fn print(text: &str) -> Result<(), K6Fault> {
    terminal::print(text).map_err(|fault| K6Fault::new(K6Exit::Other, fault.to_string()))
}

fn write(file: &str, content: &[u8]) -> Result<(), K6Fault> {
    std::fs::write(file, content).map_err(|e| K6Fault::new(K6Exit::Other, format!("{file}: {}", said(&e))))
}
