//! Every command line that the documentation shows is one that this program takes.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::Cli;

/// Words that stand for something, and one such thing.
const STAND_FOR: [(&str, &str); 9] = [
    ("N", "1"),
    ("PID", "1"),
    ("ADDR", "10.0.0.9"),
    ("ADDR:8080", "10.0.0.9:8080"),
    ("ADDR:PORT", "10.0.0.9:8080"),
    ("NAME[=VALUE]", "think=1"),
    ("bash|zsh|fish", "bash"),
    ("TIME", "1s"),
    ("UA...", "UAAACAQDAQCQMBYIBEFAWDANBYHRAEISCMKBKFQXDAMRUGY4DUPB63NN"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and its like, and all of docs/ and book/.
fn pages() -> Vec<(String, String)> {
    let folders = ["docs", "book"].map(|name| std::fs::read_dir(root().join(name)).expect(name));
    let listed = folders.into_iter().flatten().map(|e| e.expect("listed").path());
    let all = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let all = all.into_iter().chain(listed).filter(|p| p.extension().is_some_and(|e| e == "md"));
    all.map(|p| (p.display().to_string(), std::fs::read_to_string(&p).expect("read"))).collect()
}

/// Commands in a text: whole lines of code, and what stands between backticks.
fn commands(text: &str) -> Vec<String> {
    let ours = |s: &str| s.starts_with("linerate ").then(|| s.to_owned());
    let mut found = Vec::new();
    let mut fenced = false;
    let mut shell = true;
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fenced = !fenced;
            shell = !fenced || ["", "sh", "text"].contains(&language);
        } else if !shell {
            // The code of another language.
        } else if fenced || line.starts_with("    ") {
            found.extend(ours(line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo ")));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).filter_map(ours));
        }
    }
    found
}

/// Why the command is not taken, if so.
fn refused(command: &str) -> Option<String> {
    // Drops a note behind the command, a pipe to another program, and a trailing `&`.
    let mut plain = command.split("  #").next().unwrap_or_default().split(" | ").next().unwrap_or_default();
    plain = plain.split(" > ").next().unwrap_or_default().trim_end_matches([' ', '&', '\\']);
    let words = match shell_words::split(plain) {
        Ok(words) => words,
        Err(e) => return Some(e.to_string()),
    };
    let stands_for =
        |w: String| STAND_FOR.iter().find(|(word, _)| *word == w).map_or(w, |(_, one)| (*one).to_owned());
    match Cli::try_parse_from(words.into_iter().map(stands_for)) {
        Ok(_) => None,
        Err(e) if !e.use_stderr() => None,
        // In a sentence a flag may stand for all that is said by it.
        Err(e) if e.kind() == ErrorKind::InvalidValue && names_a_flag(plain) => None,
        Err(e) => Some(e.to_string()),
    }
}

fn names_a_flag(command: &str) -> bool {
    command.split_whitespace().next_back().is_some_and(|last| last.starts_with("--"))
}

#[test]
fn commands_in_the_documentation_are_taken() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for command in commands(&text) {
            count += 1;
            wrong.extend(refused(&command).map(|why| format!("{page}: {command}\n  {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} were found");
}

#[test]
fn examples_in_the_help_are_taken() {
    let mut count = 0;
    for command in Cli::command().get_subcommands() {
        let Some(text) = command.get_after_long_help() else { continue };
        for line in text.to_string().lines().filter_map(|l| l.strip_prefix("  linerate ")) {
            count += 1;
            // The purpose follows after two spaces; a long example continues on the next line.
            let example = line.split("  ").next().unwrap_or_default();
            assert_eq!(refused(&format!("linerate {example}")), None, "{example}");
        }
    }
    assert!(count > 15, "only {count} were found");
}

#[test]
fn commands_are_found_and_told_apart() {
    let text = "Write `linerate demo`.\n\n    linerate load URL  # a note\n    $ sudo linerate serve\n```\nlinerate man | man -l -\n```\n\
                ```toml\nlinerate = 1\n```\n";
    assert_eq!(
        commands(text),
        ["linerate demo", "linerate load URL  # a note", "linerate serve", "linerate man | man -l -"]
    );
    assert!(refused("linerate load --no-such-flag URL").is_some());
    assert_eq!(refused("linerate load URL -c 5 | tail &"), None);
}
