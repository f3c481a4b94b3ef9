//! Every limit of this crate, with its reason.

use std::time::Duration;

/// Resamples of a bootstrap. Reason: the ends of a 95 % interval then rest on 250 values each.
pub const RESAMPLES: usize = 9_999;

/// Resamples of whole rounds. Reason: each computes percentiles anew, and the ends rest on 25
/// values each.
pub const RESAMPLES_OF_ROUNDS: usize = 999;

/// Ways of dealing the runs of a comparison to its sides that are tried. Reason: a share of 5 % of
/// them is then sure to 1 %.
pub const DEALS: usize = 499;

/// Rounds up to which that is done. Reason: each deal computes as many percentiles as there are
/// rounds, and resamples suffice where no few rounds decide.
pub const DEALT_ROUNDS: usize = 40;

/// Values up to which every resample is drawn once instead of some at random. Reason: 5 values
/// have 3,125 resamples, and seven already 823,543.
pub const ALL_RESAMPLES: usize = 5;

/// Fewest rounds with an interval. Reason: two values tell next to nothing about their spread.
pub const LEAST_ROUNDS: usize = 3;

/// Most rounds of a comparison. Reason: the table of all runs stays readable, and the document
/// small.
pub const MOST_ROUNDS: u32 = 1_000;

/// A spread below this share is not believed. Reason: latencies are recorded to three significant
/// digits, and memory in pages.
pub const RESOLUTION: f64 = 0.000_5;

/// Requests beyond a percentile, of all rounds of a side, from which on it is a metric. Reason:
/// with fewer, a single slow response decides.
pub const BEYOND: f64 = 10.0;

/// Lines of a server's output that are kept. Reason: the last ones say why it ended.
pub const OUTPUT_LINES: usize = 20;

/// Bytes of a line of a server's output that are kept. Reason: a server may print without line
/// ends.
pub const OUTPUT_LINE: usize = 1_000;

/// Time that a server has to end by itself after SIGTERM. Reason: more than a drain of idle
/// connections takes.
pub const GRACE: Duration = Duration::from_secs(3);

/// Time between two looks at a process or a port that is awaited.
pub const LOOK: Duration = Duration::from_millis(10);

/// Processes of a server that are watched. Reason: a look at each costs some 0.1 ms on the machine that
/// is measured; a server with a process for each of 1,000 connections is seen whole.
pub const PROCESSES: usize = 1_100;

/// Rows of a scenario. Reason: each is run in every round, so 200 of a second take a quarter of an
/// hour already.
pub const SCENARIO_ROWS: usize = 200;

/// Connections of a relay. Reason: each has four threads.
pub const RELAY_CONNECTIONS: usize = 1_000;

/// Bytes of one read of a relay.
pub const RELAY_CHUNK: usize = 64 << 10;

/// Reads in flight in one direction of a relay. Reason: 20 ms of a fast connection fit, and a
/// receiver that stalls does not fill the memory.
pub const RELAY_CHUNKS: usize = 1_024;
