//! A stream's bytes to frames, however the bytes are cut.

use super::frame::{frame_kind, is_of_http2};
use super::varint::varint;
use super::{H3Code, H3Error};

/// The longest payload of a frame on a control stream, bytes. Reason: it holds settings, of which
/// real ones have fewer than ten.
const CONTROL_BYTES: usize = 4096;

/// Frames in a row that bring nothing: of unknown kinds, or empty DATA. Reason: each costs work.
/// Real peers send one or two of unknown kinds (RFC 9114, section 7.2.8).
const IDLE_FRAMES: u32 = 1000;

/// Bytes of a frame's head: two integers.
const HEAD_BYTES: usize = 16;

/// Reads the frames of one stream. DATA is handed out as it comes, other frames whole; frames of
/// unknown kinds are left out (RFC 9114, section 9).
#[derive(Debug)]
pub struct H3FrameReader {
    streams: H3StreamRole,
    /// The beginning of a head or frame whose rest has not come.
    carry: Vec<u8>,
    /// `carry` was handed out as a frame.
    spent: bool,
    rest: FrameRest,
    idle_frames: u32,
}

/// The stream that a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum H3StreamRole {
    /// A request and its response; the longest field section, bytes.
    Request(usize),
    /// Control: its first frame has come.
    Control { has_begun: bool },
}

/// The part of a frame that has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameRest {
    /// Nothing: the next byte begins a frame.
    Nothing,
    /// Content of DATA, bytes.
    Content(u64),
    /// Bytes of a frame that is left out.
    Dropped(u64),
    /// Bytes of a frame of this kind, all of them.
    Payload(u64, usize),
}

