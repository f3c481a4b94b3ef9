//! `linerate serve`, from its start to its end by a signal.
#![allow(clippy::unwrap_used)]

mod serving;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::time::Duration;

use serving::{serve, started};

#[test]
fn it_serves_files_and_routes_and_drains_at_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.html"), "<p>here").unwrap();
    let log = dir.path().join("access.log");
    let at = dir.path().to_str().unwrap();
    let server = serve(&["--dir", at, "--demo-routes", "--access-log", log.to_str().unwrap()]);
    assert!(server.get("/").ends_with("<p>here"));
    assert!(server.get("/status/418").starts_with("HTTP/1.1 418"));
    // Of the kernel's connections other tools tell.
    let flows = server.get("/stats/flows");
    assert!(flows.starts_with("HTTP/1.1 404") && flows.contains("ss -tine"), "{flows}");
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.get("/delay/700"));
        while !server.get("/stats").contains("\"waiting\":1") {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.signal("-TERM");
        waiting.join().unwrap()
    });
    assert!(waiting.ends_with("waited\n"), "{waiting}");
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("answered "), "{said}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"GET / HTTP/1.1\" 200 7 ") && log.contains("/delay/700 HTTP/1.1\" 200"), "{log}");
}

/// A directory is served without the routes for tests: `/block/MS` would block all clients, and
/// `/stats` would inform strangers.
#[test]
fn demo_routes_are_there_when_nothing_else_is_or_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.html"), "<p>here").unwrap();
    std::fs::write(dir.path().join("serve.toml"), "").unwrap();
    let (at, config) = (dir.path().to_str().unwrap(), dir.path().join("serve.toml"));
    let config = config.to_str().unwrap();
    for (flags, routes, says) in [
        (&[][..], true, "answering with the demo routes (/, /bytes/N, "),
        (&["--dir", at], false, "answering with the files of "),
        (&["--dir", at, "--demo-routes"], true, ", the demo routes ("),
        (&["--dir", at, "--files-only"], false, ", no demo routes"),
        (&["--config", config], false, "answering with 404 alone"),
        (&["--config", config, "--demo-routes"], true, "answering with the demo routes"),
        (&["--demo-routes=false"], false, "answering with 404 alone"),
    ] {
        let server = serve(flags);
        let said = server.answering();
        assert!(said.contains(says), "{flags:?}: {said}");
        for (path, good) in
            [("/stats", "200"), ("/block/1", "200"), ("/delay/1", "200"), ("/stream/1", "200")]
        {
            let answer = server.get(path);
            let wanted = if routes { good } else { "404" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{flags:?} {path}: {answer}");
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn it_misbehaves_when_asked() {
    let server = serve(&["--misbehave", "tiny-chunks=4", "--misbehave", "no-keep-alive"]);
    let answer = server.get("/");
    assert!(
        answer.contains("transfer-encoding: chunked") && answer.contains("\r\n\r\n4\r\nHell\r\n"),
        "{answer}"
    );
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn bad_input_is_named() {
    for (arguments, said) in [
        (&["--misbehave", "nagle"][..], "known are nagle-split"),
        (&["--misbehave", "stall"], "stall needs milliseconds"),
        (&["--listen", "8080"], "an address and a port are needed: 127.0.0.1:8080 is for this machine alone"),
        (&["--listen", "localhost:8080"], "write 127.0.0.1:8080 or [::1]:8080"),
        (&["--listen", "127.0.0.1:7", "--listen", "127.0.0.1:7"], "--listen gives 127.0.0.1:7 twice"),
        (&["--listen", "0.0.0.0:7", "--listen", "127.0.0.1:7"], "use both 127.0.0.1:7 and 0.0.0.0:7: one"),
        (&["--listen", "127.0.0.1:7", "--metrics", "127.0.0.1:7"], "use 127.0.0.1:7: --listen already does"),
        (&["--dir", "/no/such/directory"], "the directory /no/such/directory cannot be served"),
        (&["--access-log", "/no/such/directory/log"], "cannot be written"),
        (&["--header-timeout", "0s"], "no time at all"),
        (&["--dir", "/", "--files-only", "--demo-routes"], "say opposite things"),
        (&["--misbehave", "stall=5", "--dir", "/"], "without files, routes of a file and log"),
    ] {
        let output = Command::new(assert_cmd::cargo::cargo_bin!("linerate"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}

/// Two processes at one address: both get connections. If either lacks the flag, the second cannot
/// bind.
#[test]
fn processes_share_a_port_when_both_say_so() {
    for io in serving::transports() {
        let folder = |says: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("who"), says).unwrap();
            folder
        };
        let (one, two) = (folder("one"), folder("two"));
        let flags = ["--io", io, "--threads", "1", "--share-port"];
        let at = |folder: &tempfile::TempDir| folder.path().to_str().unwrap().to_owned();
        let first = serve(&[&flags[..], &["--dir", &at(&one)]].concat());
        let mut second = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        second.args(["serve", "--listen", &first.address]).args(flags).args(["--dir", &at(&two)]);
        let second = started(second);
        assert_eq!(second.address, first.address);
        let mut seen = [0, 0];
        // Each connection goes to either by a hash with a secret: this many going to one alone would
        // be no chance.
        for _ in 0..200 {
            let answer = first.get("/who");
            seen[usize::from(answer.ends_with("two"))] += usize::from(answer.starts_with("HTTP/1.1 200"));
        }
        assert_eq!(seen[0] + seen[1], 200);
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
        for threads in ["1", "2"] {
            let refused = Command::new(assert_cmd::cargo::cargo_bin!("linerate"))
                .args(["serve", "--io", io, "--threads", threads, "--listen", &first.address])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains(&first.address), "{said}");
        }
        // One goes, the other has all.
        assert_eq!(first.stop().0, Some(0));
        for _ in 0..20 {
            assert!(second.get("/who").ends_with("two"));
        }
        assert_eq!(second.stop().0, Some(0));
    }
}

/// The limit holds for routes that read no body as well. A larger Content-Length is refused at
/// once, a chunked body when it exceeds the limit.
#[test]
fn max_body_counts_for_the_demo_routes() {
    let ask = |server: &serving::Server, request: String| {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    for io in serving::transports() {
        let server = serve(&["--io", io, "--max-body", "10"]);
        for path in
            ["/", "/echo", "/upper", "/bytes/5", "/delay/1", "/block/1", "/status/201", "/stream/1", "/stats"]
        {
            for (body, good) in [("0123456789", true), ("0123456789a", false)] {
                let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n");
                let len = body.len();
                for request in [
                    format!("{head}Content-Length: {len}\r\n\r\n{body}"),
                    format!("{head}Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"),
                    format!(
                        "{head}Transfer-Encoding: chunked\r\n\r\n1\r\n0\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                        len - 1,
                        &body[1..]
                    ),
                ] {
                    let response = ask(&server, request);
                    let fine = response.starts_with("HTTP/1.1 20");
                    assert_eq!(fine, good, "{io} {path}: {response}");
                    assert!(fine || response.starts_with("HTTP/1.1 413 "), "{io} {path}: {response}");
                }
            }
        }
        assert_eq!(server.stop().0, Some(0));
    }
}

/// A directory and a port without their flags.
#[test]
fn a_directory_and_a_port_alone_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("page.txt"), "the page").unwrap();
    let dir = dir.path().to_str().unwrap();
    for places in [&[dir, ":0"][..], &[":0", dir], &[dir, "--port", "0"], &["--dir", dir, ":0"]] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
        command.arg("serve").args(places);
        let server = started(command);
        assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
        assert!(server.get("/page.txt").ends_with("\r\n\r\nthe page"), "{places:?}");
        assert!(server.get("/bytes/1").starts_with("HTTP/1.1 404"), "no demo routes beside a directory");
        server.stop();
    }
}
