//! HTTP/1 messages in one direction of a captured connection. The parser is more tolerant than
//! those of `linerate-http`, and skips holes: it only needs to find where messages begin and end.

use memchr::memmem;

use super::flow::Budget;
use super::limits::TARGET_CHARS;

/// The facts of a message's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The request line, or 0 and the status.
    pub(crate) line: StartLine,
    length: Option<u64>,
    chunked: bool,
    coded: bool,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// `Expect: 100-continue`.
    pub(crate) expects: bool,
    pub(crate) minor: u8,
    pub(crate) bytes: u32,
    /// Its rest is not in the capture (a snap length).
    pub(crate) cut: bool,
}

/// A message's first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartLine {
    Request { method: String, target: String },
    Status(u16),
}

impl Default for StartLine {
    fn default() -> Self {
        StartLine::Status(0)
    }
}

/// How the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked,
    UntilClose,
    /// Its head is cut off, so that it ends with the last byte before the next message.
    Unknown,
    /// No HTTP follows: a tunnel or another protocol.
    Tunnel,
}

impl Head {
    /// Of a request (RFC 9112, section 6.3).
    pub(crate) fn request_body(&self) -> Body {
        if self.cut {
            const EMPTY: [&str; 6] = ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
            let is_empty =
                matches!(&self.line, StartLine::Request { method, .. } if EMPTY.contains(&method.as_str()));
            return if is_empty { Body::Length(0) } else { Body::Unknown };
        }
        match (self.chunked, self.length) {
            (true, _) => Body::Chunked,
            (_, n) => Body::Length(n.unwrap_or(0)),
        }
    }

    /// The framing of a response to that method (RFC 9112, section 6.3).
    pub(crate) fn answer_body(&self, status: u16, method: Option<&str>) -> Body {
        let tunnel = status == 101 || (method == Some("CONNECT") && (200..300).contains(&status));
        if tunnel {
            Body::Tunnel
        } else if matches!(status, 100..=199 | 204 | 304) || method == Some("HEAD") {
            Body::Length(0)
        } else if self.cut {
            Body::Unknown
        } else if self.chunked {
            Body::Chunked
        } else if self.coded {
            Body::UntilClose
        } else {
            self.length.map_or(Body::UntilClose, Body::Length)
        }
    }
}

/// Protocols other than HTTP/1 in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Foreign {
    Tls,
    Http2,
    Unknown,
}

/// The next thing in the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageEvent {
    /// A message's first byte.
    Begin,
    /// Its head is whole; the reader waits for [`MessageReader::body`].
    Head(Box<Head>),
    /// Its last byte. `cut`: the connection or the capture ended before.
    /// `holed`: bytes of it are missing in the capture.
    End {
        cut: bool,
        holed: bool,
    },
    /// It ended with the last byte before: its head is cut off, and the next message begins.
    Left,
    Foreign(Foreign),
    /// Messages were lost in a hole: the pairing of requests and responses starts again.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    /// Between messages, or in a head.
    Head,
    /// A head was reported, and the caller must set its body's framing.
    Framing,
    Length(u64),
    /// In a chunk-size line: the size so far, and whether digits still count.
    ChunkSize {
        size: u64,
        digits: bool,
        line: u16,
    },
    /// In a chunk's data and the CRLF after it.
    ChunkData(u64),
    /// In the trailer section; true at the start of a line.
    Trailers {
        empty: bool,
        bytes: u32,
    },
    UntilClose,
    /// In a message of unknown length.
    Unknown,
    Tunnel,
    /// After a hole that may have had the end of a message: a message is recognised at the start of
    /// a segment.
    Lost,
    /// Not HTTP.
    Foreign,
    Ended,
}

/// Reads one direction.
#[derive(Debug)]
pub(crate) struct MessageReader {
    state: MessageState,
    head: Vec<u8>,
    head_limit: usize,
    /// Whether `Begin` was reported for the head that is being collected.
    begun: bool,
    /// Bytes of the message are missing.
    holed: bool,
}

impl MessageReader {
    pub(crate) fn new(head_limit: usize) -> MessageReader {
        MessageReader { state: MessageState::Head, head: Vec::new(), head_limit, begun: false, holed: false }
    }

    /// Within a message.
    pub(crate) fn in_message(&self) -> bool {
        match self.state {
            MessageState::Head => self.begun,
            MessageState::Lost | MessageState::Tunnel | MessageState::Foreign | MessageState::Ended => false,
            _ => true,
        }
    }

