//! Real servers for tests: each in a folder of its own, on a port of its own on loopback, gone when dropped.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server that takes longer than this to start, or to end, hangs. (`go run` and `java` compile first.)
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a program is, with the system administrator's folders, where nginx lives. `None`: the test is
/// reported as skipped.
#[track_caller]
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    linerate_skips::program(program)
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts a server that listens on `address` and waits until it does.
    pub(crate) fn start(mut command: Command, address: SocketAddr, dir: tempfile::TempDir) -> Server {
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let errors = std::fs::File::create(dir.path().join("errors")).expect("a file");
        let child = command.stderr(errors).spawn().expect("it starts");
        let mut server = Server { child, address, dir };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().expect("it can be asked");
            let errors = std::fs::read_to_string(server.dir.path().join("errors")).unwrap_or_default();
            assert!(ended.is_none(), "{command:?} ended at once: {errors}");
            assert!(start.elapsed() < PATIENCE, "{command:?} does not listen: {errors}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// A file in its folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL of `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The body of a GET of `path`, asked for by hand: not by what is tested.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago: servers that cannot tell which port they got have to be told one.
pub(crate) fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port")
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// nginx in one process, with `keepalive_requests` and a log line for each request. `None`: not installed.
pub(crate) fn nginx(keepalive_requests: u32) -> Option<Server> {
    nginx_in(folder(), keepalive_requests, "", "")
}

/// The same over TLS, with the certificate and the key in these PEM texts, and more lines for the server.
pub(crate) fn nginx_tls(certificate: &str, key: &str, more: &str) -> Option<Server> {
    nginx_over(certificate, key, more, "")
}

/// The same with HTTP/2.
pub(crate) fn nginx_tls_http2(certificate: &str, key: &str, more: &str) -> Option<Server> {
    nginx_of(certificate, key, more, "", "ssl http2")
}

fn nginx_over(certificate: &str, key: &str, more: &str, at: &str) -> Option<Server> {
    nginx_of(certificate, key, more, at, "ssl")
}

fn nginx_of(certificate: &str, key: &str, more: &str, at: &str, listen: &str) -> Option<Server> {
    let dir = folder();
    std::fs::write(dir.path().join("cert.pem"), certificate).expect("written");
    std::fs::write(dir.path().join("key.pem"), key).expect("written");
    let versions = if more.contains("ssl_protocols") { "" } else { "ssl_protocols TLSv1.2 TLSv1.3;" };
    let lines = format!("ssl_certificate cert.pem; ssl_certificate_key key.pem; {versions} {more}");
    nginx_at(at, dir, 1_000_000_000, listen, &lines)
}

/// nginx with this behind `listen ADDRESS`, and more lines for the server.
pub(crate) fn nginx_with(listen: &str, lines: &str) -> Option<Server> {
    nginx_in(folder(), 1_000_000_000, listen, lines)
}

/// nginx over TLS at all addresses of this namespace, for calls from another one.
pub(crate) fn nginx_far(certificate: &str, key: &str, more: &str) -> Option<Server> {
    nginx_over(certificate, key, more, "0.0.0.0:")
}

/// nginx with HTTP/2 in clear text at all addresses of this namespace.
pub(crate) fn nginx_far_http2(lines: &str) -> Option<Server> {
    nginx_at("0.0.0.0:", folder(), 1_000_000_000, "http2", lines)
}

fn nginx_in(dir: tempfile::TempDir, keepalive_requests: u32, listen: &str, lines: &str) -> Option<Server> {
    nginx_at("", dir, keepalive_requests, listen, lines)
}

/// `at`: where it listens, up to the port; empty: at its own address.
fn nginx_at(
    at: &str,
    dir: tempfile::TempDir,
    keepalive_requests: u32,
    listen: &str,
    lines: &str,
) -> Option<Server> {
    let program = find("nginx")?;
    let address = free_port();
    let at = if at.is_empty() { address.to_string() } else { format!("{at}{}", address.port()) };
    // For another server in the same place.
    let lines = lines.replace("{at}", &at);
    let configuration = format!(
        "daemon off; master_process off; pid pid; error_log error.log;
events {{ worker_connections 1024; }}
http {{
    log_format short '$request_method $status';
    access_log access.log short;
    keepalive_requests {keepalive_requests};
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {{ listen {at} backlog=1024 {listen}; {lines} location / {{ return 200 hello; }} }}
}}
"
    );
    std::fs::write(dir.path().join("nginx.conf"), configuration).expect("written");
    let mut command = Command::new(program);
    command.arg("-p").arg(dir.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
    Some(Server::start(command, address, dir))
}

/// Ends nginx the way that lets it finish, and returns how many requests it logged: its own count. (A line is written
/// after its answer, so only a server that has ended has counted everything.)
pub(crate) fn finish_nginx(mut server: Server) -> u64 {
    let program = find("nginx").expect("it ran");
    let asked = Command::new(program)
        .arg("-p")
        .arg(server.dir.path())
        .args(["-c", "nginx.conf", "-e", "error.log", "-s", "quit"])
        .output()
        .expect("it runs");
    assert!(asked.status.success(), "{asked:?}");
    let start = Instant::now();
    while server.child.try_wait().expect("it can be asked").is_none() {
        assert!(start.elapsed() < PATIENCE, "nginx does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    logged_by_nginx(&server)
}

/// Requests that nginx has logged so far.
pub(crate) fn logged_by_nginx(server: &Server) -> u64 {
    let log = std::fs::read_to_string(server.dir.path().join("access.log")).expect("a log");
    log.lines().filter(|l| l.starts_with("GET ") || l.starts_with("POST ")).count() as u64
}

/// A server written in another language: it answers every path with `hello`, except `/count`, where it says how many
/// of those there were. `{port}` in the source becomes its port.
pub(crate) fn written(program: &str, arguments: &[&str], file: &str, source: &str) -> Option<Server> {
    let program = find(program)?;
    let (dir, address) = (folder(), free_port());
    let source = source.replace("{port}", &address.port().to_string());
    std::fs::write(dir.path().join(file), source).expect("written");
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    Some(Server::start(command, address, dir))
}

/// Node's `http`.
pub(crate) fn node() -> Option<Server> {
    let source = "let n = 0;
require('http').createServer((request, response) => {
  response.end(request.url === '/count' ? String(n) : (n++, 'hello'));
}).listen({port}, '127.0.0.1');
";
    written("node", &[], "server.js", source)
}

/// Node's `http` with Nagle's algorithm left on, and an answer in two writes.
pub(crate) fn node_split() -> Option<Server> {
    let source = "require('http').createServer({ noDelay: false }, (request, response) => {
  response.writeHead(200, { 'Content-Length': 10 });
  response.write('first');
  setImmediate(() => response.end('again'));
}).listen({port}, '127.0.0.1');
";
    written("node", &[], "server.js", source)
}

/// Python's `http.server` with connections that are kept: head and body leave in a write each, and Nagle's algorithm is on, unless
/// `buffered`.
pub(crate) fn python(buffered: bool) -> Option<Server> {
    let source = "import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = {buffer}
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'hello')
    def log_message(self, *anything):
        pass

http.server.ThreadingHTTPServer(('127.0.0.1', {port}), Handler).serve_forever()
";
    written("python3", &[], "server.py", &source.replace("{buffer}", if buffered { "-1" } else { "0" }))
}

/// Go's `net/http`.
pub(crate) fn go() -> Option<Server> {
    let go = find("go")?;
    let (dir, address) = (folder(), free_port());
    let source = r#"package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

func main() {
	var n atomic.Int64
	http.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, n.Load()) })
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { n.Add(1); fmt.Fprint(w, "hello") })
	panic(http.ListenAndServe("127.0.0.1:{port}", nil))
}
"#;
    std::fs::write(dir.path().join("server.go"), source.replace("{port}", &address.port().to_string()))
        .expect("written");
    // Built apart: `go run` would leave its child behind when it is killed.
    let mut build = Command::new(go);
    let built =
        build.args(["build", "-o", "server", "server.go"]).current_dir(dir.path()).output().expect("it runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(Server::start(Command::new(dir.path().join("server")), address, dir))
}

