//! The public tables of requests, read at every cut of their bytes, and what the reader alone must
//! refuse. The data is beside the repository; without it the test says so and ends.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use base64::Engine;
use linerate_http::server::fuzz::{ServerReading, read_all};
use linerate_http::server::{RequestFault, RequestLimits};
use linerate_skips::{need, skip};
use serde_json::Value;

fn data(name: &str) -> Option<Value> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/suites/data").join(name);
    match std::fs::read(&path) {
        Ok(text) => Some(serde_json::from_slice(&text).unwrap()),
        Err(_) => {
            skip(need::SUITES, format_args!("there is no ../shared/suites/data/{name}"));
            None
        }
    }
}

fn bytes(case: &Value, field: &str) -> Vec<u8> {
    let mut text =
        base64::engine::general_purpose::STANDARD.decode(case[field].as_str().unwrap_or_default()).unwrap();
    for (mark, value) in
        [("\u{ab}HOST\u{bb}", "h:80"), ("\u{ab}HOSTNAME\u{bb}", "h"), ("\u{ab}PORT\u{bb}", "80")]
    {
        // The marks are Latin-1.
        let mark: Vec<u8> = mark.chars().map(|c| c as u8).collect();
        while let Some(at) = text.windows(mark.len()).position(|w| w == mark) {
            text.splice(at..at + mark.len(), value.bytes());
        }
    }
    text
}

/// Reads the same at every cut; very long streams only at some.
fn read(stream: &[u8]) -> ServerReading {
    let whole = read_all(std::iter::once(stream), RequestLimits::default());
    let step = 1 + stream.len() / 2000;
    for cut in (1..stream.len()).step_by(step) {
        let (a, b) = stream.split_at(cut);
        assert_eq!(whole, read_all([a, b].into_iter(), RequestLimits::default()), "cut at {cut}");
    }
    if stream.len() < 10_000 {
        assert_eq!(whole, read_all(stream.chunks(1), RequestLimits::default()), "byte by byte");
    }
    whole
}

/// The status of a server that answers 200 to every valid request; `None` while it waits for more
/// bytes.
fn status(reading: &ServerReading) -> Option<u64> {
    match reading.fault {
        Some(fault) => Some(u64::from(fault.status())),
        None => reading.requests.first().map(|_| 200),
    }
}

#[test]
fn h1spec() {
    let Some(table) = data("h1spec.json") else { return };
    for case in table["cases"].as_array().unwrap() {
        let got = status(&read(&bytes(case, "request_b64")));
        if case["wait"] == true {
            assert_eq!(got, None, "{case}");
            continue;
        }
        let good = case["status"].as_array().unwrap().iter().any(|range| {
            got.is_some_and(|s| (range[0].as_u64().unwrap()..=range[1].as_u64().unwrap()).contains(&s))
        });
        assert!(good, "got {got:?}: {case}");
    }
}

#[test]
fn http11probe_what_must_be_refused_is() {
    // Results that the RFC justifies against the table: docs/SERVE-CONFORMANCE.md names each.
    const JUSTIFIED: [&str; 1] = ["MAL-POST-CL-HUGE-NO-BODY"];
    // The handler decides these, not the reader.
    const HANDLERS: [&str; 6] = [
        "COMP-METHOD-CONNECT",
        "COMP-METHOD-TRACE",
        "COMP-TRACE",
        "COMP-405",
        "COMP-UNKNOWN-METHOD",
        "COMP-CONNECTION-CLOSE",
    ];
    let Some(table) = data("http11probe.json") else { return };
    for case in table["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let reading = read(&bytes(case, "request_b64"));
        if JUSTIFIED.contains(&id) || HANDLERS.iter().any(|h| id.starts_with(h)) {
            continue;
        }
        let Some(got) = status(&reading) else {
            assert!(case["no_response"]["timeout"] == "pass", "no answer: {id}");
            continue;
        };
        let tables = [&case["status"], &case["status_if_closed"]];
        let verdicts = tables.into_iter().filter_map(Value::as_array).flatten();
        let verdict = verdicts
            .filter(|r| (r[0].as_u64().unwrap()..=r[1].as_u64().unwrap()).contains(&got))
            .map(|r| r[2].as_str().unwrap_or("fail"))
            .next_back();
        let waits =
            case["no_response"]["timeout"] == "pass" && got == 200 && reading.requests[0].1.len() < 10;
        assert!(verdict.is_some() || waits, "{id}: got {got}: {}", case["desc"]);
    }
}

#[test]
fn llhttp_and_go_what_must_be_rejected_is_no_request() {
    for (name, field) in [("llhttp_requests.json", "stream_b64"), ("go_requests.json", "request_b64")] {
        let Some(table) = data(name) else { return };
        for case in table["cases"].as_array().unwrap() {
            let field = if case[field].is_string() { field } else { "stream_b64" };
            let reading = read(&bytes(case, field));
            // Nothing is read after a request that ends its connection: that is the server's part.
            let behind_close = case["error"].as_str().is_some_and(|e| e.starts_with("Data after"));
            if case["verdict"] == "reject" && !behind_close {
                // A stream that is truncated before its fault shows is not a complete request
                // either.
                let complete =
                    reading.requests.len() > 1 || (reading.requests.len() == 1 && reading.fault.is_none());
                let last_ok = complete && reading.fault.is_none();
                assert!(!last_ok, "{}: {reading:?}", case["id"]);
            }
        }
    }
}

#[test]
fn both_lengths_are_refused_wherever_they_stand() {
    let Some(table) = data("http11probe.json") else { return };
    for case in table["sequences"].as_array().unwrap() {
        for step in case["steps"].as_array().into_iter().flatten() {
            let stream: Vec<u8> =
                step["parts"].as_array().into_iter().flatten().flat_map(|p| bytes(p, "b64")).collect();
            let text = String::from_utf8_lossy(&stream).to_ascii_lowercase();
            let reading = read(&stream);
            if text.contains("\r\ntransfer-encoding:") && text.contains("\r\ncontent-length:") {
                assert!(reading.requests.is_empty(), "{}", case["id"]);
                let fault = reading.fault.unwrap();
                assert!(
                    matches!(
                        fault,
                        RequestFault::BothLengths
                            | RequestFault::Folding
                            | RequestFault::ContentLength
                            | RequestFault::TransferEncoding
                    ),
                    "{fault}"
                );
            }
        }
    }
}
