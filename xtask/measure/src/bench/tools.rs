//! The programs of a benchmark, and how long each of them runs.

use std::path::PathBuf;

/// Variables by which programs would send to a proxy: all that is measured is on loopback.
pub(crate) const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// The programs that are measured and those that measure.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    /// The release build of the command.
    pub(super) linerate: PathBuf,
    /// The release build of server, raw clients and wrapper.
    pub(super) raw: PathBuf,
    /// Cores of server and client.
    pub(super) cores: [usize; 2],
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) flags: String,
    pub(super) spin: bool,
}
