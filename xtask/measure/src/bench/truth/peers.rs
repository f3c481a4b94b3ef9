//! The same runs by wrk, k6, hey and h2load, and the share of failures that each reports.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::bounded;
use super::way::{Over, TruthEnd, TruthShape};
use crate::bench::tools::PROXY_VARIABLES;
use xtask::shell;

/// Another load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadGenerator {
    Wrk,
    K6,
    Hey,
    H2load,
}

/// The order of the columns.
pub(crate) const ALL: [LoadGenerator; 4] =
    [LoadGenerator::Wrk, LoadGenerator::K6, LoadGenerator::Hey, LoadGenerator::H2load];

/// How long a run may take. Reason: some wait for ever for what a broken server owes them.
const LIMIT: Duration = Duration::from_secs(15);

impl LoadGenerator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LoadGenerator::Wrk => "wrk",
            LoadGenerator::K6 => "k6",
            LoadGenerator::Hey => "hey",
            LoadGenerator::H2load => "h2load",
        }
    }

    /// Why its column is empty.
    pub(crate) fn missing(self) -> Option<String> {
        let missing = shell::find(self.name()).is_none();
        missing.then(|| format!("{} is not installed on this machine", self.name()))
    }

    /// Whether it speaks this, and if so, whether it needs TLS for it.
    pub(crate) fn speaks(self, over: Over) -> Option<bool> {
        match (self, over) {
            (LoadGenerator::Wrk, Over::Http2(_)) => None,
            // HTTP/2 by ALPN alone.
            (LoadGenerator::K6 | LoadGenerator::Hey, Over::Http2(_)) => Some(true),
            (_, Over::Http1 | Over::Http2(_) | Over::Tls) => Some(false),
        }
    }

    /// One run, in a cell of the table.
    pub(crate) fn run(self, s: &TruthShape, over: Over, url: &str) -> Result<String> {
        if s.depth > 1 && !self.pipelines() {
            return Ok("cannot".into());
        }
        let Some(program) = shell::find(self.name()) else { return Ok("missing".into()) };
        let dir = tempfile::tempdir()?;
        let mut command = shell::program(program);
        command.args(self.args(s, over, url, dir.path())?);
        let ran = bounded::run(without_proxies(&mut command), LIMIT)?;
        let Some(status) = ran.status else { return Ok(format!("no end in {} s", LIMIT.as_secs())) };
        Ok(match (self.cell(&ran.out), status.signal()) {
            (_, Some(signal)) => format!("crashed (signal {signal})"),
            (Some(cell), None) => cell,
            (None, None) => "no figure".into(),
        })
    }

    /// Whether it sends several requests at once on a connection.
    fn pipelines(self) -> bool {
        matches!(self, LoadGenerator::Wrk | LoadGenerator::H2load)
    }

    fn args(self, s: &TruthShape, over: Over, url: &str, dir: &Path) -> Result<Vec<String>> {
        let is_http2 = matches!(over, Over::Http2(_));
        let each = |rate: u32| f64::from(rate) / f64::from(s.connections);
        let (c, timeout) = (s.connections, s.timeout);
        let words = match (self, s.stop) {
            // It stops by time alone, and keeps no rate.
            (LoadGenerator::Wrk, _) => {
                let script = dir.join("pipeline.lua");
                std::fs::write(&script, wrk_script(s.depth))?;
                let script = if s.depth > 1 { format!("-s {} ", script.display()) } else { String::new() };
                format!("-t1 -c{c} -d{}s --timeout {timeout}s {script}{url}", s.time().unwrap_or(1))
            }
            (LoadGenerator::Hey, stop) => {
                let rate = s.rate.map_or(String::new(), |rate| format!("-q {} ", each(rate)));
                let h2 = if is_http2 { "-h2 " } else { "" };
                format!("{h2}-c {c} -t {timeout} {rate}{} {url}", stop_of("-n", "-z", stop))
            }
            (LoadGenerator::H2load, stop) => {
                // It takes whole requests per second of each connection.
                let rate = s.rate.map_or(String::new(), |rate| format!("--rps {} ", each(rate).ceil()));
                let stop = stop_of("-n", "-D", stop);
                let h1 = if is_http2 { "" } else { "--h1 " };
                format!("{h1}-t1 -c{c} -m{} -N {timeout}s {rate}{stop} {url}", s.depth)
            }
            (LoadGenerator::K6, _) => {
                let script = dir.join("script.js");
                std::fs::write(&script, k6_script(s, url))?;
                format!("run --quiet --no-usage-report --address= {}", script.display())
            }
        };
        Ok(words.split_whitespace().map(str::to_owned).collect())
    }

    /// Its output as a share; `None` if it reports none.
    fn cell(self, out: &str) -> Option<String> {
        let (failed, all) = match self {
            LoadGenerator::Wrk => wrk(out)?,
            LoadGenerator::Hey => hey(out)?,
            LoadGenerator::H2load => h2load(out)?,
            LoadGenerator::K6 => return k6(out),
        };
        Some(if all == 0.0 { "no requests".into() } else { percent(failed / all) })
    }
}

