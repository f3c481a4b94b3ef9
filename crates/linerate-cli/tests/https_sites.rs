//! `linerate serve` with several certificates, plain addresses beside them, and files that change
//! while it runs.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;
mod serving;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{run, until};
use issued::Issued;
use issued::kept::Kept;
use real::find;
use serving::{Server, get, serve, started};

/// Started by a configuration file alone, whose addresses are its own.
fn configured(file: &Path) -> Server {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("linerate"));
    command.arg("serve").arg("--config").arg(file);
    started(command)
}

fn write_config(issued: &Issued, text: &str) -> std::path::PathBuf {
    let file = Path::new(&issued.file("serve.toml")).to_owned();
    std::fs::write(&file, text).unwrap();
    file
}

fn certificate(issued: &Issued) -> String {
    format!("tls_cert = \"{}\"\ntls_key = \"{}\"\n", issued.file("cert.pem"), issued.file("key.pem"))
}

/// What `openssl s_client` says with these flags; its input ends at once. `None`: there is no
/// openssl.
fn s_client(address: &str, flags: &[&str]) -> Option<String> {
    let openssl = find("openssl")?;
    let out = Command::new(openssl)
        .args(["s_client", "-connect", address])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The name in the certificate that a client is shown which asks for a host.
fn shown(address: &str, host: Option<&str>) -> Option<String> {
    let text = match host {
        Some(host) => s_client(address, &["-servername", host])?,
        None => s_client(address, &["-noservername"])?,
    };
    let subject = text.lines().find_map(|line| line.strip_prefix("subject="));
    let subject = subject.unwrap_or_else(|| panic!("{text}"));
    Some(subject.trim().trim_start_matches("CN").trim_start_matches([' ', '=']).to_owned())
}

#[test]
fn certificates_are_chosen_by_the_name_that_is_asked_for() {
    let [usual, one, any, own] = ["usual.test", "one.test", "any.test", "own.test"].map(Issued::to);
    let text = format!(
        "listen = [\"127.0.0.1:0\", \"http://127.0.0.1:0\"]\n{}demo_routes = true\n\
         [[host]]\nname = \"one.test\"\n{}demo_routes = true\n[[host]]\nname = \"*.any.test\"\n{}\
         [[host]]\nname = \"plain.any.test\"\n\
         [[listener]]\nlisten = [\"127.0.0.1:0\", \"http://127.0.0.1:0\"]\n{}demo_routes = true\n",
        certificate(&usual),
        certificate(&one),
        certificate(&any),
        certificate(&own),
    );
    let server = configured(&write_config(&usual, &text));
    let [plain, own_tls, own_plain] = std::array::from_fn(|_| server.listening());
    if find("openssl").is_none() {
        return;
    }
    for (host, expected) in [
        (None, "usual.test"),
        (Some("usual.test"), "usual.test"),
        (Some("unknown.test"), "usual.test"),
        (Some("one.test"), "one.test"),
        (Some("ONE.test"), "one.test"),
        (Some("a.any.test"), "any.test"),
        (Some("a.b.any.test"), "any.test"),
        (Some("any.test"), "usual.test"),
    ] {
        assert_eq!(shown(&server.address, host).unwrap(), expected, "{host:?}");
        assert_eq!(shown(&own_tls, host).unwrap(), "own.test", "{host:?}");
    }
    for plain in [plain, own_plain] {
        assert!(get(&plain, "/bytes/5").ends_with("\r\n\r\n01234"), "{}", get(&plain, "/bytes/5"));
    }
}

#[test]
fn flags_name_plain_addresses_too() {
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let flags = ["--listen", "http://127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key, "--demo-routes"];
    let server = serve(&[&flags[..], &["--redirect-to-https", "--hsts", "365d"]].concat());
    let plain = server.listening();
    let port = server.address.rsplit_once(':').unwrap().1;
    let answer = get(&plain, "/bytes/5?a=b");
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    assert!(answer.contains(&format!("location: https://h:{port}/bytes/5?a=b\r\n")), "{answer}");
    assert!(
        !answer.contains("strict-transport-security"),
        "not by plain HTTP (RFC 6797 section 7.2): {answer}"
    );
    let Some(curl) = find("curl") else { return };
    let out = Command::new(curl)
        .args(["-sSi", "-L", "--max-time", "20", "--cacert", &cert, "--connect-to"])
        .args([
            format!("localhost:{port}:127.0.0.1:{port}"),
            format!("http://localhost:{}/bytes/5", port_of(&plain)),
        ])
        .args(["--connect-to", &format!("localhost:{0}:127.0.0.1:{0}", port_of(&plain))])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("strict-transport-security: max-age=31536000\r\n"), "{text} {out:?}");
    assert!(text.ends_with("01234"), "{text}");
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

#[test]
fn a_listener_may_differ_from_the_server() {
    let issued = Issued::to("localhost");
    let text = format!(
        "listen = [\"127.0.0.1:0\", \"http://127.0.0.1:0\"]\n{}redirect_to_https = true\n\
         hsts = \"max-age=60; includeSubDomains\"\ndemo_routes = true\n[[host]]\nname = \"other.test\"\n\
         [[listener]]\nlisten = \"http://127.0.0.1:0\"\nredirect_to_https = false\ndemo_routes = true\n",
        certificate(&issued)
    );
    let server = configured(&write_config(&issued, &text));
    let (plain, inside) = (server.listening(), server.listening());
    assert!(get(&plain, "/").starts_with("HTTP/1.1 308 "));
    assert!(get(&inside, "/").starts_with("HTTP/1.1 200 "));
    let mut stream = serving::connect(&plain);
    let request = b"GET /x HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(
        answer.contains(&format!("location: https://other.test:{}/x\r\n", port_of(&server.address))),
        "{answer}"
    );
}

/// Waits until `address` shows what is expected.
fn wait_for(address: &str, expected: &str) {
    until(expected, || shown(address, None).unwrap() == expected);
}

#[test]
fn files_that_change_are_read_again_without_a_signal() {
    let issued = Issued::to("before.test");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let server = serve(&["--tls-cert", &cert, "--tls-key", &key]);
    let Some(openssl) = find("openssl") else { return };
    let mut open = Kept::to(&openssl, &server.address);
    open.ask("");
    let after = Issued::to("after.test");
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(after.file(name), issued.file(name)).unwrap();
    }
    wait_for(&server.address, "after.test");
    assert_eq!(server.line(), "the certificate's files have changed and were read again");
    // A broken one is named, and the old one stays.
    std::fs::write(&cert, "nothing").unwrap();
    let said = server.line();
    assert!(
        said.starts_with("the certificate stays as it was: ") && said.contains("no certificate"),
        "{said}"
    );
    assert!(server.line().starts_with("hint: "));
    assert_eq!(shown(&server.address, None).unwrap(), "after.test");
    open.ask("Connection: close\r\n");
    let text = open.all();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
}

