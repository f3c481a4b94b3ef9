//! `linerate load` over HTTP/2 against nginx, Node, Go, Caddy and `HAProxy`: by prior knowledge and by ALPN, on epoll and `io_uring`.
#![allow(clippy::unwrap_used)]

mod common;
mod issued;
mod real;

use std::io::{Read, Write};
use std::process::Command;

use common::{measured, run};
use issued::Issued;
use real::{Counts, Server, find, finish_nginx, folder, free_port, nginx_with, written};
use serde_json::Value;

const IOS: [&str; 2] = ["epoll", "uring"];

/// Runs `load` with these flags; all `n` requests must be answered by this protocol.
fn all_answered(url: &str, flags: &str, n: u64, protocol: &str) -> Value {
    let n_text = n.to_string();
    let mut words: Vec<&str> = flags.split(' ').collect();
    words.extend(["-n", &n_text, url]);
    let (document, _) = measured(&words);
    let counts = Counts::of(&document);
    assert_eq!((counts.sent, counts.answered), (n, n), "{flags}: {document:#}");
    assert_eq!(document["status"]["200"], n, "{flags}");
    assert_eq!(document["protocol"], protocol, "{flags}");
    document
}

#[test]
fn nginx_in_clear_text() {
    let Some(server) = nginx_with("http2", "") else { return };
    let mut sent = 0;
    for io in IOS {
        for (flags, n) in [("-c 4 -p 20", 4000), ("-c 16", 2000), ("-c 4 -p 4 --per-connection 7", 500)] {
            let document = all_answered(&server.url("/"), &format!("--http2 --io {io} {flags}"), n, "HTTP/2");
            assert_eq!(document["http2"]["max_concurrent_streams"], 128);
            assert_eq!(document["http2"]["connections"], document["connections"]["opened"]);
            sent += n;
        }
    }
    assert_eq!(finish_nginx(server), sent, "each request was processed once");
}

/// nginx ends a connection by GOAWAY after this many requests; those above its last stream go out again,
/// a POST too.
#[test]
fn nginx_that_goes_away_loses_nothing() {
    let Some(server) = nginx_with("http2", "keepalive_requests 50;") else { return };
    let flags = "--http2 -c 2 -p 20 --resend idle --body x --expect-body hello";
    let document = all_answered(&server.url("/"), flags, 1000, "HTTP/2");
    assert!(document["http2"]["goaways"].as_u64().unwrap() > 0, "{:#}", document["http2"]);
    assert_eq!(document["requests"]["resent"], document["http2"]["refused"]);
    assert_eq!(finish_nginx(server), 1000, "what went out again was not processed before");
}

#[test]
fn a_bad_response_is_shown_with_the_request_as_it_was_sent() {
    for (listen, version, first_line) in [("http2", "2", "GET / HTTP/2"), ("", "1.1", "GET / HTTP/1.1")] {
        let Some(server) = nginx_with(listen, "") else { return };
        let said = run(&[
            "load",
            "-n",
            "5",
            "--expect-status",
            "201",
            "--http",
            version,
            "--json",
            "-",
            &server.url("/"),
        ]);
        assert_eq!(said.code, Some(1), "{said:?}");
        let document: Value = serde_json::from_str(&said.out).unwrap();
        let samples = document["samples"].as_array().unwrap();
        let sent = samples.iter().filter_map(|sample| sample["sent"].as_str());
        // The slowest are shown without their requests.
        let sent: Vec<&str> = sent.filter(|sent| !sent.is_empty()).collect();
        assert!(
            !sent.is_empty() && sent.iter().all(|sent| sent.lines().next() == Some(first_line)),
            "{sent:?}"
        );
        finish_nginx(server);
    }
}

/// nginx over TLS with a certificate that `--cacert` trusts.
fn nginx_tls(issued: &Issued, listen: &str) -> Option<Server> {
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    nginx_with(listen, &format!("ssl_certificate {cert}; ssl_certificate_key {key};"))
}

#[test]
fn over_tls_the_server_chooses() {
    let issued = Issued::to("localhost");
    let cacert = issued.file("cert.pem");
    let Some(both) = nginx_tls(&issued, "ssl http2") else { return };
    let Some(old) = nginx_tls(&issued, "ssl") else { return };
    let url = |server: &Server| format!("https://localhost:{}/", server.address.port());
    for io in IOS {
        let flags = format!("-4 --cacert {cacert} -c 4 -p 5 --io {io}");
        all_answered(&url(&both), &flags, 500, "HTTP/2");
        all_answered(&url(&both), &format!("{flags} --http2"), 500, "HTTP/2");
        all_answered(&url(&both), &format!("{flags} --http 1.1"), 500, "HTTP/1.1");
        all_answered(&url(&old), &flags, 500, "HTTP/1.1");
    }
    all_answered(&url(&both), &format!("-4 --cacert {cacert} -c 4 --per-connection 1"), 100, "HTTP/2");
    let said = run(&["load", "-4", "--cacert", &cacert, "--http2", "-n", "10", &url(&old)]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains("ALPN"), "{said:?}");
}

