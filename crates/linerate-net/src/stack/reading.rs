//! Calls for a program that reads and closes in its own time, as with sockets of the kernel: received
//! bytes stay in the stack, and the window closes, until the program takes them.

use super::Stack;
use super::entry::StackConnection;
use super::flow::TcpState;
use crate::link::Link;
use crate::{Conn, Data, FlowInfo, Listener, NetError};

/// The receiving and the sending side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSides {
    /// Bytes received in order that were not read.
    pub unread: usize,
    /// The peer's FIN came in order.
    pub is_ended: bool,
    /// Both sides are closed and acknowledged, or the connection failed: TCP has nothing left to do.
    pub is_over: bool,
    /// Why the connection failed.
    pub error: Option<NetError>,
}

impl<L: Link> Stack<L> {
    /// A connection that the application has not closed.
    fn kept(&self, conn: Conn) -> Option<&StackConnection> {
        self.core.table.get(conn).filter(|entry| entry.closing.is_none())
    }

    /// Gives a claim back without reading. Later bytes, the end or a failure are reported again.
    pub fn keep(&mut self, data: Data) {
        if let Some(entry) = self.live(data.conn) {
            entry.reported = false;
        }
    }

    /// The state of a connection; `None` after it was closed.
    pub fn sides(&self, conn: Conn) -> Option<FlowSides> {
        let flow = &self.kept(conn)?.flow;
        Some(FlowSides {
            unread: flow.unread(),
            is_ended: flow.receive.ended,
            is_over: matches!(flow.state, TcpState::TimeWait | TcpState::Closed),
            error: flow.error,
        })
    }

    /// What `ss` would show of a connection; `None` after it was closed.
    pub fn flow_info(&self, conn: Conn) -> Option<FlowInfo> {
        let entry = self.kept(conn)?;
        Some(entry.flow.view(self.core.now, &self.core.shared.limits))
    }

    /// Copies received bytes. Returns how many.
    pub fn peek(&mut self, conn: Conn, into: &mut [u8]) -> usize {
        let core = &mut self.core;
        let Some(entry) = core.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else { return 0 };
        entry.flow.peek(into, &mut core.shared)
    }

    /// Removes received bytes. Returns how many; the window opens by as many.
    pub fn skip(&mut self, conn: Conn, most: usize) -> usize {
        let core = &mut self.core;
        let Some(entry) = core.table.get_mut(conn).filter(|entry| entry.closing.is_none()) else { return 0 };
        let taken = entry.flow.skip(core.now, most, &mut core.shared);
        if entry.flow.note_read() {
            core.touch(conn);
        }
        taken
    }

    /// Sends our FIN after the bytes handed over. The other direction goes on (RFC 9293 section
    /// 3.6).
    pub fn finish(&mut self, conn: Conn) {
        if let Some(entry) = self.live(conn).filter(|entry| entry.flow.error.is_none()) {
            entry.flow.finish();
            self.core.touch(conn);
        }
    }

    /// New bytes will not be read: a reset answers them, and the connection fails.
    pub fn refuse_bytes(&mut self, conn: Conn) {
        if let Some(entry) = self.live(conn) {
            entry.flow.receive.shut = true;
        }
    }

    /// Bytes handed over that the peer has not acknowledged.
    pub fn unacknowledged(&self, conn: Conn) -> usize {
        self.core.table.get(conn).map_or(0, |entry| entry.flow.queued())
    }

    /// How many connections a listener may still accept. Beyond them SYNs are dropped, and so are
    /// the ACKs that complete a handshake, as Linux does when an accept queue is full.
    pub fn set_accept_room(&mut self, listener: Listener, room: u32) {
        if let Some(Some(listening)) = self.core.listeners.get_mut(listener.0 as usize) {
            listening.room = Some(room);
        }
    }
}
