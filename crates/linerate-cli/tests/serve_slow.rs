//! slowhttptest against the default limits: the server must stay available while connections are
//! held in every way it knows. Longer attacks run by `cargo xtask soak serve`.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_skips::skip;

use serving::{PATIENCE, Server, serve, transports};

/// Its modes, each as its authors advise, with more connections than any one client needs.
const MODES: [(&str, &[&str]); 4] = [
    ("slow headers", &["-H", "-i", "2", "-x", "24"]),
    ("slow bodies", &["-B", "-i", "2", "-x", "10", "-s", "8192"]),
    ("ranges", &["-R", "-t", "HEAD", "-a", "10", "-b", "3000"]),
    ("slow reads", &["-X", "-w", "10", "-y", "20", "-n", "2", "-z", "32", "-k", "3"]),
];

fn attack(server: &Server, path: &str, mode: &[&str]) -> Option<Child> {
    let url = format!("http://{}{path}", server.address);
    Command::new("slowhttptest")
        .args(["-c", "500", "-r", "250", "-l", "8", "-p", "5", "-u", &url])
        .args(mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

#[test]
fn it_stays_available_under_slowhttptest() {
    for io in transports() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("large.txt"), "x".repeat(2 << 20)).unwrap();
        let server = serve(&["--io", io, "--demo-routes", "--dir", folder.path().to_str().unwrap()]);
        // All at once: each has its own connections.
        let mut attacks = Vec::new();
        for (name, mode) in MODES {
            let path = if name == "slow bodies" { "/echo" } else { "/large.txt" };
            let Some(child) = attack(&server, path, mode) else {
                return skip("slowhttptest", "slowhttptest is not installed");
            };
            attacks.push((name, child));
        }
        let begin = Instant::now();
        while attacks.iter_mut().any(|(_, child)| child.try_wait().unwrap().is_none()) {
            // Somebody else is answered meanwhile, over and over.
            assert!(server.get("/status/218").starts_with("HTTP/1.1 218"));
            assert!(begin.elapsed() < PATIENCE, "{io}: slowhttptest goes on and on");
            std::thread::sleep(Duration::from_millis(100));
        }
        for (name, mut child) in attacks {
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            let line = said
                .lines()
                .rev()
                .find(|l| l.contains("service available:"))
                .unwrap_or_else(|| panic!("{said}"));
            println!("{io}, {name}: {}", line.trim());
            assert!(line.contains("YES"), "{io}, {name}: {said}");
        }
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
    }
}

/// The slow heads of slowhttptest rely on a server that waits for ever. A shorter limit shows the
/// same sooner.
#[test]
fn a_head_that_trickles_in_is_answered_408_and_its_connection_ends() {
    for io in transports() {
        let server = serve(&["--io", io, "--header-timeout", "500ms"]);
        let mut stream = server.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n").unwrap();
        let mut writer = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            while writer.write_all(b"X-a: b\r\n").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "{answer}");
        assert_eq!(server.stop().0, Some(0));
    }
}
