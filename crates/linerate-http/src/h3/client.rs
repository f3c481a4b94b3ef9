//! The client's end of a connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::frame::{frame_kind, stream_kind};
use super::peer_streams::{H3ControlEvent, H3PeerStreams};
use super::reader::{H3FrameReader, H3Piece};
use super::varint::put_varint;
use super::{H3Code, H3Error, H3Settings, QpackDecoder, QpackError, QpackSection};
use crate::client::Expect;
use crate::h2::{Block, BlockCache, Lost, ResponseSink};

/// Bytes of a field section, and of the fields it decodes to. Reason: as in HTTP/1.1 and HTTP/2. A longer
/// one costs its stream alone.
const SECTION_BYTES: usize = 64 << 10;

/// Interim (1xx) responses before the final one. Reason: as in HTTP/1.1.
const INTERIM: u8 = 16;

/// The last stream of a client (RFC 9000, section 2.1).
const LAST_STREAM: u64 = (1 << 62) - 4;

/// How much of a response has come.
#[derive(Debug)]
enum ResponsePhase {
    /// Nothing, or interim responses alone.
    Waiting,
    /// The head, which was not handed out yet.
    Held(Arc<Block>),
    /// The head was handed out.
    Told,
    /// Trailers too.
    Trailed,
}

/// A request in flight; `data` is the owner's.
#[derive(Debug)]
struct ClientStream<S> {
    data: S,
    phase: ResponsePhase,
    reader: H3FrameReader,
    status: u16,
    interim: u8,
    /// The response has no body, since the request is HEAD.
    bodiless: bool,
    /// Bytes of the announced content that have not arrived yet.
    content_left: Option<u64>,
}

impl<S> ClientStream<S> {
    fn has_begun(&self) -> bool {
        !matches!(self.phase, ResponsePhase::Waiting)
    }
}

/// The client's end of a connection; `S` is what the owner keeps of each request.
///
/// The owner writes requests: [`put_frame`](super::put_frame) with the field section, then
/// [`put_data_head`](super::put_data_head) and content, on the stream that [`H3Client::open`] names.
/// Responses are reported to a [`ResponseSink`], as those of HTTP/2 are. The owner stops and resets the
/// streams that [`H3Client::given_up`] names.
#[derive(Debug)]
pub struct H3Client<S> {
    streams: BTreeMap<u64, ClientStream<S>>,
    /// The next stream.
    next: u64,
    /// Streams whose response has begun.
    begun: u32,
    peer: H3PeerStreams,
    decoder: QpackDecoder,
    settings: Option<H3Settings>,
    /// The first stream that the server does not process.
    go_away: Option<u64>,
    given_up: Vec<(u64, H3Code)>,
    /// The stream of the frame that broke the connection.
    faulty: Option<u64>,
}

impl<S> Default for H3Client<S> {
    fn default() -> Self {
        H3Client {
            streams: BTreeMap::new(),
            next: 0,
            begun: 0,
            peer: H3PeerStreams::of_server(),
            decoder: QpackDecoder::new(0),
            settings: None,
            go_away: None,
            given_up: Vec::new(),
            faulty: None,
        }
    }
}

impl<S> H3Client<S> {
    /// Appends what our control stream begins with: its kind and our settings. They admit no dynamic
    /// table, so that equal field sections mean equal fields.
    pub fn put_control(out: &mut Vec<u8>) {
        put_varint(stream_kind::CONTROL, out);
        let settings =
            H3Settings { field_section_bytes: Some(SECTION_BYTES as u64), ..H3Settings::default() };
        settings.write(out);
    }

    /// The server's settings, once they came.
    pub fn settings(&self) -> Option<&H3Settings> {
        self.settings.as_ref()
    }

    /// The ID of the server's GOAWAY, once one has come: it takes no more requests.
    pub fn go_away(&self) -> Option<u64> {
        self.go_away
    }

    /// Requests in flight.
    pub fn open_streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Requests begun so far.
    pub fn opened(&self) -> u64 {
        self.next / 4
    }

    /// Whether part of a response has come of which more must follow.
    pub fn in_response(&self) -> bool {
        self.begun > 0
    }