#[test]
fn sessions_are_resumed_behind_a_reload_unless_other_clients_are_asked_for() {
    let issued = Issued::to("localhost");
    let (config, session) = (issued.file("serve.toml"), issued.file("session.pem"));
    let write = |more: &str| {
        let text = format!("listen = \"127.0.0.1:0\"\nthreads = 2\n{}{more}", certificate(&issued));
        std::fs::write(&config, text).unwrap();
    };
    write("");
    let server = configured(Path::new(&config));
    let reload = || {
        server.signal("-HUP");
        server.listening();
    };
    for version in ["-tls1_2", "-tls1_3"] {
        // A ticket of TLS 1.3 comes behind the handshake, so the connection has to carry something.
        let Some(openssl) = find("openssl") else { return };
        let mut first = Command::new(openssl)
            .args(["s_client", "-quiet", "-connect", &server.address, version, "-sess_out", &session])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(first.stdin.as_mut().unwrap(), request).unwrap();
        first.wait().unwrap();
        reload();
        let resumed = || {
            // The kernel spreads them over both threads.
            let all = (0..6).map(|_| s_client(&server.address, &[version, "-sess_in", &session]).unwrap());
            all.filter(|text| text.contains("Reused, ")).count()
        };
        assert_eq!(resumed(), 6, "{version}");
        if version == "-tls1_3" {
            write(&format!("tls_client_ca = \"{}\"\n", issued.file("cert.pem")));
            reload();
            assert_eq!(resumed(), 0, "{version}: tickets of clients that nobody asked");
        }
    }
}

#[test]
fn certificates_that_end_soon_are_warned_of() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |days: i64| epoch + Duration::from_secs((now + days * 86_400 + 3600) as u64);
    for (from, until, expected) in [
        (-30, 5, "expires in 5 days, on "),
        (-30, -3, "expired 2 days ago, on "),
        (3, 30, "is not valid before "),
        (-1, 60, ""),
    ] {
        let issued = Issued::with("localhost", |params| {
            (params.not_before, params.not_after) = (at(from), at(until));
        });
        let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
        let said = run(&["serve", "--check-config", "--tls-cert", &cert, "--tls-key", &key]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let warned = said.err.contains(&format!("warning: the certificate in {cert} {expected}"));
        assert_eq!(warned, !expected.is_empty(), "{expected}: {}", said.err);
    }
}

#[test]
fn an_ocsp_response_is_stapled() {
    let issued = Issued::to("localhost");
    let (cert, key, staple) = (issued.file("cert.pem"), issued.file("key.pem"), issued.file("ocsp.der"));
    if !make_ocsp_response(&issued, &staple) {
        return;
    }
    let server = serve(&["--tls-cert", &cert, "--tls-key", &key, "--tls-ocsp", &staple]);
    for version in ["-tls1_2", "-tls1_3"] {
        let text = s_client(&server.address, &["-status", version]).unwrap();
        assert!(text.contains("OCSP Response Status: successful"), "{version}: {text}");
        assert!(text.contains("Cert Status: good"), "{version}: {text}");
    }
    let said = run(&["serve", "--check-config", "--tls-cert", &cert, "--tls-key", &key, "--tls-ocsp", &cert]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("it is no OCSP response in DER"), "{}", said.err);
    // A file that is only half written breaks every client that asks for the response.
    let whole = std::fs::read(&staple).unwrap();
    let half = issued.file("half.der");
    std::fs::write(&half, &whole[..30]).unwrap();
    let said = run(&["serve", "--check-config", "--tls-cert", &cert, "--tls-key", &key, "--tls-ocsp", &half]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains(&format!("it ends after 30 of {} bytes", whole.len())), "{}", said.err);
}

