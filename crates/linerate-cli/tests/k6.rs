//! `linerate k6 run` and `linerate load SCRIPT.js`, against a server of ours.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use assert_cmd::Command;

const IMPORTS: &str =
    "import http from 'k6/http'; import { check, sleep } from 'k6'; const BASE = __ENV.BASE;\n";

/// A server that notes request lines. It answers `/status/N` by N, and everything else by 200 and JSON.
struct NotingServer {
    base: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl NotingServer {
    fn start() -> NotingServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&lines);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || {
                    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
                    while let Ok(n @ 1..) = stream.read(&mut buffer) {
                        seen.extend(&buffer[..n]);
                        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                            let head = String::from_utf8_lossy(&seen[..end]).into_owned();
                            let length = head.lines().find_map(|line| {
                                let (name, value) = line.split_once(": ")?;
                                name.eq_ignore_ascii_case("content-length")
                                    .then(|| value.parse::<usize>().ok())?
                            });
                            if seen.len() < end + 4 + length.unwrap_or(0) {
                                break;
                            }
                            seen.drain(..end + 4 + length.unwrap_or(0));
                            let line = head.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
                            let status = line.split("/status/").nth(1).unwrap_or("200").to_owned();
                            noted.lock().unwrap().push(line);
                            let body = "{\"a\":[1,2]}";
                            let answer = format!(
                                "HTTP/1.1 {status} X\r\nSet-Cookie: s=1; Path=/\r\nContent-Length: {}\r\n\r\n{body}",
                                body.len()
                            );
                            if stream.write_all(answer.as_bytes()).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        NotingServer { base, lines }
    }

    /// Request lines, sorted.
    fn lines(&self) -> Vec<String> {
        let mut lines = self.lines.lock().unwrap().clone();
        lines.sort();
        lines
    }
}

/// A folder with a script.
struct ScriptFolder(tempfile::TempDir);

impl ScriptFolder {
    fn of(source: &str) -> ScriptFolder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.js"), source).unwrap();
        ScriptFolder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, before: &[&str], base: &str, after: &[&str]) -> Output {
        let mut command = Command::cargo_bin("linerate").unwrap();
        command
            .args(before)
            .arg(self.file("script.js"))
            .args(after)
            .env("BASE", base)
            .current_dir(self.0.path());
        command.timeout(Duration::from_secs(60)).output().unwrap()
    }
}

fn k6(source: &str, base: &str, flags: &[&str]) -> (i32, String, String) {
    let output = ScriptFolder::of(&format!("{IMPORTS}{source}")).run(&["k6", "run"], base, flags);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_script_runs_as_often_as_its_options_say() {
    let server = NotingServer::start();
    let source = "export const options = { vus: 3, iterations: 6 };
        export function setup() { return { path: 'x' }; }
        export default function (data) {
          const res = http.post(`${BASE}/${data.path}`, JSON.stringify({ a: 1 }));
          check(res, { 'is 200': (r) => r.status === 200, 'second': (r) => r.json('a.1') === 2 });
          sleep(0.01);
        }
        export function teardown(data) { http.del(`${BASE}/${data.path}`); }";
    let (code, out, err) = k6(source, &server.base, &[]);
    assert_eq!(code, 0, "{out}{err}");
    let mut wanted = vec!["DELETE /x".to_owned()];
    wanted.extend(vec!["POST /x".to_owned(); 6]);
    assert_eq!(server.lines(), wanted);
    for line in
        ["checks_succeeded...: 100.00% 12 out of 12", "iterations.....................: 6", "✓ second"]
    {
        assert!(out.contains(line), "{line} is missing in {out}");
    }
}

#[test]
fn exit_codes_are_those_of_k6_and_of_load() {
    let server = NotingServer::start();
    let failing = "export const options = { thresholds: { checks: ['rate>0.9'] } };
        export default function () { check(http.get(BASE + '/status/500'), { 'is 200': (r) => r.status === 200 }); }";
    for (source, theirs, ours) in [
        ("export default function () { http.get(BASE); }", 0, 0),
        (failing, 99, 1),
        ("throw new Error('no'); export default function () {}", 107, 2),
        ("let a = ;", 107, 2),
        ("import sql from 'k6/x/sql'; export default function () {}", 107, 2),
        ("import exec from 'k6/execution'; export default function () { exec.test.abort('so'); }", 108, 1),
        ("export const options = { vus: 5, iterations: 2 }; export default function () {}", 104, 2),
        ("export default function () { throw new Error('only this iteration'); }", 0, 0),
    ] {
        let folder = ScriptFolder::of(&format!("{IMPORTS}{source}"));
        let k6 = folder.run(&["k6", "run", "-q"], &server.base, &[]);
        assert_eq!(k6.status.code(), Some(theirs), "{source}: {}", String::from_utf8_lossy(&k6.stderr));
        let load = folder.run(&["load"], &server.base, &["-q"]);
        assert_eq!(load.status.code(), Some(ours), "{source}: {}", String::from_utf8_lossy(&load.stderr));
    }
}

/// As in k6: a request that is never answered lasted as long as it was waited for.
#[test]
fn a_request_without_a_response_is_in_the_percentiles_of_durations() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap());
    let source = "export const options = { iterations: 2, thresholds: { http_req_duration: ['p(99)<200'] } };
        export default function () { http.get(`${__ENV.BASE}/`, { timeout: '300ms' }); }";
    let (code, out, err) = k6(source, &base, &[]);
    assert_eq!(code, 99, "{out} {err}");
    assert!(err.contains("100.00 % of requests failed, and no threshold is on http_req_failed"), "{err}");
    let longer = source.replace("p(99)<200", "p(99)<2000");
    assert_eq!(k6(&longer, &base, &[]).0, 0);
}

