//! `linerate explain` against servers that are none, that fall over, and that change while they are
//! looked at: a clear word each, never a wrong cause.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{HELLO, nobody, run, server};
use serde_json::Value;

/// The document, the text beside it, and the exit code.
fn explained(address: SocketAddr) -> (Value, String, Option<i32>) {
    let url = format!("http://{address}/");
    let said = run(&["explain", "--json", "-", "--capture", "off", "--budget", "10s", &url]);
    let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (document, said.err.split_whitespace().collect::<Vec<_>>().join(" "), said.code)
}

/// No verdict, no cause, and this word first.
fn inconclusive(address: SocketAddr, word: &str) {
    let (document, text, code) = explained(address);
    assert_eq!((document["verdict"].as_str(), code), (Some("inconclusive"), Some(1)), "{document:#}");
    assert_eq!(document["causes"].as_array().map(Vec::len), Some(0), "{document:#}");
    assert!(
        document["limits"][0].as_str().is_some_and(|l| l.contains(word)),
        "{word}: {:#}",
        document["limits"]
    );
    assert!(text.starts_with("No cause can be named: ") && text.contains(word), "{text}");
}

#[test]
fn who_speaks_no_http() {
    inconclusive(common::greeting("SSH-2.0-OpenSSH_9.2\r\n"), "SSH");
    // The alert that a TLS server sends on reading "GET / HTTP/1.1".
    let tls = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&[0x15, 3, 1, 0, 2, 2, 70]);
    });
    inconclusive(tls, "TLS");
}

#[test]
fn who_ends_before_an_answer() {
    let closes = server(|mut stream| drop(stream.read(&mut [0; 4096])));
    inconclusive(closes, "without an answer");
    // Closing with something unread resets (RFC 2525, section 2.17).
    let resets = server(|stream| drop(stream.peek(&mut [0])));
    inconclusive(resets, "reset the connection");
    let half = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    });
    inconclusive(half, "in the middle of its answer");
}

#[test]
fn who_never_ends() {
    let head = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X-More: and more and more and more\r\n").is_ok() {}
    });
    inconclusive(head, "head");
    // Accepts and reads, and sends nothing.
    inconclusive(common::greeting(""), "sends no answer");
}

/// Answers each request by its number, from 0, on whatever connection it comes; `None` ends the
/// connection.
fn numbered(answer: impl Fn(usize, &mut TcpStream) -> Option<()> + Send + Sync + 'static) -> SocketAddr {
    let (n, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
    server(move |mut stream| {
        stream.set_nodelay(true).unwrap();
        let mut unread = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(got @ 1..) = stream.read(&mut buffer) {
            unread.extend_from_slice(&buffer[..got]);
            while let Some(end) = unread.windows(4).position(|w| w == b"\r\n\r\n") {
                unread.drain(..end + 4);
                if answer(n.fetch_add(1, Ordering::SeqCst), &mut stream).is_none() {
                    return;
                }
            }
        }
    })
}

/// Head, a pause, body.
fn pauses(stream: &mut TcpStream, time: Duration) -> Option<()> {
    let (head, body) = HELLO.split_at(HELLO.len() - 6);
    stream.write_all(head.as_bytes()).ok()?;
    thread::sleep(time);
    stream.write_all(body.as_bytes()).ok()
}

#[test]
fn one_that_is_mended_while_we_look() {
    // A pause that looks like a stall, until the experiments begin.
    let mended = numbered(|n, stream| pauses(stream, Duration::from_millis(if n < 12 { 42 } else { 0 })));
    inconclusive(mended, "the server changed while we looked: the same call took");
}

#[test]
fn one_that_answers_otherwise_later() {
    let limited = numbered(|n, stream| match n {
        0..14 => pauses(stream, Duration::from_millis(42)),
        _ => stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").ok(),
    });
    inconclusive(limited, "503");
}

#[test]
fn one_that_goes_away() {
    let resets = numbered(|n, stream| if n < 14 { pauses(stream, Duration::from_millis(42)) } else { None });
    inconclusive(resets, "the server changed while we looked: of");
    // It responds for a while, then closes its port.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                while let Ok(1..) = stream.read(&mut [0; 4096]) {
                    if pauses(&mut stream, Duration::from_millis(42)).is_none() {
                        return;
                    }
                }
            });
        }
    });
    inconclusive(address, "refuses the connection");
}

#[test]
fn who_is_not_there_at_all() {
    let refused = run(&["explain", &format!("http://{}/", nobody())]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""));
    assert!(refused.err.contains("nobody listens there"), "{refused:?}");
    let process = run(&["explain", "--pid", "4194303", "http://127.0.0.1/"]);
    assert!(process.code == Some(2) && process.err.contains("there is no process"), "{process:?}");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("no/page.html");
    let page = run(&["explain", "--html", page.to_str().unwrap(), "http://127.0.0.1/"]);
    assert!(page.code == Some(2) && page.err.contains("--html: ") && page.out.is_empty(), "{page:?}");
    let both = run(&["explain", "--html", "-", "--json", "-", "http://127.0.0.1/"]);
    assert!(both.code == Some(2) && both.err.contains("cannot both go to standard output"), "{both:?}");
}
