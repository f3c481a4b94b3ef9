//! nats-servers and agents as processes.

pub(crate) mod broken;
mod coordinators;
mod deployments;
mod outputs;
mod permissions;
mod plans;
mod versions;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::common::{nobody, until};

/// nats-server in PATH or where `go install` puts it; without it the test is reported as skipped.
pub(crate) fn nats_server() -> Option<PathBuf> {
    linerate_skips::program("nats-server")
}

/// A program that ends with the test.
pub(crate) struct Program {
    pub(crate) child: Child,
    said: Arc<Mutex<String>>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Program {
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

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn says(&self, what: &str) {
        until(what, || self.said.lock().unwrap().contains(what));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A nats-server with its files in a folder that the test owns. It can be killed and come back.
pub(crate) struct Broker {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Program>,
    pub(crate) name: String,
    pub(crate) url: String,
    monitor: SocketAddr,
    pub(crate) folder: tempfile::TempDir,
}

/// A broker alone.
pub(crate) fn broker(program: &Path) -> Broker {
    Broker::with(program, "alone", nobody().port(), &[])
}

/// Three brokers that keep three copies of everything.
fn cluster(program: &Path) -> Vec<Broker> {
    let ports = [nobody(), nobody(), nobody()].map(|a| a.port());
    let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
    let brokers: Vec<Broker> = (1..)
        .zip(ports)
        .map(|(i, port)| {
            let cluster = format!("nats://127.0.0.1:{port}");
            let more = ["--cluster_name", "three", "--cluster", &cluster, "--routes", &routes];
            Broker::with(program, &format!("bus-{i}"), nobody().port(), &more)
        })
        .collect();
    until("three brokers with a leader", || {
        brokers.iter().any(|b| b.monitored("/jsz").is_some_and(|j| j["meta_cluster"]["leader"].is_string()))
    });
    brokers
}

impl Broker {
    fn with(program: &Path, name: &str, port: u16, more: &[&str]) -> Broker {
        let (folder, monitor) = (tempfile::tempdir().unwrap(), nobody());
        let mut arguments: Vec<String> = ["-a", "127.0.0.1", "-js", "-n", name].map(str::to_owned).to_vec();
        arguments.extend(["-p".to_owned(), port.to_string(), "-m".to_owned(), monitor.port().to_string()]);
        arguments.extend(["-sd".to_owned(), folder.path().display().to_string()]);
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        let (program, name) = (program.to_owned(), name.to_owned());
        let url = format!("nats://127.0.0.1:{port}");
        let mut broker = Broker { program, arguments, child: None, name, url, monitor, folder };
        broker.start();
        broker
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let program = Program::start(command);
        program.says("Server is ready");
        self.child = Some(program);
    }

    /// As `kill -9`.
    fn kill(&mut self) {
        self.child = None;
    }

    /// A page of its monitoring.
    fn monitored(&self, path: &str) -> Option<Value> {
        self.child.as_ref()?;
        let mut stream = TcpStream::connect(self.monitor).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The name of the broker that leads the stream of all runs.
    fn leader_of_the_stream(&self) -> Option<String> {
        let page = self.monitored("/jsz?accounts=true&streams=true")?;
        let streams = page["account_details"][0]["stream_detail"].as_array()?.clone();
        let ours = streams.into_iter().find(|stream| stream["name"] == "LINERATE")?;
        ours["cluster"]["leader"].as_str().map(str::to_owned)
    }

    pub(crate) fn agent(&self, name: &str, more: &[&str]) -> Program {
        agent(&self.url, self.folder.path(), name, more)
    }
}

/// A run whose load is killed once its agents have begun, and that they carry out to the end: its name.
pub(crate) fn abandoned(broker: &Broker, agents: &[&Program], args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--nats", &broker.url]).args(args);
    let mut load = Program::start(command);
    let count = |agent: &Program, what: &str| agent.said().matches(what).count();
    let before: Vec<_> =
        agents.iter().map(|agent| (count(agent, "begins"), count(agent, "has ended"))).collect();
    load.says("--resume continues with it");
    for (agent, (begun, _)) in agents.iter().zip(&before) {
        until("it begins", || count(agent, "begins") > *begun);
    }
    load.child.kill().unwrap();
    let said = load.said();
    for (agent, (_, ended)) in agents.iter().zip(&before) {
        until("it ends", || count(agent, "has ended") > *ended);
    }
    said.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned()
}

/// An agent that waits for runs, with its spool in this folder.
fn agent(url: &str, spool: &Path, name: &str, more: &[&str]) -> Program {
    let agent = starting_agent(url, spool, name, more);
    agent.says("waits for runs");
    agent
}

fn starting_agent(url: &str, spool: &Path, name: &str, more: &[&str]) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["agent", "--nats", url, "--name", name, "--spool"]).arg(spool).args(more);
    Program::start(command)
}
