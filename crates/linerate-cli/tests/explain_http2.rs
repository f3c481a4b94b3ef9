//! `linerate explain` over HTTP/2: calls captured here from nginx and real clients (`--pcap`), compared
//! with tshark where that is installed; and calls of its own to Node.
#![allow(clippy::unwrap_used)]

mod captured;
mod common;
mod issued;
mod real;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use captured::{Files, captured};
use issued::Issued;
use linerate_netbox::{LinkDirection, NetBox, NetboxBuilder};
use linerate_skips::{need, skip};
use real::Server;
use serde_json::Value;

/// Paths that nginx serves, with their statuses.
const PATHS: [(&str, u64); 4] = [("/large", 200), ("/missing", 404), ("/first", 200), ("/second", 200)];

/// Node's client: calls one after the other on a connection. (curl 7.88 fails to use a connection
/// again by prior knowledge.)
const CALLS: &str = "
const session = require('node:http2').connect(process.argv[2]);
const next = (paths) => {
  if (!paths.length) return session.close();
  const stream = session.request({ ':path': paths[0], 'x-same': 'in each' });
  stream.resume().on('end', () => next(paths.slice(1)));
};
next(process.argv.slice(3));
";

/// nginx with HTTP/2, in clear or over TLS.
fn nginx(issued: Option<&Issued>) -> Option<Server> {
    let more = "location /large { root www; } location /missing { return 404; }";
    let server = match issued {
        None => real::nginx_with("http2", more)?,
        Some(issued) => {
            let (certificate, key) = (issued.file("cert.pem"), issued.file("key.pem"));
            let tls = format!("ssl_certificate {certificate}; ssl_certificate_key {key}; {more}");
            real::nginx_with("ssl http2", &tls)?
        }
    };
    std::fs::create_dir(server.file("www")).unwrap();
    std::fs::write(server.file("www/large"), "x".repeat(300_000)).unwrap();
    Some(server)
}

/// What these commands do, captured; each gets the server's URLs.
fn calls(server: &Server, tls: bool, commands: &[&str]) -> Option<Files> {
    let files = Files { dir: real::folder(), port: server.address.port() };
    std::fs::write(files.path("calls.js"), CALLS).unwrap();
    let scheme = if tls { "https" } else { "http" };
    let bytes = captured(files.port, || {
        for command in commands {
            let words = command.replace("URL", &format!("{scheme}://{}", server.address));
            let (program, flags) = words.split_once(' ').unwrap();
            let mut command = match program {
                "linerate" => Command::new(env!("CARGO_BIN_EXE_linerate")),
                _ => Command::new(real::find(program).unwrap()),
            };
            command.env("SSLKEYLOGFILE", files.path("keys")).current_dir(files.dir.path());
            command.args(flags.split(' '));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{words}: {output:?}");
        }
    })?;
    std::fs::write(files.path("calls.pcap"), bytes).unwrap();
    Some(files)
}

/// A call as tshark sees it: path, status, and milliseconds from the request's end to the
/// response's.
#[derive(Debug, Default)]
struct Theirs {
    path: String,
    status: String,
    sent: f64,
    /// `None` where it sees no end, as now and then with TLS on a busy machine.
    took: Option<f64>,
}

