//! `"schema": "linerate.outcome/1"`: what one run measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::concurrency::ServerConcurrency;
pub use super::flow::{FlowCounts, Named, StepSeries};
use super::passive::Segment;

/// The value of `schema`.
pub const SCHEMA: &str = "linerate.outcome/1";

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// The URL, as the user wrote it.
    pub target: String,
    /// What was to be done.
    pub plan: super::plan::Plan,
    /// When measuring began (RFC 3339, UTC); null when it never did.
    pub started_at: Option<String>,
    /// How long it was measured, seconds: to the planned end, or to the last response if that came later. Without a planned
    /// end: until each request had its own, also one without a response.
    pub duration_s: f64,
    /// Responses per second while requests were sent: `window.answered / window.seconds`.
    pub rate_rps: f64,
    /// What the rate is made of.
    #[serde(default)]
    pub window: Window,
    /// Logical requests that left after the warm-up.
    pub requests: Requests,
    /// Answered, but not as expected.
    pub bad: Bad,
    /// Failed requests by reason: every reason is there; the sum is `requests.failed`.
    pub failures: BTreeMap<String, u64>,
    /// The first detail seen of a reason, in words.
    pub failure_details: BTreeMap<String, String>,
    /// How many failed for which detail of a reason, in words: those that have one.
    #[serde(default)]
    pub failures_in_detail: BTreeMap<String, BTreeMap<String, u64>>,
    /// Failed requests whose stream alone the server reset (HTTP/2 and 3), by the name of its code.
    #[serde(default)]
    pub failures_detail: BTreeMap<String, u64>,
    /// Answers by status.
    pub status: BTreeMap<String, u64>,
    /// Answers whose heads had a flaw and could be read all the same, by flaw.
    #[serde(default)]
    pub tolerated: BTreeMap<String, u64>,
    /// Bytes above TCP.
    pub bytes: Bytes,
    /// "HTTP/1.1", "HTTP/2", "HTTP/3", or "HTTP/1.1 and HTTP/2" where the server agreed to both.
    #[serde(default)]
    pub protocol: String,
    /// HTTP/2; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2>,
    /// QUIC; absent over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<super::quic::Quic>,
    /// TLS's handshakes; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Lookups of the target's name during the run; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Lookups>,
    /// How much of the line they took; null where its speed is not known, or stands in name alone (loopback, veth, a hypervisor's card).
    #[serde(default)]
    pub line: Option<Line>,
    /// Latencies, microseconds.
    pub latency_us: Latencies,
    /// Connections.
    pub connections: Connections,
    /// The longest time without a response while requests were due or in flight; null if none was as long as a tenth of a
    /// second.
    #[serde(default)]
    pub silence: Option<Silence>,
    /// The first time in which no response arrived, requests failed, and none that was sent in it got a response: at least
    /// a second, and longer than the slowest good response. Null without one.
    #[serde(default)]
    pub outage: Option<Silence>,
    /// Whether the run was fine; null in documents of earlier versions.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// TCP's counters, summed over connections.
    pub tcp: Tcp,
    /// The load generator itself.
    pub client: Client,
    /// With `--pid`: the server's processes on this machine. With `--watch`: what its page for Prometheus tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Second by second; the last entry may be of less.
    pub series: Vec<Interval>,
    /// In small steps; null where they were not taken.
    #[serde(default)]
    pub series_fine: Option<Vec<super::fine::FineInterval>>,
    /// Checks, in the order they were given.
    pub checks: Vec<Check>,
    /// What the reader should know before believing the figures.
    pub warnings: Vec<String>,
    /// Figures per request name, when the plan has several.
    pub requests_by_name: BTreeMap<String, Named>,
    /// Iterations by flow, when the plan has flows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flows: BTreeMap<String, FlowCounts>,
    /// The worst and the bad ones.
    pub samples: Vec<Sample>,
    /// HdrHistogram V2, deflated, base64, of good responses: from due in an open loop, else from sent. Null when latencies
    /// were given up.
    pub histogram: Option<String>,
    /// Unit of the histogram's values: "us".
    pub histogram_unit: String,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// What ended it early because `--abort-on` said so.
    #[serde(default)]
    pub aborted: Option<String>,
    /// Why not a single connection could be opened.
    pub unreachable: Option<String>,
    /// Where it happened.
    pub environment: Environment,
    /// With `--find`: the highest rate at which the check holds; the other figures are those of the look
    /// at the highest rate that held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub find: Option<Find>,
    /// With `--explain`: why the worst request was slow (a document of [`crate::schema::diagnosis`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<serde_json::Value>,
    /// With `--agents`: each machine's part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<super::machines::Machines>,
    /// With `--agents`: one entry for each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<super::machines::AgentShare>>,
    /// With `--agents`: whether every message of every agent arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// With `--line`: the shaped line that packets passed, and what it did to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaped_line: Option<super::line::ShapedLine>,
    /// With `--log-requests`: how much of the run is in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_log: Option<RequestLog>,
}

