//! Probes: what to do, with which lever, and what was observed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_net::instrument::{Facts, Levers};
use linerate_tls::Variant;

use crate::call::Call;
use crate::limits;
use crate::upstream::UpstreamSeen;

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Experiment {
    /// Calls as an ordinary client makes them, on new and on kept connections.
    Observe,
    /// Acknowledging at once (arm 1) against as usual (arm 0).
    QuickAck,
    /// The longest delay of an acknowledgement, by arms of [`DOSES_MS`].
    Dose,
    /// TCP_NODELAY (1) against Nagle's algorithm (0), with a request in two writes.
    NoDelay,
    /// A request in two writes under Nagle's algorithm (1) against one write (0).
    Apart,
    /// Without `Expect` (1) against with it (0).
    Expect,
    /// With `Accept-Encoding: gzip` (1) against identity (0).
    Coding,
    /// The places a redirect leads to, in order.
    Redirect,
    /// Several calls at once.
    Burst,
    /// After a pause (1) against right away (0).
    Idle,
    /// With smaller segments.
    Segment,
    /// More calls on kept connections, for what is rare.
    Tail,
    /// A call on a new connection while idle ones of ours are held beside it.
    Held,
    /// Several calls on each of several connections.
    PerConnection,
    /// At the server behind the proxy (1) against through it (0).
    Origin,
    /// From source ports that were not used lately (1) against those that the system takes (0).
    SourcePort,
    /// After a pause (1) against right after the call before (0): whether it is our own pace that
    /// calls wait for.
    Paced,
    /// In segments that the response fills (1, 2) against usual ones (0).
    Cork,
    /// On a new connection after a pause: whether the server is cold again.
    Rested,
    /// New connections that resume a TLS session (1) against full handshakes (0).
    Resume,
    /// Full TLS handshakes with a key share of the group that the server wants (1) against the
    /// usual one (0).
    Group,
    /// Full TLS handshakes that offer all versions (1) against those that were asked for (0).
    Version,
    /// HTTP/2's windows as they are (0), without an end (1), twice and four times as large (2, 3).
    Window,
    /// Calls at once on one connection of HTTP/2 (0) against several (1), beyond the server's limit
    /// of streams.
    Streams,
    /// The same where segments get lost.
    HeadOfLine,
    /// At times drawn beforehand.
    Scattered,
    /// In a row on one connection: whether each n-th is slow.
    Turns,
    /// At moments at which a server that stops at regular intervals lets calls through (1), and at
    /// those when it has just stopped (0).
    Timed,
    /// Calls alone and two at once, for how much of their responses comes in a time.
    Rate,
    /// A part of the resource (`Range`).
    Part,
    /// What compression would make of the response.
    Packed,
    /// Calls just before the server behind the proxy closes an idle connection.
    IdleOrder,
    /// Calls while the connections of the server's process to servers behind it are watched.
    Behind,
    /// Calls on connections that were idle for long.
    IdleSpans,
}

impl Experiment {
    /// A description for people.
    pub fn words(self) -> &'static str {
        match self {
            Experiment::Observe => "calls as an ordinary client makes them",
            Experiment::QuickAck => "calls that acknowledge at once",
            Experiment::Dose => "calls that acknowledge after several delays",
            Experiment::NoDelay => "calls without Nagle's algorithm",
            Experiment::Apart => "calls in two writes",
            Experiment::Expect => "calls without Expect",
            Experiment::Coding => "calls with and without compression",
            Experiment::Redirect => "calls to where the redirect leads",
            Experiment::Burst => "several calls at once",
            Experiment::Idle => "calls after a pause",
            Experiment::Segment => "calls in smaller segments",
            Experiment::Tail => "more calls, for what is rare",
            Experiment::Held => "calls beside idle connections",
            Experiment::PerConnection => "several calls on each of several connections",
            Experiment::Origin => "calls to the server behind the proxy",
            Experiment::SourcePort => "calls from ports that were not used lately",
            Experiment::Paced => "calls at a slower pace",
            Experiment::Cork => "calls in segments that the response fills",
            Experiment::Rested => "calls after a rest",
            Experiment::Resume => "new connections that resume a TLS session",
            Experiment::Group => "TLS handshakes with the key share that the server wants",
            Experiment::Version => "TLS handshakes that offer TLS 1.3",
            Experiment::Window => "calls with larger HTTP/2 windows",
            Experiment::Streams => "calls at once on one and on several connections",
            Experiment::HeadOfLine => "calls at once on one and on several connections, as segments get lost",
            Experiment::Scattered => "calls at random times",
            Experiment::Timed => "calls at moments at which the server stops, and at others",
            Experiment::Turns => "a row of calls on one connection",
            Experiment::Rate => "calls alone and two at once, for their rate",
            Experiment::Part => "a part of the answer",
            Experiment::Packed => "the answer compressed",
            Experiment::IdleOrder => "calls as the server behind closes idle connections",
            Experiment::Behind => "calls while the server's own connections are watched",
            Experiment::IdleSpans => "calls on connections that were idle for long",
        }
    }

    /// The first kept connection of an experiment. Each has its own, so that no arm inherits what
    /// another did to a connection.
    pub(crate) fn first_lane(self) -> u8 {
        match self {
            Experiment::Observe
            | Experiment::Tail
            | Experiment::Held
            | Experiment::SourcePort
            | Experiment::Cork
            | Experiment::Rested
            | Experiment::Resume
            | Experiment::Group
            | Experiment::Version
            | Experiment::Streams
            | Experiment::HeadOfLine
            | Experiment::Scattered
            | Experiment::Timed
            | Experiment::Rate
            | Experiment::Part
            | Experiment::Packed
            | Experiment::Behind
            | Experiment::IdleSpans => 0,
            Experiment::Window => 200,
            Experiment::Turns => 220,
            Experiment::QuickAck => 10,
            Experiment::Dose => 160,
            Experiment::NoDelay => 30,
            Experiment::Apart => 40,
            Experiment::Expect => 60,
            Experiment::Coding => 70,
            Experiment::Redirect => 80,
            Experiment::Burst => 90,
            Experiment::Idle => 100,
            Experiment::Segment => 110,
            Experiment::PerConnection => 120,
            Experiment::Origin => 140,
            Experiment::Paced => 150,
            Experiment::IdleOrder => 230,
        }
    }
}

