//! `load --log-requests`: a line for each request, whose figures are those of the summary.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;
mod past_kernel;
mod serving;

use std::collections::BTreeMap;

use common::{answering, measured, number, run};
use linerate_load::histogram::Histogram;
use linerate_load::outcome::Ranked;
use namespaces::{Cable, OUR_V4, THEIRS};
use past_kernel::{PORT, Serving};
use serde_json::Value;

/// What the lines of a log add up to.
#[derive(Debug, Default)]
struct Sums {
    by_end: BTreeMap<String, u64>,
    by_status: BTreeMap<String, u64>,
    from_due: Histogram,
    from_sent: Histogram,
    first_byte: Histogram,
    /// Requests without a good response.
    not_good: u64,
    numbers: Vec<u64>,
}

fn nanos(micros: &str) -> u64 {
    (micros.parse::<f64>().expect("a time") * 1e3).round() as u64
}

impl Sums {
    fn of_csv(text: &str) -> Sums {
        let mut rows = text.split_terminator("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
        let names = rows.next().expect("a line of names");
        let mut sums = Sums::default();
        rows.for_each(|row| {
            assert_eq!(row.len(), names.len(), "{row:?}");
            sums.add(&|name| row[names.iter().position(|n| *n == name).expect(name)].to_owned());
        });
        sums
    }

    fn of_json_lines(text: &str) -> Sums {
        let mut sums = Sums::default();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            sums.add(&|name| match &row[name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
        }
        sums
    }

    fn add(&mut self, field: &dyn Fn(&str) -> String) {
        *self.by_end.entry(field("outcome")).or_default() += 1;
        let is_good = field("outcome") == "answered" && field("why").is_empty();
        self.not_good += u64::from(!is_good);
        self.numbers.push(field("seq").parse().expect("a number"));
        let record = |into: &mut Histogram, name| {
            if is_good && !field(name).is_empty() {
                into.record(nanos(&field(name)), 1);
            }
        };
        record(&mut self.from_due, "from_due_us");
        record(&mut self.from_sent, "from_sent_us");
        record(&mut self.first_byte, "first_byte_us");
        if !field("status").is_empty() {
            *self.by_status.entry(field("status")).or_default() += 1;
        }
    }

    /// Each figure is that of the document.
    fn assert_equal(&self, document: &Value) {
        let count = |end: &str| self.by_end.get(end).copied().unwrap_or(0);
        for end in ["answered", "failed", "unknown"] {
            assert_eq!(count(end), number(document, &format!("/requests/{end}")), "{end}");
        }
        let status: BTreeMap<String, u64> = serde_json::from_value(document["status"].clone()).unwrap();
        assert_eq!(self.by_status, status);
        let latencies = &document["latency_us"];
        for (name, own) in
            [("from_due", &self.from_due), ("from_sent", &self.from_sent), ("first_byte", &self.first_byte)]
        {
            if latencies[name].is_null() {
                assert_eq!(own.count(), 0, "{name}");
                continue;
            }
            // Requests that never left have no line. They, and those without a good response, count as later than all others.
            let others = match name {
                "from_due" => self.not_good + number(document, "/requests/unsent"),
                "from_sent" => self.not_good,
                _ => 0,
            };
            assert_eq!(latencies[name]["count"], own.count() + others, "{name}");
            let mut waited = Histogram::new();
            waited.record(1, others);
            let ranked = Ranked { good: own, waited: &waited };
            for (figure, percent) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9)] {
                let found = ranked.percentile(percent);
                let bounds = latencies[name]["at_least"].as_array().map_or(&[][..], Vec::as_slice);
                assert_eq!(bounds.contains(&figure.into()), found.at_least, "{name} {figure}");
                if ranked.is_empty() || found.at_least {
                    continue;
                }
                let (micros, told) = (found.ns as f64 / 1e3, latencies[name][figure].as_f64().expect(figure));
                assert!((micros - told).abs() < 0.001, "{name} {figure}: {micros} and {told}");
            }
        }
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), self.numbers.len(), "a request has two lines");
        assert_eq!(number(document, "/request_log/lines"), numbers.len() as u64);
        assert_eq!(number(document, "/request_log/left_out"), 0);
    }
}

