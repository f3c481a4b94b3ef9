//! Bytes of streams that wait for the peer's windows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use linerate_quic::{QuicConn, QuicEndpoint, QuicStream, StreamWrite};

use super::records::{RecordKind, StreamRecordHead};

/// Bytes of one stream that wait.
#[derive(Debug, Default)]
struct WaitingStream {
    pieces: VecDeque<Bytes>,
    /// The stream ends behind them.
    ends: bool,
}

impl WaitingStream {
    fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// A record whose bytes are still being handed over.
#[derive(Clone, Copy, Debug)]
struct PartialRecord {
    stream: u64,
    left: usize,
    ends: bool,
}

/// What one connection has to send.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    partial: Option<PartialRecord>,
    waiting: BTreeMap<u64, WaitingStream>,
    /// Bytes in `waiting`.
    unsent: usize,
    /// The application waits until QUIC has taken what waits of these streams.
    asked: BTreeSet<u64>,
    /// Streams of which that has happened, and the application has not been told.
    taken: Vec<u64>,
    /// Streams that the application does not read for now.
    held: BTreeSet<u64>,
}

/// A connection of an endpoint, to write on.
pub(super) struct WriteTo<'e> {
    pub(super) endpoint: &'e mut QuicEndpoint,
    pub(super) conn: QuicConn,
    /// Streams for requests below this ID are open, and our control stream if any is.
    pub(super) opened: u64,
}

impl WriteTo<'_> {
    fn is_open(&self, id: u64) -> bool {
        match id & 2 {
            0 => id < self.opened,
            _ => self.opened > 0,
        }
    }
}

impl Outgoing {
    /// Bytes that wait, in all.
    pub(super) fn all_unsent(&self) -> usize {
        self.unsent
    }

    /// Bytes that wait, but for streams of which the application gives no more before they have left: a server
    /// that does not read one of these keeps no other from sending.
    pub(super) fn unsent(&self) -> usize {
        let asked = self.asked.iter().filter_map(|id| self.waiting.get(id));
        self.unsent - asked.map(WaitingStream::len).sum::<usize>()
    }

    /// Streams whose bytes QUIC has taken, since the last call.
    pub(super) fn newly_taken(&mut self) -> impl Iterator<Item = u64> {
        self.taken.drain(..)
    }

    /// Whether the application reads nothing of a stream for now.
    pub(super) fn is_held(&self, id: u64) -> bool {
        self.held.contains(&id)
    }

