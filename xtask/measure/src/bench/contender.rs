//! The load generators: how each is given the same task, and how its report is read.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Tools;
use super::scenario::{LoadMeasure, LoadScenario, LoadShape};

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contender {
    /// Ours.
    Linerate,
    /// The raw client on epoll.
    RawEpoll,
    /// The raw client on multishot io_uring.
    RawUring,
    /// wrk.
    Wrk,
    /// h2load of nghttp2, speaking HTTP/1.1.
    H2load,
    /// ApacheBench.
    Ab,
    /// hey.
    Hey,
    /// oha.
    Oha,
    /// shb, on io_uring.
    Shb,
}

/// A program's own report of its run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContenderReport {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Requests answered.
    pub(crate) answered: u64,
    /// Requests that may have been sent beyond that: the allowed difference between its count and
    /// the server's.
    pub(crate) slack: u64,
}

impl Contender {
    /// The peer of this name.
    pub(crate) fn peer(name: &str) -> Option<Contender> {
        [Self::Wrk, Self::H2load, Self::Ab, Self::Hey, Self::Oha, Self::Shb]
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Linerate => "linerate",
            Contender::RawEpoll => "raw epoll",
            Contender::RawUring => "raw uring",
            Contender::Wrk => "wrk",
            Contender::H2load => "h2load",
            Contender::Ab => "ab",
            Contender::Hey => "hey",
            Contender::Oha => "oha",
            Contender::Shb => "shb",
        }
    }

    /// Whether it can do what the scenario asks for.
    pub(crate) fn can(self, s: &LoadScenario) -> bool {
        let LoadMeasure::InTurns { shape, .. } = s.sort else { return self == Contender::Linerate };
        match self {
            Contender::H2load => !shape.short,
            Contender::Ab | Contender::Hey | Contender::Oha | Contender::Shb => shape.depth == 1,
            Contender::Linerate | Contender::Wrk => true,
            // With --throughput, responses are counted late on purpose, so latencies are not
            // comparable.
            Contender::RawEpoll | Contender::RawUring => !shape.nginx,
        }
    }

    /// Program and arguments. Only linerate writes a file named `json`; `dir` takes scripts.
    pub(crate) fn command(
        self,
        t: &Tools,
        shape: &LoadShape,
        at: SocketAddr,
        dir: &Path,
    ) -> Result<Vec<String>> {
        let (c, d, url) =
            (shape.connections.to_string(), shape.depth.to_string(), format!("http://{at}{}", shape.path));
        let seconds = t.seconds;
        let whole = format!("{}", seconds.ceil());
        let raw = t.raw.display().to_string();
        let words = match self {
            Contender::Linerate => return Ok(linerate(t, shape, &url, dir)),
            Contender::RawEpoll | Contender::RawUring => {
                let how = if self == Contender::RawEpoll { "epoll" } else { "uring" };
                format!(
                    "{raw} {how} --target {at} --connections {c} --depth {d} --short {} --seconds {seconds}",
                    shape.short
                )
            }
            Contender::Wrk if shape.short => {
                return Ok(split(&format!("wrk -t1 -c{c} -d{whole} -H Connection:\u{a0}close {url}")));
            }
            Contender::Wrk if shape.depth > 1 => {
                let script = dir.join("pipeline.lua");
                std::fs::write(&script, wrk_script(shape.depth, shape.path))?;
                format!("wrk -t1 -c{c} -d{whole} -s {} {url}", script.display())
            }
            Contender::Wrk => format!("wrk -t1 -c{c} -d{whole} {url}"),
            Contender::H2load => format!("h2load --h1 -t1 -c{c} -m{d} -D{whole} {url}"),
            Contender::Ab => {
                let keep = if shape.short { "" } else { "-k" };
                format!("ab -q {keep} -t{whole} -n10000000 -c{c} {url}")
            }
            Contender::Hey => {
                let keep = if shape.short { "-disable-keepalive" } else { "" };
                format!("hey -cpus 1 {keep} -z {whole}s -c {c} {url}")
            }
            Contender::Oha => {
                let keep = if shape.short { "--disable-keepalive" } else { "" };
                format!("oha --no-tui {keep} -z {whole}s -c {c} {url}")
            }
            Contender::Shb => {
                let keep = if shape.short { "--disable-keepalive" } else { "" };
                format!("shb -j -t 1 {keep} -z {seconds}s -c {c} {url}")
            }
        };
        Ok(split(&words))
    }

    /// Reads what it printed (for ours and the raw clients: its JSON).
    pub(crate) fn said(self, out: &str, dir: &Path) -> Result<ContenderReport> {
        let said = match self {
            Contender::Linerate => return said_by_linerate(&dir.join("outcome.json")),
            Contender::RawEpoll | Contender::RawUring => {
                let v: Value = serde_json::from_str(out.trim())?;
                v["rate"].as_f64().zip(v["answered"].as_f64())
            }
            Contender::Shb => {
                let v: Value = serde_json::from_str(out.trim())?;
                v["requestsPerSec"].as_f64().zip(v["requests"]["ok"].as_f64())
            }
            Contender::Wrk => number_after(out, "Requests/sec:").zip(number_before(out, " requests in ")),
            Contender::H2load => number_before(out, " req/s").zip(number_before(out, " succeeded")),
            Contender::Ab => {
                number_after(out, "Requests per second:").zip(number_after(out, "Complete requests:"))
            }
            Contender::Hey | Contender::Oha => {
                number_after(out, "Requests/sec:").zip(number_after(out, "[200]"))
            }
        };
        match said {
            Some((rate, answered)) if rate > 0.0 => {
                Ok(ContenderReport { rate, answered: answered as u64, slack: 0 })
            }
            _ => bail!("{} said nothing that can be read:\n{out}", self.name()),
        }
    }
}

