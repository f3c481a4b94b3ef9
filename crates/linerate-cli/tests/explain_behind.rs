//! `linerate explain` of calls that a real proxy hands on: what is behind it, and what only looks so.

#![allow(clippy::unwrap_used)]

mod common;
mod proxies;

use common::{responding, run};
use proxies::{haproxy, late, nginx_cache};
use serde_json::Value;

/// What `explain` says of that address: the document.
fn explained(address: std::net::SocketAddr) -> Value {
    let said = run(&["explain", "--quiet", "--json", "-", "--budget", "12s", &format!("http://{address}/")]);
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

fn ids(document: &Value) -> Vec<&str> {
    document["causes"].as_array().unwrap().iter().filter_map(|c| c["id"].as_str()).collect()
}

/// The field that names the time of the server behind.
const TIMED: &str = " http-response set-header Server-Timing upstream;dur=%Tr";

#[test]
fn a_proxy_that_names_the_time_behind_it() {
    let Some(proxy) = haproxy(&[late(60)], TIMED) else { return };
    let found = explained(proxy.address);
    assert_eq!(
        (ids(&found), &found["causes"][0]["proof"]),
        (vec!["upstream-wait"], &"likely".into()),
        "{found:#}"
    );
    let says = found["causes"][0]["evidence"].to_string();
    assert!(says.contains("Server-Timing names most of what the call waited"), "{says}");
    // Without the field nobody knows.
    let silent = haproxy(&[late(60)], "").unwrap();
    assert_eq!(ids(&explained(silent.address)), ["server-think"]);
}

/// The time is the answering server's own.
#[test]
fn a_server_that_names_little_behind_it() {
    let server = responding(|stream| {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let head = "HTTP/1.1 200 OK\r\nServer-Timing: upstream;dur=1\r\nContent-Length: 2\r\n\r\nok";
        std::io::Write::write_all(stream, head.as_bytes())
    });
    let found = explained(server);
    assert_eq!(ids(&found), ["server-think"], "{found:#}");
    let out = found["ruled_out"].as_array().unwrap();
    assert!(out.iter().any(|r| r["id"] == "upstream-wait"), "{found:#}");
}

#[test]
fn one_slow_server_of_three_behind_a_balancer() {
    let Some(proxy) = haproxy(&[late(0), late(60), late(0)], "") else { return };
    let found = explained(proxy.address);
    assert_eq!(ids(&found), ["one-slow-backend"], "{found:#}");
    let says = found["causes"][0]["evidence"].to_string();
    assert!(says.contains("each 3. waited"), "{says}");
    // All of them alike.
    let even = haproxy(&[late(0), late(0), late(0)], "").unwrap();
    assert!(!ids(&explained(even.address)).contains(&"one-slow-backend"));
    let slow = haproxy(&[late(60), late(60)], "").unwrap();
    assert_eq!(ids(&explained(slow.address)), ["server-think"]);
}

#[test]
fn a_cache_that_loses_the_answer_soon() {
    let Some(proxy) = nginx_cache(late(120), "1s") else { return };
    let found = explained(proxy.address);
    assert!(ids(&found).contains(&"cache-cold"), "{found:#}");
    // It keeps it: only the first call waits.
    let kept = nginx_cache(late(120), "1h").unwrap();
    let found = explained(kept.address);
    assert!(!ids(&found).contains(&"cache-cold"), "{found:#}");
    // It asks each time, and that costs nothing.
    let quick = nginx_cache(late(0), "0").unwrap();
    assert!(!ids(&explained(quick.address)).contains(&"cache-cold"));
}
