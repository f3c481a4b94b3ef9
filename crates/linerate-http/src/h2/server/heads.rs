//! The heads of requests: fields of a stream become the head that HTTP/1.1 would have.

use std::rc::Rc;

use super::super::H2Error;
use super::super::hpack::Decoder;
use super::blocks::OF_A_CONNECTION;
use crate::server::{HeadReader, RequestFault, RequestHead, RequestLimits, is_token};

/// Fields that a WebSocket's client sends in HTTP/1.1 and not in HTTP/2 (RFC 8441 section 5). The key is
/// constant: it protects against confused caches, which HTTP/2 has not.
const WEBSOCKET: &[u8] =
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: bGluZXJhdGUuLi4uLi4uLg==\r\n";

/// Bytes that a field counts beside its own (RFC 9113 section 6.5.2).
const FIELD_COST: usize = 32;

/// A block up to this many bytes is remembered. Reason: larger ones are rare, and each connection
/// remembers one.
const BLOCK_REMEMBERED: usize = 512;

/// A field block of a request.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    Read(Read),
    /// It breaks a rule of HTTP/2 (RFC 9113 section 8.1.1), or of HTTP/3 (RFC 9114 section 4.1.2), which
    /// are the same.
    Malformed,
    TooLarge,
}

/// A head that keeps the rules of HTTP/2.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) head: Result<Rc<RequestHead>, RequestFault>,
    pub(crate) websocket: bool,
    /// The value of Content-Length.
    pub(crate) length: Option<u64>,
}

/// Reads the heads of requests. One per thread serves any number of connections.
#[derive(Debug)]
pub struct Heads {
    reader: HeadReader,
    most: usize,
    /// The head last read, as HTTP/1.1 would have it.
    text: Vec<u8>,
    reading: HeadReading,
}

impl Heads {
    /// A reader with these limits.
    pub fn new(limits: RequestLimits) -> Heads {
        let most = limits.head + FIELD_COST * limits.fields;
        Heads {
            reader: HeadReader::for_http2(limits),
            most,
            text: Vec::new(),
            reading: HeadReading::default(),
        }
    }

    /// The largest head as HTTP/2 counts it: 32 bytes more for each field.
    pub fn list_bytes(&self) -> u32 {
        u32::try_from(self.most).unwrap_or(u32::MAX)
    }

    /// The first line of the head last read, for a log.
    pub fn first_line(&self) -> &[u8] {
        &self.text
    }

    /// Reads a field block.
    fn read(&mut self, block: &[u8], decoder: &mut Decoder) -> Result<Head, H2Error> {
        let most = self.most;
        self.read_fields(b"HTTP/2.0", |each| Ok(decoder.decode_some(block, most, each)?))
    }

    /// Reads the fields that `decode` hands over: `false` if they are larger than
    /// [allowed](Heads::list_bytes). `version`: as it stands in the head of HTTP/1.1.
    pub(crate) fn read_fields<E>(
        &mut self,
        version: &'static [u8],
        decode: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<bool, E>,
    ) -> Result<Head, E> {
        let (reading, text) = (&mut self.reading, &mut self.text);
        reading.clear();
        reading.version = version;
        text.clear();
        if !decode(&mut |name, value| reading.field(name, value, text))? {
            return Ok(Head::TooLarge);
        }
        if !reading.end(text) {
            return Ok(Head::Malformed);
        }
        let head = match self.reader.read(text, 0) {
            Ok(Some((head, _))) if head.bytes().len() == text.len() => Ok(head),
            // A head that ends is either complete or refused.
            Ok(_) => Err(RequestFault::FieldValue),
            Err(fault) => Err(fault),
        };
        Ok(Head::Read(Read { head, websocket: reading.is_websocket, length: reading.length }))
    }
}

/// The last field block of a connection. The same bytes have the same fields, as long as the dynamic
/// table is the same.
#[derive(Debug, Default)]
pub(crate) struct RememberedHead {
    block: Vec<u8>,
    changes: u64,
    read: Option<Read>,
}

