//! `linerate explain --pcap FILE --keylog KEYS`: calls inside TLS, captured here from nginx and real
//! clients, and compared with tshark where that is installed.
#![allow(clippy::unwrap_used)]

mod captured;
mod common;
mod issued;
mod real;

use std::path::Path;
use std::process::Command;

use captured::{Files, captured};
use common::run;
use issued::Issued;
use serde_json::Value;

fn curl(keys: &Path, flags: &[&str], urls: &[String]) {
    let mut command = Command::new(real::find("curl").unwrap());
    command.env("SSLKEYLOGFILE", keys).args(["-sk", "--http1.1", "-m", "10"]).args(flags);
    for url in urls {
        command.args(["-o", "/dev/null", url]);
    }
    assert!(command.status().unwrap().success(), "curl {flags:?}");
}

/// nginx, and calls of it by every suite. `None`: something is missing here.
fn calls() -> Option<Files> {
    let issued = Issued::to("localhost");
    let more = "ssl_ciphers ALL:@SECLEVEL=0; location /large { root www; } location /missing { return 404; }";
    let server = real::nginx_tls(&issued.certificate, &issued.key, more)?;
    std::fs::create_dir(server.file("www")).unwrap();
    std::fs::write(server.file("www/large"), "x".repeat(60_000)).unwrap();
    real::find("curl")?;
    let files = Files { dir: real::folder(), port: server.address.port() };
    let keys = files.path("keys");
    let url = |path: &str| format!("https://{}{path}", server.address);
    let bytes = captured(files.port, || {
        // Several on one connection, of several records each.
        curl(&keys, &[], &[url("/first"), url("/large"), url("/missing")]);
        for suite in ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] {
            curl(&keys, &["--tlsv1.3", "--tls13-ciphers", suite], &[url(&format!("/{suite}"))]);
        }
        for suite in ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"] {
            let name = format!("ECDHE-ECDSA-{suite}");
            let flags = ["--tls-max", "1.2", "--ciphers", name.as_str()];
            curl(&keys, &flags, &[url(&format!("/{suite}")), url("/large")]);
        }
        curl(&keys, &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-SHA"], &[url("/cbc")]);
        let load = common::linerate(&["load", "--insecure", "-c", "1", "-n", "3", &url("/load")])
            .env("SSLKEYLOGFILE", &keys)
            .output()
            .unwrap();
        assert!(load.status.success(), "{load:?}");
    })?;
    std::fs::write(files.path("calls.pcap"), bytes).unwrap();
    Some(files)
}

/// The calls of a document, by when they were made.
fn targets(document: &Value) -> Vec<String> {
    let calls = document["slowest"].as_array().unwrap();
    let mut all: Vec<_> =
        calls.iter().map(|c| format!("{} {}", c["target"].as_str().unwrap(), c["status"])).collect();
    all.sort();
    all
}

#[test]
fn calls_inside_tls_are_read_with_their_keys() {
    let Some(files) = calls() else { return };
    let (document, text) = files.with_keys();
    let counts = &document["counts"];
    // 3 + 2 + 2 * 3 + 3 calls, and one with CBC, which is timed.
    assert_eq!((&counts["answered"], &counts["calls_timed"]), (&15.into(), &1.into()), "{document:#}");
    assert_eq!((&counts["connections_tls_read"], &counts["connections_tls"]), (&7.into(), &1.into()));
    assert!(text.contains("1 connection with TLS in a cipher suite with CBC"), "{text}");
    let requests = files.tshark("tls", "http.request", &["http.request.uri"]);
    if let Some(mut theirs) = requests {
        // tshark opens CBC, too.
        theirs.retain(|uri| uri != "/cbc");
        assert_eq!(theirs.len(), 14, "{theirs:?}");
        let times = files
            .tshark("tls", "http.response", &["http.request.uri", "http.response.code", "http.time"])
            .unwrap();
        assert!(times.len() >= 14, "{times:?}");
        for call in document["slowest"].as_array().unwrap().iter().filter(|c| c["status"] != 0) {
            let line = format!("{}\t{}\t", call["target"].as_str().unwrap(), call["status"]);
            let ours =
                ["wait_ms", "receive_ms"].iter().map(|part| call[*part].as_f64().unwrap()).sum::<f64>();
            let theirs = times.iter().filter_map(|t| t.split('\t').nth(2)?.parse::<f64>().ok());
            let near = theirs.clone().any(|s| (s * 1e3 - ours).abs() < 0.5 + 0.05 * ours);
            assert!(near, "{line} {ours} ms, tshark: {times:?}");
        }
    }
    let all = targets(&document);
    assert!(all.iter().any(|t| t == "/missing 404") || all.len() == 10, "{all:?}");
}

#[test]
fn calls_inside_tls_are_timed_without_their_keys() {
    let Some(files) = calls() else { return };
    let (document, text) = files.explain(&[]);
    let counts = &document["counts"];
    assert_eq!(
        (&counts["answered"], &counts["calls_timed"], &counts["connections_http"]),
        (&15.into(), &15.into(), &0.into()),
        "{document:#}"
    );
    assert!(document["slowest"].as_array().unwrap().iter().all(|c| c["method"] == "TLS" && c["status"] == 0));
    assert!(
        text.contains("connections with TLS that were not decrypted: --keylog FILE reads them"),
        "{text}"
    );
    assert!(text.contains("15 calls timed by the sizes and times of sealed records"), "{text}");
}

#[test]
fn key_logs_that_are_none_are_bad_input() {
    let dir = real::folder();
    let capture = format!("{}/../../fuzz/corpus/capture/call", env!("CARGO_MANIFEST_DIR"));
    let explain = |text: &str| {
        let path = dir.path().join("keys");
        std::fs::write(&path, text).unwrap();
        run(&["explain", "--pcap", &capture, "--keylog", path.to_str().unwrap()])
    };
    for (text, words) in [
        ("", "is no key log: it has no secret"),
        ("-----BEGIN PRIVATE KEY-----\n", "is no key log: line 1: "),
        ("CLIENT_RANDOM 12 34\n", "line 1: the client's random"),
    ] {
        let said = explain(text);
        assert!(said.code == Some(2) && said.out.is_empty() && said.err.contains(words), "{said:?}");
        assert!(said.err.contains("hint: a client writes one"), "{said:?}");
    }
    let missing = run(&["explain", "--pcap", &capture, "--keylog", "/nowhere/keys"]);
    assert!(missing.code == Some(2) && missing.err.contains("cannot be read"), "{missing:?}");
    let alone = run(&["explain", "--keylog", "keys", "http://127.0.0.1/"]);
    assert!(alone.code == Some(2) && alone.err.contains("--pcap"), "{alone:?}");
}
