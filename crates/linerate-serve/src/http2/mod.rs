//! HTTP/2 and HTTP/3: one connection's streams over [`linerate_http::h2::server`] (RFC 9113) or
//! [`linerate_http::h3::server`] (RFC 9114).
//!
//! Here is what a connection knows of its streams; [`engine::streams`](crate::engine) does the work.

mod frames;
mod framing;
mod stream;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use linerate_http::h2::server::{Heads, Incoming, ResponseBlocks, ServerOptions};
use linerate_http::h2::{Code, PREFACE};
use linerate_http::h3::server::{H3ServerOptions, response_blocks};
use linerate_net::Time;

use self::frames::{Flood, Frames};
pub(crate) use self::framing::StreamFraming;
pub(crate) use self::stream::{Doing, Fed, Pumped, ResponseSource, Sending, Stream, Upload};
use crate::limits::{
    self, FILES_OPEN, H2_KEPT, H2_LOCAL_RESETS, H2_RESETS_PENDING, H2_STREAM_WINDOW, H2_STREAMS, H3_BLOCKED,
    H3_CONNECTION_ROOM, H3_CONNECTION_WINDOW, H3_GOODBYE, H3_STREAM_ROOM, H3_STREAM_WINDOW, H3_TABLE, Limits,
    UNSENT_SCARCE,
};
use crate::message::body::join;
use crate::message::unread::WideWindow;
use crate::waits::Waits;

/// The client's first line (RFC 9113 section 3.4), which no request of HTTP/1.1 has.
pub(crate) const FIRST_LINE: &[u8] = PREFACE.split_at("PRI * HTTP/2.0\r\n".len()).0;

/// State that all connections of a thread share.
#[derive(Debug)]
pub(crate) struct StreamShared {
    options: ServerOptions,
    options3: H3ServerOptions,
    pub(crate) heads: Heads,
    /// Of HTTP/2, and of HTTP/3.
    blocks: ResponseBlocks,
    blocks3: ResponseBlocks,
}

impl StreamShared {
    pub(crate) fn new(limits: &Limits) -> StreamShared {
        let heads = Heads::new(limits.request);
        let options = ServerOptions {
            streams: H2_STREAMS,
            stream_window: H2_STREAM_WINDOW,
            connection_window: 0,
            head_list: heads.list_bytes(),
            resets_caused: H2_LOCAL_RESETS,
            resets_at_once: H2_RESETS_PENDING,
        };
        let options3 = H3ServerOptions {
            stream_window: H3_STREAM_WINDOW,
            connection_window: H3_CONNECTION_WINDOW,
            stream_room: H3_STREAM_ROOM,
            connection_room: H3_CONNECTION_ROOM,
            head_list: options.head_list,
            table_capacity: H3_TABLE,
            blocked_streams: H3_BLOCKED,
            resets_caused: H2_LOCAL_RESETS,
            resets_at_once: H2_RESETS_PENDING,
        };
        StreamShared {
            options,
            options3,
            heads,
            blocks: ResponseBlocks::default(),
            blocks3: response_blocks(),
        }
    }

    /// The heads of responses over either protocol.
    pub(crate) fn blocks(&mut self, http3: bool) -> &mut ResponseBlocks {
        if http3 { &mut self.blocks3 } else { &mut self.blocks }
    }
}

/// A request that its handler has not begun with.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) request: Incoming,
    pub(crate) early: Early,
}

/// What has come of a request's body, and nobody has read.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// The stream's window bounds it.
    pub(crate) waiting: VecDeque<Bytes>,
    /// All of it has come, and these trailers.
    pub(crate) end: Option<Vec<(String, Vec<u8>)>>,
}

impl Early {
    /// Content has come.
    pub(crate) fn push(&mut self, content: &[u8], ends: bool) {
        if !content.is_empty() && !join(&mut self.waiting, content) {
            self.waiting.push_back(Bytes::copy_from_slice(content));
        }
        if ends {
            self.end = Some(Vec::new());
        }
    }

    /// It will not be read: the client may send as much on other streams.
    pub(crate) fn drop_into(&mut self, server: &mut StreamFraming) {
        let bytes: usize = self.waiting.drain(..).map(|piece| piece.len()).sum();
        server.release_to_connection(bytes as u32);
    }
}

/// The HTTP/2, or HTTP/3, of one connection.
pub(crate) struct Session {
    pub(crate) server: StreamFraming,
    /// Bytes received; those before `read` were.
    pub(crate) input: Vec<u8>,
    pub(crate) read: usize,
    /// Reading goes on when there is room for more responses.
    pub(crate) is_stuck: bool,
    pub(crate) frames: Frames,
    /// Streams whose request or response takes more than one turn.
    pub(crate) streams: Vec<Stream>,
    /// Requests that wait because the responses to others do.
    pub(crate) deferred: VecDeque<Deferred>,
    /// Which stream sends next, so that all have their turn.
    pub(crate) next: usize,
    /// Bytes of responses in memory that the client's windows keep back.
    pub(crate) held: usize,
    /// Held bytes as the thread counts them.
    pub(crate) counted: usize,
    /// Its client may send as much as the connection's window can be wide.
    pub(crate) wide: Option<WideWindow>,
    /// When the client's FIN was read, behind all that it has sent.
    pub(crate) fin: Option<Time>,
    /// When the first GOAWAY was sent.
    pub(crate) goodbye: Option<Time>,
    /// The client exceeded a limit.
    pub(crate) flooded: bool,
    /// It is listed among those that wait until the thread has memory again.
    pub(crate) starves: bool,
    /// There is more to do at once, after others had their turn.
    pub(crate) more: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} streams)", self.streams.len())
    }
}