/// Delays of acknowledgements that are tried, milliseconds.
pub const DOSES_MS: [u64; 4] = [8, 16, 24, 32];

/// Which connection a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// One of its own.
    Fresh,
    /// That one; it is opened when there is none.
    Kept(u8),
}

/// How a request with a body is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Head and body in one write.
    #[default]
    One,
    /// Head and body in a write each.
    Apart,
}

/// A difference from the user's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Variation {
    /// Nothing.
    #[default]
    None,
    /// `Expect` is left out.
    WithoutExpect,
    /// `Accept-Encoding: gzip`.
    Gzip,
    /// `Accept-Encoding: identity`.
    Identity,
    /// The first so many bytes of it (RFC 9110, section 14.2).
    Range(u64),
    /// Another target on the same server.
    Target(String),
    /// At the server behind the proxy.
    Origin,
}

/// A call to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct CallProbe {
    /// Its purpose.
    pub experiment: Experiment,
    /// Which arm of it.
    pub arm: u8,
    /// On which connection.
    pub lane: Lane,
    /// Levers of a connection that is opened for it.
    pub levers: Levers,
    /// How TLS is spoken on a connection that is opened for it.
    pub tls: Variant,
    /// The HTTP/2 windows that a connection that is opened for it announces; `None`: the usual ones.
    pub window: Option<u32>,
    /// How it is written.
    pub writes: Writes,
    /// How it differs from the user's request.
    pub variation: Variation,
    /// A pause before it.
    pub pause: Duration,
    /// The connection is closed after it.
    pub closes: bool,
    /// How long it may take.
    pub patience: Duration,
}

impl CallProbe {
    /// A call as an ordinary client makes it.
    pub fn plain(experiment: Experiment, arm: u8, lane: Lane) -> CallProbe {
        CallProbe {
            experiment,
            arm,
            lane,
            levers: Levers::default(),
            tls: Variant::Usual,
            window: None,
            writes: Writes::One,
            variation: Variation::None,
            pause: Duration::ZERO,
            closes: false,
            patience: limits::CALL_TIME,
        }
    }

    /// Nothing is changed about it: it is a call as an ordinary client makes it, whatever it is
    /// for.
    pub fn is_plain(&self) -> bool {
        let apart = self.experiment == Experiment::Apart && self.arm == 1;
        self.levers == Levers::default()
            && self.tls == Variant::Usual
            && self.window.is_none()
            && self.variation == Variation::None
            && self.pause.is_zero()
            && self.experiment != Experiment::Redirect
            && !apart
    }
}

/// Calls at once over HTTP/2, spread evenly over connections that are opened for them, each by a call
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// Its purpose.
    pub experiment: Experiment,
    /// Which arm of it.
    pub arm: u8,
    /// Calls at once.
    pub calls: u8,
    /// Connections.
    pub connections: u8,
    /// How often, one after the other.
    pub rounds: u8,
}

/// Calls while the connections of the server's process to servers behind it are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindProbe {
    /// Calls at once: one on a connection that is kept, unless it is to be fresh; several each on a new one.
    pub calls: u8,
    /// A single call gets a new connection.
    pub fresh: bool,
    /// So long after the calls began, another target of the server is called, too.
    pub beside: Option<Duration>,
    /// Time that is needed for it; without any call it is watched for so long.
    pub time: Duration,
}

/// A connection that is left idle, so often for so long, with a call before and after each pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleSpan {
    /// Without a call.
    pub pause: Duration,
    /// How often.
    pub times: u8,
}

