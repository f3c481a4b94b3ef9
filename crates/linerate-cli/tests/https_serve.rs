//! `linerate serve` over HTTPS: clients that people have, certificates that change, and what does
//! not fit.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;
mod serving;

use std::io::Read;
use std::io::Write;
use std::process::Command;

use common::{measured, number, run};
use issued::Issued;
use issued::kept::Kept;
use real::find;
use serving::{Server, serve, transports};

fn https(issued: &Issued, more: &[&str]) -> Server {
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    serve(&[&["--tls-cert", &cert, "--tls-key", &key], more].concat())
}

fn port(server: &Server) -> &str {
    server.address.rsplit_once(':').unwrap().1
}

/// What curl gets, with these flags. `None`: there is no curl.
fn curl(issued: &Issued, server: &Server, flags: &[&str], path: &str) -> Option<(bool, String)> {
    let program = find("curl")?;
    let url = format!("https://localhost:{}{path}", port(server));
    let out = Command::new(program)
        .args(["-sS", "-4", "--max-time", "20", "--cacert", &issued.file("cert.pem")])
        .args(flags)
        .arg(url)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    Some((out.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn curl_is_served_on_every_transport() {
    let issued = Issued::to("localhost");
    for io in transports() {
        let server = https(&issued, &["--io", io, "--demo-routes"]);
        for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
            let Some((good, text)) = curl(&issued, &server, version, "/bytes/100000") else { return };
            assert!(good && text.len() == 100_000, "{io} {version:?}: {} bytes", text.len());
        }
        // It offers http/1.0 alone by ALPN.
        let (good, text) = curl(&issued, &server, &["-0", "-i"], "/").unwrap();
        assert!(good && text.starts_with("HTTP/1.1 200"), "{io}: {text}");
        let body = "x".repeat(300_000);
        let file = issued.file("body");
        std::fs::write(&file, &body).unwrap();
        let post = ["--data-binary", &format!("@{file}"), "-H", "Expect:"];
        let (good, text) = curl(&issued, &server, &post, "/echo").unwrap();
        assert!(good && text == body, "{io}: {} bytes came back", text.len());
        let (code, _) = server.stop();
        assert_eq!(code, Some(0), "{io}");
    }
}

#[test]
fn load_counts_what_serve_answers() {
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    for io in transports() {
        let server = https(&issued, &["--io", io, "--threads", "2"]);
        let url = format!("https://localhost:{}/", port(&server));
        for flags in ["-c 8 -n 2000", "-c 4 -p 16 -n 4000", "-c 4 --per-connection 1 -n 100"] {
            let mut words = vec!["-4", "--cacert", &cacert];
            words.extend(flags.split(' '));
            words.push(&url);
            let (document, _) = measured(&words);
            assert_eq!(document["requests"]["sent"], document["status"]["200"], "{io} {flags}: {document}");
        }
        let (document, _) =
            measured(&["-4", "--cacert", &cacert, "-c", "2", "--per-connection", "1", "-n", "60", &url]);
        assert!(number(&document, "/tls/resumed") >= 50, "threads share the tickets' keys: {document}");
    }
}

#[test]
fn another_certificate_is_shown_after_sighup_and_connections_stay() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &[]);
    let Some((good, _)) = curl(&issued, &server, &[], "/") else { return };
    assert!(good);
    let Some(openssl) = find("openssl") else { return };
    let mut open = Kept::to(&openssl, &server.address);
    open.ask("");
    let other = Issued::to("localhost");
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(other.file(name), issued.file(name)).unwrap();
    }
    server.signal("-HUP");
    common::until("the new certificate", || curl(&other, &server, &[], "/").unwrap().0);
    open.ask("Connection: close\r\n");
    let text = open.all();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
}