/// The issuer's answer, which is the certificate itself: it is signed by itself.
fn make_ocsp_response(issued: &Issued, out: &str) -> bool {
    let Some(openssl) = find("openssl") else { return false };
    let (cert, key, index) = (issued.file("cert.pem"), issued.file("key.pem"), issued.file("index.txt"));
    let serial = Command::new(&openssl).args(["x509", "-in", &cert, "-noout", "-serial"]).output().unwrap();
    let serial = String::from_utf8_lossy(&serial.stdout).trim().trim_start_matches("serial=").to_owned();
    std::fs::write(&index, format!("V\t400101000000Z\t\t{serial}\tunknown\t/CN=localhost\n")).unwrap();
    let request = issued.file("ocsp.req");
    let made = Command::new(&openssl)
        .args(["ocsp", "-issuer", &cert, "-cert", &cert, "-reqout", &request, "-no_nonce"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let made = Command::new(&openssl)
        .args(["ocsp", "-index", &index, "-CA", &cert, "-rsigner", &cert, "-rkey", &key])
        .args(["-reqin", &request, "-respout", out, "-ndays", "7"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    true
}

#[test]
fn what_does_not_fit_is_refused_by_check_and_start_alike() {
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let plain = ["--listen", "http://127.0.0.1:0"];
    for (flags, expected) in [
        (&["--listen", "https://127.0.0.1:0"][..], "https://127.0.0.1:0 needs a certificate"),
        (&[&plain[..], &["--tls-cert", &cert, "--tls-key", &key]].concat(), "every address is plain HTTP"),
        (&[&plain[..], &["--redirect-to-https"]].concat(), "needs an address that speaks HTTPS"),
        (&["--listen", "127.0.0.1:0", "--tls-ocsp", &cert], "--tls-ocsp needs the certificate"),
        (&["--listen", "127.0.0.1:0", "--hsts", "soon"], "write how long"),
        (&["--listen", "127.0.0.1:0", "--hsts", "1d"], "--hsts needs an address that speaks HTTPS"),
        (
            &["--listen", "127.0.0.1:0", "--tls-self-signed", "--hsts", "1d", "--misbehave", "stall=5"],
            "--hsts",
        ),
        (&["--listen", "127.0.0.1:0", "--header", "A: b", "--misbehave", "stall=5"], "--misbehave"),
        (&["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--misbehave", "stall=5"], "--misbehave"),
    ] {
        for check in [&["--check-config"][..], &[]] {
            let said = run(&[&["serve"], flags, check].concat());
            assert_eq!(said.code, Some(2), "{flags:?} {check:?}: {}", said.err);
            assert!(said.err.contains(expected), "{flags:?} {check:?}: {}", said.err);
        }
    }
}

#[test]
fn what_a_reload_cannot_do_is_said() {
    let issued = Issued::to("localhost");
    let config = issued.file("serve.toml");
    let write =
        |listen: &str, tls: &str| std::fs::write(&config, format!("listen = {listen}\n{tls}")).unwrap();
    write("\"http://127.0.0.1:0\"", "");
    let server = configured(Path::new(&config));
    write("[\"http://127.0.0.1:0\", \"127.0.0.1:0\"]", &certificate(&issued));
    server.signal("-HUP");
    let said = server.line();
    assert!(said.contains("whether an address speaks TLS holds until a restart"), "{said}");
    // A server with TLS takes more of it.
    drop(server);
    let server = configured(Path::new(&config));
    server.listening();
    let other = Issued::to("new.test");
    let listener = format!("[[listener]]\nlisten = \"127.0.0.1:0\"\n{}", certificate(&other));
    let text = format!("{}{listener}", certificate(&issued));
    write("[\"http://127.0.0.1:0\", \"127.0.0.1:0\"]", &text);
    server.signal("-HUP");
    let new = std::array::from_fn::<_, 3, _>(|_| server.listening());
    if find("openssl").is_some() {
        assert_eq!(shown(&new[1], None).unwrap(), "localhost");
        assert_eq!(shown(&new[2], None).unwrap(), "new.test");
    }
}

#[test]
fn tls_to_a_plain_port_is_named_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let server = serve(&["--access-log", log.to_str().unwrap()]);
    let Some(text) = s_client(&server.address, &[]) else { return };
    assert!(text.contains("wrong version number") || text.contains("packet length"), "{text}");
    let said = server.line();
    assert!(said.contains("a client spoke TLS at 127.0.0.1:"), "{said}");
    assert!(said.contains("where plain HTTP is spoken"), "{said}");
    server.stop();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("\"TLS to a plain HTTP port\" 400 "), "{log}");
}
