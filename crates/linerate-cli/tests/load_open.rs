//! `load --open`: the live page, and the events that keep it up to date.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::PATIENCE;
use serde_json::Value;

/// A run with a live page.
struct Loading {
    child: Child,
    place: String,
}

impl Drop for Loading {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(flags: &[&str]) -> Loading {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--open"]).args(flags).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().strip_prefix("live page on http://").and_then(|rest| rest.strip_suffix('/'));
    let place = place.unwrap_or_else(|| panic!("{line}")).to_owned();
    Loading { child, place }
}

impl Loading {
    /// A request, and the response up to the end of its head.
    fn get(&self, path: &str, host: &str) -> (String, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(&self.place).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "cut off behind {head:?}");
        }
        (head.to_ascii_lowercase(), reader)
    }
}

/// The pieces of a chunked body, to its end.
fn chunked(reader: &mut impl BufRead) -> String {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|e| panic!("{e}: {size:?}"));
        let mut piece = vec![0; size + 2];
        reader.read_exact(&mut piece).unwrap();
        body.extend_from_slice(&piece[..size]);
        if size == 0 {
            return String::from_utf8(body).unwrap();
        }
    }
}

/// Events: their names and data.
fn events(body: &str) -> Vec<(String, Value)> {
    let event = |text: &str| {
        let (name, data) = text.split_once('\n').unwrap_or_else(|| panic!("{text}"));
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        (name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
    };
    body.split_terminator("\n\n").map(event).collect()
}

#[test]
fn a_page_gets_every_second_and_then_the_report() {
    let server = serving::serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut run = load(&["-d", "4s", "--rate", "200", &url]);
    let (head, mut page) = run.get("/", &run.place);
    assert!(head.contains("200 ok") && head.contains("text/html"), "{head}");
    let mut html = String::new();
    page.read_to_string(&mut html).unwrap();
    assert!(html.contains("EventSource") && html.contains(&url));
    let (head, mut stream) = run.get("/events", &run.place);
    assert!(head.contains("text/event-stream"), "{head}");
    let events = events(&chunked(&mut stream));
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
    let (name, report) = events.last().unwrap();
    assert_eq!(name, "end");
    assert!(report.as_str().unwrap().contains("All seconds as a table"), "{report}");
    let seconds = |data: &Value| data["t"].as_array().unwrap().len();
    let told: usize =
        events.iter().filter(|(name, _)| name == "seconds").map(|(_, data)| seconds(data)).sum();
    assert!((2..=4).contains(&told), "{told} seconds: {events:?}");
    assert!(TcpStream::connect(&run.place).is_err(), "the address is closed");
}

#[test]
fn pages_are_limited_and_a_slow_one_holds_nobody_up() {
    let server = serving::serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut run = load(&["-d", "2s", "--rate", "200", &url]);
    let begun = Instant::now();
    let viewers: Vec<_> = (0..8).map(|_| run.get("/events", &run.place)).collect();
    assert!(viewers.iter().all(|(head, _)| head.contains("200 ok")));
    let (head, _) = run.get("/events", &run.place);
    assert!(head.contains("503"), "{head}");
    let (head, _) = run.get("/", "evil.example:80");
    assert!(head.contains("421"), "{head}");
    let (head, _) = run.get("/no", "localhost:1");
    assert!(head.contains("404"), "{head}");
    // No client reads; the run ends all the same.
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_run_without_a_page_ends_at_once() {
    let server = serving::serve(&[]);
    let begun = Instant::now();
    let mut run = load(&["-n", "10", &format!("http://{}/", server.address)]);
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
