//! Activity at the server while `explain` looks: load, and callers of other kinds.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use linerate_netbox::{Namespace, NamespaceProcess, NetBox};

use super::case::BackgroundActivity;
use super::servers::Programs;

/// Longest wait of a caller. Reason: it must notice that it shall end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest the other client may take for its first round.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How far apart callers begin.
const APART: Duration = Duration::from_millis(83);

/// A running activity; ends when dropped.
#[derive(Debug)]
pub(crate) enum Ongoing {
    Process { _process: NamespaceProcess },
    Threads { stop: Arc<AtomicBool>, threads: Vec<JoinHandle<()>> },
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        if let Ongoing::Threads { stop, threads } = self {
            stop.store(true, Ordering::Relaxed);
            threads.drain(..).for_each(|t| drop(t.join()));
        }
    }
}

impl Ongoing {
    fn process(mut c: Command, from: &Namespace) -> Result<Ongoing> {
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Ongoing::Process { _process: from.spawn(c)? })
    }

    pub(crate) fn start(
        beside: BackgroundActivity,
        net: &Arc<NetBox>,
        programs: &Programs,
        to: SocketAddr,
    ) -> Result<Ongoing> {
        match beside {
            BackgroundActivity::Load(flags) => load(flags, net.client(), programs, to),
            BackgroundActivity::LoadNear(flags) => load(flags, net.server(), programs, to),
            BackgroundActivity::Hold(n) => Ok(threads(n, net, move |net, stop| {
                let held = connect(net, to);
                while held.is_some() && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
            })),
            BackgroundActivity::Churn(n, held_ms, pause_ms) => Ok(threads(n, net, move |net, stop| {
                while !stop.load(Ordering::Relaxed) {
                    let held = connect(net, to);
                    std::thread::sleep(Duration::from_millis(held_ms));
                    drop(held);
                    std::thread::sleep(Duration::from_millis(pause_ms));
                }
            })),
            BackgroundActivity::Calls(path, pause_ms) => Ok(threads(1, net, move |net, stop| {
                while !stop.load(Ordering::Relaxed) {
                    call(net, to, path, |stream| stream.read_to_end(&mut Vec::new()).map(drop));
                    std::thread::sleep(Duration::from_millis(pause_ms));
                }
            })),
            BackgroundActivity::Dawdle(path, bytes) => Ok(threads(1, net, move |net, stop| {
                while !stop.load(Ordering::Relaxed) {
                    call(net, to, path, |stream| dawdle(stream, bytes, stop));
                }
            })),
            BackgroundActivity::Collide(low, high) => collide(low, high, net.client(), programs, to),
            BackgroundActivity::Bursts(sockets) => {
                let mut c = net.client().command("node");
                c.arg(programs.script("caller.js")).args([to.ip().to_string(), to.port().to_string()]);
                c.arg(sockets.to_string());
                Ongoing::process(c, net.client())
            }
        }
    }
}

fn load(flags: &str, from: &Namespace, programs: &Programs, to: SocketAddr) -> Result<Ongoing> {
    let (path, flags) = flags.split_once(' ').context("a path, then flags")?;
    let mut c = from.command(&programs.linerate);
    // As long as it takes: it is ended when the case is.
    let scheme = if programs.certificate().is_some() { "https" } else { "http" };
    c.arg("load")
        .arg(format!("{scheme}://{to}{path}"))
        .args(programs.certificate().map(|_| "-k"))
        .args(flags.split(' '))
        .args(["-d", "3600s", "--quiet"]);
    Ongoing::process(c, from)
}

/// Until each port was used once.
fn collide(low: u16, high: u16, from: &Namespace, programs: &Programs, to: SocketAddr) -> Result<Ongoing> {
    let dir = tempfile::tempdir()?;
    let ready = dir.path().join("ready");
    let mut c = from.command("python3");
    c.arg(programs.script("collide.py")).args([to.ip().to_string(), to.port().to_string()]);
    c.args([low.to_string(), high.to_string()]).arg(&ready);
    let ongoing = Ongoing::process(c, from)?;
    let begin = Instant::now();
    while !ready.exists() {
        ensure!(begin.elapsed() < READY_WITHIN, "the other client did not get through its ports");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(ongoing)
}

fn threads(
    n: usize,
    net: &Arc<NetBox>,
    work: impl Fn(&NetBox, &AtomicBool) + Clone + Send + 'static,
) -> Ongoing {
    let stop = Arc::new(AtomicBool::new(false));
    let thread = |i| {
        let (net, stop, work) = (Arc::clone(net), Arc::clone(&stop), work.clone());
        std::thread::spawn(move || {
            // Not all in step.
            std::thread::sleep(APART * i as u32);
            work(&net, &stop);
        })
    };
    let threads = (0..n).map(thread).collect();
    Ongoing::Threads { stop, threads }
}

fn connect(net: &NetBox, to: SocketAddr) -> Option<TcpStream> {
    net.client().run(|| TcpStream::connect_timeout(&to, PATIENCE)).ok()?.ok()
}

/// Reads a response a piece at a time.
fn dawdle(stream: &mut TcpStream, bytes: usize, stop: &AtomicBool) -> io::Result<()> {
    let mut piece = vec![0; bytes];
    while !stop.load(Ordering::Relaxed) && stream.read(&mut piece)? > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A complete call; its outcome does not matter.
fn call(net: &NetBox, to: SocketAddr, path: &str, read: impl FnOnce(&mut TcpStream) -> io::Result<()>) {
    let Some(mut stream) = connect(net, to) else { return };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_ok() {
        let _ = read(&mut stream);
    }
}
