//! `linerate top` beside a server that runs.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use linerate_skips::{need, skip_part};

use serving::{connect, serve};

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    command.arg("top").args(arguments).output().unwrap()
}

#[test]
fn it_shows_loops_connections_and_queues() {
    for io in serving::transports() {
        let server = serve(&["--metrics", "127.0.0.1:0", "--threads", "2", "--io", io]);
        let line = server.line();
        let place =
            line.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        let mut idle = server.connect();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        idle.read_exact(&mut [0; 12]).unwrap();
        let mut waits = connect(&server.address);
        waits.write_all(b"GET /delay/60000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        // A response that its client does not take has a queue, which the kernel shows.
        let mut slow = connect(&server.address);
        slow.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        slow.read_exact(&mut [0; 12]).unwrap();
        // On a busy machine it takes a while until the kernel's buffers are full.
        let until = Instant::now() + Duration::from_secs(20);
        let (seen, text) = loop {
            let seen = top(&[&place, "--once", "--interval", "300ms"]);
            let text = String::from_utf8_lossy(&seen.stdout).into_owned();
            let full = text.lines().any(|row| row.starts_with(&server.address) && row.contains("MB"));
            if full || !text.contains("wait to be accepted") || Instant::now() > until {
                break (seen, text);
            }
        };
        assert_eq!(seen.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&seen.stderr));
        assert!(text.contains(&format!("listening on {}", server.address)), "{text}");
        assert!(text.contains("3 open (idle 1, head 0, body 0, handler 1, write 1)"), "{text}");
        assert!(text.contains("1 handler waits, 1 response is being made"), "{text}");
        let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert!(rows("0 ") == 1 && rows("1 ") == 1, "{text}");
        if text.contains("wait to be accepted") {
            let row = text.lines().find(|line| line.starts_with(&server.address)).expect("a connection");
            assert!(row.contains("established") && row.contains("MB"), "the longest queue is first: {text}");
        } else {
            skip_part("queues", need::SOCK_DIAG, "this kernel does not list its sockets");
        }
    }
}

#[test]
fn what_is_not_there_or_is_something_else_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let refused = top(&[&free, "--once"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("does not answer") && said.contains("--metrics"), "{said}");
    // A port that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let timed_out = top(&[&silent.local_addr().unwrap().to_string(), "--once"]);
    let said = String::from_utf8_lossy(&timed_out.stderr);
    assert_eq!(timed_out.status.code(), Some(3), "{said}");
    assert!(said.contains("does not answer: nothing came for 5 s"), "{said}");
    let server = serve(&[]);
    let other = top(&[&server.address, "--once"]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("is no metrics address of linerate"), "{said}");
}
