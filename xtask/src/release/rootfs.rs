//! Packages on a root file system of their own: installed, used, upgraded, removed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use xtask::shell;

/// Files that every package installs.
const FILES: [&str; 9] = [
    "usr/bin/linerate",
    "usr/lib/linerate/liblinerate_bypass.so",
    "usr/lib/systemd/system/linerate.service",
    "usr/lib/systemd/system/linerate-agent.service",
    "usr/lib/sysusers.d/linerate.conf",
    "usr/share/bash-completion/completions/linerate",
    "usr/share/linerate/www/index.html",
    "etc/linerate/serve.toml",
    "etc/linerate/agent.env",
];

const RELEASE: &str = "bookworm";

/// The example configuration, as its own comment says to check it.
const CHECK: [&str; 5] = ["linerate", "serve", "--config", "/etc/linerate/serve.toml", "--check-config"];

/// A command of the root file system. Mounts and processes of its own end with it, also when the
/// run is interrupted.
fn inside(root: &Path, words: &[&str]) -> Command {
    let mut c = shell::program("unshare");
    c.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(root).args(words);
    c.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    c
}

/// On a Debian made by debootstrap.
pub(super) fn deb(folder: &Path, package: &Path) -> Result<String> {
    let root = folder.join("root");
    println!("debootstrap");
    let mut c = shell::program("unshare");
    c.args(["--mount", "debootstrap", "--variant=minbase", RELEASE]).arg(&root);
    shell::output(&mut c)?;
    std::fs::copy(package, root.join("linerate.deb"))?;
    let inside = |words: &[&str]| shell::output(&mut inside(&root, words));
    // A container's file systems, without the network: only what the package itself needs is there.
    let begin = Instant::now();
    inside(&["dpkg", "--install", "linerate.deb"]).context("dpkg --install")?;
    let version = inside(&["linerate", "--version"])?;
    ensure!(version.starts_with("linerate "), "it said {version}");
    let demo = "mount -t proc proc /proc && mount -t sysfs sys /sys && exec linerate demo --time 100ms";
    inside(&["sh", "-c", demo])?;
    let took = begin.elapsed().as_secs_f64();
    installed(&root, true)?;
    let man = root.join("usr/share/man/man1");
    ensure!(
        man.join("linerate-load.1.gz").exists() || man.join("linerate-load.1").exists(),
        "no manual page"
    );
    inside(&CHECK).context("the example configuration is not accepted")?;
    finds_library(&root)?;
    inside(&["getent", "passwd", "linerate"]).context("the package makes no user")?;
    upgrade_and_remove(&root)?;
    Ok(format!("Debian {RELEASE}: installed and first result in {took:.1} s; upgraded, removed and purged"))
}

/// `linerate bypass` finds and loads its library: its next step is the interface, and this one is refused.
fn finds_library(root: &Path) -> Result<()> {
    let bypass = "mount -t proc proc /proc && \
                  exec linerate bypass --interface lo --listen 127.0.0.1:80 -- /usr/bin/true 2>&1";
    let said = inside(root, &["sh", "-c", bypass]).output()?;
    let said = String::from_utf8_lossy(&said.stdout);
    ensure!(said.contains("lo is not an Ethernet interface"), "linerate bypass said {said}");
    Ok(())
}

/// The rest of the package's life, with a systemctl that only writes down its calls.
fn upgrade_and_remove(root: &Path) -> Result<()> {
    let log = root.join("systemctl.log");
    let calls = |words: &[&str], expected: &str| -> Result<()> {
        std::fs::write(&log, "")?;
        shell::output(&mut inside(root, words))?;
        let said = std::fs::read_to_string(&log)?;
        ensure!(said == expected, "{} called systemctl so: {said:?}", words.join(" "));
        Ok(())
    };
    let systemctl = root.join("usr/bin/systemctl");
    std::fs::write(&systemctl, "#!/bin/sh\necho \"$*\" >>/systemctl.log\n")?;
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755))?;
    std::fs::create_dir_all(root.join("run/systemd/system"))?;
    std::fs::create_dir_all(root.join("var/log/private/linerate"))?;
    calls(
        &["dpkg", "--install", "linerate.deb"],
        "daemon-reload\ntry-restart linerate.service linerate-agent.service\n",
    )?;
    calls(
        &["dpkg", "--remove", "linerate"],
        "disable --now linerate.service linerate-agent.service\ndaemon-reload\n",
    )?;
    ensure!(!root.join("usr/bin/linerate").exists(), "dpkg --remove left the command");
    ensure!(root.join("etc/linerate/serve.toml").exists(), "dpkg --remove took the configuration");
    ensure!(root.join("var/log/private/linerate").exists(), "dpkg --remove took the logs");
    calls(&["dpkg", "--purge", "linerate"], "")?;
    ensure!(!root.join("var/log/private/linerate").exists(), "dpkg --purge left the logs");
    installed(root, false)
}

/// In an RPM database of its own. The binary is static, so that it runs there without libraries.
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
    // This root has no shell, which the scripts need: `scripts` tests them.
    let file = package.to_string_lossy();
    rpm(&["--install", "--nodeps", "--noscripts", "--excludedocs", &file])?;
    super::first_result(&root.join("usr/bin/linerate"))?;
    let took = begin.elapsed().as_secs_f64();
    installed(&root, true)?;
    ensure!(root.join("usr/share/licenses/linerate/LICENSE-MIT").exists(), "the license is missing");
    shell::output(&mut inside(&root, &CHECK)).context("the example configuration is not accepted")?;
    // Files and directories are as the package says, and none is left behind.
    rpm(&["--verify", "--nodeps", "--noscripts", "linerate"])?;
    rpm(&["--erase", "--noscripts", "linerate"])?;
    installed(&root, false)?;
    for folder in ["etc/linerate", "usr/lib/linerate", "usr/share/licenses/linerate", "usr/share/linerate"] {
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
