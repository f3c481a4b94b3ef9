//! Responses with large bodies: those that no check reads are discarded where they lie, and nothing else may change by that.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use common::{Said, measured, number};
use serde_json::Value;

/// Each with one request in flight on a connection, and with several.
const WAYS: [&str; 4] = ["--io epoll", "--io uring", "--io epoll -p 3", "--io uring -p 3"];

/// More than a read brings, and no multiple of anything.
const LARGE: usize = 300_007;

/// What a server does behind the first bytes of a body.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// Sends the rest.
    Whole,
    /// Closes before the last byte.
    Closed,
    /// Says nothing more.
    Silent,
    /// Sends the rest, and more than was asked for.
    WithSurplus,
}

/// A body: letters, with a word at its end.
fn body(len: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (b'a'..=b'z').cycle().take(len - 5).collect();
    body.extend_from_slice(b"WORD!");
    body
}

/// A server that answers with bodies of these lengths in turn, in pieces.
fn answering(lengths: &'static [usize], status: &'static str, ends: Ends) -> SocketAddr {
    let mut lengths = lengths.iter().cycle();
    common::responding(move |stream| {
        let body = body(*lengths.next().expect("endless"));
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        answer(stream, head.as_bytes(), &body, ends)
    })
}

fn answer(stream: &mut TcpStream, head: &[u8], body: &[u8], ends: Ends) -> std::io::Result<()> {
    stream.write_all(head)?;
    let (last, most) = body.split_last().expect("not empty");
    for (i, piece) in most.chunks(70_001).enumerate() {
        stream.write_all(piece)?;
        // Some pieces are read on their own.
        if i % 3 == 0 && body.len() == LARGE {
            thread::sleep(Duration::from_millis(1));
        }
    }
    match ends {
        Ends::Whole => stream.write_all(&[*last]),
        Ends::WithSurplus => stream.write_all(&[*last, b'm', b'o', b'r', b'e']),
        Ends::Closed => stream.shutdown(std::net::Shutdown::Both),
        Ends::Silent => stream.read(&mut [0; 4096]).map(|_| ()),
    }
}

fn load(flags: &str, more: &[&str], to: SocketAddr) -> (Value, Said) {
    let url = format!("http://{to}/");
    let mut args: Vec<&str> = flags.split(' ').chain(["-t", "1", "-c", "3"]).collect();
    args.extend_from_slice(more);
    args.push(&url);
    measured(&args)
}

fn head(len: usize) -> usize {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").len() + len
}

#[test]
fn every_byte_is_counted_whether_or_not_somebody_looks() {
    for way in WAYS {
        let to = answering(&[LARGE], "200 OK", Ends::Whole);
        for (check, bad) in [("", 0), ("WORD!", 0), ("xWORD!", 60)] {
            let more = ["-n", "60", "--expect-body", check];
            let (document, said) = load(way, &more[..if check.is_empty() { 2 } else { 4 }], to);
            let context = format!("{way} {check}: {}", said.err);
            assert_eq!(number(&document, "/requests/answered"), 60, "{context}");
            assert_eq!(number(&document, "/bytes/received"), 60 * head(LARGE) as u64, "{context}");
            assert_eq!(number(&document, "/bad/body"), bad, "{context}");
            assert_eq!(number(&document, "/requests/unsolicited_responses"), 0, "{context}");
        }
    }
}

/// A mark that is left behind a large body would hold back the small one.
#[test]
fn large_and_small_bodies_follow_one_another() {
    const LENGTHS: &[usize] = &[LARGE, 5, 5, 90_000, 20_000, LARGE, LARGE, 5];
    for way in WAYS {
        let to = answering(LENGTHS, "200 OK", Ends::Whole);
        let (document, said) = load(way, &["-n", "240", "--timeout", "5s"], to);
        assert_eq!(number(&document, "/requests/answered"), 240, "{way}: {}", said.err);
        assert_eq!(number(&document, "/connections/opened"), 3, "{way}: {}", said.err);
        // A connection has its share, and not exactly: only all of a turn together are known.
        let (got, turn) =
            (number(&document, "/bytes/received"), LENGTHS.iter().map(|len| head(*len)).sum::<usize>());
        assert!(got.abs_diff(30 * turn as u64) < 3 * turn as u64, "{way}: {got}");
    }
}

#[test]
fn a_body_that_breaks_off_is_a_failure() {
    for way in WAYS {
        let to = answering(&[LARGE], "200 OK", Ends::Closed);
        let (document, said) = load(way, &["-n", "12"], to);
        assert_eq!(number(&document, "/failures/truncated"), 12, "{way}: {}", said.err);
        let why = document["failure_details"]["truncated"].as_str().expect("a detail");
        assert!(why.contains(" 1 "), "{way}: {why}");
    }
}

#[test]
fn a_body_that_stops_runs_into_the_time_out() {
    for way in WAYS {
        let to = answering(&[LARGE], "200 OK", Ends::Silent);
        let (document, said) = load(way, &["-n", "6", "--timeout", "300ms"], to);
        assert_eq!(number(&document, "/failures/timeout"), 6, "{way}: {}", said.err);
    }
}

#[test]
fn what_follows_a_body_unasked_is_seen() {
    for way in ["--io epoll", "--io uring"] {
        let to = answering(&[LARGE], "200 OK", Ends::WithSurplus);
        let (document, said) = load(way, &["-n", "9"], to);
        let bad =
            number(&document, "/requests/unsolicited_responses") + number(&document, "/failures/malformed");
        assert!(bad >= 3, "{way}: {}", said.err);
    }
}

#[test]
fn saved_and_bad_responses_have_their_bytes() {
    for way in WAYS {
        let to = answering(&[LARGE], "503 Busy", Ends::Whole);
        let folder = tempfile::tempdir().expect("a folder");
        let saved = folder.path().join("saved");
        let (document, said) = load(way, &["-n", "8", "--save-responses", &saved.display().to_string()], to);
        let files: Vec<_> = std::fs::read_dir(&saved).expect("saved").flatten().collect();
        assert_eq!(files.len(), 8, "{way}: {}", said.err);
        for file in files {
            let bytes = std::fs::read(file.path()).expect("a file");
            assert!(bytes.ends_with(&body(LARGE)), "{way}: {} bytes", bytes.len());
        }
        let (document_again, _) = load(way, &["-n", "8"], to);
        for document in [document, document_again] {
            assert_eq!(number(&document, "/bad/status"), 8, "{way}");
            let samples = document["samples"].as_array().expect("samples");
            let bad = samples.iter().find(|sample| sample["why"] == "bad status").expect("a bad one");
            let sample = bad["body"].as_str().expect("a body");
            assert_eq!(sample, String::from_utf8_lossy(&body(LARGE)[..200]), "{way}");
        }
    }
}