#[test]
fn the_lines_add_up_to_the_summary() {
    let server = serving::serve(&["--demo-routes"]);
    let url = format!("http://{}/", server.address);
    let broken = format!("http://{}/", answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"));
    let torn = format!("http://{}/", answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"));
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str], &str); 8] = [
        ("closed.csv", &["-n", "5000", "-c", "8", "-t", "2"], &url),
        ("pipelined.csv", &["-n", "20k", "-c", "2", "-p", "100"], &url),
        ("open.jsonl", &["--rate", "2000", "-d", "1s", "-c", "4"], &url),
        ("http2.csv", &["--http2", "-n", "3000", "-c", "2", "-p", "10"], &url),
        ("warm.csv", &["--warm-up", "300ms", "-d", "500ms", "--rate", "1000"], &url),
        ("threads.csv", &["--way", "threads", "-n", "300", "-c", "3"], &url),
        ("bad.csv", &["-n", "50", "-c", "2"], &broken),
        ("failed.csv", &["-n", "7", "-c", "1", "--timeout", "200ms"], &torn),
    ];
    for (name, flags, url) in cases {
        let path = folder.path().join(name);
        let file = path.display().to_string();
        let (document, said) = measured(&[flags, &["--log-requests", &file, url]].concat());
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}: {said:?}"));
        let sums = if name.ends_with("csv") { Sums::of_csv(&text) } else { Sums::of_json_lines(&text) };
        assert!(number(&document, "/requests/sent") > 0, "{name}: {said:?}");
        sums.assert_equal(&document);
    }
}

#[test]
fn an_interrupted_run_keeps_its_lines() {
    let server = serving::serve(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (log, json) = (folder.path().join("log.csv"), folder.path().join("run.json"));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["load", "-q", "-d", "30s", "--rate", "500", "--json"])
        .arg(&json)
        .arg("--log-requests")
        .arg(&log)
        .arg(format!("http://{}/", server.address))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Lines are there while it runs.
    common::until("the first lines", || std::fs::read(&log).is_ok_and(|text| text.len() > 1000));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let document = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    Sums::of_csv(&std::fs::read_to_string(&log).unwrap()).assert_equal(&document);
}

#[test]
fn what_cannot_be_written_is_said_and_the_results_are_kept() {
    let server = serving::serve(&[]);
    let url = format!("http://{}/", server.address);
    let (document, said) = measured(&["-n", "3000", "-c", "2", "--log-requests", "/dev/full", &url]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("/dev/full: the requests could not be written"), "{said:?}");
    assert_eq!(number(&document, "/requests/answered"), 3000);
    assert_eq!(number(&document, "/request_log/lines"), 0);
    assert_eq!(number(&document, "/request_log/left_out"), 3000);
    for (file, part) in [("-", "- is no file"), ("/no/such/folder/x.csv", "cannot be written")] {
        let said = run(&["load", "-q", "-n", "1", "--log-requests", file, &url]);
        assert!(said.code == Some(2) && said.err.contains(part), "{file}: {said:?}");
    }
    // A disk that is full after some lines: the file ends with a whole one.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.csv");
    let limited = format!(
        "ulimit -f 64; trap '' XFSZ; exec {} load -q -n 5000 -c 2 --log-requests {} {url}",
        env!("CARGO_BIN_EXE_linerate"),
        file.display()
    );
    let said = std::process::Command::new("bash").args(["-c", &limited]).output().unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(4) && err.contains("it has the first "), "{err}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.ends_with("\r\n") && text.len() <= 64 * 1024, "{}", text.len());
    let first: usize =
        err.split("it has the first ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(text.lines().count(), first + 1);
}

/// Past the kernel too. Needs root.
#[test]
fn a_log_past_the_kernel() {
    let Some(cable) = Cable::new(1) else { return };
    let _kernels = Serving::start(&cable.ours, &format!("--listen {OUR_V4}:{PORT} --threads 1"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let flags = format!(
        "--io xdp --interface {THEIRS} --from 10.77.0.9 -t 1 -c 5 -n 2000 --log-requests {} \
         http://{OUR_V4}:{PORT}/",
        path.display()
    );
    let flags: Vec<&str> = flags.split(' ').collect();
    let (document, said) = cable.theirs.run(|| measured(&flags));
    assert_eq!(said.code, Some(0), "{said:?}");
    Sums::of_csv(&std::fs::read_to_string(&path).unwrap()).assert_equal(&document);
}
