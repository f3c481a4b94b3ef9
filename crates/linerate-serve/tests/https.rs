//! An axum `Router`, unchanged, over TLS, and handlers that are told who the client is.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Extension, Router};
use linerate_serve::{
    Handle, Request, Response, ServerOptions, ServerTls, TlsIdentity, TlsInfo, TlsOptions, spawn_with, tower,
    tower_with_peer,
};

/// A folder with a certificate that is the server's and the client's, and what a server makes of it.
fn issued() -> (tempfile::TempDir, ServerTls) {
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
    let mut options = TlsOptions::new(identity);
    options.client_roots = Some(("cert.pem".to_owned(), cert.into_bytes()));
    (folder, options.build().unwrap())
}

/// What curl gets; `None`: there is none.
fn curl(folder: &tempfile::TempDir, server: &Handle, path: &str, flags: &[&str]) -> Option<String> {
    let mut command = Command::new("curl");
    command.current_dir(folder.path()).args(["-sS", "-4", "--max-time", "20", "--cacert", "cert.pem"]);
    command.args(["--cert", "cert.pem", "--key", "key.pem"]).args(flags);
    let out = command.arg(format!("https://localhost:{}{path}", server.addr().port())).output();
    let Ok(out) = out else {
        println!("not run: curl is not installed");
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
