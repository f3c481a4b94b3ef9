//! What holds a server's threads while it is under load: a table of looks in, a verdict out. Does
//! no I/O and reads no clock; [`crate::driver::OccupancyWatch`] looks.

mod judge;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
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
    /// How often it got a core since it began.
    pub slices: u64,
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

#[derive(Clone, Debug, Default)]
struct ThreadTally {
    first: ThreadCounters,
    last: ThreadCounters,
    /// It was started during the run, as those are that serve one request.
    is_new: bool,
    /// It was seen to wait for connections or requests, before the load or in it: it serves.
    serves: bool,
    looks: u64,
    running: u64,
    /// The calls in which it was blocked, and how often.
    calls: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadCounters {
    ran: Duration,
    waited: Duration,
    slices: u64,
}

impl ThreadCounters {
    fn of(moment: &ThreadMoment) -> ThreadCounters {
        ThreadCounters { ran: moment.ran, waited: moment.waited, slices: moment.slices }
    }
}

/// The part of the time in which threads wanted a core that they had none.
fn unserved(waited_s: f64, ran_s: f64) -> f64 {
    waited_s / (waited_s + ran_s).max(1e-9)
}

/// Of blocking threads those serve that used this part of the busiest one's time.
const SERVES: u32 = 2;
/// Share of its looks at which a thread that serves must be blocked to be one that others are compared with,
/// and at which it must be blocked, on a core or ready for one. Reason: on a busy machine it waits for a core
/// longer than it sleeps.
const BLOCKED: f64 = 0.2;
const HELD: f64 = 0.8;
/// Threads of one pool differ by this factor at most, in time on cores and in how often they got one.
const ALIKE: f64 = 1.5;

/// All looks of a run, added up.
#[derive(Clone, Debug, Default)]
pub struct OccupancyTable {
    looks: u64,
    by_thread: BTreeMap<u32, ThreadTally>,
    /// Threads that waited for connections or requests before the load.
    at_rest: BTreeSet<u32>,
    running: u64,
    free: u64,
    waiting: u64,
    queued: u64,
    queue_looks: u64,
    begun: bool,
}

impl OccupancyTable {
    /// Of a server that was looked at before the load: what its threads wait in at rest tells those that
    /// serve from those of its runtime.
    pub fn after_rest(look: &OccupancyLook) -> OccupancyTable {
        let free = look.threads.iter().filter(|moment| moment.activity == ThreadActivity::Free);
        let at_rest = free.map(|moment| moment.id).take(OCCUPANCY_IDS).collect();
        OccupancyTable { at_rest, ..OccupancyTable::default() }
    }

