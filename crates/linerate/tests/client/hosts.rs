//! Several servers by one client.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Request;
use linerate::client::{Client, Error, ErrorKind, Hosts, Phase, Redirects, RequestOptions, ResponseExt as _};
use tower::ServiceExt as _;

use crate::server::{Does, Server, ok};
use crate::{echo, get};

fn redirect(status: u16, to: &str) -> Does {
    Does::Says(format!("HTTP/1.1 {status} No\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes())
}

#[tokio::test]
async fn a_thousand_origins_within_the_limit() {
    let server = Server::on(TcpListener::bind("0.0.0.0:0").unwrap(), |request| {
        ok(request.head.lines().find(|line| line.starts_with("host: ")).unwrap())
    });
    let port = server.address.port();
    let hosts = Hosts::builder().origins(16).each(|client| client.pipes(2)).build().unwrap();
    let calls = (0..1000).map(|n| {
        let authority = format!("127.0.{}.{}:{port}", n / 250 + 1, n % 250 + 1);
        let call = hosts.get(&format!("http://{authority}/"));
        async move { (call.await, authority) }
    });
    let mut calls = std::pin::pin!(futures_util::stream::iter(calls).buffer_unordered(100));
    let mut seen = BTreeSet::new();
    while let Some((response, authority)) = calls.next().await {
        assert_eq!(response.unwrap().body(), format!("host: {authority}").as_bytes());
        assert!(hosts.open_origins() <= 16);
        seen.insert(authority);
    }
    assert_eq!(seen.len(), 1000);
}

#[tokio::test]
async fn an_origin_that_is_in_use_keeps_its_place() {
    let (silent, other) = (Server::start(|_| Does::Nothing), echo());
    let hosts = Hosts::builder().origins(1).build().unwrap();
    let waits = tokio::spawn(hosts.get(&format!("{}/a", silent.url())));
    while silent.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let soon = RequestOptions::default().timeout(Duration::from_millis(50));
    let request = Request::get(format!("{}/b", other.url())).extension(soon).body(Bytes::new()).unwrap();
    let error = hosts.send(request).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Limit, .. }), "{error}");
    let next = tokio::spawn(hosts.get(&format!("{}/b", other.url())));
    waits.abort();
    assert_eq!(next.await.unwrap().unwrap().body(), "/b", "the place is free again");
    assert_eq!(hosts.open_origins(), 1);
}

