//! Bytes to frames, however the bytes are cut.

use super::frame::{FRAME_HEAD, FrameHead, flag, kind};
use super::limits::FRAME_BYTES;
use super::{Code, H2Error};

/// Reads frames. DATA is handed out as it comes; other frames are handed out whole.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// The beginning of a frame whose rest has not come.
    carry: Vec<u8>,
    /// `carry` was handed out as a frame.
    spent: bool,
    /// The DATA frame that is being handed out.
    data: Option<Rest>,
    /// The server's first frame was read.
    begun: bool,
}

/// The part of a DATA frame that has not arrived yet.
#[derive(Clone, Copy, Debug)]
struct Rest {
    head: FrameHead,
    content: u32,
    padding: u32,
}

/// A frame, or a piece of one.
#[derive(Debug)]
pub(super) enum FramePiece<'c, 'i> {
    /// A whole frame that is not DATA.
    Frame(FrameHead, &'c [u8]),
    /// Content of a DATA frame; `first`: nothing of the frame was handed out before; `last`: the
    /// frame ends with it.
    Data { head: FrameHead, content: &'i [u8], first: bool, last: bool },
}

impl FrameReader {
    /// The next frame, or piece of one; `None` if more bytes are needed. All input is then used.
    #[inline]
    pub(super) fn next<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<FramePiece<'c, 'i>>, H2Error> {
        if self.spent {
            self.carry.clear();
            self.spent = false;
        }
        if let Some(rest) = self.data {
            return Ok(self.more_data(rest, false, input));
        }
        if !self.carry.is_empty() {
            return self.next_carried(input);
        }
        let Some((bytes, behind)) = input.split_first_chunk::<FRAME_HEAD>() else {
            self.carry.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        };
        let head = self.head(bytes)?;
        let len = head.len as usize;
        // The length of the padding belongs to the head.
        if head.kind == kind::DATA && (!head.has(flag::PADDED) || !behind.is_empty() || len == 0) {
            *input = behind;
            let rest = self.begin_data(head, input)?;
            return Ok(self.more_data(rest, true, input));
        }
        let Some((payload, behind)) = behind.split_at_checked(len) else {
            self.carry.extend_from_slice(input);
            *input = &[];
            return Ok(None);
        };
        *input = behind;
        Ok(Some(FramePiece::Frame(head, payload)))
    }

    /// Reads the rest of a frame whose beginning is in `carry`.
    fn next_carried<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<FramePiece<'c, 'i>>, H2Error> {
        self.fill(FRAME_HEAD, input);
        let Some(bytes) = self.carry.first_chunk::<FRAME_HEAD>().copied() else { return Ok(None) };
        let head = self.head(&bytes)?;
        if head.kind == kind::DATA {
            let padded = usize::from(head.has(flag::PADDED) && head.len > 0);
            self.fill(FRAME_HEAD + padded, input);
            if self.carry.len() < FRAME_HEAD + padded {
                return Ok(None);
            }
            self.spent = true;
            let pad = self.carry.get(FRAME_HEAD).copied();
            let rest = self.begin(head, pad)?;
            return Ok(self.more_data(rest, true, input));
        }
        self.fill(FRAME_HEAD + head.len as usize, input);
        if self.carry.len() < FRAME_HEAD + head.len as usize {
            return Ok(None);
        }
        self.spent = true;
        Ok(Some(FramePiece::Frame(head, &self.carry[FRAME_HEAD..])))
    }

    /// Moves bytes of the input to `carry`, until that has `wanted` bytes.
    fn fill(&mut self, wanted: usize, input: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.carry.len()).min(input.len());
        let (bytes, behind) = input.split_at(missing);
        self.carry.extend_from_slice(bytes);
        *input = behind;
    }

    /// Whether the next byte is the first of a frame, and not of the connection's first.
    #[inline]
    pub(super) fn is_between(&self) -> bool {
        self.begun && self.data.is_none() && (self.carry.is_empty() || self.spent)
    }

    /// Whether the server's first frame was what it must be.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether a frame has begun and not ended.
    pub(super) fn in_frame(&self) -> bool {
        self.data.is_some() || !(self.carry.is_empty() || self.spent)
    }

    fn head(&mut self, bytes: &[u8; FRAME_HEAD]) -> Result<FrameHead, H2Error> {
        let head = FrameHead::read(bytes);
        if !self.begun {
            if bytes.starts_with(b"HTTP/1.") {
                return Err(H2Error::protocol("the server answers by HTTP/1.1, not by HTTP/2"));
            }
            if head.kind != kind::SETTINGS || head.has(flag::ACK) {
                return Err(H2Error::protocol("the server does not begin with its settings"));
            }
        }
        self.begun = true;
        if head.len > FRAME_BYTES {
            let why = format!("a frame of {} bytes, where {FRAME_BYTES} are allowed", head.len);
            return Err(H2Error::new(Code::FRAME_SIZE_ERROR, why));
        }
        Ok(head)
    }

    /// Begins a DATA frame whose padding length, if it has one, is in the input.
    fn begin_data(&mut self, head: FrameHead, input: &mut &[u8]) -> Result<Rest, H2Error> {
        let mut pad = None;
        if head.has(flag::PADDED)
            && head.len > 0
            && let Some((first, behind)) = input.split_first()
        {
            pad = Some(*first);
            *input = behind;
        }
        self.begin(head, pad)
    }

    fn begin(&mut self, head: FrameHead, pad: Option<u8>) -> Result<Rest, H2Error> {
        if !head.has(flag::PADDED) {
            return Ok(Rest { head, content: head.len, padding: 0 });
        }
        let too_long = || H2Error::protocol("a DATA frame's padding is longer than the frame");
        let padding = u32::from(pad.ok_or_else(too_long)?);
        let content = (head.len - 1).checked_sub(padding).ok_or_else(too_long)?;
        Ok(Rest { head, content, padding })
    }

    /// Hands out content of a DATA frame.
    #[inline]
    fn more_data<'c, 'i>(
        &mut self,
        mut rest: Rest,
        first: bool,
        input: &mut &'i [u8],
    ) -> Option<FramePiece<'c, 'i>> {
        let (content, behind) = input.split_at(input.len().min(rest.content as usize));
        rest.content -= content.len() as u32;
        let (padding, behind) = behind.split_at(match rest.content {
            0 => behind.len().min(rest.padding as usize),
            _ => 0,
        });
        rest.padding -= padding.len() as u32;
        *input = behind;
        let last = rest.content == 0 && rest.padding == 0;
        self.data = (!last).then_some(rest);
        if content.is_empty() && !first && !last {
            return None;
        }
        Some(FramePiece::Data { head: rest.head, content, first, last })
    }
}
