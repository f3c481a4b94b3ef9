//! Every limit of this crate, with its reason.

use std::time::Duration;

/// How often the counters of a user-space TCP are read. Reason: `/stats` may be this old; reading
/// costs a few microseconds.
pub(crate) const TOTALS: Duration = Duration::from_millis(100);

/// Bytes of one connection that one turn may hand over before others get their turn, and how often
/// one turn continues with it. Reason: others wait meanwhile.
pub(crate) const TURN_BYTES: usize = 1 << 20;
pub(crate) const TURN_ROUNDS: usize = 8;

/// Bytes of `TURN_BYTES` that a piece of a handler's stream counts as at least. Reason: a piece takes
/// its time however short it is; 300 clients of short lines made others wait for seconds.
pub(crate) const PIECE_COUNTS_AS: usize = 1 << 10;

/// Connections that `/stats/flows` shows by default, and at most. Reason: a page people can read;
/// and a response of 330 kB that is written within 400 us.
pub(crate) const FLOWS_SHOWN: usize = 100;
pub(crate) const FLOWS_MOST: usize = 1000;

/// Places of the connection table that one turn scans for it. Reason: they are not in the cache.
/// This many take 10 to 50 us before requests continue.
pub(crate) const FLOW_PLACES: usize = 512;

/// Requests for it that may wait on one thread; others are refused. Reason: each may have a whole
/// page in memory.
pub(crate) const FLOW_ASKERS: usize = 16;

/// Timeout of a thread's part of it. Reason: a handler that holds its loop must not hold the
/// requester forever.
pub(crate) const FLOWS_PATIENCE: Duration = Duration::from_secs(5);

/// Limits of each connection, and of all of them together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limits of a request.
    pub request: linerate_http::server::RequestLimits,
    /// Concurrent connections on one thread; more are closed at once. Reason: descriptors and
    /// memory are finite, and existing connections should be served well.
    pub connections: usize,
    /// Timeout from the first byte of a head (or from the accept) to its last; then 408. Reason:
    /// slow heads (slowloris) occupy connections.
    pub header_time: Duration,
    /// Timeout between a response and the next request. Reason: idle connections are cheap, not
    /// free.
    pub idle_time: Duration,
    /// A client that has sent its FIN waits for its responses: a silent handler has `idle_time`.
    /// Otherwise one that has not responded a second later is cancelled. Reason: nearly always such
    /// a client is gone, and what its handler does would be in vain.
    pub half_close: bool,
    /// Time that a body may take in addition to what `least_rate` grants; then 408. Reason: as for
    /// heads.
    pub body_time: Duration,
    /// How long a response may wait for a client that reads nothing; then the connection is reset.
    /// Reason: a slow reader keeps a response in memory.
    pub write_time: Duration,
    /// Minimum rate, bytes per second, of a body received and of a response read, once the times
    /// above are used up. Reason: one byte every few seconds is an attack, not a modem.
    pub least_rate: u64,
}

impl Limits {
    /// How long a handler that has not responded goes on once its client has sent its FIN, if not as
    /// long as `idle_time`.
    pub(crate) fn after_fin(&self) -> Option<Duration> {
        (!self.half_close).then(|| self.idle_time.min(AFTER_FIN))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request: linerate_http::server::RequestLimits::default(),
            connections: 200_000,
            header_time: Duration::from_secs(15),
            idle_time: Duration::from_secs(75),
            half_close: false,
            body_time: Duration::from_secs(20),
            write_time: Duration::from_secs(20),
            least_rate: 500,
        }
    }
}

/// How long a handler may go on without a response once its client has sent its FIN, unless
/// [`Limits::half_close`] is set. Reason: programs that half-close a connection after a request
/// mostly get their response sooner.
pub(crate) const AFTER_FIN: Duration = Duration::from_secs(1);

/// Requests of one connection without a written response; beyond it, the connection is not read.
/// Reason: a client that pipelines without end must not fill our memory with waiting handlers.
pub(crate) const PIPELINED: usize = 64;

/// A byte of a waiting request's head, or of a body that came whole, counts as so many bytes of a ready response.
/// Reason: 64 heads of 32 KiB would be 2 MiB, and a connection is to cost 64 KiB.
pub(crate) const WAITING_COUNTS_AS: usize = 4;

