//! The example configuration of nats-server: TLS with certificates on both sides, an NKEY for each
//! user, and permissions. A stranger can neither start a load nor forge results.

use std::path::Path;
use std::process::Command;

use super::{Program, nats_server};
use crate::common::{nobody, run};
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
    let issued = Issued::to("127.0.0.1");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [coordinator, agent, stranger] = ["coordinator", "agent", "stranger"].map(&path);
    let key = new_key(Path::new(&coordinator));
    let port = nobody().port();
    let agents_key = new_key(Path::new(&agent));
    new_key(Path::new(&stranger));
    let broker = started(&program, &issued, port, &path("store"), [&key, &agents_key], &path("nats.conf"));
    let url = format!("tls://127.0.0.1:{port}");
    let (cert, private) = (issued.file("cert.pem"), issued.file("key.pem"));
    let bus = ["--nats", &url, "--nats-ca", &cert, "--nats-cert", &cert, "--nats-key", &private];
    let with = |key: &'_ str| {
        [&bus[..], &["--nkey", key]].concat().iter().map(|&w| w.to_owned()).collect::<Vec<_>>()
    };
    let server = serve(&[]);
    let target = format!("http://{}/", server.address);
    // The buckets are made by the first coordinator, which finds no agents.
    let said = run_with("load", &with(&coordinator), &["--agents", "1", "-q", "-n", "1", &target]);
    assert!(said.err.contains("1 agent was asked for; none is there"), "{said:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["agent", "--name", "eu-1", "--trust-key", &key, "--spool", &path("")]).args(with(&agent));
    let waiting = Program::start(command);
    waiting.says("waits for runs");
    let load = ["--agents", "1", "-c", "2", "-n", "100", &target];
    let signed = ["--sign-key", &coordinator];
    let words: Vec<String> = with(&coordinator);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(signed).chain(load).collect();
    let said = run(&[&["load", "-q", "--json", "-"][..], &words].concat());
    let document: serde_json::Value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}: {said:?}\n{}\n{}", waiting.said(), broker.said()));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        (&document["requests"]["answered"], &document["machines"]["complete"]),
        (&100.into(), &true.into())
    );

    for said in [
        run_with("load", &with(&coordinator), &load),
        run_with("load", &with(&coordinator), &[&["--sign-key", &stranger][..], &load].concat()),
    ] {
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
    let said = run_with("load", &with(&stranger), &load);
    assert!(said.err.to_lowercase().contains("authorization violation"), "{said:?}");
    let bare = ["load", "--nats", &url, "--nats-ca", &cert, "--nkey", &coordinator, "--agents", "1", &target];
    assert_eq!(run(&bare).code, Some(4), "without a certificate");
    let said = run_with("load", &with(&cert), &load);
    assert!(said.err.contains("holds no NKEY seed") && said.err.contains("hint:"), "{said:?}");
    assert_eq!(run(&["agent", "new-key", &agent]).code, Some(2), "the file exists");
}

/// A nats-server with the example configuration.
fn started(program: &Path, issued: &Issued, port: u16, store: &str, keys: [&str; 2], file: &str) -> Program {
    let mut config = EXAMPLE.replace("U-COORDINATOR", keys[0]).replace("U-AGENT", keys[1]);
    for (from, to) in [
        ("0.0.0.0:4222", format!("127.0.0.1:{port}")),
        ("/etc/nats/server.pem", issued.file("cert.pem")),
        ("/etc/nats/server.key", issued.file("key.pem")),
        ("/etc/nats/ca.pem", issued.file("cert.pem")),
        ("/var/lib/nats", store.to_owned()),
    ] {
        assert!(config.contains(from), "{from}");
        config = config.replace(from, &to);
    }
    // One server of three waits for the others, so the test's is alone.
    let (before, rest) = config.split_once("cluster {").unwrap();
    let config = format!("{before}{}", rest.split_once("\n}\n").unwrap().1);
    std::fs::write(file, config).unwrap();
    let mut command = Command::new(program);
    command.args(["-c", file]);
    let broker = Program::start(command);
    broker.says("Server is ready");
    broker
}

fn run_with(command: &str, bus: &[String], more: &[&str]) -> crate::common::Said {
    let words: Vec<&str> =
        [command].into_iter().chain(bus.iter().map(String::as_str)).chain(more.iter().copied()).collect();
    run(&words)
}
