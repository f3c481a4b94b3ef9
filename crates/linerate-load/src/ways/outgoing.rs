//! A request before a blocking write: what was made for it, and large bodies where they are.

use std::ops::Range;
use std::sync::Arc;

use linerate_http::client::Rendered;

/// A rendered request.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    copied: Vec<u8>,
    parts: Vec<Part>,
    len: usize,
}

#[derive(Debug)]
enum Part {
    Copied(Range<usize>),
    Shared(Arc<[u8]>, Range<usize>),
}

impl Outgoing {
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.parts.clear();
        self.len = 0;
    }

    pub(super) fn push(&mut self, part: Rendered<'_>) {
        match part {
            Rendered::Copied(bytes) => {
                let start = self.copied.len();
                self.copied.extend_from_slice(bytes);
                self.len += bytes.len();
                self.parts.push(Part::Copied(start..self.copied.len()));
            }
            Rendered::Shared(body, range) => {
                self.len += range.len();
                self.parts.push(Part::Shared(Arc::clone(body), range));
            }
        }
    }

    /// Bytes of all of it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The pieces to write, in this order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Copied(range) => &self.copied[range.clone()],
            Part::Shared(body, range) => &body[range.clone()],
        })
    }
}
