//! One load on several agents, over a real nats-server.
#![allow(clippy::unwrap_used)]

mod buses;
mod common;
mod issued;
mod serving;

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use buses::broken::due;
use buses::{abandoned, broker, nats_server};
use common::{Said, number, run};
use serde_json::Value;
use serving::serve;

fn load(args: &[&str]) -> (Value, Said) {
    common::measured(args)
}

/// Samples in the document's histogram, bucket by bucket.
fn samples(document: &Value) -> u64 {
    number(document, "/requests/answered")
}

#[test]
fn agents_on_this_machine_send_exactly_the_plan() {
    let Some(program) = nats_server() else { return };
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let args =
        ["load", "-q", "--json", "-", "--agents-local", "3", "-c", "12", "--rate", "600", "-d", "3s", &url];
    let output = common::linerate_with(&program, &args).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{err}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(due(&document), 1800, "{err}");
    let answered = samples(&document);
    assert_eq!(number(&document, "/requests/sent"), answered, "{err}");
    assert_eq!(document["machines"]["complete"], true, "{document:#}");
    let agents = document["machines"]["agents"].as_array().unwrap();
    let names: BTreeSet<_> = agents.iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["local-1", "local-2", "local-3"]));
    assert_eq!(agents.iter().map(|a| a["answered"].as_u64().unwrap()).sum::<u64>(), answered);
    let stats: Value = serde_json::from_str(server.get("/stats").lines().last().unwrap()).unwrap();
    // The request for them is the last.
    assert_eq!(stats["requests"], answered + 1, "{stats}");
    assert!(err.contains("local-2") && err.contains(": complete"), "{err}");
    let series = document["series"].as_array().unwrap();
    let in_series: f64 = series.iter().map(|i| i["rate_rps"].as_f64().unwrap()).sum();
    assert_eq!(in_series.round() as u64, answered, "{series:?}");
}

#[test]
fn a_killed_agent_is_named_and_the_rest_is_reported() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let stays = broker.agent("stays", &[]);
    let mut dies = broker.agent("dies", &["--labels", "region=eu"]);
    let killer = std::thread::spawn(move || {
        dies.says("begins");
        std::thread::sleep(Duration::from_millis(3500));
        dies.child.kill().unwrap();
        dies
    });
    let args = ["--nats", &broker.url, "--agents", "2", "-c", "8", "--rate", "400", "-d", "6s", url.as_str()];
    let (document, said) = load(&args);
    killer.join().unwrap();
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!((&document["machines"]["complete"], &document["complete"]), (&false.into(), &false.into()));
    let missing =
        |i: usize| (&document["agents"][i]["id"], document["agents"][i]["missing_seconds"].as_u64());
    let mut seconds = [missing(0), missing(1)];
    seconds.sort_by_key(|(_, seconds)| *seconds);
    let is_lost = |seconds: Option<u64>| (1..=6).contains(&seconds.unwrap());
    assert!(seconds[0] == (&"stays".into(), Some(0)) && seconds[1].0 == "dies" && is_lost(seconds[1].1));
    let agents = document["machines"]["agents"].as_array().unwrap();
    let standing = |name: &str| agents.iter().find(|a| a["name"] == name).unwrap()["standing"].clone();
    assert_eq!((standing("stays"), standing("dies")), ("complete".into(), "lost".into()));
    let (sent, answered) = (number(&document, "/requests/sent"), number(&document, "/requests/answered"));
    assert!((1200..2400).contains(&answered), "{answered} of {sent}");
    assert!(said.err.contains("agent dies was lost after second"), "{}", said.err);
    stays.says("has ended, its results are published");
}

#[test]
fn what_cannot_be_done_is_said_at_once() {
    let nobody = common::nobody();
    let away = format!("nats://{nobody}");
    let said = run(&["load", "--nats", &away, "--agents", "1", "-n", "1", "http://127.0.0.1:1/"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("no NATS server can be reached") && said.err.contains("hint:"), "{}", said.err);
    for (args, text) in [
        (vec!["load", "--agents", "1", "http://127.0.0.1:1/"], "--nats"),
        (vec!["load", "--nats", "nats://h", "--agents", "0", "http://127.0.0.1:1/"], "at least one agent"),
        (vec!["load", "--agents-local", "2", "--way", "async", "http://127.0.0.1:1/"], "needs event loops"),
        (vec!["load", "--agents-local", "2", "--csv-fine", "f.csv", "http://127.0.0.1:1/"], "--csv-fine"),
        (vec!["agent"], "--nats is missing"),
        (vec!["agent", "--nats", "nats://h", "--labels", "eu"], "KEY=VALUE"),
        (vec!["agent", "--nats", "nats://h", "--allow-target", "10.0.0.0/40"], "10.0.0.0/8"),
        (vec!["agent", "--nats", "nats://h", "--spool", "/no/such/folder"], "there is no such folder"),
        (vec!["agent", "replay", "--nats", "nats://h", "/no/such/file"], "No such file"),
    ] {
        let said = run(&args);
        assert!(matches!(said.code, Some(2 | 4)), "{args:?}: {said:?}");
        assert!(said.err.contains(text), "{args:?}: {}", said.err);
    }
}

#[test]
fn what_cannot_be_meant_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text").display().to_string();
    std::fs::write(&text, "no PEM, no seed, no credentials\n").unwrap();
    let long = "a".repeat(65);
    for (flags, expected) in [
        (&["--name", "e\u{fc}-1"][..], "1 to 64 letters, digits, - or _"),
        (&["--name", &long], "1 to 64 letters, digits, - or _"),
        (&["--name", ""], "1 to 64 letters, digits, - or _"),
        (&["--name", "a.b"], "1 to 64 letters, digits, - or _"),
        (&["--labels", "=eu"], "KEY=VALUE"),
        (&["--labels", "region="], "KEY=VALUE"),
        (&["--max-rate", "nan"], "for example 5000 or 10k"),
        (&["--max-rate", "0"], "for example 5000 or 10k"),
        (&["--max-duration", "0"], "allows no time"),
        (&["--allow-target", ""], "is neither a host"),
        (&["--allow-target", ","], "is neither a host"),
        (&["--trust-key", "UA"], "is no public NKEY"),
        (&["--creds", "/no/such/file"], "--creds /no/such/file"),
        (&["--nkey", &text], "it holds no NKEY seed"),
        (&["--nats-ca", "/no/such/file"], "--nats-ca /no/such/file: No such file"),
        (&["--nats-ca", &text], "no certificate"),
        (&["--nats-cert", &text, "--nats-key", &text], "no certificate"),
    ] {
        let said = run(&[&["agent", "--nats", "nats://127.0.0.1:1"], flags].concat());
        assert_eq!(said.code, Some(2), "{flags:?}: {said:?}");
        assert!(said.err.contains(expected), "{flags:?}: {}", said.err);
    }
    let url = "http://127.0.0.1:1/";
    for (args, expected) in [
        (&["load", "--nats", "nats://h", "-n", "1", url][..], "--nats is for agents"),
        (&["load", "--nats", "", "--agents", "1", "-n", "1", url], "no server is named"),
        (&["load", "--nats", "http://h", "--agents", "1", "-n", "1", url], "invalid scheme"),
        (&["load", "--nats", "h:99999", "--agents", "1", "-n", "1", url], "invalid port"),
        (&["load", "--nats", "nats://h", "--agents", "5000", "-n", "1", url], "at most 4096 agents"),
    ] {
        let said = run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(
            said.err.contains(expected) && said.err.contains("hint: ") || said.err.contains("at most"),
            "{said:?}"
        );
    }
}

