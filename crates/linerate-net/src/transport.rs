//! The interface of every transport, which moves bytes.
//!
//! The loop that drives it:
//!
//! ```text
//! loop {
//!     transport.turn(deadline, &mut events)?;          // the only place that waits
//!     let now = transport.now();                       // one clock read per turn
//!     for event in events.drain(..) {
//!         match event {
//!             Event::Readable { conn, data } => match transport.receive(data, |bytes| session.handle(now, bytes)) {
//!                 After::Open => ..., After::Ended | After::Failed(_) => transport.close(conn, ..), After::Gone => {}
//!             },
//!             ...
//!         }
//!     }
//! }
//! ```
//!
//! Rules every transport keeps (the conformance suite holds them):
//! 1. A connection lives until the application closes it; its [`Conn`] is never handed out again.
//! 2. Events of one connection keep their order: `Connected` before the first `Readable`, bytes before the end, the end
//!    before a reset that followed it.
//! 3. Events already in a batch may name a connection closed meanwhile: calls on it do nothing, `receive` says `Gone`.
//! 4. Each `Readable` needs one `receive`, also for a connection closed meanwhile (it may hold a buffer). It may
//!    turn out to bring nothing. Bytes are lent to the closure; what must outlive it is copied.
//! 5. `send` takes everything (up to [`Limits::unsent_bytes`](crate::Limits)); what the wire does not take at once the transport keeps until it does.
//!    It costs least, and keeps the peer busiest, to send as soon as something was received, once for each connection and
//!    turn.
//! 6. After `pause`, bytes already queued may still arrive.
//! 7. A call takes effect on the wire at once or with the next `turn`.

use std::any::Any;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::DISCARDED_AT_ONCE;
use crate::{FlowInfo, NetError, TcpInfo, TcpTotals, Time};

/// A connection: a slot and the generation that makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Conn {
    /// For transports outside this crate. A slot and generation must never be handed out twice.
    pub fn new(slot: u32, generation: u32) -> Conn {
        Conn { slot, generation }
    }

    /// How often the slot was used before.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The slot: small, dense, reused after `close`. For tables of the application; compare the
    /// whole `Conn` to know that the slot still is this connection.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener(pub(crate) u32);

impl Listener {
    /// For a transport of one's own.
    pub fn new(index: u32) -> Listener {
        Listener(index)
    }

    /// The number it was made with.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Bytes lent to the transport for its whole life, to be sent from without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lent(pub(crate) u32);

impl Lent {
    /// For a transport of one's own.
    pub fn new(index: u32) -> Lent {
        Lent(index)
    }

    /// The number it was made with.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Selects the configuration of a [layer](crate::layer) for a connection or listener. Its meaning
/// is up to the layer; transports without layers ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Profile(pub u16);

/// Claim on received bytes: passed to [`Transport::receive`] once.
#[derive(Debug, PartialEq, Eq)]
pub struct Data {
    pub(crate) conn: Conn,
    /// Transport-private: a buffer id and a length (io_uring), nothing (epoll).
    pub(crate) token: u64,
}

impl Data {
    /// For transports outside this crate. Only they interpret the token: for instance a buffer's
    /// number and length.
    pub fn new(conn: Conn, token: u64) -> Data {
        Data { conn, token }
    }

