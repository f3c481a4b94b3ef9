//! `linerate::client` against real servers: nothing is lost, and nothing that is not idempotent is sent twice.

#![allow(clippy::unwrap_used)]

#[path = "../../linerate-cli/tests/real/mod.rs"]
mod real;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Version};
use linerate::client::{Client, Error, Template};
use real::Server;

const CALLS: usize = 2000;

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
    let served = real::finish_nginx(server);
    assert!((answered..=200).contains(&served), "{answered} answered, {served} served");
}

#[tokio::test]
async fn nginx_over_tls_that_closes_loses_none() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let lines = "keepalive_requests 300;";
    let Some(server) = real::nginx_tls(&certificate, &key.serialize_pem(), lines) else { return };
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
