//! Field blocks of responses, decoded once and compared from then on.

use std::sync::Arc;

use super::frame::FRAME_HEAD;
use super::limits::{BLOCK_BYTES, BLOCKS_HELD, FIELDS, FRAME_BYTES};
use super::{Decoder, HpackError};
use crate::client::{Fields, HeadView};

/// A field block and what it says: the head of a response, or its trailers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// As it came.
    bytes: Box<[u8]>,
    /// As lines of text, in the form of HTTP/1.1.
    text: Vec<u8>,
    /// Length of the first line, where there is one.
    status: u16,
    length: Option<u64>,
    problem: Option<&'static str>,
}

impl Block {
    /// The status; 0 for trailers.
    #[inline]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The value of Content-Length.
    #[inline]
    pub fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// The head of the response.
    #[inline]
    pub fn head(&self) -> HeadView<'_> {
        HeadView::of_stream(&self.text, self.status)
    }

    /// The fields of trailers.
    pub fn trailers(&self) -> Fields<'_> {
        Fields::of_trailers(&self.text)
    }

    /// Whether it is a final response's head, and breaks no rule.
    #[inline]
    pub(super) fn is_final(&self) -> bool {
        self.status >= 200 && self.problem.is_none()
    }

    /// As it came.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Why the message is malformed (RFC 9113, section 8.1.1).
    #[inline]
    pub(crate) fn problem(&self) -> Option<&'static str> {
        self.problem
    }

    /// Decodes a block.
    pub(super) fn decode(bytes: &[u8], decoder: &mut Decoder) -> Result<Block, HpackError> {
        let mut reading = BlockReading::of("HTTP/2");
        decoder.decode(bytes, BLOCK_BYTES, |name, value| reading.field(name, value))?;
        Ok(reading.end(bytes))
    }
}

/// A block while it is decoded.
struct BlockReading {
    version: &'static str,
    text: Vec<u8>,
    status: Option<u16>,
    length: Option<u64>,
    fields: usize,
    problem: Option<&'static str>,
}

impl BlockReading {
    fn of(version: &'static str) -> BlockReading {
        BlockReading { version, text: Vec::new(), status: None, length: None, fields: 0, problem: None }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.fields += 1;
        if let Err(problem) = self.read(name, value) {
            self.problem.get_or_insert(problem);
        }
    }

    fn read(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.fields > FIELDS {
            return Err("a response has too many fields");
        }
        if name.first() == Some(&b':') {
            return self.pseudo(name, value);
        }
        if name.is_empty() || !name.iter().all(|b| is_name(*b)) {
            return Err("a field's name has bytes that it must not have (RFC 9113, 8.2.1)");
        }
        let trimmed = value.trim_ascii();
        if value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) || trimmed.len() != value.len() {
            return Err("a field's value has bytes that it must not have (RFC 9113, 8.2.1)");
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err("a response has a field about its connection (RFC 9113, 8.2.2)");
            }
            b"content-length" => {
                let length =
                    std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
                let length = length.and_then(|v| v.parse().ok()).ok_or("Content-Length is no number")?;
                if self.length.is_some_and(|before| before != length) {
                    return Err("two values of Content-Length differ");
                }
                self.length = Some(length);
            }
            _ => {}
        }
        for part in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        Ok(())
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if name != b":status" || self.status.is_some() || self.fields > 1 {
            return Err("a pseudo-field stands where it must not (RFC 9113, 8.3)");
        }
        let status = match value {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return Err("the status is no number of three digits"),
        };
        self.status = Some(status);
        for part in [self.version.as_bytes(), b" ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        Ok(())
    }

    fn end(mut self, bytes: &[u8]) -> Block {
        if self.status.is_some() {
            self.text.extend_from_slice(b"\r\n");
        }
        Block {
            bytes: bytes.into(),
            text: self.text,
            status: self.status.unwrap_or(0),
            length: self.length,
            problem: self.problem,
        }
    }
}

/// Whether a field's name may have this byte: a token's, in lower case.
fn is_name(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// The last field blocks of a server. Connections may share it.
#[derive(Debug, Default)]
pub struct BlockCache {
    held: Vec<Arc<Block>>,
    current: usize,
    oldest: usize,
    decoded: u64,
}

impl BlockCache {
    /// An empty one.
    pub fn new() -> BlockCache {
        BlockCache::default()
    }

    /// How many blocks were decoded because none equalled them.
    pub fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Bytes of a response like the last one, its frames' heads included: known if it said how long its content is, and
    /// that is one frame of DATA.
    pub fn usual_response(&self) -> Option<usize> {
        let block = self.held.get(self.current).filter(|block| block.is_final())?;
        let content = block.content_length().filter(|length| *length <= u64::from(FRAME_BYTES))?;
        Some(2 * FRAME_HEAD + block.bytes().len() + content as usize)
    }

    /// The block that came last, if equal bytes mean equal fields.
    #[inline]
    pub(super) fn last(&self, decoder: &Decoder) -> Option<&Arc<Block>> {
        self.held.get(self.current).filter(|_| decoder.is_stateless())
    }

    /// The block, decoded now or before.
    #[inline]
    pub(super) fn get(&mut self, bytes: &[u8], decoder: &mut Decoder) -> Result<&Arc<Block>, HpackError> {
        let equal = |block: &Arc<Block>| *block.bytes == *bytes;
        if !(decoder.is_stateless() && self.held.get(self.current).is_some_and(equal)) {
            match self.held.iter().position(equal).filter(|_| decoder.is_stateless()) {
                Some(at) => self.current = at,
                None => self.learn(Block::decode(bytes, decoder)?),
            }
        }
        Ok(&self.held[self.current])
    }

    /// A field section of HTTP/3, decoded now or before: `decode` hands over its fields. Without a dynamic
    /// table equal bytes mean equal fields.
    #[inline]
    pub(crate) fn get_section<E>(
        &mut self,
        bytes: &[u8],
        decode: impl FnOnce(usize, &mut dyn FnMut(&[u8], &[u8])) -> Result<(), E>,
    ) -> Result<&Arc<Block>, E> {
        let equal = |block: &Arc<Block>| *block.bytes == *bytes;
        if !self.held.get(self.current).is_some_and(equal) {
            match self.held.iter().position(equal) {
                Some(at) => self.current = at,
                None => {
                    let mut reading = BlockReading::of("HTTP/3");
                    decode(BLOCK_BYTES, &mut |name, value| reading.field(name, value))?;
                    self.learn(reading.end(bytes));
                }
            }
        }
        Ok(&self.held[self.current])
    }

    #[cold]
    fn learn(&mut self, block: Block) {
        self.decoded += 1;
        if self.held.len() < BLOCKS_HELD {
            self.current = self.held.len();
            self.held.push(Arc::new(block));
            return;
        }
        self.current = self.oldest;
        self.oldest = (self.oldest + 1) % BLOCKS_HELD;
        self.held[self.current] = Arc::new(block);
    }
}
