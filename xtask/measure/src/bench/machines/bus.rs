//! A nats-server of the bench's own, and what processes cost.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use xtask::shell;

/// How long programs may take to get ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A program that ends with its value. What it says goes into files.
#[derive(Debug)]
pub(super) struct BusProgram {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl BusProgram {
    pub(super) fn start(mut command: Command, folder: &Path, name: &str) -> Result<BusProgram> {
        let [out, err] = ["out", "err"].map(|ending| folder.join(format!("{name}.{ending}")));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let child = command.spawn().with_context(|| format!("cannot start {}", shell::words(&command)))?;
        Ok(BusProgram { name: name.to_owned(), child, out, err })
    }

    pub(super) fn out(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    pub(super) fn err(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Waits until it has said something.
    pub(super) fn says(&mut self, what: &str) -> Result<()> {
        self.wait_for(what, READY_WITHIN, |program| {
            program.out().contains(what) || program.err().contains(what)
        })
    }

    /// Waits until something holds.
    fn wait_for(&mut self, what: &str, within: Duration, is: impl Fn(&BusProgram) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !is(self) {
            let ended = self.child.try_wait()?.is_some() && !is(self);
            if ended || begin.elapsed() >= within {
                bail!("{}: no {what:?}: {} {}", self.name, self.out(), self.err());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Whether it has ended.
    pub(super) fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end; an error unless it went well.
    pub(super) fn end(&mut self, within: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{} ended with {status}: {}", self.name, self.err());
                return Ok(());
            }
            ensure!(begin.elapsed() < within, "{} did not end within {within:?}", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has cost so far.
    pub(super) fn cost(&self) -> ProcessCost {
        ProcessCost::of(self.child.id()).unwrap_or_default()
    }
}

impl Drop for BusProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessCost {
    pub(super) cpu_s: f64,
    pub(super) most_rss_mb: f64,
}

impl ProcessCost {
    fn of(pid: u32) -> Option<ProcessCost> {
        /// Of `times` in /proc: the kernel's interface has this value on all machines.
        const TICKS: f64 = 100.0;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let rss = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        Some(ProcessCost {
            cpu_s: (ticks(11)? + ticks(12)?) / TICKS,
            most_rss_mb: rss.and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0,
        })
    }
}

/// A nats-server with JetStream and monitoring.
#[derive(Debug)]
pub(super) struct NatsServer {
    pub(super) program: BusProgram,
    pub(super) url: String,
    monitor: SocketAddr,
    pub(super) folder: tempfile::TempDir,
}

/// Bytes and messages that the agents' connections have moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes: f64,
    pub(super) messages: f64,
}

/// What the stream of results holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) messages: f64,
    pub(super) bytes: f64,
}

impl NatsServer {
    pub(super) fn start() -> Result<NatsServer> {
        let hint = "nats-server is not in PATH (go install github.com/nats-io/nats-server/v2@v2.15.2)";
        let server = shell::find("nats-server").or_else(installed_by_go).context(hint)?;
        let folder = tempfile::tempdir()?;
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let (at, monitor) = (free()?, free()?);
        let mut command = Command::new(server);
        command.args(["-a", "127.0.0.1", "-js", "-p", &at.port().to_string()]);
        command.args(["-m", &monitor.port().to_string(), "-sd"]).arg(folder.path().join("store"));
        let mut program = BusProgram::start(command, folder.path(), "nats-server")?;
        program.says("Server is ready")?;
        Ok(NatsServer { program, url: format!("nats://{at}"), monitor, folder })
    }

    fn monitored(&self, path: &str) -> Result<Value> {
        let mut stream = TcpStream::connect_timeout(&self.monitor, Duration::from_secs(5))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").context("no answer of the monitoring")?.1;
        Ok(serde_json::from_str(body)?)
    }

    /// The connections that there are.
    pub(super) fn connections(&self) -> Result<Vec<u64>> {
        let page = self.monitored("/connz?limit=4096")?;
        let all = page["connections"].as_array().context("no connections")?;
        Ok(all.iter().filter_map(|connection| connection["cid"].as_u64()).collect())
    }

    /// What these connections have moved, in both directions.
    pub(super) fn traffic(&self, of: &[u64]) -> Result<Traffic> {
        let page = self.monitored("/connz?limit=4096")?;
        let all = page["connections"].as_array().context("no connections")?;
        let mut sum = Traffic::default();
        for connection in all.iter().filter(|c| c["cid"].as_u64().is_some_and(|cid| of.contains(&cid))) {
            let number = |name: &str| connection[name].as_f64().unwrap_or(0.0);
            sum.bytes += number("in_bytes") + number("out_bytes");
            sum.messages += number("in_msgs") + number("out_msgs");
        }
        Ok(sum)
    }

    fn streams(&self) -> Result<Vec<Value>> {
        let page = self.monitored("/jsz?accounts=true&streams=true&consumers=true")?;
        Ok(page["account_details"][0]["stream_detail"].as_array().context("no streams")?.clone())
    }

    /// What the stream of results holds.
    pub(super) fn stored(&self) -> Result<Stored> {
        let streams = self.streams()?;
        let ours = streams.iter().find(|s| s["name"] == "LINERATE").context("no stream LINERATE")?;
        let number = |name: &str| ours["state"][name].as_f64().unwrap_or(0.0);
        Ok(Stored { messages: number("messages"), bytes: number("bytes") })
    }

    /// Consumers of all streams, and messages that the consumer of results has not been given yet.
    pub(super) fn consumers(&self) -> Result<(u64, u64)> {
        let streams = self.streams()?;
        let of = |s: &Value| s["consumer_detail"].as_array().cloned().unwrap_or_default();
        let all = streams.iter().map(|s| of(s).len() as u64).sum();
        let results = streams.iter().filter(|s| s["name"] == "LINERATE").flat_map(of);
        Ok((all, results.filter_map(|c| c["num_pending"].as_u64()).max().unwrap_or(0)))
    }
}

fn installed_by_go() -> Option<PathBuf> {
    let file = Path::new(&std::env::var_os("HOME")?).join("go/bin/nats-server");
    file.is_file().then_some(file)
}
