//! Libraries of Java servers (Tomcat, Jetty, Undertow) for our programs.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use xtask::jars::{MavenJar, TOMCAT, folder};
use xtask::shell;

const OTHERS: [MavenJar; 12] = [
    MavenJar::new("org/eclipse/jetty", "jetty-server", "12.0.16"),
    MavenJar::new("org/eclipse/jetty", "jetty-http", "12.0.16"),
    MavenJar::new("org/eclipse/jetty", "jetty-io", "12.0.16"),
    MavenJar::new("org/eclipse/jetty", "jetty-util", "12.0.16"),
    MavenJar::new("org/slf4j", "slf4j-api", "2.0.16"),
    MavenJar::new("io/undertow", "undertow-core", "2.3.18.Final"),
    MavenJar::new("org/jboss/xnio", "xnio-api", "3.8.16.Final"),
    MavenJar::new("org/jboss/xnio", "xnio-nio", "3.8.16.Final"),
    MavenJar::new("org/jboss/logging", "jboss-logging", "3.4.3.Final"),
    MavenJar::new("org/jboss/threads", "jboss-threads", "3.5.0.Final"),
    MavenJar::new("org/wildfly/common", "wildfly-common", "1.5.4.Final"),
    MavenJar::new("org/wildfly/client", "wildfly-client-config", "1.0.1.Final"),
];

/// The programs that use them.
const PROGRAMS: [&str; 3] = ["TomcatApp.java", "JettyApp.java", "UndertowApp.java"];

/// All of them are there, and a JDK to compile with.
pub(super) fn are_there() -> bool {
    let mut jars = TOMCAT.iter().chain(&OTHERS);
    shell::find("javac").is_some() && jars.all(|jar| folder().join(jar.file()).is_file())
}

/// Downloads what is missing.
pub(super) fn fetch() -> Result<()> {
    xtask::jars::fetch(&TOMCAT)?;
    xtask::jars::fetch(&OTHERS)
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
