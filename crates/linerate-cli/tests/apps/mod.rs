//! Small applications for the tests of flows, and their plan files.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common;

/// An application; gone when dropped.
pub(crate) struct App {
    child: Child,
    pub(crate) url: String,
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl App {
    /// The same by another URL.
    pub(crate) fn at(mut self, url: String) -> App {
        self.url = url;
        self
    }
}

/// `None`: there is no such program here, which was reported.
pub(crate) fn app(program: &str, file: &str, arguments: &[&str]) -> Option<App> {
    let path = linerate_skips::program(program)?;
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/flows").join(file);
    let mut child = Command::new(path).arg(source).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Some(App { child, url: format!("http://127.0.0.1:{}/", line.trim()) })
}

/// A plan file; its folder is removed when dropped.
pub(crate) fn plan(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// A server that answers requests, each by its head and its body.
pub(crate) fn answers(answer: impl Fn(&str, &str) -> String + Clone + Send + 'static) -> SocketAddr {
    common::server(move |stream| {
        let mut from = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if from.read_line(&mut head).is_ok_and(|n| n == 0) {
                    return;
                }
            }
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
            from.read_exact(&mut body).unwrap();
            let response = answer(&head, &String::from_utf8(body).unwrap());
            (&stream).write_all(response.as_bytes()).unwrap();
        }
    })
}

pub(crate) fn moved(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}
