//! The server of a run: fresh for each, so that its count is this run's.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Tools;
use xtask::nginx::Nginx;

/// Longest life of a server: whatever goes wrong, none is left behind.
const LIMIT_S: u64 = 300;

/// nginx's log of POST requests, in its folder.
const POSTS: &str = "posts.log";

/// A running server.
#[derive(Debug)]
pub(crate) enum BenchServer {
    /// Ours: it counts.
    Bare(Bare),
    /// nginx: its processor time is all that is asked of it.
    Nginx(Nginx),
}

/// The bare server behind the wrapper that pins and favours it.
#[derive(Debug)]
pub(crate) struct Bare {
    child: Child,
    /// Ends the server when it is dropped.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

/// A server behind the wrapper: both end by force when this is dropped.
#[derive(Debug)]
pub(crate) struct BenchProcess(pub(crate) Child);

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // The wrapper's program ends with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server's counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounts {
    /// Requests, where it counts.
    pub(crate) requests: Option<u64>,
    /// Paths of the POST requests, where it notes them.
    pub(crate) posts: Vec<String>,
    /// Its processor time, seconds.
    pub(crate) cpu_s: f64,
    /// When the first request came, microseconds of its clock.
    pub(crate) first_us: u64,
    /// When the last request came, on the same clock.
    pub(crate) last_us: u64,
    /// Connections that it accepted.
    pub(crate) connections: u64,
    /// How many requests had come when, on the same clock.
    pub(crate) ticks_us: Vec<(u64, u64)>,
    /// When it stalled, on the same clock.
    pub(crate) stalls_us: Vec<(u64, u64)>,
}

impl BenchServer {
    /// The bare server with these options more.
    pub(crate) fn bare(t: &Tools, dir: &Path, options: &[&str]) -> Result<BenchServer> {
        BenchServer::raw("serve", t, dir, options)
    }

    /// The bare server of HTTP/2.
    pub(crate) fn bare_h2(t: &Tools, dir: &Path, options: &[&str]) -> Result<BenchServer> {
        BenchServer::raw("serve-h2", t, dir, options)
    }

    fn raw(command: &str, t: &Tools, dir: &Path, options: &[&str]) -> Result<BenchServer> {
        let mut c = Command::new(&t.raw);
        c.args(&wrapper(t, dir)[1..]).arg(&t.raw).args([command, "--until-stdin-ends", "true"]);
        c.args(["--spin", if t.spin { "true" } else { "false" }]).args(options);
        let mut child =
            c.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the bare server")?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().context("no pipe")?);
        let first = line(&mut stdout)?;
        let address = first["listening"].as_str().context("the bare server does not listen")?.parse()?;
        Ok(BenchServer::Bare(Bare { child, stdin, stdout, address }))
    }

    /// nginx with a body of this many bytes.
    pub(crate) fn nginx(t: &Tools, dir: &Path, body: usize) -> Result<BenchServer> {
        Nginx::start(body, "", &wrapper(t, dir)).map(BenchServer::Nginx)
    }

    /// nginx that closes each connection after `requests` requests. It notes each POST.
    pub(crate) fn closing_nginx(t: &Tools, dir: &Path, body: usize, requests: u32) -> Result<BenchServer> {
        let more = format!(
            "keepalive_requests {requests}; location /post {{ access_log {POSTS}; {} }}",
            xtask::nginx::hello(body)
        );
        Nginx::start(body, &more, &wrapper(t, dir)).map(BenchServer::Nginx)
    }

    /// The address that it listens at.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            BenchServer::Bare(b) => b.address,
            BenchServer::Nginx(n) => n.address,
        }
    }

    /// Ends it; what it saw.
    pub(crate) fn end(self) -> Result<ServerCounts> {
        match self {
            BenchServer::Nginx(n) => {
                let log = std::fs::read_to_string(n.folder().join(POSTS)).unwrap_or_default();
                let path = |line: &str| Some(line.split_once("\"POST ")?.1.split(' ').next()?.to_owned());
                let posts = log.lines().filter_map(path).collect();
                Ok(ServerCounts { cpu_s: n.cpu_seconds().unwrap_or(0.0), posts, ..ServerCounts::default() })
            }
            BenchServer::Bare(mut b) => {
                drop(b.stdin.take());
                let last = line(&mut b.stdout)?;
                b.child.wait()?;
                let pairs = |name: &str| {
                    let all = last[name].as_array().into_iter().flatten();
                    all.filter_map(|p| Some((p[0].as_u64()?, p[1].as_u64()?))).collect()
                };
                Ok(ServerCounts {
                    posts: Vec::new(),
                    requests: last["requests"].as_u64(),
                    cpu_s: last["cpu_s"].as_f64().unwrap_or(0.0),
                    first_us: last["first_us"].as_u64().unwrap_or(0),
                    last_us: last["last_us"].as_u64().unwrap_or(0),
                    connections: last["connections"].as_u64().unwrap_or(0),
                    ticks_us: pairs("ticks_us"),
                    stalls_us: pairs("stalls_us"),
                })
            }
        }
    }
}

/// The command prefix that pins a server, raises its priority and limits its life.
pub(crate) fn wrapper(t: &Tools, dir: &Path) -> Vec<String> {
    let (raw, cost) = (t.raw.display().to_string(), dir.join("server.json").display().to_string());
    let (core, limit) = (t.cores[0].to_string(), LIMIT_S.to_string());
    [&raw, "run", "--core", &core, "--limit-s", &limit, "--out", &cost, "--"].map(str::to_owned).into()
}

fn line(from: &mut BufReader<ChildStdout>) -> Result<Value> {
    let mut text = String::new();
    from.read_line(&mut text)?;
    serde_json::from_str(&text).with_context(|| format!("the bare server said {text:?}"))
}
