use clap::Parser;
use linerate_load::plan::{Arrival, RateStep};

use super::*;
use crate::args::{Cli, Command};

fn meant(line: &str) -> Result<Meaning, String> {
    let words = shell_words::split(line).unwrap();
    let cli = Cli::try_parse_from(["linerate", "load"].map(str::to_owned).into_iter().chain(words));
    let Some(Command::Load(args)) = cli.map_err(|e| e.to_string())?.command else { unreachable!() };
    of(&args).map_err(|e| e.to_string())
}

fn plan(line: &str) -> Plan {
    meant(line).unwrap().plan
}

fn said(line: &str) -> String {
    meant(line).unwrap_err()
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn a_url_alone_means_the_defaults() {
    let plan = plan("http://127.0.0.1:8080/x?y=1");
    assert_eq!((plan.connections, plan.depth, plan.per_connection, plan.threads), (64, 1, None, None));
    assert_eq!(plan.stop, Stop { requests: None, duration: Some(Duration::from_secs(10)) });
    assert_eq!((plan.timeout, plan.warm_up), (Duration::from_secs(10), Duration::ZERO));
    assert_eq!((plan.pace, plan.way), (Pace::Closed, Way::Loop));
    assert_eq!((plan.requests[0].name.as_str(), plan.requests[0].path.as_str()), ("GET /x?y=1", "/x?y=1"));
    assert!(plan.requests[0].fields.is_empty());
}

/// What a plan file or a curl command asks for, not the URL beside it.
#[test]
fn the_target_is_what_is_sent() {
    let target = |line: &str| plan(line).target.url;
    let two = |paths: [&str; 2]| {
        let request = |path| format!("[[request]]\npath = \"{path}\"\n");
        file(&format!("url = \"http://127.0.0.1:8080/a\"\n{}{}", request(paths[0]), request(paths[1])))
    };
    let (_folder, same) = two(["/b", "/b"]);
    assert_eq!(target(&format!("--plan {same}")), "http://127.0.0.1:8080/b");
    assert_eq!(target(&format!("--plan {same} http://127.0.0.2/c")), "http://127.0.0.2/b");
    let (_folder, others) = two(["/b", "/c"]);
    assert_eq!(target(&format!("--plan {others}")), "http://127.0.0.1:8080/");
    let curl = "--curl \"curl http://127.0.0.1:1/x?y=1 -d a\"";
    assert_eq!(target(curl), "http://127.0.0.1:1/x?y=1");
    assert_eq!(target(&format!("{curl} http://127.0.0.1:2/")), "http://127.0.0.1:2/x?y=1");
    assert_eq!(target("--compressed http://me:pass@127.0.0.1/z"), "http://127.0.0.1/z");
}

#[test]
fn what_ends_a_run() {
    let stop = |line: &str| plan(&format!("{line} http://127.0.0.1/")).stop;
    let secs = |s| Some(Duration::from_secs(s));
    assert_eq!(stop("-n 100"), Stop { requests: Some(100), duration: None });
    assert_eq!(stop("-d 3s"), Stop { requests: None, duration: secs(3) });
    assert_eq!(stop("-n 1k -d 3s"), Stop { requests: Some(1_000), duration: secs(3) });
    assert_eq!(stop("-r 50"), Stop { requests: None, duration: secs(10) });
    assert_eq!(stop("-r 0..50@30s,50@1m"), Stop { requests: None, duration: secs(90) });
    assert_eq!(stop("-r 0..50@30s,50@1m --warm-up 30s"), Stop { requests: None, duration: secs(60) });
    assert_eq!(stop("-r 0..50@30s,50"), Stop { requests: None, duration: secs(10) });
}

#[test]
fn few_requests_need_few_connections_unless_said_otherwise() {
    let connections = |line: &str| plan(&format!("{line} http://127.0.0.1/")).connections;
    assert_eq!((connections("-n 3"), connections("-n 3 -c 5"), connections("-n 100")), (3, 5, 64));
    assert_eq!(connections("--way poll"), 1);
}

#[test]
fn the_open_loop() {
    let plan = plan("-r 1.5k --arrival poisson http://127.0.0.1/");
    let rate = Rate { steps: vec![RateStep { from: 1_500.0, to: 1_500.0, lasts: None }] };
    assert_eq!(plan.pace, Pace::Open { rate, arrival: Arrival::Poisson });
}

#[test]
fn the_request() {
    let plan = plan(
        "-X PUT -H 'A: 1' -H 'A: 2' --body 'n={{seq}}' -u ada:x --compressed --expect-status 2xx --expect-body ok \
         http://u:p@127.0.0.1/{{rand:1-9}}",
    );
    let request = &plan.requests[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("PUT", "/{{rand:1-9}}"));
    assert_eq!(request.body, Some("n={{seq}}".into()));
    let fields: Vec<String> = request.fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
    assert_eq!(
        fields,
        ["Authorization: Basic YWRhOng=", "Accept-Encoding: gzip, deflate, br, zstd", "A: 1", "A: 2"]
    );
    assert_eq!((request.expect.status.len(), request.expect.body.as_deref()), (100, Some("ok")));
    assert_eq!(plan.target.url, "http://127.0.0.1/{{rand:1-9}}");
}

#[test]
fn a_body_makes_it_a_post() {
    assert_eq!(plan("--body x http://127.0.0.1/").requests[0].name, "POST /");
    assert_eq!(plan("--body x -X GET http://127.0.0.1/").requests[0].method, "GET");
}

#[test]
fn flags_stand_above_the_plan_file() {
    let (_folder, path) = file(
        "url = \"http://127.0.0.1:8080/base\"\nconnections = 5\npipeline = 7\nduration = \"1s\"\nrate = 10\n\
         checks = [\"errors<1%\"]\nheaders = { A = \"file\", B = \"file\" }\n[[request]]\npath = \"/one\"\n[[request]]\nmethod = \"HEAD\"\n",
    );
    let plan = plan(&format!("--plan {path} -c 9 -H 'a: typed' --check 'p99<1s' http://127.0.0.1:9090/"));
    assert_eq!((plan.connections, plan.depth, plan.stop.duration), (9, 7, Some(Duration::from_secs(1))));
    assert_eq!(plan.target.authority, "127.0.0.1:9090");
    assert_eq!(plan.requests.iter().map(|r| r.path.as_str()).collect::<Vec<_>>(), ["/one", "/"]);
    assert_eq!(
        plan.requests[0].fields,
        [("B".to_owned(), "file".to_owned()), ("a".to_owned(), "typed".to_owned())]
    );
    assert_eq!(plan.checks.iter().map(|c| c.expr.as_str()).collect::<Vec<_>>(), ["errors<1%", "p99<1s"]);
    let fault = said(&format!("--plan {path} -X PUT"));
    assert!(fault.contains("--method would make all 2 requests"), "{fault}");
}

#[test]
fn data_fills_slots() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("u.csv");
    std::fs::write(&csv, "id\n1\n2\n").unwrap();
    let csv = csv.display();
    assert_eq!(plan(&format!("--data {csv} http://127.0.0.1/{{{{csv.id}}}}")).data[0].rows.len(), 2);
    assert_eq!(plan(&format!("--data u={csv} http://127.0.0.1/{{{{u.id}}}}")).data[0].name, "u");
    assert!(said(&format!("--data {csv} http://127.0.0.1/{{{{csv.mail}}}}")).contains("csv.mail"));
    assert!(said(&format!("--data {csv} --data {csv} http://127.0.0.1/")).contains("two data files"));
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (line, words) in [
        ("--way poll -c 2 http://127.0.0.1/", "one connection"),
        ("--way threads -t 2 http://127.0.0.1/", "event loops"),
        ("--throughput --check 'p99<1s' http://127.0.0.1/", "gives latencies up"),
        ("--arrival poisson http://127.0.0.1/", "no --rate"),
        ("", "no URL"),
        ("-4 -6 http://127.0.0.1/", "cannot be used with"),
    ] {
        assert!(said(line).contains(words), "{line}: {}", said(line));
    }
}

