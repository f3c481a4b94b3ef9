//! Kinds of streams and frames, and how frames are written.

use super::varint::put_varint;

/// Kinds of unidirectional streams: the integer that each begins with (RFC 9114, section 6.2; RFC
/// 9204, section 4.2).
pub mod stream_kind {
    /// Settings and GOAWAY.
    pub const CONTROL: u64 = 0;
    /// A pushed response.
    pub const PUSH: u64 = 1;
    /// Instructions of QPACK's encoder.
    pub const QPACK_ENCODER: u64 = 2;
    /// Instructions of QPACK's decoder.
    pub const QPACK_DECODER: u64 = 3;
}

/// Kinds of frames (RFC 9114, section 7.2).
pub mod frame_kind {
    /// Content.
    pub const DATA: u64 = 0;
    /// A field section.
    pub const HEADERS: u64 = 1;
    /// A push that is given up.
    pub const CANCEL_PUSH: u64 = 3;
    /// Settings.
    pub const SETTINGS: u64 = 4;
    /// The request of a push.
    pub const PUSH_PROMISE: u64 = 5;
    /// The end of a connection.
    pub const GOAWAY: u64 = 7;
    /// How many pushes a client takes.
    pub const MAX_PUSH_ID: u64 = 13;
}

/// Whether a frame of this kind belongs to HTTP/2, and ends a connection of HTTP/3 (RFC 9114,
/// section 7.2.8).
pub(super) fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 2 | 6 | 8 | 9)
}

/// Appends a frame.
pub fn put_frame(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    put_varint(kind, out);
    put_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Appends the head of a DATA frame, whose `len` bytes have to follow.
pub fn put_data_head(len: u64, out: &mut Vec<u8>) {
    put_varint(frame_kind::DATA, out);
    put_varint(len, out);
}

/// Appends a GOAWAY. `id`: of a server, the first stream that it does not process; of a client, the
/// first push that it does not take (RFC 9114, section 5.2).
pub fn put_go_away(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(8);
    put_varint(id, &mut payload);
    put_frame(frame_kind::GOAWAY, &payload, out);
}