    /// The number it was made with.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The connection they belong to.
    pub fn conn(&self) -> Conn {
        self.conn
    }
}

/// An event of a transport.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer connected to a listener of ours.
    Accepted {
        /// The listener.
        listener: Listener,
        /// The new connection; usable at once.
        conn: Conn,
        /// The peer's address; unspecified (`0.0.0.0:0`) on a Unix socket.
        peer: SocketAddr,
    },
    /// A connection that we opened is established: it carries the application's bytes.
    Connected {
        /// The connection.
        conn: Conn,
        /// When it was known to carry bytes.
        at: Time,
        /// When TCP's handshake was known to be complete. Earlier than `at` if a
        /// [layer](crate::layer) has its own handshake.
        tcp_at: Time,
    },
    /// [`Transport::receive`] can take bytes, the end, or a failure of the receiving side.
    Readable {
        /// The connection.
        conn: Conn,
        /// The claim.
        data: Data,
    },
    /// Everything handed over has left. Reported if some of it had to wait, and whenever
    /// [`Transport::unsent`] returned more than zero.
    Drained {
        /// The connection.
        conn: Conn,
    },
    /// The connection could not be established, or failed while it was not read (paused, or at its
    /// end). A connection that is read reports [`After::Failed`] after the last bytes. Reported
    /// once; the application closes it.
    Failed {
        /// The connection.
        conn: Conn,
        /// Why.
        error: NetError,
    },
    /// A [`Waker`] was used.
    Woken,
}

impl Event {
    /// A connection that carries bytes as soon as TCP's handshake is complete.
    pub(crate) fn connected(conn: Conn, at: Time) -> Event {
        Event::Connected { conn, at, tcp_at: at }
    }
}

/// State of the receiving side after [`Transport::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// More may come.
    Open,
    /// The peer sent its FIN and every byte before it was handed over.
    Ended,
    /// Receiving failed; every byte before was handed over.
    Failed(NetError),
    /// The connection was closed by the application before.
    Gone,
}

/// The input of the closure of [`Transport::receive_or_discard`].
#[derive(Debug, PartialEq, Eq)]
pub enum ReceivedPiece<'a> {
    /// Received bytes.
    Bytes(&'a mut [u8]),
    /// This many bytes were received and discarded.
    Discarded(u64),
}

/// An application's knowledge of the next bytes on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// How many belong together, such as the rest of a body; 0 if unknown.
    pub bytes: u64,
    /// The application reads none of them.
    pub unseen: bool,
}

impl Ahead {
    /// How many bytes to discard, if at least `least` are unseen.
    pub(crate) fn to_discard(self, least: usize) -> Option<usize> {
        let most = self.bytes.min(DISCARDED_AT_ONCE) as usize;
        (self.unseen && most >= least).then_some(most)
    }
}

/// Hands received bytes to an application that knows nothing of what comes next, so that none are
/// discarded.
pub(crate) fn received(mut take: impl FnMut(&mut [u8])) -> impl FnMut(ReceivedPiece<'_>) -> Ahead {
    move |piece| {
        if let ReceivedPiece::Bytes(bytes) = piece {
            take(bytes);
        }
        Ahead::default()
    }
}

/// How to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// `close(2)`: FIN after what is still to be sent. The side that closes first keeps the
    /// TIME_WAIT state. With received bytes unread, it is a reset.
    Now,
    /// Wait for the peer's FIN (at most a second) and close then, so that TIME_WAIT stays with the
    /// peer.
    AfterPeer,
    /// FIN after unsent bytes, then read and discard until the peer's FIN (at most a second). Such
    /// a lingering close keeps a reset from destroying the last response (RFC 9112 section 9.6).
    Lingering,
    /// RST.
    Abort,
}

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConnectOptions {
    /// Source address (the port is always the kernel's choice).
    pub from: Option<IpAddr>,
    /// The connection carries one request and is then closed: the transport may use a cheaper way
    /// for that.
    pub short: bool,
    /// Selects how a layer treats the connection.
    pub profile: Profile,
    /// Connect to this Unix socket of the kernel instead of an address. Fails where sockets are not
    /// the kernel's.
    pub unix: Option<Arc<Path>>,
}

/// How to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Accept queue length.
    pub backlog: u32,
    /// SO_REUSEPORT: one listener per core on the same address.
    pub reuse_port: bool,
    /// TCP_DEFER_ACCEPT: report a connection when its first bytes are there.
    pub defer: Option<Duration>,
    /// Selects how a layer treats its connections.
    pub profile: Profile,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { backlog: 4096, reuse_port: false, defer: None, profile: Profile::default() }
    }
}

/// Wakes a transport's `turn` from another thread; it then reports [`Event::Woken`].
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<crate::sys::EventFd>);

impl Waker {
    /// A waker for a transport or link outside this crate; it wakes nothing by itself.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(crate::sys::EventFd::new()?)))
    }

    /// Ends the wait of the transport's current or next turn.
    pub fn wake(&self) {
        self.0.signal();
    }
}

/// Moves bytes. The module's documentation has the rules.
pub trait Transport {
    /// The current time. Kernel transports read the clock: once per turn is enough.
    fn now(&mut self) -> Time;

