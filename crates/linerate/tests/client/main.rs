//! `linerate::client` over sockets.

#![allow(clippy::unwrap_used)]

mod alternatives;
mod beside;
mod cancelling;
mod ends;
mod examples;
mod hosts;
mod http3;
mod metrics;
mod runner;
mod secure;
mod server;
mod shared_limit;
mod streaming;
mod tunnels;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, StatusCode};
use linerate::client::{Client, Error, Template};
use server::{Does, Server, ok};

fn get(path: impl AsRef<str>) -> Request<Bytes> {
    Request::get(path.as_ref()).body(Bytes::new()).unwrap()
}

/// Responds with the path.
fn echo() -> Server {
    Server::start(|request| ok(request.path()))
}

#[tokio::test]
async fn each_way_of_sending() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(4).depth(64).build().unwrap();
    let response = client.send(get("/a")).await.unwrap();
    assert_eq!((response.status(), &response.body()[..]), (StatusCode::OK, &b"/a"[..]));
    assert_eq!(response.headers()["server"], "test");
    let paths = |n: u32| (0..n).map(|n| get(format!("/{n}")));
    let mut ordered = client.send_all(futures_util::stream::iter(paths(5000)));
    let mut next = 0;
    while let Some(response) = ordered.next().await {
        assert_eq!(response.unwrap().body(), format!("/{next}").as_bytes());
        next += 1;
    }
    assert_eq!(next, 5000);
    let unordered = client.send_all_unordered(futures_util::stream::iter(paths(5000)));
    let mut seen: Vec<u64> = unordered
        .map(|(index, response)| {
            assert_eq!(response.unwrap().body(), format!("/{index}").as_bytes());
            index
        })
        .collect()
        .await;
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..5000));
    let counted = client.send_counted(Template::get("/item/{{seq}}").unwrap(), 10_000).await.unwrap();
    assert_eq!((counted.responses, counted.by_class[2], counted.failed), (10_000, 10_000, 0));
    assert!(server.connections() <= 8, "{} connections", server.connections());
}

#[tokio::test]
async fn conveniences() {
    let server = Server::start(|request| {
        let kind = request.head.lines().find(|line| line.starts_with("content-type")).unwrap_or("");
        ok(format!(
            "{} {} {kind} {}",
            request.method(),
            request.path(),
            String::from_utf8_lossy(&request.body)
        ))
    });
    let client = Client::builder(&server.url()).build().unwrap();
    let body = |response: Result<http::Response<Bytes>, Error>| {
        String::from_utf8(response.unwrap().into_body().to_vec()).unwrap()
    };
    assert_eq!(body(client.get("/a?b=c").await), "GET /a?b=c  ");
    assert_eq!(body(client.post("/p", "text").await), "POST /p  text");
    let json = client.json("/j", &serde_json::json!({"a": 1})).await;
    assert_eq!(body(json), "POST /j content-type: application/json {\"a\":1}");
    assert_eq!(body(client.get("/f").header("content-type", "a/b").await), "GET /f content-type: a/b ");
    for bad in [client.get("no path"), client.get("/").header("a b", "c"), client.get("/").header("a", "b\n")]
    {
        let error = bad.await.unwrap_err();
        assert!(matches!(error, Error::Request(_)), "{error}");
    }
    let head = client.send(Request::head("/h").body(Bytes::new()).unwrap()).await;
    // The server of this test sends a body all the same, which nothing asked for.
    assert!(head.unwrap().body().is_empty());
}

#[tokio::test]
async fn paths_are_percent_encoded_as_people_write_them() {
    let server = echo();
    let client = Client::builder(&server.url()).build().unwrap();
    client.get("/ü a?q=\"ß\"").await.unwrap();
    client.post("/%C3%BC/{x}", "b").await.unwrap();
    let paths: Vec<String> = server.requests().iter().map(|r| r.path().to_owned()).collect();
    assert_eq!(paths, ["/%C3%BC%20a?q=%22%C3%9F%22", "/%C3%BC/%7Bx%7D"]);
    let error = client.get("/a\r\nb").await.unwrap_err();
    assert!(matches!(error, Error::Request(_)), "{error}");
}

/// Of 1 MB each: no more are asked for than fit into the memory of a stream, whatever its window of calls.
#[tokio::test]
async fn a_caller_that_pauses_holds_few_large_responses() {
    let large = vec![b'x'; 1 << 20];
    let server = Arc::new(Server::start(move |_| ok(&large)));
    let client = Client::builder(&server.url()).build().unwrap();
    let mut calls = std::pin::pin!(client.send_all(futures_util::stream::iter((0..400).map(|_| get("/")))));
    for _ in 0..100 {
        assert_eq!(calls.next().await.unwrap().unwrap().body().len(), 1 << 20);
    }
    // The caller pauses until nothing moves any more.
    let (mut asked, mut quiet) = (0, 0);
    while quiet < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = server.requests().len();
        quiet = if now == asked { quiet + 1 } else { 0 };
        asked = now;
    }
    assert!(asked <= 100 + 65, "{asked} were asked for, and 100 are taken");
    assert_eq!(calls.filter(|response| std::future::ready(response.is_ok())).count().await, 300);
}

