//! The one interface behind which bytes move.
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
//! 4. Each `Readable` is answered by one `receive`, also for a connection closed meanwhile (it may hold a buffer). It may
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

use crate::limits::{DISCARDED_AT_ONCE, LOW_WATER_LEAST, LOW_WATER_MOST, LOW_WATER_OF_ALL};
use crate::{FlowInfo, NetError, TcpInfo, TcpTotals, Time};

/// A connection: a slot and the generation that makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Conn {
    /// For a transport of one's own. A slot and generation must never be handed out twice.
    pub fn new(slot: u32, generation: u32) -> Conn {
        Conn { slot, generation }
    }

    /// How often the slot was in use before.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The slot: small, dense, reused after `close`. For tables kept beside the transport's; compare the whole
    /// `Conn` to know that the slot still is this connection.
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

    /// What it was made with.
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

    /// What it was made with.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Which configuration of a [layer](crate::layer) a connection or a listener uses. The layer gives it a meaning; transports that
/// move bytes as they are ignore it.
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
    /// For a transport of one's own. The token is for itself: a buffer's number and length, say.
    pub fn new(conn: Conn, token: u64) -> Data {
        Data { conn, token }
    }

    /// What it was made with.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The connection they belong to.
    pub fn conn(&self) -> Conn {
        self.conn
    }
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer connected to a listener of ours.
    Accepted {
        /// Where.
        listener: Listener,
        /// The new connection; usable at once.
        conn: Conn,
        /// Who; unspecified (`0.0.0.0:0`) where it has no such address: on a Unix socket.
        peer: SocketAddr,
    },
    /// A connection we asked for is established: it carries the application's bytes.
    Connected {
        /// Which.
        conn: Conn,
        /// When it was known to carry bytes.
        at: Time,
        /// When TCP's handshake was known to be complete. Earlier than `at` where a [layer](crate::layer) has a handshake of its own.
        tcp_at: Time,
    },
    /// Bytes, the end, or a failure of the receiving side wait to be taken by [`Transport::receive`].
    Readable {
        /// Which.
        conn: Conn,
        /// The claim.
        data: Data,
    },
    /// All that was handed over to send has left. Said when some of it had to wait, and whenever [`Transport::unsent`] told
    /// of it.
    Drained {
        /// Which.
        conn: Conn,
    },
    /// The connection could not be established, or failed while it was not read (it is paused, or the end was reached). One
    /// that is read tells by [`After::Failed`], behind the last bytes. Said once; the application closes it.
    Failed {
        /// Which.
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

/// What [`Transport::receive_or_discard`] hands over.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Received bytes.
    Bytes(&'a mut [u8]),
    /// So many bytes were received and discarded.
    Discarded(u64),
}

/// What an application knows of the bytes that come next on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// So many belong together, the rest of a body say. 0: nothing is known.
    pub bytes: u64,
    /// The application looks at none of them.
    pub unseen: bool,
}

impl Ahead {
    /// How many bytes to discard, if at least `least` are unseen.
    pub(crate) fn to_discard(self, least: usize) -> Option<usize> {
        let most = self.bytes.min(DISCARDED_AT_ONCE) as usize;
        (self.unseen && most >= least).then_some(most)
    }

    /// How many of them to wait for where `connections` are open; `None`: they are too few to be worth it.
    pub(crate) fn low_water(self, connections: usize) -> Option<usize> {
        let share = (LOW_WATER_OF_ALL / connections.max(1)).min(LOW_WATER_MOST);
        let mark = self.bytes.min(share as u64) as usize;
        (mark >= LOW_WATER_LEAST).then_some(mark)
    }
}

