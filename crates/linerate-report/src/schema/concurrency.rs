//! What keeps a server from more requests a second: `server.concurrency` of a run's document.

use serde::{Deserialize, Serialize};

/// What keeps a server from more requests a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerConcurrency {
    /// "cpu-bound", "switching", "waiting-for-core", "pool-full", "blocked", "waits", "client", "not-reached" or "unknown".
    pub verdict: String,
    /// The verdict in a sentence.
    pub text: String,
    /// The observations that it rests on.
    pub signs: Vec<String>,
    /// Looks at its threads.
    pub looks: u64,
    /// Cores that it may use.
    pub cores: f64,
    /// Requests in flight on average, by Little's law; null without latencies.
    pub in_flight: Option<f64>,
    /// Threads on a core or ready for one, on average.
    pub threads_running: f64,
    /// Threads in calls that keep them from other requests.
    pub threads_blocked: f64,
    /// Threads that waited for events, connections or the next request.
    pub threads_free: f64,
    /// Threads that waited for other threads (futex): idle in a pool, or kept out by a lock.
    pub threads_waiting: f64,
    /// Connections that were not accepted or whose requests were not read, on average; null where its sockets cannot be seen.
    pub queued: Option<f64>,
    /// Processor time for each response, microseconds.
    pub cpu_us_per_request: f64,
    /// Time for which each request kept a thread blocked, microseconds.
    pub blocked_us_per_request: f64,
    /// The most that one core allows at this cost, a second.
    pub core_rps: f64,
    /// The share of this machine's CPU time that was used, by any program; null where it is not known.
    pub machine_busy: Option<f64>,
    /// The share of the time in which its threads wanted a core that they had none (schedstat).
    pub run_queue_share: f64,
    /// What changes would allow.
    pub cures: Vec<ConcurrencyCure>,
}

/// A change, and the rate that it would allow at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConcurrencyCure {
    /// What is changed.
    pub change: String,
    /// The rate that it allows at most, by the run's own figures.
    pub rate_rps: f64,
}
