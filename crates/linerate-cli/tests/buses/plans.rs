//! Every kind of plan, carried out by agents.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;

use super::versions::Client;
use super::{Program, broker, nats_server};
use crate::common::{self, measured, number};
use crate::issued::Issued;
use crate::serving::serve;

/// A proxy that connects to the one server there is, whatever it is asked for.
fn proxy(to: SocketAddr) -> SocketAddr {
    common::server(move |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if !stream.read(&mut byte).is_ok_and(|n| n > 0) {
                return;
            }
            head.push(byte[0]);
        }
        let mut server = TcpStream::connect(to).unwrap();
        let sent = match head.starts_with(b"CONNECT ") {
            true => stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"),
            false => server.write_all(&head),
        };
        sent.unwrap();
        let mut ways = [(server.try_clone().unwrap(), stream.try_clone().unwrap()), (stream, server)];
        thread::scope(|scope| {
            for (from, into) in &mut ways {
                scope.spawn(|| {
                    // The end of either is the end of both.
                    let _ = io::copy(from, into);
                    let _ = into.shutdown(std::net::Shutdown::Both);
                });
            }
        });
    })
}

#[test]
fn every_kind_of_plan_is_carried_out_to_its_end() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let _agents =
        [broker.agent("one", &["--allow-target", "*"]), broker.agent("two", &["--allow-target", "*"])];
    let issued = Issued::to("127.0.0.1");
    let (cert, key) = (issued.file("cert.pem"), issued.file("key.pem"));
    let plain = serve(&[]);
    let secure = serve(&["--tls-cert", &cert, "--tls-key", &key]);
    let asks = serve(&["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &cert]);
    let (http, https) = (format!("http://{}", plain.address), format!("https://{}", secure.address));
    let asking = format!("https://{}", asks.address);
    let proxies =
        [&plain, &secure].map(|server| format!("http://{}", proxy(server.address.parse().unwrap())));
    let file = |name: &str, text: &str| {
        let path = broker.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let body = format!("@{}", file("body.bin", "some\u{0} bytes"));
    let rows = file("rows.csv", "id\n1\n2\n3\n");
    let (upper, with_row) = (format!("{http}/upper"), format!("{http}/?id={{{{csv.id}}}}"));
    let plan = file(
        "plan.toml",
        &format!(
            "url = \"{http}\"\n[[request]]\nname = \"a\"\npath = \"/\"\n[[request]]\nname = \"b\"\npath = \"/bytes/9\"\n"
        ),
    );
    let plans: &[(&str, &[&str])] = &[
        ("https", &["--cacert", &cert, &https]),
        ("https, nothing is checked", &["-k", "--per-connection", "1", &https]),
        ("HTTP/2 over TLS", &["-k", "--http2", &https]),
        ("HTTP/2 in clear text", &["--http2", &http]),
        ("a client's certificate", &["--cacert", &cert, "--cert", &cert, "--key", &key, &asking]),
        ("a proxy that forwards", &["--proxy", &proxies[0], &http]),
        ("a proxy that connects", &["--proxy", &proxies[1], "-k", &https]),
        ("user and password", &["-u", "me:secret", "-H", "Authorization2: Bearer t", &http]),
        ("rows of data", &["--data", &rows, &with_row]),
        ("a body from a file", &["-X", "POST", "--body", &body, &upper]),
        ("a form", &["--form", "a=b", &upper]),
        ("a plan file", &["--plan", &plan]),
        ("a check and a condition", &["--check", "errors<1%", "--abort-on", "errors>50%@2s", &http]),
    ];
    for (what, flags) in plans {
        let all = ["--nats", &broker.url, "--agents", "2", "-c", "4", "-t", "1", "-n", "60"];
        let (document, said) = measured(&[&all[..], flags].concat());
        assert_eq!(said.code, Some(0), "{what}: {said:?}");
        assert_eq!(number(&document, "/requests/answered"), 60, "{what}: {document:#}");
        assert_eq!(document["complete"], true, "{what}: {said:?}");
        if what.contains("TLS") || what.contains("https") {
            assert!(document["tls"]["version"].is_string(), "{what}: {document:#}");
        }
    }
}

/// What is secret is on the bus for the agents of the run alone, and not after it.
#[test]
fn secrets_are_sealed_to_the_agents_of_the_run() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let agent = broker.agent("one", &["--allow-target", "*"]);
    let server = serve(&[]);
    let url = format!("http://{}/", server.address);
    let body = broker.folder.path().join("body");
    std::fs::write(&body, "t0p-secret body").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args([
        "load",
        "-q",
        "--nats",
        &broker.url,
        "--agents",
        "1",
        "-c",
        "1",
        "--rate",
        "50",
        "-d",
        "2s",
    ]);
    command.args(["-u", "me:t0p-secret", "-H", "X-Api-Key: t0p-secret", "-X", "POST"]);
    command.args(["--body", &format!("@{}", body.display()), &url]);
    let mut load = Program::start(command);
    agent.says("begins");
    let said = load.said();
    let name = said.split("run ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let mut client = Client::connect(&broker.url);
    let mut on_the_bus = |key: &str| client.bytes("linerate_runs", &format!("{name}.{key}"));
    let (document, plan) = (on_the_bus("document"), on_the_bus("plan"));
    let spool = std::fs::read(broker.folder.path().join(format!("linerate-{name}-one.jsonl"))).unwrap();
    assert!(plan.len() > 500, "{} bytes", plan.len());
    for bytes in [document, plan, spool] {
        let text = String::from_utf8_lossy(&bytes);
        // `me:t0p-secret` in Base64.
        assert!(!text.contains("t0p-secret") && !text.contains("bWU6dDBwLXNlY3JldA"), "{text}");
    }
    assert_eq!(load.child.wait().unwrap().code(), Some(0), "{}", load.said());
    assert_eq!(on_the_bus("plan"), b"", "it is removed");
}
