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