/// A share in a cell.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Everything is on loopback.
fn without_proxies(command: &mut Command) -> &mut Command {
    for name in PROXY_VARIABLES {
        command.env_remove(name);
    }
    command
}

fn stop_of(requests: &str, time: &str, stop: TruthEnd) -> String {
    match stop {
        TruthEnd::Requests(n) => format!("{requests} {n}"),
        TruthEnd::Seconds(s) if time == "-D" => format!("{time} {s}"),
        TruthEnd::Seconds(s) => format!("{time} {s}s"),
    }
}

/// A wrk script that sends `depth` requests in one write.
fn wrk_script(depth: u32) -> String {
    format!(
        "init = function() local r = {{}} for i = 1, {depth} do r[i] = wrk.format() end all = table.concat(r) end\n\
         request = function() return all end\n"
    )
}

fn k6_script(s: &TruthShape, url: &str) -> String {
    let c = s.connections;
    let how = match (s.stop, s.rate) {
        (TruthEnd::Requests(n), _) => {
            format!("executor: 'shared-iterations', vus: {c}, iterations: {n}, maxDuration: '10s'")
        }
        (TruthEnd::Seconds(d), None) => format!("executor: 'constant-vus', vus: {c}, duration: '{d}s'"),
        (TruthEnd::Seconds(d), Some(rate)) => format!(
            "executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', duration: '{d}s', preAllocatedVUs: {c}"
        ),
    };
    format!(
        "import http from 'k6/http';\n\
         export const options = {{ insecureSkipTLSVerify: true, scenarios: {{ way: {{ {how}, gracefulStop: '2s' }} }} }};\n\
         export default function () {{ http.get('{url}', {{ timeout: '{}s' }}); }}\n\
         export function handleSummary(data) {{ return {{ stdout: JSON.stringify(data.metrics) }}; }}\n",
        s.timeout
    )
}

/// Failed requests and all, from the line of its socket errors and that of the statuses.
fn wrk(out: &str) -> Option<(f64, f64)> {
    let done = before(out, " requests in ")?;
    let kinds = ["connect ", "read ", "write ", "timeout "];
    let line = out.lines().find(|l| l.contains("Socket errors:")).unwrap_or_default();
    let errors: f64 = kinds.iter().filter_map(|kind| after(line, kind)).sum();
    let refused = after(out, "Non-2xx or 3xx responses:").unwrap_or(0.0);
    Some((errors + refused, done + errors))
}

/// From its distributions: each line begins with a number in brackets.
fn hey(out: &str) -> Option<(f64, f64)> {
    let statuses = out.split_once("Status code distribution:").map_or("", |s| s.1);
    let (statuses, errors) = match out.split_once("Error distribution:") {
        Some((_, errors)) => (statuses.split("Error distribution:").next().unwrap_or(""), errors),
        None => (statuses, ""),
    };
    let bracket = |line: &str| line.trim().strip_prefix('[')?.split_once(']')?.0.parse::<f64>().ok();
    let (mut failed, mut all) = (0.0, 0.0);
    for line in statuses.lines() {
        let Some(status) = bracket(line) else { continue };
        let n = before(line, " responses").unwrap_or(0.0);
        all += n;
        failed += if (200.0..400.0).contains(&status) { 0.0 } else { n };
    }
    let errors: f64 = errors.lines().filter_map(bracket).sum();
    out.contains("Summary:").then_some((failed + errors, all + errors))
}

