//! The example configuration of nats-server: TLS with certificates on both sides, an NKEY for each
//! user, and permissions. A stranger can neither start a load nor forge results, nor join the
//! servers, nor read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::versions::Client;
use super::{Broker, Program, abandoned, agent, nats_server};
use crate::common::{nobody, run, until};
use crate::issued::Issued;
use crate::serving::serve;

const EXAMPLE: &str = include_str!("../../../../packaging/nats/nats-server.conf");

/// Makes an NKEY in a file; its public part.
fn new_key(file: &Path) -> String {
    let said = run(&["agent", "new-key", file.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.out.trim().to_owned()
}

#[test]
fn the_example_configuration_keeps_strangers_out() {
    let Some(program) = nats_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [coordinator, agent, stranger] = ["coordinator", "agent", "stranger"].map(&path);
    let [key, agents_key, _] = [&coordinator, &agent, &stranger].map(|file| new_key(Path::new(file)));
    let mut servers = Servers::new(folder.path(), [&key, &agents_key]);
    let brokers =
        [0, 1, 2].map(|i| servers.start(&program, i, &servers.routes, "route-secret", &servers.route));
    until("three servers with a leader", || servers.have_leader());
    let urls: Vec<String> = servers.clients.iter().map(|at| format!("tls://{at}")).collect();
    let url = urls.join(",");
    let (cert, private) = (servers.client.file("cert.pem"), servers.client.file("key.pem"));
    let bus = ["--nats", &url, "--nats-ca", &cert, "--nats-cert", &cert, "--nats-key", &private];
    let with = |key: &'_ str| {
        [&bus[..], &["--nkey", key]].concat().iter().map(|&w| w.to_owned()).collect::<Vec<_>>()
    };
    let server = serve(&[]);
    let target = format!("http://{}/", server.address);
    // The buckets are made by the first coordinator, which finds no agents.
    let said = run_with("load", &with(&coordinator), &["--agents", "1", "-q", "-n", "1", &target]);
    assert!(said.err.contains("1 agent was asked for; none is there"), "{said:?}");
    for stream in ["LINERATE", "KV_linerate_runs", "KV_linerate_agents"] {
        assert_eq!(servers.copies(stream), Some(3), "{stream}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["agent", "--name", "eu-1", "--trust-key", &key, "--spool", &path("")]).args(with(&agent));
    let waiting = Program::start(command);
    waiting.says("waits for runs");
    let load = ["--agents", "1", "-c", "2", "-n", "100", &target];
    let signed = ["--sign-key", &coordinator];
    let words: Vec<String> = with(&coordinator);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(signed).chain(load).collect();
    let said = run(&[&["load", "-q", "--json", "-"][..], &words].concat());
    let document: Value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}: {said:?}\n{}\n{}", waiting.said(), brokers[0].said()));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        (&document["requests"]["answered"], &document["machines"]["complete"]),
        (&100.into(), &true.into())
    );

    let unsigned = run_with("load", &with(&coordinator), &load);
    let signed_by_other =
        run_with("load", &with(&coordinator), &[&["--sign-key", &stranger][..], &load].concat());
    for said in [unsigned, signed_by_other] {
        assert!(said.err.contains("eu-1 carries out only runs that a trusted key has signed"), "{said:?}");
    }
    // An agent's user cannot start a load, nor speak for another agent.
    for said in [
        run_with("load", &with(&agent), &load),
        run_with("agent", &with(&agent), &["--name", "eu-2", "--once"]),
    ] {
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.err.to_lowercase().contains("permissions violation"), "{said:?}");
    }
    users_without_rights_are_told(&servers, [&coordinator, &agent, &stranger], &target);
    strangers_do_not_join(&program, &mut servers, &brokers);
}

