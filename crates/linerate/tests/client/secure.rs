//! HTTPS and HTTP/2 against our own server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, StatusCode, Version};
use linerate::client::{Client, Error, Protocol, Template};
use linerate::serve::{self, Handle, Response, ServerOptions, TlsIdentity, TlsOptions, spawn_with};

/// A certificate of `localhost` and its key.
pub(crate) fn issued() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

pub(crate) struct Secure {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) server: Handle,
}

/// `METHOD PATH BODY` by the version that was spoken; `/slow` takes long.
pub(crate) async fn echo(mut request: serve::Request) -> Response {
    if request.path().starts_with("/slow") {
        serve::sleep(Duration::from_millis(300)).await;
    }
    let body = request.body().collect(1 << 26).await.unwrap();
    let method = format!("{:?}", request.method()).to_uppercase();
    let said = format!("{method} {} {}", request.path(), body.len());
    Response::text(said)
}

pub(crate) fn secure(alpn: &[&str], asks: bool) -> Secure {
    secure_with(alpn, asks, || echo)
}

/// The same with another handler.
pub(crate) fn secure_with<H: serve::Handler>(
    alpn: &[&str],
    asks: bool,
    handler: impl Fn() -> H + Clone + Send + 'static,
) -> Secure {
    let (certificate, key) = issued();
    let identity = TlsIdentity::from_pem(("cert", certificate.as_bytes()), ("key", key.as_bytes())).unwrap();
    let mut options = TlsOptions::new(identity);
    let (quic, tcp): (Vec<&str>, Vec<&str>) = alpn.iter().partition(|name| **name == "h3");
    options.alpn = tcp.iter().map(|name| name.as_bytes().to_vec()).collect();
    options.client_roots = asks.then(|| ("cert".to_owned(), certificate.clone().into_bytes()));
    let tls = Some(options.build().unwrap());
    let options = ServerOptions { tls, http3: !quic.is_empty(), ..ServerOptions::default() };
    let server = spawn_with(options, handler).unwrap();
    Secure { certificate, key, server }
}

impl Secure {
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.server.addr().port())
    }

    pub(crate) fn client(&self) -> linerate::client::Builder {
        Client::builder(&self.url()).add_root(&self.certificate)
    }
}

/// Each way of sending; the client sees this version.
pub(crate) async fn each_way(client: &Client, version: Version) {
    let response = client.get("/a").await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, version));
    assert_eq!(response.body(), &b"GET /a 0"[..]);
    let posted = client.post("/p", vec![b'x'; 1 << 20]).await.unwrap();
    assert_eq!(posted.body(), &b"POST /p 1048576"[..]);
    let head = client.send(Request::head("/h").body(Bytes::new()).unwrap()).await.unwrap();
    assert!(head.body().is_empty() && head.headers()["content-length"] == "9");
    let paths = |n: u32| {
        let request = |n| Request::get(format!("/{n}")).body(Bytes::new()).unwrap();
        futures_util::stream::iter((0..n).map(request))
    };
    let mut ordered = client.send_all(paths(2000));
    let mut next = 0;
    while let Some(response) = ordered.next().await {
        assert_eq!(response.unwrap().body(), format!("GET /{next} 0").as_bytes());
        next += 1;
    }
    assert_eq!(next, 2000);
    let mut unordered = client.send_all_unordered(paths(2000));
    let mut seen = 0;
    while let Some((index, response)) = unordered.next().await {
        assert_eq!(response.unwrap().body(), format!("GET /{index} 0").as_bytes());
        seen += 1;
    }
    assert_eq!(seen, 2000);
    let counted = client.send_counted(Template::get("/item/{{seq}}").unwrap(), 5000).await.unwrap();
    assert_eq!((counted.responses, counted.by_class[2], counted.failed), (5000, 5000, 0), "{counted:?}");
    let posts = Template::post("/item/{{seq}}").unwrap().body("{{seq}}");
    let counted = client.send_counted(posts, 500).await.unwrap();
    assert_eq!((counted.responses, counted.by_class[2]), (500, 500), "{counted:?}");
}

