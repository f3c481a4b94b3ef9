//! A program in the server's namespace: started, asked for its counts, and ended as its users end it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use super::configuration::{ACCESS, PID, SAID, address, words};
use super::scenario::{BODY, BYPASS, BypassScenario, BypassServer};
use crate::bench::Tools;
use crate::bench::cable::{Cable, SERVER};
use crate::bench::server::{BenchProcess, wrapper};
use xtask::nginx::{configuration, hello};
use xtask::shell;

/// The server's port.
pub(super) const PORT: u16 = 8080;
/// The port that nginx passes requests to, on the kernel, in the server's namespace.
const UPSTREAM: u16 = 8081;
const READY_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What the library writes once connections are in user space.
const SERVES: &str = "is served by TCP in user space";

/// A running program.
pub(super) struct UnchangedProgram {
    wrapper: BenchProcess,
    dir: PathBuf,
    is_ours: bool,
    /// Segments that the kernel of its namespace had resent when it was ready.
    resent_before: u64,
    _upstream: Option<BenchProcess>,
}

/// What a program's end of the cable counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ServedCounts {
    /// Segments that it sent again.
    pub(super) resent: u64,
    /// The share of connections in user space; `None`: all were to be the kernel's.
    pub(super) in_user_space: Option<f64>,
    /// Requests in its log, where it has one.
    pub(super) requests: Option<u64>,
}

impl UnchangedProgram {
    /// Starts it, and waits until it accepts connections.
    pub(super) fn start(
        t: &Tools,
        cable: &Cable,
        s: &BypassScenario,
        who: &str,
        dir: &Path,
    ) -> Result<UnchangedProgram> {
        let (at, passed_to) = (address(PORT)?, SocketAddr::new([127, 0, 0, 1].into(), UPSTREAM));
        let is_ours = who == BYPASS;
        let upstream = match s.server {
            BypassServer::Nginx("/proxy") => Some(upstream(t, cable, passed_to, dir)?),
            _ => None,
        };
        let mut all: Vec<String> = cable.enter().collect();
        all.extend(wrapper(t, dir));
        if is_ours {
            all.push(t.linerate.display().to_string());
            let flags = format!("bypass --interface {} --listen {at} --", SERVER.0);
            all.extend(flags.split(' ').map(str::to_owned));
        }
        all.extend(words(s.server, at, passed_to, dir)?);
        let said = fs::File::options().create(true).append(true).open(dir.join(SAID))?;
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let wrapper = BenchProcess(command.spawn().context("cannot start the server")?);
        let mut started =
            UnchangedProgram { wrapper, dir: dir.to_owned(), is_ours, resent_before: 0, _upstream: upstream };
        started.wait_until_ready(at)?;
        started.resent_before = resent_by_kernel(cable)?;
        Ok(started)
    }

    fn wait_until_ready(&mut self, at: SocketAddr) -> Result<()> {
        let begin = Instant::now();
        // A connection before that would be the kernel's.
        while self.is_ours && !self.said().contains(SERVES) {
            self.check_on_time(begin)?;
        }
        while TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_err() {
            self.check_on_time(begin)?;
        }
        Ok(())
    }

    fn check_on_time(&mut self, begin: Instant) -> Result<()> {
        if let Some(status) = self.wrapper.0.try_wait()? {
            bail!("the server ended at once ({status}): {}", self.said());
        }
        ensure!(begin.elapsed() < READY_WITHIN, "not ready after {READY_WITHIN:?}: {}", self.said());
        sleep(LOOK_EVERY);
        Ok(())
    }

    /// Its own folder.
    pub(super) fn folder(&self) -> &Path {
        &self.dir
    }

    fn said(&self) -> String {
        fs::read_to_string(self.dir.join(SAID)).unwrap_or_default()
    }

    /// What it has counted so far.
    pub(super) fn counts(&self, t: &Tools, cable: &Cable) -> Result<ServedCounts> {
        let requests = match fs::read(self.dir.join(ACCESS)) {
            Ok(log) => Some(log.iter().filter(|byte| **byte == b'\n').count() as u64),
            Err(_) => None,
        };
        if !self.is_ours {
            let resent = resent_by_kernel(cable)?.saturating_sub(self.resent_before);
            return Ok(ServedCounts { resent, in_user_space: None, requests });
        }
        let mut c = inside(cable);
        c.arg(&t.linerate).args(["bypass", "--status", "--interface", SERVER.0, "--json", "-"]);
        let (resent, share) = counted(&serde_json::from_str(&shell::output(&mut c)?)?)?;
        Ok(ServedCounts { resent, in_user_space: Some(share), requests })
    }

