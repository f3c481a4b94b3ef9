//! Frames on streams that are closed (RFC 9113, section 5.1).
//!
//! A stream that we reset may still bring what left the server before our frame arrived: that is forgiven. On
//! any other closed stream HEADERS and DATA are a response that no request had asked for.

use std::collections::VecDeque;

use super::super::block::Block;
use super::super::frame::{self, FrameHead, flag};
use super::super::limits::{RESETS_KNOWN, SURPLUS_OPEN};
use super::super::streams::StreamData;
use super::super::{Code, H2Error};
use super::{Client, ResponseSink};

/// The closed streams of which more has to be known.
#[derive(Debug, Default)]
pub(super) struct LateFrames {
    /// Streams that we reset last.
    reset: VecDeque<u32>,
    /// All up to this one are forgiven, since not all resets are remembered.
    forgiven: u32,
    /// Streams on which a surplus response has begun that has not ended, and whether more than interim ones came of it.
    surplus: VecDeque<(u32, bool)>,
}

/// A part of a surplus response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurplusPart {
    Interim,
    Head,
    /// Content or trailers.
    Rest,
}

impl LateFrames {
    fn note_reset(&mut self, id: u32) {
        if self.reset.len() >= RESETS_KNOWN
            && let Some(oldest) = self.reset.pop_front()
        {
            self.forgiven = self.forgiven.max(oldest);
        }
        self.reset.push_back(id);
    }

    fn forgives(&self, id: u32) -> bool {
        id <= self.forgiven || self.reset.contains(&id)
    }

    /// A surplus response begins, or goes on. Returns how many begin.
    fn count(&mut self, id: u32, part: SurplusPart, ends: bool) -> u64 {
        let at = self.surplus.iter().position(|(open, _)| *open == id);
        let known = at.and_then(|at| self.surplus.remove(at));
        let is_second = known.is_some_and(|(_, has_head)| has_head && part == SurplusPart::Head);
        if !ends {
            if self.surplus.len() >= SURPLUS_OPEN {
                self.surplus.pop_front();
            }
            let has_head = known.is_some_and(|(_, has_head)| has_head) || part != SurplusPart::Interim;
            self.surplus.push_back((id, has_head));
        }
        u64::from(known.is_none() || is_second)
    }
}

impl<S: StreamData> Client<S> {
    /// Resets a stream, whose late frames are forgiven from then on.
    pub(super) fn put_reset(&mut self, id: u32, code: Code) {
        self.late.note_reset(id);
        frame::put_reset(id, code, &mut self.control);
    }

    /// A field block on a closed stream; `None`: it was too long to be kept.
    #[cold]
    pub(super) fn late_block<'i>(
        &mut self,
        id: u32,
        block: Option<&Block>,
        ends: bool,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        self.must_be_opened(id)?;
        if !self.late.forgives(id) {
            let part = match block.map_or(200, Block::status) {
                0 => SurplusPart::Rest,
                1..200 => SurplusPart::Interim,
                _ => SurplusPart::Head,
            };
            let begins = self.late.count(id, part, ends);
            sink.surplus(block.map_or(&[][..], |block| block.head().raw()), begins);
        }
        self.idle()
    }

    /// A DATA frame on a closed stream.
    #[cold]
    pub(super) fn late_data<'i>(
        &mut self,
        head: FrameHead,
        content: &[u8],
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        if !self.late.forgives(head.stream) {
            let begins = self.late.count(head.stream, SurplusPart::Rest, head.has(flag::END_STREAM));
            sink.surplus(content, begins);
        }
        self.idle()
    }
}
