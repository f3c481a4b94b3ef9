//! Every limit of this crate, with its reason.

use std::time::Duration;

/// How often a TCP in user space is asked for its counts. Reason: `/stats` may be so old; asking costs a few microseconds.
pub(crate) const TOTALS: Duration = Duration::from_millis(100);

/// Connections that `/stats/flows` shows when it is not told how many, and at most. Reason: a page people can read; and an answer
/// of 330 kB that is written within 400 us, whoever asks.
pub(crate) const FLOWS_SHOWN: usize = 100;
pub(crate) const FLOWS_MOST: usize = 1000;

/// Places of the table of connections that one turn looks at for it. Reason: they are not in the cache; so many take 10 to 50 us,
/// and then requests have their turn.
pub(crate) const FLOW_PLACES: usize = 512;

/// Askers of it that may wait on one thread; those beyond are told to come later. Reason: each may have a whole page in memory.
pub(crate) const FLOW_ASKERS: usize = 16;

/// How long a thread may take for its part of it. Reason: a handler that holds its loop must not hold an asker for ever.
pub(crate) const FLOWS_PATIENCE: Duration = Duration::from_secs(5);

/// What a server grants each connection, and all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What a request may weigh.
    pub request: linerate_http::server::Limits,
    /// Connections open at once on one thread; those beyond are closed at once. Reason: descriptors and memory are finite,
    /// and whoever is connected already should be served well.
    pub connections: usize,
    /// From the first byte of a head (or from the accept) to its last; then 408. Reason: slow heads (slowloris) hold a
    /// connection for nothing.
    pub header_time: Duration,
    /// Between an answer and the next request; and how long a handler that sends nothing is waited for once its client has said that
    /// it sends no more. Reason: idle connections are cheap, not free; and such a client may be gone.
    pub idle_time: Duration,
    /// What a body may take beside the time that `least_rate` grants it; then 408. Reason: as for heads.
    pub body_time: Duration,
    /// How long an answer may wait for a peer that takes nothing; then the connection is reset. Reason: a slow reader
    /// holds an answer in memory.
    pub write_time: Duration,
    /// Bytes per second that a body must come at, and an answer be taken at, once the times above are used up. Reason: one
    /// byte every few seconds is an attack, not a modem.
    pub least_rate: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request: linerate_http::server::Limits::default(),
            connections: 200_000,
            header_time: Duration::from_secs(15),
            idle_time: Duration::from_secs(75),
            body_time: Duration::from_secs(20),
            write_time: Duration::from_secs(20),
            least_rate: 500,
        }
    }
}

/// Requests of one connection whose answers are not written yet; beyond it, nothing more is read from it. Reason: a peer that
/// pipelines without end must not fill our memory with waiting handlers.
pub(crate) const PIPELINED: usize = 64;

/// Bytes of answers that one connection may have on their way; beyond it, its next requests wait. Reason: small requests can
/// ask for large answers faster than any wire takes them.
pub(crate) const UNSENT: usize = 256 << 10;

/// Bytes of answers that all connections of a thread together may have on their way; while they do, each is granted
/// `UNSENT_SCARCE` in place of `UNSENT`. Reason: ten thousand that read nothing must not have 4 GB of our memory; so much keeps
/// 250 slow readers as fast as their wires are.
pub(crate) const UNSENT_TOGETHER: usize = 64 << 20;

/// Bytes of unsent responses that a thread must have had at once before freed memory goes back to the system. Reason: below it, keeping
/// the memory for the next ones is cheaper.
pub(crate) const TRIM_WORTH: usize = 4 << 20;

/// How long a thread must have held less than half of its peak before that. Reason: clients leave over some time, and a busy server
/// whose responses come and go would give back what it takes again at once.
pub(crate) const TRIM_CALM: Duration = Duration::from_secs(1);

/// How far apart a thread gives memory back. Reason: each time holds the locks of the heap for milliseconds.
pub(crate) const TRIM_EVERY: Duration = Duration::from_secs(5);

/// What a connection may have on its way while these are used up. Reason: a system call's worth; the kernel's buffers still keep a
/// wire busy.
pub(crate) const UNSENT_SCARCE: usize = 16 << 10;

/// Bytes that a connection may still have on their way when it is closed. Reason: nobody counts them from then on; one that
/// is closed behind each answer would have as many as it likes.
pub(crate) const UNSENT_CLOSED: usize = 32 << 10;

/// Bytes of a request body that wait for its handler; beyond it, nothing more is read from the connection. Reason:
/// back-pressure has to begin somewhere; this fills a long fast wire.
pub(crate) const BODY_BUFFERED: usize = 128 << 10;

/// Bytes of a body that a handler did not want which are read and thrown away to keep the connection; with more to come it
/// is closed instead. Reason: reading on is cheaper than a new connection, up to about here.
pub(crate) const BODY_DISCARDED: u64 = 256 << 10;

/// Bodies up to this size are copied beside their head and leave in the same send; larger ones are sent from where they
/// are, all but their beginning. Reason: a copy costs less than a second send up to about here (32 kB: 5 us of 13).
pub(crate) const BODY_COPIED: usize = 64 << 10;

