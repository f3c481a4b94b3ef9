//! A connection as the application sees it.

use std::cell::Cell;

use super::flow::Flow;
use crate::closing::Closing;

/// A connection and what was reported to the application about it.
pub(crate) struct StackConnection {
    pub(crate) flow: Flow,
    /// Hash of its 4-tuple, for the table.
    pub(crate) hash: u64,
    /// `Some` once the application has closed it. `Flush`: only TCP itself still has work to do.
    pub(crate) closing: Option<Closing>,
    pub(crate) connecting: bool,
    pub(crate) paused: bool,
    /// A `Readable` was reported and not handled yet, or is in the ready list.
    pub(crate) reported: bool,
    /// The end was reported.
    pub(crate) ended: bool,
    /// The failure was reported.
    pub(crate) failed: bool,
    /// It is scheduled for the next flush.
    pub(crate) dirty: bool,
    /// Bytes had to wait, or `unsent` said so: an event follows when they have left.
    pub(crate) waited: Cell<bool>,
    /// It closes by a reset once all data has arrived, because the peer's bytes were not read.
    pub(crate) resets: bool,
    /// A SYN cookie made it, not a handshake that was kept.
    pub(crate) by_cookie: bool,
    /// It is in the list of connections that hold bytes received out of order.
    pub(crate) holds: bool,
    /// Bytes: as many as must be there for a `Readable` (SO_RCVLOWAT), or, once the application has
    /// closed it, as were discarded since. One place for both keeps an entry within 1 KiB.
    pub(crate) low_water_or_discarded: u32,
}

impl StackConnection {
    #[inline]
    pub(crate) fn new(flow: Flow, hash: u64, connecting: bool) -> StackConnection {
        StackConnection {
            flow,
            hash,
            closing: None,
            connecting,
            paused: false,
            reported: false,
            ended: false,
            failed: false,
            dirty: false,
            waited: Cell::new(false),
            resets: false,
            by_cookie: false,
            holds: false,
            low_water_or_discarded: 1,
        }
    }

    /// A connection that a SYN cookie made.
    pub(crate) fn by_cookie(flow: Flow, hash: u64) -> StackConnection {
        StackConnection { by_cookie: true, ..StackConnection::new(flow, hash, false) }
    }

    /// Whether there is something to read that must be reported to the application.
    pub(crate) fn is_readable(&self) -> bool {
        let enough = self.flow.inbox_len() >= self.flow.low_water(self.low_water_or_discarded);
        self.has_news() && (enough || !self.flow.has_bytes())
    }

    /// Whether there is anything to read: once begun, reading continues however little is left.
    pub(crate) fn has_news(&self) -> bool {
        let end = self.flow.receive.ended && !self.ended;
        self.flow.has_bytes() || end || (self.flow.error.is_some() && !self.failed)
    }
}
