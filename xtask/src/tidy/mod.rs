//! `tidy`: rules of this repository that no compiler holds. It is a test, too.

mod cycles;
mod edges;
mod examples;
mod finding;
mod imports;
mod lexer;
mod locks;
mod names;
mod once;
mod rust;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use finding::{File, TidyFinding};
use xtask::shell;

/// An exception in xtask/tidy.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TidyException {
    rule: String,
    /// A file, or a folder ending in `/`.
    path: String,
    /// A function's name, where only that is meant.
    item: Option<String>,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TidyExceptions {
    #[serde(default)]
    allow: Vec<TidyException>,
    #[serde(default)]
    cycles: Vec<cycles::Ceiling>,
    #[serde(default)]
    names: names::NameCeiling,
}

/// Options of `cargo xtask tidy`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TidyOptions {
    /// Also print each crate's cycles of imports, between files and between folders.
    #[arg(long)]
    cycles: bool,
    /// Also print the names that too many types have.
    #[arg(long)]
    names: bool,
}

impl TidyException {
    fn covers(&self, f: &TidyFinding) -> bool {
        let path =
            if self.path.ends_with('/') { f.path.starts_with(&self.path) } else { f.path == self.path };
        let item = |i: &String| f.what.contains(&format!("`{i}`"));
        self.rule == f.rule && path && self.item.as_ref().is_none_or(item)
    }
}

/// Prints what breaks a rule; `false` when anything does.
pub(crate) fn run(options: &TidyOptions) -> Result<bool> {
    if options.cycles {
        println!("{}", cycles::table(&cycles::all(&files(shell::root())?)));
    }
    if options.names {
        println!("{}", names::table(&names::all(&names::codes(&files(shell::root())?))));
    }
    let findings = findings(shell::root())?;
    for f in &findings {
        println!("{}:{}: {} [{}]", f.path, f.line, f.what, f.rule);
    }
    match findings.len() {
        0 => println!("tidy: nothing to say"),
        n => println!("tidy: {n} found; exceptions with their reasons live in xtask/tidy.toml"),
    }
    Ok(findings.is_empty())
}

fn findings(root: &Path) -> Result<Vec<TidyFinding>> {
    let files = files(root)?;
    let list = std::fs::read_to_string(root.join("xtask/tidy.toml")).context("xtask/tidy.toml")?;
    let list: TidyExceptions = toml::from_str(&list).context("xtask/tidy.toml")?;
    let mut found = Vec::new();
    for f in &files {
        text::check(f, root, &mut found);
        if f.path.ends_with(".rs") {
            rust::check(f, &mut found);
        }
    }
    text::required(&files, &mut found);
    examples::check(&files, &mut found);
    let metadata = edges::metadata()?;
    edges::check(&files, &metadata, &mut found);
    locks::check(root, &metadata, &mut found)?;
    cycles::check(&cycles::all(&files), &list.cycles, &mut found);
    names::check(&names::all(&names::codes(&files)), &list.names, &mut found);
    once::check(&files, &mut found);
    let mut left: Vec<TidyFinding> =
        found.iter().filter(|f| !list.allow.iter().any(|a| a.covers(f))).cloned().collect();
    left.extend(unneeded(&list, &found));
    left.sort();
    Ok(left)
}

/// Exceptions without a finding or without a reason.
fn unneeded(list: &TidyExceptions, found: &[TidyFinding]) -> Vec<TidyFinding> {
    let of = |a: &TidyException, what: &str| {
        let item = a.item.as_deref().unwrap_or("");
        TidyFinding::new("xtask/tidy.toml", 0, "allow-list", format!("{} {} {item}: {what}", a.rule, a.path))
    };
    let unused = list
        .allow
        .iter()
        .filter(|a| !found.iter().any(|f| a.covers(f)))
        .map(|a| of(a, "not needed any more"));
    let silent = list.allow.iter().filter(|a| a.reason.trim().len() < 10).map(|a| of(a, "says no reason"));
    unused.chain(silent).collect()
}

/// Every text file of the repository that is written by hand.
fn files(root: &Path) -> Result<Vec<File>> {
    let mut all = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if !skipped_folder(&name, &path) {
                    folders.push(path);
                }
            // In a linked checkout .git is a file. A symbolic link's text is checked in its own place.
            } else if name != "Cargo.lock"
                && !entry.file_type()?.is_symlink()
                && name != ".git"
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                all.push(File { path: path.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// Build output, fuzz inputs and recordings are not written by hand.
fn skipped_folder(name: &str, path: &Path) -> bool {
    let data = ["fuzz/corpus", "fuzz/artifacts", "fuzz/coverage"].iter().any(|d| path == Path::new(d));
    data || name == ".git" || name == "target" || name.starts_with("target-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy() {
        let found = findings(shell::root()).expect("readable");
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn an_exception_covers_its_rule_path_and_item_alone() {
        let a = TidyException {
            rule: "r".into(),
            path: "a/".into(),
            item: Some("f".into()),
            reason: "because".into(),
        };
        assert!(a.covers(&TidyFinding::new("a/b.rs", 1, "r", "`f` is long")));
        assert!(!a.covers(&TidyFinding::new("a/b.rs", 1, "r", "`g` is long")));
        assert!(!a.covers(&TidyFinding::new("b/b.rs", 1, "r", "`f` is long")));
        assert!(!a.covers(&TidyFinding::new("a/b.rs", 1, "s", "`f` is long")));
    }

    #[test]
    fn exceptions_must_be_needed_and_reasoned() {
        let a = TidyException { rule: "r".into(), path: "a.rs".into(), item: None, reason: "".into() };
        let list =
            TidyExceptions { allow: vec![a], cycles: Vec::new(), names: names::NameCeiling::default() };
        assert_eq!(unneeded(&list, &[]).len(), 2);
    }
}
