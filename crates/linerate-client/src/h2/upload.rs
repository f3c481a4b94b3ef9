//! Bodies of requests that wait for the server's windows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use linerate_net::Lent;

/// What has not left of a request's body.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: u32,
    parts: VecDeque<Part>,
}

/// A stretch of a body.
#[derive(Debug)]
pub(super) enum Part {
    /// Bytes of this request.
    Copied(Vec<u8>),
    /// A range of bytes that stay where they are.
    Shared(Arc<[u8]>, Option<Lent>, Range<usize>),
}

impl Part {
    pub(super) fn len(&self) -> usize {
        match self {
            Part::Copied(bytes) => bytes.len(),
            Part::Shared(_, _, range) => range.len(),
        }
    }

    /// Takes the first `len` bytes off.
    fn split(&mut self, len: usize) -> Part {
        match self {
            Part::Copied(bytes) => {
                let rest = bytes.split_off(len);
                Part::Copied(std::mem::replace(bytes, rest))
            }
            Part::Shared(bytes, lent, range) => {
                let first = range.start..range.start + len;
                range.start += len;
                Part::Shared(bytes.clone(), *lent, first)
            }
        }
    }
}

impl Upload {
    pub(super) fn new(id: u32, parts: VecDeque<Part>) -> Upload {
        Upload { id, parts }
    }

    /// Takes the next bytes off, at most so many.
    pub(super) fn take(&mut self, most: u32) -> Option<Part> {
        let mut part = self.parts.pop_front()?;
        if part.len() <= most as usize {
            return Some(part);
        }
        let first = part.split(most as usize);
        self.parts.push_front(part);
        Some(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
