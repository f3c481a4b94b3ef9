//! The crate table of ARCHITECTURE.md against what cargo knows: the page and the code cannot
//! differ.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use super::finding::{File, TidyFinding};
use xtask::shell;

const PAGE: &str = "ARCHITECTURE.md";

/// The header by which the table is known; its last column lists what a crate may use.
const LAST_COLUMN: &str = "may use of ours";

/// Name of one of our crates to the names of those of our crates that it depends on.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// Asks cargo for our crates.
pub(crate) fn metadata() -> Result<Value> {
    let text =
        shell::output(shell::cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    Ok(serde_json::from_str(&text)?)
}

fn from_metadata(v: &Value) -> Edges {
    let packages = || v["packages"].as_array().into_iter().flatten();
    let ours: BTreeSet<&str> = packages().filter_map(|p| p["name"].as_str()).collect();
    let edges = packages().filter_map(|p| {
        let dependencies = p["dependencies"].as_array().into_iter().flatten();
        let name = p["name"].as_str()?;
        let names = dependencies.filter_map(|d| d["name"].as_str());
        // A crate's tests may name the crate itself, for its features.
        let others = names.filter(|other| ours.contains(other) && *other != name);
        Some((name.to_owned(), others.map(str::to_owned).collect()))
    });
    edges.collect()
}

/// The dependencies that the page allows, with the line of each crate's row.
fn from_page(text: &str) -> BTreeMap<String, (usize, BTreeSet<String>)> {
    let mut rows = BTreeMap::new();
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let last = cells.last().copied().unwrap_or("");
        if last == LAST_COLUMN {
            inside = true;
        } else if !line.starts_with('|') {
            inside = false;
        } else if inside && let Some(name) = backticked(cells[0]).next() {
            rows.insert(name.to_owned(), (i + 1, backticked(last).map(str::to_owned).collect()));
        }
    }
    rows
}

fn backticked(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Holds the page against what `cargo metadata` says.
pub(crate) fn check(files: &[File], metadata: &Value, found: &mut Vec<TidyFinding>) {
    check_edges(files, &from_metadata(metadata), found);
}

fn check_edges(files: &[File], cargo: &Edges, found: &mut Vec<TidyFinding>) {
    let Some(page) = files.iter().find(|f| f.path == PAGE) else { return };
    let allowed = from_page(&page.text);
    for (name, uses) in cargo {
        let Some((line, may)) = allowed.get(name) else {
            found.push(TidyFinding::new(PAGE, 0, "edges", format!("the crate table does not know {name}")));
            continue;
        };
        for other in uses.difference(may) {
            let what = format!("{name} depends on {other}, which its row does not allow");
            found.push(TidyFinding::new(PAGE, *line, "edges", what));
        }
    }
    for (name, (line, _)) in allowed.iter().filter(|(n, _)| !cargo.contains_key(*n)) {
        found.push(TidyFinding::new(PAGE, *line, "edges", format!("there is no crate {name}")));
    }
    for f in files.iter().filter(|f| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml")) {
        let folder = f.path.split('/').nth(1).unwrap_or("");
        if !f.text.contains(&format!("name = \"{folder}\"")) {
            found.push(TidyFinding::new(&f.path, 0, "edges", "a crate's name is its folder's"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
| crate | rule | may use of ours |
| --- | --- | --- |
| `a` | x | - |
| `b` | x `y` | `a` |

| `c` | not in the table | `a` |
";

    fn found(edges: &[(&str, &[&str])]) -> Vec<String> {
        let page = File { path: PAGE.into(), text: TABLE.into() };
        let cargo = edges
            .iter()
            .map(|(n, to)| ((*n).to_owned(), to.iter().map(|t| (*t).to_owned()).collect()))
            .collect();
        let mut found = Vec::new();
        check_edges(&[page], &cargo, &mut found);
        found.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn what_the_table_allows() {
        assert_eq!(found(&[("a", &[]), ("b", &["a"])]), [""; 0]);
        assert_eq!(found(&[("a", &[]), ("b", &[])]), [""; 0]);
    }

    #[test]
    fn what_it_does_not() {
        assert_eq!(found(&[("a", &["b"]), ("b", &[])]), ["a depends on b, which its row does not allow"]);
        assert_eq!(found(&[("a", &[]), ("b", &[]), ("c", &[])]), ["the crate table does not know c"]);
        assert_eq!(found(&[("a", &[])]), ["there is no crate b"]);
    }

    #[test]
    fn dependencies_of_every_kind_count() {
        let v = serde_json::json!({ "packages": [
            { "name": "a", "dependencies": [] },
            { "name": "b", "dependencies": [{ "name": "a", "kind": "dev" }, { "name": "serde", "kind": null }] },
        ]});
        let edges = from_metadata(&v);
        assert_eq!(edges["b"].iter().collect::<Vec<_>>(), ["a"]);
    }
}
