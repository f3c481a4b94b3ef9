//! `linerate explain` over TLS, against real servers.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{linerate, run};
use issued::Issued;
use linerate_netbox::{LinkDirection, NetBox, NetboxBuilder};
use linerate_skips::{need, skip};
use real::{find, folder, nginx_tls, written};
use serde_json::Value;

/// One diagnosis at a time: each would make the machine of the others busy.
static TURN: Mutex<()> = Mutex::new(());

/// A diagnosis: the document, the text, the exit code.
struct Found {
    document: Value,
    text: String,
    code: Option<i32>,
}

impl Found {
    fn of(words: &[&str]) -> Found {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = ["explain", "--summary", "full", "--quiet", "--json", "-", "--budget", "12s"];
        let said = run(&[&flags[..], words].concat());
        let document = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        Found { document, text: line(&said.err), code: said.code }
    }

    fn causes(&self) -> Vec<(&str, &str)> {
        let text = |v: &Value, name: &str| v[name].as_str().unwrap().to_owned().leak() as &str;
        let all = self.document["causes"].as_array().unwrap();
        all.iter().map(|c| (text(c, "id"), text(c, "proof"))).collect()
    }

    fn is(&self, cause: &str, proofs: &[&str]) {
        let first = self.causes().first().copied();
        assert!(
            first.is_some_and(|(id, proof)| id == cause && proofs.contains(&proof)),
            "{:#}",
            self.document
        );
        assert_eq!(self.code, Some(1));
    }

    /// Named, whatever stands before it.
    fn names(&self, cause: &str, proofs: &[&str]) {
        let named = self.causes().iter().any(|(id, proof)| *id == cause && proofs.contains(proof));
        assert!(named, "{:#}", self.document);
    }

    fn is_not(&self, cause: &str) {
        assert!(self.causes().iter().all(|(id, _)| *id != cause), "{:#}", self.document);
    }

    /// Nothing but that a busy machine makes the server late.
    fn is_nearly_healthy(&self) {
        assert!(self.causes().iter().all(|(id, _)| *id == "server-think"), "{:#}", self.document);
        if self.causes().is_empty() {
            assert_eq!((self.code, &self.document["verdict"]), (Some(0), &"healthy".into()));
        }
    }

    fn rules_out(&self, cause: &str) {
        let ruled_out = self.document["ruled_out"].as_array().unwrap();
        assert!(ruled_out.iter().any(|r| r["id"] == cause), "{:#}", self.document);
    }

    fn says(&self, words: &str) {
        assert!(self.text.contains(words), "{words:?} in {}", self.text);
    }

    fn tls(&self, field: &str) -> &Value {
        &self.document["tls"][field]
    }
}

/// A text without its line breaks.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The error message for a server that no call reaches.
fn refused(words: &[&str]) -> String {
    let said = run(&[&["explain", "--quiet", "--budget", "5s"], words].concat());
    assert_eq!(said.code, Some(3), "{said:?}");
    line(&said.err)
}

/// A certificate and a key that openssl made, since they are of a kind that tests make no others of.
fn issued_by_openssl(key: &[&str], more: &[&str]) -> Option<(tempfile::TempDir, String, String)> {
    let openssl = find("openssl")?;
    let dir = folder();
    let mut command = Command::new(openssl);
    command.current_dir(dir.path()).args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"]);
    let made = command.args(key).args(more).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (certificate, key) = (read("cert.pem"), read("key.pem"));
    Some((dir, certificate, key))
}

#[test]
fn a_healthy_server_and_what_its_connections_take() {
    let issued = Issued::to("localhost");
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
    let (port, cacert) = (server.address.port(), issued.file("cert.pem"));
    let url = format!("https://localhost:{port}/");
    let found = Found::of(&["-4", "--cacert", &cacert, &url]);
    found.is_nearly_healthy();
    found.rules_out("tls-full-handshake");
    found.rules_out("tls-old-version");
    found.rules_out("tls-hello-retry");
    assert_eq!(found.tls("version"), "TLSv1.3");
    assert_eq!((found.tls("verified"), found.tls("key")), (&true.into(), &"ECDSA P-256".into()));
    assert_eq!((found.tls("full"), found.tls("alpn")), (&1.into(), &"http/1.1".into()));
    assert!(found.tls("resumed").as_u64() >= Some(3), "{:#}", found.document);
    assert!(found.tls("full_ms").as_f64() > Some(0.0) && found.tls("resumed_ms").is_number());
    found.says("A new connection: TCP");
    // The certificate was not checked, and the report says so.
    let found = Found::of(&["-4", "-k", &url]);
    assert_eq!(found.tls("verified"), false);
    found.says("--insecure: the server's certificate was not checked");
    // One call opens its connection: all its parts add up.
    let found = Found::of(&["-4", "--cacert", &cacert, "-X", "POST", "--body", "x", &url]);
    let call = &found.document["call"];
    let part = |name: &str| call[name].as_f64().unwrap();
    assert!(part("tls_ms") > 0.0 && call["tls"]["round_trips"] == 1, "{call:#}");
    let parts = ["connect_ms", "tls_ms", "send_ms", "wait_ms", "receive_ms", "unexplained_ms"].map(part);
    assert!((parts.iter().sum::<f64>() - part("total_ms")).abs() < 0.1, "{call:#}");
    found.says("TLS handshake");
    found.says("ClientHello");
}