/// Responses that came from the end of the warm-up to the end of sending, whenever their requests had
/// left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Window {
    /// Whole responses, whatever their status.
    pub answered: u64,
    /// Its length, seconds: to the planned end; without one, to the last response.
    pub seconds: f64,
}

/// A time without a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Silence {
    /// How long it was, seconds.
    pub longest_s: f64,
    /// When it began, seconds from the beginning of measuring.
    pub from_s: f64,
}

/// Whether a run was fine: if not, the exit code is not 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// It was, and all checks hold.
    pub pass: bool,
    /// Why it was not, in words, beside checks that failed.
    pub reasons: Vec<String>,
    /// Failed, unknown, bad, unsent and unsolicited, as a share of the requests that were due.
    pub errors_share: f64,
}

/// A file with a line for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestLog {
    /// Requests that are in it.
    pub lines: u64,
    /// Requests that are missing, because it could not be written so fast, or at all.
    pub left_out: u64,
}

/// What `--find` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Find {
    /// The check.
    pub expr: String,
    /// "knee", "always fails", "never fails", "not measured" (the time did not suffice), "client limit"
    /// (only looks during which the client was disturbed failed) or "interrupted".
    pub end: String,
    /// Of what the highest was looked for: "rate" or "connections".
    #[serde(default = "rate")]
    pub by: String,
    /// The most connections of a closed loop with which it holds; null when rates were looked for, or if it
    /// never holds.
    #[serde(default)]
    pub connections: Option<u32>,
    /// The interval that this lies in, like `interval_rps`.
    #[serde(default)]
    pub interval_connections: Option<[u32; 2]>,
    /// The highest rate at which it holds; null if it never does, where that could not be judged, and
    /// when connections were looked for.
    pub rate_rps: Option<f64>,
    /// The highest rate at which it holds for certain: the 95 % bound of the share over the limit, over
    /// all looks at that rate, is below the allowed share. Of a closed loop, the most connections.
    #[serde(default)]
    pub holds_at: Option<f64>,
    /// The interval that this lies in: the highest rate below it that held for certain, and the lowest
    /// above it that failed for certain.
    pub interval_rps: Option<[f64; 2]>,
    /// What gave way above it: "server", "queue", "link", "errors", "connections" or "client".
    pub limit: Option<String>,
    /// The same in words.
    pub why: String,
    /// Whether the user ended the search early.
    pub interrupted: bool,
    /// All looks, in order of time.
    pub points: Vec<FindPoint>,
}

fn rate() -> String {
    "rate".to_owned()
}

