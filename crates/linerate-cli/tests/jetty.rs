//! `linerate load` and `explain` over HTTP/2 against Jetty, in clear text and over TLS. Maven gets
//! Jetty from Maven Central, 2.5 MB once.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{measured, number, run};
use issued::Issued;
use linerate_skips::skip;
use real::{Counts, Server, find, folder, free_port};
use serde_json::Value;

const POM: &str = include_str!("real/jetty/pom.xml");
const PROGRAM: &str = include_str!("real/jetty/Jetty.java");
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
/// Maven's own settings leave a host that does not answer after minutes.
const PATIENCE: &str = "-Dmaven.wagon.http.connectionTimeout=10000 -Dmaven.wagon.rto=20000";

/// Jetty's libraries, in that folder. `false` says why not.
fn jars(dir: &Path) -> bool {
    let Some(maven) = find("mvn") else { return false };
    std::fs::write(dir.join("pom.xml"), POM).unwrap();
    let mut command = Command::new(maven);
    command.current_dir(dir).args(["--batch-mode", "--quiet", COPY]).args(PATIENCE.split(' '));
    command.arg(format!("-DoutputDirectory={}", dir.join("jars").display()));
    let out = command.stdin(Stdio::null()).output().expect("it runs");
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stdout);
        let why = why.lines().find(|line| line.contains("ERROR")).unwrap_or("no reason").trim();
        skip("mvn", format_args!("Maven cannot get Jetty's libraries: {why}"));
    }
    out.status.success()
}

/// Jetty in clear text, and its port for TLS.
fn jetty(issued: &Issued) -> Option<(Server, u16)> {
    let (java, openssl) = (find("java")?, find("openssl")?);
    find("javac")?;
    let (dir, address, secure) = (folder(), free_port(), free_port().port());
    if !jars(dir.path()) {
        return None;
    }
    let store = dir.path().join("store.p12");
    let mut command = Command::new(openssl);
    command.args(["pkcs12", "-export", "-in", &issued.file("cert.pem"), "-inkey", &issued.file("key.pem")]);
    let made = command.args(["-passout", "pass:secret", "-out"]).arg(&store).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    std::fs::write(dir.path().join("Jetty.java"), PROGRAM).unwrap();
    let mut command = Command::new(java);
    command.args(["-cp", "jars/*", "Jetty.java", &address.port().to_string(), &secure.to_string()]);
    command.arg(store);
    Some((Server::start(command, address, dir), secure))
}

/// Runs `load`; all `n` requests must be answered over HTTP/2, and Jetty must have counted as many.
fn loads(server: &Server, flags: &str, n: u64, url: &str) -> Value {
    let counted = || server.get("/count").trim().parse::<u64>().expect("a count");
    let (before, n_text) = (counted(), n.to_string());
    let mut words: Vec<&str> = flags.split_whitespace().collect();
    words.extend(["-n", &n_text, url]);
    let (document, _) = measured(&words);
    let counts = Counts::of(&document);
    assert_eq!((counts.sent, counts.answered), (n, n), "{flags}: {document:#}");
    assert_eq!(document["status"]["200"], n, "{flags}");
    assert_eq!(document["protocol"], "HTTP/2", "{flags}");
    let checked = ["body", "status", "tag"].map(|kind| document["bad"][kind].as_u64().unwrap_or(0));
    assert_eq!(checked, [0; 3], "{flags}: {document:#}");
    counts.agree_with(counted() - before);
    document
}

/// Nothing is wrong but that a busy machine makes the server late.
fn explained(flags: &[&str], url: &str) {
    let said = run(&[&["explain", "--quiet", "--json", "-", "--budget", "12s"], flags, &[url]].concat());
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let causes = document["causes"].as_array().expect("a list");
    assert!(causes.iter().all(|cause| cause["proof"] != "proved"), "{document:#}");
    assert_eq!(number(&document, "/http2/max_concurrent_streams"), 128, "{document:#}");
    let ruled_out = document["ruled_out"].as_array().expect("a list");
    for id in ["h2-stream-limit", "h2-head-of-line"] {
        assert!(ruled_out.iter().any(|cause| cause["id"] == id), "{id}: {document:#}");
    }
}

#[test]
fn jetty_in_clear_text_and_over_tls() {
    let issued = Issued::to("localhost");
    let Some((server, secure)) = jetty(&issued) else { return };
    let file = |bytes: usize| {
        let file = server.file(&format!("body-{bytes}"));
        std::fs::write(&file, vec![b'x'; bytes]).unwrap();
        format!("--body @{} --expect-body {bytes}", file.display())
    };
    let cacert = issued.file("cert.pem");
    let tls = format!("-4 --cacert {cacert}");
    let (clear, over_tls) = (server.url(""), format!("https://localhost:{secure}"));
    for io in ["epoll", "uring"] {
        for (how, base) in [("--http2", &clear), (&tls, &over_tls)] {
            let all = [
                ("-c 8 -p 100 --expect-body took".to_owned(), 4000, "/"),
                ("-c 4 -p 20 --per-connection 50".to_owned(), 1000, "/"),
                ("-c 8 -p 100 --body n={{seq}} --expect-body took".to_owned(), 4000, "/"),
                (format!("-c 8 -p 100 {}", file(5000)), 2000, "/"),
                // Larger than Jetty's windows of a stream, and than the first one of a connection.
                (format!("-c 2 -p 3 {}", file(600_000)), 30, "/"),
                ("-c 8 -p 100".to_owned(), 800, "/large"),
            ];
            for (flags, n, path) in all {
                let url = format!("{base}{path}");
                let document = loads(&server, &format!("{how} --io {io} {flags}"), n, &url);
                assert_eq!(number(&document, "/http2/max_concurrent_streams"), 128, "{flags}");
            }
        }
    }
    explained(&["--http2"], &format!("{clear}/"));
    explained(&["-4", "--cacert", &cacert], &format!("{over_tls}/"));
}