/// How to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// `close(2)`: FIN after what is still to be sent. The side that closes first keeps the TIME_WAIT state. With received
    /// bytes unread, it is a reset.
    Now,
    /// Wait for the peer's FIN (at most a second) and close then, so that TIME_WAIT stays with the peer.
    AfterPeer,
    /// FIN after what is still to be sent, then read and discard until the peer's FIN (at most a second): the lingering
    /// close that keeps a last answer from being destroyed by a reset (RFC 9112 section 9.6).
    Lingering,
    /// RST.
    Abort,
}

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConnectOptions {
    /// Source address (the port is always the kernel's choice).
    pub from: Option<IpAddr>,
    /// The connection carries one request and is then closed: the transport may use a cheaper way for that.
    pub short: bool,
    /// What a layer makes of the connection.
    pub profile: Profile,
    /// Connect to this Unix socket of the kernel instead of an address. Fails where sockets are not the kernel's.
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
    /// What a layer makes of its connections.
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
    /// One for a transport or a link of one's own; it wakes nobody by itself.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(crate::sys::EventFd::new()?)))
    }

    /// Ends the wait of the transport's current or next turn.
    pub fn wake(&self) {
        self.0.signal();
    }
}

/// Moves bytes. See the module's text for the rules.
pub trait Transport {
    /// The time now. A clock read on kernel transports: once per turn is enough.
    fn now(&mut self) -> Time;

    /// Listens. Returns the address with the port chosen.
    fn listen(&mut self, at: SocketAddr, options: &ListenOptions)
    -> Result<(Listener, SocketAddr), NetError>;

    /// Accepts on a listening socket of the kernel that exists already, TCP's or a Unix one. Others may accept on it too, and still
    /// can after [`Transport::unlisten`]. Fails where sockets are not the kernel's.
    fn adopt(&mut self, _socket: OwnedFd) -> Result<Listener, NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    /// Stops accepting on it; connections stay.
    fn unlisten(&mut self, listener: Listener);

    /// No new connection begins at it, and those that are established or nearly so are accepted still, until [`Transport::unlisten`].
    /// `false` where there is no such thing: then only `unlisten` ends it.
    fn refuse_new(&mut self, _listener: Listener) -> bool {
        false
    }

    /// As [`ListenOptions::defer`], for one that listens already. Where it was not possible then, nothing changes.
    fn set_defer(&mut self, _listener: Listener, _defer: Option<Duration>) {}

    /// Starts a connection. `send` may be called at once: bytes leave as soon as the connection is established. What fails is
    /// told here or, as far as it is known later, by [`Event::Failed`].
    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError>;

    /// Our end of a connection that is established; `None` where it has no such address: on a Unix socket.
    fn local(&mut self, _conn: Conn) -> Option<SocketAddr> {
        None
    }

    /// Waits until something happened or `until` has come (`None`: as long as it takes; a time in the past: only
    /// looks), and appends what happened to `events`. It may end early with nothing: after a signal, or for the
    /// transport's own reasons.
    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()>;

    /// Lends received bytes to `take`, piece by piece, and tells the state after.
    fn receive(&mut self, data: Data, take: impl FnMut(&mut [u8])) -> After;

    /// As [`Transport::receive`], for an application that knows how much follows: `take` says so after each piece. The transport may
    /// wake later for it, and it may discard what the application does not look at without copying it.
    fn receive_or_discard(&mut self, data: Data, mut take: impl FnMut(Piece<'_>) -> Ahead) -> After {
        self.receive(data, |bytes| {
            take(Piece::Bytes(bytes));
        })
    }

    /// Sends a copy of `bytes`. Fails when the connection has failed, or when too much waits already; then nothing of them is
    /// taken.
    fn send(&mut self, conn: Conn, bytes: &[u8]) -> Result<(), NetError>;

    /// Sends `bytes` from where they are: what the wire does not take at once is held, not copied. For much at a time.
    fn send_shared(&mut self, conn: Conn, bytes: Bytes) -> Result<(), NetError> {
        self.send(conn, &bytes)
    }

    /// Sends the last bytes of a connection and closes it. As [`Transport::send`] and [`Transport::close`] after each other, but a
    /// transport that can lets the bytes and the FIN leave in one segment. When it fails the connection is not closed.
    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        self.send(conn, bytes)?;
        self.close(conn, how);
        Ok(())
    }

    /// Whether what is handed over for a connection in one turn leaves in one call to the kernel, in however many pieces. Where it
    /// does not, a small copy is cheaper than a second call.
    fn gathers(&self) -> bool {
        false
    }

    /// Gives bytes into the transport's keeping, to send from often (a prebuilt batch of requests).
    fn lend(&mut self, bytes: Arc<[u8]>) -> Lent;

