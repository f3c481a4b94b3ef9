//! The connections behind the calls. A call returns an errno where it fails.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_net::link::xdp::{self, Steer, Xdp, XdpOptions};
use linerate_net::stack::{Stack, StackOptions, UseOfEcn};
use linerate_net::{After, Close, Conn, Data, Event, HostSecret, ListenOptions, Transport};

/// Readiness (epoll_ctl(2)).
pub(crate) const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
/// Readiness that is always reported.
const ALWAYS: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// The longest wait for packets. Reason: meanwhile nobody looks at the kernel's descriptors.
const WAIT: Duration = Duration::from_millis(5);
/// Of waits that find enough to do, one in so many moves packets, and one in so many looks at the
/// kernel's descriptors. Reason: both are system calls.
const MOVES: u64 = 16;
const LOOKS: u64 = 256;
/// Bytes of a connection that wait to be read. Beyond them its window closes.
const UNREAD: usize = 256 << 10;
const NONE: u32 = u32::MAX;

/// A connection as the program sees it.
struct Socket {
    conn: Conn,
    peer: SocketAddr,
    /// Received bytes; those before `read` were read.
    inbox: Vec<u8>,
    read: usize,
    ended: bool,
    failed: bool,
    paused: bool,
    /// `None` before it was accepted.
    fd: Option<i32>,
    /// Readiness that the program wants to be told of, and the value by which; 0: not registered.
    wanted: u32,
    token: u64,
    /// Changes of readiness that were not told yet.
    news: u32,
    queued: bool,
}

/// All connections of the process.
pub(crate) struct World {
    net: Stack<Xdp>,
    events: Vec<Event>,
    sockets: Vec<Option<Socket>>,
    /// The slot of each descriptor.
    slots: Vec<u32>,
    /// Descriptors of closed connections, which stay open for later ones.
    spare: Vec<i32>,
    spare_inboxes: Vec<Vec<u8>>,
    pub(crate) listener: i32,
    listener_token: Option<u64>,
    accepted: VecDeque<u32>,
    ready: VecDeque<u32>,
    waits: u64,
    pub(crate) how: &'static str,
}

impl World {
    /// Takes the connections to `at`, where the descriptor `listener` would listen.
    pub(crate) fn open(
        interface: &str,
        listener: i32,
        at: SocketAddr,
        backlog: u32,
    ) -> Result<World, String> {
        let opened = xdp::open(&XdpOptions::new(interface, Steer::Listen(vec![at])));
        let mut opened = opened.map_err(|error| error.to_string())?;
        let link = opened.links.pop().ok_or("the interface has no queue")?;
        let options = StackOptions {
            addresses: vec![at.ip()],
            host: HostSecret::of_this_machine(),
            ecn: UseOfEcn::of_this_machine(),
            ..StackOptions::default()
        };
        let mut net = Stack::new(link, options);
        let listen = ListenOptions { backlog, ..ListenOptions::default() };
        net.listen(at, &listen).map_err(|error| error.to_string())?;
        Ok(World {
            net,
            events: Vec::new(),
            sockets: Vec::new(),
            slots: Vec::new(),
            spare: Vec::new(),
            spare_inboxes: Vec::new(),
            listener,
            listener_token: None,
            accepted: VecDeque::new(),
            ready: VecDeque::new(),
            waits: 0,
            how: opened.how,
        })
    }

    fn slot(&self, fd: i32) -> Option<u32> {
        let slot = *self.slots.get(usize::try_from(fd).ok()?)?;
        (slot != NONE).then_some(slot)
    }

    /// Whether a descriptor is a connection of ours.
    pub(crate) fn has(&self, fd: i32) -> bool {
        self.slot(fd).is_some()
    }

    fn socket(&mut self, slot: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(slot as usize)?.as_mut()
    }