#[test]
fn other_names_lead_to_the_server() {
    let issued = Issued::to("a.test");
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
    let (port, cacert) = (server.address.port(), issued.file("cert.pem"));
    let to = format!("a.test:443:127.0.0.1:{port}");
    Found::of(&["--connect-to", &to, "--cacert", &cacert, "https://a.test/"]).is_nearly_healthy();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let secrets = folder();
    let log = secrets.path().join("keys");
    let mut command = linerate(&[
        "explain",
        "--resolve",
        &resolve,
        "--cacert",
        &cacert,
        &format!("https://a.test:{port}/"),
    ]);
    let said = command.env("SSLKEYLOGFILE", &log).output().unwrap();
    assert!(said.status.code().is_some_and(|code| code < 2), "{said:?}");
    let keys = std::fs::read_to_string(&log).unwrap();
    assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0 "), "{keys}");
}

#[test]
fn each_fault_is_named_for_the_person_who_must_act() {
    // No authority of this machine has this name.
    let good = Issued::with("localhost", |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "signed by itself alone");
    });
    let expired = Issued::with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let other = Issued::to("example.com");
    for (issued, expected) in [
        (&expired, "TLS: the certificate has expired"),
        (&other, "TLS: the certificate is not for localhost, but for example.com"),
    ] {
        let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
        let url = format!("https://localhost:{}/", server.address.port());
        let said = refused(&["-4", "--cacert", &issued.file("cert.pem"), &url]);
        assert!(said.contains(expected), "{said}");
    }
    let more = "ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;";
    let Some(server) = nginx_tls(&good.certificate, &good.key, more) else { return };
    let (url, cacert) = (format!("https://localhost:{}/", server.address.port()), good.file("cert.pem"));
    let said = refused(&["-4", &url]);
    assert!(said.contains("the certificate is self-signed, and is not among the trusted ones"), "{said}");
    let said = refused(&["-4", "--cacert", &cacert, "--tls-min", "1.3", &url]);
    assert!(said.contains("no TLS version in common"), "{said}");
    let ciphers = ["--tls-max", "1.2", "--ciphers", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"];
    let said = refused(&[&["-4", "--cacert", &cacert], &ciphers[..], &[&url]].concat());
    assert!(said.contains("no cipher, curve or certificate in common"), "{said}");
    let asks = "ssl_verify_client on; ssl_client_certificate cert.pem;";
    let Some(server) = nginx_tls(&good.certificate, &good.key, asks) else { return };
    // nginx answers 400 to a client without a certificate.
    let found =
        Found::of(&["-4", "--cacert", &cacert, &format!("https://localhost:{}/", server.address.port())]);
    // On a busy machine a new connection for each call may be a cause as well.
    assert_eq!((found.code, &found.document["call"]["status"]), (Some(1), &400.into()), "{}", found.text);
}

