//! The step `versions`: all files name the same version of linerate, and the workflows the same
//! Rust.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use toml::Value;

/// Where workflows lie.
const WORKFLOWS: &str = ".github/workflows";

/// Packages that keep a version of their own.
const OWN_VERSION: &str = "linerate-fuzz";

/// Compares them. In a workflow that a tag `v*` started, the tag must name the version too, and
/// CHANGELOG.md must have its section.
pub(super) fn check(root: &Path) -> Result<String> {
    let is_tag = std::env::var("GITHUB_REF_TYPE").is_ok_and(|kind| kind == "tag");
    let name = std::env::var("GITHUB_REF_NAME").ok().filter(|_| is_tag);
    check_for(root, name.as_deref().and_then(|name| name.strip_prefix('v')))
}

/// The same for the version that a tag names, if there is a tag.
fn check_for(root: &Path, tag: Option<&str>) -> Result<String> {
    let manifest = table(root, "Cargo.toml")?;
    let of_package = |key| string(&manifest, &["workspace", "package", key]).context(key);
    let (version, least) = (of_package("version")?, of_package("rust-version")?);
    let mut named = named(root, &manifest)?;
    named.extend(tag.map(|tag| ("the tag".to_owned(), tag.to_owned())));
    let others = named.iter().filter(|(_, other)| other != version);
    let mut others: Vec<String> = others.map(|(place, other)| format!("{place} names {other}")).collect();
    others.dedup();
    ensure!(others.is_empty(), "the version is {version}, but {}", others.join(", "));
    if tag.is_some() {
        let good = has_section(&text(root, "CHANGELOG.md")?, version);
        ensure!(good, "CHANGELOG.md has no section \"## [{version}] - DATE\"");
    }
    for name in ["ci.yml", "nightly.yml", "pages.yml", "release.yml"] {
        let workflow = text(root, &format!("{WORKFLOWS}/{name}"))?;
        let used = toolchains(&workflow);
        let good = !used.is_empty() && used.iter().all(|used| is_release_of(used, least));
        ensure!(good, "rust-version is {least}; RUSTUP_TOOLCHAIN in {name} is {}", used.join(", "));
        let refused = refused_versions(&workflow);
        ensure!(refused.is_empty(), "{name}: cargo install refuses {}", refused.join(" "));
    }
    Ok(format!("version {version}; rust-version {least}, which the workflows use"))
}

/// Places that name linerate's version, each with what it names.
fn named(root: &Path, manifest: &Value) -> Result<Vec<(String, String)>> {
    let mut named = Vec::new();
    let ours = manifest.get("workspace").and_then(|w| w.get("dependencies")).and_then(Value::as_table);
    for (name, dependency) in ours.context("no workspace.dependencies")? {
        // Crates that are not published have a path alone, and those of others a version alone.
        if let (Some(_), Some(version)) = (dependency.get("path"), string(dependency, &["version"])) {
            named.push((format!("{name} in Cargo.toml"), version.to_owned()));
        }
    }
    for (path, section) in [("python/Cargo.toml", "package"), ("python/pyproject.toml", "project")] {
        let version = table(root, path)?;
        let version = string(&version, &[section, "version"]).with_context(|| format!("{path}: version"))?;
        named.push((path.to_owned(), version.to_owned()));
    }
    for path in ["Cargo.lock", "fuzz/Cargo.lock", "python/Cargo.lock"] {
        let lock = table(root, path)?;
        for package in lock.get("package").and_then(Value::as_array).context(path)? {
            let (name, version) = (string(package, &["name"]), string(package, &["version"]));
            // Packages of this repository have no source.
            if let (Some(name), Some(version), None) = (name, version, package.get("source"))
                && name.starts_with("linerate")
                && name != OWN_VERSION
            {
                named.push((path.to_owned(), version.to_owned()));
            }
        }
    }
    Ok(named)
}

/// Whether a changelog has the section of a released version.
fn has_section(changelog: &str, version: &str) -> bool {
    let heading = format!("## [{version}] - ");
    changelog.lines().any(|line| line.starts_with(&heading))
}

/// What a workflow says of RUSTUP_TOOLCHAIN, without `cargo +NAME`.
fn toolchains(workflow: &str) -> Vec<&str> {
    let values = workflow.lines().filter_map(|line| line.trim().strip_prefix("RUSTUP_TOOLCHAIN:"));
    values.map(|value| value.trim().trim_matches('"')).collect()
}

