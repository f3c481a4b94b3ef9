//! The examples do what they say.

use std::time::Duration;

use bytes::Bytes;

use crate::echo;
use crate::server::{Does, Server, ok};

#[path = "../../examples/calls.rs"]
mod calls;
#[path = "../../examples/crawler.rs"]
mod crawler;
#[path = "../../examples/uploader.rs"]
mod uploader;

#[tokio::test]
async fn the_ways_to_call_a_server() {
    assert_eq!(calls::run(&echo().url()).await.unwrap(), 100_000);
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