/// The JDK's `com.sun.net.httpserver`, as it should be run.
pub(crate) fn jdk() -> Option<Server> {
    jdk_with(&["-Dsun.net.httpserver.nodelay=true"])
}

/// The same with other flags for the virtual machine.
pub(crate) fn jdk_with(flags: &[&str]) -> Option<Server> {
    find("javac")?;
    let source = r#"import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

class Server {
    static void answer(com.sun.net.httpserver.HttpExchange e, String text) throws java.io.IOException {
        e.getRequestBody().readAllBytes();
        e.sendResponseHeaders(200, text.length());
        e.getResponseBody().write(text.getBytes());
        e.close();
    }

    public static void main(String[] a) throws Exception {
        AtomicLong n = new AtomicLong();
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", {port}), 1024);
        s.createContext("/count", e -> answer(e, "" + n.get()));
        s.createContext("/", e -> { n.incrementAndGet(); answer(e, "hello"); });
        s.setExecutor(Executors.newFixedThreadPool(8));
        s.start();
    }
}
"#;
    written("java", flags, "Server.java", source)
}

/// tinyproxy, which asks for this user and password if there is one. `None`: not installed.
pub(crate) fn tinyproxy(user: Option<(&str, &str)>) -> Option<Server> {
    let program = find("tinyproxy")?;
    let (dir, address) = (folder(), free_port());
    let auth = user.map(|(name, password)| format!("BasicAuth {name} {password}\n")).unwrap_or_default();
    let text = format!(
        "Port {}\nListen 127.0.0.1\nTimeout 60\nMaxClients 100\nAllow 127.0.0.1\nLogLevel Error\nDisableViaHeader No\n{auth}",
        address.port()
    );
    std::fs::write(dir.path().join("tinyproxy.conf"), text).expect("written");
    let mut command = Command::new(program);
    command.args(["-d", "-c", "tinyproxy.conf"]);
    Some(Server::start(command, address, dir))
}

