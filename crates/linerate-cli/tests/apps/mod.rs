//! Small applications for the tests of flows, and their plan files.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

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
