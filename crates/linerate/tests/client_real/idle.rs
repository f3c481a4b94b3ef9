//! Pauses that end about when the server closes an idle connection. No GET fails, no POST comes twice, and where the limit
//! is announced or learnt, POSTs do not meet the close either.
//!
//! `cargo xtask soak idle` runs these with the servers' own limits and 100,000 calls to each.

use std::process::Command;
use std::time::Duration;

use linerate::client::{Client, Error};
use linerate_base::Random;

use crate::real::{self, Server};

/// Calls to each server, if more than the tests' few.
const CALLS: &str = "LINERATE_IDLE_CALLS";

/// Tomcat's jars, as a class path.
const TOMCAT: &str = "LINERATE_TOMCAT";

/// How a server is called.
#[derive(Clone, Copy)]
struct IdlePauses {
    limit: Duration,
    /// Each response names the limit.
    is_announced: bool,
    rounds: u32,
    /// Calls at once.
    burst: u32,
}

impl IdlePauses {
    /// `own`: the limit in seconds in the soak; the tests take one second.
    fn of(own: u64, is_announced: bool) -> IdlePauses {
        let asked = std::env::var(CALLS).ok().and_then(|calls| calls.parse::<u32>().ok());
        match asked {
            // Node, the slowest of them, accepts so many connections at once.
            Some(calls) => IdlePauses {
                limit: Duration::from_secs(own),
                is_announced,
                rounds: calls.div_ceil(800),
                burst: 800,
            },
            None => IdlePauses { limit: Duration::from_secs(1), is_announced, rounds: 5, burst: 40 },
        }
    }

    fn seconds(self) -> u64 {
        self.limit.as_secs()
    }
}

/// Calls so far, of which every second one is a POST.
#[derive(Debug, Default)]
struct IdleCalls {
    begun: u64,
    unknown: u64,
}

/// Calls at once; each POST has a path of its own.
async fn burst(client: &Client, pauses: IdlePauses, done: &mut IdleCalls) {
    let calls = (0..pauses.burst).map(|n| {
        let path = if n % 2 == 0 { "/".to_owned() } else { format!("/{}", done.begun + u64::from(n)) };
        let is_post = n % 2 == 1;
        let call = if is_post { client.post(&path, "x") } else { client.get(&path) };
        async move { (is_post, call.await) }
    });
    let ended = futures_util::future::join_all(calls).await;
    done.begun += u64::from(pauses.burst);
    for (is_post, result) in ended {
        match result {
            Ok(response) => {
                assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"hello"[..]))
            }
            Err(Error::OutcomeUnknown(_)) if is_post => done.unknown += 1,
            Err(error) => panic!("{error}: {:?}", client.statistics()),
        }
    }
}

async fn after_pauses(server: &Server, pauses: IdlePauses) {
    let client = Client::builder(&server.url("")).pipes(pauses.burst).depth(1).build().unwrap();
    let (mut done, mut random) = (IdleCalls::default(), Random::new(1));
    if !pauses.is_announced {
        // Each of these pauses sees the server close, so that the client knows its limit.
        for _ in 0..4 {
            burst(&client, pauses, &mut done).await;
            tokio::time::sleep(pauses.limit * 2 + Duration::from_millis(200)).await;
        }
        assert_eq!(done.unknown, 0, "no call met a close: {:?}", client.statistics());
    }
    for _ in 0..pauses.rounds {
        burst(&client, pauses, &mut done).await;
        let about = pauses.limit + Duration::from_millis(random.below(200));
        tokio::time::sleep(about - Duration::from_millis(100)).await;
    }
    let most = if pauses.is_announced { 0 } else { done.begun / 2 / 10_000 };
    assert!(done.unknown <= most, "{done:?}: {:?}", client.statistics());
    println!("{:?}, {} unknown, {:?}", pauses.limit, done.unknown, client.statistics());
}

/// The server's own word.
fn none_came_twice(server: &Server) {
    assert_eq!(server.get("/twice").trim(), "0", "POSTs that came twice");
}

#[tokio::test]
async fn node_announces_its_limit() {
    let pauses = IdlePauses::of(5, true);
    let source = "const seen = new Set();
let twice = 0;
const server = require('http').createServer((request, response) => {
  if (request.url === '/twice') return response.end(String(twice));
  if (request.method === 'POST') seen.has(request.url) ? twice++ : seen.add(request.url);
  request.resume().on('end', () => response.end('hello'));
});
server.keepAliveTimeout = {limit};
server.listen({port}, '127.0.0.1', 2048);
";
    let source = source.replace("{limit}", &(pauses.seconds() * 1000).to_string());
    let Some(server) = real::written("node", &[], "server.js", &source) else { return };
    after_pauses(&server, pauses).await;
    none_came_twice(&server);
}

