//! The body of a request: by length or by chunks with trailers (RFC 9112 sections 6 and 7), without
//! a copy.

use std::ops::Range;

use super::bytes::is_token_byte;
use super::bytes::is_value_byte;
use super::fault::RequestFault;
use super::head::{Framing, field_line, line};
use super::limits::RequestLimits;

/// The result of one step over received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyStep {
    /// Bytes consumed; pass the rest again.
    pub consumed: usize,
    /// The range of a piece of the body in the given bytes; may be empty.
    pub data: Range<usize>,
    /// The body has ended.
    pub ended: bool,
}

/// Reads one request body. Sans-IO: each call consumes as many of the given bytes as it can.
#[derive(Debug)]
pub struct BodyReader {
    state: BodyState,
    limits: RequestLimits,
    /// Bytes of the body so far.
    received: u64,
    /// Bytes of the current chunk-size line, and of extensions in all of them.
    line_bytes: usize,
    extension_bytes: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    Length(u64),
    Size { value: u64, digits: u8 },
    Extension { value: u64, at: Ext },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer,
    Ended,
}

/// `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ext {
    /// After whitespace behind the size or a value: only `;` is allowed.
    Semicolon,
    /// Behind `;`: whitespace or the name's first byte.
    NameStart,
    Name,
    /// After whitespace behind a name: `=` or `;`.
    Equals,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    QuoteEnd,
}

