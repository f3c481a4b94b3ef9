//! What a runner reads, and what a person sees without one.

use std::process::{Command, Output};

use linerate_skips::{FILE, program, program_for, python_for, skip, skip_part, suite};

/// Runs as a test of its own only if asked to: what the others start again, as a runner does.
const ASKED: &str = "LINERATE_SKIPS_ASKED";

#[test]
fn lacks_everything() {
    if std::env::var_os(ASKED).is_none() {
        return;
    }
    assert_eq!(program("no-such-program"), None);
    assert_eq!(program_for("by hand", "no-such-program"), None);
    assert_eq!(suite("no/such/file"), None);
    assert_eq!(python_for("Python", &["no_such_module"]), None);
    skip("namespaces", "two\nlines and a\ttab");
    std::thread::spawn(|| skip_part("over uring", "io_uring", "no name")).join().expect("reported");
    assert!(program("sh").is_some());
}

fn again(file: Option<&std::path::Path>) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "lacks_everything"]).env(ASKED, "1").env_remove(FILE);
    if let Some(file) = file {
        command.env(FILE, file);
    }
    let out = command.output().expect("it runs");
    assert!(out.status.success(), "{out:?}");
    out
}

#[test]
fn a_runner_reads_each_skip_from_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("skips");
    let out = again(Some(&file));
    assert!(out.stderr.is_empty(), "{out:?}");
    let text = std::fs::read_to_string(&file).expect("the file");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "lacks_everything\t\tno-such-program\tno-such-program is not installed",
            "lacks_everything\tby hand\tno-such-program\tno-such-program is not installed",
            "lacks_everything\t\t../shared/suites\tthere is no ../shared/suites/no/such/file",
            "lacks_everything\tPython\tmodules of Python\tPython has no no_such_module",
            "lacks_everything\t\tnamespaces\ttwo lines and a tab",
        ]
    );
    // A thread without a name is known by its place in the source.
    assert!(lines[5].starts_with("bench/skips/tests/reported.rs:"), "{text}");
    assert!(lines[5].ends_with("\tover uring\tio_uring\tno name"), "{text}");
    assert_eq!(lines.len(), 6, "{text}");
}

#[test]
fn without_a_runner_a_line_bypasses_the_capture() {
    let out = again(None);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("skipped: lacks_everything: no-such-program is not installed\n"), "{said}");
    assert!(said.contains("skipped: lacks_everything (by hand): no-such"), "{said}");
}
