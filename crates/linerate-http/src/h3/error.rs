//! Why streams and connections of HTTP/3 end.

use super::QpackError;
use crate::ResetCode;

/// An error code (RFC 9114, section 8.1; RFC 9204, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct H3Code(pub u64);

/// The code of `H3_NO_ERROR`; those behind it are numbered on.
const FIRST: u64 = 0x100;

/// The code of `QPACK_DECOMPRESSION_FAILED`; those behind it are numbered on.
const FIRST_QPACK: u64 = 0x200;

impl H3Code {
    /// Not an error.
    pub const NO_ERROR: H3Code = H3Code(FIRST);
    /// The peer broke the protocol, and no other code says how.
    pub const GENERAL_PROTOCOL_ERROR: H3Code = H3Code(FIRST + 1);
    /// The endpoint itself failed.
    pub const INTERNAL_ERROR: H3Code = H3Code(FIRST + 2);
    /// The peer opened a stream that we do not accept.
    pub const STREAM_CREATION_ERROR: H3Code = H3Code(FIRST + 3);
    /// The peer closed a stream that the connection needs.
    pub const CLOSED_CRITICAL_STREAM: H3Code = H3Code(FIRST + 4);
    /// A frame on a stream that must not have it.
    pub const FRAME_UNEXPECTED: H3Code = H3Code(FIRST + 5);
    /// A frame of a form or size that it must not have.
    pub const FRAME_ERROR: H3Code = H3Code(FIRST + 6);
    /// The peer causes too much work.
    pub const EXCESSIVE_LOAD: H3Code = H3Code(FIRST + 7);
    /// A stream or push ID that makes no sense.
    pub const ID_ERROR: H3Code = H3Code(FIRST + 8);
    /// A SETTINGS frame that makes no sense.
    pub const SETTINGS_ERROR: H3Code = H3Code(FIRST + 9);
    /// The control stream does not begin with SETTINGS.
    pub const MISSING_SETTINGS: H3Code = H3Code(FIRST + 10);
    /// The request was not processed.
    pub const REQUEST_REJECTED: H3Code = H3Code(FIRST + 11);
    /// The stream is no longer needed.
    pub const REQUEST_CANCELLED: H3Code = H3Code(FIRST + 12);
    /// The stream ended before its request was whole.
    pub const REQUEST_INCOMPLETE: H3Code = H3Code(FIRST + 13);
    /// A message is malformed.
    pub const MESSAGE_ERROR: H3Code = H3Code(FIRST + 14);
    /// The connection of a CONNECT request failed.
    pub const CONNECT_ERROR: H3Code = H3Code(FIRST + 15);
    /// The request has to be sent by another version of HTTP.
    pub const VERSION_FALLBACK: H3Code = H3Code(FIRST + 16);
    /// A field section cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: H3Code = H3Code(FIRST_QPACK);
    /// The encoder stream breaks the rules.
    pub const QPACK_ENCODER_STREAM_ERROR: H3Code = H3Code(FIRST_QPACK + 1);
    /// The decoder stream breaks the rules.
    pub const QPACK_DECODER_STREAM_ERROR: H3Code = H3Code(FIRST_QPACK + 2);

    /// The registered name, or "other": a peer may invent any number of codes.
    pub fn name(self) -> &'static str {
        let of = |names: &[&'static str], first: u64| {
            usize::try_from(self.0.checked_sub(first)?).ok().and_then(|n| names.get(n).copied())
        };
        of(&NAMES, FIRST).or_else(|| of(&QPACK_NAMES, FIRST_QPACK)).unwrap_or("other")
    }
}

/// The names of the codes from `H3_NO_ERROR` on.
const NAMES: [&str; 17] = [
    "H3_NO_ERROR",
    "H3_GENERAL_PROTOCOL_ERROR",
    "H3_INTERNAL_ERROR",
    "H3_STREAM_CREATION_ERROR",
    "H3_CLOSED_CRITICAL_STREAM",
    "H3_FRAME_UNEXPECTED",
    "H3_FRAME_ERROR",
    "H3_EXCESSIVE_LOAD",
    "H3_ID_ERROR",
    "H3_SETTINGS_ERROR",
    "H3_MISSING_SETTINGS",
    "H3_REQUEST_REJECTED",
    "H3_REQUEST_CANCELLED",
    "H3_REQUEST_INCOMPLETE",
    "H3_MESSAGE_ERROR",
    "H3_CONNECT_ERROR",
    "H3_VERSION_FALLBACK",
];

/// The names of the codes from `QPACK_DECOMPRESSION_FAILED` on.
const QPACK_NAMES: [&str; 3] =
    ["QPACK_DECOMPRESSION_FAILED", "QPACK_ENCODER_STREAM_ERROR", "QPACK_DECODER_STREAM_ERROR"];

impl From<H3Code> for ResetCode {
    fn from(code: H3Code) -> ResetCode {
        ResetCode { number: code.0, name: code.name() }
    }
}

impl std::fmt::Display for H3Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "other" => write!(f, "code {:#x}", self.0),
            name => f.write_str(name),
        }
    }
}

/// The peer broke the rules: the connection carries nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} ({code})")]
pub struct H3Error {
    /// The code to close the connection with.
    pub code: H3Code,
    /// The broken rule, in words.
    pub why: String,
}

impl H3Error {
    pub(super) fn new(code: H3Code, why: impl Into<String>) -> H3Error {
        H3Error { code, why: why.into() }
    }
}

impl From<QpackError> for H3Error {
    fn from(error: QpackError) -> H3Error {
        let code = match error {
            QpackError::TooLarge(_) => H3Code::EXCESSIVE_LOAD,
            QpackError::EncoderStream(_) => H3Code::QPACK_ENCODER_STREAM_ERROR,
            _ => H3Code::QPACK_DECOMPRESSION_FAILED,
        };
        H3Error::new(code, error.to_string())
    }
}