/// Bytes of the heads of a connection's requests over HTTP/2 while those of all together are used up;
/// beyond it, requests are refused, which clients may send again (RFC 9113 section 8.7). Reason: 4 KiB
/// for each stream.
pub(crate) const H2_HEADS: usize = 512 << 10;

/// Bytes of them that do not count towards what all have together. Reason: heads as they usually are
/// leave nobody less.
pub(crate) const H2_HEADS_FREE: usize = 64 << 10;

/// Unsent response bytes of one connection; beyond it, its next requests wait. Reason: small
/// requests can ask for large responses faster than any wire takes them.
pub(crate) const UNSENT: usize = 256 << 10;

/// Unsent response bytes of all connections of a thread. Beyond it, each connection gets
/// `UNSENT_SCARCE` in place of `UNSENT`. Reason: ten thousand clients that read nothing must not
/// take 4 GB of our memory. This much keeps 250 slow readers at the speed of their wires.
pub(crate) const UNSENT_TOGETHER: usize = 64 << 20;

/// Bytes of unsent responses and unread bodies that a thread must have had at its peak before freed memory is returned to
/// the system. Reason: below it, keeping the memory is cheaper.
pub(crate) const TRIM_WORTH: usize = 4 << 20;

/// How long a thread must have held less than half of its peak before that. Reason: clients leave
/// over some time, and a server under varying load would soon need the memory again.
pub(crate) const TRIM_CALM: Duration = Duration::from_secs(1);

/// Minimum interval between two returns of memory by a thread. Reason: each one holds the heap's
/// locks for milliseconds.
pub(crate) const TRIM_EVERY: Duration = Duration::from_secs(5);

/// Unsent bytes of a connection while those of all together are used up. Reason: one system call's
/// worth; the kernel's buffers still keep a wire busy.
pub(crate) const UNSENT_SCARCE: usize = 16 << 10;

/// Unsent bytes that a connection may have when it is closed. Reason: they are not counted
/// afterwards, so closing after each response would allow any amount.
pub(crate) const UNSENT_CLOSED: usize = 32 << 10;

/// Reads on a connection in one turn. Reason: each brings up to 64 KiB, and only behind it is known
/// whether more has a place.
pub(crate) const READS_PER_TURN: u32 = 1;

/// Bytes of a request body that wait for its handler; beyond it, the connection is not read.
/// Reason: back-pressure has to begin somewhere; this fills a long fast wire.
pub(crate) const BODY_BUFFERED: usize = 128 << 10;

/// Bytes of request bodies that wait for the handlers of all connections of a thread. Beyond it, a body is read only
/// as far as its handler waits for more. Reason: ten thousand clients whose handlers are busy must not take 1 GB.
/// The wide windows of HTTP/2 connections have as much once more.
pub(crate) const UNREAD_TOGETHER: usize = 32 << 20;

/// A request body of this size that came with its head is handed over whole; a larger one is a stream, which counts
/// while it waits. Reason: 128 waiting handlers of an HTTP/2 connection would hold 2 MiB of them, and a stream is to
/// cost 4 KiB.
pub(crate) const BODY_WHOLE: u16 = 4 << 10;

/// Pieces of a waiting request body that are smaller are joined. Reason: each piece costs 64 bytes
/// beside its own, and a client may send one byte at a time.
pub(crate) const BODY_JOINED: usize = 4 << 10;

/// Bytes of an unwanted body that are read and dropped to keep the connection; a longer rest closes
/// it. Reason: up to about here, reading is cheaper than a new connection.
pub(crate) const BODY_DISCARDED: u64 = 256 << 10;

/// Bodies up to this size are copied behind their head and leave in the same send. Larger ones are
/// sent without copying, all but their beginning. Reason: up to about here a copy costs less than a
/// second send (32 kB: 5 us of 13).
pub(crate) const BODY_COPIED: usize = 64 << 10;

/// The same if a second piece needs no second send; also how much of a larger body leaves with the
/// head. Reason: another piece costs about as much as copying this.
pub(crate) const BODY_COPIED_GATHERING: usize = 16 << 10;

/// Bytes of a large response handed to the transport at a time. Reason: other connections get their
/// turn; the socket rarely takes more at once.
pub(crate) const BODY_SLICE: usize = 128 << 10;

