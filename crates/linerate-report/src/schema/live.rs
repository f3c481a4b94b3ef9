//! `"schema": "linerate.live/1"`: a line of JSON for each window of `linerate explain --capture`
//! without end.

use serde::Serialize;

use super::passive::SeenCause;

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.live/1";

/// What was seen in one window of time.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The port and the interface, in words.
    pub source: String,
    /// When the window ended (RFC 3339, UTC).
    pub at: String,
    /// How long it was, seconds.
    pub window_s: f64,
    /// Time since watching began, seconds.
    pub watched_s: f64,
    /// `healthy`, `caused` or `inconclusive`, of all calls of the window.
    pub verdict: String,
    /// All calls of the window.
    pub calls: LiveCalls,
    /// Each server that answered, or is waited for; those that lost most time first.
    pub servers: Vec<LiveServerFigures>,
    /// What was seen since watching began.
    pub since_start: LiveTotal,
    /// Packets of the window.
    pub packets: LivePackets,
    /// What watching costs this process, in the window.
    pub own_cpu: LiveCpu,
    /// Connections that are remembered now.
    pub connections_open: usize,
    /// What was left out since watching began because a table was full.
    pub left_out: LiveLeftOut,
    /// Figures to doubt, in words.
    pub limits: Vec<String>,
}

/// Calls of a window. A call belongs to the window in which its response ends.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveCalls {
    /// With a complete response.
    pub answered: u64,
    /// Whose response was truncated, or did not come while their connection lasted.
    pub unanswered: u64,
    /// Answered calls in a second.
    pub rate_rps: f64,
    /// Calls that wait for the end of their response now.
    pub waiting: u64,
    /// For how long the oldest of them has waited, milliseconds.
    pub longest_wait_ms: f64,
    /// Time of the answered calls; null if there were none.
    pub latency_us: Option<LiveLatency>,
}

/// Quantiles of the time of calls, microseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveLatency {
    /// Median.
    pub p50: i64,
    /// 90 %.
    pub p90: i64,
    /// 99 %.
    pub p99: i64,
    /// The slowest.
    pub max: i64,
}

/// The calls to one server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveServerFigures {
    /// Its address; null for the servers that are not told apart.
    pub server: Option<String>,
    /// Processes of this machine that have its ends of connections.
    pub processes: Vec<LiveProcess>,
    /// `healthy`, `caused` or `inconclusive`.
    pub verdict: String,
    /// Its calls.
    pub calls: LiveCalls,
    /// What cost them time, most costly first.
    pub causes: Vec<SeenCause>,
    /// The processes that made the calls, those with most calls first.
    pub clients: Vec<LiveClient>,
}

/// A process of this machine.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveProcess {
    /// Its number.
    pub pid: u32,
    /// Its program's name.
    pub name: String,
}

/// The calls of a client process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveClient {
    /// The process; null where none of this machine is known to have the connections.
    pub process: Option<LiveProcess>,
    /// The client's address.
    pub address: String,
    /// Answered calls.
    pub calls: u64,
    /// Of them, those whose connection ended before its process was looked up: no other process with
    /// this address was seen.
    pub assumed: u64,
    /// Average time of a call.
    pub mean_ms: f64,
    /// What packets show of lost time in its calls, most costly first, however little it is.
    pub lost: Vec<LiveLoss>,
}

/// Time that calls of a client lost.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveLoss {
    /// The cause's id.
    pub id: String,
    /// Calls in which it was seen.
    pub calls: u64,
    /// Its average cost in these calls.
    pub cost_ms: f64,
}

/// What was seen since watching began.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveTotal {
    /// `healthy`, `caused` or `inconclusive`.
    pub verdict: String,
    /// Calls with a complete response.
    pub answered: u64,
    /// Calls without.
    pub unanswered: u64,
    /// What cost time, most costly first.
    pub causes: Vec<SeenCause>,
}

/// Packets of a window.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LivePackets {
    /// Captured.
    pub seen: u64,
    /// Dropped by the kernel, because they came faster than they were read.
    pub dropped: u64,
    /// The share that was captured, from 0 to 1.
    pub share: f64,
}

/// CPU time of this process in a window, in steps of 10 ms. The kernel charges the copy of each packet
/// to the process that sends it: it is not in here.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveCpu {
    /// In the program.
    pub user_s: f64,
    /// In the kernel.
    pub kernel_s: f64,
    /// Both together as a share of one core.
    pub core_share: f64,
}

/// What was left out because a table was full.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LiveLeftOut {
    /// Calls to servers beyond the first 32, which are judged together.
    pub servers: u64,
    /// Calls of clients beyond the first 256, which have no row of their own, or whose pools of
    /// connections are not looked at.
    pub clients: u64,
    /// Costs beyond the first 4,096 of a cause, which its median leaves out.
    pub costs: u64,
}
