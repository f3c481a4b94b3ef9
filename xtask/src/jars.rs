//! Libraries of Java servers, downloaded once from Maven Central into the user's cache. Nothing of them is in the
//! repository.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

const CENTRAL: &str = "https://repo1.maven.org/maven2";

/// A library of Maven Central.
#[derive(Clone, Copy, Debug)]
pub struct MavenJar {
    group: &'static str,
    name: &'static str,
    version: &'static str,
}

/// Tomcat in a program, and what it needs.
pub const TOMCAT: [MavenJar; 2] = [
    MavenJar::new("org/apache/tomcat/embed", "tomcat-embed-core", "10.1.34"),
    MavenJar::new("org/apache/tomcat", "tomcat-annotations-api", "10.1.34"),
];

impl MavenJar {
    /// The group with slashes.
    pub const fn new(group: &'static str, name: &'static str, version: &'static str) -> MavenJar {
        MavenJar { group, name, version }
    }

    /// Its file in the cache.
    pub fn file(&self) -> String {
        format!("{}-{}.jar", self.name, self.version)
    }
}

/// Where they lie: `$XDG_CACHE_HOME/linerate/jars`, or in `~/.cache`.
pub fn folder() -> PathBuf {
    let named = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    named.unwrap_or_else(home).join("linerate/jars")
}

/// Downloads what is missing.
pub fn fetch(jars: &[MavenJar]) -> Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for jar in jars {
        let MavenJar { group, name, version } = jar;
        let (to, part) = (folder.join(jar.file()), folder.join(format!("{name}.part")));
        if !to.is_file() {
            let url = format!("{CENTRAL}/{group}/{name}/{version}/{}", jar.file());
            println!("{url}");
            shell::run(Command::new("curl").args(["-sSfL", "-m", "120", "-o"]).arg(&part).arg(&url))?;
            // Half a library is none.
            std::fs::rename(&part, &to)?;
        }
    }
    Ok(())
}