/// A server that misbehaves shows the same symptoms over TLS, in both versions.
#[test]
fn a_server_misbehaves_over_tls_too() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &["--misbehave", "tiny-chunks=1000", "--misbehave", "close-after=2"]);
    assert!(server.get("/").contains("https://"), "plain HTTP is told the scheme");
    let url = format!("https://localhost:{}/", port(&server));
    let (document, _) = measured(&["-4", "--cacert", &issued.file("cert.pem"), "-c", "4", "-n", "40", &url]);
    assert_eq!(number(&document, "/status/200"), 40, "{document}");
    let handshakes = number(&document, "/tls/resumed") + number(&document, "/tls/full");
    assert!(handshakes >= 20 && handshakes == number(&document, "/connections/opened"), "{document}");
    let body = issued.file("body");
    std::fs::write(&body, "x".repeat(300_000)).unwrap();
    let body = format!("@{body}");
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let Some((good, text)) = curl(&issued, &server, &[version, &["-i"]].concat(), "/bytes/100000") else {
            return;
        };
        assert!(good && text.contains("transfer-encoding: chunked"), "{version:?}: {text:.300}");
        assert!(text.len() > 100_000, "{version:?}: {} bytes", text.len());
        let post = [version, &["--data-binary", &body, "-H", "Expect:"]].concat();
        let (good, text) = curl(&issued, &server, &post, "/echo").unwrap();
        assert!(good && text.len() == 300_000, "{version:?}: {} bytes came back", text.len());
    }
    let (good, stats) = curl(&issued, &server, &[], "/stats").unwrap();
    assert!(good && stats.contains("\"tls\":{\"full\":"), "{stats}");
    assert!(stats.contains("plain HTTP to a TLS port"), "{stats}");
}

#[test]
fn plain_http_gets_an_answer_that_can_be_read() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &[]);
    let answer = server.get("/");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
}

#[test]
fn a_certificate_of_the_client_is_asked_for() {
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let server = https(&issued, &["--tls-client-ca", &cert]);
    let Some((good, text)) = curl(&issued, &server, &[], "/") else { return };
    assert!(!good, "{text}");
    let (good, text) = curl(&issued, &server, &["--cert", &cert, "--key", &key], "/").unwrap();
    assert!(good, "{text}");
}

#[test]
fn what_is_checked_is_what_would_be_served() {
    let (one, other) = (Issued::to("localhost"), Issued::to("localhost"));
    let (cert, key) = (one.file("cert.pem"), other.file("key.pem"));
    let check = |flags: &[&str]| run(&[&["serve", "--check-config"], flags].concat());
    assert_eq!(check(&["--tls-cert", &cert, "--tls-key", &one.file("key.pem")]).code, Some(0));
    for (flags, expected) in [
        (&["--tls-cert", &cert][..], "needs its private key"),
        (&["--tls-cert", &cert, "--tls-key", &key], "does not belong"),
        (&["--tls-self-signed", "--misbehave", "close-early"], "--misbehave"),
    ] {
        let said = check(flags);
        assert_eq!(said.code, Some(2), "{flags:?}: {}", said.err);
        assert!(said.err.contains(expected), "{flags:?}: {}", said.err);
    }
}

#[test]
fn load_says_that_a_client_certificate_is_wanted() {
    let issued = Issued::to("localhost");
    let cert = issued.file("cert.pem");
    let server = https(&issued, &["--tls-client-ca", &cert]);
    let url = format!("https://localhost:{}/", port(&server));
    let said = run(&["load", "-4", "--cacert", &cert, "-c", "2", "-n", "10", &url]);
    assert_ne!(said.code, Some(0));
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it wants a client certificate"), "{words}");
    assert!(said.err.contains("hint: give one with --cert FILE and --key FILE"), "{}", said.err);
}

