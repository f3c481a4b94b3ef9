//! `linerate explain --pcap FILE --keylog KEYS`: calls inside TLS, captured here from nginx and real
//! clients, and compared with tshark where that is installed.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::run;
use issued::Issued;
use linerate_net::capture::{Capture, CaptureOptions};
use serde_json::Value;

/// Packets of a port, as a capture file. `None`: capturing is not permitted here.
fn captured(port: u16, what: impl FnOnce()) -> Option<Vec<u8>> {
    let options = CaptureOptions { port: Some(port), ..CaptureOptions::default() };
    let mut capture = match Capture::open(&options) {
        Ok(capture) => capture,
        Err(e) => {
            println!("not run: {e}");
            return None;
        }
    };
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    let thread = thread::spawn(move || {
        // pcap with nanoseconds, packets from their IP header on (LINKTYPE_RAW).
        let mut file = Vec::new();
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, 101] {
            file.extend(word.to_le_bytes());
        }
        let mut quiet = 0;
        while quiet < 3 {
            let before = file.len();
            capture
                .next(Duration::from_millis(50), |p| {
                    let (s, ns) = (p.time_ns / 1_000_000_000, p.time_ns % 1_000_000_000);
                    for word in [s as u32, ns as u32, p.data.len() as u32, p.wire_len] {
                        file.extend(word.to_le_bytes());
                    }
                    file.extend(p.data);
                })
                .unwrap();
            quiet = if told.load(Ordering::Acquire) && file.len() == before { quiet + 1 } else { 0 };
        }
        file
    });
    what();
    over.store(true, Ordering::Release);
    Some(thread.join().unwrap())
}

/// A folder with a capture and the keys of what is in it.
struct Files {
    dir: tempfile::TempDir,
    port: u16,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn explain(&self, more: &[&str]) -> (Value, String) {
        let capture = self.path("calls.pcap").display().to_string();
        let said = run(&[&["explain", "--json", "-", "--pcap", &capture], more].concat());
        let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        (document, said.err.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn with_keys(&self) -> (Value, String) {
        self.explain(&["--keylog", &self.path("keys").display().to_string()])
    }
}

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

/// Lines that tshark writes, its answer to a filter. `None`: it is not installed.
fn tshark(files: &Files, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new(real::find("tshark")?);
    command.args(["-r", files.path("calls.pcap").to_str()?, "-o"]);
    command.arg(format!("tls.keylog_file:{}", files.path("keys").display()));
    command.args(["-d", &format!("tcp.port=={},tls", files.port), "-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
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
    let requests = tshark(&files, "http.request", &["http.request.uri"]);
    if let Some(mut theirs) = requests {
        // tshark opens CBC, too.
        theirs.retain(|uri| uri != "/cbc");
        assert_eq!(theirs.len(), 14, "{theirs:?}");
        let times = tshark(&files, "http.response", &["http.request.uri", "http.response.code", "http.time"])
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
