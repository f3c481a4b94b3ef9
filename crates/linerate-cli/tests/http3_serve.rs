//! `linerate serve --http3`: a client that is not ours, what it must not do, and the flags.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod common;
mod issued;
mod serving;

use std::path::Path;
use std::process::Command;

use common::run;
use issued::Issued;
use linerate_skips::{program, python_for};
use serving::serve;

/// What aioquic is to say.
const AIOQUIC: &str = "\
hello 200 14
echo 200 True
trailers ABC
large 4000000
many True
long head 431
malformed 0x10e
short 0x10e
again 200
data first 0x105
settings on a request 0x105
settings twice 0x105
a frame of http/2 0x105
push id goes back 0x108
cancel of no push 0x108
no qpack 0x200
a push 0x103
a second control stream 0x103
control closed 0x104
control reset 0x104
after all 200
";

#[test]
fn aioquic_is_served_and_told_of_its_faults() {
    let Some(python) = python_for("", &["aioquic"]) else { return };
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    for threads in ["1", "2"] {
        let server = serve(&["--tls-cert", &cert, "--tls-key", &key, "--http3", "--threads", threads]);
        let port = server.address.rsplit_once(':').unwrap().1;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/h3.py");
        let out = Command::new(&python).arg(script).args([port, &cert]).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        assert_eq!(String::from_utf8_lossy(&out.stdout), AIOQUIC, "{threads} threads");
    }
}

/// Responses over TCP tell of it.
#[test]
fn tcp_says_where_http3_is() {
    if program("curl").is_none() {
        return;
    }
    let issued = Issued::to("localhost");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let server = serve(&["--tls-cert", &cert, "--tls-key", &key, "--http3", "--threads", "1"]);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    for version in ["--http1.1", "--http2"] {
        let url = format!("https://localhost:{port}/");
        let out = Command::new("curl").args(["-4sSi", version, "--cacert", &cert, &url]).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).to_ascii_lowercase();
        assert!(text.contains(&format!("alt-svc: h3=\":{port}\"; ma=86400\r\n")), "{version}: {text}");
    }
}

#[test]
fn it_needs_tls_and_the_kernels_sockets() {
    let said = run(&["serve", "--http3", "--check-config"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--http3 needs TLS"), "{said:?}");
    let said = run(&["serve", "--http3", "--tls-self-signed", "--check-config"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let xdp = ["serve", "--http3", "--tls-self-signed", "--io", "xdp", "--interface", "lo", "--check-config"];
    let said = run(&xdp);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--io xdp"), "{said:?}");
}
