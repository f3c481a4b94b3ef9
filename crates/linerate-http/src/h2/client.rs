//! The client's end of a connection.

mod late;
mod open;
mod same;
mod sink;

use std::sync::Arc;

use super::block::{Block, BlockCache};
use super::frame::{self, FrameHead, PREFACE, flag, kind};
use super::hpack::{Decoder, HpackError};
use super::limits::{
    BLOCK_BYTES, BLOCK_FRAMES, FIRST_WINDOW, IDLE_FRAMES, INTERIM, LARGEST_WINDOW, OWN_FRAME_BYTES, WINDOW,
};
use super::reader::{FramePiece, FrameReader};
use super::settings::{self, Settings};
use super::streams::{Phase, Stream, StreamData, Streams};
use super::{Code, H2Error};
use late::LateFrames;

pub use sink::{Lost, ResponseSink};

/// Settings that a client announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The window of each stream, bytes; that of the connection is the same, but never below 65,535.
    pub window: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { window: WINDOW }
    }
}

/// A field block whose frames are still coming.
#[derive(Debug)]
struct Assembly {
    head: FrameHead,
    frames: u32,
    /// The block so far; `None`: it is too long, and its bytes are dropped.
    bytes: Option<Vec<u8>>,
}

/// The client's end of a connection; `S` is what the owner keeps of each stream.
#[derive(Debug)]
pub struct Client<S> {
    reader: FrameReader,
    decoder: Decoder,
    streams: Streams<S>,
    /// Streams whose response has begun.
    begun: u32,
    settings: Settings,
    options: ClientOptions,
    acknowledged: bool,
    /// A request was written.
    wrote: bool,
    /// The rest of our window that the server may use, and of its window that we may use.
    receive_left: u32,
    send_left: i64,
    assembly: Option<Assembly>,
    /// Control frames to send beside requests.
    control: Vec<u8>,
    last_stream: Option<u32>,
    go_away: Option<Code>,
    idle_frames: u32,
    late: LateFrames,
    /// The stream of the frame that broke the connection.
    faulty: Option<u32>,
}

impl<S: StreamData> Client<S> {
    /// For a new connection. The preface and our settings are what it has to say first.
    pub fn new(options: ClientOptions) -> Client<S> {
        let mut control = Vec::with_capacity(PREFACE.len() + 64);
        control.extend_from_slice(PREFACE);
        let mut ours = Vec::with_capacity(24);
        settings::put(settings::id::HEADER_TABLE_SIZE, 0, &mut ours);
        settings::put(settings::id::ENABLE_PUSH, 0, &mut ours);
        settings::put(settings::id::INITIAL_WINDOW_SIZE, options.window.min(LARGEST_WINDOW), &mut ours);
        settings::put(settings::id::MAX_HEADER_LIST_SIZE, BLOCK_BYTES as u32, &mut ours);
        frame::put(kind::SETTINGS, 0, 0, &ours, &mut control);
        let window = options.window.clamp(FIRST_WINDOW, LARGEST_WINDOW);
        if window > FIRST_WINDOW {
            frame::put_window(0, window - FIRST_WINDOW, &mut control);
        }
        Client {
            reader: FrameReader::default(),
            decoder: Decoder::default(),
            streams: Streams::default(),
            begun: 0,
            settings: Settings::default(),
            options,
            acknowledged: false,
            wrote: false,
            receive_left: window,
            send_left: i64::from(FIRST_WINDOW),
            assembly: None,
            control,
            last_stream: None,
            go_away: None,
            idle_frames: 0,
            late: LateFrames::default(),
            faulty: None,
        }
    }

    /// The settings that the server has announced.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The error code of the server's GOAWAY, once one has come: it takes no more requests.
    #[inline]
    pub fn go_away(&self) -> Option<Code> {
        self.go_away
    }

    /// Streams that are open.
    #[inline]
    pub fn open_streams(&self) -> u32 {
        self.streams.open()
    }

    /// Streams that may be opened now.
    #[inline]
    pub fn room(&self) -> u32 {
        if self.go_away.is_some() {
            return 0;
        }
        self.settings.streams().saturating_sub(self.streams.open()).min(self.streams.numbers())
    }

