//! `linerate serve --metrics`: what Prometheus reads, by its own rules; and the dashboard that
//! shows it.
#![allow(clippy::unwrap_used)]

mod serving;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_skips::skip;

use serving::{PATIENCE, Server, connect, get, serve};

/// One with everything that can be measured, and where its metrics are.
fn measured(arguments: &[&str]) -> (Server, String) {
    let server = serve(&[&["--metrics", "127.0.0.1:0"], arguments].concat());
    let line = server.line();
    let place = line.strip_prefix("metrics on http://").unwrap_or_else(|| panic!("{line}"));
    let place = place.strip_suffix("/metrics").unwrap().to_owned();
    (server, place)
}

fn page(place: &str) -> String {
    let answer = get(place, "/metrics");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    page.to_owned()
}

fn value(page: &str, sample: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

#[test]
fn requests_are_told_apart_by_pattern_and_class() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("public")).unwrap();
    std::fs::write(folder.path().join("public/file"), "x").unwrap();
    let file = folder.path().join("serve.toml");
    let routes = "[[route]]\nprefix = \"/assets/\"\ndir = \"public\"\n[[route]]\nprefix = \"/old\"\nredirect = \"/new\"\n";
    std::fs::write(&file, routes).unwrap();
    let (server, place) = measured(&["--config", file.to_str().unwrap()]);
    for path in ["/assets/file", "/assets/none", "/old"] {
        server.get(path);
    }
    expect(
        &page(&place),
        &[
            ("linerate_http_requests_total{route=\"/assets/*\",code=\"2xx\"}", 1.0),
            ("linerate_http_requests_total{route=\"/assets/*\",code=\"4xx\"}", 1.0),
            ("linerate_http_requests_total{route=\"/old*\",code=\"3xx\"}", 1.0),
        ],
    );
    assert_eq!(server.stop().0, Some(0));
    let (server, place) = measured(&["--threads", "2"]);
    for path in ["/", "/status/418", "/status/503", "/bytes/5", "/bytes/7", "/delay/150", "/nothing/at/all"] {
        server.get(path);
    }
    let page = page(&place);
    expect(
        &page,
        &[
            ("linerate_http_requests_total{route=\"/\",code=\"2xx\"}", 1.0),
            ("linerate_http_requests_total{route=\"/status/{code}\",code=\"4xx\"}", 1.0),
            ("linerate_http_requests_total{route=\"/status/{code}\",code=\"5xx\"}", 1.0),
            ("linerate_http_requests_total{route=\"/bytes/{n}\",code=\"2xx\"}", 2.0),
            ("linerate_http_requests_total{route=\"other\",code=\"4xx\"}", 1.0),
            ("linerate_http_request_duration_seconds_bucket{route=\"/delay/{ms}\",le=\"0.1\"}", 0.0),
            ("linerate_http_request_duration_seconds_count{route=\"/delay/{ms}\"}", 1.0),
        ],
    );
    assert!(!page.contains("/nothing"), "a path is no label:\n{page}");
    assert_eq!(server.stop().0, Some(0));
}

fn expect(page: &str, samples: &[(&str, f64)]) {
    for (sample, n) in samples {
        assert_eq!(value(page, sample), Some(*n), "{sample} in\n{page}");
    }
}

