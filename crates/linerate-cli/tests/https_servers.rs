//! `linerate load` and `explain` over HTTPS against the servers that people run: a test for each.

mod common;
mod issued;
mod real;
mod real_tls;

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use common::{measured, number, run, until};
use issued::Issued;
use real::{Counts, find};
use real_tls::Site;
use serde_json::Value;

/// One server at a time: a diagnosis suffers from a busy machine.
static TURN: Mutex<()> = Mutex::new(());

/// Kept connections, pipelined requests, a handshake for each request, and the older version.
const FLAGS: [(&str, u64); 5] = [
    ("-c 8 --http 1.1", 1000),
    ("-c 4 -p 8 --http 1.1 --io uring", 1000),
    ("-c 4 --per-connection 1 --http 1.1", 100),
    ("-c 4 --per-connection 1 --http 1.1 --tls-max 1.2", 100),
    ("-c 4 -p 8", 1000),
];

/// The server's own count.
fn counted(site: &Site, curl: &Path, cacert: &str) -> u64 {
    site.logged().unwrap_or_else(|| {
        let mut command = Command::new(curl);
        command.args(["-sS", "-4", "--max-time", "20", "--cacert", cacert, &format!("{}count", site.url())]);
        let out = command.output().expect("it runs");
        String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or_else(|_| panic!("{out:?}"))
    })
}

/// All is answered, and counted alike on both sides.
fn loads(site: &Site, curl: &Path, cacert: &str, speaks_http2: bool, pipelines: bool) {
    let counted = || counted(site, curl, cacert);
    for (flags, n) in FLAGS.into_iter().filter(|(flags, _)| pipelines || !flags.contains("-p ")) {
        let (before, n_text, url) = (counted(), n.to_string(), site.url());
        let mut words = vec!["-4", "--cacert", cacert, "-n", &n_text];
        words.extend(flags.split(' '));
        words.push(&url);
        let (document, _) = measured(&words);
        let counts = Counts::of(&document);
        assert_eq!((counts.answered, counts.failed, counts.unknown), (n, 0, 0), "{flags}: {document:#}");
        assert_eq!(document["status"]["200"], n, "{flags}");
        let version = if flags.contains("1.2") { "TLSv1.2" } else { "TLSv1.3" };
        assert_eq!(document["tls"]["version"], version, "{flags}");
        let handshakes = number(&document, "/tls/full") + number(&document, "/tls/resumed");
        assert!(handshakes >= number(&document, "/connections/opened"), "{flags}: {document:#}");
        if flags.contains("--per-connection") {
            assert!(number(&document, "/tls/resumed") > 0, "{flags}: {}", document["tls"]);
        }
        let protocol = if speaks_http2 && !flags.contains("1.1") { "HTTP/2" } else { "HTTP/1.1" };
        assert_eq!(document["protocol"], protocol, "{flags}");
        // A log is written behind the response.
        until("the server's count", || counted() - before >= n);
        counts.agree_with(counted() - before);
    }
}

/// Nothing is wrong but that a busy machine makes the server late, and sessions are resumed.
fn explained(site: &Site, cacert: &str) {
    let flags = ["explain", "--quiet", "--json", "-", "--budget", "12s", "-4", "--cacert", cacert];
    let said = run(&[&flags[..], &[&site.url()]].concat());
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let causes = document["causes"].as_array().expect("a list");
    assert!(causes.iter().all(|cause| cause["id"] == "server-think"), "{document:#}");
    assert_eq!(said.code, Some(i32::from(!causes.is_empty())), "{document:#}");
    assert_eq!(document["tls"]["version"], "TLSv1.3", "{document:#}");
    assert!(document["tls"]["resumed"].as_u64() >= Some(1), "{document:#}");
    // None asks for another key share than those that browsers send.
    let ruled_out = document["ruled_out"].as_array().expect("a list");
    assert!(ruled_out.iter().any(|cause| cause["id"] == "tls-hello-retry"), "{document:#}");
}

fn check(make: impl Fn(&Issued) -> Option<Site>, speaks_http2: bool, pipelines: bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    let (Some(site), Some(curl)) = (make(&issued), find("curl")) else { return };
    loads(&site, &curl, &cacert, speaks_http2, pipelines);
    explained(&site, &cacert);
}

#[test]
fn nginx() {
    check(real_tls::nginx, false, true);
}

#[test]
fn haproxy() {
    check(real_tls::haproxy, true, true);
}

#[test]
fn caddy() {
    check(real_tls::caddy, true, true);
}

#[test]
fn node() {
    check(real_tls::node, false, true);
}

#[test]
fn go() {
    check(real_tls::go, true, true);
}

#[test]
fn jdk() {
    // Over TLS it leaves pipelined requests unread until more bytes come: Python's ssl module, which sends
    // eight at once in a record each, got 1 to 5 responses in 40 of 40 attempts (JDK 17).
    check(real_tls::jdk, false, false);
}
