//! WebSocket: an axum handler, unchanged, whose connection is handed over; a real client.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::pin;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocketUpgrade};
use axum::routing::{any, get};
use axum::{Extension, Router};
use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use linerate_serve::{Draining, Handle, Io, Limits, ServerOptions, spawn_with, tower};
use linerate_skips::{need, skip_part};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message as ClientMessage;

const PATIENCE: Duration = Duration::from_secs(30);

fn router() -> Router {
    let echo = |ws: WebSocketUpgrade| async move {
        ws.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                let echoed = matches!(message, Message::Text(_) | Message::Binary(_));
                if matches!(message, Message::Close(_)) || echoed && socket.send(message).await.is_err() {
                    return;
                }
            }
        })
    };
    Router::new().route("/echo", any(echo)).route("/", get(|| async { "hello\n" })).route(
        "/slow",
        get(|| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            "slow\n"
        }),
    )
}

/// Runs a test on a server of each kind that this machine has.
fn with(options: &ServerOptions, test: impl Fn(Handle)) {
    with_app(&router(), options, test);
}

fn with_app(app: &Router, options: &ServerOptions, test: impl Fn(Handle)) {
    for io in [Io::Epoll, Io::Uring] {
        let app = app.clone();
        // Each server has an end of its own.
        let options = ServerOptions { draining: Draining::default(), ..options.clone() };
        match spawn_with(ServerOptions { io, ..options }, move || tower(app.clone())) {
            Ok(server) => test(server),
            Err(error) if io == Io::Uring => skip_part("over uring", need::IO_URING, error),
            Err(error) => panic!("{error}"),
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn connect(server: &Handle) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A masked text frame, as clients send it (RFC 6455 section 5.2).
fn frame(text: &str) -> Vec<u8> {
    let mask = [1u8, 2, 3, 4];
    let mut frame = vec![0x81, 0x80 | text.len() as u8];
    frame.extend(mask);
    frame.extend(text.bytes().zip(mask.iter().cycle()).map(|(b, m)| b ^ m));
    frame
}

#[test]
fn messages_small_and_large_come_back_in_order() {
    with(&ServerOptions::default(), |server| {
        runtime().block_on(async {
            let url = format!("ws://{}/echo", server.addr());
            let (mut socket, answer) = connect_async(url).await.unwrap();
            assert_eq!(answer.status(), 101);
            for size in [0, 1, 125, 126, 70_000, 3_000_000] {
                let message = ClientMessage::binary(vec![7u8; size]);
                socket.send(message.clone()).await.unwrap();
                let back = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
                assert_eq!(back, message, "{size}");
            }
            // Many at once, none of them read meanwhile: the limits on what waits hold the server back, not up.
            let (mut sending, mut receiving) = socket.split();
            let all = tokio::spawn(async move {
                for i in 0..2000 {
                    sending.send(ClientMessage::text(format!("{i:01000}"))).await.unwrap();
                }
                sending.send(ClientMessage::Close(None)).await.unwrap();
                sending
            });
            for i in 0..2000 {
                let back = tokio::time::timeout(PATIENCE, receiving.next()).await.unwrap().unwrap().unwrap();
                assert_eq!(back.into_text().unwrap().as_str(), format!("{i:01000}"));
            }
            drop(all.await.unwrap());
        });
        let counts = server.stop();
        assert_eq!((counts.requests, counts.by_status.get(&101), counts.open), (1, Some(&1), 0));
    });
}

/// A proxy's handler: the bytes after its 200 are its own (RFC 9110 section 9.3.6). A handler that
/// takes no tunnel cannot promise one.
#[test]
fn handlers_accept_connect() {
    let proxy = Router::new().fallback(|mut request: axum::extract::Request| async move {
        if request.uri().authority().is_none_or(|target| target.port_u16() != Some(443)) {
            return axum::http::StatusCode::FORBIDDEN;
        }
        let taken = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(taken.await.unwrap());
            let mut said = [0; 5];
            tokio::io::AsyncReadExt::read_exact(&mut io, &mut said).await.unwrap();
            said.make_ascii_uppercase();
            tokio::io::AsyncWriteExt::write_all(&mut io, &said).await.unwrap();
        });
        axum::http::StatusCode::OK
    });
    with_app(&proxy, &ServerOptions::default(), |server| {
        let mut stream = connect(&server);
        stream.write_all(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nhello").unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n\r\nHELLO"), "{all}");
        let mut stream = connect(&server);
        stream.write_all(b"CONNECT example.org:25 HTTP/1.1\r\nHost: example.org:25\r\n\r\n").unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert!(all.starts_with("HTTP/1.1 403 "), "{all}");
    });
    let plain = |_: linerate_serve::Request| async { linerate_serve::Response::text("for anything\n") };
    let server = spawn_with(ServerOptions::default(), move || plain).unwrap();
    let mut stream = connect(&server);
    stream
        .write_all(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 405 ") && all.matches("HTTP/1.1 ").count() == 1, "{all}");
}

#[test]
fn bytes_read_with_the_request_belong_to_the_new_protocol() {
    with(&ServerOptions::default(), |server| {
        // Requests before it are answered first; the frames came with the same segment, one of them cut.
        let mut stream = connect(&server);
        let before = "GET /slow HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut bytes = (before.to_owned() + &upgrade("/echo")).into_bytes();
        bytes.extend(frame("early"));
        let second = frame("late");
        bytes.extend(&second[..3]);
        stream.write_all(&bytes).unwrap();
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while !said.ends_with(b"\x81\x05early") {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&buffer[..n]);
        }
        let text = String::from_utf8_lossy(&said).into_owned();
        let order = ["slow\n", "hello\n", "HTTP/1.1 101 "].map(|t| text.find(t).unwrap());
        assert!(order.is_sorted(), "{text}");
        stream.write_all(&second[3..]).unwrap();
        let mut back = [0; 6];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"\x81\x04late");
        // The peer's end reaches the handler, whose end ends the connection.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap(), 0);
        while server.counts().open > 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn what_is_no_upgrade_is_answered_and_closed_and_h2c_is_ignored() {
    with(&ServerOptions::default(), |server| {
        for (path, status) in [("/", "HTTP/1.1 200 "), ("/none", "HTTP/1.1 404 ")] {
            let mut stream = connect(&server);
            stream.write_all(upgrade(path).as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(status) && answer.contains("connection: close"), "{answer}");
        }
        // curl --http2 and Java's client ask for it on every first request.
        let mut stream = connect(&server);
        let h2c = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                   HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
        stream.write_all((h2c.to_owned() + h2c).as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    });
}

/// Reads the head of a response.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Waits until the server stops listening, so that it drains.
fn wait_for_drain(address: std::net::SocketAddr) {
    while TcpStream::connect(address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Only the handler knows how to end a protocol that is no WebSocket.
#[test]
fn a_drain_lets_them_talk_until_its_time_is_over() {
    let chat = Router::new().fallback(|mut request: axum::extract::Request| async move {
        let taken = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut reader, mut writer) =
                tokio::io::split(hyper_util::rt::TokioIo::new(taken.await.unwrap()));
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        (axum::http::StatusCode::SWITCHING_PROTOCOLS, [("upgrade", "chat"), ("connection", "upgrade")])
    });
    let drain = Duration::from_millis(1500);
    with_app(&chat, &ServerOptions { drain, ..ServerOptions::default() }, |server| {
        let mut stream = connect(&server);
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n")
            .unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
        let address = server.addr();
        let counter = server.counter();
        let stopping = std::thread::spawn(move || server.stop());
        wait_for_drain(address);
        stream.write_all(b"still").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"still");
        let counts = stopping.join().unwrap();
        assert_eq!(counts.open, 1, "{:?}", counter());
        assert!(!matches!(stream.read(&mut back), Ok(1..)));
    });
}

/// The handler knows nothing of the drain (RFC 6455 section 7.4.1). A client that does not answer
/// is cut at its end.
#[test]
fn a_drain_closes_websockets_in_the_name_of_their_handlers() {
    let drain = Duration::from_millis(1500);
    with(&ServerOptions { drain, ..ServerOptions::default() }, |server| {
        let mut stream = connect(&server);
        stream.write_all(upgrade("/echo").as_bytes()).unwrap();
        read_head(&mut stream);
        let address = server.addr();
        let stopping = std::thread::spawn(move || server.stop());
        let mut close = [0; 4];
        stream.read_exact(&mut close).unwrap();
        assert_eq!(close, [0x88, 2, 0x03, 0xe9]);
        wait_for_drain(address);
        // Received frames are read, and the handler's answers are dropped.
        stream.write_all(&frame("still")).unwrap();
        assert_eq!(stopping.join().unwrap().open, 1);
        assert!(!matches!(stream.read(&mut close), Ok(1..)));
    });
}

/// One that echoes, one that pushes large messages and reads nothing, one that does nothing at all.
fn unaware() -> Router {
    let push = |ws: WebSocketUpgrade| async {
        ws.on_upgrade(|mut socket| async move {
            for i in 0.. {
                if socket.send(Message::binary(vec![i as u8; 100_000])).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let idle = |ws: WebSocketUpgrade| async {
        ws.on_upgrade(|socket| async move {
            std::future::pending::<()>().await;
            drop(socket);
        })
    };
    router().route("/push", any(push)).route("/idle", any(idle))
}

#[test]
fn clients_of_handlers_that_do_not_know_of_the_drain_get_whole_messages_and_1001() {
    let options = ServerOptions { drain: PATIENCE, threads: 2, ..ServerOptions::default() };
    with_app(&unaware(), &options, |server| {
        runtime().block_on(async {
            let mut sockets = Vec::new();
            for path in ["/echo", "/push", "/idle"].into_iter().cycle().take(12) {
                let mut socket = connect_async(format!("ws://{}{path}", server.addr())).await.unwrap().0;
                if path == "/push" {
                    assert!(socket.next().await.unwrap().unwrap().is_binary());
                }
                sockets.push((path, socket));
            }
            let began = std::time::Instant::now();
            let stopping = std::thread::spawn(move || server.stop());
            for (path, mut socket) in sockets {
                let close = loop {
                    let next = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
                    match next {
                        ClientMessage::Binary(all) if path == "/push" => {
                            assert!(all.len() == 100_000 && all.iter().all(|b| *b == all[0]));
                        }
                        other => break other,
                    }
                };
                let ClientMessage::Close(Some(frame)) = close else { panic!("{path}: {close:?}") };
                assert_eq!(u16::from(frame.code), 1001, "{path}");
                assert!(!matches!(socket.next().await, Some(Ok(_))), "{path}");
            }
            let counts = stopping.join().unwrap();
            assert_eq!((counts.requests, counts.open), (12, 0));
            assert!(began.elapsed() < PATIENCE, "the last was cut");
        });
    });
}

/// A handler that waits for the drain in another way sends its last message first.
#[test]
fn a_handler_that_knows_by_the_options_says_its_own_goodbye() {
    let draining = Draining::default();
    let known = draining.clone();
    let goodbye = move |ws: WebSocketUpgrade| async move {
        assert!(!known.has_begun());
        ws.on_upgrade(move |mut socket| async move {
            known.begun().await;
            let frame = CloseFrame { code: 1012, reason: "restart".into() };
            socket.send(Message::Close(Some(frame))).await.unwrap();
            while let Some(Ok(_)) = socket.recv().await {}
        })
    };
    let app = Router::new().route("/goodbye", any(goodbye));
    let options = ServerOptions { drain: PATIENCE, draining, ..ServerOptions::default() };
    let server = spawn_with(options, move || tower(app.clone())).unwrap();
    runtime().block_on(async {
        let mut socket = connect_async(format!("ws://{}/goodbye", server.addr())).await.unwrap().0;
        let stopping = std::thread::spawn(move || server.stop());
        let last = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
        let ClientMessage::Close(Some(frame)) = last else { panic!("{last:?}") };
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1012, "restart"));
        assert!(!matches!(socket.next().await, Some(Ok(_))));
        assert_eq!(stopping.join().unwrap().open, 0);
    });
}

/// A client that we have not written.
const PYTHON_CLIENT: &str = r#"
import asyncio, sys, websockets

async def main():
    async with websockets.connect(sys.argv[1] + "/echo") as echo, websockets.connect(sys.argv[1] + "/push", max_size=None) as push:
        await echo.send("hello")
        assert await echo.recv() == "hello"
        assert len(await push.recv()) == 100_000
        print("talks", flush=True)
        for socket in (echo, push):
            try:
                while True:
                    message = await socket.recv()
                    assert len(message) == 100_000, message
            except websockets.ConnectionClosed as closed:
                print(closed.rcvd.code, closed.rcvd_then_sent, flush=True)

asyncio.run(main())
"#;

#[test]
fn python_sees_1001_and_an_orderly_end() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let Some(python) = linerate_skips::python_for("", &["websockets"]) else { return };
    let options = ServerOptions { drain: PATIENCE, ..ServerOptions::default() };
    with_app(&unaware(), &options, |server| {
        let url = format!("ws://{}", server.addr());
        let mut client = Command::new("timeout")
            .args(["60".as_ref(), python.as_os_str(), "-c".as_ref(), PYTHON_CLIENT.as_ref(), url.as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("talks"));
        let counts = server.stop();
        assert_eq!(lines.collect::<Vec<_>>(), ["1001 True", "1001 True"]);
        assert!(client.wait().unwrap().success());
        assert_eq!(counts.open, 0);
    });
}

/// Handlers learn of the drain, close in their own protocol, and are not cut.
#[test]
fn a_drain_ends_what_has_no_end_by_a_close_frame() {
    let goodbye = |ws: WebSocketUpgrade, Extension(draining): Extension<Draining>| async move {
        ws.on_upgrade(move |mut socket| async move {
            // Busy with messages until then.
            loop {
                let next = match select(pin!(socket.recv()), pin!(draining.begun())).await {
                    Either::Left((next, _)) => next,
                    Either::Right(_) => break,
                };
                socket.send(next.unwrap().unwrap()).await.unwrap();
            }
            assert!(draining.has_begun());
            let frame = CloseFrame { code: 1001, reason: "going away".into() };
            socket.send(Message::Close(Some(frame))).await.unwrap();
            while let Some(Ok(_)) = socket.recv().await {}
        })
    };
    // Far longer than it takes: a connection still open then was not notified.
    let options = ServerOptions { drain: PATIENCE, threads: 2, ..ServerOptions::default() };
    let app = Router::new().route("/goodbye", any(goodbye));
    with_app(&app, &options, |server| {
        runtime().block_on(async {
            let url = format!("ws://{}/goodbye", server.addr());
            let mut sockets = Vec::new();
            for i in 0..20 {
                let mut socket = connect_async(&url).await.unwrap().0;
                socket.send(ClientMessage::text(format!("{i}"))).await.unwrap();
                let back = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
                assert_eq!(back.into_text().unwrap().as_str(), format!("{i}"));
                sockets.push(socket);
            }
            let stopping = std::thread::spawn(move || server.stop());
            for mut socket in sockets {
                let last = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
                let ClientMessage::Close(Some(frame)) = last else { panic!("{last:?}") };
                assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1001, "going away"));
                // The client's own close frame leaves, and the connection ends in order.
                assert!(!matches!(socket.next().await, Some(Ok(_))));
            }
            let counts = stopping.join().unwrap();
            assert_eq!((counts.requests, counts.open), (20, 0));
        });
    });
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    let limits = Limits { write_time: Duration::from_millis(300), ..Limits::default() };
    with(&ServerOptions { limits, ..ServerOptions::default() }, |server| {
        let mut stream = connect(&server);
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(upgrade("/echo").as_bytes()).unwrap();
        let mut message = frame("");
        message[1] = 0x80 | 127;
        message.splice(2..2, 1_000_000u64.to_be_bytes());
        message.extend(vec![0; 1_000_000]);
        let cut = (0..200).any(|_| stream.write_all(&message).is_err());
        assert!(cut, "200 MB were taken from a client that reads nothing");
    });
}
