//! The command's own descriptions: help, version, completions.

#[macro_use]
mod common;

use common::run;

fn printed(args: &[&str]) -> String {
    let said = run(args);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
    said.out
}

#[test]
fn alone_it_orients() {
    snapshot!(printed(&[]));
}

#[test]
fn the_help_of_all() {
    snapshot!(printed(&["--help"]));
}

#[test]
fn the_help_of_load() {
    snapshot!(printed(&["load", "--help"]));
}

#[test]
fn the_short_help_fits_a_screen_and_a_half() {
    for command in ["load", "serve", "explain"] {
        let text = printed(&[command, "-h"]);
        assert!(text.lines().count() <= 36 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn a_url_without_a_command_names_the_one_that_was_meant() {
    let said = run(&["http://127.0.0.1:1/"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 3, "{said:?}");
    assert!(lines[1].starts_with("hint: linerate load http://127.0.0.1:1/ "), "{said:?}");
}

#[test]
fn the_help_of_serve() {
    snapshot!(printed(&["serve", "--help"]));
}

#[test]
fn the_help_of_demo() {
    snapshot!(printed(&["demo", "--help"]));
}

#[test]
fn the_version() {
    assert_eq!(printed(&["--version"]), format!("linerate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_manual_come_from_the_same_definition() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("per-connection") && script.contains("linerate"), "{shell}");
    }
    assert!(printed(&["man"]).contains(".TH linerate 1"));
    let page = printed(&["man", "load"]);
    assert!(page.contains(".TH linerate-load 1") && page.contains("per\\-connection"), "{page}");
}

#[test]
fn manual_pages_are_written_as_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let into = dir.path().join("man1");
    let into = into.to_str().expect("text");
    printed(&["man", "--dir", into]);
    let mut names: Vec<String> = std::fs::read_dir(into)
        .expect("made")
        .map(|e| e.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in ["linerate.1", "linerate-load.1", "linerate-serve.1", "linerate-explain.1"] {
        let page = std::fs::read_to_string(dir.path().join("man1").join(name)).expect("a page");
        assert!(page.contains(&format!(".TH {} 1", name.trim_end_matches(".1"))), "{name}: {page}");
    }
    assert!(names.iter().all(|n| n.ends_with(".1")), "{names:?}");
    let said = run(&["man", "--dir", "/dev/null/x"]);
    assert_eq!(said.code, Some(4), "{said:?}");
}

#[test]
fn help_shows_topics_pages_commands_and_causes() {
    snapshot!(printed(&["help"]));
    assert!(printed(&["help", "how-long"]).contains("connections"));
    assert_eq!(printed(&["help", "load"]), printed(&["load", "--help"]));
    let cause = printed(&["help", "server-nagle-delayed-ack"]);
    assert_eq!(cause, printed(&["explain", "--why", "server-nagle-delayed-ack"]));
    assert!(printed(&["help", "grpc"]).contains("expect_trailer"));
    let found = printed(&["help", "bearer", "token"]);
    assert!(found.starts_with("Pages with") && found.contains("linerate help json-post"), "{found}");
    let found = printed(&["help", "warm-up"]);
    assert!(found.contains("Flags with") && found.contains("linerate load --warm-up"), "{found}");
    let said = run(&["help", "no-such-topic"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(said.err.contains("hint: topics are start"), "{}", said.err);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["load", "--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_help_of_explain() {
    snapshot!(printed(&["explain", "--help"]));
}

#[test]
fn the_help_of_compare() {
    snapshot!(printed(&["compare", "--help"]));
}

#[test]
fn the_help_of_report() {
    snapshot!(printed(&["report", "--help"]));
}
