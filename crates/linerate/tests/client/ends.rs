//! How calls and clients end.

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use linerate::client::{Client, Error, ErrorKind, Phase, Resend, Template};

use crate::server::{Does, Server, ok};
use crate::{echo, get};

/// Sockets of this process that are connected to an address.
pub(crate) fn sockets_to(address: SocketAddr) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut inodes = Vec::new();
    for number in numbers {
        if let Ok(link) = std::fs::read_link(format!("/proc/self/fd/{number}")) {
            inodes.extend(
                link.to_str().and_then(|l| Some(l.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())),
            );
        }
    }
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = |fields: &Vec<&str>| {
        fields.len() > 9 && fields[2].ends_with(&port) && inodes.iter().any(|inode| inode == fields[9])
    };
    lines.by_ref().filter(ours).count()
}

/// Until a condition holds. The client closes in a task of its own.
async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to hold");
}

#[tokio::test]
async fn a_dropped_client_leaves_no_task_and_no_descriptor() {
    let server = echo();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = Client::builder(&server.url()).pipes(4).depth(2).build().unwrap();
    let calls = (0..100).map(|n| client.get(&format!("/{n}")));
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    assert!(sockets_to(server.address) >= 1);
    let clone = client.clone();
    drop(client);
    assert_eq!(clone.get("/").await.unwrap().status(), StatusCode::OK);
    drop(clone);
    until(|| sockets_to(server.address) == 0).await;
    until(|| tokio::runtime::Handle::current().metrics().num_alive_tasks() == tasks).await;
}

#[tokio::test]
async fn a_call_outlives_its_client() {
    let server = echo();
    let client = Client::builder(&server.url()).build().unwrap();
    let call = client.get("/late");
    let stream = client.send_all(futures_util::stream::iter((0..10).map(|n| get(format!("/{n}")))));
    drop(client);
    assert_eq!(call.await.unwrap().body(), &b"/late"[..]);
    assert_eq!(stream.filter(|r| std::future::ready(r.is_ok())).count().await, 10);
    until(|| sockets_to(server.address) == 0).await;
}

#[test]
fn calls_end_when_the_runtime_does() {
    let server = Server::start(|_| Does::Nothing);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::builder(&server.url()).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let mut call = Box::pin(client.get("/"));
    let waited = first.block_on(async { tokio::time::timeout(Duration::from_millis(50), &mut call).await });
    assert!(waited.is_err());
    drop(first);
    assert!(matches!(second.block_on(call), Err(Error::Closed)));
    assert!(matches!(second.block_on(client.get("/")), Err(Error::Closed)));
    let mut all = client.send_all(futures_util::stream::iter([get("/"), get("/")]));
    assert!(matches!(second.block_on(all.next()), Some(Err(Error::Closed))));
    assert_eq!(second.block_on(all.count()), 1);
}

#[test]
fn outside_of_a_runtime_a_call_says_what_is_missing() {
    let client = Client::builder("http://127.0.0.1:1").build().unwrap();
    let mut call = std::pin::pin!(client.get("/"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = std::future::Future::poll(call.as_mut(), &mut cx) else {
        panic!("it waits")
    };
    assert!(error.to_string().contains("hint: await calls inside one"), "{error}");
}

#[tokio::test]
async fn a_request_whose_outcome_is_unknown_comes_back() {
    let server = Server::start(|request| match request.method() {
        "POST" => Does::Closes(Vec::new()),
        _ => ok("ok"),
    });
    let client = Client::builder(&server.url()).build().unwrap();
    client.get("/").await.unwrap();
    let request = Request::post("/order").header("x-key", "7").body(Bytes::from_static(b"one")).unwrap();
    let error = client.send(request).await.unwrap_err();
    assert!(error.to_string().contains("POST /order before you send it again"), "{error}");
    let request = error.into_request().expect("the request");
    assert_eq!((request.headers()["x-key"].as_bytes(), &request.body()[..]), (&b"7"[..], &b"one"[..]));
    assert_eq!(server.requests().iter().filter(|r| r.method() == "POST").count(), 1);
}

#[tokio::test]
async fn a_server_that_closes_after_some_requests_loses_none() {
    let server = Server::start(|request| match request.nth {
        9 => Does::Closes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        _ => ok("ok"),
    });
    let client = Client::builder(&server.url()).pipes(2).depth(32).build().unwrap();
    let requests = futures_util::stream::iter((0..2000).map(|n| get(format!("/{n}"))));
    let ended: Vec<_> = client.send_all(requests).collect().await;
    assert!(ended.iter().all(|r| r.as_ref().is_ok_and(|r| r.status() == 200)), "{:?}", client.statistics());
    assert_eq!(client.statistics().learnt_limit, Some(10));
    let posts = (0..100).map(|n| client.post(&format!("/{n}"), "x"));
    let posts = futures_util::future::join_all(posts).await;
    assert!(posts.iter().all(|r| matches!(r, Ok(_) | Err(Error::OutcomeUnknown(_)))), "{posts:?}");
    assert_eq!(server.requests().iter().filter(|r| r.method() == "POST").count(), 100);
}

#[tokio::test]
async fn refused_and_silent_servers() {
    let client = Client::builder("http://127.0.0.1:1").connect_attempts(2).build().unwrap();
    let error = client.get("/").await.unwrap_err();
    assert!(matches!(&error, Error::Connect(why) if why.contains("refused")), "{error}");
    assert_eq!((error.kind(), error.address()), (ErrorKind::Connect, Some(([127, 0, 0, 1], 1).into())));
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
    let server = Server::start(|_| Does::Nothing);
    let silent = Client::builder(&server.url()).timeout(Duration::from_millis(300)).resend(Resend::Never);
    let error = silent.build().unwrap().get("/").await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Response, .. }), "{error}");
    let silent = Client::builder(&server.url()).first_byte_timeout(Duration::from_millis(100));
    let error = silent.build().unwrap().get("/").await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::FirstByte, .. }), "{error}");
}