/// A client that keeps sending after its mistake gets the alert all the same: a reset would destroy
/// it.
#[test]
fn an_alert_arrives_whatever_follows_the_mistake() {
    let issued = Issued::to("localhost");
    for io in transports() {
        let server = https(&issued, &["--io", io]);
        let mut stream = server.connect();
        // A handshake message that is no ClientHello (RFC 8446 section 4).
        stream.write_all(&[22, 3, 1, 0, 5, 2, 0, 0, 1, 0]).unwrap();
        let mut alert = [0; 7];
        std::thread::sleep(std::time::Duration::from_millis(50));
        stream.write_all(&[22; 5000]).unwrap();
        stream.read_exact(&mut alert).unwrap();
        assert_eq!((alert[0], alert[5]), (21, 2), "{io}: a fatal alert");
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut alert).unwrap(), 0, "{io}: in order");
    }
}

/// A handshake that the server refuses for want of a certificate is none, although a TLS 1.3 client
/// has ended its part before. And a certificate of an authority is named as that.
#[test]
fn a_certificate_that_does_not_do_is_named_and_no_handshake_counted() {
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let authority = Issued::with("ann", |params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    let server =
        https(&issued, &["--tls-client-ca", &authority.file("cert.pem"), "--metrics", "127.0.0.1:0"]);
    let line = server.line();
    let metrics = line.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    let url = format!("https://localhost:{}/", port(&server));
    let (own, own_key) = (authority.file("cert.pem"), authority.file("key.pem"));
    for (flags, expected) in [
        (&[][..], "the client shows no certificate"),
        (&["--cert", &own, "--key", &own_key], "the client's certificate is an authority's (CA:TRUE)"),
        (&["--cert", &cert, "--key", &key], "the client's certificate is self-signed, or no trusted"),
    ] {
        let flags = [&["-4", "-n", "4", "-c", "2", "--cacert", &cert, &url], flags].concat();
        let (document, _) = measured(&flags);
        assert_eq!(document["tls"]["full"], 0, "{document}");
        assert_ne!(document["tls"]["failed"], serde_json::json!({}), "{document}");
        let stats = serving::get(metrics, "/stats");
        assert!(stats.contains(expected), "{expected}: {stats}");
    }
}

#[test]
fn a_request_before_a_fin_is_answered() {
    let issued = Issued::to("localhost");
    let server = https(&issued, &["--demo-routes"]);
    let Some(python) = find("python3") else { return };
    let script = "import socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[1])
t = c.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[2]))), server_hostname='localhost')
t.sendall(b'GET /bytes/3000 HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')
socket.socket.shutdown(t, socket.SHUT_WR)
n = 0
while True:
    b = t.recv(65536)
    if not b: break
    n += len(b)
print(n)
";
    let file = issued.file("client.py");
    std::fs::write(&file, script).unwrap();
    let out = Command::new(python).args([&file, &issued.file("cert.pem"), port(&server)]).output().unwrap();
    let got: usize = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap_or(0);
    assert!(got > 3000, "{got}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_certificate_for_trying_things_out() {
    let server = serve(&["--tls-self-signed"]);
    let url = format!("https://{}/", server.address);
    let (document, _) = measured(&["-k", "-n", "10", &url]);
    assert_eq!(number(&document, "/status/200"), 10);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (one, other) = (Issued::to("localhost"), Issued::to("localhost"));
    let (cert, key) = (one.file("cert.pem"), other.file("key.pem"));
    for (flags, expected) in [
        (&["--tls-cert", &cert][..], "--tls-cert needs its private key"),
        (&["--tls-key", &key], "--tls-key needs the certificate"),
        (&["--tls-cert", &cert, "--tls-key", &key], "does not belong to the certificate"),
        (&["--tls-cert", &cert, "--tls-key", &key], "hint: of a pair, `openssl x509 -noout -pubkey -in"),
        (&["--tls-cert", &cert, "--tls-key", "/nowhere"], "--tls-key /nowhere"),
        (&["--tls-cert", &cert, "--tls-key", &key, "--tls-self-signed"], "leave out one of the two"),
        (&["--tls-client-ca", &cert], "needs a certificate of the server's own"),
        (&["--tls-self-signed", "--misbehave", "close-early"], "--misbehave"),
    ] {
        let said = run(&[&["serve", "--listen", "127.0.0.1:0"], flags].concat());
        assert_eq!(said.code, Some(2), "{flags:?}: {}", said.err);
        assert!(said.err.contains(expected), "{flags:?}: {}", said.err);
    }
}

