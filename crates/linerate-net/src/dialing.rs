//! Connections to Unix sockets. The kernel makes them at once, or says that the server's accept queue is full; it has no event
//! for room in there, so those that wait are tried again after a pause.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use crate::limits::DIAL_PAUSE;
use crate::sys::socket;
use crate::{Conn, NetError, Time};

/// Connects to a Unix socket, without blocking. `WouldBlock`: its accept queue is full, so that it has to be tried again.
pub fn dial_unix(path: &Path) -> io::Result<UnixStream> {
    let fd = socket::unix()?;
    socket::connect_unix(&fd, path)?;
    Ok(fd.into())
}

/// Those that are not established yet, the oldest first.
#[derive(Default)]
pub(crate) struct Dialing {
    waiting: VecDeque<(Conn, Arc<Path>)>,
    not_before: Time,
}

impl Dialing {
    pub(crate) fn push(&mut self, conn: Conn, path: &Arc<Path>) {
        self.waiting.push_back((conn, path.clone()));
    }

    /// When to try again, if something waits.
    pub(crate) fn next(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.not_before)
    }

    /// Tries the next one at its socket, unless it is too early: what became of it. `None`: nothing more can be done now.
    pub(crate) fn step<'a>(
        &mut self,
        now: Time,
        socket_of: impl FnOnce(Conn) -> Option<&'a OwnedFd>,
    ) -> Option<(Conn, Result<(), NetError>)> {
        if now < self.not_before {
            return None;
        }
        let (conn, path) = self.waiting.pop_front()?;
        // One that was closed meanwhile needs nothing more.
        let Some(fd) = socket_of(conn) else { return Some((conn, Ok(()))) };
        match socket::connect_unix(fd, &path) {
            Ok(()) => Some((conn, Ok(()))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.waiting.push_front((conn, path));
                self.not_before = now + DIAL_PAUSE;
                None
            }
            Err(e) => Some((conn, Err(e.into()))),
        }
    }
}
