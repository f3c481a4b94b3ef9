//! Bytes that the application handed over and that could not be sent yet, in order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::{Lent, NetError, NetErrorKind};

/// Largest piece that copies are gathered into. Reason: few pieces for many small sends, and no
/// large reallocation.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces passed to the kernel in one call. Reason: enough for several heads and bodies, in a small
/// array on the stack.
pub(crate) const GATHER: usize = 16;

enum OutboxPiece {
    Copied { bytes: Vec<u8>, from: usize },
    Lent { lent: u32, range: Range<usize> },
    Shared(Bytes),
    File { file: Arc<File>, range: Range<u64> },
}

/// Everything that was lent to a transport, kept as long as the transport lives.
#[derive(Default)]
pub(crate) struct LentTable(Vec<Arc<[u8]>>);

impl LentTable {
    pub(crate) fn add(&mut self, bytes: Arc<[u8]>) -> Lent {
        self.0.push(bytes);
        // Four billion prebuilt batches would not fit into memory.
        Lent((self.0.len() - 1) as u32)
    }

    /// The bytes of a range, or `Misuse` if no such range was lent.
    pub(crate) fn range(&self, lent: Lent, range: &Range<usize>) -> Result<&[u8], NetError> {
        self.0
            .get(lent.0 as usize)
            .and_then(|bytes| bytes.get(range.clone()))
            .ok_or(NetError::of(NetErrorKind::Misuse))
    }

    pub(crate) fn bytes(&self, lent: u32, range: &Range<usize>) -> &[u8] {
        // `range` was checked when it was queued, and lent bytes stay.
        &self.0[lent as usize][range.clone()]
    }
}

