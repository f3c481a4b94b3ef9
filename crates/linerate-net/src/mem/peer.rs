//! Scripted peers.

use std::time::Duration;

use crate::Time;

/// A connection as a peer knows it, numbered from 0 over all peers of one [`Mem`](super::Mem).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerConn(pub u64);

/// How a peer answers a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Accepts it.
    Now,
    /// Accepts it after a delay, as a full accept queue would.
    After(Duration),
    /// Resets it.
    Refuse,
    /// Never answers.
    Ignore,
}

/// A scripted end of connections. A closure over `(now, conn, bytes, out)` is a peer that only
/// receives.
pub trait Peer: Send {
    /// A connection attempt arrived.
    fn accept(&mut self, _now: Time) -> Accept {
        Accept::Now
    }

    /// A connection is established.
    fn connected(&mut self, _now: Time, _conn: PeerConn, _out: &mut PeerActions) {}

    /// Bytes arrived, cut as the options say.
    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions);

    /// The other side sent its FIN. By default the peer closes too.
    fn ended(&mut self, _now: Time, conn: PeerConn, out: &mut PeerActions) {
        out.close(conn);
    }

    /// The connection was reset, or an outgoing one failed.
    fn failed(&mut self, _now: Time, _conn: PeerConn, _out: &mut PeerActions) {}

    /// The time given to [`PeerActions::call_after`] has come.
    fn called(&mut self, _now: Time, _conn: PeerConn, _out: &mut PeerActions) {}
}

impl<F: FnMut(Time, PeerConn, &[u8], &mut PeerActions) + Send> Peer for F {
    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        self(now, conn, bytes, out);
    }
}

#[derive(Debug)]
pub(super) enum Action {
    Send(Vec<u8>),
    End,
    Close,
    Reset,
    Pause,
    Resume,
    Call,
}

/// Actions that a peer asks for while it is called, on any of its connections. Actions for the same
/// moment run in the order they were given.
#[derive(Debug, Default)]
pub struct PeerActions {
    pub(super) list: Vec<(Duration, PeerConn, Action)>,
}

impl PeerActions {
    fn add(&mut self, after: Duration, conn: PeerConn, action: Action) {
        self.list.push((after, conn, action));
    }

    /// Sends bytes.
    pub fn send(&mut self, conn: PeerConn, bytes: impl Into<Vec<u8>>) {
        self.send_after(Duration::ZERO, conn, bytes);
    }

    /// Sends bytes after a delay.
    pub fn send_after(&mut self, after: Duration, conn: PeerConn, bytes: impl Into<Vec<u8>>) {
        self.add(after, conn, Action::Send(bytes.into()));
    }

    /// Sends a FIN after all bytes; a reset answers what the peer sends later.
    pub fn close(&mut self, conn: PeerConn) {
        self.close_after(Duration::ZERO, conn);
    }

    /// As `close`, after a delay.
    pub fn close_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Close);
    }

    /// Sends a FIN after all bytes and keeps reading. [`PeerHost`](super::PeerHost) cannot do this
    /// and closes.
    pub fn end_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::End);
    }

    /// Resets the connection.
    pub fn reset(&mut self, conn: PeerConn) {
        self.reset_after(Duration::ZERO, conn);
    }

    /// Resets the connection after a delay.
    pub fn reset_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Reset);
    }

    /// Stops reading, so that the window fills.
    pub fn pause(&mut self, conn: PeerConn) {
        self.add(Duration::ZERO, conn, Action::Pause);
    }

    /// Reads again after a delay.
    pub fn resume_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Resume);
    }

    /// Schedules a call of [`Peer::called`].
    pub fn call_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Call);
    }
}
