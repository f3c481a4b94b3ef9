//! Bodies of requests that wait for the server's windows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use linerate_net::{Lent, Time};

/// The part of a request's body that has not left; `I`: how its protocol numbers streams.
#[derive(Debug)]
pub(crate) struct Upload<I> {
    pub(crate) id: I,
    parts: VecDeque<UploadStretch>,
    /// More is given later.
    pub(crate) follows: bool,
    /// When a part of it left last.
    pub(super) since: Time,
}

/// A stretch of a body.
#[derive(Debug)]
pub(crate) enum UploadStretch {
    /// Bytes of this request.
    Copied(Vec<u8>),
    /// A range of bytes that stay where they are.
    Shared(Arc<[u8]>, Option<Lent>, Range<usize>),
    /// Immutable shared bytes.
    Counted(Bytes),
}

impl UploadStretch {
    pub(crate) fn len(&self) -> usize {
        match self {
            UploadStretch::Copied(bytes) => bytes.len(),
            UploadStretch::Shared(_, _, range) => range.len(),
            UploadStretch::Counted(bytes) => bytes.len(),
        }
    }

    /// Takes the first `len` bytes off.
    fn split(&mut self, len: usize) -> UploadStretch {
        match self {
            UploadStretch::Copied(bytes) => {
                let rest = bytes.split_off(len);
                UploadStretch::Copied(std::mem::replace(bytes, rest))
            }
            UploadStretch::Shared(bytes, lent, range) => {
                let first = range.start..range.start + len;
                range.start += len;
                UploadStretch::Shared(bytes.clone(), *lent, first)
            }
            UploadStretch::Counted(bytes) => UploadStretch::Counted(bytes.split_to(len)),
        }
    }
}

impl<I> Upload<I> {
    pub(crate) fn new(id: I, parts: VecDeque<UploadStretch>, follows: bool, since: Time) -> Upload<I> {
        Upload { id, parts, follows, since }
    }

    pub(crate) fn give(&mut self, piece: Bytes) {
        self.parts.push_back(UploadStretch::Counted(piece));
    }

    /// Nothing of it is left, and nothing follows.
    pub(crate) fn ends(&self) -> bool {
        self.parts.is_empty() && !self.follows
    }

    /// Takes the next bytes off, `most` of them at most.
    pub(crate) fn take(&mut self, most: u32) -> Option<UploadStretch> {
        let mut part = self.parts.pop_front()?;
        if part.len() <= most as usize {
            return Some(part);
        }
        let first = part.split(most as usize);
        self.parts.push_front(part);
        Some(first)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(UploadStretch::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Copied bytes of a body become a part of it.
pub(crate) fn keep_copied(body: &mut Vec<u8>, parts: &mut VecDeque<UploadStretch>) {
    if !body.is_empty() {
        parts.push_back(UploadStretch::Copied(std::mem::take(body)));
    }
}
