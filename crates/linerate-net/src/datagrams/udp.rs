//! The kernel's UDP by epoll, edge-triggered.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{
    DatagramCounts, DatagramOptions, DatagramSocket, DatagramSteering, Datagrams, DatagramsAfter,
    DatagramsToSend, ReceivedDatagrams,
};
use crate::clock::monotonic;
use crate::sys::udp::{self, MESSAGES, ReceiveRoom, SendAs};
use crate::sys::{EventFd, Interest, Poll};
use crate::table::Table;
use crate::{Conn, NetError, Time, Waker};

/// Events of one wait. Reason: what comes first must not get old while the rest is handled.
const EVENTS: usize = 256;

/// Receives of one socket in one turn. Reason: other sockets have theirs, and what came must be answered.
const RECEIVES: usize = 4;

/// Messages of one receive from a socket with one peer. Reason: what it sent in a row comes as one; a
/// second one tells whether there are more.
const MESSAGES_OF_ONE: usize = 2;

/// The token of the waker.
const WAKER: u64 = u64::MAX;

struct UdpSocket {
    fd: OwnedFd,
    peer: Option<SocketAddr>,
    /// It is reported, or in the list of those to report.
    reported: bool,
    /// Datagrams it had dropped when it said so last.
    drops: u32,
}

/// The kernel's UDP by epoll.
pub struct UdpEpoll {
    poll: Poll,
    wake: Arc<EventFd>,
    table: Table<UdpSocket>,
    room: ReceiveRoom,
    /// They have more than one turn's share.
    again: VecDeque<DatagramSocket>,
    counts: DatagramCounts,
    /// Sends may carry several datagrams.
    has_segments: bool,
}

impl UdpEpoll {
    /// For at most so many sockets at once.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new(sockets: u32) -> io::Result<UdpEpoll> {
        let poll = Poll::new(EVENTS)?;
        let wake = Arc::new(EventFd::new()?);
        poll.add(&*wake, Interest::Read, WAKER)?;
        Ok(UdpEpoll {
            poll,
            wake,
            table: Table::new(sockets),
            room: ReceiveRoom::new(),
            again: VecDeque::new(),
            counts: DatagramCounts::default(),
            has_segments: true,
        })
    }

    /// Another descriptor of the instance, to wait for in an event loop of somebody else. It is readable
    /// when a turn may find something. Take turns until one finds nothing before you wait again.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.poll.descriptor()
    }

    fn send_one_by_one(&mut self, socket: DatagramSocket, out: &DatagramsToSend<'_>) -> Result<(), NetError> {
        for datagram in out.bytes.chunks(out.segment.max(1)) {
            self.send_together(socket, &DatagramsToSend { bytes: datagram, ..*out })?;
        }
        Ok(())
    }

    fn send_together(&mut self, socket: DatagramSocket, out: &DatagramsToSend<'_>) -> Result<(), NetError> {
        let Some(held) = self.table.get(socket.0) else { return Ok(()) };
        let datagrams = out.bytes.len().div_ceil(out.segment.max(1)) as u64;
        let segment = if datagrams > 1 { u16::try_from(out.segment).ok() } else { None };
        let to = if held.peer.is_some() { None } else { Some(out.to) };
        let sent =
            udp::send(&held.fd, &SendAs { to, from: out.from, ecn: out.ecn, segment, bytes: out.bytes });
        self.counts.send_calls += 1;
        match sent {
            Ok(()) => self.counts.sent += datagrams,
            Err(e) => match e.raw_os_error() {
                // Lost here as it might be on the way.
                Some(libc::EAGAIN | libc::ENOBUFS) => self.counts.not_sent += datagrams,
                Some(libc::EMSGSIZE) => self.counts.too_long += datagrams,
                // The interface cannot cut them (no checksum offload): the kernel refuses all of them.
                Some(libc::EIO | libc::EINVAL) if segment.is_some() => {
                    self.has_segments = false;
                    return self.send_one_by_one(socket, out);
                }
                _ => return Err(e.into()),
            },
        }
        Ok(())
    }
}

impl Datagrams for UdpEpoll {
    fn now(&mut self) -> Time {
        monotonic()
    }

