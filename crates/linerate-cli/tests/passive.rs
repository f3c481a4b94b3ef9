//! `linerate explain --pcap` and `--capture`, as users meet them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;
mod proxies;
mod real;
mod serving;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::run;
use linerate_skips::{need, skip};
use serde_json::Value;

fn corpus(name: &str) -> String {
    format!("{}/../../fuzz/corpus/capture/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The document that `explain` writes.
fn seen(args: &[&str]) -> (Value, common::Said) {
    let mut all = vec!["explain", "--json", "-"];
    all.extend_from_slice(args);
    let said = run(&all);
    (serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}")), said)
}

#[test]
fn every_kind_of_capture_shows_the_same_call() {
    for name in [
        "call",
        "call-big-endian",
        "nanoseconds",
        "raw",
        "null",
        "sll",
        "sll2",
        "qinq",
        "pcapng",
        "pcapng-big-endian",
        "gzip",
    ] {
        let (document, said) = seen(&["--pcap", &corpus(name)]);
        assert_eq!(document["schema"], "linerate.diagnosis/1");
        assert_eq!(
            (&document["counts"]["requests"], &document["counts"]["answered"]),
            (&1.into(), &1.into()),
            "{name}"
        );
        assert_eq!(document["causes"][0]["id"], "server-nagle-delayed-ack", "{name}: {said:?}");
        assert_eq!(document["causes"][0]["proof"], "seen");
        // Seen once proves little.
        assert_eq!((&document["verdict"], said.code), (&"inconclusive".into(), Some(1)));
    }
}

#[test]
fn bad_input_gets_a_clear_word() {
    for (name, word) in [
        ("text", "it is no capture: it starts with \"not a ca\""),
        ("missing", "cannot be read: No such file or directory"),
    ] {
        let said = run(&["explain", "--pcap", &corpus(name)]);
        assert!(said.code == Some(2) && said.err.contains(word) && said.out.is_empty(), "{said:?}");
    }
    // How long the report of calls is says nothing of other reports.
    for other in [&["--pcap", &corpus("call")][..], &["--why", "nagle"]] {
        let said = run(&[&["explain", "--summary", "full"], other].concat());
        assert!(said.code == Some(2) && said.err.contains("--summary") && said.out.is_empty(), "{said:?}");
    }
    for (name, word) in [
        ("truncated", "the capture ends in the middle of a packet"),
        ("long-length", "the capture is damaged at byte"),
        ("unknown-link", "its link type (147) is not read"),
        ("tls", "1 connection carried TLS, of which nothing could be read"),
        ("one-direction", "1 request was seen but no answer: only one direction was captured"),
        ("fragment", "1 IP fragment of TCP was left out"),
        ("backwards", "with an earlier time than the one before"),
    ] {
        let said = run(&["explain", "--pcap", &corpus(name)]);
        let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(word), "{name}: {text}");
        assert!(said.code == Some(1), "{name}: never a verdict: {said:?}");
    }
}

#[test]
fn a_page_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let said = run(&["explain", "--pcap", &corpus("call"), "--html", page.to_str().expect("UTF-8")]);
    let page = std::fs::read_to_string(page).expect("written");
    assert!(said.code == Some(1) && page.contains("<svg") && page.contains("</html>"), "{said:?}");
    assert!(!page.contains("http://www.w3.org") && !page.contains("src="), "needs nothing else");
}

/// A server that misbehaves, and where it listens.
fn misbehaving(fault: &str) -> (serving::Server, u16) {
    let server = serving::serve(&["--misbehave", fault]);
    let port = server.address.rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    (server, port)
}

