//! Handlers of this crate's own interface that take a connection: CONNECT (RFC 9110 section 9.3.6) and Upgrade (section 7.8).
#![allow(clippy::unwrap_used)]

mod every_io;
mod mem_client;

use std::cell::Cell;
use std::future::pending;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use linerate_net::mem::{Cut, MemOptions};
use linerate_serve::{
    Handle, Io, Limits, Request, Response, ServerOptions, Tunnel, Upgrade, sleep, spawn, spawn_with, testing,
};
use linerate_skips::{need, skip, skip_part};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};

use every_io::with;
use mem_client::{Client, at, get, run, server};

const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: &str = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
const UPGRADE: &str = "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: one, two/2\r\n\r\n";
const WEBSOCKET: &str = "GET /idle HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n";

/// Echoes everything in capitals, until the client has ended.
async fn echo(mut tunnel: Tunnel) {
    let mut buffer = [0; 1500];
    while let Ok(n @ 1..) = tunnel.read(&mut buffer).await {
        buffer.make_ascii_uppercase();
        if tunnel.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn taken(upgrade: Upgrade, path: String) -> Response {
    match path.as_str() {
        "/push" => {
            upgrade.accept(async |mut tunnel| while tunnel.write_all(&[b'x'; 10_000]).await.is_ok() {})
        }
        "/idle" => upgrade.accept(async |tunnel| {
            pending::<()>().await;
            drop(tunnel);
        }),
        "/bye" => upgrade.accept(async |mut tunnel| {
            tunnel.draining().begun().await;
            tunnel.write_all(b"bye").await.unwrap();
        }),
        "/panic" => upgrade.accept(async |mut tunnel| {
            tunnel.write_all(b"before").await.unwrap();
            sleep(Duration::from_millis(1)).await;
            panic!("as the test wants");
        }),
        _ => upgrade.accept(echo),
    }
}

async fn app(mut request: Request) -> Response {
    if request.head().target().ends_with(":25") {
        return Response::text("not to there\n").with_status(403);
    }
    let path = request.path().to_owned();
    match (path.as_str(), request.upgrade()) {
        ("/late", Some(upgrade)) => {
            sleep(Duration::from_millis(50)).await;
            taken(upgrade, path).await
        }
        ("/refused", Some(_)) => Response::text("not here\n").with_status(403),
        ("/mistaken", Some(upgrade)) => upgrade.accept(echo).with_body("and a body"),
        (_, Some(upgrade)) => taken(upgrade, path).await,
        _ => Response::text("hello\n"),
    }
}

fn play(options: MemOptions, client: Client, ms: u64) -> mem_client::Seen {
    let mut server = server(options, app, Limits::default());
    server.transport().dial(at(), client.clone());
    run(&mut server, ms);
    client.seen()
}

/// Bytes after the head belong to the tunnel, in the same segment or later, wherever they are cut.
#[test]
fn bytes_behind_the_head_go_through_the_tunnel() {
    for (head, answer) in [
        (CONNECT, "HTTP/1.1 200 OK\r\n"),
        (UPGRADE, "HTTP/1.1 101 Switching Protocols\r\n"),
        (&UPGRADE.replace("/echo", "/late"), "HTTP/1.1 101 Switching Protocols\r\n"),
    ] {
        for cut in [Cut::Whole, Cut::Every(1), Cut::Random(7)] {
            let options = MemOptions { cut, ..MemOptions::default() };
            let client = Client::saying(get("/") + head + "hello").then(100, " again").fin();
            let mut server = server(options, app, Limits::default());
            server.transport().dial(at(), client.clone());
            run(&mut server, 300);
            let seen = client.seen();
            assert_eq!(server.open(), 0);
            let (first, second) = seen.text.split_once("hello\n").unwrap();
            assert!(first.starts_with("HTTP/1.1 200 "), "{seen:?}");
            let (head, said) = second.split_once("\r\n\r\n").unwrap();
            assert!(second.starts_with(answer), "{seen:?}");
            assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
            let upgrades = head.contains("\r\nconnection: upgrade") && head.contains("\r\nupgrade: one\r\n");
            assert_eq!(upgrades || head.ends_with("upgrade: one"), answer.contains("101"), "{head}");
            assert_eq!(said, "HELLO AGAIN", "{cut:?}");
            assert!(!seen.reset, "{seen:?}");
        }
    }
}

/// A refused CONNECT ends its connection, because later bytes may not be HTTP. After any other
/// request, requests follow.
#[test]
fn a_refusal_is_an_ordinary_response() {
    let seen =
        play(MemOptions::default(), Client::saying(CONNECT.replace(":443", ":25") + "\x16\x03\x01"), 100);
    assert_eq!(seen.codes(), ["403"]);
    assert!(seen.text.contains("connection: close") && seen.text.ends_with("not to there\n"), "{seen:?}");
    assert!(seen.ended);
    let refused = UPGRADE.replace("/echo", "/refused");
    let seen = play(MemOptions::default(), Client::saying(refused + &get("/")), 100);
    assert_eq!(seen.codes(), ["403", "200"]);
    // A body is not a tunnel, whichever handler sets it.
    let mistaken = UPGRADE.replace("/echo", "/mistaken");
    let seen = play(MemOptions::default(), Client::saying(mistaken + &get("/")), 100);
    assert_eq!(seen.codes(), ["500", "200"]);
    // These ask for nothing that could be taken (RFC 9110 section 7.8, RFC 9113 section 3.1).
    for odd in [
        "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: one\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: one\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: ,\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: one\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let seen = play(MemOptions::default(), Client::saying(odd), 100);
        assert_eq!(seen.codes(), ["200"], "{odd}");
        assert!(seen.text.ends_with("\r\n\r\nhello\n"), "{seen:?}");
    }
}

/// Neither end can fill the memory: nothing is written to an end that does not read.
#[test]
fn both_directions_are_bounded() {
    let options = MemOptions { window: 10_000, ..MemOptions::default() };
    let slow = |path: &str| Client {
        reads_every: Some(Duration::from_millis(10)),
        ..Client::saying(UPGRADE.replace("/echo", path))
    };
    let client = slow("/push");
    let mut server_ = server(options, app, Limits::default());
    server_.transport().dial(at(), client.clone());
    run(&mut server_, 1000);
    let (got, sent) = (client.seen().text.len() as u64, server_.counts().bytes_out);
    assert!(got > 100_000 && sent - got < 600_000, "{got} of {sent}");
    // A handler that reads nothing, and a client that says a lot.
    let client = Client::saying(UPGRADE.replace("/echo", "/idle") + &"y".repeat(2_000_000));
    let mut server_ = server(options, app, Limits::default());
    server_.transport().dial(at(), client);
    run(&mut server_, 1000);
    assert!(server_.counts().bytes_in < 300_000, "{}", server_.counts().bytes_in);
}

#[test]
fn a_client_that_takes_nothing_is_cut_and_one_that_is_silent_is_not() {
    let limits = Limits { write_time: Duration::from_secs(1), ..Limits::default() };
    let mut server = server(MemOptions { window: 1000, ..MemOptions::default() }, app, limits);
    let stuck = Client {
        reads_every: Some(Duration::from_secs(1000)),
        ..Client::saying(UPGRADE.replace("/echo", "/push"))
    };
    server.transport().dial(at(), stuck.clone());
    server.transport().dial(at(), Client::saying(CONNECT));
    run(&mut server, 5_000);
    assert!(stuck.seen().reset && server.open() == 1, "{:?}", stuck.seen());
    run(&mut server, 3_600_000);
    assert_eq!(server.open(), 1);
}

#[test]
fn a_handler_that_panics_in_a_tunnel_cuts_it_and_hurts_nobody() {
    let mut server = server(MemOptions::default(), app, Limits::default());
    let (bad, good) =
        (Client::saying(UPGRADE.replace("/echo", "/panic")), Client::saying(CONNECT.to_owned() + "a"));
    server.transport().dial(at(), bad.clone());
    server.transport().dial(at(), good.clone());
    run(&mut server, 100);
    assert!(bad.seen().text.ends_with("before") && bad.seen().reset, "{:?}", bad.seen());
    assert!(good.seen().text.ends_with("\r\n\r\nA") && server.open() == 1);
}

/// Code that serves a lost client learns of it: its reads end, and its writes fail.
#[test]
fn a_lost_connection_ends_its_tunnel_wherever_that_is() {
    let kept = Rc::new(Cell::new(None));
    let keeps = Rc::clone(&kept);
    let handler = move |mut request: Request| {
        let keeps = Rc::clone(&keeps);
        async move {
            let upgrade = request.upgrade().unwrap();
            upgrade.accept(async move |tunnel| keeps.set(Some(tunnel)))
        }
    };
    let mut server = server(MemOptions::default(), handler, Limits::default());
    server
        .transport()
        .dial(at(), Client { resets: true, ..Client::saying(CONNECT.to_owned() + "last words") });
    run(&mut server, 100);
    assert_eq!(server.open(), 0);
    let mut tunnel = kept.take().unwrap();
    let (read, written) = testing::block_on(async {
        let mut all = Vec::new();
        tunnel.read_to_end(&mut all).await.unwrap();
        (all, tunnel.write(b"x").await.unwrap_err().kind())
    });
    assert_eq!((read.as_slice(), written), (&b"last words"[..], std::io::ErrorKind::BrokenPipe));
}

#[test]
fn a_drain_is_told_and_cuts_at_its_end() {
    let mut server = server(MemOptions::default(), app, Limits::default());
    let told = Client::saying(UPGRADE.replace("/echo", "/bye"));
    let talks = Client::saying(CONNECT).then(1_000, "still");
    let websocket = Client::saying(WEBSOCKET);
    for client in [&told, &talks, &websocket] {
        server.transport().dial(at(), client.clone());
    }
    run(&mut server, 100);
    assert!(!told.seen().text.ends_with("bye"));
    server.drain();
    run(&mut server, 2_000);
    assert!(told.seen().text.ends_with("\r\n\r\nbye") && told.seen().ended, "{:?}", told.seen());
    assert!(talks.seen().text.ends_with("\r\n\r\nSTILL") && !talks.seen().ended, "{:?}", talks.seen());
    // 1001, going away (RFC 6455 section 7.4.1), as text.
    let goodbye = String::from_utf8_lossy(&[0x88, 2, 0x03, 0xe9]).into_owned();
    assert!(websocket.seen().text.ends_with(&goodbye), "{:?}", websocket.seen());
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read_all(mut stream: TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn tunnels_over_every_tcp() {
    let drain = Duration::from_millis(500);
    let options = ServerOptions { drain, ..ServerOptions::default() };
    with(
        options,
        |options| spawn_with(options, || app),
        |server| {
            let mut large = connect(server.addr());
            let all = "a word or two, ".repeat(100_000);
            std::thread::scope(|scope| {
                let mut writer = large.try_clone().unwrap();
                let all = &all;
                scope.spawn(move || {
                    writer.write_all((CONNECT.to_owned() + all).as_bytes()).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut said = Vec::new();
                large.read_to_end(&mut said).unwrap();
                let said = String::from_utf8(said).unwrap();
                let (head, said) = said.split_once("\r\n\r\n").unwrap();
                assert!(head.starts_with("HTTP/1.1 200 ") && said == all.to_uppercase());
            });
            let mut refused = connect(server.addr());
            refused.write_all(CONNECT.replace(":443", ":25").as_bytes()).unwrap();
            assert!(read_all(refused).starts_with("HTTP/1.1 403 "));
            let mut told = connect(server.addr());
            told.write_all(UPGRADE.replace("/echo", "/bye").as_bytes()).unwrap();
            assert!(told.read(&mut [0; 4]).is_ok());
            let mut silent = connect(server.addr());
            silent.write_all(CONNECT.as_bytes()).unwrap();
            assert!(silent.read(&mut [0; 4]).is_ok());
            // The one that does not end by itself is cut.
            assert_eq!(server.stop().open, 1);
            assert!(read_all(told).ends_with("\r\n\r\nbye"));
        },
    );
}

/// A small proxy: to where CONNECT says, if it listens on this machine.
async fn proxy(mut request: Request) -> Response {
    let target = request.head().target().to_owned();
    let Some(upgrade) = request.upgrade() else { return Response::status(405) };
    if !target.starts_with("127.0.0.1:") {
        return Response::text("not to there\n").with_status(403);
    }
    match tokio::net::TcpStream::connect(target).await {
        Ok(mut origin) => upgrade.accept(async move |mut tunnel| {
            let _ = copy_bidirectional(&mut tunnel, &mut origin).await;
        }),
        Err(_) => Response::status(502),
    }
}

fn curl(proxy: &Handle, arguments: &[&str]) -> (bool, String) {
    let out = Command::new("curl")
        .args(["-sS", "-v", "--max-time", "30", "-p", "-x", &format!("http://{}", proxy.addr())])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    (out.status.success(), said)
}

#[test]
fn curl_goes_through_a_proxy_of_a_few_lines() {
    if Command::new("curl").arg("-V").output().is_err() {
        return skip("curl", "curl is not installed");
    }
    let origin = spawn(ServerOptions::default()).unwrap();
    for io in [Io::Epoll, Io::Uring] {
        let server = match spawn_with(ServerOptions { io, ..ServerOptions::default() }, || proxy) {
            Ok(server) => server,
            Err(error) if io == Io::Uring => return skip_part("over uring", need::IO_URING, error),
            Err(error) => panic!("{error}"),
        };
        let (small, large) =
            (format!("http://{}/", origin.addr()), format!("http://{}/bytes/3000000", origin.addr()));
        // Both requests through one tunnel.
        let (good, said) = curl(
            &server,
            &[
                "-w",
                "%{http_connect} %{size_download}\n",
                "-o",
                "/dev/null",
                &large,
                "-o",
                "/dev/null",
                &small,
            ],
        );
        assert!(good && said.contains("200 3000000\n"), "{said}");
        assert_eq!(said.matches("CONNECT 127.0.0.1").count(), 1, "{said}");
        let (good, said) = curl(&server, &["http://127.0.0.2/"]);
        assert!(!good && said.contains("CONNECT tunnel failed, response 403"), "{said}");
        // No server listens there.
        let (good, said) = curl(&server, &["http://127.0.0.1:9/"]);
        assert!(!good && said.contains("response 502"), "{said}");
        server.stop();
    }
}

#[test]
fn a_tunnel_in_a_test_without_a_server() {
    let request = Request::builder("CONNECT", "h:443").tunnelled(["one ", "two"]).build().unwrap();
    let mut response = testing::call(&app, request);
    assert_eq!((response.code(), response.field("upgrade")), (200, None));
    assert_eq!(testing::body(&mut response).unwrap(), "ONE TWO");
    let offers =
        || Request::builder("GET", "/").field("Connection", "upgrade").field("Upgrade", "one, two/2");
    let mut chosen = offers().build().unwrap().upgrade().unwrap();
    assert_eq!(chosen.protocols().collect::<Vec<_>>(), ["one", "two/2"]);
    assert!(!chosen.choose("three") && chosen.choose("TWO/2"));
    let response = chosen.accept(echo);
    assert_eq!((response.code(), response.field("upgrade")), (101, Some("two/2")));
    assert!(Request::builder("GET", "/").build().unwrap().upgrade().is_none());
    let mut twice = offers().build().unwrap();
    assert!(twice.upgrade().is_some() && twice.upgrade().is_none());
    // A status that takes no connection takes none.
    let response = offers().build().unwrap().upgrade().unwrap().accept(echo).with_status(404);
    assert_eq!((response.code(), testing::body(&mut { response }).unwrap().len()), (404, 0));
}
