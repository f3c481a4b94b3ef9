//! `linerate load` over HTTPS, against a real nginx.

mod common;
mod issued;
mod real;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{greeting, linerate, measured, number, run, server};
use issued::Issued;
use real::{Server, finish_nginx, nginx_tls, nginx_with};
use serde_json::Value;

fn nginx(issued: &Issued, more: &str) -> Option<Server> {
    nginx_tls(&issued.certificate, &issued.key, more)
}

fn https(server: &Server) -> String {
    format!("https://localhost:{}/", server.address.port())
}

/// A run that trusts the certificate; its document, and nginx's own count.
fn loaded(issued: &Issued, more: &str, flags: &str) -> Option<(Value, u64)> {
    let server = nginx(issued, more)?;
    let (url, cacert) = (https(&server), issued.file("cert.pem"));
    let mut words = vec!["-4", "--cacert", &cacert];
    words.extend(flags.split(' '));
    words.push(&url);
    let (document, _) = measured(&words);
    Some((document, finish_nginx(server)))
}

/// What a run says whose handshakes fail.
fn refused(issued: &Issued, more: &str, flags: &[&str]) -> Option<String> {
    let server = nginx(issued, more)?;
    let url = https(&server);
    let said = run(&[&["load", "-4", "-n", "4", "-c", "2"], flags, &[&url]].concat());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    Some(said.out.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A new user has no session of another one.
#[test]
fn new_users_of_flows_resume_nothing() {
    let issued = Issued::to("localhost");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, certificate, key) = (file("plan.toml"), file("cert.pem"), file("key.pem"));
    std::fs::write(&certificate, &issued.certificate).unwrap();
    std::fs::write(&key, &issued.key).unwrap();
    let lines = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
    let steps = "[[flow]]\n[[flow.step]]\nname = \"a\"\n[[flow.step]]\nname = \"b\"\npath = \"/?b\"\n";
    for (keys, http) in [("user_rate = 100", "1.1"), ("user_rate = 100", "2"), ("connections = \"new\"", "2")]
    {
        let Some(server) = nginx_with("ssl http2", &lines) else { return };
        let text = format!("users = 2\nhttp = \"{http}\"\niterations = 10\n{keys}\n{steps}");
        std::fs::write(&plan, text).unwrap();
        let (document, said) = measured(&["-4", "--cacert", &certificate, "--plan", &plan, &https(&server)]);
        assert_eq!(number(&document, "/flows/flow 1/done"), 10, "{keys} {http}: {said:?}");
        assert_eq!(finish_nginx(server), 20);
        assert_eq!((number(&document, "/tls/full"), number(&document, "/tls/resumed")), (10, 0), "{keys}");
    }
}

#[test]
fn all_are_answered_and_handshakes_are_counted() {
    let issued = Issued::to("localhost");
    for io in ["epoll", "uring"] {
        for way in ["-c 8", "-c 4 -p 16", "-c 4 --per-connection 10 -p 4"] {
            let flags = format!("{way} -n 2000 --io {io}");
            let Some((document, counted)) = loaded(&issued, "", &flags) else { return };
            assert_eq!(number(&document, "/requests/answered"), 2000, "{flags}: {document}");
            assert_eq!(counted, 2000, "{flags}");
            let handshakes = number(&document, "/tls/full") + number(&document, "/tls/resumed");
            assert!(handshakes >= number(&document, "/connections/opened"), "{flags}: {document}");
            assert_eq!(
                number(&document, "/latency_us/tls/count"),
                number(&document, "/latency_us/connect/count")
            );
            assert_eq!(document["tls"]["version"], "TLSv1.3", "{flags}");
            assert_eq!(document["tls"]["verified"], true, "{flags}");
        }
    }
}

#[test]
fn the_baselines_speak_tls() {
    let issued = Issued::to("localhost");
    for way in [
        "poll",
        "threads -c 8",
        "async -c 8",
        "threads -c 4 --per-connection 1",
        "async -c 4 --per-connection 1",
    ] {
        let flags = format!("-n 300 --way {way}");
        let Some((document, counted)) = loaded(&issued, "", &flags) else { return };
        assert_eq!(number(&document, "/requests/answered"), 300, "{flags}: {document}");
        assert_eq!(counted, 300, "{flags}");
        let handshakes = number(&document, "/tls/full") + number(&document, "/tls/resumed");
        assert_eq!(handshakes, number(&document, "/connections/opened"), "{flags}: {document}");
        assert_eq!(number(&document, "/latency_us/tls/count"), handshakes, "{flags}");
        assert_eq!(document["tls"]["version"], "TLSv1.3", "{flags}");
    }
    let stranger = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    for way in ["threads", "async"] {
        let Some(said) = refused(&stranger, "", &["--way", way, "--cacert", &cacert]) else { return };
        assert!(said.contains("could not be reached: TLS: the certificate"), "{way}: {said}");
    }
}

#[test]
fn new_connections_resume_sessions_unless_told_not_to() {
    let issued = Issued::to("localhost");
    let short = "-c 2 --per-connection 1 -n 60";
    for version in ["1.2", "1.3"] {
        let flags = format!("{short} --tls-max {version}");
        let Some((document, _)) = loaded(&issued, "ssl_session_cache shared:s:1m;", &flags) else { return };
        assert!(number(&document, "/tls/resumed") >= 50, "{flags}: {}", document["tls"]);
        assert_eq!(document["tls"]["version"], format!("TLSv{version}"));
    }
    let flags = format!("{short} --tls-resume off");
    let Some((document, counted)) = loaded(&issued, "", &flags) else { return };
    assert_eq!((number(&document, "/tls/full"), number(&document, "/tls/resumed")), (60, 0));
    assert_eq!(counted, 60);
}

#[test]
fn what_is_wrong_with_the_certificate_is_said() {
    let issued = Issued::to("elsewhere.example");
    let cacert = issued.file("cert.pem");
    let Some(said) = refused(&issued, "", &["--cacert", &cacert]) else { return };
    assert!(said.contains("the certificate is not for localhost, but for elsewhere.example"), "{said}");

    let other = Issued::to("localhost");
    let stranger = Issued::to("localhost");
    let Some(said) = refused(&stranger, "", &["--cacert", &other.file("cert.pem")]) else { return };
    assert!(said.contains("could not be reached: TLS: the certificate"), "{said}");

    let old = Issued::with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let cacert = old.file("cert.pem");
    let Some(said) = refused(&old, "", &["--cacert", &cacert]) else { return };
    assert!(said.contains("the certificate has expired"), "{said}");
}

/// Hands each connection to the next of these; `None` resets it when the client has begun its handshake.
fn in_turn(to: [Option<SocketAddr>; 4]) -> SocketAddr {
    let next = Arc::new(AtomicUsize::new(0));
    server(move |mut stream| {
        let mut first = [0; 16 << 10];
        let Some(to) = to[next.fetch_add(1, Ordering::Relaxed) % to.len()] else {
            // Unread bytes make the close a reset.
            return drop(stream.peek(&mut first));
        };
        let mut server = TcpStream::connect(to).expect("it listens");
        let (mut back, mut from) = (stream.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let _ = io::copy(&mut stream, &mut server);
        let _ = server.shutdown(Shutdown::Write);
    })
}

#[test]
fn each_reason_for_a_failed_handshake_is_counted_by_itself() {
    let good = Issued::to("localhost");
    let elsewhere = Issued::to("elsewhere.example");
    let old = Issued::with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let servers = [&good, &old, &elsewhere].map(|issued| nginx(issued, ""));
    let [Some(one), Some(two), Some(three)] = &servers else { return };
    let port = in_turn([Some(one.address), Some(two.address), Some(three.address), None]).port();
    let all = [&good, &old, &elsewhere].map(|issued| issued.certificate.as_str()).concat();
    std::fs::write(good.file("all.pem"), all).expect("written");
    let url = format!("https://localhost:{port}/");
    for io in ["epoll", "uring"] {
        let flags =
            format!("-4 -t 1 -c 1 --per-connection 1 -n 16 --io {io} --cacert {}", good.file("all.pem"));
        let words: Vec<&str> = flags.split(' ').chain([url.as_str()]).collect();
        let (document, said) = measured(&words);
        assert_eq!(number(&document, "/requests/answered"), 4, "{io}: {document}");
        assert_eq!(number(&document, "/failures/connect"), 12, "{io}: {document}");
        let counted = document["failures_in_detail"]["connect"].as_object().expect("a map");
        assert_eq!(counted.len(), 3, "{io}: {counted:?}");
        assert_eq!(document["tls"]["failed"].as_object().map(|failed| failed.len()), Some(3), "{document}");
        let page = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
        for why in [
            "the certificate has expired",
            "the certificate is not for localhost, but for elsewhere.example",
            "the peer reset the connection during the handshake",
        ] {
            let n: u64 =
                counted.iter().filter(|(d, _)| d.contains(why)).filter_map(|(_, n)| n.as_u64()).sum();
            assert_eq!(n, 4, "{io}, {why}: {counted:?}");
            assert!(page.contains(&format!("4 x no connection (TLS: {why}")), "{io}: {page}");
        }
    }
}

/// TCP's failures are not TLS's.
#[test]
fn a_port_that_nobody_listens_on_is_refused() {
    let url = format!("https://{}/", common::nobody());
    for way in [["--io", "epoll"], ["--io", "uring"], ["--way", "threads"], ["--way", "async"]] {
        let said = run(&[&["load", "-k", "-n", "4", "-c", "2"], &way[..], &[&url]].concat());
        assert_eq!(said.code, Some(3), "{way:?}: {}", said.out);
        let page = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.ends_with("could not be reached: connection refused"), "{way:?}: {page}");
    }
}

#[test]
fn insecure_believes_everybody_and_says_so() {
    let issued = Issued::to("elsewhere.example");
    let Some(server) = nginx(&issued, "") else { return };
    let (document, said) = measured(&["-4", "-k", "-n", "10", &https(&server)]);
    assert_eq!(number(&document, "/requests/answered"), 10);
    assert_eq!(document["tls"]["verified"], false);
    assert!(said.out.contains("--insecure") || said.err.contains("--insecure"), "{said:?}");
}

#[test]
fn a_key_log_that_cannot_be_written_is_said() {
    let issued = Issued::to("localhost");
    let Some(server) = nginx(&issued, "") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (file, said) in [("keys", false), ("no/such/folder", true)] {
        let path = folder.path().join(file);
        let mut command = linerate(&["load", "-4", "-k", "-n", "2", &https(&server)]);
        let output = command.env("SSLKEYLOGFILE", &path).output().expect("it runs");
        let words = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("SSLKEYLOGFILE"), said, "{words}");
        assert_eq!(std::fs::read_to_string(&path).is_ok_and(|keys| keys.contains("SECRET")), !said);
        assert!(output.status.success(), "{words}");
    }
}

