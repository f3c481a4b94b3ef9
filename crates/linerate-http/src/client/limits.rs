//! Every limit of the client side, with its reason.

/// How much one peer may make us hold or count, per connection.
///
/// Compact on purpose: every [`ResponseReader`](crate::client::ResponseReader) has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Bytes of one response's head, from the status line to the empty line. Reason: an endless
    /// head must end. Common servers stay below 16 KiB (nginx 4 to 8, Apache 8), and 64 KiB is one
    /// receive buffer.
    pub head_bytes: u32,
    /// Field lines in one head or trailer section. Reason: thousands of tiny fields are an attack,
    /// not a response.
    pub fields: u16,
    /// Interim (1xx) responses before the final one. Reason: RFC 9110, section 15.2 allows "zero or
    /// more", and a peer that sends them without end would keep a request open forever. Real
    /// servers send one or two.
    pub interim: u8,
    /// Bytes of one chunk-size line, extensions included. Reason: extensions are ignored, so
    /// reading them is wasted work (RFC 9112, section 7.1.1 asks for a limit).
    pub chunk_line_bytes: u16,
    /// Bytes of a trailer section. Reason: it is stored until it is complete.
    pub trailer_bytes: u32,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        ResponseLimits {
            head_bytes: 64 << 10,
            fields: 256,
            interim: 16,
            chunk_line_bytes: 4096,
            trailer_bytes: 16 << 10,
        }
    }
}

/// Heads in a [`HeadCache`](crate::client::HeadCache). Reason: a run has few kinds of responses (by
/// request and status). Each cached head costs one failed comparison, a few nanoseconds, before a
/// new one is parsed.
pub(super) const HEADS_HELD: usize = 4;

/// Fields besides Date and the tag whose values a [`HeadCache`](crate::client::HeadCache) learns to
/// skip. Reason: a head that varies in more places is cheaper to parse than to compare piecewise.
pub(super) const LEARNT_MASKS: usize = 4;

/// Bytes of capacity that an idle reader keeps for carried heads. Reason: with thousands of
/// connections, one long head each must not stay allocated. An ordinary head fits, so repeated ones
/// do not allocate.
pub(super) const CARRY_KEPT: usize = 1024;

/// Requests in flight on one connection. Reason: it catches a caller that never reads; real depths
/// are below a few thousand.
pub(super) const PIPELINE_DEPTH: usize = 1 << 20;

/// Bytes read before a peer that does not speak HTTP/1 is identified (an HTTP/2 frame header has
/// nine). Reason: the same verdict however the bytes were cut.
pub(super) const BANNER_BYTES: usize = 9;

/// Constant parts of a body from this size on, bytes, are sent without copying. Reason: below,
/// copying them next to the rest of the request costs less than a separate piece.
pub(super) const SHARED_BYTES: usize = 64 << 10;

/// Characters of a `{{rand_text:N}}`. Reason: each request generates its own; longer bodies come
/// from files.
pub(super) const RANDOM_TEXT: usize = 1 << 16;