    /// Ends it as its users do, and waits for its last process.
    pub(super) fn end(mut self) -> Result<()> {
        let program = fs::read_to_string(self.dir.join(PID)).context("it wrote no process id")?;
        let mut all = descendants(self.wrapper.0.id());
        shell::run(Command::new("kill").args(["-TERM", program.trim()]))?;
        let begin = Instant::now();
        while self.wrapper.0.try_wait()?.is_none() || all.iter().any(|pid| is_there(*pid)) {
            if begin.elapsed() > ENDS_WITHIN {
                all.retain(|pid| is_there(*pid));
                let names = all.iter().map(u32::to_string);
                let _ = Command::new("kill").arg("-KILL").args(names).stderr(Stdio::null()).status();
                bail!("{} processes did not end within {ENDS_WITHIN:?}: {}", all.len(), self.said());
            }
            sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// nginx on the kernel, on the client's core or one that nobody else uses: the proxy's has enough to do.
fn upstream(t: &Tools, cable: &Cable, at: SocketAddr, dir: &Path) -> Result<BenchProcess> {
    let nginx = shell::find("nginx").context("nginx is not installed")?;
    let folder = dir.join("upstream");
    fs::create_dir(&folder)?;
    let text = configuration(at, "", &format!("location / {{ {} }}", hello(BODY)));
    fs::write(folder.join("nginx.conf"), text)?;
    let other = if std::thread::available_parallelism()?.get() > 2 { 2 } else { t.cores[1] };
    let t = Tools { cores: [other, other], ..t.clone() };
    let mut c = inside(cable);
    c.args(wrapper(&t, &folder)).arg(nginx).arg("-p").arg(&folder).args([
        "-c",
        "nginx.conf",
        "-e",
        "error.log",
    ]);
    let child = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut started = BenchProcess(child.context("cannot start the upstream")?);
    let begin = Instant::now();
    while !folder.join("nginx.pid").exists() {
        ensure!(started.0.try_wait()?.is_none(), "the upstream ended at once");
        ensure!(begin.elapsed() < READY_WITHIN, "the upstream is not ready after {READY_WITHIN:?}");
        sleep(LOOK_EVERY);
    }
    Ok(started)
}

/// A command in the server's namespace, whose words are still to come.
fn inside(cable: &Cable) -> Command {
    let mut enter = cable.enter();
    let mut c = Command::new(enter.next().unwrap_or_default());
    c.args(enter);
    c
}

/// Lets the accept queue of servers be as long as they ask for.
pub(super) fn raise_queues(cable: &Cable) -> Result<()> {
    const RAISE: &str =
        "echo 8192 >/proc/sys/net/core/somaxconn && echo 8192 >/proc/sys/net/ipv4/tcp_max_syn_backlog";
    shell::output(inside(cable).args(["sh", "-c", RAISE])).map(drop)
}

/// Segments that the kernel of the server's namespace has sent again.
fn resent_by_kernel(cable: &Cable) -> Result<u64> {
    resent(&shell::output(inside(cable).args(["cat", "/proc/net/snmp"]))?)
}

/// `RetransSegs` of /proc/net/snmp.
pub(super) fn resent(snmp: &str) -> Result<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = lines.next().zip(lines.next()).context("/proc/net/snmp has no Tcp")?;
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "RetransSegs").context("no RetransSegs")?;
    value.parse().context("RetransSegs is no number")
}

/// Segments resent, and the share of connections in user space, by the status of `linerate bypass`.
fn counted(status: &Value) -> Result<(u64, f64)> {
    let share = status["in_user_space"].as_f64().context("no connection came")?;
    let of = |counts: &Value| counts["retransmits"].as_u64().context("no count of retransmits");
    let mut all = of(&status["ended_counts"])?;
    for worker in status["workers"].as_array().context("no workers")? {
        all += of(worker)?;
    }
    Ok((all, share))
}

/// A process's children, theirs, and so on.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|list| list.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(descendants(*child))).collect()
}

fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resends_of_the_kernel_are_read_by_their_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoMin InSegs OutSegs RetransSegs InErrs\nTcp: 200 1 2 37 0\nUdp: A\nUdp: 9\n";
        assert_eq!(resent(snmp).expect("a number"), 37);
        assert!(resent("Ip: A\nIp: 1\n").is_err());
    }

    #[test]
    fn resends_of_all_workers_count_also_of_those_that_ended() {
        let status = serde_json::json!({
            "in_user_space": 0.995,
            "workers": [{ "retransmits": 3 }, { "retransmits": 4 }],
            "ended_counts": { "retransmits": 5 },
        });
        assert_eq!(counted(&status).expect("counts"), (12, 0.995));
        assert!(counted(&serde_json::json!({ "in_user_space": null })).is_err());
    }

    #[test]
    fn children_of_children_are_found() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("sh");
        let begin = Instant::now();
        let found = loop {
            let found = descendants(child.id());
            if found.len() == 1 || begin.elapsed() > READY_WITHIN {
                break found;
            }
            sleep(LOOK_EVERY);
        };
        assert!(found.len() == 1 && is_there(found[0]), "{found:?}");
        assert!(descendants(std::process::id()).contains(&found[0]));
        shell::run(Command::new("kill").args(["-KILL", &found[0].to_string()])).expect("killed");
        child.wait().expect("it ends");
    }
}