    /// Listens. Returns the address with the port chosen.
    fn listen(&mut self, at: SocketAddr, options: &ListenOptions)
    -> Result<(Listener, SocketAddr), NetError>;

    /// Accepts on an existing listening socket of the kernel, TCP or Unix. Other processes may
    /// accept on it too, and still can after [`Transport::unlisten`]. Fails if the transport does
    /// not use the kernel's sockets.
    fn adopt(&mut self, _socket: OwnedFd) -> Result<Listener, NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    /// Stops accepting on it; connections stay.
    fn unlisten(&mut self, listener: Listener);

    /// Refuses new connections. Those established, or nearly so, are still accepted until
    /// [`Transport::unlisten`]. `false` if the transport cannot do that: then only `unlisten` ends
    /// it.
    fn refuse_new(&mut self, _listener: Listener) -> bool {
        false
    }

    /// As [`ListenOptions::defer`], for one that listens already. Where it was not possible then,
    /// nothing changes.
    fn set_defer(&mut self, _listener: Listener, _defer: Option<Duration>) {}

    /// Opens a connection. `send` may be called at once: the bytes leave when the connection is
    /// established. Failures are returned here or, if they are known later, reported by
    /// [`Event::Failed`].
    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError>;

    /// Our end of a connection that is established; `None` where it has no such address: on a Unix
    /// socket.
    fn local(&mut self, _conn: Conn) -> Option<SocketAddr> {
        None
    }

    /// Waits for events until `until` (`None`: forever; a past time: only polls), and appends them
    /// to `events`. It may end early without events: after a signal, or for the transport's own
    /// reasons.
    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()>;

    /// A time that is not earlier than the arrival of the bytes that `receive` lends just now;
    /// `turn`: the time read after the last turn. It is that time where the turn itself receives
    /// the bytes. Where `receive` does, some may have arrived since.
    fn received_by(turn: Time) -> Time {
        turn
    }

    /// When a turn has something to do though no descriptor has become ready: a time that has passed
    /// means at once. For owners that wait elsewhere; [`Transport::turn`] itself knows.
    fn next_turn(&self) -> Time {
        Time::NEVER
    }

    /// Lends received bytes to `take`, piece by piece, and returns the state afterwards.
    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After;

    /// As [`Transport::receive`], for an application that knows how much follows: `take` returns
    /// that after each piece. The transport may then wake later, and may discard unseen bytes
    /// without copying them.
    fn receive_or_discard(&mut self, data: Data, mut take: impl FnMut(ReceivedPiece<'_>) -> Ahead) -> After {
        self.receive(data, |bytes| {
            take(ReceivedPiece::Bytes(bytes));
        })
    }

    /// A claim on bytes that may have arrived, for a connection on which sending failed. `None`
    /// where the event that reports the failure comes behind them anyway.
    fn unread(&mut self, _conn: Conn) -> Option<Data> {
        None
    }

    /// Sends a copy of `bytes`. Fails, and takes none of them, if the connection has failed or too
    /// many bytes wait already.
    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError>;

    /// Sends `bytes` from where they are: what the wire does not take at once is held, not copied.
    /// For much at a time.
    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        self.send(conn, &bytes)
    }

