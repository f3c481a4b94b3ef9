//! The load to send: plain data that serializes, whatever it was made from (flags, a plan file, a HAR, a log).

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use check::{Check, Comparison, Metric};
pub use invalid::InvalidPlan;
pub use linerate_client::Resend;
use linerate_http::client::Body;
pub use linerate_net::Io;
pub use rate::{Arrival, Rate, RateStep};
use serde::{Deserialize, Serialize};
pub use target::Target;

pub mod abort;
pub mod body;
pub mod check;
mod curve;
pub mod data;
pub mod env;
pub mod file;
pub mod flow;
pub mod form;
mod hosts;
pub mod http;
mod invalid;
pub mod limits;
pub mod parts;
pub mod pick;
mod rate;
pub mod route;
pub mod schedule;
mod target;
pub mod tls;
pub mod units;

/// A whole load run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where to.
    pub target: Target,
    /// The kinds of requests: at least one.
    pub requests: Vec<Request>,
    /// Which of them comes next.
    pub order: Order,
    /// Users that send the requests in turn; `None`: each request stands alone.
    #[serde(default)]
    pub flows: Option<flow::FlowPlan>,
    /// Data that requests draw from (`{{NAME.COLUMN}}`).
    pub data: Vec<DataSet>,
    /// Connections held open, over all threads (at least 1).
    pub connections: u32,
    /// Requests in flight on each connection (at least 1).
    pub depth: u32,
    /// Close a connection after this many requests; `None`: when the peer does.
    pub per_connection: Option<u32>,
    /// When to stop.
    pub stop: Stop,
    /// When a request is due.
    pub pace: Pace,
    /// Threads, each pinned to a core; `None`: one per core of this machine.
    pub threads: Option<u32>,
    /// How to send.
    pub way: Way,
    /// Which transport moves the bytes.
    pub io: Io,
    /// The interface that [`Io::Xdp`] sends by.
    pub interface: Option<String>,
    /// With [`Io::Xdp`]: the interface's queue is polled by the thread that works, for so long at a time.
    pub busy_poll: Option<Duration>,
    /// With [`Io::Xdp`]: every packet is written into this file, as pcap.
    pub pcap_out: Option<PathBuf>,
    /// With [`Io::Xdp`]: what goes wrong with packets on purpose, `loss=1%,delay=20ms`
    /// ([`linerate_net::link::fault::FaultOptions`]).
    pub fault: Option<String>,
    /// Source addresses to spread connections over; empty: the kernel's choice.
    pub from: Vec<IpAddr>,
    /// How connections get to the target.
    #[serde(default)]
    pub route: route::Route,
    /// Which HTTP connections speak.
    #[serde(default)]
    pub http: http::HttpOptions,
    /// TLS towards the target; `None`: plain HTTP.
    pub tls: Option<tls::TargetTls>,
    /// How long a response may take before the request counts as failed (`timeout`).
    pub timeout: Duration,
    /// Requests that leave within this time from the start are not in the figures.
    pub warm_up: Duration,
    /// Number each request in this header field and check that the response echoes it.
    pub tag: Option<String>,
    /// Which requests go out again when their connection ends.
    pub resend: Resend,
    /// Favor throughput over latency: read responses in larger batches. Latencies are then not reported.
    pub throughput: bool,
    /// Checks that must hold at the end.
    pub checks: Vec<Check>,
    /// Conditions that end the run early.
    #[serde(default)]
    pub abort_on: Vec<abort::AbortOn>,
    /// How many responses are kept whole.
    #[serde(default)]
    pub save_responses: u32,
    /// Seed of everything random (arrivals, weights, `{{rand}}`): the same plan asks for the same again.
    pub seed: u64,
}

impl Plan {
    /// Whether a condition that ends the run is about requests of a name.
    pub fn aborts_by_name(&self) -> bool {
        self.abort_on.iter().any(|condition| condition.check.name.is_some())
    }

    /// Whether latency counts from when requests were due: in an open loop, and for users of flows.
    pub fn counts_from_due(&self) -> bool {
        self.pace != Pace::Closed || self.flows.is_some()
    }
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Name in the report.
    pub name: String,
    /// Share of all requests, relative to the others' weights (greater than 0).
    pub weight: f64,
    /// Method token; empty: the body is all that is sent, as it is ([`Request::is_raw`]).
    pub method: String,
    /// Request target in origin form, slots allowed.
    pub path: String,
    /// Header fields in order, slots allowed in values. Host is added from the target when it is not among them.
    pub fields: Vec<(String, String)>,
    /// The body; `None` sends no Content-Length unless the method needs one.
    #[serde(with = "body::plain")]
    pub body: Option<Body>,
    /// The conditions of a good response.
    pub expect: Expectation,
}

impl Request {
    /// Whether the body is the whole request, head and all, sent as it is.
    pub fn is_raw(&self) -> bool {
        self.method.is_empty()
    }
}

/// The conditions of a good response. A response that fails them counts as answered all the same, and in `bad`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// Good statuses; empty: 100 to 399.
    pub status: Vec<u16>,
    /// Text that the body must contain; `None`: any body.
    pub body: Option<String>,
    /// A trailer field and its value. A response without a body may have it in its head.
    #[serde(default)]
    pub trailer: Option<(String, String)>,
    /// What else a response to a `[[request]]` must be like; steps of flows have their own.
    #[serde(default)]
    pub response: Option<flow::StepExpectation>,
}

impl Expectation {
    /// Whether this status is good.
    pub fn good_status(&self, status: u16) -> bool {
        if self.status.is_empty() { (100..400).contains(&status) } else { self.status.contains(&status) }
    }
}

/// Which request comes next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// By weight, drawn from the seed.
    Weighted,
    /// Indices into `requests`, one after the other, from the start again when they end.
    Listed(Vec<u32>),
}

/// Rows of named columns, read into memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSet {
    /// Name used in slots.
    pub name: String,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows; each as long as `columns`. At least one. Request number n takes row n modulo their number.
    pub rows: Vec<Vec<String>>,
}

/// When to stop: whichever comes first. At least one is set (or the pace ends by itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// After this many requests (in the figures: warm-up not counted).
    pub requests: Option<u64>,
    /// After this time (from the end of the warm-up).
    pub duration: Option<Duration>,
}

/// When a request is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// Closed loop: as soon as a response frees a place.
    Closed,
    /// Open loop: at a rate, independent of the responses.
    Open {
        /// The rate over time.
        rate: Rate,
        /// How arrivals are spaced.
        arrival: Arrival,
    },
    /// Open loop: at these times, nanoseconds from the start, ascending (a replayed log). Ends with the last.
    Trace(Vec<u64>),
}

/// How to send: ours, or a baseline of the write-ups to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Event loops, `depth` requests in flight on each connection.
    #[default]
    Loop,
    /// One thread; one request at a time on one connection.
    Poll,
    /// As many blocking threads as connections, each with one request at a time.
    Threads,
    /// As many tasks as connections on an async runtime (tokio), each with one request at a time.
    Async,
}

impl Way {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::Loop => "loop",
            Way::Poll => "poll",
            Way::Threads => "threads",
            Way::Async => "async",
        }
    }
}
