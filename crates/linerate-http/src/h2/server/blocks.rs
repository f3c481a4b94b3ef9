//! The heads of responses, as field blocks.

use super::super::hpack::{field, length};
use crate::fields::put_integer;
use crate::server::{CheckedFields, HttpDate, push_decimal};

/// Longest fields, in bytes, of a block that is remembered. Reason: comparing and storing more costs
/// more than it saves.
const FIELDS_REMEMBERED: usize = 512;

/// Fields that belong to a connection of HTTP/1.1 (RFC 9113 section 8.2.2).
pub(super) const OF_A_CONNECTION: [&[u8]; 5] =
    [b"connection", b"upgrade", b"transfer-encoding", b"keep-alive", b"proxy-connection"];

/// Numbers in the static table (RFC 7541 appendix A).
mod number {
    pub(super) const STATUS: u64 = 8;
    pub(super) const CONTENT_LENGTH: u64 = 28;
    pub(super) const CONTENT_TYPE: u64 = 31;
    pub(super) const DATE: u64 = 33;
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// 100 to 599.
    pub status: u16,
    /// `content-type`, if it is not among the fields.
    pub content_type: Option<&'a str>,
    /// `content-length`.
    pub length: Option<u64>,
    /// More fields. Those of a connection are left out.
    pub fields: &'a CheckedFields,
}

/// How the fields of another protocol are written, in place of HPACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldCoding {
    /// Begins a block.
    pub(crate) begin: fn(&mut Vec<u8>),
    /// Appends a field.
    pub(crate) field: fn(&[u8], &[u8], &mut Vec<u8>),
}

/// Writes the heads of responses. One per thread serves any number of connections: no block uses the
/// dynamic table. A head with the contents of the last one is not encoded again.
#[derive(Debug, Default)]
pub struct ResponseBlocks {
    /// `None`: HPACK.
    coding: Option<FieldCoding>,
    status: u16,
    length: Option<u64>,
    /// Content type and fields, concatenated, and where the first ends.
    words: Vec<u8>,
    kind_end: Option<usize>,
    date: u64,
    /// The block last written; empty before the first.
    bytes: Vec<u8>,
}

impl ResponseBlocks {
    /// Blocks of another protocol.
    pub(crate) fn coded(coding: FieldCoding) -> ResponseBlocks {
        ResponseBlocks { coding: Some(coding), ..ResponseBlocks::default() }
    }

    /// The field block of a head.
    pub fn of(&mut self, head: &ResponseHead<'_>, date: &HttpDate) -> &[u8] {
        if !self.is_the_last(head, date) {
            self.write(head, date);
        }
        &self.bytes
    }

    #[inline]
    fn is_the_last(&self, head: &ResponseHead<'_>, date: &HttpDate) -> bool {
        self.length == head.length
            && self.status == head.status
            && self.date == date.unix()
            && self.kind_end == head.content_type.map(str::len)
            && !self.bytes.is_empty()
            && self.words.split_at_checked(self.kind_end.unwrap_or(0)).is_some_and(|(kind, fields)| {
                kind == head.content_type.unwrap_or_default().as_bytes() && fields == head.fields.as_lines()
            })
    }

    fn write(&mut self, head: &ResponseHead<'_>, date: &HttpDate) {
        let out = &mut self.bytes;
        out.clear();
        let mut digits = Vec::with_capacity(20);
        if let Some(n) = head.length {
            push_decimal(&mut digits, n);
        }
        match self.coding {
            Some(FieldCoding { begin, field }) => {
                begin(out);
                field(b":status", &status_digits(head.status), out);
                field(b"date", date.as_bytes(), out);
                head.content_type.iter().for_each(|kind| field(b"content-type", kind.as_bytes(), out));
                head.length.iter().for_each(|_| field(b"content-length", &digits, out));
                fields(head.fields, |name, value| field(name, value, out));
            }
            None => {
                status(head.status, out);
                literal(number::DATE, date.as_bytes(), out);
                head.content_type.iter().for_each(|kind| literal(number::CONTENT_TYPE, kind.as_bytes(), out));
                head.length.iter().for_each(|_| literal(number::CONTENT_LENGTH, &digits, out));
                fields(head.fields, |name, value| field(name, value, out));
            }
        }
        self.words.clear();
        if head.fields.as_lines().len() > FIELDS_REMEMBERED {
            // No head is equal to it.
            (self.status, self.kind_end) = (0, None);
            return;
        }
        (self.status, self.length, self.date) = (head.status, head.length, date.unix());
        self.kind_end = head.content_type.map(str::len);
        self.words.extend_from_slice(head.content_type.unwrap_or_default().as_bytes());
        self.words.extend_from_slice(head.fields.as_lines());
    }
}

/// Appends the status.
pub(super) fn status(status: u16, out: &mut Vec<u8>) {
    let number = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            return literal(number::STATUS, &status_digits(status), out);
        }
    };
    put_integer(number, 7, 0x80, out);
}

/// A status of three digits.
pub(crate) fn status_digits(status: u16) -> [u8; 3] {
    [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8)
}

/// Hands over fields with names in lower case, those of a connection left out.
pub(crate) fn fields(fields: &CheckedFields, mut each: impl FnMut(&[u8], &[u8])) {
    for (name, value) in fields.iter() {
        let lower = name.to_ascii_lowercase();
        if !OF_A_CONNECTION.iter().any(|of_it| *of_it == lower) {
            each(&lower, value);
        }
    }
}

/// Appends a field whose name has this number, as a literal without indexing.
fn literal(name: u64, value: &[u8], out: &mut Vec<u8>) {
    put_integer(name, 4, 0, out);
    length(value.len(), out);
    out.extend_from_slice(value);
}
