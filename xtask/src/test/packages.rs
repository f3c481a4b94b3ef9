//! Programs beyond cargo that tests use: installed when that may be, named when not.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use xtask::shell;

/// A program, its Debian packages, and what does not run without it.
struct PackageNeed {
    program: &'static str,
    package: &'static str,
    without: &'static str,
}

/// A program that stands for a module of Python is asked to import it.
const PYTHON_MODULE: &str = "python3 ";

const NEEDS: [PackageNeed; 36] = [
    need("nginx", "nginx", "the tests against a real server and half of the smoke run"),
    need("valgrind", "valgrind", "the comparison of instruction counts"),
    need("wrk", "wrk", "comparisons with it (cargo xtask bench load)"),
    need("ab", "apache2-utils", "comparisons with it (cargo xtask bench load)"),
    need("h2load", "nghttp2-client", "comparisons with it (cargo xtask bench load)"),
    need("hey", "hey", "comparisons with it (cargo xtask bench load)"),
    need("slowhttptest", "slowhttptest", "the test with slow clients"),
    need("haproxy", "haproxy", "tests behind and against it"),
    need("squid", "squid", "tests of --proxy"),
    need("tinyproxy", "tinyproxy", "tests of --proxy"),
    need("socat", "socat", "a test over Unix sockets"),
    need("sslscan", "sslscan", "a test of what HTTPS admits"),
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
    need("curl", "curl", "the tests with it as a client"),
    need("openssl", "openssl", "tests of HTTPS with it as a client, or with certificates that it makes"),
    need("promtool", "prometheus", "the check of metrics by Prometheus' own tool"),
    need("python3 httpx", "python3-httpx", "tests with it as a client"),
    need("python3 h2", "python3-h2", "a test of HTTP/2 with httpx as a client"),
    need("python3 aiohttp", "python3-aiohttp", "a test with it as a client"),
    need("python3 websockets", "python3-websockets", "a test with it as a client"),
    need("python3 jsonschema", "python3-jsonschema", "tests of JSON documents against their schemas"),
    need("hunspell", "hunspell hunspell-en-us", "the check of the book's spelling"),
];

const fn need(program: &'static str, package: &'static str, without: &'static str) -> PackageNeed {
    PackageNeed { program, package, without }
}

impl PackageNeed {
    fn is_met(&self) -> bool {
        match self.program.strip_prefix(PYTHON_MODULE) {
            Some(module) => linerate_skips::find_python(&[module]).is_some(),
            None => shell::find(self.program).is_some(),
        }
    }
}

fn missing() -> Vec<&'static PackageNeed> {
    NEEDS.iter().filter(|n| !n.is_met()).collect()
}

/// A program that Debian does not have, or only an old one: Go builds it.
struct GoTool {
    program: &'static str,
    module: &'static str,
    without: &'static str,
}

const GO_TOOLS: [GoTool; 2] = [
    GoTool {
        program: "nats-server",
        module: "github.com/nats-io/nats-server/v2@v2.15.2",
        without: "the tests of agents on many machines",
    },
    GoTool {
        program: "h2spec",
        module: "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
        without: "its tests of our HTTP/2",
    },
];

/// Installs missing programs, unless that is not wanted; on a terminal it asks first. A program
/// that stays missing is reported and is not a failure: its tests report that themselves.
pub(super) fn provide(no_install: bool) -> Result<()> {
    provide_packages(no_install)?;
    let may_install = !no_install && !io::stdin().is_terminal();
    for tool in GO_TOOLS.iter().filter(|tool| shell::find(tool.program).is_none()) {
        let install = format!("go install {}", tool.module);
        let why = match shell::find("go") {
            Some(go) if may_install => {
                println!("{install}");
                patiently(shell::program(&go).args(["install", tool.module])).map_err(|e| e.to_string())
            }
            _ => Err(install),
        };
        if let Err(why) = why {
            println!("missing: {} ({why}): without it no {}", tool.program, tool.without);
        }
    }
    Ok(())
}

/// Where `go install` puts programs.
pub(super) fn go_folder() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"))
}

