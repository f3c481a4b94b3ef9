//! The examples do what they say.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use linerate::client::Client;

use crate::echo;
use crate::secure::{self, secure_with};
use crate::server::{Does, Server, ok};

#[path = "../../examples/calls.rs"]
mod calls;
#[path = "../../examples/crawler.rs"]
mod crawler;
#[path = "../../examples/download.rs"]
mod download;
#[path = "../../examples/http3.rs"]
mod http3;
#[path = "../../examples/layers.rs"]
mod layers;
#[path = "../../examples/links.rs"]
mod links;
#[path = "../../examples/own_loop.rs"]
mod own_loop;
#[path = "../../examples/proxy.rs"]
mod proxy;
#[path = "../../examples/rest.rs"]
mod rest;
#[path = "../../examples/uploader.rs"]
mod uploader;

/// docs/CLIENT.md shows the lines of both.
#[test]
fn no_example_is_much_longer_than_with_reqwest() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    // The attribute is there for these tests alone.
    let lines = |path: &str| read(path).lines().filter(|l| !l.starts_with("#[allow(dead_code")).count();
    let page = read("docs/CLIENT.md");
    for name in ["rest", "download", "uploader", "links", "proxy", "layers"] {
        let ours = lines(&format!("crates/linerate/examples/{name}.rs"));
        let theirs = lines(&format!("bench/peers/examples/reqwest_{name}.rs"));
        assert!(ours * 10 <= theirs * 11, "{name}.rs has {ours} lines, with reqwest {theirs}");
        let row = format!("| `{name}.rs` | {ours} | {theirs} |");
        assert!(page.contains(&row), "docs/CLIENT.md lacks {row}");
    }
}

#[tokio::test]
async fn the_ways_to_call_a_server() {
    assert_eq!(calls::run(&echo().url()).await.unwrap(), 100_000);
}

#[test]
fn a_client_in_the_programs_own_loop() {
    let bodies = own_loop::run(&echo().url()).unwrap();
    assert!(bodies.into_iter().eq((0..100).map(|n| format!("/{n}"))));
}

#[tokio::test]
async fn the_crawler_asks_for_each_page_once_and_heeds_what_is_forbidden() {
    let server = Server::start(|request| match request.path() {
        "/robots.txt" => ok("User-agent: *\nDisallow: /private\n"),
        "/" => ok((0..100).map(|n| format!("<a href=\"/{n}\">")).collect::<String>()),
        "/7" => ok("<a href=\"/private/x\"><a href=\"//elsewhere/\"><a href=\"/new#part\"><a href=\"/8\">"),
        _ => ok("<p>no links</p>"),
    });
    let pages = crawler::run(&server.url(), Duration::from_millis(1)).await.unwrap();
    assert_eq!(pages.len(), 102, "the first, 100 of it, and /new");
    let mut asked: Vec<String> = server.requests().iter().map(|r| r.path().to_owned()).collect();
    assert_eq!((asked.len(), server.connections()), (103, 1));
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 103);
    assert!(!asked.iter().any(|path| path.starts_with("/private")));
}

