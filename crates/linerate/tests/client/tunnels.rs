//! Tunnels of proxies that are cut, refused or never opened.

use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use linerate::client::{Client, Error, ErrorKind, Protocol};
use linerate::serve::{self, Response};

use crate::cancelling::drop_after_polls;
use crate::secure::{secure, secure_with};

/// What a proxy does with a connection.
#[derive(Clone, Copy)]
pub(crate) enum Tunnel {
    /// It passes that many bytes of the server, and cuts.
    Passes(usize),
    Says(&'static str),
}

/// A proxy for CONNECT alone; `does` decides of each connection.
pub(crate) fn proxy(does: impl Fn(usize) -> Tunnel + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let (stream, tunnel) = (stream.unwrap(), does(n));
            // A client that gives a connection up is no failure of the proxy.
            std::thread::spawn(move || drop(pass(stream, tunnel)));
        }
    });
    format!("http://{address}")
}

fn pass(mut client: TcpStream, tunnel: Tunnel) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let to = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let mut left = match tunnel {
        Tunnel::Says(text) => return client.write_all(text.as_bytes()),
        Tunnel::Passes(bytes) => bytes,
    };
    let mut server = TcpStream::connect(to.replace("localhost", "127.0.0.1"))?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut onward) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut onward);
        onward.shutdown(Shutdown::Write)
    });
    let mut buffer = [0; 4096];
    while left > 0 {
        let most = left.min(buffer.len());
        let read = server.read(&mut buffer[..most])?;
        if read == 0 {
            break;
        }
        client.write_all(&buffer[..read])?;
        left -= read;
    }
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)
}

/// Repeats itself.
fn drawn(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// GETs and POSTs, a quarter of them given up: each of the others ends in one way, and no POST comes twice.
#[tokio::test]
async fn calls_through_tunnels_that_are_cut() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let posted = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
        let seen = posted.clone();
        let server = secure_with(&["h2", "http/1.1"], false, move || {
            let seen = seen.clone();
            move |request: serve::Request| {
                let path = request.path().to_owned();
                if path.starts_with("/post") {
                    *seen.lock().unwrap().entry(path.clone()).or_default() += 1;
                }
                async move { Response::text(path) }
            }
        });
        let seed = Mutex::new(7);
        let through =
            proxy(move |_| Tunnel::Passes(6000 + drawn(&mut seed.lock().unwrap(), 60_000) as usize));
        let client = server.client().protocol(protocol).proxy(&through).build().unwrap();
        let mut seed = 11;
        let calls = (0..5000).map(|n| {
            let (is_post, polls) = (drawn(&mut seed, 4) == 0, drawn(&mut seed, 4) as usize);
            let call = if is_post {
                client.post(&format!("/post/{n}"), "x")
            } else {
                client.get(&format!("/get/{n}"))
            };
            async move {
                if n % 4 == 0 {
                    drop_after_polls(call, polls + 1).await;
                    return None;
                }
                Some((n, is_post, call.await))
            }
        });
        let ended = futures_util::stream::iter(calls).buffer_unordered(100).collect::<Vec<_>>();
        let ended = tokio::time::timeout(Duration::from_secs(120), ended).await.expect("nothing hangs");
        let mut good = 0;
        for (n, is_post, result) in ended.into_iter().flatten() {
            let kind = if is_post { "post" } else { "get" };
            match result {
                Ok(response) => {
                    assert_eq!(response.body(), format!("/{kind}/{n}").as_bytes());
                    good += 1;
                }
                Err(error) => {
                    let is_unknown = matches!(error, Error::OutcomeUnknown(_));
                    assert!(is_unknown == (is_post && !error.is_unsent()), "{kind}: {error:?}");
                }
            }
        }
        assert!(good > 3000, "{good} of 3750 {protocol:?}: {:?}", client.statistics().lost);
        assert!(client.statistics().lost > 0, "tunnels were cut");
        assert!(posted.lock().unwrap().values().all(|count| *count == 1), "a POST came twice");
    }
}

/// A proxy that opens one tunnel and no more: all calls share it.
#[tokio::test]
async fn a_proxy_that_opens_few_tunnels() {
    let server = secure(&["http/1.1"], false);
    let refuses = "HTTP/1.1 403 Too many\r\nContent-Length: 0\r\n\r\n";
    let through = proxy(move |n| if n == 0 { Tunnel::Passes(usize::MAX) } else { Tunnel::Says(refuses) });
    let client = server.client().pipes(8).proxy(&through).build().unwrap();
    client.get("/first").await.unwrap();
    let calls = (0..200).map(|n| client.get(&format!("/{n}")));
    for response in futures_util::future::join_all(calls).await {
        response.unwrap();
    }
    let statistics = client.statistics();
    assert_eq!((statistics.connected, statistics.lost), (1, 0), "{statistics:?}");
}

/// The runtime ends while a tunnel is being opened.
#[test]
fn a_runtime_that_ends_before_the_tunnel_is_there() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::builder("https://shop.test").proxy(&at).build().unwrap();
    let (mut get, mut post) = (Box::pin(client.get("/")), Box::pin(client.post("/", "x")));
    let first = runtime();
    first.block_on(async {
        let mut pending =
            |cx: &mut Context<'_>| get.as_mut().poll(cx).is_pending() && post.as_mut().poll(cx).is_pending();
        assert!(std::future::poll_fn(|cx| Poll::Ready(pending(cx))).await);
        let asked = tokio::task::spawn_blocking(move || {
            let (mut asked, _) = silent.accept().unwrap();
            let mut begin = [0; 7];
            asked.read_exact(&mut begin).unwrap();
            (asked, begin)
        });
        let (_asked, begin) = tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap().unwrap();
        assert_eq!(&begin, b"CONNECT");
    });
    drop(first);
    let (get, post) = runtime().block_on(async { (get.await, post.await) });
    for ended in [get, post] {
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[tokio::test]
async fn answers_that_open_no_tunnel() {
    let server = secure(&["h2", "http/1.1"], false);
    for (says, expected) in [
        ("", "closed the connection"),
        ("HTTP/1.1 200 OK", "closed the connection"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "in HTTP"),
        ("HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "with 301"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "closed the connection"),
        ("HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\nwords", "could not reach the server"),
    ] {
        let through = proxy(move |_| Tunnel::Says(says));
        let client = server.client().proxy(&through).build().unwrap();
        let (get, post) = tokio::join!(client.get("/"), client.post("/", "x"));
        for error in [get.unwrap_err(), post.unwrap_err()] {
            assert!(error.kind() == ErrorKind::Proxy && error.is_unsent(), "{says:?}: {error:?}");
            assert!(error.to_string().contains(expected), "{says:?}: {error}");
        }
    }
    let through = proxy(|_| Tunnel::Says("HTTP/1.1 200 OK\r\n\r\nno TLS at all, but something else"));
    let error = server.client().proxy(&through).build().unwrap().get("/").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Connect && error.is_unsent(), "{error:?}");
}