fn provide_packages(no_install: bool) -> Result<()> {
    let lacking = missing();
    if lacking.is_empty() {
        println!("all there: {}", NEEDS.map(|n| n.program).join(" "));
        return Ok(());
    }
    let packages: Vec<&str> = lacking.iter().flat_map(|n| n.package.split(' ')).collect();
    match privileges() {
        _ if no_install => println!("--no-install: nothing is installed"),
        Some(privileges) if agreed(&packages, &mut io::stdin().lock(), io::stdin().is_terminal()) => {
            println!("installing {} (Debian packages)", packages.join(" "));
            if let Err(e) = install(privileges, &packages) {
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

/// The words before a command that changes the system, if this process may change it: none as root;
/// on a machine that says it is CI, also sudo without a password.
fn privileges() -> Option<&'static [&'static str]> {
    shell::find("apt-get")?;
    if shell::is_root() {
        return Some(&[]);
    }
    let sudo = std::env::var_os("CI").is_some()
        && shell::program("sudo").args(["-n", "true"]).output().is_ok_and(|o| o.status.success());
    sudo.then_some(&["sudo", "-n", "--preserve-env=DEBIAN_FRONTEND"])
}

fn call(privileges: &[&str], words: &[&str]) -> Command {
    let all = [privileges, words].concat();
    let mut c = shell::program(all[0]);
    c.args(&all[1..]).env("DEBIAN_FRONTEND", "noninteractive");
    c
}

/// While apt-get runs, a line says so. Reason: it takes minutes for all packages.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// Runs a command to its end. The error is the last line that it wrote to standard error.
fn patiently(command: &mut Command) -> Result<()> {
    let (words, begin) = (shell::words(command), Instant::now());
    let (done, running) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while running.recv_timeout(SIGN_OF_LIFE) == Err(RecvTimeoutError::Timeout) {
                println!("     {:.0}s: {words}", begin.elapsed().as_secs_f64());
            }
        });
        let result = shell::output(command);
        drop(done);
        result.map(drop).map_err(|e| anyhow!("{}", e.to_string().lines().last().unwrap_or_default()))
    })
}

/// A package that is unavailable must not block the others: then each is tried alone.
fn install(privileges: &[&str], packages: &[&str]) -> Result<()> {
    println!("apt-get update");
    patiently(&mut call(privileges, &["apt-get", "update"]))?;
    let _no_services = NoServices::begin(privileges);
    let with = |p: &[&str]| {
        call(privileges, &[&["apt-get", "install", "--yes", "--no-install-recommends"], p].concat())
    };
    println!("apt-get install");
    let Err(why) = patiently(&mut with(packages)) else { return Ok(()) };
    println!("apt-get install, one by one: {why}");
    let mut failed = Vec::new();
    for package in packages {
        if let Err(why) = patiently(&mut with(&[*package])) {
            println!("{package}: {why}");
            failed.push(*package);
        }
    }
    ensure!(failed.is_empty(), "apt-get could not install {}", failed.join(", "));
    Ok(())
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// While it lives, installing a package starts no service: tests start servers of their own, and a
/// machine that ran tests runs no new web server afterwards.
struct NoServices<'a> {
    privileges: &'a [&'a str],
    ours: bool,
}

impl<'a> NoServices<'a> {
    fn begin(privileges: &'a [&'a str]) -> NoServices<'a> {
        let write = format!("printf '#!/bin/sh\\nexit 101\\n' >{POLICY} && chmod 755 {POLICY}");
        let mut ours = !Path::new(POLICY).exists();
        if ours && let Err(why) = shell::output(&mut call(privileges, &["sh", "-c", &write])) {
            println!("packages may start services, because {POLICY} cannot be written: {why}");
            ours = false;
        }
        NoServices { privileges, ours }
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if self.ours {
            let _ = shell::output(&mut call(self.privileges, &["rm", "-f", POLICY]));
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

    #[test]
    fn the_last_line_says_why() {
        let mut c = call(&[], &["sh", "-c", "echo noise >&2; echo 'E: no package x' >&2; exit 100"]);
        assert_eq!(patiently(&mut c).expect_err("exit 100").to_string(), "E: no package x");
        assert!(patiently(&mut call(&["env"], &["true"])).is_ok());
    }
}
