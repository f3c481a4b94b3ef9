//! The counters of a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use linerate_net::TcpTotals;
use linerate_tls::HandshakeCounts;

use crate::access_log::escaped;
use crate::stats::meter::{Measured, bump};
use crate::waits::Waits;

const FIRST: u16 = 100;
const STATUSES: usize = 500;

/// Counters of one thread, which alone writes them; any thread may read.
#[derive(Debug)]
pub(crate) struct ThreadCounts {
    requests: AtomicU64,
    accepted: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    parked: AtomicU64,
    streaming: AtomicU64,
    panics: AtomicU64,
    blocked: AtomicU64,
    http2: ThreadStreamCounts,
    http3: ThreadStreamCounts,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    by_status: Box<[AtomicU64]>,
    /// Connections by what they wait for.
    states: [AtomicU64; Waits::ALL.len()],
    pub(crate) measured: Measured,
    /// The thread's id in the kernel; 0: unknown.
    pub(crate) thread: AtomicU32,
    /// Counters of a user-space TCP; updated several times a second.
    tcp: Mutex<Option<TcpTotals>>,
    /// Counters of the thread's TLS layer, if it has one.
    tls: OnceLock<Arc<Mutex<HandshakeCounts>>>,
}

/// What a thread counts of a protocol with streams.
#[derive(Debug, Default)]
struct ThreadStreamCounts {
    requests: AtomicU64,
    connections: AtomicU64,
    floods: AtomicU64,
    malformed: AtomicU64,
}

impl Default for ThreadCounts {
    fn default() -> Self {
        let zero = AtomicU64::default;
        ThreadCounts {
            requests: zero(),
            accepted: zero(),
            closed: zero(),
            refused: zero(),
            parked: zero(),
            streaming: zero(),
            panics: zero(),
            blocked: zero(),
            http2: ThreadStreamCounts::default(),
            http3: ThreadStreamCounts::default(),
            bytes_in: zero(),
            bytes_out: zero(),
            by_status: (0..STATUSES).map(|_| zero()).collect(),
            states: Default::default(),
            measured: Measured::default(),
            thread: AtomicU32::new(0),
            tcp: Mutex::default(),
            tls: OnceLock::new(),
        }
    }
}

impl ThreadCounts {
    pub(crate) fn request(&self) {
        bump(&self.requests, 1);
    }

    pub(crate) fn accepted(&self) {
        bump(&self.accepted, 1);
    }

    pub(crate) fn closed(&self) {
        bump(&self.closed, 1);
    }

    pub(crate) fn refused(&self) {
        bump(&self.refused, 1);
    }

    pub(crate) fn panicked(&self) {
        bump(&self.panics, 1);
    }

    pub(crate) fn blocked(&self) {
        bump(&self.blocked, 1);
    }

    /// Of HTTP/2, or of HTTP/3.
    fn streams(&self, http3: bool) -> &ThreadStreamCounts {
        if http3 { &self.http3 } else { &self.http2 }
    }

    pub(crate) fn stream_connection(&self, http3: bool) {
        bump(&self.streams(http3).connections, 1);
    }

    pub(crate) fn stream_request(&self, http3: bool) {
        bump(&self.streams(http3).requests, 1);
    }

    pub(crate) fn flooded(&self, http3: bool) {
        bump(&self.streams(http3).floods, 1);
    }

    pub(crate) fn malformed(&self, http3: bool) {
        bump(&self.streams(http3).malformed, 1);
    }

    /// Sets the numbers of waiting handlers and of responses being produced.
    pub(crate) fn set_parked(&self, waiting: usize, streaming: usize) {
        self.parked.store(waiting as u64, Relaxed);
        self.streaming.store(streaming as u64, Relaxed);
    }

    pub(crate) fn set_states(&self, states: [u32; Waits::ALL.len()]) {
        for (counter, n) in self.states.iter().zip(states) {
            counter.store(u64::from(n), Relaxed);
        }
    }

    pub(crate) fn states(&self) -> [u64; Waits::ALL.len()] {
        std::array::from_fn(|i| self.states[i].load(Relaxed))
    }

    pub(crate) fn received(&self, bytes: usize) {
        bump(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        bump(&self.bytes_out, bytes as u64);
    }

    pub(crate) fn set_tcp(&self, totals: Option<TcpTotals>) {
        *self.tcp.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }

    pub(crate) fn set_tls(&self, handshakes: Arc<Mutex<HandshakeCounts>>) {
        // A thread has one layer.
        let _ = self.tls.set(handshakes);
    }

    pub(crate) fn answered(&self, status: u16) {
        if let Some(counter) = self.by_status.get(usize::from(status.saturating_sub(FIRST))) {
            bump(counter, 1);
        }
    }
}

/// Totals of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose whole head was read, excluding those the reader refused.
    pub requests: u64,
    /// Responses by status, including refusals.
    pub by_status: BTreeMap<u16, u64>,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections currently open.
    pub open: u64,
    /// Connections closed at once because too many were open.
    pub refused: u64,
    /// Handlers that are currently waiting.
    pub waiting: u64,
    /// Responses that are currently produced while they are sent.
    pub streaming: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// How often a handler held its loop for longer than the watchdog's limit.
    pub blocked: u64,
    /// Of these, what HTTP/2 has.
    pub http2: StreamCounts,
    /// Of these, what HTTP/3 has.
    pub http3: StreamCounts,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes given to the transport to send.
    pub bytes_out: u64,
    /// Counters of the server's own TCP, if it has one (`--io xdp`).
    pub tcp: Option<TcpTotals>,
    /// TLS handshakes, if TLS is used.
    pub tls: Option<HandshakeCounts>,
}

