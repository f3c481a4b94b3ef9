//! `load --metrics`: what Prometheus reads of a run, by its own rules, and what `linerate top`
//! shows of it.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_skips::{need, skip, skip_part};

use common::PATIENCE;

/// A run that lasts until the test ends it.
struct Loading {
    child: Child,
    place: String,
}

impl Loading {
    fn start(flags: &[&str], url: &str) -> Loading {
        let words = ["load", "-q", "-d", "60s", "--metrics", "127.0.0.1:0"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.args(words).args(flags).arg(url).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let place =
            line.trim().strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let place = place.unwrap_or_else(|| panic!("{line}")).to_owned();
        Loading { child, place }
    }

    fn page(&self) -> String {
        let mut stream = TcpStream::connect(&self.place).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        page.to_owned()
    }

    /// The page once this counter is above 0.
    fn page_with(&self, sample: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let page = self.page();
            if value(&page, sample).is_some_and(|n| n > 0.0) {
                return page;
            }
            assert!(Instant::now() < until, "{sample} in\n{page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn top(&self, flags: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        let out = command.args(["top", &self.place]).args(flags).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Ctrl-C; its exit code.
    fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn value(page: &str, sample: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

const SENT: &str = "linerate_load_requests_sent_total ";

#[test]
fn every_way_tells_of_itself() {
    let at = common::answering(common::HELLO);
    let url = format!("http://{at}/");
    for flags in ["--io epoll -t 2 -c 4", "--way threads -c 4", "--way async -c 4", "--way poll"] {
        let load = Loading::start(&flags.split(' ').collect::<Vec<_>>(), &url);
        let page = load.page_with("linerate_load_responses_total{status=\"200\"} ");
        assert!(
            value(&page, SENT) >= value(&page, "linerate_load_responses_total{status=\"200\"} "),
            "{page}"
        );
        assert!(value(&page, "linerate_load_latency_seconds_count ") > Some(0.0), "{page}");
        assert_eq!(value(&page, "linerate_load_failures_total{reason=\"timeout\"} "), Some(0.0));
        if flags.starts_with("--io") {
            let page = load.page_with("linerate_load_tcp_looks_total ");
            assert_eq!(value(&page, "linerate_load_connections_opened_total "), Some(4.0), "{page}");
            assert_eq!(value(&page, "linerate_load_connections_open "), Some(4.0), "{page}");
            assert!(page.contains("linerate_load_thread_cpu_seconds_total{core=\"1\"} "), "{page}");
        }
        assert_eq!(load.interrupt(), Some(130), "{flags:?}");
    }
}

#[test]
fn promtool_finds_nothing() {
    let at = common::answering(common::HELLO);
    let load = Loading::start(&["-c", "2"], &format!("http://{at}/"));
    let page = load.page_with(SENT);
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = command.spawn() else {
        return skip("promtool", "promtool is not installed");
    };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let out = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.is_empty(), "{said}\n{page}");
}

#[test]
fn top_shows_cores_requests_failures_and_connections() {
    let at = common::answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let load = Loading::start(&["-c", "6", "-t", "2", "--io", "epoll"], &format!("http://{at}/some/path"));
    load.page_with("linerate_load_responses_total{status=\"503\"} ");
    let (code, text) = load.top(&["--once", "--interval", "300ms"]);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        &format!("GET http://{at}/some/path"),
        "run          ",
        " of 1m",
        "5xx ",
        "6 in flight",
        "failures     bad ",
        "6 open",
        "nothing lost or held back (6 connections looked at)",
        "core  requests/s   in flight",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert!(rows("0 ") == 1 && rows("1 ") == 1, "{text}");
    let flows = text.lines().filter(|line| line.contains(&format!(" {at} ")) && line.contains("established"));
    if text.contains("queues       6 TCP connections") {
        assert_eq!(flows.count(), 6, "{text}");
    } else {
        skip_part("connections", need::SOCK_DIAG, "this kernel does not list its sockets");
    }
}

#[test]
fn a_place_that_is_taken_is_said_before_anything_is_sent() {
    let at = common::answering(common::HELLO);
    let said = common::run(&["load", "--metrics", &at.to_string(), &format!("http://{at}/")]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("(--metrics)") && said.err.contains(&at.to_string()), "{said:?}");
    assert!(said.out.is_empty(), "{said:?}");
}
