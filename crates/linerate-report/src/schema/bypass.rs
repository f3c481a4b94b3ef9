//! `"schema": "linerate.bypass/1"`: what a running `linerate bypass` and its program's processes do.

use serde::{Deserialize, Serialize};

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.bypass/1";

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BypassDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process of the command.
    pub pid: u32,
    /// The interface.
    pub interface: String,
    /// The interface's receive queues.
    pub queues: u32,
    /// The addresses whose connections are in user space.
    pub listen: Vec<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// When the command began (RFC 3339, UTC).
    pub started_at: String,
    /// When the counters were read (RFC 3339, UTC).
    pub seen_at: String,
    /// Connections accepted in user space, as a share of all that other machines opened to these
    /// addresses; null: none was accepted.
    pub in_user_space: Option<f64>,
    /// Processes that serve, in the order in which they first waited for a connection.
    pub workers: Vec<BypassWorker>,
    /// Processes that have ended.
    pub ended: u64,
    /// What those did, together.
    pub ended_counts: BypassCounts,
}

/// A process that serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BypassWorker {
    /// The process.
    pub pid: u32,
    /// Its receive queues; empty: it serves from the kernel.
    pub queues: Vec<u32>,
    /// It has given its queues to a successor, and only its last connections are in user space.
    #[serde(default)]
    pub replaced: bool,
    /// When it first waited for a connection (RFC 3339, UTC).
    pub since: String,
    /// What it has done.
    #[serde(flatten)]
    pub counts: BypassCounts,
}

/// What processes have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BypassCounts {
    /// Connections accepted in user space.
    pub accepted: u64,
    /// Connections of other machines to the same addresses accepted from the kernel.
    pub accepted_of_kernel: u64,
    /// Open connections in user space, including closing ones.
    pub connections: u64,
    /// Bytes received in user space.
    pub bytes_in: u64,
    /// Bytes sent in user space.
    pub bytes_out: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Packets lost on this machine before TCP saw them.
    pub lost: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Connections of this machine, which come over no interface and are always the kernel's.
    #[serde(default)]
    pub accepted_here: u64,
}
