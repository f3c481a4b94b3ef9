//! `linerate.diagnosis/1`: what `linerate explain --json` writes. Fields are added, never renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::passive::Segment;

/// The document's `schema`.
pub const SCHEMA: &str = "linerate.diagnosis/1";

/// The document.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was asked for.
    pub target: String,
    /// The request's method.
    pub method: String,
    /// Where it went.
    pub address: String,
    /// `healthy`, `caused` or `inconclusive`.
    pub verdict: String,
    /// The call that stands for all.
    pub call: Option<Call>,
    /// Milliseconds of all calls with nothing changed: what another diagnosis is compared with.
    pub times_ms: Times,
    /// The very first call beside later ones; absent where one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_call: Option<FirstCall>,
    /// Its packets; empty where none were captured (`limits` says why).
    pub segments: Vec<Segment>,
    /// What costs most first.
    pub causes: Vec<Cause>,
    /// What it was not.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be tested, and other doubts.
    pub limits: Vec<String>,
    /// Calls made.
    pub calls: usize,
    /// Seconds it took.
    pub took_s: f64,
    /// The machine that called, while it did.
    pub this_machine: ThisMachine,
    /// TLS with the server, over all calls with nothing changed; absent for plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// HTTP/2 with the server; absent over HTTP/1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2>,
    /// This machine, the network, the server's machine, its process, the wire: examined and fine, or not.
    pub outside_in: Vec<Layer>,
    /// What several calls at once showed; absent where they showed no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// The server's process, when it was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// What has become of an earlier diagnosis (`--baseline`); absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Where it was run.
    pub environment: Environment,
}

/// Milliseconds of each call, by what a caller waits for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Times {
    /// On a kept connection where the server keeps it; behind redirects to the last answer.
    pub call: Vec<f64>,
    /// With the connection's opening.
    pub new_connection: Vec<f64>,
    /// With the connection's opening, of which the TLS handshake was a full one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub full_handshake: Vec<f64>,
    /// To the first byte of the answer.
    pub first_byte: Vec<f64>,
    /// With the name's lookup, one for each lookup.
    pub with_lookup: Vec<f64>,
}

/// An earlier diagnosis against this one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Baseline {
    /// The file that has it.
    pub file: String,
    /// Its causes.
    pub causes: Vec<Since>,
    /// Where it named none: the calls then and now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsSince>,
}

/// What has become of a cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Since {
    /// The cause.
    pub id: String,
    /// `gone`, `partly gone`, `still there` or `unclear`.
    pub verdict: String,
    /// The part of `times_ms` that was compared.
    pub part: String,
    /// In the middle, then.
    pub before_ms: f64,
    /// And now.
    pub now_ms: f64,
    /// How likely it is that this is no chance; null where that is unclear, or the cause is named again.
    pub confidence: Option<f64>,
    /// Calls that would tell, where it is unclear.
    pub calls_to_tell: Option<usize>,
    /// What was predicted.
    pub predicted_ms: Option<f64>,
    /// Whether that held; null where the cause is not gone.
    pub prediction_held: Option<bool>,
}

/// Calls then and now.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallsSince {
    /// `slower`, `faster` or `as before`.
    pub verdict: String,
    /// In the middle, then.
    pub before_ms: f64,
    /// And now.
    pub now_ms: f64,
    /// How likely it is that this is no chance.
    pub confidence: Option<f64>,
}

/// A place, and what was found there.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Layer {
    /// `this_machine`, `network`, `servers_machine`, `process` or `wire`.
    pub place: String,
    /// `fine`, `cause`, `seen` or `not examined`.
    pub status: String,
    /// What that stands on.
    pub words: String,
}

/// The first call beside later ones, milliseconds with their lookup and their connection.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FirstCall {
    /// The very first call.
    pub first_ms: f64,
    /// Later ones, in the middle.
    pub later_ms: f64,
    /// Calls after a pause, in the middle; null where none were made.
    pub after_pause_ms: Option<f64>,
}

/// The machine that calls.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThisMachine {
    /// Share of our calls' time in which we waited for a processor.
    pub waited_share: f64,
    /// Share of the time in which something here waited for a processor; null where the kernel does not tell.
    pub pressure: Option<f64>,
    /// Load of the last minute for each processor.
    pub load: Option<f64>,
    /// Share of the processors' time that the host gave to others.
    pub steal: Option<f64>,
}

