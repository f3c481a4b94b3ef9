//! `linerate::client` against real servers: nothing is lost, and nothing that is not idempotent is sent twice.

#![allow(clippy::unwrap_used)]

#[path = "../../../linerate-cli/tests/real/mod.rs"]
mod real;

#[path = "../../../linerate-cli/tests/issued/mod.rs"]
mod issued;
#[path = "../../../linerate-cli/tests/real_tls/mod.rs"]
mod real_tls;

mod connections;
mod http3;
mod idle;
mod proxies;

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use linerate::client::{Client, Error, Template};
use real::Server;
use tower::ServiceExt;
use tower_http::decompression::DecompressionLayer;
use tower_http::follow_redirect::{FollowRedirectLayer, RequestUri};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

const CALLS: usize = 2000;

/// A certificate of `localhost` and its key.
fn issued() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn client(server: &Server) -> Client {
    Client::builder(&server.url("")).pipes(4).depth(32).build().unwrap()
}

/// All of many GETs, in order.
async fn all_answered(client: &Client) {
    let request = |n: usize| Request::get(format!("/{n}")).body(Bytes::new()).unwrap();
    let mut ended = client.send_all(futures_util::stream::iter((0..CALLS).map(request)));
    let mut answered = 0;
    while let Some(response) = ended.next().await {
        let response = response.unwrap();
        assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"hello"[..]));
        answered += 1;
    }
    assert_eq!(answered, CALLS);
}

#[tokio::test]
async fn nginx_that_closes_after_100_requests_loses_none() {
    let Some(server) = real::nginx(100) else { return };
    let client = client(&server);
    all_answered(&client).await;
    assert_eq!(client.statistics().learnt_limit, Some(100), "{:?}", client.statistics());
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), CALLS as u64).await.unwrap();
    assert_eq!(counted.responses, CALLS as u64, "{counted:?}");
    drop(client);
    // nginx discards what follows the last request of a connection, so each was served once.
    assert_eq!(real::finish_nginx(server), 2 * CALLS as u64);
}

#[tokio::test]
async fn nginx_that_closes_gets_no_post_twice() {
    let Some(server) = real::nginx(7) else { return };
    let client = client(&server);
    let posts = (0..200).map(|n| client.post(&format!("/{n}"), "x"));
    let ended = futures_util::future::join_all(posts).await;
    let answered = ended.iter().filter(|result| result.is_ok()).count() as u64;
    assert!(ended.iter().all(|result| matches!(result, Ok(_) | Err(Error::OutcomeUnknown(_)))), "{ended:?}");
    drop(client);
    // nginx writes the line of a request once its connection has closed, and writes none after it was asked to end.
    for _ in 0..2000 {
        if real::logged_by_nginx(&server) >= answered {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let served = real::finish_nginx(server);
    assert!((answered..=200).contains(&served), "{answered} answered, {served} served");
}

#[tokio::test]
async fn nginx_over_tls_that_closes_loses_none() {
    let (certificate, key) = issued();
    let Some(server) = real::nginx_tls(&certificate, &key, "keepalive_requests 300;") else { return };
    let url = server.url("").replace("http://", "https://");
    let builder = Client::builder(&url).add_root(&certificate).server_name("localhost");
    let client = builder.pipes(4).depth(32).build().unwrap();
    all_answered(&client).await;
    assert_eq!(client.get("/").await.unwrap().version(), Version::HTTP_11);
    let counted = client.send_counted(Template::get("/{{seq}}").unwrap(), CALLS as u64).await.unwrap();
    assert_eq!(counted.responses, CALLS as u64, "{counted:?}");
    drop(client);
    assert_eq!(real::finish_nginx(server), 2 * CALLS as u64 + 1);
}

#[tokio::test]
async fn node_go_and_python() {
    for server in [real::node(), real::go(), real::python(true)].into_iter().flatten() {
        all_answered(&client(&server)).await;
    }
}

/// Sends a request again that met a busy server, twice at most.
#[derive(Clone)]
struct Twice(u32);

type Asked = Request<Full<Bytes>>;

impl<B, E> tower::retry::Policy<Asked, http::Response<B>, E> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Asked,
        result: &mut Result<http::Response<B>, E>,
    ) -> Option<std::future::Ready<()>> {
        let is_busy = result.as_ref().is_ok_and(|response| response.status() == 503);
        (is_busy && self.0 > 0).then(|| {
            self.0 -= 1;
            std::future::ready(())
        })
    }

    fn clone_request(&mut self, request: &Asked) -> Option<Asked> {
        Some(request.clone())
    }
}

