//! A place to send to: plain data.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Where to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// As the user wrote it, for the report.
    pub url: String,
    /// `host[:port]` as it goes into the Host field (RFC 9110 section 7.2).
    pub authority: String,
    /// Resolved addresses; connections are spread over them in turn. At least one.
    pub addresses: Vec<SocketAddr>,
}