    /// Notes that a connection has become ready for this.
    fn note(&mut self, slot: u32, news: u32) {
        let Some(socket) = self.socket(slot) else { return };
        socket.news |= news;
        let tells = socket.wanted != 0 && socket.news & (socket.wanted | ALWAYS) != 0;
        if tells && !socket.queued {
            socket.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Moves packets, and waits for some at most this long.
    fn turn(&mut self, wait: Duration) {
        let until = self.net.now() + wait;
        let mut events = std::mem::take(&mut self.events);
        if let Err(error) = self.net.turn(Some(until), &mut events) {
            eprintln!("bypass: the interface is gone: {error}");
            std::process::abort();
        }
        for event in events.drain(..) {
            match event {
                Event::Accepted { conn, peer, .. } => self.begin(conn, peer),
                Event::Readable { conn, data } => self.take(conn, data),
                Event::Drained { conn } => self.note(conn.slot() as u32, OUT),
                Event::Failed { conn, .. } => {
                    if let Some(socket) = self.socket(conn.slot() as u32).filter(|s| s.conn == conn) {
                        socket.failed = true;
                        self.note(conn.slot() as u32, IN | ALWAYS);
                    }
                }
                Event::Connected { .. } | Event::Woken => {}
            }
        }
        self.events = events;
    }

    fn begin(&mut self, conn: Conn, peer: SocketAddr) {
        let slot = conn.slot();
        if slot >= self.sockets.len() {
            self.sockets.resize_with(slot + 1, || None);
        }
        self.sockets[slot] = Some(Socket {
            conn,
            peer,
            inbox: self.spare_inboxes.pop().unwrap_or_default(),
            read: 0,
            ended: false,
            failed: false,
            paused: false,
            fd: None,
            wanted: 0,
            token: 0,
            news: OUT,
            queued: false,
        });
        self.accepted.push_back(slot as u32);
    }

    /// Takes received bytes, the end or a failure.
    fn take(&mut self, conn: Conn, data: Data) {
        let slot = conn.slot();
        let Some(socket) = self.sockets[slot].as_mut().filter(|socket| socket.conn == conn) else {
            self.net.receive(data, |_| {});
            return;
        };
        let inbox = &mut socket.inbox;
        let news = match self.net.receive(data, |piece| inbox.extend_from_slice(piece)) {
            After::Open | After::Gone => IN,
            After::Ended => {
                socket.ended = true;
                IN | RDHUP
            }
            After::Failed(_) => {
                socket.failed = true;
                IN | ALWAYS
            }
        };
        if socket.inbox.len() > UNREAD && !socket.paused {
            socket.paused = true;
            self.net.pause(conn);
        }
        self.note(slot as u32, news);
    }

    /// Registers the listener for readiness, or removes it.
    pub(crate) fn watch_listener(&mut self, token: Option<u64>) {
        self.listener_token = token;
    }

    /// Registers a connection for readiness. What it is ready for already counts as news.
    pub(crate) fn watch(&mut self, fd: i32, wanted: u32, token: u64) {
        let Some(slot) = self.slot(fd) else { return };
        let Some(socket) = self.socket(slot) else { return };
        (socket.wanted, socket.token) = (wanted, token);
        let readable = socket.read < socket.inbox.len() || socket.ended || socket.failed;
        let mut news = if readable { IN } else { 0 } | if socket.ended { RDHUP } else { 0 };
        let conn = socket.conn;
        news |= if self.net.unsent(conn) == 0 { OUT } else { 0 };
        self.note(slot, news);
    }

    /// Waits for readiness, and tells of it by flags and value. `look` does the same for the
    /// kernel's descriptors, without waiting, and returns how many entries it used or a negative
    /// number.
    pub(crate) fn wait(
        &mut self,
        timeout_ms: i32,
        out: &mut [libc::epoll_event],
        mut look: impl FnMut(&mut [libc::epoll_event]) -> i32,
    ) -> i32 {
        let asked = u64::try_from(timeout_ms).map_or(WAIT, Duration::from_millis);
        loop {
            self.waits += 1;
            let has_connections = self.listener_token.is_some() && !self.accepted.is_empty();
            let is_busy = has_connections || !self.ready.is_empty();
            if !is_busy || self.waits.is_multiple_of(MOVES) {
                self.turn(if is_busy { Duration::ZERO } else { asked.min(WAIT) });
            }
            let told = self.tell(out);
            if told > 0 && !self.waits.is_multiple_of(LOOKS) {
                return told as i32;
            }
            let more = look(&mut out[told..]);
            if more < 0 && told == 0 {
                return more;
            }
            let all = told as i32 + more.max(0);
            // An early end is allowed, unless the program waits without limit.
            if all > 0 || timeout_ms >= 0 {
                return all;
            }
        }
    }

    fn tell(&mut self, out: &mut [libc::epoll_event]) -> usize {
        let mut told = 0;
        if let (Some(token), false) = (self.listener_token, self.accepted.is_empty() || out.is_empty()) {
            out[0] = libc::epoll_event { events: IN, u64: token };
            told = 1;
        }
        while told < out.len()
            && let Some(slot) = self.ready.pop_front()
        {
            let Some(socket) = self.socket(slot).filter(|socket| socket.queued) else { continue };
            socket.queued = false;
            let news = socket.news & (socket.wanted | ALWAYS);
            socket.news &= !news;
            if news != 0 && socket.wanted != 0 {
                out[told] = libc::epoll_event { events: news, u64: socket.token };
                told += 1;
            }
        }
        told
    }

    /// The next connection, with a descriptor that `make` provides if none is spare.
    pub(crate) fn accept(&mut self, make: impl FnOnce() -> i32) -> Result<(i32, SocketAddr), i32> {
        let slot = self.accepted.pop_front().ok_or(libc::EAGAIN)?;
        let fd = self.spare.pop().unwrap_or_else(make);
        let at = usize::try_from(fd).map_err(|_| libc::EMFILE)?;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, NONE);
        }
        let socket = self.socket(slot).ok_or(libc::ECONNABORTED)?;
        socket.fd = Some(fd);
        let peer = socket.peer;
        self.slots[at] = slot;
        Ok((fd, peer))
    }

