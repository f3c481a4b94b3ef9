//! Bodies of requests that wait for the server's windows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use linerate_net::{Lent, Time};

/// The part of a request's body that has not left.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: u32,
    parts: VecDeque<UploadStretch>,
    /// More is given later.
    pub(super) follows: bool,
    /// When a part of it left last.
    pub(super) since: Time,
}

/// A stretch of a body.
#[derive(Debug)]
pub(super) enum UploadStretch {
    /// Bytes of this request.
    Copied(Vec<u8>),
    /// A range of bytes that stay where they are.
    Shared(Arc<[u8]>, Option<Lent>, Range<usize>),
    /// Immutable shared bytes.
    Counted(Bytes),
}

impl UploadStretch {
    pub(super) fn len(&self) -> usize {
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

impl Upload {
    pub(super) fn new(id: u32, parts: VecDeque<UploadStretch>, follows: bool, since: Time) -> Upload {
        Upload { id, parts, follows, since }
    }

    pub(super) fn give(&mut self, piece: Bytes) {
        self.parts.push_back(UploadStretch::Counted(piece));
    }

    /// Nothing of it is left, and nothing follows.
    pub(super) fn ends(&self) -> bool {
        self.parts.is_empty() && !self.follows
    }

    /// Takes the next bytes off, `most` of them at most.
    pub(super) fn take(&mut self, most: u32) -> Option<UploadStretch> {
        let mut part = self.parts.pop_front()?;
        if part.len() <= most as usize {
            return Some(part);
        }
        let first = part.split(most as usize);
        self.parts.push_front(part);
        Some(first)
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(UploadStretch::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
