//! An axum `Router`, unchanged, and handlers that use tokio.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, Request as HttpRequest, StatusCode, header};
use axum::middleware::map_request;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use linerate_serve::{Handle, Peer, Request, Response, ServerOptions, spawn_with, tower_with_peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

static SPEAK: tokio::sync::Notify = tokio::sync::Notify::const_new();

/// Says nothing until somebody wants it.
async fn quiet() -> Result<Bytes, std::io::Error> {
    SPEAK.notified().await;
    Ok(Bytes::from_static(b"spoken"))
}

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/state", get(|State(text): State<&'static str>| async move { text }))
        .route("/greet/{name}", get(|Path(name): Path<String>| async move { format!("hello {name}\n") }))
        .route(
            "/query",
            get(|Query(q): Query<Vec<(String, u64)>>| async move {
                q.iter().map(|p| p.1).sum::<u64>().to_string()
            }),
        )
        .route("/json", post(|Json(value): Json<serde_json::Value>| async move { Json(value) }))
        .route("/text", post(|body: String| async move { body.to_uppercase() }))
        .route("/peer", get(|Extension(Peer(peer)): Extension<Peer>| async move { peer.ip().to_string() }))
        .route("/info", get(|ConnectInfo(at): ConnectInfo<SocketAddr>| async move { at.ip().to_string() }))
        .route(
            "/hint",
            post(|body: Body| async move {
                let hint = http_body::Body::size_hint(&body).exact();
                format!("{hint:?} {}", axum::body::to_bytes(body, 100).await.unwrap().len())
            }),
        )
        .route("/agent", get(|headers: HeaderMap| async move { format!("{:?}", headers.get("user-agent")) }))
        .route(
            "/teapot",
            get(|| async { (StatusCode::IM_A_TEAPOT, [("x-pot", "brown")], "short and stout") }),
        )
        .route(
            "/sleep",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                "slept\n"
            }),
        )
        .route(
            "/ticks",
            get(|| async {
                Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("tick")]))
            }),
        )
        .route(
            "/pieces",
            get(|| async {
                let pieces =
                    ["one ", "two"].map(|p| Ok::<_, std::io::Error>(Bytes::from_static(p.as_bytes())));
                let body = Body::from_stream(futures_util::stream::iter(pieces));
                ([(header::CONTENT_LENGTH, "7")], body)
            }),
        )
        .route("/quiet", get(|| async { Body::from_stream(futures_util::stream::once(quiet())) }))
        .route("/speak", get(|| async { SPEAK.notify_one() }))
        .route("/spawn", get(|| async { tokio::spawn(async { "spawned\n" }).await.unwrap() }))
        .layer(map_request(connect_info))
        .with_state("the state")
}