#[test]
fn flags_stand_in_place_of_options() {
    let server = NotingServer::start();
    let folder = ScriptFolder::of(&format!(
        "{IMPORTS}export const options = {{ duration: '1h', tags: {{ a: 'b' }}, thresholds: {{ 'http_reqs{{run:7}}': ['count==4'] }} }};
         export default function () {{ http.get(BASE + '/' + __ENV.WORD); }}"
    ));
    let flags = ["-i", "4", "-u", "2", "-e", "WORD=hey", "--tag", "run=7", "--summary-export", "out.json"];
    let output = folder.run(&["k6", "run"], &server.base, &flags);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.lines(), vec!["GET /hey"; 4]);
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.file("out.json")).unwrap()).unwrap();
    assert_eq!(written["metrics"]["http_reqs"]["count"], 4.0);
    assert_eq!(written["metrics"]["http_reqs{run:7}"]["thresholds"]["count==4"], false);
    assert_eq!(written["linerate"]["iterations_completed"], 4);
}

#[test]
fn a_rate_starts_as_many_iterations_as_are_due() {
    let server = NotingServer::start();
    let source = "export const options = { scenarios: { r: { executor: 'constant-arrival-rate', rate: 40, timeUnit: '1s',
          duration: '1s', preAllocatedVUs: 1, maxVUs: 4 } } };
        export default function () { http.get(BASE + '/r'); }";
    let (code, out, err) = k6(source, &server.base, &["--summary-export", "out.json"]);
    assert_eq!(code, 0, "{err}");
    // What is not sent is counted as dropped.
    let dropped = out.lines().find(|line| line.contains("dropped_iterations"));
    let dropped = dropped
        .and_then(|line| line.split(": ").nth(1)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    assert_eq!(server.lines().len() + dropped, 40, "{out}");
}

#[test]
fn a_run_ends_with_its_graceful_stop_and_names_what_was_cut_off() {
    let server = NotingServer::start();
    let source = "export const options = { scenarios: { a: { executor: 'constant-vus', vus: 2, duration: '300ms', gracefulStop: '200ms' } } };
        export default function () { http.get(BASE + '/a'); sleep(600); http.get(BASE + '/never'); }";
    let since = Instant::now();
    let folder = ScriptFolder::of(&format!("{IMPORTS}{source}"));
    let output = folder.run(&["k6", "run"], &server.base, &["--summary-export", "out.json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(30));
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.file("out.json")).unwrap()).unwrap();
    assert_eq!(written["linerate"]["iterations_interrupted"], 2);
    assert_eq!(server.lines(), vec!["GET /a"; 2]);
}

