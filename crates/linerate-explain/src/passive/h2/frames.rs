//! Frames through segments and holes. DATA is only counted; other frames are reported when whole.

use linerate_http::h2::{FRAME_HEAD, FrameHead, PREFACE, flag, kind};

use crate::passive::flow::Budget;
use crate::passive::limits::{BLOCK_FRAMES, FRAME};

/// Where bytes stand in their direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// When they were there in their order; of a TLS record, when its first byte was.
    pub(crate) begun: i64,
    /// When they were captured.
    pub(crate) came: i64,
    /// The number of their segment's first byte, or of the first that may belong to their record.
    pub(crate) seq: u32,
}

/// The next thing in the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Bytes of a DATA frame, its padding included. `ends`: they are the last of the stream.
    /// `is_missing`: the capture does not have them.
    Data {
        stream: u32,
        bytes: u32,
        ends: bool,
        is_missing: bool,
    },
    /// Fields. `None`: bytes of them are missing.
    Block {
        stream: u32,
        is_promise: bool,
        ends: bool,
        block: Option<Vec<u8>>,
    },
    /// Settings as they stand in the frame. `None`: bytes are missing.
    Settings(Option<Vec<u8>>),
    /// The other end may send this many bytes more; stream 0 is the connection. `None`: it is not known.
    Room {
        stream: u32,
        bytes: Option<u32>,
    },
    Reset {
        stream: u32,
        code: Option<u32>,
    },
    /// Streams above this one are not processed.
    GoAway {
        last: Option<u32>,
    },
    /// Frames were lost in a hole.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    /// This many bytes of the preface were read.
    Preface(usize),
    Head,
    Body {
        left: u32,
        holed: bool,
    },
    /// Where the next frame begins is not known; one is looked for where a segment begins.
    Lost,
}

/// A field block whose frames continue.
#[derive(Debug)]
struct Block {
    stream: u32,
    is_promise: bool,
    ends: bool,
    bytes: Vec<u8>,
    frames: u32,
    is_whole: bool,
    begun: Spot,
}

/// Reads one direction.
#[derive(Debug)]
pub(crate) struct FrameReader {
    state: FrameState,
    head: [u8; FRAME_HEAD],
    have: usize,
    frame: FrameHead,
    begun: Spot,
    body: Vec<u8>,
    block: Option<Block>,
    /// Bytes of a field block.
    most: usize,
}

impl FrameReader {
    /// From the preface of a client on, or from a frame; `is_lost`: from somewhere on.
    pub(crate) fn new(is_client: bool, is_lost: bool, most: usize) -> FrameReader {
        let state = match (is_lost, is_client) {
            (true, _) => FrameState::Lost,
            (_, true) => FrameState::Preface(0),
            _ => FrameState::Head,
        };
        FrameReader {
            state,
            head: [0; FRAME_HEAD],
            have: 0,
            frame: FrameHead { len: 0, kind: 0, flags: 0, stream: 0 },
            begun: Spot::default(),
            body: Vec::new(),
            block: None,
            most,
        }
    }

    /// The next frame in `data`, which is advanced, and where it began; `None` when all is read.
    /// `starts`: `data` begins a segment or a record.
    ///
    /// # Errors
    /// In words: what is in it is no HTTP/2, or would take too much memory.
    pub(crate) fn next(
        &mut self,
        data: &mut &[u8],
        mut starts: bool,
        spot: Spot,
        budget: &Budget,
    ) -> Result<Option<(Frame, Spot)>, String> {
        loop {
            match self.state {
                FrameState::Body { left: 0, holed } => {
                    if let Some(told) = self.end(holed, budget)? {
                        return Ok(Some(told));
                    }
                }
                _ if data.is_empty() => return Ok(None),
                FrameState::Preface(have) => {
                    let n = (PREFACE.len() - have).min(data.len());
                    if data[..n] != PREFACE[have..have + n] {
                        return Err("the client does not begin with the preface of HTTP/2".to_owned());
                    }
                    *data = &data[n..];
                    self.state = match have + n {
                        all if all == PREFACE.len() => FrameState::Head,
                        have => FrameState::Preface(have),
                    };
                }
                FrameState::Lost if starts && data.starts_with(PREFACE) => {
                    self.state = FrameState::Preface(0)
                }
                FrameState::Lost if starts && is_chain(data) => self.state = FrameState::Head,
                FrameState::Lost => {
                    *data = &[];
                    return Ok(None);
                }
                FrameState::Head => self.head(data, spot)?,
                FrameState::Body { left, holed } => {
                    let n = data.len().min(left as usize);
                    let told = self.body(&data[..n], left - n as u32, holed, budget);
                    *data = &data[n..];
                    if told.is_some() {
                        return Ok(told);
                    }
                }
            }
            starts = false;
        }
    }

