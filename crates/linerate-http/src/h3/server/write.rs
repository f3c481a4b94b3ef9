//! Responses become records.

use super::super::{H3Code, H3Error, field_line, put_data_head, put_frame, section_prefix};
use super::{
    ALL_STREAMS, DECODER, H3Server, INSTRUCTIONS_WAITING, StreamRecord, frame_kind, put_bytes_head,
    stream_kind, stream_of,
};
use crate::h2::server::{each_field, status_digits};
use crate::server::CheckedFields;

/// Bytes of a record's content before the fields or content of a frame.
const FRAME_HEAD: usize = 16;

impl H3Server {
    /// Writes the head of a response. `ends`: it has no body, and no trailers.
    #[inline]
    pub fn respond(&mut self, id: u32, block: &[u8], ends: bool) {
        if self.flow(id).is_none_or(|flow| flow.sent) {
            return;
        }
        let mut frame = Vec::with_capacity(FRAME_HEAD + block.len());
        put_frame(frame_kind::HEADERS, block, &mut frame);
        self.put(id, &frame, &[], ends);
    }

    /// Writes an interim response.
    pub fn write_interim(&mut self, id: u32, status: u16) {
        self.put_status(id, status, false);
    }

    pub(super) fn put_status(&mut self, id: u32, status: u16, ends: bool) {
        let mut block = Vec::with_capacity(8);
        section_prefix(&mut block);
        field_line(b":status", &status_digits(status), &mut block);
        self.respond(id, &block, ends);
    }

    /// Bytes of content that the transport takes now; `None`: the stream is over.
    #[inline]
    pub fn room(&self, id: u32) -> Option<usize> {
        let flow = self.flow(id).filter(|flow| !flow.sent)?;
        Some(flow.send_left.min(self.send_left).max(0) as usize)
    }

    /// Writes content, as much as there is [room](H3Server::room) for; returns how much that is.
    /// `ends`: all of it is the end of the response.
    #[inline]
    pub fn write_data(&mut self, id: u32, content: &[u8], ends: bool) -> usize {
        let Some(room) = self.room(id) else { return 0 };
        let len = content.len().min(room);
        let ends = ends && len == content.len();
        let mut head = Vec::with_capacity(FRAME_HEAD);
        if len > 0 {
            put_data_head(len as u64, &mut head);
        }
        if len > 0 || ends {
            self.put(id, &head, &content[..len], ends);
        }
        len
    }

    /// Writes the trailer section, with which the response ends.
    pub fn write_trailers(&mut self, id: u32, fields: &CheckedFields) {
        let mut block = Vec::new();
        section_prefix(&mut block);
        let begun = block.len();
        each_field(fields, |name, value| field_line(name, value, &mut block));
        match block.len() == begun {
            true => _ = self.write_data(id, &[], true),
            false => self.respond(id, &block, true),
        }
    }

    /// Writes bytes of a response, in two parts.
    #[inline]
    fn put(&mut self, id: u32, head: &[u8], content: &[u8], ends: bool) {
        let len = head.len() + content.len();
        if let Some(flow) = self.flow_mut(id) {
            flow.send_left -= len as i64;
            flow.sent |= ends;
        }
        self.send_left -= len as i64;
        put_bytes_head(stream_of(id), len, ends, &mut self.out);
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(content);
        if ends {
            self.end_if_both(id);
        }
    }

    /// Bytes were read, so that as many may come again.
    pub fn release(&mut self, id: u32, bytes: usize) {
        let bytes = bytes as u32;
        self.release_to_connection(bytes);
        let half = self.options.stream_window / 2;
        if let Some(flow) = self.flow_mut(id)
            && !flow.received
        {
            let paid = bytes.min(flow.debt);
            flow.debt -= paid;
            flow.unreported += bytes - paid;
            if flow.unreported > half {
                let bytes = u64::from(std::mem::take(&mut flow.unreported));
                StreamRecord::Room { stream: stream_of(id), bytes }.write(&mut self.out);
            }
        }
    }

    /// The same for a stream that is no longer read.
    pub fn release_to_connection(&mut self, bytes: u32) {
        let paid = bytes.min(self.debt);
        self.debt -= paid;
        self.unreported += bytes - paid;
        if self.unreported > self.window / 2 {
            let bytes = u64::from(std::mem::take(&mut self.unreported));
            StreamRecord::Room { stream: ALL_STREAMS, bytes }.write(&mut self.out);
        }
    }

    /// Takes up to `window` bytes of all streams that were not read; fewer change nothing.
    pub fn widen(&mut self, window: u32) {
        let more = window.saturating_sub(self.window);
        if more > 0 && !self.is_over() {
            StreamRecord::Room { stream: ALL_STREAMS, bytes: u64::from(more) }.write(&mut self.out);
            self.window += more;
        }
    }

    /// Gives up a stream.
    pub fn reset(&mut self, id: u32, code: H3Code) {
        if !self.is_over() {
            self.put_reset(id, code);
        }
    }

    /// The owner has nothing more to do with a stream. If it is not over, it is given up: without an
    /// error if the response is whole (RFC 9114, section 4.1).
    #[inline]
    pub fn close(&mut self, id: u32) {
        if let Some(flow) = self.flow(id) {
            let code = if flow.sent { H3Code::NO_ERROR } else { H3Code::REQUEST_CANCELLED };
            self.reset(id, code);
        }
    }

    /// Ends both directions of a stream, as far as they have not ended.
    #[cold]
    pub(super) fn put_reset(&mut self, id: u32, code: H3Code) {
        let Some(flow) = self.remove(id) else { return };
        let (stream, code) = (stream_of(id), code.0);
        if !flow.sent {
            StreamRecord::Reset { stream, code }.write(&mut self.out);
        }
        if !flow.received {
            StreamRecord::Stop { stream, code }.write(&mut self.out);
        }
        if let Some(blocked) = flow.blocked {
            self.drop_blocked(stream, &blocked);
        }
        self.end_if_done();
    }

    /// Forgets a stream that is over in both directions.
    #[inline]
    pub(super) fn end_if_both(&mut self, id: u32) {
        if self.flow(id).is_some_and(|flow| flow.sent && flow.received) {
            self.remove(id);
            self.end_if_done();
        }
    }

    /// Sends what QPACK's decoder has to say.
    pub(super) fn put_instructions(&mut self) -> Result<(), H3Error> {
        if self.options.table_capacity == 0 {
            return Ok(());
        }
        let mut instructions = std::mem::take(self.decoder.instructions());
        if instructions.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(instructions.len() + 1);
        if self.instructions_left.is_none() {
            bytes.push(stream_kind::QPACK_DECODER as u8);
        }
        bytes.append(&mut instructions);
        let left = self.instructions_left.get_or_insert(INSTRUCTIONS_WAITING);
        *left -= bytes.len() as i64;
        if *left < 0 {
            let why = "the client does not read what QPACK's decoder has to say";
            return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, why));
        }
        self.put_own(DECODER, &bytes);
        Ok(())
    }
}
