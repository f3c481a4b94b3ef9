//! The calls. Their order of checks is Linux's (net/ipv4/tcp.c, af_inet.c): it decides which error a
//! program sees.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::{
    IN, LONGEST_QUEUE, SocketBytes, SocketFailure, SocketId, SocketOptions, SocketPhase, Sockets, StackSocket,
};
use crate::link::Link;
use crate::{Close, ConnectOptions, FlowInfo, ListenOptions, NetError, NetErrorKind, Transport};

/// Flags of one call (recv(2), send(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFlags {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// MSG_TRUNC: the bytes are dropped instead of copied.
    pub truncate: bool,
    /// MSG_NOSIGNAL: no SIGPIPE.
    pub no_signal: bool,
}

/// Directions to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// SHUT_RD.
    Read,
    /// SHUT_WR.
    Write,
    /// SHUT_RDWR.
    Both,
}

impl<L: Link> Sockets<L> {
    /// Binds an address. EINVAL if it has one or is in use.
    pub fn bind(&mut self, id: SocketId, at: SocketAddr) -> Result<(), SocketFailure> {
        let socket = self.get_mut(id)?;
        if socket.bound.is_some() || !matches!(socket.phase, SocketPhase::New) {
            return Err(libc::EINVAL.into());
        }
        socket.bound = Some(at);
        Ok(())
    }

    /// Listens at the address that was bound, and returns it with its port. One more connection than
    /// `backlog` waits to be accepted, as on Linux.
    pub fn listen(&mut self, id: SocketId, backlog: u32) -> Result<SocketAddr, SocketFailure> {
        let most = backlog.min(LONGEST_QUEUE) as usize + 1;
        let socket = self.get_mut(id)?;
        let at = socket.bound.ok_or(libc::EINVAL)?;
        if let SocketPhase::Listening { most: before, .. } = &mut socket.phase {
            *before = most;
            self.count_room(id);
            return Ok(at);
        }
        if !matches!(socket.phase, SocketPhase::New) {
            return Err(libc::EINVAL.into());
        }
        // Of handshakes: those that find the accept queue full are retransmitted until it has room.
        let options = ListenOptions { backlog: LONGEST_QUEUE, ..ListenOptions::default() };
        let (listener, at) = self.net.listen(at, &options).map_err(|_| libc::EADDRINUSE)?;
        let index = listener.index() as usize;
        if self.by_listener.len() <= index {
            self.by_listener.resize(index + 1, None);
        }
        self.by_listener[index] = Some(id);
        let socket = self.get_mut(id)?;
        socket.bound = Some(at);
        socket.phase = SocketPhase::Listening { listener, queue: VecDeque::new(), most };
        self.count_room(id);
        Ok(at)
    }

    /// Tells the stack how many connections the accept queue still takes.
    fn count_room(&mut self, id: SocketId) {
        if let Ok(StackSocket { phase: SocketPhase::Listening { listener, queue, most }, .. }) = self.get(id)
        {
            let (listener, room) = (*listener, most.saturating_sub(queue.len()) as u32);
            self.net.set_accept_room(listener, room);
        }
    }