/// The paths of POSTs in a log of nginx, sorted.
fn posted_to_nginx(server: &Server) -> Vec<String> {
    let log = std::fs::read_to_string(server.file("posts.log")).unwrap();
    let path = |line: &str| Some(line.split_once("\"POST ")?.1.split(' ').next()?.to_owned());
    let mut posts: Vec<_> = log.lines().filter_map(path).collect();
    posts.sort_unstable();
    posts
}

async fn nginx(is_announced: bool) {
    let pauses = IdlePauses::of(3, is_announced);
    let seconds = pauses.seconds();
    let announced = if is_announced { format!(" {seconds}s") } else { String::new() };
    let lines = format!("keepalive_timeout {seconds}s{announced}; access_log posts.log combined;");
    let Some(server) = real::nginx_with("", &lines) else { return };
    after_pauses(&server, pauses).await;
    let posts = posted_to_nginx(&server);
    let mut distinct = posts.clone();
    distinct.dedup();
    assert!(!posts.is_empty() && posts.len() == distinct.len(), "{} of {}", distinct.len(), posts.len());
}

#[tokio::test]
async fn nginx_announces_its_limit() {
    nginx(true).await;
}

#[tokio::test]
async fn the_limit_of_nginx_is_learnt() {
    nginx(false).await;
}

#[tokio::test]
async fn the_limit_of_gunicorn_is_learnt() {
    let pauses = IdlePauses::of(2, false);
    let source = "import threading

seen, twice, lock = set(), 0, threading.Lock()


def app(environ, start):
    global twice
    path, body = environ['PATH_INFO'], b'hello'
    if path == '/twice':
        body = str(twice).encode()
    elif environ['REQUEST_METHOD'] == 'POST':
        environ['wsgi.input'].read()
        with lock:
            twice += path in seen
            seen.add(path)
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]
";
    let Some(python) = linerate_skips::python_for("", &["gunicorn"]) else { return };
    let (folder, address) = (real::folder(), real::free_port());
    std::fs::write(folder.path().join("app.py"), source).unwrap();
    let mut command = Command::new(python);
    command.args([
        "-m",
        "gunicorn",
        "--worker-class",
        "gthread",
        "--threads",
        "4",
        "--worker-connections",
        "2000",
    ]);
    command.args(["--keep-alive", &pauses.seconds().to_string(), "--bind", &address.to_string(), "app:app"]);
    let server = Server::start(command, address, folder);
    after_pauses(&server, pauses).await;
    none_came_twice(&server);
}

#[tokio::test]
async fn the_limit_of_tomcat_is_learnt() {
    let Ok(jars) = std::env::var(TOMCAT) else {
        return linerate_skips::skip("mvn", "`cargo xtask soak idle` alone fetches Tomcat's jars");
    };
    let pauses = IdlePauses::of(2, false);
    let source = r#"import jakarta.servlet.http.*;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

class Server {
    static final Set<String> seen = ConcurrentHashMap.newKeySet();
    static final AtomicLong twice = new AtomicLong();

    static class Hello extends HttpServlet {
        protected void service(HttpServletRequest request, HttpServletResponse response) throws java.io.IOException {
            String path = request.getRequestURI(), body = "hello";
            if (path.equals("/twice")) body = "" + twice.get();
            else if (request.getMethod().equals("POST") && !seen.add(path)) twice.incrementAndGet();
            request.getInputStream().readAllBytes();
            response.setContentLength(body.length());
            response.getWriter().print(body);
        }
    }

    public static void main(String[] a) throws Exception {
        Connector connector = new Connector();
        connector.setPort({port});
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("keepAliveTimeout", "{limit}");
        connector.setProperty("acceptCount", "2048");
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(".");
        tomcat.setConnector(connector);
        var context = tomcat.addContext("", new java.io.File(".").getAbsolutePath());
        Tomcat.addServlet(context, "hello", new Hello());
        context.addServletMappingDecoded("/*", "hello");
        tomcat.start();
        tomcat.getServer().await();
    }
}
"#;
    let source = source.replace("{limit}", &(pauses.seconds() * 1000).to_string());
    let Some(server) = real::written("java", &["-cp", &jars], "Server.java", &source) else { return };
    after_pauses(&server, pauses).await;
    none_came_twice(&server);
}