    /// Adds a look. The first one is where each thread's time on cores begins.
    pub fn add(&mut self, look: &OccupancyLook) {
        let is_first = !std::mem::replace(&mut self.begun, true);
        for moment in &look.threads {
            let is_full = self.by_thread.len() >= OCCUPANCY_IDS;
            if is_full && !self.by_thread.contains_key(&moment.id) {
                continue;
            }
            // A thread that was started meanwhile has used all its time in the run.
            let tally = self.by_thread.entry(moment.id).or_insert_with(|| ThreadTally {
                first: if is_first { ThreadCounters::of(moment) } else { ThreadCounters::default() },
                is_new: !is_first,
                serves: self.at_rest.contains(&moment.id),
                ..ThreadTally::default()
            });
            tally.last = ThreadCounters::of(moment);
            if !is_first {
                tally.add(moment.activity);
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
                ThreadActivity::Free => self.free += 1,
                ThreadActivity::Waiting => self.waiting += 1,
                ThreadActivity::Blocked(_) | ThreadActivity::Other => {}
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

    /// The busiest thread: its time on cores, and ready without one, seconds.
    fn busiest(&self) -> (f64, f64) {
        let busiest = self.by_thread.values().max_by_key(|tally| tally.ran());
        busiest.map_or((0.0, 0.0), |tally| (tally.ran().as_secs_f64(), tally.waited().as_secs_f64()))
    }

    /// The part of the time in which its threads wanted a core that they had none.
    fn unserved(&self) -> f64 {
        let sum = |of: fn(&ThreadTally) -> Duration| self.by_thread.values().map(of).sum::<Duration>();
        let (ran, waited) = (sum(ThreadTally::ran).as_secs_f64(), sum(ThreadTally::waited).as_secs_f64());
        unserved(waited, ran)
    }

    /// The threads that were seen in blocking calls and serve: a runtime has threads that only sleep.
    fn holders(&self) -> BlockedThreads {
        let (threads, known) = self.blocked_threads();
        let mut found = BlockedThreads { known, call: "a blocking call", ..BlockedThreads::default() };
        let (mut looks, mut running, mut calls) = (0, 0, BTreeMap::<_, u64>::new());
        for tally in threads {
            looks += tally.looks;
            running += tally.running;
            for (call, n) in &tally.calls {
                *calls.entry(*call).or_default() += n;
            }
            found.ran += tally.ran();
            found.slices += tally.slices();
            found.in_all += 1;
        }
        let blocked: u64 = calls.values().sum();
        found.at_a_time = self.mean(looks);
        found.held = (blocked + running) as f64 / looks.max(1) as f64;
        found.blocked = blocked as f64 / looks.max(1) as f64;
        if let Some((call, _)) = calls.into_iter().max_by_key(|(_, n)| *n) {
            found.call = call;
        }
        found
    }

    /// These threads, and of how many of them it is known that they serve.
    fn blocked_threads(&self) -> (Vec<&ThreadTally>, usize) {
        let mut seen: Vec<&ThreadTally> =
            self.by_thread.values().filter(|t| t.blocked() > 0 || t.is_new).collect();
        let is_known = |t: &ThreadTally| t.serves && t.is_held();
        let known: Vec<&ThreadTally> = seen.iter().copied().filter(|t| is_known(t)).collect();
        if known.is_empty() {
            let blocked = || seen.iter().filter(|t| t.blocked() > 0);
            let least = blocked().map(|t| t.ran()).max().unwrap_or_default() / SERVES;
            // Of threads that come and go, those tell as much that were never blocked.
            let comes = blocked().any(|t| t.is_new);
            seen.retain(|t| if t.is_new { comes } else { t.ran() >= least });
        } else {
            // At rest a pool's threads may wait for each other, and one of them for requests.
            let mean =
                |of: fn(&ThreadTally) -> f64| known.iter().map(|t| of(t)).sum::<f64>() / known.len() as f64;
            let (ran, slices) = (mean(ThreadTally::ran_s), mean(|t| t.slices() as f64));
            let is_alike = |a: f64, b: f64| a <= ALIKE * b && b <= ALIKE * a;
            let is_one = |t: &ThreadTally| {
                t.is_new || (is_alike(t.ran_s(), ran) && is_alike(t.slices() as f64, slices))
            };
            seen.retain(|t| t.blocked() > 0 && (is_known(t) || is_one(t)));
        }
        (seen, known.len())
    }
}

impl ThreadTally {
    fn add(&mut self, activity: ThreadActivity) {
        self.looks += 1;
        match activity {
            ThreadActivity::Running => self.running += 1,
            ThreadActivity::Blocked(call) => *self.calls.entry(call).or_default() += 1,
            ThreadActivity::Free => self.serves = true,
            ThreadActivity::Waiting | ThreadActivity::Other => {}
        }
    }

    fn ran(&self) -> Duration {
        self.last.ran.saturating_sub(self.first.ran)
    }

    fn ran_s(&self) -> f64 {
        self.ran().as_secs_f64()
    }

    fn waited(&self) -> Duration {
        self.last.waited.saturating_sub(self.first.waited)
    }

    fn slices(&self) -> u64 {
        self.last.slices.saturating_sub(self.first.slices)
    }

    fn blocked(&self) -> u64 {
        self.calls.values().sum()
    }

    fn is_held(&self) -> bool {
        let (blocked, looks) = (self.blocked() as f64, self.looks as f64);
        blocked > 0.0 && blocked >= BLOCKED * looks && blocked + self.running as f64 >= HELD * looks
    }
}

/// Threads that were seen in blocking calls.
#[derive(Clone, Copy, Debug, Default)]
struct BlockedThreads {
    /// How many there were at a look, on average.
    at_a_time: f64,
    /// How many there were in all.
    in_all: usize,
    /// Of how many it is known that they serve.
    known: usize,
    /// The share of their looks at which they were blocked or running.
    held: f64,
    /// The share at which they were blocked.
    blocked: f64,
    /// The call in which they blocked most.
    call: &'static str,
    /// Their time on cores.
    ran: Duration,
    /// How often they got one.
    slices: u64,
}
