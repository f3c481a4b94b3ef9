//! Names of types. A name that several types have says nothing of its domain: a reader has to open
//! the file to learn which one is meant. xtask/tidy.toml holds ceilings, which may only fall.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::finding::{File, TidyFinding};
use super::imports::{without_tests, words};
use super::lexer::lex;

/// How many types of one crate may have the same name.
const PER_CRATE: usize = 2;
/// How many types of the workspace may have the same name.
const PER_WORKSPACE: usize = 4;

/// How far the names may be from the rule.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NameCeiling {
    /// Types whose name another type has, too.
    shared_types: usize,
    /// Names of more than two types of one crate, or of more than four types of the workspace.
    crowded_names: usize,
}

/// The types of the workspace by name: of each the crate's folder. Tests do not count.
#[derive(Debug)]
pub(crate) struct TypeNames<'a> {
    crates_of: BTreeMap<&'a str, Vec<&'a str>>,
}

/// The code of each file, without comments and tests.
pub(crate) fn codes(files: &[File]) -> Vec<(&str, String)> {
    let product = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        path.ends_with(".rs")
            && name != "tests.rs"
            && !["/tests/", "/examples/", "fuzz/", "python/"].iter().any(|part| path.contains(part))
    };
    files
        .iter()
        .filter(|f| product(&f.path))
        .filter_map(|f| {
            let (root, _) = f.path.split_once("/src/")?;
            Some((root, without_tests(&lex(&f.text).code)))
        })
        .collect()
}

/// Reads [`codes`].
pub(crate) fn all<'a>(codes: &'a [(&'a str, String)]) -> TypeNames<'a> {
    let mut crates_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (root, code) in codes {
        let mut before = "";
        for (_, word) in words(code) {
            let kind = std::mem::replace(&mut before, word);
            if ["struct", "enum", "trait", "union"].contains(&kind)
                && word.starts_with(|c: char| c.is_ascii_uppercase())
            {
                crates_of.entry(word).or_default().push(root);
            }
        }
    }
    TypeNames { crates_of }
}

impl TypeNames<'_> {
    fn types(&self) -> usize {
        self.crates_of.values().map(Vec::len).sum()
    }

    fn shared_types(&self) -> usize {
        self.crates_of.values().map(Vec::len).filter(|n| *n > 1).sum()
    }

    /// Names of too many types, those of the most types first.
    fn crowded(&self) -> Vec<(&str, usize)> {
        let most = |crates: &[&str]| {
            let different: BTreeSet<&str> = crates.iter().copied().collect();
            different.iter().map(|c| crates.iter().filter(|x| *x == c).count()).max().unwrap_or(0)
        };
        let crowded = |crates: &&Vec<&str>| crates.len() > PER_WORKSPACE || most(crates) > PER_CRATE;
        let mut all: Vec<_> = self.crates_of.iter().filter(|(_, c)| crowded(c)).collect();
        all.sort_by_key(|(_, crates)| std::cmp::Reverse(crates.len()));
        all.into_iter().map(|(name, crates)| (*name, crates.len())).collect()
    }
}

/// Every crowded name and the sums, for people.
pub(crate) fn table(names: &TypeNames<'_>) -> String {
    let mut out = String::new();
    for (name, types) in names.crowded() {
        out.push_str(&format!("{types:3} types are named {name}\n"));
    }
    let (shared, types) = (names.shared_types(), names.types());
    let percent = 100.0 * shared as f64 / types.max(1) as f64;
    out.push_str(&format!("{shared} of {types} types ({percent:.0} %) share their name with another type"));
    out
}

/// Holds the names against their ceiling.
pub(crate) fn check(names: &TypeNames<'_>, ceiling: &NameCeiling, found: &mut Vec<TidyFinding>) {
    let crowded = names.crowded();
    let kinds = [
        ("types share their name with another type", names.shared_types(), ceiling.shared_types),
        ("names stand for more than two types of a crate or four of the workspace", crowded.len(), {
            ceiling.crowded_names
        }),
    ];
    for (what, now, may) in kinds {
        if now > may {
            let what = format!(
                "{now} {what}, {may} may: give the new type its domain's word (`cargo xtask tidy --names` lists the names)"
            );
            found.push(TidyFinding::new("xtask/tidy.toml", 0, "type-names", what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(&str, &str)]) -> Vec<File> {
        of.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect()
    }

    #[test]
    fn types_with_one_name_are_counted_without_tests() {
        let files = files(&[
            (
                "crates/a/src/lib.rs",
                "pub struct Seen;\nenum Other {}\n#[cfg(test)]\nmod tests { struct Other; }",
            ),
            ("crates/a/src/b.rs", "trait Seen {}\n// struct Other;\nstruct Seen2;"),
            ("crates/a/src/tests.rs", "struct Other;"),
            ("crates/a/tests/all.rs", "struct Other;"),
            ("bench/c/src/lib.rs", "union Seen { a: u8 }"),
        ]);
        let codes = codes(&files);
        let names = all(&codes);
        assert_eq!((names.types(), names.shared_types()), (5, 3));
        assert_eq!(names.crowded(), []);
    }

    #[test]
    fn three_in_a_crate_or_five_in_all_are_too_many() {
        let three = "struct Seen; mod a { struct Seen; } mod b { struct Seen; }";
        let two = "struct Held; mod a { struct Held; }";
        let files = files(&[
            ("crates/a/src/lib.rs", three),
            ("crates/b/src/lib.rs", two),
            ("crates/c/src/lib.rs", two),
            ("crates/d/src/lib.rs", "struct Held;"),
        ]);
        let codes = codes(&files);
        let names = all(&codes);
        assert_eq!(names.crowded(), [("Held", 5), ("Seen", 3)]);
        let mut found = Vec::new();
        check(&names, &NameCeiling { shared_types: 8, crowded_names: 2 }, &mut found);
        assert!(found.is_empty(), "{found:?}");
        check(&names, &NameCeiling { shared_types: 7, crowded_names: 1 }, &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
