//! The stack, packetdrill's descriptors, and the clock.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_net::stack::{Stack, StackOptions, UseOfEcn};
use linerate_net::{
    After, Close, Conn, ConnectOptions, Data, Event, FlowState, ListenOptions, NetError, NetErrorKind, Time,
    Transport, TransportLimits,
};

use crate::limits::{BYTES, CALL, IDLE_TURNS, PACKET, TURNS};
use crate::socket::{Descriptor, Role, ScriptedConnection, ScriptedListener, Socket};
use crate::wire::ScriptedWire;

/// Our first descriptor; the kernel's are smaller.
const FIRST: i32 = 1 << 20;
/// The time at which a script begins.
const BEGIN: Time = Time::from_nanos(1_000_000_000_000_000);

/// Automatically chosen ports are above this one.
const PORTS: u16 = 50_000;

/// The result of a call: a number, or an errno.
pub type Answer = Result<i64, i32>;

/// The state behind packetdrill's calls.
pub struct DrillWorld {
    stack: Stack<ScriptedWire>,
    events: Vec<Event>,
    descriptors: HashMap<i32, Descriptor>,
    next: i32,
    /// When the packet that was last read had left.
    read_at: Time,
    /// The interface's own addresses.
    addresses: Vec<IpAddr>,
    /// The last port that was chosen automatically.
    port: u16,
}