    /// The other end goes on: a message of unknown length has ended.
    pub(crate) fn leave(&mut self) -> Option<MessageEvent> {
        (self.state == MessageState::Unknown).then(|| {
            self.lost();
            MessageEvent::Left
        })
    }

    /// Bytes are not (or no longer) read as HTTP.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.state, MessageState::Tunnel | MessageState::Foreign)
    }

    /// How the body ends whose head was just told.
    pub(crate) fn body(&mut self, body: Body) {
        self.state = match body {
            Body::Length(n) => MessageState::Length(n),
            Body::Chunked => MessageState::ChunkSize { size: 0, digits: true, line: 0 },
            Body::UntilClose => MessageState::UntilClose,
            Body::Unknown => MessageState::Unknown,
            Body::Tunnel => MessageState::Tunnel,
        };
    }

    /// The next event in `data`, which is advanced; `None` when all of it is read. `starts`: `data`
    /// is the start of a segment.
    pub(crate) fn next(&mut self, data: &mut &[u8], starts: bool, budget: &Budget) -> Option<MessageEvent> {
        loop {
            match self.state {
                MessageState::Framing
                | MessageState::Tunnel
                | MessageState::Foreign
                | MessageState::Ended => {
                    *data = &[];
                    return None;
                }
                MessageState::Length(0) => return Some(self.whole()),
                _ if data.is_empty() => return None,
                MessageState::Head => return self.in_head(data, budget),
                MessageState::Length(n) => self.state = MessageState::Length(n - skip(data, n)),
                MessageState::ChunkSize { size, digits, line } => {
                    if !self.chunk_line(data, size, digits, line) {
                        return Some(self.lost());
                    }
                }
                MessageState::ChunkData(0) => {
                    self.state = MessageState::ChunkSize { size: 0, digits: true, line: 0 }
                }
                MessageState::ChunkData(n) => self.state = MessageState::ChunkData(n - skip(data, n)),
                MessageState::Trailers { empty, bytes } => {
                    if self.trailer_byte(data, empty, bytes) {
                        return Some(self.whole());
                    }
                }
                MessageState::UntilClose => *data = &[],
                MessageState::Unknown if starts && looks_like_start(data) == Some(true) => {
                    self.lost();
                    self.state = MessageState::Head;
                    return Some(MessageEvent::Left);
                }
                MessageState::Unknown => *data = &[],
                MessageState::Lost => {
                    if starts && looks_like_start(data) == Some(true) {
                        self.state = MessageState::Head;
                        continue;
                    }
                    *data = &[];
                }
            }
        }
    }

    fn whole(&mut self) -> MessageEvent {
        self.state = MessageState::Head;
        self.begun = false;
        MessageEvent::End { cut: false, holed: std::mem::take(&mut self.holed) }
    }

    fn lost(&mut self) -> MessageEvent {
        self.state = MessageState::Lost;
        self.begun = false;
        self.holed = false;
        MessageEvent::Lost
    }

    /// Collects a head and reads it when it is whole.
    fn in_head(&mut self, data: &mut &[u8], budget: &Budget) -> Option<MessageEvent> {
        if !self.begun {
            // Empty lines before a message are skipped (RFC 9112, section 2.2).
            while let Some(rest) = data.strip_prefix(b"\r\n").or_else(|| data.strip_prefix(b"\n")) {
                *data = rest;
            }
            if data.is_empty() {
                return None;
            }
            if looks_like_start(data) == Some(false) {
                return Some(self.foreign(data));
            }
            self.begun = true;
            return Some(MessageEvent::Begin);
        }
        let searched = self.head.len().saturating_sub(3);
        if self.head.is_empty()
            && let Some(end) = head_end(data, 0)
        {
            let (head, rest) = data.split_at(end);
            let event = self.read_head(head);
            *data = rest;
            return Some(event);
        }
        let before = self.head.len();
        let room = self.head_limit.saturating_sub(before).min(data.len());
        if room == 0 || !budget.take(room) {
            self.free_head(budget);
            return Some(self.foreign(data));
        }
        self.head.extend_from_slice(&data[..room]);
        match head_end(&self.head, searched) {
            None => {
                *data = &data[room..];
                if looks_like_start(&self.head) == Some(false) || self.head.len() >= self.head_limit {
                    self.free_head(budget);
                    return Some(self.foreign(data));
                }
                None
            }
            Some(end) => {
                *data = data.get(end.saturating_sub(before)..).unwrap_or_default();
                let head = std::mem::take(&mut self.head);
                budget.give_back(head.len());
                Some(self.read_head(&head[..end]))
            }
        }
    }

    pub(crate) fn free_head(&mut self, budget: &Budget) {
        budget.give_back(self.head.len());
        self.head = Vec::new();
    }

    fn read_head(&mut self, bytes: &[u8]) -> MessageEvent {
        match read_head(bytes) {
            Some(head) => {
                self.state = MessageState::Framing;
                MessageEvent::Head(Box::new(head))
            }
            None => self.foreign(&mut &bytes[..]),
        }
    }

    fn foreign(&mut self, data: &mut &[u8]) -> MessageEvent {
        self.begun = false;
        let (state, kind) = match *data {
            [0x14..=0x17, 0x03, 0..=4, ..] => (MessageState::Foreign, Foreign::Tls),
            d if d.starts_with(b"PRI * HTTP/2") => (MessageState::Foreign, Foreign::Http2),
            // The capture may have begun within a body: messages may still follow.
            _ => (MessageState::Lost, Foreign::Unknown),
        };
        self.state = state;
        *data = &[];
        MessageEvent::Foreign(kind)
    }

    /// Returns false if it is not a chunk-size line.
    fn chunk_line(&mut self, data: &mut &[u8], mut size: u64, mut digits: bool, mut line: u16) -> bool {
        const LONGEST: u16 = 4096;
        while let Some((b, rest)) = data.split_first() {
            *data = rest;
            line += 1;
            match char::from(*b).to_digit(16) {
                _ if *b == b'\n' && line > 1 => {
                    self.state = match size {
                        0 => MessageState::Trailers { empty: true, bytes: 0 },
                        // With the CRLF after the data.
                        n => MessageState::ChunkData(n.saturating_add(2)),
                    };
                    return true;
                }
                Some(digit) if digits => match size.checked_mul(16) {
                    Some(n) => size = n | u64::from(digit),
                    None => return false,
                },
                _ if line == 1 || line > LONGEST => return false,
                _ => digits = false,
            }
        }
        self.state = MessageState::ChunkSize { size, digits, line };
        true
    }

    /// True at the end of the trailer section.
    fn trailer_byte(&mut self, data: &mut &[u8], empty: bool, bytes: u32) -> bool {
        let Some((b, rest)) = data.split_first() else { return false };
        *data = rest;
        match b {
            b'\n' if empty => return true,
            b'\n' => self.state = MessageState::Trailers { empty: true, bytes },
            b'\r' => self.state = MessageState::Trailers { empty, bytes: bytes + 1 },
            // Endless trailers would be no trailers.
            _ if bytes as usize > self.head_limit => self.state = MessageState::Foreign,
            _ => self.state = MessageState::Trailers { empty: false, bytes: bytes + 1 },
        }
        false
    }

    /// `n` bytes are missing: adjusts the message that is being read.
    pub(crate) fn hole(&mut self, n: u32, budget: &Budget) -> Option<MessageEvent> {
        let n = u64::from(n);
        self.holed = self.in_message();
        match self.state {
            MessageState::Length(left) if n <= left => {
                self.state = MessageState::Length(left - n);
                (n == left).then(|| self.whole())
            }
            MessageState::ChunkData(left) if n <= left => {
                self.state = MessageState::ChunkData(left - n);
                None
            }
            MessageState::UntilClose
            | MessageState::Unknown
            | MessageState::Tunnel
            | MessageState::Foreign
            | MessageState::Ended
            | MessageState::Lost => None,
            MessageState::Head if n <= SEGMENT && self.begun => {
                let head = read_cut(&self.head);
                self.free_head(budget);
                self.begun = false;
                match head {
                    Some(head) => {
                        self.state = MessageState::Framing;
                        Some(MessageEvent::Head(Box::new(head)))
                    }
                    None => Some(self.lost()),
                }
            }
            _ => {
                self.free_head(budget);
                Some(self.lost())
            }
        }
    }

    /// No more comes in this direction.
    pub(crate) fn close(&mut self, budget: &Budget) -> Option<MessageEvent> {
        self.free_head(budget);
        let state = std::mem::replace(&mut self.state, MessageState::Ended);
        let begun = std::mem::take(&mut self.begun);
        match state {
            MessageState::UntilClose => Some(MessageEvent::End { cut: false, holed: self.holed }),
            MessageState::Unknown => Some(MessageEvent::Left),
            MessageState::Head if !begun => None,
            MessageState::Lost | MessageState::Tunnel | MessageState::Foreign | MessageState::Ended => None,
            _ => Some(MessageEvent::End { cut: true, holed: self.holed }),
        }
    }
}