fn theirs(files: &Files, tls: bool) -> Option<Vec<Theirs>> {
    let fields = [
        "frame.time_epoch",
        "tcp.dstport",
        "tcp.stream",
        "http2.streamid",
        "http2.type",
        "http2.flags",
        "http2.headers.path",
        "http2.headers.status",
    ];
    let lines = files.tshark(if tls { "tls" } else { "http2" }, "http2.type", &fields)?;
    let mut streams: BTreeMap<(String, String), Theirs> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let to_server = fields[1] == files.port.to_string();
        let at = fields[0].parse::<f64>().unwrap() * 1e3;
        let list = |n: usize| fields[n].split(',').map(str::to_owned).collect::<Vec<_>>();
        let (mut paths, mut statuses) = (list(6).into_iter(), list(7).into_iter());
        for ((id, kind), flags) in list(3).into_iter().zip(list(4)).zip(list(5)) {
            let call = streams.entry((fields[2].to_owned(), id)).or_default();
            match (kind.as_str(), to_server) {
                ("1", true) => call.path = paths.next().unwrap(),
                ("1", false) => call.status = statuses.next().unwrap(),
                _ => {}
            }
            let ends = u8::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap() & 1 == 1;
            match (ends && matches!(kind.as_str(), "0" | "1"), to_server) {
                (true, true) => call.sent = at,
                (true, false) => call.took = Some(at - call.sent),
                _ => {}
            }
        }
    }
    Some(streams.into_values().filter(|call| !call.path.is_empty()).collect())
}

/// All calls are those of tshark, one by one.
fn agree(files: &Files, tls: bool, n: usize) {
    let (document, _) = if tls { files.with_keys() } else { files.explain(&[]) };
    let counts = &document["counts"];
    assert_eq!((&counts["requests"], &counts["answered"]), (&n.into(), &n.into()), "{document:#}");
    assert!(counts["connections_http2"].as_u64() > Some(0), "{counts}");
    let mut ours: Vec<(String, String, f64)> = Vec::new();
    for call in document["slowest"].as_array().unwrap() {
        let ms = ["wait_ms", "receive_ms"].iter().map(|part| call[*part].as_f64().unwrap()).sum::<f64>();
        ours.push((call["target"].as_str().unwrap().to_owned(), call["status"].to_string(), ms));
    }
    let Some(theirs) = theirs(files, tls) else { return };
    assert_eq!(ours.len(), theirs.len(), "{ours:?} {theirs:?}");
    assert!(theirs.iter().filter(|call| call.took.is_none()).count() <= 1, "{theirs:?}");
    // Those that tshark saw end come first: the one that is left may take the call that it did not.
    let (ended, rest): (Vec<_>, Vec<_>) = theirs.into_iter().partition(|call| call.took.is_some());
    for theirs in ended.into_iter().chain(rest) {
        let is_same = |ours: &(String, String, f64)| {
            let near = theirs.took.is_none_or(|took| (ours.2 - took).abs() <= 0.002);
            (&ours.0, &ours.1) == (&theirs.path, &theirs.status) && near
        };
        let at = ours.iter().position(is_same);
        let at = at.unwrap_or_else(|| panic!("ours {ours:?}, tshark {theirs:?}"));
        ours.swap_remove(at);
    }
}

const NODE: &str = "node calls.js URL /large /missing /first /second";

fn curl(flags: &str) -> String {
    let urls: Vec<String> = PATHS.iter().map(|(path, _)| format!("-o /dev/null URL{path}")).collect();
    format!("curl -sk -m 10 {flags} {}", urls.join(" "))
}

#[test]
fn calls_in_clear_text_are_those_of_tshark() {
    let Some(server) = nginx(None) else { return };
    if real::find("node").is_none() || real::find("nghttp").is_none() {
        return;
    }
    let at_once = "nghttp -n URL/large URL/missing URL/first URL/second";
    let load = "linerate load --http2 -c 1 -p 2 -n 2 URL/large";
    let Some(files) = calls(&server, false, &[NODE, at_once, load]) else { return };
    agree(&files, false, 10);
    // More than a report lists.
    if let Some(files) = calls(&server, false, &["linerate load --http2 -c 4 -p 25 -n 3000 URL/first"]) {
        let (document, _) = files.explain(&[]);
        let counts = &document["counts"];
        assert_eq!(
            (&counts["answered"], &counts["connections_http2"]),
            (&3000.into(), &4.into()),
            "{counts}"
        );
    }
}

