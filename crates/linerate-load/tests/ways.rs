//! The ways of sending against a real server on loopback: each accounts for every request, and ends
//! when told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_load::plan::{Expectation, Plan, Stop, Target, Way};
use linerate_load::{Outcome, start};

/// How long the server waits for a client.
const PATIENCE: Duration = Duration::from_secs(30);

/// A threaded server that closes a connection after this many responses (`None`: never; 0: it never
/// sends a response at all).
fn server(close_after: Option<u64>) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let at = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            thread::spawn(move || answer(stream, close_after, &counted));
        }
    });
    (at, count)
}

fn answer(mut stream: TcpStream, close_after: Option<u64>, counted: &AtomicU64) {
    // One that waits for bytes that never come fails its test instead of holding it.
    for set in [stream.set_read_timeout(Some(PATIENCE)), stream.set_write_timeout(Some(PATIENCE))] {
        set.expect("a time limit");
    }
    let (mut carry, mut answers) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        carry.extend_from_slice(&buffer[..n]);
        while let Some(end) = carry.windows(4).position(|w| w == b"\r\n\r\n") {
            carry.drain(..end + 4);
            counted.fetch_add(1, Ordering::Relaxed);
            if close_after == Some(0) {
                continue;
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                return;
            }
            answers += 1;
            if close_after == Some(answers) {
                return;
            }
        }
    }
}

fn plan(at: SocketAddr, way: Way, stop: Stop) -> Plan {
    let mut plan = Plan::get(Target::at(at), "/");
    plan.requests[0].expect =
        Expectation { status: vec![200], body: Some("hell".into()), ..Default::default() };
    Plan { connections: 8, stop, threads: Some(1), way, ..plan }
}

fn accounts_add_up(outcome: &Outcome, server: &AtomicU64) {
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    let c = server.load(Ordering::Relaxed);
    assert!(r.answered <= c && c <= r.sent + r.resent, "server {c}, we {r:?}");
}

const WAYS: [Way; 4] = [Way::Loop, Way::Poll, Way::Threads, Way::Async];

#[test]
fn each_way_answers_each_request_once() {
    for way in WAYS {
        for close_after in [None, Some(7)] {
            let (at, count) = server(close_after);
            let stop = Stop { requests: Some(300), duration: None };
            let outcome = start(plan(at, way, stop)).unwrap().join();
            assert_eq!(
                outcome.requests.answered, 300,
                "{way:?} {:?} {:?}",
                outcome.requests, outcome.failures
            );
            assert_eq!(outcome.bad.total(), 0);
            assert_eq!(outcome.latency.from_sent.count(), 300);
            accounts_add_up(&outcome, &count);
        }
    }
}

/// A run that has sent all its requests is over, whatever time it had.
#[test]
fn each_way_lasts_as_long_as_its_requests() {
    for way in WAYS {
        let (at, _) = server(None);
        let stop = Stop { requests: Some(300), duration: Some(Duration::from_secs(60)) };
        let outcome = start(plan(at, way, stop)).unwrap().join();
        assert_eq!(outcome.requests.answered, 300, "{way:?}");
        assert!(outcome.duration < Duration::from_secs(60), "{way:?} {:?}", outcome.duration);
    }
}

/// RFC 9112 section 9.2: bytes beyond the responses are not a response, in particular not to the
/// next request.
#[test]
fn no_way_takes_what_was_not_asked_for_as_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let at = listener.local_addr().expect("it is bound");
    let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    // Longer than any read, so that the rest is there together with the next response.
    bytes.extend_from_slice(b"HTTP/1.1 500 Unasked\r\nContent-Length: 300000\r\n\r\n");
    bytes.resize(bytes.len() + 300_000, b'x');
    let bytes = Arc::new(bytes);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let bytes = Arc::clone(&bytes);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) && stream.write_all(&bytes).is_ok() {}
            });
        }
    });
    for way in WAYS {
        let plan = Plan {
            connections: if way == Way::Poll { 1 } else { 2 },
            ..plan(at, way, Stop { requests: Some(20), duration: None })
        };
        let outcome = start(plan).unwrap().join();
        let r = outcome.requests;
        assert_eq!(
            (r.answered, r.failed, outcome.bad.total()),
            (20, 0, 0),
            "{way:?} {r:?} {:?}",
            outcome.failures
        );
    }
}

#[test]
fn each_way_ends_when_told_to_though_nobody_answers() {
    for way in WAYS {
        let (at, count) = server(Some(0));
        let running = start(plan(at, way, Stop::default())).unwrap();
        let begun = Instant::now();
        while count.load(Ordering::Relaxed) == 0 && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(5));
        }
        running.stop();
        let outcome = running.join();
        assert!(outcome.interrupted);
        assert!(outcome.requests.unknown > 0, "{way:?} {:?}", outcome.requests);
        assert_eq!(outcome.requests.answered, 0);
        accounts_add_up(&outcome, &count);
    }
}

#[test]
fn nobody_there_is_said_by_each_way() {
    // A port that was free a moment ago.
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for way in WAYS {
        for planned in [None, Some(Duration::from_secs(600))] {
            let stop = Stop { requests: Some(20), duration: planned };
            let outcome = start(plan(at, way, stop)).unwrap().join();
            assert!(outcome.unreachable.is_some(), "{way:?} {:?}", outcome.requests);
            assert_eq!(outcome.requests.answered, 0);
            // It gave up, and says for how long it tried, not how long it was to take.
            assert!(outcome.duration < Duration::from_secs(600), "{way:?} {:?}", outcome.duration);
            assert!(outcome.window.time < Duration::from_secs(600), "{way:?} {:?}", outcome.window);
        }
    }
}

#[test]
fn what_a_baseline_cannot_do_is_refused() {
    let (at, _) = server(None);
    let plan = Plan { depth: 2, ..plan(at, Way::Threads, Stop::default()) };
    let error = start(plan).unwrap_err().to_string();
    assert_eq!(error, "--way threads can't do pipelining (-p): that needs --way loop");
}