impl RememberedHead {
    /// The head that a block stands for.
    #[inline]
    pub(super) fn head(
        &mut self,
        block: &[u8],
        decoder: &mut Decoder,
        heads: &mut Heads,
    ) -> Result<Head, H2Error> {
        match self.known(block, decoder.changes()) {
            Some(read) => Ok(Head::Read(read.clone())),
            None => self.learn(block, decoder, heads),
        }
    }

    /// The head of this block, if it is the last one and the table has changed as often.
    #[inline]
    pub(crate) fn known(&self, block: &[u8], changes: u64) -> Option<&Read> {
        self.read.as_ref().filter(|_| self.changes == changes && self.block == block)
    }

    /// Remembers what a block stands for, as long as the table has not changed more often.
    pub(crate) fn remember(&mut self, block: &[u8], changes: u64, read: &Read) {
        if read.head.is_ok() && block.len() <= BLOCK_REMEMBERED {
            self.block.clear();
            self.block.extend_from_slice(block);
            (self.changes, self.read) = (changes, Some(read.clone()));
        }
    }

    fn learn(&mut self, block: &[u8], decoder: &mut Decoder, heads: &mut Heads) -> Result<Head, H2Error> {
        let before = decoder.changes();
        let head = heads.read(block, decoder)?;
        if let Head::Read(read) = &head
            // The block itself must not change what it means the next time.
            && decoder.changes() == before
        {
            self.remember(block, before, read);
        }
        Ok(head)
    }
}

/// Fields of a trailer section: names and values. `None`: they break a rule.
pub(crate) type Trailers = Option<Vec<(String, Vec<u8>)>>;

/// Reads the trailer section of a request; `None` inside: it breaks a rule, or is too large.
pub(super) fn trailers(block: &[u8], decoder: &mut Decoder, most: usize) -> Result<Trailers, H2Error> {
    trailer_fields(|each| Ok(decoder.decode_some(block, most, each)?))
}

/// The same for the fields that `decode` hands over: `false` if they are too large.
pub(crate) fn trailer_fields<E>(
    decode: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<bool, E>,
) -> Result<Trailers, E> {
    let (mut fields, mut sound) = (Vec::new(), true);
    let fits = decode(&mut |name, value| {
        sound &= is_field(name, value);
        fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
    })?;
    Ok((sound && fits).then_some(fields))
}

/// A head while it is read.
#[derive(Debug, Default)]
struct HeadReading {
    method: Vec<u8>,
    path: Vec<u8>,
    authority: Vec<u8>,
    cookies: Vec<u8>,
    seen: SeenPseudoFields,
    /// The request line was written: no pseudo-field may follow.
    in_fields: bool,
    has_cookie: bool,
    is_websocket: bool,
    is_malformed: bool,
    length: Option<u64>,
    /// As HTTP/1.1 would write it.
    version: &'static [u8],
}

/// Pseudo-fields that have come.
#[derive(Clone, Copy, Debug, Default)]
struct SeenPseudoFields {
    method: bool,
    scheme: bool,
    path: bool,
    authority: bool,
    protocol: bool,
}

impl HeadReading {
    fn clear(&mut self) {
        let HeadReading { mut method, mut path, mut authority, mut cookies, .. } = std::mem::take(self);
        for text in [&mut method, &mut path, &mut authority, &mut cookies] {
            text.clear();
        }
        *self = HeadReading { method, path, authority, cookies, ..HeadReading::default() };
    }

