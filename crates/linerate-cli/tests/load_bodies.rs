//! Requests with bodies, as a server gets them under each way of sending.

#[macro_use]
mod common;
mod uploads;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{measured, number, run};

/// Ways of sending that must send the same.
const WAYS: [&[&str]; 4] =
    [&["--io", "epoll"], &["--io", "uring"], &["--way", "threads"], &["--way", "async"]];

/// Bytes that hold what slots begin with, so many.
fn noise(n: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes: Vec<u8> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    bytes[n / 2..n / 2 + 8].copy_from_slice(b"{{none{{");
    bytes
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

/// The most memory that `load` had, bytes.
fn peak(args: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it runs");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        if let Ok(text) = fs::read_to_string(&status)
            && let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))
        {
            most = most.max(line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10);
        }
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{args:?}: {status}");
            return most;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_large_body_is_in_memory_once() {
    const BODY: usize = 48 << 20;
    // A debug build with two threads and their connections.
    const REST: u64 = 40 << 20;
    let (address, uploads) = uploads::server(0);
    let body = file(&noise(BODY));
    let (body, url) = (format!("@{}", body.path().display()), format!("http://{address}/"));
    for way in WAYS {
        let mut args = vec!["load", "-q", "-c", "10", "-n", "20", "--body", &body];
        args.extend_from_slice(way);
        if way[0] == "--io" {
            args.extend(["-t", "2"]);
        }
        args.push(&url);
        let most = peak(&args);
        println!("{way:?}: {} MB", most >> 20);
        assert!(most < BODY as u64 + REST, "{way:?}: {} MB", most >> 20);
        let length = BODY.to_string();
        let mut uploads = uploads.lock().expect("sound");
        assert_eq!(uploads.len(), 20);
        assert!(uploads.drain(..).all(|upload| upload.field("content-length") == Some(&length)));
    }
}

#[test]
fn large_and_small_bodies_arrive_as_they_are() {
    let (address, uploads) = uploads::server(usize::MAX);
    let url = format!("http://{address}/{{{{seq}}}}");
    for bytes in [100, 65_535, 65_536, 3_000_000] {
        let bytes = noise(bytes);
        let body = file(&bytes);
        let body = format!("@{}", body.path().display());
        for way in WAYS {
            let mut args = vec!["-c", "2", "-n", "6", "--body", &body, "--per-connection", "2"];
            args.extend_from_slice(way);
            args.push(&url);
            let (document, said) = measured(&args);
            assert_eq!(
                (said.code, number(&document, "/requests/answered")),
                (Some(0), 6),
                "{way:?} {said:?}"
            );
            let heads: usize = uploads.lock().expect("sound").iter().map(|u| u.head.len()).sum();
            assert_eq!(number(&document, "/bytes/sent"), (6 * bytes.len() + heads) as u64, "{way:?}");
            let uploads: Vec<_> = uploads.lock().expect("sound").drain(..).collect();
            assert!(uploads.len() == 6 && uploads.iter().all(|u| u.body == bytes), "{way:?}");
            let closing = uploads.iter().filter(|u| u.field("connection") == Some("close")).count();
            assert!(closing >= 1, "{way:?}");
        }
    }
}

/// A pipeline of large bodies may wait in full: what waits has no copy.
#[test]
fn large_bodies_are_pipelined() {
    let (address, uploads) = uploads::server(0);
    let body = file(&noise(9 << 20));
    let (body, url) = (format!("@{}", body.path().display()), format!("http://{address}/"));
    for io in ["epoll", "uring"] {
        let args = ["-c", "1", "-p", "16", "-n", "16", "--io", io, "-X", "PUT", "--body", &body, &url];
        let (document, said) = measured(&args);
        assert_eq!((said.code, number(&document, "/requests/answered")), (Some(0), 16), "{io} {said:?}");
        assert_eq!(uploads.lock().expect("sound").drain(..).count(), 16);
    }
}

/// Between the slots of a template, large stretches are sent from where they are.
#[test]
fn slots_are_filled_in_large_templates() {
    let (address, uploads) = uploads::server(usize::MAX);
    let filler = "x".repeat(100_000);
    let template = file(format!("<{{{{seq}}}}{filler}{{{{{{{{{filler}{{{{seq}}}}>").as_bytes());
    let (body, url) = (format!("@{}", template.path().display()), format!("http://{address}/"));
    for way in WAYS {
        let mut args = vec!["-c", "1", "-n", "3", "--body-template", &body];
        args.extend_from_slice(way);
        args.push(&url);
        let (_, said) = measured(&args);
        assert_eq!(said.code, Some(0), "{way:?} {said:?}");
        for (n, upload) in uploads.lock().expect("sound").drain(..).enumerate() {
            assert!(upload.body == format!("<{n}{filler}{{{{{filler}{n}>").as_bytes(), "{way:?} {n}");
        }
    }
}

#[test]
fn a_body_that_cannot_be_read_is_bad_input() {
    for (flag, value, words) in [
        ("--body", "@/no/such/file", "--body: /no/such/file cannot be read: there is no such file"),
        ("--body", "@/", "--body: / cannot be read: it is a directory"),
        ("--body-template", "@/no/such/file", "--body-template: /no/such/file cannot be read"),
    ] {
        let said = run(&["load", flag, value, "http://127.0.0.1:1/"]);
        assert!(said.code == Some(2) && said.err.contains(words), "{value}: {said:?}");
    }
}