#[test]
fn a_summary_of_the_script_takes_the_place_of_ours() {
    let server = NotingServer::start();
    let source = "import { textSummary } from 'https://jslib.k6.io/k6-summary/0.0.2/index.js';
        export default function () { http.batch([BASE + '/1', BASE + '/2', BASE + '/3']); }
        export function handleSummary(data) {
          return { stdout: `n=${data.metrics.http_reqs.values.count}\\n`, 'text.txt': textSummary(data, { indent: '> ' }) };
        }";
    let folder = ScriptFolder::of(&format!("{IMPORTS}{source}"));
    let output = folder.run(&["k6", "run"], &server.base, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n=3\n");
    assert!(std::fs::read_to_string(folder.file("text.txt")).unwrap().contains(">    http_reqs"));
}

#[test]
fn a_summary_that_cannot_be_written_leaves_the_exit_code() {
    let server = NotingServer::start();
    let source = "export default function () { http.get(BASE); }
        export function handleSummary() { return { 'no/such/folder.json': '{}', stdout: 'told' }; }";
    let (code, out, err) = k6(source, &server.base, &[]);
    assert_eq!((code, out.as_str()), (0, "told"), "{err}");
    assert!(err.contains("cannot write no/such/folder.json"), "{err}");
}

#[test]
fn typescript_runs_where_it_is_javascript_as_well() {
    let server = NotingServer::start();
    let folder = ScriptFolder::of("");
    for (source, code, said) in [
        ("import http from 'k6/http'; export default () => { http.get(__ENV.BASE + '/[a b]'); };", 0, ""),
        ("const n: number = 1;\nexport default () => {};", 107, "types of TypeScript are not supported"),
    ] {
        std::fs::write(folder.file("a.ts"), source).unwrap();
        let mut command = Command::cargo_bin("linerate").unwrap();
        let output = command.args(["k6", "run"]).arg(folder.file("a.ts")).env("BASE", &server.base).output();
        let output = output.unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.contains(said) && (code == 0 || err.contains("a.ts:1")), "{err}");
    }
    assert_eq!(server.lines(), ["GET /%5Ba%20b%5D"]);
}

#[test]
fn timers_and_asynchronous_requests_belong_to_their_iteration() {
    let server = NotingServer::start();
    let source = "import { setTimeout } from 'k6/timers';
        export const options = { vus: 2, iterations: 4 };
        export default async function () {
          const all = await Promise.all(['a', 'b'].map((x) => http.asyncRequest('GET', `${BASE}/${x}`)));
          check(all, { both: (responses) => responses.every((res) => res.status === 200) });
          setTimeout(() => http.get(`${BASE}/late`), 20);
        }";
    let (code, out, err) = k6(source, &server.base, &[]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(server.lines(), ["GET /a", "GET /b", "GET /late"].map(|line| vec![line; 4]).concat());
    assert!(out.contains("checks_succeeded...: 100.00% 4 out of 4"), "{out}");
}

#[test]
fn an_interval_that_nothing_clears_is_cut_off_with_the_run() {
    let server = NotingServer::start();
    let source = "export const options = { scenarios: { a: { executor: 'constant-vus', vus: 2, duration: '200ms', gracefulStop: '200ms' } } };
        export default function () { http.get(BASE + '/a'); setInterval(() => {}, 10); }";
    let folder = ScriptFolder::of(&format!("{IMPORTS}{source}"));
    let output = folder.run(&["k6", "run"], &server.base, &["--summary-export", "out.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.file("out.json")).unwrap()).unwrap();
    assert_eq!(written["linerate"]["iterations_interrupted"], 2);
    assert_eq!(server.lines(), vec!["GET /a"; 2]);
}

#[test]
fn a_script_that_takes_all_the_time_is_named() {
    let server = NotingServer::start();
    let busy = "export const options = { duration: '1500ms' };
        export default function () { http.get(BASE + '/a'); const end = Date.now() + 100; while (Date.now() < end); }";
    let idle = "export const options = { iterations: 2 };
        export default function () { http.get(BASE + '/a'); sleep(0.7); }";
    for (source, is_named) in [(busy, true), (idle, false)] {
        let folder = ScriptFolder::of(&format!("{IMPORTS}{source}"));
        let output = folder.run(&["k6", "run"], &server.base, &["--summary-export", "out.json"]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(words.contains("the script's own code took"), is_named, "{words}");
        let written: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.file("out.json")).unwrap()).unwrap();
        let client = &written["linerate"]["client"];
        assert_eq!(client["threads"], 1);
        assert_eq!(client["script_share"].as_f64().unwrap() > 0.8, is_named, "{client}");
        assert_eq!(client["script_us"].as_f64().unwrap() > 90_000.0, is_named, "{client}");
    }
}
