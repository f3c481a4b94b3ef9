//! The plan inside a result: enough to know what was asked for and to ask for it again. Data sets are named, not copied.

use serde::{Deserialize, Serialize};

/// What was to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plan {
    /// Addresses connections were spread over.
    pub addresses: Vec<String>,
    /// The Unix socket that stood for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_socket: Option<String>,
    /// The host and port that stood for the URL's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_to: Option<String>,
    /// Hosts beside the target, where steps of flows go: scheme and authority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// The PROXY protocol's version, "v1" or "v2", if connections began with its line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub haproxy_protocol: Option<String>,
    /// Connections held open.
    pub connections: u32,
    /// Requests in flight on each.
    pub pipeline: u32,
    /// A connection is closed after this many requests.
    pub per_connection: Option<u32>,
    /// Which requests go out again when their connection ends: "idle", "never" or "idempotent".
    #[serde(default)]
    pub resend: String,
    /// Stop after this many requests.
    pub requests: Option<u64>,
    /// Stop after this time, seconds.
    pub duration_s: Option<f64>,
    /// "closed", "open" or "trace".
    pub loop_kind: String,
    /// The open loop's rate, step by step.
    pub rate: Option<Vec<RateStep>>,
    /// "constant" or "poisson", in an open loop.
    pub arrival: Option<String>,
    /// Sending threads asked for; null: one per core.
    pub threads: Option<u32>,
    /// "loop", "poll", "threads" or "async".
    pub way: String,
    /// Transport asked for: "auto", "epoll", "uring", "xdp".
    pub io: String,
    /// Version of HTTP asked for: "auto", "1.1", "2".
    #[serde(default)]
    pub http: String,
    /// The interface, for "xdp".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Source addresses.
    pub from: Vec<String>,
    /// Time-out of a request, seconds.
    pub timeout_s: f64,
    /// Warm-up, seconds.
    pub warm_up_s: f64,
    /// Header field that numbers requests.
    pub tag: Option<String>,
    /// Whether latencies were given up for throughput.
    pub throughput: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// "weighted", or "listed" for a fixed order (a replayed log).
    pub order: String,
    /// The requests.
    pub templates: Vec<Template>,
    /// Data sets by name.
    pub data: Vec<DataSet>,
}

/// An HTTP proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Proxy {
    /// Its URL, without user and password.
    pub url: String,
    /// "--proxy", or the variable that named it.
    pub from: String,
    /// Whether it connected to the target (CONNECT) instead of forwarding requests.
    pub tunnel: bool,
}

/// A step of the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RateStep {
    /// Requests/s at its start.
    pub from_rps: f64,
    /// Requests/s at its end.
    pub to_rps: f64,
    /// Seconds; null: for ever.
    pub lasts_s: Option<f64>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its share relative to the others'.
    pub weight: f64,
    /// Method.
    pub method: String,
    /// Request target, with its slots.
    pub path: String,
    /// Header fields, with their slots. Values of `Authorization`, `Cookie` and the like are replaced by "***".
    pub headers: Vec<(String, String)>,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Statuses that are good; empty: below 400.
    pub expect_status: Vec<u16>,
    /// Text the body must contain.
    pub expect_body: Option<String>,
    /// Trailer that the response must have, with its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_trailer: Option<(String, String)>,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DataSet {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// How many rows it has.
    pub rows: u64,
}