    fn field(&mut self, name: &[u8], value: &[u8], text: &mut Vec<u8>) {
        if self.is_malformed {
            return;
        }
        let sound = match name {
            [b':', ..] => !self.in_fields && self.pseudo(name, value),
            _ => self.begin_fields(text) && self.usual(name, value, text),
        };
        self.is_malformed = !sound;
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        // None of them has white space, and the request line is cut at it.
        if value.iter().any(|b| *b <= b' ' || *b == 0x7f) {
            return false;
        }
        let (seen, into) = match name {
            b":method" => (&mut self.seen.method, Some(&mut self.method)),
            // Empty, it would be no URI's (RFC 9113 section 8.3.1).
            b":scheme" if value.is_empty() => return false,
            b":scheme" => (&mut self.seen.scheme, None),
            b":path" => (&mut self.seen.path, Some(&mut self.path)),
            b":authority" => (&mut self.seen.authority, Some(&mut self.authority)),
            b":protocol" => {
                self.is_websocket = value == b"websocket";
                (&mut self.seen.protocol, None)
            }
            _ => return false,
        };
        if let Some(into) = into {
            into.extend_from_slice(value);
        }
        !std::mem::replace(seen, true)
    }

    /// Writes the request line, once all pseudo-fields have come; whether they are the right ones.
    fn begin_fields(&mut self, text: &mut Vec<u8>) -> bool {
        if std::mem::replace(&mut self.in_fields, true) {
            return true;
        }
        let SeenPseudoFields { method, scheme, path, authority, protocol } = self.seen;
        let connect = self.method == b"CONNECT";
        let complete = match connect && !protocol {
            true => authority && !scheme && !path,
            false => scheme && self.is_path_sound() && (connect || !protocol),
        };
        if !complete || !method || !is_token(&self.method) {
            return false;
        }
        let method = if self.is_websocket { &b"GET"[..] } else { &self.method };
        let target = if path { &self.path[..] } else { &self.authority };
        for part in [method, b" ", target, b" ", self.version, b"\r\n"] {
            text.extend_from_slice(part);
        }
        if authority {
            line(b"host", &self.authority, text);
        }
        true
    }

    /// A path begins with a slash (RFC 9113 section 8.3.1). An absolute URI would take precedence over
    /// `:authority` in HTTP/1.1.
    fn is_path_sound(&self) -> bool {
        self.path.first() == Some(&b'/') || (self.path == b"*" && self.method == b"OPTIONS")
    }

    fn usual(&mut self, name: &[u8], value: &[u8], text: &mut Vec<u8>) -> bool {
        if !is_field(name, value) {
            return false;
        }
        match name {
            b"te" if value != b"trailers" => return false,
            // Two names for one server would let a proxy check one and a handler use the other.
            b"host" if self.seen.authority => return value.eq_ignore_ascii_case(&self.authority),
            b"cookie" => {
                // Clients may send each in a field of its own (RFC 9113 section 8.2.3).
                self.cookies.extend_from_slice(if self.has_cookie { b"; " } else { b"" });
                self.cookies.extend_from_slice(value);
                self.has_cookie = true;
                return true;
            }
            b"content-length" => match std::str::from_utf8(value).map(str::parse::<u64>) {
                Ok(Ok(length)) if value[0] != b'+' => self.length = Some(length),
                _ => return false,
            },
            _ => {}
        }
        line(name, value, text);
        true
    }

    /// All fields have come; whether they keep the rules.
    fn end(&mut self, text: &mut Vec<u8>) -> bool {
        if self.is_malformed || !self.begin_fields(text) {
            return false;
        }
        if self.has_cookie {
            line(b"cookie", &self.cookies, text);
        }
        if self.is_websocket {
            text.extend_from_slice(WEBSOCKET);
        }
        text.extend_from_slice(b"\r\n");
        true
    }
}

/// Whether a field may stand in a message, after all pseudo-fields (RFC 9113 section 8.2). White space
/// around a value would be gone behind a proxy to HTTP/1.1, so that both would read different values.
fn is_field(name: &[u8], value: &[u8]) -> bool {
    let padded = |end: Option<&u8>| matches!(end, Some(b' ' | b'\t'));
    is_token(name)
        && !padded(value.first())
        && !padded(value.last())
        && !name.iter().any(u8::is_ascii_uppercase)
        && !value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))
        && !OF_A_CONNECTION.contains(&name)
}

fn line(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    for part in [name, b": ", value, b"\r\n"] {
        text.extend_from_slice(part);
    }
}
