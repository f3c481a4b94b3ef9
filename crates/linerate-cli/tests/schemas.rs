//! Documents that the command writes are valid by the files in docs/schemas/. Python's jsonschema
//! checks them, where it is installed.
#![allow(clippy::unwrap_used)]

mod common;
mod serving;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{answering, nobody, run};
use linerate_skips::python_for;
use serde_json::Value;

/// Reads a schema's file and, on standard input, a document.
const CHECK: &str = "import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
errors = jsonschema.Draft202012Validator(schema).iter_errors(json.load(sys.stdin))
print('\\n'.join(e.json_path + ': ' + e.message[:300] for e in errors), end='')";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A Python with a validator; `part` is skipped without.
fn validator(part: &str) -> Option<PathBuf> {
    python_for(part, &["jsonschema"])
}

/// The violations of the schema that a document names.
fn faults(python: &Path, text: &str) -> String {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let name = document["schema"].as_str().expect("a schema").replace('/', "-");
    let schema = root().join(format!("docs/schemas/{name}.schema.json"));
    let mut python = Command::new(python);
    python.arg("-c").arg(CHECK).arg(schema).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("it starts");
    python.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn documents_are_valid() {
    let Some(python) = validator("") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json").display().to_string();
    let metrics = nobody();
    let server = serving::serve(&["--metrics", &metrics.to_string()]);
    let url = format!("http://{}/", server.address);
    let page = format!("http://{metrics}");
    let bad = format!("http://{}/", answering("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"));
    let unreachable = format!("http://{}/", nobody());
    let log = folder.path().join("log.csv").display().to_string();
    let mine = folder.path().join("mine.toml");
    std::fs::write(
        &mine,
        "name = 'mine'\nabout = 'Two ways.'\nrounds = 3\nduration = '200ms'\nwarm_up = '50ms'\n\
         [[server]]\nname = 'ours'\ncommand = 'linerate serve --listen 127.0.0.1:{port}'\n\
         [[server]]\nname = 'none'\ncommand = 'no-such-server {port}'\ninstall = 'apt install it'\n\
         [[group]]\nname = 'all'\npath = '/'\nload = '-c 2'\n\
         [[group.row]]\nname = 'one'\nserver = 'ours'\n[[group.row]]\nname = 'ten'\nserver = 'ours'\nload = '-p 10'\n\
         [[group.row]]\nname = 'missing'\nserver = 'none'\n",
    )
    .unwrap();
    let mine = mine.display().to_string();
    let capture = root().join("fuzz/corpus/capture/call").display().to_string();
    let commands: [&[&str]; 11] = [
        &["load", "-q", "-n", "200", "--check", "p99<1us", &url],
        &["load", "-q", "-d", "1200ms", "--rate", "200", "--watch", &page, "--log-requests", &log, &url],
        &["load", "-q", "--http2", "-n", "100", "--throughput", &url],
        &["load", "-q", "-n", "20", "--pid", "auto", "--explain", &url],
        &["load", "-q", "-n", "20", &bad],
        &["load", "-q", "-n", "20", &unreachable],
        &["compare", &url, &bad, "--rounds", "3", "-d", "100ms", "--warm-up", "20ms"],
        &["lab", &mine],
        &["explain", "--budget", "2s", &url],
        &["explain", "--pipelining", "-q", &url],
        &["explain", "--pcap", &capture],
    ];
    for command in commands {
        let said = run(&[command, &["--json", &file]].concat());
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{command:?}: {e}: {said:?}"));
        assert_eq!(faults(&python, &text), "", "{command:?}");
        std::fs::remove_file(&file).unwrap();
    }
}

/// Documents of the first version of each schema are valid, and shown again.
#[test]
fn saved_documents_are_shown_again() {
    for name in ["outcome-1-first.json", "outcome-1-later.json", "comparison-1-first.json"] {
        let path = root().join("crates/linerate-report/tests/saved").join(name);
        let said = run(&["report", &path.display().to_string()]);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(!said.out.is_empty());
        if let Some(python) = validator("violations") {
            assert_eq!(faults(&python, &std::fs::read_to_string(&path).unwrap()), "", "{name}");
        }
    }
}

#[test]
fn a_wrong_document_is_found() {
    let Some(python) = validator("") else { return };
    let wrong = "{\"schema\": \"linerate.lab/1\", \"rounds_planned\": -1}";
    let found = faults(&python, wrong);
    assert!(found.contains("rounds_planned") && found.contains("required"), "{found}");
}