/// Advances `data` by at most `n` bytes; by how many.
fn skip(data: &mut &[u8], n: u64) -> u64 {
    let taken = usize::try_from(n).unwrap_or(usize::MAX).min(data.len());
    *data = &data[taken..];
    taken as u64
}

/// After the empty line that ends a head, looking from `from` on.
fn head_end(data: &[u8], from: usize) -> Option<usize> {
    let tail = &data[from.min(data.len())..];
    let usual = memmem::find(tail, b"\r\n\r\n").map(|at| from + at + 4);
    let bare = memmem::find(tail, b"\n\n").map(|at| from + at + 2);
    match (usual, bare) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Whether bytes can be the start of a message; `None`: too few to tell.
fn looks_like_start(data: &[u8]) -> Option<bool> {
    const LONGEST_METHOD: usize = 32;
    const LONGEST_LINE: usize = 16 << 10;
    let version = b"HTTP/1.";
    let n = data.len().min(version.len());
    if data[..n] == version[..n] {
        return (n == version.len()).then_some(true);
    }
    let method = data
        .iter()
        .take(LONGEST_METHOD)
        .take_while(|b| b.is_ascii_alphanumeric() || b"-_".contains(b))
        .count();
    if method == 0 {
        return Some(false);
    }
    match data.get(method) {
        None if method < LONGEST_METHOD => None,
        // A malformed line after a known method still counts as a request, because servers respond
        // to it, mostly with 400.
        Some(b' ' | b'\r' | b'\n') if METHODS.contains(&&data[..method]) => Some(true),
        Some(b' ') => match memchr::memchr(b'\n', &data[..data.len().min(LONGEST_LINE)]) {
            Some(end) => Some(memmem::rfind(&data[..end], b" HTTP/1.").is_some()),
            None if data.len() >= LONGEST_LINE => Some(false),
            // Every method in use is in capitals: other words are some other protocol's.
            None if data[..method].iter().any(u8::is_ascii_lowercase) => Some(false),
            None => None,
        },
        _ => Some(false),
    }
}

/// Methods that need no version behind them to be recognised.
const METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"CCM_POST"];

