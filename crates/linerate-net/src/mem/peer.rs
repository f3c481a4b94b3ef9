//! Scripted peers.

use std::time::Duration;

use crate::Time;

/// A connection as a peer knows it: counted from 0 over all peers of one [`Mem`](super::Mem).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerConn(pub u64);

/// What a peer does with a connection that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Takes it.
    Now,
    /// Takes it after a while, as a full accept queue would.
    After(Duration),
    /// RST.
    Refuse,
    /// Nothing, ever.
    Ignore,
}

/// The other side of connections, scripted. A closure over `(now, conn, bytes, out)` is a peer that only receives.
pub trait Peer: Send {
    /// Somebody asks for a connection.
    fn accept(&mut self, _now: Time) -> Accept {
        Accept::Now
    }

    /// A connection is established.
    fn connected(&mut self, _now: Time, _conn: PeerConn, _out: &mut PeerActions) {}

    /// Bytes came, cut as the options say.
    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions);

    /// The other side sent its FIN. By default the peer closes too.
    fn ended(&mut self, _now: Time, conn: PeerConn, out: &mut PeerActions) {
        out.close(conn);
    }

    /// The connection was reset, or the one asked for could not be had.
    fn failed(&mut self, _now: Time, _conn: PeerConn, _out: &mut PeerActions) {}

    /// The time asked for by [`PeerActions::call_after`] has come.
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

/// What a peer does, collected while it is called; on any of its connections. What is for the same moment is done in the
/// order it was said.
#[derive(Debug, Default)]
pub struct PeerActions {
    pub(super) list: Vec<(Duration, PeerConn, Action)>,
}

impl PeerActions {
    fn add(&mut self, after: Duration, conn: PeerConn, action: Action) {
        self.list.push((after, conn, action));
    }

    /// Sends.
    pub fn send(&mut self, conn: PeerConn, bytes: impl Into<Vec<u8>>) {
        self.send_after(Duration::ZERO, conn, bytes);
    }

    /// Sends after a while.
    pub fn send_after(&mut self, after: Duration, conn: PeerConn, bytes: impl Into<Vec<u8>>) {
        self.add(after, conn, Action::Send(bytes.into()));
    }

    /// FIN after what was sent; what comes later is answered by a reset.
    pub fn close(&mut self, conn: PeerConn) {
        self.close_after(Duration::ZERO, conn);
    }

    /// The same after a while.
    pub fn close_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Close);
    }

    /// FIN after what was sent, and goes on reading. [`PeerHost`](super::PeerHost) has no such thing and closes.
    pub fn end_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::End);
    }

    /// RST.
    pub fn reset(&mut self, conn: PeerConn) {
        self.reset_after(Duration::ZERO, conn);
    }

    /// RST after a while.
    pub fn reset_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Reset);
    }

    /// Stops reading: the window fills.
    pub fn pause(&mut self, conn: PeerConn) {
        self.add(Duration::ZERO, conn, Action::Pause);
    }

    /// Reads again after a while.
    pub fn resume_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Resume);
    }

    /// Has [`Peer::called`] called after a while.
    pub fn call_after(&mut self, after: Duration, conn: PeerConn) {
        self.add(after, conn, Action::Call);
    }
}