/// As axum passes it, from our own address extension.
async fn connect_info(
    Extension(Peer(peer)): Extension<Peer>,
    mut request: HttpRequest<Body>,
) -> HttpRequest<Body> {
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

fn server() -> Handle {
    let app = router();
    spawn_with(ServerOptions::default(), move || tower_with_peer(app.clone())).unwrap()
}

fn exchange(to: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get_it(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: test\r\n\r\n")
}

#[test]
fn extractors_answers_and_pipelining() {
    let server = server();
    let at = server.addr();
    for (path, expected) in [
        ("/", "hello\n"),
        ("/state", "the state"),
        ("/greet/you%20all", "hello you all\n"),
        ("/query?a=1&b=41", "42"),
        ("/peer", "127.0.0.1"),
        ("/info", "127.0.0.1"),
        ("/agent", "Some(\"test\")"),
    ] {
        let answer = exchange(at, &get_it(path));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(expected), "{path}: {answer}");
    }
    let teapot = exchange(at, &get_it("/teapot"));
    assert!(teapot.starts_with("HTTP/1.1 418") && teapot.contains("\r\nx-pot: brown\r\n"), "{teapot}");
    assert!(exchange(at, &get_it("/none")).starts_with("HTTP/1.1 404"));
    assert!(exchange(at, "DELETE / HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 405"));
    // A body's length that only the service knows is announced, though the body itself does not
    // know it.
    let pieces = exchange(at, &get_it("/pieces"));
    assert!(pieces.contains("\r\ncontent-length: 7\r\n") && pieces.ends_with("\r\n\r\none two"), "{pieces}");
    let head = exchange(at, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.contains("content-length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // If GET would stream the body, HEAD does not claim that it is empty (RFC 9110 section 8.6).
    let head = exchange(at, "HEAD /ticks HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("content-length"), "{head}");
    let all = exchange(at, &(get_it("/sleep") + &get_it("/") + &get_it("/spawn") + &get_it("/state")));
    let order = ["slept", "hello", "spawned", "the state"].map(|t| all.find(t).unwrap());
    assert!(order.is_sorted(), "{all}");
}

/// A client of events knows that it is connected before the first one.
#[test]
fn a_head_does_not_wait_for_its_body() {
    let server = server();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(get_it("/quiet").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&head));
    assert!(exchange(server.addr(), &get_it("/speak")).starts_with("HTTP/1.1 200"));
    stream.shutdown(Shutdown::Write).unwrap();
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    assert_eq!(body, "6\r\nspoken\r\n0\r\n\r\n");
}

#[test]
fn bodies_whole_chunked_and_slow() {
    let server = server();
    let post = |path: &str, fields: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
    };
    let json = "Content-Type: application/json\r\n";
    let answer =
        exchange(server.addr(), &post("/json", &format!("{json}Content-Length: 7\r\n"), "{\"a\":1}"));
    assert!(answer.ends_with("{\"a\":1}"), "{answer}");
    let answer =
        exchange(server.addr(), &post("/json", &format!("{json}Content-Length: 7\r\n"), "{\"a\":1 "));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let answer = exchange(server.addr(), &post("/text", chunked, "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"));
    assert!(answer.ends_with("ABCDEFG"), "{answer}");
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(post("/text", "Content-Length: 6\r\nConnection: close\r\n", "abc").as_bytes()).unwrap();
    while server.counts().waiting == 0 {
        std::thread::yield_now();
    }
    stream.write_all(b"def").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ABCDEF"), "{answer}");
}

/// So that a proxying handler can announce it too.
#[test]
fn the_length_of_a_body_that_is_still_arriving_is_known() {
    let server = server();
    for (fields, rest, expected) in [
        ("Content-Length: 6\r\n", "def", "Some(6) 6"),
        ("Transfer-Encoding: chunked\r\n", "\r\n0\r\n\r\n", "None 3"),
    ] {
        let begun = if expected.starts_with('S') { "abc" } else { "3\r\nabc" };
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        let head = format!("POST /hint HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n{begun}");
        stream.write_all(head.as_bytes()).unwrap();
        while server.counts().waiting == 0 {
            std::thread::yield_now();
        }
        stream.write_all(rest.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(expected), "{answer}");
    }
}

/// A handler that queries another server by tokio's sockets, and waits for another task by a
/// channel.
#[test]
fn handlers_use_tokio() {
    let other = server();
    let address = other.addr();
    let handler = move |request: Request| async move {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let path = request.path().to_owned();
        tokio::spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let ask = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            stream.write_all(ask.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            sender.send(answer).unwrap();
        });
        match tokio::time::timeout(Duration::from_secs(20), receiver).await {
            Ok(Ok(answer)) => Response::text(answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned()),
            _ => Response::status(504),
        }
    };
    let server = spawn_with(ServerOptions::default(), move || handler).unwrap();
    let answers = exchange(server.addr(), &(get_it("/greet/a") + &get_it("/") + &get_it("/sleep")));
    let order =
        ["hello a", "hello\n", "slept"].map(|t| answers.find(t).unwrap_or_else(|| panic!("{answers}")));
    assert!(order.is_sorted());
}

/// A handler that queries another service by hyper's client, which reuses connections: repeatedly,
/// many at once, with timeouts.
#[test]
fn handlers_use_an_http_client() {
    use http_body_util::{BodyExt, Full};
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;

    let other = server();
    let address = other.addr();
    let make = move || {
        let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        move |request: Request| {
            let client = client.clone();
            async move {
                let uri = format!("http://{address}{}", request.path()).parse().unwrap();
                let asked = tokio::time::timeout(Duration::from_secs(20), client.get(uri)).await;
                let Ok(Ok(answer)) = asked else { return Response::status(502) };
                let status = answer.status().as_u16();
                match answer.into_body().collect().await {
                    Ok(body) if status == 200 => Response::text(body.to_bytes()),
                    _ => Response::status(status),
                }
            }
        }
    };
    let server = spawn_with(ServerOptions { threads: 2, ..ServerOptions::default() }, make).unwrap();
    std::thread::scope(|scope| {
        for i in 0..8 {
            let at = server.addr();
            scope.spawn(move || {
                let requests: String = (0..20).map(|n| get_it(&format!("/greet/{i}-{n}"))).collect();
                let answers = exchange(at, &(requests + &get_it("/sleep") + &get_it("/none")));
                let order: Vec<usize> =
                    (0..20).map(|n| answers.find(&format!("hello {i}-{n}\n")).unwrap()).collect();
                assert!(order.is_sorted(), "{answers}");
                assert!(answers.contains("slept") && answers.contains("HTTP/1.1 404"), "{answers}");
            });
        }
    });
    assert_eq!(server.stop().requests, 8 * 22);
}

/// Another task reads the body, on another thread: it is larger than the buffer.
#[test]
fn a_body_may_be_read_by_another_task() {
    let handler = |request: Request| async move {
        let mut body = request.into_body();
        let read = tokio::spawn(async move {
            // By now the handler waits, and nothing else wakes its connection.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut bytes = 0;
            while let Some(Ok(piece)) = body.next().await {
                bytes += piece.len();
            }
            bytes
        });
        Response::text(format!("{} bytes", read.await.unwrap()))
    };
    let server = spawn_with(ServerOptions::default(), move || handler).unwrap();
    let body = "x".repeat(5_000_000);
    let request = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = exchange(server.addr(), &request);
    assert!(answer.ends_with("5000000 bytes"), "{answer}");
    // A client that waits for 100 Continue gets it, whichever task reads the body.
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("5 bytes"), "{answer}");
}

#[test]
fn a_body_that_another_task_reads_behind_the_answer_goes_on() {
    const SENT: usize = 5_000_000;
    for reads in [SENT, 100] {
        let (tell, told) = std::sync::mpsc::channel();
        let handler = move |request: Request| {
            let tell = tell.clone();
            async move {
                let mut body = request.into_body();
                tokio::spawn(async move {
                    // By now the handler is over.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let mut bytes = 0;
                    while bytes < reads
                        && let Some(Ok(piece)) = body.next().await
                    {
                        bytes += piece.len();
                    }
                    drop(body);
                    let _ = tell.send(bytes);
                });
                Response::status(202)
            }
        };
        let server = spawn_with(ServerOptions::default(), move || handler.clone()).unwrap();
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {SENT}\r\n\r\n").unwrap();
        // Dropping the body means that the rest is not needed: the connection ends, and may be cut.
        let sent = stream.write_all("x".repeat(SENT).as_bytes());
        let read = told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(if reads == SENT { sent.is_ok() && read == SENT } else { read >= reads }, "{sent:?} {read}");
        if reads < SENT {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let ended = stream.read_to_end(&mut Vec::new());
            let waited =
                ended.is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
            assert!(!waited, "it is not kept for ever");
        }
    }
}
