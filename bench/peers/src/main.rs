//! `linerate-bench-peers NAME ADDR:PORT` runs one server until it is killed. Each responds to `/`
//! at once and to `/delay/10` after 10 ms. `linerate-bench-peers router` measures the axum app
//! alone, in memory. `linerate-bench-peers call NAME URL SECONDS IN_FLIGHT` is a client.

mod call;
mod hello;
mod router;
mod threads;

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use axum::serve::ListenerExt;
use bytes::Bytes;
use hello::{HELLO, TEXT, WAIT, app, runtime};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use linerate_serve::{Io, Request, Response, ServerOptions, spawn_with, tower};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["router"] {
        return router::measure();
    }
    if let [call, rest @ ..] = words.as_slice()
        && call == "call"
    {
        return call::run(rest);
    }
    let [name, at] = words.as_slice() else { bail!("usage: linerate-bench-peers NAME ADDR:PORT") };
    let at: SocketAddr = at.parse().with_context(|| format!("{at} is no address with a port"))?;
    match name.as_str() {
        "hyper" => runtime()?.block_on(hyper(at)),
        "hyper-h2" => runtime()?.block_on(http2(at, hyper::service::service_fn(hyper_answer))),
        "axum-h2" => runtime()?.block_on(http2(at, TowerToHyperService::new(app()))),
        "axum" => runtime()?.block_on(axum(at, false)),
        "axum-nodelay" => runtime()?.block_on(axum(at, true)),
        "linerate-axum-epoll" => linerate_axum(at, Io::Epoll),
        "linerate-axum-uring" => linerate_axum(at, Io::Uring),
        "linerate-tokio-epoll" => linerate_tokio(at, Io::Epoll),
        "linerate-tokio-uring" => linerate_tokio(at, Io::Uring),
        "threads" => threads::serve(at),
        _ => bail!("no server {name}"),
    }
}

/// hyper set up for speed: responses to one read leave in one write.
async fn hyper(at: SocketAddr) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(at).await?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Fails only on a connection that has failed.
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(stream);
        let service = hyper::service::service_fn(hyper_answer);
        let served =
            hyper::server::conn::http1::Builder::new().pipeline_flush(true).serve_connection(io, service);
        // A failed connection affects no other.
        tokio::spawn(async { drop(served.await) });
    }
}

/// hyper's builder for HTTP/2, for clients that know it in advance.
async fn http2<S, B>(at: SocketAddr, service: S) -> Result<()>
where
    S: Service<hyper::Request<Incoming>, Response = hyper::Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = tokio::net::TcpListener::bind(at).await?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Fails only on a connection that has failed.
        let _ = stream.set_nodelay(true);
        let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service.clone());
        // A failed connection affects no other.
        tokio::spawn(async { drop(served.await) });
    }
}

async fn hyper_answer(request: hyper::Request<Incoming>) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/delay/10" {
        tokio::time::sleep(WAIT).await;
    }
    let mut answer = hyper::Response::new(Full::new(Bytes::from_static(HELLO.as_bytes())));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    Ok(answer)
}

/// As in axum's documentation; `nodelay`: without Nagle's algorithm, as the other servers here.
async fn axum(at: SocketAddr, nodelay: bool) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(at).await?;
    if !nodelay {
        return Ok(axum::serve(listener, app()).await?);
    }
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, app()).await?)
}

fn options(at: SocketAddr, io: Io) -> ServerOptions {
    ServerOptions { listen: vec![at.into()], threads: 1, io, ..ServerOptions::default() }
}

fn linerate_axum(at: SocketAddr, io: Io) -> Result<()> {
    // As `axum::serve` does internally.
    let app = app().with_state(());
    let server = spawn_with(options(at, io), move || tower(app.clone()))?;
    server.wait();
    Ok(())
}

/// Our server with a handler that waits on tokio's timer, as hyper's does.
fn linerate_tokio(at: SocketAddr, io: Io) -> Result<()> {
    let server = spawn_with(options(at, io), || linerate_answer)?;
    server.wait();
    Ok(())
}

async fn linerate_answer(request: Request) -> Response {
    if request.path() == "/delay/10" {
        tokio::time::sleep(WAIT).await;
    }
    Response::text(Bytes::from_static(HELLO.as_bytes()))
}
