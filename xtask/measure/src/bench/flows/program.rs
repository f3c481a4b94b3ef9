//! The programs of `bench flows`: how each is told of the journey, and how its report is read.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::scenario::{DATA, K6, LOCUST, SCRIPT};
use crate::bench::Tools;
use crate::bench::contender::{Contender, ContenderReport};
use crate::bench::tools::PROXY_VARIABLES;
use xtask::shell;

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowProgram {
    /// `linerate load --plan`.
    Data,
    /// `linerate k6 run`.
    Script,
    /// k6 with the same script.
    KSix,
    /// Locust, with the same journey in Python.
    Locust,
}

/// Users for a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct JourneyRun {
    pub(super) users: u32,
    /// From the first request on.
    pub(super) seconds: f64,
    /// Two steps and a pause that lasts until the end, not five steps again and again.
    pub(super) thinking: bool,
}

impl FlowProgram {
    pub(super) const ALL: [FlowProgram; 4] =
        [FlowProgram::Data, FlowProgram::Script, FlowProgram::KSix, FlowProgram::Locust];

    pub(super) fn name(self) -> &'static str {
        match self {
            FlowProgram::Data => DATA,
            FlowProgram::Script => SCRIPT,
            FlowProgram::KSix => K6,
            FlowProgram::Locust => LOCUST,
        }
    }

    /// The program to install, of a peer.
    pub(super) fn peer(self) -> Option<&'static str> {
        match self {
            FlowProgram::Data | FlowProgram::Script => None,
            FlowProgram::KSix => Some("k6"),
            FlowProgram::Locust => Some("locust"),
        }
    }

    /// Whether it takes part. Users of Locust without end are not measured.
    pub(super) fn can(self, thinking: bool) -> bool {
        !(thinking && self == FlowProgram::Locust)
    }

    /// Program and arguments.
    pub(super) fn command(
        self,
        t: &Tools,
        run: &JourneyRun,
        at: SocketAddr,
        dir: &Path,
    ) -> Result<Vec<String>> {
        let linerate = t.linerate.display().to_string();
        let (users, seconds) = (run.users, run.seconds);
        let what = if run.thinking { "memory" } else { "journey" };
        let file = |ending: &str| shell::root().join(format!("bench/journey/{what}.{ending}"));
        let (plan, script) = (file("toml").display().to_string(), file("js").display().to_string());
        let limits = if run.thinking {
            format!("-e USERS={users} -e TIME={seconds}s")
        } else {
            format!("-u {users} -d {seconds}s")
        };
        let arguments = format!("run -q {limits} -e BASE=http://{at}");
        let (program, words) = match self {
            FlowProgram::Data => {
                let json = dir.join("outcome.json").display().to_string();
                let words = format!("load http://{at}/ -t 1 --users {users} -d {seconds}s --quiet --plan");
                return Ok([linerate]
                    .into_iter()
                    .chain(split(&words))
                    .chain([plan, "--json".into(), json])
                    .collect());
            }
            FlowProgram::Script => (linerate, split(&format!("k6 {arguments}")).chain([script]).collect()),
            FlowProgram::KSix => (found("k6")?, split(&arguments).chain([script]).collect::<Vec<_>>()),
            FlowProgram::Locust => {
                let words = format!(
                    "--headless --json -u {users} -r {users} -t {}s --host http://{at} -f",
                    seconds.ceil()
                );
                (found("locust")?, split(&words).chain([file("py").display().to_string()]).collect())
            }
        };
        let unset = PROXY_VARIABLES.iter().flat_map(|name| ["-u", name]).map(str::to_owned);
        let set = ["GOMAXPROCS=1", "K6_NO_USAGE_REPORT=true"].map(str::to_owned);
        Ok(["env".to_owned()].into_iter().chain(unset).chain(set).chain([program]).chain(words).collect())
    }

    /// Reads what it printed. An error if a request or a check failed.
    pub(super) fn said(self, out: &str, dir: &Path) -> Result<ContenderReport> {
        match self {
            FlowProgram::Data => Contender::Linerate.said(out, dir),
            FlowProgram::Script | FlowProgram::KSix => k6_summary(out),
            FlowProgram::Locust => locust_stats(out),
        }
    }
}

fn found(program: &str) -> Result<String> {
    let path = shell::find(program).with_context(|| format!("{program} is not installed"))?;
    Ok(path.display().to_string())
}

/// Words, of which none holds a space.
fn split(words: &str) -> impl Iterator<Item = String> {
    words.split_ascii_whitespace().map(str::to_owned)
}

/// The metrics that the scripts print: each of their requests has one check.
fn k6_summary(out: &str) -> Result<ContenderReport> {
    let metrics: Value = serde_json::from_str(out.trim()).with_context(|| format!("no summary: {out:?}"))?;
    let value = |metric: &str, name: &str| {
        let value = metrics[metric]["values"][name].as_f64();
        value.with_context(|| format!("no {metric}.{name} in the summary"))
    };
    let (requests, passed) = (value("http_reqs", "count")?, value("checks", "passes")?);
    let (failed, unmet) = (value("http_req_failed", "rate")?, value("checks", "fails")?);
    ensure!(failed == 0.0 && unmet == 0.0, "{unmet} failed checks, {:.2} % failed requests", failed * 100.0);
    ensure!(passed == requests, "{requests} requests and {passed} checks");
    Ok(ContenderReport { rate: value("http_reqs", "rate")?, answered: requests as u64, slack: 0 })
}

/// Locust's entries, one for each method and path.
fn locust_stats(out: &str) -> Result<ContenderReport> {
    let entries: Vec<Value> =
        serde_json::from_str(out.trim()).with_context(|| format!("no statistics: {out:?}"))?;
    let sum = |name: &str| entries.iter().filter_map(|entry| entry[name].as_u64()).sum::<u64>();
    let (requests, failed) = (sum("num_requests"), sum("num_failures"));
    ensure!(requests > 0 && failed == 0, "{requests} requests, {failed} failed");
    Ok(ContenderReport { rate: 0.0, answered: requests, slack: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_if_nothing_failed() {
        let summary = |failed: f64, passed: u64, unmet: u64| {
            format!(
                "{{\"http_reqs\":{{\"values\":{{\"count\":50,\"rate\":10.5}}}},\
                  \"http_req_failed\":{{\"values\":{{\"rate\":{failed}}}}},\
                  \"checks\":{{\"values\":{{\"passes\":{passed},\"fails\":{unmet}}}}}}}\n"
            )
        };
        let said = k6_summary(&summary(0.0, 50, 0)).expect("a good run");
        assert_eq!((said.answered, said.rate), (50, 10.5));
        let error = |text: String| k6_summary(&text).expect_err("a bad run").to_string();
        assert_eq!(error(summary(0.02, 49, 1)), "1 failed checks, 2.00 % failed requests");
        assert_eq!(error(summary(0.0, 49, 0)), "50 requests and 49 checks");
        assert!(error("level=error\n".into()).starts_with("no summary"));
    }

    #[test]
    fn entries_of_locust_are_added_up() {
        let entries = |failed: u64| {
            format!(
                "[{{\"num_requests\":3,\"num_failures\":0}},{{\"num_requests\":4,\"num_failures\":{failed}}}]"
            )
        };
        assert_eq!(locust_stats(&entries(0)).expect("a good run").answered, 7);
        assert!(locust_stats(&entries(1)).is_err() && locust_stats("[]").is_err());
    }
}
