//! `load --capture auto` against tshark, on the same packets. Needs root, dumpcap and tshark.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_netbox::{INTERFACE, NetBox, NetboxBuilder};
use linerate_skips::{need, skip};
use serde_json::Value;

const PORT: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the test cannot run here, which is reported.
fn cannot() -> bool {
    if let Some(why) = NetBox::unavailable() {
        skip(need::NAMESPACES, why);
        return true;
    }
    ["dumpcap", "tshark"].into_iter().any(|name| linerate_skips::program(name).is_none())
}

/// Reads nothing for that long, then everything, and responds to each request with that many bytes.
fn answer(mut stream: TcpStream, deaf: Duration, bytes: usize) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    thread::sleep(deaf);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    let answer = [head.into_bytes(), vec![b'x'; bytes]].concat();
    let (mut buffer, mut matched) = (vec![0; 64 << 10], 0);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        for byte in &buffer[..n] {
            matched = if *byte == b"\r\n\r\n"[matched] { matched + 1 } else { usize::from(*byte == b'\r') };
            if matched == 4 {
                matched = 0;
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        }
    }
}

/// The document of a run with a capture.
struct Recorder(Child);

impl Recorder {
    fn start(net: &NetBox, file: &Path) -> Recorder {
        let filter = format!("tcp port {PORT}");
        let child = net.client().run(|| {
            let words = ["-q", "-p", "-i", INTERFACE, "-s", "160", "-B", "64", "-f", &filter, "-w"];
            Command::new("dumpcap").args(words).arg(file).stderr(Stdio::null()).spawn().unwrap()
        });
        let until = Instant::now() + PATIENCE;
        // The file has its header when the capture runs.
        while !file.metadata().is_ok_and(|m| m.len() > 0) {
            assert!(Instant::now() < until, "dumpcap does not start");
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_millis(300));
        Recorder(child.unwrap())
    }

    fn stop(mut self) {
        thread::sleep(Duration::from_millis(500));
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

/// By tshark: of both directions, sent first, the packets and how many of them are each of the
/// events.
fn tshark(file: &Path) -> [[u64; 1 + EVENTS.len()]; 2] {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-e", "tcp.dstport"]);
    command.args(EVENTS.iter().flat_map(|event| ["-e".to_owned(), format!("tcp.analysis.{event}")]));
    let out = command.stderr(Stdio::null()).output().unwrap();
    assert!(out.status.success());
    let mut counts = [[0; 1 + EVENTS.len()]; 2];
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let mut fields = line.split('\t');
        let received = fields.next() != Some(&PORT.to_string());
        let [all, events @ ..] = &mut counts[usize::from(received)];
        *all += 1;
        events.iter_mut().zip(fields).for_each(|(n, field)| *n += u64::from(!field.is_empty()));
    }
    counts
}

const EVENTS: [&str; 8] = [
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "duplicate_ack",
    "out_of_order",
    "zero_window",
    "zero_window_probe",
    "window_full",
];

/// A run over this network; the document, after its counts were compared with tshark's.
fn compared(network: NetboxBuilder, deaf: Duration, bytes: usize, flags: &[&str]) -> Value {
    let net = network.start().unwrap();
    let ip = net.server().ip();
    let listener = net.server().run(|| TcpListener::bind((ip, PORT))).unwrap().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, deaf, bytes));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.pcapng");
    let recorder = Recorder::start(&net, &file);
    let url = format!("http://{ip}:{PORT}/");
    let words = [flags, &["--capture", "auto", &url]].concat();
    let (document, said) = net.client().run(|| common::measured(&words)).unwrap();
    recorder.stop();
    let segments = &document["tcp"]["segments"];
    assert_eq!((&segments["source"], &segments["missed"]), (&"capture".into(), &0.into()), "{said:?}");
    for (way, [theirs, their_events @ ..]) in ["sent", "received"].into_iter().zip(tshark(&file)) {
        let mine = segments[way]["segments"].as_u64().unwrap();
        // The connections may still be ending when we look away.
        assert!(mine.abs_diff(theirs) <= 2 + theirs / 100, "{way}: {mine}, tshark {theirs}");
        for (event, theirs) in EVENTS.into_iter().zip(their_events) {
            let mine = segments[way][event].as_u64().unwrap();
            println!("{way} {event}: {mine}, tshark {theirs}");
            assert!(mine.abs_diff(theirs) <= 2 + theirs / 50, "{way} {event}: {mine}, tshark {theirs}");
        }
    }
    document
}

/// How many of an event the whole run had, and how many its seconds have.
fn events(document: &Value, way: &str, event: &str) -> (u64, u64) {
    let of = |segments: &Value| segments[way][event].as_u64().unwrap();
    let series = document["series"].as_array().unwrap();
    (of(&document["tcp"]["segments"]), series.iter().map(|second| of(&second["segments"])).sum())
}