/// A queue of copied, lent and shared bytes and of ranges of files.
#[derive(Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<OutboxPiece>,
    unsent: usize,
    /// The memory of the last piece sent, reused for the next.
    spare: Vec<u8>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.unsent == 0
    }

    /// Number of bytes that wait.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.unsent += bytes.len();
        if let Some(OutboxPiece::Copied { bytes: last, .. }) = self.pieces.back_mut()
            && last.len() + bytes.len() <= PIECE_BYTES
        {
            last.extend_from_slice(bytes);
            return;
        }
        let mut copy = mem::take(&mut self.spare);
        copy.extend_from_slice(bytes);
        self.pieces.push_back(OutboxPiece::Copied { bytes: copy, from: 0 });
    }

    /// `range` must lie within what was lent.
    pub(crate) fn push_lent(&mut self, lent: Lent, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.unsent += range.len();
        if let Some(OutboxPiece::Lent { lent: last, range: before }) = self.pieces.back_mut()
            && *last == lent.0
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        self.pieces.push_back(OutboxPiece::Lent { lent: lent.0, range });
    }

    pub(crate) fn push_shared(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.unsent += bytes.len();
            self.pieces.push_back(OutboxPiece::Shared(bytes));
        }
    }

    /// `range` must fit a `usize`.
    pub(crate) fn push_file(&mut self, file: &Arc<File>, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.unsent += (range.end - range.start) as usize;
        if let Some(OutboxPiece::File { file: last, range: before }) = self.pieces.back_mut()
            && Arc::ptr_eq(last, file)
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        self.pieces.push_back(OutboxPiece::File { file: Arc::clone(file), range });
    }

    /// The file at the front of the queue, if there is one.
    pub(crate) fn file(&self) -> Option<(&File, Range<u64>)> {
        match self.pieces.front()? {
            OutboxPiece::File { file, range } => Some((file, range.clone())),
            _ => None,
        }
    }

    /// The waiting bytes, piece by piece, up to the first file.
    pub(crate) fn pieces<'a>(&'a self, lent: &'a LentTable) -> impl Iterator<Item = &'a [u8]> {
        self.pieces.iter().map_while(|piece| match piece {
            OutboxPiece::Copied { bytes, from } => Some(&bytes[*from..]),
            OutboxPiece::Lent { lent: index, range } => Some(lent.bytes(*index, range)),
            OutboxPiece::Shared(bytes) => Some(bytes),
            OutboxPiece::File { .. } => None,
        })
    }

    /// Offers the first pieces to `send`, with a flag if a file follows them. `send` returns how
    /// many bytes it took.
    pub(crate) fn offer<E>(
        &mut self,
        lent: &LentTable,
        send: impl FnOnce(&[IoSlice<'_>], bool) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut gathered = [IoSlice::new(&[]); GATHER];
        let mut count = 0;
        for (slice, piece) in gathered.iter_mut().zip(self.pieces(lent)) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let file_follows = matches!(self.pieces.get(count), Some(OutboxPiece::File { .. }));
        let taken = send(&gathered[..count], file_follows)?;
        self.advance(taken);
        Ok(taken)
    }

    /// Removes the first `taken` bytes, which have been sent.
    pub(crate) fn advance(&mut self, mut taken: usize) {
        self.unsent -= taken;
        while let Some(piece) = self.pieces.front_mut() {
            let left = match piece {
                OutboxPiece::Copied { bytes, from } => bytes.len() - *from,
                OutboxPiece::Lent { range, .. } => range.len(),
                OutboxPiece::Shared(bytes) => bytes.len(),
                OutboxPiece::File { range, .. } => (range.end - range.start) as usize,
            };
            if taken < left {
                match piece {
                    OutboxPiece::Copied { from, .. } => *from += taken,
                    OutboxPiece::Lent { range, .. } => range.start += taken,
                    OutboxPiece::Shared(bytes) => bytes.advance(taken),
                    OutboxPiece::File { range, .. } => range.start += taken as u64,
                }
                return;
            }
            taken -= left;
            if let Some(OutboxPiece::Copied { mut bytes, .. }) = self.pieces.pop_front()
                && bytes.capacity() <= PIECE_BYTES
            {
                bytes.clear();
                self.spare = bytes;
            }
        }
        debug_assert_eq!(taken, 0, "no more can be taken than was offered");
    }

    /// Drops everything, because the connection failed.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.unsent = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However much the wire takes at a time, bytes leave in the order they were handed over.
        #[test]
        fn order_is_kept(
            pushes in prop::collection::vec((0u8..4, 0usize..300, 0usize..50), 0..40),
            takes in prop::collection::vec(1usize..500, 1..20),
        ) {
            let mut lent = LentTable::default();
            let source: Arc<[u8]> = (0..400).map(|i| i as u8).collect();
            let handle = lent.add(source.clone());
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&source).expect("written");
            let file = Arc::new(file);
            let (mut outbox, mut expected, mut left) = (Outbox::default(), Vec::new(), Vec::new());
            for (how, start, len) in pushes {
                let range = start..start + len;
                expected.extend_from_slice(&source[range.clone()]);
                match how {
                    0 => outbox.push_copy(&source[range]),
                    1 => outbox.push_lent(handle, range),
                    2 => outbox.push_file(&file, range.start as u64..range.end as u64),
                    _ => outbox.push_shared(Bytes::copy_from_slice(&source[range])),
                }
            }
            prop_assert_eq!(outbox.unsent(), expected.len());
            let mut takes = takes.into_iter().cycle();
            while !outbox.is_empty() {
                let take = takes.next().unwrap_or(1);
                if let Some((file, range)) = outbox.file() {
                    let mut some = vec![0; take.min((range.end - range.start) as usize)];
                    file.read_exact_at(&mut some, range.start).expect("read");
                    outbox.advance(some.len());
                    left.extend_from_slice(&some);
                    continue;
                }
                let mut follows = false;
                let taken = outbox.offer(&lent, |slices, file_follows| {
                    follows = file_follows && take >= slices.iter().map(|s| s.len()).sum();
                    let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                    let n = take.min(all.len());
                    left.extend_from_slice(&all[..n]);
                    Ok::<_, ()>(n)
                });
                prop_assert!(taken.is_ok_and(|n| n > 0));
                prop_assert!(!follows || outbox.file().is_some());
                prop_assert_eq!(outbox.unsent(), expected.len() - left.len());
            }
            prop_assert_eq!(left, expected);
        }
    }

    #[test]
    fn what_was_not_lent_is_refused() {
        let mut lent = LentTable::default();
        let handle = lent.add(Arc::from(&b"abc"[..]));
        assert_eq!(lent.range(handle, &(1..3)), Ok(&b"bc"[..]));
        assert!(lent.range(handle, &(1..4)).is_err());
        assert!(lent.range(Lent(1), &(0..0)).is_err());
    }
}
