//! HTTP/2 for programs that use the library: services behind tower with trailers and streams, and
//! WebSockets.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::routing::{any, post};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, StreamBody};
use linerate_serve::{Handle, ServerOptions, spawn_with, tower};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

/// What a unary gRPC call is, without its library: a message behind a flag and its length, and a
/// status in the trailers.
async fn echo(request: Request<Body>) -> Response<Body> {
    assert!(request.version() == Version::HTTP_2 && request.headers()["te"] == "trailers");
    let message = request.into_body().collect().await.unwrap().to_bytes();
    let status = if message.len() < 5 { "3" } else { "0" };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    if status != "0" {
        // Trailers-Only.
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = trailers;
        return response;
    }
    let frames = [http_body::Frame::data(message), http_body::Frame::trailers(trailers)];
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, std::io::Error>)));
    Response::builder().header("content-type", "application/grpc").body(Body::new(body)).unwrap()
}

/// Passes on what comes, piece by piece, and the trailers with it.
async fn relay(request: Request<Body>) -> Response<Body> {
    Response::new(request.into_body())
}

async fn chat(upgrade: WebSocketUpgrade) -> Response<Body> {
    upgrade.on_upgrade(async |mut socket| {
        while let Some(Ok(message)) = socket.recv().await {
            if matches!(message, Message::Text(_)) && socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

fn server() -> Handle {
    let make = || {
        let app = Router::new()
            .route("/echo.Echo/Unary", post(echo))
            .route("/relay", post(relay))
            .route("/chat", any(chat));
        tower(app.with_state::<()>(()))
    };
    spawn_with(ServerOptions::default(), make).unwrap()
}

async fn client(server: &Handle) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.addr()).await.unwrap();
    let (client, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

/// Sends what it may, as the windows allow.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
        stream.send_data(bytes.split_to(room.min(bytes.len())), false).unwrap();
    }
}

async fn read(body: &mut RecvStream) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    all.freeze()
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://localhost{path}"))
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("in time") });
}

#[test]
fn a_unary_grpc_call_has_its_status_in_trailers() {
    run(async {
        let server = server();
        let mut client = client(&server).await.ready().await.unwrap();
        for message in [&b"hello"[..], b""] {
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(message.len() as u32);
            framed.extend_from_slice(message);
            let request = request(Method::POST, "/echo.Echo/Unary").header("te", "trailers");
            let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
            body.send_data(framed.freeze(), true).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.headers()["content-type"], "application/grpc");
            let mut body = response.into_body();
            let mut got = read(&mut body).await;
            got.advance(5);
            assert_eq!(got, message);
            assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        }
        // An error needs no body.
        let request = request(Method::POST, "/echo.Echo/Unary").header("te", "trailers");
        let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "3");
        assert!(response.into_body().is_end_stream());
        server.stop();
    });
}

#[test]
fn bodies_and_trailers_pass_both_ways_at_the_readers_pace() {
    run(async {
        let server = server();
        let mut client = client(&server).await.ready().await.unwrap();
        let (response, mut body) =
            client.send_request(request(Method::POST, "/relay").body(()).unwrap(), false).unwrap();
        let sent = Bytes::from((0..3_000_000u32).map(|i| (i % 241) as u8).collect::<Vec<_>>());
        let whole = sent.clone();
        let sending = tokio::spawn(async move {
            send(&mut body, whole).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("checksum", "7".parse().unwrap());
            body.send_trailers(trailers).unwrap();
        });
        let response = response.await.unwrap();
        // Nothing is read: the sender comes to a halt, since its windows are used up.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!sending.is_finished(), "back-pressure");
        let mut body = response.into_body();
        assert!(read(&mut body).await == sent);
        assert_eq!(body.trailers().await.unwrap().unwrap()["checksum"], "7");
        sending.await.unwrap();
        server.stop();
    });
}

/// CONNECT takes one stream, not the connection as in HTTP/1.1.
#[test]
fn a_connection_outlives_a_refused_connect() {
    run(async {
        let server = server();
        let mut client = client(&server).await;
        for _ in 0..3 {
            client = client.ready().await.unwrap();
            let connect = Request::builder().method(Method::CONNECT).uri("example.org:443").body(()).unwrap();
            let (response, mut tunnel) = client.send_request(connect, false).unwrap();
            tunnel.send_data(Bytes::from_static(b"early"), false).unwrap();
            assert_eq!(response.await.unwrap().status(), 405);
            let post = request(Method::POST, "/relay").body(()).unwrap();
            let (response, mut body) = client.send_request(post, false).unwrap();
            body.send_data(Bytes::from_static(b"hello"), true).unwrap();
            assert_eq!(read(response.await.unwrap().body_mut()).await, "hello");
        }
        server.stop();
    });
}

/// A WebSocket on a stream of its own; `ends`: our side ends with the request.
async fn websocket(
    client: &mut h2::client::SendRequest<Bytes>,
    ends: bool,
) -> (http::Response<h2::RecvStream>, h2::SendStream<Bytes>) {
    let mut connect =
        request(Method::CONNECT, "/chat").header("sec-websocket-version", "13").body(()).unwrap();
    connect.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    while !client.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (response, socket) = client.send_request(connect, ends).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    (response, socket)
}

/// RFC 8441: the frames of a WebSocket on one stream, beside others.
#[test]
fn a_websocket_takes_one_stream() {
    run(async {
        let server = server();
        let mut client = client(&server).await.ready().await.unwrap();
        let (response, mut socket) = websocket(&mut client, false).await;
        assert!(response.headers().get("sec-websocket-accept").is_none());
        // A text frame of two bytes, masked by zeros, and its echo.
        let mut body = response.into_body();
        for _ in 0..3 {
            send(&mut socket, Bytes::from_static(b"\x81\x82\0\0\0\0hi")).await;
            let mut got = BytesMut::new();
            while got.len() < 4 {
                got.extend_from_slice(&body.data().await.unwrap().unwrap());
            }
            assert_eq!(&got[..], b"\x81\x02hi");
        }
        let (other, _) = client.send_request(request(Method::GET, "/none").body(()).unwrap(), true).unwrap();
        assert_eq!(other.await.unwrap().status(), 404);
        // Our Close frame, and theirs; then the stream ends.
        send(&mut socket, Bytes::from_static(b"\x88\x82\0\0\0\0\x03\xe8")).await;
        let mut rest = BytesMut::new();
        while let Some(Ok(piece)) = body.data().await {
            rest.extend_from_slice(&piece);
        }
        assert_eq!(&rest[..], b"\x88\x02\x03\xe8");
        server.stop();
    });
}

/// The client ends its side with the request, so the handler reads the end of the stream.
#[test]
fn a_websocket_may_end_with_its_request() {
    run(async {
        let server = server();
        let mut client = client(&server).await.ready().await.unwrap();
        let (response, _) = websocket(&mut client, true).await;
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.data().await {}
        server.stop();
    });
}