/// The same where a second piece costs no second send; and what of a larger body leaves with the head. Reason: a piece more costs
/// about what copying this does.
pub(crate) const BODY_COPIED_GATHERING: usize = 16 << 10;

/// Bytes of a large answer handed to the transport in one go. Reason: other connections have their turn; the socket rarely
/// takes more at once.
pub(crate) const BODY_SLICE: usize = 128 << 10;

/// Handlers that were woken and go on in one turn; the others in the next. Reason: their answers leave, and what comes meanwhile is
/// read, before the last of a thousand that slept equally long has gone on: else they keep falling due together.
pub(crate) const WOKEN_PER_TURN: usize = 64;

/// Work areas (input buffer, queue of answers) kept for reuse by a thread. Reason: an idle connection has none; this many
/// cover the connections that are busy at the same moment.
pub(crate) const WORK_KEPT: usize = 1024;

/// Capacity beyond which an output buffer or an input buffer is given back instead of kept. Reason: one large exchange must
/// not be remembered for ever.
pub(crate) const BUFFER_KEPT: usize = 256 << 10;

/// How long a stopped server waits for answers that are on their way. Reason: a deploy must end.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(10);

/// How long beyond `drain` a server's threads may take to end, before they are left behind. Reason: they see to it themselves, unless a
/// handler holds one; a busy machine may be late by as much.
pub(crate) const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Bytes of the first line of something that is no request, in the access log. Reason: enough to see what came; it is not believed.
pub(crate) const LOGGED_LINE: usize = 2 << 10;

/// Finished coroutines' boxes that a thread keeps for the next ones. Reason: a handler that does not wait must cost no
/// allocation; more than this many rarely wait and end in one turn.
pub(crate) const TASKS_KEPT: usize = 4096;

/// Turns in which a stopped server accepts who waits already, before it lets nobody new begin. Reason: a crowd that goes on coming
/// must not keep it.
pub(crate) const LAST_ACCEPTS: usize = 64;

/// Bytes written on a connection that was handed over and not sent yet; beyond it, its writer waits. Reason: back-pressure, as for
/// bodies.
pub(crate) const TUNNEL_BUFFERED: usize = 64 << 10;

/// How long the server waits with its Close frame for WebSockets whose handlers may close by themselves. Reason: they know of the drain
/// as soon as the server does; what they say last should come first.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// How long an idle connection is spared when descriptors are used up and others wait to be accepted. Reason: one that is about to
/// ask again would cost a connection more.
pub(crate) const SPARED_IDLE: Duration = Duration::from_secs(1);

/// Places in which a thread polls a tower service's answers, and as many for their bodies, that it keeps for the next. Reason: as for
/// coroutines; an answer that is there already leaves its place at once, so that a few do.
pub(crate) const TOWER_PLACES_KEPT: usize = 64;

/// Bytes of the buffer in which a thread keeps room for the next answer's fields. Reason: an allocation less for each answer; those
/// with more are rare, and one of them must not be remembered for ever.
pub(crate) const FIELDS_KEPT: usize = 4 << 10;

/// Answers to so many requests of one read wait for those to the other connections of the turn. Reason: a send wakes a client that
/// sleeps, which costs as much as answering several requests; of sends one behind the other only the first does. Whoever sends
/// a request at a time is not kept waiting for others.
pub(crate) const HELD_REQUESTS: u32 = 4;

/// Bytes of one connection that are held like this. Reason: beyond it moving them costs more than waking.
pub(crate) const HELD_EACH: usize = 8 << 10;

/// Empty buffers of that size that a thread keeps for the next turn. Reason: growing them anew costs what holding saves.
pub(crate) const HELD_KEPT: usize = 64;

/// Bytes held like this before they leave. Reason: they stay in the cache, and nobody waits long.
pub(crate) const HELD_BYTES: usize = 128 << 10;

/// How often, and how far apart, a lock is tried that lives while a Unix socket is bound. Reason: binding takes microseconds; what holds
/// the folder for longer is no server that begins.
pub(crate) const BINDING_TRIES: usize = 50;
pub(crate) const BINDING_WAIT: Duration = Duration::from_millis(10);

/// Names of routes that metrics tell apart. Reason: each is some 300 bytes of every thread once it is used, and some twenty time series.
pub(crate) const ROUTE_NAMES: usize = 1024;

/// Bytes of a file that the transport is handed at a time where it sends files by itself. Reason: nothing of it takes memory, and
/// a call costs little beside so much; other connections have their turn.
pub(crate) const FILE_SLICE: usize = 1 << 20;

/// Bytes of a file that are brought into memory at a time where they are not. Reason: each time costs two changes of thread.
pub(crate) const FILE_AHEAD: u64 = 1 << 20;

/// How long a file waits before the pool is asked again that had too much to do. Reason: a download under way can wait, a new request
/// is refused.
pub(crate) const POOL_BUSY: Duration = Duration::from_millis(5);

/// Sockets of the kernel that are looked through for those of a server. Reason: the kernel lists so many in some ten milliseconds.
pub(crate) const SOCKETS_LISTED: usize = 20_000;
