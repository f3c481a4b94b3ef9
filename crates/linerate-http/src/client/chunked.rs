//! The chunked coding, decoded byte by byte or in long runs (RFC 9112, section 7.1).

use super::error::ResponseErrorKind as Kind;

/// Digits of a chunk size read at once: more are rare, and this many cannot overflow.
const FEW_DIGITS: usize = 8;

/// Progress within a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    place: ChunkPlace,
    /// The size being read; later the rest of the chunk's data.
    left: u64,
    /// Bytes of the chunk-size line so far.
    line: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPlace {
    /// Before the first digit.
    Start,
    /// Among the digits.
    Digits,
    /// In white space after them.
    Blank,
    /// In an extension, which is ignored (section 7.1.1).
    Extension,
    /// After the line's CR.
    LineEnd,
    Data,
    /// Before the CR that ends the data.
    DataCr,
    /// Before its LF.
    DataLf,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkStep<'i> {
    /// Chunk data.
    Data(&'i [u8]),
    /// The last chunk's line is read: the trailer section follows.
    Last,
    /// All input is read.
    More,
}

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks { place: ChunkPlace::Start, left: 0, line: 0 }
    }

    /// Bytes left of the current chunk, if its size is known.
    pub(super) fn missing(&self) -> Option<u64> {
        (self.place == ChunkPlace::Data).then_some(self.left)
    }

    /// The next step in `input`, which is advanced.
    pub(super) fn step<'i>(&mut self, input: &mut &'i [u8], line_limit: u16) -> Result<ChunkStep<'i>, Kind> {
        loop {
            if self.place == ChunkPlace::Data {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
                if n == 0 {
                    return Ok(ChunkStep::More);
                }
                let (data, rest) = input.split_at(n);
                *input = rest;
                self.left -= n as u64;
                if self.left == 0 {
                    self.place = ChunkPlace::DataCr;
                }
                return Ok(ChunkStep::Data(data));
            }
            if let Some(last) = self.usual(input, line_limit) {
                if last {
                    return Ok(ChunkStep::Last);
                }
                continue;
            }
            let Some((&b, rest)) = input.split_first() else { return Ok(ChunkStep::More) };
            *input = rest;
            if self.byte(b, line_limit)? {
                return Ok(ChunkStep::Last);
            }
        }
    }

    /// Fast path for the common complete cases: the CRLF after data, or a line of few digits
    /// without extension. True after the last chunk's line. `None` for anything else, of which it
    /// reads nothing.
    fn usual(&mut self, input: &mut &[u8], line_limit: u16) -> Option<bool> {
        if self.place == ChunkPlace::DataCr {
            *input = input.strip_prefix(b"\r\n")?;
            *self = Chunks::new();
            return Some(false);
        }
        if self.place != ChunkPlace::Start {
            return None;
        }
        let (mut size, mut digits) = (0, 0);
        while let Some(digit) = input.get(digits).and_then(|b| char::from(*b).to_digit(16)) {
            size = size << 4 | u64::from(digit);
            digits += 1;
            if digits > FEW_DIGITS.min(line_limit.into()) {
                return None;
            }
        }
        let rest = input.get(digits..)?.strip_prefix(b"\r\n")?;
        if digits == 0 {
            return None;
        }
        *input = rest;
        *self = Chunks { place: ChunkPlace::Data, left: size, line: 0 };
        Some(size == 0)
    }

    /// Handles one byte outside the data; true after the last chunk's line.
    fn byte(&mut self, b: u8, line_limit: u16) -> Result<bool, Kind> {
        match (self.place, b) {
            (ChunkPlace::DataCr, b'\r') => self.place = ChunkPlace::DataLf,
            (ChunkPlace::DataLf, b'\n') => *self = Chunks::new(),
            (ChunkPlace::DataCr | ChunkPlace::DataLf, _) => return Err(Kind::BadChunkEnd),
            (ChunkPlace::LineEnd, b'\n') if self.left == 0 => return Ok(true),
            (ChunkPlace::LineEnd, b'\n') => self.place = ChunkPlace::Data,
            (ChunkPlace::LineEnd, _) => return Err(Kind::BadChunkSize),
            _ => self.line_byte(b, line_limit)?,
        }
        Ok(false)
    }

    /// Handles one byte of a chunk-size line before its CR. A single LF does not end the line:
    /// recipients disagree on that, and a difference there moves the next chunk.
    fn line_byte(&mut self, b: u8, limit: u16) -> Result<(), Kind> {
        if self.line >= limit {
            return Err(Kind::ChunkLineTooLong(limit));
        }
        self.line += 1;
        self.place = match (self.place, b) {
            (ChunkPlace::Start | ChunkPlace::Digits, b) if b.is_ascii_hexdigit() => {
                let digit = (b as char).to_digit(16).map_or(0, u64::from);
                self.left = self.left.checked_mul(16).ok_or(Kind::BadChunkSize)? | digit;
                ChunkPlace::Digits
            }
            (ChunkPlace::Start, _) => return Err(Kind::BadChunkSize),
            (_, b'\r') => ChunkPlace::LineEnd,
            (ChunkPlace::Digits | ChunkPlace::Blank, b' ' | b'\t') => ChunkPlace::Blank,
            (ChunkPlace::Digits | ChunkPlace::Blank, b';') => ChunkPlace::Extension,
            (ChunkPlace::Extension, b) if super::parse::in_value(b) => ChunkPlace::Extension,
            _ => return Err(Kind::BadChunkSize),
        };
        Ok(())
    }
}