#[test]
fn calls_inside_tls_are_those_of_tshark() {
    let issued = Issued::to("localhost");
    let Some(server) = nginx(Some(&issued)) else { return };
    if real::find("curl").is_none() {
        return;
    }
    let load = "linerate load --insecure -c 1 -p 3 -n 2 URL/large";
    let (one, parallel) = (curl("--http2"), curl("--http2 --parallel --tls-max 1.2"));
    let Some(files) = calls(&server, true, &[&one, &parallel, load]) else { return };
    agree(&files, true, 10);
    let (document, text) = files.explain(&[]);
    assert_eq!(document["counts"]["connections_http2"], 0, "without keys: {document:#}");
    assert!(text.contains("whether several calls overlap (HTTP/2)"), "{text}");
}

/// A capture that begins after the preface: the report is true, and states what is not known.
#[test]
fn a_capture_from_the_middle_invents_nothing() {
    let Some(server) = nginx(None) else { return };
    if real::find("node").is_none() {
        return;
    }
    let Some(files) = calls(&server, false, &[NODE]) else { return };
    let whole = std::fs::read(files.path("calls.pcap")).unwrap();
    let mut at = 24;
    let mut read = 0;
    while at < whole.len() {
        let len = u32::from_le_bytes(whole[at + 8..at + 12].try_into().unwrap()) as usize;
        at += 16 + len;
        let cut = [&whole[..24], &whole[at..]].concat();
        std::fs::write(files.path("calls.pcap"), cut).unwrap();
        let (document, text) = files.explain(&[]);
        let calls: Vec<(&str, u64)> = document["slowest"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["target"].as_str().unwrap(), c["status"].as_u64().unwrap()))
            .collect();
        for (target, status) in &calls {
            let is =
                PATHS.iter().any(|p| (*target == "?" || *target == p.0) && (*status == 0 || *status == p.1));
            assert!(is, "from byte {at} on: {calls:?}");
        }
        let unknown = calls.iter().any(|(target, status)| *target == "?" || *status == 0);
        assert_eq!(unknown, text.contains("over HTTP/2 whose method, path or status is not known"), "{text}");
        read = read.max(usize::from(calls.len() < 4) * calls.len());
    }
    assert!(read >= 2, "later requests are read without the first");
}

