//! The cost of an idle connection: one that had a single request and is quiet since.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::peer::{PeerProcess, ServePeer};
use super::scenario::{EPOLL, URING};
use crate::bench::Tools;
use crate::bench::alone::AloneFinding;
use crate::bench::table::{TablePage, as_table};

const CONNECTIONS: usize = 10_000;
/// Ours, kB per connection: at most.
const EPOLL_AT_MOST: f64 = 1.0;
const URING_AT_MOST: f64 = 2.0;
/// How long servers get to give back what they only needed for the moment.
const SETTLES: Duration = Duration::from_millis(700);

/// Measures each server alone, fresh.
pub(super) fn run(t: &Tools, peers: &[ServePeer], page: &mut TablePage) -> Result<Vec<AloneFinding>> {
    let (mut findings, mut rows) = (Vec::new(), Vec::new());
    for &peer in peers {
        match one(t, peer) {
            Ok((own, kernel)) => {
                println!(
                    "  {:<16} {own:>8.2} kB each, and in the kernel {kernel:.2} kB (both ends)",
                    peer.name()
                );
                rows.push(format!("| {} | {own:.2} | {kernel:.2} |", peer.name()));
                findings.extend(finding(peer, own));
            }
            Err(e) => {
                println!("  {}: {e:#}", peer.name());
                page.add_doubt(format!("idle10k: {}: {e:#}", peer.name()));
            }
        }
    }
    let head = format!(
        "| {CONNECTIONS} idle connections | kB of the server's memory each (resident, after minus before) | kB of kernel memory each \
         (slab, both ends of the connection) |"
    );
    page.add_block(as_table(&head, &rows));
    Ok(findings)
}

fn finding(peer: ServePeer, own: f64) -> Option<AloneFinding> {
    let most = match peer.name() {
        EPOLL => EPOLL_AT_MOST,
        URING => URING_AT_MOST,
        _ => return None,
    };
    let what = format!("memory per idle connection, {}", peer.name());
    Some(AloneFinding::new(&what, format!("at most {most} kB"), format!("{own:.2} kB"), own <= most))
}

/// The server's and the kernel's memory per connection, kB.
fn one(t: &Tools, peer: ServePeer) -> Result<(f64, f64)> {
    let server = PeerProcess::start(t, peer)?;
    let mut all = Vec::with_capacity(CONNECTIONS);
    // Memory allocated once, for the first connections, is not a connection's cost.
    for _ in 0..4 {
        drop(ask(&server)?);
    }
    std::thread::sleep(SETTLES);
    let before = (server.memory_kb("VmRSS")?, slab_kb()?);
    for _ in 0..CONNECTIONS {
        all.push(ask(&server)?);
    }
    std::thread::sleep(SETTLES);
    let after = (server.memory_kb("VmRSS")?, slab_kb()?);
    let each = |before: u64, after: u64| (after as f64 - before as f64) / CONNECTIONS as f64;
    // Still open: a server that closed some has saved memory in a way that does not count.
    let mut closed = 0;
    for connection in &mut all {
        connection.set_nonblocking(true)?;
        closed += usize::from(matches!(connection.read(&mut [0; 1]), Ok(0)));
    }
    ensure!(closed == 0, "{closed} of {CONNECTIONS} connections were closed");
    Ok((each(before.0, after.0), each(before.1, after.1)))
}

/// A new connection, asked once.
fn ask(server: &PeerProcess) -> Result<TcpStream> {
    let mut c =
        TcpStream::connect(server.address).context("cannot connect (is `ulimit -n` above 11,000?)")?;
    c.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(c, "GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, World!\n") {
        let mut piece = [0; 1024];
        let n = c.read(&mut piece)?;
        ensure!(n > 0 && answer.len() < 65_536, "no answer that ends as it should");
        answer.extend_from_slice(&piece[..n]);
    }
    Ok(c)
}

fn slab_kb() -> Result<u64> {
    let all = std::fs::read_to_string("/proc/meminfo")?;
    let slab = all.lines().find_map(|l| l.strip_prefix("Slab:")?.trim().strip_suffix(" kB")?.parse().ok());
    slab.context("no Slab in /proc/meminfo")
}