impl BodyReader {
    /// A reader for a body with this framing.
    ///
    /// # Errors
    /// [`RequestFault::BodyTooLarge`] if the announced length exceeds the limit.
    pub fn new(framing: Framing, limits: &RequestLimits) -> Result<BodyReader, RequestFault> {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Ended,
            Framing::Length(n) if n > limits.body => return Err(RequestFault::BodyTooLarge),
            Framing::Length(n) => BodyState::Length(n),
            Framing::Chunked => BodyState::Size { value: 0, digits: 0 },
        };
        Ok(BodyReader {
            state,
            limits: *limits,
            received: 0,
            line_bytes: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
        })
    }

    /// Whether all of it was read.
    pub fn is_ended(&self) -> bool {
        self.state == BodyState::Ended
    }

    /// The trailer fields, once the body has ended. Fields that are forbidden in trailers (framing,
    /// routing, authentication, content description: RFC 9110 section 6.5.1) are left out.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers
            .split_inclusive(|&b| b == b'\n')
            .filter_map(|l| field_line(line(l).ok()?).ok())
            .filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
            .filter(|(name, _)| !is_forbidden_trailer(name))
    }

    /// Reads `bytes` until a piece of data, the end of the body or the end of the bytes.
    ///
    /// # Errors
    /// A [`RequestFault`]: respond with its status and close. The verdict does not depend on how the bytes
    /// were cut.
    pub fn step(&mut self, bytes: &[u8]) -> Result<BodyStep, RequestFault> {
        let mut at = 0;
        loop {
            match self.state {
                BodyState::Ended => return Ok(BodyStep { consumed: at, data: at..at, ended: true }),
                BodyState::Length(left) | BodyState::Data { left } if at < bytes.len() => {
                    let n = left.min((bytes.len() - at) as u64);
                    self.state = match (self.state, left - n) {
                        (BodyState::Length(_), 0) => BodyState::Ended,
                        (BodyState::Length(_), left) => BodyState::Length(left),
                        (_, 0) => BodyState::DataCr,
                        (_, left) => BodyState::Data { left },
                    };
                    let end = at + n as usize;
                    return Ok(BodyStep { consumed: end, data: at..end, ended: self.is_ended() });
                }
                BodyState::Trailer => match self.trailer_line(&bytes[at..])? {
                    Some(n) => at += n,
                    None => return Ok(BodyStep { consumed: bytes.len(), data: at..at, ended: false }),
                },
                _ if at == bytes.len() => return Ok(BodyStep { consumed: at, data: at..at, ended: false }),
                _ => {
                    self.framing_byte(bytes[at])?;
                    at += 1;
                }
            }
        }
    }

    /// A byte between chunks.
    fn framing_byte(&mut self, b: u8) -> Result<(), RequestFault> {
        self.state = match (self.state, b) {
            (BodyState::Size { value, digits }, _) => return self.size_byte(value, digits, b),
            (BodyState::Extension { value, at }, _) => return self.extension_byte(value, at, b),
            (BodyState::SizeLf { value }, b'\n') => return self.size_complete(value),
            (BodyState::SizeLf { .. }, _) => return Err(RequestFault::ChunkSize),
            (BodyState::DataCr, b'\r') => BodyState::DataLf,
            (BodyState::DataLf, b'\n') => BodyState::Size { value: 0, digits: 0 },
            _ => return Err(RequestFault::ChunkEnd),
        };
        Ok(())
    }

    fn count_line_byte(&mut self) -> Result<(), RequestFault> {
        self.line_bytes += 1;
        if self.line_bytes > self.limits.chunk_line {
            Err(RequestFault::ChunkExtensionsTooLong)
        } else {
            Ok(())
        }
    }

    fn size_byte(&mut self, value: u64, digits: u8, b: u8) -> Result<(), RequestFault> {
        self.count_line_byte()?;
        if let Some(digit) = char::from(b).to_digit(16) {
            // 15 digits exceed any body. Leading zeros count too, or a line of them would never
            // end.
            if digits == 15 {
                return Err(RequestFault::ChunkSize);
            }
            self.state = BodyState::Size { value: value << 4 | u64::from(digit), digits: digits + 1 };
            return Ok(());
        }
        self.state = match b {
            _ if digits == 0 => return Err(RequestFault::ChunkSize),
            b'\r' => BodyState::SizeLf { value },
            b';' => BodyState::Extension { value, at: Ext::NameStart },
            b' ' | b'\t' => BodyState::Extension { value, at: Ext::Semicolon },
            _ => return Err(RequestFault::ChunkSize),
        };
        Ok(())
    }

    fn extension_byte(&mut self, value: u64, at: Ext, b: u8) -> Result<(), RequestFault> {
        self.count_line_byte()?;
        self.extension_bytes += 1;
        if self.extension_bytes > self.limits.chunk_extensions {
            return Err(RequestFault::ChunkExtensionsTooLong);
        }
        let blank = matches!(b, b' ' | b'\t');
        let at = match (at, b) {
            (Ext::Name | Ext::Value | Ext::QuoteEnd, b'\r') => {
                self.state = BodyState::SizeLf { value };
                return Ok(());
            }
            (Ext::Semicolon | Ext::Equals | Ext::Name | Ext::Value | Ext::QuoteEnd, b';') => Ext::NameStart,
            (Ext::Semicolon | Ext::NameStart | Ext::Equals | Ext::ValueStart, _) if blank => at,
            (Ext::NameStart | Ext::Name, _) if is_token_byte(b) => Ext::Name,
            (Ext::Name, _) if blank => Ext::Equals,
            (Ext::Name | Ext::Equals, b'=') => Ext::ValueStart,
            (Ext::ValueStart | Ext::Value, _) if is_token_byte(b) => Ext::Value,
            (Ext::ValueStart, b'"') => Ext::Quoted,
            (Ext::Quoted, b'"') => Ext::QuoteEnd,
            (Ext::Quoted, b'\\') => Ext::Escaped,
            (Ext::Quoted | Ext::Escaped, _) if is_value_byte(b) => Ext::Quoted,
            (Ext::Value | Ext::QuoteEnd, _) if blank => Ext::Semicolon,
            _ => return Err(RequestFault::ChunkSize),
        };
        self.state = BodyState::Extension { value, at };
        Ok(())
    }

    fn size_complete(&mut self, value: u64) -> Result<(), RequestFault> {
        self.line_bytes = 0;
        if value == 0 {
            self.state = BodyState::Trailer;
            return Ok(());
        }
        self.received = self.received.saturating_add(value);
        if self.received > self.limits.body {
            return Err(RequestFault::BodyTooLarge);
        }
        self.state = BodyState::Data { left: value };
        Ok(())
    }

    /// Takes bytes of the trailer section up to the end of a line; `None`: the line is incomplete.
    fn trailer_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, RequestFault> {
        let room = self.limits.trailers.saturating_sub(self.trailers.len());
        let visible = &bytes[..bytes.len().min(room)];
        let Some(lf) = memchr::memchr(b'\n', visible) else {
            if bytes.len() > visible.len() {
                return Err(RequestFault::HeadTooLarge);
            }
            self.trailers.extend_from_slice(bytes);
            return Ok(None);
        };
        // Fast path: no trailers, so nothing is stored.
        if self.trailers.is_empty() && bytes.starts_with(b"\r\n") {
            self.state = BodyState::Ended;
            return Ok(Some(2));
        }
        self.trailers.extend_from_slice(&visible[..=lf]);
        let whole = self.trailers.len() - 1;
        let begin = memchr::memrchr(b'\n', &self.trailers[..whole]).map_or(0, |i| i + 1);
        let content = line(&self.trailers[begin..])?;
        if content.is_empty() {
            self.trailers.truncate(begin);
            self.state = BodyState::Ended;
        } else {
            field_line(content)?;
        }
        Ok(Some(lf + 1))
    }
}

fn is_forbidden_trailer(name: &str) -> bool {
    const FORBIDDEN: [&str; 14] = [
        "transfer-encoding",
        "content-length",
        "host",
        "authorization",
        "proxy-authorization",
        "cookie",
        "content-type",
        "content-encoding",
        "content-range",
        "trailer",
        "connection",
        "expect",
        "range",
        "te",
    ];
    FORBIDDEN.iter().any(|f| name.eq_ignore_ascii_case(f))
}
