//! The observation as plain data.

use std::net::{IpAddr, SocketAddr};

pub use crate::late::LateSegments;
use crate::rule::Cause;

use super::file::Ending;
use super::flow::{MarkCounts, Marks};
use super::tls::Access;

/// Adds the fields named to those of the first value.
macro_rules! add_fields {
    ($mine:expr, $other:expr, $($field:ident)*) => { $($mine.$field += $other.$field;)* };
}

/// Everything that was seen in a capture.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The packets, counted.
    pub packets: Packets,
    /// Marks of the segments of all connections, counted.
    pub marks: MarkCounts,
    /// Segments that came late, by what became of them.
    pub late: LateSegments,
    /// Connections and calls, counted.
    pub sums: Sums,
    /// Connections with most to tell, at most [`CaptureLimits::listed`](super::CaptureLimits::listed).
    pub connections: Vec<ConnectionSummary>,
    /// The slowest calls, slowest first.
    pub slowest: Vec<ObservedCall>,
    /// The events that cost time, by kind.
    pub seen: Vec<TroubleCount>,
    /// How many connections of each client were busy at once.
    pub pools: Vec<ObservedPool>,
    /// Connections of HTTP/2 whose client had as many streams open as the server admits; at most
    /// [`CaptureLimits::listed`](super::CaptureLimits::listed).
    pub stream_limits: Vec<StreamLimit>,
    /// Why connections of HTTP/2 were read no further, in words, and how many.
    pub unread: Vec<(String, u64)>,
    /// Connections that went wrong as such, whatever they carried; at most
    /// [`CaptureLimits::listed`](super::CaptureLimits::listed).
    pub faults: Vec<ConnectionFault>,
    /// The same of each server, where there are several: figures of calls, what cost them time,
    /// pools, faults and connections. `None`: the servers beyond
    /// [`limits::SERVERS`](super::limits::SERVERS).
    pub servers: Vec<(Option<SocketAddr>, Observation)>,
    /// What was left out because a table was full.
    pub left_out: BeyondTables,
    /// How the file ended, when it was one.
    pub ending: Option<Ending>,
}

/// A fault of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// This many SYNs got no reply.
    NotOpened {
        /// Number of SYNs.
        syns: u32,
    },
    /// The SYN was answered by a reset.
    Refused,
    /// The window of one end was closed, and never opened again.
    WindowClosed {
        /// The client's.
        of_client: bool,
    },
    /// One end retransmitted the same segment again and again without a reply.
    Died {
        /// The client did.
        from_client: bool,
    },
    /// The server ended the connection within a call.
    Cut {
        /// By a reset.
        reset: bool,
        /// The response had begun.
        begun: bool,
    },
    /// Segments were lost, and no call came to its end.
    Lossy,
}

/// A connection that went wrong as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// Client and server.
    pub ends: (SocketAddr, SocketAddr),
    /// How long it was seen to last, nanoseconds.
    pub cost_ns: i64,
    /// Retransmitted segments with data.
    pub segments: u64,
}

/// Packets of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// All packets of the capture.
    pub all: u64,
    /// With a TCP segment.
    pub tcp: u64,
    /// Not TCP over IP.
    pub other: u64,
    /// Fragments of IP packets with TCP in them, which are not put together.
    pub fragments: u64,
    /// Of a link type that isn't read; its number.
    pub unknown_link: Option<i32>,
    /// Packets whose headers are truncated or contradict themselves.
    pub malformed: u64,
    /// Kept only in part (a snap length).
    pub cut: u64,
    /// Captured twice (the same IP identification within a millisecond, as where two interfaces are
    /// captured), and left out.
    pub twice: u64,
    /// With an earlier time than the packet before.
    pub backwards: u64,
    /// Lost before they could be captured, as far as known.
    pub dropped: u64,
    /// Time of the first, nanoseconds since 1970.
    pub first_ns: Option<i64>,
    /// Time of the last.
    pub last_ns: i64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Packets {
    /// Adds those of a later window.
    pub(super) fn add(&mut self, later: &Packets) {
        add_fields!(self, later, all tcp other fragments malformed cut twice backwards dropped bytes);
        self.unknown_link = later.unknown_link.or(self.unknown_link);
        self.first_ns = self.first_ns.or(later.first_ns);
        if later.all > 0 {
            self.last_ns = later.last_ns;
        }
    }

    /// The share of the packets that passed which was captured, from 0 to 1; 1 where none passed.
    pub fn share(&self) -> f64 {
        match self.all + self.dropped {
            0 => 1.0,
            passed => self.all as f64 / passed as f64,
        }
    }
}

