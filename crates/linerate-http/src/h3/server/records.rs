//! The streams of a QUIC connection as one sequence of bytes, for what passes on one per connection.
//!
//! Each record belongs to one stream. They are never on a wire.

/// Bytes of a record before its content: kind, stream and length.
const HEAD: usize = 13;

/// In place of a stream: all of the connection together.
pub const ALL_STREAMS: u64 = u64::MAX;

mod kind {
    pub(super) const BYTES: u8 = 0;
    pub(super) const LAST: u8 = 1;
    pub(super) const RESET: u8 = 2;
    pub(super) const STOP: u8 = 3;
    pub(super) const ROOM: u8 = 4;
    pub(super) const CLOSE: u8 = 5;
    pub(super) const AGAIN: u8 = 6;
    pub(super) const AGAIN_LAST: u8 = 7;
}

/// Something that happens to a stream, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRecord<'i> {
    /// Bytes of a stream, which ends behind them if `ends`. Without any: it was opened.
    Bytes {
        /// Its ID (RFC 9000, section 2.1).
        stream: u64,
        /// The bytes.
        bytes: &'i [u8],
        /// The sender ends the stream here.
        ends: bool,
    },
    /// From the application: bytes of a stream that came too early, which it wants once more, behind
    /// everything that is on its way to it. They have taken no room.
    Again {
        /// Its ID.
        stream: u64,
        /// The bytes.
        bytes: &'i [u8],
        /// The sender ended the stream here.
        ends: bool,
    },
    /// The sender of a stream gives it up (RESET_STREAM).
    Reset {
        /// Its ID.
        stream: u64,
        /// The reason.
        code: u64,
    },
    /// The receiver of a stream wants no more of it (STOP_SENDING).
    Stop {
        /// Its ID.
        stream: u64,
        /// The reason.
        code: u64,
    },
    /// The receiver of bytes takes so many more.
    Room {
        /// Its ID, or [`ALL_STREAMS`].
        stream: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The connection ends. Without an error: once everything before was delivered.
    Close {
        /// The reason.
        code: u64,
    },
}

/// The beginning of a record.
pub(super) enum RecordHead {
    /// So many bytes of a stream follow.
    Bytes { stream: u64, len: usize, ends: bool, again: bool },
    /// Any other record, whole.
    Other(StreamRecord<'static>),
}

impl<'i> StreamRecord<'i> {
    /// Reads one; `None`: it has not come whole, and nothing is read.
    pub fn read(input: &mut &'i [u8]) -> Option<StreamRecord<'i>> {
        let mut ahead = *input;
        let record = match RecordHead::read(&mut ahead)? {
            RecordHead::Other(record) => record,
            RecordHead::Bytes { stream, len, ends, again } => {
                let (bytes, rest) = ahead.split_at_checked(len)?;
                ahead = rest;
                match again {
                    true => StreamRecord::Again { stream, bytes, ends },
                    false => StreamRecord::Bytes { stream, bytes, ends },
                }
            }
        };
        *input = ahead;
        Some(record)
    }

    /// Appends a record of the bytes that `fill` appends; it returns whether the stream ends behind them.
    pub fn write_bytes(stream: u64, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> bool) {
        let at = out.len();
        put_bytes_head(stream, 0, false, out);
        let ends = fill(out);
        let len = (out.len() - at - HEAD) as u32;
        out[at] = if ends { kind::LAST } else { kind::BYTES };
        out[at + HEAD - 4..at + HEAD].copy_from_slice(&len.to_be_bytes());
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let number = |kind: u8, stream: u64, number: u64, out: &mut Vec<u8>| {
            put_head(kind, stream, 8, out);
            out.extend_from_slice(&number.to_be_bytes());
        };
        match *self {
            StreamRecord::Bytes { stream, bytes, ends } => {
                put_bytes_head(stream, bytes.len(), ends, out);
                out.extend_from_slice(bytes);
            }
            StreamRecord::Again { stream, bytes, ends } => {
                put_head(if ends { kind::AGAIN_LAST } else { kind::AGAIN }, stream, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            StreamRecord::Reset { stream, code } => number(kind::RESET, stream, code, out),
            StreamRecord::Stop { stream, code } => number(kind::STOP, stream, code, out),
            StreamRecord::Room { stream, bytes } => number(kind::ROOM, stream, bytes, out),
            StreamRecord::Close { code } => number(kind::CLOSE, ALL_STREAMS, code, out),
        }
    }
}

/// Appends the head of a record of bytes, which have to follow.
pub(super) fn put_bytes_head(stream: u64, len: usize, ends: bool, out: &mut Vec<u8>) {
    put_head(if ends { kind::LAST } else { kind::BYTES }, stream, len, out);
}

fn put_head(kind: u8, stream: u64, len: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&(len as u32).to_be_bytes());
}

impl RecordHead {
    /// Reads one; `None`: it has not come whole, and nothing is read.
    pub(super) fn read(input: &mut &[u8]) -> Option<RecordHead> {
        let (head, behind) = input.split_first_chunk::<HEAD>()?;
        let [kind, stream @ .., a, b, c, d] = *head;
        let stream = u64::from_be_bytes(stream);
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let again = kind >= kind::AGAIN;
        if kind <= kind::LAST || again {
            *input = behind;
            let ends = matches!(kind, kind::LAST | kind::AGAIN_LAST);
            return Some(RecordHead::Bytes { stream, len, ends, again });
        }
        let (number, behind) = behind.split_first_chunk::<8>()?;
        *input = behind;
        let number = u64::from_be_bytes(*number);
        Some(RecordHead::Other(match kind {
            kind::RESET => StreamRecord::Reset { stream, code: number },
            kind::STOP => StreamRecord::Stop { stream, code: number },
            kind::ROOM => StreamRecord::Room { stream, bytes: number },
            _ => StreamRecord::Close { code: number },
        }))
    }
}
