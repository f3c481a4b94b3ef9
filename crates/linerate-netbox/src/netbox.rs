//! The box: two namespaces and the relay between them.

use std::io::{ErrorKind, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tun_rs::SyncDevice;

use crate::conditions::{Conditions, ConditionsError};
use crate::error::NetBoxError;
use crate::limits;
use crate::namespace::{CLIENT, Namespace, SERVER, SideAddresses, line_sides};
use crate::queue::{DirectionQueue, FrameCounts};
use crate::relay::{RelayInterface, RelayOrder, RelayState, prefer_this_thread};
use crate::rule::DropRule;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDirection {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

/// Counters of the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetboxReport {
    /// From client to server.
    pub up: FrameCounts,
    /// From server to client.
    pub down: FrameCounts,
    /// Frames that an interface dropped before the box saw them, because the relay was woken too
    /// late. A run with any does not have the stated conditions.
    pub missed: u64,
}

/// A network between two namespaces. Dropping it ends all of their processes.
#[derive(Debug)]
pub struct NetBox {
    client: Namespace,
    server: Namespace,
    orders: Sender<RelayOrder>,
    bell: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<Mutex<[FrameCounts; 2]>>,
    real_time: bool,
}

/// Settings of a box. A setting without a direction applies to both.
#[derive(Clone, Debug, Default)]
pub struct NetboxBuilder {
    up: Conditions,
    down: Conditions,
    client_files: Vec<(PathBuf, String)>,
    server_files: Vec<(PathBuf, String)>,
    to_this_machine: bool,
}

impl NetboxBuilder {
    fn both(mut self, set: impl Fn(&mut Conditions)) -> NetboxBuilder {
        set(&mut self.up);
        set(&mut self.down);
        self
    }

    /// One-way delay: the round trip takes twice as long.
    pub fn delay(self, delay: Duration) -> NetboxBuilder {
        self.both(|c| c.delay = delay)
    }

    /// Maximum extra delay, uniformly distributed; frames keep their order.
    pub fn jitter(self, jitter: Duration) -> NetboxBuilder {
        self.both(|c| c.jitter = jitter)
    }

    /// The probability that a frame is lost, 0 to 1.
    pub fn loss(self, probability: f64) -> NetboxBuilder {
        self.both(|c| c.loss = probability)
    }

    /// The probability that a frame arrives twice, 0 to 1.
    pub fn duplicate(self, probability: f64) -> NetboxBuilder {
        self.both(|c| c.duplicate = probability)
    }

    /// The probability that a frame is delayed by `by`, behind later ones.
    pub fn reorder(self, probability: f64, by: Duration) -> NetboxBuilder {
        self.both(|c| (c.reorder, c.reorder_by) = (probability, by))
    }

    /// Bits per second.
    pub fn rate(self, bits_per_second: u64) -> NetboxBuilder {
        self.both(|c| c.rate = Some(bits_per_second))
    }

    /// Bytes that may queue for the rate.
    pub fn queue(self, bytes: usize) -> NetboxBuilder {
        self.both(|c| c.queue = Some(bytes))
    }

    /// Largest IP packet, bytes; the box answers larger ones with "fragmentation needed", as a
    /// router would.
    pub fn mtu(self, bytes: usize) -> NetboxBuilder {
        self.both(|c| c.mtu = Some(bytes))
    }

    /// Drops packets above the MTU without ICMP.
    pub fn black_hole(self) -> NetboxBuilder {
        self.both(|c| c.black_hole = true)
    }

    /// A targeted drop in one direction.
    pub fn drop_frames(self, way: LinkDirection, rule: DropRule) -> NetboxBuilder {
        self.way(way, |c| c.drops.push(rule))
    }

    /// Determines everything random. Each direction has its own random sequence.
    pub fn seed(mut self, seed: u64) -> NetboxBuilder {
        (self.up.seed, self.down.seed) = (seed, seed ^ 0x5555_5555_5555_5555);
        self
    }

    /// Sets the conditions of one direction.
    pub fn way(mut self, way: LinkDirection, set: impl FnOnce(&mut Conditions)) -> NetboxBuilder {
        match way {
            LinkDirection::Up => set(&mut self.up),
            LinkDirection::Down => set(&mut self.down),
        }
        self
    }

    /// Replaces the file at `path` (which must exist) for the client's programs, for instance by a
    /// resolv.conf.
    pub fn client_file(mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> NetboxBuilder {
        self.client_files.push((path.into(), text.into()));
        self
    }

    /// Replaces a file for the server's programs.
    pub fn server_file(mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> NetboxBuilder {
        self.server_files.push((path.into(), text.into()));
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConditionsError> {
        self.up.check()?;
        self.down.check()
    }

    /// The server's end is an interface of this machine, and the client reaches this machine over it
    /// by all of its IPv4 addresses, those of 127.0.0.0/8 too. So servers that run here already are
    /// reached over the line. Nothing else on this machine uses the interface, and it goes with the
    /// box.
    pub fn to_this_machine(mut self) -> NetboxBuilder {
        self.to_this_machine = true;
        self
    }

    /// Creates the box.
    ///
    /// # Errors
    /// The conditions are invalid, or this process may not create namespaces and interfaces (that
    /// takes root, /dev/net/tun and the program `ip`).
    pub fn start(self) -> Result<NetBox, NetBoxError> {
        self.check()?;
        let [(client, client_end), (server, server_end)] = self.sides()?;
        let (orders, taken) = mpsc::channel();
        let (listens, bell) = std::io::pipe().map_err(|e| NetBoxError::io("pipe", e))?;
        let counts = Arc::default();
        let sides = [
            RelayInterface {
                place: client.place(),
                device: client_end,
                outward: DirectionQueue::new(self.up),
            },
            RelayInterface {
                place: server.place(),
                device: server_end,
                outward: DirectionQueue::new(self.down),
            },
        ];
        let relay = RelayState::new(sides, taken, listens, Arc::clone(&counts));
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("netbox relay".to_owned())
            .spawn(move || {
                if ready.send(prefer_this_thread()).is_ok() {
                    relay.run();
                }
            })
            .map_err(|e| NetBoxError::io("cannot start a thread", e))?;
        let real_time = is_ready.recv().map_err(|_| NetBoxError::Ended("relay"))?;
        Ok(NetBox { client, server, orders, bell: Some(bell), thread: Some(thread), counts, real_time })
    }

    /// Both sides. Of lines to this machine, several may run: each takes a free number.
    fn sides(&self) -> Result<[(Namespace, SyncDevice); 2], NetBoxError> {
        let both = |[client, server]: [SideAddresses; 2]| {
            let there = Namespace::new(server, client, &self.server_files)?;
            Ok([Namespace::new(client, server, &self.client_files)?, there])
        };
        if !self.to_this_machine {
            return both([CLIENT, SERVER]);
        }
        let mut number = 0;
        loop {
            match both(line_sides(number)) {
                Err(NetBoxError::Io { error, .. })
                    if error.kind() == ErrorKind::ResourceBusy && number + 1 < limits::LINES =>
                {
                    number += 1;
                }
                made => return made,
            }
        }
    }
}

impl NetBox {
    /// A box without faults; add some, then [`start`](NetboxBuilder::start).
    pub fn builder() -> NetboxBuilder {
        NetboxBuilder::default().seed(1)
    }

    /// What this process lacks to create a box, where that is known beforehand.
    pub fn impossible() -> Option<&'static str> {
        if !nix::unistd::geteuid().is_root() {
            return Some("network namespaces take root");
        }
        if !Path::new("/dev/net/tun").exists() {
            return Some("there is no /dev/net/tun");
        }
        None
    }

    /// The reason if no box can be created here, for tests that then report that they did not run.
    pub fn unavailable() -> Option<String> {
        let lack = NetBox::impossible().map(str::to_owned);
        lack.or_else(|| NetBox::builder().start().err().map(|e| e.to_string()))
    }

    /// The namespace for clients.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The namespace for servers.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// Whether the relay has priority over all ordinary threads; if not, delays are exact only on
    /// an idle machine.
    pub fn real_time(&self) -> bool {
        self.real_time
    }

    /// Changes the conditions of one direction. Rules and random numbers restart; frames in flight
    /// arrive as decided before.
    ///
    /// # Errors
    /// The conditions are invalid, or the relay has ended.
    pub fn change(&self, way: LinkDirection, conditions: Conditions) -> Result<(), NetBoxError> {
        conditions.check()?;
        self.order(RelayOrder::Change(way as usize, conditions))
    }

    fn order(&self, order: RelayOrder) -> Result<(), NetBoxError> {
        self.orders.send(order).map_err(|_| NetBoxError::Ended("relay"))?;
        let Some(mut bell) = self.bell.as_ref() else { return Ok(()) };
        bell.write_all(&[1]).map_err(|e| NetBoxError::io("relay", e))
    }

    /// The counters so far.
    pub fn report(&self) -> NetboxReport {
        let [up, down] = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        NetboxReport { up, down, missed: self.client.missed() + self.server.missed() }
    }
}

impl Drop for NetBox {
    fn drop(&mut self) {
        let _ = self.order(RelayOrder::Stop);
        drop(self.bell.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}
