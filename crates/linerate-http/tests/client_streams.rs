//! The response streams of curl's, llhttp's and Go's own tests, read at every cut of their bytes.
//!
//! They are beside the repository, not in it. Where curl, Go and Python agree with the table, we
//! must too. Elsewhere our deviations are listed here by name, with reasons in
//! `docs/HTTP-CLIENT.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linerate_http::client::fuzz::{Transcript, cut, read};
use linerate_http::client::{Expect, FaultySide, HeadCache, ResponseLimits};
use linerate_skips::{need, skip};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    #[serde(default)]
    method: Option<String>,
    stream_b64: String,
    verdict: String,
    /// The stream is not a single complete response: it only must not depend on cuts.
    #[serde(default)]
    either: bool,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    body_b64: Option<String>,
}

#[derive(Deserialize)]
struct Consensus {
    agree: u8,
}

impl Case {
    fn stream(&self) -> Vec<u8> {
        STANDARD.decode(&self.stream_b64).expect("base64")
    }

    fn expect(&self) -> [Expect; 1] {
        [if self.method.as_deref() == Some("HEAD") { Expect::Head } else { Expect::Usual }]
    }
}

/// The cases; none, with a message, if the tables are missing.
fn cases() -> Vec<Case> {
    let suites = suites();
    let mut cases = Vec::new();
    for name in ["curl", "llhttp", "go"] {
        let path = suites.join(format!("data/{name}_responses.json"));
        let Ok(text) = fs::read_to_string(&path) else {
            skip(need::SUITES, format_args!("{} is not there", path.display()));
            return Vec::new();
        };
        cases.extend(serde_json::from_str::<Table>(&text).expect("a table of cases").cases);
    }
    cases
}

fn suites() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/suites"))
}

/// One request was sent: its response is the first final one.
fn first(transcript: &Transcript) -> Option<(u16, &[u8])> {
    transcript.answers().next()
}

fn whole(case: &Case, stream: &[u8]) -> Transcript {
    read(&mut HeadCache::new(), [stream], ResponseLimits::default(), &case.expect(), false)
}

#[test]
fn where_curl_go_and_python_agree_so_do_we() {
    let path = suites().join("reference/client_consensus.json");
    let Ok(text) = fs::read_to_string(&path) else {
        return skip(need::SUITES, format_args!("{} is not there", path.display()));
    };
    let consensus: BTreeMap<String, Consensus> = serde_json::from_str(&text).expect("the consensus");
    let mut demanded = 0;
    for case in cases() {
        if case.either || consensus.get(&case.id).is_none_or(|c| c.agree < 3) {
            continue;
        }
        demanded += 1;
        let stream = case.stream();
        let transcript = whole(&case, &stream);
        let answer = first(&transcript);
        let outcome = if answer.is_some() { "accept" } else { "reject" };
        assert_eq!(outcome, case.verdict, "{}: {transcript:?}", case.id);
        let Some((status, body)) = answer else { continue };
        assert!(case.status.is_none_or(|s| s == status), "{}: status {status}", case.id);
        if let Some(expected) = &case.body_b64 {
            assert_eq!(body, STANDARD.decode(expected).expect("base64"), "{}: body", case.id);
        }
    }
    assert!(demanded == 0 || demanded >= 58, "only {demanded} cases demand anything");
}

#[test]
fn any_cut_of_the_bytes_gives_the_same() {
    for case in cases() {
        let stream = case.stream();
        let (limits, expect) = (ResponseLimits::default(), case.expect());
        let reference = whole(&case, &stream);
        let mut warm = HeadCache::new();
        let bytewise = read(&mut HeadCache::new(), stream.chunks(1), limits, &expect, false);
        assert_eq!(reference, bytewise, "{}: byte by byte", case.id);
        for at in cuts_of(stream.len()) {
            let fresh = read(&mut HeadCache::new(), cut(&stream, &[at]), limits, &expect, false);
            assert_eq!(reference, fresh, "{}: cut at {at}", case.id);
            let known = read(&mut warm, cut(&stream, &[at]), limits, &expect, true);
            assert_eq!(reference, known, "{}: cut at {at}, head known", case.id);
        }
    }
}

/// Every cut of a short stream; of a long one those in its first kilobyte and some of the others.
fn cuts_of(len: usize) -> Vec<usize> {
    if len <= 3000 { (0..=len).collect() } else { (0..1000).chain((1000..len).step_by(len / 100)).collect() }
}

/// Our results for streams on which curl, Go and Python do not all agree with the table.
const DEVIATIONS: [(&str, &str); 21] = [
    ("curl-test66", "reject"),
    ("curl-test129", "accept"),
    ("curl-test269", "reject"),
    ("curl-test395", "reject"),
    ("curl-test772", "accept"),
    ("curl-test1473", "reject"),
    ("curl-test1722", "accept"),
    ("llhttp-res-connection-05", "accept"),
    ("llhttp-res-connection-07", "accept"),
    ("llhttp-res-connection-13", "reject"),
    ("llhttp-res-content-length-01", "reject"),
    ("llhttp-res-invalid-15", "accept"),
    ("llhttp-res-invalid-17", "accept"),
    ("llhttp-res-sample-00", "reject"),
    ("llhttp-res-sample-06", "reject"),
    ("llhttp-res-sample-10", "accept"),
    ("llhttp-res-sample-12", "reject"),
    ("llhttp-res-sample-13", "reject"),
    ("llhttp-res-sample-14", "reject"),
    ("llhttp-res-sample-16", "reject"),
    ("llhttp-res-transfer-encoding-04", "reject"),
];

#[test]
fn deviations_from_the_tables_are_the_documented_ones() {
    let mut found = Vec::new();
    for case in cases() {
        let stream = case.stream();
        let ours = if first(&whole(&case, &stream)).is_some() { "accept" } else { "reject" };
        if !case.either && ours != case.verdict {
            found.push((case.id, ours));
        }
    }
    if !found.is_empty() {
        let found: Vec<(&str, &str)> = found.iter().map(|(id, ours)| (&**id, *ours)).collect();
        assert_eq!(found, DEVIATIONS);
    }
}

/// Streams that lack the empty line at their end: they are incomplete, because the peer closed
/// within the head or the trailer section (RFC 9112, section 8).
const UNFINISHED: [&str; 9] = [
    "llhttp-res-connection-13",
    "llhttp-res-content-length-01",
    "llhttp-res-sample-00",
    "llhttp-res-sample-06",
    "llhttp-res-sample-12",
    "llhttp-res-sample-13",
    "llhttp-res-sample-14",
    "llhttp-res-sample-16",
    "llhttp-res-transfer-encoding-04",
];

#[test]
fn unfinished_streams_are_accepted_once_finished() {
    for case in cases().into_iter().filter(|c| UNFINISHED.contains(&&*c.id)) {
        let mut stream = case.stream();
        let cut_off = whole(&case, &stream).error.expect("a fault");
        assert_eq!(cut_off.fault(), FaultySide::Cut, "{}", case.id);
        stream.extend_from_slice(b"\r\n");
        let finished = whole(&case, &stream);
        assert_eq!((finished.answers().count(), finished.error), (1, None), "{}", case.id);
    }
}
