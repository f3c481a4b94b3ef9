//! The server on every TCP: the kernel's by epoll and io_uring, and our own over a cable to a kernel's client.
#![allow(clippy::unwrap_used)]

mod every_io;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use linerate_serve::{
    AccessLog, Handle, Io, Limits, LogFormat, LogTarget, Notices, Request, Response, ServerOptions, spawn,
};
use linerate_skips::{need, skip, skip_part};

fn with(options: ServerOptions, test: impl Fn(Handle)) {
    every_io::with(options, spawn, test);
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends, says that no more comes, and reads to the end.
fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = connect(to);
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[test]
fn pipelined_answers_come_in_order_whatever_they_wait_for() {
    with(ServerOptions::default(), |server| {
        let requests = get("/delay/60")
            + &get("/status/201")
            + &get("/delay/20")
            + &get("/bytes/100000")
            + &get("/status/202");
        let answers = exchange(server.addr(), &requests);
        let codes: Vec<&str> =
            answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
        assert_eq!(codes, ["200", "201", "200", "200", "202"]);
        let counts = server.stop();
        assert_eq!(counts.requests, 5);
        assert_eq!(counts.by_status.get(&200), Some(&3));
        assert_eq!((counts.accepted, counts.open, counts.waiting), (1, 0, 0));
    });
}

/// Clients that leave in the middle of a response leave nothing to those who come after them: a request in two segments is read.
#[test]
fn clients_that_reset_in_mid_response_stall_nobody() {
    with(ServerOptions::default(), |server| {
        for round in 0..30 {
            let mut leaves =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            // The rest of the response does not fit.
            leaves.set_recv_buffer_size(4096).unwrap();
            leaves.connect(&server.addr().into()).unwrap();
            leaves.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            leaves.set_linger(Some(Duration::ZERO)).unwrap();
            leaves.write_all(get("/bytes/100000").as_bytes()).unwrap();
            if round % 3 > 0 {
                leaves.read_exact(&mut [0; 1000]).unwrap();
            }
            if round % 2 == 0 {
                leaves.set_linger(None).unwrap();
            }
        }
        while server.counts().open > 0 {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            let mut stream = connect(server.addr());
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(b"GET /status/204 HT").unwrap();
            std::thread::sleep(Duration::from_millis(10));
            stream.write_all(b"TP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("the rest of the request is read");
            assert_eq!(&first, b"HTTP/1.1 204");
        }
    });
}

#[test]
fn connections_close_after_so_many_requests() {
    with(ServerOptions { close_after: Some(3), ..ServerOptions::default() }, |server| {
        let answers = exchange(server.addr(), &get("/").repeat(5));
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 3);
        assert_eq!(answers.matches("connection: close").count(), 1);
        assert_eq!(server.stop().requests, 3);
    });
}

#[test]
fn http10_keeps_alive_only_when_asked_and_says_so() {
    with(ServerOptions::default(), |server| {
        let answers = exchange(
            server.addr(),
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        );
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2);
        assert_eq!(answers.matches("connection: keep-alive").count(), 1);
        assert_eq!(answers.matches("connection: close").count(), 1);
    });
}