/// What `/stats` says of handshakes, once it says `all` of them.
fn handshakes(metrics: &str, all: u64) -> serde_json::Value {
    let until = std::time::Instant::now() + serving::PATIENCE;
    loop {
        let answer = serving::get(metrics, "/stats");
        let stats: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let failed = stats["tls"]["failed"].as_object().unwrap().values().filter_map(|n| n.as_u64());
        let sum = number(&stats, "/tls/full") + number(&stats, "/tls/resumed") + failed.sum::<u64>();
        if sum == all {
            return stats["tls"].clone();
        }
        assert!(std::time::Instant::now() < until, "{stats}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn handshakes_are_counted_and_have_no_longer_than_a_head() {
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    let server = https(&issued, &["--metrics", "127.0.0.1:0", "--threads", "2", "--header-timeout", "300ms"]);
    let line = server.line();
    let metrics = line.strip_prefix("metrics on http://").and_then(|line| line.strip_suffix("/metrics"));
    let metrics = metrics.unwrap_or_else(|| panic!("{line}"));
    let url = format!("https://localhost:{}/", port(&server));
    let (document, _) =
        measured(&["-4", "--cacert", &cacert, "-c", "1", "--per-connection", "1", "-n", "20", &url]);
    let (full, resumed) = (number(&document, "/tls/full"), number(&document, "/tls/resumed"));
    let counted = handshakes(metrics, full + resumed);
    assert_eq!((number(&counted, "/full"), number(&counted, "/resumed")), (full, resumed), "{counted}");
    // Nothing, half a record, plain HTTP, no TLS at all, and a client that goes.
    let begin = std::time::Instant::now();
    for bytes in
        [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\x00\x01x"]
    {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer);
        assert!(begin.elapsed() < serving::PATIENCE, "{bytes:?}");
    }
    server.connect();
    let counted = handshakes(metrics, full + resumed + 5);
    let failed = counted["failed"].as_object().unwrap();
    let n = |part: &str| -> u64 {
        failed.iter().filter(|(why, _)| why.contains(part)).filter_map(|(_, n)| n.as_u64()).sum()
    };
    assert_eq!(n("it took too long"), 2, "{counted}");
    assert_eq!(n("plain HTTP to a TLS port"), 1, "{counted}");
    assert_eq!(n("the peer closed the connection during the handshake"), 1, "{counted}");
    let page = serving::get(metrics, "/metrics");
    let sample = "linerate_tls_handshakes_failed_total{reason=\"plain HTTP to a TLS port\"} 1";
    assert!(page.lines().any(|line| line == sample), "{page}");
}

#[test]
fn the_access_log_has_what_was_agreed_on_and_who_the_client_is() {
    let issued = Issued::with("localhost", |params| {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Acme, Inc");
    });
    let (cert, key, log) = (issued.file("cert.pem"), issued.file("key.pem"), issued.file("access.log"));
    let server = https(&issued, &["--tls-client-ca", &cert, "--access-log", &log, "--log-format", "json"]);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let flags = [version, &["--cert", &cert, "--key", &key]].concat();
        let Some((good, text)) = curl(&issued, &server, &flags, "/") else { return };
        assert!(good, "{text}");
    }
    server.stop();
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Each thread writes its own lines: their order is not that of the requests.
    for version in ["TLSv1.2", "TLSv1.3"] {
        let line =
            lines.iter().find(|line| line["tls_version"] == version).unwrap_or_else(|| panic!("{log}"));
        assert_eq!(line["tls_resumed"], false, "{line}");
        assert!(line["tls_cipher"].as_str().unwrap().starts_with("TLS"), "{line}");
        assert_eq!(line["client_subject"], "O=Acme\\, Inc,CN=localhost", "{line}");
    }
    assert_eq!(lines.len(), 2, "{log}");
}
