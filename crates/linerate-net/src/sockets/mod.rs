//! The calls of the kernel's sockets over TCP in user space: partial reads and writes, half-close,
//! accept queues, readiness, and the errors of Linux. Sans-IO as the [`Stack`] below: no call waits.
//! A call that would wait fails with EAGAIN, or is a [`WaitingCall`] to continue;
//! [`Sockets::turn`] is the only place that moves packets.
//!
//! `tests/sockets_kernel.rs` runs the same calls on these sockets and on the kernel's, and compares.
//! docs/BYPASS.md says what is absent.

mod calls;
mod options;
mod readiness;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

pub use self::calls::{CallFlags, Shutdown};
pub use self::options::SocketOptions;
pub use self::readiness::{PollEntry, PollSetId};
use self::readiness::{PollSet, Watch};
pub use self::waiting::{WaitFlags, WaitingCall};
use crate::link::Link;
use crate::stack::{FlowSides, Stack};
use crate::{Close, Conn, Data, Event, Listener, NetError, NetErrorKind, Time, Transport};

/// Readiness for reading, as in epoll_ctl(2).
pub const IN: u32 = libc::EPOLLIN as u32;
/// Readiness for writing.
pub const OUT: u32 = libc::EPOLLOUT as u32;
/// An error is pending.
pub const ERR: u32 = libc::EPOLLERR as u32;
/// Both directions are closed.
pub const HUP: u32 = libc::EPOLLHUP as u32;
/// The peer will send nothing more.
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;

/// The longest accept queue. Reason: Linux's default of `net.core.somaxconn`.
const LONGEST_QUEUE: u32 = 4096;

/// A socket: a slot and the generation that makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    slot: u32,
    generation: u32,
}

/// Bytes that a socket has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketBytes {
    /// Those that `send` took.
    pub taken: u64,
    /// Those that `recv` returned.
    pub read: u64,
}

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFailure {
    /// The error number of Linux.
    pub errno: i32,
    /// The kernel would also raise SIGPIPE.
    pub raises_sigpipe: bool,
}

impl From<i32> for SocketFailure {
    fn from(errno: i32) -> SocketFailure {
        SocketFailure { errno, raises_sigpipe: false }
    }
}

/// The stage of a socket's life.
enum SocketPhase {
    /// Not connected: new, or disconnected by a failure.
    New,
    Listening {
        listener: Listener,
        queue: VecDeque<SocketId>,
        most: usize,
    },
    Connecting(Conn),
    /// `told`: `connect` has returned success, or `accept` made it.
    Connected {
        conn: Conn,
        told: bool,
    },
    /// `connect` failed and was not called again.
    Refused,
}

struct StackSocket {
    phase: SocketPhase,
    bound: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    options: SocketOptions,
    /// SO_ERROR.
    error: Option<i32>,
    /// `shutdown` or the peer closed this direction.
    receive_shut: bool,
    send_shut: bool,
    /// The peer's FIN came: reading ends with 0 whatever happens later.
    ended: bool,
    failed: bool,
    /// Someone waits for room in the send buffer.
    wants_room: bool,
    bytes: SocketBytes,
    watches: Vec<Watch>,
}

impl StackSocket {
    fn new(phase: SocketPhase, options: SocketOptions) -> StackSocket {
        StackSocket {
            phase,
            bound: None,
            peer: None,
            options,
            error: None,
            receive_shut: false,
            send_shut: false,
            ended: false,
            failed: false,
            wants_room: false,
            bytes: SocketBytes::default(),
            watches: Vec::new(),
        }
    }

    fn conn(&self) -> Option<Conn> {
        match self.phase {
            SocketPhase::Connecting(conn) | SocketPhase::Connected { conn, .. } => Some(conn),
            _ => None,
        }
    }
}

struct SocketSlot {
    generation: u32,
    socket: Option<StackSocket>,
}

/// All sockets over a stack.
pub struct Sockets<L> {
    net: Stack<L>,
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
    /// The socket of each connection's slot, and of each listener.
    by_conn: Vec<Option<SocketId>>,
    by_listener: Vec<Option<SocketId>>,
    sets: Vec<Option<PollSet>>,
    wanting: Vec<SocketId>,
    events: Vec<Event>,
    /// Which of several exclusive watches is next.
    turns: usize,
}

impl<L: Link> Sockets<L> {
    /// Sockets over this stack, which nothing else may use.
    pub fn new(net: Stack<L>) -> Sockets<L> {
        Sockets {
            net,
            slots: Vec::new(),
            free: Vec::new(),
            by_conn: Vec::new(),
            by_listener: Vec::new(),
            sets: Vec::new(),
            wanting: Vec::new(),
            events: Vec::new(),
            turns: 0,
        }
    }

    /// The stack.
    pub fn stack(&self) -> &Stack<L> {
        &self.net
    }

    /// What the operator should know, such as an interface that is down.
    pub fn news(&mut self) -> Option<String> {
        self.net.news()
    }

    /// The stack, to ask for its times and its link. Turns and connections are the sockets' business.
    pub fn stack_mut(&mut self) -> &mut Stack<L> {
        &mut self.net
    }

    /// The link's time.
    pub fn now(&mut self) -> Time {
        self.net.now()
    }

    /// A new TCP socket. EMFILE if there are 2^32 of them.
    pub fn socket(&mut self) -> Result<SocketId, SocketFailure> {
        self.insert(StackSocket::new(SocketPhase::New, SocketOptions::default()))
    }

