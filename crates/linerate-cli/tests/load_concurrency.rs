//! `load --pid`: what keeps real servers from more, and what only looks like it. Each kind of server has one
//! verdict. Where other programs have this machine's cores, the report may say that it cannot tell, or that
//! a server that computes waits for a core, and must show it.
#![allow(clippy::unwrap_used)]

mod common;
mod real;
mod serving;

use common::measured;
use serde_json::Value;

/// The one verdict on a server of this kind, or one that this machine was busy.
fn judged(url: &str, pid: u32, flags: &[&str], expected: &str) -> Value {
    let found = look(url, pid, flags);
    assert!(found["verdict"] == expected || is_disturbed(&found, expected), "{expected}: {found:#}");
    found
}

/// Whether the report says that other programs had the cores, by what the scheduler counted.
fn is_disturbed(found: &Value, expected: &str) -> bool {
    let (text, share) = (found["text"].as_str().unwrap(), found["run_queue_share"].as_f64().unwrap());
    let busy = found["machine_busy"].as_f64().unwrap();
    match found["verdict"].as_str().unwrap() {
        "unknown" => {
            let shown = text.contains("this machine was busy") && text.contains("were ready without a core");
            busy >= 0.6 && shown && (share >= 0.2 || text.contains("the client's were ready"))
        }
        // A server that computes wants all of a core; another one can want it for so long only in vain.
        "waiting-for-core" => busy >= 0.9 && share >= if expected == "cpu-bound" { 0.1 } else { 0.5 },
        _ => false,
    }
}

/// `server.concurrency` of a run.
fn look(url: &str, pid: u32, flags: &[&str]) -> Value {
    let pid = pid.to_string();
    let args = [&["-d", "2500ms", "--warm-up", "300ms", "--pid", &pid], flags, &[url]].concat();
    let (document, said) = measured(&args);
    let found = document["server"]["concurrency"].clone();
    assert!(found["verdict"].is_string(), "{said:?}");
    assert!(said.err.contains(found["text"].as_str().unwrap().split(' ').next().unwrap()), "{said:?}");
    found
}

/// Whether the machine let it be seen.
fn is(found: &Value, expected: &str) -> bool {
    found["verdict"] == expected
}

/// The rate that a change would allow.
fn rate(found: &Value, change: &str) -> f64 {
    let cures = found["cures"].as_array().unwrap();
    let cure = cures.iter().find(|c| c["change"].as_str().unwrap().contains(change));
    cure.and_then(|c| c["rate_rps"].as_f64()).unwrap_or_else(|| panic!("{change}: {found:#}"))
}

/// Python's `http.server`; `work` is what its handler does.
fn python(class: &str, work: &str) -> Option<real::Server> {
    let source = format!(
        "import http.server, socket, time

class Handler(http.server.BaseHTTPRequestHandler):
    wbufsize = -1
    def do_GET(self):
        if self.path == '/':
            {work}
        self.send_response(200)
        self.send_header('Content-Length', '5')
        self.end_headers()
        self.wfile.write(b'hello')
    def log_message(self, *anything):
        pass

http.server.{class}.request_queue_size = 128
http.server.{class}(('127.0.0.1', {{port}}), Handler).serve_forever()
"
    );
    real::written("python3", &[], "server.py", &source)
}

#[test]
fn the_loop_of_our_own_server_is_blocked_by_a_blocking_call_and_not_by_a_coroutine() {
    let server = serving::serve(&["--threads", "1"]);
    let url = |path: &str| format!("http://{}{path}", server.address);
    judged(&url("/block/50"), server.pid(), &["-c", "16"], "blocked");
    let found = judged(&url("/block/10"), server.pid(), &["-c", "16"], "blocked");
    if is(&found, "blocked") {
        let hold = found["blocked_us_per_request"].as_f64().unwrap();
        // Some ten looks know a share to a few tenths.
        assert!((7_000.0..30_000.0).contains(&hold), "{found:#}");
        // Little's law: 16 in flight, each for as long.
        let most = 16e6 / (hold + found["cpu_us_per_request"].as_f64().unwrap());
        assert!(rate(&found, "coroutines") <= 1.01 * most, "{found:#}");
    }
    let found = judged(&url("/delay/10"), server.pid(), &["-c", "16"], "waits");
    assert!(!is(&found, "waits") || found["text"].as_str().unwrap().contains("none holds a thread"));
}

#[test]
fn a_pool_is_full_where_all_its_threads_block() {
    let server = serving::serve(&["--threads", "3"]);
    let url = format!("http://{}/block/20", server.address);
    let found = judged(&url, server.pid(), &["-c", "48"], "pool-full");
    if is(&found, "pool-full") {
        assert!(found["text"].as_str().unwrap().contains("its 3 threads sit in nanosleep"), "{found:#}");
        assert!(rate(&found, "48 threads") > 300.0, "{found:#}");
    }
}

#[test]
fn python_that_sleeps_in_its_one_thread_is_blocked_and_with_threads_it_is_not() {
    let Some(one) = python("HTTPServer", "time.sleep(0.05)") else { return };
    judged(&one.url("/"), one.pid(), &["-c", "16"], "blocked");
    let Some(many) = python("ThreadingHTTPServer", "time.sleep(0.3)") else { return };
    let found = judged(&many.url("/"), many.pid(), &["-c", "16"], "waits");
    assert!(!is(&found, "waits") || found["text"].as_str().unwrap().contains("each holds a thread"));
}

#[test]
fn python_that_computes_is_not_helped_by_threads() {
    let work = "sum(i * i for i in range(40000))";
    for class in ["ThreadingHTTPServer", "HTTPServer"] {
        let Some(server) = python(class, work) else { return };
        let found = judged(&server.url("/"), server.pid(), &["-c", "8"], "cpu-bound");
        assert!(!is(&found, "cpu-bound") || found["text"].as_str().unwrap().contains("cannot help"));
    }
}

#[test]
fn node_that_computes_and_node_that_waits() {
    let source = "require('http').createServer((request, response) => {
  if (request.url === '/wait') { setTimeout(() => response.end('later'), 10); return; }
  let sum = 0;
  for (let i = 0; i < 300000; i++) sum = (sum + i * i) % 1000003;
  response.end(String(sum));
}).listen({port}, '127.0.0.1');
";
    let Some(server) = real::written("node", &[], "server.js", source) else { return };
    let found = judged(&server.url("/"), server.pid(), &["-c", "16"], "cpu-bound");
    let core = found["core_rps"].as_f64().unwrap();
    assert!((core - 1e6 / found["cpu_us_per_request"].as_f64().unwrap()).abs() < 0.01 * core, "{found:#}");
    judged(&server.url("/wait"), server.pid(), &["-c", "16"], "waits");
}

#[test]
fn a_server_with_room_is_not_blamed() {
    let Some(nginx) = real::nginx(1_000_000) else { return };
    judged(&nginx.url("/"), nginx.pid(), &["-r", "300", "-c", "4"], "not-reached");
    // As fast as it goes: the client, the server or the machine is full, and nothing blocks.
    let found = look(&nginx.url("/"), nginx.pid(), &["-c", "32"]);
    let verdict = found["verdict"].as_str().unwrap();
    assert!(!["blocked", "pool-full", "waits"].contains(&verdict), "{found:#}");
}
