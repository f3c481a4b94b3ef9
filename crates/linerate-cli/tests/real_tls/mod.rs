//! Servers that people run, over TLS with a certificate for `localhost`, each with its own count of
//! requests. `None`: it is not installed.
#![allow(dead_code, reason = "each test file uses its part")]

use std::process::Command;

use crate::issued::Issued;
use crate::real::{Server, find, nginx_tls, written};

/// A server that responds with `hello` to each path.
pub(crate) struct Site {
    pub(crate) server: Server,
    /// The file, and what a line of it has for each request that was processed. `None`: the server
    /// says the count at `/count`.
    log: Option<(&'static str, &'static str)>,
}

impl Site {
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/", self.server.address.port())
    }

    /// The requests in its log; `None`: it has none.
    pub(crate) fn logged(&self) -> Option<u64> {
        let (file, mark) = self.log?;
        let log = std::fs::read_to_string(self.server.file(file)).unwrap_or_default();
        Some(log.lines().filter(|line| line.contains(mark)).count() as u64)
    }
}

pub(crate) fn nginx(issued: &Issued) -> Option<Site> {
    let server = nginx_tls(&issued.certificate, &issued.key, "")?;
    Some(Site { server, log: Some(("access.log", "GET ")) })
}

pub(crate) fn haproxy(issued: &Issued) -> Option<Site> {
    let pem = issued.file("both.pem");
    std::fs::write(&pem, format!("{}{}", issued.certificate, issued.key)).expect("written");
    let source = format!(
        "global
  # With several threads it leaves out lines that two write at once.
  nbthread 1
  log stderr format raw local0 info
defaults
  mode http
  log global
  option httplog
  timeout client 30s
frontend tls
  bind 127.0.0.1:{{port}} ssl crt {pem} alpn h2,http/1.1
  http-request return status 200 content-type text/plain string hello
"
    );
    let server = written("haproxy", &["-f"], "haproxy.cfg", &source)?;
    Some(Site { server, log: Some(("errors", "\"GET ")) })
}

pub(crate) fn caddy(issued: &Issued) -> Option<Site> {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| issued.file(name));
    let source = format!(
        "{{
  admin off
  auto_https off
}}
https://localhost:{{port}} {{
  tls {cert} {key}
  log {{
    output stderr
  }}
  respond hello
}}
"
    );
    let server = written("caddy", &["run", "--adapter", "caddyfile", "--config"], "Caddyfile", &source)?;
    Some(Site { server, log: Some(("errors", "handled request")) })
}

pub(crate) fn node(issued: &Issued) -> Option<Site> {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| issued.file(name));
    let source = format!(
        "const fs = require('fs');
let n = 0;
require('https').createServer({{ cert: fs.readFileSync('{cert}'), key: fs.readFileSync('{key}') }}, (request, response) =>
  response.end(request.url === '/count' ? String(n) : (n++, 'hello'))).listen({{port}}, '127.0.0.1');
"
    );
    Some(Site { server: written("node", &[], "server.js", &source)?, log: None })
}

pub(crate) fn go(issued: &Issued) -> Option<Site> {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| issued.file(name));
    let source = format!(
        "package main
import (\"fmt\"; \"net/http\"; \"sync/atomic\")
func main() {{
  var n atomic.Int64
  http.HandleFunc(\"/count\", func(w http.ResponseWriter, r *http.Request) {{ fmt.Fprint(w, n.Load()) }})
  http.HandleFunc(\"/\", func(w http.ResponseWriter, r *http.Request) {{ n.Add(1); fmt.Fprint(w, \"hello\") }})
  panic(http.ListenAndServeTLS(\"127.0.0.1:{{port}}\", \"{cert}\", \"{key}\", nil))
}}
"
    );
    Some(Site { server: written("go", &["run"], "server.go", &source)?, log: None })
}

/// The JDK's own server as it should be run: without Nagle's algorithm.
pub(crate) fn jdk(issued: &Issued) -> Option<Site> {
    let openssl = find("openssl")?;
    let [cert, key, store] = ["cert.pem", "key.pem", "store.p12"].map(|name| issued.file(name));
    let mut command = Command::new(openssl);
    command.args(["pkcs12", "-export", "-in", &cert, "-inkey", &key, "-passout", "pass:secret"]);
    let made = command.args(["-out", &store]).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let source = include_str!("../real/Tls.java").replace("{store}", &store);
    let server = written("java", &["-Dsun.net.httpserver.nodelay=true"], "Tls.java", &source)?;
    Some(Site { server, log: None })
}