/// What was left out because a table was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeyondTables {
    /// Calls to servers beyond [`limits::SERVERS`](super::limits::SERVERS): judged together.
    pub servers: u64,
    /// Calls of clients beyond [`limits::CLIENTS`](super::limits::CLIENTS), as far as it is counted how
    /// many of their connections are busy.
    pub clients: u64,
    /// Costs beyond [`limits::COSTS`](super::limits::COSTS) of a kind of trouble: the median is that of
    /// the first ones.
    pub costs: u64,
}

/// Connections and calls, counted.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// TCP connections.
    pub connections: u64,
    /// Connections whose handshake was captured.
    pub opened: u64,
    /// That were refused, or whose SYN was not answered.
    pub not_opened: u64,
    /// With packets in only one direction.
    pub one_direction: u64,
    /// That carried HTTP/1.
    pub http: u64,
    /// That carried TLS: what is inside wasn't readable.
    pub tls: u64,
    /// TLS connections by whether their content could be read.
    pub tls_access: TlsAccess,
    /// Calls of unreadable connections, timed by their records.
    pub timed: u64,
    /// That carried HTTP/2, in clear or readable.
    pub http2: u64,
    /// Calls over HTTP/2 whose method, path or status is not known: their fields refer to others
    /// that the capture lacks.
    pub unknown_fields: u64,
    /// Streams of HTTP/2 that one end reset before their response was whole.
    pub streams_reset: u64,
    /// With other data.
    pub other: u64,
    /// That ended by a reset.
    pub reset: u64,
    /// Whose client reset them within a call.
    pub cut_by_client: u64,
    /// Forgotten early, to hold memory bounded.
    pub evicted: u64,
    /// Requests.
    pub requests: u64,
    /// Final responses.
    pub answers: u64,
    /// Interim (1xx) responses.
    pub interim: u64,
    /// Messages of whose heads the capture has the beginning alone.
    pub heads_cut: u64,
    /// Requests of which the capture lacks bytes.
    pub requests_incomplete: u64,
    /// Final responses that were truncated, or whose bytes the capture lacks in part.
    pub answers_incomplete: u64,
    /// Requests with a complete response.
    pub answered: u64,
    /// Requests whose response is truncated or missing.
    pub unanswered: u64,
    /// Responses to no request that was seen.
    pub orphans: u64,
    /// Requests sent before the response to the previous one.
    pub pipelined: u64,
    /// Answered calls that waited behind the response before them.
    pub queued: u64,
    /// Connections turned into another protocol or a tunnel.
    pub upgrades: u64,
    /// Holes in the streams: bytes the capture does not have.
    pub holes: u64,
    /// Requests that were the first on their connection, of the answered ones.
    pub first_calls: u64,
    /// Time those took to connect, nanoseconds.
    pub connect_ns: i64,
    /// Time from the request's first byte to the response's last, of all answered calls,
    /// nanoseconds.
    pub total_ns: i64,
    /// Of it: sending the request.
    pub send_ns: i64,
    /// Time until the response's first byte, less the next two.
    pub wait_ns: i64,
    /// Time behind earlier responses.
    pub queued_ns: i64,
    /// Of the waiting, what the server took, the network's part taken off.
    pub think_ns: i64,
    /// Time to receive the response.
    pub receive_ns: i64,
    /// Calls whose small response paused for 10 ms or more, which nothing that was seen explains.
    pub paused: u64,
    /// Of the time to receive: these pauses.
    pub paused_ns: i64,
    /// Quantiles of the total time, nanoseconds: 50 %, 90 %, 99 %, 100 %.
    pub total_quantiles_ns: [i64; 4],
    /// Quantiles of the server's part.
    pub think_quantiles_ns: [i64; 4],
    /// Least round trip seen, of handshakes, nanoseconds.
    pub rtt_min_ns: Option<i64>,
    /// The shortest time in which a server acknowledged anything: a bound for where no handshake
    /// tells.
    pub rtt_bound_ns: Option<i64>,
    /// Calls for which the server took 10 ms or more, what that was all together, and in the
    /// middle, nanoseconds.
    pub slow_thinks: u64,
    /// Their sum.
    pub slow_think_ns: i64,
    /// Their median.
    pub slow_think_median_ns: i64,
}

/// TLS connections by whether their content could be read, and why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsAccess {
    /// It was.
    pub read: u64,
    /// There was no key log.
    pub without_keys: u64,
    /// The key log lacks their sessions.
    pub not_in_log: u64,
    /// A cipher suite with CBC, which is not supported.
    pub cbc: u64,
    /// Another cipher suite that is not supported.
    pub other_suite: u64,
    /// Their handshake is not in the capture.
    pub without_handshake: u64,
    /// The keys of the log do not open their records.
    pub wrong_keys: u64,
}

