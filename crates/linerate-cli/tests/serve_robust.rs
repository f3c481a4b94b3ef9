//! Faults around a server: it stays up, reports each fault once, and recovers.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use linerate_skips::{need, skip};

use common::until;
use serving::{Server, connect, get, serve, started, transports};

/// A server under a shell's `ulimit`, to be started.
fn under(ulimit: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let program = assert_cmd::cargo::cargo_bin!("linerate");
    command.args(["-c", &format!("ulimit {ulimit}; exec \"$0\" \"$@\"")]).arg(program);
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
    command
}

fn limited(ulimit: &str, arguments: &[&str]) -> Server {
    started(under(ulimit, arguments))
}

/// Whatever the limit, a server accepts connections or ends and says why.
#[test]
fn too_few_descriptors_are_named_at_the_start() {
    for io in transports() {
        let (mut refused, mut served) = (0, 0);
        for limit in 8..=24 {
            let mut command = under(&format!("-n {limit}"), &["--io", io, "--threads", "1"]);
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap());
            let mut said = String::new();
            lines.read_line(&mut said).unwrap();
            if let Some(at) = said.trim().strip_prefix("listening on http://") {
                assert!(get(at, "/").ends_with("Hello, World!\n"), "{io}: {limit}");
                served += 1;
                child.kill().unwrap();
            } else {
                lines.read_to_string(&mut said).unwrap();
                assert!(said.contains("open files"), "{io}: {limit}: {said}");
                let named = said.contains(&format!("the limit of {limit} open files"));
                refused += usize::from(named && child.wait().unwrap().code() == Some(2));
            }
            child.wait().unwrap();
        }
        assert!(served > 0 && (io != "epoll" || refused > 0), "{io}: {served} {refused}");
    }
}

#[test]
fn descriptors_used_up() {
    for io in transports() {
        let server = limited("-n 64", &["--io", io, "--threads", "2"]);
        let mut held: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
        for stream in &mut held {
            // Most of them wait in the accept queue with their request.
            stream.write_all(b"GET /status/204 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        }
        let said = server.line();
        assert!(said.contains("no connection can be accepted") && said.contains("ulimit -n"), "{io}: {said}");
        // Those that are open are served, and idle ones make room for the others, to the last.
        for (i, stream) in held.iter_mut().enumerate() {
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap_or_else(|e| panic!("{io}: connection {i}: {e}"));
            assert_eq!(&first, b"HTTP/1.1 204");
        }
        drop(held);
        let said = server.line();
        assert!(said.contains("can be accepted again"), "{io}: it says it once, and when it is over: {said}");
        assert!(server.get("/").ends_with("Hello, World!\n"));
        let (code, said) = server.stop();
        assert_eq!((code, said.lines().count()), (Some(0), 1), "{io}: {said}");
    }
}

/// Connections take no descriptor of those that files need.
#[test]
fn files_open_while_connections_use_up_the_descriptors() {
    const ASKING: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    // Larger than what is read at once, so that each download keeps its file open.
    std::fs::write(folder.path().join("large"), vec![b'x'; 4 << 20]).unwrap();
    for io in transports() {
        let dir = folder.path().to_str().unwrap();
        let server = limited("-n 128", &["--io", io, "--threads", "2", "--dir", dir]);
        let mut asking: Vec<TcpStream> = (0..ASKING).map(|_| server.connect()).collect();
        // Only those that never asked stay: idle ones would make room.
        let held: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
        let said = server.line();
        assert!(said.contains("no connection can be accepted"), "{io}: {said}");
        for stream in &mut asking {
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        }
        for (i, stream) in asking.iter_mut().enumerate() {
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200", "{io}: download {i}");
        }
        drop((asking, held));
        let said = server.line();
        assert!(said.contains("can be accepted again"), "{io}: {said}");
        assert!(server.get("/large").starts_with("HTTP/1.1 200"));
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_disk_that_is_full_and_has_room_again() {
    // A file system of 64 KiB in a mount namespace of the server's own.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=65536 none \"$1\" && exec \"$0\" serve --listen 127.0.0.1:0 \
                  --access-log \"$1/log\" --log-format common --threads 1";
    command
        .args(["-m", "sh", "-c", script])
        .arg(assert_cmd::cargo::cargo_bin!("linerate"))
        .arg(folder.path());
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|s| s.success()) {
        return skip(need::ROOT, "a mount namespace takes root");
    }
    let server = started(command);
    let inside = format!("/proc/{}/root{}", server.pid(), folder.path().display());
    let filler = format!("{inside}/filler");
    std::fs::write(&filler, vec![0; 60 << 10]).unwrap();
    // More lines than fit: about 70 bytes each.
    for _ in 0..3 {
        let answers = server.get(&"/ HTTP/1.1\r\nHost: h\r\n\r\nGET /".repeat(100)[..]);
        assert!(answers.contains("Hello, World!"), "requests are answered all the same");
    }
    let said = server.line();
    assert!(said.contains("the access log can't be written (No space left"), "{said}");
    assert!(server.get("/").ends_with("Hello, World!\n"));
    std::fs::remove_file(&filler).unwrap();
    until("a line in the log", || {
        server.get("/status/234");
        std::fs::read_to_string(format!("{inside}/log")).unwrap().contains("/status/234")
    });
    let (code, said) = server.stop();
    assert_eq!((code, said.lines().count()), (Some(0), 2), "once each: {said}");
    assert!(said.contains("can be written again"), "{said}");
}

#[test]
fn a_file_that_shrinks_while_it_is_sent() {
    for io in transports() {
        let folder = tempfile::tempdir().unwrap();
        let (path, size) = (folder.path().join("large"), 64 << 20);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        let server = serve(&["--io", io, "--dir", folder.path().to_str().unwrap()]);
        let mut stream = server.connect();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut buffer = vec![0; 64 << 10];
        let head = stream.read(&mut buffer).unwrap();
        assert!(String::from_utf8_lossy(&buffer[..head]).contains("content-length: 67108864\r\n"));
        file.set_len(1 << 20).unwrap();
        // Cut, so that no client takes the part for the whole; never padded.
        let mut got = head as u64;
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            got += n as u64;
        }
        assert!(got < size, "{io}: {got}");
        let whole = server.get("/large");
        assert_eq!(whole.split_once("\r\n\r\n").unwrap().1.len(), 1 << 20);
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn peers_that_reset_in_mid_answer() {
    for io in transports() {
        let server = serve(&["--io", io]);
        for path in ["/bytes/50000000", "/stream/1000000", "/delay/200", "/bytes/100000"] {
            for _ in 0..5 {
                let mut stream = server.connect();
                write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
                if path != "/delay/200" {
                    stream.read_exact(&mut [0; 20]).unwrap();
                }
                // With bytes unread, or the response outstanding, the peer's kernel sends a reset.
            }
        }
        until("the end of those connections", || server.get("/stats").contains("\"open\":1,"));
        assert!(server.get("/stats").contains("\"waiting\":0"));
        let (code, said) = server.stop();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("answered ") && said.lines().count() == 1, "{io}: nothing to say: {said}");
    }
}

/// Pipelined load while SIGTERM comes: each request that the server has read is answered, whole and
/// in order; the client's count is the server's.
#[test]
fn a_drain_loses_nothing_under_pipelined_load() {
    for io in transports() {
        let server = serve(&["--io", io, "--threads", "2"]);
        let address = server.address.clone();
        let answered: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..16)
                .map(|i| {
                    scope.spawn({
                        let a = address.clone();
                        move || pipeline(&a, i)
                    })
                })
                .collect();
            while server
                .get("/stats")
                .split("\"requests\":")
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
                < 20_000
            {}
            server.signal("-TERM");
            let clients: Vec<(usize, bool)> = clients.into_iter().map(|c| c.join().unwrap()).collect();
            // One that gets no CPU for 100 ms is quiet, and closed as idle connections are.
            assert!(clients.iter().any(|(_, closed)| *closed), "some are told to close");
            clients.iter().map(|(whole, _)| whole).sum()
        });
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{said}");
        // On a busy machine it may say before that a thread got no CPU.
        let counts = said.lines().find_map(|line| line.strip_prefix("answered ")).expect("its counts");
        let count: usize = counts.split(' ').next().unwrap().parse().unwrap();
        let (stats, more) = (count - answered, said.contains("still open"));
        // Counts beyond the clients' are the requests for /stats.
        assert!(stats > 0 && stats < 20_000 && !more, "{io}: {said}, clients got {answered}");
        println!("{io}: {answered} of {count}");
    }
}