#[test]
fn large_bodies_go_both_ways() {
    with(ServerOptions::default(), |server| {
        let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut stream = connect(server.addr());
        let mut writer = stream.try_clone().unwrap();
        let sent = body.clone();
        let sending = std::thread::spawn(move || {
            write!(
                writer,
                "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            )
            .unwrap();
            writer.write_all(&sent).unwrap();
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        sending.join().unwrap();
        assert!(answer.ends_with(&body));
        let answer = exchange(server.addr(), &get("/bytes/20000000"));
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 20_000_000);
    });
}

#[test]
fn a_stopped_server_finishes_what_it_has_received() {
    with(ServerOptions::default(), |server| {
        let mut stream = connect(server.addr());
        stream.write_all(get("/delay/300").as_bytes()).unwrap();
        while server.counts().waiting == 0 {
            std::thread::yield_now();
        }
        let counts = server.stop();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!((counts.requests, counts.open), (1, 0));
    });
}

#[test]
fn two_threads_share_a_port() {
    with(ServerOptions { threads: 2, ..ServerOptions::default() }, |server| {
        for _ in 0..20 {
            assert!(exchange(server.addr(), &get("/")).ends_with("Hello, World!\n"));
        }
        assert_eq!(server.stop().requests, 20);
    });
}

#[test]
fn an_address_in_use_is_an_error() {
    with(ServerOptions::default(), |server| {
        let again = spawn(ServerOptions { listen: vec![server.addr().into()], ..ServerOptions::default() });
        assert!(again.is_err());
    });
}

#[test]
fn a_body_that_ends_early_is_told_to_its_handler() {
    with(ServerOptions::default(), |server| {
        let answer = exchange(server.addr(), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("connection: close"), "{answer}");
    });
}

#[test]
fn io_uring_serves_as_epoll_does() {
    let server = match spawn(ServerOptions { io: Io::Uring, ..ServerOptions::default() }) {
        Ok(server) => server,
        Err(error) => return skip(need::IO_URING, error),
    };
    let last = "GET /bytes/3000000 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let post = "POST /upper HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let mut stream = connect(server.addr());
    stream
        .write_all((get("/").repeat(20) + &get("/delay/20") + &get("/stream/3") + post + last).as_bytes())
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 24);
    let order = ["Hello", "waited", "line 3", "HELLO", "octet-stream"].map(|t| answer.find(t).unwrap());
    assert!(order.is_sorted());
    assert_eq!(answer.rsplit("\r\n\r\n").next().unwrap().len(), 3_000_000);
    assert_eq!(server.stop().requests, 24);
}

#[test]
fn a_handler_that_holds_its_loop_is_named_once() {
    let notices = Notices::collecting();
    with(ServerOptions { notices: notices.clone(), ..ServerOptions::default() }, |server| {
        // However the machine is loaded, one of these is seen twice by the watchdog.
        while server.counts().blocked < 2 {
            exchange(server.addr(), &get("/block/30"));
        }
        let said: Vec<String> = notices.collected().iter().map(ToString::to_string).collect();
        assert!((1..=3).contains(&said.len()), "once for each of the servers: {said:?}");
        assert!(said[0].contains("GET /block/30"), "{said:?}");
    });
}

#[test]
fn the_routes_that_wait_on_a_thread_and_that_compute_answer() {
    with(ServerOptions::default(), |server| {
        let of = |path: &str| exchange(server.addr(), &get(path));
        assert!(of("/threads/1").ends_with("\r\n\r\nwaited\n"));
        assert!(of("/compute/1").ends_with("\r\n\r\n3298996588\n"), "{}", of("/compute/1"));
        assert!(of("/compute/0").ends_with("\r\n\r\n2463534242\n"));
        for path in ["/compute/100001", "/threads/3600001", "/threads", "/compute/x"] {
            assert!(of(path).starts_with("HTTP/1.1 404 "), "{path}");
        }
        assert_eq!(server.counts().blocked, 0);
    });
}

#[test]
fn every_answer_has_its_line_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log =
        AccessLog::open(LogTarget::File(path.clone()), LogFormat::Common, Notices::collecting()).unwrap();
    let servers = std::cell::Cell::new(0);
    with(ServerOptions { access_log: Some(log.clone()), ..ServerOptions::default() }, |server| {
        exchange(server.addr(), &(get("/") + &get("/delay/5") + &get("/none")));
        exchange(server.addr(), "nonsense\r\n\r\n");
        server.stop();
        servers.set(servers.get() + 1);
        let all = |text: &str| text.lines().count() == 4 * servers.get();
        let mut text = String::new();
        while !all(&text) {
            text = std::fs::read_to_string(&path).unwrap();
        }
        for line in [
            "\"GET / HTTP/1.1\" 200 14",
            "/delay/5 HTTP/1.1\" 200 7",
            "/none HTTP/1.1\" 404 14",
            "\"nonsense\" 400 ",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    });
    assert_eq!(log.dropped(), 0);
}

/// What left, not what was meant to; and what came, when it was no request.
#[test]
fn the_log_says_what_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = AccessLog::open(LogTarget::File(path.clone()), LogFormat::Json, Notices::collecting()).unwrap();
    with(ServerOptions { access_log: Some(log.clone()), ..ServerOptions::default() }, |server| {
        for size in ["5368709120", "100000"] {
            let mut leaves = connect(server.addr());
            leaves.write_all(get(&format!("/bytes/{size}")).as_bytes()).unwrap();
            leaves.read_exact(&mut [0; 1000]).unwrap();
            let socket = socket2::SockRef::from(&leaves);
            socket.set_linger((size == "5368709120").then_some(Duration::ZERO)).unwrap();
        }
        exchange(
            server.addr(),
            &(get("/status/204") + &get("/stream/1000") + &get("/delay/50") + &get("/bytes/70000")),
        );
        exchange(server.addr(), "GET /a\u{85}b HTTP/1.1\r\nHost: h\r\n\r\n");
        let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n";
        exchange(server.addr(), head);
        server.stop();
        log.flush(Duration::from_secs(10));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let line = |target: &str| {
            let of = lines.iter().find(|l| l["target"] == target);
            of.unwrap_or_else(|| panic!("{target} in {text}")).clone()
        };
        assert!(line("/bytes/5368709120")["bytes"].as_u64().unwrap() < 500_000_000, "{text}");
        assert!(line("/bytes/100000")["bytes"].as_u64().unwrap() <= 100_000, "{text}");
        assert_eq!(line("/status/204")["bytes"], 0);
        // A thousand chunks, each with its size in front, and the last.
        assert!(line("/stream/1000")["bytes"].as_u64().unwrap() > 9_000, "{text}");
        assert!(line("/delay/50")["duration_us"].as_u64().unwrap() >= 50_000, "{text}");
        assert_eq!(line("/bytes/70000")["bytes"], 70_000);
        // One turn reads the request and sends the response.
        assert!(line("/bytes/70000")["duration_us"].as_u64().unwrap() > 0, "{text}");
        let refused = lines.iter().find(|l| l["status"] == 400).unwrap();
        assert_eq!(refused["request"], "GET /a\u{85}b HTTP/1.1");
        assert!(text.contains("/a\\u0085b"), "{text}");
        assert_eq!(line("/")["status"], 413);
    });
}

