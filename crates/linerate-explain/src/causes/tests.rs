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
        Rule::Alone { .. } | Rule::PacketsAlone => Vec::new(),
        Rule::Beside { hidden_by, asks, .. } => hidden_by.iter().chain(asks).map(|c| c.id).collect(),
    };
    ALL.iter().map(|cause| (cause.id, of(cause))).collect()
}

/// The causes that are named after `from` until `to`, wherever that is.
fn named<'a>(code: &'a str, from: &str, to: char) -> BTreeSet<&'a str> {
    let parts = code.split(from).skip(1).filter_map(|rest| rest.split_once(to));
    let names = parts.flat_map(|(inside, _)| inside.split('&').skip(1));
    let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    names.map(|name| name.split(end).next().unwrap_or_default()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn each_has_a_name_of_its_own_and_something_to_change() {
    let all: Vec<&Cause> = ALL.iter().chain(&PACKETS_ALONE).copied().collect();
    for (i, cause) in all.iter().enumerate() {
        assert!(!cause.fixes.is_empty(), "{}", cause.id);
        assert!(all[i + 1..].iter().all(|other| other.id != cause.id), "{}", cause.id);
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
        // It names causes of other files, and takes nothing else from there.
        let (_, import) = own.split_once("use super::").unwrap_or_default();
        let (import, rest) = import.split_once(';').unwrap_or_default();
        assert!(!rest.contains("super::"), "{name} uses a file beside it");
        for module in import.split(['{', '}', ',']).map(str::trim).filter(|m| !m.is_empty()) {
            let parts: Vec<&str> = own.split(&format!("{module}::")).skip(1).collect();
            let causes = parts.iter().all(|p| p.starts_with(|c: char| c.is_ascii_uppercase()));
            assert!(causes, "{name} uses more of {module} than a cause");
        }
        assert!(!text.contains("super::super"), "{name}: its tests use a file beside it");
    }
}

#[test]
fn a_rule_declares_just_the_judgements_that_it_asks_for() {
    let mut rules = 0;
    for (name, text) in files() {
        let [hiding, declared] = ["hidden_by: &[", "asks: &["].map(|list| named(&text, list, ']'));
        let asked = named(&text, "judged.", ')');
        assert!(asked.is_superset(&declared), "{name} asks for {asked:?}, and declares {declared:?}");
        let others: Vec<_> = asked.difference(&declared).filter(|id| !hiding.contains(*id)).collect();
        assert!(others.is_empty(), "{name} does not declare {others:?}");
        assert_eq!(hiding.is_empty(), !text.contains("judged.hides_it()"), "{name}: {hiding:?}");
        rules += usize::from(!hiding.is_empty() || !declared.is_empty());
    }
    assert!(rules > 5, "the names were not found");
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