/// Sends without end and reads until the server ends the connection. Returns the number of complete
/// responses, and whether the last of them announced the close. Panics at a truncated response.
fn pipeline(address: &str, number: usize) -> (usize, bool) {
    let mut stream = connect(address);
    let mut writer = stream.try_clone().unwrap();
    // Some handlers wait, so that responses are outstanding when the end comes.
    let path = if number.is_multiple_of(4) { "/delay/2" } else { "/bytes/100" };
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(32);
    let writing = std::thread::spawn(move || while writer.write_all(request.as_bytes()).is_ok() {});
    let mut bytes = Vec::new();
    // A reset behind the last response would be an error here.
    stream.read_to_end(&mut bytes).unwrap_or_else(|e| panic!("connection {number}: {e}"));
    stream.shutdown(std::net::Shutdown::Both).ok();
    writing.join().unwrap();
    let (mut rest, mut whole, mut closed) = (&bytes[..], 0, false);
    while let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") {
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        closed = head.contains("connection: close");
        let length: usize = head
            .split("content-length: ")
            .nth(1)
            .and_then(|t| t.split('\r').next())
            .unwrap()
            .parse()
            .unwrap();
        rest = rest
            .get(end + 4 + length..)
            .unwrap_or_else(|| panic!("connection {number} was cut in mid-answer"));
        whole += 1;
    }
    assert!(rest.is_empty(), "connection {number}: {} bytes too many", rest.len());
    (whole, closed)
}

/// `timeout` signals its child, and then the group that both are in.
#[test]
fn an_end_that_is_told_twice_is_one() {
    let server = serve(&[]);
    let mut stream = server.connect();
    stream.write_all(b"GET /delay/600 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    until("a handler that waits", || server.get("/stats").contains("\"waiting\":1"));
    // Both are there when the process continues.
    for name in ["-STOP", "-TERM", "-INT", "-CONT"] {
        server.signal(name);
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("waited\n"), "{answer:?}");
    assert_eq!(server.end().0, Some(0));
}

/// The second signal ends it at once.
#[test]
fn a_second_signal_does_not_wait() {
    let mut server = serve(&["--drain", "10m"]);
    let mut stream = server.connect();
    stream.write_all(b"GET /delay/600000 HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    until("a handler that waits", || server.get("/stats").contains("\"waiting\":1"));
    server.signal("-TERM");
    until("the end of its listening", || TcpStream::connect(&server.address).is_err());
    // One that comes as soon as that is taken for the first.
    until("its end", || {
        server.signal("-TERM");
        server.ended()
    });
    assert_eq!(server.end().0, Some(130));
}