/// A look at one rate, or at so many connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindPoint {
    /// Connections of a closed loop; null in an open one.
    #[serde(default)]
    pub connections: Option<u32>,
    /// Requests per second that were due; of a closed loop, that were answered.
    pub rate_rps: f64,
    /// How long was measured, seconds.
    pub lasted_s: f64,
    /// What the check looks at, in its unit (microseconds, or a share of 1); null if it was not measured.
    pub value: Option<f64>,
    /// The share of requests over the limit.
    pub over: f64,
    /// Median latency, microseconds.
    pub p50_us: Option<f64>,
    /// Which of `value` and `p50_us` are bounds: requests without a good response lie there.
    #[serde(default)]
    pub at_least: Vec<String>,
    /// Whether the check holds at this rate, over all looks at it; null where that is not certain.
    pub holds: Option<bool>,
    /// Whether the client was disturbed: it waited for its core, or stood still. Such a look decides
    /// nothing by itself.
    #[serde(default)]
    pub disturbed: bool,
    /// Whether the server became faster later, so that this look no longer describes it.
    #[serde(default)]
    pub outdated: bool,
}

/// Logical requests: `sent = answered + failed + unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Requests {
    /// Left.
    pub sent: u64,
    /// A whole answer came, whatever its status.
    pub answered: u64,
    /// Certainly not answered.
    pub failed: u64,
    /// Left, and nobody can know whether it was acted on.
    pub unknown: u64,
    /// Times a request went out again.
    pub resent: u64,
    /// Due in an open loop and never sent.
    pub unsent: u64,
    /// Of these, those for which no connection had room when sending ended.
    #[serde(default)]
    pub unsent_full: u64,
    /// Of these, those for which too few connections were open when sending ended.
    #[serde(default)]
    pub unsent_unopened: u64,
    /// Of these, those for which the server admitted no streams when sending ended.
    #[serde(default)]
    pub unsent_shut: u64,
    /// Of these, those that were due before the agent that was to send them joined.
    #[serde(default)]
    pub unsent_missed: u64,
    /// Of those that are answered or failed, those whose step or request expects something of the response.
    #[serde(default)]
    pub expecting: u64,
    /// Of these, those whose response was good.
    #[serde(default)]
    pub met: u64,
    /// Responses that no request had asked for.
    #[serde(default)]
    pub unsolicited_responses: u64,
    /// Responses in another order than their requests, as their tags show.
    #[serde(default)]
    pub out_of_order_responses: u64,
}

/// Answered, but not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bad {
    /// By status.
    pub status: u64,
    /// By body.
    pub body: u64,
    /// By a body that could not be decoded.
    #[serde(default)]
    pub encoding: u64,
    /// By tag.
    pub tag: u64,
    /// By trailer.
    #[serde(default)]
    pub trailer: u64,
    /// By a value that a flow takes.
    #[serde(default)]
    pub take: u64,
    /// By what a step of a flow expects.
    #[serde(default)]
    pub expect: u64,
}

impl Bad {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.status + self.body + self.encoding + self.tag + self.trailer + self.take + self.expect
    }
}

/// Bytes of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bytes {
    /// Of requests.
    pub sent: u64,
    /// Of answers.
    pub received: u64,
}

/// How much of the line the run took: of `bytes`, so without the headers of TCP, IP and Ethernet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// The interface.
    pub interface: String,
    /// Its speed in each direction, bits per second.
    pub bits_per_s: u64,
    /// Share of it that received bytes took, 0 to 1.
    pub received_share: f64,
    /// Share of it that sent bytes took, 0 to 1.
    pub sent_share: f64,
}

/// Request bodies that the server's windows held up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeldUp {
    /// Requests whose time was over before their body had left.
    pub requests: u64,
    /// Bytes of these bodies that did not leave.
    pub bytes: u64,
    /// How long at the longest nothing of such a body had left.
    pub longest_s: f64,
}

/// HTTP/2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Http2 {
    /// Connections by it.
    pub connections: u64,
    /// Streams that the server admits at once on a connection (SETTINGS_MAX_CONCURRENT_STREAMS), the least of all
    /// connections; null: it named no limit.
    pub max_concurrent_streams: Option<u32>,
    /// The greatest of all that it named.
    #[serde(default)]
    pub most_concurrent_streams: Option<u32>,
    /// How long at the longest a connection admitted no streams, since that limit was 0.
    #[serde(default)]
    pub no_streams_s: f64,
    /// Request bodies that the server's windows held up until the time of their requests was over.
    #[serde(default)]
    pub held_up: HeldUp,
    /// Times that the server refused a request without processing it (REFUSED_STREAM, GOAWAY).
    pub refused: u64,
    /// Connections that the server ended by GOAWAY.
    pub goaways: u64,
    /// Streams that the server reset for another reason, by the name of its code.
    pub resets: BTreeMap<String, u64>,
}

