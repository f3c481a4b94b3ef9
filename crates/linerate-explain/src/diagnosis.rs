//! A diagnosis: causes, causes ruled out, and limits.

use crate::call::{Call, Streamed, ms};
use crate::handshake::Handshake;
use crate::limits;
use crate::record::{Record, median_of};
use crate::rule::Cause;
use crate::shown::ShownMaterial;
pub use crate::signs::first::FirstCall;
use crate::signs::tls;
use crate::times::CallTimes;
use crate::verdict::Verdict;

/// A cause that it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// The cause.
    pub cause: &'static Cause,
    /// The reason, in words.
    pub why: String,
}

/// The whole of it in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// Nothing is wrong.
    Healthy,
    /// At least one cause was found.
    Caused,
    /// Something is wrong, and what could not be told.
    Inconclusive,
}

impl Whole {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Whole::Healthy => "healthy",
            Whole::Caused => "caused",
            Whole::Inconclusive => "inconclusive",
        }
    }
}

/// TLS with the server, over all calls with nothing changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSeen {
    /// The server's certificate was not checked.
    pub insecure: bool,
    /// Parameters negotiated by the first handshake; `None` where no handshake ended.
    pub seen: Option<linerate_tls::ServerHandshake>,
    /// Full handshakes.
    pub full: usize,
    /// Handshakes that resumed a session.
    pub resumed: usize,
    /// The server gave something to resume a session by.
    pub gives: bool,
    /// What TCP takes to connect, in the middle, milliseconds.
    pub connect_ms: f64,
    /// Time of a full handshake, in the middle.
    pub full_ms: Option<f64>,
    /// And one that resumes a session.
    pub resumed_ms: Option<f64>,
}

/// Time of handshakes of a kind, milliseconds.
fn middle(handshakes: &[&Handshake], resumed: bool) -> Option<f64> {
    let mut all = handshakes.to_vec();
    all.retain(|h| h.is_resumed() == resumed);
    (!all.is_empty()).then(|| tls::middle(&all, |h| h.took))
}

impl TlsSeen {
    pub(crate) fn of(record: &Record) -> Option<TlsSeen> {
        let settings = record.settings.tls?;
        let usual = tls::usual(record);
        let resumed = usual.iter().filter(|h| h.is_resumed()).count();
        Some(TlsSeen {
            insecure: settings.insecure,
            seen: usual.first().and_then(|h| h.seen.clone()),
            full: usual.len() - resumed,
            resumed,
            gives: tls::gives(record),
            connect_ms: median_of(&record.observed().filter(|c| c.tls.is_some()).collect::<Vec<_>>(), |c| {
                c.connect
            }),
            full_ms: middle(&usual, false),
            resumed_ms: middle(&usual, true),
        })
    }
}

/// The machine that calls, while it did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Share of our calls' time in which we were ready to run and waited for a processor.
    pub waited_share: f64,
    /// Share of the time in which something on the machine waited for a processor
    /// (/proc/pressure/cpu, `some`).
    pub pressure: Option<f64>,
    /// Load of the last minute for each processor.
    pub load: Option<f64>,
    /// Share of the processors' time that another machine of the same host took (steal).
    pub steal: Option<f64>,
}

/// Share of our calls' time that they waited for a processor from which on a machine is busy.
const BUSY_SHARE: f64 = 0.1;
/// Milliseconds of a call that it waited for one on a busy machine.
const BUSY_MS: f64 = 1.0;

impl Diagnosis {
    /// Programs competed for this machine's processors meanwhile.
    pub fn is_busy(&self) -> bool {
        let waited = self.machine.waited_share;
        let ours = waited >= BUSY_SHARE && waited * ms(self.call.total) >= BUSY_MS;
        ours || self.machine.pressure.is_some_and(|share| share >= limits::CONTENDED)
    }
}

/// What `explain` found.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// In a word.
    pub whole: Whole,
    /// The URL, as it is reported.
    pub url: String,
    /// The request's method.
    pub method: String,
    /// The command that makes this diagnosis again, without secrets.
    pub command: String,
    /// Where it went.
    pub address: String,
    /// Time of the name's lookup, milliseconds; 0 for an address.
    pub dns_ms: f64,
    /// The call that stands for all: the one in the middle of those that were observed.
    pub call: Call,
    /// The times of all calls with nothing changed.
    pub times: CallTimes,
    /// The first call beside later ones, where there were several.
    pub first: Option<FirstCall>,
    /// Round-trip time of the network, milliseconds.
    pub rtt_ms: f64,
    /// Causes, the most expensive first.
    pub causes: Vec<Verdict>,
    /// Causes that were ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Tests that could not be made, and their requirements; and other doubts.
    pub limits: Vec<String>,
    /// Calls made.
    pub calls: usize,
    /// Seconds it took.
    pub took_s: f64,
    /// How many calls the server serves at once, where several at once showed it.
    pub served_at_once: Option<usize>,
    /// TLS with the server; `None`: plain HTTP.
    pub tls: Option<TlsSeen>,
    /// HTTP/2 with the server; `None`: HTTP/1.1.
    pub streamed: Option<Streamed>,
    /// The machine that calls.
    pub machine: Machine,
    /// Material to show beside the verdict: calls, packets, the server's process.
    pub shown: ShownMaterial,
}
