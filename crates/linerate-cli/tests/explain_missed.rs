//! `linerate explain` against small real servers, each with one defect that is easily missed; and
//! beside each one that looks like it and must not be blamed.

#![allow(clippy::unwrap_used)]

mod common;
mod real;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::run;
use linerate_netbox::NetBox;
use linerate_skips::{need, skip};
use serde_json::Value;

const PROGRAM: &str = include_str!("missed/server.py");

/// The server in a mode; gone when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn spawn(mut command: Command, words: &[&str]) -> Server {
        let mut child = command.args(["-c", PROGRAM]).args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, port: line.trim().parse().unwrap_or_else(|e| panic!("{e}: {line:?}")) }
    }

    /// `None`: there is no Python here.
    fn start(words: &[&str]) -> Option<Server> {
        real::find("python3").map(|python| Server::spawn(Command::new(python), words))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn url(&self) -> String {
        format!("http://{}/a", SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
}

/// A diagnosis: the document, the text, the exit code.
struct Found {
    document: Value,
    text: String,
    code: Option<i32>,
}

impl Found {
    fn of(words: &[&str]) -> Found {
        let flags = ["explain", "--summary", "full", "--quiet", "--json", "-", "--budget", "12s"];
        let said = run(&[&flags[..], words].concat());
        let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        Found { document, text: said.err.split_whitespace().collect::<Vec<_>>().join(" "), code: said.code }
    }

    fn first(&self) -> Option<&str> {
        self.document["causes"][0]["id"].as_str()
    }

    fn ids(&self) -> Vec<&str> {
        self.document["causes"].as_array().unwrap().iter().filter_map(|c| c["id"].as_str()).collect()
    }

    fn proof(&self) -> &str {
        self.document["causes"][0]["proof"].as_str().unwrap()
    }

    fn is(&self, cause: &str, proofs: &[&str]) {
        assert_eq!((self.first(), self.code), (Some(cause), Some(1)), "{:#}", self.document);
        assert!(proofs.contains(&self.proof()), "{:#}", self.document);
    }

    fn is_not(&self, cause: &str) {
        assert!(!self.ids().contains(&cause), "{:#}", self.document);
    }

    /// Nothing but that a busy machine makes the server late.
    fn is_nearly_healthy(&self) {
        assert!(self.ids().iter().all(|id| *id == "server-think"), "{:#}", self.document);
    }

    fn says(&self, words: &str) {
        assert!(self.text.contains(words), "{words:?} in {}", self.text);
    }
}

/// A diagnosis of the server in that mode.
fn explained(mode: &str) -> Option<Found> {
    let server = Server::start(&[mode])?;
    Some(Found::of(&[&server.url()]))
}

#[test]
fn a_first_call_that_finds_it_cold() {
    let Some(cold) = explained("cold") else { return };
    cold.is("cold-start", &["likely", "possible"]);
    cold.says("the first call took 1.5");
    let first = &cold.document["first_call"];
    assert!(first["first_ms"].as_f64() > Some(1_400.0) && first["later_ms"].as_f64() < Some(500.0));
    assert!(first["after_pause_ms"].is_number(), "{first:#}");
    let rests = explained("rests").unwrap();
    rests.is("cold-start", &["proved"]);
    // As slow each time.
    let works = explained("timer").unwrap();
    works.is_not("cold-start");
    works.says("a timer runs out there");
}

#[test]
fn a_connection_that_is_corked() {
    let Some(cork) = explained("cork") else { return };
    cork.is("cork", &["proved"]);
    cork.says("segments that the response fills");
    let thinks = explained("think").unwrap();
    thinks.is_not("cork");
    thinks.is("server-think", &["likely", "possible"]);
}

#[test]
fn a_process_that_is_stopped() {
    let Some(server) = Server::start(&["plain"]) else { return };
    server.signal("-STOP");
    let found = Found::of(&[&server.url()]);
    found.is("stopped", &["proved"]);
    assert_eq!((found.ids().len(), &found.document["process"]["found"]), (1, &true.into()));
    let pid = server.child.id().to_string();
    Found::of(&["--pid", &pid, &server.url()]).is("stopped", &["proved"]);
    let unseen = Found::of(&["--pid", "off", &server.url()]);
    unseen.is_not("stopped");
    assert!(unseen.code == Some(1) && unseen.document["process"].is_null(), "{:#}", unseen.document);
    server.signal("-CONT");
    Found::of(&[&server.url()]).is_not("stopped");
    // It hangs by itself.
    let hangs = explained("hangs").unwrap();
    hangs.is_not("stopped");
    hangs.says("it hangs, or it waits for an event (a long poll)");
}

#[test]
fn responses_that_never_end() {
    let Some(long) = explained("long") else { return };
    long.says("says Content-Length: 100 and sends 4 bytes; the other 96 never come");
    let chunks = explained("chunks").unwrap();
    chunks.says("sends chunks (4 bytes of content), and the last one, which ends the body, never comes");
    for found in [long, chunks] {
        assert_eq!((found.code, found.ids().len()), (Some(1), 0), "{:#}", found.document);
    }
    // It is meant to.
    let events = explained("events").unwrap();
    events.is_nearly_healthy();
    events.says("the response is a stream of events, which has no end of its own");
    assert!(events.document["call"]["total_ms"].as_f64() < Some(1_000.0), "{:#}", events.document);
}

#[test]
fn redirects_in_circles_and_calls_that_fail() {
    let Some(circle) = explained("circle") else { return };
    circle.is("redirects", &["proved"]);
    circle.says("The call fails: the redirects go in circles");
    circle.says("/a to /b to /a");
    let endless = explained("endless").unwrap();
    endless.is("redirects", &["proved"]);
    endless.says("The call fails: the redirects do not end");
    let fails = explained("fails").unwrap();
    assert_eq!((fails.code, fails.ids().len()), (Some(1), 0), "{:#}", fails.document);
    assert!(fails.text.starts_with("The call fails: the server answers 500."), "{}", fails.text);
    let plain = explained("plain").unwrap();
    plain.is_nearly_healthy();
    assert!(!plain.text.contains("The call fails"), "{}", plain.text);
}

#[test]
fn bodies_that_are_not_what_their_head_says() {
    for (mode, words) in [
        ("coded", "says Content-Encoding: gzip, and its body is something else"),
        ("behind", "sends 5 bytes behind the end of its answer, whose Content-Length is 5"),
        // Together with the next answer, or before its request.
        ("twice", "behind the end of its answer"),
    ] {
        let Some(found) = explained(mode) else { return };
        assert_eq!((found.code, found.ids().len()), (Some(1), 0), "{mode}: {:#}", found.document);
        assert!(found.text.starts_with("No cause can be named: "), "{mode}: {}", found.text);
        found.says(words);
    }
}

#[test]
fn a_response_that_ends_with_its_connection() {
    let Some(late) = explained("late") else { return };
    late.is("late-close", &["proved"]);
    let closes = explained("closes").unwrap();
    closes.is_not("late-close");
}

/// An address that takes no connection: its accept queue is full, and SYNs are dropped.
fn dead(address: SocketAddr) -> (socket2::Socket, Vec<socket2::Socket>) {
    let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let fill = || {
        let one = socket();
        one.set_nonblocking(true).unwrap();
        // In progress.
        let _ = one.connect(&address.into());
        one
    };
    (listener, std::iter::repeat_with(fill).take(3).collect())
}

#[test]
fn the_first_of_two_addresses_leads_nowhere() {
    let Some(server) = Server::start(&["plain"]) else { return };
    let port = server.port;
    let _dead = dead(SocketAddr::from(([127, 0, 0, 2], port)));
    let order = |addresses: &str| {
        let resolve = format!("two.test:{port}:{addresses}");
        Found::of(&["--resolve", &resolve, &format!("http://two.test:{port}/a")])
    };
    let found = order("127.0.0.2,127.0.0.1");
    found.is("dead-address", &["proved"]);
    found.says("127.0.0.2 is tried first and does not connect within");
    order("127.0.0.1,127.0.0.2").is_not("dead-address");
}

#[test]
fn a_body_that_is_large_for_its_line() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let Some(python) = real::find("python3") else { return };
    for (mode, line, title) in [
        ("large", 2_000_000, "the path carries no more than"),
        ("metered", 100_000_000, "on each connection, or makes its answer no faster"),
        ("pause", 100_000_000, ""),
        ("large", 100_000_000, ""),
    ] {
        let net = NetBox::builder().rate(line).start().unwrap();
        let ip = net.server().ip().to_string();
        let server = net.server().run(|| Server::spawn(Command::new(&python), &[mode, &ip, "8000"])).unwrap();
        let found = net.client().run(|| Found::of(&[&format!("http://{ip}:8000/a")])).unwrap();
        if title.is_empty() {
            found.is_not("bandwidth");
        } else {
            found.is("bandwidth", &["proved", "likely", "possible"]);
            found.says(title);
            found.is_not("server-think");
        }
        drop(server);
    }
}

#[test]
fn a_small_send_buffer_far_away() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let Some(python) = real::find("python3") else { return };
    let net = NetBox::builder().delay(Duration::from_millis(20)).start().unwrap();
    // BBR spreads what it sends over the round trip, as a slow link does: there nothing is named.
    net.server().sysctl("net/ipv4/tcp_congestion_control", "reno").unwrap();
    let ip = net.server().ip().to_string();
    for (mode, small) in [("sndbuf", true), ("large", false)] {
        let server = net.server().run(|| Server::spawn(Command::new(&python), &[mode, &ip, "8000"])).unwrap();
        let found = net.client().run(|| Found::of(&[&format!("http://{ip}:8000/a")])).unwrap();
        match small {
            true => found.is("server-send-buffer", &["likely"]),
            false => found.is_not("server-send-buffer"),
        }
        drop(server);
    }
}