/// The server and the coordinator write replies where a user asks them to: nobody takes them for an
/// order, nor for a result.
#[test]
fn an_agents_user_writes_nothing_through_replies() {
    let Some(program) = nats_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (seeds, config) = users_in(folder.path());
    let broker = Broker::with(&program, "users", nobody().port(), &["-c", &config]);
    let said = run(&["agents", "--nats", &broker.url, "--nkey", &seeds[0]]);
    assert_eq!(said.code, Some(0), "it makes the buckets: {said:?}");
    let victim = agent(&broker.url, folder.path(), "eu-2", &["--nkey", &seeds[1]]);
    let pid = Pid::from_raw(victim.child.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let server = serve(&[]);
    let json = folder.path().join("out.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["load", "-q", "--nats", &broker.url, "--nkey", &seeds[0], "--agents", "1", "-c", "2"]);
    command.args(["--rate", "50", "-d", "4s", &format!("http://{}/", server.address), "--json"]).arg(&json);
    let mut load = Program::start(command);
    let [mut all, mut intruder] =
        ["all", "eu-1"].map(|user| Client::connect(&broker.url.replace("//", &format!("//{user}:pw@"))));
    let mut name = String::new();
    until("the run has a document", || {
        let filter = "{\"subjects_filter\":\"$KV.linerate_runs.*.document\"}";
        let info = all.asked("STREAM.INFO.KV_linerate_runs", filter);
        let keys = info["state"]["subjects"].as_object().cloned().unwrap_or_default();
        name = keys.keys().next().map_or("", |key| key.split('.').nth(2).unwrap()).to_owned();
        !name.is_empty()
    });
    // The coordinator says what time it is, but to agents alone.
    intruder.publish(&format!("linerate.clock.{name}"), &format!("$KV.linerate_runs.{name}.takeover.9"), "");
    kill(pid, Signal::SIGCONT).unwrap();
    victim.says("begins");
    intruder.publish("$KV.linerate_agents.eu-1", "", "forged");
    for reply in ["stop", "over"].map(|order| format!("$KV.linerate_runs.{name}.{order}")) {
        intruder.publish(&format!("$KV.linerate_runs.{name}.ready.eu-1"), &reply, "");
        until("the key is written", || {
            let key = reply.trim_start_matches("$KV.linerate_runs.");
            !all.bytes("linerate_runs", key).is_empty()
        });
    }
    let own = "$JS.API.DIRECT.GET.KV_linerate_agents.$KV.linerate_agents.eu-1";
    intruder.publish(own, &format!("linerate.run.{name}.eu-2"), "");
    intruder.publish(own, "$KV.linerate_runs.forged.document", "");
    assert_eq!(load.child.wait().unwrap().code(), Some(0), "{}", load.said());
    let document: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&document["requests"]["answered"], &document["complete"]), (&200.into(), &true.into()));
    for key in [format!("{name}.takeover.9"), "forged.document".to_owned()] {
        assert_eq!(all.bytes("linerate_runs", &key), b"", "{key}");
    }
    let stored = all.asked("STREAM.INFO.LINERATE", "");
    for seq in 1..=stored["state"]["messages"].as_u64().unwrap() {
        let message = all.asked("STREAM.MSG.GET.LINERATE", &format!("{{\"seq\":{seq}}}"));
        let forged = base64::engine::general_purpose::STANDARD.encode("forged");
        assert_ne!(message["message"]["data"], forged, "a message that the agent did not send");
    }
}

/// Those who start loads cannot write results, and agents cannot write runs: a new broker needs both.
#[test]
fn a_spool_comes_to_a_new_broker_by_two_users() {
    let Some(program) = nats_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let ([coordinator, agents], config) = users_in(folder.path());
    let [first, second] =
        ["first", "second"].map(|name| Broker::with(&program, name, nobody().port(), &["-c", &config]));
    for broker in [&first, &second] {
        assert_eq!(run(&["agents", "--nats", &broker.url, "--nkey", &coordinator]).code, Some(0));
    }
    let working = agent(&first.url, folder.path(), "eu-2", &["--nkey", &agents]);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let args = ["--nkey", &coordinator, "--agents", "1", "-c", "2", "-n", "100", &url];
    let name = abandoned(&first, &[&working], &args);
    let spool = folder.path().join(format!("linerate-{name}-eu-2.jsonl")).display().to_string();
    let replayed = |key: &str| run(&["agent", "replay", "--nats", &second.url, "--nkey", key, &spool]);
    let alone = replayed(&agents);
    assert_eq!(alone.code, Some(4), "{alone:?}");
    assert!(alone.err.contains("hint: replay the spool first as a user who starts loads"), "{alone:?}");
    let half = replayed(&coordinator);
    assert!(half.err.contains("hint: the broker knows the run: replay the spool as the agent"), "{half:?}");
    let whole = replayed(&agents);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let said = run(&["load", "-q", "--nats", &second.url, "--nkey", &coordinator, "--resume", &name]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("200: 100") && said.out.contains(": complete"), "{said:?}");
}

