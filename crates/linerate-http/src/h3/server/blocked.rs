//! Streams that wait for entries of QPACK's table (RFC 9204, section 2.1.2).
//!
//! What has come of such a stream is kept. Once the entries are there, it goes back as
//! [`StreamRecord::Again`], and is read when it returns. What comes of the stream meanwhile is kept too,
//! and goes back when that was read.

use super::super::{H3Code, H3Error, frame_kind, put_frame};
use super::{H3Server, OpenRecord, StreamRecord, stream_of};

/// What has come of a stream that waits, or of which bytes are on their way back.
#[derive(Debug, Default)]
pub(super) struct BlockedStream {
    /// Inserts that its field section needs; `None`: bytes are on their way back.
    required: Option<u64>,
    /// The section's frame, and what stood behind it in bytes that came again.
    front: Vec<u8>,
    /// What came since then. The stream's window is its limit, for nothing of it counts as read.
    later: Vec<u8>,
    /// The client has ended the stream behind it.
    pub(super) ends: bool,
}

impl BlockedStream {
    /// Whether it waits for entries.
    pub(super) fn waits(&self) -> bool {
        self.required.is_some()
    }

    /// Keeps bytes that may not be read yet; `false`: they may.
    pub(super) fn hold(&mut self, bytes: &[u8], record: OpenRecord) -> bool {
        if record.again && !self.waits() {
            return false;
        }
        let kept = if record.again { &mut self.front } else { &mut self.later };
        kept.extend_from_slice(bytes);
        self.ends |= record.ends;
        true
    }
}

impl H3Server {
    /// A field section needs entries that have not come.
    #[cold]
    pub(super) fn wait(&mut self, id: u32, required: u64, section: &[u8]) -> Result<(), H3Error> {
        let waits = |blocked: &Option<BlockedStream>| blocked.as_ref().is_some_and(BlockedStream::waits);
        let waiting = self.flows.iter().filter(|flow| waits(&flow.blocked)).count();
        let most = self.options.blocked_streams;
        if waiting >= most as usize {
            let why = format!("more than {most} streams wait for entries of the table");
            return Err(H3Error::new(H3Code::QPACK_DECOMPRESSION_FAILED, why));
        }
        let Some(flow) = self.flow_mut(id) else { return Ok(()) };
        let blocked = flow.blocked.get_or_insert_default();
        blocked.required = Some(required);
        put_frame(frame_kind::HEADERS, section, &mut blocked.front);
        // The frame counts as read, and will once more.
        let again = blocked.front.len() as u32;
        flow.debt += again;
        self.debt += again;
        Ok(())
    }

    /// Entries have come: asks for the bytes of streams that wait for no others.
    pub(super) fn unblock(&mut self) {
        let inserts = self.decoder.inserts();
        for flow in &mut self.flows {
            if let Some(blocked) = &mut flow.blocked
                && blocked.required.is_some_and(|required| required <= inserts)
            {
                let mut bytes = std::mem::take(&mut blocked.front);
                bytes.append(&mut blocked.later);
                let ends = std::mem::take(&mut blocked.ends);
                blocked.required = None;
                let stream = stream_of(flow.id);
                StreamRecord::Again { stream, bytes: &bytes, ends }.write(&mut self.out);
            }
        }
    }

    /// Bytes that came again were read: those that came meanwhile are next.
    pub(super) fn come_again(&mut self, id: u32) {
        let Some(flow) = self.flow_mut(id) else { return };
        let Some(BlockedStream { later, ends, .. }) = flow.blocked.take() else { return };
        if !later.is_empty() || ends {
            flow.blocked = Some(BlockedStream::default());
            StreamRecord::Again { stream: stream_of(id), bytes: &later, ends }.write(&mut self.out);
        }
    }

    /// A stream is given up before all of it was read.
    pub(super) fn drop_blocked(&mut self, stream: u64, blocked: &BlockedStream) {
        if blocked.waits() {
            self.decoder.cancel(stream);
        }
        self.release_to_connection((blocked.front.len() + blocked.later.len()) as u32);
    }
}
