//! Checks of all rules: their names, and which of them ask for judgements of which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::*;
use crate::evidence::Grounds;
use crate::rule::Rule;
use crate::verdict::Verdict;

/// The files of rules, with their code.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/causes");
    let files = fs::read_dir(folder).expect("the rules' folder").map(|entry| {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("UTF-8"))
    });
    files.filter(|(name, _)| !["mod.rs", "tests.rs"].contains(&name.as_str())).collect()
}

/// Each cause, with the causes whose judgements its rule declares that it asks for.
fn asks() -> BTreeMap<&'static str, Vec<&'static str>> {
    let of = |cause: &Cause| match cause.rule {
        Rule::Alone { .. } => Vec::new(),
        Rule::Beside { hidden_by, asks, .. } => [hidden_by, asks].concat(),
    };
    ALL.iter().map(|cause| (cause.id, of(cause))).collect()
}

/// The words in quotes that follow `from` until `to`, wherever that is.
fn quoted<'a>(code: &'a str, from: &str, to: char) -> BTreeSet<&'a str> {
    let parts = code.split(from).skip(1).filter_map(|rest| rest.split_once(to));
    parts.flat_map(|(inside, _)| inside.split('"').skip(1).step_by(2)).collect()
}

#[test]
fn each_has_a_name_of_its_own_and_something_to_change() {
    for (i, cause) in ALL.iter().enumerate() {
        assert!(!cause.fixes.is_empty(), "{}", cause.id);
        assert!(ALL[i + 1..].iter().all(|other| other.id != cause.id), "{}", cause.id);
        assert!(cause.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
    }
}

#[test]
fn no_rule_uses_the_file_of_another() {
    for (name, text) in files() {
        // A file's own tests use the file.
        let text = text.replace("use super::*;", "");
        assert!(!text.contains("crate::causes"), "{name} uses the table of causes");
        let own = text.split("#[cfg(test)]").next().expect("code");
        assert!(!own.contains("super::"), "{name} uses a file beside it");
        assert!(!text.contains("super::super"), "{name}: its tests use a file beside it");
    }
}

#[test]
fn a_rule_declares_just_the_judgements_that_it_asks_for() {
    let mut rules = 0;
    for (name, text) in files() {
        let [hiding, declared] = ["hidden_by: &[", "asks: &["].map(|list| quoted(&text, list, ']'));
        let asked = quoted(&text, "judged.", ')');
        assert!(asked.is_superset(&declared), "{name} asks for {asked:?}, and declares {declared:?}");
        let others: Vec<_> = asked.difference(&declared).filter(|id| !hiding.contains(*id)).collect();
        assert!(others.is_empty(), "{name} does not declare {others:?}");
        assert_eq!(hiding.is_empty(), !text.contains("judged.hides_it()"), "{name}: {hiding:?}");
        rules += usize::from(!hiding.is_empty() || !declared.is_empty());
    }
    assert!(rules > 5, "the words in quotes were not found");
}

#[test]
fn judgements_that_are_asked_for_exist() {
    for (id, asks) in asks() {
        for asked in asks {
            assert!(find(asked).is_some(), "{id} asks for {asked}, which is no cause");
        }
    }
}

#[test]
fn no_judgement_depends_on_itself() {
    let mut left = asks();
    while let Some(id) =
        left.iter().find(|(_, asks)| !asks.iter().any(|a| left.contains_key(a))).map(|l| *l.0)
    {
        left.remove(id);
    }
    assert!(left.is_empty(), "these ask for one another: {left:?}");
}

#[test]
fn packets_show_a_lost_syn_to_be_a_collision() {
    let cause = find("syn-loss").expect("a cause");
    let seen = Grounds::Seen { words: "lost".to_owned(), alone: false };
    let mut verdicts = [Verdict::new(cause, 7.0, seen)];
    seen_in_packets(&mut verdicts, 0);
    assert_eq!(verdicts[0].id(), "syn-loss");
    seen_in_packets(&mut verdicts, 2);
    assert_eq!((verdicts[0].id(), verdicts[0].cost_ms()), ("time-wait-collision", 7.0));
}