    /// Sends the last bytes of a connection and closes it. As [`Transport::send`] and
    /// [`Transport::close`] after each other, but a transport that can lets the bytes and the FIN
    /// leave in one segment. When it fails the connection is not closed.
    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        self.send(conn, bytes)?;
        self.close(conn, how);
        Ok(())
    }

    /// Whether all bytes handed over for a connection in one turn leave in one system call, in any
    /// number of pieces. If not, a small copy is cheaper than a second call.
    fn gathers(&self) -> bool {
        false
    }

    /// Gives bytes into the transport's keeping, to send from often (a prebuilt batch of requests).
    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent;

    /// Sends a range of lent bytes without copying them.
    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError>;

    /// Sends `head`, then a range of a file, which counts as bytes handed over; its end must not be
    /// before its start. Bytes that have to wait are read when they leave. If the file is too short
    /// by then, the connection fails, because a part must not pass for the whole. A kernel that
    /// sends from its page cache also sends later changes of bytes that have not arrived. See
    /// [`is_cached`](crate::file::is_cached) for files that would block on a disk.
    fn send_file(
        &mut self,
        conn: Conn,
        head: &[u8],
        file: &Arc<File>,
        range: Range<u64>,
    ) -> Result<(), NetError> {
        let bytes = crate::file::read(file, range)?;
        self.send(conn, head)?;
        self.send_shared(conn, bytes)
    }

    /// Whether files leave without being read into memory of ours. Where they are, little at a time
    /// is better.
    fn sends_files(&self) -> bool {
        false
    }

    /// Bytes handed over that have not left yet.
    fn unsent(&self, conn: Conn) -> usize;

    /// Stops reading (back-pressure).
    fn pause(&mut self, conn: Conn);

    /// Reads again.
    fn resume(&mut self, conn: Conn);

    /// Reports received bytes only once at least `bytes` of them wait (SO_RCVLOWAT); 1 undoes it. A
    /// hint: transports without it ignore it.
    fn set_low_water(&mut self, conn: Conn, bytes: usize);

    /// Closes. The connection is gone for the application at once. One that is not established yet
    /// is abandoned, whatever `how` says, with the bytes that waited for it.
    fn close(&mut self, conn: Conn, how: Close);

    /// Connections that still hold something: open ones, and closed ones that wait for their last
    /// bytes to leave or for the peer's FIN. Dropping the transport before it is 0 may destroy the
    /// last responses. A transport that closes at once returns 0.
    fn unfinished(&self) -> usize {
        0
    }

    /// Connections that the application has finished and their peers have not: the peer's FIN is
    /// still to come, or to be acknowledged. If TCP ends with the process, nothing acknowledges it
    /// later. 0 with the kernel's TCP.
    fn half_closed(&self) -> usize {
        0
    }

    /// Resets up to `most` connections that the application has closed and that are not over,
    /// before a user-space TCP ends. Returns how many there were.
    fn reset_closed(&mut self, _most: usize) -> usize {
        0
    }

    /// Why accepting fails at the moment, if file descriptors or memory are used up. The transport
    /// retries by itself.
    fn accept_trouble(&self) -> Option<NetError> {
        None
    }

    /// The protocol that both sides agreed on while a layer shook hands (ALPN, RFC 7301), `None`
    /// where nothing was agreed.
    fn protocol(&self, _conn: Conn) -> Option<&[u8]> {
        None
    }

    /// Why a connection failed, or what it still waits for, in the words of a
    /// [layer](crate::layer); `None` if the error says all. Call it before [`Transport::close`].
    fn reason(&self, _conn: Conn) -> Option<String> {
        None
    }

    /// A layer's facts about a connection and its peer once bytes pass. The layer says of which
    /// type it is.
    fn about(&self, _conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Sets how a layer treats the connections of a listener from now on; for those that are adopted,
    /// which have no options.
    fn set_profile(&mut self, _listener: Listener, _profile: Profile) {}

    /// TCP's counters, where the transport has them.
    fn info(&mut self, conn: Conn) -> Option<TcpInfo>;

    /// Ends the wait of a turn, without an event, when this descriptor has become readable since. For an
    /// event loop inside this one: take turns of it until one finds nothing. Fails if the transport does
    /// not wait in the kernel.
    fn watch(&mut self, _descriptor: OwnedFd) -> Result<(), NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    /// A handle to wake `turn` from another thread.
    fn waker(&self) -> Waker;

    /// Counters of the transport's own TCP over all connections; `None` where TCP is the kernel's
    /// (nstat shows it there). It may cost a system call.
    fn totals(&self) -> Option<TcpTotals> {
        None
    }

    /// Reports each change below the transport that the operator should know once, such as that its
    /// interface went down.
    fn news(&mut self) -> Option<String> {
        None
    }

    /// Shows the connections of a user-space TCP in `most` places of its table, from place `from`
    /// on. Returns the place to continue from; `None` at the end, and at once with the kernel's TCP
    /// (ss shows those). It works in pieces, so that a large table does not block. Connections that
    /// come or go between two calls may be missed; none is shown twice.
    fn flows(&self, _from: usize, _most: usize, _each: impl FnMut(FlowInfo)) -> Option<usize> {
        None
    }

    /// The name users know: "epoll", "uring", "mem".
    fn name(&self) -> &'static str;
}
