//! What operators say to a running server by signals.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::until;
use serving::{PATIENCE, connect, serve, transports};

/// A handler that holds its thread is left behind; what others have asked is answered.
#[test]
fn the_drain_ends_on_time_although_a_handler_blocks() {
    for io in transports() {
        let server = serve(&["--io", io, "--threads", "1", "--drain", "1s"]);
        let mut stream = server.connect();
        stream.write_all(b"GET /block/25000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        // Whether it blocks before the signal or behind it makes no difference.
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        server.signal("-TERM");
        let (code, said) = server.end();
        let took = begin.elapsed();
        assert_eq!(code, Some(0), "{said}");
        // A second and a quarter, and what a busy machine adds.
        assert!(took < Duration::from_secs(12), "{io}: {took:?}");
        assert!(said.contains("1 were still open after --drain"), "{io}: {said}");
    }
}

/// As far as it has left; its client has what was sent.
#[test]
fn a_response_that_the_drain_cuts_is_in_the_access_log() {
    const ALL: u64 = 1_000_000_000;
    for io in transports() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::File::create(folder.path().join("large.bin")).unwrap().set_len(ALL).unwrap();
        let log = folder.path().join("log");
        let dir = folder.path().to_str().unwrap();
        let server = serve(
            &[
                &["--io", io, "--drain", "300ms", "--access-log", log.to_str().unwrap()][..],
                &["--dir", dir, "--demo-routes"],
            ]
            .concat(),
        );
        let paths = [format!("/bytes/{ALL}"), format!("/stream/{ALL}"), "/large.bin".to_owned()];
        let slow: Vec<TcpStream> = paths
            .iter()
            .map(|path| {
                let mut stream = server.connect();
                write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
                stream.read_exact(&mut [0; 1000]).unwrap();
                stream
            })
            .collect();
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("3 were still open after --drain"), "{io}: {said}");
        let lines = std::fs::read_to_string(&log).unwrap();
        for path in paths {
            let line = lines.lines().find(|line| line.contains(&format!("GET {path} ")));
            let line = line.unwrap_or_else(|| panic!("{io}, {path}: {lines}"));
            let bytes: u64 = line.split(' ').nth(9).unwrap().parse().unwrap();
            assert!((500..ALL).contains(&bytes), "{io}: {line}");
        }
        drop(slow);
    }
}

/// Of clients that were lost before their handlers had answered, and of those whom the end of the drain cuts.
#[test]
fn requests_without_a_response_are_in_the_access_log() {
    for io in transports() {
        for format in ["common", "json"] {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("log");
            let flags = ["--io", io, "--drain", "300ms", "--log-format", format, "--access-log"];
            let server = serve(&[&flags[..], &[log.to_str().unwrap()]].concat());
            let ask = |path: &str| {
                let mut stream = server.connect();
                // In one segment: `write!` sends piece by piece.
                let both = format!(
                    "GET /status/201 HTTP/1.1\r\nHost: h\r\n\r\nGET {path} HTTP/1.1\r\nHost: h\r\n\r\n"
                );
                stream.write_all(both.as_bytes()).unwrap();
                // The first response says that both were read.
                stream.read_exact(&mut [0; 12]).unwrap();
                stream
            };
            let lost = ask("/delay/59999");
            // Without this time it ends by a reset.
            socket2::SockRef::from(&lost).set_linger(Some(Duration::ZERO)).unwrap();
            drop(lost);
            let lines = || std::fs::read_to_string(&log).unwrap();
            until("the line of the one that was lost", || lines().contains("/delay/59999"));
            let cut = ask("/delay/60000");
            let (code, said) = server.stop();
            assert_eq!(code, Some(0), "{said}");
            let lines = lines();
            for (path, status) in [("/delay/59999", "499"), ("/delay/60000", "000")] {
                let line = lines
                    .lines()
                    .find(|line| line.contains(path))
                    .unwrap_or_else(|| panic!("{io}, {path}: {lines}"));
                let json = format!("\"status\":{},\"bytes\":0,", status.parse::<u16>().unwrap());
                assert!(line.contains(&json) || line.ends_with(&format!("\" {status} 0")), "{io}: {line}");
            }
            drop(cut);
        }
    }
}

#[test]
fn sigusr1_opens_the_log_anew_and_sigusr2_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (log, old) = (folder.path().join("log"), folder.path().join("log.1"));
    let server = serve(&["--access-log", log.to_str().unwrap()]);
    server.get("/status/201");
    let has = |file: &Path, text: &str| std::fs::read_to_string(file).is_ok_and(|all| all.contains(text));
    until("the first line", || has(&log, "/status/201"));
    std::fs::rename(&log, &old).unwrap();
    server.signal("-USR2");
    server.signal("-USR1");
    until("the new log", || log.exists());
    server.get("/status/202");
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(has(&log, "/status/202") && !has(&old, "/status/202"));
}

#[test]
fn sigquit_is_a_graceful_end() {
    let server = serve(&[]);
    let mut stream = server.connect();
    stream.write_all(b"GET /delay/500 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    until("a handler that waits", || server.get("/stats").contains("\"waiting\":1"));
    server.signal("-QUIT");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("connection: close") && answer.ends_with("waited\n"), "{answer}");
    assert_eq!(server.end().0, Some(0));
}

/// Every connected client gets a response: in the accept queue too, and with a handshake that ends just then.
#[test]
fn no_connection_is_reset_by_the_end() {
    for io in transports() {
        let mut answered = 0;
        for _ in 0..4 {
            let server = serve(&["--io", io, "--threads", "2"]);
            let address: SocketAddr = server.address.parse().unwrap();
            let (responses, told) = (AtomicUsize::new(0), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let clients: Vec<_> =
                    (0..24).map(|_| scope.spawn(|| ask_again(address, &responses, &told))).collect();
                until("some responses", || responses.load(SeqCst) > 500);
                server.signal("-TERM");
                told.store(true, SeqCst);
                let lost: Vec<String> = clients.into_iter().filter_map(|c| c.join().unwrap().err()).collect();
                assert!(lost.is_empty(), "{io}: {lost:?}");
            });
            answered += responses.load(SeqCst);
            assert_eq!(server.end().0, Some(0));
        }
        println!("{io}: {answered} connections, none reset");
    }
}

/// A connection for each request, until none can be had. An error: one was had, and no whole response came.
fn ask_again(address: SocketAddr, responses: &AtomicUsize, told: &AtomicBool) -> Result<(), String> {
    loop {
        // A SYN that comes too late is dropped, and the next one a second later refused.
        let Ok(mut stream) = TcpStream::connect(address) else {
            return if told.load(SeqCst) { Ok(()) } else { Err("refused before the end".to_owned()) };
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /bytes/10 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let read = asked.and_then(|()| stream.read_to_string(&mut answer));
        if let Err(e) = read {
            return Err(format!("{e} behind {answer:?}"));
        }
        if !answer.ends_with("0123456789") {
            return Err(format!("cut off: {answer:?}"));
        }
        responses.fetch_add(1, SeqCst);
    }
}

/// The connection is there and has said nothing: it is closed, not reset.
#[test]
fn a_silent_connection_is_closed_and_not_reset() {
    let server = serve(&[]);
    let mut silent = connect(&server.address);
    server.signal("-TERM");
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(server.end().0, Some(0));
}
