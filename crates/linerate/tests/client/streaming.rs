//! Bodies as streams, by each version.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use linerate::client::{Client, Error, Protocol};
use linerate::serve::{self, Handle, Response, ServerOptions, spawn_with};

use crate::secure::{Secure, secure_with};

const PIECE: usize = 10_000;

fn piece(n: usize) -> Bytes {
    Bytes::from(vec![n as u8; PIECE])
}

type Frames = Result<Frame<Bytes>, Infallible>;

/// Pieces, then trailers.
fn pieces(
    count: usize,
    given: Arc<AtomicUsize>,
) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static {
    let pieces = stream::iter(0..count).map(move |n| -> Frames {
        given.fetch_add(1, Ordering::Relaxed);
        Ok(Frame::data(piece(n)))
    });
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from(count));
    let last = stream::once(std::future::ready(Ok(Frame::trailers(trailers))));
    StreamBody::new(pieces.chain(last))
}

/// `/down/N` sends N pieces; `/up` counts; `/both` sends back what comes.
async fn handle(mut request: serve::Request, given: Arc<AtomicUsize>) -> Response {
    let path = request.path().to_owned();
    if let Some(count) = path.strip_prefix("/down/") {
        return Response::text("").with_http_body(pieces(count.parse().unwrap(), given));
    }
    if path == "/both" {
        let body = stream::unfold(request.into_body(), |mut body| async move {
            let next = body.next().await?.ok()?;
            Some((Ok::<_, Infallible>(Frame::data(next)), body))
        });
        return Response::text("").with_http_body(StreamBody::new(body));
    }
    match request.body().collect(1 << 30).await {
        Ok(body) => Response::text(body.len().to_string()),
        Err(_) => Response::text("cut"),
    }
}

/// The same service in clear text, and over QUIC.
struct Served {
    clear: Handle,
    quic: Secure,
}

fn serve() -> (Served, Arc<AtomicUsize>) {
    let given = Arc::<AtomicUsize>::default();
    let told = given.clone();
    let make = move || {
        let given = given.clone();
        move |request: serve::Request| handle(request, given.clone())
    };
    let clear = spawn_with(ServerOptions::default(), make.clone()).unwrap();
    (Served { clear, quic: secure_with(&["h3", "h2"], false, make) }, told)
}

fn clients(server: &Served) -> [Client; 3] {
    let clear = || Client::builder(&format!("http://{}", server.clear.addr()));
    let quic = server.quic.client().protocol(Protocol::Http3);
    [clear().protocol(Protocol::Http1), clear().protocol(Protocol::Http2), quic]
        .map(|builder| builder.pipes(2).timeout(Duration::from_secs(10)).build().unwrap())
}

fn up(count: usize) -> StreamBody<impl futures_util::Stream<Item = Frames> + Send + 'static> {
    StreamBody::new(stream::iter(0..count).map(|n| Ok(Frame::data(piece(n)))))
}

#[tokio::test]
async fn requests_whose_bodies_are_streams() {
    let (server, _) = serve();
    for client in clients(&server) {
        for count in [0, 1, 3, 500] {
            let request = Request::put("/up").body(up(count)).unwrap();
            let response = client.send_streaming(request).await.unwrap();
            let said = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(said, (count * PIECE).to_string().as_bytes());
        }
        let whole = Request::put("/up").body(Full::new(Bytes::from(vec![1; 3_000_000]))).unwrap();
        let mut body = client.send_streaming(whole).await.unwrap().into_body();
        assert_eq!(body.next().await.unwrap().unwrap(), b"3000000"[..]);
        assert!(body.next().await.is_none());
        let announced = Request::put("/up").header("content-length", PIECE * 2).body(up(2)).unwrap();
        client.send_streaming(announced).await.unwrap();
        for wrong in [1, 3] {
            let request = Request::put("/up").header("content-length", PIECE * 2).body(up(wrong)).unwrap();
            let error = client.send_streaming(request).await.unwrap_err().to_string();
            assert!(error.contains("than announced"), "{error}");
        }
        assert_eq!(client.get("/down/0").await.unwrap().body().len(), 0);
    }
}

#[tokio::test]
async fn a_content_length_that_differs_is_refused() {
    let (server, _) = serve();
    for client in clients(&server) {
        for length in ["5", "abc", "+3", ""] {
            let whole = Request::put("/up").header("content-length", length);
            let whole = client.send_streaming(whole.body(Full::new(Bytes::from("xyz"))).unwrap()).await;
            let error = whole.unwrap_err();
            assert!(matches!(error, Error::Request(_)), "{length:?}: {error}");
        }
        for request in [
            Request::put("/up").header("content-length", "many"),
            Request::put("/up").header("content-length", PIECE).header("content-length", PIECE + 1),
        ] {
            let error = client.send_streaming(request.body(up(1)).unwrap()).await.unwrap_err();
            assert!(matches!(error, Error::Request(_)), "{error}");
        }
        let right = Request::put("/up").header("content-length", "3").body(Full::new(Bytes::from("xyz")));
        let mut body = client.send_streaming(right.unwrap()).await.unwrap().into_body();
        assert_eq!(body.next().await.unwrap().unwrap(), b"3"[..]);
        assert_eq!(client.statistics().connected, 1);
    }
}