    /// The requests in flight and their streams, the oldest first.
    pub fn streams(&self) -> impl Iterator<Item = (u64, &S)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.data))
    }

    /// Whether a request is in flight on this stream.
    pub fn is_open(&self, id: u64) -> bool {
        self.streams.contains_key(&id)
    }

    /// Begins a request; returns its stream.
    pub fn open(&mut self, data: S, expect: Expect) -> u64 {
        let id = self.next;
        self.next = (self.next + 4).min(LAST_STREAM);
        let stream = ClientStream {
            data,
            phase: ResponsePhase::Waiting,
            reader: H3FrameReader::of_requests(SECTION_BYTES),
            status: 0,
            interim: 0,
            bodiless: expect == Expect::Head,
            content_left: None,
        };
        self.streams.insert(id, stream);
        id
    }

    /// Streams to be stopped and reset, each with its code. The owner does it and empties them.
    pub fn given_up(&mut self) -> &mut Vec<(u64, H3Code)> {
        &mut self.given_up
    }

    /// Gives a request up: nothing of its response is wanted any more.
    pub fn cancel(&mut self, id: u64) -> Option<S> {
        let stream = self.remove(id)?;
        self.given_up.push((id, H3Code::REQUEST_CANCELLED));
        Some(stream.data)
    }

    /// Takes a request out, with whether its response had begun.
    pub fn take(&mut self, id: u64) -> Option<(S, bool)> {
        self.remove(id).map(|stream| {
            let begun = stream.has_begun();
            (stream.data, begun)
        })
    }

    /// The requests that the server will not process, in order (RFC 9114, section 5.2).
    pub fn refused(&self) -> Vec<u64> {
        let Some(first) = self.go_away else { return Vec::new() };
        self.streams.range(first..).map(|(id, _)| *id).collect()
    }

    /// The request on whose stream the server broke the connection, if it is in flight.
    pub fn faulty(&self) -> Option<u64> {
        self.faulty.filter(|id| self.streams.contains_key(id))
    }

    fn remove(&mut self, id: u64) -> Option<ClientStream<S>> {
        let stream = self.streams.remove(&id)?;
        self.begun -= u32::from(stream.has_begun());
        Some(stream)
    }

    /// Reads what came on stream `id`; `ends`: its end too.
    ///
    /// # Errors
    /// The server broke the rules: the connection carries nothing more.
    pub fn read<'i>(
        &mut self,
        id: u64,
        bytes: &'i [u8],
        ends: bool,
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        match id & 3 {
            0 => {}
            3 => return self.read_control(id, bytes, ends),
            _ => return Err(H3Error::new(H3Code::STREAM_CREATION_ERROR, "the server opened a request")),
        }
        // A stream that was given up may still bring something.
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        // Taken out, since a frame may be lent from it.
        let mut reader = std::mem::replace(&mut stream.reader, H3FrameReader::of_requests(0));
        let read = self.pieces(id, &mut reader, (bytes, ends), blocks, sink);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.reader = reader;
        }
        if read.is_err() {
            self.faulty = Some(id);
        }
        read
    }

    fn pieces<'i>(
        &mut self,
        id: u64,
        reader: &mut H3FrameReader,
        (bytes, ends): (&'i [u8], bool),
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        let mut input = bytes;
        loop {
            match reader.next(&mut input)? {
                None => break,
                Some(H3Piece::Frame(frame_kind::HEADERS, section)) => {
                    self.section(id, section, blocks, sink)?;
                }
                Some(H3Piece::Frame(..)) => {
                    return Err(H3Error::new(H3Code::ID_ERROR, "the server pushes, which we did not allow"));
                }
                Some(H3Piece::SectionTooLong) => self.too_long(id, sink),
                Some(H3Piece::Data(content)) => {
                    let last = ends && input.is_empty() && !reader.in_frame();
                    self.content(id, content, last, sink)?;
                }
            }
            if !self.streams.contains_key(&id) {
                return Ok(());
            }
        }
        if ends { self.finish(id, reader.in_frame(), sink) } else { Ok(()) }
    }

    /// A whole field section.
    fn section<'i>(
        &mut self,
        id: u64,
        bytes: &[u8],
        blocks: &mut BlockCache,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        let decoder = &mut self.decoder;
        let decoded =
            blocks.get_section(bytes, |most, each| match decoder.decode(id, bytes, most, each)? {
                QpackSection::Whole => Ok(()),
                // It needs entries of a table that we do not have.
                QpackSection::Blocked(_) => Err(QpackError::Prefix),
            });
        let block = match decoded {
            Ok(block) => block,
            // Without a table the next section means the same, however far this one was decoded.
            Err(QpackError::TooLarge(_)) => {
                self.too_long(id, sink);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if let Some(why) = block.problem() {
            self.malformed(id, why, sink);
            return Ok(());
        }
        let status = block.status();
        match stream.phase {
            ResponsePhase::Waiting if status < 200 => return self.interim(id, status, sink),
            ResponsePhase::Waiting => {}
            ResponsePhase::Held(_) | ResponsePhase::Told => {
                return self.trailers(id, &Arc::clone(block), sink);
            }
            ResponsePhase::Trailed => {
                return Err(H3Error::new(H3Code::FRAME_UNEXPECTED, "a HEADERS frame behind the trailers"));
            }
        }
        stream.status = status;
        stream.content_left = block.content_length();
        stream.phase = ResponsePhase::Held(Arc::clone(block));
        self.begun += 1;
        sink.begun(&mut stream.data);
        if sink.wants_parts() {
            tell_head(stream, sink);
        }
        Ok(())
    }

    #[cold]
    fn interim<'i>(
        &mut self,
        id: u64,
        status: u16,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.interim += 1;
        let why = match status {
            0 => "a response has no status",
            101 => "status 101 has no place in HTTP/3 (RFC 9114, 4.5)",
            _ if stream.interim > INTERIM => "too many interim responses",
            _ => {
                sink.interim(&mut stream.data, status);
                return Ok(());
            }
        };
        self.malformed(id, why, sink);
        Ok(())
    }

    #[cold]
    fn trailers<'i>(
        &mut self,
        id: u64,
        block: &Block,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        if block.status() > 0 {
            self.malformed(id, "a pseudo-field stands in trailers (RFC 9114, 4.3)", sink);
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        tell_head(stream, sink);
        sink.trailers(&mut stream.data, block.trailers());
        stream.phase = ResponsePhase::Trailed;
        Ok(())
    }

    /// Content; `last`: the stream ends behind it.
    fn content<'i>(
        &mut self,
        id: u64,
        content: &'i [u8],
        last: bool,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let unexpected = match stream.phase {
            ResponsePhase::Waiting => Some("a DATA frame before the head of a response"),
            ResponsePhase::Trailed => Some("a DATA frame behind the trailers"),
            ResponsePhase::Held(_) | ResponsePhase::Told => None,
        };
        if let Some(why) = unexpected {
            return Err(H3Error::new(H3Code::FRAME_UNEXPECTED, why));
        }
        // The announced length of a response to HEAD is that of another response (RFC 9110, 9.3.2).
        if stream.bodiless && !content.is_empty() {
            self.malformed(id, "a response to HEAD has content", sink);
            return Ok(());
        }
        if stream.bodiless {
            // An empty frame is none.
            return if last { self.finish(id, false, sink) } else { Ok(()) };
        }
        let len = content.len() as u64;
        let left = stream.content_left.map_or(Some(None), |left| left.checked_sub(len).map(Some));
        let Some(left) = left.filter(|left| !last || left.unwrap_or(0) == 0) else {
            self.malformed(id, "a response's length differs from what it announced", sink);
            return Ok(());
        };
        stream.content_left = left;
        if last && let ResponsePhase::Held(block) = &stream.phase {
            let block = Arc::clone(block);
            if let Some(stream) = self.remove(id) {
                sink.whole(stream.data, &block, content);
            }
            return Ok(());
        }
        tell_head(stream, sink);
        sink.body(&mut stream.data, content);
        if last {
            self.end(id, sink);
        }
        Ok(())
    }

    /// The stream of a response has ended.
    fn finish<'i>(
        &mut self,
        id: u64,
        in_frame: bool,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        if in_frame {
            // RFC 9114, section 7.1.
            return Err(H3Error::new(H3Code::FRAME_ERROR, "a stream ends in the middle of a frame"));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let short = stream.content_left.is_some_and(|left| left > 0);
        match &stream.phase {
            ResponsePhase::Waiting => self.malformed(id, "a stream ends without a response", sink),
            // The length of a body that is not sent says nothing (RFC 9110, section 8.6).
            _ if short && !stream.bodiless && stream.status != 304 => {
                self.malformed(id, "a response ends before its announced length", sink);
            }
            ResponsePhase::Held(_) => self.end_whole(id, sink),
            ResponsePhase::Told | ResponsePhase::Trailed => self.end(id, sink),
        }
        Ok(())
    }

    /// A response without content is whole.
    fn end_whole<'i>(&mut self, id: u64, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.remove(id) else { return };
        if let ResponsePhase::Held(block) = &stream.phase {
            sink.whole(stream.data, block, &[]);
        }
    }

    fn end<'i>(&mut self, id: u64, sink: &mut impl ResponseSink<'i, S>) {
        if let Some(stream) = self.remove(id) {
            sink.end(stream.data, stream.status);
        }
    }

    /// Ends a stream on which the server broke the rules.
    fn malformed<'i>(&mut self, id: u64, why: &'static str, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.remove(id) else { return };
        self.given_up.push((id, H3Code::MESSAGE_ERROR));
        sink.lost(stream.data, Lost::Malformed(why), true);
    }

    /// Ends a stream whose field section is too long. The server broke no rule:
    /// `SETTINGS_MAX_FIELD_SECTION_SIZE` is advisory (RFC 9114, section 4.2.2).
    #[cold]
    fn too_long<'i>(&mut self, id: u64, sink: &mut impl ResponseSink<'i, S>) {
        let Some(stream) = self.remove(id) else { return };
        self.given_up.push((id, H3Code::REQUEST_CANCELLED));
        let how = match stream.has_begun() {
            true => Lost::Malformed("the trailers of a response are too long"),
            false => Lost::HeadTooLong(SECTION_BYTES),
        };
        sink.lost(stream.data, how, true);
    }

    /// The server reset stream `id`.
    ///
    /// # Errors
    /// The connection needs it: it carries nothing more.
    pub fn reset<'i>(
        &mut self,
        id: u64,
        code: H3Code,
        sink: &mut impl ResponseSink<'i, S>,
    ) -> Result<(), H3Error> {
        if id & 3 == 3 {
            return self.peer.ended(id);
        }
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        // All of it came, and only the end of the stream is missing.
        let is_whole = stream.has_begun() && stream.content_left == Some(0) && !stream.reader.in_frame();
        if code == H3Code::NO_ERROR && is_whole {
            return self.finish(id, false, sink);
        }
        if let Some(stream) = self.remove(id) {
            let begun = stream.has_begun();
            self.given_up.push((id, H3Code::REQUEST_CANCELLED));
            sink.lost(stream.data, Lost::Reset(code.into()), begun);
        }
        Ok(())
    }

    fn read_control(&mut self, id: u64, bytes: &[u8], ends: bool) -> Result<(), H3Error> {
        let H3Client { peer, decoder, settings, go_away, given_up, .. } = self;
        let mut wrong = None;
        peer.read(id, bytes, ends, decoder, |event| match event {
            H3ControlEvent::Settings(came) => *settings = Some(came),
            H3ControlEvent::GoAway(id) if id & 3 != 0 => {
                wrong = Some((H3Code::ID_ERROR, "GOAWAY names no request"))
            }
            H3ControlEvent::GoAway(id) if go_away.is_some_and(|before| id > before) => {
                wrong = Some((H3Code::ID_ERROR, "GOAWAY takes back what the one before it said"));
            }
            H3ControlEvent::GoAway(id) => *go_away = Some(id),
            H3ControlEvent::Unknown(id) => given_up.push((id, H3Code::STREAM_CREATION_ERROR)),
            H3ControlEvent::MaxPushId(_) => {
                wrong = Some((H3Code::FRAME_UNEXPECTED, "MAX_PUSH_ID of a server"))
            }
            H3ControlEvent::CancelPush(_) => {
                wrong = Some((H3Code::ID_ERROR, "CANCEL_PUSH, where no push is allowed"));
            }
        })?;
        wrong.map_or(Ok(()), |(code, why)| Err(H3Error::new(code, why)))
    }
}

/// Hands out a head that was held back.
fn tell_head<'i, S>(stream: &mut ClientStream<S>, sink: &mut impl ResponseSink<'i, S>) {
    if matches!(stream.phase, ResponsePhase::Held(_))
        && let ResponsePhase::Held(block) = std::mem::replace(&mut stream.phase, ResponsePhase::Told)
    {
        sink.head(&mut stream.data, &block.head());
    }
}
