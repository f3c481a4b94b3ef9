//! Parses a head into status, persistence, framing, and the positions of maskable values.
//!
//! One pass over the bytes, which validates them too.

use std::ops::Range;

use super::error::{ResponseError, ResponseErrorKind as Kind};
use super::flaws::{HeadFlaw, HeadFlaws};
use super::framing::{Framing, FramingFields};
use super::head::FieldLine;

/// The facts of a head that further reading needs.
#[derive(Clone, Debug)]
pub(super) struct HeadFacts {
    pub(super) status: u16,
    pub(super) minor: u8,
    /// Whether the connection persists after this response, as far as the head decides (RFC 9112,
    /// section 9.3).
    pub(super) persistent: bool,
    /// The body's framing by its fields alone, before status and method are considered.
    pub(super) framing: Framing,
    pub(super) flaws: HeadFlaws,
    /// Number of field lines.
    pub(super) fields: u16,
    /// Where the Date value is.
    pub(super) date: Option<Range<u32>>,
    /// Where the tag field's value is.
    pub(super) tag: Option<Range<u32>>,
}

/// Parses the head, without folds, at the start of `raw`; returns its facts and its length. `tag`
/// is the field whose value is to be located. An incomplete head gives some error.
pub(super) fn head(raw: &[u8], limit: u16, tag: Option<&[u8]>) -> Result<(HeadFacts, usize), ResponseError> {
    let (status, minor, start) = status_line(raw)?;
    let mut lines = Lines { raw, pos: start, fields: 0, limit, bare: false };
    lines.check_start()?;
    let (mut date, mut found_tag) = (None, None);
    let mut framing = FramingFields::default();
    while let Some(line) = lines.next()? {
        let name = &raw[line.name.clone()];
        let place = || Some(line.value.start as u32..line.value.end as u32);
        match name.len() {
            4 if date.is_none() && name.eq_ignore_ascii_case(b"date") => date = place(),
            _ => framing.field(name, &raw[line.value.clone()], line.value.start as u32),
        }
        if let Some(tag) = tag
            && found_tag.is_none()
            && tag.eq_ignore_ascii_case(name)
        {
            found_tag = place();
        }
    }
    let persistent = framing.persistent(minor);
    let flaws = framing.flaws().with(HeadFlaw::BareLineFeed, lines.bare || is_bare(raw, start));
    let (framing, fields) = (framing.decide(), lines.fields);
    let facts = HeadFacts { status, minor, persistent, framing, flaws, fields, date, tag: found_tag };
    Ok((facts, lines.pos))
}

/// White space between the status line and the first field is not a fold (RFC 9112, section 2.2).
pub(super) fn check_start(raw: &[u8]) -> Result<(), ResponseError> {
    let start = memchr::memchr(b'\n', raw).map_or(raw.len(), |lf| lf + 1);
    Lines { raw, pos: start, fields: 0, limit: 0, bare: false }.check_start()
}

/// Checks a complete trailer section without folds.
pub(super) fn trailers(raw: &[u8], limit: u16) -> Result<(), ResponseError> {
    let mut lines = Lines { raw, pos: 0, fields: 0, limit, bare: false };
    lines.check_start()?;
    while lines.next()?.is_some() {}
    Ok(())
}

/// Status, minor version, and where the next line starts.
fn status_line(raw: &[u8]) -> Result<(u16, u8, usize), ResponseError> {
    let bad = |kind, at| Err(ResponseError::new(kind, at));
    // "HTTP/" was checked when the first bytes arrived.
    let minor = match raw.get(5..8) {
        Some([b'1', b'.', minor @ b'0'..=b'9']) => minor - b'0',
        _ => return bad(Kind::BadVersion, 5),
    };
    // Several spaces count as one (RFC 9112, section 4, "MAY instead parse on whitespace-delimited
    // word boundaries").
    let spaces = raw[8..].iter().take_while(|b| **b == b' ').count();
    if spaces == 0 {
        // A digit here belongs to the version.
        let digit = raw.get(8).is_some_and(u8::is_ascii_digit);
        return bad(if digit { Kind::BadVersion } else { Kind::BadStatusLine }, 8);
    }
    let at = 8 + spaces;
    let status = match raw.get(at..at + 3) {
        Some(&[a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']) => {
            [a, b, c].iter().fold(0, |sum, d| sum * 10 + u16::from(d - b'0'))
        }
        _ => return bad(Kind::BadStatusLine, at),
    };
    if !matches!(raw.get(at + 3), Some(b' ' | b'\r' | b'\n')) {
        return bad(Kind::BadStatusLine, at + 3);
    }
    let end = value_end(raw, at + 3);
    match line_end(raw, end) {
        Some(next) => Ok((status, minor.min(1), next)),
        None => bad(Kind::BadStatusLine, end),
    }
}

/// Field lines up to the empty line.
struct Lines<'a> {
    raw: &'a [u8],
    pos: usize,
    fields: u16,
    limit: u16,
    /// A line ended with LF alone.
    bare: bool,
}