impl Session {
    pub(crate) fn new(shared: &StreamShared, now: Time, http3: bool) -> Box<Session> {
        let server = match http3 {
            true => StreamFraming::http3(shared.options3, now),
            false => StreamFraming::http2(shared.options),
        };
        Box::new(Session {
            server,
            input: Vec::new(),
            read: 0,
            is_stuck: false,
            frames: Frames::new(now),
            streams: Vec::new(),
            deferred: VecDeque::new(),
            next: 0,
            held: 0,
            counted: 0,
            wide: None,
            fin: None,
            goodbye: None,
            flooded: false,
            starves: false,
            more: false,
        })
    }

    /// Takes received bytes.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.is_over() {
            return;
        }
        self.input.extend_from_slice(bytes);
        // The frames of HTTP/3 are counted where they are read.
        if !self.server.is_http3()
            && let Err(Flood) = self.frames.follow(bytes, now)
        {
            self.cut(Code::ENHANCE_YOUR_CALM);
        }
    }

    /// Counts what the client has sent without content, as far as the framing knows of it.
    pub(crate) fn count_frames(&mut self, now: Time) {
        let (frames, resets) = self.server.take_spent();
        if frames + resets > 0
            && let Err(Flood) = self.frames.counted(frames, resets, now)
        {
            self.cut(Code::ENHANCE_YOUR_CALM);
        }
    }

    /// Drops what was read.
    pub(crate) fn drop_read(&mut self) {
        if self.read == self.input.len() || self.is_over() {
            self.input.clear();
            if self.input.capacity() > H2_KEPT {
                self.input = Vec::new();
            }
        } else {
            self.input.drain(..self.read);
        }
        self.read = 0;
    }

    /// Gives back the room of many streams once there are none.
    pub(crate) fn rest(&mut self) {
        if self.streams.is_empty() && self.streams.capacity() * size_of::<Stream>() > H2_KEPT {
            self.streams = Vec::new();
        }
        if self.deferred.is_empty() && self.deferred.capacity() * size_of::<Deferred>() > H2_KEPT {
            self.deferred = VecDeque::new();
        }
    }

    /// The body that arrives on a stream, if somebody may read it.
    fn early(&mut self, stream: u32) -> Option<&mut Early> {
        match self.streams.iter_mut().find(|s| s.id == stream) {
            Some(stream) => Some(&mut stream.upload.as_mut()?.early),
            None => {
                let deferred = self.deferred.iter_mut().find(|d| d.request.stream == stream)?;
                Some(&mut deferred.early)
            }
        }
    }

    /// Content of a request's body has come.
    pub(crate) fn content(&mut self, stream: u32, content: &[u8], ends: bool) {
        match self.early(stream) {
            Some(early) => early.push(content, ends),
            None => self.server.release_to_connection(content.len() as u32),
        }
    }

    /// The trailers of a request have come.
    pub(crate) fn trailers(&mut self, stream: u32, fields: Vec<(String, Vec<u8>)>) {
        if let Some(early) = self.early(stream) {
            early.end = Some(fields);
        }
    }

    /// Takes out a stream that was reset, if its handler has begun.
    pub(crate) fn take(&mut self, stream: u32) -> Option<Stream> {
        if let Some(at) = self.streams.iter().position(|s| s.id == stream) {
            return Some(self.streams.swap_remove(at));
        }
        let at = self.deferred.iter().position(|d| d.request.stream == stream)?;
        let mut deferred = self.deferred.remove(at)?;
        deferred.early.drop_into(&mut self.server);
        None
    }

    pub(crate) fn is_over(&self) -> bool {
        self.server.is_over()
    }

    /// Whether the client's preface has arrived.
    pub(crate) fn is_open(&self) -> bool {
        self.server.is_open()
    }

    /// Whether received bytes wait for room for responses.
    pub(crate) fn has_unread(&self) -> bool {
        self.is_stuck && !self.input.is_empty()
    }

    /// Announces that no more requests are wanted; those that the client sends before it knows get
    /// responses. A second GOAWAY, with the last stream, follows a round trip later.
    pub(crate) fn say_goodbye(&mut self, now: Time) {
        if let Some(since) = self.goodbye {
            // HTTP/3 has no PING that would tell when the client knows.
            if self.server.is_http3() && now >= since + H3_GOODBYE {
                self.server.say_goodbye();
            }
            return;
        }
        self.goodbye = Some(now);
        if self.is_open() {
            self.server.say_goodbye();
        } else {
            self.server.go_away(Code::NO_ERROR);
        }
    }

    /// Ends the connection, with the reason.
    pub(crate) fn cut(&mut self, reason: Code) {
        self.flooded |= reason == Code::ENHANCE_YOUR_CALM;
        self.server.go_away(reason);
    }

    /// The event that the connection waits for, apart from the transport.
    pub(crate) fn state(&self) -> Waits {
        let in_head = self.frames.is_in_head() || self.server.head_since().is_some();
        let mut state = if in_head { Waits::Head } else { Waits::Idle };
        for stream in &self.streams {
            match stream.waits() {
                // A handler has all the time it wants, so it counts only if nothing else does.
                Waits::Handler if state == Waits::Idle => state = Waits::Handler,
                Waits::Handler => {}
                waits => return waits,
            }
        }
        state
    }

    /// When the first of its streams, or a header block, has taken too long.
    pub(crate) fn deadline(&self, limits: &Limits) -> Time {
        let block = self.head_since().map(|since| since + limits.header_time);
        let streams = self.streams.iter().map(|stream| stream.deadline(limits));
        let handles = || self.streams.iter().any(|stream| matches!(stream.doing, Doing::Handling));
        let fin = limits.after_fin().and_then(|time| Some(self.fin? + time)).filter(|_| handles());
        streams.chain(block).chain(fin).min().unwrap_or(Time::NEVER)
    }

    /// When the head of a request began to come that has not come whole.
    pub(crate) fn head_since(&self) -> Option<Time> {
        self.frames.block_since().or_else(|| self.server.head_since())
    }

    /// Whether the client has sent its FIN, and the windows that a response waits for stay shut.
    pub(crate) fn is_in_vain(&self, stream: &Stream) -> bool {
        let blocked = matches!(&stream.doing, Doing::Sending(sending) if sending.is_blocked);
        self.fin.is_some() && blocked && self.server.room(stream.id) == Some(0)
    }

    /// Whether a body is read after its response, by code that is not one of our tasks.
    pub(crate) fn is_read_elsewhere(&self) -> bool {
        self.streams.iter().any(|stream| stream.task.is_none() && stream.upload.is_some())
    }

    /// Bytes of responses in memory that the client's windows keep back, asked of each stream.
    pub(crate) fn count_held(&self) -> usize {
        self.streams.iter().map(Stream::held).sum()
    }

    /// Bytes of the heads of its requests. Clients repeat themselves: a head that the stream before has
    /// too is the same memory.
    pub(crate) fn count_heads(&self) -> usize {
        let begun = self.streams.iter().filter_map(|stream| stream.asked.head.as_ref());
        let waiting = self.deferred.iter().filter_map(|deferred| deferred.request.head.as_ref().ok());
        let mut last = None;
        let mut bytes = 0;
        for head in begun.chain(waiting) {
            if last.is_none_or(|last| !Rc::ptr_eq(last, head)) {
                bytes += head.bytes().len();
            }
            last = Some(head);
        }
        bytes
    }

    /// How many streams have a file open, or are opening one.
    pub(crate) fn open_files(&mut self) -> usize {
        self.streams.iter_mut().filter_map(Stream::file).filter(|body| body.is_open()).count()
    }

    /// Whether the files that must stay open are as many as a connection may have.
    pub(crate) fn is_full_of_files(&self) -> bool {
        self.streams.len() >= FILES_OPEN
            && self.streams.iter().filter(|stream| stream.keeps_file()).count() >= FILES_OPEN
    }

    /// Whether the file of a stream has to wait for others of the connection. One whose client's
    /// window is shut makes room. `full`: a file waits already.
    pub(crate) fn must_wait_for_files(&mut self, at: usize, full: &mut bool, now: Time) -> bool {
        let stream = &mut self.streams[at];
        let id = stream.id;
        let closed = stream.file().is_some_and(|body| !body.is_open());
        if !closed || self.server.room(id) == Some(0) {
            return false;
        }
        *full = *full || !self.has_room_for_a_file();
        if *full && let Doing::Sending(sending) = &mut self.streams[at].doing {
            // Its client reads as fast as we let it.
            (sending.is_blocked, sending.since, sending.sent_then) = (false, now, sending.sent);
        }
        *full
    }

    fn has_room_for_a_file(&mut self) -> bool {
        if self.open_files() < FILES_OPEN {
            return true;
        }
        let server = &self.server;
        let mut idle = self.streams.iter_mut().filter(|stream| server.room(stream.id) == Some(0));
        match idle.find_map(|stream| stream.file().filter(|body| body.is_open() && body.may_close())) {
            Some(body) => {
                body.close();
                true
            }
            None => false,
        }
    }

    /// Whether it would go on if the thread had more memory.
    pub(crate) fn wants_memory(&self) -> bool {
        self.counted >= UNSENT_SCARCE
    }
}

/// How many requests one turn begins with.
pub(crate) const REQUESTS: usize = limits::H2_STREAMS as usize;