/// Requests that servers of several origins are at work on at once, each for 10 ms.
#[derive(Clone, Default)]
struct AtWork(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl AtWork {
    fn server(&self) -> Server {
        let AtWork(now, most) = self.clone();
        Server::start(move |request| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
            ok(request.path())
        })
    }

    fn most(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_limit_in_all_is_shared_by_origins() {
    let at_work = AtWork::default();
    let servers = [at_work.server(), at_work.server(), at_work.server()];
    let hosts = Hosts::builder().connections(4).each(|client| client.pipes(4)).build().unwrap();
    let calls = (0..90).map(|n| hosts.get(&format!("{}/{n}", servers[n % 3].url())));
    for (n, response) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(response.unwrap().body(), format!("/{n}").as_bytes());
    }
    assert!((2..=4).contains(&at_work.most()), "{}", at_work.most());
}

#[tokio::test]
async fn an_origin_with_all_connections_gives_some_up() {
    let at_work = AtWork::default();
    let (busy, other) = (at_work.server(), at_work.server());
    let hosts = Hosts::builder().connections(4).each(|client| client.pipes(4).depth(4)).build().unwrap();
    let all = tokio::spawn(futures_util::future::join_all(
        (0..400).map(|n| hosts.get(&format!("{}/{n}", busy.url()))),
    ));
    while busy.requests().len() < 40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(hosts.get(&format!("{}/b", other.url())).await.unwrap().body(), "/b");
    assert!(!all.is_finished(), "the other origin waited for all of them");
    assert!(all.await.unwrap().into_iter().all(|response| response.is_ok()));
    assert!(at_work.most() <= 4, "{}", at_work.most());
    assert!(Hosts::builder().connections(0).build().is_err());
}

/// The idle connections of one origin go to another that wants as many.
#[tokio::test]
async fn an_idle_origin_gives_up_as_many_as_another_wants() {
    let (first, second) = (AtWork::default(), AtWork::default());
    let servers = [first.server(), second.server()];
    let hosts = Hosts::builder().connections(4).each(|client| client.pipes(4).depth(1)).build().unwrap();
    for (server, at_work) in servers.iter().zip([first, second]) {
        while at_work.most() < 4 {
            let calls = (0..400).map(|n| hosts.get(&format!("{}/{n}", server.url())));
            let calls = futures_util::future::join_all(calls);
            let all = tokio::time::timeout(Duration::from_secs(20), calls).await.unwrap();
            assert!(all.into_iter().all(|response| response.is_ok()));
            assert_eq!(at_work.most(), 4, "400 calls of 10 ms each");
        }
    }
}

/// Calls that follow each other, beside an origin that wants all connections, keep theirs.
#[tokio::test]
async fn calls_between_which_a_connection_is_idle_keep_it() {
    let at_work = AtWork::default();
    let (busy, other) = (at_work.server(), at_work.server());
    let hosts = Hosts::builder().connections(4).each(|client| client.pipes(4).depth(4)).build().unwrap();
    let all = tokio::spawn(futures_util::future::join_all(
        (0..800).map(|n| hosts.get(&format!("{}/{n}", busy.url()))),
    ));
    let mut calls = 0;
    while !all.is_finished() {
        hosts.get(&format!("{}/b", other.url())).await.unwrap();
        calls += 1;
    }
    assert!(all.await.unwrap().into_iter().all(|response| response.is_ok()));
    assert!(calls >= 20 && other.connections() <= 1 + calls / 10, "{} for {calls}", other.connections());
}

/// What a program does when the client of an origin is made holds no other call up: it may use the client itself.
#[tokio::test]
async fn a_client_of_an_origin_is_made_beside_the_others() {
    let (first, second) = (echo(), echo());
    let own = Arc::new(OnceLock::<Hosts>::new());
    let (seen, made) = (own.clone(), Arc::new(AtomicUsize::new(0)));
    let count = made.clone();
    let hosts = Hosts::builder().origins(2).each(move |client| {
        count.fetch_add(1, Ordering::Relaxed);
        assert!(seen.get().is_none_or(|hosts| hosts.open_origins() <= 2));
        client
    });
    let hosts = hosts.build().unwrap();
    own.set(hosts.clone()).unwrap();
    for url in [first.url(), second.url(), first.url()] {
        assert_eq!(hosts.get(&format!("{url}/a")).await.unwrap().body(), "/a");
    }
    assert_eq!(made.load(Ordering::Relaxed), 2 + 2, "two schemes are tried when it is built");
}

#[tokio::test]
async fn redirects_between_servers_leave_secrets_behind() {
    let end = Server::start(|request| ok(&request.head));
    let to = format!("{}/end?a=b", end.url());
    let first = Server::start(move |request| match request.path() {
        "/form" => redirect(303, "done/../next"),
        _ => redirect(307, &to),
    });
    let hosts = Hosts::builder().build().unwrap();
    let form = Request::post(format!("{}/form", first.url())).header("authorization", "secret");
    let response = hosts.send(form.header("accept", "*/*").body("a=1".into()).unwrap()).await.unwrap();
    assert_eq!(response.uri().unwrap().to_string(), format!("{}/end?a=b", end.url()));
    let head = String::from_utf8_lossy(response.body()).into_owned();
    assert!(head.starts_with("GET /end?a=b ") && head.contains("accept: */*"), "{head}");
    assert!(!head.contains("secret"), "{head}");
    let seen: Vec<_> = first.requests().iter().map(|r| format!("{} {}", r.method(), r.path())).collect();
    assert_eq!(seen, ["POST /form", "GET /next"]);
    assert!(first.requests()[1].head.contains("authorization: secret"), "the same server may see it");
    let none = Hosts::builder().redirects(Redirects::none()).build().unwrap();
    assert_eq!(none.get(&format!("{}/form", first.url())).await.unwrap().status(), 303);
    let service = hosts.oneshot(get(format!("{}/form", first.url())).map(|_| String::new())).await.unwrap();
    assert_eq!(service.status(), 303, "layers of tower follow them");
}

#[tokio::test]
async fn redirects_that_go_round_are_named() {
    let server = Server::start(|request| match request.path() {
        "/a" => redirect(302, "/b"),
        _ => redirect(302, "/a"),
    });
    let hosts = Hosts::builder().build().unwrap();
    let error = hosts.get(&format!("{}/a", server.url())).await.unwrap_err();
    assert_eq!((error.kind(), error.is_unsent()), (ErrorKind::Redirect, false));
    let url = server.url();
    assert!(error.to_string().contains(&format!("{url}/a -> {url}/b -> {url}/a")), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn names_lead_where_the_program_says() {
    let server = Server::start(|request| ok(&request.head));
    let hosts = Hosts::builder().resolve("Shop.Example", [server.address]).build().unwrap();
    let response = hosts.get("http://shop.example/ü").await.unwrap();
    let head = String::from_utf8_lossy(response.body()).into_owned();
    assert!(head.starts_with("GET /%C3%BC ") && head.contains("host: shop.example\r\n"), "{head}");
    let client = Client::builder("http://other.example:81").resolve([server.address]).build().unwrap();
    let head = String::from_utf8_lossy(client.get("/").await.unwrap().body()).into_owned();
    assert!(head.contains("host: other.example:81"), "{head}");
    let error = hosts.get("/path").await.unwrap_err().to_string();
    assert!(error.contains("http://HOST:PORT/PATH"), "{error}");
}

#[tokio::test]
async fn over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let start =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", head.len());
            stream.write_all(&[start.as_bytes(), &head].concat()).unwrap();
        }
    });
    let client = Client::builder("http://docker").unix_socket(&path).connection_info().build().unwrap();
    let hosts = Hosts::builder().unix_socket("docker", &path).build().unwrap();
    let response = client.get("/b").await.unwrap();
    let connection = response.connection().unwrap();
    assert_eq!((connection.local, connection.peer), (None, None));
    for response in [client.get("/a").await, hosts.get("http://docker/a").await] {
        let head = String::from_utf8_lossy(response.unwrap().body()).into_owned();
        assert!(head.starts_with("GET /a ") && head.contains("host: docker\r\n"), "{head}");
    }
    let gone = Client::builder("http://docker").unix_socket(folder.path().join("gone")).build().unwrap();
    let error = gone.get("/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    let error = Client::builder("http://a").unix_socket("x".repeat(108)).build().unwrap_err().to_string();
    assert!(error.contains("107 bytes"), "{error}");
}
