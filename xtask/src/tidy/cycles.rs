//! Cycles of imports between the files of a crate. Two files may know each other; a ring of more
//! is a knot. xtask/tidy.toml holds a ceiling for each crate that has knots, which may only fall.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::finding::{File, TidyFinding};
use super::imports::{Graph, graph};

/// How many files of a crate may be in cycles of more than two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ceiling {
    /// The crate's folder, such as `crates/linerate-net`.
    path: String,
    /// Files in cycles of more than two files.
    files: usize,
    /// Folders below `src/` in cycles of folders; a folder counts with all that is in it.
    folders: usize,
    reason: String,
}

/// The cycles of one crate.
#[derive(Debug)]
pub(crate) struct Cycles {
    pub(crate) path: String,
    /// Files of each cycle of more than two, the largest first.
    pub(crate) files: Vec<Vec<String>>,
    /// Folders of each cycle, the largest first.
    pub(crate) folders: Vec<Vec<String>>,
}

/// The cycles of each crate.
pub(crate) fn all(files: &[File]) -> Vec<Cycles> {
    let roots: BTreeSet<&str> = files
        .iter()
        .filter_map(|f| f.path.strip_suffix("/src/lib.rs").or_else(|| f.path.strip_suffix("/src/main.rs")))
        .filter(|p| !p.starts_with("fuzz"))
        .collect();
    roots.into_iter().map(|root| of_crate(root, &graph(files, &format!("{root}/src/")))).collect()
}

fn of_crate(root: &str, g: &Graph) -> Cycles {
    let mut files = components(&g.edges, &g.files);
    files.retain(|c| c.len() > 2);
    // A file that has a folder of its name belongs to it, and files at the top to none.
    let named: BTreeSet<&str> = g.files.iter().filter_map(|f| Some(f.split_once('/')?.0)).collect();
    let folder = |f: &str| {
        let name = f.split_once('/').map_or_else(|| f.trim_end_matches(".rs"), |(folder, _)| folder);
        named.get(name).map(|n| (*n).to_owned())
    };
    let names: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
    let mut edges = vec![BTreeSet::new(); names.len()];
    for (from, to) in g.edges.iter().enumerate().flat_map(|(from, to)| to.iter().map(move |t| (from, *t))) {
        let index = |i: usize| folder(&g.files[i]).and_then(|n| names.iter().position(|m| *m == n));
        if let (Some(from), Some(to)) = (index(from), index(to)) {
            edges[from].insert(to);
        }
    }
    let mut folders = components(&edges, &names);
    folders.retain(|c| c.len() > 1);
    Cycles { path: root.to_owned(), files, folders }
}

/// Strongly connected components, the largest first.
fn components(edges: &[BTreeSet<usize>], names: &[String]) -> Vec<Vec<String>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reachable(edges, from)).collect();
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for from in 0..edges.len() {
        if !seen.contains(&from) {
            let ring = reached[from].iter().copied().filter(|to| reached[*to].contains(&from));
            let ring: BTreeSet<usize> = ring.chain([from]).collect();
            all.push(ring.iter().map(|i| names[*i].clone()).collect());
            seen.extend(ring);
        }
    }
    all.sort_by_key(|c: &Vec<String>| std::cmp::Reverse(c.len()));
    all
}

fn reachable(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        next.extend(edges[at].iter().filter(|to| found.insert(**to)));
    }
    found
}

fn members(cycles: &[Vec<String>]) -> usize {
    cycles.iter().map(Vec::len).sum()
}

fn shown(cycles: &[Vec<String>]) -> String {
    cycles.iter().map(|c| c.join(" ")).collect::<Vec<_>>().join("; ")
}