#[test]
fn connections_and_requests_are_seen_in_their_states() {
    let (server, place) = measured(&["--threads", "2"]);
    let mut idle = server.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 12]).unwrap();
    let mut head = connect(&server.address);
    head.write_all(b"GET / HT").unwrap();
    let mut body = connect(&server.address);
    body.write_all(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx").unwrap();
    let mut handler = connect(&server.address);
    handler.write_all(b"GET /delay/60000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut write = connect(&server.address);
    write.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let wanted = [
        ("linerate_connections{state=\"idle\"}", 1.0),
        ("linerate_connections{state=\"head\"}", 1.0),
        ("linerate_connections{state=\"body\"}", 1.0),
        ("linerate_connections{state=\"handler\"}", 1.0),
        ("linerate_connections{state=\"write\"}", 1.0),
        ("linerate_connections_open", 5.0),
        // The echo, which waits for its body, and the delay; and the bytes that are being sent.
        ("linerate_handlers_waiting", 2.0),
        ("linerate_requests_in_flight", 3.0),
    ];
    let until = Instant::now() + PATIENCE;
    loop {
        let page = page(&place);
        let wrong: Vec<_> = wanted.iter().filter(|(name, n)| value(&page, name) != Some(*n)).collect();
        if wrong.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "{wrong:?} in\n{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((idle, head, body, handler, write));
    let until = Instant::now() + PATIENCE;
    // In the end only the request for the metrics page is counted; no count falls below zero.
    while value(&page(&place), "linerate_connections{state=\"handler\"}") != Some(1.0) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A loop that is held shows while it is, and afterwards.
#[test]
fn a_loop_that_is_held_is_seen() {
    let (server, place) = measured(&["--threads", "1"]);
    let mut blocks = server.connect();
    blocks.write_all(b"GET /block/700 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let until = Instant::now() + PATIENCE;
    while value(&page(&place), "linerate_loop_busy_seconds").is_none_or(|busy| busy < 0.2) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    blocks.read_exact(&mut [0; 12]).unwrap();
    // The turn ends after the response has left.
    loop {
        let page = page(&place);
        let of =
            |le: &str| value(&page, &format!("linerate_loop_turn_seconds_bucket{{le=\"{le}\"}}")).unwrap();
        if of("+Inf") > of("0.5") && value(&page, "linerate_loop_blocked_total") == Some(1.0) {
            break;
        }
        assert!(Instant::now() < until, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All names that a server with something of everything gives.
fn names() -> (String, BTreeSet<String>) {
    let more = ["--threads", "2", "--tls-self-signed", "--listen", "http://127.0.0.1:0"];
    let server = serve(&[&["--metrics", "127.0.0.1:0"], &more[..]].concat());
    let plain = server.listening();
    let place = server.line();
    let place = place.strip_prefix("metrics on http://").and_then(|place| place.strip_suffix("/metrics"));
    get(&plain, "/status/503");
    get(&plain, "/");
    let url = format!("https://{}/", server.address);
    let load = Command::new(assert_cmd::cargo::cargo_bin!("linerate"))
        .args(["load", "-k", "-n", "1", &url])
        .output();
    assert!(load.unwrap().status.success());
    // Plain HTTP where TLS is spoken is a handshake that fails.
    server.get("/");
    let page = page(place.unwrap());
    server.stop();
    let names = page.lines().filter(|line| !line.starts_with('#'));
    let names = names.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    (page, names)
}

#[test]
fn promtool_finds_nothing() {
    let (page, _) = names();
    let promtool = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).output_of(&page);
    match promtool {
        None => skip("promtool", "promtool is not installed (Debian package prometheus)"),
        Some((good, said)) => assert!(good && said.is_empty(), "{said}\n{page}"),
    }
}

trait OutputOf {
    /// What it says of this input, and whether it is content; `None`: it is not there.
    fn output_of(&mut self, input: &str) -> Option<(bool, String)>;
}

impl OutputOf for Command {
    fn output_of(&mut self, input: &str) -> Option<(bool, String)> {
        let mut child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }
}

#[test]
fn metrics_at_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("unix:{}/metrics.sock", folder.path().display());
    let server = serve(&["--metrics", &place]);
    assert_eq!(server.line(), format!("metrics on {place}"));
    let mut stream = std::os::unix::net::UnixStream::connect(&place[5..]).unwrap();
    stream.set_read_timeout(Some(serving::PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("linerate_requests_total"), "{page}");
    let linerate = || Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    let top = linerate().args(["top", &place, "--once", "--interval", "200ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&top.stdout);
    assert!(top.status.success() && said.contains(&format!("listening on {}", server.address)), "{top:?}");
    assert_eq!(server.stop().0, Some(0));
    assert!(!std::path::Path::new(&place[5..]).exists());
    // The same socket can't be both.
    let both = linerate().args(["serve", "--listen", &place, "--metrics", &place]).output().unwrap();
    let said = String::from_utf8_lossy(&both.stderr);
    assert!(both.status.code() == Some(2) && said.contains(": --listen already does"), "{said}");
}

/// The words of an expression that are names of metrics.
fn metrics_of(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("linerate_") || word.starts_with("process_"))
}

#[test]
fn the_dashboard_names_metrics_that_exist() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let (_, names) = names();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let metrics: Vec<&str> = metrics_of(expression).collect();
            assert!(!metrics.is_empty(), "{expression}");
            for metric in metrics {
                assert!(names.contains(metric), "{} shows {metric}, which is not there", panel["title"]);
                shown.insert(metric.to_owned());
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query = variable["query"].as_str().unwrap();
        assert!(metrics_of(query).all(|metric| names.contains(metric)), "{query}");
    }
    assert!(shown.len() > 15, "{shown:?}");
}
