//! Compares one run of `load` against one server with the server's counts. Pure except for reading
//! the document.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::way::{Truth, TruthExpectation, TruthWay};

/// How far a share of failures may be from the server's own.
const SHARE: f64 = 0.01;
/// How far a time without a server may be from the server's own, seconds.
const SECONDS: f64 = 0.05;

/// The server's own counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TruthServerCounts {
    /// Requests by number, and those of them that were served.
    pub(crate) asked: u64,
    pub(crate) served: u64,
    /// Requests read, and replies in which something was wrong.
    pub(crate) requests: u64,
    pub(crate) broken: u64,
    pub(crate) down_s: f64,
}

/// The figures of `load`.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadReport {
    pub(crate) document: Value,
    /// Its summary, in one line.
    pub(crate) words: String,
}

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TruthRow {
    pub(crate) way: String,
    /// The names of the fault in the report.
    pub(crate) named: String,
    /// `None`: no shares are compared.
    pub(crate) share: Option<(f64, f64)>,
    pub(crate) down_s: Option<(f64, f64)>,
    /// By peer: its share in words.
    pub(crate) peers: Vec<String>,
    /// Reasons why the row is outside the goal.
    pub(crate) faults: Vec<String>,
}

impl LoadReport {
    fn number(&self, dotted: &str) -> f64 {
        let pointer = format!("/{}", dotted.replace('.', "/"));
        self.document.pointer(&pointer).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn requests(&self, name: &str) -> f64 {
        self.number(&format!("requests.{name}"))
    }

    fn due(&self) -> f64 {
        self.requests("sent") + self.requests("unsent")
    }

    fn bad(&self) -> f64 {
        ["status", "body", "encoding", "tag", "trailer"]
            .iter()
            .map(|kind| self.number(&format!("bad.{kind}")))
            .sum()
    }

    /// Failed, unknown, bad and never sent, of all that were due.
    fn errors(&self) -> f64 {
        let errors: f64 = ["failed", "unknown", "unsent"].iter().map(|name| self.requests(name)).sum();
        (errors + self.bad()) / self.due().max(1.0)
    }
}

/// Holds one against the other.
pub(crate) fn judge(way: &TruthWay, said: &LoadReport, server: &TruthServerCounts) -> TruthRow {
    let mut row = TruthRow { way: way.name.into(), ..TruthRow::default() };
    let part = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let unserved = if server.asked == 0 { 1.0 } else { 1.0 - part(server.served, server.asked) };
    row.share = match (way.truth, way.shape.rate, way.shape.time()) {
        (Truth::Unserved, ..) => Some((said.errors(), unserved)),
        (Truth::Handshakes, ..) => {
            Some((said.errors(), part(server.broken, server.requests + server.broken)))
        }
        (Truth::Surplus, ..) => {
            let ours = said.requests("unsolicited_responses") / said.requests("sent").max(1.0);
            Some((ours, part(server.broken, server.requests)))
        }
        (Truth::Swapped, ..) => {
            let ours = said.requests("out_of_order_responses") / said.requests("answered").max(1.0);
            Some((ours, part(server.broken, server.requests)))
        }
        (Truth::Due, Some(rate), Some(seconds)) => {
            let due = f64::from(rate * seconds);
            Some((said.errors(), 1.0 - server.served as f64 / due))
        }
        (Truth::Down, Some(rate), Some(seconds)) => {
            let due = f64::from(rate * seconds);
            let lost = (server.asked - server.served.min(server.asked)) as f64;
            Some((said.errors(), (f64::from(rate) * server.down_s + lost) / due))
        }
        // In a closed loop each connection's own attempts set how many fail.
        (Truth::Down | Truth::Due, ..) => None,
    };
    row.down_s = (way.truth == Truth::Down).then(|| (said.number("connections.down_s"), server.down_s));
    row.faults.extend(row.share.and_then(|(ours, truth)| {
        let far = (ours - truth).abs() > SHARE;
        far.then(|| {
            format!("its share is {:.1} % where the server's is {:.1} %", ours * 100.0, truth * 100.0)
        })
    }));
    row.faults.extend(row.down_s.and_then(|(ours, truth)| {
        let far = (ours - truth).abs() > SECONDS;
        far.then(|| format!("its down_s is {ours:.3} where the server's is {truth:.3}"))
    }));
    let sum: f64 = ["answered", "failed", "unknown"].iter().map(|name| said.requests(name)).sum();
    if sum != said.requests("sent") {
        row.faults.push("sent is not answered + failed + unknown".into());
    }
    let mut names = Vec::new();
    for named in way.named {
        match name(*named, said) {
            Ok(words) => names.extend(words),
            Err(fault) => row.faults.push(fault),
        }
    }
    row.named = names.join(", ");
    row
}

/// The names of the fault in the report, or those that are missing.
fn name(named: TruthExpectation, said: &LoadReport) -> Result<Option<String>, String> {
    let figure = |path: &str| {
        let n = said.number(path);
        match path {
            _ if path.starts_with("latency_us") => format!("`{path}` {:.0} ms", n / 1e3),
            "took_s" => format!("it ends after {n:.1} s"),
            _ => format!("`{path}` {n}"),
        }
    };
    match named {
        TruthExpectation::Counts(path) if said.number(path) > 0.0 => Ok(Some(figure(path))),
        TruthExpectation::Counts(path) => Err(format!("{path} is 0")),
        TruthExpectation::AtLeast(path, least) if said.number(path) >= least => Ok(Some(figure(path))),
        TruthExpectation::AtLeast(path, least) => {
            Err(format!("{path} is {}, not {least}", said.number(path)))
        }
        TruthExpectation::AtMost(path, most) if said.number(path) <= most => Ok(Some(figure(path))),
        TruthExpectation::AtMost(path, most) => Err(format!("{path} is {}, above {most}", said.number(path))),
        TruthExpectation::Says(words) if said.words.contains(words) => Ok(None),
        TruthExpectation::Says(words) => Err(format!("its summary does not say {words:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::{TruthShape, TruthWay};
    use super::*;
    use linerate_broken::{Broken, Reply};

    fn way(truth: Truth, shape: TruthShape, named: &'static [TruthExpectation]) -> TruthWay {
        let server = || Broken::start(|_| Reply::good());
        TruthWay {
            name: "way",
            what: "",
            server,
            over: super::super::way::Over::Http1,
            steps: &[],
            shape,
            named,
            truth,
        }
    }

    fn said(document: Value, words: &str) -> LoadReport {
        LoadReport { document, words: words.into() }
    }

    #[test]
    fn a_share_is_within_a_point_or_a_fault() {
        let way = way(
            Truth::Unserved,
            TruthShape::requests(100),
            &[TruthExpectation::Counts("failures.truncated")],
        );
        let server = TruthServerCounts { asked: 100, served: 70, requests: 100, broken: 30, down_s: 0.0 };
        let run = |failed: u64| {
            let document = serde_json::json!({
                "requests": { "sent": 100, "answered": 100 - failed, "failed": failed },
                "failures": { "truncated": failed },
            });
            judge(&way, &said(document, ""), &server)
        };
        assert_eq!((run(30).faults.len(), run(31).faults.len()), (0, 0));
        assert_eq!(run(30).named, "`failures.truncated` 30");
        assert_eq!(run(32).faults, ["its share is 32.0 % where the server's is 30.0 %"]);
        assert_eq!(run(0).faults.len(), 2);
    }

    #[test]
    fn in_an_open_loop_rate_times_downtime_is_the_truth() {
        let way =
            way(Truth::Down, TruthShape::seconds(3).rate(500), &[TruthExpectation::Says("was unreachable")]);
        let server = TruthServerCounts { asked: 1001, served: 999, requests: 1001, broken: 0, down_s: 1.0 };
        let document = |down_s: f64| {
            serde_json::json!({
                "requests": { "sent": 1500, "answered": 998, "failed": 502 },
                "connections": { "down_s": down_s },
            })
        };
        let row = judge(&way, &said(document(1.04), "the server was unreachable for 1 s"), &server);
        assert_eq!(row.faults, Vec::<String>::new());
        let row = judge(&way, &said(document(1.06), ""), &server);
        assert_eq!(row.faults.len(), 2, "{:?}", row.faults);
    }
}
