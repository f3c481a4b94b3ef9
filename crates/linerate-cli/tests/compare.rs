//! `linerate compare` and `linerate report`, against real servers.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Said, run};
use serde_json::Value;

/// `cmd:` with our own server and more arguments.
fn ours(more: &str) -> String {
    format!("cmd:{} serve --listen 127.0.0.1:0 {more}", env!("CARGO_BIN_EXE_linerate"))
}

const SHORT: [&str; 7] = ["--rounds", "3", "-d", "400ms", "--warm-up", "50ms", "-q"];

/// Compares; the document and the rest.
fn compared(args: &[&str]) -> (Value, Said) {
    let all: Vec<&str> =
        ["compare"].iter().chain(args).chain(&SHORT).chain(&["--json", "-"]).copied().collect();
    let said = run(&all);
    let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (document, said)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Whether nothing accepts connections at a document's side any more.
fn is_gone(document: &Value, side: &str) -> bool {
    let target = document[side]["target"].as_str().unwrap();
    let address = target.trim_start_matches("http://").split('/').next().unwrap();
    TcpStream::connect(address).is_err()
}

#[test]
fn a_server_that_thinks_is_found_slower_and_both_are_watched_and_ended() {
    let (document, said) = compared(&[&ours(""), &ours("--misbehave think=5"), "-c", "2", "-H", "X-A: b"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(document["schema"], "linerate.comparison/1");
    let p50 = &document["metrics"]["p50_us"];
    // How sure three short rounds are depends on what else this machine does.
    assert!(number(&p50["b"]) > 4_900.0 && p50["verdict"] != "b", "{document:#}");
    assert!(
        number(&p50["ci95"][0]) < number(&p50["ratio"]) && number(&p50["ratio"]) < number(&p50["ci95"][1])
    );
    assert_ne!(document["metrics"]["rate_rps"]["verdict"], "b", "{document:#}");
    for metric in ["cpu_us_per_request", "rss_mb", "client_cpu_us_per_request"] {
        let found = &document["metrics"][metric];
        assert!(number(&found["a"]) > 0.0 && number(&found["b"]) > 0.0, "{metric}: {document:#}");
    }
    let rounds = document["rounds"].as_array().unwrap();
    let first: Vec<&str> = rounds.iter().map(|r| r["first"].as_str().unwrap()).collect();
    assert_eq!(first, ["a", "b", "a"]);
    assert!(is_gone(&document, "a") && is_gone(&document, "b"), "{document:#}");
    // The same for people, on standard error beside the document.
    assert!(said.err.contains("p50 latency") && said.err.contains("95 % interval"), "{}", said.err);
}

#[test]
fn two_ways_of_sending_to_one_server() {
    let (document, said) = compared(&[&ours(""), "--a", "-p 1", "--b", "-p 32", "-p", "8", "-c", "2"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // Three rounds on a machine that also runs other tests may not suffice for a verdict.
    assert_ne!(document["metrics"]["rate_rps"]["verdict"], "a", "{document:#}");
    assert!(!document["warnings"].to_string().contains("different work"), "{document:#}");
    let sending = |side: &str| document[side]["sending"].as_str().unwrap().to_owned();
    assert!(sending("a").contains("1 in flight on each"), "{}", sending("a"));
    assert!(sending("b").contains("32 in flight on each"), "{}", sending("b"));
    assert_eq!(document["a"]["target"], document["b"]["target"]);
}

#[test]
fn servers_that_print_no_url_get_a_port_or_are_named_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "hello").unwrap();
    let python = format!(
        "cmd:python3 -m http.server --bind 127.0.0.1 --directory {} {{port}}",
        folder.path().display()
    );
    let port = common::nobody().port();
    let config = format!(
        "daemon off; pid {0}/pid; error_log {0}/errors; worker_processes 1;\nevents {{}}\nhttp {{ access_log off; server {{ \
         listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n",
        folder.path().display()
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let nginx = format!("cmd:nginx -p {} -c {}", folder.path().display(), file.display());
    let url = format!("http://127.0.0.1:{port}/");
    let (document, said) = compared(&[&python, &nginx, "--b-url", &url, "-c", "2", "--path", "/"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let cpu = &document["metrics"]["cpu_us_per_request"];
    assert!(number(&cpu["a"]) > 0.0 && number(&cpu["b"]) > 0.0, "{document:#}");
    assert!(is_gone(&document, "a") && is_gone(&document, "b"));
}

#[test]
fn a_check_that_fails_is_exit_code_1() {
    let server = ours("");
    let args = [
        server.as_str(),
        "--a",
        "-c 1",
        "--b",
        "-c 4",
        "--check",
        "rate ratio<1000",
        "--check",
        "p99 ratio<0.0001",
    ];
    let (document, said) = compared(&args);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(document["checks"][0]["pass"], true);
    assert_eq!(document["checks"][1]["pass"], false);
    assert!(said.err.contains("FAILED  p99 ratio<0.0001"), "{}", said.err);
    let each = compared(&[&server, "--a", "-c 1", "--b", "-c 4", "--check-each", "max<1ns"]).1;
    assert!(each.code == Some(1) && each.err.contains("--check-each failed in 6 runs"), "{each:?}");
}

/// The messages for wrong input, a line each.
fn refused(args: &[&str], code: i32, part: &str) {
    let all: Vec<&str> = ["compare"].iter().chain(args).copied().collect();
    let said = run(&all);
    assert!(said.code == Some(code) && said.err.contains(part), "{args:?}: {said:?}");
    assert!(said.out.is_empty(), "{said:?}");
}

#[test]
fn bad_input_is_named_before_anything_is_started() {
    let url = "http://127.0.0.1:1/";
    refused(&[], 2, "nothing to compare");
    refused(&[url], 2, "A and B are the same");
    refused(&[url, url, "--rounds", "0"], 2, "1 to 1000");
    refused(&[url, "--b", "-p x"], 2, "--b \"-p x\"");
    refused(&[url, "--b", "--nonsense"], 2, "flags of linerate load");
    refused(&[url, "--b", "http://x/"], 2, "is no flag");
    refused(&[url, "--b", "--explain"], 2, "about a single run");
    refused(&[url, url, "--dry-run"], 2, "about a single run");
    refused(&[url, url, "--agents-local", "2"], 2, "--agents-local is about a single run");
    refused(&[url, url, "--nats", "h", "--agents", "2"], 2, "--agents is about a single run");
    refused(&[url, url, "--check", "p99<5ms"], 2, "ratio, lo, hi or change");
    refused(&[url, url, "--check", "p99 change<1.1"], 2, "--baseline FILE");
    refused(&[url, url, "--a-url", url], 2, "for a server that is started");
    refused(&["cmd:", url], 2, "no program is named");
    refused(&["cmd:a 'b", url], 2, "not closed");
    refused(&["ftp://x/", url], 2, "ftp");
    refused(&[url, url, "--json", "/no/such/folder/x.json"], 2, "--json");
    refused(&[url, url, "--html", "/no/such/folder/x.html"], 2, "--html");
    refused(&["cmd:/no/such/program", url], 2, "could not be started");
}

#[test]
fn servers_that_do_not_become_ready_are_named_with_their_last_words() {
    let url = "http://127.0.0.1:1/";
    refused(&["cmd:sh -c 'echo no configuration; exit 3'", url], 3, "| no configuration");
    refused(&["cmd:sleep 100", url, "--ready-within", "200ms"], 3, "printed no URL");
    refused(&["cmd:sleep 100 {port}", url, "--ready-within", "200ms"], 3, "");
    let nobody = format!("http://{}/", common::nobody());
    let (document, said) = compared(&[&ours(""), &nobody]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(document["broken"].as_str().unwrap().contains("B: it could not be reached"), "{document:#}");
}

#[test]
fn bad_responses_end_it_after_one_round_and_what_was_measured_is_kept() {
    let bad = common::answering("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let good = common::answering(common::HELLO);
    let (document, said) = compared(&[&format!("http://{good}/"), &format!("http://{bad}/"), "-c", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(document["rounds"].as_array().unwrap().len(), 1);
    assert!(document["broken"].as_str().unwrap().contains("status 500"), "{document:#}");
    assert!(document["warnings"].to_string().contains("different work"), "{document:#}");
}

/// A comparison that runs, and whose progress is read.
fn started(args: &[&str]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .arg("compare")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until it has said so.
fn until_said(child: &mut std::process::Child, part: &str) -> std::thread::JoinHandle<String> {
    use std::io::{BufRead, BufReader, Read};
    let mut from = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0, "it ended before it said {part}");
    }
    std::thread::spawn(move || {
        let mut rest = String::new();
        let _ = from.read_to_string(&mut rest);
        rest
    })
}

fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

/// More rounds than a test waits for.
const MANY_ROUNDS: [&str; 10] =
    ["--a", "-c 1", "--b", "-c 2", "--rounds", "500", "-d", "100ms", "--warm-up", "10ms"];

#[test]
fn interrupted_it_reports_the_rounds_so_far_and_leaves_no_server_behind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    let mut child = started(&[&[&*ours("")], &MANY_ROUNDS[..], &["--json", file.to_str().unwrap()]].concat());
    let rest = until_said(&mut child, "round 2 of 500");
    signal(&child.id().to_string(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", rest.join().unwrap());
    let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["interrupted"], true);
    assert!(document["rounds"].as_array().unwrap().len() >= 2);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Interrupted"));
    assert!(is_gone(&document, "a"));
}

#[test]
fn a_server_that_dies_on_the_way_costs_no_round_that_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pid) = (folder.path().join("out.json"), folder.path().join("pid"));
    let dying = format!(
        "cmd:sh -c 'echo $$ > {}; exec {} serve --listen 127.0.0.1:0'",
        pid.display(),
        env!("CARGO_BIN_EXE_linerate")
    );
    let good = ours("");
    let mut child = started(&[
        &good,
        &dying,
        "-c",
        "1",
        "--rounds",
        "500",
        "-d",
        "100ms",
        "--warm-up",
        "10ms",
        "--json",
        file.to_str().unwrap(),
    ]);
    let rest = until_said(&mut child, "round 3 of 500");
    signal(std::fs::read_to_string(&pid).unwrap().trim(), "-KILL");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", rest.join().unwrap());
    let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(document["broken"].as_str().unwrap().contains("B: it ended (signal: 9"), "{document:#}");
    assert!(number(&document["rounds_counted"]) >= 3.0);
    assert!(is_gone(&document, "a"));
}

#[test]
fn killed_at_once_by_a_second_signal_it_takes_its_servers_along() {
    // A server that does not end when asked: the wait for it is what the second signal ends.
    let stubborn = format!(
        "cmd:sh -c 'trap \"\" TERM INT; {} serve --listen 127.0.0.1:0 & wait; wait; sleep 60'",
        env!("CARGO_BIN_EXE_linerate")
    );
    let mut child = started(&[&[&*stubborn], &MANY_ROUNDS[..]].concat());
    let rest = until_said(&mut child, "round 1 of 500");
    let pid = child.id().to_string();
    signal(&pid, "-INT");
    std::thread::sleep(Duration::from_millis(300));
    signal(&pid, "-INT");
    let begun = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(begun.elapsed() < common::PATIENCE);
    // Its pipes are closed as soon as the last of its servers has ended.
    rest.join().unwrap();
}

#[test]
fn a_full_disk_loses_nothing() {
    let full =
        run(&[&["compare", &ours(""), "--a", "-c 1", "--b", "-c 2", "--json", "/dev/full"], &SHORT[..]]
            .concat());
    assert_eq!(full.code, Some(4), "{full:?}");
    assert!(full.out.contains("95 % interval"), "{full:?}");
    let kept = full.err.split("the document is in ").nth(1).unwrap().split(" instead").next().unwrap();
    let document: Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
    std::fs::remove_file(kept).unwrap();
    assert_eq!(document["rounds"].as_array().unwrap().len(), 3);
}

#[test]
fn saved_results_are_compared_with_and_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (saved, page, run_file) = (path("saved.json"), path("page.html"), path("run.json"));
    let server = ours("");
    let first = run(&[
        &["compare", &server, "--a", "-c 1", "--b", "-c 2", "--json", &saved, "--html", &page],
        &SHORT[..],
    ]
    .concat());
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let args = [&server, "--a", "-c 1", "--b", "-c 2", "--baseline", &saved, "--check", "rate change>0.001"];
    let (document, said) = compared(&args);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(number(&document["baseline"]["metrics"]["rate_rps"]["change"]) > 0.0, "{document:#}");
    // Shown again, it is what was printed at first.
    let shown = run(&["report", &saved]);
    assert_eq!((shown.code, shown.out.as_str()), (Some(0), first.out.as_str()));
    let good = common::answering(common::HELLO);
    let (outcome, _) = common::measured(&["-n", "20", &format!("http://{good}/")]);
    std::fs::write(&run_file, outcome.to_string()).unwrap();
    let both = run(&["report", &run_file, &run_file, &saved]);
    assert_eq!(both.code, Some(0), "{both:?}");
    assert!(
        both.out.contains("[2]") && both.out.contains("1.00x") && both.out.contains("in turns"),
        "{}",
        both.out
    );
    let again = path("again.html");
    assert_eq!(run(&["report", &saved, "--html", &again]).code, Some(0));
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&page).unwrap());
    not_documents(&folder, &run_file);
}

/// Files that are no document, or not the one that is meant.
fn not_documents(folder: &tempfile::TempDir, outcome: &str) {
    let path = |name: &str, text: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let huge = folder.path().join("huge.json");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let whole = std::fs::read_to_string(folder.path().join("saved.json")).unwrap();
    for (file, part) in [
        (path("cut.json", &whole.as_bytes()[..whole.len() / 2]), "ends in the middle"),
        (path("text.json", b"hello"), "no JSON"),
        (path("other.json", br#"{"schema": "other/1"}"#), "the schema \"other/1\""),
        (path("none.json", b"{}"), "no \"schema\""),
        (path("empty.json", br#"{"schema": "linerate.comparison/1"}"#), "but it is not"),
        (path("bytes.json", b"\xff\xfe"), "is no text"),
        (huge.display().to_string(), "larger than"),
        (folder.path().display().to_string(), "is a folder"),
        (folder.path().join("missing").display().to_string(), "cannot be read"),
    ] {
        let said = run(&["report", &file]);
        assert!(said.code == Some(2) && said.err.contains(part), "{file}: {said:?}");
        refused(&["http://127.0.0.1:1/", "http://127.0.0.1:2/", "--baseline", &file], 2, part);
    }
    refused(
        &["http://127.0.0.1:1/", "http://127.0.0.1:2/", "--baseline", outcome],
        2,
        "the outcome of a load run",
    );
    let said = run(&["report", outcome, outcome, "--html", "x.html"]);
    assert!(said.code == Some(2) && said.err.contains("shows one run"), "{said:?}");
    let page = folder.path().join("run.html").display().to_string();
    assert_eq!(run(&["report", outcome, "--html", &page]).code, Some(0));
    assert!(std::fs::read_to_string(&page).unwrap().contains("requests/s"));
}

#[test]
fn a_run_is_written_in_every_form_and_its_server_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (html, csv, junit, json) = (path("run.html"), path("run.csv"), path("run.xml"), path("run.json"));
    let server = serving::serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut args = vec!["load", "-q", "-d", "2s", "-c", "2", "--rate", "500", "--check", "p99<1us"];
    args.extend([
        "--html",
        &html,
        "--csv",
        &csv,
        "--junit",
        &junit,
        "--json",
        &json,
        "--annotations",
        "github",
    ]);
    let said = run(&[&args[..], &["--pid", "auto", &url]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("::error title=p99<1us failed::"), "{said:?}");
    let document: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["server"]["pid"], server.pid(), "{document:#}");
    assert!(number(&document["server"]["rss_mb"]) > 0.1 && said.out.contains("PID"), "{document:#}");
    assert!(document["series"][0]["bytes"]["received"].as_u64().unwrap() > 0, "{document:#}");
    assert!(document["series"][0]["latencies"].as_str().unwrap().contains(':'), "{document:#}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("Busy cores") && page.contains("PID") && page.len() < 500_000);
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(rows.lines().count(), document["series"].as_array().unwrap().len() + 1);
    assert!(std::fs::read_to_string(&junit).unwrap().contains("failures=\"1\""));
    // The page of the saved document is the same page.
    let again = path("again.html");
    assert_eq!(run(&["report", &json, "--html", &again]).code, Some(0));
    assert_eq!(std::fs::read(&again).unwrap(), page.into_bytes());
    for (flag, value, code, part) in [
        ("--html", "/no/such/folder/x.html", 2, "--html: /no/such/folder/x.html cannot be written"),
        ("--csv", "/dev/full", 4, "the document is in"),
        ("--pid", "2147483647", 2, "no such process"),
        ("--pid", "0", 2, "a process's number, or auto"),
    ] {
        let said = run(&["load", "-q", "-n", "1", flag, value, &url]);
        assert!(said.code == Some(code) && said.err.contains(part), "{flag} {value}: {said:?}");
    }
}

/// A scenario with our own server, written by a user.
fn scenario(folder: &tempfile::TempDir, text: &str) -> String {
    let file = folder.path().join("mine.toml");
    let servers = "name = 'mine'\nabout = 'Two ways.'\nrounds = 3\nduration = '200ms'\nwarm_up = '50ms'\n\
                   [[server]]\nname = 'ours'\ncommand = 'linerate serve --listen 127.0.0.1:{port}'\n\
                   [[server]]\nname = 'none'\ncommand = 'no-such-server {port}'\ninstall = 'apt install it'\n";
    std::fs::write(&file, format!("{servers}{text}")).unwrap();
    file.display().to_string()
}

#[test]
fn a_scenario_runs_in_turns_and_names_what_is_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    let group = "[[group]]\nname = 'near'\n[[group.row]]\nname = 'one'\nserver = 'ours'\nload = '-c 1'\n\
                 [[group.row]]\nname = 'gone'\nserver = 'none'\n[[group.row]]\nname = 'pipes'\nserver = 'ours'\nload = '-c 4 -p 32'\n";
    let far = group.replace("'near'", "'far'\nround_trip = '20ms'");
    let file = scenario(&folder, &format!("{group}{far}"));
    let html = folder.path().join("lab.html").display().to_string();
    let said = run(&["lab", &file, "-q", "--json", "-", "--html", &html]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(document["schema"], "linerate.lab/1");
    assert_eq!(document["left_out"][0]["install"], "apt install it", "{document:#}");
    assert!(said.err.contains("no-such-server is not installed"), "{}", said.err);
    let rows = &document["groups"][1]["rows"];
    assert_eq!((rows[0]["name"].as_str(), rows[1]["name"].as_str()), (Some("one"), Some("pipes")));
    // The relay's round trip is a lower bound, however busy this machine is.
    assert!(number(&rows[0]["metrics"]["mean_us"]["value"]) >= 19_900.0, "{document:#}");
    assert!(number(&rows[1]["metrics"]["rate_rps"]["ratio"]) > 2.0, "{document:#}");
    assert!(number(&rows[0]["metrics"]["rss_mb"]["value"]) > 0.1, "{document:#}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("Left out"));
    let saved = folder.path().join("lab.json");
    std::fs::write(&saved, said.out).unwrap();
    let shown = run(&["report", &saved.display().to_string()]);
    assert!(shown.code == Some(0) && shown.out.contains("pipes"), "{shown:?}");
}

#[test]
fn the_kernels_tcp_and_user_space_tcp_are_compared_over_veth() {
    let folder = tempfile::tempdir().unwrap();
    let veth = "[[server]]\nname = 'kernel'\ncommand = 'linerate serve --threads 1 --listen {address}:{port} --io epoll'\n\
                [[server]]\nname = 'user'\n\
                command = 'linerate serve --threads 1 --listen {address}:{port} --io xdp --interface {interface}'\n\
                [[group]]\nname = 'g'\nveth = true\n\
                load = '-c 4 --per-connection 3 --io xdp --interface {interface} --from {from}'\n\
                [[group.row]]\nname = 'a'\nserver = 'kernel'\n[[group.row]]\nname = 'b'\nserver = 'user'\n";
    let file = scenario(&folder, veth);
    let said = run(&["lab", &file, "-q", "--json", "-"]);
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    if document["left_out"].as_array().unwrap().is_empty() {
        for row in document["groups"][0]["rows"].as_array().unwrap() {
            assert_eq!((row["rounds"].as_u64(), row["errors"].as_u64()), (Some(3), Some(0)), "{document:#}");
            assert!(row["target"].as_str().unwrap().starts_with("http://10.78.0.1:"), "{document:#}");
            assert!(row["flags"].as_str().unwrap().ends_with("--from 10.78.0.9"), "{document:#}");
        }
    } else {
        // Not every machine that runs the tests lets them.
        let hint = format!("need root; run: sudo linerate lab {file}");
        assert!(document["left_out"][0]["why"].as_str().unwrap().contains(&hint), "{document:#}");
    }
}

#[test]
fn a_server_is_built_once_and_only_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let me = env!("CARGO_BIN_EXE_linerate");
    let file = scenario(
        &folder,
        &format!(
            "[[server]]\nname = 'built'\ncommand = '{{dir}}/run {{port}}'\n\
             build = 'install -m 755 {{dir}}/run.sh {{dir}}/run'\n[server.files]\n\
             'run.sh' = \"\"\"#!/bin/sh\nexec {me} serve --listen 127.0.0.1:$1\n\"\"\"\n\
             [[group]]\nname = 'g'\n[[group.row]]\nname = 'r'\nserver = 'built'\nload = '-c 1'\n"
        ),
    );
    let lab = |flags: &[&str]| {
        let mut command = std::process::Command::new(me);
        command.args(["lab", &file, "-q", "--rounds", "1", "--json", "-"]).args(flags);
        let done = command.env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        serde_json::from_slice::<Value>(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done:?}"))
    };
    let document = lab(&[]);
    let left = &document["left_out"][0];
    assert_eq!(left["install"], format!("linerate lab {file} --build"), "{document:#}");
    for flags in [&["--build"][..], &[]] {
        let document = lab(flags);
        assert_eq!(document["groups"][0]["rows"][0]["rounds"], 1, "{document:#}");
    }
}

#[test]
fn a_scenario_that_is_wrong_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let group =
        |row: &str| format!("[[group]]\nname = 'g'\n[[group.row]]\nname = 'r'\nserver = 'ours'\n{row}\n");
    for (text, part) in [
        (String::new(), "missing field `group`"),
        (group("lod = '-c 1'"), "unknown field `lod`"),
        (group("load = '-c 0'"), "-c"),
        (group("load = '-d 1s'"), "the scenario's"),
        (group("").replace("ours", "yours"), "names the server \"yours\""),
        ("[[group]".to_owned(), "line "),
    ] {
        let file = scenario(&folder, &text);
        let said = run(&["lab", &file]);
        assert!(said.code == Some(2) && said.err.contains(part), "{text}: {said:?}");
    }
    for (args, part) in [
        (&["lab", "no-such"][..], "built in are pipelining"),
        (&["lab", "/no/such.toml"], "cannot be read"),
        (&["lab", "nagle", "http://127.0.0.1:1/"], "servers of its own"),
        (&["lab", "pipelining", "--only", "xyz"], "leaves no group"),
        (&["lab", "pipelining", "--json", "/no/such/x.json"], "--json"),
    ] {
        let said = run(args);
        assert!(said.code == Some(2) && said.err.contains(part), "{args:?}: {said:?}");
    }
    let listed = run(&["lab", "list"]);
    assert!(listed.code == Some(0) && listed.out.contains("concurrency"), "{listed:?}");
    assert_eq!(listed.out, run(&["lab", "--list"]).out);
    assert!(run(&["lab", "nagle", "--print"]).out.contains("HttpServer"));
}