#[tokio::test]
async fn responses_whose_bodies_are_streams() {
    let (server, _) = serve();
    for client in clients(&server) {
        for count in [0, 1, 700] {
            let request = Request::get(format!("/down/{count}")).body(Full::<Bytes>::default()).unwrap();
            let response = client.send_streaming(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let collected = response.into_body().collect().await.unwrap();
            // Trailers are the client's to ask for by HTTP/1.1 (TE).
            if let Some(trailers) = collected.trailers() {
                assert_eq!(trailers["x-sum"], count.to_string().as_str());
            }
            let body = collected.to_bytes();
            assert_eq!(body.len(), count * PIECE);
            assert!(body.chunks(PIECE).enumerate().all(|(n, chunk)| chunk.iter().all(|b| *b == n as u8)));
        }
        // Whole ones have them among their extensions.
        let whole = client.get("/down/2").await.unwrap();
        let trailers = whole.extensions().get::<linerate::client::Trailers>();
        assert!(trailers.is_none_or(|trailers| trailers.0["x-sum"] == "2"));
    }
}

#[tokio::test]
async fn both_bodies_flow_at_once() {
    let (server, _) = serve();
    for client in clients(&server) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let body = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|piece| (Ok::<_, Infallible>(Frame::data(piece)), receiver))
        });
        let request = Request::post("/both").body(StreamBody::new(body)).unwrap();
        sender.send(Bytes::from("first")).unwrap();
        let mut body = client.send_streaming(request).await.unwrap().into_body();
        assert_eq!(body.next().await.unwrap().unwrap(), b"first"[..]);
        for n in 0..20 {
            let word = format!("word {n}");
            sender.send(Bytes::from(word.clone())).unwrap();
            assert_eq!(body.next().await.unwrap().unwrap(), word.as_bytes());
        }
        drop(sender);
        assert!(body.next().await.is_none());
    }
}

#[tokio::test]
async fn a_caller_that_takes_nothing_holds_the_server_back_and_no_other_call() {
    let (server, given) = serve();
    for client in clients(&server) {
        let before = given.load(Ordering::Relaxed);
        let request = Request::get("/down/100000").body(Full::<Bytes>::default()).unwrap();
        let mut body = client.send_streaming(request).await.unwrap().into_body();
        body.next().await.unwrap().unwrap();
        for _ in 0..50 {
            client.get("/down/1").await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let taken = (given.load(Ordering::Relaxed) - before) * PIECE;
        // The windows of HTTP/2 and the kernel's buffers.
        assert!(taken < 100 << 20, "{taken} bytes of a body that nobody takes");
        let mut left = 300;
        while left > 0 {
            body.next().await.unwrap().unwrap();
            left -= 1;
        }
        drop(body);
        let many = futures_util::future::join_all((0..20).map(|_| client.get("/down/1"))).await;
        assert!(many.iter().all(Result::is_ok), "{many:?}");
        tokio::task::yield_now().await;
        assert_eq!(client.statistics().waiting, 0);
    }
}

#[tokio::test]
async fn a_body_that_fails_does_not_pass_for_a_whole_one() {
    let (server, _) = serve();
    for client in clients(&server) {
        let frames = stream::iter((0..30).map(|n| match n {
            20 => Err("the disk is gone"),
            _ => Ok(Frame::data(piece(n))),
        }));
        let request = Request::put("/up").body(StreamBody::new(frames)).unwrap();
        let error = client.send_streaming(request).await.unwrap_err();
        assert!(matches!(&error, Error::Request(why) if why.contains("the disk is gone")), "{error}");
        assert_eq!(client.get("/up").await.unwrap().body(), "0");
    }
}

#[tokio::test]
async fn a_body_that_panics_ends_its_call() {
    let (server, _) = serve();
    for client in clients(&server) {
        let frames = stream::iter(0..30).map(|n| -> Frames {
            assert!(n < 20, "a bug in the program's body");
            Ok(Frame::data(piece(n)))
        });
        let call = client.send_streaming(Request::put("/up").body(StreamBody::new(frames)).unwrap());
        let error = tokio::time::timeout(Duration::from_secs(5), call).await.unwrap().unwrap_err();
        assert!(matches!(&error, Error::Request(why) if why.contains("panicked")), "{error}");
        assert_eq!(client.get("/up").await.unwrap().body(), "0");
    }
}

#[tokio::test]
async fn a_streamed_call_is_dropped_at_each_poll() {
    let (server, _) = serve();
    for client in clients(&server) {
        for limit in 0..10 {
            let request = Request::put("/up").body(up(50)).unwrap();
            let mut call = std::pin::pin!(client.send_streaming(request));
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                if polls > limit {
                    return std::task::Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                call.as_mut().poll(cx).map(drop)
            })
            .await;
        }
        assert_eq!(client.get("/up").await.unwrap().body(), "0");
    }
}

/// All of them run on one thread.
#[tokio::test]
async fn a_body_of_empty_frames_without_end_keeps_no_other_task_from_its_turn() {
    let (server, _) = serve();
    let client = Client::builder(&format!("http://{}", server.clear.addr())).build().unwrap();
    let empty = stream::repeat_with(|| -> Frames { Ok(Frame::data(Bytes::new())) });
    let endless = Request::put("/up").body(StreamBody::new(empty)).unwrap();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.send_streaming(endless).await.map(|_| ()) }
    });
    for _ in 0..10 {
        let get = client.get("/down/1");
        let response =
            tokio::time::timeout(Duration::from_secs(20), get).await.expect("others have their turn");
        assert_eq!(response.unwrap().body().len(), PIECE);
    }
    call.abort();
}