/// squid, with these rules. `None`: not installed.
pub(crate) fn squid(rules: &str) -> Option<Server> {
    let program = find("squid")?;
    let (dir, address) = (folder(), free_port());
    let text = format!(
        "http_port {address}\n{rules}\nhttp_access deny all\ncache deny all\naccess_log none\ncache_log /dev/null
cache_store_log none\npid_filename none\nnetdb_filename none\nshutdown_lifetime 0 seconds\nvisible_hostname proxy.test
coredump_dir none\npinger_enable off\nserver_persistent_connections on\n"
    );
    std::fs::write(dir.path().join("squid.conf"), text).expect("written");
    let mut command = Command::new(program);
    command.args(["-N", "-f"]).arg(dir.path().join("squid.conf"));
    Some(Server::start(command, address, dir))
}

/// What a run says of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) resent: u64,
}

impl Counts {
    /// Reads them from the document and holds them to their rules.
    pub(crate) fn of(document: &Value) -> Counts {
        let n = |name: &str| {
            document["requests"][name].as_u64().unwrap_or_else(|| panic!("requests.{name} in {document:#}"))
        };
        let c = Counts {
            sent: n("sent"),
            answered: n("answered"),
            failed: n("failed"),
            unknown: n("unknown"),
            resent: n("resent"),
        };
        assert_eq!(c.sent, c.answered + c.failed + c.unknown, "sent = answered + failed + unknown");
        let statuses: u64 =
            document["status"].as_object().expect("statuses").values().filter_map(Value::as_u64).sum();
        assert_eq!(statuses, c.answered, "every answer has a status");
        assert_eq!(document["connections"]["requests_resent"], c.resent);
        c
    }

    /// Holds them against the server's own count: without packet loss, answered <= c <= sent + resent.
    pub(crate) fn agree_with(self, server: u64) {
        assert!(self.answered <= server, "{self:?}, but the server counted only {server}");
        assert!(server <= self.sent + self.resent, "{self:?}, but the server counted {server}");
    }
}
