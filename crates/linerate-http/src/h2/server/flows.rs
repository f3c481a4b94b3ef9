//! The streams of a server that are not over, as far as their frames are concerned.

use std::collections::VecDeque;

/// A stream that is not over in both directions.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: u32,
    /// Bytes that the client's window admits. Negative once it has made its windows smaller.
    pub(super) send_left: i64,
    /// The rest of our window, and bytes that the owner has read and the client does not know of.
    pub(super) receive_left: u32,
    pub(super) unreported: u32,
    /// Bytes of the announced content that have not come.
    pub(super) content_left: Option<u64>,
    /// The response has ended.
    pub(super) sent: bool,
    /// The request has ended.
    pub(super) received: bool,
}

/// Streams that we have reset whose numbers are known. Reason: a client may have sent frames on each
/// before it knows, which a round trip brings; more than this many at once are rare.
const RESETS_KNOWN: usize = 256;

/// How a stream that is not open came to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It was not opened yet.
    Idle,
    /// We have reset it: the client may not know yet.
    Reset,
    /// The client knows that it is over.
    Over,
    /// It was never opened, or is over.
    Skipped,
}

/// The open streams, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Flows {
    open: Vec<Flow>,
    /// The highest number so far, and how many streams were opened.
    last: u32,
    opened: u32,
    resets: VecDeque<u32>,
    /// The highest number that `resets` had no room for.
    forgotten: u32,
}

impl Flows {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    #[inline]
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// A new number, which is higher than all before.
    #[inline]
    pub(super) fn begin(&mut self, id: u32) {
        self.last = id;
        self.opened += 1;
    }

    /// Adds the stream whose number came last.
    #[inline]
    pub(super) fn add(&mut self, flow: Flow) {
        self.open.push(flow);
    }

    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        match self.open.last() {
            Some(last) if last.id == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |flow| flow.id).ok(),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&Flow> {
        Some(&self.open[self.place(id)?])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Flow> {
        let place = self.place(id)?;
        Some(&mut self.open[place])
    }

    /// Removes a stream that is over in both directions.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Flow> {
        let place = self.place(id)?;
        Some(self.open.remove(place))
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.open.iter_mut()
    }

    /// Remembers that we have reset this one.
    pub(super) fn was_reset(&mut self, id: u32) {
        if self.resets.len() == RESETS_KNOWN
            && let Some(oldest) = self.resets.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest);
        }
        self.resets.push_back(id);
    }

    /// Why a stream is not among the open ones.
    pub(super) fn closed(&self, id: u32) -> Closed {
        if id > self.last || id.is_multiple_of(2) {
            Closed::Idle
        } else if id <= self.forgotten || self.resets.contains(&id) {
            Closed::Reset
        } else if self.opened == self.last.div_ceil(2) {
            Closed::Over
        } else {
            Closed::Skipped
        }
    }
}
