//! `linerate serve` under the TLS clients that people have: both versions, sessions resumed, large bodies both ways.
#![allow(clippy::unwrap_used)]

mod issued;
mod real;
mod serving;

use std::path::Path;
use std::process::{Command, Output};

use linerate_skips::python_for;

use issued::Issued;
use real::find;
use serving::{Server, get, serve};

/// A server, and where its metrics are.
fn server(issued: &Issued) -> (Server, String) {
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let flags = ["--tls-cert", &cert, "--tls-key", &key, "--threads", "2", "--metrics", "127.0.0.1:0"];
    let server = serve(&[&flags[..], &["--demo-routes"]].concat());
    let line = server.line();
    let metrics = line.strip_prefix("metrics on http://").and_then(|line| line.strip_suffix("/metrics"));
    let metrics = metrics.unwrap().to_owned();
    (server, metrics)
}

/// Sessions that were resumed, as the server counts them.
fn resumed(metrics: &str) -> u64 {
    let answer = get(metrics, "/stats");
    let stats: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    stats["tls"]["resumed"].as_u64().unwrap()
}

fn source(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name).display().to_string()
}

fn said(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// A client that takes a CA file, a port and a version, and says what was agreed on; the server must have seen it resume.
fn both_versions(program: &str, before: &[&str], name: &str, expected: impl Fn(&str) -> String) {
    let Some(program) = find(program) else { return };
    let issued = Issued::to("localhost");
    let (server, metrics) = server(&issued);
    let port = server.address.rsplit_once(':').unwrap().1;
    for version in ["1.2", "1.3"] {
        let count = resumed(&metrics);
        let mut command = Command::new(&program);
        command.args(before).arg(source(name)).args([&issued.file("cert.pem"), port, version]);
        assert_eq!(said(&command.output().unwrap()), expected(version), "{name}");
        assert!(resumed(&metrics) > count, "{name} {version}");
    }
}

#[test]
fn python_is_served() {
    both_versions("python3", &[], "python.py", |version| format!("TLSv{version} resumed"));
}

#[test]
fn node_is_served() {
    both_versions("node", &[], "node.js", |version| format!("TLSv{version} resumed"));
}

#[test]
fn go_is_served() {
    both_versions("go", &["run"], "client.go", |version| format!("TLSv{version} resumed"));
}

#[test]
fn java_is_served() {
    both_versions("java", &[], "Client.java", |version| format!("TLSv{version}"));
}

#[test]
fn fetch_of_undici_is_served() {
    let Some(node) = find("node") else { return };
    let issued = Issued::to("localhost");
    let (server, _) = server(&issued);
    let url = format!("https://localhost:{}/echo", server.address.rsplit_once(':').unwrap().1);
    let mut command = Command::new(node);
    command.arg("--dns-result-order=ipv4first").args([&source("undici.js"), &url]);
    assert_eq!(said(&command.env("NODE_EXTRA_CA_CERTS", issued.file("cert.pem")).output().unwrap()), "good");
}

/// It makes several connections at once, and has a cipher of its own choice.
#[test]
fn chromium_is_served() {
    let Some(chromium) = find("chromium") else { return };
    let issued = Issued::to("localhost");
    let (server, _) = server(&issued);
    let folder = tempfile::tempdir().unwrap();
    let out = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(format!("https://{}/", server.address))
        .output()
        .unwrap();
    assert!(said(&out).contains("Hello, World!"), "{out:?}");
}

/// Nothing older than TLS 1.2, and only ciphers with forward secrecy and authenticated encryption.
#[test]
fn openssl_finds_no_old_version_and_no_weak_cipher() {
    let Some(openssl) = find("openssl") else { return };
    let issued = Issued::to("localhost");
    let (server, _) = server(&issued);
    let agrees = |flags: &[&str]| {
        let mut command = Command::new(&openssl);
        command.args(["s_client", "-connect", &server.address]).args(flags);
        let out = command.stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        out.status.success() && !text.contains("Cipher is (NONE)")
    };
    assert!(agrees(&["-tls1_2"]) && agrees(&["-tls1_3"]));
    for old in ["-tls1", "-tls1_1"] {
        assert!(!agrees(&[old, "-cipher", "ALL:@SECLEVEL=0"]), "{old}");
    }
    let all =
        Command::new(&openssl).args(["ciphers", "-tls1_2", "-s", "ALL:eNULL:@SECLEVEL=0"]).output().unwrap();
    let all = said(&all);
    let taken: Vec<&str> = all
        .split(':')
        .filter(|cipher| !cipher.starts_with("TLS_"))
        .filter(|cipher| agrees(&["-tls1_2", "-cipher", &format!("{cipher}:@SECLEVEL=0")]))
        .collect();
    assert!(!taken.is_empty());
    for cipher in taken {
        let is_strong =
            cipher.starts_with("ECDHE-") && (cipher.contains("-GCM-") || cipher.contains("CHACHA20"));
        assert!(is_strong, "{cipher}");
    }
}

#[test]
fn python_modules_are_served() {
    let issued = Issued::to("localhost");
    let (server, _) = server(&issued);
    let port = server.address.rsplit_once(':').unwrap().1;
    for module in ["httpx", "aiohttp"] {
        let Some(python) = python_for(module, &[module]) else { continue };
        let words = [source("modules.py"), issued.file("cert.pem"), port.to_owned(), module.to_owned()];
        assert_eq!(said(&Command::new(&python).args(words).output().unwrap()), "good", "{module}");
    }
}

#[test]
fn sslscan_finds_nothing_old() {
    let Some(sslscan) = find("sslscan") else { return };
    let issued = Issued::to("localhost");
    let (server, _) = server(&issued);
    let text = said(&Command::new(sslscan).args(["--no-colour", &server.address]).output().unwrap());
    for old in ["SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"] {
        assert!(
            text.lines().any(|line| line.starts_with(old) && line.ends_with("disabled")),
            "{old}: {text}"
        );
    }
    let ciphers = text.lines().filter(|line| line.starts_with("Preferred") || line.starts_with("Accepted"));
    let weak = |line: &&str| !line.contains("GCM") && !line.contains("CHACHA20");
    assert_eq!(ciphers.clone().filter(weak).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(ciphers.count() >= 6, "{text}");
}