/// From its line of requests.
fn h2load(out: &str) -> Option<(f64, f64)> {
    let line = out.lines().find(|l| l.starts_with("requests:"))?;
    Some((before(line, " failed")?, before(line, " total")?))
}

/// Its rate of failed requests, and what it could not start.
fn k6(out: &str) -> Option<String> {
    let metrics: Value = serde_json::from_str(out.trim()).ok()?;
    let failed = metrics["http_req_failed"]["values"]["rate"].as_f64().map(percent);
    let dropped = metrics["dropped_iterations"]["values"]["count"].as_f64().filter(|n| *n > 0.0);
    let words = failed.unwrap_or_else(|| "no requests".into());
    Some(dropped.map_or(words.clone(), |n| format!("{words}, {n} dropped")))
}

fn after(text: &str, words: &str) -> Option<f64> {
    let rest = text.split_once(words)?.1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

fn before(text: &str, words: &str) -> Option<f64> {
    let rest = text.split_once(words)?.0;
    rest.rsplit(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_each_are_read() {
        let wrk = "  700 requests in 1.00s, 26.63KB read\n  Socket errors: connect 1, read 299, write 0, timeout 0\n";
        assert_eq!(LoadGenerator::Wrk.cell(wrk).as_deref(), Some("30.0 %"));
        let refused = "  1000 requests in 1.00s, 26.63KB read\n  Non-2xx or 3xx responses: 100\n";
        assert_eq!(LoadGenerator::Wrk.cell(refused).as_deref(), Some("10.0 %"));
        let hey = "Summary:\n\nStatus code distribution:\n  [200]\t600 responses\n  [500]\t100 responses\n\n\
                   Error distribution:\n  [300]\tGet \"http://127.0.0.1:1/\": EOF\n";
        assert_eq!(LoadGenerator::Hey.cell(hey).as_deref(), Some("40.0 %"));
        let dead = "Summary:\n\nError distribution:\n  [20]\tGet: refused\n";
        assert_eq!(LoadGenerator::Hey.cell(dead).as_deref(), Some("100.0 %"));
        let h2load = "finished\n\nrequests: 1000 total, 1000 started, 700 done, 700 succeeded, 300 failed, 300 errored, 0 timeout\n";
        assert_eq!(LoadGenerator::H2load.cell(h2load).as_deref(), Some("30.0 %"));
        let k6 =
            r#"{"http_req_failed":{"values":{"rate":0.257}},"dropped_iterations":{"values":{"count":7}}}"#;
        assert_eq!(LoadGenerator::K6.cell(k6).as_deref(), Some("25.7 %, 7 dropped"));
        assert_eq!(LoadGenerator::Wrk.cell("unable to connect\n"), None);
    }

    #[test]
    fn all_are_given_the_same_run() {
        let dir = tempfile::tempdir().expect("a folder");
        let args = |p: LoadGenerator, s: TruthShape| {
            p.args(&s, Over::Http1, "URL", dir.path()).expect("a folder").join(" ")
        };
        let shape = TruthShape::seconds(3).rate(500);
        assert_eq!(args(LoadGenerator::Wrk, shape), "-t1 -c8 -d3s --timeout 1s URL");
        assert_eq!(args(LoadGenerator::Hey, shape), "-c 8 -t 1 -q 62.5 -z 3s URL");
        assert_eq!(args(LoadGenerator::H2load, shape), "--h1 -t1 -c8 -m1 -N 1s --rps 63 -D 3 URL");
        assert_eq!(args(LoadGenerator::Hey, TruthShape::requests(100)), "-c 8 -t 1 -n 100 URL");
        assert!(k6_script(&shape, "URL").contains("rate: 500, timeUnit: '1s', duration: '3s'"));
    }
}
