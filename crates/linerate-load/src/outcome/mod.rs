//! Measured results: plain data that merges. Histograms are kept whole, so that merging loses nothing.

mod course;
mod events;
mod failures;
mod fine;
mod interval;
mod merge;
mod percentile;
mod quic;
mod quiet;
mod samples;
mod since;
mod spans;
mod spread;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

pub use linerate_client::{Facts, Failure};
pub use linerate_http::client::HeadFlaw;
pub use linerate_net::PhysicalLine;
use linerate_net::TcpTotals;
pub use linerate_tls::{AgreedParameters, HandshakeCounts};
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::limits::FAILURE_DETAILS;
pub use course::{CourseInterval, CourseLatencies, CoursePoint, StepCourse};
pub use events::{CapturedPacket, SegmentCounts, SegmentEvent, Segments, TcpEvents};
pub(crate) use fine::FineSeries;
pub use fine::{FineSample, FineSegments};
pub use percentile::{Percentile, Ranked};
pub use quic::QuicFigures;
pub use quiet::{Quiet, QuietSpan, Silence};
pub use spans::{Down, Spans};
pub use spread::Spread;

/// The results of a run. Requests that left during the warm-up are in none of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// When measuring began (after the warm-up).
    pub started_at: Option<SystemTime>,
    /// From the beginning of measuring to its end: the planned end, or the last response where that came later or
    /// earlier.
    pub duration: Duration,
    /// What came while requests were sent: the rate is its.
    pub window: Window,
    /// Responses that came after the warm-up, also those to requests that left before.
    pub arrived: u64,
    /// Logical requests. `sent = answered + failed + unknown`, always.
    pub requests: Requests,
    /// Responses that were not good.
    pub bad: Bad,
    /// Why requests failed; the sum is `requests.failed`.
    pub failures: Failures,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    /// Bytes of requests and responses.
    pub bytes: Bytes,
    /// Counts of TLS handshakes; `None` without TLS.
    pub tls: Option<HandshakeCounts>,
    /// Connections by protocol version, and the limits and refusals of servers that speak HTTP/2.
    pub http: Facts,
    /// What QUIC went through; `None`: connections were TCP's.
    #[serde(default)]
    pub quic: Option<QuicFigures>,
    /// How often the target's name was looked up again; `None`: never.
    pub lookups: Option<Lookups>,
    /// What became of attempts to connect, by address, if the target has several.
    #[serde(default)]
    pub addresses: BTreeMap<SocketAddr, AddressCounts>,
    /// gRPC's own status of responses to gRPC calls (0 is OK), where they have one.
    #[serde(default)]
    pub grpc_status: BTreeMap<u16, u64>,
    /// Responses whose heads had a flaw and could be read all the same, by the name of a
    /// [`HeadFlaw`].
    #[serde(default)]
    pub tolerated: BTreeMap<String, u64>,
    /// The line that they went over, where its speed is real and known.
    pub line: Option<PhysicalLine>,
    /// Latencies, nanoseconds inside.
    pub latency: Latency,
    /// Connections.
    pub connections: Connections,
    /// When the server could not be reached; `None` when nothing was tried.
    pub down: Option<Down>,
    /// When no response came; `None` where nothing was sent.
    #[serde(default)]
    pub quiet: Option<Quiet>,
    /// TCP's counters, summed over connections.
    pub tcp: Tcp,
    /// How the load generator itself fared.
    pub client: ClientFigures,
    /// Second by second; the last one may be shorter.
    pub series: Vec<Interval>,
    /// In steps of 10 ms, or 100 ms where it lasted longer than 2 s; empty where it was not watched.
    #[serde(default)]
    pub series_fine: Vec<FineSample>,
    /// The beginning of the first connection, packet by packet; empty without a capture.
    #[serde(default)]
    pub first_connection: Vec<CapturedPacket>,
    /// Per request name, when the plan has several.
    pub by_name: BTreeMap<String, NamedFigures>,
    /// Iterations by flow.
    #[serde(default)]
    pub flows: BTreeMap<String, FlowFigures>,
    /// The worst and the bad ones.
    pub samples: Vec<Sample>,
    /// Things the user should know before believing the figures.
    pub warnings: Vec<String>,
    /// The transport that was used: "epoll", "uring", "threads" ...
    pub io: String,
    /// Whether the run was ended early by the user.
    pub interrupted: bool,
    /// The plan's condition that ended it early, in words.
    pub aborted: Option<String>,
    /// Responses that were kept whole.
    pub saved: Vec<Saved>,
    /// Why the run broke off early: the interface was removed, say. The figures are those
    /// measured until then.
    pub broken: Option<String>,
    /// Whether not a single connection could be opened: why, in words.
    pub unreachable: Option<String>,
}

