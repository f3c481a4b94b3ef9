//! Responses become frames.

use super::super::Code;
use super::super::frame::{self, FRAME_HEAD, FrameHead, flag, kind};
use super::super::hpack;
use super::super::limits::{LARGEST_WINDOW, OWN_FRAME_BYTES};
use super::{Server, blocks};
use crate::server::CheckedFields;

impl Server {
    /// Writes the head of a response. `ends`: it has no body, and no trailers.
    #[inline]
    pub fn respond(&mut self, stream: u32, block: &[u8], ends: bool) {
        if self.flows.get(stream).is_none_or(|flow| flow.sent) {
            return;
        }
        self.put_block(stream, block, ends);
        if ends {
            self.end_response(stream);
        }
    }

    /// Writes an interim response.
    pub fn write_interim(&mut self, stream: u32, status: u16) {
        if self.flows.get(stream).is_some() {
            self.put_status(stream, status, false);
        }
    }

    pub(super) fn put_status(&mut self, stream: u32, status: u16, ends: bool) {
        let mut block = Vec::with_capacity(5);
        blocks::status(status, &mut block);
        self.put_block(stream, &block, ends);
    }

    /// Bytes of content that the client's windows admit now; `None`: the stream is over.
    #[inline]
    pub fn room(&self, stream: u32) -> Option<usize> {
        let flow = self.flows.get(stream).filter(|flow| !flow.sent)?;
        Some(flow.send_left.min(self.send_left).max(0) as usize)
    }

    /// Writes content, as much as there is [room](Server::room) for; returns how much that is.
    /// `ends`: all of it is the end of the response.
    #[inline]
    pub fn write_data(&mut self, stream: u32, content: &[u8], ends: bool) -> usize {
        let Some(room) = self.room(stream) else { return 0 };
        let len = content.len().min(room);
        let ends = ends && len == content.len();
        if let Some(flow) = self.flows.get_mut(stream) {
            flow.send_left -= len as i64;
        }
        self.send_left -= len as i64;
        let mut left = &content[..len];
        let most = self.frame_bytes();
        while left.len() > most {
            let (piece, rest) = left.split_at(most);
            frame::put(kind::DATA, 0, stream, piece, &mut self.out);
            left = rest;
        }
        if !left.is_empty() || ends {
            frame::put(kind::DATA, u8::from(ends) * flag::END_STREAM, stream, left, &mut self.out);
        }
        if ends {
            self.end_response(stream);
        }
        len
    }

    /// Writes the trailer section, with which the response ends.
    pub fn write_trailers(&mut self, stream: u32, fields: &CheckedFields) {
        let mut block = Vec::new();
        blocks::fields(fields, |name, value| hpack::field(name, value, &mut block));
        match block.is_empty() {
            true => _ = self.write_data(stream, &[], true),
            false => self.respond(stream, &block, true),
        }
    }

    /// Content was read, so that the client may send as much again.
    pub fn release(&mut self, stream: u32, bytes: usize) {
        let bytes = bytes as u32;
        self.release_to_connection(bytes);
        if let Some(flow) = self.flows.get_mut(stream)
            && !flow.received
        {
            flow.unreported += bytes;
            if flow.unreported > self.options.stream_window / 2 {
                frame::put_window(stream, flow.unreported, &mut self.out);
                flow.receive_left += std::mem::take(&mut flow.unreported);
            }
        }
    }

    /// Widens the connection's window to `window` bytes, at most 2^31 - 1; a narrower one changes nothing.
    pub fn widen(&mut self, window: u32) {
        let more = window.min(LARGEST_WINDOW).saturating_sub(self.window);
        if more > 0 && !self.is_over() {
            frame::put_window(0, more, &mut self.out);
            self.window += more;
            self.receive_left += more;
        }
    }

    /// The same for a stream that is no longer read.
    pub fn release_to_connection(&mut self, bytes: u32) {
        self.unreported += bytes;
        if self.unreported > self.window / 2 {
            frame::put_window(0, self.unreported, &mut self.out);
            self.receive_left += std::mem::take(&mut self.unreported);
        }
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: Code) {
        if self.flows.get(stream).is_some() && !self.is_over() {
            self.put_reset(stream, code);
        }
    }

    /// The owner has nothing more to do with a stream. If it is not over, it is reset: without an
    /// error if the response is whole.
    #[inline]
    pub fn close(&mut self, stream: u32) {
        if let Some(flow) = self.flows.get(stream)
            && !self.is_over()
        {
            let code = if flow.sent { Code::NO_ERROR } else { Code::CANCEL };
            self.put_reset(stream, code);
        }
    }

    #[cold]
    pub(super) fn put_reset(&mut self, stream: u32, code: Code) {
        frame::put_reset(stream, code, &mut self.out);
        self.flows.remove(stream);
        self.flows.was_reset(stream);
        self.end_if_done();
    }

    #[inline]
    fn end_response(&mut self, stream: u32) {
        if let Some(flow) = self.flows.get_mut(stream) {
            flow.sent = true;
        }
        self.end_if_both(stream);
    }

    /// Forgets a stream that is over in both directions.
    #[inline]
    pub(super) fn end_if_both(&mut self, stream: u32) {
        if self.flows.get(stream).is_some_and(|flow| flow.sent && flow.received) {
            self.flows.remove(stream);
            self.end_if_done();
        }
    }

    fn frame_bytes(&self) -> usize {
        self.settings.max_frame_size.min(OWN_FRAME_BYTES) as usize
    }

    #[inline]
    fn put_block(&mut self, stream: u32, block: &[u8], ends: bool) {
        let flags = u8::from(ends) * flag::END_STREAM;
        if self.wrote && block.len() <= self.frame_bytes() {
            return frame::put(kind::HEADERS, flags | flag::END_HEADERS, stream, block, &mut self.out);
        }
        self.put_long_block(stream, flags, block);
    }

    /// In as many frames as it takes. The first on a connection says that we use no dynamic table
    /// (RFC 7541 section 4.2).
    #[cold]
    fn put_long_block(&mut self, stream: u32, flags: u8, block: &[u8]) {
        let mut whole = Vec::with_capacity(block.len() + 1);
        if !std::mem::replace(&mut self.wrote, true) {
            hpack::shrink(&mut whole);
        }
        whole.extend_from_slice(block);
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        let mut frames = whole.chunks(self.frame_bytes()).peekable();
        while let Some(fragment) = frames.next() {
            let last = if frames.peek().is_none() { flag::END_HEADERS } else { 0 };
            let head = FrameHead { len: fragment.len() as u32, kind, flags: flags | last, stream };
            self.out.reserve(FRAME_HEAD + fragment.len());
            self.out.extend_from_slice(&head.bytes());
            self.out.extend_from_slice(fragment);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}
