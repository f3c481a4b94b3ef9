//! The book's command lines (blocks of `sh`) do what their pages say: each runs as it stands, a
//! page's in one folder and in order. The server that they name is one of ours, on a port of its
//! own. With `LINERATE_BOOK=all` the slow ones run as well.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// The address that the pages use.
const WRITTEN: &str = "127.0.0.1:8080";

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book")
}

/// Command lines of a page's `sh` blocks.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            found.push(line.to_owned());
        }
    }
    found
}

/// A run of ten seconds and more is slow; so is one without an end of its own.
fn slow(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    let ends = |w: &[&str]| matches!(w[0], "-d" | "-n");
    let long = |w: &[&str]| w[0] == "-d" && !["1s", "2s"].contains(&w[1]);
    let ramp = |w: &[&str]| w[0] == "--rate" && w[1].contains('@');
    let load = words.get(1) == Some(&"load");
    load && (words.windows(2).any(long) || !words.windows(2).any(|w| ends(w) || ramp(w)))
}

/// A server that the page's commands use.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let ready = said.find_map(|l| Some(l.split_once("listening on http://")?.1.to_owned()));
        // What else it says must not fill the pipe.
        std::thread::spawn(move || said.for_each(drop));
        let address = ready.expect("it listens");
        Server { child, address: address.split_whitespace().next().unwrap_or_default().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a line by a shell; the exit code and what it wrote.
fn run(line: &str, folder: &Path) -> (Option<i32>, String) {
    let ours = Path::new(env!("CARGO_BIN_EXE_linerate")).parent().expect("a folder");
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    let output = shell.output().expect("a shell");
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&both).into_owned())
}

fn page_runs(name: &str) {
    let page = std::fs::read_to_string(book().join(name)).expect("a page");
    let all = std::env::var("LINERATE_BOOK").is_ok_and(|v| v == "all");
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start();
    for command in commands(&page) {
        // The server of the page is the one that runs already.
        if command.ends_with(" &") || (!all && slow(&command)) {
            continue;
        }
        let (code, said) = run(&command.replace(WRITTEN, &server.address), folder.path());
        // `explain` of a slow call finds a cause; checks of a loaded machine may fail.
        let may_find = command.contains(" explain ") || command.contains("--check");
        assert!(code == Some(0) || (may_find && code == Some(1)), "{name}: {command}: {code:?}\n{said}");
    }
}

#[test]
fn start() {
    page_runs("start.md");
}

#[test]
fn load_testing() {
    page_runs("load-testing.md");
}

#[test]
fn how_long() {
    page_runs("how-long.md");
}

#[test]
fn doubts() {
    page_runs("doubts.md");
}

#[test]
fn ci() {
    page_runs("ci.md");
}

#[test]
fn why() {
    page_runs("why.md");
}

#[test]
fn json() {
    page_runs("json.md");
}

#[test]
fn every_page_with_commands_has_a_test() {
    let source = include_str!("book.rs");
    let mut count = 0;
    for entry in std::fs::read_dir(book()).expect("book/") {
        let path = entry.expect("listed").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // Recipes and chapters are folders, with tests of their own.
        if !name.ends_with(".md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        if !commands(&text).is_empty() {
            count += commands(&text).len();
            assert!(source.contains(&format!("page_runs(\"{name}\")")), "{name}");
        }
    }
    assert!(count > 15, "only {count} commands");
}

#[test]
fn slow_commands_are_told_apart() {
    assert!(slow("linerate load http://a/") && slow("linerate load -d 30s http://a/"));
    assert!(!slow("linerate load -d 1s http://a/") && !slow("linerate explain http://a/"));
    assert!(!slow("linerate load --rate 0..1k@1s,1k@1s http://a/") && !slow("linerate load -n 10 http://a/"));
}

/// The first names between backticks of the table under a heading.
fn fields(page: &str, heading: &str) -> Vec<String> {
    let section = page.split_once(heading).expect("the section").1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|l| l.starts_with("| `"));
    let cells = rows.map(|l| l.split('|').nth(1).unwrap_or_default());
    cells.flat_map(|c| c.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The page names exactly the fields that a document has.
#[test]
fn the_page_about_json_names_every_field() {
    let server = Server::start();
    let page = std::fs::read_to_string(book().join("json.md")).expect("a page");
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("http://{}/", server.address);
    let cases = [
        ("## linerate.outcome/1", format!("linerate load -n 10 --quiet --json - {url} 2>said")),
        ("## linerate.diagnosis/1", format!("linerate explain --json - {url} 2>said")),
        ("## linerate.pipelining/1", format!("linerate explain --pipelining --json - {url} 2>said")),
    ];
    for (heading, command) in cases {
        let (_, out) = run(&command, folder.path());
        let document: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        let named = fields(&page, heading);
        for name in document.as_object().expect("an object").keys() {
            assert!(named.contains(name), "{heading}: {name} is not on the page");
        }
    }
}