    /// Sends a range of lent bytes without copying them.
    fn send_lent(&mut self, conn: Conn, lent: Lent, range: Range<usize>) -> Result<(), NetError>;

    /// Sends `head`, then a range of a file. The range counts as bytes handed over, and its end must not be before its start. What has
    /// to wait is read when it leaves: should the file then be shorter, the connection fails, since a part must not pass for the
    /// whole. Where the kernel sends from its own copy of the file, bytes that the peer has not received yet change with it. See
    /// [`is_cached`](crate::file::is_cached) for files that a disk would have to be waited for.
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

    /// Whether files leave without being read into memory of ours. Where they are, little at a time is better.
    fn sends_files(&self) -> bool {
        false
    }

    /// Bytes handed over that have not left yet.
    fn unsent(&self, conn: Conn) -> usize;

    /// Stops reading (back-pressure).
    fn pause(&mut self, conn: Conn);

    /// Reads again.
    fn resume(&mut self, conn: Conn);

    /// Asks to be told of received bytes only when at least `bytes` of them wait (SO_RCVLOWAT), 1 to undo.
    /// A hint: transports without it ignore it.
    fn set_low_water(&mut self, conn: Conn, bytes: usize);

    /// Closes. The connection is gone for the application at once. One that is not established yet is given up, whatever the
    /// way, with the bytes that waited for it.
    fn close(&mut self, conn: Conn, how: Close);

    /// Connections that hold something still: those that are open, and those closed by the application whose last bytes or whose
    /// peer's FIN are waited for. Whoever drops the transport before it is 0 may destroy last answers. A transport for which a
    /// close is over at once says 0.
    fn unfinished(&self) -> usize {
        0
    }

    /// Connections that are over for the application and not for their peers: the peer's FIN is still to come, or to be answered.
    /// Where the transport's own TCP goes with the process, nobody answers it later. 0 where TCP is the kernel's.
    fn half_closed(&self) -> usize {
        0
    }

    /// Resets up to `most` of the connections that the application has closed and that are not over, before the transport's own TCP
    /// goes. How many there were.
    fn reset_closed(&mut self, _most: usize) -> usize {
        0
    }

    /// Why nobody is accepted at the moment, if what is lacking is ours: descriptors or memory. It is tried again by itself.
    fn accept_trouble(&self) -> Option<NetError> {
        None
    }

    /// The protocol that both sides agreed on while a layer shook hands (ALPN, RFC 7301), `None` where nothing was agreed.
    fn protocol(&self, _conn: Conn) -> Option<&[u8]> {
        None
    }

    /// Why a connection failed, or what it still waits for, in the words of a [layer](crate::layer); `None` where an error says all.
    /// To be asked before [`Transport::close`].
    fn reason(&self, _conn: Conn) -> Option<String> {
        None
    }

    /// What a layer knows of a connection and its peer once bytes pass. The layer says of which type it is.
    fn about(&self, _conn: Conn) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// What a layer makes of the connections of a listener from now on; for those that are adopted, which have no options.
    fn set_profile(&mut self, _listener: Listener, _profile: Profile) {}

    /// TCP's counters, where the transport has them.
    fn info(&mut self, conn: Conn) -> Option<TcpInfo>;

    /// A handle to wake `turn` from another thread.
    fn waker(&self) -> Waker;

    /// What the transport's own TCP counts over all connections; `None` where TCP is the kernel's (nstat shows it there). It may
    /// cost a system call.
    fn totals(&self) -> Option<TcpTotals> {
        None
    }

    /// Something about what is under the transport that the operator should know, once each: its interface went down, or the like.
    fn news(&mut self) -> Option<String> {
        None
    }

    /// Shows the connections of the transport's own TCP that are in `most` places of its table, from place `from` on, and gives the
    /// place to go on from; `None` at the end, and at once where TCP is the kernel's (ss shows them there). In pieces, so that nobody
    /// waits for a large table; what comes or goes between two may be missed, and nothing is shown twice.
    fn flows(&self, _from: usize, _most: usize, _each: impl FnMut(FlowInfo)) -> Option<usize> {
        None
    }

    /// The name users know: "epoll", "uring", "mem".
    fn name(&self) -> &'static str;
}