#[tokio::test]
async fn https_by_either_version() {
    let both = secure(&["h2", "http/1.1"], false);
    each_way(&both.client().build().unwrap(), Version::HTTP_2).await;
    each_way(&both.client().protocol(Protocol::Http2).build().unwrap(), Version::HTTP_2).await;
    each_way(&both.client().protocol(Protocol::Http1).build().unwrap(), Version::HTTP_11).await;
    let old = secure(&["http/1.1"], false);
    each_way(&old.client().build().unwrap(), Version::HTTP_11).await;
    let error = old.client().protocol(Protocol::Http2).build().unwrap().get("/").await.unwrap_err();
    assert!(error.is_unsent(), "{error}");
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let server = spawn_with(ServerOptions::default(), || echo).unwrap();
    let client =
        Client::builder(&format!("http://{}", server.addr())).protocol(Protocol::Http2).build().unwrap();
    each_way(&client, Version::HTTP_2).await;
    assert_eq!(client.statistics().connected, 1);
}

/// Where all streams of a connection are taken by slow calls, another opens; quick calls share one.
#[tokio::test]
async fn connections_over_http2_grow_while_responses_are_slow() {
    let server = secure(&["h2"], false);
    for (path, connections) in [("/quick", 1..=1), ("/slow", 2..=8)] {
        let client = server.client().build().unwrap();
        client.get("/").await.unwrap();
        for _ in 0..3 {
            let calls = (0..1000).map(|n| client.get(&format!("{path}/{n}")));
            assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
        }
        let connected = client.statistics().connected;
        assert!(connections.contains(&connected), "{path}: {connected}");
    }
}

/// As nginx does after `keepalive_requests`.
#[tokio::test]
async fn a_server_that_closes_often_costs_no_request() {
    let closing = |request: serve::Request| async move {
        let response = Response::text("ok");
        if request.path().ends_with("00") { response.closing() } else { response }
    };
    let tls = secure_with(&["h2"], false, move || closing);
    let plain = spawn_with(ServerOptions::default(), move || closing).unwrap();
    let url = format!("http://{}", plain.addr());
    for builder in [tls.client(), Client::builder(&url).protocol(Protocol::Http2)] {
        let client = builder.depth(16).build().unwrap();
        let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), 20_000).await.unwrap();
        assert_eq!((counted.responses, &counted.first_failure), (20_000, &None), "{counted:?}");
    }
}

#[tokio::test]
async fn one_connection_carries_many_streams_at_once() {
    let both = secure(&["h2"], false);
    let client = both.client().build().unwrap();
    let begun = std::time::Instant::now();
    let calls = (0..50).map(|n| client.post(&format!("/slow/{n}"), "x"));
    for response in futures_util::future::join_all(calls).await {
        assert_eq!(response.unwrap().version(), Version::HTTP_2);
    }
    // One after the other they would take 15 s.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(client.statistics().connected, 1);
    let several = both.client().depth(4).h2_connections(3).build().unwrap();
    several.get("/").await.unwrap();
    let calls = (0..12).map(|n| several.get(&format!("/slow/{n}")));
    for response in futures_util::future::join_all(calls).await {
        response.unwrap();
    }
    assert_eq!(several.statistics().connected, 3);
}

