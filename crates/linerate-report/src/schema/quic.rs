//! QUIC, in the document of a run.

use serde::{Deserialize, Serialize};

/// What QUIC went through, over all connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Quic {
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Retry packets of the server, by which it has a client prove its address.
    pub retries: u64,
    /// Packets of ours that were taken for lost, of those sent.
    pub lost: u64,
    /// Packets sent.
    pub packets: u64,
    /// Round-trip times of the connections at their end; null: none was established.
    pub rtt_us: Option<QuicRtt>,
    /// Datagrams received with the mark of congestion (ECN).
    pub ecn: u64,
    /// Datagrams sent and received for each response; null without responses.
    pub datagrams_per_request: Option<f64>,
    /// Datagrams that this machine's sockets had no room for, received or sent.
    pub drops_here: u64,
}

/// Round-trip times, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuicRtt {
    /// The least.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}
