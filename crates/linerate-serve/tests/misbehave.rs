//! Each misbehaviour shows the symptom it promises. Times are only ever bounded from below.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linerate_serve::misbehave::{MisbehavingServer, MisbehaviourKind};

fn server(faults: &[&str]) -> MisbehavingServer {
    let how = faults.iter().map(|f| f.parse::<MisbehaviourKind>().unwrap()).collect();
    MisbehavingServer::spawn(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), how).unwrap()
}

fn connect(server: &MisbehavingServer) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn until_closed(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn without_a_fault_it_is_a_plain_server() {
    let server = server(&[]);
    let mut stream = connect(&server);
    let last = "GET /status/404 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let post = "POST /upper HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    stream.write_all((get("/") + post + &get("/delay/5") + &get("/stream/2") + last).as_bytes()).unwrap();
    let text = until_closed(stream);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 4);
    assert!(text.contains("HELLO") && text.contains("line 2") && text.contains("HTTP/1.1 404"));
    let mut bad = connect(&server);
    bad.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(until_closed(bad).starts_with("HTTP/1.1 400"));
    assert_eq!(server.counts().requests, 5);
}

#[test]
fn close_after_and_no_keep_alive() {
    for (fault, answers) in [("close-after=2", 2), ("no-keep-alive", 1)] {
        let server = server(&[fault]);
        let mut stream = connect(&server);
        stream.write_all((get("/") + &get("/")).as_bytes()).unwrap();
        let text = until_closed(stream);
        assert_eq!(text.matches("HTTP/1.1 200").count(), answers, "{fault}");
        assert!(text.contains("connection: close"));
    }
}

#[test]
fn tiny_chunks() {
    let server = server(&["tiny-chunks=2", "no-keep-alive"]);
    let mut stream = connect(&server);
    stream.write_all(get("/bytes/5").as_bytes()).unwrap();
    assert!(until_closed(stream).ends_with("\r\n\r\n2\r\n01\r\n2\r\n23\r\n1\r\n4\r\n0\r\n\r\n"));
}

#[test]
fn stall_think_and_lanes_take_their_time() {
    for faults in [
        &["stall=100"][..],
        &["think=100"],
        &["lanes=1", "think=50"],
        &["workers=1", "think=50"],
        &["think=100-120"],
        &["late-body=100"],
    ] {
        let server = server(&[faults, &["no-keep-alive"]].concat());
        let begin = Instant::now();
        let mut streams = [connect(&server), connect(&server)];
        for stream in &mut streams {
            stream.write_all(get("/").as_bytes()).unwrap();
        }
        for stream in streams {
            assert!(until_closed(stream).ends_with("Hello, World!\n"));
        }
        assert!(begin.elapsed() >= Duration::from_millis(100), "{faults:?}");
    }
}

#[test]
fn no_100_continue() {
    for (faults, expected) in [(&[][..], "HTTP/1.1 100"), (&["no-100-continue"], "HTTP/1.1 200")] {
        let server = server(faults);
        let mut stream = connect(&server);
        let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        while server.counts().requests == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(b"hello").unwrap();
        let text = until_closed(stream);
        assert!(text.starts_with(expected) && text.ends_with("hello"), "{text}");
    }
}

#[test]
fn slow_read_takes_an_upload_slowly_and_whole() {
    let server = server(&["slow-read=1000000"]);
    let begin = Instant::now();
    let mut stream = connect(&server);
    let body = vec![b'x'; 200_000];
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(&body).unwrap();
    assert!(until_closed(stream).ends_with("xxx"));
    assert!(begin.elapsed() >= Duration::from_millis(150));
}

#[test]
fn late_body_sends_its_head_at_once() {
    let server = server(&["late-body=60000"]);
    let mut stream = connect(&server);
    stream.write_all(get("/").as_bytes()).unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
}

#[test]
fn idle_close_says_nothing_before() {
    let server = server(&["idle-close=30"]);
    let mut stream = connect(&server);
    stream.write_all(get("/").as_bytes()).unwrap();
    let text = until_closed(stream);
    assert!(text.starts_with("HTTP/1.1 200") && !text.contains("connection:"), "{text}");
}
