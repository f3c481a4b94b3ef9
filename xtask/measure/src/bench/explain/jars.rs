//! Libraries of Java servers (Tomcat, Jetty, Undertow), downloaded once from Maven Central into the
//! user's cache. Nothing of them is in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use xtask::shell;

const CENTRAL: &str = "https://repo1.maven.org/maven2";

/// Group, name and version of each.
const JARS: [(&str, &str, &str); 14] = [
    ("org/apache/tomcat/embed", "tomcat-embed-core", "10.1.34"),
    ("org/apache/tomcat", "tomcat-annotations-api", "10.1.34"),
    ("org/eclipse/jetty", "jetty-server", "12.0.16"),
    ("org/eclipse/jetty", "jetty-http", "12.0.16"),
    ("org/eclipse/jetty", "jetty-io", "12.0.16"),
    ("org/eclipse/jetty", "jetty-util", "12.0.16"),
    ("org/slf4j", "slf4j-api", "2.0.16"),
    ("io/undertow", "undertow-core", "2.3.18.Final"),
    ("org/jboss/xnio", "xnio-api", "3.8.16.Final"),
    ("org/jboss/xnio", "xnio-nio", "3.8.16.Final"),
    ("org/jboss/logging", "jboss-logging", "3.4.3.Final"),
    ("org/jboss/threads", "jboss-threads", "3.5.0.Final"),
    ("org/wildfly/common", "wildfly-common", "1.5.4.Final"),
    ("org/wildfly/client", "wildfly-client-config", "1.0.1.Final"),
];

/// The programs that use them.
const PROGRAMS: [&str; 3] = ["TomcatApp.java", "JettyApp.java", "UndertowApp.java"];

/// Where they lie: `$XDG_CACHE_HOME/linerate/jars`, or in `~/.cache`.
fn folder() -> PathBuf {
    let named = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    named.unwrap_or_else(home).join("linerate/jars")
}

fn file((_, name, version): &(&str, &str, &str)) -> String {
    format!("{name}-{version}.jar")
}

/// All of them are there, and a JDK to compile with.
pub(super) fn are_there() -> bool {
    shell::find("javac").is_some() && JARS.iter().all(|jar| folder().join(file(jar)).is_file())
}

/// Downloads what is missing.
pub(super) fn fetch() -> Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for jar in &JARS {
        let (group, name, version) = jar;
        let (to, part) = (folder.join(file(jar)), folder.join(format!("{name}.part")));
        if !to.is_file() {
            let url = format!("{CENTRAL}/{group}/{name}/{version}/{}", file(jar));
            println!("{url}");
            shell::run(Command::new("curl").args(["-sSfL", "-m", "120", "-o"]).arg(&part).arg(&url))?;
            // Half a library is none.
            std::fs::rename(&part, &to)?;
        }
    }
    Ok(())
}

/// The libraries, and our programs in that folder.
pub(super) fn class_path(programs: &Path) -> String {
    format!("{}/*:{}", folder().display(), programs.display())
}

/// Compiles our programs that need them, where they are there.
pub(super) fn compile(programs: &Path) -> Result<()> {
    if are_there() {
        let mut javac = Command::new("javac");
        javac.current_dir(programs).args(["-cp", &class_path(programs)]).args(PROGRAMS);
        shell::run(&mut javac)?;
    }
    Ok(())
}
