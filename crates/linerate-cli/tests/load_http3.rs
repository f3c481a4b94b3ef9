//! `linerate load` over HTTP/3 against Caddy (quic-go), what it does not go with, and servers that do not speak it.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;
mod real_tls;

use std::net::UdpSocket;

use common::{answering, measured, nobody, run};
use issued::Issued;
use real::Counts;

#[test]
fn caddy_answers_what_it_was_sent() {
    let issued = Issued::to("localhost");
    let Some(site) = real_tls::caddy(&issued) else { return };
    let (cacert, url) = (issued.file("cert.pem"), site.url());
    // Caddy answers before it has the body, and wants no more of it: what was sent is not to fill its window.
    let large = issued.file("large");
    std::fs::write(&large, vec![b'x'; 3 << 20]).unwrap();
    let upload = format!("-c 1 -p 2 --body @{large}");
    let mut sent = 0;
    for (flags, n) in [
        (upload.as_str(), 20),
        ("-c 1", 100),
        ("-c 3 -p 20 --expect-body hello", 1000),
        ("-c 4 --per-connection 1", 40),
        ("-c 2 -p 4 --rate 500 --check errors<=0", 250),
        ("-c 2 -p 4 --body n={{seq}}", 100),
    ] {
        let n_text = n.to_string();
        let mut words = vec!["-4", "--http", "3", "--cacert", &cacert, "-n", &n_text];
        words.extend(flags.split(' '));
        words.push(&url);
        let (document, _) = measured(&words);
        let counts = Counts::of(&document);
        assert_eq!((counts.sent, counts.answered), (n, n), "{flags}: {document:#}");
        assert_eq!(document["protocol"], "HTTP/3");
        let quic = &document["quic"];
        assert_eq!(quic["handshakes"], document["connections"]["opened"], "{quic}");
        assert!(quic["rtt_us"]["min"].as_f64().unwrap() > 0.0, "{quic}");
        assert!(quic["datagrams_per_request"].as_f64().unwrap() > 0.0, "{quic}");
        assert!(document["latency_us"]["connect"]["p50"].as_f64().unwrap() > 0.0, "{document:#}");
        sent += n;
    }
    let without_trust = run(&["load", "-4", "--http", "3", "-n", "3", &url]);
    assert_eq!(without_trust.code, Some(3), "{without_trust:?}");
    assert!(without_trust.out.contains("certificate"), "{without_trust:?}");
    assert_eq!(site.logged(), Some(sent), "each request was processed once");
}

#[test]
fn what_quic_does_not_go_with_is_named() {
    let https = "https://localhost:4433/";
    for (flags, named) in [
        ("http://localhost:4433/", "http://"),
        ("--proxy http://localhost:3128 https://localhost:4433/", "--proxy"),
        ("--unix-socket /tmp/none https://localhost:4433/", "--unix-socket"),
        ("--haproxy-protocol=v1 https://localhost:4433/", "--haproxy-protocol"),
        ("--tls-max 1.2 https://localhost:4433/", "--tls-max 1.2"),
        ("--io uring https://localhost:4433/", "--io uring"),
        ("--way threads https://localhost:4433/", "--way threads"),
        ("--h2-window 65535 https://localhost:4433/", "--h2-window"),
        ("--explain https://localhost:4433/", "--explain"),
    ] {
        let mut words = vec!["load", "--http", "3", "-n", "1"];
        words.extend(flags.split(' '));
        let said = run(&words);
        assert_eq!(said.code, Some(2), "{flags}: {said:?}");
        assert!(said.err.contains(named), "{flags}: {said:?}");
        assert!(said.err.contains("--http 3") || flags.contains("h2-window"), "{flags}: {said:?}");
    }
    let said = run(&[
        "load",
        "--http",
        "3",
        "--io",
        "xdp",
        "--interface",
        "lo",
        "--from",
        "127.0.0.9",
        "-n",
        "1",
        https,
    ]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn a_server_without_quic_is_told_from_one_that_is_not_there() {
    let port = |address: std::net::SocketAddr| format!("https://127.0.0.1:{}/", address.port());
    let said = run(&["load", "--http", "3", "-k", "-n", "5", &port(answering("HTTP/1.1 200 OK\r\n\r\n"))]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("nothing listens on this UDP port"), "{said:?}");
    assert!(words.contains("over TCP the same port answers"), "{said:?}");

    let said = run(&["load", "--http", "3", "-k", "-n", "5", &port(nobody())]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("over TCP it does not answer either"), "{said:?}");

    // Datagrams are taken, and nothing is said to them.
    let silent = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let url = port(silent.local_addr().unwrap());
    let said = run(&["load", "--http", "3", "-k", "-n", "2", "--timeout", "300ms", &url]);
    assert_eq!(said.code, Some(3), "{said:?}");
}
