//! A head read into what the rest needs: status, persistence, framing, and where the maskable values are.

use std::ops::Range;

use memchr::memchr;

use super::error::{ResponseError, ResponseErrorKind as Kind};
use super::framing::{Framing, FramingFields};

/// The head of an answer, lent for as long as the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView<'a> {
    raw: &'a [u8],
    status: u16,
    minor: u8,
}

impl<'a> HeadView<'a> {
    pub(super) fn new(raw: &'a [u8], status: u16, minor: u8) -> HeadView<'a> {
        HeadView { raw, status, minor }
    }

    /// The status code, three digits.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The minor version: 0 for HTTP/1.0, 1 for HTTP/1.1 and whatever a later HTTP/1.x says.
    pub fn version_minor(&self) -> u8 {
        self.minor
    }

    /// The reason phrase, often empty, of no meaning (RFC 9112, section 4).
    pub fn reason(&self) -> &'a [u8] {
        let line = first_line(self.raw);
        // "HTTP/1.1", spaces, three digits: the reader has checked that they are there.
        let digits = 8 + line[8..].iter().take_while(|b| **b == b' ').count() + 3;
        line.get(digits + 1..).unwrap_or_default()
    }

    /// The fields in order, values without surrounding white space.
    pub fn fields(&self) -> Fields<'a> {
        Fields { raw: self.raw, pos: second_line(self.raw) }
    }

    /// The first field of that name (in any case).
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The head as it came, from the status line to the empty line; obsolete line folds are spaces.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }
}

fn first_line(raw: &[u8]) -> &[u8] {
    let lf = memchr(b'\n', raw).unwrap_or(raw.len());
    raw[..lf].strip_suffix(b"\r").unwrap_or(&raw[..lf])
}

/// Where the line after the first begins.
fn second_line(raw: &[u8]) -> usize {
    memchr(b'\n', raw).map_or(raw.len(), |lf| lf + 1)
}

/// The field lines of a head or trailer section the reader has accepted: name and value of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    raw: &'a [u8],
    pos: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn of_trailers(raw: &'a [u8]) -> Fields<'a> {
        Fields { raw, pos: 0 }
    }

    /// Where the next field's name and value are.
    fn next_place(&mut self) -> Option<Line> {
        let start = self.pos;
        let rest = &self.raw[start..];
        let lf = memchr(b'\n', rest)?;
        let colon = memchr(b':', &rest[..lf])?;
        self.pos = start + lf + 1;
        let line = rest[..lf].strip_suffix(b"\r").unwrap_or(&rest[..lf]);
        let value = trimmed(line, colon + 1);
        Some(Line { name: start..start + colon, value: start + value.start..start + value.end })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.next_place()?;
        Some((&self.raw[place.name], &self.raw[place.value]))
    }
}

/// Places of name and value of each field of an accepted head.
pub(super) fn places(head: &[u8]) -> impl Iterator<Item = Line> {
    let mut fields = Fields { raw: head, pos: second_line(head) };
    std::iter::from_fn(move || fields.next_place())
}

/// Where in `line` what follows `from` is without optional white space around it.
fn trimmed(line: &[u8], from: usize) -> Range<usize> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let rest = &line[from..];
    let end = rest.iter().rposition(|b| !blank(b)).map_or(0, |i| i + 1);
    let start = rest[..end].iter().position(|b| !blank(b)).unwrap_or(0);
    from + start..from + end
}

/// A field line, as places of its parts.
pub(super) struct Line {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

/// What a head says, as far as reading on needs it.
#[derive(Clone, Debug)]
pub(super) struct HeadFacts {
    pub(super) status: u16,
    pub(super) minor: u8,
    /// The connection persists after this answer, as far as the head decides (RFC 9112, section 9.3).
    pub(super) persistent: bool,
    /// The body's framing by its fields alone; status and method come on top.
    pub(super) framing: Framing,
    /// Field lines.
    pub(super) fields: u16,
    /// Where the Date value is.
    pub(super) date: Option<Range<u32>>,
    /// Where the tag field's value is.
    pub(super) tag: Option<Range<u32>>,
}

/// Reads a whole head without folds. `tag` is the field whose value is to be located.
pub(super) fn parse(raw: &[u8], limit: u16, tag: Option<&[u8]>) -> Result<HeadFacts, ResponseError> {
    let (status, minor, mut pos) = status_line(raw)?;
    if matches!(raw.get(pos), Some(b' ' | b'\t')) {
        return Err(ResponseError::new(Kind::SpaceBeforeFields, pos));
    }
    let (mut date, mut found_tag) = (None, None);
    let mut framing = FramingFields::default();
    let mut fields = 0u16;
    while let Some(line) = next_line(raw, &mut pos, limit, &mut fields)? {
        let name = &raw[line.name.clone()];
        let value = || &raw[line.value.clone()];
        let place = || Some(line.value.start as u32..line.value.end as u32);
        match name.len() {
            4 if date.is_none() && name.eq_ignore_ascii_case(b"date") => date = place(),
            10 if name.eq_ignore_ascii_case(b"connection") => framing.connection(value()),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                framing.content_length(value(), line.value.start as u32)
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                framing.transfer_encoding(value(), line.value.start as u32)
            }
            _ => {}
        }
        if found_tag.is_none() && tag.is_some_and(|t| t.eq_ignore_ascii_case(name)) {
            found_tag = place();
        }
    }
    let persistent = framing.persistent(minor);
    let framing = framing.decide();
    Ok(HeadFacts { status, minor, persistent, framing, fields, date, tag: found_tag })
}

