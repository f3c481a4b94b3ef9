//! Frames of a client become events.

use super::super::frame::{self, FRAME_HEAD, FrameHead, PREFACE, flag, kind, number};
use super::super::limits::{BLOCK_FRAMES, FRAME_BYTES, LARGEST_WINDOW};
use super::super::{Code, H2Error};
use super::flows::{Closed, Flow};
use super::heads::{Head, Heads, Read, trailers};
use super::{Assembly, Begun, ClientEvent, GOODBYE, Goodbye, Incoming, Server};

impl Server {
    /// Reads frames, as far as they have come whole, until one is an event; `None`: more bytes are
    /// needed, or the connection [is over](Server::is_over). What was read is taken off the input.
    #[inline]
    pub fn next<'i>(&mut self, input: &mut &'i [u8], heads: &mut Heads) -> Option<ClientEvent<'i>> {
        if self.is_over() {
            return None;
        }
        match self.read(input, heads) {
            Ok(event) => event,
            Err(error) => {
                self.go_away(error.code);
                self.error = Some(error);
                None
            }
        }
    }

    fn read<'i>(
        &mut self,
        input: &mut &'i [u8],
        heads: &mut Heads,
    ) -> Result<Option<ClientEvent<'i>>, H2Error> {
        if self.begun == Begun::Nothing && !self.preface(input)? {
            return Ok(None);
        }
        while let Some((head, behind)) = input.split_first_chunk::<FRAME_HEAD>() {
            let head = FrameHead::read(head);
            if head.len > FRAME_BYTES {
                let why = format!("a frame of {} bytes, where {FRAME_BYTES} are allowed", head.len);
                return Err(H2Error::new(Code::FRAME_SIZE_ERROR, why));
            }
            let Some((payload, behind)) = behind.split_at_checked(head.len as usize) else { break };
            *input = behind;
            let event = self.frame(head, payload, heads)?;
            if event.is_some() || self.is_over() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    #[cold]
    fn preface(&mut self, input: &mut &[u8]) -> Result<bool, H2Error> {
        let len = input.len().min(PREFACE.len());
        if input[..len] != PREFACE[..len] {
            return Err(H2Error::protocol("the client does not begin with HTTP/2's preface"));
        }
        if len == PREFACE.len() {
            *input = &input[len..];
            self.begun = Begun::Preface;
        }
        Ok(self.is_open())
    }

    #[inline]
    fn frame<'i>(
        &mut self,
        head: FrameHead,
        payload: &'i [u8],
        heads: &mut Heads,
    ) -> Result<Option<ClientEvent<'i>>, H2Error> {
        if self.begun == Begun::Preface {
            if head.kind != kind::SETTINGS || head.has(flag::ACK) {
                return Err(H2Error::protocol("the client does not begin with its settings"));
            }
            self.begun = Begun::Settings;
        }
        if self.assembly.is_some() {
            return self.continuation(head, payload, heads);
        }
        match head.kind {
            kind::HEADERS if head.flags & !flag::END_STREAM == flag::END_HEADERS => {
                self.block(head, payload, false, heads)
            }
            kind::HEADERS => self.headers(head, payload, heads),
            kind::DATA => self.data(head, payload),
            _ => self.control(head, payload),
        }
    }

    /// HEADERS with padding, priority or continuations.
    #[cold]
    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        heads: &mut Heads,
    ) -> Result<Option<ClientEvent<'static>>, H2Error> {
        let broken = || H2Error::protocol("a HEADERS frame is shorter than its padding and priority");
        let mut payload = frame::unpadded(head, payload).ok_or_else(broken)?;
        let mut is_circular = false;
        if head.has(flag::PRIORITY) {
            is_circular = number(payload, 0) & LARGEST_WINDOW == head.stream;
            payload = payload.get(5..).ok_or_else(broken)?;
        }
        if head.has(flag::END_HEADERS) {
            return self.block(head, payload, is_circular, heads);
        }
        if head.stream == 0 {
            return Err(H2Error::protocol("a HEADERS frame on stream 0"));
        }
        self.assembly = Some(Assembly { head, bytes: payload.to_vec(), frames: 1, is_circular });
        Ok(None)
    }

    #[cold]
    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        heads: &mut Heads,
    ) -> Result<Option<ClientEvent<'static>>, H2Error> {
        let Some(mut assembly) = self.assembly.take() else { return Ok(None) };
        if head.kind != kind::CONTINUATION || head.stream != assembly.head.stream {
            return Err(H2Error::protocol("a field block is interrupted by another frame"));
        }
        assembly.frames += 1;
        assembly.bytes.extend_from_slice(payload);
        // The tables are lost with a block that is not decoded.
        let most = 2 * self.options.head_list.max(FRAME_BYTES) as usize;
        if assembly.frames > BLOCK_FRAMES || assembly.bytes.len() > most {
            return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, "a field block is too long"));
        }
        if !head.has(flag::END_HEADERS) {
            self.assembly = Some(assembly);
            return Ok(None);
        }
        self.block(assembly.head, &assembly.bytes, assembly.is_circular, heads)
    }

    /// A whole field block.
    #[inline]
    fn block(
        &mut self,
        frame: FrameHead,
        block: &[u8],
        is_circular: bool,
        heads: &mut Heads,
    ) -> Result<Option<ClientEvent<'static>>, H2Error> {
        let (stream, ends) = (frame.stream, frame.has(flag::END_STREAM));
        if stream <= self.flows.last() {
            return self.later_block(stream, ends, block);
        }
        if stream.is_multiple_of(2) {
            return Err(H2Error::protocol(format!("a client opens stream {stream}")));
        }
        self.flows.begin(stream);
        let head = self.known.head(block, &mut self.decoder, heads)?;
        if matches!(self.goodbye, Goodbye::Final(_)) {
            // It was sent before the client knew of the last GOAWAY, and may be sent again elsewhere.
            return Ok(None);
        }
        let Head::Read(Read { head, websocket, length }) = head else {
            return self.refuse(stream, ends, matches!(head, Head::TooLarge));
        };
        if is_circular || (ends && length.is_some_and(|length| length > 0)) {
            return self.refuse(stream, ends, false);
        }
        if self.flows.len() >= self.options.streams as usize {
            self.put_reset(stream, Code::REFUSED_STREAM);
            return Ok(None);
        }
        self.flows.add(Flow {
            id: stream,
            send_left: i64::from(self.settings.initial_window_size),
            receive_left: self.options.stream_window,
            unreported: 0,
            content_left: length,
            sent: false,
            received: ends,
        });
        Ok(Some(ClientEvent::Request(Incoming { stream, head, ends, websocket })))
    }

    /// A request that is malformed, or whose head is too large.
    #[cold]
    fn refuse(
        &mut self,
        stream: u32,
        ends: bool,
        too_large: bool,
    ) -> Result<Option<ClientEvent<'static>>, H2Error> {
        if !too_large {
            self.broken(stream, Code::PROTOCOL_ERROR)?;
            return Ok(Some(ClientEvent::Refused { stream, status: 400 }));
        }
        self.put_status(stream, 431, true);
        if !ends {
            self.put_reset(stream, Code::NO_ERROR);
        }
        Ok(Some(ClientEvent::Refused { stream, status: 431 }))
    }

    /// A field block on a stream that is not new: trailers.
    #[cold]
    fn later_block(
        &mut self,
        stream: u32,
        ends: bool,
        block: &[u8],
    ) -> Result<Option<ClientEvent<'static>>, H2Error> {
        if stream == 0 {
            return Err(H2Error::protocol("a HEADERS frame on stream 0"));
        }
        let read =
            |server: &mut Server| trailers(block, &mut server.decoder, server.options.head_list as usize);
        let Some(flow) = self.flows.get_mut(stream) else {
            self.closed(stream)?;
            return read(self).map(|_| None);
        };
        if flow.received {
            read(self)?;
            return self.broken(stream, Code::STREAM_CLOSED);
        }
        flow.received = true;
        let whole = flow.content_left.is_none_or(|left| left == 0);
        match read(self)? {
            Some(fields) if ends && whole => {
                self.end_if_both(stream);
                Ok(Some(ClientEvent::Trailers { stream, fields }))
            }
            _ => self.broken(stream, Code::PROTOCOL_ERROR),
        }
    }

    #[inline]
    fn data<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Result<Option<ClientEvent<'i>>, H2Error> {
        let stream = head.stream;
        if stream == 0 {
            return Err(H2Error::protocol("a DATA frame on stream 0"));
        }
        let too_long = || H2Error::protocol("a DATA frame's padding is longer than the frame");
        let content = frame::unpadded(head, payload).ok_or_else(too_long)?;
        let Some(left) = self.receive_left.checked_sub(head.len) else {
            return Err(H2Error::new(Code::FLOW_CONTROL_ERROR, "more content than the connection's window"));
        };
        self.receive_left = left;
        let ends = head.has(flag::END_STREAM);
        let Some(flow) = self.flows.get_mut(stream) else {
            self.closed(stream)?;
            self.release_to_connection(head.len);
            return Ok(None);
        };
        if let Err(code) = flow.take(head.len, content.len(), ends) {
            self.release_to_connection(head.len);
            return self.broken(stream, code);
        }
        if head.has(flag::PADDED) {
            self.release(stream, head.len as usize - content.len());
        }
        if ends {
            self.end_if_both(stream);
        }
        Ok((ends || !content.is_empty()).then_some(ClientEvent::Data { stream, content, ends }))
    }

    /// The whole body of the request that came last, if it is the next frame and nothing of it has
    /// to wait. It counts as read.
    #[inline]
    pub fn whole_body<'i>(&mut self, stream: u32, most: u64, input: &mut &'i [u8]) -> Option<&'i [u8]> {
        let (head, behind) = input.split_first_chunk::<FRAME_HEAD>()?;
        let head = FrameHead::read(head);
        let usual = (head.kind, head.flags, head.stream) == (kind::DATA, flag::END_STREAM, stream);
        if !usual || u64::from(head.len) > most.min(u64::from(FRAME_BYTES)) || self.is_over() {
            return None;
        }
        let (content, behind) = behind.split_at_checked(head.len as usize)?;
        let left = self.receive_left.checked_sub(head.len)?;
        self.flows.get_mut(stream)?.take(head.len, content.len(), true).ok()?;
        self.receive_left = left;
        self.release_to_connection(head.len);
        self.end_if_both(stream);
        *input = behind;
        Some(content)
    }

    /// Every other frame.
    fn control(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<ClientEvent<'static>>, H2Error> {
        let stream = head.stream;
        // An idle stream cannot be reset.
        if head.kind == kind::PRIORITY && head.len != 5 && self.flows.closed(stream) != Closed::Idle {
            return self.broken(stream, Code::FRAME_SIZE_ERROR);
        }
        frame::check(&head)?;
        match head.kind {
            kind::PRIORITY if number(payload, 0) & LARGEST_WINDOW == stream => {
                if self.flows.closed(stream) == Closed::Idle {
                    return Err(H2Error::protocol("a stream depends on itself"));
                }
                return self.broken(stream, Code::PROTOCOL_ERROR);
            }
            kind::RST_STREAM => return self.reset_by_client(stream),
            kind::SETTINGS => self.settings(head, payload)?,
            kind::PUSH_PROMISE => return Err(H2Error::protocol("a client pushes")),
            kind::PING if !head.has(flag::ACK) => {
                frame::put(kind::PING, flag::ACK, 0, payload, &mut self.out);
            }
            kind::PING if payload == GOODBYE && self.goodbye == Goodbye::Announced => self.finish_goodbye(),
            kind::WINDOW_UPDATE => return self.window(stream, number(payload, 0) & LARGEST_WINDOW),
            kind::CONTINUATION => return Err(H2Error::protocol("a CONTINUATION frame continues nothing")),
            // The client says goodbye, which changes nothing; or it is of a kind that is not known.
            _ => {}
        }
        Ok(None)
    }

    fn reset_by_client(&mut self, stream: u32) -> Result<Option<ClientEvent<'static>>, H2Error> {
        if self.flows.remove(stream).is_none() {
            return match self.flows.closed(stream) {
                Closed::Idle => Err(H2Error::protocol("a RST_STREAM frame on an idle stream")),
                _ => Ok(None),
            };
        }
        self.end_if_done();
        self.cancelled += u32::from(stream >= self.turn_from);
        if self.cancelled > self.options.resets_at_once {
            return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, "too many requests are cancelled at once"));
        }
        Ok(Some(ClientEvent::Reset { stream }))
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), H2Error> {
        if head.has(flag::ACK) {
            return match payload {
                [] => Ok(()),
                _ => Err(H2Error::new(Code::FRAME_SIZE_ERROR, "an acknowledgement with settings")),
            };
        }
        let before = i64::from(self.settings.initial_window_size);
        self.settings.read(payload, 1)?;
        let more = i64::from(self.settings.initial_window_size) - before;
        for flow in self.flows.all_mut() {
            flow.send_left += more;
            if flow.send_left > i64::from(LARGEST_WINDOW) {
                return Err(H2Error::new(Code::FLOW_CONTROL_ERROR, "a stream's window overflows"));
            }
        }
        frame::put(kind::SETTINGS, flag::ACK, 0, &[], &mut self.out);
        Ok(())
    }

    fn window(&mut self, stream: u32, more: u32) -> Result<Option<ClientEvent<'static>>, H2Error> {
        let largest = i64::from(LARGEST_WINDOW);
        if stream == 0 {
            self.send_left += i64::from(more);
            return match more {
                0 => Err(H2Error::protocol("a window grows by nothing")),
                _ if self.send_left > largest => {
                    Err(H2Error::new(Code::FLOW_CONTROL_ERROR, "the connection's window overflows"))
                }
                _ => Ok(None),
            };
        }
        let Some(flow) = self.flows.get_mut(stream) else {
            return match self.flows.closed(stream) {
                Closed::Idle => Err(H2Error::protocol("a WINDOW_UPDATE frame on an idle stream")),
                _ => Ok(None),
            };
        };
        flow.send_left += i64::from(more);
        match more {
            0 => self.broken(stream, Code::PROTOCOL_ERROR),
            _ if flow.send_left > largest => self.broken(stream, Code::FLOW_CONTROL_ERROR),
            _ => Ok(None),
        }
    }

    /// A frame of a request on a stream that is not open; an error if the client should have known.
    fn closed(&self, stream: u32) -> Result<(), H2Error> {
        if matches!(self.goodbye, Goodbye::Final(last) if stream > last && stream <= self.flows.last()) {
            return Ok(());
        }
        match self.flows.closed(stream) {
            Closed::Reset => Ok(()),
            Closed::Idle => Err(H2Error::protocol(format!("a frame on stream {stream}, which is idle"))),
            Closed::Skipped => {
                Err(H2Error::protocol(format!("a frame on stream {stream}, which was skipped")))
            }
            Closed::Over => {
                let why = format!("a frame on stream {stream}, which is closed");
                Err(H2Error::new(Code::STREAM_CLOSED, why))
            }
        }
    }

    /// Resets a stream on which the client broke a rule. A client that does it too often causes too
    /// much work.
    #[cold]
    fn broken(&mut self, stream: u32, code: Code) -> Result<Option<ClientEvent<'static>>, H2Error> {
        self.resets_caused += 1;
        if self.resets_caused > self.options.resets_caused {
            return Err(H2Error::new(Code::ENHANCE_YOUR_CALM, "too many streams break rules"));
        }
        self.put_reset(stream, code);
        Ok(Some(ClientEvent::Reset { stream }))
    }
}

impl Flow {
    /// Counts a DATA frame; an error is that of the stream.
    #[inline]
    fn take(&mut self, bytes: u32, content: usize, ends: bool) -> Result<(), Code> {
        if self.received {
            return Err(Code::STREAM_CLOSED);
        }
        let left = self.receive_left.checked_sub(bytes).ok_or(Code::FLOW_CONTROL_ERROR)?;
        if let Some(announced) = self.content_left {
            let rest = announced.checked_sub(content as u64).ok_or(Code::PROTOCOL_ERROR)?;
            if ends && rest > 0 {
                return Err(Code::PROTOCOL_ERROR);
            }
            self.content_left = Some(rest);
        }
        self.receive_left = left;
        self.received = ends;
        Ok(())
    }
}
