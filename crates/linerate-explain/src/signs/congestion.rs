//! The first congestion window of a connection, and messages that exceed it.

use crate::record::Record;

/// Shorter round trips cost a negligible time.
const RTT_MS: f64 = 3.0;
/// Capacity of the first window (RFC 6928: ten segments).
pub(crate) const FIRST_WINDOW: u64 = 13_000;

/// The message exceeds the first window, and the path is long enough for round trips to cost time.
pub(crate) fn may_limit(record: &Record) -> bool {
    let body = record.group().first().and_then(|c| c.answer()).map(|a| a.body_bytes);
    body.is_some_and(|body| body + record.settings.body_bytes >= FIRST_WINDOW) && record.rtt_ms() >= RTT_MS
}
