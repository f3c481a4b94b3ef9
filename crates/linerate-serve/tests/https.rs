//! An axum `Router`, unchanged, over TLS, and handlers that get the client's identity.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::{get, post};
use axum::{Extension, Router};
use linerate_serve::{
    Handle, Request, Response, ServerOptions, ServerTls, TlsIdentity, TlsInfo, TlsOptions, spawn_with, tower,
    tower_with_peer,
};
use linerate_skips::skip;

/// A folder with a certificate that is the server's and the client's, and what a server makes of it.
fn issued() -> (tempfile::TempDir, ServerTls) {
    let (folder, mut options) = unasked();
    let cert = std::fs::read(folder.path().join("cert.pem")).unwrap();
    options.client_roots = Some(("cert.pem".to_owned(), cert));
    (folder, options.build().unwrap())
}

/// The same for a server that asks clients for no certificate.
fn unasked() -> (tempfile::TempDir, TlsOptions) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "ann");
    let cert = params.self_signed(&key).unwrap().pem();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cert.pem"), &cert).unwrap();
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let key = key.serialize_pem();
    let identity = TlsIdentity::from_pem(("cert.pem", cert.as_bytes()), ("key.pem", key.as_bytes())).unwrap();
    (folder, TlsOptions::new(identity))
}

/// What curl gets; `None`: there is none.
fn curl(folder: &tempfile::TempDir, server: &Handle, path: &str, flags: &[&str]) -> Option<String> {
    let mut command = Command::new("curl");
    command.current_dir(folder.path()).args(["-sS", "-4", "--max-time", "20", "--cacert", "cert.pem"]);
    command.args(["--cert", "cert.pem", "--key", "key.pem"]).args(flags);
    let out = command.arg(format!("https://localhost:{}{path}", server.addr().port())).output();
    let Ok(out) = out else {
        skip("curl", "curl is not installed");
        return None;
    };
    assert!(out.status.success(), "{out:?}");
    Some(String::from_utf8(out.stdout).unwrap())
}

fn options(tls: ServerTls) -> ServerOptions {
    ServerOptions { tls: Some(tls), threads: 2, ..ServerOptions::default() }
}

fn app() -> Router {
    let who = |Extension(tls): Extension<Arc<TlsInfo>>| async move {
        format!("{} {}", tls.agreed.version, tls.client.as_ref().unwrap().subject)
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/upper", post(|body: String| async move { body.to_uppercase() }))
        .route("/who", get(who))
}

#[test]
fn an_axum_app_runs_unchanged() {
    let (folder, tls) = issued();
    let told = spawn_with(options(tls.clone()), || tower_with_peer(app())).unwrap();
    let plain = spawn_with(options(tls), || tower(app())).unwrap();
    for server in [&told, &plain] {
        let Some(text) = curl(&folder, server, "/", &[]) else { return };
        assert_eq!(text, "hello");
        assert_eq!(curl(&folder, server, "/upper", &["-d", "body"]).unwrap(), "BODY");
    }
    assert_eq!(curl(&folder, &told, "/who", &["--tls-max", "1.2"]).unwrap(), "TLSv1.2 CN=ann");
    assert_eq!(curl(&folder, &told, "/who", &["--tlsv1.3"]).unwrap(), "TLSv1.3 CN=ann");
}

#[test]
fn a_handler_is_told_who_the_client_is() {
    let (folder, tls) = issued();
    async fn who(request: Request) -> Response {
        let tls = request.tls().unwrap();
        let client = tls.client.as_ref().unwrap();
        Response::text(format!("{} {} {}", tls.is_resumed, client.subject, client.chain.len()))
    }
    let server = spawn_with(options(tls), || who).unwrap();
    let Some(text) = curl(&folder, &server, "/", &[]) else { return };
    assert_eq!(text, "false CN=ann 1");
    assert_eq!(server.counts().tls.map(|tls| (tls.full, tls.resumed)), Some((1, 0)));
}

/// A call by openssl, with a session from an earlier one or into a file for a later one. Whether the
/// session was resumed, and the body; `None`: there is no openssl.
fn call(
    folder: &tempfile::TempDir,
    server: &Handle,
    version: &str,
    session: [&str; 2],
) -> Option<(bool, String)> {
    let mut command = Command::new("openssl");
    command.current_dir(folder.path()).args(["s_client", "-ign_eof", version]).args(session);
    command.args(["-connect", &server.addr().to_string()]).stdin(Stdio::piped());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        skip("openssl", "openssl is not installed");
        return None;
    };
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{out:?}"));
    assert!(head.contains("HTTP/1.1 200 OK"), "{text}");
    assert!(head.contains("Reused, ") != head.contains("New, "), "{text}");
    Some((head.contains("Reused, "), body.lines().next().unwrap_or_default().to_owned()))
}

const SAVE: [&str; 2] = ["-sess_out", "session.pem"];
const USE: [&str; 2] = ["-sess_in", "session.pem"];
const VERSIONS: [&str; 2] = ["-tls1_2", "-tls1_3"];

/// Responds with the name of the thread.
async fn thread(_: Request) -> Response {
    Response::text(format!("{:?}\n", std::thread::current().id()))
}

#[test]
fn threads_share_the_keys_of_tickets() {
    let (folder, tls) = unasked();
    let server = spawn_with(options(tls.build().unwrap()), || thread).unwrap();
    for version in VERSIONS {
        let Some((resumed, _)) = call(&folder, &server, version, SAVE) else { return };
        assert!(!resumed, "{version}: the first handshake");
        let mut threads = std::collections::HashSet::new();
        // The kernel spreads connections at random.
        for n in 0.. {
            let (resumed, thread) = call(&folder, &server, version, USE).unwrap();
            assert!(resumed, "{version}: handshake {n}, on {thread}");
            threads.insert(thread);
            if threads.len() == 2 {
                break;
            }
            assert!(n < 100, "{version}: 100 connections came to {threads:?}");
        }
    }
}

/// A client with a ticket of a key that is gone makes a full handshake, and gets its response.
#[test]
fn keys_of_tickets_are_replaced() {
    let (folder, mut tls) = unasked();
    tls.ticket_key_life = Duration::from_secs(1);
    let server = spawn_with(options(tls.build().unwrap()), || thread).unwrap();
    // A client does not offer a ticket of TLS 1.3 that is older than the server said it would be
    // good for, so its keys are replaced below.
    if call(&folder, &server, "-tls1_2", SAVE).is_none() {
        return;
    }
    let begun = Instant::now();
    while call(&folder, &server, "-tls1_2", USE).unwrap().0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the key is never replaced");
    }
    // A new ticket is good for at least a second.
    for version in VERSIONS {
        let begun = Instant::now();
        while !(call(&folder, &server, version, SAVE).is_some()
            && call(&folder, &server, version, USE).unwrap().0)
        {
            assert!(begun.elapsed() < Duration::from_secs(60), "{version}: no new ticket is good");
        }
    }
}

#[test]
fn a_ticket_of_other_keys_leads_to_a_full_handshake() {
    let (folder, options_of_tls) = unasked();
    let tls = options_of_tls.build().unwrap();
    let server = spawn_with(options(tls.clone()), || thread).unwrap();
    for version in VERSIONS {
        if call(&folder, &server, version, SAVE).is_none() {
            return;
        }
        assert!(call(&folder, &server, version, USE).unwrap().0, "{version}");
        tls.become_as(&options_of_tls.build().unwrap());
        assert!(!call(&folder, &server, version, USE).unwrap().0, "{version}");
    }
    assert_eq!(server.counts().tls.map(|tls| (tls.full, tls.resumed)), Some((4, 2)));
}