    /// Whether part of a response has come of which more must follow, or part of a frame.
    #[inline]
    pub fn in_response(&self) -> bool {
        self.begun > 0
    }

    /// Whether the connection ended in the middle of a frame, if it ended now.
    pub fn in_frame(&self) -> bool {
        self.reader.in_frame() || self.assembly.is_some()
    }

    /// The streams that are open and their numbers, in no order.
    pub fn streams(&self) -> impl Iterator<Item = (u32, S)> {
        self.streams.all()
    }

    /// Some of the streams that are open and their numbers, in no order: of those that were opened
    /// together, at least the first.
    pub fn first_streams(&self) -> impl Iterator<Item = (u32, S)> {
        self.streams.first_ones()
    }

    /// Control frames to send beside requests; the owner sends and empties them.
    #[inline]
    pub fn take_control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    fn frame_bytes(&self) -> u32 {
        self.settings.max_frame_size.min(OWN_FRAME_BYTES)
    }

    /// Bytes of a stream's body that may leave now as one frame; `None`: the stream is closed.
    pub fn data_room(&self, id: u32) -> Option<u32> {
        let stream = self.streams.get_alone(id)?;
        let window = i64::from(self.settings.initial_window_size) + stream.granted - stream.sent;
        let room = window.min(self.send_left).clamp(0, i64::from(self.frame_bytes()));
        Some(room as u32)
    }