    /// More of a frame's head.
    fn head(&mut self, data: &mut &[u8], spot: Spot) -> Result<(), String> {
        if self.have == 0 {
            self.begun = spot;
        }
        let n = (FRAME_HEAD - self.have).min(data.len());
        self.head[self.have..self.have + n].copy_from_slice(&data[..n]);
        self.have += n;
        *data = &data[n..];
        if self.have < FRAME_HEAD {
            return Ok(());
        }
        self.have = 0;
        self.frame = FrameHead::read(&self.head);
        self.state = FrameState::Body { left: self.frame.len, holed: false };
        match fault(&self.frame, self.block.as_ref().map(|b| b.stream)) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Bytes of a frame; `left`: those behind them.
    fn body(&mut self, bytes: &[u8], left: u32, holed: bool, budget: &Budget) -> Option<(Frame, Spot)> {
        if self.frame.kind == kind::DATA {
            return Some(self.data(bytes.len() as u32, left, false));
        }
        let fits = !is_kept(&self.frame) || (!holed && budget.take(bytes.len()));
        if is_kept(&self.frame) && fits {
            self.body.extend_from_slice(bytes);
        }
        self.state = FrameState::Body { left, holed: holed || !fits };
        None
    }

    fn data(&mut self, bytes: u32, left: u32, is_missing: bool) -> (Frame, Spot) {
        // The end is reported with the last bytes.
        self.state = if left == 0 { FrameState::Head } else { FrameState::Body { left, holed: false } };
        let ends = left == 0 && self.frame.has(flag::END_STREAM);
        (Frame::Data { stream: self.frame.stream, bytes, ends, is_missing }, self.begun)
    }

    /// A frame's last byte was read, or its head says that it has none.
    fn end(&mut self, holed: bool, budget: &Budget) -> Result<Option<(Frame, Spot)>, String> {
        self.state = FrameState::Head;
        let head = self.frame;
        let body = std::mem::take(&mut self.body);
        budget.give_back(body.len());
        let number = |at: usize| {
            let bytes = body.get(at..at + 4).filter(|_| !holed)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?) & 0x7fff_ffff)
        };
        let frame = match head.kind {
            kind::DATA => return Ok(Some(self.data(0, 0, false))),
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                return self.fields(head, (!holed).then_some(body), budget);
            }
            kind::RST_STREAM => Frame::Reset { stream: head.stream, code: number(0) },
            kind::WINDOW_UPDATE => Frame::Room { stream: head.stream, bytes: number(0) },
            kind::GOAWAY => Frame::GoAway { last: number(0) },
            kind::SETTINGS if !head.has(flag::ACK) => Frame::Settings((!holed).then_some(body)),
            _ => return Ok(None),
        };
        Ok(Some((frame, self.begun)))
    }

    /// A frame with fields, which may be one of several.
    fn fields(
        &mut self,
        head: FrameHead,
        body: Option<Vec<u8>>,
        budget: &Budget,
    ) -> Result<Option<(Frame, Spot)>, String> {
        let mut block = self.block.take().unwrap_or_else(|| Block {
            stream: head.stream,
            is_promise: head.kind == kind::PUSH_PROMISE,
            ends: head.has(flag::END_STREAM) && head.kind == kind::HEADERS,
            bytes: Vec::new(),
            frames: 0,
            is_whole: true,
            begun: self.begun,
        });
        block.frames += 1;
        let fragment = body.as_deref().map(|body| fragment(&head, body)).transpose();
        let fragment = fragment.inspect_err(|_| budget.give_back(block.bytes.len()))?;
        let size = block.bytes.len() + fragment.map_or(0, <[u8]>::len);
        if size > self.most || block.frames > BLOCK_FRAMES {
            budget.give_back(block.bytes.len());
            return Err(format!("a field block of {size} bytes in {} frames", block.frames));
        }
        match fragment.filter(|part| budget.take(part.len())) {
            Some(part) => block.bytes.extend_from_slice(part),
            None => block.is_whole = false,
        }
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        budget.give_back(block.bytes.len());
        let Block { stream, is_promise, ends, bytes, is_whole, begun, .. } = block;
        Ok(Some((Frame::Block { stream, is_promise, ends, block: is_whole.then_some(bytes) }, begun)))
    }

    /// `n` bytes are missing.
    pub(crate) fn hole(&mut self, n: u32, budget: &Budget) -> Option<(Frame, Spot)> {
        match self.state {
            FrameState::Body { left, .. } if n <= left && self.frame.kind == kind::DATA => {
                Some(self.data(n, left - n, true))
            }
            FrameState::Body { left, .. } if n <= left => {
                self.state = FrameState::Body { left: left - n, holed: true };
                None
            }
            FrameState::Lost => None,
            _ => {
                self.drop_held(budget);
                self.state = FrameState::Lost;
                Some((Frame::Lost, self.begun))
            }
        }
    }

    /// Returns what it holds to the budget.
    pub(crate) fn drop_held(&mut self, budget: &Budget) {
        let block = self.block.take().map_or(0, |block| block.bytes.len());
        budget.give_back(block + self.body.len());
        self.body = Vec::new();
        self.have = 0;
    }
}