/// What the small steps have of an event in both directions, as the whole run does.
fn in_steps(document: &Value, event: &str, field: &str) -> u64 {
    let steps = document["series_fine"].as_array().unwrap();
    let sum = steps.iter().map(|step| step[field].as_u64().unwrap()).sum();
    let all = ["sent", "received"].map(|way| events(document, way, event).0);
    assert_eq!(all.iter().sum::<u64>(), sum, "{event}");
    assert!(steps.iter().filter(|step| step[field] != 0).count() as u64 <= sum);
    sum
}

#[test]
fn a_server_that_stops_reading() {
    if cannot() {
        return;
    }
    let fill = format!("X-Fill: {}", "x".repeat(30_000));
    let flags = ["-c", "2", "-p", "200", "-d", "4s", "--io", "epoll", "-H", &fill];
    let document = compared(NetBox::builder(), Duration::from_secs(2), 0, &flags);
    let (all, in_seconds) = events(&document, "received", "zero_window");
    assert!(all >= 2 && in_seconds > 0 && in_seconds <= all, "{all}, {in_seconds}");
    assert!(document["tcp"]["peer_window_closed"].as_u64() > Some(0));
    assert!(in_steps(&document, "zero_window", "zero_windows") >= all);
    in_steps(&document, "window_full", "windows_full");
}

#[test]
fn lost_packets() {
    if cannot() {
        return;
    }
    let network = NetBox::builder().loss(0.02).delay(Duration::from_millis(5));
    let flags = ["-c", "8", "-d", "4s", "--io", "epoll"];
    let document = compared(network, Duration::ZERO, 40_000, &flags);
    for (way, event) in
        [("received", "retransmission"), ("sent", "duplicate_ack"), ("sent", "retransmission")]
    {
        let (all, in_seconds) = events(&document, way, event);
        assert!(all > 0 && in_seconds > 0, "{way} {event}: {all}, {in_seconds}");
    }
    assert!(in_steps(&document, "duplicate_ack", "duplicate_acks") > 0);
    assert!(in_steps(&document, "retransmission", "retransmissions") > 0);
    // A SYN, and what answered it a round trip later.
    let first = document["tcp"]["first_connection"].as_array().unwrap();
    assert_eq!((&first[0]["from"], &first[0]["flags"]), (&"client".into(), &2.into()), "{first:?}");
    let answer = first.iter().find(|packet| packet["from"] == "server").unwrap();
    assert!(answer["flags"] == 18 && answer["at_ms"].as_f64().unwrap() >= 10.0, "{answer}");
    assert!((10..=60).contains(&first.len()) && first.iter().any(|packet| packet["bytes"] != 0), "{first:?}");
    let looked_at = document["tcp"]["retransmits"].as_u64().unwrap();
    let (sent_again, _) = events(&document, "sent", "retransmission");
    // The kernel knows what it retransmitted. The packets show most of it, and some of it as out of
    // order.
    assert!(
        looked_at > 0 && sent_again.abs_diff(looked_at) <= 5 + looked_at / 3,
        "{sent_again}, {looked_at}"
    );
}

#[test]
fn reordered_packets() {
    if cannot() {
        return;
    }
    let network = NetBox::builder().reorder(0.05, Duration::from_millis(2)).delay(Duration::from_millis(5));
    let document = compared(network, Duration::ZERO, 60_000, &["-c", "4", "-d", "3s", "--io", "epoll"]);
    let (all, _) = events(&document, "received", "out_of_order");
    let looked_at = document["tcp"]["out_of_order"].as_u64().unwrap();
    assert!(all > 0 && looked_at > 0, "{all}, {looked_at}");
}

/// The run continues without a capture, and says so.
#[test]
fn without_the_capability() {
    let at = common::answering(common::HELLO);
    let url = format!("http://{at}/");
    let words = ["--bounding-set", "-net_raw", "--inh-caps", "-all", "--"];
    let asked = Command::new("setpriv").args(words).arg("true").stderr(Stdio::null()).status();
    if !asked.is_ok_and(|s| s.success()) {
        return skip("setpriv", "setpriv cannot drop capabilities here");
    }
    let mut command = Command::new("setpriv");
    command.args(words).arg(env!("CARGO_BIN_EXE_linerate"));
    let out =
        command.args(["load", "-q", "-n", "100", "--capture", "auto", "--json", "-", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("note: --capture: segments are not counted one by one"), "{said}");
    assert!(said.contains("CAP_NET_RAW") && said.contains("setcap cap_net_raw+ep"), "{said}");
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(document["tcp"]["segments"].is_null(), "nobody counted");
    assert!(document["warnings"].to_string().contains("CAP_NET_RAW"), "{}", document["warnings"]);
}