    /// Whether some of a stream's bytes wait.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Nothing more of a stream leaves.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(stream) = self.waiting.remove(&id) {
            self.unsent -= stream.len();
            self.is_taken(id);
        }
    }

    /// Nothing of a stream waits any more.
    fn is_taken(&mut self, id: u64) {
        if self.asked.remove(&id) {
            self.taken.push(id);
        }
    }

    /// Takes records, or the next bytes of the one that was begun. Returns the last request's ID.
    pub(super) fn take(&mut self, mut input: &[u8], to: &mut WriteTo<'_>) -> Option<u64> {
        let mut last = None;
        while !input.is_empty() {
            let Some(partial) = self.partial else {
                let head = StreamRecordHead::take(&mut input)?;
                self.begin(head, to);
                last = last.max((head.number & 2 == 0).then_some(head.number));
                continue;
            };
            let (bytes, rest) = input.split_at(partial.left.min(input.len()));
            input = rest;
            self.put(partial, bytes, Bytes::copy_from_slice, to);
        }
        last
    }

    /// Takes the next bytes of the record that was begun, which are kept where they are.
    pub(super) fn take_shared(&mut self, mut bytes: Bytes, to: &mut WriteTo<'_>) {
        while !bytes.is_empty() {
            let Some(partial) = self.partial else { return };
            let piece = bytes.split_to(partial.left.min(bytes.len()));
            let at = piece.as_ptr() as usize;
            let kept = |rest: &[u8]| piece.slice(rest.as_ptr() as usize - at..);
            self.put(partial, &piece, kept, to);
        }
    }

    fn begin(&mut self, head: StreamRecordHead, to: &mut WriteTo<'_>) {
        let (stream, ends) = (head.number, head.kind == RecordKind::Last);
        match head.kind {
            RecordKind::Taken if self.waits(stream) => drop(self.asked.insert(stream)),
            RecordKind::Taken => self.taken.push(stream),
            RecordKind::Hold => drop(self.held.insert(stream)),
            RecordKind::Resume => drop(self.held.remove(&stream)),
            _ => {}
        }
        if matches!(head.kind, RecordKind::Taken | RecordKind::Hold | RecordKind::Resume) {
            return;
        }
        if head.kind == RecordKind::Reset {
            // The code stands in its length.
            self.forget(stream);
            self.held.remove(&stream);
            let (id, code) = (QuicStream::of_id(stream), u64::from(head.len));
            // Either direction may have ended before.
            let _ = to.endpoint.reset(to.conn, id, code);
            let _ = to.endpoint.stop(to.conn, id, code);
            return;
        }
        let partial = PartialRecord { stream, left: head.len as usize, ends };
        match head.len {
            0 => self.end(partial, to),
            _ => self.partial = Some(partial),
        }
    }

    /// Writes bytes of a record; `keep` keeps those that have to wait.
    fn put(
        &mut self,
        mut partial: PartialRecord,
        bytes: &[u8],
        keep: impl FnOnce(&[u8]) -> Bytes,
        to: &mut WriteTo<'_>,
    ) {
        let mut rest = bytes;
        if !self.waits(partial.stream) && to.is_open(partial.stream) {
            match to.endpoint.write(to.conn, QuicStream::of_id(partial.stream), bytes) {
                StreamWrite::Taken(taken) => rest = &bytes[taken..],
                // The peer wants no more of it: what it says to that comes by itself.
                StreamWrite::Stopped(_) | StreamWrite::Gone => rest = &[],
            }
        }
        if !rest.is_empty() {
            self.unsent += rest.len();
            self.waiting.entry(partial.stream).or_default().pieces.push_back(keep(rest));
        }
        partial.left -= bytes.len();
        self.partial = Some(partial);
        if partial.left == 0 {
            self.end(partial, to);
        }
    }

    /// A record is whole.
    fn end(&mut self, partial: PartialRecord, to: &mut WriteTo<'_>) {
        self.partial = None;
        if !partial.ends {
            return;
        }
        if self.waits(partial.stream) || !to.is_open(partial.stream) {
            self.waiting.entry(partial.stream).or_default().ends = true;
        } else {
            // A stream that the peer stopped has no end.
            let _ = to.endpoint.finish(to.conn, QuicStream::of_id(partial.stream));
        }
    }

    /// Streams of which bytes wait.
    pub(super) fn streams(&self) -> Vec<u64> {
        self.waiting.keys().copied().collect()
    }

    /// Writes what waits of a stream, as far as there is room.
    pub(super) fn write_on(&mut self, id: u64, to: &mut WriteTo<'_>) {
        if !to.is_open(id) {
            return;
        }
        let Some(stream) = self.waiting.get_mut(&id) else { return };
        while let Some(piece) = stream.pieces.front_mut() {
            match to.endpoint.write(to.conn, QuicStream::of_id(id), piece) {
                StreamWrite::Taken(taken) if taken < piece.len() => {
                    self.unsent -= taken;
                    drop(piece.split_to(taken));
                    return;
                }
                StreamWrite::Taken(taken) => {
                    self.unsent -= taken;
                    stream.pieces.pop_front();
                }
                StreamWrite::Stopped(_) | StreamWrite::Gone => return self.forget(id),
            }
        }
        let ends = stream.ends;
        self.waiting.remove(&id);
        self.is_taken(id);
        if ends {
            let _ = to.endpoint.finish(to.conn, QuicStream::of_id(id));
        }
    }
}