    /// Reads received bytes; `peek`: they stay.
    pub(crate) fn read(&mut self, fd: i32, into: &mut [u8], peek: bool) -> Result<usize, i32> {
        let socket = self.slot(fd).and_then(|slot| self.socket(slot)).ok_or(libc::EBADF)?;
        let left = &socket.inbox[socket.read..];
        if left.is_empty() {
            let error = if socket.failed { libc::ECONNRESET } else { libc::EAGAIN };
            return if socket.ended { Ok(0) } else { Err(error) };
        }
        let len = left.len().min(into.len());
        into[..len].copy_from_slice(&left[..len]);
        if !peek {
            socket.read += len;
            if socket.read == socket.inbox.len() {
                socket.inbox.clear();
                socket.read = 0;
                let conn = socket.conn;
                if std::mem::take(&mut socket.paused) {
                    self.net.resume(conn);
                }
            }
        }
        Ok(len)
    }

    /// Sends bytes. A connection that has bytes beyond its send buffer takes none.
    pub(crate) fn write<'a>(&mut self, fd: i32, parts: impl Iterator<Item = &'a [u8]>) -> Result<usize, i32> {
        let socket = self.slot(fd).and_then(|slot| self.socket(slot)).ok_or(libc::EBADF)?;
        let conn = socket.conn;
        let mut sent = 0;
        for part in parts {
            if self.net.unsent(conn) > 0 {
                return if sent > 0 { Ok(sent) } else { Err(libc::EAGAIN) };
            }
            self.net.send(conn, part).map_err(|_| libc::EPIPE)?;
            sent += part.len();
        }
        Ok(sent)
    }

    /// Closes a connection. Its descriptor is kept.
    pub(crate) fn close(&mut self, fd: i32) {
        let Some(slot) = self.slot(fd) else { return };
        self.slots[fd as usize] = NONE;
        self.spare.push(fd);
        if let Some(mut socket) = self.sockets[slot as usize].take() {
            self.net.close(socket.conn, Close::Now);
            socket.inbox.clear();
            self.spare_inboxes.push(socket.inbox);
        }
    }
}
