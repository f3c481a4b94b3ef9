//! `linerate load` against a real nginx: its figures and the server's own count must agree, also
//! where nginx closes connections with requests still in flight.

mod common;
mod real;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use common::measured;
use real::{Counts, finish_nginx, nginx};
use serde_json::Value;

/// As good as never.
const UNLIMITED: u32 = 1_000_000_000;

/// Runs `load` against an nginx that closes connections after this many requests. Compares figures
/// and document with nginx's count. `None`: nginx is not installed.
fn against_nginx(keepalive_requests: u32, flags: &str) -> Option<(Counts, Value)> {
    let server = nginx(keepalive_requests)?;
    let url = server.url("/");
    let mut words: Vec<&str> = flags.split(' ').collect();
    words.push(&url);
    let (document, _) = measured(&words);
    let counts = Counts::of(&document);
    counts.agree_with(finish_nginx(server));
    Some((counts, document))
}

/// All `n` answered, none of them twice: what any friendly way of sending must give.
fn all_answered_once(flags: &str, n: u64) {
    let Some((counts, document)) = against_nginx(UNLIMITED, &format!("{flags} -n {n}")) else { return };
    assert_eq!(counts, Counts { sent: n, answered: n, failed: 0, unknown: 0, resent: 0 }, "{flags}");
    assert_eq!(document["status"]["200"], n, "{flags}");
}

#[test]
fn keep_alive() {
    all_answered_once("-c 16", 10_000);
    all_answered_once("-c 16 --io epoll", 10_000);
}

#[test]
fn short_connections() {
    all_answered_once("-c 16 --per-connection 1", 2_000);
    all_answered_once("-c 16 --per-connection 1 --io epoll", 2_000);
}

#[test]
fn mixed_connections() {
    all_answered_once("-c 16 --per-connection 3", 3_000);
    all_answered_once("-c 16 --per-connection 10 -p 4", 5_000);
    all_answered_once("-c 16 --per-connection 10 -p 4 --io epoll", 5_000);
}

#[test]
fn pipelined() {
    all_answered_once("-c 8 -p 32", 50_000);
    all_answered_once("-c 8 -p 32 --throughput", 50_000);
}

#[test]
fn baselines() {
    all_answered_once("-c 4 --way threads", 1_000);
    all_answered_once("-c 4 --way async", 1_000);
    all_answered_once("-c 1 --way poll", 500);
}

/// The run waits for requests in flight at its end, or reports them as unknown: it never forgets
/// them.
#[test]
fn ended_by_time() {
    for flags in [
        "-c 16 -d 300ms",
        "-c 8 -p 32 -d 300ms",
        "-c 16 --per-connection 1 -d 300ms",
        "-c 8 -r 2000 -d 300ms",
    ] {
        let Some((counts, _)) = against_nginx(UNLIMITED, flags) else { return };
        assert!(counts.answered > 0, "{flags}: {counts:?}");
        assert_eq!((counts.failed, counts.resent), (0, 0), "{flags}: {counts:?}");
    }
}

/// nginx's old default closes a connection after 100 requests, even with others in flight on it.
#[test]
fn closed_after_100_at_100_pipes_of_100() {
    for flags in ["-c 100 -p 100 -n 50000", "-c 100 -p 100 -n 50000 --io epoll"] {
        let Some((counts, document)) = against_nginx(100, flags) else { return };
        assert_eq!((counts.answered, counts.failed, counts.unknown), (50_000, 0, 0), "{flags}");
        assert!(
            document["connections"]["closed_by_peer"].as_u64() >= Some(400),
            "{}",
            document["connections"]
        );
    }
}

/// Ten times more in flight than the server takes: the tails go out again, and the limit is learnt
/// from it.
#[test]
fn closed_after_100_at_10_pipes_of_1000() {
    let Some((counts, document)) = against_nginx(100, "-c 10 -p 1000 -n 50000") else { return };
    assert_eq!((counts.answered, counts.failed, counts.unknown), (50_000, 0, 0));
    assert!(counts.resent > 0, "nothing was resent: {counts:?}");
    assert_eq!(document["connections"]["learnt_limit"], 100, "{}", document["connections"]);
    // Each connection loses one window until the limit is known, and again whatever was under way
    // then: not one for each of the 500 connections that this takes.
    assert!(counts.resent <= 3 * 10 * 1000, "tails are resent again and again: {counts:?}");
}

/// RFC 9112 section 9.6: a server processes no request behind the response that announces the
/// close, so a POST may be sent again.
#[test]
fn posts_behind_an_announced_close_go_out_again() {
    let Some((counts, _)) = against_nginx(100, "-c 10 -p 50 -n 5000 -X POST --body x") else { return };
    assert_eq!(
        (counts.sent, counts.answered + counts.unknown, counts.failed),
        (5_000, 5_000, 0),
        "{counts:?}"
    );
}

/// A server that reads this many requests and not a byte more, responds to the first of them, and
/// closes. Returns its URL and the bytes that it read. The length of a request depends on the port
/// in its Host, so it is computed once the port is known.
fn closes_early(answers: u64, reads: u64, flags: &[&str]) -> (String, Arc<AtomicU64>) {
    let (seen, length) = (Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::new()));
    let (counter, known) = (seen.clone(), length.clone());
    let address = common::server(move |mut stream: TcpStream| {
        let mut request = vec![0; *known.wait()];
        for i in 0..reads {
            if stream.read_exact(&mut request).is_err() {
                return;
            }
            counter.fetch_add(1, Ordering::SeqCst);
            if i < answers && stream.write_all(common::HELLO.as_bytes()).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let url = format!("http://{address}/");
    length.set(length_of_request(&[flags, &[&url]].concat())).expect("said once");
    (url, seen)
}

/// The bytes of one request as `--dry-run` says it would be sent.
fn length_of_request(flags: &[&str]) -> usize {
    let said = common::run(&[&["load", "--dry-run"], flags].concat());
    let line =
        said.out.lines().find(|l| l.contains("The first request")).unwrap_or_else(|| panic!("{said:?}"));
    let number = line.split_whitespace().find_map(|w| w.parse().ok());
    number.unwrap_or_else(|| panic!("no length in {line}"))
}

/// A server that reads eight requests, responds to two and closes.
#[test]
fn a_server_that_closes_early() {
    let (url, seen) = closes_early(2, 8, &["-X", "POST", "--body", "x"]);
    let (document, _) = measured(&["-c", "1", "-p", "8", "-n", "8", "-X", "POST", "--body", "x", &url]);
    let counts = Counts::of(&document);
    assert_eq!(counts, Counts { sent: 8, answered: 2, failed: 0, unknown: 6, resent: 0 });
    counts.agree_with(seen.load(Ordering::SeqCst));

    let (url, seen) = closes_early(2, 8, &[]);
    let (document, _) = measured(&["-c", "1", "-p", "8", "-n", "80", &url]);
    let counts = Counts::of(&document);
    assert_eq!((counts.sent, counts.answered, counts.failed, counts.unknown), (80, 80, 0, 0));
    assert!(counts.resent > 0, "{counts:?}");
    counts.agree_with(seen.load(Ordering::SeqCst));
}