/// TLS's handshakes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tls {
    /// With certificates and a key exchange.
    pub full: u64,
    /// Resumed from an earlier session.
    pub resumed: u64,
    /// The version that most of them agreed on; null when none succeeded.
    pub version: Option<String>,
    /// The cipher suite that most of them agreed on.
    pub cipher: Option<String>,
    /// Handshakes that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Whether certificates were checked.
    pub verified: bool,
}

/// Latencies; a whole entry is null where it means nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latencies {
    /// From when a request was due to its whole answer; null in a closed loop. Failed, unknown, bad and unsent requests
    /// lie beyond every limit.
    pub from_due: Option<Latency>,
    /// From when it was sent to its whole answer; null with `--throughput`. Failed, unknown and bad requests lie beyond
    /// every limit.
    pub from_sent: Option<Latency>,
    /// Of good responses alone, from due in an open loop, from sent in a closed one; null with `--throughput`.
    #[serde(default)]
    pub answered: Option<Latency>,
    /// From `connect` to established.
    pub connect: Option<Latency>,
    /// From established to the end of TLS's handshake; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Latency>,
    /// From sent to the first byte of the answer; null with `--throughput`.
    pub first_byte: Option<Latency>,
}

/// Lookups of a name whose addresses could not be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lookups {
    /// How often it was looked up again.
    pub looked_up_again: u64,
    /// How often that brought other addresses.
    pub changed: u64,
    /// How often that brought none.
    pub failed: u64,
    /// The last addresses that were other ones.
    pub addresses: Vec<String>,
}

/// One latency, microseconds; null where nothing was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Smallest.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// 99.99th percentile.
    pub p9999: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Percentiles (and `max`) at which a request without a good response stands: the true value is at least the one given,
    /// the longest that such a request was waited for (or the slowest good response, if that was longer). `mean` is here if
    /// such requests are in it, with that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<String>,
}

/// Connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connections {
    /// Established.
    pub opened: u64,
    /// Could not be established.
    pub failed: u64,
    /// Of these, attempts that the server refused.
    #[serde(default)]
    pub refused: u64,
    /// Of these, attempts that nothing answered.
    #[serde(default)]
    pub hanging: u64,
    /// Established, and never accepted by a server on this machine.
    #[serde(default)]
    pub unaccepted: u64,
    /// Time in which no connection was open and none could be opened, seconds.
    #[serde(default)]
    pub down_s: f64,
    /// Ended by the peer.
    pub closed_by_peer: u64,
    /// Times a request went out again, because its connection or its stream had ended.
    pub requests_resent: u64,
    /// Requests a connection takes before the peer closes it, where that was learnt.
    pub learnt_limit: Option<u32>,
    /// Connections on which that limit was seen.
    #[serde(default)]
    pub learnt_on: u64,
}

