//! `--io xdp` on one end of a cable, for the tests that need root.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{self, answer};
use crate::namespaces::{Cable, Namespace, OUR_V4, OUR_V6, OURS};

pub(crate) const PORT: u16 = 8080;
pub(crate) const A_WHILE: Duration = Duration::from_secs(20);

/// A running `linerate serve`; it ends with the test.
pub(crate) struct Serving(pub(crate) Child);

impl Serving {
    pub(crate) fn start(within: &Namespace, flags: &str) -> Serving {
        Serving::start_and_hear(within, flags).0
    }

    /// With what it said until it listened.
    pub(crate) fn start_and_hear(within: &Namespace, flags: &str) -> (Serving, String) {
        let mut child = within.run(|| {
            Command::new(env!("CARGO_BIN_EXE_linerate"))
                .arg("serve")
                .args(flags.split(' '))
                .stderr(Stdio::piped())
                .spawn()
                .expect("it starts")
        });
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        while !said.contains("listening on") {
            let before = said.len();
            lines.read_line(&mut said).expect("words");
            assert!(said.len() > before, "it ended: {said}");
        }
        // What it says later must not find the pipe closed.
        thread::spawn(move || lines.read_to_string(&mut String::new()));
        (Serving(child), said)
    }

    pub(crate) fn xdp(cable: &Cable, more: &str) -> Serving {
        let flags = format!(
            "--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --listen [{OUR_V6}]:{PORT} --threads 1{more}"
        );
        Serving::start(&cable.ours, &flags)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn connected(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, A_WHILE).expect("connected");
    stream.set_read_timeout(Some(A_WHILE)).expect("set");
    stream.set_write_timeout(Some(A_WHILE)).expect("set");
    stream
}

pub(crate) fn get(at: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut stream = connected(at);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    answer(&mut BufReader::new(stream))
}

/// Runs `load`; its document and what it said.
pub(crate) fn load(within: &Namespace, flags: &str) -> (serde_json::Value, common::Said) {
    let words: Vec<&str> = flags.split(' ').collect();
    within.run(|| common::measured(&words))
}
