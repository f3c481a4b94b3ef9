//! Packages on a root file system of their own: installed, used, removed.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// Files that every package installs.
const FILES: [&str; 4] = [
    "usr/bin/linerate",
    "usr/lib/systemd/system/linerate.service",
    "usr/share/bash-completion/completions/linerate",
    "etc/linerate/serve.toml",
];

const RELEASE: &str = "bookworm";

/// On a Debian made by debootstrap.
pub(super) fn deb(folder: &Path, package: &Path) -> Result<String> {
    let root = folder.join("root");
    println!("debootstrap");
    shell::output(shell::program("debootstrap").args(["--variant=minbase", RELEASE]).arg(&root))?;
    std::fs::copy(package, root.join("linerate.deb"))?;
    let inside = |words: &[&str]| {
        let mut c = shell::program("chroot");
        c.arg(&root).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        shell::output(&mut c)
    };
    // A container's file systems, without the network: only what the package itself needs is there.
    let begin = Instant::now();
    inside(&["dpkg", "--install", "linerate.deb"]).context("dpkg --install")?;
    let version = inside(&["linerate", "--version"])?;
    ensure!(version.starts_with("linerate "), "it said {version}");
    inside(&[
        "sh",
        "-c",
        "mount -t proc proc /proc && mount -t sysfs sys /sys; linerate demo --time 100ms; r=$?; \
                           umount /sys /proc; exit $r",
    ])?;
    let took = begin.elapsed().as_secs_f64();
    installed(&root, true)?;
    let man = root.join("usr/share/man/man1");
    ensure!(
        man.join("linerate-load.1.gz").exists() || man.join("linerate-load.1").exists(),
        "no manual page"
    );
    inside(&["linerate", "serve", "--config", "/etc/linerate/serve.toml", "--check-config"])
        .or_else(|e| missing_directory(&root, &e).map(|()| String::new()))?;
    inside(&["dpkg", "--remove", "linerate"])?;
    ensure!(!root.join("usr/bin/linerate").exists(), "dpkg --remove left the command");
    ensure!(root.join("etc/linerate/serve.toml").exists(), "dpkg --remove took the configuration");
    inside(&["dpkg", "--purge", "linerate"])?;
    installed(&root, false)?;
    Ok(format!("Debian {RELEASE}: installed and first result in {took:.1} s; removed and purged"))
}

/// The example serves a directory that a web server's package makes; a bare system has none.
fn missing_directory(root: &Path, error: &anyhow::Error) -> Result<()> {
    ensure!(!root.join("var/www/html").exists(), "the example configuration is not accepted: {error:#}");
    ensure!(
        format!("{error:#}").contains("/var/www/html"),
        "the example configuration is not accepted: {error:#}"
    );
    Ok(())
}

/// In an RPM database of its own. The binary is this machine's, so that it runs from there.
pub(super) fn rpm(folder: &Path, package: &Path) -> Result<String> {
    let root = folder.join("root");
    std::fs::create_dir_all(&root)?;
    let rpm = |words: &[&str]| {
        let mut c = shell::program("rpm");
        c.arg("--root").arg(&root).args(words);
        shell::output(&mut c)
    };
    rpm(&["--initdb"])?;
    let begin = Instant::now();
    // The libraries that it needs belong to the system, which this root does not have.
    let file = package.to_string_lossy();
    rpm(&["--install", "--nodeps", "--noscripts", &file])?;
    super::first_result(&root.join("usr/bin/linerate"))?;
    let took = begin.elapsed().as_secs_f64();
    installed(&root, true)?;
    // Files and directories are as the package says, and none is left behind.
    rpm(&["--verify", "--nodeps", "--noscripts", "linerate"])?;
    rpm(&["--erase", "--noscripts", "linerate"])?;
    installed(&root, false)?;
    for folder in ["etc/linerate", "usr/share/licenses/linerate"] {
        ensure!(!root.join(folder).exists(), "/{folder} was left behind");
    }
    Ok(format!("installed and first result in {took:.1} s; erased"))
}

fn installed(root: &Path, there: bool) -> Result<()> {
    for file in FILES {
        let exists = root.join(file).exists();
        ensure!(exists == there, "/{file} {}", if exists { "was left behind" } else { "is missing" });
    }
    Ok(())
}
