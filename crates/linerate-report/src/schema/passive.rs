//! The document of what was seen in packets: `linerate.diagnosis/1` with what packets add to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The root of the document.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// `linerate.diagnosis/1`.
    pub schema: String,
    /// Always `passive`: packets are only observed, so no cause is proved.
    pub mode: String,
    /// The capture file or the interface.
    pub source: String,
    /// `healthy`, `caused` or `inconclusive`.
    pub verdict: String,
    /// The verdict in plain words.
    pub summary: Vec<String>,
    /// The parts of the call to look at: of the first cause, else the slowest.
    pub call: Option<Call>,
    /// The segments of `call`.
    pub segments: Vec<Segment>,
    /// The causes that cost time, most costly first.
    pub causes: Vec<Cause>,
    /// Always empty here: packets cannot rule out a cause.
    pub ruled_out: Vec<String>,
    /// The limits of the observation: which figures to doubt.
    pub limits: Vec<String>,
    /// Packets, connections and calls, counted.
    pub counts: BTreeMap<String, u64>,
    /// Segments by what is remarkable about them.
    pub tcp: BTreeMap<String, u64>,
    /// The slowest calls.
    pub slowest: Vec<Call>,
    /// Connections with most to tell.
    pub connections: Vec<Connection>,
}

/// A call, times in milliseconds as seen from where the packets were captured.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Call {
    /// The connection's number.
    pub connection: u64,
    /// Method of the request.
    pub method: String,
    /// Request target, shortened.
    pub target: String,
    /// The response's status code.
    pub status: u16,
    /// Nothing was looked up: packets of DNS are not read.
    pub dns_ms: Option<f64>,
    /// Opening the connection, for the first call on it.
    pub connect_ms: f64,
    /// Always empty: the contents of TLS cannot be read.
    pub tls_ms: Option<f64>,
    /// From the request's first byte to its last.
    pub send_ms: f64,
    /// From the request's last byte to the response's first: the next three together.
    pub wait_ms: f64,
    /// Of it: the round trip to the server.
    pub network_ms: f64,
    /// Of it: behind earlier responses.
    pub queued_ms: f64,
    /// Of it: the server.
    pub server_ms: f64,
    /// From the response's first byte to its last.
    pub receive_ms: f64,
    /// Connecting, sending, waiting, receiving.
    pub total_ms: f64,
    /// The network's round trip, when the opening was seen.
    pub rtt_ms: Option<f64>,
    /// The events that cost it time.
    pub seen: Vec<Seen>,
}

/// Something that was seen to cost time.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Seen {
    /// The cause's id.
    pub id: String,
    /// Since the call's start.
    pub at_ms: f64,
    /// The time it cost.
    pub cost_ms: f64,
    /// A sentence for people.
    pub text: String,
}

/// A TCP segment of the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Segment {
    /// Since the call's start.
    pub at_ms: f64,
    /// `client` or `server`.
    pub from: String,
    /// As in the header: FIN 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u8,
    /// From the connection's start.
    pub seq: u32,
    /// From the connection's start.
    pub ack: u32,
    /// Bytes of data.
    pub bytes: u32,
    /// As in the header, not scaled.
    pub window: u16,
    /// Marks by Wireshark's names, such as retransmission.
    pub marks: Vec<String>,
}

/// A cause that the packets show.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SeenCause {
    /// Stable id, as in docs/EXPLAIN-PASSIVE.md.
    pub id: String,
    /// A short title for people.
    pub title: String,
    /// Its usual cost per affected call.
    pub cost_ms: f64,
    /// `likely` or `possible`.
    pub confidence: String,
    /// Always `seen`: packets are only observed, so the cause is not proved.
    pub proof: String,
    /// Calls it was seen in.
    pub calls: u64,
    /// Of so many.
    pub of: u64,
    /// The server that it is about; absent where there is one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// A cause that the packets show, with what supports it and what to do.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cause {
    /// The cause.
    #[serde(flatten)]
    pub seen: SeenCause,
    /// None: packets are only looked at.
    pub experiments: Vec<String>,
    /// The observations that support the cause.
    pub evidence: Vec<String>,
    /// Possible changes, by software.
    pub fixes: Vec<Fix>,
    /// An experiment or a command that would prove the cause.
    pub verify: String,
}

/// A change to one kind of software.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fix {
    /// Of which software.
    pub software: String,
    /// The setting or the call to change.
    pub change: String,
}

/// A TCP connection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Connection {
    /// Its number in the order of the capture.
    pub id: u64,
    /// Address and port.
    pub client: String,
    /// Address and port.
    pub server: String,
    /// Its protocol: HTTP, TLS, and so on.
    pub carried: String,
    /// HTTP requests on it.
    pub requests: u64,
    /// Final responses (not 1xx) on it.
    pub answers: u64,
    /// By client and server.
    pub segments: [u64; 2],
    /// Of data, by client and server.
    pub bytes: [u64; 2],
    /// SYNs sent, when the opening was seen.
    pub syns: Option<u32>,
    /// Round trip of the opening.
    pub rtt_ms: Option<f64>,
    /// Ended by a reset.
    pub reset: bool,
    /// Segments of the client by what is remarkable about them.
    pub client_tcp: BTreeMap<String, u64>,
    /// And of the server.
    pub server_tcp: BTreeMap<String, u64>,
}