#[test]
fn a_plan_that_is_too_long_for_the_broker_is_named() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    // A label in another script is as good as any.
    let one = broker
        .agent("one", &["--labels", "\u{440}\u{435}\u{433}\u{438}\u{43e}\u{43d}=\u{444}\u{440}\u{430} 1"]);
    let rows = broker.folder.path().join("rows.csv").display().to_string();
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let label = "\u{440}\u{435}\u{433}\u{438}\u{43e}\u{43d}=\u{444}\u{440}\u{430} 1";
    let args = [
        "--nats",
        &broker.url,
        "--agents",
        label,
        "-c",
        "1",
        "-n",
        "3",
        "--data",
        &rows,
        "-H",
        "x: {{csv.id}}",
        &url,
    ];
    std::fs::write(&rows, "id\n1\n2\n3\n").unwrap();
    let (document, _) = load(&args);
    assert_eq!(samples(&document), 3);
    std::fs::write(&rows, format!("id\n{}", "0123456789abcdef\n".repeat(80_000))).unwrap();
    let said = run(&[&["load", "-q"][..], &args].concat());
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("this NATS server takes 1048576") && said.err.contains("hint: raise max_payload"),
        "{said:?}"
    );
    assert!(one.said().contains("has ended"), "the agent is there for the next run");
}

#[test]
fn agents_guard_their_names_and_their_targets() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agent = broker.agent("one", &["--allow-target", "10.0.0.0/8", "--labels", "region=eu"]);
    let again = run(&["agent", "--nats", &broker.url, "--name", "one"]);
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.err.contains("another agent is named one"), "{}", again.err);
    let url = "http://127.0.0.1:1/";
    let refused = run(&["load", "-q", "--nats", &broker.url, "--agents", "region=eu", "-n", "1", url]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("one may not load 127.0.0.1:1"), "{}", refused.err);
    let few = run(&["load", "-q", "--nats", &broker.url, "--agents", "2", "-n", "2", url]);
    assert!(few.err.contains("2 agents were asked for; there are one"), "{}", few.err);
    let unknown = run(&["load", "-q", "--nats", &broker.url, "--resume", "nothing"]);
    assert!(unknown.err.contains("there is no run nothing"), "{}", unknown.err);
    // An agent that anyone may use says so, unless it names those that may use it.
    let wide = broker.agent("wide", &["--allow-target", "*", "--once"]);
    assert!(wide.said().contains("warning: agent wide may load many machines"), "{}", wide.said());
}

/// The broker's storage is lost after the run; the spools bring the result back.
#[test]
fn spools_fill_a_new_broker() {
    let Some(program) = nats_server() else { return };
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let first = broker(&program);
    let agent = first.agent("one", &[]);
    let run_name = abandoned(&first, &[&agent], &["--agents", "1", "-c", "2", "-n", "500", &url]);
    let spool = first.folder.path().join("kept");
    std::fs::copy(first.folder.path().join(format!("linerate-{run_name}-one.jsonl")), &spool).unwrap();
    let (before, _) = load(&["--nats", &first.url, "--resume", &run_name]);
    let (again, _) = load(&["--nats", &first.url, "--resume", &run_name]);
    assert_eq!(samples(&before), 500);
    assert_eq!(again["requests"], before["requests"]);
    assert_eq!(again["histogram"], before["histogram"]);
    let mut text = String::new();
    std::fs::File::open(&spool).unwrap().read_to_string(&mut text).unwrap();
    let replayed = run(&["agent", "replay", "--nats", &first.url, spool.to_str().unwrap()]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert!(replayed.out.contains(&format!("{} messages published", text.lines().count() - 1)));
    let (third, _) = load(&["--nats", &first.url, "--resume", &run_name]);
    assert_eq!(third["requests"], before["requests"]);
}
