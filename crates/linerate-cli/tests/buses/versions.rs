//! Brokers that are too old, and agents and loads of another version.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use base64::Engine as _;

use super::{broker, nats_server};
use crate::common::run;

const OURS: &str = env!("CARGO_PKG_VERSION");

/// A server that greets as a nats-server of this version does, and answers nothing but pings.
fn old_broker(version: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let info = format!(
        "INFO {{\"server_id\":\"NOLD\",\"server_name\":\"old\",\"version\":\"{version}\",\"proto\":1,\
         \"go\":\"go1.20\",\"host\":\"127.0.0.1\",\"port\":{},\"headers\":true,\"max_payload\":1048576,\
         \"jetstream\":true,\"client_id\":5,\"client_ip\":\"127.0.0.1\"}} \r\n",
        address.port()
    );
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let info = info.clone();
            thread::spawn(move || {
                stream.write_all(info.as_bytes()).unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok).filter(|line| line.starts_with("PING")) {
                    assert_eq!(line, "PING");
                    if stream.write_all(b"PONG\r\n").is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_broker_that_is_too_old_is_named() {
    for version in ["2.9.25", "2.10.29"] {
        let url = format!("nats://{}", old_broker(version));
        for args in [
            &["load", "-q", "--nats", &url, "--agents", "1", "-n", "1", "http://127.0.0.1:1/"][..],
            &["load", "-q", "--nats", &url, "--resume", "abc"],
            &["agent", "--nats", &url],
        ] {
            let said = run(args);
            assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
            let text =
                format!("the NATS server is version {version}; runs on many machines need 2.11 or later");
            assert!(said.err.contains(&text) && said.err.contains("hint:"), "{args:?}: {}", said.err);
        }
    }
}

/// A client of NATS that sends what the test gives it.
pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    pub(super) fn connect(url: &str) -> Client {
        let url = url.trim_start_matches("nats://");
        let (user, at) = url.split_once('@').unwrap_or((":", url));
        let (user, password) = user.split_once(':').unwrap();
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut client = Client(BufReader::new(stream));
        assert!(client.line().starts_with("INFO"));
        client.send(
            format!(
                "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true,\
                 \"user\":\"{user}\",\"pass\":\"{password}\"}}\r\nSUB _INBOX.answers 1\r\n"
            )
            .as_bytes(),
        );
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Puts a value under a key, without being asked what it is.
    fn put(&mut self, bucket: &str, key: &str, value: &str) {
        self.publish(&format!("$KV.{bucket}.{key}"), "", value);
    }

    /// Publishes, and waits until the server has read it.
    pub(super) fn publish(&mut self, subject: &str, reply: &str, value: &str) {
        self.send(format!("PUB {subject} {reply} {}\r\n{value}\r\nPING\r\n", value.len()).as_bytes());
        while self.line() != "PONG" {}
    }

    /// The value of a key that exists.
    fn get(&mut self, bucket: &str, key: &str) -> serde_json::Value {
        let bytes = self.bytes(bucket, key);
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{e}: {key}: {bytes:?}"))
    }

    /// The bytes of a key; none of one that never existed.
    pub(super) fn bytes(&mut self, bucket: &str, key: &str) -> Vec<u8> {
        let asked = format!("{{\"last_by_subj\":\"$KV.{bucket}.{key}\"}}");
        let answer = self.asked(&format!("STREAM.MSG.GET.KV_{bucket}"), &asked);
        let data = answer["message"]["data"].as_str().unwrap_or_default();
        base64::engine::general_purpose::STANDARD.decode(data).unwrap()
    }

    /// What JetStream's interface answers.
    pub(super) fn asked(&mut self, subject: &str, body: &str) -> serde_json::Value {
        let request = format!("PUB $JS.API.{subject} _INBOX.answers {}\r\n{body}\r\n", body.len());
        self.send(request.as_bytes());
        let line = loop {
            let line = self.line();
            if line.starts_with("MSG") {
                break line;
            }
        };
        let mut bytes = vec![0; line.rsplit(' ').next().unwrap().parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }
}

#[test]
fn agents_and_loads_of_other_versions_are_named_on_both_sides() {
    let Some(program) = nats_server() else { return };
    let broker = broker(&program);
    let one = broker.agent("one", &[]);
    let target = "http://127.0.0.1:1/";
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        // An agent of an earlier version, whose card has other fields.
        let (old, is_over) = (Client::connect(&broker.url), &ended);
        scope.spawn(move || {
            let mut old = old;
            let card = r#"{"schema":"linerate.machines/0","name":"old","version":"0.0.1","labels":["region=eu"],"x":{}}"#;
            while !is_over.load(Ordering::Relaxed) {
                old.put("linerate_agents", "old", card);
                thread::sleep(Duration::from_millis(300));
            }
        });
        let load = |agents| {
            run(&["load", "-q", "--nats", &broker.url, "--agents", agents, "-c", "4", "-n", "4", target])
        };
        let said = load("2");
        let labelled = load("region=eu");
        ended.store(true, Ordering::Relaxed);
        assert_eq!(said.code, Some(4), "{said:?}");
        let text = format!("2 agents were asked for; there are old (linerate 0.0.1, not {OURS}), one");
        assert!(said.err.contains(&text), "{}", said.err);
        assert_eq!(labelled.code, Some(4), "{labelled:?}");
        assert!(
            labelled.err.contains(&format!("this is linerate {OURS}; old is linerate 0.0.1")),
            "{labelled:?}"
        );
        assert!(labelled.err.contains("hint: install the same version on all machines"), "{labelled:?}");
    });
    // A load of a later version, whose plan has parts that this version does not know.
    let mut later = Client::connect(&broker.url);
    let incarnation = later.get("linerate_agents", "one")["incarnation"].clone();
    for (run_name, version, text) in
        [("r1", "\"version\":\"9.1.0\",", "linerate 9.1.0"), ("r2", "", "an earlier linerate")]
    {
        let document = format!(
            r#"{{"schema":"linerate.machines/1",{version}"run":"{run_name}","plan":{{"unheard":"of"}},"shares":[{{"agent":"one","incarnation":{incarnation},"first_thread":0,"threads":1}}]}}"#
        );
        later.put("linerate_runs", &format!("{run_name}.document"), &document);
        let why = format!("is linerate {OURS}, and the load is {text}");
        one.says(&format!("does not take part in run {run_name}: this agent {why}"));
        let answer = later.get("linerate_runs", &format!("{run_name}.ready.one"));
        assert_eq!(answer["refused"], format!("one {why}"), "{answer}");
        let said = run(&["load", "-q", "--nats", &broker.url, "--resume", run_name]);
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(
            said.err.contains(&format!("run {run_name} is of {text}, and this is linerate {OURS}")),
            "{said:?}"
        );
    }
    // The agent is still there for runs that it can read.
    let said = run(&["load", "-q", "--nats", &broker.url, "--agents", "1", "-n", "1", target]);
    assert!(one.said().contains("begins"), "{said:?} {}", one.said());
}