/// Woken handlers that continue in one turn; the others wait for the next. Reason: after a thousand
/// equal sleeps, the first responses leave and new requests are read before the last handler
/// continues. Otherwise all would keep falling due together.
pub(crate) const WOKEN_PER_TURN: usize = 64;

/// Spare work areas (input buffer, queue of responses) of a thread. Reason: an idle connection has
/// none; this many cover the connections that are busy at once.
pub(crate) const WORK_KEPT: usize = 1024;

/// Capacity that all of them have together. Reason: busy connections have some 1 KiB each, and an
/// attack must not occupy memory forever.
pub(crate) const SPARE_TOGETHER: usize = 1 << 20;

/// Capacity beyond which the buffer that a thread writes responses to is freed instead of kept.
/// Reason: one large exchange must not occupy memory forever.
pub(crate) const OUTPUT_KEPT: usize = 512 << 10;

/// Capacity of the input buffer that an HTTP/2 connection keeps while all is read, and of its list of
/// streams while there are none. Reason: requests as they usually are fit, and an idle connection
/// must cost little whatever came before.
pub(crate) const H2_KEPT: usize = 4 << 10;

/// How long a stopped server waits for responses in flight. Reason: a deployment must end.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Extra time after `drain` for a server's threads to end before they are abandoned. Reason: they
/// end by themselves unless a handler holds one; a busy machine may be this late.
pub(crate) const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Bytes of the first line of a non-request in the access log. Reason: enough to see what came; its
/// contents are not trusted.
pub(crate) const LOGGED_LINE: usize = 2 << 10;

/// Boxes of finished coroutines that a thread keeps. Reason: a handler that never waits must not
/// allocate; more than this many rarely wait and end in one turn.
pub(crate) const TASKS_KEPT: usize = 4096;

/// Turns in which a stopped server still accepts waiting connections before it closes. Reason: a
/// crowd that keeps coming must not keep it alive.
pub(crate) const LAST_ACCEPTS: usize = 64;

/// Unsent bytes written on a connection that was handed over; beyond it, its writer waits. Reason:
/// back-pressure, as for bodies.
pub(crate) const TUNNEL_BUFFERED: usize = 64 << 10;

/// How long the server delays its Close frame for WebSockets whose handlers may close by
/// themselves. Reason: they learn of the drain when the server does, and their last message should
/// come first.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// How long an idle connection is spared when file descriptors are used up and others wait to be
/// accepted. Reason: one about to send a request would need a new connection.
pub(crate) const SPARED_IDLE: Duration = Duration::from_secs(1);

/// Spare places in which a thread polls a tower service's responses, and as many for their bodies.
/// Reason: as for coroutines. A response that is ready leaves its place at once, so a few suffice.
pub(crate) const TOWER_PLACES_KEPT: usize = 64;

/// Capacity of the buffer that a thread keeps for the next response's fields. Reason: one
/// allocation less for each response; larger ones are rare and must not occupy memory forever.
pub(crate) const FIELDS_KEPT: usize = 4 << 10;

/// From this many requests in one read on, their responses are held until those to the other
/// connections of the turn. Reason: a send wakes a sleeping client, which costs as much as
/// responding to several requests; of consecutive sends only the first does. A client that sends
/// one request at a time never waits for others.
pub(crate) const HELD_REQUESTS: u32 = 4;

/// Bytes of one connection that are held like this. Reason: beyond it, moving them costs more than
/// the wakeup.
pub(crate) const HELD_EACH: usize = 8 << 10;

/// Empty buffers of that size that a thread keeps. Reason: growing new ones costs what holding
/// saves.
pub(crate) const HELD_KEPT: usize = 64;

/// Bytes held like this in total. Reason: they stay in the cache, and no client waits long.
pub(crate) const HELD_BYTES: usize = 128 << 10;

/// How often, and at which interval, to try the lock that exists while a Unix socket is bound.
/// Reason: binding takes microseconds; a longer holder is not a starting server.
pub(crate) const BINDING_TRIES: usize = 50;
pub(crate) const BINDING_WAIT: Duration = Duration::from_millis(10);

/// How long a socket in use may take to close before it counts as a server's. Reason: the kernel
/// needs some hundredths of a second to close what a killed process used with `io_uring`. Less than
/// what a server that starts beside it waits for the lock above.
pub(crate) const SOCKET_ENDS: Duration = Duration::from_millis(250);

