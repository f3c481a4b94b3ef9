//! `--line`: packets to a server of this machine pass a shaped line. Needs root.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;

use common::{measured, run};
use linerate_netbox::NetBox;
use linerate_skips::{need, skip};
use serde_json::Value;

/// A server that the run starts: `{port}` stands for a free port.
fn own_server() -> String {
    format!("cmd:{} serve --listen 127.0.0.1:{{port}} --threads 1", env!("CARGO_BIN_EXE_linerate"))
}

fn cannot() -> bool {
    match NetBox::unavailable() {
        Some(why) => {
            skip(need::NAMESPACES, why);
            true
        }
        None => false,
    }
}

/// The document of a load over a line.
fn document(line: &str, flags: &[&str]) -> Value {
    let server = own_server();
    let (document, said) = measured(&[&["--line", line, &server], flags].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    document
}

#[test]
fn the_kernel_counts_what_the_line_loses() {
    if cannot() {
        return;
    }
    let flags = ["-c", "20", "-n", "2000", "--timeout", "60s"];
    let lossless = document("10ms", &flags);
    assert_eq!(lossless["tcp"]["retransmits"], 0, "{}", lossless["tcp"]);
    assert_eq!(lossless["shaped_line"]["up"]["lost"], 0);
    let lossy = document("10ms,loss=1%", &flags);
    assert!(lossy["tcp"]["retransmits"].as_u64().unwrap() > 0, "{}", lossy["tcp"]);
    let line = &lossy["shaped_line"];
    assert!(line["up"]["lost"].as_u64().unwrap() > 0 && line["down"]["lost"].as_u64().unwrap() > 0, "{line}");
    assert_eq!(line["text"], "10 ms round trip, 1 % lost each way");
    assert_eq!(lossy["requests"]["answered"], 2000);
}

#[test]
fn a_connection_takes_the_lines_round_trip() {
    if cannot() {
        return;
    }
    let document = document("regions", &["-c", "2", "-n", "4"]);
    let connect = &document["latency_us"]["connect"];
    assert!(connect["min"].as_f64().unwrap() >= 26_000.0, "{connect}");
    assert!(document["latency_us"]["from_sent"]["min"].as_f64().unwrap() >= 26_000.0);
    assert!(document["tcp"]["rtt_min_us"].as_f64().unwrap() >= 26_000.0, "{}", document["tcp"]);
}

#[test]
fn a_body_comes_no_faster_than_the_line_carries() {
    if cannot() {
        return;
    }
    let at = common::responding(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")?;
        stream.write_all(&vec![b'x'; 5_000_000])
    });
    let url = format!("http://{at}/");
    let (document, said) = measured(&["--line", "telecom", "-c", "1", "-n", "1", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // 5 MB at 100 Mbit/s.
    let took = document["latency_us"]["from_sent"]["min"].as_f64().unwrap();
    assert!(took >= 400_000.0, "{took}");
    assert_eq!(document["shaped_line"]["rate_bps"], 100_000_000);
}

/// As without a line, a path is meant from where the command runs.
#[test]
fn files_are_read_and_written_where_the_command_runs() {
    if cannot() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("body.txt"), "text").unwrap();
    let files = ["out.html", "out.csv", "fine.csv", "log.csv"];
    let flags = ["--html", "--csv", "--csv-fine", "--log-requests"];
    let url = own_server();
    let mut command =
        common::linerate(&["load", "-q", "-c", "1", "-n", "3", "--line", "2ms", "--body", "@body.txt"]);
    command.args(flags.iter().zip(files).flat_map(|(flag, file)| [*flag, file])).arg(url);
    let output = command.args(["--save-responses", "saved"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for file in files.iter().chain(&["saved"]) {
        assert!(folder.path().join(file).exists(), "{file}: {output:?}");
    }
}

#[test]
fn explain_sees_the_line() {
    if cannot() {
        return;
    }
    let said = run(&["explain", "--line", "20ms", "-q", "--json", "-", "--budget", "5s", &own_server()]);
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert!(document["call"]["rtt_ms"].as_f64().unwrap() >= 20.0, "{}", document["call"]);
}

#[test]
fn what_a_line_cannot_do_is_named() {
    for (words, exit, text) in [
        (vec!["--line", "fast", "http://127.0.0.1:1/"], 2, "100mbit,26ms,loss=1%"),
        (vec!["--line", "5ms", "--metrics", "127.0.0.1:0", "http://127.0.0.1:1/"], 2, "--metrics"),
        (vec!["--line", "5ms", "http://192.0.2.1/"], 2, "it is no address of this machine"),
        (vec!["--line", "5ms", "http://[::1]:1/"], 2, "IPv4 alone"),
        (vec!["cmd:"], 2, "no program is named"),
    ] {
        let said = run(&[&["load"], &words[..]].concat());
        assert_eq!(said.code, Some(exit), "{words:?}: {said:?}");
        assert!(said.err.contains(text), "{words:?}: {said:?}");
    }
}

#[test]
fn who_is_not_root_is_told() {
    if cannot() {
        return;
    }
    let line = ["--line", "5ms", "-n", "1", "http://127.0.0.1:1/"];
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
    let output = command.args([env!("CARGO_BIN_EXE_linerate"), "load"]).args(line).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("network namespaces take root"), "{error}");
}

#[test]
fn a_group_of_the_lab_has_a_line() {
    if cannot() {
        return;
    }
    let words = ["lab", "pipelining", "--only", "loopback", "--line", "12ms", "-q", "--json", "-"];
    let said = run(&[&words[..], &["--rounds", "1", "-d", "200ms"]].concat());
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let group = &document["groups"][0];
    assert_eq!(group["line"]["text"], "12 ms round trip");
    // A starved client reads what came behind the time that its turn began at, in a pipeline above all.
    let rows = group["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| !row["flags"].as_str().unwrap_or_default().contains("-p ")) {
        assert!(row["min_us"].as_f64().unwrap() >= 10_000.0, "{row}");
    }
    assert!(said.err.contains("Over a line of 12 ms round trip: "), "{}", said.err);
}