/// The next thing to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// Look the name up.
    Resolve,
    /// Ask each name server directly.
    NameServers,
    /// Connect to the address of that number and close.
    Connect(usize),
    /// Make a call.
    Call(Box<CallProbe>),
    /// Make this many calls at once, each on a connection of its own.
    Burst(u8),
    /// Make this many calls at once on new connections, and cut each after that time.
    Rate(u8, Duration),
    /// Several connections side by side, on each its calls one right after the other.
    SideBySide(Vec<Vec<CallProbe>>),
    /// Make a call on a new connection while this many idle ones, and no others, are held beside it;
    /// they are closed when it has taken this long.
    Held(u8, Duration),
    /// Make several calls at once on connections of HTTP/2.
    Together(Together),
    /// Make a call at each of these times since the first, on another connection where the last call
    /// is still under way.
    Scattered(Vec<Duration>),
    /// Make a call at the server behind the proxy, and wait for so long at most until it closes.
    IdleLimit(Duration),
    /// Make calls while the connections of the server's process are watched.
    Behind(BehindProbe),
    /// Leave connections idle side by side, each in its own way.
    IdleSpans(Vec<IdleSpan>),
}

/// Probes that are made one right after the other. An experiment's blocks are made in random order.
pub(crate) type Block = Vec<Probe>;

impl Probe {
    /// Calls it costs.
    pub fn calls(&self) -> usize {
        match self {
            Probe::Call(_) | Probe::Held(..) => 1,
            Probe::Burst(n) | Probe::Rate(n, _) => usize::from(*n),
            Probe::SideBySide(lanes) => lanes.iter().map(Vec::len).sum(),
            Probe::Together(t) => usize::from(t.calls) * usize::from(t.rounds) + usize::from(t.connections),
            Probe::Scattered(times) => times.len(),
            Probe::IdleLimit(_) => 1,
            Probe::IdleSpans(spans) => spans.iter().map(|span| 1 + usize::from(span.times)).sum(),
            Probe::Behind(b) => usize::from(b.calls) + usize::from(b.beside.is_some()),
            _ => 0,
        }
    }
}

/// A lookup of the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Time it took.
    pub took: Duration,
    /// The addresses found, in the order the system prefers.
    pub addresses: Vec<SocketAddr>,
    /// Why it gave nothing; with addresses: why we did not wait for its end.
    pub error: Option<String>,
}

/// The result of one name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServer {
    /// Its address.
    pub address: IpAddr,
    /// Time until it answered for IPv4 addresses; `None`: it did not.
    pub v4: Option<Duration>,
    /// The same for IPv6 addresses.
    pub v6: Option<Duration>,
    /// Names that a resolver asks for before this one, each with the time until both replies; `None`: one
    /// of them did not come.
    pub asked: Vec<(String, Option<Duration>)>,
}

/// A connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// To where.
    pub address: SocketAddr,
    /// Time until it was established, or failed.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<String>,
    /// The kernel's counters then.
    pub facts: Facts,
}

/// A call made while idle connections were held beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldCall {
    /// How many there were.
    pub idle: u8,
    /// When they were closed, since the call's start; `None`: the call had ended before.
    pub released: Option<Duration>,
    /// The call.
    pub call: Call,
}

/// How long the server behind the proxy keeps an idle connection.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginIdleLimit {
    /// The call before.
    pub call: Call,
    /// When it closed, since the response; `None`: not while it was watched.
    pub closed: Option<Duration>,
    /// How long that was.
    pub watched: Duration,
}

/// A connection that was left idle.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleTrial {
    /// How.
    pub span: IdleSpan,
    /// The call that opened it, and one after each pause; those behind one that failed are on other
    /// connections.
    pub calls: Vec<Call>,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// Of [`Probe::Resolve`].
    Resolved(Resolved),
    /// Of [`Probe::NameServers`].
    NameServers(Vec<NameServer>),
    /// Of [`Probe::Connect`].
    Connected(Connected),
    /// Of [`Probe::Call`].
    Call(Box<Call>),
    /// Of [`Probe::Burst`], in the order they ended.
    Burst(Vec<Call>),
    /// Of [`Probe::Rate`].
    Rate(Vec<Call>),
    /// Of [`Probe::SideBySide`], in its order.
    SideBySide(Vec<Vec<Call>>),
    /// Of [`Probe::Held`].
    Held(Box<HeldCall>),
    /// Of [`Probe::Together`], round by round.
    Together(Vec<Vec<Call>>),
    /// Of [`Probe::Scattered`], in the order in which they began.
    Scattered(Vec<Call>),
    /// Of [`Probe::IdleLimit`].
    IdleLimit(Box<OriginIdleLimit>),
    /// Of [`Probe::Behind`]; `None`: the process's sockets cannot be seen.
    Behind(Option<Box<UpstreamSeen>>),
    /// Of [`Probe::IdleSpans`], in its order.
    IdleSpans(Vec<IdleTrial>),
}
