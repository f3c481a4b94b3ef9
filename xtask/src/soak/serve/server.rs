//! The server that is soaked: started, told to read its configuration again, looked at, ended.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::wire::{SoakConnection, pattern};
use xtask::shell;

const READY_WITHIN: Duration = Duration::from_secs(20);
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Looks in a row that see the same before a server counts as quiet.
const LOOKS: usize = 5;

/// A `linerate serve`.
#[derive(Debug)]
pub(super) struct SoakServer {
    pub(super) address: SocketAddr,
    child: Child,
    dir: tempfile::TempDir,
}

/// Memory and descriptors while it is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuietLevel {
    pub(super) memory_kb: u64,
    pub(super) descriptors: usize,
    pub(super) requests: u64,
}

impl SoakServer {
    /// Starts it, with a file of `file` bytes to serve.
    pub(super) fn start(io: &str, file: usize) -> Result<SoakServer> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join("public"))?;
        std::fs::write(dir.path().join("public/large.txt"), pattern(file))?;
        std::fs::write(dir.path().join("public/index.html"), "Hello, World!\n")?;
        std::fs::write(dir.path().join("secret"), "not for you")?;
        std::fs::write(dir.path().join("serve.toml"), configuration(0))?;
        let errors = std::fs::File::create(dir.path().join("errors"))?;
        let mut c = Command::new(shell::target_dir().join("release/linerate"));
        c.args(["serve", "--io", io, "--threads", "2", "--config"]).arg(dir.path().join("serve.toml"));
        let child = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn()?;
        let mut server = SoakServer { address: SocketAddr::from(([127, 0, 0, 1], 0)), child, dir };
        let begin = Instant::now();
        server.address = loop {
            let said = server.said();
            if let Some(address) = said.lines().find_map(|l| l.strip_prefix("listening on http://")) {
                break address.parse()?;
            }
            ensure!(
                server.child.try_wait()?.is_none() && begin.elapsed() < READY_WITHIN,
                "not ready: {said}"
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        Ok(server)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("errors")).unwrap_or_default()
    }

    fn signal(&self, name: &str) -> Result<()> {
        shell::run(shell::program("kill").arg(name).arg(self.child.id().to_string()))
    }

    /// Another configuration, and SIGHUP; the access log so far is taken away, as its rotation
    /// would.
    pub(super) fn reload(&self, number: usize) -> Result<()> {
        std::fs::write(self.dir.path().join("new.toml"), configuration(number))?;
        std::fs::rename(self.dir.path().join("new.toml"), self.dir.path().join("serve.toml"))?;
        // It may not be there yet.
        let _ = std::fs::remove_file(self.dir.path().join("access.log"));
        self.signal("-HUP")
    }

    /// Waits until no client is connected, memory stays the same, and descriptors are back to
    /// `at_most`: a connection that was closed lingers for a moment.
    pub(super) fn quiet(&self, within: Duration, at_most: usize) -> Result<QuietLevel> {
        self.reload(0)?;
        let begin = Instant::now();
        let mut looks: Vec<QuietLevel> = Vec::new();
        loop {
            std::thread::sleep(LOOKS_EVERY);
            let (open, waiting, level) = self.look()?;
            let same = |l: &&QuietLevel| (l.memory_kb, l.descriptors) == (level.memory_kb, level.descriptors);
            let busy = open > 1 || waiting > 0 || level.descriptors > at_most;
            if busy || looks.last().is_some_and(|l| !same(&l)) {
                looks.clear();
            }
            looks.push(level);
            if looks.len() >= LOOKS && !busy {
                return Ok(level);
            }
            ensure!(
                begin.elapsed() < within,
                "not quiet: {open} connections open, {waiting} handlers waiting, at most {at_most} descriptors expected, {level:?}"
            );
        }
    }

    /// Connections, handlers that wait, and the rest.
    fn look(&self) -> Result<(u64, u64, QuietLevel)> {
        let mut client = SoakConnection::connect(self.address)?;
        client.send("GET /stats HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")?;
        let answer = client.must()?;
        client.ends(false)?;
        let stats: serde_json::Value = serde_json::from_slice(&answer.body)?;
        let count = |name: &str| {
            stats
                .pointer(name)
                .and_then(serde_json::Value::as_u64)
                .with_context(|| format!("no {name} in {stats}"))
        };
        let pid = self.child.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let memory = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let level = QuietLevel {
            memory_kb: memory.context("no VmRSS")?.trim().parse()?,
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            requests: count("/requests")?,
        };
        Ok((count("/connections/open")?, count("/waiting")?, level))
    }

    /// SIGTERM; waits for the end, which must be clean, without unusual output.
    pub(super) fn end(mut self) -> Result<()> {
        self.signal("-TERM")?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < ENDS_WITHIN, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = self.said();
        let usual = |l: &&str| {
            l.starts_with("listening on ") || (l.starts_with("answered ") && !l.contains("still open"))
        };
        let unusual: Vec<&str> = said.lines().filter(|l| !usual(l)).collect();
        ensure!(unusual.is_empty(), "it said {unusual:?}");
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    }
}

impl Drop for SoakServer {
    fn drop(&mut self) {
        // It has mostly ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A configuration, another for each number; 0 is the first one.
fn configuration(number: usize) -> String {
    let odd = number % 2 == 1;
    let listen = if number % 3 == 1 { "\"127.0.0.1:0\", \"127.0.0.2:0\"" } else { "\"127.0.0.1:0\"" };
    format!(
        "listen = [{listen}]\ndir = \"public\"\ndemo_routes = true\naccess_log = \"access.log\"\nlog_format = \"{}\"\n\
         max_fields = {}\nheader_timeout = \"2s\"\nbody_timeout = \"5s\"\nidle_timeout = \"{}s\"\nwrite_timeout = \"5s\"\n",
        if odd { "json" } else { "common" },
        if odd { 100 } else { 120 },
        if odd { 4 } else { 3 },
    )
}
