//! Uses `cargo xtask net run` as people do, and kills it. Needs root; tests
//! that cannot run report that.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_skips::{need, skip};

/// A test that waits longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn net(words: &[&str]) -> Option<Command> {
    if let Some(lack) = linerate_netbox::NetBox::unavailable() {
        skip(need::NAMESPACES, lack);
        return None;
    }
    let mut c = Command::new(env!("CARGO_BIN_EXE_xtask-measure"));
    c.args(["net", "run"]).args(words).stdin(Stdio::null());
    Some(c)
}

fn output(words: &[&str]) -> Option<(Option<i32>, String, String)> {
    let out = net(words)?.output().expect("it runs");
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Some((out.status.code(), text(&out.stdout), text(&out.stderr)))
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_command_sees_its_network_and_its_exit_code_is_ours() {
    let line = "test $(ip -o -4 addr show dev net0 | grep -c $CLIENT/) = 1 && echo $SERVER && exit 7";
    let Some((code, out, errors)) = output(&["--", "sh", "-c", line]) else { return };
    assert_eq!((code, out.as_str()), (Some(7), "10.99.2.1\n"), "{errors}");
}

#[test]
fn what_cannot_be_is_named_and_nothing_runs() {
    for (words, says) in [
        (&["--queue", "9000", "--", "echo", "ran"][..], "without a rate"),
        (&["--server", "exit 3", "--", "echo", "ran"], "ended before it listened"),
        (&["--loss", "200%", "--", "echo", "ran"], "from 0% to 100%"),
    ] {
        let Some((code, out, errors)) = output(words) else { return };
        assert_eq!((code, out.as_str()), (Some(2), ""), "{words:?}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mark = |name: &str| format!("echo >{}/{name}; exec sleep 1000", dir.path().display());
    let (server, client) = (mark("server"), mark("client"));
    let Some(mut c) = net(&["--no-wait", "--server", &server, "--", "sh", "-c", &client]) else { return };
    // Their numbers are those of their own process namespace, so they are known by their
    // environment.
    let mut child = c.env("NETBOX_TEST", dir.path()).spawn().expect("it starts");
    let files = ["server", "client"].map(|n| dir.path().join(n));
    wait_until("both run", || files.iter().all(|f| f.exists()));
    assert!(alive(dir.path()) >= 2, "they live");
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    wait_until("they end with it", || alive(dir.path()) == 0);
}

/// Processes of this machine that have `dir` in their environment.
fn alive(dir: &Path) -> usize {
    let tag = dir.display().to_string();
    let has = |e: &std::fs::DirEntry| {
        let environment = std::fs::read(e.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&tag)
    };
    std::fs::read_dir("/proc").expect("/proc").flatten().filter(has).count()
}