    /// Whether the connection's window admits nothing of any body.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.send_left <= 0
    }

    /// Appends the head of a DATA frame, whose `len` bytes have to follow: at most
    /// [`Client::data_room`]. `ends`: the body ends with it.
    pub fn write_data(&mut self, id: u32, len: u32, ends: bool, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.sent += i64::from(len);
        stream.uploads = !ends;
        self.send_left -= i64::from(len);
        let flags = if ends { flag::END_STREAM } else { 0 };
        out.extend_from_slice(&FrameHead { len, kind: kind::DATA, flags, stream: id }.bytes());
        self.idle_frames = 0;
    }

    /// Closes a stream: nothing of its response is wanted any more.
    pub fn cancel(&mut self, id: u32) -> Option<S> {
        let stream = self.remove(id)?;
        self.put_reset(id, Code::CANCEL);
        Some(stream.data)
    }

    /// Holds a response back: its stream's window grows no more until that is undone.
    pub fn hold(&mut self, id: u32, held: bool) {
        let window = self.options.window.min(LARGEST_WINDOW);
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.held = held;
        if !held && stream.unreported > window / 2 {
            frame::put_window(id, stream.unreported, &mut self.control);
            stream.unreported = 0;
        }
    }

    /// The numbers of the open streams, in order.
    pub fn ids(&self) -> Vec<u32> {
        self.streams.above(0)
    }

    /// Takes a stream out, with whether its response had begun.
    pub fn take(&mut self, id: u32) -> Option<(S, bool)> {
        self.remove(id).map(|stream| (stream.has_begun(), stream.data)).map(|(begun, data)| (data, begun))
    }

    /// The stream of the frame with which the server broke the connection, if it is one of ours that is open.
    pub fn faulty(&self) -> Option<u32> {
        self.faulty.filter(|id| self.streams.has(*id))
    }

    /// Whether the server speaks HTTP/2: its first frame was what it must be.
    pub fn has_greeted(&self) -> bool {
        self.reader.has_begun()
    }

    /// The last stream that the server says it may have processed.
    #[inline]
    pub fn last_stream(&self) -> Option<u32> {
        self.last_stream
    }

    /// The streams that the server will not process, in order (RFC 9113, section 6.8).
    pub fn refused(&self) -> Vec<u32> {
        self.last_stream.map_or_else(Vec::new, |last| self.streams.above(last))
    }

    /// Appends the GOAWAY of a connection that is no longer needed.
    pub fn write_go_away(&self, out: &mut Vec<u8>) {
        frame::put(kind::GOAWAY, 0, 0, &[0; 8], out);
    }

    fn remove(&mut self, id: u32) -> Option<Stream<S>> {
        let stream = self.streams.remove(id)?;
        self.begun -= u32::from(stream.has_begun());
        Some(stream)
    }

    /// Reads what came.
    ///
    /// # Errors
    /// The server broke the rules: the connection carries nothing more.
    #[inline]
    pub fn read<'i>(
        &mut self,
        input: &'i [u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let mut input = input;
        // Taken out, since a frame may be lent from it.
        let mut reader = std::mem::take(&mut self.reader);
        let result = loop {
            if reader.is_between() {
                self.take_same(&mut input, blocks, sink);
            }
            match reader.next(&mut input) {
                Ok(Some(FramePiece::Data { head, content, first, last })) => {
                    if let Err(error) = self.data(head, content, (first, last), sink) {
                        self.faulty = Some(head.stream);
                        break Err(error);
                    }
                }
                Ok(Some(FramePiece::Frame(head, payload))) => {
                    if let Err(error) = self.frame(head, payload, blocks, sink) {
                        self.faulty = Some(head.stream);
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.reader = reader;
        result
    }

    #[inline]
    fn frame<'i>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        if self.assembly.is_some() {
            return self.continuation(head, payload, blocks, sink);
        }
        if head.kind == kind::HEADERS {
            const PLAIN: u8 = flag::END_HEADERS;
            if head.flags & !flag::END_STREAM == PLAIN {
                return self.block(head, payload, blocks, sink);
            }
            return self.headers(head, payload, blocks, sink);
        }
        self.other_frame(head, payload, sink)
    }

    #[cold]
    fn other_frame<'i>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        frame::check(&head)?;
        match head.kind {
            kind::SETTINGS => self.settings_frame(head, payload)?,
            kind::PING if head.has(flag::ACK) => {}
            kind::PING => frame::put(kind::PING, flag::ACK, 0, payload, &mut self.control),
            kind::WINDOW_UPDATE => self.window_update(head, frame::number(payload, 0), sink)?,
            kind::RST_STREAM => self.reset(head, Code(frame::number(payload, 0)), sink)?,
            kind::GOAWAY => self.go_away_frame(payload)?,
            kind::PUSH_PROMISE => return Err(H2Error::protocol("the server pushes, which we forbade")),
            kind::CONTINUATION => {
                return Err(H2Error::protocol("a CONTINUATION frame continues nothing"));
            }
            _ => {}
        }
        self.idle()
    }

    /// Counts a frame that brings no response further.
    fn idle(&mut self) -> Result<(), H2Error> {
        self.idle_frames += 1;
        if self.idle_frames > IDLE_FRAMES {
            let why = format!("{IDLE_FRAMES} frames in a row that bring no response further");
            return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, why));
        }
        Ok(())
    }

    fn settings_frame(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), H2Error> {
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(H2Error::new(Code::FRAME_SIZE_ERROR, "an acknowledgement has settings"));
            }
            self.acknowledged = true;
            self.decoder.set_limit(0);
            return Ok(());
        }
        self.settings.read(payload, 0)?;
        frame::put(kind::SETTINGS, flag::ACK, 0, b"", &mut self.control);
        Ok(())
    }

    fn window_update<'i>(
        &mut self,
        head: FrameHead,
        bytes: u32,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let bytes = i64::from(bytes & LARGEST_WINDOW);
        let largest = i64::from(LARGEST_WINDOW);
        if head.stream == 0 {
            self.send_left += bytes;
            return match () {
                () if bytes == 0 => Err(H2Error::protocol("a window grows by nothing")),
                () if self.send_left > largest => {
                    Err(H2Error::new(Code::FLOW_CONTROL_ERROR, "the connection's window overflows"))
                }
                () => Ok(()),
            };
        }
        self.must_be_opened(head.stream)?;
        let initial = i64::from(self.settings.initial_window_size);
        let Some(stream) = self.streams.get_mut(head.stream) else { return Ok(()) };
        stream.granted += bytes;
        if bytes == 0 {
            self.malformed(head.stream, Code::PROTOCOL_ERROR, "a stream's window grows by nothing", sink);
        } else if initial + stream.granted - stream.sent > largest {
            self.malformed(head.stream, Code::FLOW_CONTROL_ERROR, "a stream's window overflows", sink);
        }
        Ok(())
    }

    fn must_be_opened(&self, id: u32) -> Result<(), H2Error> {
        if self.streams.was_opened(id) {
            return Ok(());
        }
        Err(H2Error::protocol(format!("a frame on stream {id}, which was never opened")))
    }

    fn reset<'i>(
        &mut self,
        head: FrameHead,
        code: Code,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        self.must_be_opened(head.stream)?;
        if let Some(stream) = self.remove(head.stream) {
            let begun = stream.has_begun();
            sink.lost(stream.data, Lost::Reset(code.into()), begun);
        }
        Ok(())
    }

    fn go_away_frame(&mut self, payload: &[u8]) -> Result<(), H2Error> {
        let last = frame::number(payload, 0) & LARGEST_WINDOW;
        if self.last_stream.is_some_and(|before| last > before) {
            return Err(H2Error::protocol("a GOAWAY takes back what the one before it said"));
        }
        self.last_stream = Some(last);
        self.go_away = Some(Code(frame::number(payload, 4)));
        Ok(())
    }

    /// Ends a stream on which the server broke the rules.
    fn malformed<'i>(&mut self, id: u32, code: Code, why: &'static str, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.remove(id) else { return };
        self.put_reset(id, code);
        sink.lost(stream.data, Lost::Malformed(why), true);
    }

    /// HEADERS with padding, priority or continuations.
    #[cold]
    fn headers<'i>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let broken = || H2Error::protocol("a HEADERS frame is shorter than its padding and priority");
        let mut payload = frame::unpadded(head, payload).ok_or_else(broken)?;
        if head.has(flag::PRIORITY) {
            payload = payload.get(5..).ok_or_else(broken)?;
        }
        if head.has(flag::END_HEADERS) {
            return self.block(head, payload, blocks, sink);
        }
        self.must_be_opened(head.stream)?;
        self.assembly = Some(Assembly { head, frames: 1, bytes: Some(payload.to_vec()) });
        Ok(())
    }

    #[cold]
    fn continuation<'i>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let Some(mut assembly) = self.assembly.take() else { return Ok(()) };
        if head.kind != kind::CONTINUATION || head.stream != assembly.head.stream {
            return Err(H2Error::protocol("a field block is interrupted by another frame"));
        }
        assembly.frames += 1;
        if assembly.frames > BLOCK_FRAMES {
            let why = format!("a field block of more than {BLOCK_FRAMES} frames");
            return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, why));
        }
        if let Some(bytes) = &mut assembly.bytes {
            bytes.extend_from_slice(payload);
            if bytes.len() > BLOCK_BYTES {
                self.decoder.read_sizes(bytes)?;
                if !self.decoder.is_stateless() {
                    let why = "a long field block before the server acknowledged our settings";
                    return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, why));
                }
                assembly.bytes = None;
            }
        }
        match &assembly.bytes {
            _ if !head.has(flag::END_HEADERS) => {
                self.assembly = Some(assembly);
                Ok(())
            }
            Some(bytes) => self.block(assembly.head, bytes, blocks, sink),
            None => self.too_long(assembly.head.stream, sink),
        }
    }

    /// Ends the stream of a field block that was dropped, because it is too long. The server broke no rule:
    /// `SETTINGS_MAX_HEADER_LIST_SIZE` is advisory (RFC 9113, section 10.5.1).
    #[cold]
    fn too_long<'i>(&mut self, id: u32, sink: &mut impl ResponseSink<'i, S>) -> Result<(), H2Error> {
        let Some(stream) = self.remove(id) else {
            return self.late_block(id, None, false, sink);
        };
        self.put_reset(id, Code::CANCEL);
        let how = match stream.has_begun() {
            true => Lost::Malformed("the trailers of a response are too long"),
            false => Lost::HeadTooLong(BLOCK_BYTES),
        };
        sink.lost(stream.data, how, true);
        Ok(())
    }

    /// A whole field block.
    #[inline]
    fn block<'i>(
        &mut self,
        head: FrameHead,
        bytes: &[u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let block = match blocks.get(bytes, &mut self.decoder) {
            Ok(block) => block,
            // Without a table the next block means the same, however far this one was decoded.
            Err(HpackError::TooLarge(_)) if self.decoder.is_stateless() => {
                return self.too_long(head.stream, sink);
            }
            Err(error) => return Err(error.into()),
        };
        let ends = head.has(flag::END_STREAM);
        let Some(stream) = self.streams.get_mut(head.stream) else {
            let block = Arc::clone(block);
            return self.late_block(head.stream, Some(&block), ends, sink);
        };
        if let Some(why) = block.problem() {
            self.malformed(head.stream, Code::PROTOCOL_ERROR, why, sink);
            return Ok(());
        }
        if stream.has_begun() {
            let block = Arc::clone(block);
            self.trailers(head.stream, ends, &block, sink);
            return Ok(());
        }
        let status = block.status();
        if status < 200 {
            return self.interim(head.stream, status, ends, sink);
        }
        stream.status = status;
        if ends {
            return match block.content_length() {
                // The length of a body that is not sent (RFC 9110, section 8.6).
                Some(1..) if !stream.bodiless && status != 304 => {
                    let why = "a response ends before its announced length";
                    self.malformed(head.stream, Code::PROTOCOL_ERROR, why, sink);
                    Ok(())
                }
                _ => {
                    self.whole(head.stream, block, &[], sink);
                    Ok(())
                }
            };
        }
        stream.content_left = block.content_length();
        stream.phase = Phase::Held(Arc::clone(block));
        self.begun += 1;
        sink.begun(&mut stream.data);
        if sink.wants_parts() {
            tell_head(stream, sink);
        }
        Ok(())
    }

    /// A response that came in one piece.
    #[inline]
    fn whole<'i>(
        &mut self,
        id: u32,
        block: &Arc<Block>,
        body: &'i [u8],
        sink: &mut impl ResponseSink<'i, S>,
    ) {
        let Some(mut stream) = self.remove(id) else { return };
        self.stop_upload(id, stream.uploads);
        self.idle_frames = 0;
        if !sink.wants_parts() {
            return sink.whole(stream.data, block, body);
        }
        sink.head(&mut stream.data, &block.head());
        if !body.is_empty() {
            sink.body(&mut stream.data, body);
        }
        sink.end(stream.data, stream.status);
    }

    /// The response came before the whole request left, whose rest is not needed (RFC 9113, section
    /// 8.1).
    #[inline]
    fn stop_upload(&mut self, id: u32, uploads: bool) {
        if uploads {
            frame::put_reset(id, Code::CANCEL, &mut self.control);
        }
    }

    #[cold]
    fn interim<'i>(
        &mut self,
        id: u32,
        status: u16,
        ends: bool,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        stream.interim += 1;
        let why = match status {
            0 => "a response has no status",
            101 => "status 101 has no place in HTTP/2 (RFC 9113, 8.6)",
            _ if ends => "a response ends with an interim one",
            _ if stream.interim > INTERIM => "too many interim responses",
            _ => {
                sink.interim(&mut stream.data, status);
                return self.idle();
            }
        };
        self.malformed(id, Code::PROTOCOL_ERROR, why, sink);
        Ok(())
    }

    #[cold]
    fn trailers<'i>(&mut self, id: u32, ends: bool, block: &Block, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let short = stream.content_left.is_some_and(|left| left > 0);
        let why = match () {
            () if !ends => "trailers that do not end their stream",
            () if block.status() > 0 => "a pseudo-field stands in trailers (RFC 9113, 8.1)",
            () if short && !stream.bodiless => "a response ends before its announced length",
            () => {
                tell_head(stream, sink);
                sink.trailers(&mut stream.data, block.trailers());
                return self.end(id, sink);
            }
        };
        self.malformed(id, Code::PROTOCOL_ERROR, why, sink);
    }

    fn end<'i>(&mut self, id: u32, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.remove(id) else { return };
        self.stop_upload(id, stream.uploads);
        self.idle_frames = 0;
        sink.end(stream.data, stream.status);
    }

    /// Content of a DATA frame.
    #[inline]
    fn data<'i>(
        &mut self,
        head: FrameHead,
        content: &'i [u8],
        (first, last): (bool, bool),
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H2Error> {
        let id = head.stream;
        if self.assembly.is_some() {
            return Err(H2Error::protocol("a field block is interrupted by another frame"));
        }
        if first {
            self.take_from_window(head)?;
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return if first { self.late_data(head, content, sink) } else { Ok(()) };
        };
        if let Phase::Waiting = stream.phase {
            self.malformed(id, Code::PROTOCOL_ERROR, "content comes before the head of a response", sink);
            return Ok(());
        }
        if first && !self.take_from_stream(head, sink) {
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let ends = last && head.has(flag::END_STREAM);
        if stream.bodiless {
            // The announced length is that of another response (RFC 9110 section 9.3.2).
            if !content.is_empty() {
                self.malformed(id, Code::PROTOCOL_ERROR, "a response to HEAD has content", sink);
                return Ok(());
            }
        } else if let Some(left) = &mut stream.content_left {
            let len = content.len() as u64;
            let fits = if ends { len == *left } else { len <= *left };
            if !fits {
                let why = "a response's length differs from what it announced";
                self.malformed(id, Code::PROTOCOL_ERROR, why, sink);
                return Ok(());
            }
            *left = left.saturating_sub(len);
        }
        if first
            && ends
            && let Phase::Held(block) = &mut stream.phase
        {
            let block = Arc::clone(block);
            self.whole(id, &block, content, sink);
            return Ok(());
        }
        tell_head(stream, sink);
        if !content.is_empty() {
            sink.body(&mut stream.data, content);
        }
        if ends {
            self.end(id, sink);
        }
        Ok(())
    }

    /// Counts a DATA frame, padding and all, against the connection's window.
    #[inline]
    fn take_from_window(&mut self, head: FrameHead) -> Result<(), H2Error> {
        self.must_be_opened(head.stream)?;
        if head.len == 0 && !head.has(flag::END_STREAM) {
            self.idle()?;
        }
        let Some(left) = self.receive_left.checked_sub(head.len) else {
            return Err(H2Error::new(Code::FLOW_CONTROL_ERROR, "more content than the connection's window"));
        };
        let window = self.options.window.clamp(FIRST_WINDOW, LARGEST_WINDOW);
        self.receive_left = left;
        if left < window / 2 {
            frame::put_window(0, window - left, &mut self.control);
            self.receive_left = window;
        }
        Ok(())
    }

    /// Counts a DATA frame against its stream's window. Says whether the stream continues.
    #[inline]
    fn take_from_stream<'i>(&mut self, head: FrameHead, sink: &mut impl ResponseSink<'i, S>) -> bool {
        let window = self.options.window.min(LARGEST_WINDOW);
        // Until it has read our settings, the server knows the usual window.
        let most = if self.acknowledged { window } else { window.max(FIRST_WINDOW) };
        let Some(stream) = self.streams.get_mut(head.stream) else { return false };
        stream.unreported += head.len;
        if stream.unreported > most {
            let why = "more content than the stream's window";
            self.malformed(head.stream, Code::FLOW_CONTROL_ERROR, why, sink);
            return false;
        }
        if stream.unreported > window / 2 && !stream.held && !head.has(flag::END_STREAM) {
            frame::put_window(head.stream, stream.unreported, &mut self.control);
            stream.unreported = 0;
        }
        true
    }
}

/// Hands out a head that was held back.
#[inline]
fn tell_head<'i, S>(stream: &mut Stream<S>, sink: &mut impl ResponseSink<'i, S>) {
    if let Phase::Held(block) = std::mem::replace(&mut stream.phase, Phase::Told) {
        sink.head(&mut stream.data, &block.head());
    }
}
