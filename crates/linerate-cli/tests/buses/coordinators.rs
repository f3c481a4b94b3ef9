//! One run has one coordinator: a second one is refused, and takes over when the first is gone.

use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::broken::due;
use super::{Broker, Program, broker, nats_server};
use crate::common::{Said, run, until};
use crate::serving::{Server, serve};

/// A load by one agent that writes its document into a file, and the run's name.
fn first(broker: &Broker, server: &Server, seconds: u32) -> (Program, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--nats", &broker.url, "--agents", "1", "-c", "4", "--rate", "200", "-d"]);
    command.arg(format!("{seconds}s")).arg(format!("http://{}/", server.address));
    command.arg("--json").arg(broker.folder.path().join("first.json"));
    let first = Program::start(command);
    first.says("--resume continues with it");
    let said = first.said();
    let name = said.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    (first, name.to_owned())
}

fn resume(broker: &Broker, name: &str) -> Said {
    run(&["load", "-q", "--json", "-", "--nats", &broker.url, "--resume", name])
}

fn is_whole(said: &Said, all: u64) {
    assert_eq!(said.code, Some(0), "{said:?}");
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((due(&document), &document["machines"]["complete"]), (all, &true.into()));
}

#[test]
fn a_living_coordinator_keeps_its_run() {
    let Some(program) = nats_server() else { return };
    let (broker, server) = (broker(&program), serve(&[]));
    let agent = broker.agent("one", &[]);
    let (mut first, name) = first(&broker, &server, 8);
    let pid = first.child.id();
    // Before the start, and in the middle.
    for _ in 0..2 {
        let said = resume(&broker, &name);
        assert_eq!(said.code, Some(4), "{said:?}");
        let text = format!("run {name} has a coordinator already: process {pid} on ");
        assert!(said.err.contains(&text) && said.err.contains("hint:"), "{}", said.err);
        agent.says("begins");
    }
    assert_eq!(first.child.wait().unwrap().code(), Some(0), "{}", first.said());
    let document = std::fs::read(broker.folder.path().join("first.json")).unwrap();
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!((due(&document), &document["machines"]["complete"]), (1600, &true.into()));
    // Its key went with it.
    let before = std::time::Instant::now();
    is_whole(&resume(&broker, &name), 1600);
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
}

#[test]
fn one_of_two_coordinators_goes_on() {
    let Some(program) = nats_server() else { return };
    let (broker, server) = (broker(&program), serve(&[]));
    let agent = broker.agent("one", &[]);
    let (mut first, name) = first(&broker, &server, 14);
    agent.says("begins");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let both = thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| resume(&broker, &name)));
        both.map(|one| one.join().unwrap())
    });
    let [mut goes_on, mut refused] = both;
    if goes_on.code != Some(0) {
        std::mem::swap(&mut goes_on, &mut refused);
    }
    is_whole(&goes_on, 2800);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains(&format!("run {name} has a coordinator already: process ")), "{refused:?}");
    assert_eq!(refused.out, "");
}

/// A coordinator that is stopped for long finds that another has its run.
#[test]
fn a_coordinator_that_was_away_gives_up() {
    let Some(program) = nats_server() else { return };
    let (broker, server) = (broker(&program), serve(&[]));
    let agent = broker.agent("one", &[]);
    let (mut first, name) = first(&broker, &server, 14);
    agent.says("begins");
    let pid = Pid::from_raw(first.child.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let (broker_of, name_of) = (&broker, &name);
    let second = thread::scope(|scope| {
        let second = scope.spawn(move || resume(broker_of, name_of));
        let (stopped, led) = (format!("process {pid} on "), format!("{name_of} "));
        until("the second has the key of the first", || {
            let listed = run(&["agents", "--nats", &broker_of.url]).out;
            let line = listed.lines().find(|line| line.starts_with(&led)).unwrap_or_default();
            line.contains("process ") && !line.contains(&stopped)
        });
        kill(pid, Signal::SIGCONT).unwrap();
        let code = first.child.wait().unwrap().code();
        assert_eq!(code, Some(4), "{}", first.said());
        first.says(&format!("another coordinator has taken run {name_of} over and reports it: process "));
        second.join().unwrap()
    });
    is_whole(&second, 2800);
    assert!(!broker.folder.path().join("first.json").exists(), "only one reports");
}

#[test]
fn a_run_that_is_not_there_is_named() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    for name in ["nothing", "no.name", "", "*", "ä"] {
        let said = run(&["load", "-q", "--nats", &broker.url, "--resume", name]);
        assert_eq!(said.code, Some(2), "{name:?}: {said:?}");
        assert!(said.err.contains(&format!("there is no run {name} on this bus")), "{name:?}: {said:?}");
        assert!(said.err.contains("hint:"), "{name:?}: {said:?}");
    }
}

/// `linerate agents` names agents and runs, and ends a run.
#[test]
fn agents_and_runs_are_listed_and_a_run_is_ended() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let none = run(&["agents", "--nats", &broker.url]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), "no agents\n\nno run is under way\n"), "{none:?}");
    let (one, _two) = (broker.agent("one", &["--labels", "region=eu"]), broker.agent("two", &[]));
    let server = serve(&[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--nats", &broker.url, "--agents", "region=eu", "-c", "2", "--rate", "50"]);
    command.args(["-d", "50s", &format!("http://{}/", server.address)]);
    let mut load = Program::start(command);
    one.says("begins");
    let said = load.said();
    let name = said.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    until("the run is listed", || {
        let listed = run(&["agents", "--nats", &broker.url]);
        let line =
            |begins: &str| listed.out.lines().find(|line| line.starts_with(begins)).unwrap_or("").to_owned();
        let agent = line("one ");
        assert!(line("two ").ends_with('-'), "{}", listed.out);
        agent.contains("region=eu") && agent.ends_with(&name) && line(&name).contains("1       process ")
    });
    let unknown = run(&["agents", "--nats", &broker.url, "stop", "nothing"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.err.contains(&format!("hint: under way: {name}")), "{unknown:?}");
    let stopped = run(&["agents", "--nats", &broker.url, "stop", &name]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let code = load.child.wait().unwrap().code();
    assert_eq!(code, Some(130), "{}", load.said());
}