#[tokio::test]
async fn an_item_of_a_rest_api_comes_and_goes() {
    let server = Server::start(|request| match request.head.contains("authorization: Bearer t\r\n") {
        false => Does::Says(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
        true if request.path() == "/items" => ok("{\"id\": 7}"),
        true => ok("{\"name\": \"another one\"}"),
    });
    assert_eq!(rest::run(&server.url(), "t").await.unwrap()["name"], "another one");
    let seen: Vec<_> = server.requests().iter().map(|r| format!("{} {}", r.method(), r.path())).collect();
    assert_eq!(seen, ["POST /items", "PUT /items/7", "GET /items/7", "DELETE /items/7"]);
    assert!(rest::run(&server.url(), "x").await.unwrap_err().to_string().contains("401"));
}

#[tokio::test]
async fn http3_is_spoken_where_it_is_asked_for() {
    let server = secure_with(&["h3", "h2"], false, || secure::echo);
    let url = format!("https://localhost:{}", server.server.addr().port());
    let said = http3::run(&url, server.certificate.as_bytes()).await.unwrap();
    assert!(said.starts_with("HTTP/3.0 200 OK") && said.contains("by QUIC"), "{said}");
    let tcp_alone = secure_with(&["h2"], false, || secure::echo);
    let url = format!("https://localhost:{}", tcp_alone.server.addr().port());
    let said = http3::run(&url, tcp_alone.certificate.as_bytes()).await.unwrap();
    assert!(said.starts_with("no HTTP/3: ") && said.contains("refused"), "{said}");
}

#[tokio::test]
async fn a_download_is_whole() {
    let server = Server::start(|request| match request.path() {
        "/big" => ok(vec![b'x'; 3_000_000]),
        _ => Does::Says(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = format!("{}/big", server.url());
    assert_eq!(download::run(&url, file.path()).await.unwrap(), 3_000_000);
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 3_000_000);
    let none = download::run(&format!("{}/none", server.url()), file.path()).await.unwrap_err();
    assert!(none.to_string().contains("404"), "{none}");
}

#[tokio::test]
async fn links_lead_to_other_hosts() {
    let other = Server::start(|request| ok(request.path()));
    let pages: String = (0..50).map(|n| format!("<a href=\"{}/{n}#top\">", other.url())).collect();
    let first = Server::start(move |_| ok(&pages));
    let pages = links::run(&format!("{}/", first.url()), 40).await.unwrap();
    assert_eq!((pages.len(), other.requests().len()), (40, 39));
    assert!(pages.values().all(|status| *status == Ok(200)), "{pages:?}");
}

#[tokio::test]
async fn layers_repeat_calls_and_follow_redirects() {
    let server = Server::start(|request| match (request.path(), request.nth) {
        ("/busy", 0) => Does::Says(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("/old", _) => Does::Says(b"HTTP/1.1 302 No\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n".to_vec()),
        (path, _) => ok(path),
    });
    let bodies = layers::run(&server.url(), &["/busy".to_owned(), "/old".to_owned()]).await.unwrap();
    assert_eq!(bodies, ["/busy", "/new"]);
}

#[tokio::test]
async fn the_uploader_loses_nothing_when_the_server_closes() {
    let server = Server::start(|request| match (request.nth, request.path()) {
        (_, "/documents/13") => Does::Says(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec()),
        (19, _) => Does::Closes(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => ok(""),
    });
    let documents = (0..200).map(|n| (n.to_string(), Bytes::from(vec![b'x'; 3000 * (n % 7)]))).collect();
    let uploaded = uploader::run(&server.url(), documents).await.unwrap();
    assert_eq!((uploaded.stored, uploaded.failed.len()), (199, 0), "{uploaded:?}");
    assert_eq!(uploaded.refused, [("13".to_owned(), 403)]);
}

#[tokio::test]
async fn the_proxy_passes_requests_on_and_says_when_it_cannot() {
    let server = Server::start(|request| {
        match request.path() {
        "/teapot?a=b" => Does::Says(
            b"HTTP/1.1 418 No\r\nX-A: b\r\nConnection: x-mine\r\nConnection: keep-alive, x-too\r\nX-Mine: 1\r\n\
              X-Too: 1\r\nVia: 1.0 a\r\nContent-Length: 5\r\n\r\nshort"
                .to_vec(),
        ),
        "/long" => Does::Says(b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n".to_vec()),
        "/lost" => Does::Closes(Vec::new()),
        _ => ok([request.method().as_bytes(), b" ", &request.body].concat()),
    }
    });
    let proxy = proxy::start(([127, 0, 0, 1], 0).into(), &server.url()).unwrap();
    let client = Client::builder(&format!("http://{}", proxy.addr())).build().unwrap();
    let request =
        http::Request::get("/teapot?a=b").header("keep-alive", "9").header("x-c", "d").header("x-own", "e");
    // RFC 9110 section 7.6.1.
    let request = request.header("connection", "x-other").header("connection", "X-Own ,keep-alive");
    let request = request.header("proxy-connection", "keep-alive").body(Bytes::new());
    let teapot = client.send(request.unwrap()).await.unwrap();
    assert_eq!((teapot.status().as_u16(), &teapot.body()[..]), (418, &b"short"[..]));
    assert_eq!(teapot.headers()["x-a"], "b");
    for name in ["x-mine", "x-too"] {
        assert!(!teapot.headers().contains_key(name), "it belongs to the connection");
    }
    let via: Vec<_> = teapot.headers().get_all("via").iter().collect();
    assert_eq!(via, ["1.0 a", "1.1 linerate"]);
    let head = &server.requests()[0].head;
    assert!(head.contains("x-c: d") && head.contains("via: 1.1 linerate"), "{head}");
    assert!(!head.contains("keep-alive") && !head.contains("x-own"), "{head}");
    let long = client.send(http::Request::head("/long").body(Bytes::new()).unwrap()).await.unwrap();
    assert_eq!(long.headers()["content-length"], "4096", "RFC 9110 section 9.3.2");
    assert_eq!(client.post("/", "hello").await.unwrap().body(), &b"POST hello"[..]);
    let lost = client.post("/lost", "x").await.unwrap();
    assert_eq!(lost.status(), 502);
    assert!(String::from_utf8_lossy(lost.body()).contains("the outcome is unknown"), "{lost:?}");
    assert_eq!(server.requests().iter().filter(|request| request.path() == "/lost").count(), 1);
}