impl Lines<'_> {
    fn check_start(&self) -> Result<(), ResponseError> {
        match self.raw.get(self.pos) {
            Some(b' ' | b'\t') => Err(ResponseError::new(Kind::SpaceBeforeFields, self.pos)),
            _ => Ok(()),
        }
    }

    /// The next field line, or `None` at the empty line, which it skips.
    #[inline]
    fn next(&mut self) -> Result<Option<FieldLine>, ResponseError> {
        let (raw, start) = (self.raw, self.pos);
        let name = start + raw[start..].iter().take_while(|b| is_token(**b)).count();
        if name == start
            && let Some(end) = line_end(raw, start)
        {
            self.pos = end;
            self.bare |= is_bare(raw, end);
            return Ok(None);
        }
        if self.fields >= self.limit {
            return Err(ResponseError::new(Kind::TooManyFields(self.limit), start));
        }
        self.fields += 1;
        // No white space before the colon (RFC 9112, section 5.1), no empty name.
        if name == start || raw.get(name) != Some(&b':') {
            return Err(ResponseError::new(Kind::BadField, name));
        }
        let end = value_end(raw, name + 1);
        self.pos = line_end(raw, end).ok_or_else(|| ResponseError::new(Kind::BadField, end))?;
        self.bare |= is_bare(raw, self.pos);
        Ok(Some(FieldLine { name: start..name, value: trimmed(raw, name + 1, end) }))
    }
}

/// Where the next line starts, if one ends at `at` (RFC 9112, section 2.2: a single LF suffices, a
/// bare CR does not).
#[inline]
fn line_end(raw: &[u8], at: usize) -> Option<usize> {
    match raw.get(at..)? {
        [b'\r', b'\n', ..] => Some(at + 2),
        [b'\n', ..] => Some(at + 1),
        _ => None,
    }
}

/// Whether the line before the one that starts at `next` ended with LF alone.
#[inline]
fn is_bare(raw: &[u8], next: usize) -> bool {
    next < 2 || raw[next - 2] != b'\r'
}

/// The range without optional white space at either end (RFC 9110, section 5.5).
#[inline]
pub(super) fn trimmed(raw: &[u8], mut start: usize, mut end: usize) -> Range<usize> {
    let blank = |at: usize| matches!(raw[at], b' ' | b'\t');
    while start < end && blank(start) {
        start += 1;
    }
    while start < end && blank(end - 1) {
        end -= 1;
    }
    start..end
}

/// The first byte from `at` on that is not allowed in a field value, found eight bytes at a time.
#[inline]
fn value_end(raw: &[u8], mut at: usize) -> usize {
    loop {
        while let Some(eight) = raw.get(at..).and_then(|rest| rest.first_chunk()) {
            match first_control(*eight) {
                Some(i) => {
                    at += i;
                    break;
                }
                None => at += 8,
            }
        }
        match raw.get(at) {
            Some(b) if in_value(*b) => at += 1,
            _ => return at,
        }
    }
}

/// The first of eight bytes that is a control character, including HTAB.
#[inline]
fn first_control(eight: [u8; 8]) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let x = u64::from_le_bytes(eight);
    let del = x ^ (EACH * 0x7f);
    // A byte's high bit is set if it is below 0x20, or 0x7f. A borrow may also set bits after the
    // first, never before.
    let found = (x.wrapping_sub(EACH * 0x20) & !x | del.wrapping_sub(EACH) & !del) & (EACH * 0x80);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Whether a byte is allowed in a field value or reason phrase: no control character except HTAB
/// (RFC 9110, section 5.5).
#[inline]
pub(super) fn in_value(b: u8) -> bool {
    b >= b' ' && b != 0x7f || b == b'\t'
}

/// Whether all bytes are allowed in a value; line ends are not.
#[inline]
pub(super) fn is_value(bytes: &[u8]) -> bool {
    value_end(bytes, 0) == bytes.len()
}

/// Whether a byte is allowed in a token (RFC 9110, section 5.6.2).
#[inline]
pub(super) fn is_token(b: u8) -> bool {
    TOKEN[usize::from(b)]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    let mut b = 0;
    while b < 256 {
        if (b as u8).is_ascii_alphanumeric() {
            table[b] = true;
        }
        b += 1;
    }
    table
};
