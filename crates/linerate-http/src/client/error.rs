//! Faults of responses, and which side is at fault.

use std::fmt;

/// A response that cannot be read. Its connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseError {
    /// The rule that the response breaks.
    pub kind: ResponseErrorKind,
    /// The position: bytes from the start of the head or trailer section, or bytes of content
    /// before the fault.
    pub at: u64,
}

/// The protocol that a peer seems to speak instead of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// `SSH-2.0-...`
    Ssh,
    /// A TLS record: the port wants HTTPS.
    Tls,
    /// An HTTP/2 frame.
    Http2,
    /// A three-digit greeting, as SMTP and FTP send.
    MailOrFtp,
    /// A body without a head, HTTP/0.9, or anything else.
    Unknown,
}

/// A response that breaks the protocol, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseErrorKind {
    /// The first bytes are not `HTTP/` (RFC 9112, section 4).
    NotHttp(Speaks),
    /// A major version that is not 1, or a malformed one (RFC 9112, section 2.3).
    BadVersion,
    /// The status line is malformed (RFC 9112, section 4).
    BadStatusLine,
    /// A field line is malformed (RFC 9112, section 5; RFC 9110, section 5.5).
    BadField,
    /// White space between the status line and the first field (RFC 9112, section 2.2).
    SpaceBeforeFields,
    /// The head is longer than our limit, in bytes.
    HeadTooLong(u32),
    /// More fields than our limit.
    TooManyFields(u16),
    /// A Content-Length that is not a number, or too large (RFC 9112, section 6.3, rule 5).
    BadContentLength,
    /// Content-Length values that differ (RFC 9112, section 6.3, rule 5).
    ConflictingLength,
    /// `chunked` applied twice or with parameters (RFC 9112, sections 6.1 and 7.1).
    BadTransferEncoding,
    /// A chunk-size line that is malformed or too big a number (RFC 9112, section 7.1).
    BadChunkSize,
    /// Chunk data not followed by CRLF (RFC 9112, section 7.1).
    BadChunkEnd,
    /// A chunk-size line longer than our limit, in bytes.
    ChunkLineTooLong(u16),
    /// A trailer section longer than our limit, in bytes.
    TrailersTooLong(u32),
    /// More interim (1xx) responses than our limit.
    TooManyInterim(u8),
    /// Bytes arrived without an open request. Only the caller of the reader can know that (RFC
    /// 9112, section 9.2).
    Unsolicited,
    /// The peer closed in the middle of a head (RFC 9112, section 8).
    TruncatedHead,
    /// The peer closed in the middle of a body with `missing` bytes to come, if that is known (RFC
    /// 9112, section 8).
    TruncatedBody {
        /// Missing bytes of the content, or of the current chunk.
        missing: Option<u64>,
    },
}

/// Which side has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultySide {
    /// The peer, which broke a rule of HTTP/1.1.
    Peer,
    /// The peer or we: it exceeded our limit.
    Limit,
    /// The peer or the path, which closed too early.
    Cut,
    /// The user, whose address belongs to another protocol.
    Protocol,
}

impl ResponseErrorKind {
    /// Which side has to change something.
    pub fn fault(self) -> FaultySide {
        use ResponseErrorKind as K;
        match self {
            K::NotHttp(_) => FaultySide::Protocol,
            K::HeadTooLong(_)
            | K::TooManyFields(_)
            | K::ChunkLineTooLong(_)
            | K::TrailersTooLong(_)
            | K::TooManyInterim(_) => FaultySide::Limit,
            K::TruncatedHead | K::TruncatedBody { .. } => FaultySide::Cut,
            _ => FaultySide::Peer,
        }
    }
}

impl fmt::Display for Speaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Speaks::Ssh => "it greets as an SSH server",
            Speaks::Tls => "it speaks TLS, try https://",
            Speaks::Http2 => "it speaks HTTP/2 only",
            Speaks::MailOrFtp => "it greets as a mail or FTP server",
            Speaks::Unknown => "the answer does not begin with \"HTTP/\"",
        })
    }
}

impl fmt::Display for ResponseErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ResponseErrorKind as K;
        match *self {
            K::NotHttp(what) => write!(f, "the peer does not speak HTTP/1: {what}"),
            K::BadVersion => f.write_str("the answer's version is not HTTP/1.x (RFC 9112, 2.3)"),
            K::BadStatusLine => f.write_str("malformed status line (RFC 9112, 4)"),
            K::BadField => f.write_str("malformed header field (RFC 9112, 5)"),
            K::SpaceBeforeFields => f.write_str("white space before the first header field (RFC 9112, 2.2)"),
            K::HeadTooLong(limit) => write!(f, "the answer's head is longer than {limit} bytes (our limit)"),
            K::TooManyFields(limit) => write!(f, "more than {limit} header fields (our limit)"),
            K::BadContentLength => f.write_str("Content-Length is not a number (RFC 9112, 6.3)"),
            K::ConflictingLength => f.write_str("Content-Length values that differ (RFC 9112, 6.3)"),
            K::BadTransferEncoding => {
                f.write_str("Transfer-Encoding applies chunked twice or with parameters (RFC 9112, 7.1)")
            }
            K::BadChunkSize => f.write_str("malformed chunk size (RFC 9112, 7.1)"),
            K::BadChunkEnd => f.write_str("chunk data is not followed by CRLF (RFC 9112, 7.1)"),
            K::ChunkLineTooLong(limit) => write!(f, "a chunk line is longer than {limit} bytes (our limit)"),
            K::TrailersTooLong(limit) => write!(f, "trailers are longer than {limit} bytes (our limit)"),
            K::TooManyInterim(limit) => write!(f, "more than {limit} interim answers (our limit)"),
            K::Unsolicited => f.write_str("bytes came that answer no request (RFC 9112, 9.2)"),
            K::TruncatedHead => f.write_str("the peer closed in the middle of a head (RFC 9112, 8)"),
            K::TruncatedBody { missing: Some(n) } => {
                write!(f, "the peer closed in the middle of a body, {n} bytes short (RFC 9112, 8)")
            }
            K::TruncatedBody { missing: None } => {
                f.write_str("the peer closed in the middle of a body (RFC 9112, 8)")
            }
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.kind, self.at)
    }
}

impl std::error::Error for ResponseError {}

impl ResponseError {
    pub(super) fn new(kind: ResponseErrorKind, at: usize) -> ResponseError {
        ResponseError { kind, at: at as u64 }
    }

    /// For bytes that arrive with nothing in flight: they must not count as a response.
    pub fn unsolicited() -> ResponseError {
        ResponseError { kind: ResponseErrorKind::Unsolicited, at: 0 }
    }

    /// Which side has to change something.
    pub fn fault(&self) -> FaultySide {
        self.kind.fault()
    }
}