/// The peer sends its FIN behind its requests and waits for the answers: those that wait in a handler come as well.
#[test]
fn a_peer_that_has_said_all_gets_all_its_answers() {
    with(ServerOptions::default(), |server| {
        for path in ["/", "/delay/60", "/bytes/3000000", "/stream/1000"] {
            let answers = exchange(server.addr(), &(get(path) + &get("/delay/20") + &get(path)));
            assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{path}");
            assert!(!answers.contains("connection: close"), "it was not asked to be closed");
        }
        while server.counts().open > 0 {
            std::thread::yield_now();
        }
    });
}

/// As long as something comes, however long it takes.
#[test]
fn a_peer_that_has_said_all_is_not_cut_while_its_answer_goes_on() {
    let handler = |_: Request| async {
        let (sender, ticks) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..25 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = sender.send(Bytes::from_static(b"tick")).await;
            }
        });
        Response::status(200).with_stream(ticks)
    };
    let limits = Limits { idle_time: Duration::from_secs(2), ..Limits::default() };
    for io in [Io::Epoll, Io::Uring] {
        let options = ServerOptions { io, limits, ..ServerOptions::default() };
        let server = match linerate_serve::spawn_with(options, move || handler) {
            Ok(server) => server,
            Err(error) => return skip_part("over uring", need::IO_URING, error),
        };
        let answer = exchange(server.addr(), &get("/"));
        assert_eq!(answer.matches("tick").count(), 25, "{answer}");
        assert!(answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    }
}

#[test]
fn a_handler_that_panics_is_answered_with_500() {
    for io in [Io::Epoll, Io::Uring] {
        let handler = |request: linerate_serve::Request| async move {
            match request.path() {
                "/now" => panic!("as the test wants"),
                "/later" => {
                    linerate_serve::sleep(Duration::from_millis(5)).await;
                    panic!("as the test wants, later")
                }
                _ => linerate_serve::Response::text("fine\n"),
            }
        };
        let options = ServerOptions { io, ..ServerOptions::default() };
        let server = match linerate_serve::spawn_with(options, move || handler) {
            Ok(server) => server,
            Err(error) => return skip_part("over uring", need::IO_URING, error),
        };
        let mut beside = connect(server.addr());
        for path in ["/now", "/later"] {
            let answers = exchange(server.addr(), &(get("/") + &get(path) + &get("/")));
            assert!(answers.starts_with("HTTP/1.1 200") && answers.contains("HTTP/1.1 500"), "{answers}");
            assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "the connection ends behind it");
        }
        beside.write_all(get("/").as_bytes()).unwrap();
        beside.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        beside.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("fine\n"), "who was connected already notices nothing: {answer}");
        assert_eq!(server.stop().panics, 2);
    }
}

/// What there was of it arrives, and then the client can tell that this is not all; also when nothing has left before it fails.
#[test]
fn a_stream_that_fails_at_once_is_sent_as_far_as_it_came() {
    for io in [Io::Epoll, Io::Uring] {
        let handler = |_: Request| async {
            let (sender, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(2);
            sender.try_send(Ok(Bytes::from_static(b"some"))).unwrap();
            sender.try_send(Err(std::io::Error::other("as the test wants"))).unwrap();
            Response::status(200).with_stream(pieces)
        };
        let options = ServerOptions { io, ..ServerOptions::default() };
        let server = match linerate_serve::spawn_with(options, move || handler) {
            Ok(server) => server,
            Err(error) => return skip_part("over uring", need::IO_URING, error),
        };
        for (request, framed) in [(get("/"), true), ("GET / HTTP/1.0\r\n\r\n".to_owned(), false)] {
            let mut stream = connect(server.addr());
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let end = stream.read_to_end(&mut answer).map_err(|e| e.kind());
            let answer = String::from_utf8(answer).unwrap();
            let (last, expected) = if framed {
                ("\r\n\r\n4\r\nsome\r\n", Ok(answer.len()))
            } else {
                ("\r\n\r\nsome", Err(std::io::ErrorKind::ConnectionReset))
            };
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(last), "{io:?}: {answer}");
            assert_eq!(end, expected, "{io:?}");
        }
    }
}