/// Words, of which none but the header of wrk holds a space (written as U+00A0 there).
fn split(words: &str) -> Vec<String> {
    words.split_ascii_whitespace().map(|w| w.replace('\u{a0}', " ")).collect()
}

fn linerate(t: &Tools, shape: &LoadShape, url: &str, dir: &Path) -> Vec<String> {
    let LoadShape { connections, depth, .. } = shape;
    let json = dir.join("outcome.json");
    let mut words = vec![t.linerate.display().to_string()];
    words.extend(split(&format!("load {url} -t 1 -c {connections} -p {depth} -d {}s --quiet", t.seconds)));
    if shape.short {
        words.extend(split("--per-connection 1"));
    }
    if shape.nginx {
        words.push("--throughput".into());
    }
    words.extend(split(&t.flags));
    words.extend(["--json".into(), json.display().to_string()]);
    words
}

fn said_by_linerate(json: &Path) -> Result<ContenderReport> {
    let text = std::fs::read_to_string(json).with_context(|| format!("no {}", json.display()))?;
    let v: Value = serde_json::from_str(&text)?;
    let n =
        |name: &str| v["requests"][name].as_u64().with_context(|| format!("no requests.{name} in the JSON"));
    let (sent, answered) = (n("sent")?, n("answered")?);
    if sent != answered + n("failed")? + n("unknown")? {
        bail!("sent = answered + failed + unknown does not hold: {}", v["requests"]);
    }
    let bad = ["status", "body"].iter().filter_map(|k| v["bad"][k].as_u64()).sum::<u64>();
    if n("failed")? + bad > 0 {
        bail!("{} failed, {bad} bad: {}", n("failed")?, v["failures"]);
    }
    let rate = v["rate_rps"].as_f64().context("no rate_rps in the JSON")?;
    Ok(ContenderReport { rate, answered, slack: sent - answered + n("resent")? })
}

/// Makes wrk send pipelines.
pub(crate) fn wrk_script(depth: usize, path: &str) -> String {
    format!(
        "init = function(args)\n  local r = {{}}\n  for i = 1, {depth} do r[i] = wrk.format(\"GET\", \"{path}\") end\n  \
         all = table.concat(r)\nend\nrequest = function() return all end\n"
    )
}

fn number_after(text: &str, mark: &str) -> Option<f64> {
    text.split_once(mark)?.1.split_whitespace().next()?.parse().ok()
}

fn number_before(text: &str, mark: &str) -> Option<f64> {
    text.split_once(mark)?.0.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(c: Contender, out: &str) -> (f64, u64) {
        let s = c.said(out, Path::new("/")).expect("readable");
        (s.rate, s.answered)
    }

    #[test]
    fn what_each_program_prints() {
        let wrk = "  1 threads and 64 connections\n  289433 requests in 2.00s, 15.2MB read\nRequests/sec: 144716.63\n";
        assert_eq!(said(Contender::Wrk, wrk), (144_716.63, 289_433));
        let h2load = "finished in 3.00s, 98765.33 req/s, 5.56MB/s\nrequests: 296296 total, 296360 started, 296296 done, \
                      296296 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(said(Contender::H2load, h2load), (98_765.33, 296_296));
        let ab = "Complete requests:      61457\nRequests per second:    30728.06 [#/sec] (mean)\n";
        assert_eq!(said(Contender::Ab, ab), (30_728.06, 61_457));
        let hey = "  Requests/sec:\t51234.5678\nStatus code distribution:\n  [200]\t153703 responses\n";
        assert_eq!(said(Contender::Hey, hey), (51_234.567_8, 153_703));
        let shb =
            r#"{"requests":{"connectErrors":0,"errors":0,"ok":907,"total":907},"requestsPerSec":905.5}"#;
        assert_eq!(said(Contender::Shb, shb), (905.5, 907));
        assert_eq!(said(Contender::RawEpoll, "{\"rate\":10.5,\"answered\":21}\n"), (10.5, 21));
    }

    #[test]
    fn silence_is_an_error() {
        assert!(Contender::Wrk.said("unable to connect", Path::new("/")).is_err());
    }
}