/// The seeds of a coordinator and of the agent `eu-2`, and a configuration that knows them.
fn users_in(folder: &Path) -> ([String; 2], String) {
    let config = folder.join("nats.conf").display().to_string();
    let seeds = ["coordinator", "eu-2"].map(|name| folder.join(name).display().to_string());
    let keys = seeds.each_ref().map(|file| new_key(Path::new(file)));
    std::fs::write(&config, users_of_the_example(keys.each_ref().map(String::as_str))).unwrap();
    (seeds, config)
}

/// The users of the example, an agent `eu-2` with the second key; `eu-1` and one that may do all have
/// a password.
fn users_of_the_example([coordinator, agent]: [&str; 2]) -> String {
    let users = &EXAMPLE[EXAMPLE.find("\nauthorization {").unwrap()..];
    let begin = users.find("    {\n      nkey: \"U-AGENT\"").unwrap();
    let end = users.rfind("  ]\n}").unwrap();
    let first = users[begin..end].replace("nkey: \"U-AGENT\"", "user: eu-1\n      password: pw");
    let first = first.replace("_INBOX.U-AGENT.>", "_INBOX.>");
    let second = users[begin..end].replace("eu-1", "eu-2").replace("U-AGENT", agent);
    let coordinators = users[..begin].replace("U-COORDINATOR", coordinator);
    format!("{coordinators}{first}{second}    {{ user: all, password: pw }}\n{}", &users[end..])
}

/// Users without a key, without a certificate, and with another certificate.
fn users_without_rights_are_told(servers: &Servers, [coordinator, agent, stranger]: [&str; 3], target: &str) {
    let url = format!("tls://{}", servers.clients[0]);
    let (cert, private) = (servers.client.file("cert.pem"), servers.client.file("key.pem"));
    let bus = ["--nats", &url, "--nats-ca", &cert, "--nats-cert", &cert, "--nats-key", &private];
    let with = |key: &str| bus.iter().chain(&["--nkey", key]).map(|&w| w.to_owned()).collect::<Vec<_>>();
    let load = ["--agents", "1", "-c", "2", "-n", "100", target];
    let said = run_with("load", &with(stranger), &load);
    assert!(said.err.to_lowercase().contains("authorization violation"), "{said:?}");
    assert!(said.err.contains("hint: name a user that it knows"), "{said:?}");
    let bare = ["load", "--nats", &url, "--nats-ca", &cert, "--nkey", coordinator, "--agents", "1", target];
    assert_eq!(run(&bare).code, Some(4), "without a certificate");
    let said = run(&["load", "--nats", &url, "--nkey", coordinator, "--agents", "1", target]);
    assert!(
        said.err.contains("UnknownIssuer") && said.err.contains("hint: name the certificate"),
        "{said:?}"
    );
    let said = run_with("load", &with(&cert), &load);
    assert!(said.err.contains("holds no NKEY seed") && said.err.contains("hint:"), "{said:?}");
    assert_eq!(run(&["agent", "new-key", agent]).code, Some(2), "the file exists");
}

/// Servers that nobody asked for, with all that a client can have.
fn strangers_do_not_join(program: &Path, servers: &mut Servers, brokers: &[Program]) {
    let own = Issued::to("127.0.0.1");
    for (who, password) in [
        ("a stranger", "ROUTE-PASSWORD"),
        ("an agent's machine", "route-secret"),
        ("a server with the old password", "ROUTE-PASSWORD"),
    ] {
        // Ports of its own: those of the one before may be taken meanwhile.
        (servers.clients[3], servers.routes[3], servers.monitors[3]) = (nobody(), nobody(), nobody());
        let servers = &*servers;
        let certificate = match who {
            "a stranger" => &own,
            "an agent's machine" => &servers.client,
            _ => &servers.route,
        };
        let handshakes =
            || brokers.iter().map(|b| b.said().matches("TLS route handshake error").count()).sum();
        let before: usize = handshakes();
        let stranger = servers.start(program, 3, &servers.routes[..3], password, certificate);
        let is_refused = || stranger.said().contains("Authorization Violation") || handshakes() > before;
        until("it is refused", is_refused);
        for monitor in &servers.monitors[..3] {
            let names = servers.joined(*monitor);
            assert!(!names.contains(&"bus-4".to_owned()), "{who}: {names:?}");
        }
        // A route that is being refused is listed for a moment, and it tries again and again.
        until("it has no route", || servers.joined(servers.monitors[3]).is_empty());
    }
}

