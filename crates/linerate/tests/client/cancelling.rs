//! Futures that are dropped at any moment.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::Request;
use http_body_util::Full;
use linerate::client::{Builder, Client, Protocol};
use linerate::serve::{self, ServerOptions, spawn_with};

use crate::secure::secure_with;
use crate::server::{Server, ok};
use crate::{echo, get};

/// Polls a future `n` times and drops it; says whether it was ready before.
async fn poll_times<F: Future>(future: F, n: usize) -> bool {
    let (mut future, mut left) = (pin!(future), n);
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        future.as_mut().poll(cx).map(|_| true)
    })
    .await
}

/// Polls a future `n` times and drops it at once, while its call waits or is in flight; says whether it was ready.
pub(crate) async fn drop_after_polls<F: Future>(future: F, n: usize) -> bool {
    let (mut future, mut left) = (pin!(future), n);
    std::future::poll_fn(|cx| {
        left = left.saturating_sub(1);
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The same for what a stream gives.
async fn poll_stream_times<S: Stream + Unpin>(mut stream: S, n: usize) -> bool {
    let mut left = n;
    std::future::poll_fn(|cx| {
        loop {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            match stream.poll_next_unpin(cx) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// With one place only, a place that is lost would block the next call.
#[tokio::test]
async fn a_call_dropped_at_its_nth_poll() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(1).queue(1).build().unwrap();
    for n in 0.. {
        let done = poll_times(client.get(&format!("/dropped/{n}")), n).await;
        let whole = tokio::time::timeout(Duration::from_secs(20), client.get(&format!("/{n}"))).await;
        assert_eq!(whole.unwrap().unwrap().body(), format!("/{n}").as_bytes());
        if done && n > 4 {
            break;
        }
        assert!(n < 1000, "it is never ready");
    }
}

/// The same while other calls are in flight, and with bodies.
#[tokio::test]
async fn one_of_many_dropped_at_its_nth_poll() {
    let server = Server::start(|request| ok(&request.body));
    let client = Client::builder(&server.url()).pipes(1).depth(8).queue(8).build().unwrap();
    for n in 0..6 {
        let put = |byte: u8| client.send(Request::put("/").body(Bytes::from(vec![byte; 100_000])).unwrap());
        let (dropped, others) = (poll_times(put(b'x'), n), futures_util::future::join_all((0..7).map(put)));
        let (_, others) = tokio::join!(dropped, others);
        for (byte, response) in others.into_iter().enumerate() {
            assert!(response.unwrap().body().iter().all(|b| usize::from(*b) == byte));
        }
    }
}

#[tokio::test]
async fn a_stream_dropped_at_its_nth_poll() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(1).depth(4).queue(4).build().unwrap();
    let mut n = 0;
    loop {
        let requests = || futures_util::stream::iter((0..20).map(|n| get(format!("/{n}"))));
        let ordered = poll_stream_times(client.send_all(requests()), n).await;
        let unordered = poll_stream_times(client.send_all_unordered(requests()), n).await;
        let whole = tokio::time::timeout(Duration::from_secs(20), client.get("/whole")).await;
        assert_eq!(whole.unwrap().unwrap().body(), &b"/whole"[..]);
        if ordered && unordered {
            return;
        }
        n += 1;
        assert!(n < 1000, "they never end");
    }
}

#[tokio::test]
async fn a_counted_run_dropped_at_its_nth_poll() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(2).depth(16).build().unwrap();
    let before = descriptors(&client, &server).await;
    for n in 0..40 {
        let template = linerate::client::Template::get("/").unwrap();
        poll_times(client.send_counted(template, 500), n).await;
    }
    // The pool may have fewer connections open than before, never more.
    assert!(descriptors(&client, &server).await <= before);
}

/// Descriptors of connections to the server, the client's side alone, besides those of the client itself.
async fn descriptors(client: &Client, server: &Server) -> usize {
    client.get("/").await.unwrap();
    crate::ends::sockets_to(server.address)
}

/// How often each path arrived.
type Arrived = Arc<Mutex<HashMap<String, u32>>>;

/// Servers by HTTP/2, in clear text and over TLS, that respond with the path, and clients for one call at a time.
fn by_streams() -> Vec<(Arrived, serve::Handle, Builder)> {
    let handler = |arrived: &Arrived| {
        let arrived = arrived.clone();
        move |mut request: serve::Request| {
            let arrived = arrived.clone();
            async move {
                let path = request.path().to_owned();
                *arrived.lock().unwrap().entry(path.clone()).or_default() += 1;
                request.body().collect(1 << 26).await.unwrap();
                serve::Response::text(path)
            }
        }
    };
    let plain = Arrived::default();
    let of = handler(&plain);
    let server = spawn_with(ServerOptions::default(), move || of.clone()).unwrap();
    let builder = Client::builder(&format!("http://{}", server.addr())).protocol(Protocol::Http2);
    let mut all = vec![(plain, server, builder.queue(1))];
    for alpn in ["h2", "http/1.1"] {
        let arrived = Arrived::default();
        let of = handler(&arrived);
        let secure = secure_with(&[alpn], false, move || of.clone());
        let builder = secure.client().queue(1);
        all.push((arrived, secure.server, builder));
    }
    all
}

/// Whatever was dropped, the one place is free again, and the connection works.
async fn works(client: &Client, n: usize) {
    let whole = tokio::time::timeout(Duration::from_secs(20), client.get(&format!("/whole/{n}"))).await;
    assert_eq!(whole.unwrap().unwrap().body(), format!("/whole/{n}").as_bytes());
}

/// Calls with bodies, as bytes and as streams, over HTTP/2 and TLS. None that is not idempotent arrives twice.
#[tokio::test]
async fn a_call_over_http2_and_tls_dropped_at_its_nth_poll() {
    for (arrived, _server, builder) in by_streams() {
        let client = builder.build().unwrap();
        for n in 0.. {
            let call = |which| client.post(&format!("/{which}/{n}"), vec![b'x'; 100_000]);
            drop_after_polls(call("at-once"), n).await;
            works(&client, n).await;
            let done = poll_times(call("dropped"), n).await;
            works(&client, n).await;
            if done && n > 4 {
                break;
            }
            assert!(n < 1000, "it is never ready");
        }
        for n in 0.. {
            let streamed = async |which| {
                let body = Full::new(Bytes::from(vec![b'x'; 300_000]));
                let request = Request::post(format!("/{which}/{n}")).body(body).unwrap();
                let mut body = client.send_streaming(request).await.unwrap().into_body();
                while let Some(piece) = body.next().await {
                    piece.unwrap();
                }
            };
            drop_after_polls(streamed("streamed-at-once"), n).await;
            works(&client, n).await;
            let done = poll_times(streamed("streamed"), n).await;
            works(&client, n).await;
            if done && n > 4 {
                break;
            }
            assert!(n < 1000, "it is never ready");
        }
        let arrived = arrived.lock().unwrap();
        let mut posts = arrived.iter().filter(|(path, _)| !path.starts_with("/whole"));
        assert!(posts.all(|(_, times)| *times == 1), "{arrived:?}");
        assert!(client.statistics().cancelled > 0);
    }
}

#[tokio::test]
async fn a_stream_over_http2_and_tls_dropped_at_its_nth_poll() {
    for (_, _server, builder) in by_streams() {
        let client = builder.queue(4).depth(4).build().unwrap();
        for n in 0.. {
            let requests = || futures_util::stream::iter((0..20).map(|n| get(format!("/{n}"))));
            let ordered = poll_stream_times(client.send_all(requests()), n).await;
            let unordered = poll_stream_times(client.send_all_unordered(requests()), n).await;
            works(&client, n).await;
            if ordered && unordered {
                break;
            }
            assert!(n < 1000, "they never end");
        }
    }
}
