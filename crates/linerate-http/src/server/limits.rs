//! Every limit of the server side, with its reason.

/// How large a request may be before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of the request line, its CRLF included; beyond: 414. Reason: RFC 9112 section 3 asks
    /// for at least 8000, and twice that is enough.
    pub request_line: usize,
    /// Bytes of the whole head; beyond: 431. Reason: a slow or hostile peer must not grow our
    /// memory; browsers with many cookies stay below 16 KiB.
    pub head: usize,
    /// Header fields; beyond: 431. Reason: each field costs work in every handler that looks for
    /// one.
    pub fields: usize,
    /// Bytes of a request body; beyond: 413. Reason: a body that a handler collects lives in
    /// memory.
    pub body: u64,
    /// Bytes of one chunk-size line with its extensions; beyond: 400. Reason: extensions carry no
    /// meaning here (RFC 9112 section 7.1.1 asks for a limit).
    pub chunk_line: usize,
    /// Bytes of all chunk extensions of a body together; beyond: 400. Reason: a gigabyte of
    /// extensions around a little data is an attack.
    pub chunk_extensions: usize,
    /// Bytes of a trailer section; beyond: 431. Reason: they are stored until the body ends.
    pub trailers: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            request_line: 16 << 10,
            head: 32 << 10,
            fields: 128,
            body: 16 << 20,
            chunk_line: 1 << 10,
            chunk_extensions: 16 << 10,
            trailers: 8 << 10,
        }
    }
}

/// Empty lines skipped before a request line. Reason: RFC 9112 section 2.2 asks for at least one.
/// Old clients send two CRLF after a body. More is noise.
/// from old clients; more is noise.
pub(super) const LEADING_EMPTY_LINES: usize = 4;

/// Bytes of a method's name. Reason: the longest registered one has 18.
pub(super) const METHOD: usize = 32;
