//! The course of a run in small steps, as documents have it.

use serde::{Deserialize, Serialize};

/// A step of a run: 10 ms, in runs of more than 2 s 100 ms, in very long ones more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FineInterval {
    /// Its end, seconds from the beginning of measuring.
    pub t_s: f64,
    /// Responses per second in it.
    pub rate_rps: f64,
    /// Failed in it.
    pub failed: u64,
    /// Of unknown end in it.
    #[serde(default)]
    pub unknown: u64,
    /// Responses in it that were not good.
    #[serde(default)]
    pub bad: u64,
    /// Bytes of requests in it.
    pub bytes_sent: u64,
    /// Bytes of responses in it.
    pub bytes_received: u64,
    /// Requests in flight at its end; null at the end of the run.
    pub in_flight: Option<u64>,
    /// Cores that the sending threads kept busy in it; null where they were not watched.
    pub client_busy: Option<f64>,
    /// Cores that the server kept busy in it; null without `--pid`, and where it was not looked at.
    pub server_busy: Option<f64>,
    /// ACKs that repeat the one before them, of both directions, as the rest; null without a capture.
    pub duplicate_acks: Option<u64>,
    /// Announcements of a closed window.
    pub zero_windows: Option<u64>,
    /// Segments that end where the receiver's window does.
    pub windows_full: Option<u64>,
    /// Segments that were sent again.
    pub retransmissions: Option<u64>,
}