/// Node answers with the length of the request's body, and its windows are the usual ones.
#[test]
fn node_takes_bodies_larger_than_its_windows() {
    let source = "require('http2').createServer().on('stream', (stream) => {
  let n = 0;
  stream.on('data', (piece) => { n += piece.length; });
  stream.on('end', () => { stream.respond({ ':status': 200 }); stream.end(`took ${n}`); });
}).listen({port}, '127.0.0.1');
";
    let Some(server) = written("node", &[], "server.js", source) else { return };
    let body = server.file("body");
    std::fs::write(&body, vec![b'x'; 300_000]).unwrap();
    let body = format!("--body @{}", body.display());
    for io in IOS {
        let flags = format!("--http2 -c 2 -p 3 --io {io} {body} --expect-body 300000");
        all_answered(&server.url("/"), &flags, 30, "HTTP/2");
    }
    let flags = "--http2 -c 2 -p 3 --body n={{seq}} --expect-body took";
    all_answered(&server.url("/"), flags, 500, "HTTP/2");
}

#[test]
fn caddy_and_haproxy_in_clear_text() {
    let caddy = "{
  admin off
  servers {
    protocols h1 h2c
  }
}
http://127.0.0.1:{port} {
  respond hello
}
";
    let haproxy = "defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend all
  bind 127.0.0.1:{port} proto h2
  http-request return status 200 content-type text/plain string hello
";
    let run = ["run", "--adapter", "caddyfile", "--config"];
    for (program, arguments, file, source) in
        [("caddy", &run[..], "Caddyfile", caddy), ("haproxy", &["-f"], "haproxy.cfg", haproxy)]
    {
        let Some(server) = written(program, arguments, file, source) else { continue };
        for io in IOS {
            for flags in ["-c 4 -p 20 --expect-body hello", "-c 8", "-c 2 -p 8 --per-connection 50"] {
                all_answered(&server.url("/"), &format!("--http2 --io {io} {flags}"), 1000, "HTTP/2");
            }
        }
    }
}

/// A gRPC call's shape: a body from a file, and a status in the trailers.
#[test]
fn go_answers_a_unary_call_with_trailers() {
    let Some(go) = find("go") else { return };
    let (dir, address) = (folder(), free_port());
    let source = r#"package main

import (
	"io"
	"net/http"
)

func main() {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		w.Write([]byte{0, 0, 0, 0, 0})
		w.Header().Set("Grpc-Status", "0")
	})
	panic((&http.Server{Addr: "{address}", Handler: h, Protocols: p}).ListenAndServe())
}
"#;
    std::fs::write(dir.path().join("server.go"), source.replace("{address}", &address.to_string())).unwrap();
    std::fs::write(dir.path().join("hello.bin"), [0; 5]).unwrap();
    let plan = |trailer: &str| {
        let text = format!(
            "url = \"http://{address}/\"\nhttp = \"2\"\nconnections = 2\npipeline = 8\nrequests = 400\n\
             method = \"POST\"\nbody_file = \"hello.bin\"\nexpect_trailer = \"{trailer}\"\n\
             headers = {{ Content-Type = \"application/grpc\", TE = \"trailers\" }}\n\
             [[request]]\npath = \"/helloworld.Greeter/SayHello\"\n"
        );
        let file = dir.path().join("plan.toml");
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let mut build = Command::new(go);
    let built = build.args(["build", "-o", "server", "server.go"]).current_dir(dir.path()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (good, folder) = (plan("grpc-status: 0"), folder());
    let server = Server::start(Command::new(dir.path().join("server")), address, folder);
    let (document, _) = measured(&["--plan", &good]);
    assert_eq!((&document["requests"]["answered"], &document["bad"]["trailer"]), (&400.into(), &0.into()));
    let said = run(&["load", "-q", "--plan", &plan("grpc-status: 1"), "--json", "-"]);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(document["bad"]["trailer"], 400);
    drop(server);
}

#[test]
fn what_is_no_http_2_is_named() {
    let address = common::server(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let url = format!("http://{address}/");
    let said = run(&["load", "-q", "--http2", "-n", "4", "-c", "1", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("HTTP/1.1, not by HTTP/2"), "{said:?}");
    for flags in [&["--way", "threads"][..], &["--way", "async"], &["--h2-window", "1"]] {
        let said = run(&[&["load", "--http2", &url][..], flags].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
    }
    let said = run(&["load", "--h2-window", "65535", &url]);
    assert!(said.code == Some(2) && said.err.contains("--http2"), "{said:?}");
}