#[test]
fn a_server_asks_for_a_client_certificate() {
    let issued = Issued::to("localhost");
    let (cacert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let more = "ssl_verify_client on; ssl_client_certificate cert.pem;";
    let with = format!("-n 20 --cert {cacert} --key {key}");
    let Some((document, _)) = loaded(&issued, more, &with) else { return };
    assert_eq!(number(&document, "/status/200"), 20, "{document}");
    let Some((document, _)) = loaded(&issued, more, "-n 20") else { return };
    assert_eq!(number(&document, "/status/400"), 20, "nginx says it in HTTP: {document}");
}

#[test]
fn versions_without_overlap_and_plain_servers_are_named() {
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    let flags = ["--cacert", &cacert, "--tls-max", "1.2"];
    let Some(said) = refused(&issued, "ssl_protocols TLSv1.3;", &flags) else { return };
    assert!(said.contains("no TLS version in common"), "{said}");

    let plain = greeting("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let url = format!("https://127.0.0.1:{}/", plain.port());
    let said = run(&["load", "-n", "2", "-k", &url]);
    assert_eq!(said.code, Some(3), "{}", said.out);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("does not speak TLS: it answers in plain HTTP"), "{words}");
}

/// Shorter than anything that is waited for.
#[test]
fn handshakes_that_never_end_are_no_success() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/", silent.local_addr().expect("bound"));
    for more in [&[][..], &["--rate", "20"]] {
        let said = run(&[&["load", "-k", "-c", "2", "-d", "400ms"], more, &[&url]].concat());
        assert_eq!(said.code, Some(3), "{more:?}: {}", said.out);
        assert!(said.out.contains("could not be reached"), "{}", said.out);
    }
}

