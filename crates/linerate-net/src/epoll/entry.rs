//! One connection of the epoll transport.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use crate::closing::Closing;
use crate::limits::{DISCARDED_BY_CALL, ONE_SEGMENT};
use crate::outbox::{LentTable, Outbox};
use crate::sys::{self, Interest, PollEvent, socket};
use crate::{After, Ahead, NetError, NetErrorKind, ReceivedPiece};

/// The state of a connection. Invariants: bytes wait in `outbox` only while the socket takes none (or is connecting);
/// `readable` stays set until a read has found the socket empty.
pub(super) struct EpollConnection {
    pub(super) fd: OwnedFd,
    pub(super) outbox: Outbox,
    /// Why sending or connecting failed; from then on nothing is sent.
    pub(super) error: Option<NetError>,
    /// `Some` once the application has closed it.
    pub(super) closing: Option<Closing>,
    /// The interest registered with epoll; `None`: it does not know the descriptor yet.
    pub(super) interest: Option<Interest>,
    pub(super) connecting: bool,
    /// It is for a Unix socket and not connected: the kernel takes nothing for it, and epoll would call it broken.
    pub(super) dialing: bool,
    pub(super) paused: bool,
    /// Epoll said that there is something to read, and nothing has shown yet that it is all read.
    pub(super) readable: bool,
    /// A `Readable` was handed out and not received yet, or waits in the ready list.
    pub(super) reported: bool,
    /// The peer's FIN is known to be in the socket.
    pub(super) fin: bool,
    /// An error is known to be in the socket.
    pub(super) broken: bool,
    /// The end was handed over.
    pub(super) ended: bool,
    /// `Failed` was reported: there is nothing more to say.
    pub(super) failed: bool,
    /// A first send went out without TCP_NODELAY.
    sent: bool,
    nodelay: bool,
    /// The application's knowledge of the next bytes; while it lingers, how many more are discarded.
    pub(super) ahead: Ahead,
    /// TCP alone discards bytes without a buffer to copy them to.
    is_unix: bool,
}

/// The outcome of a flush.
pub(super) enum Flushed {
    /// All has left.
    All,
    /// Some has to wait.
    Some,
    /// Sending failed.
    Failed,
}

impl EpollConnection {
    pub(super) fn connecting(fd: OwnedFd) -> EpollConnection {
        EpollConnection {
            fd,
            outbox: Outbox::default(),
            error: None,
            closing: None,
            interest: None,
            connecting: true,
            dialing: false,
            paused: false,
            readable: false,
            reported: false,
            fin: false,
            broken: false,
            ended: false,
            failed: false,
            sent: false,
            nodelay: false,
            ahead: Ahead::default(),
            is_unix: false,
        }
    }

    /// For a Unix socket. Nagle's algorithm is TCP's.
    pub(super) fn dialing(fd: OwnedFd) -> EpollConnection {
        EpollConnection { dialing: true, nodelay: true, is_unix: true, ..EpollConnection::connecting(fd) }
    }

    /// It inherited TCP_NODELAY. Something may be there to read already, so a read is tried before epoll is asked.
    pub(super) fn accepted(fd: OwnedFd) -> EpollConnection {
        EpollConnection {
            connecting: false,
            nodelay: true,
            readable: true,
            reported: true,
            ..EpollConnection::connecting(fd)
        }
    }

    /// The interest to register with epoll now.
    pub(super) fn wanted_interest(&self) -> Interest {
        let waits = self.connecting || !self.outbox.is_empty();
        if waits { Interest::ReadWrite } else { Interest::Read }
    }