/// Holds each crate against its ceiling: none is zero.
pub(crate) fn check(all: &[Cycles], ceilings: &[Ceiling], found: &mut Vec<TidyFinding>) {
    const LIST: &str = "xtask/tidy.toml";
    let by_path: BTreeMap<&str, &Ceiling> = ceilings.iter().map(|c| (c.path.as_str(), c)).collect();
    for c in all {
        let ceiling = by_path.get(c.path.as_str());
        let kinds = [
            ("files", members(&c.files), ceiling.map_or(0, |x| x.files), &c.files),
            ("folders", members(&c.folders), ceiling.map_or(0, |x| x.folders), &c.folders),
        ];
        for (kind, now, may, cycles) in kinds {
            if now > may {
                let what = format!("{now} {kind} in cycles of imports, {may} are allowed: {}", shown(cycles));
                found.push(TidyFinding::new(&format!("{}/src", c.path), 0, "cycles", what));
            } else if now < may {
                let what = format!("{}: {now} {kind} in cycles; lower the ceiling of {may}", c.path);
                found.push(TidyFinding::new(LIST, 0, "cycles", what));
            }
        }
    }
    for c in ceilings {
        if !all.iter().any(|a| a.path == c.path) {
            found.push(TidyFinding::new(LIST, 0, "cycles", format!("there is no crate {}", c.path)));
        }
        if c.files + c.folders == 0 || c.reason.trim().len() < 10 {
            let what = format!("ceiling of {}: needs a figure above 0 and a reason", c.path);
            found.push(TidyFinding::new(LIST, 0, "cycles", what));
        }
    }
}

/// A table of all crates, as Markdown.
pub(crate) fn table(all: &[Cycles]) -> String {
    let mut text = String::from(
        "| crate | cycles of more than two files | files in them | in the largest | folders in cycles |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for c in all {
        let largest = c.files.first().map_or(0, Vec::len);
        let (count, files, folders) = (c.files.len(), members(&c.files), members(&c.folders));
        text += &format!("| {} | {count} | {files} | {largest} | {folders} |\n", c.path);
    }
    for c in all {
        for cycle in &c.files {
            text += &format!("\n{}, {} files: {}\n", c.path, cycle.len(), cycle.join(" "));
        }
        for cycle in &c.folders {
            text += &format!("\n{}, {} folders: {}\n", c.path, cycle.len(), cycle.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &[usize])]) -> Cycles {
        let edges = files.iter().map(|(_, to)| to.iter().copied().collect()).collect();
        of_crate("c", &Graph { files: files.iter().map(|(f, _)| (*f).into()).collect(), edges })
    }

    #[test]
    fn two_files_may_know_each_other_and_three_are_a_cycle() {
        let c = cycles(&[("a.rs", &[1]), ("b.rs", &[0]), ("c.rs", &[0])]);
        assert_eq!(c.files, [[""; 0]; 0]);
        let c = cycles(&[("a.rs", &[1]), ("b.rs", &[2]), ("c.rs", &[0]), ("d.rs", &[0])]);
        assert_eq!(c.files, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn folders_count_with_all_that_is_in_them() {
        let c = cycles(&[("a/x.rs", &[1]), ("b.rs", &[]), ("b/y.rs", &[3]), ("a/z.rs", &[])]);
        assert_eq!(c.folders, [["a", "b"]]);
        assert_eq!(c.files, [[""; 0]; 0]);
        let c = cycles(&[("a/x.rs", &[1]), ("top.rs", &[0])]);
        assert_eq!(c.folders, [[""; 0]; 0], "files at the top are in no folder");
    }

    #[test]
    fn a_ceiling_holds_both_ways() {
        let ring: &[(&str, &[usize])] = &[("a.rs", &[1]), ("b.rs", &[2]), ("c.rs", &[0])];
        let found = |files: usize| {
            let ceiling =
                Ceiling { path: "c".into(), files, folders: 0, reason: "they belong together".into() };
            let mut found = Vec::new();
            check(&[cycles(ring)], &[ceiling], &mut found);
            found.into_iter().map(|f| f.what).collect::<Vec<_>>()
        };
        assert_eq!(found(3), [""; 0]);
        assert_eq!(found(2), ["3 files in cycles of imports, 2 are allowed: a.rs b.rs c.rs"]);
        assert_eq!(found(4), ["c: 3 files in cycles; lower the ceiling of 4"]);
        let mut without = Vec::new();
        check(&[cycles(ring)], &[], &mut without);
        assert_eq!(without.len(), 1);
    }
}
