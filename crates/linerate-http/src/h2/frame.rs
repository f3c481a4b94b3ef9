//! Frames (RFC 9113, sections 4 and 6).

use super::{Code, H2Error};

/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 9;

/// Kinds of frames.
pub mod kind {
    #![allow(missing_docs)]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![allow(missing_docs)]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// The bytes that a client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes that follow the head.
    pub len: u32,
    /// One of [`kind`], or a kind that is not known.
    pub kind: u8,
    /// Their meaning depends on the kind.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads a head.
    #[inline]
    pub fn read(b: &[u8; FRAME_HEAD]) -> FrameHead {
        FrameHead {
            len: u32::from_be_bytes([0, b[0], b[1], b[2]]),
            kind: b[3],
            flags: b[4],
            stream: u32::from_be_bytes([b[5], b[6], b[7], b[8]]) & 0x7fff_ffff,
        }
    }

    /// The head as bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; FRAME_HEAD] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    /// Writes the number of the stream into a frame that starts with its head.
    #[inline]
    pub(super) fn set_stream(frame: &mut [u8], stream: u32) {
        if let Some(number) = frame.get_mut(5..FRAME_HEAD) {
            number.copy_from_slice(&stream.to_be_bytes());
        }
    }

    /// Whether it has one of [`flag`].
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame.
pub(super) fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    out.extend_from_slice(&head.bytes());
    out.extend_from_slice(payload);
}

/// The payload without its padding; `None`: the padding is longer than the frame.
#[inline]
pub(super) fn unpadded(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (pad, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*pad))?)
}

pub(super) fn put_reset(stream: u32, code: Code, out: &mut Vec<u8>) {
    put(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

pub(super) fn put_window(stream: u32, bytes: u32, out: &mut Vec<u8>) {
    put(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes(), out);
}

/// A number of four bytes in a payload; 0 where there are none.
pub(super) fn number(payload: &[u8], at: usize) -> u32 {
    payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Whether a frame has the size and the stream that its kind must have (RFC 9113, section 6).
pub(super) fn check(head: &FrameHead) -> Result<(), H2Error> {
    let (size, on_stream) = match head.kind {
        kind::PRIORITY => (Some(5), Some(true)),
        kind::RST_STREAM => (Some(4), Some(true)),
        kind::SETTINGS => (None, Some(false)),
        kind::PING => (Some(8), Some(false)),
        kind::GOAWAY => (None, Some(false)),
        kind::WINDOW_UPDATE => (Some(4), None),
        _ => (None, None),
    };
    let short = head.kind == kind::GOAWAY && head.len < 8;
    if short || size.is_some_and(|size| size != head.len) {
        let why = format!("a frame of kind {} with {} bytes", head.kind, head.len);
        return Err(H2Error::new(Code::FRAME_SIZE_ERROR, why));
    }
    if on_stream.is_some_and(|on| on != (head.stream != 0)) {
        return Err(H2Error::protocol(format!("a frame of kind {} on stream {}", head.kind, head.stream)));
    }
    Ok(())
}