/// TCP's counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tcp {
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// The same as `rwnd_limited_ms`, by its first name: a window that is too small counts here as well as a closed one.
    pub zero_window_ms: f64,
    /// Time during which the server's receive window admitted nothing of what waited to be sent, milliseconds, over all connections.
    #[serde(default)]
    pub rwnd_limited_ms: f64,
    /// Time during which our send buffer was too small, milliseconds, over all connections.
    #[serde(default)]
    pub sndbuf_limited_ms: f64,
    /// Segments of ours that the server reported as received twice (RFC 2883).
    #[serde(default)]
    pub duplicates_reported: u64,
    /// Times the server's ACKs showed that segments of ours had overtaken one another.
    #[serde(default)]
    pub reordered: u64,
    /// Smallest round-trip time, microseconds.
    pub rtt_min_us: Option<u32>,
    /// Packets lost on this machine since it was too slow for them (`--io xdp` alone can say).
    #[serde(default)]
    pub overrun: u64,
    /// Connections that were looked at.
    pub looked_at: u64,
    /// Looks at them: a sample. Each core looks at 256 connections a second, in turn, and at each before it is closed.
    #[serde(default)]
    pub looks: u64,
    /// Looks that found the server's window closed.
    #[serde(default)]
    pub peer_window_closed: u64,
    /// Looks that found our own window closed.
    #[serde(default)]
    pub own_window_closed: u64,
    /// Segments counted one by one: with `--capture auto`, and over `--io xdp`. Null when nobody counted.
    #[serde(default)]
    pub segments: Option<Segments>,
    /// The first packets of the run's first connection, times from its first packet: with `--capture auto`. Else null.
    #[serde(default)]
    pub first_connection: Option<Vec<Segment>>,
    /// What a TCP in user space counts itself (`--io xdp`), by the names of `linerate_net::TcpTotals`: `segments_in`, `segments_out`,
    /// `retransmits`, `fast_retransmits`, `tail_probes`, `timeouts`, ...; `connections`, `handshakes`, `time_wait` and `buffer_bytes`
    /// are what was left at the end.
    #[serde(default)]
    pub stack: Option<BTreeMap<String, u64>>,
}

/// Segments counted one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Segments {
    /// Who counted: "capture" (packets as they passed this machine) or "stack" (the TCP in user space).
    pub source: String,
    /// Ours.
    pub sent: SegmentCounts,
    /// The server's.
    pub received: SegmentCounts,
    /// Packets that found no room and were not seen: with any, the counts are lower bounds.
    pub missed: u64,
}

/// Segments of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SegmentCounts {
    /// All of them.
    pub segments: u64,
    /// Events by name, those that this source counts: `retransmission`, `fast_retransmission`, `spurious_retransmission`,
    /// `duplicate_ack`, `out_of_order`, `zero_window`, `zero_window_probe`, `window_full`. The first three overlap: a fast or
    /// spurious one is a retransmission as well.
    #[serde(flatten)]
    pub events: BTreeMap<String, u64>,
}

/// What looks at connections found in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TcpSecond {
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments of ours that the server reported as received twice.
    pub duplicates_reported: u64,
    /// Times segments of ours had overtaken one another.
    pub reordered: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Time during which the server's window admitted nothing, milliseconds.
    pub rwnd_limited_ms: f64,
    /// Time during which our send buffer was too small, milliseconds.
    pub sndbuf_limited_ms: f64,
    /// Looks at connections: a sample.
    pub looks: u64,
    /// Looks that found the server's window closed.
    pub peer_window_closed: u64,
    /// Looks that found our own window closed.
    pub own_window_closed: u64,
}

/// The load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Client {
    /// Processor time, seconds.
    pub cpu_s: f64,
    /// Busy share of the busiest sending thread's core time, 0 to 1.
    pub core_busy: f64,
    /// Processor time per answered request.
    pub cpu_us_per_request: Option<f64>,
    /// With a script: the part of it that the script took.
    pub script_us: Option<f64>,
    /// Time the sending threads waited for a core, seconds.
    pub run_queue_wait_s: f64,
    /// What this machine added to a latency at most, milliseconds.
    #[serde(default)]
    pub disturbed_ms: f64,
    /// The longest that a sending thread stood still beyond the wait that it had asked for, milliseconds.
    #[serde(default)]
    pub stood_still_ms: f64,
    /// For how long the machine was suspended, or its clock set ahead, milliseconds.
    #[serde(default)]
    pub suspended_ms: f64,
    /// Context switches of the sending threads.
    pub context_switches: u64,
    /// 99th percentile of how late requests left in an open loop; null in a closed one.
    pub lateness_us_p99: Option<f64>,
    /// Sending threads.
    pub threads: u32,
    /// Whether the client set the limit.
    pub saturated: bool,
    /// How that was seen.
    pub reason: Option<String>,
}