#[test]
fn flags_that_cannot_be_are_refused() {
    let issued = Issued::to("localhost");
    let (cacert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    for (flags, expected) in [
        (vec!["-k", "http://127.0.0.1:9/"], "--insecure is about HTTPS"),
        (vec!["--tls-min", "1.3", "--tls-max", "1.2", "https://127.0.0.1:9/"], "--tls-min is higher"),
        (vec!["--cacert", "/nowhere", "https://127.0.0.1:9/"], "--cacert /nowhere:"),
        (vec!["--cacert", &key, "https://127.0.0.1:9/"], "no certificate"),
        (vec!["--cert", &cacert, "https://127.0.0.1:9/"], "no private key"),
        (vec!["--ciphers", "ROT13", "-k", "https://127.0.0.1:9/"], "no cipher suite ROT13"),
    ] {
        let said = run(&[&["load", "-n", "1"], &flags[..]].concat());
        assert_eq!(said.code, Some(2), "{flags:?}: {}{}", said.out, said.err);
        assert!(said.err.contains(expected), "{flags:?}: {}", said.err);
    }
    let other = Issued::to("localhost");
    let key = other.file("key.pem");
    let said = run(&["load", "-n", "1", "--cert", &cacert, "--key", &key, "-k", "https://127.0.0.1:9/"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("this key does not belong to the certificate in"), "{}", said.err);
    assert!(said.err.contains("hint: of a pair, `openssl x509 -noout -pubkey -in"), "{}", said.err);
}