#[tokio::test]
async fn certificates() {
    let asks = secure(&["h2", "http/1.1"], true);
    let client = asks.client().client_certificate(&asks.certificate, &asks.key).build().unwrap();
    assert_eq!(client.get("/c").await.unwrap().body(), &b"GET /c 0"[..]);
    let anonymous = asks.client().build().unwrap().get("/").await.unwrap_err();
    assert!(!matches!(anonymous, Error::OutcomeUnknown(_)), "{anonymous}");
    let server = secure(&["h2"], false);
    let url = server.url();
    let stranger = Client::builder(&url).build().unwrap().get("/").await.unwrap_err();
    assert!(stranger.is_unsent() && stranger.to_string().contains("TLS"), "{stranger}");
    let other_name = server.client().server_name("example.org").build().unwrap();
    let error = other_name.get("/").await.unwrap_err().to_string();
    assert!(error.contains("example.org"), "{error}");
    let only = Client::builder(&url).add_root(&server.certificate).only_added_roots().build().unwrap();
    only.get("/").await.unwrap();
    let insecure = Client::builder(&url).danger_accept_any_certificate().build().unwrap();
    insecure.get("/").await.unwrap();
    let by_address = format!("https://127.0.0.1:{}", server.server.addr().port());
    let named = Client::builder(&by_address).add_root(&server.certificate).server_name("localhost");
    // Host is not the certificate's name, which is the program's choice.
    named.build().unwrap().get("/").await.unwrap();
    for (builder, words) in [
        (Client::builder("http://localhost").add_root("x"), "hint: write https://"),
        (Client::builder("https://localhost").add_root("x"), "add_root"),
        (Client::builder("https://localhost").client_certificate("x", "y"), "client_certificate"),
        (Client::builder("https://localhost").server_name("a b"), "no name"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_future_resets_its_stream_and_no_other() {
    let both = secure(&["h2"], false);
    let client = both.client().depth(8).build().unwrap();
    client.get("/").await.unwrap();
    for round in 0..20 {
        let kept = client.get("/slow/kept");
        let dropped: Vec<_> = (0..7).map(|n| client.get(&format!("/slow/{round}/{n}"))).collect();
        let dropping = async {
            let all = futures_util::future::join_all(dropped);
            let _ = tokio::time::timeout(Duration::from_millis(5), all).await;
        };
        let ((), kept) = tokio::join!(dropping, kept);
        assert_eq!(kept.unwrap().body(), &b"GET /slow/kept 0"[..]);
    }
    let statistics = client.statistics();
    assert_eq!((statistics.connected, statistics.lost), (1, 0), "{statistics:?}");
    assert!(statistics.cancelled >= 100, "{statistics:?}");
}

#[tokio::test]
async fn a_future_is_dropped_at_each_poll_over_http2() {
    let both = secure(&["h2"], false);
    let client = both.client().build().unwrap();
    client.get("/").await.unwrap();
    for limit in 0..12 {
        let polls = AtomicUsize::new(0);
        {
            let mut call = std::pin::pin!(client.post("/p", "x"));
            let dropped = std::future::poll_fn(|cx| {
                if polls.fetch_add(1, Ordering::Relaxed) >= limit {
                    return std::task::Poll::Ready(());
                }
                // It is polled whether or not there is news.
                cx.waker().wake_by_ref();
                call.as_mut().poll(cx).map(|response| drop(response.unwrap()))
            });
            dropped.await;
        }
        let after = client.get(&format!("/{limit}")).await.unwrap();
        assert_eq!(after.body(), format!("GET /{limit} 0").as_bytes());
    }
    assert_eq!(client.statistics().connected, 1);
}

#[tokio::test]
async fn large_bodies_both_ways_at_once() {
    let back = |mut request: serve::Request| async move {
        Response::text(request.body().collect(1 << 26).await.unwrap())
    };
    let server = spawn_with(ServerOptions::default(), move || back).unwrap();
    let url = format!("http://{}", server.addr());
    let client = Client::builder(&url).protocol(Protocol::Http2).build().unwrap();
    let body = |n: usize| Bytes::from(vec![n as u8; (1 << 20) + n * 100_000]);
    let calls = (0..16).map(|n| client.send(Request::put(format!("/{n}")).body(body(n)).unwrap()));
    let all = tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(calls));
    for (n, response) in all.await.expect("they block each other").into_iter().enumerate() {
        assert!(response.unwrap().body() == &body(n), "body {n}");
    }
}

#[tokio::test]
async fn timeouts_end_streams_alone() {
    let seen = Arc::new(Mutex::new(0));
    let never = move |request: serve::Request| {
        let seen = seen.clone();
        async move {
            *seen.lock().unwrap() += 1;
            if request.path() == "/never" {
                std::future::pending::<()>().await;
            }
            Response::text("ok")
        }
    };
    let server = spawn_with(ServerOptions::default(), move || never.clone()).unwrap();
    let builder = Client::builder(&format!("http://{}", server.addr())).protocol(Protocol::Http2);
    let client = builder.first_byte_timeout(Duration::from_millis(100)).build().unwrap();
    let never = async {
        let get = client.get("/never").await.unwrap_err();
        assert!(matches!(get, Error::Timeout { phase: linerate::client::Phase::FirstByte, .. }), "{get}");
        let post = client.post("/never", "x").await.unwrap_err();
        assert!(matches!(post, Error::OutcomeUnknown(_)), "{post}");
    };
    let others = async {
        for _ in 0..40 {
            client.get("/").await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::join!(never, others);
    let statistics = client.statistics();
    assert_eq!((statistics.connected, statistics.lost), (1, 0), "{statistics:?}");
}