/// A frame, or a piece of one.
#[derive(Debug, PartialEq, Eq)]
pub enum H3Piece<'c, 'i> {
    /// A whole frame that is not DATA: its kind and payload.
    Frame(u64, &'c [u8]),
    /// Content, never empty.
    Data(&'i [u8]),
    /// A field section begins that is longer than the reader takes. Its bytes are left out.
    SectionTooLong,
}

impl H3FrameReader {
    /// For a stream of a request or response, whose field sections have at most `section_bytes`.
    pub fn of_requests(section_bytes: usize) -> H3FrameReader {
        H3FrameReader::new(H3StreamRole::Request(section_bytes))
    }

    /// The longest field section, bytes.
    pub(super) fn section_bytes(&self) -> usize {
        match self.streams {
            H3StreamRole::Request(most) => most,
            H3StreamRole::Control { .. } => 0,
        }
    }

    /// For a control stream, behind the integer that says so.
    pub fn of_control() -> H3FrameReader {
        H3FrameReader::new(H3StreamRole::Control { has_begun: false })
    }

    fn new(streams: H3StreamRole) -> H3FrameReader {
        H3FrameReader { streams, carry: Vec::new(), spent: false, rest: FrameRest::Nothing, idle_frames: 0 }
    }

    /// Whether the stream would end in the middle of a frame if it ended now: `H3_FRAME_ERROR` then
    /// (RFC 9114, section 7.1).
    pub fn in_frame(&self) -> bool {
        let is_between =
            matches!(self.rest, FrameRest::Nothing | FrameRest::Content(0) | FrameRest::Dropped(0));
        !is_between || !(self.carry.is_empty() || self.spent)
    }

    /// The next frame, or piece of one; `None` if more bytes are needed. All input is then used.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub fn next<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Result<Option<H3Piece<'c, 'i>>, H3Error> {
        if self.spent {
            self.carry.clear();
            self.spent = false;
        }
        loop {
            match self.rest {
                FrameRest::Nothing => {
                    let Some((kind, len)) = self.head(input) else { return Ok(None) };
                    if let Some(piece) = self.begin(kind, len)? {
                        return Ok(Some(piece));
                    }
                }
                FrameRest::Content(left) | FrameRest::Dropped(left) if left == 0 => {
                    self.rest = FrameRest::Nothing;
                }
                FrameRest::Content(_) | FrameRest::Dropped(_) if input.is_empty() => return Ok(None),
                FrameRest::Content(left) => {
                    let (content, left) = take(input, left);
                    self.rest = if left == 0 { FrameRest::Nothing } else { FrameRest::Content(left) };
                    self.idle_frames = 0;
                    return Ok(Some(H3Piece::Data(content)));
                }
                FrameRest::Dropped(left) => self.rest = FrameRest::Dropped(take(input, left).1),
                FrameRest::Payload(kind, len) => return Ok(self.payload(kind, len, input)),
            }
        }
    }

    /// Reads a frame's head: its kind and length.
    fn head(&mut self, input: &mut &[u8]) -> Option<(u64, u64)> {
        let of = |bytes: &mut &[u8]| Some((varint(bytes)?, varint(bytes)?));
        if self.carry.is_empty() {
            let mut ahead = *input;
            let head = of(&mut ahead);
            match head {
                Some(_) => *input = ahead,
                None => self.carry.extend_from_slice(std::mem::take(input)),
            }
            return head;
        }
        let before = self.carry.len();
        let more = input.len().min(HEAD_BYTES - before);
        self.carry.extend_from_slice(&input[..more]);
        let mut ahead = &self.carry[..];
        let head = of(&mut ahead);
        match head {
            Some(_) => {
                *input = &input[self.carry.len() - ahead.len() - before..];
                self.carry.clear();
            }
            None => *input = &[],
        }
        head
    }

    /// Begins a frame.
    fn begin<'c, 'i>(&mut self, kind: u64, len: u64) -> Result<Option<H3Piece<'c, 'i>>, H3Error> {
        let unexpected = |why: String| Err(H3Error::new(H3Code::FRAME_UNEXPECTED, why));
        let too_long = |most: usize| {
            let why = format!("a frame of kind {kind:#x} and {len} bytes: {most} are the most");
            Err(H3Error::new(H3Code::EXCESSIVE_LOAD, why))
        };
        if is_of_http2(kind) {
            return unexpected(format!("a frame of kind {kind:#x} is one of HTTP/2"));
        }
        let is_data = kind == frame_kind::DATA;
        self.rest = match &mut self.streams {
            H3StreamRole::Control { has_begun: false } if kind != frame_kind::SETTINGS => {
                let why = "the control stream does not begin with SETTINGS";
                return Err(H3Error::new(H3Code::MISSING_SETTINGS, why));
            }
            H3StreamRole::Control { has_begun: true } if kind == frame_kind::SETTINGS => {
                return unexpected("a second SETTINGS frame".to_owned());
            }
            H3StreamRole::Control { has_begun } => {
                *has_begun = true;
                match kind {
                    frame_kind::SETTINGS
                    | frame_kind::GOAWAY
                    | frame_kind::CANCEL_PUSH
                    | frame_kind::MAX_PUSH_ID => match usize::try_from(len) {
                        Ok(len) if len <= CONTROL_BYTES => FrameRest::Payload(kind, len),
                        _ => return too_long(CONTROL_BYTES),
                    },
                    frame_kind::DATA | frame_kind::HEADERS | frame_kind::PUSH_PROMISE => {
                        return unexpected(format!("a frame of kind {kind:#x} on the control stream"));
                    }
                    _ => FrameRest::Dropped(len),
                }
            }
            H3StreamRole::Request(most) => match kind {
                frame_kind::DATA => FrameRest::Content(len),
                frame_kind::HEADERS | frame_kind::PUSH_PROMISE => match usize::try_from(len) {
                    Ok(len) if len <= *most => FrameRest::Payload(kind, len),
                    _ if kind == frame_kind::PUSH_PROMISE => return too_long(*most),
                    _ => {
                        self.rest = FrameRest::Dropped(len);
                        return Ok(Some(H3Piece::SectionTooLong));
                    }
                },
                frame_kind::SETTINGS
                | frame_kind::GOAWAY
                | frame_kind::CANCEL_PUSH
                | frame_kind::MAX_PUSH_ID => {
                    return unexpected(format!("a frame of kind {kind:#x} on the stream of a request"));
                }
                _ => FrameRest::Dropped(len),
            },
        };
        if matches!(self.rest, FrameRest::Dropped(_)) || is_data && len == 0 {
            self.idle_frames += 1;
            if self.idle_frames > IDLE_FRAMES {
                let why = format!("{IDLE_FRAMES} frames in a row that bring nothing");
                return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, why));
            }
        }
        Ok(None)
    }

    /// A whole frame, if it has come.
    fn payload<'c, 'i: 'c>(
        &'c mut self,
        kind: u64,
        len: usize,
        input: &mut &'i [u8],
    ) -> Option<H3Piece<'c, 'i>> {
        let missing = len - self.carry.len();
        let Some((end, rest)) = input.split_at_checked(missing) else {
            self.carry.extend_from_slice(std::mem::take(input));
            return None;
        };
        *input = rest;
        self.rest = FrameRest::Nothing;
        self.idle_frames = 0;
        if self.carry.is_empty() {
            return Some(H3Piece::Frame(kind, end));
        }
        self.carry.extend_from_slice(end);
        self.spent = true;
        Some(H3Piece::Frame(kind, &self.carry))
    }
}

/// Takes at most `left` bytes of the input: those, and how many are left then.
fn take<'i>(input: &mut &'i [u8], left: u64) -> (&'i [u8], u64) {
    let len = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
    let (taken, rest) = input.split_at(len);
    *input = rest;
    (taken, left - len as u64)
}