impl Sums {
    /// Adds the sums of other calls, or of a later window. What is made from all of them in the end
    /// (quantiles, medians) is not added.
    pub(super) fn add(&mut self, other: &Sums) {
        add_fields!(self, other, connections opened not_opened one_direction http tls timed http2);
        add_fields!(self, other, unknown_fields streams_reset other reset cut_by_client evicted);
        add_fields!(self, other, requests answers interim heads_cut requests_incomplete);
        add_fields!(self, other, answers_incomplete answered unanswered orphans pipelined queued);
        add_fields!(self, other, upgrades holes first_calls slow_thinks paused);
        let (mine, others) = (&mut self.tls_access, &other.tls_access);
        add_fields!(mine, others, read without_keys not_in_log cbc other_suite without_handshake wrong_keys);
        for (mine, others) in [
            (&mut self.connect_ns, other.connect_ns),
            (&mut self.total_ns, other.total_ns),
            (&mut self.send_ns, other.send_ns),
            (&mut self.wait_ns, other.wait_ns),
            (&mut self.queued_ns, other.queued_ns),
            (&mut self.think_ns, other.think_ns),
            (&mut self.receive_ns, other.receive_ns),
            (&mut self.slow_think_ns, other.slow_think_ns),
            (&mut self.paused_ns, other.paused_ns),
        ] {
            *mine = mine.saturating_add(others);
        }
        self.rtt_min_ns = self.rtt_min_ns.into_iter().chain(other.rtt_min_ns).min();
    }

    /// The count of TLS connections of that kind.
    pub(crate) fn tls_by(&mut self, access: Access) -> &mut u64 {
        let t = &mut self.tls_access;
        match access {
            Access::Open => &mut t.read,
            Access::NoKeys => &mut t.without_keys,
            Access::NotInLog => &mut t.not_in_log,
            Access::Cbc => &mut t.cbc,
            Access::OtherSuite => &mut t.other_suite,
            Access::NoHandshake | Access::Pending => &mut t.without_handshake,
            Access::WrongKeys => &mut t.wrong_keys,
        }
    }
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carried {
    /// No data.
    #[default]
    Nothing,
    /// HTTP/1.
    Http,
    /// TLS.
    Tls,
    /// HTTP/2, in clear or with keys.
    Http2,
    /// Other data.
    Other,
}

/// The opening of a connection, as seen from where the packets were captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// When the first SYN was sent.
    pub syn_ns: i64,
    /// SYNs that were sent.
    pub syns: u32,
    /// SYNs that were answered by a bare ACK of other numbers: of a connection between the same
    /// ports that the server still remembers (RFC 9293, section 3.5.2; RFC 5961, section 4).
    pub collisions: u32,
    /// From the last SYN to the SYN-ACK: the round trip from here to the server.
    pub to_server_ns: Option<i64>,
    /// From the SYN-ACK to its ACK: the round trip from here to the client.
    pub to_client_ns: Option<i64>,
    /// From the first SYN to the client's ACK.
    pub whole_ns: Option<i64>,
}

/// A TCP connection in the report.
#[derive(Clone, Debug)]
pub struct ConnectionSummary {
    /// Its number, by the first packet.
    pub id: u64,
    /// The end that opened it, or sent the requests.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// Segments sent by the client and by the server.
    pub segments: [u64; 2],
    /// Bytes of data they sent, repetitions included.
    pub bytes: [u64; 2],
    /// Marks of the segments of each direction, counted.
    pub marks: [MarkCounts; 2],
    /// Its opening, when that was seen.
    pub handshake: Option<Handshake>,
    /// Its protocol.
    pub carried: Carried,
    /// Requests on it.
    pub requests: u64,
    /// Final responses on it.
    pub answers: u64,
    /// It ended by a reset.
    pub reset: bool,
    /// First packet's time.
    pub first_ns: i64,
    /// Last packet's time.
    pub last_ns: i64,
}

/// A request and its response, with times as seen where the packets were captured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedCall {
    /// The connection's number.
    pub connection: u64,
    /// Client and server.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The request's method.
    pub method: String,
    /// Its target, shortened.
    pub target: String,
    /// The response's status code.
    pub status: u16,
    /// When its first packet was sent (the SYN, for the first on a connection), nanoseconds since
    /// 1970.
    pub start_ns: i64,
    /// Opening the connection, for the first on it.
    pub connect_ns: i64,
    /// From the end of the opening to the request's first byte, for the first on a connection.
    pub idle_ns: i64,
    /// From the request's first byte to its last.
    pub send_ns: i64,
    /// Time behind earlier responses (pipelining), less that in which the client's window was full.
    pub queued_ns: i64,
    /// The network's part of the waiting: the round trip to the server.
    pub network_ns: i64,
    /// The server's part of the waiting.
    pub think_ns: i64,
    /// From the response's first byte to its last; and what it waited behind earlier ones that the
    /// client did not read.
    pub receive_ns: i64,
    /// The longest pause in a response of less than 10 kB over HTTP/1.
    pub pause_ns: i64,
    /// Connecting, sending, waiting and receiving.
    pub total_ns: i64,
    /// Whether the handshake shows the round trip. If not, it is part of the server's time.
    pub rtt_known: bool,
    /// Its segments that came late, by what became of them.
    pub late: LateSegments,
    /// The events that cost time in it.
    pub notes: Vec<Note>,
    /// Its segments, as far as kept.
    pub segments: Vec<Traced>,
    /// Segments in the middle that are not kept, and after how many kept ones they belong.
    pub left_out: u64,
    /// Their position among `segments`.
    pub left_out_at: usize,
}