/// What came from the end of the warm-up to the end of sending, whenever the requests had left. One
/// late response after the end does not change the rate, and neither does the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Whole responses, whatever their status.
    pub answered: u64,
    /// Bytes of requests and responses.
    pub bytes: Bytes,
    /// Its length: to the planned end; without one, to the last response.
    pub time: Duration,
}

/// Lookups of a name whose addresses could not be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// How often it was looked up again.
    pub again: u64,
    /// How often that brought other addresses.
    pub changed: u64,
    /// How often that brought none.
    pub failed: u64,
    /// The last addresses that were other ones.
    pub addresses: Vec<SocketAddr>,
}

/// Attempts to connect to one of several addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressCounts {
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that could not be opened.
    pub failed: u64,
    /// Why not, the first time.
    pub why: String,
}

/// Logical requests: one counts once, however often it went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Left, or would have but for a connection that could not be opened.
    pub sent: u64,
    /// A whole response came, whatever its status.
    pub answered: u64,
    /// Certainly not answered: see [`Failures`].
    pub failed: u64,
    /// Left, but whether the server acted on it is unknowable (RFC 9112 section 9.3).
    pub unknown: u64,
    /// Times a request went out again.
    pub resent: u64,
    /// Of these, times that the server had refused its stream without processing it.
    #[serde(default)]
    pub resent_refused: u64,
    /// Of these, times that an error had ended its connection, so that it went out alone.
    #[serde(default)]
    pub resent_alone: u64,
    /// Of these, times that the server had reset its stream for another reason.
    #[serde(default)]
    pub resent_reset: u64,
    /// Due in an open loop and never sent.
    pub unsent: u64,
    /// Of these, those that found as many requests on every connection as it may carry when sending ended.
    #[serde(default)]
    pub unsent_full: u64,
    /// Of these, those that found too few connections open when sending ended.
    #[serde(default)]
    pub unsent_unopened: u64,
    /// Of these, those for which the server admitted no streams when sending ended.
    #[serde(default)]
    pub unsent_shut: u64,
    /// Of these, those that were due before the part of the run that was to send them joined it.
    #[serde(default)]
    pub unsent_missed: u64,
    /// Of those that are answered or failed, those whose step or request expects something of the response.
    #[serde(default)]
    pub expecting: u64,
    /// Of these, those whose response was good.
    #[serde(default)]
    pub met: u64,
    /// Responses that no request had asked for.
    pub unsolicited_responses: u64,
    /// Responses in another order than their requests: only a tag shows it.
    pub out_of_order_responses: u64,
}

/// Answered, but not as expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bad {
    /// The status was not among the good ones.
    pub status: u64,
    /// The body lacked the text.
    pub body: u64,
    /// The body, which a check reads, could not be decoded.
    pub encoding: u64,
    /// The tag was missing or another's.
    pub tag: u64,
    /// A trailer was missing or had another value.
    pub trailer: u64,
    /// A value that a step of a flow takes was missing.
    #[serde(default)]
    pub take: u64,
    /// It was not as its step of a flow expects.
    #[serde(default)]
    pub expect: u64,
}

impl Bad {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.status + self.body + self.encoding + self.tag + self.trailer + self.take + self.expect
    }
}

/// Details beyond those that are counted by themselves.
const OTHER_DETAILS: &str = "other reasons";

/// Failed requests by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "failures::Plain", into = "failures::Plain")]
pub struct Failures {
    counts: [u64; Failure::ALL.len()],
    /// The first detail seen of each reason, in words ("answer is not HTTP: it begins with SSH-2.0").
    pub details: BTreeMap<&'static str, String>,
    /// How often which detail, of each reason.
    in_detail: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Streams that the server reset, by the name of its code.
    codes: BTreeMap<String, u64>,
}

impl Requests {
    /// Those that were due: sent, and never sent.
    pub fn due(&self) -> u64 {
        self.sent + self.unsent
    }
}

impl Outcome {
    /// Responses per second while requests were sent; 0 when no time passed.
    pub fn rate_rps(&self) -> f64 {
        self.per_second(self.window.answered)
    }

    /// `of_all`, which counts all responses, as far as they were good. Errors are often faster than work, so bad responses
    /// make neither a rate larger nor a cost smaller.
    pub fn good_of(&self, of_all: f64) -> f64 {
        let answered = self.requests.answered;
        of_all * answered.saturating_sub(self.bad.total()) as f64 / answered.max(1) as f64
    }