/// Three servers with the example configuration, and room for one more.
struct Servers {
    folder: PathBuf,
    keys: [String; 2],
    client: Issued,
    route: Issued,
    clients: [SocketAddr; 4],
    routes: Vec<SocketAddr>,
    monitors: [SocketAddr; 4],
}

impl Servers {
    fn new(folder: &Path, keys: [&str; 2]) -> Servers {
        let four = || [nobody(), nobody(), nobody(), nobody()];
        Servers {
            folder: folder.to_owned(),
            keys: keys.map(str::to_owned),
            client: Issued::to("127.0.0.1"),
            route: Issued::to("127.0.0.1"),
            clients: four(),
            routes: four().to_vec(),
            monitors: four(),
        }
    }

    /// The example with this place's names and files, and nothing else changed.
    fn config(&self, i: usize, routes: &[SocketAddr], password: &str, route: &Issued) -> String {
        let file = |issued: &Issued, name: &str| issued.file(name);
        let mut config = EXAMPLE.to_owned();
        for (from, to) in [
            ("server_name: bus-1", format!("server_name: bus-{}", i + 1)),
            ("U-COORDINATOR", self.keys[0].clone()),
            ("U-AGENT", self.keys[1].clone()),
            ("0.0.0.0:4222", self.clients[i].to_string()),
            ("0.0.0.0:6222", self.routes[i].to_string()),
            ("/etc/nats/server.pem", file(&self.client, "cert.pem")),
            ("/etc/nats/server.key", file(&self.client, "key.pem")),
            ("/etc/nats/ca.pem", file(&self.client, "cert.pem")),
            ("/etc/nats/route.pem", file(route, "cert.pem")),
            ("/etc/nats/route.key", file(route, "key.pem")),
            ("/etc/nats/routes-ca.pem", file(&self.route, "cert.pem")),
            ("/var/lib/nats", self.folder.join(format!("store-{i}-{password}")).display().to_string()),
            ("bus-1:6222", routes[0].to_string()),
            ("bus-2:6222", routes[1].to_string()),
            ("bus-3:6222", routes[2].to_string()),
            ("ROUTE-PASSWORD", password.to_owned()),
        ] {
            assert!(config.contains(from), "{from}");
            config = config.replace(from, &to);
        }
        config
    }

    fn start(
        &self,
        program: &Path,
        i: usize,
        routes: &[SocketAddr],
        password: &str,
        route: &Issued,
    ) -> Program {
        let file = self.folder.join(format!("nats-{i}.conf"));
        std::fs::write(&file, self.config(i, routes, password, route)).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(file).args(["-m", &self.monitors[i].port().to_string()]);
        let broker = Program::start(command);
        broker.says("Server is ready");
        broker
    }

    fn page(&self, monitor: SocketAddr, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(monitor).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    fn have_leader(&self) -> bool {
        let leads = |at: &SocketAddr| {
            self.page(*at, "/jsz").is_some_and(|page| page["meta_cluster"]["leader"].is_string())
        };
        self.monitors[..3].iter().all(leads)
    }

    /// The names of the servers that are joined to one.
    fn joined(&self, monitor: SocketAddr) -> Vec<String> {
        let page = self.page(monitor, "/routez").expect("a page");
        let routes = page["routes"].as_array().cloned().unwrap_or_default();
        routes.iter().filter_map(|route| Some(route["remote_name"].as_str()?.to_owned())).collect()
    }

    /// How many copies of a stream are kept.
    fn copies(&self, stream: &str) -> Option<u64> {
        let page = self.page(self.monitors[0], "/jsz?accounts=true&streams=true&config=true")?;
        let streams = page["account_details"][0]["stream_detail"].as_array()?.clone();
        let ours = streams.into_iter().find(|of| of["name"] == stream)?;
        ours["config"]["num_replicas"].as_u64()
    }
}

fn run_with(command: &str, bus: &[String], more: &[&str]) -> crate::common::Said {
    let words: Vec<&str> =
        [command].into_iter().chain(bus.iter().map(String::as_str)).chain(more.iter().copied()).collect();
    run(&words)
}
