//! Faults of requests, each with the response status and the RFC section that demands it.

use std::fmt;

/// Why a request is refused. Each of these is the peer's fault. The framing of later bytes is then
/// in doubt, so the connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestFault {
    /// A line ends with LF alone.
    BareLf,
    /// A line that should be the request line is not `method SP target SP version`.
    RequestLine,
    /// The method is not a token, or longer than any known method.
    Method,
    /// The request line is longer than the limit.
    TargetTooLong,
    /// The request target has a byte not allowed in URIs, or a form not allowed for its method.
    Target,
    /// The version is not `HTTP/digit.digit`.
    Version,
    /// A major version other than 1.
    VersionNotSupported,
    /// A field line without colon, with whitespace before it, or with a name that is not a token.
    FieldName,
    /// A field value with a control character (a bare CR and NUL among them).
    FieldValue,
    /// A field line that begins with whitespace: folding is obsolete, and forbidden in requests.
    Folding,
    /// The head or trailer section is too large, or has too many fields.
    HeadTooLarge,
    /// No `Host` in an HTTP/1.1 request.
    HostMissing,
    /// More than one `Host`.
    HostRepeated,
    /// A `Host` that is not a host and port.
    Host,
    /// A `Content-Length` that is not one decimal number.
    ContentLength,
    /// More than one `Content-Length`, even equal ones.
    ContentLengthRepeated,
    /// `Content-Length` beside `Transfer-Encoding`.
    BothLengths,
    /// A `Transfer-Encoding` whose last coding is not `chunked`, or that applies it twice, or is
    /// not a list of codings.
    TransferEncoding,
    /// A transfer coding before `chunked` that this server cannot decode.
    TransferCodingUnknown,
    /// `Transfer-Encoding` in an HTTP/1.0 request.
    TransferEncodingIn10,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// A chunk-size line that is not hexadecimal digits with well-formed extensions.
    ChunkSize,
    /// Chunk extensions beyond the limit.
    ChunkExtensionsTooLong,
    /// Chunk data not followed by CRLF.
    ChunkEnd,
}

impl RequestFault {
    /// The status of the response.
    pub fn status(self) -> u16 {
        match self {
            RequestFault::TargetTooLong => 414,
            RequestFault::VersionNotSupported => 505,
            RequestFault::HeadTooLarge => 431,
            RequestFault::TransferCodingUnknown => 501,
            RequestFault::Expectation => 417,
            RequestFault::BodyTooLarge => 413,
            _ => 400,
        }
    }

    /// The RFC section that demands it.
    pub fn section(self) -> &'static str {
        match self {
            RequestFault::BareLf => "RFC 9112 section 2.2",
            RequestFault::RequestLine | RequestFault::TargetTooLong => "RFC 9112 section 3",
            RequestFault::Method => "RFC 9112 section 3.1",
            RequestFault::Target => "RFC 9112 section 3.2",
            RequestFault::Version => "RFC 9112 section 2.3",
            RequestFault::VersionNotSupported => "RFC 9110 section 15.6.6",
            RequestFault::FieldName => "RFC 9112 section 5.1",
            RequestFault::FieldValue => "RFC 9110 section 5.5",
            RequestFault::Folding => "RFC 9112 section 5.2",
            RequestFault::HeadTooLarge => "RFC 6585 section 5",
            RequestFault::HostMissing | RequestFault::HostRepeated | RequestFault::Host => {
                "RFC 9112 section 3.2"
            }
            RequestFault::ContentLength | RequestFault::ContentLengthRepeated => "RFC 9112 section 6.3",
            RequestFault::BothLengths
            | RequestFault::TransferCodingUnknown
            | RequestFault::TransferEncodingIn10 => "RFC 9112 section 6.1",
            RequestFault::TransferEncoding => "RFC 9112 section 6.3",
            RequestFault::Expectation => "RFC 9110 section 10.1.1",
            RequestFault::BodyTooLarge => "RFC 9110 section 15.5.14",
            RequestFault::ChunkSize | RequestFault::ChunkEnd => "RFC 9112 section 7.1",
            RequestFault::ChunkExtensionsTooLong => "RFC 9112 section 7.1.1",
        }
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestFault::BareLf => "a line ends with LF alone",
            RequestFault::RequestLine => "the request line is not: method SP target SP version",
            RequestFault::Method => "the method is not a token of reasonable length",
            RequestFault::TargetTooLong => "the request line is too long",
            RequestFault::Target => "the request target is not valid for this method",
            RequestFault::Version => "the version is not HTTP/digit.digit",
            RequestFault::VersionNotSupported => "only HTTP/1.1 and HTTP/1.0 are spoken here",
            RequestFault::FieldName => "a field line does not begin with a name and a colon",
            RequestFault::FieldValue => "a field value has a control character",
            RequestFault::Folding => "a field line begins with whitespace (obsolete folding)",
            RequestFault::HeadTooLarge => "the header section is too large",
            RequestFault::HostMissing => "Host is missing",
            RequestFault::HostRepeated => "Host is there more than once",
            RequestFault::Host => "Host is not a host with an optional port",
            RequestFault::ContentLength => "Content-Length is not one decimal number",
            RequestFault::ContentLengthRepeated => "Content-Length is there more than once",
            RequestFault::BothLengths => "Content-Length and Transfer-Encoding are both there",
            RequestFault::TransferEncoding => "Transfer-Encoding does not end in chunked",
            RequestFault::TransferCodingUnknown => "a transfer coding other than chunked",
            RequestFault::TransferEncodingIn10 => "Transfer-Encoding in an HTTP/1.0 request",
            RequestFault::Expectation => "an expectation other than 100-continue",
            RequestFault::BodyTooLarge => "the body is too large",
            RequestFault::ChunkSize => "a chunk size is not hexadecimal digits",
            RequestFault::ChunkExtensionsTooLong => "chunk extensions are too long",
            RequestFault::ChunkEnd => "chunk data is not followed by CRLF",
        })
    }
}

impl std::error::Error for RequestFault {}
