//! What holds a server's threads while it is under load: a table of looks in, a verdict out. Does
//! no I/O and reads no clock; [`crate::driver::OccupancyWatch`] looks.

mod judge;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use judge::{Cure, LoadFigures, OccupancyVerdict, ServerLimit, judge};

use crate::limits::OCCUPANCY_IDS;

/// What a thread does at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// On a core, or ready for one.
    Running,
    /// In a call that keeps it from other requests; which one.
    Blocked(&'static str),
    /// Waiting for events, connections or the next request of a client: free for a request.
    Free,
    /// Waiting for another thread (futex): idle in a pool, or kept out by a lock.
    Waiting,
    /// Something else, or not to be told.
    Other,
}

/// A thread at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMoment {
    /// Its number.
    pub id: u32,
    /// What it does.
    pub activity: ThreadActivity,
    /// Time on a core since it began.
    pub ran: Duration,
    /// Time ready and without a core since it began.
    pub waited: Duration,
}

/// One look at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OccupancyLook {
    /// Its threads.
    pub threads: Vec<ThreadMoment>,
    /// Connections whose requests it has not read, and those that it has not accepted; `None` where
    /// its sockets cannot be seen.
    pub queued: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadTally {
    first: Duration,
    last: Duration,
    first_waited: Duration,
    last_waited: Duration,
    /// It was started during the run, as those are that serve one request.
    is_new: bool,
    looks: u64,
    blocked: u64,
    running: u64,
}

/// Of blocking threads those serve that used this part of the busiest one's time.
const SERVES: u32 = 2;

/// All looks of a run, added up.
#[derive(Clone, Debug, Default)]
pub struct OccupancyTable {
    looks: u64,
    by_thread: BTreeMap<u32, ThreadTally>,
    running: u64,
    free: u64,
    waiting: u64,
    calls: BTreeMap<&'static str, u64>,
    queued: u64,
    queue_looks: u64,
    begun: bool,
}

impl OccupancyTable {
    /// Adds a look. The first one is where each thread's time on cores begins.
    pub fn add(&mut self, look: &OccupancyLook) {
        let is_first = !std::mem::replace(&mut self.begun, true);
        for moment in &look.threads {
            let is_full = self.by_thread.len() >= OCCUPANCY_IDS;
            if is_full && !self.by_thread.contains_key(&moment.id) {
                continue;
            }
            // A thread that was started meanwhile has used all its time in the run.
            let (first, first_waited) =
                if is_first { (moment.ran, moment.waited) } else { Default::default() };
            let new = ThreadTally { first, first_waited, is_new: !is_first, ..Default::default() };
            let tally = self.by_thread.entry(moment.id).or_insert(new);
            (tally.last, tally.last_waited) = (moment.ran, moment.waited);
            if !is_first {
                tally.looks += 1;
                tally.blocked += u64::from(matches!(moment.activity, ThreadActivity::Blocked(_)));
                tally.running += u64::from(moment.activity == ThreadActivity::Running);
            }
        }
        // The run has only begun.
        if is_first {
            return;
        }
        self.looks += 1;
        for moment in &look.threads {
            match moment.activity {
                ThreadActivity::Running => self.running += 1,
                ThreadActivity::Blocked(call) => *self.calls.entry(call).or_default() += 1,
                ThreadActivity::Free => self.free += 1,
                ThreadActivity::Waiting => self.waiting += 1,
                ThreadActivity::Other => {}
            }
        }
        if let Some(queued) = look.queued {
            self.queued += queued;
            self.queue_looks += 1;
        }
    }

    /// Looks, without the first.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.looks.max(1) as f64
    }

    /// Threads on a core or ready for one, on average.
    pub fn running(&self) -> f64 {
        self.mean(self.running)
    }

    /// Threads that serve and were in blocking calls, on average.
    pub fn blocked(&self) -> f64 {
        let holders = self.holders();
        holders.at_a_time * holders.blocked
    }

    /// Threads that waited for work, on average.
    pub fn free(&self) -> f64 {
        self.mean(self.free)
    }

    /// Threads that waited for other threads, on average.
    pub fn waiting(&self) -> f64 {
        self.mean(self.waiting)
    }

    /// Connections with requests that were not read or not accepted, on average.
    pub fn queued(&self) -> Option<f64> {
        (self.queue_looks > 0).then(|| self.queued as f64 / self.queue_looks as f64)
    }

    /// The call in which threads blocked most.
    fn call(&self) -> &'static str {
        self.calls.iter().max_by_key(|(_, n)| **n).map_or("a blocking call", |(call, _)| call)
    }

    /// The busiest thread: its time on cores, and ready without one, seconds.
    fn busiest(&self) -> (f64, f64) {
        let busiest = self.by_thread.values().max_by_key(|tally| tally.ran());
        busiest.map_or((0.0, 0.0), |tally| (tally.ran().as_secs_f64(), tally.waited().as_secs_f64()))
    }

    /// The threads that were seen in blocking calls and serve: a runtime has threads that only sleep, and
    /// use no time to speak of.
    fn holders(&self) -> BlockedThreads {
        let mut found = BlockedThreads::default();
        let (mut looks, mut held, mut blocked) = (0, 0, 0);
        let seen = || self.by_thread.values().filter(|t| t.blocked > 0);
        let least = seen().map(ThreadTally::ran).max().unwrap_or_default() / SERVES;
        for tally in seen().filter(|t| t.is_new || t.ran() >= least) {
            looks += tally.looks;
            held += tally.blocked + tally.running;
            blocked += tally.blocked;
            found.ran += tally.ran();
            found.in_all += 1;
        }
        found.at_a_time = self.mean(looks);
        found.held = held as f64 / looks.max(1) as f64;
        found.blocked = blocked as f64 / looks.max(1) as f64;
        found
    }
}

impl ThreadTally {
    fn ran(&self) -> Duration {
        self.last.saturating_sub(self.first)
    }

    fn waited(&self) -> Duration {
        self.last_waited.saturating_sub(self.first_waited)
    }
}

/// Threads that were seen in blocking calls.
#[derive(Clone, Copy, Debug, Default)]
struct BlockedThreads {
    /// How many there were at a look, on average.
    at_a_time: f64,
    /// How many there were in all.
    in_all: usize,
    /// The share of their looks at which they were blocked or running.
    held: f64,
    /// The share at which they were blocked.
    blocked: f64,
    /// Their time on cores.
    ran: Duration,
}
