//! The lock files of what is outside the workspace (fuzzing, the Python package, an example) against our crates: a new
//! dependency of a crate of ours leaves them behind, and nobody sees it until `cargo --locked` fails there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::finding::TidyFinding;

/// Lock files outside the workspace.
const LOCKS: [&str; 3] = ["examples/axum-sqlite/Cargo.lock", "fuzz/Cargo.lock", "python/Cargo.lock"];

/// One of our crates, as its manifest has it.
struct OwnCrate {
    version: String,
    /// Those that every build needs on this system: neither optional, nor for tests, nor for a target.
    needs: BTreeSet<String>,
}

/// The part of a lock file that is read.
#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Holds each lock file against what `cargo metadata` says of our crates.
pub(crate) fn check(root: &Path, metadata: &Value, found: &mut Vec<TidyFinding>) -> Result<()> {
    let ours = own_crates(metadata);
    for path in LOCKS {
        let text = std::fs::read_to_string(root.join(path)).context(path)?;
        check_one(path, &toml::from_str(&text).context(path)?, &ours, found);
    }
    Ok(())
}

fn own_crates(metadata: &Value) -> BTreeMap<String, OwnCrate> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let crates = packages.filter_map(|package| {
        let all = package["dependencies"].as_array().into_iter().flatten();
        let always = all
            .filter(|d| d["kind"].is_null() && d["target"].is_null() && d["optional"] == Value::Bool(false));
        let needs = always.filter_map(|d| d["name"].as_str()).map(str::to_owned).collect();
        let version = package["version"].as_str()?.to_owned();
        Some((package["name"].as_str()?.to_owned(), OwnCrate { version, needs }))
    });
    crates.collect()
}

fn check_one(path: &str, lock: &LockFile, ours: &BTreeMap<String, OwnCrate>, found: &mut Vec<TidyFinding>) {
    for locked in &lock.package {
        let Some(own) = ours.get(&locked.name) else { continue };
        let mut say = |what: String| {
            let what = format!("{what}; run cargo update --workspace beside it");
            found.push(TidyFinding::new(path, 0, "locks", what));
        };
        if own.version != locked.version {
            say(format!("{} is {}, not {}", locked.name, own.version, locked.version));
        }
        // Where two versions are locked, the version follows the name.
        let names = locked.dependencies.iter().filter_map(|d| d.split(' ').next());
        let known: BTreeSet<&str> = names.collect();
        for missing in own.needs.iter().filter(|name| !known.contains(name.as_str())) {
            say(format!("{} depends on {missing}, which is not locked for it", locked.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lock: &str) -> Vec<String> {
        let metadata = serde_json::json!({"packages": [{"name": "a", "version": "1.0.0", "dependencies": [
            {"name": "b", "kind": null, "target": null, "optional": false},
            {"name": "c", "kind": "dev", "target": null, "optional": false},
            {"name": "d", "kind": null, "target": null, "optional": true},
        ]}]});
        let mut found = Vec::new();
        check_one("Cargo.lock", &toml::from_str(lock).expect("sound"), &own_crates(&metadata), &mut found);
        found.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_lock_in_step_has_what_every_build_needs() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\"b 2.0.0\"]\n";
        assert_eq!(found(lock), [""; 0]);
        assert_eq!(found("[[package]]\nname = \"z\"\nversion = \"3.0.0\"\n"), [""; 0]);
    }

    #[test]
    fn a_lock_that_is_behind_is_found() {
        let found = found("[[package]]\nname = \"a\"\nversion = \"0.9.0\"\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a is 1.0.0, not 0.9.0") && found[1].starts_with("a depends on b"));
    }
}
