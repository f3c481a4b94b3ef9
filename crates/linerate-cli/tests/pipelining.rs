//! `linerate explain --pipelining`, and the note of `load -p`, against real proxies in front of a
//! server that takes 50 ms.

#![allow(clippy::unwrap_used)]

mod common;
mod proxies;
mod serving;

use std::io::{Read, Write};
use std::net::SocketAddr;

use common::{measured, run};
use proxies::{haproxy, late, nginx};
use serde_json::Value;

fn verdict(url: &str, code: i32) -> Value {
    let said = run(&["explain", "--pipelining", "--quiet", "--json", "-", url]);
    assert_eq!(said.code, Some(code), "{said:?}");
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

/// What `load -p` notes of pipelines.
fn note(url: &str) -> Option<String> {
    let (document, _) = measured(&["-c", "2", "-p", "10", "-d", "1s", url]);
    let notes = document["warnings"].as_array().expect("a list").iter().filter_map(Value::as_str);
    notes.filter(|note| note.contains("one after another")).map(str::to_owned).next()
}

/// What the server behind takes, milliseconds: much beside what a busy machine adds to each request, which
/// would make them look slower than one after another.
const BEHIND: u64 = 50;

#[test]
fn proxies_serve_a_pipeline_one_after_another() {
    for proxy in [haproxy(&[late(BEHIND)], ""), nginx(late(BEHIND))].into_iter().flatten() {
        let url = format!("http://{}/", proxy.address);
        let document = verdict(&url, 1);
        assert_eq!(document["schema"], "linerate.pipelining/1");
        assert_eq!((&document["pays"], &document["one_after_another"]), (&false.into(), &true.into()));
        // HAProxy speaks HTTP/2 in clear text, too.
        assert!(document["cure"] == "connections" || document["cure"] == "http2", "{document:#}");
        let ways = document["ways"].as_array().expect("a list");
        let rate = |name: &str| {
            ways.iter().find(|w| w["name"] == name).and_then(|w| w["rate_rps"].as_f64()).unwrap_or(0.0)
        };
        assert!(rate("connections") > 2.0 * rate("pipelined"), "{document:#}");
        let note = note(&url).expect("a note");
        assert!(note.contains(&format!("linerate explain --pipelining {url}")), "{note}");
    }
}

#[test]
fn a_server_that_serves_a_pipeline_at_once_gets_no_note() {
    let server = serving::serve(&[]);
    let url = format!("http://{}/delay/20", server.address);
    let document = verdict(&url, 0);
    assert_eq!((&document["pays"], &document["works"]), (&true.into(), &true.into()), "{document:#}");
    assert_eq!(note(&url), None);
}

/// A server that answers what it has read in reverse, as one does whose workers answer when they are
/// ready; `in_turn`: in order.
fn answers(in_turn: bool) -> SocketAddr {
    common::server(move |mut stream| {
        let (mut unread, mut buffer) = (String::new(), [0; 65536]);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            unread.push_str(&String::from_utf8_lossy(&buffer[..n]));
            let whole = unread.rfind("\r\n\r\n").map_or(0, |end| end + 4);
            let heads: String = unread.drain(..whole).collect();
            let answer = |head: &str| match head.starts_with("GET / ") {
                true => common::HELLO.to_owned(),
                false => common::HELLO.replace("200 OK", "404 Not Found"),
            };
            let mut all: Vec<String> =
                heads.split("\r\n\r\n").filter(|head| !head.is_empty()).map(answer).collect();
            if !in_turn {
                all.reverse();
            }
            if stream.write_all(all.concat().as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn answers_in_another_order_than_the_requests() {
    let document = verdict(&format!("http://{}/", answers(true)), 0);
    assert_eq!((&document["works"], &document["in_order"]), (&true.into(), &true.into()), "{document:#}");
    let said = run(&["explain", "--pipelining", "-q", "--json", "-", &format!("http://{}/", answers(false))]);
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!((&document["works"], &document["in_order"]), (&false.into(), &false.into()), "{document:#}");
    assert!(document["summary"][0].as_str().unwrap().contains("in another order"), "{document:#}");
    // Real servers keep the order, and each has a status of its own where nothing is.
    let server = serving::serve(&[]);
    let Some(proxy) = haproxy(&[server.address.parse().unwrap()], "") else { return };
    let document = verdict(&format!("http://{}/delay/20", proxy.address), 1);
    assert_eq!(document["in_order"], true, "{document:#}");
}

#[test]
fn the_verdict_is_kept_as_a_page_and_shown_again() {
    let Some(proxy) = nginx(late(20)) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (json, page, again) = (path("p.json"), path("p.html"), path("again.html"));
    let url = format!("http://{}/", proxy.address);
    let said = run(&["explain", "--pipelining", "-q", "--json", &json, "--html", &page, &url]);
    assert!(said.code == Some(1) && said.out.starts_with("Pipelining does not pay here"), "{said:?}");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(
        html.contains("what pays") && html.contains("&lt;edge&gt;") && !html.contains("<edge>"),
        "{html}"
    );
    let shown = run(&["report", &json, "--html", &again]);
    assert!(shown.code == Some(0) && shown.out == said.out, "{shown:?}");
    assert_eq!(std::fs::read_to_string(&again).expect("a page"), html);
    let nowhere = path("no/such.json");
    assert_eq!(run(&["explain", "--pipelining", "-q", "--json", &nowhere, &url]).code, Some(2));
}
