//! Opens streams: writes requests' HEADERS.

use super::super::frame::{self, FrameHead, flag, kind};
use super::super::hpack;
use super::super::streams::{Stream, StreamData};
use super::Client;
use crate::client::Expect;

impl<S: StreamData> Client<S> {
    /// Opens a stream and appends its HEADERS. `ends`: the request has no body. Returns the stream's
    /// number.
    #[inline]
    pub fn open(&mut self, data: S, block: &[u8], expect: Expect, ends: bool, out: &mut Vec<u8>) -> u32 {
        let id = if expect == Expect::Head || !ends {
            let bodiless = expect == Expect::Head;
            self.streams.open_alone(Stream { bodiless, uploads: !ends, ..Stream::new(data) })
        } else {
            self.streams.open_row(data, 1)
        };
        let flags = if ends { flag::END_STREAM } else { 0 };
        if self.wrote && block.len() <= self.frame_bytes() as usize {
            frame::put(kind::HEADERS, flags | flag::END_HEADERS, id, block, out);
        } else {
            self.write_block(id, flags, block, out);
        }
        id
    }

    /// Opens `count` streams for requests without a body that have the same field block, and appends their
    /// HEADERS. `data` is kept of all of them ([`StreamData::nth`]).
    #[inline]
    pub fn open_together(&mut self, data: &S, count: u32, block: &[u8], expect: Expect, out: &mut Vec<u8>) {
        let mut singly = 0;
        if expect == Expect::Head || block.len() > self.frame_bytes() as usize {
            singly = count;
        } else if !self.wrote {
            singly = count.min(1);
        }
        for n in 0..singly {
            self.open(data.nth(n), block, expect, true, out);
        }
        let Some(left @ 1..) = count.checked_sub(singly) else { return };
        let id = self.streams.open_row(data.nth(singly), left);
        let start = out.len();
        frame::put(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, id, block, out);
        let bytes = out.len() - start;
        // Twice as much each time; then each gets its number.
        let mut made = 1;
        while made < left {
            let more = made.min(left - made);
            out.extend_from_within(start..start + more as usize * bytes);
            made += more;
        }
        for (frame, id) in out[start..].chunks_exact_mut(bytes).zip((id..).step_by(2)).skip(1) {
            FrameHead::set_stream(frame, id);
        }
    }

    /// Writes a field block in as many frames as it takes. The first on a connection says that we
    /// use no dynamic table, so that no setting of the server's changes what blocks mean (RFC 7541,
    /// section 4.2).
    #[cold]
    fn write_block(&mut self, id: u32, flags: u8, block: &[u8], out: &mut Vec<u8>) {
        let mut whole = Vec::with_capacity(block.len() + 1);
        if !std::mem::replace(&mut self.wrote, true) {
            hpack::shrink(&mut whole);
        }
        whole.extend_from_slice(block);
        let mut frames = whole.chunks(self.frame_bytes() as usize).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        while let Some(fragment) = frames.next() {
            let last = if frames.peek().is_none() { flag::END_HEADERS } else { 0 };
            frame::put(kind, flags | last, id, fragment, out);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}