#[tokio::test]
async fn a_service_of_tower() {
    use tower_service::Service;
    let server = echo();
    let mut client = Client::builder(&server.url()).build().unwrap();
    let request = get("/t").map(http_body_util::Full::new);
    std::future::poll_fn(|cx| Service::<Request<http_body_util::Full<Bytes>>>::poll_ready(&mut client, cx))
        .await
        .unwrap();
    let mut body = client.call(request).await.unwrap().into_body();
    assert_eq!(body.next().await.unwrap().unwrap(), &b"/t"[..]);
    assert!(body.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_each_get_their_own_response() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(3).depth(16).queue(50).build().unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for n in 0..20 {
                    let path = format!("/{task}/{n}");
                    assert_eq!(client.get(&path).await.unwrap().body(), path.as_bytes());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(server.requests().len(), 4000);
}

#[tokio::test]
async fn queued_requests_leave_in_one_write() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(1).depth(64).build().unwrap();
    client.get("/first").await.unwrap();
    let calls = (0..50).map(|n| client.get(&format!("/{n}")));
    for response in futures_util::future::join_all(calls).await {
        response.unwrap();
    }
    assert_eq!(server.per_read(), [1, 50]);
}

#[tokio::test]
async fn full_buffers_on_both_sides_do_not_block_each_other() {
    const BODY: usize = 1 << 20;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // Accepted sockets inherit them.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(16).unwrap();
    // It writes each response to the end before it reads again.
    let server = Server::on(socket.into(), |request| ok(&request.body));
    let client = Client::builder(&server.url()).pipes(1).depth(8).build().unwrap();
    client.get("/").await.unwrap();
    let body = |n: u8| Bytes::from(vec![n; BODY]);
    let calls = (0..8).map(|n| client.send(Request::put(format!("/{n}")).body(body(n)).unwrap()));
    let responses =
        tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(calls)).await;
    for (n, response) in responses.expect("they block each other").into_iter().enumerate() {
        let got = response.unwrap().into_body();
        assert!(got.len() == BODY && got.iter().all(|b| *b == n as u8), "body {n}");
    }
}

#[tokio::test]
async fn a_stream_that_is_slow_to_give_requests() {
    let server = echo();
    let client = Client::builder(&server.url()).build().unwrap();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Request<Bytes>>();
    let requests = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|request| (request, receiver))
    });
    let mut responses = client.send_all(requests);
    for n in 0..5 {
        let path = format!("/{n}");
        sender.send(get(&path)).unwrap();
        assert_eq!(responses.next().await.unwrap().unwrap().body(), path.as_bytes());
    }
    drop(sender);
    assert!(responses.next().await.is_none());
}

#[tokio::test]
async fn streams_and_calls_share_few_places() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(1).depth(2).queue(3).build().unwrap();
    let paths = |n: u32| futures_util::stream::iter((0..n).map(|n| get(format!("/{n}"))));
    let count = |stream: linerate::client::SendAll<_>| async move {
        let ended: Vec<_> = stream.collect().await;
        ended.into_iter().filter(Result::is_ok).count()
    };
    let single = async {
        for n in 0..100 {
            client.get(&format!("/single/{n}")).await.unwrap();
        }
    };
    let (a, b, ()) =
        tokio::join!(count(client.send_all(paths(200))), count(client.send_all(paths(200))), single);
    assert_eq!((a, b), (200, 200));
}

#[tokio::test]
async fn statistics_count() {
    let server = echo();
    let client = Client::builder(&server.url()).pipes(2).build().unwrap();
    for _ in 0..10 {
        client.get("/").await.unwrap();
    }
    tokio::task::yield_now().await;
    let statistics = client.statistics();
    assert_eq!((statistics.calls, statistics.responses, statistics.connected), (10, 10, 1));
    assert_eq!(statistics.pipes.iter().map(|pipe| pipe.responses).sum::<u64>(), 10);
}

#[tokio::test]
async fn a_name_is_looked_up() {
    let server = echo();
    let url = format!("http://localhost:{}", server.address.port());
    let client = Client::builder(&url).build().unwrap();
    assert_eq!(client.get("/n").await.unwrap().body(), &b"/n"[..]);
    let client = Client::builder("http://no-such-name.invalid").build().unwrap();
    let error = client.get("/").await.unwrap_err();
    assert!(error.is_unsent() && error.to_string().contains("cannot be looked up"), "{error}");
}

