//! A connection as the application knows it.

use std::cell::Cell;

use super::flow::Flow;
use crate::closing::Closing;

/// A connection and what the application was told of it.
pub(crate) struct Entry {
    pub(crate) flow: Flow,
    /// Of its 4-tuple, for the table.
    pub(crate) hash: u64,
    /// `Some` once the application has closed it. `Flush`: nothing but TCP itself is still to be done.
    pub(crate) closing: Option<Closing>,
    pub(crate) connecting: bool,
    pub(crate) paused: bool,
    /// A `Readable` was handed out and not answered yet, or waits in the ready list.
    pub(crate) reported: bool,
    /// The end was handed over.
    pub(crate) ended: bool,
    /// The failure was told.
    pub(crate) failed: bool,
    /// It waits to be looked at.
    pub(crate) dirty: bool,
    /// Some of what was handed over had to wait, or `unsent` told of it: the application is told when it has left.
    pub(crate) waited: Cell<bool>,
    /// It closes by a reset once all has arrived, since bytes of the peer were not read.
    pub(crate) resets: bool,
    /// A SYN cookie made it, not a handshake that was kept.
    pub(crate) by_cookie: bool,
    /// It is in the list of those that keep bytes received out of order.
    pub(crate) holds: bool,
    pub(crate) low_water: u32,
}

impl Entry {
    pub(crate) fn new(flow: Flow, hash: u64, connecting: bool) -> Entry {
        Entry {
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
            low_water: 1,
        }
    }

    /// One that a SYN cookie made.
    pub(crate) fn by_cookie(flow: Flow, hash: u64) -> Entry {
        Entry { by_cookie: true, ..Entry::new(flow, hash, false) }
    }

    /// Whether there is something to read that the application should hear of.
    pub(crate) fn is_readable(&self) -> bool {
        let enough = self.flow.inbox_len() >= self.flow.low_water(self.low_water);
        self.has_news() && (enough || !self.flow.has_bytes())
    }

    /// Whether there is something to read at all: one that was read in part is gone on with, however little is left.
    pub(crate) fn has_news(&self) -> bool {
        let end = self.flow.ended && !self.ended;
        self.flow.has_bytes() || end || (self.flow.error.is_some() && !self.failed)
    }
}
