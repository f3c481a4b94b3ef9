//! One load on several agents, over a real nats-server.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Said, number, run, until};
use serde_json::Value;
use serving::serve;

/// nats-server in PATH or where `go install` puts it; without it the test says that it does not run.
fn nats_server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"));
    let found = std::env::split_paths(&path).chain(home).map(|folder| folder.join("nats-server"));
    let found = found.into_iter().find(|file| file.is_file());
    if found.is_none() {
        eprintln!(
            "does not run: nats-server is missing (go install github.com/nats-io/nats-server/v2@v2.15.2)"
        );
    }
    found
}

/// A program that ends with the test.
struct Program {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Program {
    fn start(mut command: Command) -> Program {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (errors, into) = (child.stderr.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                into.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Program { child, said }
    }

    fn says(&self, what: &str) {
        until(what, || self.said.lock().unwrap().contains(what));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker of its own, with its files in a folder that the test owns.
struct Broker {
    _program: Program,
    url: String,
    folder: tempfile::TempDir,
}

fn broker(program: &Path) -> Broker {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(folder.path());
    command.arg("--ports_file_dir").arg(folder.path());
    let program = Program::start(command);
    let file = folder.path().join(format!("nats-server_{}.ports", program.child.id()));
    let url = || {
        let ports: Value = serde_json::from_str(&std::fs::read_to_string(&file).ok()?).ok()?;
        ports["nats"][0].as_str().map(str::to_owned)
    };
    until("nats-server", || url().is_some());
    Broker { url: url().unwrap(), _program: program, folder }
}

impl Broker {
    fn agent(&self, name: &str, more: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.args(["agent", "--nats", &self.url, "--name", name, "--spool"]).arg(self.folder.path());
        let agent = Program::start({
            command.args(more);
            command
        });
        agent.says("waits for runs");
        agent
    }
}

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
    let folder = program.parent().unwrap().to_owned();
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let mut command = common::linerate(&["load", "-q", "--json", "-", "--agents-local", "3", "-c", "12"]);
    let path = std::env::join_paths(
        [folder].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.args(["--rate", "600", "-d", "3s", &url]).env("PATH", path.unwrap());
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{err}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(number(&document, "/requests/sent"), 1800, "{err}");
    assert_eq!(samples(&document), 1800);
    assert_eq!(document["machines"]["complete"], true, "{document:#}");
    let agents = document["machines"]["agents"].as_array().unwrap();
    let names: BTreeSet<_> = agents.iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["local-1", "local-2", "local-3"]));
    assert_eq!(agents.iter().map(|a| a["answered"].as_u64().unwrap()).sum::<u64>(), 1800);
    let stats: Value = serde_json::from_str(server.get("/stats").lines().last().unwrap()).unwrap();
    assert!(stats.to_string().contains("180"), "{stats}");
    assert!(err.contains("local-2") && err.contains(": complete"), "{err}");
    let series = document["series"].as_array().unwrap();
    let in_series: f64 = series.iter().map(|i| i["rate_rps"].as_f64().unwrap()).sum();
    assert_eq!(in_series.round() as u64, 1800, "{series:?}");
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
    assert_eq!(document["machines"]["complete"], false);
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
}

/// The broker's storage is lost after the run; the spools bring the result back.
#[test]
fn spools_fill_a_new_broker() {
    let Some(program) = nats_server() else { return };
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let first = broker(&program);
    let _agent = first.agent("one", &[]);
    let (before, _) = load(&["--nats", &first.url, "--agents", "1", "-c", "2", "-n", "500", &url]);
    let run_name = before["machines"]["run"].as_str().unwrap().to_owned();
    let (again, _) = load(&["--nats", &first.url, "--resume", &run_name]);
    assert_eq!(again["requests"], before["requests"]);
    assert_eq!(again["histogram"], before["histogram"]);
    let spool = first.folder.path().join(format!("linerate-{run_name}-one.jsonl"));
    let mut text = String::new();
    std::fs::File::open(&spool).unwrap().read_to_string(&mut text).unwrap();
    let replayed = run(&["agent", "replay", "--nats", &first.url, spool.to_str().unwrap()]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert!(replayed.out.contains(&format!("{} messages published", text.lines().count())));
    let (third, _) = load(&["--nats", &first.url, "--resume", &run_name]);
    assert_eq!(third["requests"], before["requests"]);
}
