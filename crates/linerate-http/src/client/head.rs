//! Heads and trailers, lent to the caller.

use std::ops::Range;

use memchr::memchr;

use super::flaws::{HeadFlaw, HeadFlaws};
use super::framing::FramingDoubt;
use super::parse::{HeadFacts, trimmed};

/// The head of a response, lent as long as its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView<'a> {
    raw: &'a [u8],
    status: u16,
    minor: u8,
    flaws: HeadFlaws,
}

impl<'a> HeadView<'a> {
    pub(super) fn new(raw: &'a [u8], facts: &HeadFacts) -> HeadView<'a> {
        HeadView { raw, status: facts.status, minor: facts.minor, flaws: facts.flaws }
    }

    /// The head of a response on a stream (HTTP/2 and HTTP/3), as text in the form of HTTP/1.1: the line of
    /// the status, field lines, an empty line.
    pub(crate) fn of_stream(raw: &'a [u8], status: u16) -> HeadView<'a> {
        HeadView { raw, status, minor: 0, flaws: HeadFlaws::default() }
    }

    /// The status code, three digits.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The minor version: 0 for HTTP/1.0, HTTP/2 and HTTP/3, 1 for HTTP/1.1 and later HTTP/1.x.
    pub fn version_minor(&self) -> u8 {
        self.minor
    }

    /// The reason phrase: often empty, and without meaning (RFC 9112, section 4).
    pub fn reason(&self) -> &'a [u8] {
        let line = first_line(self.raw);
        if line.starts_with(b"HTTP/2") || line.starts_with(b"HTTP/3") {
            return b"";
        }
        // "HTTP/1.1", spaces, three digits: the reader has checked them.
        let digits = 8 + line[8..].iter().take_while(|b| **b == b' ').count() + 3;
        line.get(digits + 1..).unwrap_or_default()
    }

    /// The fields in order, values without surrounding white space.
    pub fn fields(&self) -> Fields<'a> {
        Fields { raw: self.raw, pos: second_line(self.raw) }
    }

    /// Why another reader may see another end of the body, by its fields. A reader that shares its connection with
    /// nobody may go on: Transfer-Encoding counts (RFC 9112, section 6.3).
    pub fn framing_doubt(&self) -> Option<FramingDoubt> {
        match () {
            () if self.flaws.has(HeadFlaw::LengthAndCoding) => Some(FramingDoubt::LengthAndCoding),
            () if self.flaws.has(HeadFlaw::OtherCoding) => Some(FramingDoubt::OtherCoding),
            () => None,
        }
    }

    /// What it should not have, although it was accepted.
    #[inline]
    pub fn flaws(&self) -> HeadFlaws {
        self.flaws
    }

    /// The first field of that name, ignoring case.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The head as received, from the status line to the empty line; obsolete line folds are
    /// replaced by spaces.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }
}

fn first_line(raw: &[u8]) -> &[u8] {
    let lf = memchr(b'\n', raw).unwrap_or(raw.len());
    raw[..lf].strip_suffix(b"\r").unwrap_or(&raw[..lf])
}

/// Start of the second line.
fn second_line(raw: &[u8]) -> usize {
    memchr(b'\n', raw).map_or(raw.len(), |lf| lf + 1)
}

/// The field lines of an accepted head or trailer section: name and value of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    raw: &'a [u8],
    pos: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn of_trailers(raw: &'a [u8]) -> Fields<'a> {
        Fields { raw, pos: 0 }
    }

    /// Positions of the next field's name and value.
    fn next_place(&mut self) -> Option<FieldLine> {
        let start = self.pos;
        let rest = &self.raw[start..];
        let lf = memchr(b'\n', rest)?;
        let colon = memchr(b':', &rest[..lf])?;
        self.pos = start + lf + 1;
        let end = start + rest[..lf].strip_suffix(b"\r").map_or(lf, <[u8]>::len);
        Some(FieldLine { name: start..start + colon, value: trimmed(self.raw, start + colon + 1, end) })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.next_place()?;
        Some((&self.raw[place.name], &self.raw[place.value]))
    }
}

/// Positions of name and value of each field of an accepted head.
pub(super) fn places(head: &[u8]) -> impl Iterator<Item = FieldLine> {
    let mut fields = Fields { raw: head, pos: second_line(head) };
    std::iter::from_fn(move || fields.next_place())
}

/// The positions of a field line's parts.
pub(super) struct FieldLine {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}