/// Names of routes in metrics. Reason: each takes some 300 bytes per thread once it is used, and
/// some twenty time series.
pub(crate) const ROUTE_NAMES: usize = 1024;

/// Bytes of a file handed to a transport with sendfile at a time. Reason: they take no memory, and
/// a call is cheap beside this much; other connections get their turn.
pub(crate) const FILE_SLICE: usize = 1 << 20;

/// Bytes of a file read into memory at a time if they are missing. Reason: each time costs two
/// thread switches.
pub(crate) const FILE_AHEAD: u64 = 1 << 20;

/// How long a file waits before it asks a full pool again. Reason: a running download can wait,
/// while a new request is refused.
pub(crate) const POOL_BUSY: Duration = Duration::from_millis(5);

/// How long a file waits to be opened again when no descriptor is left. Reason: a running download
/// can wait; each try costs a system call.
pub(crate) const FILES_SHORT: Duration = Duration::from_millis(100);

/// Open files of a connection whose responses are being sent. Over HTTP/2 further files are closed
/// until it is their turn; over HTTP/1.1 further requests wait. Reason: few requests must not take
/// all descriptors of the process; a browser asks for six files at once.
pub(crate) const FILES_OPEN: usize = 16;

/// Bytes that a file counts as while its response waits for those before it. Reason: so many fill
/// what a connection may have unsent.
pub(crate) const FILE_COUNTS_AS: usize = UNSENT / FILES_OPEN;

/// Kernel sockets that are searched for those of a server. Reason: the kernel lists this many in
/// about ten milliseconds.
pub(crate) const SOCKETS_LISTED: usize = 20_000;

/// Concurrent streams of one HTTP/2 connection; SETTINGS announce the limit, and more are refused. Reason:
/// each may have a waiting handler. nginx allows as many.
pub(crate) const H2_STREAMS: u32 = 128;

/// Bytes of a request body that a client may send on a stream before they are read, and on all
/// streams of a connection. Reason: they wait in our memory; this much keeps an upload at 25 MB/s
/// over a round trip of 10 ms. The window of a connection is that wide once a handler has read from it, and while not
/// too many are.
pub(crate) const H2_STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const H2_CONNECTION_WINDOW: u32 = 1 << 20;

/// Requests that a client may cancel before they were begun with; more end the connection.
/// CVE-2023-44487 (rapid reset). Reason: a client that wants no response has no reason to ask.
pub(crate) const H2_RESETS_PENDING: u32 = 32;

/// Streams that the client may make us reset, by breaking a rule on each; more end the connection.
/// CVE-2025-8671 (MadeYouReset). Reason: such a stream counts no longer, while its handler may have
/// begun.
pub(crate) const H2_LOCAL_RESETS: u32 = 64;

/// Frames without content that a client may send, how many more each second, and how many more for
/// each response, or piece of one, that it takes. Beyond it the connection ends. These are PING
/// (CVE-2019-9512), SETTINGS (CVE-2019-9515), PRIORITY (CVE-2019-9513), empty DATA (CVE-2019-9518),
/// CONTINUATION (CVE-2024-27316), WINDOW_UPDATE and unknown ones. Reason: each costs a little work;
/// clients need a few for each piece of a response.
pub(crate) const H2_CONTROL_FRAMES: u32 = 2000;
pub(crate) const H2_CONTROL_RATE: u32 = 100;
pub(crate) const H2_CONTROL_EARNED: u32 = 16;

/// How many such frames a RST_STREAM counts for. CVE-2023-44487 (rapid reset). Reason: it cancels a
/// handler that has begun, so a client may cancel 200 requests at once and 10 each second, beside
/// those between which it takes responses.
pub(crate) const H2_RESET_COST: u32 = 10;

/// Bytes of responses that the windows of a connection's streams keep back; beyond it, further
/// requests wait, and no handler's stream is asked for its next piece while its window is shut.
/// CVE-2019-9517. Reason: a client may pause a large download and ask for more meanwhile, but not
/// fill our memory.
pub(crate) const H2_HELD: usize = 4 << 20;

/// Bytes of a response given to a stream at a time, and read from a file. Reason: other streams get
/// their turn.
pub(crate) const H2_PIECE: usize = 64 << 10;

