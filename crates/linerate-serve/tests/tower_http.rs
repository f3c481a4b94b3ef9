//! The layers of tower-http that most services have, over a real server: trace, CORS, compression and
//! timeouts, over HTTP/1.1 and HTTP/2.
#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{Method, Request, StatusCode};
use axum::routing::{get, post};
use linerate_serve::{Handle, ServerOptions, spawn_with, tower};
use linerate_skips::program;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

const TEXT: &str = "a line of a text that repeats itself, 0123456789\n";

/// What the layer of traces was told.
#[derive(Default)]
struct Traced {
    requests: AtomicUsize,
    responses: AtomicUsize,
}

fn app(traced: &Arc<Traced>) -> Router {
    let (asked, answered) = (Arc::clone(traced), Arc::clone(traced));
    let trace = TraceLayer::new_for_http()
        .on_request(move |_: &Request<_>, _: &tracing::Span| {
            asked.requests.fetch_add(1, Ordering::SeqCst);
        })
        .on_response(move |_: &axum::http::Response<_>, _: Duration, _: &tracing::Span| {
            answered.responses.fetch_add(1, Ordering::SeqCst);
        });
    Router::new()
        .route("/text", get(|| async { TEXT.repeat(1000) }))
        .route("/upper", post(|body: String| async move { body.to_uppercase() }))
        .route("/slow", get(|| async { tokio::time::sleep(Duration::from_secs(3600)).await }))
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(Any).allow_methods([Method::PUT]))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(200)))
        .layer(trace)
}

/// What curl gets: the head and the body. `None`: there is no curl.
fn curl(server: &Handle, path: &str, flags: &[&str]) -> Option<(String, Vec<u8>)> {
    let mut command = Command::new(program("curl")?);
    command.args(["-sS", "-i", "--max-time", "20"]).args(flags);
    let out = command.arg(format!("http://{}{path}", server.addr())).output().unwrap();
    assert!(out.status.success(), "{path} {flags:?}: {out:?}");
    let at = out.stdout.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    Some((String::from_utf8_lossy(&out.stdout[..at]).to_lowercase(), out.stdout[at..].to_vec()))
}

#[test]
fn the_usual_layers_work() {
    let traced = Arc::new(Traced::default());
    let make = {
        let traced = Arc::clone(&traced);
        move || tower(app(&traced).with_state(()))
    };
    let server = spawn_with(ServerOptions::default(), make).unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let origin = ["-H", "Origin: https://app.example"];
        let get = |path, flags: &[&str]| curl(&server, path, &[&[version], &origin[..], flags].concat());
        let Some((head, body)) = get("/text", &["-H", "Accept-Encoding: gzip"]) else { return };
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: "), "{head}");
        assert!(body.len() < TEXT.len() * 1000 / 10);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
        assert!(text == TEXT.repeat(1000));
        let (head, body) = get("/text", &[]).unwrap();
        assert!(!head.contains("content-encoding") && body == TEXT.repeat(1000).as_bytes(), "{head}");
        assert!(head.contains("access-control-allow-origin: *"), "{head}");
        let preflight = ["-X", "OPTIONS", "-H", "Access-Control-Request-Method: PUT"];
        let (head, _) = get("/upper", &preflight).unwrap();
        assert!(head.contains(" 200") && head.contains("access-control-allow-methods: put"), "{head}");
        let (_, body) = get("/upper", &["--data-binary", "some text"]).unwrap();
        assert_eq!(body, b"SOME TEXT");
        let (head, _) = get("/slow", &[]).unwrap();
        assert!(head.contains(" 408"), "{head}");
    }
    // The server's thread publishes its counts once the response has left.
    let until = Instant::now() + Duration::from_secs(10);
    while server.counts().waiting > 0 {
        assert!(Instant::now() < until, "a handler is left behind: {:?}", server.counts());
        std::thread::yield_now();
    }
    assert_eq!(traced.requests.load(Ordering::SeqCst), 10);
    assert_eq!(traced.responses.load(Ordering::SeqCst), 10);
}