#[test]
fn what_speaks_no_tls_is_told() {
    let plain = common::answering(common::HELLO);
    let said = refused(&["-k", &format!("https://{plain}/")]);
    // It waits for the end of a head, which a ClientHello does not have.
    assert!(said.contains("does not answer the TLS handshake"), "{said}");
    let refuses = common::server(|mut stream| {
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let said = refused(&["-k", &format!("https://{refuses}/")]);
    assert!(said.contains("it speaks plain HTTP there: write http:// instead of https://"), "{said}");
    let closes = common::server(|mut stream| drop(std::io::Read::read(&mut stream, &mut [0; 4096])));
    let said = refused(&["-k", &format!("https://{closes}/")]);
    assert!(said.contains("the peer closed the connection during the handshake"), "{said}");
    // And TLS behind http://, where the server answers in TLS.
    let alerts = common::server(|mut stream| {
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        let _ = std::io::Write::write_all(&mut stream, &[0x15, 3, 3, 0, 2, 2, 80]);
    });
    let said = run(&["explain", "--quiet", "--budget", "5s", &format!("http://{alerts}/")]);
    assert!(line(&said.out).contains("write https:// instead of http://"), "{said:?}");
    let said = run(&["explain", "--cacert", "x.pem", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("--cacert is about HTTPS"), "{}", said.err);
}

#[test]
fn sessions_that_nobody_resumes_with_an_old_version() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let issued = Issued::to("server.test");
    let off = "ssl_session_tickets off; ssl_session_cache off;";
    for (lines, named) in [
        (format!("{off} ssl_protocols TLSv1.2;"), &["tls-full-handshake", "tls-old-version"][..]),
        ("ssl_protocols TLSv1.2;".to_owned(), &[]),
        (off.to_owned(), &[]),
    ] {
        let Some(found) =
            far(&issued.certificate, &issued.key, &lines, &["--cacert", &issued.file("cert.pem")])
        else {
            return;
        };
        let tls: Vec<&str> =
            found.causes().iter().map(|(id, _)| *id).filter(|id| id.starts_with("tls-")).collect();
        for cause in named {
            assert!(tls.contains(cause), "{lines}: {:#}", found.document);
        }
        assert_eq!(tls.len(), named.len(), "{lines}: {:#}", found.document);
        if !named.is_empty() {
            // Times are less certain on a busy machine; what was counted is not.
            found.names("tls-full-handshake", &["likely", "possible"]);
            found.names("tls-old-version", &["proved"]);
            let cost = found.document["causes"][0]["cost_ms"].as_f64().unwrap();
            assert!(cost >= 38.0, "{cost}");
        }
    }
}

/// nginx over TLS behind 40 ms; `None`: it is not installed.
fn far(certificate: &str, key: &str, lines: &str, words: &[&str]) -> Option<Found> {
    behind(NetBox::builder().delay(Duration::from_millis(20)), certificate, key, lines, words)
}

fn behind(net: NetboxBuilder, certificate: &str, key: &str, lines: &str, words: &[&str]) -> Option<Found> {
    let net = net.start().unwrap();
    let server = net.server().run(|| real::nginx_far(certificate, key, lines)).unwrap()?;
    let resolve = format!("server.test:{}:{}", server.address.port(), net.server().ip());
    let url = format!("https://server.test:{}/", server.address.port());
    let words = [&["--resolve", &resolve], words, &[&url]].concat();
    let found = net.client().run(|| Found::of(&words)).unwrap();
    drop(server);
    Some(found)
}

#[test]
fn a_client_that_limits_itself() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let issued = Issued::to("server.test");
    let cacert = issued.file("cert.pem");
    let flags = ["--cacert", &cacert, "--tls-max", "1.2", "--tls-resume", "off"];
    let Some(found) = far(&issued.certificate, &issued.key, "", &flags) else { return };
    found.names("tls-old-version", &["proved"]);
    found.names("tls-full-handshake", &["proved"]);
    found.says("--tls-max");
    found.says("--tls-resume off");
    // A server that wants another group than the one that all clients offer.
    let wants = "ssl_ecdh_curve secp384r1;";
    let found = far(&issued.certificate, &issued.key, wants, &["--cacert", &cacert]).unwrap();
    found.is("tls-hello-retry", &["proved"]);
    found.says("secp384r1");
}

/// A certificate that is long, since it has so many more names.
fn with_names(more: usize) -> Issued {
    let name = |n: usize| format!("host-number-{n}.example.com").as_str().try_into().unwrap();
    Issued::with("server.test", |params| {
        params.subject_alt_names.extend((0..more).map(|n| rcgen::SanType::DnsName(name(n))));
    })
}

#[test]
fn certificates_that_fill_the_window() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let long = with_names(700);
    let cacert = long.file("cert.pem");
    let Some(found) = far(&long.certificate, &long.key, "", &["--cacert", &cacert]) else { return };
    found.is("tls-long-chain", &["proved"]);
    let short = Issued::to("server.test");
    let found = far(&short.certificate, &short.key, "", &["--cacert", &short.file("cert.pem")]).unwrap();
    found.is_nearly_healthy();
    found.rules_out("tls-long-chain");
}

/// The handshake hangs before any call does, since the certificate is the first large message.
#[test]
fn a_certificate_that_vanishes_on_the_way() {
    if let Some(why) = NetBox::unavailable() {
        return skip(need::NAMESPACES, why);
    }
    let issued = with_names(100);
    let narrow =
        NetBox::builder().way(LinkDirection::Down, |down| (down.mtu, down.black_hole) = (Some(1200), true));
    let cacert = issued.file("cert.pem");
    let Some(found) = behind(narrow, &issued.certificate, &issued.key, "", &["--cacert", &cacert]) else {
        return;
    };
    found.is("path-mtu", &["proved"]);
    assert_eq!(found.causes().len(), 1, "{:#}", found.document);
}