/// The server's processes on this machine, from the end of the warm-up to the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Server {
    /// Its first process; null with `--watch`.
    pub pid: Option<u32>,
    /// The name of that process, or the page that was read.
    pub name: String,
    /// Processes that were watched: it and its descendants; 0 with `--watch`.
    pub processes: u32,
    /// Processor time, seconds; null if the page does not tell it.
    pub cpu_s: Option<f64>,
    /// Processor time for each response.
    pub cpu_us_per_request: Option<f64>,
    /// The share of it that was spent in the server's own code, not in the kernel; null where it used too little to tell.
    pub useful_share: Option<f64>,
    /// Context switches of its threads; null if the page does not tell them.
    pub context_switches: Option<u64>,
    /// Time for which its threads were runnable and waited for a core, seconds; null with `--watch`.
    pub run_queue_wait_s: Option<f64>,
    /// The most memory that was resident, millions of bytes; null if the page does not tell it.
    pub rss_mb: Option<f64>,
    /// What keeps the server from more requests a second, and what changes would allow; absent where it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ServerConcurrency>,
    /// Second by second.
    pub series: Vec<ServerSecond>,
}

/// A second of the server's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerSecond {
    /// Its end, seconds from the beginning of measuring.
    pub t_s: f64,
    /// Cores that it kept busy.
    pub busy: Option<f64>,
    /// Resident memory, millions of bytes.
    pub rss_mb: Option<f64>,
}

/// One second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// Its end, seconds from the beginning of measuring.
    pub t_s: f64,
    /// Answered per second.
    pub rate_rps: f64,
    /// Median latency; null with `--throughput`, and if no response came.
    pub p50_us: Option<f64>,
    /// 99th percentile; null with `--throughput`, and if no response came.
    pub p99_us: Option<f64>,
    /// Of `p50` and `p99` those at which a request without a good response stands: the true value is at least the one given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<String>,
    /// Failed in it.
    pub failed: u64,
    /// Of unknown end in it.
    #[serde(default)]
    pub unknown: u64,
    /// Responses in it that were not good.
    #[serde(default)]
    pub bad: u64,
    /// What looks at connections found in it; null when none was looked at.
    #[serde(default)]
    pub tcp: Option<TcpSecond>,
    /// Its segments, counted one by one; null when nobody counted.
    #[serde(default)]
    pub segments: Option<Segments>,
    /// Bytes in it; null in documents of earlier versions.
    #[serde(default)]
    pub bytes: Option<Bytes>,
    /// Cores that the sending threads kept busy; null where they are not watched one by one.
    #[serde(default)]
    pub client_busy: Option<f64>,
    /// Latencies of its good responses in buckets, as `K:N,N,...`: counts from bucket K on. Bucket k begins at 2^(k/4) nanoseconds. Null with `--throughput`.
    #[serde(default)]
    pub latencies: Option<String>,
}

/// A check and what it found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// As it was given.
    pub expr: String,
    /// Measured, in `unit`; null when there was nothing to measure.
    pub value: Option<f64>,
    /// "us", "1/s", "share" (of 1) or "count".
    pub unit: String,
    /// Requests without a good response stand there: the true value is at least the one given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Whether it held.
    pub pass: bool,
}

/// One request worth looking at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// When it was due (closed loop: sent), microseconds from the beginning of measuring.
    pub due_us: f64,
    /// Its latency; null when no answer came.
    pub latency_us: Option<f64>,
    /// Its status; null when no answer came.
    pub status: Option<u16>,
    /// Why it is here.
    pub why: String,
    /// Name of the request.
    pub request: String,
    /// Beginning of the answer's head.
    pub head: String,
    /// Beginning of the answer's body, where it was bad.
    #[serde(default)]
    pub body: String,
    /// The request as it was sent, without secrets, where the answer was bad.
    #[serde(default)]
    pub sent: String,
}

/// Where it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Environment {
    /// The command as it was typed.
    pub command: String,
    /// Version of linerate.
    pub version: String,
    /// Kernel.
    pub kernel: String,
    /// Cores this process may use.
    pub cpus: u32,
    /// Name of the machine.
    pub host: String,
    /// Transport that moved the bytes.
    pub io: String,
}
