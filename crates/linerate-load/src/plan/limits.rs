//! Every limit of plans, with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Flows of a plan. Reason: a person writes it.
pub(crate) const MAX_FLOWS: usize = 100;

/// Hosts of flows beside the plan's target. Reason: each thread has a loop for each of them.
pub(crate) const MAX_HOSTS: usize = 15;

/// How often a step is repeated at most.
pub(crate) const MAX_REPEAT: u64 = 1_000_000;

/// Requests of a group. Reason: a server of HTTP/2 should admit a hundred streams at least (RFC 9113 section 6.5.2).
pub(crate) const MAX_GROUP: usize = 100;

/// Connections of a user without streams. Reason: browsers open as many to a host.
pub(crate) const USER_CONNECTIONS: usize = 6;

/// Users of a rate at the same time, where nobody says how many. Reason: each has a connection, and a process has
/// file descriptors for about twice as many.
pub(crate) const USERS_AT_ONCE: u32 = 10_000;

/// The longest pause of a user. Reason: a longer one is a mistake.
pub(crate) const MAX_THINK: Duration = Duration::from_secs(3600);

/// Redirects that a step follows. Reason: more are a loop; browsers stop at twenty.
pub(crate) const MAX_FOLLOW: u32 = 20;

/// Steps of flows that follow redirects. Reason: each is compiled in six forms, and 16 bits number them.
pub(crate) const MAX_FOLLOWING: usize = 10_000;

/// Values that a step takes. Reason: each user holds them.
pub(crate) const MAX_TAKES: usize = 50;

/// Highest rate, requests/s. Reason: due times are whole nanoseconds, so a higher rate would be
/// indistinguishable.
pub const MAX_RATE: f64 = 1e9;

/// Lowest rate that is not zero, requests/s (one in eleven days). Reason: below it is a slip, and
/// sums stay exact.
pub const MIN_RATE: f64 = 1e-6;

/// Steps of a rate. Reason: more is a recorded curve, for which a trace is the better form.
pub const MAX_RATE_STEPS: usize = 10_000;

/// Longest duration of anything in a plan. Reason: sums of nanoseconds stay far from 2^64.
pub const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Longest timeout. Reason: histograms distinguish values up to an hour.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The shortest and the longest time that a queue is polled. Reason: the kernel counts
/// microseconds, and polling longer than a second gains nothing.
pub const BUSY_POLL: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);

/// Connections. Reason: 16 source addresses with all their ports; a larger number is a slip.
pub const MAX_CONNECTIONS: u64 = 1_000_000;

/// Requests in flight on a connection. Reason: each costs memory for its due time.
pub const MAX_PIPELINE: u64 = 65_536;

/// Threads. Reason: one per core; no machine has more cores.
pub const MAX_THREADS: u64 = 1024;

/// Kinds of requests. Reason: each is compiled for each thread, and its number is kept in 16 bits
/// while in flight.
pub const MAX_REQUESTS: usize = 20_000;

/// Bytes of a plan file. Reason: it is written by hand; a larger file is the wrong file.
pub const MAX_PLAN_BYTES: u64 = 1 << 20;

/// Bytes of a request's body, or of a part of it. Reason: it is held in memory, once; a larger file
/// was hardly meant.
pub const MAX_BODY_BYTES: u64 = 1 << 30;

/// Bytes of a data file. Reason: it is read into memory, about three times its size there.
pub const MAX_CSV_BYTES: u64 = 256 << 20;

/// Rows of a data file. Reason: as above; short rows cost more than their bytes.
pub const MAX_CSV_ROWS: usize = 2_000_000;

/// Columns of a data file. Reason: more is a file with the wrong delimiter, or not a CSV file.
pub const MAX_CSV_COLUMNS: usize = 1000;

/// Data sets of a plan. Reason: slots name them by hand.
pub const MAX_DATA_SETS: usize = 100;

/// Over how long a condition that ends a run is looked at. Reason: below, a few requests decide;
/// above, it is a check.
pub const ABORT_WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Snapshots kept for that time. Reason: each is a histogram, and 10 % of a window is fine enough.
pub const ABORT_LOOKS: u32 = 20;

/// Conditions that end a run. Reason: each costs a look ten times a second.
pub const MAX_ABORTS: usize = 16;

/// Checks of a plan. Reason: they are read by people.
pub const MAX_CHECKS: usize = 1000;

/// Characters of a source line shown with an error. Reason: it has to fit on a screen.
pub const MAX_SHOWN_CHARS: usize = 100;

/// Characters of a wrong value repeated in an error.
pub const MAX_QUOTED_CHARS: usize = 60;

/// The longest time for iterations to end in. Reason: a longer one is a mistake.
pub(crate) const MAX_GRACEFUL: Duration = Duration::from_secs(3600);