#[test]
fn a_key_that_takes_long() {
    let names = ["-addext", "subjectAltName=DNS:localhost"];
    let Some((dir, certificate, key)) = issued_by_openssl(&["-newkey", "rsa:4096"], &names) else { return };
    let Some(server) = nginx_tls(&certificate, &key, "") else { return };
    let (url, cacert) =
        (format!("https://localhost:{}/", server.address.port()), dir.path().join("cert.pem"));
    let found = Found::of(&["-4", "--cacert", cacert.to_str().unwrap(), &url]);
    found.says("RSA 4096");
    // On a busy machine the server waits for a processor as well, and then that is unclear.
    if found.document["this_machine"]["waited_share"].as_f64() < Some(0.02) {
        found.is("tls-slow-key", &["proved"]);
    }
    found.is_not("accept-queue");
    found.is_not("reverse-dns");
    // The server resumes no session to compare with.
    let Some(server) = nginx_tls(&certificate, &key, "ssl_session_tickets off; ssl_session_cache off;")
    else {
        return;
    };
    let url = format!("https://localhost:{}/", server.address.port());
    let found = Found::of(&["-4", "--cacert", cacert.to_str().unwrap(), &url]);
    if found.document["this_machine"]["waited_share"].as_f64() < Some(0.02) {
        found.is("tls-slow-key", &["likely"]);
    }
    found.is_not("accept-queue");
    found.is_not("reverse-dns");
}

/// The first example of all: the JDK's own server writes head and body apart.
#[test]
fn nagle_of_the_jdk_over_tls() {
    let names = ["-addext", "subjectAltName=DNS:localhost"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    let Some((dir, ..)) = issued_by_openssl(&key, &names) else { return };
    let store = dir.path().join("store.p12");
    let mut command = Command::new(find("openssl").unwrap());
    command.current_dir(dir.path()).args(["pkcs12", "-export", "-in", "cert.pem", "-inkey", "key.pem"]);
    let made = command.args(["-passout", "pass:secret", "-out"]).arg(&store).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let source = include_str!("real/Tls.java").replace("{store}", store.to_str().unwrap());
    let Some(server) = written("java", &[], "Tls.java", &source) else { return };
    let url = format!("https://localhost:{}/", server.address.port());
    let found = Found::of(&["-4", "--cacert", dir.path().join("cert.pem").to_str().unwrap(), &url]);
    found.names("server-nagle-delayed-ack", &["proved"]);
    found.says("-Dsun.net.httpserver.nodelay=true");
}

#[test]
fn a_server_that_thinks_and_one_that_closes() {
    let issued = Issued::to("localhost");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| issued.file(name));
    let source = include_str!("real/tls.py").replace("{cert}", &cert).replace("{key}", &key);
    for (mode, expected) in [
        ("think", "server-think"),
        ("split", "server-nagle-delayed-ack"),
        ("late", "late-close"),
        ("cork", "cork"),
    ] {
        let Some(server) = written("python3", &[], "server.py", &source.replace("{mode}", mode)) else {
            return;
        };
        let url = format!("https://localhost:{}/", server.address.port());
        let found = Found::of(&["-4", "--cacert", &cert, &url]);
        found.names(expected, if mode == "think" { &["likely", "possible"] } else { &["proved"] });
        found.is_not("tls-slow-key");
    }
    // Without TLS's own end a body that lasts until the close may lack its rest (RFC 9112 section 9.8).
    let server = written("python3", &[], "server.py", &source.replace("{mode}", "cut")).unwrap();
    let url = format!("https://localhost:{}/", server.address.port());
    let found = Found::of(&["-4", "--cacert", &cert, &url]);
    assert_eq!(found.code, Some(1));
    found.says("without TLS's close_notify");
}

#[test]
fn the_slowest_request_of_a_run_is_explained() {
    let issued = Issued::to("localhost");
    let Some(server) = nginx_tls(&issued.certificate, &issued.key, "") else { return };
    let url = format!("https://localhost:{}/", server.address.port());
    let cacert = issued.file("cert.pem");
    let said = run(&["load", "-4", "-n", "50", "-c", "2", "--explain", "--cacert", &cacert, &url]);
    assert!(said.code.is_some_and(|code| code < 2), "{said:?}");
    assert!(said.out.contains("Why the slowest took"), "{said:?}");
    assert!(line(&said.out).contains("A new connection: TCP"), "{said:?}");
}