/// White space between the status line and the first field is no fold (RFC 9112, section 2.2).
pub(super) fn check_start(raw: &[u8]) -> Result<(), ResponseError> {
    let next = memchr(b'\n', raw).map_or(raw.len(), |lf| lf + 1);
    match raw.get(next) {
        Some(b' ' | b'\t') => Err(ResponseError::new(Kind::SpaceBeforeFields, next)),
        _ => Ok(()),
    }
}

/// Checks a whole trailer section without folds.
pub(super) fn parse_trailers(raw: &[u8], limit: u16) -> Result<(), ResponseError> {
    if matches!(raw.first(), Some(b' ' | b'\t')) {
        return Err(ResponseError::new(Kind::SpaceBeforeFields, 0));
    }
    let (mut pos, mut fields) = (0, 0);
    while next_line(raw, &mut pos, limit, &mut fields)?.is_some() {}
    Ok(())
}

/// Status, minor version, and where the next line starts.
fn status_line(raw: &[u8]) -> Result<(u16, u8, usize), ResponseError> {
    let bad = |kind, at| Err(ResponseError::new(kind, at));
    let lf = memchr(b'\n', raw).unwrap_or(raw.len());
    let line = raw[..lf].strip_suffix(b"\r").unwrap_or(&raw[..lf]);
    // "HTTP/" was checked when the first bytes came.
    let minor = match line.get(5..8) {
        Some([b'1', b'.', minor @ b'0'..=b'9']) => minor - b'0',
        _ => return bad(Kind::BadVersion, 5),
    };
    // Several spaces are taken as one (RFC 9112, section 4, "MAY instead parse on whitespace-delimited word boundaries").
    let spaces = line[8..].iter().take_while(|b| **b == b' ').count();
    if spaces == 0 {
        // A digit here belongs to the version.
        let kind =
            if line.get(8).is_some_and(u8::is_ascii_digit) { Kind::BadVersion } else { Kind::BadStatusLine };
        return bad(kind, 8);
    }
    let at = 8 + spaces;
    let status = match line.get(at..at + 3) {
        Some(d) if d.iter().all(u8::is_ascii_digit) => {
            d.iter().fold(0u16, |sum, d| sum * 10 + u16::from(d - b'0'))
        }
        _ => return bad(Kind::BadStatusLine, at),
    };
    match line.get(at + 3) {
        None | Some(b' ') => {}
        Some(_) => return bad(Kind::BadStatusLine, at + 3),
    }
    if let Some(i) = line[at + 3..].iter().position(|b| !in_value(*b)) {
        return bad(Kind::BadStatusLine, at + 3 + i);
    }
    Ok((status, minor.min(1), lf + 1))
}

/// The field line at `pos`, or `None` at the empty line.
fn next_line(
    raw: &[u8],
    pos: &mut usize,
    limit: u16,
    fields: &mut u16,
) -> Result<Option<Line>, ResponseError> {
    let start = *pos;
    let rest = &raw[start..];
    let lf = memchr(b'\n', rest).unwrap_or(rest.len());
    let line = rest[..lf].strip_suffix(b"\r").unwrap_or(&rest[..lf]);
    if line.is_empty() {
        return Ok(None);
    }
    if *fields >= limit {
        return Err(ResponseError::new(Kind::TooManyFields(limit), start));
    }
    *fields += 1;
    let name = line.iter().take_while(|b| is_token(**b)).count();
    // No white space before the colon (RFC 9112, section 5.1), no empty name.
    if name == 0 || line.get(name) != Some(&b':') {
        return Err(ResponseError::new(Kind::BadField, start + name));
    }
    let after = &line[name + 1..];
    if let Some(i) = after.iter().position(|b| !in_value(*b)) {
        return Err(ResponseError::new(Kind::BadField, start + name + 1 + i));
    }
    *pos = start + lf + 1;
    let value = trimmed(line, name + 1);
    Ok(Some(Line { name: start..start + name, value: start + value.start..start + value.end }))
}

/// May stand in a field value or reason phrase: no control character but HTAB (RFC 9110, section 5.5).
#[inline]
pub(super) fn in_value(b: u8) -> bool {
    b >= b' ' && b != 0x7f || b == b'\t'
}

/// May stand in a token (RFC 9110, section 5.6.2).
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