/// Makes this many calls on one connection, each in one write.
fn call(port: u16, times: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    for _ in 0..times {
        stream.write_all(b"GET /bytes/600 HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
        let whole = |got: &[u8]| {
            got.windows(4).position(|w| w == b"\r\n\r\n").is_some_and(|at| got.len() >= at + 604)
        };
        while !whole(&got) {
            let n = stream.read(&mut buffer).expect("answered");
            assert!(n > 0, "the answer ends early");
            got.extend_from_slice(&buffer[..n]);
        }
    }
}

#[test]
fn another_programs_stall_is_seen_live() {
    let (_server, port) = misbehaving("nagle-split");
    let mut watcher = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["explain", "--capture", "--budget", "60s", "--json", "-", "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut err = BufReader::new(watcher.stderr.take().expect("piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("a line");
    if line.contains("CAP_NET_RAW") {
        skip(need::CAPTURE, "capturing takes CAP_NET_RAW");
        assert_eq!(watcher.wait().expect("ends").code(), Some(4));
    } else {
        assert!(line.starts_with("watching"), "{line}");
        call(port, 8);
        // The last packets are handed over within some milliseconds; Ctrl-C then ends it, and it
        // reports.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let ended = Command::new("kill").args(["-INT", &watcher.id().to_string()]).status();
        assert!(ended.expect("kill is there").success());
        let output = watcher.wait_with_output().expect("ends");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.code(), Some(130));
        assert_eq!(
            (&document["counts"]["requests"], &document["counts"]["answered"]),
            (&8.into(), &8.into())
        );
        assert_eq!(document["causes"][0]["id"], "server-nagle-delayed-ack", "{document:#}");
        assert_eq!(document["causes"][0]["proof"], "seen");
        assert_eq!(document["verdict"], "caused");
        assert!(document["segments"].as_array().is_some_and(|s| s.len() >= 4));
    }
}

/// The lines of a command that watches without end, from its first word on.
struct Watcher {
    process: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

/// Watches that port; `None` if packets may not be captured here.
fn watched(port: u16) -> Option<Watcher> {
    let mut process = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["explain", "--capture", "--interval", "500ms", "--json", "-", "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut err = BufReader::new(process.stderr.take().expect("piped"));
    let mut line = String::new();
    err.read_line(&mut line).expect("a line");
    if line.contains("CAP_NET_RAW") {
        skip(need::CAPTURE, "capturing takes CAP_NET_RAW");
        assert_eq!(process.wait().expect("ends").code(), Some(4));
        return None;
    }
    assert!(line.starts_with("watching") && line.contains("a verdict every 0.5 s"), "{line}");
    // The report comes there, and nobody else reads it.
    std::thread::spawn(move || err.read_to_end(&mut Vec::new()));
    let lines = BufReader::new(process.stdout.take().expect("piped"));
    Some(Watcher { process, lines })
}

impl Watcher {
    fn window(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    /// The first of 60 windows that is so.
    fn window_that(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        let mut windows = Vec::new();
        for _ in 0..60 {
            windows.push(self.window());
            if is(&windows[windows.len() - 1]) {
                return windows.remove(windows.len() - 1);
            }
        }
        panic!("no window is so: {windows:#?}");
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn without_end_each_window_names_the_cause_and_the_processes() {
    let (server, port) = misbehaving("nagle-split");
    let Some(mut watcher) = watched(port) else { return };
    let first = watcher.window();
    assert_eq!((&first["schema"], &first["verdict"]), (&"linerate.live/1".into(), &"inconclusive".into()));
    let enough = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = std::sync::Arc::clone(&enough);
    let calls = std::thread::spawn(move || {
        let mut made = 0;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            call(port, 4);
            made += 4;
        }
        made
    });
    let named = |window: &Value| {
        let at = &window["servers"][0];
        window["verdict"] == "caused" && !at["clients"][0]["process"].is_null()
    };
    let window = watcher.window_that(named);
    enough.store(true, std::sync::atomic::Ordering::Relaxed);
    let made = calls.join().expect("answered");
    let at = &window["servers"][0];
    assert_eq!(at["server"], format!("127.0.0.1:{port}"));
    assert_eq!(at["causes"][0]["id"], "server-nagle-delayed-ack", "{window:#}");
    assert_eq!(at["clients"][0]["process"]["pid"], std::process::id(), "{window:#}");
    assert_eq!(at["clients"][0]["lost"][0]["id"], "server-nagle-delayed-ack", "{window:#}");
    assert_eq!(at["processes"][0]["name"], "linerate", "{window:#}");
    assert_eq!((&window["packets"]["dropped"], &window["packets"]["share"]), (&0.into(), &1.0.into()));
    let all = watcher.window_that(|window| window["since_start"]["answered"] == made);
    assert_eq!(all["since_start"]["verdict"], "caused");
    drop(server);
    let ended = Command::new("kill").args(["-INT", &watcher.process.id().to_string()]).status();
    assert!(ended.expect("kill is there").success());
    // The last line is the report on all of it.
    let report = watcher.window_that(|line| line["schema"] == "linerate.diagnosis/1");
    assert_eq!((&report["verdict"], &report["counts"]["answered"]), (&"caused".into(), &made.into()));
    assert_eq!(report["causes"][0]["id"], "server-nagle-delayed-ack");
    assert_eq!(watcher.process.wait().expect("ends").code(), Some(130));
}

/// The report on so many calls, which end with `hello`, on one connection; `None` if packets may not be
/// captured here.
fn report_on(address: std::net::SocketAddr, calls: u64) -> Option<Value> {
    let mut watcher = watched(address.port())?;
    let mut stream = TcpStream::connect(address).expect("connected");
    for _ in 0..calls {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
        while !got.trim_ascii_end().ends_with(b"hello") {
            let n = stream.read(&mut buffer).expect("answered");
            assert!(n > 0, "the answer ends early");
            got.extend_from_slice(&buffer[..n]);
        }
    }
    watcher.window_that(|window| window["since_start"]["answered"] == calls);
    let ended = Command::new("kill").args(["-INT", &watcher.process.id().to_string()]).status();
    assert!(ended.expect("kill is there").success());
    Some(watcher.window_that(|line| line["schema"] == "linerate.diagnosis/1"))
}

/// The first write-up's server, as it is and mended.
#[test]
fn the_server_of_a_jdk_is_seen_live() {
    for (flags, stalls) in [(&[][..], true), (&["-Dsun.net.httpserver.nodelay=true"], false)] {
        let Some(server) = real::jdk_with(flags) else { return };
        // It compiles what its first calls run.
        (0..30).for_each(|_| drop(server.get("/")));
        let Some(report) = report_on(server.address, 20) else { return };
        let causes = report["causes"].as_array().expect("a list");
        let ids: Vec<_> = causes.iter().filter_map(|cause| cause["id"].as_str()).collect();
        assert_eq!(ids.contains(&"server-nagle-delayed-ack"), stalls, "{report:#}");
        // What a busy machine adds is the server's own time.
        assert!(ids.iter().all(|id| *id == "server-think" || stalls), "{report:#}");
        assert!(!stalls || report["verdict"] == "caused", "{report:#}");
    }
}

/// What is behind a proxy is the proxy's own time in packets, and none of TCP's.
#[test]
fn nginx_before_a_slow_server_is_seen_live() {
    let Some(proxy) = proxies::nginx(proxies::late(20)) else { return };
    let Some(report) = report_on(proxy.address, 20) else { return };
    let ids: Vec<_> = report["causes"].as_array().expect("a list").iter().map(|cause| &cause["id"]).collect();
    assert_eq!(ids, ["server-think"], "{report:#}");
    let Some(quick) = proxies::nginx(proxies::late(0)) else { return };
    let Some(report) = report_on(quick.address, 20) else { return };
    assert_eq!(
        (&report["verdict"], &report["counts"]["answered"]),
        (&"healthy".into(), &20.into()),
        "{report:#}"
    );
}

/// The threads of `load` have descriptors of their own, which the process does not have.
#[test]
fn a_client_whose_threads_share_no_descriptors_is_named() {
    let (_server, port) = misbehaving("nagle-split");
    let Some(mut watcher) = watched(port) else { return };
    let mut load = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["load", &format!("http://127.0.0.1:{port}/"), "-c", "4", "-d", "60s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let process = |window: &Value| window["servers"][0]["clients"][0]["process"]["pid"].clone();
    let window = watcher.window_that(|window| !process(window).is_null());
    assert_eq!(process(&window), load.id(), "{window:#}");
    load.kill().expect("it runs");
    load.wait().expect("ends");
}

#[test]
fn a_time_and_an_interval_end_by_themselves() {
    let said = run(&["explain", "--capture", "--port", "9", "--budget", "1s", "--interval", "500ms"]);
    if said.err.contains("CAP_NET_RAW") {
        return skip(need::CAPTURE, "capturing takes CAP_NET_RAW");
    }
    assert!(said.code == Some(1) && said.out.contains("no call\n"), "{said:?}");
    assert!(said.out.contains("Nothing can be said: there is no packet in it."), "{said:?}");
    let said = run(&["explain", "--interval", "1s", "http://127.0.0.1:9/"]);
    assert!(said.code == Some(2) && said.err.contains("--interval is the time between"), "{said:?}");
    let said = run(&["explain", "--capture", "--port", "9", "--interval", "0s"]);
    assert!(said.code == Some(2) && said.err.contains("is not between 100ms and 1h"), "{said:?}");
}

#[test]
fn what_is_to_be_watched_must_be_said() {
    let said = run(&["explain", "--capture"]);
    assert!(said.code == Some(2) && said.err.contains("needs --port"), "{said:?}");
    let said = run(&["explain", "--capture", "--port", "80", "--interface", "nosuchif0"]);
    assert!(said.code == Some(2) && said.err.contains("there is no network interface nosuchif0"), "{said:?}");
}
