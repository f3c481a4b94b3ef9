//! Bytes of streams that wait for the peer's windows.

use std::collections::{BTreeMap, VecDeque};

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
    /// Bytes that wait.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Whether some of a stream's bytes wait.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Nothing more of a stream leaves.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(stream) = self.waiting.remove(&id) {
            self.unsent -= stream.pieces.iter().map(Bytes::len).sum::<usize>();
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
        if head.kind == RecordKind::Reset {
            // The code stands in its length.
            self.forget(stream);
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
        if ends {
            let _ = to.endpoint.finish(to.conn, QuicStream::of_id(id));
        }
    }
}
