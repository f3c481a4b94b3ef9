//! `--io xdp` on one end of a cable, for the tests that need root.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, answer};
use crate::namespaces::{Cable, Namespace, OUR_V4, OUR_V6, OURS};

pub(crate) const PORT: u16 = 8080;
pub(crate) const A_WHILE: Duration = Duration::from_secs(20);

/// A running `linerate serve`; it ends with the test.
pub(crate) struct Serving(pub(crate) Child, Arc<Mutex<String>>);

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
        // Keeps the pipe open for later output.
        let later = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&later);
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                heard.lock().expect("nobody panics with it").push_str(&(line + "\n"));
            }
        });
        (Serving(child, later), said)
    }

    pub(crate) fn xdp(cable: &Cable, more: &str) -> Serving {
        let flags = format!(
            "--io xdp --interface {OURS} --listen {OUR_V4}:{PORT} --listen [{OUR_V6}]:{PORT} --threads 1{more}"
        );
        Serving::start(&cable.ours, &flags)
    }

    /// Waits until it has said this, after it listened.
    pub(crate) fn says(&self, what: &str) {
        let heard = || self.1.lock().expect("nobody panics with it").clone();
        let until = Instant::now() + A_WHILE;
        while !heard().contains(what) {
            assert!(Instant::now() < until, "it never said {what:?}: {}", heard());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end; its exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let until = Instant::now() + A_WHILE;
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < until, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
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