/// Several calls at once.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Concurrency {
    /// Calls that the server serves at once.
    pub served_at_once: usize,
}

/// Parts of a call, milliseconds; they add up to `total_ms`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Call {
    /// The name's lookup; 0 for an address.
    pub dns_ms: f64,
    /// Opening the connection; 0 on one that was there already.
    pub connect_ms: f64,
    /// The TLS handshake; 0 without, and on a connection that was there already.
    pub tls_ms: f64,
    /// That handshake; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Handshake>,
    /// Until the kernel had taken the request.
    pub send_ms: f64,
    /// From then to the first byte.
    pub wait_ms: f64,
    /// From the first byte to the last.
    pub receive_ms: f64,
    /// What belongs to no part.
    pub unexplained_ms: f64,
    /// All of it.
    pub total_ms: f64,
    /// The network's round-trip time.
    pub rtt_ms: f64,
    /// The connection was there already.
    pub reused: bool,
    /// The answer's status; null without one.
    pub status: Option<u16>,
    /// Bytes of its content.
    pub body_bytes: u64,
    /// Why there is no answer.
    pub error: Option<String>,
    /// Each receive of the answer.
    pub receives: Vec<Received>,
}

/// A TLS handshake.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Handshake {
    /// It resumed an earlier session.
    pub resumed: bool,
    /// Flights of ours that the server had to answer.
    pub round_trips: usize,
    /// Of `tls_ms`, our own work.
    pub own_ms: f64,
    /// Each of these flights with the server's answer.
    pub flights: Vec<Flight>,
}

/// A flight of a handshake; times are since the call's start.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flight {
    /// When ours left.
    pub sent_ms: f64,
    /// When the first byte of the server's came.
    pub begun_ms: f64,
    /// And the last.
    pub ended_ms: f64,
    /// Bytes of the server's.
    pub bytes: u64,
}

/// HTTP/2 with the server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Http2 {
    /// The flow-control window that we announce for each stream and the connection, bytes.
    pub window: u32,
    /// The window that the server announces for each stream, bytes.
    pub server_window: u32,
    /// SETTINGS_MAX_CONCURRENT_STREAMS; null: the server names no limit.
    pub max_concurrent_streams: Option<u32>,
}

/// TLS with the server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tls {
    /// The server's certificate was checked (false: --insecure).
    pub verified: bool,
    /// As "TLSv1.3"; empty where no handshake ended.
    pub version: String,
    /// The suite's registered name.
    pub cipher: String,
    /// The protocol that ALPN agreed on.
    pub alpn: Option<String>,
    /// The group of the key exchange.
    pub group: Option<String>,
    /// The kind of the server's key, as "RSA 2048".
    pub key: Option<String>,
    /// Certificates that it sent.
    pub certificates: usize,
    /// Their bytes.
    pub chain_bytes: usize,
    /// It gave something to resume a session by.
    pub sessions_given: bool,
    /// Full handshakes.
    pub full: usize,
    /// Handshakes that resumed a session.
    pub resumed: usize,
    /// What TCP takes to connect, in the middle.
    pub connect_ms: f64,
    /// What a full handshake takes, in the middle; null without one.
    pub full_ms: Option<f64>,
    /// And one that resumes a session.
    pub resumed_ms: Option<f64>,
}

/// Bytes that came; over TLS those on the wire.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Received {
    /// Since the call's start.
    pub at_ms: f64,
    /// How many.
    pub bytes: u32,
}

/// A cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cause {
    /// Stable, kebab-case.
    pub id: String,
    /// One line.
    pub title: String,
    /// What it costs the call.
    pub cost_ms: f64,
    /// Between 0 and 1.
    pub confidence: f64,
    /// `proved`, `likely` or `possible`.
    pub proof: String,
    /// The part of `times_ms` in which it costs that.
    pub part: String,
    /// What that part will take once it is fixed; null where that cannot be told.
    pub predicted: Option<Predicted>,
    /// The deciding one first.
    pub experiments: Vec<Experiment>,
    /// What was seen and counted.
    pub evidence: Vec<String>,
    /// What the packets of the call show of it; null where none were captured, or they show nothing.
    pub seen: Option<String>,
    /// What to change.
    pub fixes: Vec<Fix>,
    /// The command that verifies the fix: the one that was run, without secrets.
    pub verify: String,
    /// What to mind when that command is run; absent where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify_notes: Option<String>,
}