/// Bytes that a segment has at most.
const SEGMENT: u64 = 65_535;

/// A head whose rest is cut off: its whole lines; of the first one the beginning is enough.
fn read_cut(bytes: &[u8]) -> Option<Head> {
    let whole = memchr::memrchr(b'\n', bytes).map_or(bytes, |end| &bytes[..end]);
    let known = looks_like_start(whole) == Some(true) && whole.contains(&b' ');
    known.then(|| read_head(whole)).flatten().map(|head| Head { cut: true, ..head })
}

fn read_head(bytes: &[u8]) -> Option<Head> {
    let mut lines = bytes.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let first = lines.next()?;
    let mut head = Head { bytes: bytes.len() as u32, ..Head::default() };
    if let Some(rest) = first.strip_prefix(b"HTTP/1.") {
        head.minor = rest.first()?.checked_sub(b'0').filter(|n| *n <= 9)?;
        let digits = rest[1..].trim_ascii_start().get(..3)?;
        head.line = StartLine::Status(std::str::from_utf8(digits).ok()?.parse().ok()?);
    } else {
        let at = memmem::rfind(first, b" HTTP/1.").unwrap_or(first.len());
        let minor = first.get(at + 8).and_then(|digit| digit.checked_sub(b'0'));
        head.minor = minor.filter(|n| *n <= 9).unwrap_or(0);
        let space = memchr::memchr(b' ', first).unwrap_or(first.len());
        let target = String::from_utf8_lossy(first.get(space + 1..at).unwrap_or_default());
        head.line = StartLine::Request {
            method: String::from_utf8_lossy(&first[..space]).into_owned(),
            target: target.chars().filter(|c| !c.is_control()).take(TARGET_CHARS).collect(),
        };
    }
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii());
        head.field(name, value);
    }
    Some(head)
}

impl Head {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let has =
            |word: &[u8]| value.split(|b| *b == b',').any(|v| v.trim_ascii().eq_ignore_ascii_case(word));
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.length = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coded = !has(b"identity");
                self.chunked = has(b"chunked");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close = has(b"close");
                self.keep_alive = has(b"keep-alive");
            }
            6 if name.eq_ignore_ascii_case(b"expect") => self.expects = has(b"100-continue"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
