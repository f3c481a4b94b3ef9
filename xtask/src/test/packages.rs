//! Programs beyond cargo that tests use: installed when that may be, named when not.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// A program, its Debian packages, and what does not run without it.
struct Need {
    program: &'static str,
    package: &'static str,
    without: &'static str,
}

const NEEDS: [Need; 23] = [
    need("nginx", "nginx", "the tests against a real server and half of the smoke run"),
    need("valgrind", "valgrind", "the comparison of instruction counts"),
    need("wrk", "wrk", "comparisons with it (cargo xtask bench load)"),
    need("ab", "apache2-utils", "comparisons with it (cargo xtask bench load)"),
    need("h2load", "nghttp2-client", "comparisons with it (cargo xtask bench load)"),
    need("hey", "hey", "comparisons with it (cargo xtask bench load)"),
    need("slowhttptest", "slowhttptest", "the test with slow clients"),
    need(
        "tshark",
        "tshark",
        "comparisons with it (cargo xtask bench pcap) and the test of what it says of --io xdp",
    ),
    need("kill", "procps", "tests that tell a server to read its file again, or to end"),
    need(
        "setpriv",
        "util-linux",
        "tests in namespaces (unshare, nsenter) and of what is said without privileges",
    ),
    need("ip", "iproute2", "tests in network namespaces"),
    need("ethtool", "ethtool", "a test of what --io xdp says of offloads"),
    need("ping", "iputils-ping", "tests of --io xdp"),
    need(
        "python3",
        "python3",
        "the public suites (../shared/suites), HTTP and TCP, and a server that people run",
    ),
    need("node", "nodejs", "tests against a server that people run"),
    need("go", "golang-go", "tests against a server that people run"),
    need("javac", "default-jdk-headless", "tests against a server that people run"),
    need("mvn", "maven", "tests against Jetty, and Netty in cargo xtask bench serve"),
    need("nft", "nftables", "tests with lost packets"),
    need("flex", "flex", "FreeBSD's TCP scripts (../shared/suites)"),
    need("bison", "bison", "FreeBSD's TCP scripts (../shared/suites)"),
    need("buildah", "buildah", "the test of packaging/Containerfile"),
    need("hunspell", "hunspell hunspell-en-us", "the check of the book's spelling"),
];

const fn need(program: &'static str, package: &'static str, without: &'static str) -> Need {
    Need { program, package, without }
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|n| shell::find(n.program).is_none()).collect()
}

/// Installs missing programs, unless that is not wanted; on a terminal it asks first. A program
/// that stays missing is reported and is not a failure: its tests report that themselves.
pub(super) fn provide(no_install: bool) -> Result<()> {
    let lacking = missing();
    if lacking.is_empty() {
        println!("all there: {}", NEEDS.map(|n| n.program).join(" "));
        return Ok(());
    }
    let packages: Vec<&str> = lacking.iter().flat_map(|n| n.package.split(' ')).collect();
    match apt_get() {
        _ if no_install => println!("--no-install: nothing is installed"),
        Some(apt) if agreed(&packages, &mut io::stdin().lock(), io::stdin().is_terminal()) => {
            println!("installing {} (Debian packages)", packages.join(" "));
            if let Err(e) = install(&apt, &packages) {
                println!("that did not work: {e:#}");
            }
        }
        Some(_) => println!("nothing is installed"),
        None => println!("may not install (that takes Debian's apt-get, and root or sudo in CI)"),
    }
    for n in missing() {
        println!("missing: {} (package {}): without it no {}", n.program, n.package, n.without);
    }
    Ok(())
}

/// Whether the packages may be installed: a terminal has somebody to ask, a pipeline has not.
fn agreed(packages: &[&str], input: &mut dyn BufRead, terminal: bool) -> bool {
    if !terminal {
        return true;
    }
    print!("Tests need these Debian packages: {}\nInstall them now? [y/N] ", packages.join(" "));
    let _ = io::stdout().flush();
    let mut line = String::new();
    let _ = input.read_line(&mut line);
    matches!(line.trim(), "y" | "Y" | "yes")
}

/// How apt-get may be called, if it may: as root; on a machine that says it is CI, also by sudo
/// without a password.
fn apt_get() -> Option<Vec<&'static str>> {
    shell::find("apt-get")?;
    if shell::is_root() {
        return Some(vec!["apt-get"]);
    }
    let sudo = std::env::var_os("CI").is_some()
        && shell::program("sudo").args(["-n", "true"]).output().is_ok_and(|o| o.status.success());
    sudo.then(|| vec!["sudo", "-n", "--preserve-env=DEBIAN_FRONTEND", "apt-get"])
}

fn call(apt: &[&str], words: &[&str]) -> Command {
    let mut c = shell::program(apt[0]);
    c.args(&apt[1..]).args(words).env("DEBIAN_FRONTEND", "noninteractive");
    c
}

/// A package that is unavailable must not block the others: then each is tried alone.
fn install(apt: &[&str], packages: &[&str]) -> Result<()> {
    println!("apt-get update");
    shell::output(&mut call(apt, &["update"]))?;
    let _no_services = NoServices::begin();
    let with = |p: &[&str]| call(apt, &[&["install", "--yes", "--no-install-recommends"], p].concat());
    println!("apt-get install");
    if shell::output(&mut with(packages)).is_ok() {
        return Ok(());
    }
    let failed = packages.iter().filter(|p| shell::output(&mut with(&[**p])).is_err());
    let failed: Vec<&str> = failed.copied().collect();
    anyhow::ensure!(failed.is_empty(), "apt-get could not install {}", failed.join(", "));
    Ok(())
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// While it lives, installing a package starts no service: tests start servers of their own, and a
/// machine that ran tests runs no new web server afterwards.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn begin() -> NoServices {
        let ours = !Path::new(POLICY).exists() && write_policy().is_ok();
        NoServices { ours }
    }
}

fn write_policy() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(POLICY, "#!/bin/sh\nexit 101\n").context(POLICY)?;
    Ok(std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755))?)
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_is_asked() {
        let ask = |typed: &str, terminal| agreed(&["wrk"], &mut typed.as_bytes(), terminal);
        assert!(ask("", false) && ask("n\n", false));
        assert!(ask("y\n", true) && ask("yes\n", true));
        assert!(!ask("\n", true) && !ask("", true) && !ask("no\n", true));
    }
}