    /// It is established, and nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.outbox.is_empty() && !self.connecting && self.error.is_none()
    }

    /// Notes what epoll said.
    pub(super) fn note(&mut self, ready: PollEvent) {
        self.readable |= ready.readable();
        self.fin |= ready.fin();
        self.broken |= ready.broken();
    }

    /// Nagle's algorithm holds back a small segment only while an earlier one is unacknowledged: the call that turns it
    /// off is saved for connections that send once, and little.
    fn before_send(&mut self, len: usize) {
        if self.nodelay {
            return;
        }
        if self.sent || len > ONE_SEGMENT {
            self.nodelay = true;
            // It can only fail on a connection that failed, which the send will tell.
            let _ = socket::set_nodelay(&self.fd);
        }
        self.sent = true;
    }

    /// Sends what the socket takes at once; `Ok(0)` when it takes nothing now.
    pub(super) fn send_now(&mut self, bytes: &[u8]) -> Result<usize, NetError> {
        self.before_send(bytes.len());
        self.send_with(bytes, false)
    }

    /// Sends the last bytes, and the FIN with them.
    pub(super) fn send_and_end(&mut self, bytes: &[u8]) -> Result<usize, NetError> {
        let sent = self.send_with(bytes, true)?;
        if sent == bytes.len() {
            // Not left to the close: with something unread that one resets, and what was held back would be lost.
            socket::shutdown(&self.fd, Shutdown::Write);
        }
        Ok(sent)
    }

    fn send_with(&mut self, bytes: &[u8], more: bool) -> Result<usize, NetError> {
        match socket::send(&self.fd, bytes, more) {
            Ok(n) => Ok(n),
            Err(e) => self.send_failed(&e).map(|()| 0),
        }
    }

    /// Nothing for errors that only mean "later"; others stay.
    fn send_failed(&mut self, e: &io::Error) -> Result<(), NetError> {
        match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(()),
            errno => {
                let error = NetError::from_errno(errno.unwrap_or(libc::EIO));
                self.error = Some(error);
                self.outbox.clear();
                Err(error)
            }
        }
    }

    /// Sends from the outbox until it is empty or the socket is full.
    pub(super) fn flush(&mut self, lent: &LentTable) -> Flushed {
        while !self.outbox.is_empty() {
            self.before_send(self.outbox.unsent());
            let fd = &self.fd;
            let before = self.outbox.unsent();
            let sent = match self.outbox.file() {
                Some((file, range)) => send_file(fd, file, range).inspect(|n| self.outbox.advance(*n)),
                None => self.outbox.offer(lent, |pieces, more| socket::send_all(fd, pieces, more)),
            };
            match sent {
                Ok(n) if n < before => {}
                Ok(_) => return Flushed::All,
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) => match self.send_failed(&e) {
                    Ok(()) => return Flushed::Some,
                    Err(_) => return Flushed::Failed,
                },
            }
        }
        Flushed::All
    }

    /// Asks for events only from this many bytes on.
    pub(super) fn set_low_water(&self, bytes: usize) {
        // Without it, received bytes are reported at once.
        let _ = socket::set_low_water(&self.fd, bytes);
    }

    /// Hands what is there to `take`, in at most `reads` reads.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        reads: u32,
        mut take: impl FnMut(ReceivedPiece<'_>) -> Ahead,
    ) -> After {
        if self.ended {
            return self.end();
        }
        for _ in 0..reads {
            let discarded = self.ahead.to_discard(DISCARDED_BY_CALL).filter(|_| !self.is_unix);
            let (asked, got) = match discarded {
                Some(len) => (len, socket::discard(&self.fd, len)),
                None => (buffer.len(), socket::recv(&self.fd, buffer)),
            };
            match got {
                Ok(0) => return self.end(),
                Ok(n) => {
                    self.ahead = take(match discarded {
                        Some(_) => ReceivedPiece::Discarded(n as u64),
                        None => ReceivedPiece::Bytes(&mut buffer[..n]),
                    });
                    // A short read has emptied the socket: no second call to learn that. An error behind the bytes
                    // has to be asked for, a FIN is known from epoll.
                    if n < asked && !self.broken {
                        if self.fin {
                            return self.end();
                        }
                        self.readable = false;
                        return After::Open;
                    }
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        self.readable = false;
                        // A send may have failed of which the socket knows nothing: a file was shorter than it should be.
                        return self.error.map_or(After::Open, After::Failed);
                    }
                    Some(libc::EINTR) => {}
                    errno => {
                        self.readable = false;
                        return After::Failed(NetError::from_errno(errno.unwrap_or(libc::EIO)));
                    }
                },
            }
        }
        After::Open
    }

    /// The end is reported first, even when a reset followed it: everything before the end is whole. The reset is for
    /// the next time.
    fn end(&mut self) -> After {
        let told = std::mem::replace(&mut self.ended, true);
        self.readable = self.broken && !told;
        match self.error {
            // A send that failed took the error with it; the socket then only says that nothing more comes.
            Some(error) => After::Failed(error),
            None if self.broken && told => After::Failed(self.fail(None)),
            None => After::Ended,
        }
    }

    /// Gives the connection up for `error`, or for the one that a send met or that waits in the socket.
    pub(super) fn fail(&mut self, error: Option<NetError>) -> NetError {
        let error = error
            .or(self.error)
            .or_else(|| socket::take_error(&self.fd).map(NetError::from_errno))
            .unwrap_or(NetError::of(NetErrorKind::Reset));
        self.error = Some(error);
        self.failed = true;
        self.connecting = false;
        self.outbox.clear();
        error
    }
}

/// Bytes of a file that are read where it cannot be sent without: a few file systems have no way to. Reason: what fits the stack.
const READ: usize = 16 << 10;

/// Sends what the socket takes of a range that is not empty. A file that ends before is an error: what follows would be taken for
/// what is missing.
fn send_file(socket: &OwnedFd, file: &File, range: Range<u64>) -> io::Result<usize> {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let sent = match sys::file::send(socket, file, range.start, len) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)) => {
            let mut bytes = [0; READ];
            let read = file.read_at(&mut bytes[..len.min(READ)], range.start)?;
            if read == 0 { Ok(0) } else { socket::send(socket, &bytes[..read], read < len) }
        }
        sent => sent,
    };
    match sent {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EIO)),
        sent => sent,
    }
}