/// The only thread of the program is busy while the response arrives, and for longer than the time-out.
#[tokio::test]
async fn a_response_that_has_arrived_is_not_late() {
    let server = Server::start(|request| {
        if request.nth > 0 {
            // The response arrives while the client's thread is blocked.
            std::thread::sleep(Duration::from_millis(20));
        }
        ok("ok")
    });
    let client = Client::builder(&server.url()).timeout(Duration::from_millis(300)).build().unwrap();
    client.get("/").await.unwrap();
    let mut call = Box::pin(client.post("/order", "one"));
    let first = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
    assert!(first.is_pending());
    // It has left.
    until(|| server.requests().len() == 2).await;
    // Blocks the thread of the client on purpose.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(call.await.unwrap().status(), 200);
}

/// The server closed the idle connection while the only thread was busy.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_takes_no_request() {
    let server = Server::start(|request| match request.path() {
        "/last" => Does::Closes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        _ => ok("ok"),
    });
    for _ in 0..10 {
        let client = Client::builder(&server.url()).pipes(1).build().unwrap();
        client.get("/last").await.unwrap();
        // Blocks the thread of the client on purpose, until the server's FIN is there.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(client.post("/order", "one").await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn requests_that_a_panicking_stream_had_given_do_not_keep_their_places() {
    let server = Server::start(|_| ok("ok"));
    let client = Client::builder(&server.url()).queue(4).build().unwrap();
    client.get("/").await.unwrap();
    for _ in 0..8 {
        let requests = futures_util::stream::iter(0..3).map(|n| {
            assert!(n < 2, "the stream of requests panics");
            get(format!("/{n}"))
        });
        let task = {
            let client = client.clone();
            tokio::spawn(async move { client.send_all(requests).count().await })
        };
        assert!(task.await.unwrap_err().is_panic());
    }
    let calls = futures_util::future::join_all((0..4).map(|_| client.get("/"))).await;
    assert!(calls.iter().all(Result::is_ok));
    let four = client.send_all(futures_util::stream::iter((0..4).map(|n| get(format!("/{n}")))));
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), four.count()).await, Ok(4));
}

/// A server that refuses an upload and closes resets the connection, because bytes are unread. Its
/// response has arrived by then.
#[tokio::test]
async fn a_response_before_a_reset_is_read() {
    const REFUSAL: &[u8] = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if stream.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {
                // The client may have left.
                let _ = stream.write_all(REFUSAL);
            }
        }
    });
    let client = Client::builder(&format!("http://{address}")).pipes(1).build().unwrap();
    for whole in [true, false] {
        for _ in 0..40 {
            let pieces = stream::iter(0..if whole { 1 } else { 300 });
            let bytes = Bytes::from(vec![b'a'; if whole { 3_000_000 } else { 10_000 }]);
            let pieces = pieces.map(move |_| Ok::<_, std::io::Error>(Frame::data(bytes.clone())));
            let request = Request::put("/").body(StreamBody::new(pieces)).unwrap();
            let response = client.send_streaming(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
    let template = Template::post("/").unwrap().body(&"a".repeat(3_000_000));
    let counted = client.send_counted(template, 40).await.unwrap();
    assert_eq!((counted.responses, counted.by_class[4], counted.failed), (40, 40, 0), "{counted:?}");
}