#[test]
fn pipelined_posts_are_allowed_and_explained() {
    assert!(meant("-p 2 --body x http://127.0.0.1/").unwrap().notes[0].contains("POST is not idempotent"));
    assert!(meant("-p 2 http://127.0.0.1/").unwrap().notes.is_empty());
    assert!(meant("--body x http://127.0.0.1/").unwrap().notes.is_empty());
}

#[test]
fn plans_from_elsewhere() {
    let plan = plan("--curl \"curl http://127.0.0.1:8080/a -H 'A: b'\" -c 2 -H 'A: c'");
    assert_eq!((plan.target.authority.as_str(), plan.connections), ("127.0.0.1:8080", 2));
    assert_eq!(plan.requests[0].path, "/a");
    assert!(plan.requests[0].fields.contains(&("A".to_owned(), "c".to_owned())));
    assert!(said("--curl 'wget x'").contains("--curl:"));
    let tls = |line: &str| meant(line).unwrap().plan.tls.map(|tls| tls.trust == plan::tls::Trust::Anybody);
    assert_eq!(tls("--curl 'curl -k https://127.0.0.1/'"), Some(true));
    assert_eq!(tls("--curl 'curl https://127.0.0.1/'"), Some(false));
    assert_eq!(tls("--curl 'curl -k http://127.0.0.1/'"), None, "it does nothing there");
    assert!(said("--curl 'curl http://h/' --har x.har").contains("cannot be used with"));
}

#[test]
fn a_replayed_log_ends_by_itself() {
    let (_folder, path) = file("127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 2326\n");
    let plan = plan(&format!("--replay {path} --speed 2 http://127.0.0.1/"));
    assert!(matches!(plan.pace, Pace::Trace(_)));
    assert_eq!(plan.stop, Stop::default());
    assert!(said(&format!("--replay {path}")).contains("which server"));
}
