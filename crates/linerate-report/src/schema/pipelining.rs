//! `"schema": "linerate.pipelining/1"`: whether pipelining pays at a server, and what would.

use serde::{Deserialize, Serialize};

use super::outcome::Environment;

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.pipelining/1";

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PipeliningDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// The URL.
    pub target: String,
    /// When it began (RFC 3339, UTC).
    pub started_at: Option<String>,
    /// Whether the requests of a pipeline get good responses.
    pub works: bool,
    /// Whether a pipeline gives at least 1.5 times the rate of one request at a time.
    pub pays: bool,
    /// Whether the requests of a pipeline are served one after another: as many on connections of
    /// their own get more than twice the rate.
    pub one_after_another: bool,
    /// Whether responses come in the order of their requests; null: not told, as where the server has
    /// one status for all paths.
    #[serde(default)]
    pub in_order: Option<bool>,
    /// The best way beside pipelining, where it gives at least 1.5 times the rate; null: none does.
    pub cure: Option<PipelineWayName>,
    /// The field `Via` of a response, by which a proxy names itself.
    pub proxy: Option<String>,
    /// The verdict in sentences, the most important first.
    pub summary: Vec<String>,
    /// Each way of sending.
    pub ways: Vec<PipelineWay>,
    /// Where it happened.
    pub environment: Environment,
}

/// One way of sending, and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PipelineWay {
    /// Its name.
    pub name: PipelineWayName,
    /// Connections.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub in_flight: u32,
    /// Responses per second; null: it was not measured.
    pub rate_rps: Option<f64>,
    /// Why it was not measured.
    pub not_measured: Option<String>,
    /// Requests without a good response, as a share of all.
    pub failed_share: f64,
    /// Responses on a connection before the server closed it; null: it closed none.
    pub closes_after: Option<f64>,
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PipelineWayName {
    /// One request at a time on one connection.
    Alone,
    /// Several in flight on one connection of HTTP/1.1.
    Pipelined,
    /// One at a time on each of several connections.
    Connections,
    /// Streams of HTTP/2 on one connection.
    Http2,
}
