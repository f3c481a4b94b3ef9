//! Paired rounds of servers: each round sends to every one of them with every client; the order
//! rotates.

use std::path::Path;

use anyhow::Result;

use super::peer::PeerProcess;
use crate::bench::Tools;
use crate::bench::contender::Contender;
use crate::bench::round::{ProgramRun, line, measured};
use crate::bench::scenario::LoadShape;

/// Beyond the planned time a client gets this long to end by itself, seconds.
const GRACE_S: f64 = 12.0;
/// Warm-up for just-in-time compilers, seconds.
const WARM_UP_S: f64 = 1.0;

/// All runs by one client.
#[derive(Debug)]
pub(crate) struct ClientRounds {
    pub(crate) client: Contender,
    pub(crate) runs: Vec<ProgramRun>,
}

/// All rounds; one series for each client.
pub(crate) fn run_all(
    t: &Tools,
    shape: &LoadShape,
    servers: &[PeerProcess],
    clients: &[Contender],
) -> Vec<ClientRounds> {
    let mut all: Vec<ClientRounds> =
        clients.iter().map(|&client| ClientRounds { client, runs: Vec::new() }).collect();
    let warm_up = Tools { seconds: WARM_UP_S.min(t.seconds), ..t.clone() };
    for server in servers {
        if let Err(e) = one(&warm_up, shape, server, Contender::Linerate, 0) {
            println!("  {} while warming up: {e:#}", server.peer.name());
        }
    }
    for round in 0..t.rounds {
        for i in 0..servers.len() {
            let server = &servers[(i + round) % servers.len()];
            for series in &mut all {
                let run = one(t, shape, server, series.client, round)
                    .unwrap_or_else(|e| ProgramRun::failed(server.peer.name(), round, format!("{e:#}")));
                println!("  {:<8} {}", series.client.name(), line(&run));
                series.runs.push(run);
            }
        }
    }
    all
}

fn one(
    t: &Tools,
    shape: &LoadShape,
    server: &PeerProcess,
    client: Contender,
    round: usize,
) -> Result<ProgramRun> {
    let dir = tempfile::tempdir()?;
    let shape = LoadShape { path: server.peer.path(shape.path), ..*shape };
    let command = client.command(t, &shape, server.address, dir.path())?;
    run(t, server, client, &command, t.seconds + GRACE_S, dir.path(), round)
}

/// One client's run against a server: its rate, and what that cost the server.
pub(super) fn run(
    t: &Tools,
    server: &PeerProcess,
    client: Contender,
    command: &[String],
    limit_s: f64,
    dir: &Path,
    round: usize,
) -> Result<ProgramRun> {
    let before = server.used()?;
    let (out, cost) = measured(t, command, limit_s, dir)?;
    let used = server.used_since(&before)?;
    let said = client.said(&out, dir)?;
    let cpu_s = used.cpu_s;
    Ok(ProgramRun {
        program: server.peer.name(),
        round,
        rate: said.rate,
        answered: said.answered,
        server_requests: None,
        cpu_us: cpu_s * 1e6 / said.answered.max(1) as f64,
        p99_us: None,
        user_kb: None,
        server_busy: cpu_s / cost.wall_s,
        client_busy: cost.cpu_s / cost.wall_s,
        // A server's threads also wait for each other. Another program runs only while none of them
        // does.
        waited: cost.delay_s.max(used.waited_s.min(cost.wall_s - cpu_s)) / cost.wall_s,
        max_rss_kb: server.memory_kb("VmHWM")?,
        fault: None,
    })
}