/// A call without the cause.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Predicted {
    /// What it takes now.
    pub before_ms: f64,
    /// What it will take.
    pub after_ms: f64,
    /// With 95 % confidence: lower and upper end.
    pub ci95_ms: [f64; 2],
    /// Calls without the cause were measured; else its cost was taken off.
    pub measured: bool,
}

/// Two arms that differ in one thing.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Experiment {
    /// What was tried.
    pub name: String,
    /// The one thing.
    pub changed: String,
    /// Median without it.
    pub before_ms: f64,
    /// Median with it.
    pub after_ms: f64,
    /// What it took away (Hodges and Lehmann).
    pub effect_ms: f64,
    /// With 95 % confidence: lower and upper end.
    pub effect_ci95_ms: [f64; 2],
    /// Permutation test.
    pub p_value: f64,
    /// Each call without it.
    pub without_ms: Vec<f64>,
    /// Each call with it.
    pub with_ms: Vec<f64>,
    /// Where a lever has several strengths: how the time follows them.
    pub dose: Option<Dose>,
}

/// Dose and response.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Dose {
    /// Milliseconds more for each millisecond more (Theil and Sen).
    pub slope: f64,
    /// With 95 % confidence.
    pub slope_ci95: [f64; 2],
    /// What each strength of the lever gave.
    pub points: Vec<DosePoint>,
}

/// A strength of a lever.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DosePoint {
    /// The lever.
    pub lever_ms: f64,
    /// What each call took.
    pub took_ms: Vec<f64>,
}

/// The server's process, as it was while calls were made.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// It was found by its listening socket, and not named (`--pid`).
    pub found: bool,
    /// How often its threads were looked at.
    pub looks: usize,
    /// What its threads were doing, most of them first.
    pub threads: Vec<Threads>,
    /// Files and sockets it has open.
    pub open_files: Option<u64>,
    /// How many it may have; null without a limit.
    pub open_files_limit: Option<u64>,
    /// Its sockets that listen on the URL's port.
    pub listeners: Vec<Listener>,
    /// Its other TCP sockets by state.
    pub sockets: BTreeMap<String, u64>,
    /// Bytes it has not read yet.
    pub unread_bytes: u64,
    /// Bytes its peers have not acknowledged yet.
    pub unacknowledged_bytes: u64,
    /// Connections that found an accept queue of this machine full meanwhile.
    pub listen_overflows: u64,
    /// SYNs dropped meanwhile, whatever the reason.
    pub listen_drops: u64,
    /// A JVM's pauses meanwhile.
    pub jvm: Option<Jvm>,
    /// What could not be seen, and what is odd.
    pub notes: Vec<String>,
}

/// Threads that do the same.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Threads {
    /// In words.
    pub doing: String,
    /// How many, on average over the looks.
    pub mean: f64,
    /// The most at one look.
    pub most: usize,
    /// Names of some of them.
    pub names: Vec<String>,
}

/// A listening socket.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Listener {
    /// Its address.
    pub address: String,
    /// Connections that wait to be accepted, the most seen.
    pub waiting: u32,
    /// How many may; null when it cannot be seen.
    pub limit: Option<u32>,
}

/// Pauses of a JVM.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Jvm {
    /// Garbage collections.
    pub collections: u64,
    /// Time they took.
    pub collected_ms: f64,
    /// Times all threads were stopped.
    pub safepoints: u64,
    /// Time they stood still.
    pub stopped_ms: f64,
}

/// What to change in one piece of software.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fix {
    /// Which.
    pub software: String,
    /// What.
    pub change: String,
}

/// What it was not.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuledOut {
    /// The cause.
    pub id: String,
    /// How.
    pub why: String,
}

/// Where it was run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Environment {
    /// As it was typed.
    pub command: String,
    /// Of linerate.
    pub version: String,
    /// Name and release.
    pub kernel: String,
    /// Of the machine.
    pub host: String,
}