/// Counts of HTTP/2, or of HTTP/3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Requests.
    pub requests: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections that the server ended because the client exceeded a limit.
    pub floods: u64,
    /// Requests that broke a rule, or whose heads were too large.
    pub malformed: u64,
}

impl StreamCounts {
    fn add(&mut self, thread: &ThreadStreamCounts) {
        self.merge(&StreamCounts {
            requests: thread.requests.load(Relaxed),
            connections: thread.connections.load(Relaxed),
            floods: thread.floods.load(Relaxed),
            malformed: thread.malformed.load(Relaxed),
        });
    }

    fn merge(&mut self, other: &StreamCounts) {
        self.requests += other.requests;
        self.connections += other.connections;
        self.floods += other.floods;
        self.malformed += other.malformed;
    }

    fn to_json(self) -> String {
        let StreamCounts { connections, floods, malformed, .. } = self;
        format!("{{\"connections\":{connections},\"floods\":{floods},\"malformed\":{malformed}}}")
    }
}

/// Adds optional TCP counters.
fn add_tcp(sum: &mut Option<TcpTotals>, other: Option<&TcpTotals>) {
    if let Some(other) = other {
        sum.get_or_insert_default().merge(other);
    }
}

/// The same for handshakes.
fn add_tls(sum: &mut Option<HandshakeCounts>, other: Option<&HandshakeCounts>) {
    if let Some(other) = other {
        sum.get_or_insert_default().merge(other);
    }
}

impl Counts {
    pub(crate) fn add(&mut self, thread: &ThreadCounts) {
        self.requests += thread.requests.load(Relaxed);
        let closed = thread.closed.load(Relaxed);
        let accepted = thread.accepted.load(Relaxed);
        self.accepted += accepted;
        self.open += accepted.saturating_sub(closed);
        self.refused += thread.refused.load(Relaxed);
        self.waiting += thread.parked.load(Relaxed);
        self.streaming += thread.streaming.load(Relaxed);
        self.panics += thread.panics.load(Relaxed);
        self.blocked += thread.blocked.load(Relaxed);
        self.http2.add(&thread.http2);
        self.http3.add(&thread.http3);
        self.bytes_in += thread.bytes_in.load(Relaxed);
        self.bytes_out += thread.bytes_out.load(Relaxed);
        add_tcp(&mut self.tcp, thread.tcp.lock().unwrap_or_else(PoisonError::into_inner).as_ref());
        let tls = thread.tls.get().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner));
        add_tls(&mut self.tls, tls.as_deref());
        for (i, counter) in thread.by_status.iter().enumerate() {
            let n = counter.load(Relaxed);
            if n > 0 {
                *self.by_status.entry(FIRST + i as u16).or_default() += n;
            }
        }
    }

    /// Adds another server's counts.
    pub fn merge(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.accepted += other.accepted;
        self.open += other.open;
        self.refused += other.refused;
        self.waiting += other.waiting;
        self.streaming += other.streaming;
        self.panics += other.panics;
        self.blocked += other.blocked;
        self.http2.merge(&other.http2);
        self.http3.merge(&other.http3);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        add_tcp(&mut self.tcp, other.tcp.as_ref());
        add_tls(&mut self.tls, other.tls.as_ref());
        for (status, n) in &other.by_status {
            *self.by_status.entry(*status).or_default() += n;
        }
    }

    /// Requests by HTTP/1.1 and older.
    pub(super) fn by_http1(&self) -> u64 {
        self.requests.saturating_sub(self.http2.requests + self.http3.requests)
    }

    /// The JSON of `/stats`.
    pub fn to_json(&self) -> String {
        let statuses: Vec<String> = self.by_status.iter().map(|(s, n)| format!("\"{s}\":{n}")).collect();
        let tcp = self.tcp.as_ref().map(|tcp| {
            let all: Vec<String> =
                tcp.counters().iter().chain(&tcp.now()).map(|(name, n)| format!("\"{name}\":{n}")).collect();
            format!(",\"tcp\":{{{}}}", all.join(","))
        });
        let tls = self.tls.as_ref().map(tls_json);
        format!(
            "{{\"requests\":{},\"by_status\":{{{}}},\"connections\":{{\"accepted\":{},\"open\":{},\"refused\":{}}},\
             \"by_protocol\":{{\"HTTP/1.1\":{},\"HTTP/2.0\":{},\"HTTP/3.0\":{}}},\"http2\":{},\"http3\":{},\
             \"waiting\":{},\"streaming\":{},\"panics\":{},\"blocked\":{},\"bytes\":{{\"received\":{},\"sent\":{}}}{}{}}}\n",
            self.requests,
            statuses.join(","),
            self.accepted,
            self.open,
            self.refused,
            self.by_http1(),
            self.http2.requests,
            self.http3.requests,
            self.http2.to_json(),
            self.http3.to_json(),
            self.waiting,
            self.streaming,
            self.panics,
            self.blocked,
            self.bytes_in,
            self.bytes_out,
            tcp.unwrap_or_default(),
            tls.unwrap_or_default()
        )
    }
}

fn tls_json(tls: &HandshakeCounts) -> String {
    let failed = tls.failed.iter().map(|(why, n)| format!("{}:{n}", quoted(why)));
    let failed = failed.collect::<Vec<_>>().join(",");
    format!(",\"tls\":{{\"full\":{},\"resumed\":{},\"failed\":{{{failed}}}}}", tls.full, tls.resumed)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = vec![b'"'];
    escaped(&mut out, text.as_bytes());
    out.push(b'"');
    String::from_utf8_lossy(&out).into_owned()
}