/// Frames whose bytes count.
fn is_kept(head: &FrameHead) -> bool {
    !matches!(head.kind, kind::DATA | kind::PRIORITY | kind::PING) && head.kind <= kind::CONTINUATION
}

/// The fault of a frame, by its head alone; `open`: the stream whose field block continues.
fn fault(head: &FrameHead, open: Option<u32>) -> Option<String> {
    let FrameHead { len, stream, .. } = *head;
    let name = NAMES.get(usize::from(head.kind)).copied().unwrap_or("unknown");
    if let Some(open) = open.filter(|open| head.kind != kind::CONTINUATION || stream != *open) {
        return Some(format!("a frame ({name}) stands within the fields of stream {open}"));
    }
    if open.is_none() && head.kind == kind::CONTINUATION {
        return Some("a CONTINUATION frame continues nothing".to_owned());
    }
    let lone = matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
    let either = head.kind == kind::WINDOW_UPDATE || head.kind > kind::CONTINUATION;
    if !either && lone != (stream == 0) {
        return Some(format!("a frame ({name}) on stream {stream}"));
    }
    let wrong = match head.kind {
        kind::WINDOW_UPDATE | kind::RST_STREAM => len != 4,
        kind::PRIORITY => len != 5,
        kind::PING => len != 8,
        kind::SETTINGS => len % 6 != 0 || len as usize > FRAME,
        kind::GOAWAY => len < 8 || len as usize > FRAME,
        kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => len as usize > FRAME,
        _ => false,
    };
    wrong.then(|| format!("a frame ({name}) of {len} bytes"))
}

const NAMES: [&str; 10] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
];

/// The part of a field block in a frame: without padding, priority and a promise's stream.
pub(super) fn fragment<'a>(head: &FrameHead, body: &'a [u8]) -> Result<&'a [u8], String> {
    let short = || "a frame with fields is shorter than what stands before them".to_owned();
    if head.kind == kind::CONTINUATION {
        return Ok(body);
    }
    let (padding, rest) = match head.has(flag::PADDED) {
        true => body.split_first().map(|(n, rest)| (usize::from(*n), rest)).ok_or_else(short)?,
        false => (0, body),
    };
    let before = match head.kind {
        kind::PUSH_PROMISE => 4,
        _ if head.has(flag::PRIORITY) => 5,
        _ => 0,
    };
    rest.get(before..rest.len().saturating_sub(padding)).ok_or_else(short)
}

/// Whether bytes are frames, one behind the other, by their heads.
fn is_chain(data: &[u8]) -> bool {
    heads(data).is_some_and(|heads| !heads.is_empty())
}

/// The heads of frames that stand in these bytes, each with what is there of its payload. `None`:
/// they are no frames.
pub(super) fn heads(data: &[u8]) -> Option<Vec<(FrameHead, &[u8])>> {
    /// Frames looked at. Reason: a few tell.
    const MOST: usize = 8;
    let (mut rest, mut found) = (data, Vec::new());
    while let Some((bytes, behind)) = rest.split_first_chunk::<FRAME_HEAD>().filter(|_| found.len() < MOST) {
        let head = FrameHead::read(bytes);
        let flags = match head.kind {
            kind::DATA => flag::END_STREAM | flag::PADDED,
            kind::HEADERS => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            kind::PUSH_PROMISE => flag::END_HEADERS | flag::PADDED,
            kind::CONTINUATION => flag::END_HEADERS,
            kind::SETTINGS | kind::PING => flag::ACK,
            _ => 0,
        };
        let open = (head.kind == kind::CONTINUATION).then_some(head.stream);
        let known = head.kind <= kind::CONTINUATION && head.flags & !flags == 0 && bytes[5] & 0x80 == 0;
        if !known || head.len as usize > FRAME || fault(&head, open).is_some() {
            return None;
        }
        let here = behind.len().min(head.len as usize);
        found.push((head, &behind[..here]));
        rest = &behind[here..];
    }
    Some(found)
}
