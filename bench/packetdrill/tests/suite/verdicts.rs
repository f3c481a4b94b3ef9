//! The list of scripts: `name`, Linux's result, ours, and why ours fails.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use crate::play::Outcome;

/// The results of a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) linux: bool,
    pub(crate) ours: bool,
    /// A group of the table in docs/STACK.md.
    pub(crate) why: String,
}

/// All verdicts, by the script's path in the suite.
pub(crate) struct Verdicts(BTreeMap<String, Verdict>);

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("verdicts.tsv")
}

fn word(passed: bool) -> &'static str {
    if passed { "pass" } else { "fail" }
}

impl Verdicts {
    pub(crate) fn read() -> Verdicts {
        let text = fs::read_to_string(path()).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &str| {
            let mut columns = line.split('\t');
            let name = columns.next()?.to_owned();
            let (linux, ours) = (columns.next()? == "pass", columns.next()? == "pass");
            Some((name, Verdict { linux, ours, why: columns.next().unwrap_or("").to_owned() }))
        };
        Verdicts(lines.map(|line| parse(line).unwrap_or_else(|| panic!("verdicts.tsv: {line}"))).collect())
    }

    pub(crate) fn write(&self) {
        let mut text = String::from("# script\tLinux\tours\twhy not\n");
        for (name, Verdict { linux, ours, why }) in &self.0 {
            let tab = if why.is_empty() { "" } else { "\t" };
            writeln!(text, "{name}\t{}\t{}{tab}{why}", word(*linux), word(*ours)).expect("a string");
        }
        fs::write(path(), text).expect("verdicts.tsv can be written");
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Verdict> {
        self.0.get(name)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Verdict)> {
        self.0.iter()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// The number of scripts in each group.
    pub(crate) fn groups(&self) -> BTreeMap<&str, usize> {
        let mut groups = BTreeMap::new();
        for verdict in self.0.values().filter(|verdict| !verdict.why.is_empty()) {
            *groups.entry(verdict.why.as_str()).or_default() += 1;
        }
        groups
    }

    pub(crate) fn note_linux(&mut self, name: &str, outcome: &Outcome) {
        self.0.entry(name.to_owned()).or_default().linux = *outcome == Outcome::Passed;
    }

    /// A script that still fails keeps its reason; packetdrill's message is the reason of a new
    /// failure.
    pub(crate) fn note_ours(&mut self, name: &str, outcome: &Outcome) {
        let verdict = self.0.entry(name.to_owned()).or_default();
        verdict.ours = *outcome == Outcome::Passed;
        match outcome {
            Outcome::Passed => verdict.why.clear(),
            Outcome::Failed(why) if verdict.why.is_empty() => verdict.why.clone_from(why),
            Outcome::Failed(_) => {}
        }
    }
}
