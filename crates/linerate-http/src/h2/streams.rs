//! The open streams of a client.
//!
//! A stream is found by its number without a search: its place in the table follows from the
//! number. A number whose place is taken by a stream that lasts longer is left out, which closes it
//! (RFC 9113, section 5.1.1).

use std::sync::Arc;

use super::Block;
use super::limits::LAST_STREAM;

/// How much of a response has come.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// Nothing, or interim responses alone.
    #[default]
    Waiting,
    /// The head, which was not handed out yet.
    Held(Arc<Block>),
    /// The head was handed out.
    Told,
}

/// An open stream; `data` is the owner's.
#[derive(Debug)]
pub(super) struct Stream<S> {
    pub(super) id: u32,
    pub(super) phase: Phase,
    pub(super) data: S,
    pub(super) status: u16,
    pub(super) interim: u8,
    /// The response has no body, since the request is HEAD.
    pub(super) bodiless: bool,
    /// What is left of the announced content.
    pub(super) content_left: Option<u64>,
    /// Bytes received since the last window update.
    pub(super) unreported: u32,
    /// Bytes of the request's body sent so far, and admitted beyond the initial window.
    pub(super) sent: i64,
    pub(super) granted: i64,
    /// More of the request's body has to be sent.
    pub(super) uploads: bool,
}

impl<S> Stream<S> {
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Waiting)
    }
}

#[derive(Debug)]
pub(super) struct Streams<S> {
    places: Vec<Option<Stream<S>>>,
    open: u32,
    next: u32,
}

/// Places of a new table. Reason: connections with one stream at a time cost little memory.
const FIRST_PLACES: usize = 2;

impl<S> Default for Streams<S> {
    fn default() -> Self {
        Streams { places: Vec::new(), open: 0, next: 1 }
    }
}

impl<S> Streams<S> {
    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.places.len().wrapping_sub(1))
    }

    /// Streams that are open.
    #[inline]
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Whether a stream of this number can have been opened.
    #[inline]
    pub(super) fn was_opened(&self, id: u32) -> bool {
        id % 2 == 1 && id < self.next
    }

    /// Whether numbers are left.
    #[inline]
    pub(super) fn has_numbers(&self) -> bool {
        // As many as a full table may leave out.
        self.next < LAST_STREAM - 2 * (self.places.len() as u32 + 2)
    }

    /// Opens a stream. Returns its number.
    #[inline]
    pub(super) fn insert(&mut self, data: S) -> u32 {
        if self.open as usize * 2 >= self.places.len() {
            self.grow();
        }
        while self.places[self.place(self.next)].is_some() {
            self.next += 2;
        }
        let id = self.next;
        let at = self.place(id);
        self.next += 2;
        self.open += 1;
        self.places[at] = Some(Stream {
            id,
            phase: Phase::Waiting,
            data,
            status: 0,
            interim: 0,
            bodiless: false,
            content_left: None,
            unreported: 0,
            sent: 0,
            granted: 0,
            uploads: false,
        });
        id
    }

    /// Doubles the table. Streams whose places differed before have different ones after.
    #[cold]
    fn grow(&mut self) {
        let larger = (self.places.len() * 2).max(FIRST_PLACES);
        let before = std::mem::take(&mut self.places);
        self.places.resize_with(larger, || None);
        for stream in before.into_iter().flatten() {
            let at = self.place(stream.id);
            self.places[at] = Some(stream);
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream<S>> {
        let at = self.place(id);
        self.places.get_mut(at)?.as_mut().filter(|stream| stream.id == id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream<S>> {
        self.places.get(self.place(id))?.as_ref().filter(|stream| stream.id == id)
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream<S>> {
        let at = self.place(id);
        let place = self.places.get_mut(at)?;
        if place.as_ref().is_none_or(|stream| stream.id != id) {
            return None;
        }
        self.open -= 1;
        place.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<S>> {
        self.places.iter().flatten()
    }

    /// The numbers of the streams above one, in order.
    pub(super) fn above(&self, last: u32) -> Vec<u32> {
        let mut ids: Vec<u32> = self.iter().map(|stream| stream.id).filter(|id| *id > last).collect();
        ids.sort_unstable();
        ids
    }
}
