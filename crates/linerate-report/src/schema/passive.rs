//! The document of what was seen in packets: `linerate.diagnosis/1` with what packets add to it.

use std::collections::BTreeMap;

use serde::Serialize;

/// The document.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// `linerate.diagnosis/1`.
    pub schema: String,
    /// Always `passive`: nothing was sent, so nothing is proved.
    pub mode: String,
    /// Where the packets came from.
    pub source: String,
    /// `healthy`, `caused` or `inconclusive`.
    pub verdict: String,
    /// The verdict in plain words.
    pub summary: Vec<String>,
    /// The parts of the call to look at: of the first cause, else the slowest.
    pub call: Option<Call>,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// What was seen to cost time, most costly first.
    pub causes: Vec<Cause>,
    /// Always empty here: packets rule nothing out.
    pub ruled_out: Vec<String>,
    /// What not to believe.
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
pub struct Call {
    /// The connection's number.
    pub connection: u64,
    /// Method.
    pub method: String,
    /// Target, shortened.
    pub target: String,
    /// The answer's status.
    pub status: u16,
    /// Nothing was looked up: packets of DNS are not read.
    pub dns_ms: Option<f64>,
    /// Opening the connection, for the first call on it.
    pub connect_ms: f64,
    /// Not readable.
    pub tls_ms: Option<f64>,
    /// From the request's first byte to its last.
    pub send_ms: f64,
    /// From there to the answer's first byte: the next three together.
    pub wait_ms: f64,
    /// Of it: the round trip to the server.
    pub network_ms: f64,
    /// Of it: behind earlier answers.
    pub queued_ms: f64,
    /// Of it: the server.
    pub server_ms: f64,
    /// From the answer's first byte to its last.
    pub receive_ms: f64,
    /// Connecting, sending, waiting, receiving.
    pub total_ms: f64,
    /// The network's round trip, when the opening was seen.
    pub rtt_ms: Option<f64>,
    /// What was seen to cost time in it.
    pub seen: Vec<Seen>,
}

/// Something that was seen to cost time.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// The cause's id.
    pub id: String,
    /// Since the call's start.
    pub at_ms: f64,
    /// How long.
    pub cost_ms: f64,
    /// In words.
    pub text: String,
}

/// A segment.
#[derive(Clone, Debug, Serialize)]
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
    /// What is remarkable about it.
    pub marks: Vec<String>,
}

/// A cause.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// Stable id.
    pub id: String,
    /// In words.
    pub title: String,
    /// What it costs a call it hits, on average.
    pub cost_ms: f64,
    /// `likely` or `possible`.
    pub confidence: String,
    /// Always `seen`: nothing was changed, so nothing is proved.
    pub proof: String,
    /// Calls it was seen in.
    pub calls: u64,
    /// Of so many.
    pub of: u64,
    /// None: packets are only looked at.
    pub experiments: Vec<String>,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What to change.
    pub fixes: Vec<Fix>,
    /// What would prove it.
    pub verify: String,
}

/// A change.
#[derive(Clone, Debug, Serialize)]
pub struct Fix {
    /// Of which software.
    pub software: String,
    /// What.
    pub change: String,
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// Its number.
    pub id: u64,
    /// Address and port.
    pub client: String,
    /// Address and port.
    pub server: String,
    /// What it carried.
    pub carried: String,
    /// Requests.
    pub requests: u64,
    /// Final answers.
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