    /// Good responses per second while requests were sent.
    pub fn good_rate_rps(&self) -> f64 {
        self.good_of(self.rate_rps())
    }

    /// `n` per second of the time in which requests were sent; 0 when no time passed.
    pub fn per_second(&self, n: u64) -> f64 {
        let seconds = self.window.time.as_secs_f64();
        if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
    }

    /// Everything that did not go as it should.
    pub fn errors(&self) -> u64 {
        let r = &self.requests;
        r.failed + r.unknown + self.bad.total() + r.unsent + r.unsolicited_responses
    }

    /// Whether the server was out of reach at the end, or for a second or more.
    pub fn was_down(&self) -> bool {
        const LONG: Duration = Duration::from_secs(1);
        let is_bad = |down: &Down| down.at_end || down.spans.longest() >= LONG || down.had_a_bad_second();
        self.down.as_ref().is_some_and(is_bad) || self.outage().is_some()
    }
}

impl Failures {
    /// Counts `n` more.
    pub fn add(&mut self, why: Failure, n: u64) {
        self.counts[why as usize] += n;
    }

    /// `n` of those counted had this detail.
    pub fn explain(&mut self, why: Failure, detail: &str, n: u64) {
        let of_reason = self.in_detail.entry(why.name()).or_default();
        let is_full = of_reason.len() >= FAILURE_DETAILS;
        match of_reason.get_mut(detail) {
            Some(count) => *count += n,
            None if is_full => *of_reason.entry(OTHER_DETAILS.to_owned()).or_default() += n,
            None => drop(of_reason.insert(detail.to_owned(), n)),
        }
    }

    /// `n` of those counted were reset with this code.
    pub fn coded(&mut self, code: &str, n: u64) {
        *self.codes.entry(code.to_owned()).or_default() += n;
    }

    /// Failed requests whose stream the server reset, by the name of its code.
    pub fn codes(&self) -> &BTreeMap<String, u64> {
        &self.codes
    }

    /// How often which detail, of each reason: every failure that has one.
    pub fn in_detail(&self) -> &BTreeMap<&'static str, BTreeMap<String, u64>> {
        &self.in_detail
    }

    /// How many of this reason.
    pub fn count(&self, why: Failure) -> u64 {
        self.counts[why as usize]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Bytes on the wire above TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Of requests.
    pub sent: u64,
    /// Of responses.
    pub received: u64,
}

/// Latency histograms, in nanoseconds. Those from due, from sent and to the first byte are of good responses alone;
/// [`Latency::main`] ranks the other requests behind them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// From when the request was due; only in an open loop.
    pub from_due: Option<Histogram>,
    /// From when its bytes were handed to the transport. With one request on each connection it is handed over together
    /// with the order to connect, so that the handshake is part of it.
    pub from_sent: Histogram,
    /// From `connect` to established.
    pub connect: Histogram,
    /// From established to the end of TLS's handshake.
    pub tls: Histogram,
    /// From sent to the first byte of the response.
    pub first_byte: Histogram,
    /// How long each request without a good response (failed, unknown, bad, never sent) was waited for: from due in an
    /// open loop, from sent in a closed one.
    #[serde(default)]
    pub waited: Histogram,
    /// The same from sent, of those that left; only in an open loop.
    #[serde(default)]
    pub waited_from_sent: Option<Histogram>,
}

/// Connections, over the whole run after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Established.
    pub opened: u64,
    /// Could not be established.
    pub failed: u64,
    /// Of these, attempts that the server refused.
    pub refused: u64,
    /// Of these, attempts that timed out.
    pub hanging: u64,
    /// Established, and still waiting for the server to accept them, while it accepted none: its kernel says so where it is this one.
    pub unaccepted: u64,
    /// Ended by the peer.
    pub closed_by_peer: u64,
    /// Times a request went out again, because its connection or its stream had ended.
    pub requests_resent: u64,
    /// Requests a connection takes before the peer closes it, where that was learnt.
    pub learnt_limit: Option<u32>,
    /// Connections on which that limit was seen.
    pub learnt_on: u64,
}

/// TCP's counters (`TCP_INFO`), summed over `looked_at` connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Segments sent again.
    pub retransmits: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Time the peer's closed or small window held us back, microseconds.
    pub zero_window_us: u64,
    /// Smallest round-trip time of all, microseconds.
    pub rtt_min_us: Option<u32>,
    /// Packets lost on this machine since we were too slow for them (only a TCP in user space can say).
    pub overrun: u64,
    /// Connections that were looked at: all, or a sample where asking each would cost too much.
    pub looked_at: u64,
    /// Counters of a user-space TCP.
    pub stack: Option<TcpTotals>,
    /// TCP events found by looks at connections, over the whole life of the connections.
    pub events: TcpEvents,
    /// Segments counted one by one, where somebody counted them: a TCP of our own, or a capture beside the run.
    pub segments: Option<Segments>,
}

