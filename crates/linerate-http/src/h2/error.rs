//! Why streams and connections end.

use super::HpackError;
use crate::ResetCode;

/// An error code (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Not an error.
    pub const NO_ERROR: Code = Code(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Code = Code(1);
    /// The endpoint itself failed.
    pub const INTERNAL_ERROR: Code = Code(2);
    /// The peer sent more than a window admits.
    pub const FLOW_CONTROL_ERROR: Code = Code(3);
    /// A frame came on a stream that its sender had ended.
    pub const STREAM_CLOSED: Code = Code(5);
    /// A frame of a size that it must not have.
    pub const FRAME_SIZE_ERROR: Code = Code(6);
    /// The request was not processed.
    pub const REFUSED_STREAM: Code = Code(7);
    /// The stream is no longer needed.
    pub const CANCEL: Code = Code(8);
    /// A field block cannot be decoded.
    pub const COMPRESSION_ERROR: Code = Code(9);
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: Code = Code(11);
    /// The request has to be sent by HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Code = Code(13);
}

impl Code {
    /// The registered name, or "other": a peer may invent any number of codes.
    pub fn name(self) -> &'static str {
        NAMES.get(self.0 as usize).copied().unwrap_or("other")
    }
}

/// The names of the codes, by their numbers.
const NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

impl From<Code> for ResetCode {
    fn from(code: Code) -> ResetCode {
        ResetCode { number: code.0.into(), name: code.name() }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "code {:#x}", self.0),
        }
    }
}

/// The peer broke the rules: the connection carries nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} ({code})")]
pub struct H2Error {
    /// Which rule.
    pub code: Code,
    /// In words.
    pub why: String,
}

impl H2Error {
    pub(super) fn new(code: Code, why: impl Into<String>) -> H2Error {
        H2Error { code, why: why.into() }
    }

    pub(super) fn protocol(why: impl Into<String>) -> H2Error {
        H2Error::new(Code::PROTOCOL_ERROR, why)
    }
}

impl From<HpackError> for H2Error {
    fn from(error: HpackError) -> H2Error {
        let code = match error {
            HpackError::TooLarge(_) => Code::ENHANCE_YOUR_CALM,
            _ => Code::COMPRESSION_ERROR,
        };
        H2Error::new(code, error.to_string())
    }
}