    fn open(&mut self, options: &DatagramOptions) -> Result<(DatagramSocket, SocketAddr), NetError> {
        let (fd, at) = udp::open(options.at, options.peer, options.reuse_port, options.buffer_bytes)?;
        self.has_segments = self.has_segments && udp::has_segments(&fd);
        let held = UdpSocket { fd, peer: options.peer, reported: false, drops: 0 };
        let conn = self.table.insert(held).map_err(|_| NetError::from_errno(libc::ENOBUFS))?;
        let token = u64::from(conn.generation) << 32 | u64::from(conn.slot);
        let added = self.table.get(conn).map(|held| self.poll.add(&held.fd, Interest::Read, token));
        if let Some(Err(error)) = added {
            drop(self.table.remove(conn));
            return Err(error.into());
        }
        Ok((DatagramSocket(conn), at))
    }

    fn steer(&mut self, socket: DatagramSocket, by: &DatagramSteering) -> Result<(), NetError> {
        let Some(held) = self.table.get(socket.0) else { return Ok(()) };
        Ok(udp::steer(&held.fd, by.at, by.key, by.sockets)?)
    }

    fn close(&mut self, socket: DatagramSocket) {
        drop(self.table.remove(socket.0));
    }

    fn turn(&mut self, until: Option<Time>, ready: &mut Vec<DatagramSocket>) -> io::Result<()> {
        let before = ready.len();
        while let Some(socket) = self.again.pop_front() {
            if self.table.get(socket.0).is_some() {
                ready.push(socket);
            }
        }
        let until = if ready.len() > before { Some(Time::ZERO) } else { until };
        let limit = until.filter(|until| *until != Time::NEVER).map(|until| until - monotonic());
        for n in 0..self.poll.wait(limit)? {
            let (token, _) = self.poll.event(n);
            if token == WAKER {
                continue;
            }
            let conn = Conn { slot: token as u32, generation: (token >> 32) as u32 };
            let Some(held) = self.table.get_mut(conn).filter(|held| !held.reported) else { continue };
            held.reported = true;
            ready.push(DatagramSocket(conn));
        }
        Ok(())
    }

    fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    fn receive(
        &mut self,
        socket: DatagramSocket,
        mut take: impl FnMut(ReceivedDatagrams<'_>),
    ) -> DatagramsAfter {
        let UdpEpoll { table, room, counts, again, .. } = self;
        let Some(held) = table.get_mut(socket.0) else { return DatagramsAfter::Empty };
        let most = if held.peer.is_some() { MESSAGES_OF_ONE } else { MESSAGES };
        for _ in 0..RECEIVES {
            let came = match udp::receive(&held.fd, room, most) {
                Ok(came) => came,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => 0,
                Err(e) => {
                    // The error is taken away by this, and datagrams may wait behind it.
                    again.push_back(socket);
                    return DatagramsAfter::Failed(e.into());
                }
            };
            counts.receive_calls += 1;
            for n in 0..came {
                let message = room.message(n);
                if let Some(drops) = message.drops {
                    counts.dropped += u64::from(drops.wrapping_sub(held.drops));
                    held.drops = drops;
                }
                let Some(peer) = message.peer else { continue };
                let datagrams = message.bytes.len().div_ceil(message.segment) as u64;
                counts.received += datagrams;
                counts.marked += if message.ecn == 3 { datagrams } else { 0 };
                let (local, ecn, segment) = (message.local, message.ecn, message.segment);
                take(ReceivedDatagrams { peer, local, ecn, segment, bytes: message.bytes });
            }
            if came < most {
                held.reported = false;
                return DatagramsAfter::Empty;
            }
        }
        again.push_back(socket);
        DatagramsAfter::More
    }

    fn send(&mut self, socket: DatagramSocket, out: &DatagramsToSend<'_>) -> Result<(), NetError> {
        if self.has_segments || out.bytes.len() <= out.segment {
            return self.send_together(socket, out);
        }
        self.send_one_by_one(socket, out)
    }

    fn counts(&self) -> DatagramCounts {
        self.counts
    }

    fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    fn name(&self) -> &'static str {
        "epoll"
    }
}
