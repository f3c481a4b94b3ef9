//! The length of a body and whether the connection persists: the fields that decide both, and
//! nothing else.

use super::error::ResponseErrorKind as Kind;
use super::flaws::{HeadFlaw, HeadFlaws};

/// How the request affects the framing of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expect {
    /// A response framed by its own fields.
    #[default]
    Usual,
    /// The response to HEAD: never a body (RFC 9112, section 6.3, rule 1).
    Head,
    /// The response to CONNECT: a 2xx turns the connection into a tunnel (RFC 9112, section 6.3,
    /// rule 2).
    Connect,
}

/// A body's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// That many bytes.
    Length(u64),
    /// Chunks and trailers.
    Chunked,
    /// All bytes until the peer closes.
    UntilClose,
    /// Invalid: the reason, and the position of the field.
    Bad(Kind, u32),
}

impl Framing {
    /// The framing after status and method are considered: RFC 9112, section 6.3, rules 1 and 2.
    pub(super) fn of_answer(self, status: u16, expect: Expect) -> Framing {
        let bodiless = matches!(status, 100..=199 | 204 | 304)
            || expect == Expect::Head
            || (expect == Expect::Connect && (200..300).contains(&status));
        if bodiless { Framing::Length(0) } else { self }
    }
}

/// Whether the bytes after this response are no longer HTTP/1: the protocol was switched, or a
/// tunnel is open.
pub(super) fn switches(status: u16, expect: Expect) -> bool {
    status == 101 || (expect == Expect::Connect && (200..300).contains(&status))
}

/// Why the end of a body is in doubt: another reader on the way may see another one, and take some of the body for the
/// next response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingDoubt {
    /// Both fields that frame a body.
    #[error("the response has both Transfer-Encoding and Content-Length (RFC 9112 section 6.3)")]
    LengthAndCoding,
    /// A transfer coding beside chunked.
    #[error("the Transfer-Encoding of the response is not chunked alone (RFC 9112 section 6.1)")]
    OtherCoding,
}

/// The framing by the fields read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FramingFields {
    length: Option<u64>,
    repeated: bool,
    length_fault: Option<(Kind, u32)>,
    coded: bool,
    /// A coding other than chunked was applied.
    other_coding: bool,
    chunked_last: bool,
    coding_fault: Option<u32>,
    close: bool,
    keep_alive: bool,
}

impl FramingFields {
    /// Takes a field into account, if it frames the body; `at`: where its value is.
    #[inline]
    pub(super) fn field(&mut self, name: &[u8], value: &[u8], at: u32) {
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value, at),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value, at),
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            _ => {}
        }
    }

    /// A list of equal numbers counts as one number (RFC 9112, section 6.3, rule 5).
    pub(super) fn content_length(&mut self, value: &[u8], at: u32) {
        for part in value.split(|b| *b == b',') {
            self.repeated |= self.length.is_some();
            match (decimal(part.trim_ascii()), self.length) {
                (None, _) => self.length_fault = self.length_fault.or(Some((Kind::BadContentLength, at))),
                (Some(n), Some(before)) if n != before => {
                    self.length_fault = self.length_fault.or(Some((Kind::ConflictingLength, at)));
                }
                (n, _) => self.length = n,
            }
        }
    }

    pub(super) fn transfer_encoding(&mut self, value: &[u8], at: u32) {
        self.coded = true;
        for coding in elements(value) {
            let end = coding.iter().position(|b| matches!(b, b';' | b' ' | b'\t')).unwrap_or(coding.len());
            let chunked = coding[..end].eq_ignore_ascii_case(b"chunked");
            // Applied twice (section 6.1), or with parameters, which it must not have (section
            // 7.1).
            if chunked && (self.chunked_last || end < coding.len()) {
                self.coding_fault = self.coding_fault.or(Some(at));
            }
            self.chunked_last = chunked;
            self.other_coding |= !chunked;
        }
    }

    pub(super) fn connection(&mut self, value: &[u8]) {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112, section 6.3, rules 3 to 8.
    pub(super) fn decide(&self) -> Framing {
        if self.coded {
            // Transfer-Encoding overrides Content-Length, even if it is malformed.
            return match (self.coding_fault, self.chunked_last) {
                (Some(at), _) => Framing::Bad(Kind::BadTransferEncoding, at),
                (None, true) => Framing::Chunked,
                (None, false) => Framing::UntilClose,
            };
        }
        match (self.length_fault, self.length) {
            (Some((fault, at)), _) => Framing::Bad(fault, at),
            (None, Some(n)) => Framing::Length(n),
            (None, None) => Framing::UntilClose,
        }
    }

    /// What the fields should not be, although [`decide`](Self::decide) may accept them.
    pub(super) fn flaws(&self) -> HeadFlaws {
        let has_length = self.length.is_some() || self.length_fault.is_some();
        HeadFlaws::default()
            .with(HeadFlaw::LengthAndCoding, self.coded && has_length)
            .with(HeadFlaw::OtherCoding, self.other_coding)
            .with(HeadFlaw::RepeatedLength, self.repeated)
    }

    /// RFC 9112, section 9.3; and 6.1: an HTTP/1.0 response with Transfer-Encoding ends the
    /// connection.
    pub(super) fn persistent(&self, minor: u8) -> bool {
        match minor {
            _ if self.close => false,
            0 => self.keep_alive && !self.coded,
            _ => true,
        }
    }
}

/// The elements of a list, the empty ones skipped (RFC 9110, section 5.6.1.2).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|e| !e.is_empty())
}

/// `1*DIGIT` that fits a u64.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, b| match b {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}
