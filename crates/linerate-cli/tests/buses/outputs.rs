//! What a load by agents shows and writes beside its summary.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{broker, nats_server};
use crate::common::{self, measured, nobody, number, run, until};
use crate::serving::serve;

fn scraped(at: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(at) else { return String::new() };
    let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
    let mut page = String::new();
    let _ = stream.read_to_string(&mut page);
    page
}

#[test]
fn metrics_and_collectors_get_what_agents_report() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agents = [broker.agent("one", &[]), broker.agent("two", &[])];
    let pages = nobody().to_string();
    let server = serve(&["--metrics", &pages]);
    let url = format!("http://{}/", server.address);
    let collector =
        common::responding(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let (metrics, otlp) = (nobody().to_string(), format!("http://{collector}"));
    let page = broker.folder.path().join("page.html").display().to_string();
    let args = ["--nats", &broker.url, "--agents", "2", "-c", "4", "--rate", "100", "-d", "5s", "--open"];
    let more =
        ["--metrics", &metrics, "--otlp", &otlp, "--watch", &format!("http://{pages}"), "--html", &page];
    let (document, said) = thread::scope(|scope| {
        let running = scope.spawn(|| measured(&[&args[..], &more, &[&url]].concat()));
        until("each agent's figures", || {
            let page = scraped(&metrics);
            let answered = |agent: &str| {
                let name = format!("linerate_load_agent_requests_answered_total{{agent=\"{agent}\"}} ");
                let line = page.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("0").to_owned();
                line.parse::<u64>().unwrap()
            };
            answered("one") >= 50 && answered("two") >= 50
        });
        running.join().unwrap()
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(number(&document, "/requests/answered"), 500, "{document:#}");
    let warnings = document["warnings"].to_string();
    assert!(!warnings.contains("--otlp") && !warnings.contains("--watch"), "{warnings}");
    assert_eq!(document["server"]["name"], format!("http://{pages}/metrics"), "{document:#}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>Agents</h2>") && page.contains("<td>two</td>"), "a line for each agent");
    assert!(!page.contains("NOT complete"));
}

#[test]
fn a_condition_ends_the_run_of_agents() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agent = broker.agent("one", &[]);
    let server = serve(&[]);
    let url = format!("http://{}/status/500", server.address);
    let args = ["--nats", &broker.url, "--agents", "1", "-c", "2", "--rate", "100", "-d", "40s"];
    let (document, said) = measured(&[&args[..], &["--abort-on", "errors>5%@2s", &url]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(document["aborted"].as_str().is_some_and(|why| why.contains("errors>5%")), "{document:#}");
    assert!(number(&document, "/requests/answered") < 2500, "{document:#}");
}

/// A run that is not complete fails where pipelines look.
#[test]
fn a_run_that_is_not_complete_fails_in_each_form() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let (_stays, mut dies) = (broker.agent("stays", &[]), broker.agent("dies", &[]));
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let path = |name: &str| broker.folder.path().join(name).display().to_string();
    let (junit, html) = (path("out.xml"), path("out.html"));
    let args = ["--nats", &broker.url, "--agents", "2", "-c", "4", "--rate", "100", "-d", "4s"];
    let more = ["--junit", &junit, "--html", &html, "--annotations", "github", &url];
    let (document, said) = thread::scope(|scope| {
        scope.spawn(|| {
            dies.says("begins");
            thread::sleep(Duration::from_millis(3500));
            dies.child.kill().unwrap();
        });
        let said = run(&[&["load", "-q", "--json", &path("out.json")][..], &args, &more].concat());
        (serde_json::from_slice::<Value>(&std::fs::read(path("out.json")).unwrap()).unwrap(), said)
    });
    assert_eq!((said.code, &document["complete"]), (Some(4), &false.into()), "{said:?}");
    let why = "the run is NOT complete: agent dies: lost after second";
    let read = |file: &str| std::fs::read_to_string(file).unwrap();
    let xml = read(&junit);
    assert!(xml.contains("failures=\"1\"") && xml.contains(why), "{xml}");
    let page = read(&html);
    assert!(page.contains("NOT complete:") && page.contains("<td>stays</td>"), "{page}");
    assert!(said.out.contains("::error") && said.out.contains(why), "{}", said.out);
}

/// A closed loop is held to what an agent may send, and the agent is named as the limit.
#[test]
fn an_agent_sends_no_more_than_its_most() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agent = broker.agent("one", &["--max-rate", "100"]);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let args = ["--nats", &broker.url, "--agents", "1", "-c", "8", "-d", "3s", &url];
    let (document, said) = measured(&args);
    assert_eq!(said.code, Some(0), "{said:?}");
    let answered = number(&document, "/requests/answered");
    assert!((270..=310).contains(&answered), "{answered} in 3 s");
    assert_eq!(document["client"]["saturated"], true, "{document:#}");
    assert_eq!(document["client"]["reason"], "agent one sends at most 100 requests/s (--max-rate)");
    let refused =
        run(&["load", "-q", "--nats", &broker.url, "--agents", "1", "--rate", "200", "-d", "1s", &url]);
    assert!(refused.err.contains("one sends at most 100 requests/s"), "{refused:?}");
}

/// Each look of a search is a run of the agents.
#[test]
fn a_search_is_carried_out_by_agents() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agents = [broker.agent("one", &[]), broker.agent("two", &[])];
    // One core that takes 5 ms for each request: 200 requests/s.
    let server = serve(&["--threads", "1"]);
    let url = format!("http://{}/block/5", server.address);
    let args = ["--nats", &broker.url, "--agents", "2", "-t", "1", "--find", "p90<200ms", &url];
    let output = common::linerate(&[&["load", "-q", "--json", "-"][..], &args].concat())
        .timeout(Duration::from_secs(170))
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let rate = document["find"]["rate_rps"].as_f64().unwrap_or_else(|| panic!("{document:#}"));
    assert!((60.0..=205.0).contains(&rate), "{rate}: {:#}", document["find"]);
    let stats: Value = serde_json::from_str(server.get("/stats").lines().last().unwrap()).unwrap();
    assert!(stats.to_string().contains("requests"), "{stats}");
}

/// Each request has a line, and the lines add up to the summary.
#[test]
fn agents_report_each_request_for_the_log() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agents = [broker.agent("one", &[]), broker.agent("two", &[])];
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let log = broker.folder.path().join("log.jsonl");
    let args = ["--nats", &broker.url, "--agents", "2", "-c", "4", "-t", "1", "--rate", "1000", "-d", "3s"];
    let (document, said) = measured(&[&args[..], &["--log-requests", log.to_str().unwrap(), &url]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((number(&document, "/requests/answered"), &document["complete"]), (3000, &true.into()));
    assert_eq!(document["request_log"], serde_json::json!({"lines": 3000, "left_out": 0}), "{document:#}");
    let lines = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..3000).collect::<Vec<u64>>());
    assert!(lines.iter().all(|line| line["status"] == 200 && line["from_due_us"].is_number()));
}