#[tokio::test]
async fn a_counted_run_survives_closes_and_counts_each_request_once() {
    let server = Server::start(|request| match request.nth {
        99 => Does::Closes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        _ => ok("ok"),
    });
    let client = Client::builder(&server.url()).pipes(2).depth(32).build().unwrap();
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), 3000).await.unwrap();
    let sum = counted.responses + counted.failed + counted.unknown + counted.unsent;
    assert_eq!((sum, counted.responses), (3000, 3000), "{counted:?}");
    let mut paths: Vec<String> = server.requests().iter().map(|r| r.path().to_owned()).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), 3000);
    let post = client.send_counted(Template::post("/{{seq}}").unwrap().body("x"), 500).await.unwrap();
    assert_eq!(post.responses + post.unknown, 500, "{post:?}");
    let requests = server.requests();
    let mut posts: Vec<&str> = requests.iter().filter(|r| r.method() == "POST").map(|r| r.path()).collect();
    let seen = posts.len() as u64;
    posts.sort_unstable();
    posts.dedup();
    assert_eq!(posts.len() as u64, seen, "none is sent twice");
    // One that the server closed on without reading it is unknown.
    assert!((post.responses..=500).contains(&seen), "{seen} of {post:?}");
    drop(server);
    let gone = Client::builder("http://127.0.0.1:1").build().unwrap();
    let error = gone.send_counted(Template::get("/").unwrap(), 10).await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error}");
}

/// The server announces the close and leaves it to the client, whose table of connections fills meanwhile.
#[tokio::test]
async fn connections_that_are_still_closing_cost_no_request() {
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let server = Server::start(|_| Does::Says(closing.to_vec()));
    let client = Client::builder(&server.url()).pipes(1).build().unwrap();
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), 150).await.unwrap();
    assert_eq!((counted.responses, &counted.first_failure), (150, &None), "{counted:?}");
    let mut calls = client.send_all(futures_util::stream::iter((0..150).map(|n| get(format!("/{n}")))));
    while let Some(response) = calls.next().await {
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(client.statistics().connect_failures, 0);
}

/// Nothing else wakes the client then.
#[tokio::test]
async fn a_connection_that_only_waits_for_the_server_to_close_ends_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read(&mut [0; 1024])
    });
    let client = Client::builder(&url).build().unwrap();
    client.get("/").await.unwrap();
    assert_eq!(server.await.unwrap().expect("the client closes"), 0);
}

#[test]
fn settings_that_make_no_sense() {
    for (url, pipes, words) in [
        ("http://127.0.0.1", 0, "hint: take 1 to 1024"),
        ("127.0.0.1", 1, "has no scheme"),
        ("http://127.0.0.1/path", 1, "hint: give the path to each request"),
    ] {
        let error = Client::builder(url).pipes(pipes).build().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let shared: Arc<Client> = Arc::new(Client::builder("http://127.0.0.1").build().unwrap());
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    is_shared(&shared);
}

/// Without any setting: 100 calls of 200 ms at once take about as long as one. The server counts, so that a busy
/// machine changes nothing.
#[tokio::test]
async fn slow_calls_get_connections_of_their_own_by_default() {
    let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let now = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (seen, at_once) = (most.clone(), now.clone());
    let server = Server::start(move |_| {
        let n = at_once.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        seen.fetch_max(n, std::sync::atomic::Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        at_once.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        ok("")
    });
    let client = Client::builder(&server.url()).build().unwrap();
    let calls = (0..100).map(|_| client.get("/"));
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    let most = most.load(std::sync::atomic::Ordering::Relaxed);
    assert!(most >= 50, "{most} at once");
}

/// A program that wants the client alone builds neither load nor serve.
#[test]
fn the_client_alone_is_few_crates() {
    let words = "tree --offline -p linerate --no-default-features --features client -e normal --prefix none";
    let tree = std::process::Command::new(env!("CARGO")).args(words.split(' ')).output().unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let names = String::from_utf8(tree.stdout).unwrap();
    let names: std::collections::BTreeSet<_> =
        names.lines().filter_map(|line| line.split(' ').next()).collect();
    let ours: Vec<_> = names.iter().filter(|name| name.starts_with("linerate-")).collect();
    let wanted = ["linerate-base", "linerate-client", "linerate-http", "linerate-net", "linerate-tls"];
    assert!(ours.iter().all(|name| wanted.contains(name)), "{ours:?}");
    assert!(names.len() <= 50, "{}: {names:?}", names.len());
}
