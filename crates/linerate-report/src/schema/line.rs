//! A shaped line, as documents have it.

use serde::{Deserialize, Serialize};

/// A line that packets passed between this program and a server of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShapedLine {
    /// In words: "100 Mbit/s, 26 ms round trip, 1 % lost each way".
    pub text: String,
    /// Bits per second in each direction; null without a limit.
    pub rate_bps: Option<u64>,
    /// What it adds to a round trip, milliseconds.
    pub round_trip_ms: f64,
    /// The share of packets that it loses in each direction, 0 to 1.
    pub loss: f64,
    /// To the server.
    pub up: LineFrames,
    /// From the server.
    pub down: LineFrames,
}

/// Packets in one direction of a shaped line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LineFrames {
    /// All that were sent.
    pub sent: u64,
    /// Lost at random.
    pub lost: u64,
    /// Dropped because the queue in front of the line's rate was full.
    pub queue_full: u64,
}
