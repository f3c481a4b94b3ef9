//! The public suites against the server over sockets. They lie beside the repository; without them, or without Python, the
//! test says so and ends.
#![allow(clippy::unwrap_used)]

#[path = "../../linerate-net/tests/namespaces/mod.rs"]
mod namespaces;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use linerate_serve::{Handle, Io, ServerOptions, spawn};
use namespaces::{Cable, OUR_V4, OURS};
use serde_json::Value;

/// Verdicts of the tables that the RFCs do not share; docs/SERVE-CONFORMANCE.md says why, with the section of each.
const JUSTIFIED: [&str; 5] = [
    "MAL-POST-CL-HUGE-NO-BODY",
    "SMUG-GET-CL-PREFIX-DESYNC",
    "SMUG-CL0-BODY-POISON",
    "llhttp-req-method-15",
    "go-req-ap",
];

/// Runs all suites; the cases that failed without a good reason, `None` when they can't be run here.
fn failures(server: &Handle, runner: &Path) -> Option<BTreeSet<String>> {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let run = Command::new("python3")
        .arg(runner)
        .args([&server.addr().ip().to_string(), &server.addr().port().to_string(), "--echo"])
        .args(["--suite", "h1spec,probe,seq,split,llreq", "--out"])
        .arg(&report)
        .output()
        .ok()?;
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let mut bad = BTreeSet::new();
    for (suite, result) in report.as_object().unwrap() {
        println!("{suite}: {}", result["counts"]);
        for case in result["cases"].as_array().unwrap() {
            let id = case["id"].as_str().unwrap();
            let failed = case["verdict"] == "fail" || case["verdict"] == "error";
            if failed && (suite == "h1spec" || suite == "split" || !JUSTIFIED.contains(&id)) {
                bad.insert(format!("{suite} {id}: {}", case["desc"]));
            }
        }
    }
    assert_eq!(report["h1spec"]["cases"].as_array().unwrap().len(), 33);
    Some(bad)
}

#[test]
fn h1spec_probe_sequences_cuts_and_parsers_tables() {
    let Some(runner) = linerate_skips::suite("bin/h1_server.py") else { return };
    judge(&spawn(ServerOptions { http2: false, ..ServerOptions::default() }).unwrap(), &runner);
}

/// The same past the kernel: the server at one end of a cable, the suites with the kernel's TCP at the other.
#[test]
fn h1spec_probe_sequences_cuts_and_parsers_tables_over_xdp() {
    let Some(runner) = linerate_skips::suite("bin/h1_server.py") else { return };
    let Some(cable) = Cable::new(1) else { return };
    let listen = vec![std::net::SocketAddr::from((OUR_V4, 8080)).into()];
    let options = ServerOptions {
        io: Io::Xdp,
        interface: Some(OURS.to_owned()),
        listen,
        http2: false,
        ..ServerOptions::default()
    };
    let server = cable.ours.run(|| spawn(options)).unwrap();
    cable.theirs.run(|| judge(&server, &runner));
}

/// All verdicts have to be good, or justified.
fn judge(server: &Handle, runner: &Path) {
    // The runner waits for half a second where an answer must not come or must: on a busy machine that says little once.
    let mut bad: Option<BTreeSet<String>> = None;
    for _ in 0..3 {
        let Some(now) = failures(server, runner) else {
            return linerate_skips::skip("python3", "python3 is not installed");
        };
        let still = bad.map_or(now.clone(), |before| &before & &now);
        if still.is_empty() {
            assert_eq!(server.counts().panics, 0);
            return;
        }
        bad = Some(still);
    }
    panic!("failed three times: {bad:#?}");
}
