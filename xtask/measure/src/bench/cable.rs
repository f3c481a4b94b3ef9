//! The network of a run: a second namespace for the server, and a veth pair between the two.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use xtask::shell;

/// The interface and the address of each end.
pub(super) const CLIENT: (&str, &str) = ("bench-client", "10.78.0.2");
pub(super) const SERVER: (&str, &str) = ("bench-server", "10.78.0.1");
/// How the addresses begin that a client past the kernel sends from.
pub(super) const FROM: &str = "10.78.0.";

/// The server's namespace; it goes when its keeper goes, and that one goes when we do.
#[derive(Debug)]
pub(super) struct Cable {
    keeper: Child,
}

impl Cable {
    /// Lays it; the process is in the client's namespace, its own, already.
    pub(super) fn lay() -> Result<Cable> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start unshare")?;
        let mut out = keeper.stdout.take().context("no pipe")?;
        let there = out.read_exact(&mut [0]).is_ok();
        let cable = Cable { keeper };
        ensure!(there, "no namespace for the server can be had");
        let pid = cable.keeper.id();
        ip(&format!("link add {} type veth peer name {} netns {pid}", CLIENT.0, SERVER.0))?;
        ip(&format!("address add {}/24 dev {}", CLIENT.1, CLIENT.0))?;
        ip(&format!("link set {} up", CLIENT.0))?;
        for line in [
            format!("ip address add {}/24 dev {}", SERVER.1, SERVER.0),
            format!("ip link set {} up", SERVER.0),
            "ip link set lo up".to_owned(),
        ] {
            let mut c = Command::new("nsenter");
            c.args(cable.enter().skip(1)).args(line.split(' '));
            shell::output(&mut c)?;
        }
        Ok(cable)
    }

    /// The words that run what follows them in the server's namespace.
    pub(super) fn enter(&self) -> impl Iterator<Item = String> {
        let pid = self.keeper.id().to_string();
        ["nsenter", "--target", &pid, "--net", "--"].map(str::to_owned).into_iter()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn ip(words: &str) -> Result<()> {
    shell::output(Command::new("ip").args(words.split(' '))).map(drop)
}
