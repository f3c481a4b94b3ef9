//! A server under clients that do anything at any moment: random requests to every kind of handler,
//! random cuts, pipelining, slow readers, disconnects, half-closes and resets, in memory and in
//! virtual time. Every client that stays gets exactly its responses, none stalls, and the ones that
//! left leave nothing behind.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one. `LINERATE_SEEDS=n` runs this many (`cargo
//! xtask soak serve-mem`: 10,000), starting at `LINERATE_FROM`.

mod client;
mod handlers;
mod requests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use linerate_base::Random;
use linerate_net::mem::{Cut, Mem, MemOptions};
use linerate_net::{ListenOptions, Transport};

use self::client::SeedClient;
use super::{Server, Wall};
use crate::{Handler, Limits};

const SEEDS: u64 = 200;
/// Timeout in virtual time. Reason: through the narrowest window, 51 bytes in 6 ms, some large responses
/// after each other take minutes. A client that stalls is cut by the server's own timeouts before.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a server may keep a client that vanished: a bit more than its longest timeout.
const FORGETS: Duration = Duration::from_secs(200);
/// Turns of one seed. Reason: a loop in which time stands still would hang.
const TURNS: u32 = 2_000_000;

/// The world of one seed.
struct Run<H: Handler> {
    server: Server<Mem, H>,
    /// When each client connects, the latest first.
    coming: Vec<(Duration, SeedClient)>,
    clients: Vec<SeedClient>,
    /// When the server begins to drain, if it does.
    drains_at: Option<Duration>,
    drains: bool,
}

fn begin(seed: u64) -> Run<impl Handler> {
    let mut random = Random::new(seed);
    let window = [100, 2_000, 30_000, 256 << 10][random.below(4) as usize];
    let options = MemOptions {
        seed,
        latency: Duration::from_micros(random.few(3_000)),
        cut: [Cut::Whole, Cut::Random(300), Cut::Random(4_000)][random.below(3) as usize],
        window: 1 + window / 2 + random.below(window as u64) as usize,
        ..MemOptions::default()
    };
    let limits = Limits { write_time: Duration::from_secs(5), ..Limits::default() };
    let mem = Mem::new(options).unwrap();
    let mut server = Server::new(mem, handlers::handler(), limits).with_wall(Wall::Virtual(784_111_777));
    server.listen(AT.parse().unwrap(), &ListenOptions::default()).unwrap();
    let mut coming: Vec<_> = (0..2 + random.below(12))
        .map(|number| (Duration::from_millis(random.few(150)), SeedClient::random(&mut random, number)))
        .collect();
    coming.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let drains_at = (random.below(8) == 0).then(|| Duration::from_millis(random.below(200)));
    Run { server, coming, clients: Vec::new(), drains_at, drains: false }
}

const AT: &str = "10.0.0.1:80";

impl<H: Handler> Run<H> {
    fn elapsed(&mut self) -> Duration {
        Duration::from_nanos(self.server.transport().now().as_nanos())
    }

    /// Runs one turn, and what happens besides the server.
    fn turn(&mut self, busy: bool) {
        let now = self.elapsed();
        while let Some((_, client)) = self.coming.pop_if(|(at, _)| *at <= now) {
            self.clients.push(client.clone());
            self.server.transport().dial(AT.parse().unwrap(), client);
        }
        if self.drains_at.is_some_and(|at| at <= now) && !std::mem::replace(&mut self.drains, true) {
            self.server.drain();
        }
        let step = Duration::from_millis(if busy || !self.coming.is_empty() { 1 } else { 50 });
        let until = self.server.transport().now() + step;
        self.server.turn(Some(until)).unwrap();
    }

    /// Runs until every client has what it will get, and then until nothing is left.
    fn play(mut self) -> Result<(), String> {
        let mut busy = false;
        for turns in 0.. {
            let waits = |c: &SeedClient| c.fate.stays() && !c.is_done();
            let elapsed = self.elapsed();
            let over = self.coming.is_empty() && !self.clients.iter().any(waits);
            if over || elapsed > PATIENCE || turns > TURNS {
                break;
            }
            self.turn(busy);
            busy = handlers::work_elsewhere() > 0;
        }
        for (i, client) in self.clients.iter().enumerate() {
            client.judge(self.drains).map_err(|why| format!("client {i} ({:?}): {why}", client.fate))?;
        }
        let until = self.elapsed() + FORGETS;
        for _ in 0..TURNS {
            if (self.server.open == 0 && !busy) || self.elapsed() > until {
                break;
            }
            self.turn(false);
            busy = handlers::work_elsewhere() > 0;
        }
        self.leftovers()
    }

    /// Checks that nothing is left once all clients have gone.
    fn leftovers(&self) -> Result<(), String> {
        let (server, engine) = (&self.server, &self.server.engine);
        let counts = server.counts();
        let zeros = [
            ("open", server.open),
            ("counted as open", counts.open as usize),
            ("parked", engine.tasks.parked()),
            ("leaving", server.leaving.count),
            ("held", server.held.leftovers()),
            ("dirty", server.unsettled.len()),
            ("in out", engine.out.len()),
            ("read elsewhere", engine.read_elsewhere.len()),
            ("unsent", engine.allowance.together()),
            ("works that are not clean", engine.spare.unclean()),
        ];
        match zeros.iter().find(|(_, n)| *n != 0) {
            Some((what, n)) => Err(format!("left behind: {n} {what}")),
            None => Ok(()),
        }
    }
}

fn run(seed: u64) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| begin(seed).play())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "it panicked".to_owned()))
    })
}

/// Hides intended panics of handlers; others are printed.
fn quiet_about_wanted_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let wanted = |text: &str| text == handlers::WANTED;
        if !info.payload_as_str().is_some_and(wanted) {
            usual(info);
        }
    }));
}

#[test]
fn clients_that_stay_get_their_responses_whatever_others_do() {
    quiet_about_wanted_panics();
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let from = number("LINERATE_FROM").unwrap_or(1);
    let seeds = match number("LINERATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("LINERATE_SEEDS").unwrap_or(SEEDS),
    };
    let failed: Vec<String> = seeds
        .filter_map(|seed| run(seed).err().map(|why| format!("LINERATE_SEED={seed}: {why}")))
        .take(10)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