/// The load generator looked at by itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientFigures {
    /// Processor time of the sending threads.
    pub cpu: Duration,
    /// Busy share of the busiest sending thread's core time (0 to 1).
    pub core_busy: f64,
    /// Time the sending threads were runnable and had to wait for a core (schedstat).
    pub run_queue_wait: Duration,
    /// How long the sending threads were watched for that, all of them together.
    #[serde(default)]
    pub watched: Duration,
    /// The longest that a sending thread waited for its core within a tenth of a second: this machine added no more than that to a latency.
    pub disturbed: Duration,
    /// The longest that a sending thread stood still though it had something to do: stopped, suspended or
    /// without its core.
    #[serde(default)]
    pub stood_still: Duration,
    /// All such times together, of the thread that had the most.
    #[serde(default)]
    pub stood_still_in_all: Duration,
    /// With agents: the one that stood still for the longest time.
    #[serde(default)]
    pub stood_still_agent: Option<String>,
    /// For how long the whole machine was suspended: its clocks ran on without it.
    #[serde(default)]
    pub suspended: Duration,
    /// How late the last sending thread began, against its planned start.
    #[serde(default)]
    pub start_late: Duration,
    /// Part of `cpu` that the script of the plan took.
    #[serde(default)]
    pub script: Duration,
    /// Context switches of the sending threads.
    pub context_switches: u64,
    /// How late requests left against when they were due and could have (open loop), nanoseconds.
    pub lateness: Histogram,
    /// Sending threads.
    pub threads: u32,
    /// Whether the client, not the server, set the limit; then `reason` says how that was seen.
    pub saturated: bool,
    /// In words.
    pub reason: Option<String>,
}

impl ClientFigures {
    /// Share of a run's time for which the sending threads had to wait for a core. They are watched
    /// while they open and close connections, too.
    pub fn waited_share(&self, time: Duration) -> f64 {
        let wall = (time * self.threads.max(1)).max(self.watched).as_secs_f64();
        if wall > 0.0 { self.run_queue_wait.as_secs_f64() / wall } else { 0.0 }
    }
}

/// One second of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, seconds from the beginning of measuring.
    pub t_s: f64,
    /// Answered per second.
    pub rate_rps: f64,
    /// Median latency in it, microseconds (from due in an open loop); `None` if no response came.
    pub p50_us: Option<f64>,
    /// 99th percentile in it, microseconds.
    pub p99_us: Option<f64>,
    /// The median is at least that: a request without a good response stands there.
    #[serde(default)]
    pub p50_at_least: bool,
    /// The same of the 99th percentile.
    #[serde(default)]
    pub p99_at_least: bool,
    /// Failed in it.
    pub failed: u64,
    /// Of unknown end in it.
    #[serde(default)]
    pub unknown: u64,
    /// Responses in it that were not good.
    #[serde(default)]
    pub bad: u64,
    /// TCP events in it, found by looks at connections.
    pub tcp: TcpEvents,
    /// Segments of it, where they are counted one by one.
    pub segments: Option<Segments>,
    /// Bytes of requests and responses in it.
    #[serde(default)]
    pub bytes: Bytes,
    /// Cores that the sending threads kept busy; `None` where they are not watched one by one.
    #[serde(default)]
    pub client_busy: Option<f64>,
    /// Latencies of good responses in it.
    #[serde(default)]
    pub spread: Spread,
}

/// Figures of one request name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NamedFigures {
    /// Its share of the run's counts.
    pub requests: Requests,
    /// Answered, but not as expected.
    pub bad: Bad,
    /// Latencies of its good responses (from due in an open loop, from sent in a closed one), nanoseconds.
    pub latency: Histogram,
    /// How long its requests without a good response were waited for.
    #[serde(default)]
    pub waited: Histogram,
    /// Its share of [`Window::answered`].
    pub in_window: u64,
    /// How it went over time, if it is a step of a flow; nothing for what is told while the run lasts.
    #[serde(default, skip_serializing_if = "StepCourse::is_empty")]
    pub course: StepCourse,
}

