//! A call: its parts, which add up to its time, and observations made meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::instrument::Facts;

use crate::handshake::Handshake;
use crate::late::LateSegments;
use crate::limits;

/// Where in a call something ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// No connection.
    Connect,
    /// A connection, and no TLS on it.
    Tls,
    /// The request did not leave whole.
    Send,
    /// No byte of a response.
    Wait,
    /// Part of a response.
    Receive,
}

/// Why a call has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The time was over.
    TimedOut,
    /// The time for the whole diagnosis was over: the call was cut short.
    Cut,
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer closed before the response was whole.
    ClosedEarly,
    /// This machine has no local port left for the peer (EADDRNOTAVAIL).
    NoPort,
    /// The response is no HTTP/1.1.
    Malformed,
    /// TLS failed: a certificate, a version, an alert.
    Tls,
    /// The kernel lacks what the probe needed.
    NoLever,
    /// Something else, in words.
    Other,
}

/// A call without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stage it had reached.
    pub stage: CallStage,
    /// Why.
    pub why: Why,
    /// In words.
    pub words: String,
}

/// The status and fields of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResponse {
    /// Its status.
    pub status: u16,
    /// The connection may carry another request.
    pub reusable: bool,
    /// Bytes of content.
    pub body_bytes: u64,
    /// Field values that matter to a diagnosis, by lower-case name.
    pub fields: Vec<(String, String)>,
    /// It is a stream of events without an end of its own: we left in its middle, and its time is
    /// that of its first byte.
    pub endless: bool,
}

impl ProbeResponse {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Names of fields kept of a response.
pub(crate) const KEPT_FIELDS: [&str; 18] = [
    "cf-cache-status",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "keep-alive",
    "location",
    "server",
    "server-timing",
    "transfer-encoding",
    "vary",
    "via",
    "x-cache",
    "x-cache-status",
    "x-envoy-upstream-service-time",
    "x-powered-by",
    "x-proxy-cache",
    "retry-after",
];

/// Bytes that came at a time: over TLS those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedBytes {
    /// Since the call's start.
    pub at: Duration,
    /// How many.
    pub bytes: u32,
}

/// The connections at the server's port while a call waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// In the accept queue.
    pub waiting: u32,
    /// Accepted.
    pub accepted: u32,
    /// Of these, with nothing unread and nothing under way.
    pub idle: u32,
}

