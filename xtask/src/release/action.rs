//! The scripts of action.yml, with a release in a folder and a command that prints its arguments.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use xtask::shell;

/// A release with one archive for this machine, and what a runner gives to a step.
struct ActionRunner {
    folder: TempDir,
}

impl ActionRunner {
    fn new() -> ActionRunner {
        let runner = ActionRunner { folder: tempfile::tempdir().expect("a folder") };
        let script = r#"set -euo pipefail
            name=linerate-9.9.9-$(uname -m)-unknown-linux-musl
            mkdir -p made/$name releases/latest/download releases/download temp
            printf '#!/bin/sh\nfor word; do echo "<$word>"; done\nexit ${EXIT:-0}\n' >made/$name/linerate
            chmod +x made/$name/linerate
            tar -C made -czf releases/latest/download/$name.tar.gz $name
            cd releases/latest/download
            sha256sum -- * >SHA256SUMS
            ln -s "$PWD" ../../download/v9.9.9"#;
        let mut bash = shell::program("bash");
        shell::run(bash.current_dir(runner.path()).args(["-c", script])).expect("a release");
        runner
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn script(&self, name: &str) -> Command {
        let mut c = Command::new("bash");
        c.arg(shell::root().join("packaging/action").join(name)).current_dir(self.path());
        c.env("RUNNER_TEMP", self.path().join("temp")).env("GITHUB_PATH", self.path().join("paths"));
        c.env("LINERATE_RELEASES", format!("file://{}/releases", self.path().display()));
        c
    }

    fn install(&self, version: &str) -> Output {
        self.script("install.sh").env("LINERATE_VERSION", version).output().expect("bash")
    }

    fn gate(&self, arguments: &str, exit: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}/temp/linerate:{path}", self.path().display());
        let mut c = self.script("gate.sh");
        c.env("PATH", path).env("LINERATE_LOAD", arguments).env("EXIT", exit).output().expect("bash")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn the_action_installs_and_gates() {
    if linerate_skips::program("curl").is_none() {
        return;
    }
    let runner = ActionRunner::new();
    for version in ["latest", "9.9.9", "v9.9.9"] {
        let done = runner.install(version);
        assert_eq!((done.status.code(), said(&done).trim()), (Some(0), "<--version>"), "{version}");
    }
    let paths = fs::read_to_string(runner.path().join("paths")).expect("a path");
    assert!(paths.lines().all(|path| Path::new(path).join("linerate").exists()), "{paths}");
    let done = runner.gate("--check 'p99 < 50ms'\n  -H \"a: $(b)\" http://127.0.0.1:8080/\n", "0");
    let words = said(&done);
    let ours = "<--check>\n<p99 < 50ms>\n<-H>\n<a: $(b)>\n<http://127.0.0.1:8080/>\n";
    assert!(words.starts_with("<load>\n<--annotations>\n<github>\n") && words.ends_with(ours), "{words}");
    assert_eq!(runner.gate("--rate 5", "1").status.code(), Some(1), "a check that fails");
    let done = runner.gate("--check 'p99", "0");
    assert!(done.status.code() == Some(2) && said(&done).contains("a quote is open"), "{}", said(&done));
}

#[test]
fn the_action_refuses_what_is_no_release() {
    if linerate_skips::program("curl").is_none() {
        return;
    }
    let runner = ActionRunner::new();
    let done = runner.install("../../other");
    assert!(done.status.code() == Some(2) && said(&done).contains("is no version"), "{}", said(&done));
    assert!(!runner.install("9.9.8").status.success(), "a release that is not there");
    let sums = runner.path().join("releases/latest/download/SHA256SUMS");
    let text = fs::read_to_string(&sums).expect("sums");
    let other = if text.starts_with('0') { "1" } else { "0" };
    fs::write(&sums, format!("{other}{}", &text[1..])).expect("written");
    assert!(!runner.install("latest").status.success(), "another archive than the release's");
    fs::write(&sums, text.replace(std::env::consts::ARCH, "riscv64gc")).expect("written");
    let done = runner.install("latest");
    assert!(said(&done).contains("the release has no binary for Linux"), "{}", said(&done));
    assert!(!runner.path().join("paths").exists(), "nothing came into PATH");
}
