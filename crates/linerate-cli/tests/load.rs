//! Runs of `load` against servers of all kinds: figures, failures, exit codes.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{HELLO, answering, greeting, measured, nobody, number, run, server};
use linerate_serve::{ServerOptions, spawn};

#[test]
fn each_request_is_answered_once_and_the_server_agrees() {
    let server = spawn(ServerOptions::default()).expect("a server");
    let url = format!("http://{}/", server.addr());
    let (document, said) = measured(&["-n", "1000", "-c", "10", "-p", "4", "-H", "X-A: b", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        (number(&document, "/requests/sent"), number(&document, "/requests/answered")),
        (1_000, 1_000)
    );
    assert_eq!(number(&document, "/status/200"), 1_000);
    let counted = server.stop().requests;
    assert!((1_000..=1_000 + number(&document, "/requests/resent")).contains(&counted), "{counted}");
    assert_eq!(document["schema"], "linerate.outcome/1");
    assert_eq!(document["target"], url);
    assert!(document["latency_us"]["from_due"].is_null());
    // The summary stays out of the way of the JSON.
    assert!(said.err.contains("requests/s") && said.err.contains("p99"), "{said:?}");
}

#[test]
fn the_heading_and_the_document_name_the_request_that_was_sent() {
    let at = format!("http://{}", answering(HELLO));
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.toml");
    let one = "requests = 3\n[[request]]\nmethod = \"POST\"\npath = \"/other?a=1\"\nbody = \"hi\"\n";
    std::fs::write(&plan, one).expect("a plan");
    let (plan, given) = (plan.to_string_lossy().into_owned(), format!("{at}/given"));
    let curl = format!("curl -X PUT -d hi {at}/curled");
    for (args, method, path) in [
        (vec!["--plan", &plan, &given], "POST", "/other?a=1"),
        (vec!["-n", "3", "--curl", &curl], "PUT", "/curled"),
        (vec!["-n", "3", &given], "GET", "/given"),
    ] {
        let (document, said) = measured(&args);
        assert_eq!(document["target"], format!("{at}{path}"), "{args:?}");
        assert!(said.err.starts_with(&format!("{method} {at}{path}\n")), "{args:?}: {}", said.err);
    }
}

#[test]
fn an_open_loop_counts_from_due() {
    let server = spawn(ServerOptions::default()).expect("a server");
    let url = format!("http://{}/", server.addr());
    let (document, said) = measured(&["--rate", "200", "-n", "100", "-c", "4", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/latency_us/from_due/count"), 100);
    assert!(document["client"]["lateness_us_p99"].is_number());
}

#[test]
fn a_short_summary_says_what_went_wrong_and_little_else() {
    let url = format!("http://{}/", answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"));
    let said = run(&["load", "-q", "-n", "20", "--summary", "short", "--check", "errors<=0", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.lines().count() <= 15, "{}", said.out);
    for words in ["20 answered", "p99", "20 bad", "FAILED        errors<=0"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
}

/// The last request of a second is due before it ends.
#[test]
fn an_open_loop_has_all_its_seconds() {
    let url = format!("http://{}/", answering(HELLO));
    let (document, said) = measured(&["--rate", "10", "-d", "2s", "-c", "2", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(document["duration_s"], 2.0, "{}", document["series"]);
    let seconds = document["series"].as_array().expect("a series");
    let rates: Vec<f64> = seconds.iter().filter_map(|s| s["rate_rps"].as_f64()).collect();
    assert_eq!(rates.len(), 2, "{rates:?}");
    assert!((rates.iter().sum::<f64>() - 20.0).abs() < 0.1, "{rates:?}");
}

#[test]
fn checks_decide_the_exit_code_and_are_printed() {
    let url = format!("http://{}/", answering(HELLO));
    let (document, said) = measured(&["-n", "50", "--check", "errors<=0", "--check", "p50<1us", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let passed: Vec<bool> =
        document["checks"].as_array().expect("checks").iter().map(|c| c["pass"] == true).collect();
    assert_eq!(passed, [true, false]);
    assert!(
        said.err.contains("ok            errors<=0") && said.err.contains("FAILED        p50<1us"),
        "{said:?}"
    );
    assert_eq!(run(&["load", "-q", "-n", "50", "--check", "errors<=0", &url]).code, Some(0));
}

#[test]
fn bad_answers_are_answered_and_counted() {
    let url = format!("http://{}/", answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"));
    let (document, said) = measured(&["-n", "20", "-c", "2", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!((number(&document, "/requests/answered"), number(&document, "/bad/status")), (20, 20));
    assert!(said.err.contains("503: 20") && said.err.contains("HTTP/1.1 503 Busy"), "{said:?}");
    let (document, said) = measured(&["-n", "20", "-c", "2", "--expect-status", "503", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/bad/status"), 0);
    let hello = format!("http://{}/", answering(HELLO));
    let (document, said) = measured(&["-n", "20", "-c", "2", "--expect-body", "goodbye", &hello]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("not one response was good"), "{said:?}");
    assert!(said.err.contains("body: hello\n") && said.err.contains("sent: GET / HTTP/1.1"), "{said:?}");
    assert_eq!(number(&document, "/bad/body"), 20);
}

#[test]
fn nobody_there_is_3_and_says_so() {
    let address = nobody();
    let (document, said) = measured(&["-d", "1s", &format!("http://{address}/")]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains(&format!("{address} could not be reached: connection refused")), "{said:?}");
    assert!(document["unreachable"].is_string());
    let unknown = run(&["load", "http://no-such-host.invalid/"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.err.contains("the name \"no-such-host.invalid\" has no address"), "{unknown:?}");
}

/// A server that sends no response: the reasons that all failures must have, and words that the
/// report must contain.
fn no_answer(url: &str, reasons: &[&str], words: &str) {
    let begun = Instant::now();
    let (document, said) = measured(&["-n", "8", "-c", "2", "--timeout", "500ms", url]);
    assert!(begun.elapsed() < Duration::from_secs(30), "it hangs");
    assert_eq!(said.code, Some(1), "{said:?}");
    let count = |name: &str| number(&document, &format!("/requests/{name}"));
    assert_eq!(
        (count("sent"), count("answered"), count("failed") + count("unknown")),
        (8, 0, 8),
        "{document:#}"
    );
    let failed: u64 = reasons.iter().map(|reason| number(&document, &format!("/failures/{reason}"))).sum();
    assert_eq!((failed, failed > 0), (count("failed"), true), "{document:#}");
    assert!(said.err.contains(words), "{said:?}");
}

#[test]
fn a_server_that_speaks_ssh() {
    no_answer(&format!("http://{}/", greeting("SSH-2.0-OpenSSH_9.2\r\n")), &["malformed"], "SSH");
}

#[test]
fn a_server_with_an_endless_header() {
    let address = server(|mut stream| {
        use std::io::Write;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    no_answer(&format!("http://{address}/"), &["malformed"], "not a valid HTTP answer");
}

#[test]
fn a_server_that_closes_at_once() {
    no_answer(
        &format!("http://{}/", server(drop)),
        &["closed_early", "reset"],
        "before a byte of the response came",
    );
}

#[test]
fn a_server_that_never_answers() {
    no_answer(&format!("http://{}/", greeting("")), &["timeout"], "no whole answer within 500ms");
}

#[test]
fn results_go_to_a_file_whole_and_the_summary_to_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let url = format!("http://{}/", answering(HELLO));
    let said =
        run(&["load", "-q", "-n", "10", "--json", &path.display().to_string(), "-u", "ada:secret", &url]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.out.contains("10 answered"), "{said:?}");
    let text = std::fs::read_to_string(&path).expect("written");
    assert!(text.contains("linerate.outcome/1") && !text.contains("secret"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1);
}

#[test]
fn a_full_disk_is_4_and_the_summary_is_still_there() {
    let url = format!("http://{}/", answering(HELLO));
    let said = run(&["load", "-q", "-n", "10", "--json", "/dev/full", &url]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.out.contains("10 answered"), "{said:?}");
    assert!(said.err.contains("could not be written to /dev/full"), "{said:?}");
}

#[test]
fn each_file_on_a_full_disk_is_named() {
    let url = format!("http://{}/", answering(HELLO));
    let folder = tempfile::tempdir().expect("a folder");
    let full = |name: &str| {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", &link).expect("linked");
        link.display().to_string()
    };
    let (json, html) = (full("run.json"), full("run.html"));
    let said = run(&["load", "-q", "-n", "10", "--json", &json, "--html", &html, &url]);
    assert_eq!(said.code, Some(4), "{said:?}");
    for path in [&json, &html] {
        assert!(said.err.contains(&format!("could not be written to {path}: No space left")), "{said:?}");
    }
    let kept = said.err.split("the document is in ").nth(1).and_then(|rest| rest.split(" instead").next());
    let kept = kept.unwrap_or_else(|| panic!("{said:?}"));
    let text = std::fs::read_to_string(kept).expect("kept");
    assert!(text.contains("linerate.outcome/1"), "{text}");
    std::fs::remove_file(kept).expect("removed");
}

/// Starts a run, signals it so when it has begun, each a while after the one before, and gives its
/// exit code, its JSON, and what else it said. A signal may be several, sent at once by one shell.
fn interrupted(url: &str, signals: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    // Under nohup the tests would hand it down that SIGHUP is ignored.
    let mut child = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_linerate")])
        .args(["load", "-d", "1m", "-c", "2", "--json", "-", url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // The first progress line says that it runs and that signals are listened to.
    let stderr = child.stderr.take().expect("piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let first = lines.next().expect("a line").expect("text");
    assert!(first.contains(" of 1m: "), "{first}");
    for (i, signal) in signals.iter().enumerate() {
        std::thread::sleep(Duration::from_millis(if i == 0 { 0 } else { 250 }));
        let at_once: String = signal.split(' ').map(|s| format!("kill {s} {}; ", child.id())).collect();
        assert!(Command::new("sh").args(["-c", &at_once]).status().expect("a shell").success());
    }
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), output.stdout, rest.join().expect("read"))
}

#[test]
fn an_interrupted_run_reports_what_it_measured() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let (code, json, rest) = interrupted(&format!("http://{}/", answering(HELLO)), &[signal]);
        assert_eq!(code, Some(130), "{signal}");
        let document: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(document["interrupted"], true, "{signal}");
        assert!(number(&document, "/requests/answered") > 0, "{signal}");
        assert!(rest.contains("Interrupted"), "{signal}: {rest}");
    }
}

/// `timeout` signals its child and then its group, while responses are outstanding.
#[test]
fn an_interruption_told_twice_still_reports() {
    let silent = format!("http://{}/", greeting(""));
    for twice in ["-INT -INT", "-TERM -INT"] {
        let (code, json, rest) = interrupted(&silent, &[twice]);
        assert_eq!(code, Some(130), "{twice:?}");
        let document: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(number(&document, "/requests/unknown"), 2, "{twice:?}");
        assert!(rest.contains("Interrupted"), "{twice:?}: {rest}");
    }
}

/// Responses are waited for a second long; a second Ctrl-C does not wait with them.
#[test]
fn a_second_ctrl_c_ends_at_once() {
    let silent = format!("http://{}/", greeting(""));
    let (code, json, rest) = interrupted(&silent, &["-INT", "-INT"]);
    assert_eq!((code, json.as_slice()), (Some(130), &b""[..]));
    assert!(!rest.contains("Interrupted"), "{rest}");
}

#[test]
fn a_dry_run_sends_nothing_and_prints_a_plan_that_can_be_read() {
    let url = format!("http://{}/{{{{seq}}}}", nobody());
    let said = run(&["load", "--dry-run", "-c", "3", "--body", "n={{seq}}", &url]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.out.contains("POST /0 HTTP/1.1") && said.out.contains("n=0"), "{said:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, &said.out).expect("written");
    let again = run(&["load", "--dry-run", "--plan", &path.display().to_string()]);
    assert_eq!(again.out, said.out, "{again:?}");
}

#[test]
fn a_dry_run_says_what_is_left_out_as_the_run_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("api.yaml");
    let api = "openapi: 3.0.0\npaths:\n  /a:\n    get: {}\n    post: {}\n";
    std::fs::write(&path, api).expect("written");
    let said = run(&["load", "--dry-run", "--openapi", &path.display().to_string(), "http://127.0.0.1/"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.starts_with("note: ") && said.err.contains("POST /a"), "{said:?}");
}

/// A gzip file may hold any bytes, two braces among them.
#[test]
fn a_body_from_a_file_is_sent_as_it_is_unless_it_is_a_template() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("body");
    let file = format!("@{}", path.display());
    let bytes = b"\x1f\x8b {{seq}} {{ }} {{{{ \x1b[31m \xff";
    std::fs::write(&path, bytes).expect("written");
    let (sender, received) = std::sync::mpsc::channel();
    let address = server(move |mut stream| {
        use std::io::{Read, Write};
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..n]);
            if all.ends_with(bytes) {
                let _ = sender.send(());
                let _ = stream.write_all(HELLO.as_bytes());
            }
        }
    });
    let url = format!("http://{address}/");
    let (_, said) = measured(&["-n", "1", "--timeout", "5s", "--body", &file, &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    received.try_recv().expect("the bytes came as they are");
    std::fs::write(&path, "n={{seq}}").expect("written");
    let said = run(&["load", "--dry-run", "--body-template", &file, "http://127.0.0.1/"]);
    assert!(said.out.contains("POST / HTTP/1.1") && said.out.contains("n=0"), "{said:?}");
    let said = run(&["load", "--dry-run", "--body-template", "text", "http://127.0.0.1/"]);
    assert!(said.code == Some(2) && said.err.contains("write --body-template @FILE"), "{said:?}");
}

#[test]
fn a_body_may_come_from_a_file_or_from_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("body");
    std::fs::write(&path, "of a file").expect("written");
    let of_file = run(&["load", "--dry-run", "--body", &format!("@{}", path.display()), "http://127.0.0.1/"]);
    assert!(of_file.out.contains("body = \"of a file\""), "{of_file:?}");
    let mut command = common::linerate(&["load", "--dry-run", "--body", "@-", "http://127.0.0.1/"]);
    let output = command.write_stdin("of standard input").output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("body = \"of standard input\""), "{output:?}");
}

#[test]
fn the_baselines_run_too() {
    let server = spawn(ServerOptions::default()).expect("a server");
    let url = format!("http://{}/", server.addr());
    for (way, connections) in [("poll", None), ("threads", Some("4")), ("async", Some("4"))] {
        let mut args = vec!["-n", "40", "--way", way];
        args.extend(connections.iter().flat_map(|c| ["-c", c]));
        args.push(&url);
        let (document, said) = measured(&args);
        assert_eq!((said.code, number(&document, "/requests/answered")), (Some(0), 40), "{way}: {said:?}");
    }
}
