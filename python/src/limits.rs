//! Every limit of the package, with its reason.

use std::time::Duration;

/// How long a thread waits before it looks for signals. Reason: Ctrl-C should seem immediate, and a look costs 1 us.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Responses that are handed over together. Reason: each handing over takes a lock.
pub(crate) const BATCH: usize = 256;

/// How long requests are gathered from an iterator before they leave. Reason: quick iterators give hundreds in that
/// time, and a slow one holds none up.
pub(crate) const BATCH_TIME: Duration = Duration::from_millis(1);

/// Calls of one `send_all` that are under way or wait to be taken. Reason: their responses wait in memory.
pub(crate) const STREAM_WINDOW: usize = 8192;

/// Connections that quick responses share, and requests in flight on each, where the program leaves them to the client.
/// Reason: the client's own defaults.
pub(crate) const USUAL_PIPES: u32 = 4;
pub(crate) const USUAL_DEPTH: u32 = 64;

/// Pieces of a streamed request that wait for the client. Reason: the server takes one while the program makes the next.
pub(crate) const UPLOAD_PIECES: usize = 2;