/// Our own queue has room for two packets, and drops the others of a request.
#[test]
fn packets_that_this_machine_drops() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let net = NetBox::builder().delay(Duration::from_millis(5)).start().unwrap();
    let ip = net.server().ip().to_string();
    let mut serve = net.server().command(assert_cmd::cargo::cargo_bin!("linerate"));
    serve.args(["serve", "--demo-routes", "--listen", &format!("{ip}:8000")]);
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = net.server().spawn(serve).unwrap();
    common::until("serve", || net.server().listening().unwrap().contains(&8000));
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'x'; 20_000]).unwrap();
    let (body, url) = (format!("@{}", body.display()), format!("http://{ip}:8000/upper"));
    let explained = || {
        let words = ["-X", "POST", "--repeat-unsafe", "--body", &body, &url];
        net.client().run(|| Found::of(&words)).unwrap()
    };
    explained().is_not("local-drops");
    let mut queue = net.client().command("tc");
    queue.args(["qdisc", "replace", "dev", "net0", "root", "tbf", "rate", "2mbit", "burst", "1600"]);
    net.client()
        .output({
            queue.args(["limit", "4500"]);
            queue
        })
        .unwrap();
    let found = explained();
    found.is("local-drops", &["proved", "likely"]);
    found.says("the queueing discipline of net0 (tc -s qdisc) dropped");
    drop(server);
}
