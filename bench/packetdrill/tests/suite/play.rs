//! Plays scripts, several at a time, each with a time limit.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_packetdrill::adapt::adapt;

use crate::build::Tools;

/// Real time for a script: ours run in virtual time, and Linux's longest successful run takes 12 s.
const LIMIT: Duration = Duration::from_secs(25);

/// The stack that a script is played against.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Player {
    Ours,
    Linux,
}

/// The result of a script.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
}

/// Linux's settings that differ between machines, set to match ours: the window's scale, an answer
/// to each early segment, and SYN retransmissions after 1, 2, 4 s.
const NAMESPACE: &str = "ip link set lo up
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad
echo '4096 131072 6291456' > /proc/sys/net/ipv4/tcp_rmem
echo 0 > /proc/sys/net/ipv4/tcp_comp_sack_nr
echo 0 > /proc/sys/net/ipv4/tcp_syn_linear_timeouts
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
PATH=\"$1:$PATH\" exec \"$2\" \"$3\"";

/// Plays these scripts.
pub(crate) fn all(tools: &Tools, player: Player, names: &[String]) -> BTreeMap<String, Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let threads = thread::available_parallelism().map_or(2, usize::from) * 2;
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = one(tools, player, name);
                    outcomes.lock().expect("no panic").insert(name.clone(), outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic")
}

fn one(tools: &Tools, player: Player, name: &str) -> Outcome {
    let bytes = fs::read(tools.script(name)).expect("a script");
    let whose = if player == Player::Ours { "ours" } else { "linux" };
    let adapted = tools.adapted(whose, name);
    fs::create_dir_all(adapted.parent().expect("a folder")).expect("a folder");
    fs::write(&adapted, adapt(&String::from_utf8_lossy(&bytes))).expect("a script");
    let mut command = match player {
        Player::Ours => Command::new(tools.ours()),
        Player::Linux => {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", NAMESPACE, "sh"]).arg(tools.stand_ins()).arg(tools.linux());
            command
        }
    };
    let spawned = command.arg(&adapted).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.expect("packetdrill starts");
    match within(&mut child, LIMIT) {
        Some(true) => Outcome::Passed,
        Some(false) => Outcome::Failed(reason(&mut child)),
        None => Outcome::Failed("out of time".to_owned()),
    }
}

/// Whether it succeeded; `None` if it had to be killed.
fn within(child: &mut Child, limit: Duration) -> Option<bool> {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status.success());
        }
        thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// packetdrill's first line, without the file's name.
fn reason(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.read_to_string(&mut text);
    }
    let line = text.lines().next().unwrap_or("it says nothing");
    line.split_once(".pkt:").map_or(line, |(_, rest)| rest).trim().to_owned()
}
