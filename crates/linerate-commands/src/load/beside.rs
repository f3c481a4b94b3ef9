//! Something that is looked at again and again while a run lasts, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use linerate_net::machine;
use linerate_report::schema::outcome::ServerSecond;

use crate::fault::CommandFault;

/// Time between two looks of most watchers. Reason: a look costs up to a millisecond, on this machine or on the server's.
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// A look may use this part of the time between two on a core. Reason: the looks must not become the load.
const PART: u32 = 20;
/// The longest pause. Reason: a server with very many threads is looked at all the same.
const LONGEST: Duration = Duration::from_secs(10);
/// Time between two checks whether the run has ended.
const NAP: Duration = Duration::from_millis(20);
/// Looks that are kept; of a longer run every second one is left out, as often as needed. Reason: a week must not grow
/// memory.
pub(super) const LOOKS: usize = 4096;

/// What looks.
pub(super) trait Look: Send + 'static {
    /// The run begins to measure; returns when to look first.
    fn begin(&mut self) -> Instant;

    /// Looks; `is_last`: the run has ended. Returns when to look again.
    fn look(&mut self, is_last: bool) -> Instant;
}

/// A thread that looks until [`Looking::finish`].
#[derive(Debug)]
pub(super) struct Looking<L> {
    done: Arc<AtomicBool>,
    thread: JoinHandle<L>,
}

impl<L: Look> Looking<L> {
    /// Looks from then on.
    pub(super) fn start(name: &str, from: SystemTime, looker: L) -> Result<Looking<L>, CommandFault> {
        let done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&done);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || until(&ends, from, looker))
            .map_err(|e| CommandFault::ours(format!("a thread could not be started: {e}")))?;
        Ok(Looking { done, thread })
    }

    /// Ends it after a last look. `None`: it panicked, and the run is reported all the same.
    pub(super) fn finish(self) -> Option<L> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}

fn until<L: Look>(done: &AtomicBool, from: SystemTime, mut looker: L) -> L {
    while SystemTime::now() < from && !done.load(Ordering::Relaxed) {
        thread::sleep(NAP.min(from.duration_since(SystemTime::now()).unwrap_or_default()));
    }
    let mut next = looker.begin();
    loop {
        let is_last = done.load(Ordering::Relaxed);
        let left = next.saturating_duration_since(Instant::now());
        if !is_last && !left.is_zero() {
            thread::sleep(NAP.min(left));
            continue;
        }
        next = looker.look(is_last);
        if is_last {
            return looker;
        }
    }
}

/// When to look again: `between` after a look that began when its thread had used `used_ns` on cores, and later after one
/// that took long. Time without a core is no load.
pub(super) fn next_look(between: Duration, used_ns: u64) -> Instant {
    let took = Duration::from_nanos(machine::thread_cpu_time_ns().saturating_sub(used_ns));
    Instant::now() + between.max(took * PART).min(LONGEST)
}

/// Leaves every second look out, if they have become too many; says whether it did.
pub(super) fn thin_out<T>(looks: &mut Vec<T>) -> bool {
    if looks.len() < LOOKS {
        return false;
    }
    let mut keep = false;
    looks.retain(|_| {
        keep = !keep;
        keep
    });
    true
}

/// To three places, as documents have it.
pub(super) fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Seconds as documents have them.
pub(super) fn rounded(series: &[ServerSecond]) -> Vec<ServerSecond> {
    let second = |s: &ServerSecond| ServerSecond {
        t_s: round(s.t_s),
        busy: s.busy.map(round),
        rss_mb: s.rss_mb.map(round),
    };
    series.iter().map(second).collect()
}

/// CPU time for each request, microseconds.
pub(super) fn for_each_request(cpu_s: f64, answered: u64) -> Option<f64> {
    (answered > 0).then(|| round(cpu_s * 1e6 / answered as f64))
}
