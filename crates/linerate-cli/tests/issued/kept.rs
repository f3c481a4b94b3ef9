//! A connection over TLS that is kept while a server changes.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `openssl s_client`, which carries bytes both ways.
pub(crate) struct Kept(Child);

impl Kept {
    pub(crate) fn to(openssl: &Path, address: &str) -> Kept {
        let mut command = Command::new(openssl);
        command.args(["s_client", "-quiet", "-connect", address]);
        Kept(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Asks for `/`, with more fields.
    pub(crate) fn ask(&mut self, more: &str) {
        let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
        self.0.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    }

    /// All that came, once the server has closed.
    pub(crate) fn all(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text
    }
}
