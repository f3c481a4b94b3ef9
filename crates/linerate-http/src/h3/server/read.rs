//! Records of a client's streams become events.

use super::super::{H3Code, H3Error, H3FrameReader, H3Piece, QpackError, QpackSection, frame_kind, varint};
use super::blocked::BlockedStream;
use super::records::RecordHead;
use super::unidirectional::PeerNews;
use super::{
    ALL_STREAMS, CONTROL, DECODER, H3Goodbye, H3Server, OpenRecord, RequestFlow, RequestPhase, StreamRecord,
    stream_of,
};
use crate::h2::server::{ClientEvent, Head, Heads, Incoming, Read, trailer_fields};

/// What a piece of a request's stream came to.
type Event<'i> = Result<Option<ClientEvent<'i>>, H3Error>;

impl H3Server {
    /// Reads records until one is an event; `None`: more bytes are needed, or the connection [is
    /// over](H3Server::is_over). What was read is taken off the input. Records come whole.
    #[inline]
    pub fn next<'i>(&mut self, input: &mut &'i [u8], heads: &mut Heads) -> Option<ClientEvent<'i>> {
        while !self.is_over() {
            match self.read(input, heads) {
                Ok(Some(Some(event))) => return Some(event),
                Ok(Some(None)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.go_away(error.code);
                    self.error = Some(error);
                }
            }
        }
        None
    }

    /// The next step; `None`: the input is used up.
    fn read<'i>(
        &mut self,
        input: &mut &'i [u8],
        heads: &mut Heads,
    ) -> Result<Option<Option<ClientEvent<'i>>>, H3Error> {
        if let Some(record) = self.record {
            return self.request(record, input, heads).map(Some);
        }
        match RecordHead::read(input) {
            None => Ok(None),
            Some(RecordHead::Other(record)) => self.other(record).map(Some),
            Some(RecordHead::Bytes { stream, len, ends, again }) if is_request(stream) => {
                self.record = Some(OpenRecord { stream, left: len, ends, again });
                self.open(stream);
                Ok(Some(None))
            }
            Some(RecordHead::Bytes { stream, len, ends, .. }) => {
                let (bytes, rest) = input.split_at(len.min(input.len()));
                *input = rest;
                self.unidirectional(stream, bytes, ends)?;
                Ok(Some(None))
            }
        }
    }

    /// The first bytes of a request's stream, perhaps.
    fn open(&mut self, stream: u64) {
        let id = id_of(stream);
        if id < self.opened {
            return;
        }
        self.opened = id.saturating_add(1);
        if matches!(self.goodbye, H3Goodbye::Final(_)) {
            // It was sent before the client knew of the last GOAWAY, and may be sent again elsewhere.
            StreamRecord::Stop { stream, code: H3Code::REQUEST_REJECTED.0 }.write(&mut self.out);
            StreamRecord::Reset { stream, code: H3Code::REQUEST_REJECTED.0 }.write(&mut self.out);
            return;
        }
        self.flows.push(RequestFlow {
            id,
            reader: H3FrameReader::of_requests(self.options.head_list as usize),
            phase: RequestPhase::Head,
            since: self.now,
            content_left: None,
            send_left: i64::from(self.options.stream_room),
            unreported: 0,
            blocked: None,
            debt: 0,
            sent: false,
            received: false,
        });
    }

    /// Continues with bytes of a request's stream.
    fn request<'i>(&mut self, record: OpenRecord, input: &mut &'i [u8], heads: &mut Heads) -> Event<'i> {
        let id = id_of(record.stream);
        let (payload, behind) = input.split_at(record.left.min(input.len()));
        let mut rest = payload;
        let Some(flow) = self.flow_mut(id).filter(|flow| !flow.received) else {
            (*input, self.record) = (behind, None);
            self.release_to_connection(payload.len() as u32);
            return Ok(None);
        };
        if let Some(blocked) = &mut flow.blocked
            && blocked.hold(payload, record)
        {
            (*input, self.record) = (behind, None);
            return Ok(None);
        }
        let section_bytes = flow.reader.section_bytes();
        let mut reader = std::mem::replace(&mut flow.reader, H3FrameReader::of_requests(section_bytes));
        let piece = reader.next(&mut rest)?;
        let is_all = rest.is_empty() && record.ends;
        let content = if let Some(H3Piece::Data(content)) = piece { content.len() } else { 0 };
        let event = match piece {
            None => None,
            Some(H3Piece::Data(content)) => self.content(id, content),
            Some(H3Piece::Frame(frame_kind::HEADERS, section)) => self.section(id, section, heads),
            Some(H3Piece::Frame(kind, _)) => {
                let why = format!("a frame of kind {kind:#x} on the stream of a request");
                return Err(H3Error::new(H3Code::FRAME_UNEXPECTED, why));
            }
            Some(H3Piece::SectionTooLong) => self.too_long(id),
        }
        .transpose()?;
        let used = payload.len() - rest.len();
        *input = &input[used..];
        self.record = (!rest.is_empty() || record.ends && !is_all)
            .then_some(OpenRecord { left: record.left - used, ..record });
        // Content counts until its owner has read it.
        self.release(id, used - content);
        let in_frame = reader.in_frame();
        if let Some(flow) = self.flow_mut(id) {
            flow.reader = reader;
            if let Some(blocked) = &mut flow.blocked {
                if blocked.waits() {
                    blocked.ends |= is_all;
                    return Ok(event);
                }
                if is_all {
                    flow.blocked = None;
                } else if self.record.is_none() {
                    self.come_again(id);
                }
            }
        }
        match is_all {
            true => self.end(id, event, in_frame),
            false => Ok(event),
        }
    }

    /// The client has ended the stream of a request, with this event as the last.
    fn end<'i>(&mut self, id: u32, event: Option<ClientEvent<'i>>, in_frame: bool) -> Event<'i> {
        if in_frame {
            return Err(H3Error::new(H3Code::FRAME_ERROR, "a stream ends in the middle of a frame"));
        }
        let Some(flow) = self.flow_mut(id) else { return Ok(event) };
        flow.received = true;
        let is_short = flow.content_left.is_some_and(|left| left > 0);
        let trailers = match &mut flow.phase {
            RequestPhase::Head => return self.broken(id, H3Code::REQUEST_INCOMPLETE),
            _ if is_short => {
                return match event {
                    Some(ClientEvent::Request(_)) => self.refuse(id, 400),
                    _ => self.broken(id, H3Code::MESSAGE_ERROR),
                };
            }
            RequestPhase::Content => None,
            RequestPhase::Trailers(fields) => Some(std::mem::take(fields)),
        };
        self.end_if_both(id);
        Ok(Some(match (event, trailers) {
            (Some(ClientEvent::Request(request)), _) => {
                ClientEvent::Request(Incoming { ends: true, ..request })
            }
            (_, Some(fields)) => ClientEvent::Trailers { stream: id, fields },
            (Some(ClientEvent::Data { content, .. }), _) => {
                ClientEvent::Data { stream: id, content, ends: true }
            }
            _ => ClientEvent::Data { stream: id, content: &[], ends: true },
        }))
    }

    /// Content of a request; `None`: nothing to report.
    fn content<'i>(&mut self, id: u32, content: &'i [u8]) -> Option<Result<ClientEvent<'i>, H3Error>> {
        let flow = self.flow_mut(id)?;
        if flow.phase != RequestPhase::Content {
            let why = "a DATA frame where HEADERS have to come first, or trailers came before";
            return Some(Err(H3Error::new(H3Code::FRAME_UNEXPECTED, why)));
        }
        match flow.content_left.map(|left| left.checked_sub(content.len() as u64)) {
            Some(None) => {
                self.release_to_connection(content.len() as u32);
                self.broken(id, H3Code::MESSAGE_ERROR).transpose()
            }
            left => {
                flow.content_left = left.flatten();
                Some(Ok(ClientEvent::Data { stream: id, content, ends: false }))
            }
        }
    }

    /// A whole field section.
    fn section(
        &mut self,
        id: u32,
        section: &[u8],
        heads: &mut Heads,
    ) -> Option<Result<ClientEvent<'static>, H3Error>> {
        // Sections that use no dynamic table begin with a Required Insert Count of zero.
        if section.first() != Some(&0) {
            match self.decoder.waits_for(section) {
                Ok(None) => {}
                Ok(Some(required)) => return self.wait(id, required, section).err().map(Err),
                Err(error) => return Some(Err(error.into())),
            }
        }
        match self.flow(id)?.phase {
            RequestPhase::Head => self.head(id, section, heads).transpose(),
            RequestPhase::Content => self.trailers(id, section).transpose(),
            RequestPhase::Trailers(_) => {
                let why = "a HEADERS frame behind the trailers";
                Some(Err(H3Error::new(H3Code::FRAME_UNEXPECTED, why)))
            }
        }
    }

    fn head(&mut self, id: u32, section: &[u8], heads: &mut Heads) -> Event<'static> {
        let is_fixed = section.first() == Some(&0);
        let head = match self.known.known(section, 0).filter(|_| is_fixed) {
            Some(read) => Head::Read(read.clone()),
            None => {
                let most = self.options.head_list as usize;
                let decoder = &mut self.decoder;
                let head = heads.read_fields(b"HTTP/3.0", |each| {
                    decode(decoder.decode(stream_of(id), section, most, each))
                })?;
                if let Head::Read(read) = &head
                    && is_fixed
                {
                    self.known.remember(section, 0, read);
                }
                self.put_instructions()?;
                head
            }
        };
        let Head::Read(Read { head, websocket, length }) = head else {
            let status = if matches!(head, Head::TooLarge) { 431 } else { 400 };
            return self.refuse(id, status);
        };
        if let Some(flow) = self.flow_mut(id) {
            flow.phase = RequestPhase::Content;
            flow.content_left = length;
        }
        Ok(Some(ClientEvent::Request(Incoming { stream: id, head, ends: false, websocket })))
    }

    fn trailers(&mut self, id: u32, section: &[u8]) -> Event<'static> {
        let most = self.options.head_list as usize;
        let decoder = &mut self.decoder;
        let fields = trailer_fields(|each| decode(decoder.decode(stream_of(id), section, most, each)))?;
        self.put_instructions()?;
        match (fields, self.flow_mut(id)) {
            (Some(fields), Some(flow)) => {
                flow.phase = RequestPhase::Trailers(fields);
                Ok(None)
            }
            _ => self.broken(id, H3Code::MESSAGE_ERROR),
        }
    }

    /// A field section begins that is longer than any that is read.
    fn too_long(&mut self, id: u32) -> Option<Result<ClientEvent<'static>, H3Error>> {
        match self.flow(id)?.phase {
            RequestPhase::Head => self.refuse(id, 431),
            _ => self.broken(id, H3Code::EXCESSIVE_LOAD),
        }
        .transpose()
    }

    /// A request that is malformed, or whose head is too large.
    #[cold]
    fn refuse(&mut self, id: u32, status: u16) -> Event<'static> {
        if status == 400 {
            self.broken(id, H3Code::MESSAGE_ERROR)?;
        } else {
            self.put_status(id, status, true);
            self.close(id);
        }
        Ok(Some(ClientEvent::Refused { stream: id, status }))
    }

    /// Gives up a stream on which the client broke a rule. A client that does it too often causes too
    /// much work.
    #[cold]
    fn broken(&mut self, id: u32, code: H3Code) -> Event<'static> {
        self.resets_caused += 1;
        if self.resets_caused > self.options.resets_caused {
            return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, "too many streams break rules"));
        }
        self.put_reset(id, code);
        Ok(Some(ClientEvent::Reset { stream: id }))
    }

    fn unidirectional(&mut self, stream: u64, bytes: &[u8], ends: bool) -> Result<(), H3Error> {
        self.release_to_connection(bytes.len() as u32);
        StreamRecord::Room { stream, bytes: bytes.len() as u64 }.write(&mut self.out);
        match self.peers.receive(stream, bytes, &mut self.decoder)? {
            PeerNews::Nothing => {}
            PeerNews::Frames(frames) => self.spent.0 += frames,
            PeerNews::Unwanted => {
                self.spent.0 += 1;
                StreamRecord::Stop { stream, code: H3Code::STREAM_CREATION_ERROR.0 }.write(&mut self.out);
            }
        }
        self.unblock();
        self.put_instructions()?;
        if ends { self.peers.ended(stream) } else { Ok(()) }
    }

    /// Every record but bytes.
    fn other(&mut self, record: StreamRecord<'static>) -> Event<'static> {
        match record {
            StreamRecord::Reset { stream, .. } | StreamRecord::Stop { stream, .. } if is_request(stream) => {
                self.given_up(stream)
            }
            StreamRecord::Reset { stream, .. } => self.peers.ended(stream).map(|()| None),
            StreamRecord::Stop { stream, .. } => {
                let what = if stream == CONTROL { "the control stream" } else { "our decoder's stream" };
                let why = format!("the client wants no more of {what}");
                Err(H3Error::new(H3Code::CLOSED_CRITICAL_STREAM, why))
            }
            StreamRecord::Room { stream, bytes } => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                match (stream, &mut self.instructions_left) {
                    (ALL_STREAMS, _) => self.send_left = self.send_left.saturating_add(bytes),
                    (DECODER, Some(left)) => *left += bytes,
                    _ if is_request(stream) => {
                        if let Some(flow) = self.flow_mut(id_of(stream)) {
                            flow.send_left = flow.send_left.saturating_add(bytes);
                        }
                    }
                    _ => {}
                }
                Ok(None)
            }
            StreamRecord::Bytes { .. } | StreamRecord::Again { .. } | StreamRecord::Close { .. } => Ok(None),
        }
    }

    /// The client has given up a request, or wants no response.
    fn given_up(&mut self, stream: u64) -> Event<'static> {
        let id = id_of(stream);
        self.open(stream);
        self.spent.1 += 1;
        if self.flow(id).is_none() {
            return Ok(None);
        }
        if !self.flow(id).is_some_and(|flow| flow.blocked.as_ref().is_some_and(BlockedStream::waits)) {
            self.decoder.cancel(stream);
        }
        self.put_reset(id, H3Code::REQUEST_CANCELLED);
        self.cancelled += u32::from(id >= self.turn_from);
        if self.cancelled > self.options.resets_at_once {
            return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, "too many requests are cancelled at once"));
        }
        Ok(Some(ClientEvent::Reset { stream: id }))
    }

    /// The whole body of the request that came last, if it is the next frame and nothing of it has to
    /// wait. It counts as read.
    #[inline]
    pub fn whole_body<'i>(&mut self, id: u32, most: u64, input: &mut &'i [u8]) -> Option<&'i [u8]> {
        let record = self.record.filter(|record| record.ends && record.stream == stream_of(id))?;
        let mut rest = input.get(..record.left)?;
        let (kind, len) = (varint(&mut rest)?, varint(&mut rest)?);
        if kind != frame_kind::DATA || len != rest.len() as u64 || len > most {
            return None;
        }
        let flow = self.flow_mut(id)?;
        if flow.reader.in_frame() || flow.content_left.is_some_and(|left| left != len) {
            return None;
        }
        (flow.content_left, flow.received) = (flow.content_left.map(|_| 0), true);
        let content = rest;
        (*input, self.record) = (&input[record.left..], None);
        self.release_to_connection(record.left as u32);
        self.end_if_both(id);
        Some(content)
    }
}

/// Whether a stream is of a request: opened by the client, for both directions (RFC 9000, section 2.1).
fn is_request(stream: u64) -> bool {
    stream.is_multiple_of(4)
}

fn id_of(stream: u64) -> u32 {
    u32::try_from(stream / 4).unwrap_or(u32::MAX)
}

/// Whether a field section had room. Those that wait for entries of the table do not come here.
fn decode(decoded: Result<QpackSection, QpackError>) -> Result<bool, H3Error> {
    match decoded {
        Ok(QpackSection::Whole) => Ok(true),
        Ok(QpackSection::Blocked(_)) => {
            let why = "a field section needs entries that have not come";
            Err(H3Error::new(H3Code::QPACK_DECOMPRESSION_FAILED, why))
        }
        Err(QpackError::TooLarge(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