impl DrillWorld {
    /// A machine without listeners.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<DrillWorld> {
        // A half-closed connection stays as long as a script wants.
        let limits = TransportLimits { closing_time: PACKET, ..TransportLimits::default() };
        let options = StackOptions { seed: Some(1), limits, ..StackOptions::default() };
        let stack = Stack::new(ScriptedWire::new(BEGIN)?, options);
        let (events, descriptors, addresses) = (Vec::new(), HashMap::new(), Vec::new());
        Ok(DrillWorld { stack, events, descriptors, next: FIRST, read_at: BEGIN, addresses, port: PORTS })
    }

    /// Whether a descriptor is ours.
    pub fn has(&self, fd: i32) -> bool {
        self.descriptors.contains_key(&fd)
    }

    /// The current time; each reading advances it by a microsecond, so that a caller that only
    /// reads the clock sees time pass.
    pub fn clock(&mut self) -> Time {
        let now = self.stack.link().now + Duration::from_micros(1);
        self.stack.link_mut().now = now;
        now
    }

    /// When the packet that was last read had left.
    pub fn read_at(&self) -> Time {
        self.read_at
    }

    /// Lets time pass.
    pub fn sleep(&mut self, time: Duration) {
        let until = self.stack.link().now + time;
        self.pass_until(until, |_| false);
    }

    /// Adds an address of the interface; the last one of a family is the source of connections.
    pub fn add_address(&mut self, address: IpAddr) {
        self.addresses.push(address);
    }

    /// The largest packet of the interface.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.stack.link_mut().mtu = mtu;
    }

    /// How connections use ECN from now on, as a value of Linux's `tcp_ecn`.
    pub fn set_ecn(&mut self, value: u8) {
        self.stack.use_ecn(UseOfEcn::of_sysctl(value));
    }

    /// A descriptor for the interface.
    pub fn open_interface(&mut self) -> i64 {
        self.add(Descriptor::Interface)
    }

    /// Opens another socket: a packet socket, or one that only configures the interface.
    pub fn open_other(&mut self, packets: bool) -> i64 {
        self.add(if packets { Descriptor::Packets } else { Descriptor::Control })
    }

    /// A TCP socket.
    pub fn open_socket(&mut self) -> i64 {
        self.add(Descriptor::Tcp(Socket::new(Role::Fresh)))
    }

    fn add(&mut self, descriptor: Descriptor) -> i64 {
        let fd = self.next;
        self.next += 1;
        self.descriptors.insert(fd, descriptor);
        i64::from(fd)
    }

    fn socket(&mut self, fd: i32) -> Result<&mut Socket, i32> {
        match self.descriptors.get_mut(&fd) {
            Some(Descriptor::Tcp(socket)) => Ok(socket),
            Some(_) => Err(libc::ENOTSOCK),
            None => Err(libc::EBADF),
        }
    }

    fn connection(&mut self, fd: i32) -> Result<&mut ScriptedConnection, i32> {
        self.socket(fd)?.connection().ok_or(libc::ENOTCONN)
    }

    /// Lets the stack do everything that is due now.
    fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..TURNS {
            if !self.turn(Time::ZERO) {
                idle += 1;
            }
            if idle > IDLE_TURNS {
                return;
            }
        }
    }

    /// Runs one turn and delivers its events to their sockets. Returns whether there were any.
    fn turn(&mut self, until: Time) -> bool {
        let mut events = std::mem::take(&mut self.events);
        // The link never fails.
        let _ = self.stack.turn(Some(until), &mut events);
        let any = !events.is_empty();
        events.drain(..).for_each(|event| self.note(event));
        self.events = events;
        any
    }

    /// Lets time pass until then, or until `done`.
    fn pass_until(&mut self, until: Time, done: impl Fn(&DrillWorld) -> bool) -> bool {
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if self.stack.link().now >= until {
                return false;
            }
            self.turn(until);
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, conn, peer } => {
                let listens = self.descriptors.values_mut().find_map(|descriptor| match descriptor {
                    Descriptor::Tcp(Socket { role: Role::Listens(listening), .. })
                        if listening.listener == listener =>
                    {
                        Some(listening)
                    }
                    _ => None,
                });
                if let Some(listening) = listens {
                    listening.queue.push_back((conn, peer, None));
                }
            }
            Event::Connected { conn, .. } => self.with(conn, |connection| connection.connected = true),
            Event::Readable { conn, data } => self.claim(conn, data),
            Event::Failed { conn, error } => self.with(conn, |connection| connection.error = Some(error)),
            Event::Drained { .. } | Event::Woken => {}
        }
    }

    fn with(&mut self, conn: Conn, change: impl FnOnce(&mut ScriptedConnection)) {
        let mut all = self.descriptors.values_mut();
        let found = all.find_map(|descriptor| match descriptor {
            Descriptor::Tcp(socket) => socket.connection().filter(|connection| connection.conn == conn),
            _ => None,
        });
        if let Some(connection) = found {
            change(connection);
        }
    }

    /// Bytes stay in the stack until the application reads them, so that its window reflects that.
    fn claim(&mut self, conn: Conn, data: Data) {
        let mut data = Some(data);
        self.with(conn, |connection| connection.claim = data.take());
        let queues = self.descriptors.values_mut().filter_map(|descriptor| match descriptor {
            Descriptor::Tcp(Socket { role: Role::Listens(listening), .. }) => Some(&mut listening.queue),
            _ => None,
        });
        for (_, _, claim) in queues.flatten().filter(|(waiting, ..)| *waiting == conn) {
            if data.is_some() {
                *claim = data.take();
            }
        }
        if let Some(data) = data {
            // The application has closed this connection.
            self.stack.receive(data, |_| {});
        }
    }

    /// Takes a connection's bytes from the stack.
    fn take(&mut self, fd: i32) -> Result<(), i32> {
        let Some(data) = self.connection(fd)?.claim.take() else { return Ok(()) };
        let mut bytes = Vec::new();
        let after = self.stack.receive(data, |piece| bytes.extend_from_slice(piece));
        let connection = self.connection(fd)?;
        connection.inbox.extend(bytes);
        match after {
            After::Ended => connection.ended = true,
            After::Failed(error) => connection.error = Some(error),
            After::Open | After::Gone => {}
        }
        Ok(())
    }

    /// `fcntl`: reads or sets whether calls may block.
    ///
    /// # Errors
    /// An errno.
    pub fn fcntl(&mut self, fd: i32, command: i32, argument: i64) -> Answer {
        let socket = self.socket(fd)?;
        match command {
            libc::F_GETFL => {
                let flags = if socket.blocking { libc::O_RDWR } else { libc::O_RDWR | libc::O_NONBLOCK };
                Ok(i64::from(flags))
            }
            libc::F_SETFL => {
                socket.blocking = argument & i64::from(libc::O_NONBLOCK) == 0;
                Ok(0)
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// `bind`.
    ///
    /// # Errors
    /// An errno.
    pub fn bind(&mut self, fd: i32, mut at: SocketAddr) -> Answer {
        if at.port() == 0 {
            self.port += 1;
            at.set_port(self.port);
        }
        self.socket(fd)?.bound = Some(at);
        Ok(0)
    }

    /// `getsockname`, for a bound socket.
    ///
    /// # Errors
    /// An errno.
    pub fn local(&mut self, fd: i32) -> Result<SocketAddr, i32> {
        self.socket(fd)?.bound.ok_or(libc::EINVAL)
    }

    /// Whether a descriptor is the interface.
    pub fn is_interface(&self, fd: i32) -> bool {
        matches!(self.descriptors.get(&fd), Some(Descriptor::Interface))
    }

    /// `listen`.
    ///
    /// # Errors
    /// An errno.
    pub fn listen(&mut self, fd: i32, backlog: u32) -> Answer {
        let at = self.socket(fd)?.bound.ok_or(libc::EDESTADDRREQ)?;
        let options = ListenOptions { backlog, ..ListenOptions::default() };
        let (listener, _) = self.stack.listen(at, &options).map_err(errno)?;
        self.socket(fd)?.role = Role::Listens(ScriptedListener { listener, queue: Default::default() });
        Ok(0)
    }

    /// `accept`: returns the new descriptor and the peer.
    ///
    /// # Errors
    /// An errno.
    pub fn accept(&mut self, fd: i32) -> Result<(i64, SocketAddr), i32> {
        self.wait_for(
            fd,
            |socket| matches!(&socket.role, Role::Listens(listening) if !listening.queue.is_empty()),
        )?;
        let Role::Listens(listening) = &mut self.socket(fd)?.role else { return Err(libc::EINVAL) };
        let (conn, peer, claim) = listening.queue.pop_front().ok_or(libc::EWOULDBLOCK)?;
        let connection = ScriptedConnection { claim, ..ScriptedConnection::new(conn, peer, true) };
        let accepted = self.add(Descriptor::Tcp(Socket::new(Role::Connection(connection))));
        Ok((accepted, peer))
    }

    /// `connect`. A port that was bound before cannot be used.
    ///
    /// # Errors
    /// An errno.
    pub fn connect(&mut self, fd: i32, to: SocketAddr) -> Answer {
        let socket = self.socket(fd)?;
        if socket.bound.is_some() {
            return Err(libc::EOPNOTSUPP);
        }
        if !matches!(socket.role, Role::Fresh) {
            return Err(libc::EISCONN);
        }
        let from = self.addresses.iter().rev().find(|address| address.is_ipv4() == to.is_ipv4()).copied();
        let options = ConnectOptions { from, ..ConnectOptions::default() };
        let conn = self.stack.connect(to, &options).map_err(errno)?;
        let socket = self.socket(fd)?;
        socket.role = Role::Connection(ScriptedConnection::new(conn, to, false));
        if !socket.blocking {
            self.settle();
            return Err(libc::EINPROGRESS);
        }
        self.wait_for(fd, |socket| match &socket.role {
            Role::Connection(connection) => connection.connected || connection.error.is_some(),
            _ => true,
        })?;
        match self.connection(fd)?.error {
            Some(error) => Err(errno(error)),
            None => Ok(0),
        }
    }

    /// Waits a little if a call may block. If still nothing is there, the call would block.
    fn wait_for(&mut self, fd: i32, ready: impl Fn(&Socket) -> bool) -> Result<(), i32> {
        self.settle();
        let patience = if self.socket(fd)?.blocking { CALL } else { Duration::ZERO };
        let until = self.stack.link().now + patience;
        let done = |world: &DrillWorld| match world.descriptors.get(&fd) {
            Some(Descriptor::Tcp(socket)) => ready(socket),
            _ => true,
        };
        if self.pass_until(until, done) { Ok(()) } else { Err(libc::EWOULDBLOCK) }
    }

    /// `recv` and `read`.
    ///
    /// # Errors
    /// An errno.
    pub fn receive(&mut self, fd: i32, len: usize, peek: bool) -> Result<Vec<u8>, i32> {
        let len = len.min(BYTES);
        self.settle();
        if peek {
            return Ok(vec![0; self.waiting(fd)?.min(len)]);
        }
        self.wait_for(fd, |socket| match &socket.role {
            Role::Connection(connection) => connection.is_readable(),
            Role::Fresh | Role::Listens(_) => true,
        })?;
        if self.connection(fd)?.inbox.is_empty() {
            self.take(fd)?;
        }
        let connection = self.connection(fd)?;
        let count = len.min(connection.inbox.len());
        if count > 0 {
            return Ok(connection.inbox.drain(..count).collect());
        }
        match connection.error.take() {
            Some(error) => Err(errno(error)),
            None if connection.ended || connection.shut.is_some() => Ok(Vec::new()),
            None => Err(libc::EWOULDBLOCK),
        }
    }

    /// Bytes that wait for the application, here and in the stack.
    fn waiting(&mut self, fd: i32) -> Result<usize, i32> {
        let connection = self.connection(fd)?;
        let (peer, here) = (connection.peer, connection.inbox.len());
        let mut unread = 0;
        self.stack
            .flows(0, usize::MAX, |flow| unread += if flow.remote == peer { flow.unread_bytes } else { 0 });
        Ok(here + unread)
    }

    /// `send` and `write`.
    ///
    /// # Errors
    /// An errno.
    pub fn send(&mut self, fd: i32, bytes: &[u8]) -> Answer {
        let connection = self.connection(fd)?;
        if connection.shut.is_some() {
            return Err(libc::EPIPE);
        }
        let conn = connection.conn;
        self.stack.send(conn, bytes).map_err(errno)?;
        self.settle();
        Ok(bytes.len() as i64)
    }

    /// `shutdown`: closes our side; the stack then reads by itself. Shutting down only the reading
    /// side is not supported.
    ///
    /// # Errors
    /// An errno.
    pub fn shutdown(&mut self, fd: i32, how: i32) -> Answer {
        if how == libc::SHUT_RD {
            return Err(libc::EOPNOTSUPP);
        }
        self.settle();
        self.take(fd)?;
        let resets = self.stack.stats().resets_in;
        let connection = self.connection(fd)?;
        if let Some(error) = connection.error {
            return Err(errno(error));
        }
        let conn = connection.conn;
        if connection.shut.is_none() {
            connection.shut = Some(resets);
            self.stack.close(conn, Close::Lingering);
        }
        self.settle();
        Ok(0)
    }

    /// `close`.
    ///
    /// # Errors
    /// An errno.
    pub fn close(&mut self, fd: i32) -> Answer {
        self.settle();
        let descriptor = self.descriptors.remove(&fd).ok_or(libc::EBADF)?;
        if let Descriptor::Tcp(socket) = descriptor {
            match socket.role {
                Role::Fresh => {}
                Role::Listens(listening) => {
                    self.stack.unlisten(listening.listener);
                    for (conn, ..) in listening.queue {
                        self.stack.close(conn, Close::Abort);
                    }
                }
                Role::Connection(connection) => {
                    self.stack.close(connection.conn, Close::Now);
                    if let Some(data) = connection.claim {
                        // Every claim must be released, also that of a closed connection.
                        self.stack.receive(data, |_| {});
                    }
                }
            }
        }
        self.settle();
        Ok(0)
    }

    /// The pending error, an errno or 0 (`SO_ERROR`).
    ///
    /// # Errors
    /// An errno.
    pub fn take_error(&mut self, fd: i32) -> Answer {
        self.settle();
        if self.socket(fd)?.connection().is_none() {
            return Ok(0);
        }
        if self.waiting(fd)? == 0 {
            // The end, and what came after it.
            self.take(fd)?;
            self.settle();
            self.take(fd)?;
        }
        let resets = self.stack.stats().resets_in;
        let connection = self.connection(fd)?;
        let error = connection.error.take().map_or(0, errno);
        // After a half-close, only the stack's counters show what becomes of a connection.
        let reset = connection.shut.is_some_and(|before| before < resets);
        if reset {
            connection.shut = Some(resets);
        }
        Ok(i64::from(if reset { libc::ECONNRESET } else { error }))
    }

    /// Payload of a full segment (`TCP_MAXSEG`).
    ///
    /// # Errors
    /// An errno.
    pub fn segment(&mut self, fd: i32) -> Answer {
        let peer = self.connection(fd)?.peer;
        let mut mss = None;
        self.stack.flows(0, usize::MAX, |flow| {
            if flow.remote == peer {
                mss = Some(i64::from(flow.mss_bytes));
            }
        });
        mss.ok_or(libc::ENOTCONN)
    }

    /// Delivers a packet to the stack.
    ///
    /// # Errors
    /// An errno.
    pub fn write_packet(&mut self, packet: &[u8]) -> Answer {
        self.settle();
        self.stack.link_mut().inbox.push_back(packet.to_vec());
        self.settle();
        Ok(packet.len() as i64)
    }

    /// The next packet that the stack sends; `None` if no more come.
    pub fn read_packet(&mut self) -> Option<Vec<u8>> {
        let until = self.stack.link().now + PACKET;
        self.pass_until(until, |world| !world.stack.link().outbox.is_empty());
        let (at, packet) = self.stack.link_mut().outbox.pop_front()?;
        self.read_at = at;
        Some(packet)
    }

    /// Whether this many connections are in a state that `sockstat` knows; `None` for an unknown
    /// state.
    pub fn counts(&mut self, state: &str, count: usize) -> Option<bool> {
        self.settle();
        let (handshakes, remembered) = self.stack.waiting();
        let is = match state {
            "TIME_WAIT" => remembered - self.stack.half_closed().min(remembered),
            "SYN_RCVD" => {
                let mut crossed = 0;
                let received = FlowState::SynReceived;
                self.stack.flows(0, usize::MAX, |flow| crossed += usize::from(flow.state == received));
                handshakes + crossed
            }
            _ => return None,
        };
        Some(is == count)
    }
}

fn errno(error: NetError) -> i32 {
    match error.kind {
        NetErrorKind::Refused => libc::ECONNREFUSED,
        NetErrorKind::Reset => libc::ECONNRESET,
        NetErrorKind::TimedOut => libc::ETIMEDOUT,
        NetErrorKind::Unreachable => libc::EHOSTUNREACH,
        NetErrorKind::PortsExhausted => libc::EADDRNOTAVAIL,
        NetErrorKind::AddressInUse => libc::EADDRINUSE,
        NetErrorKind::NoMemory => libc::ENOBUFS,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "192.0.2.1:80";

    fn worlds() -> (DrillWorld, DrillWorld) {
        let world = |address: &str| {
            let mut world = DrillWorld::new().expect("a descriptor");
            world.add_address(address.parse().expect("an address"));
            world
        };
        (world("192.0.2.1"), world("192.0.2.2"))
    }

    /// Delivers all sent packets in both directions.
    fn exchange(one: &mut DrillWorld, other: &mut DrillWorld) {
        for _ in 0..4 {
            one.settle();
            while let Some((_, packet)) = one.stack.link_mut().outbox.pop_front() {
                other.write_packet(&packet).expect("it is taken");
            }
            while let Some((_, packet)) = other.stack.link_mut().outbox.pop_front() {
                one.write_packet(&packet).expect("it is taken");
            }
        }
    }

    fn socket(world: &mut DrillWorld) -> i32 {
        let fd = world.open_socket() as i32;
        assert_eq!(world.fcntl(fd, libc::F_SETFL, i64::from(libc::O_NONBLOCK)), Ok(0));
        fd
    }

    /// Two worlds, and the calls that scripts make.
    #[test]
    fn a_connection_by_calls() {
        let (mut server, mut client) = worlds();
        let at: SocketAddr = SERVER.parse().expect("an address");
        let (listens, asks) = (socket(&mut server), socket(&mut client));
        assert_eq!(server.bind(listens, at), Ok(0));
        assert_eq!(server.listen(listens, 1), Ok(0));
        assert_eq!(server.accept(listens), Err(libc::EWOULDBLOCK));
        assert_eq!(client.connect(asks, at), Err(libc::EINPROGRESS));
        assert_eq!(client.take_error(asks), Ok(0));
        exchange(&mut client, &mut server);
        let accepted = server.accept(listens).expect("a connection").0 as i32;
        assert_eq!(client.send(asks, b"hello"), Ok(5));
        exchange(&mut client, &mut server);
        assert_eq!(server.receive(accepted, 100, true).map(|bytes| bytes.len()), Ok(5));
        assert_eq!(server.receive(accepted, 100, false), Ok(b"hello".to_vec()));
        assert_eq!(server.segment(accepted), Ok(1448));
        // The client closes first, so it has the TIME_WAIT.
        assert_eq!(client.shutdown(asks, libc::SHUT_WR), Ok(0));
        assert_eq!(client.send(asks, b"more"), Err(libc::EPIPE));
        exchange(&mut client, &mut server);
        assert_eq!(server.receive(accepted, 100, false), Ok(Vec::new()));
        assert_eq!(server.close(accepted), Ok(0));
        exchange(&mut client, &mut server);
        assert_eq!(client.counts("TIME_WAIT", 1), Some(true));
        assert_eq!((client.take_error(asks), client.close(asks)), (Ok(0), Ok(0)));
    }

    #[test]
    fn a_closed_port_refuses() {
        let (mut server, mut client) = worlds();
        let asks = socket(&mut client);
        assert_eq!(client.connect(asks, SERVER.parse().expect("an address")), Err(libc::EINPROGRESS));
        exchange(&mut client, &mut server);
        assert_eq!(client.take_error(asks), Ok(i64::from(libc::ECONNREFUSED)));
    }

    /// Only calls advance the time, and a packet that waits for a timer is found.
    #[test]
    fn time_is_virtual() {
        let (_, mut client) = worlds();
        let asks = socket(&mut client);
        let begin = client.clock();
        let _ = client.connect(asks, SERVER.parse().expect("an address"));
        assert!(client.read_packet().is_some());
        assert!(client.clock() - begin < Duration::from_millis(1));
        // The SYN is retransmitted after a second.
        assert!(client.read_packet().is_some());
        let waited = client.read_at() - begin;
        assert!(waited >= Duration::from_secs(1) && waited < Duration::from_millis(1010), "{waited:?}");
        client.sleep(Duration::from_secs(500));
        assert_eq!(client.take_error(asks), Ok(i64::from(libc::ETIMEDOUT)));
    }
}