    /// The next connection. EAGAIN if none waits, EINVAL if the socket does not listen.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddr), SocketFailure> {
        let SocketPhase::Listening { queue, .. } = &mut self.get_mut(id)?.phase else {
            return Err(libc::EINVAL.into());
        };
        let next = queue.pop_front().ok_or(libc::EAGAIN)?;
        self.count_room(id);
        let peer = self.get(next)?.peer.ok_or(libc::ECONNABORTED)?;
        Ok((next, peer))
    }

    /// Connects. EINPROGRESS at first; then EALREADY, the failure, or once success and EISCONN.
    pub fn connect(&mut self, id: SocketId, to: SocketAddr) -> Result<(), SocketFailure> {
        let socket = self.get_mut(id)?;
        let from = socket.bound.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
        match &mut socket.phase {
            SocketPhase::New => {}
            SocketPhase::Listening { .. } => return Err(libc::EISCONN.into()),
            SocketPhase::Connecting(_) => return Err(libc::EALREADY.into()),
            SocketPhase::Connected { told, .. } => {
                let told = std::mem::replace(told, true);
                return if told { Err(libc::EISCONN.into()) } else { Ok(()) };
            }
            SocketPhase::Refused => {
                (socket.phase, socket.failed) = (SocketPhase::New, false);
                (socket.receive_shut, socket.send_shut) = (false, false);
                return Err(socket.error.take().unwrap_or(libc::ECONNABORTED).into());
            }
        }
        let options = ConnectOptions { from, ..ConnectOptions::default() };
        let conn = self.net.connect(to, &options).map_err(errno_of)?;
        self.bind_conn(conn, id);
        let socket = self.get_mut(id)?;
        (socket.phase, socket.peer) = (SocketPhase::Connecting(conn), Some(to));
        Err(libc::EINPROGRESS.into())
    }

    /// Receives what is there, up to `into`. `Ok(0)`: the peer sends nothing more.
    pub fn recv(&mut self, id: SocketId, into: &mut [u8], flags: CallFlags) -> Result<usize, SocketFailure> {
        let socket = self.get(id)?;
        if matches!(socket.phase, SocketPhase::Listening { .. }) {
            return Err(libc::ENOTCONN.into());
        }
        let sides = self.sides(socket);
        let is_over = sides.is_none_or(|sides| sides.is_over);
        if let Some(conn) = socket.conn().filter(|_| sides.is_some_and(|sides| sides.unread > 0)) {
            let most = into.len();
            let mut got = 0;
            // One copy ends at an urgent byte, and the next begins behind it.
            while got < most {
                let piece = if flags.truncate { most - got } else { self.net.peek(conn, &mut into[got..]) };
                let taken = if flags.peek { piece } else { self.net.skip(conn, piece) };
                got += taken;
                if taken == 0 || flags.peek {
                    break;
                }
            }
            if !flags.peek {
                self.get_mut(id)?.bytes.read += got as u64;
            }
            return Ok(got);
        }
        let (ended, shut) = (socket.ended, socket.receive_shut);
        let connecting = matches!(socket.phase, SocketPhase::Connecting(_));
        if ended {
            return Ok(0);
        }
        if let Some(errno) = self.take_error(id)? {
            return Err(errno.into());
        }
        if shut {
            return Ok(0);
        }
        Err(if is_over && !connecting { libc::ENOTCONN } else { libc::EAGAIN }.into())
    }

    /// Sends as much as the send buffer takes. EAGAIN if it takes nothing: readiness for writing
    /// follows.
    pub fn send(&mut self, id: SocketId, bytes: &[u8], flags: CallFlags) -> Result<usize, SocketFailure> {
        let socket = self.get(id)?;
        let broken =
            |errno| SocketFailure { errno, raises_sigpipe: errno == libc::EPIPE && !flags.no_signal };
        if socket.error.is_some() {
            return Err(broken(self.take_error(id)?.unwrap_or(libc::EPIPE)));
        }
        if matches!(socket.phase, SocketPhase::Connecting(_)) && !socket.send_shut {
            self.want_room(id);
            return Err(libc::EAGAIN.into());
        }
        let is_over = self.sides(socket).is_none_or(|sides| sides.is_over);
        let Some(conn) = socket.conn().filter(|_| !is_over && !socket.send_shut) else {
            return Err(broken(libc::EPIPE));
        };
        let len = self.room(socket).min(bytes.len());
        if len < bytes.len() {
            self.want_room(id);
        }
        if len == 0 && !bytes.is_empty() {
            return Err(libc::EAGAIN.into());
        }
        match self.net.send(conn, &bytes[..len]) {
            Ok(()) => {
                self.get_mut(id)?.bytes.taken += len as u64;
                Ok(len)
            }
            Err(error) if error.kind == NetErrorKind::NoMemory => {
                self.want_room(id);
                Err(libc::EAGAIN.into())
            }
            Err(error) => {
                self.fail(id, error);
                Err(broken(self.take_error(id)?.unwrap_or(libc::EPIPE)))
            }
        }
    }

    /// Shuts down directions of a connection. ENOTCONN without one.
    pub fn shutdown(&mut self, id: SocketId, how: Shutdown) -> Result<(), SocketFailure> {
        let (reads, writes) = (how != Shutdown::Write, how != Shutdown::Read);
        let socket = self.get(id)?;
        let is_over = self.sides(socket).is_none_or(|sides| sides.is_over);
        let shut_before = socket.send_shut;
        match socket.phase {
            SocketPhase::Listening { .. } => {
                if reads {
                    self.unlisten(id)?;
                    self.note(id, 0);
                }
                return Ok(());
            }
            SocketPhase::Connecting(conn) => {
                self.net.close(conn, Close::Abort);
                let socket = self.get_mut(id)?;
                (socket.phase, socket.error) = (SocketPhase::New, Some(libc::ECONNRESET));
                self.note(id, 0);
                return Ok(());
            }
            SocketPhase::Connected { conn, .. } if writes && !is_over && !shut_before => {
                self.net.finish(conn)
            }
            _ => {}
        }
        let socket = self.get_mut(id)?;
        socket.receive_shut |= reads;
        socket.send_shut |= writes;
        if let (Some(conn), true, true) = (socket.conn(), socket.receive_shut, socket.send_shut) {
            // Linux: TCPABORTONDATA.
            self.net.refuse_bytes(conn);
        }
        self.note(id, 0);
        if is_over { Err(libc::ENOTCONN.into()) } else { Ok(()) }
    }

    /// Closes a socket: the number is invalid afterwards. Bytes on their way still arrive, unless
    /// received ones are unread or the options say that it resets.
    pub fn close(&mut self, id: SocketId) -> Result<(), SocketFailure> {
        let socket = self.get(id)?;
        let resets = socket.options.resets_at_close;
        match socket.phase {
            SocketPhase::Listening { .. } => self.unlisten(id)?,
            SocketPhase::Connecting(conn) => self.net.close(conn, Close::Abort),
            SocketPhase::Connected { conn, .. } => {
                let sides = self.net.sides(conn);
                let over = sides.is_none_or(|sides| sides.is_over);
                let unread = sides.is_some_and(|sides| sides.unread > 0);
                self.net.close(conn, if (resets || unread) && !over { Close::Abort } else { Close::Now });
            }
            SocketPhase::New | SocketPhase::Refused => {}
        }
        let place = &mut self.slots[id.slot as usize];
        place.socket = None;
        // A slot whose numbers are used up is not used again.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(id.slot);
        }
        Ok(())
    }

    /// Stops listening, and resets what was not accepted.
    fn unlisten(&mut self, id: SocketId) -> Result<(), SocketFailure> {
        let phase = std::mem::replace(&mut self.get_mut(id)?.phase, SocketPhase::New);
        let SocketPhase::Listening { listener, queue, .. } = phase else { return Ok(()) };
        self.net.unlisten(listener);
        self.by_listener[listener.index() as usize] = None;
        for waiting in queue {
            self.get_mut(waiting)?.options.resets_at_close = true;
            self.close(waiting)?;
        }
        Ok(())
    }

    /// SO_ERROR: the pending error, which is then forgotten.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<i32>, SocketFailure> {
        Ok(self.get_mut(id)?.error.take())
    }

    /// The options of a socket, to read and to set.
    pub fn options_mut(&mut self, id: SocketId) -> Result<&mut SocketOptions, SocketFailure> {
        Ok(&mut self.get_mut(id)?.options)
    }

    /// Bytes that can be read now (SIOCINQ), and those that the peer has not acknowledged (SIOCOUTQ).
    pub fn queued(&self, id: SocketId) -> Result<(usize, usize), SocketFailure> {
        let socket = self.get(id)?;
        let unread = self.sides(socket).map_or(0, |sides| sides.unread);
        Ok((unread, socket.conn().map_or(0, |conn| self.net.unacknowledged(conn))))
    }

    /// Our end. ENOTCONN if it has none.
    pub fn local(&mut self, id: SocketId) -> Result<SocketAddr, SocketFailure> {
        let socket = self.get(id)?;
        let (conn, bound) = (socket.conn(), socket.bound);
        let local = conn.and_then(|conn| self.net.local(conn)).or(bound);
        Ok(local.ok_or(libc::ENOTCONN)?)
    }

    /// The peer of a connection. ENOTCONN without one, or once it is over.
    pub fn peer(&self, id: SocketId) -> Result<SocketAddr, SocketFailure> {
        let socket = self.get(id)?;
        let lives = matches!(socket.phase, SocketPhase::Connected { .. })
            && self.sides(socket).is_some_and(|sides| !sides.is_over);
        Ok(socket.peer.filter(|_| lives).ok_or(libc::ENOTCONN)?)
    }

    /// TCP_INFO: the connection as `ss` shows it. ENOTCONN without one.
    pub fn info(&self, id: SocketId) -> Result<FlowInfo, SocketFailure> {
        let conn = self.get(id)?.conn().ok_or(libc::ENOTCONN)?;
        Ok(self.net.flow_info(conn).ok_or(libc::ENOTCONN)?)
    }

    /// What a socket has moved so far.
    pub fn bytes(&self, id: SocketId) -> Result<SocketBytes, SocketFailure> {
        Ok(self.get(id)?.bytes)
    }

    /// Free bytes of the send buffer.
    fn room(&self, socket: &StackSocket) -> usize {
        let Some(conn) = socket.conn() else { return 0 };
        match socket.options.sndbuf {
            Some(most) => (most as usize).saturating_sub(self.net.unacknowledged(conn)),
            None => self.net.send_room(conn),
        }
    }

    /// Whether the send buffer counts as writable: a third of it is free, as on Linux.
    pub(super) fn is_writable(&self, socket: &StackSocket) -> bool {
        let Some(conn) = socket.conn() else { return true };
        if socket.send_shut {
            return true;
        }
        let queued = self.net.unacknowledged(conn);
        let room = self.room(socket);
        room > 0 && room >= queued / 2
    }

    /// Has readiness for writing told once there is room.
    pub(super) fn want_room(&mut self, id: SocketId) {
        if let Ok(socket) = self.get_mut(id)
            && !std::mem::replace(&mut socket.wants_room, true)
        {
            self.wanting.push(id);
        }
    }

    /// What a socket is ready for now.
    pub fn readiness(&self, id: SocketId) -> Result<u32, SocketFailure> {
        let socket = self.get(id)?;
        let error = if socket.error.is_some() { super::ERR } else { 0 };
        if let SocketPhase::Listening { queue, .. } = &socket.phase {
            return Ok(if queue.is_empty() { 0 } else { IN });
        }
        let connecting = matches!(socket.phase, SocketPhase::Connecting(_));
        let sides = self.sides(socket);
        let over = sides.is_none_or(|sides| sides.is_over);
        let mut mask = error;
        if (socket.receive_shut && socket.send_shut) || (over && !connecting) {
            mask |= super::HUP;
        }
        if socket.receive_shut || (over && socket.conn().is_some() && !connecting) {
            mask |= IN | super::RDHUP;
        }
        if !connecting {
            let least = socket.options.rcvlowat.max(1) as usize;
            mask |= if sides.is_some_and(|sides| sides.unread >= least) { IN } else { 0 };
            mask |= if self.is_writable(socket) { super::OUT } else { 0 };
        }
        Ok(mask)
    }
}

fn errno_of(error: NetError) -> i32 {
    match error.kind {
        _ if error.errno != 0 => error.errno,
        NetErrorKind::PortsExhausted => libc::EADDRNOTAVAIL,
        NetErrorKind::NoMemory => libc::ENOBUFS,
        NetErrorKind::Unreachable => libc::ENETUNREACH,
        _ => libc::EINVAL,
    }
}