/// The windows and limits of HTTP/2 on a call's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// The flow-control window that we announce for each stream and the connection.
    pub window: u32,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS` of the server; `None`: it names no limit.
    pub most_streams: Option<u32>,
    /// The window that the server announces for each stream.
    pub their_window: u32,
}

/// One call. Times without a word are since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// It opened a connection of its own.
    pub fresh: bool,
    /// Our end of its connection.
    pub local: Option<SocketAddr>,
    /// When it began, nanoseconds since 1970: by this its packets are found.
    pub began_ns: i64,
    /// Time the connection took, when it is fresh.
    pub connect: Duration,
    /// The TLS handshake, when it is fresh and over TLS.
    pub tls: Option<Box<Handshake>>,
    /// The kernel's counters when it was established.
    pub connect_facts: Facts,
    /// HTTP/2 on its connection; `None`: it was HTTP/1.1.
    pub streamed: Option<Streamed>,
    /// How long it waited at ours for a stream, since the server admitted no more.
    pub queued: Duration,
    /// How long its body waited at ours for room in the server's windows.
    pub held_by_window: Duration,
    /// Of calls at once on a connection: how long its last bytes, of which none was lost, waited in
    /// our kernel behind a missing segment of other calls.
    pub held_behind: Duration,
    /// From the first write until the kernel had taken the last byte (the wait for `100 Continue`
    /// included).
    pub send: Duration,
    /// From then to the first byte of the response.
    pub wait: Duration,
    /// From then to its last byte.
    pub receive: Duration,
    /// All of it, by the clock.
    pub total: Duration,
    /// When `100 Continue` came.
    pub continued: Option<Duration>,
    /// How long the body was held back for it.
    pub held_for_continue: Option<Duration>,
    /// Each receive.
    pub receives: Vec<ReceivedBytes>,
    /// The response, or why there is none.
    pub end: Option<Result<ProbeResponse, Failure>>,
    /// The increase of the kernel's counters during the call.
    pub facts: Facts,
    /// Segments that came late, by what became of them, as its packets show. `None`: they were not
    /// looked at.
    pub late: Option<LateSegments>,
    /// With stamps: how long the last byte written waited in TCP before it was let go.
    pub held_in_tcp: Option<Duration>,
    /// With stamps: from a write until its last byte was acknowledged, first write.
    pub acknowledged: Option<Duration>,
    /// Connections that the kernel turned away at a full accept queue meanwhile (TcpExt
    /// ListenOverflows), where the server is on this machine.
    pub overflows: u64,
    /// Where it turned any away meanwhile: the accept queue of this very port was seen full.
    pub queue_full: bool,
    /// Connections of other callers at the server's port meanwhile, where that is known.
    pub others: Option<u16>,
    /// What the kernel of this machine dropped meanwhile, where it was looked at: once segments had been
    /// lost.
    pub drops_here: Option<Vec<DropCount>>,
    /// How long our own thread was ready to run and waited for a processor, from before the call to
    /// after it.
    pub starved: Duration,
    /// How long anything on this machine waited for a processor meanwhile (PSI), where its kernel tells.
    pub contended: Option<Duration>,
    /// For a response that ends with its connection: how long after its last byte the peer closed
    /// that.
    pub closed_after: Option<Duration>,
    /// Where it took long on a new connection, and the server is on this machine: the others there.
    pub crowd: Option<Crowd>,
    /// The share that gzip leaves of the beginning of its body, where that was asked for.
    pub packs_to: Option<f64>,
    /// The activity of the server's process meanwhile, when it is on this machine and was named.
    pub server: Option<Box<crate::local::Spent>>,
}

/// Packets that this machine dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCount {
    /// Where, in words.
    pub place: String,
    /// How many.
    pub packets: u64,
}

/// Segments of a request from which on it exceeds the first congestion window (RFC 6928).
const SEVERAL_WINDOWS: u32 = 10;

impl Call {
    /// How long the server had the whole request before its response began, and a round trip: the
    /// end of a large request leaves when what is before it has been acknowledged.
    pub(crate) fn wait_for_whole(&self) -> Duration {
        let large = self.facts.data_segs_out > SEVERAL_WINDOWS;
        let left = self.held_in_tcp.filter(|_| large).unwrap_or_default();
        self.wait.saturating_sub(left)
    }

    /// The response.
    pub fn answer(&self) -> Option<&ProbeResponse> {
        self.end.as_ref().and_then(|end| end.as_ref().ok())
    }

    /// Why there is none.
    pub fn failure(&self) -> Option<&Failure> {
        self.end.as_ref().and_then(|end| end.as_ref().err())
    }

    /// Why there is none, where that is not that we cut it short.
    pub fn failed(&self) -> Option<&Failure> {
        self.failure().filter(|f| f.why != Why::Cut)
    }

    /// Time of the TLS handshake; zero on a connection that is there already, or without TLS.
    pub fn tls_took(&self) -> Duration {
        self.tls.as_ref().map_or(Duration::ZERO, |handshake| handshake.took)
    }

    /// Time of opening the connection: TCP, then TLS.
    pub fn opening(&self) -> Duration {
        self.connect + self.tls_took()
    }

    /// How long a new connection waited for the server to turn to it, once it had the request. Over TLS
    /// that may be in the handshake, but for a full one, where the server has work of its own.
    pub fn first_wait(&self) -> Duration {
        let in_handshake = self.tls.as_deref().map_or(Duration::ZERO, |handshake| match &handshake.seen {
            None => handshake.took,
            Some(seen) if seen.is_resumed => {
                let waited = handshake.trips.first().map(|t| t.begun.saturating_sub(t.sent));
                waited.filter(|waited| *waited >= limits::TURNED_TO).unwrap_or_default()
            }
            Some(_) => Duration::ZERO,
        });
        self.wait_for_whole().max(in_handshake)
    }

    /// Round trips of the network that opening the connection takes.
    pub fn opening_trips(&self) -> f64 {
        let tls = self.tls.as_ref().map_or(0, |handshake| handshake.trips.len());
        if self.fresh { 1.0 + tls as f64 } else { 0.0 }
    }

    /// Time that belongs to no part.
    pub fn unexplained(&self) -> Duration {
        self.total.saturating_sub(self.opening() + self.queued + self.send + self.wait + self.receive)
    }

    /// The longest pause between two receives of the response.
    pub fn longest_gap(&self) -> Duration {
        self.receives.windows(2).map(|w| w[1].at.saturating_sub(w[0].at)).max().unwrap_or_default()
    }

    /// Bytes of the response that came before its longest pause.
    pub fn bytes_before_gap(&self) -> u64 {
        let gap = self.longest_gap();
        let at = self.receives.windows(2).position(|w| w[1].at.saturating_sub(w[0].at) == gap);
        at.map_or(0, |at| self.receives[..=at].iter().map(|r| u64::from(r.bytes)).sum())
    }

    /// From the first write to the first byte of the response.
    pub fn to_first_byte(&self) -> Duration {
        self.send + self.wait
    }

    /// Segments had to be sent again, came out of order, or arrived twice. `signs::disorder` says what
    /// became of them.
    pub fn lossy(&self) -> bool {
        let f = &self.facts;
        f.total_retrans + f.rcv_ooopack + f.dsack_dups + u32::from(f.total_rto) > 0
    }

    /// A SYN had to be sent again long before the first time-out of a second (RFC 6298, section 2):
    /// a segment came that was no SYN-ACK, as where the server still remembers a connection between
    /// these ports.
    pub fn collided(&self) -> bool {
        self.syn_again() && self.connect < limits::SYN_TIME
    }

    /// A SYN had to be sent again, and was not refused as one of an old connection.
    pub(crate) fn syn_lost(&self) -> bool {
        self.syn_again() && !self.collided()
    }

    /// From the SYN to its answer, as far as the network takes it.
    pub(crate) fn syn_round_trip(&self) -> Duration {
        syn_round_trip(self.connect, &self.connect_facts)
    }

    /// A SYN had to be sent again.
    pub fn syn_again(&self) -> bool {
        self.fresh && self.connect_facts.total_retrans > 0
    }
}

/// Of the time that opening a connection took, the round trip that the kernel counted: on a busy
/// machine we wait for a processor besides, to see that it is open.
pub(crate) fn syn_round_trip(took: Duration, counted: &Facts) -> Duration {
    match counted.min_rtt_us {
        0 => took,
        us => took.min(Duration::from_micros(us.into())),
    }
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_part_explains_is_told() {
        let t = Duration::from_millis;
        let call =
            Call { connect: t(1), send: t(2), wait: t(3), receive: t(4), total: t(11), ..Call::default() };
        assert_eq!(call.unexplained(), t(1));
        assert_eq!(call.to_first_byte(), t(5));
    }

    #[test]
    fn the_longest_gap_is_within_the_answer() {
        let at = |ms| ReceivedBytes { at: Duration::from_millis(ms), bytes: 1 };
        let call = Call { receives: vec![at(50), at(51), at(95)], ..Call::default() };
        assert_eq!(call.longest_gap(), Duration::from_millis(44));
        assert_eq!(Call::default().longest_gap(), Duration::ZERO);
    }
}
