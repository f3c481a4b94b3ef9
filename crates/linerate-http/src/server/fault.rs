//! Faults of requests, each with the response status and the RFC section that demands it.

use std::fmt;

/// Why a request is refused. Each of these is the peer's fault. The framing of later bytes is then
/// in doubt, so the connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
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

impl Fault {
    /// The status of the response.
    pub fn status(self) -> u16 {
        match self {
            Fault::TargetTooLong => 414,
            Fault::VersionNotSupported => 505,
            Fault::HeadTooLarge => 431,
            Fault::TransferCodingUnknown => 501,
            Fault::Expectation => 417,
            Fault::BodyTooLarge => 413,
            _ => 400,
        }
    }

    /// The RFC section that demands it.
    pub fn section(self) -> &'static str {
        match self {
            Fault::BareLf => "RFC 9112 section 2.2",
            Fault::RequestLine | Fault::TargetTooLong => "RFC 9112 section 3",
            Fault::Method => "RFC 9112 section 3.1",
            Fault::Target => "RFC 9112 section 3.2",
            Fault::Version => "RFC 9112 section 2.3",
            Fault::VersionNotSupported => "RFC 9110 section 15.6.6",
            Fault::FieldName => "RFC 9112 section 5.1",
            Fault::FieldValue => "RFC 9110 section 5.5",
            Fault::Folding => "RFC 9112 section 5.2",
            Fault::HeadTooLarge => "RFC 6585 section 5",
            Fault::HostMissing | Fault::HostRepeated | Fault::Host => "RFC 9112 section 3.2",
            Fault::ContentLength | Fault::ContentLengthRepeated => "RFC 9112 section 6.3",
            Fault::BothLengths | Fault::TransferCodingUnknown | Fault::TransferEncodingIn10 => {
                "RFC 9112 section 6.1"
            }
            Fault::TransferEncoding => "RFC 9112 section 6.3",
            Fault::Expectation => "RFC 9110 section 10.1.1",
            Fault::BodyTooLarge => "RFC 9110 section 15.5.14",
            Fault::ChunkSize | Fault::ChunkEnd => "RFC 9112 section 7.1",
            Fault::ChunkExtensionsTooLong => "RFC 9112 section 7.1.1",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::BareLf => "a line ends with LF alone",
            Fault::RequestLine => "the request line is not: method SP target SP version",
            Fault::Method => "the method is not a token of reasonable length",
            Fault::TargetTooLong => "the request line is too long",
            Fault::Target => "the request target is not valid for this method",
            Fault::Version => "the version is not HTTP/digit.digit",
            Fault::VersionNotSupported => "only HTTP/1.1 and HTTP/1.0 are spoken here",
            Fault::FieldName => "a field line does not begin with a name and a colon",
            Fault::FieldValue => "a field value has a control character",
            Fault::Folding => "a field line begins with whitespace (obsolete folding)",
            Fault::HeadTooLarge => "the header section is too large",
            Fault::HostMissing => "Host is missing",
            Fault::HostRepeated => "Host is there more than once",
            Fault::Host => "Host is not a host with an optional port",
            Fault::ContentLength => "Content-Length is not one decimal number",
            Fault::ContentLengthRepeated => "Content-Length is there more than once",
            Fault::BothLengths => "Content-Length and Transfer-Encoding are both there",
            Fault::TransferEncoding => "Transfer-Encoding does not end in chunked",
            Fault::TransferCodingUnknown => "a transfer coding other than chunked",
            Fault::TransferEncodingIn10 => "Transfer-Encoding in an HTTP/1.0 request",
            Fault::Expectation => "an expectation other than 100-continue",
            Fault::BodyTooLarge => "the body is too large",
            Fault::ChunkSize => "a chunk size is not hexadecimal digits",
            Fault::ChunkExtensionsTooLong => "chunk extensions are too long",
            Fault::ChunkEnd => "chunk data is not followed by CRLF",
        })
    }
}

impl std::error::Error for Fault {}
