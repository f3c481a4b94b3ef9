//! The scripts of both packages, which run with programs that only write down their calls.

use std::process::Command;

use xtask::shell;

/// Hides the machine's /run and /var, puts programs that print their calls first in PATH, runs the
/// script with the arguments that follow it, and counts what is left of the services' files.
const PRELUDE: &str = r#"set -eu
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var
mkdir -p /run/bin /run/systemd/system /var/log/private/linerate /var/lib/private/linerate-agent
ln -s private/linerate /var/log/linerate
ln -s private/linerate-agent /var/lib/linerate-agent
for name in systemctl systemd-sysusers; do
    printf '#!/bin/sh\necho "${0##*/} $*"\n' >/run/bin/$name
    chmod +x /run/bin/$name
done
printf '%s' "$1" >/run/script
shift
PATH=/run/bin:$PATH sh /run/script "$@"
echo "files: $(find /var -name 'linerate*' | wc -l)"
"#;

/// Both services, as systemctl takes them.
const BOTH: &str = "linerate.service linerate-agent.service";
const USER: &str = "systemd-sysusers linerate.conf";
const RELOAD: &str = "systemctl daemon-reload";
/// Logs and spool: the directories, and the links to them.
const ALL_FILES: &str = "files: 4";

/// A command in a mount namespace of its own, as root of it.
fn namespace() -> Command {
    let mut c = shell::program("unshare");
    c.arg("--mount").args((!shell::is_root()).then_some("--map-root-user"));
    c
}

/// Whether such a namespace is available.
fn possible() -> bool {
    let tried = shell::output(namespace().args(["mount", "-t", "tmpfs", "tmpfs", "/run"]));
    if let Err(e) = &tried {
        linerate_skips::skip(linerate_skips::need::ROOT, format_args!("{e:#}"));
    }
    tried.is_ok()
}

/// What the script calls, and how many files are left.
fn calls(script: &str, arguments: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(shell::root().join("packaging").join(script)).expect("a script");
    let mut c = namespace();
    c.args(["sh", "-c", PRELUDE, "sh", &text]).args(arguments);
    shell::output(&mut c).expect("the script succeeds").lines().map(str::to_owned).collect()
}

#[test]
fn debian_packages_restart_running_services_and_disable_removed_ones() {
    if !possible() {
        return;
    }
    let restart: &str = &format!("systemctl try-restart {BOTH}");
    let disable: &str = &format!("systemctl disable --now {BOTH}");
    // The arguments of an installation, an upgrade, a removal and a purge.
    assert_eq!(calls("deb/postinst", &["configure", ""]), [USER, RELOAD, ALL_FILES]);
    assert_eq!(calls("deb/postinst", &["configure", "0.1.0-1"]), [USER, RELOAD, restart, ALL_FILES]);
    assert_eq!(calls("deb/prerm", &["upgrade", "0.2.0-1"]), [ALL_FILES]);
    assert_eq!(calls("deb/postrm", &["upgrade", "0.2.0-1"]), [ALL_FILES]);
    assert_eq!(calls("deb/prerm", &["remove"]), [disable, ALL_FILES]);
    assert_eq!(calls("deb/postrm", &["remove"]), [RELOAD, ALL_FILES]);
    assert_eq!(calls("deb/postrm", &["purge"]), ["files: 0"]);
}

#[test]
fn rpm_packages_restart_running_services_and_disable_removed_ones() {
    if !possible() {
        return;
    }
    let restart: &str = &format!("systemctl try-restart {BOTH}");
    let disable: &str = &format!("systemctl --no-reload disable --now {BOTH}");
    // The number of versions that are installed afterwards. An upgrade runs the new version's
    // post_install, then the old version's scripts.
    assert_eq!(calls("rpm/post_install", &["1"]), [USER, RELOAD, ALL_FILES]);
    assert_eq!(calls("rpm/post_install", &["2"]), [USER, RELOAD, ALL_FILES]);
    assert_eq!(calls("rpm/pre_uninstall", &["1"]), [ALL_FILES]);
    assert_eq!(calls("rpm/post_uninstall", &["1"]), [RELOAD, restart, ALL_FILES]);
    assert_eq!(calls("rpm/pre_uninstall", &["0"]), [disable, ALL_FILES]);
    assert_eq!(calls("rpm/post_uninstall", &["0"]), [RELOAD, ALL_FILES]);
}