    fn insert(&mut self, socket: StackSocket) -> Result<SocketId, SocketFailure> {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            place.socket = Some(socket);
            return Ok(SocketId { slot, generation: place.generation });
        }
        let slot = u32::try_from(self.slots.len()).map_err(|_| libc::EMFILE)?;
        self.slots.push(SocketSlot { generation: 0, socket: Some(socket) });
        Ok(SocketId { slot, generation: 0 })
    }

    fn get(&self, id: SocketId) -> Result<&StackSocket, SocketFailure> {
        let place = self.slots.get(id.slot as usize).filter(|place| place.generation == id.generation);
        Ok(place.and_then(|place| place.socket.as_ref()).ok_or(libc::EBADF)?)
    }

    fn get_mut(&mut self, id: SocketId) -> Result<&mut StackSocket, SocketFailure> {
        let place = self.slots.get_mut(id.slot as usize).filter(|place| place.generation == id.generation);
        Ok(place.and_then(|place| place.socket.as_mut()).ok_or(libc::EBADF)?)
    }

    fn sides(&self, socket: &StackSocket) -> Option<FlowSides> {
        self.net.sides(socket.conn()?)
    }

    /// Moves packets, and waits for some until this time (`None`: forever; a past time: not at all).
    /// Fails if the link does. Returns whether anything happened; a response may then be unsent until
    /// the next turn.
    pub fn turn(&mut self, until: Option<Time>) -> io::Result<bool> {
        let mut events = std::mem::take(&mut self.events);
        let moved = self.net.turn(until, &mut events);
        let happened = !events.is_empty();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        self.look_for_room();
        moved.map(|()| happened)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, conn, peer } => self.enqueue(listener, conn, peer),
            Event::Connected { conn, .. } => {
                if let Some(id) = self.socket_of(conn)
                    && let Ok(socket) = self.get_mut(id)
                {
                    socket.phase = SocketPhase::Connected { conn, told: false };
                    self.note(id, 0);
                }
            }
            Event::Readable { conn, data } => self.readable(conn, data),
            Event::Failed { conn, error } => {
                if let Some(id) = self.socket_of(conn) {
                    self.fail(id, error);
                }
            }
            Event::Drained { .. } | Event::Woken => {}
        }
    }

    fn socket_of(&self, conn: Conn) -> Option<SocketId> {
        let id = (*self.by_conn.get(conn.slot())?)?;
        (self.get(id).ok()?.conn() == Some(conn)).then_some(id)
    }

    fn bind_conn(&mut self, conn: Conn, id: SocketId) {
        if self.by_conn.len() <= conn.slot() {
            self.by_conn.resize(conn.slot() + 1, None);
        }
        self.by_conn[conn.slot()] = Some(id);
    }

    /// A peer has connected: it waits to be accepted.
    fn enqueue(&mut self, listener: Listener, conn: Conn, peer: SocketAddr) {
        let owner = self.by_listener.get(listener.index() as usize).copied().flatten();
        let options = owner.and_then(|id| Some(self.get(id).ok()?.options));
        let (Some(owner), Some(options)) = (owner, options) else {
            return self.net.close(conn, Close::Abort);
        };
        let mut socket = StackSocket::new(SocketPhase::Connected { conn, told: true }, options);
        socket.peer = Some(peer);
        let Ok(id) = self.insert(socket) else { return self.net.close(conn, Close::Abort) };
        self.bind_conn(conn, id);
        if let Ok(StackSocket { phase: SocketPhase::Listening { queue, .. }, .. }) = self.get_mut(owner) {
            queue.push_back(id);
        }
        self.note(owner, IN);
    }

    fn readable(&mut self, conn: Conn, data: Data) {
        self.net.keep(data);
        let Some(id) = self.socket_of(conn) else { return };
        let Some(sides) = self.net.sides(conn) else { return };
        let Ok(socket) = self.get_mut(id) else { return };
        if sides.is_ended && !socket.ended {
            (socket.ended, socket.receive_shut) = (true, true);
            self.note(id, 0);
        } else if sides.unread > 0 {
            let enough = socket.options.rcvlowat.max(1) as usize;
            if sides.unread >= enough {
                self.note(id, IN);
            }
        }
        if let Some(error) = sides.error {
            self.fail(id, error);
        }
    }

    /// A connection has failed.
    fn fail(&mut self, id: SocketId, error: NetError) {
        let Ok(socket) = self.get_mut(id) else { return };
        if std::mem::replace(&mut socket.failed, true) {
            return;
        }
        let after_peer = socket.ended && !socket.send_shut;
        socket.error = Some(match error.kind {
            NetErrorKind::Refused => libc::ECONNREFUSED,
            // As Linux does in CLOSE_WAIT.
            NetErrorKind::Reset if after_peer => libc::EPIPE,
            NetErrorKind::TimedOut => libc::ETIMEDOUT,
            NetErrorKind::Unreachable => libc::EHOSTUNREACH,
            NetErrorKind::NoMemory => libc::ENOBUFS,
            _ => libc::ECONNRESET,
        });
        (socket.receive_shut, socket.send_shut) = (true, true);
        if let SocketPhase::Connecting(conn) = socket.phase {
            socket.phase = SocketPhase::Refused;
            self.net.close(conn, Close::Abort);
        }
        self.note(id, 0);
    }

    /// Tells those that wait for room in a send buffer, once there is some.
    fn look_for_room(&mut self) {
        let mut wanting = std::mem::take(&mut self.wanting);
        wanting.retain(|id| {
            let Ok(socket) = self.get(*id) else { return false };
            if !self.is_writable(socket) {
                return true;
            }
            if let Ok(socket) = self.get_mut(*id) {
                socket.wants_room = false;
            }
            self.note(*id, OUT);
            false
        });
        wanting.append(&mut self.wanting);
        self.wanting = wanting;
    }
}