/// Whether `toolchain` is `least` (1.95) or a release of it (1.95.0).
fn is_release_of(toolchain: &str, least: &str) -> bool {
    toolchain.strip_prefix(least).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What `cargo install` in a workflow names by a version that cargo refuses: `NAME@` takes three
/// numbers, or a requirement that begins with `^`, `~`, `=` or a comparison.
fn refused_versions(workflow: &str) -> Vec<&str> {
    let installs = workflow.lines().filter_map(|line| line.split_once("cargo install "));
    let words = installs.flat_map(|(_, rest)| rest.split_whitespace());
    let refused = |word: &&str| {
        let Some((_, version)) = word.split_once('@') else { return false };
        !version.starts_with(['^', '~', '=', '<', '>']) && version.split('.').count() < 3
    };
    words.filter(refused).collect()
}

fn text(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

fn table(root: &Path, path: &str) -> Result<Value> {
    toml::from_str(&text(root, path)?).with_context(|| path.to_owned())
}

fn string<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().try_fold(value, |value, key| value.get(key))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::shell;

    const FILES: [&str; 11] = [
        "Cargo.toml",
        "Cargo.lock",
        "CHANGELOG.md",
        "fuzz/Cargo.lock",
        "python/Cargo.lock",
        "python/Cargo.toml",
        "python/pyproject.toml",
        ".github/workflows/ci.yml",
        ".github/workflows/nightly.yml",
        ".github/workflows/pages.yml",
        ".github/workflows/release.yml",
    ];

    /// The version of the workspace.
    fn version() -> String {
        let manifest = table(shell::root(), "Cargo.toml").expect("readable");
        string(&manifest, &["workspace", "package", "version"]).expect("a version").to_owned()
    }

    /// What the check says of the repository once `from` in one file is `to`.
    fn changed(file: &str, from: &str, to: &str, tag: Option<&str>) -> Result<String, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for path in FILES {
            let copy = folder.path().join(path);
            std::fs::create_dir_all(copy.parent().expect("a parent")).expect("created");
            let before = text(shell::root(), path).expect("readable");
            let after = if path == file { before.replacen(from, to, 1) } else { before.clone() };
            assert!(path != file || before != after, "{file} lacks {from}");
            std::fs::write(copy, after).expect("written");
        }
        check_for(folder.path(), tag).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn the_repository_names_one_version_and_one_rust() {
        assert!(check_for(shell::root(), None).is_ok(), "{:?}", check_for(shell::root(), None));
    }

    #[test]
    fn another_version_is_named_with_its_place() {
        let (ours, other) = (format!("version = \"{}\"", version()), "version = \"99.0.0\"");
        for (file, before) in [
            ("Cargo.toml", "path = \"crates/linerate-http\", "),
            ("Cargo.lock", "name = \"linerate-http\"\n"),
            ("fuzz/Cargo.lock", "name = \"linerate-http\"\n"),
            ("python/Cargo.lock", "name = \"linerate-http\"\n"),
            ("python/Cargo.toml", ""),
            ("python/pyproject.toml", ""),
        ] {
            let said = changed(file, &format!("{before}{ours}"), &format!("{before}{other}"), None);
            let said = said.expect_err("another version");
            assert!(said.starts_with(&format!("the version is {}, but ", version())), "{said}");
            assert!(said.ends_with(&format!("{file} names 99.0.0")), "{said}");
        }
    }

    #[test]
    fn a_tag_names_the_version_and_has_a_section() {
        let heading = format!("## [{}] - 2026-12-01\n\n## [", version());
        let tagged = |tag: &str| changed("CHANGELOG.md", "## [", &heading, Some(tag));
        assert!(tagged(&version()).is_ok(), "{:?}", tagged(&version()));
        let expected = format!("the version is {}, but the tag names 99.0.0", version());
        assert_eq!(tagged("99.0.0"), Err(expected));
        let changelog = "## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\n## [1.2.2]\n";
        assert!(has_section(changelog, "1.2.3"));
        assert!(!has_section(changelog, "1.2.2") && !has_section(changelog, "1.2"));
    }

    #[test]
    fn every_workflow_names_the_least_rust() {
        for name in ["ci.yml", "nightly.yml", "pages.yml", "release.yml"] {
            let file = format!("{WORKFLOWS}/{name}");
            let said = changed(&file, "RUSTUP_TOOLCHAIN: \"1", "RUSTUP_TOOLCHAIN: \"9", None);
            assert!(said.is_err_and(|said| said.contains(&format!("RUSTUP_TOOLCHAIN in {name} is 9."))));
        }
        assert!(is_release_of("1.95", "1.95") && is_release_of("1.95.0", "1.95"));
        assert!(!is_release_of("1.950.0", "1.95") && !is_release_of("stable", "1.95"));
    }

    #[test]
    fn the_workflows_name_versions_that_cargo_takes() {
        let line = "- run: cargo install --locked a@3 b@^0.5 c@1.2.3 d";
        assert_eq!(refused_versions(line), ["a@3"]);
    }
}
