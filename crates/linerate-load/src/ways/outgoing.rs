//! A request before a blocking write: what was made for it, and large bodies where they are.

use std::ops::Range;
use std::sync::Arc;

use linerate_client::Out;
use linerate_net::{Lent, NetError};

/// A rendered request.
#[derive(Debug, Default)]
pub(super) struct RenderedRequest {
    copied: Vec<u8>,
    parts: Vec<RenderedPart>,
}

#[derive(Debug)]
enum RenderedPart {
    Copied(Range<usize>),
    Shared(Arc<[u8]>, Range<usize>),
}

impl RenderedRequest {
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.parts.clear();
    }

    /// The pieces to write, in this order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            RenderedPart::Copied(range) => &self.copied[range.clone()],
            RenderedPart::Shared(body, range) => &body[range.clone()],
        })
    }
}

impl Out for RenderedRequest {
    fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.parts.push(RenderedPart::Copied(start..self.copied.len()));
        Ok(())
    }

    fn send_shared(
        &mut self,
        bytes: &Arc<[u8]>,
        _: Option<Lent>,
        range: Range<usize>,
    ) -> Result<(), NetError> {
        self.parts.push(RenderedPart::Shared(Arc::clone(bytes), range));
        Ok(())
    }
}