/// What `load` with these flags looks like behind a network; the ids of what is named, and the
/// document. `None`: something is missing here.
fn far(network: NetboxBuilder, lines: &str, flags: &str) -> Option<(Vec<String>, Value)> {
    if let Some(why) = NetBox::unavailable() {
        skip(need::NAMESPACES, why);
        return None;
    }
    let net = network.delay(Duration::from_millis(20)).start().unwrap();
    let more = format!("location /some {{ root www; }} {lines}");
    let server = net.server().run(|| real::nginx_far_http2(&more)).unwrap()?;
    std::fs::create_dir(server.file("www")).unwrap();
    std::fs::write(server.file("www/some"), "x".repeat(250_000)).unwrap();
    let files = Files { dir: real::folder(), port: server.address.port() };
    let url = format!("http://{}:{}", net.server().ip(), files.port);
    let load = || {
        let words = format!("load --http2 -c 1 {flags}").replace("URL", &url);
        let output = Command::new(env!("CARGO_BIN_EXE_linerate")).args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    let bytes = net.client().run(|| captured(files.port, load)).unwrap()?;
    std::fs::write(files.path("calls.pcap"), bytes).unwrap();
    let (document, _) = files.explain(&[]);
    let causes = document["causes"].as_array().unwrap();
    Some((causes.iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect(), document))
}

#[test]
fn a_small_window_is_named() {
    let small = "--h2-window 65535 -n 5 URL/some";
    let Some((ids, document)) = far(NetBox::builder(), "", small) else { return };
    assert_eq!(document["counts"]["answered"], 5, "{document:#}");
    assert_eq!(ids.first().map(String::as_str), Some("h2-flow-control"), "{document:#}");
    let cause = &document["causes"][0];
    assert_eq!((&cause["confidence"], &cause["calls"]), (&"likely".into(), &5.into()), "{cause:#}");
    assert!(cause["cost_ms"].as_f64().unwrap() > 100.0, "{cause:#}");
    let (ids, document) = far(NetBox::builder(), "", "-n 5 URL/some").unwrap();
    assert!(!ids.iter().any(|id| id.starts_with("h2-")), "{document:#}");
}

#[test]
fn a_lost_segment_that_holds_up_other_streams_is_named() {
    let lossy = || NetBox::builder().way(LinkDirection::Down, |c| c.loss = 0.03);
    let Some((ids, document)) = far(lossy(), "", "-p 4 -n 24 URL/some") else { return };
    assert_eq!(document["counts"]["answered"], 24, "{document:#}");
    assert!(ids.iter().any(|id| id == "h2-head-of-line"), "{document:#}");
    // One stream at a time waits for its own segments.
    let (ids, document) = far(lossy(), "", "-p 1 -n 6 URL/some").unwrap();
    assert!(!ids.iter().any(|id| id == "h2-head-of-line"), "{document:#}");
    assert!(ids.iter().any(|id| id == "packet-loss"), "{document:#}");
}

#[test]
fn requests_that_wait_for_a_stream_are_seen() {
    let few = "http2_max_concurrent_streams 4;";
    let Some((ids, document)) = far(NetBox::builder(), few, "-p 16 -n 40 URL/") else { return };
    assert_eq!(document["counts"]["answered"], 40, "{document:#}");
    let limit = document["causes"].as_array().unwrap().iter().find(|c| c["id"] == "h2-stream-limit");
    let Some(limit) = limit else { panic!("{ids:?}: {document:#}") };
    // Sent before the settings were there, streams beyond the limit may be refused.
    let refused = limit["evidence"].to_string().contains("REFUSED_STREAM");
    assert_eq!(limit["confidence"], if refused { "likely" } else { "possible" }, "{limit:#}");
    assert!(limit["evidence"][0].as_str().unwrap().contains("admits 4 streams at once"), "{limit:#}");
    let (ids, document) = far(NetBox::builder(), "", "-p 16 -n 40 URL/").unwrap();
    assert!(!ids.iter().any(|id| id == "h2-stream-limit"), "{document:#}");
}

/// Node, which takes 40 ms and admits two streams: calls at once wait for one, in clear text and by
/// ALPN.
#[test]
fn a_server_that_admits_few_streams_is_named_by_experiment() {
    let issued = Issued::to("localhost");
    for (scheme, flags) in [("http", "--http2"), ("https", "-k")] {
        let tls = format!(
            "cert: fs.readFileSync('{}'), key: fs.readFileSync('{}'),",
            issued.file("cert.pem"),
            issued.file("key.pem")
        );
        let (kind, tls) =
            if scheme == "https" { ("createSecureServer", tls) } else { ("createServer", String::new()) };
        let source = format!(
            "const fs = require('node:fs');
require('node:http2').{kind}({{ {tls} settings: {{ maxConcurrentStreams: 2 }} }}, (request, response) => {{
  setTimeout(() => response.end('hello'), 40);
}}).listen({{port}}, '127.0.0.1');
"
        );
        let Some(server) = real::written("node", &[], "server.js", &source) else { return };
        let url = format!("{scheme}://{}/", server.address);
        let said = common::run(&["explain", flags, "--json", "-", &url]);
        let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        assert_eq!(document["http2"]["max_concurrent_streams"], 2, "{document:#}");
        let limit = document["causes"].as_array().unwrap().iter().find(|c| c["id"] == "h2-stream-limit");
        let cost = limit.unwrap_or_else(|| panic!("{document:#}"))["cost_ms"].as_f64().unwrap();
        assert!((20.0..120.0).contains(&cost), "{document:#}");
    }
}