/// How often one turn looks for more to do on a connection. Reason: other connections get their
/// turn.
pub(crate) const H2_ROUNDS: usize = 16;

/// Bytes of the head that a service writes before its WebSocket's frames. Reason: it has some 200.
pub(crate) const H2_TUNNEL_HEAD: usize = 16 << 10;

/// Bytes of a stream of HTTP/3 that are read before a handler has read them, and of all streams of a
/// connection, until a handler has read from one: then as many as over HTTP/2. Reason: as there; what QUIC
/// has received and not given us is beside it.
pub(crate) const H3_STREAM_WINDOW: u32 = 32 << 10;
pub(crate) const H3_CONNECTION_WINDOW: u32 = 128 << 10;

/// Bytes of a response of HTTP/3 that may wait for QUIC to take them, and of all responses of a
/// connection. Reason: as with HTTP/2's windows, the client decides how long.
pub(crate) const H3_STREAM_ROOM: u32 = 64 << 10;
pub(crate) const H3_CONNECTION_ROOM: u32 = 256 << 10;

/// Bytes that QUIC may have received of a stream, and of all streams of a connection, and nobody has read.
/// Reason: this much keeps an upload at 25 MB/s over a round trip of 10 ms.
pub(crate) const QUIC_STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const QUIC_CONNECTION_WINDOW: u32 = 256 << 10;

/// Bytes that QUIC holds of a connection until the client acknowledges them: at first, and at most. It
/// doubles each time so many were acknowledged. Reason: a client that acknowledges nothing costs little,
/// and a download over a long fast path is not held up.
pub(crate) const QUIC_SEND_WINDOW: u64 = 32 << 10;
pub(crate) const QUIC_SEND_WINDOW_MOST: u64 = 2 << 20;

/// How much more than at first those windows of a thread may be together. Reason: as `UNSENT_TOGETHER`.
pub(crate) const QUIC_SEND_TOGETHER: u64 = 64 << 20;

/// Bytes of QPACK's dynamic table (RFC 9204) that a client may fill. Reason: the usual size; requests
/// repeat themselves.
pub(crate) const H3_TABLE: u32 = 4096;

/// Streams of a connection whose field sections may wait for entries of the table. Reason: as few as
/// browsers announce, and each holds its section and a window's bytes.
pub(crate) const H3_BLOCKED: u32 = 16;

/// How long after the first GOAWAY of HTTP/3 the second one names the last request. Reason: most round
/// trips are shorter.
pub(crate) const H3_GOODBYE: Duration = Duration::from_millis(100);

/// Requests of a client at once on a connection over QUIC. Reason: a hundred is the least that RFC 9114, section 6.1 recommends; QUIC
/// keeps tables of all that may come, and with the unidirectional ones below, 113 would double them to 11 kB a connection.
pub(crate) const QUIC_REQUESTS: u32 = 100;

/// Unidirectional streams of a client at once. Reason: it needs three (RFC 9114, section 6.2), and may try
/// others.
pub(crate) const QUIC_UNIDIRECTIONAL: u32 = 8;

/// Handshakes of a listener in progress beyond which clients must prove their address (RFC 9000, section
/// 8.1.2). Reason: each takes some 30 kB and half a millisecond of CPU; a thread completes as many in a
/// second.
pub(crate) const QUIC_RETRY_ABOVE: usize = 200;

/// Sockets of a thread for QUIC, those included that wait for their last connections. Reason: each address
/// has one.
pub(crate) const QUIC_SOCKETS: u32 = 256;

/// How long a connection of QUIC that was closed waits for its last responses to be acknowledged. Reason: as
/// with a lingering close of TCP.
pub(crate) const QUIC_LINGER: Duration = Duration::from_secs(1);

/// How often a listener of QUIC looks whether its TLS was changed. Reason: a reload takes about as long.
pub(crate) const QUIC_RENEW: Duration = Duration::from_secs(1);

/// Datagrams that leave in one call. Reason: as the kernel takes them.
pub(crate) const QUIC_DATAGRAMS: usize = 32;

/// How long a drained connection without requests waits for its client's reply to the first GOAWAY.
/// Reason: most round trips are shorter.
pub(crate) const H2_DRAIN_PATIENCE: Duration = Duration::from_millis(300);