/// Something that was seen to cost time in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The cause that it points to.
    pub cause: &'static Cause,
    /// Start of the event, nanoseconds.
    pub at_ns: i64,
    /// Time that it cost, nanoseconds.
    pub cost_ns: i64,
    /// A sentence for people.
    pub text: String,
}

/// A segment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Time of the capture, nanoseconds.
    pub time_ns: i64,
    /// From the client to the server.
    pub from_client: bool,
    /// [`flag`](super::packet::flag)s.
    pub flags: u8,
    /// Sequence number, from the start of the connection.
    pub seq: u32,
    /// Acknowledgement number, from the start of the connection.
    pub ack: u32,
    /// Bytes of data.
    pub len: u32,
    /// Window as in the header.
    pub window: u16,
    /// Marks such as retransmission.
    pub marks: Marks,
}

/// Busy connections of one client to one server: of the most that there ever were at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedPool {
    /// The client.
    pub client: IpAddr,
    /// The server.
    pub server: SocketAddr,
    /// How many were busy at once at most.
    pub connections: u64,
    /// How many bursts reached that.
    pub times: u64,
    /// Responses that ended while all of these were busy.
    pub ended: u64,
    /// Of them, those after which the next request left at once on the same connection.
    pub followed: u64,
    /// The longest that those requests can have waited for a connection, all together: since all of
    /// the pool was busy, nanoseconds.
    pub waited_ns: i64,
    /// Time between one such burst and the next.
    pub between_ns: i64,
    /// Time from the first request to the last change.
    pub watched_ns: i64,
}

/// The calls that a process made to a server, in one window.
#[derive(Clone, Debug)]
pub struct ClientProcess {
    /// The client's address.
    pub client: IpAddr,
    /// The server.
    pub server: SocketAddr,
    /// The process that has the connections; `None` where no process of this machine is known to.
    pub pid: Option<u32>,
    /// Answered calls.
    pub calls: u64,
    /// Of them, those on connections that ended before they were looked up: no other process with
    /// this address was seen.
    pub assumed: u64,
    /// Time of these calls, nanoseconds.
    pub total_ns: i64,
    /// What cost them time.
    pub troubles: Vec<ClientTrouble>,
}

/// A kind of trouble in the calls of a client process.
#[derive(Clone, Copy, Debug)]
pub struct ClientTrouble {
    /// The cause that it points to.
    pub cause: &'static Cause,
    /// Calls in which it was seen.
    pub calls: u64,
    /// Total cost of these calls, nanoseconds.
    pub cost_ns: i64,
}

/// A connection of HTTP/2 whose client had as many streams open as the server admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimit {
    /// Client and server.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// How many the server admits at once (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub limit: u64,
    /// How many bursts reached the limit.
    pub times: u64,
    /// Streams that ended while the limit was reached.
    pub ended: u64,
    /// Requests that left at once after one of them ended.
    pub followed: u64,
    /// The longest that those requests can have waited, all together: since the limit was reached,
    /// nanoseconds.
    pub waited_ns: i64,
    /// Time in which the limit was reached.
    pub full_ns: i64,
    /// Time from the first request to the last change.
    pub watched_ns: i64,
    /// Streams that the server refused (REFUSED_STREAM).
    pub refused: u64,
}

/// A kind of trouble, over all calls.
#[derive(Clone, Debug)]
pub struct TroubleCount {
    /// The cause that it points to.
    pub cause: &'static Cause,
    /// Calls in which it was seen.
    pub calls: u64,
    /// Total cost of all calls, nanoseconds.
    pub cost_ns: i64,
    /// The most it cost one call.
    pub worst_ns: i64,
    /// Median cost per call, nanoseconds.
    pub median_ns: i64,
    /// Total time of those calls.
    pub total_ns: i64,
    /// The first few events, in words.
    pub evidence: Vec<String>,
    /// The call it cost most.
    pub example: ObservedCall,
}