/// The iterations of a flow that began after the warm-up; each ends in one of three ways.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowFigures {
    /// All steps went well.
    pub done: u64,
    /// A step had no good response, or a value to take was missing.
    pub failed: u64,
    /// The run ended before the iteration did.
    pub stopped: u64,
    /// Iterations of a rate of users that were due and never began, because too many users were there.
    #[serde(default)]
    pub unstarted: u64,
    /// Requests of failed iterations that were not sent.
    pub skipped: u64,
    /// Redirects that were followed.
    #[serde(default)]
    pub redirects: u64,
    /// How long those that are done took from when the user was due, pauses included; nanoseconds.
    pub duration: Histogram,
    /// How long those that failed took until then.
    #[serde(default)]
    pub waited: Histogram,
    /// Why iterations failed: the step and the reason.
    pub causes: BTreeMap<String, u64>,
}

/// One request worth looking at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was due, microseconds from the beginning of measuring (in a closed loop: when it was sent).
    pub due_us: f64,
    /// Its latency, microseconds; `None` when no response came.
    pub latency_us: Option<f64>,
    /// Status of the response, if one came.
    pub status: Option<u16>,
    /// Why it is here: "slowest", "bad status", "bad body", "timeout" ...
    pub why: String,
    /// Name of the request.
    pub request: String,
    /// Beginning of the response's head (at most 1 kB), empty when none came.
    pub head: String,
    /// Beginning of the response's body (at most 200 bytes), where it was bad: as it came, or escaped if it is no UTF-8.
    pub body: String,
    /// The request as it was sent, without secrets, where the response was bad.
    pub sent: String,
}

/// How one core is going: cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Its thread, while it works and has the core to itself.
    pub thread: Option<u32>,
    /// Its requests.
    pub requests: Requests,
    /// Responses from 1xx to 5xx.
    pub by_class: [u64; 5],
    /// Its requests in flight now.
    pub in_flight: u64,
    /// Its connections now.
    pub open: u64,
    /// Its connections so far.
    pub connections: Connections,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Core {
    pub(crate) fn of(part: &Snapshot, thread: Option<u32>) -> Core {
        let mut by_class = [0; 5];
        for (status, n) in &part.status {
            by_class[usize::from(*status / 100).clamp(1, 5) - 1] += n;
        }
        Core {
            thread,
            requests: part.requests,
            by_class,
            in_flight: part.in_flight,
            open: part.open,
            connections: part.connections,
            bytes: part.bytes,
        }
    }
}

/// A response as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When it was whole, microseconds from the beginning of measuring.
    pub at_us: u64,
    /// Its status.
    pub status: u16,
    /// It was not good.
    pub bad: bool,
    /// Name of the request.
    pub request: String,
    /// The head, then the body without its transfer coding, both up to a limit.
    pub bytes: Vec<u8>,
}

/// How a run is going: cumulative, cheap to take.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Since sending began (warm-up included).
    pub elapsed: Duration,
    /// Whether the warm-up is over.
    pub measuring: bool,
    /// Of one core: how long it had measured when it said this.
    pub measured: Duration,
    /// Answered, failed and so on so far (in figures).
    pub requests: Requests,
    /// Not as expected so far.
    pub bad: Bad,
    /// Failures so far.
    pub failures: Failures,
    /// Responses by status so far.
    pub status: BTreeMap<u16, u64>,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests that are due and have not left, in an open loop.
    pub overdue: u64,
    /// Connections open now.
    pub open: u64,
    /// Bytes so far.
    pub bytes: Bytes,
    /// Connections so far.
    pub connections: Connections,
    /// The same core by core, of the whole.
    pub cores: Vec<Core>,
    /// Counters of a user-space TCP since sending began; `None` where TCP is the kernel's.
    pub stack: Option<TcpTotals>,
    /// TCP events found by looks at connections since measuring began.
    pub tcp: TcpEvents,
    /// Connections looked at so far.
    pub looked_at: u64,
    /// Segments counted one by one since measuring began, where they are.
    pub segments: Option<Segments>,
    /// Latency of good responses so far (from due in an open loop).
    pub latency: Histogram,
    /// How long requests without a good response were waited for so far.
    pub waited: Histogram,
    /// Per request name so far, where a condition that ends the run asks for it.
    pub by_name: BTreeMap<String, NamedFigures>,
    /// Finished seconds.
    pub series: Vec<Interval>,
    /// How old all this is, where it comes from other machines and should be newer.
    pub old: Option<Duration>,
    /// The machines that it comes from, where they are several.
    pub machines: Vec<MachineNow>,
}

/// One of several machines, as it was at its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineNow {
    /// Its name.
    pub name: String,
    /// Responses in the last second that it reported.
    pub answered: u64,
    /// Requests so far.
    pub requests: Requests,
    /// Whether it has ended its part.
    pub ended: bool,
}