/// nginx compresses, redirects and is busy.
#[tokio::test]
async fn layers_of_tower_http_work_over_the_client() {
    let text = "a text that is worth compressing ".repeat(40);
    let lines = format!(
        "gzip on; gzip_min_length 1; gzip_types text/plain; default_type text/plain;
         location = /old {{ return 302 /text; }}
         location = /text {{ return 200 '{text}'; }}
         location = /busy {{ return 503; }}"
    );
    let Some(server) = real::nginx_with("", &lines) else { return };
    let client = Client::builder(&server.url("")).build().unwrap();
    let stack = tower::ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(FollowRedirectLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10)))
        .layer(tower::retry::RetryLayer::new(Twice(2)))
        .layer(DecompressionLayer::new())
        .service(client.clone());
    let ask = |method: &str, path: &str, body: &'static str| {
        let uri = server.url(path);
        let request = Request::builder().method(method).uri(uri);
        stack.clone().oneshot(request.body(Full::from(body)).unwrap())
    };
    let response = ask("GET", "/old", "").await.unwrap();
    assert_eq!(response.extensions().get::<RequestUri>().unwrap().0.path(), "/text");
    assert!(!response.headers().contains_key("content-encoding"));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), text);
    let posted = ask("POST", "/old", "a body").await.unwrap();
    assert_eq!(posted.into_body().collect().await.unwrap().to_bytes(), text);
    assert_eq!(ask("GET", "/busy", "").await.unwrap().status(), 503);
    drop((stack, client));
    // Two for each redirect, and the refused one three times.
    assert_eq!(real::finish_nginx(server), 4 + 3);
}

/// The bodies of both are streams, which no limit of the client holds in memory.
#[tokio::test]
async fn a_layer_over_streams_holds_nothing_whole() {
    let file = "x".repeat(4000);
    let Some(server) = real::nginx_with("", &format!("location = /long {{ return 200 '{file}'; }}")) else {
        return;
    };
    let client = Client::builder(&server.url("")).max_body(1000).build().unwrap();
    let layered = tower::ServiceBuilder::new().layer(TraceLayer::new_for_http());
    let whole = Request::get("/long").body(Full::<Bytes>::default()).unwrap();
    let error = layered.clone().service(client.clone()).oneshot(whole.clone()).await.err().unwrap();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let response = layered.service(client.streaming()).oneshot(whole).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), file.len());
}

/// Node announces its limit in whole seconds. Each pause ends about when it closes: no POST meets that.
#[tokio::test]
async fn posts_after_pauses_of_nodes_own_limit_meet_no_close() {
    let source = "const server = require('http').createServer((request, response) => {
  request.resume().on('end', () => response.end('hello'));
});
server.keepAliveTimeout = 1000;
server.listen({port}, '127.0.0.1');
";
    let Some(server) = real::written("node", &[], "server.js", source) else { return };
    let callers = (0..50).map(|caller| {
        let client = Client::builder(&server.url("")).build().unwrap();
        async move {
            for round in 0..5 {
                assert_eq!(client.post("/", "x").await.unwrap().body(), &b"hello"[..]);
                tokio::time::sleep(Duration::from_millis(900 + (caller * 53 + round * 17) % 200)).await;
            }
        }
    });
    futures_util::future::join_all(callers).await;
}
