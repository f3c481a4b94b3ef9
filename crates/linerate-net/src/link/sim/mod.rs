//! A network in memory, with virtual time and a seed. It connects one or more ends. Packets between
//! them are delayed, lost, reordered or duplicated as [`SimOptions`] say. The same seed and the
//! same calls give the same result.
//!
//! Ends may live in threads of their own. One of them runs at a time. When all wait, time jumps to
//! the first due event. A network with one end returns packets to it, so that a single
//! [`Stack`](crate::stack::Stack) can be both ends of its connections.

mod nat;
mod net;
mod options;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::net::{Net, Status};
pub use self::options::{Nat, Outages, SimOptions, SimStats};
use super::{Checksums, Link};
use crate::sys::EventFd;
use crate::{Time, Waker};

/// How long, in real time, an end waits for a waker when no event is due. Reason: a test that waits
/// for nothing must fail instead of hanging.
const REAL_PATIENCE: Duration = Duration::from_secs(5);
/// How often it polls the waker meanwhile.
const LOOK: Duration = Duration::from_millis(1);

struct SharedSimulation {
    net: Mutex<Net>,
    moved: Condvar,
}

/// A network in memory.
#[derive(Clone)]
pub struct Sim(Arc<SharedSimulation>);

impl Sim {
    /// Creates a network with these options.
    pub fn new(options: SimOptions) -> Sim {
        Sim(Arc::new(SharedSimulation { net: Mutex::new(Net::new(options)), moved: Condvar::new() }))
    }

    /// Creates a network with one end, to which all packets return.
    pub fn alone(options: SimOptions) -> io::Result<SimEnd> {
        Sim::new(options).end(&[])
    }

    /// Adds an end with these addresses. All ends must be made before one is used. Fails if the
    /// process is out of file descriptors.
    pub fn end(&self, addresses: &[IpAddr]) -> io::Result<SimEnd> {
        let wake = Arc::new(EventFd::new()?);
        let index = self.lock().add(addresses);
        Ok(SimEnd { sim: self.clone(), index, wake, runs: false, has_sent: false })
    }

    /// Changes the options from now on.
    pub fn change(&self, change: impl FnOnce(&mut SimOptions)) {
        change(&mut self.lock().options);
    }

    /// Counters of packets so far.
    pub fn stats(&self) -> SimStats {
        self.lock().stats
    }

    fn lock(&self) -> MutexGuard<'_, Net> {
        // If a test panicked while it held the lock, its own message is enough.
        self.0.net.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An end of the network.
pub struct SimEnd {
    sim: Sim,
    index: usize,
    wake: Arc<EventFd>,
    /// The end has had its first turn.
    runs: bool,
    /// Packets were sent since the last flush.
    has_sent: bool,
}

impl SimEnd {
    /// The network that this end belongs to.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Simulates a process that does not run for this long: packets that arrive meanwhile are not
    /// read.
    pub fn stand_still(&mut self, time: Duration) -> io::Result<()> {
        self.begin();
        let until = self.sim.lock().now + time;
        self.sim.lock().ends[self.index].deaf = true;
        let woken = self.yield_until(Some(until), false).map(drop);
        self.sim.lock().ends[self.index].deaf = false;
        woken
    }

    /// Waits for this end's first turn, as every later call waits for its turn.
    fn begin(&mut self) {
        if !self.runs {
            self.runs = true;
            let _ = self.yield_until(Some(Time::ZERO), false);
        }
    }

    /// Lets the other ends run until it is this end's turn again. `wakes`: the waker ends the wait,
    /// and the result says so.
    fn yield_until(&mut self, until: Option<Time>, wakes: bool) -> io::Result<bool> {
        let mut net = self.sim.lock();
        net.ends[self.index].status = Status::Waiting(until.unwrap_or(Time::NEVER));
        let mut looks = 0;
        loop {
            if net.choose() {
                self.sim.0.moved.notify_all();
            }
            if net.ends[self.index].status == Status::Running {
                return Ok(wakes && self.wake.take());
            }
            if !net.is_idle() {
                net = self.sim.0.moved.wait(net).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // No event is due, so only a waker used from outside can end the wait.
            if self.wake.take() {
                net.ends[self.index].status = Status::Running;
                return Ok(true);
            }
            looks += 1;
            if net.is_left() || LOOK * looks > REAL_PATIENCE {
                net.ends[self.index].status = Status::Running;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing is ever going to happen"));
            }
            let waited = self.sim.0.moved.wait_timeout(net, LOOK).unwrap_or_else(PoisonError::into_inner);
            net = waited.0;
        }
    }
}

impl Link for SimEnd {
    fn now(&mut self) -> Time {
        self.sim.lock().now
    }

    fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        self.begin();
        let mut count = 0;
        while count < max {
            // The lock is released while `take` reads the packet.
            let Some(mut packet) = self.sim.lock().arrived(self.index) else { break };
            take(&mut packet);
            self.sim.lock().give_back(packet);
            count += 1;
        }
        count
    }

    fn transmit(&mut self, to: IpAddr, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.begin();
        let mut packet = self.sim.lock().buffer(len);
        fill(&mut packet);
        self.sim.lock().carry(to, packet);
        self.has_sent = true;
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        let sends = std::mem::take(&mut self.has_sent);
        if sends && self.sim.lock().is_down() {
            return Err(io::Error::from_raw_os_error(libc::ENETDOWN));
        }
        Ok(())
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<bool> {
        self.begin();
        {
            let net = self.sim.lock();
            let due = net.next_arrival(self.index).is_some_and(|at| at <= net.now);
            if due || until.is_some_and(|until| until <= net.now) {
                drop(net);
                return Ok(self.wake.take());
            }
        }
        if self.wake.take() {
            return Ok(true);
        }
        self.yield_until(until, true)
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn mtu(&mut self, _to: IpAddr) -> usize {
        self.sim.lock().options.mtu
    }

    fn checksums(&self) -> Checksums {
        self.sim.lock().options.checksums
    }
}

impl Drop for SimEnd {
    fn drop(&mut self) {
        let mut net = self.sim.lock();
        net.ends[self.index].status = Status::Gone;
        net.choose();
        drop(net);
        self.sim.0.moved.notify_all();
    }
}
