//! Streams over an interface of bytes: each record is a head, and bytes of one stream.
//!
//! [`QuicTransport`](super::QuicTransport) and a conversation with streams exchange them, in one process:
//! they are no format of the wire.

/// Bytes of a record's head.
pub(crate) const RECORD_HEAD: usize = 16;

/// What a record says of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Bytes of it.
    Bytes = 0,
    /// Bytes of it, the last.
    Last = 1,
    /// It was reset, or is to be given up both ways: the code.
    Reset = 2,
    /// No stream: so many requests may have been begun in all.
    Room = 3,
    /// No stream: the peer ended the connection, with a code of HTTP/3 and words.
    Closed = 4,
    /// No stream: QUIC ended the connection, by the peer: in words.
    EndedByPeer = 5,
    /// No stream: the peer broke the rules of QUIC: in words.
    Broken = 6,
    /// To the transport: says when QUIC has taken all bytes of the stream so far. From it: QUIC has.
    Taken = 7,
    /// To the transport: reads nothing more of the stream for now.
    Hold = 8,
    /// To the transport: reads the stream again.
    Resume = 9,
}

impl RecordKind {
    fn of(byte: u8) -> RecordKind {
        match byte {
            0 => RecordKind::Bytes,
            1 => RecordKind::Last,
            2 => RecordKind::Reset,
            3 => RecordKind::Room,
            4 => RecordKind::Closed,
            5 => RecordKind::EndedByPeer,
            7 => RecordKind::Taken,
            8 => RecordKind::Hold,
            9 => RecordKind::Resume,
            _ => RecordKind::Broken,
        }
    }
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRecordHead {
    /// The stream's ID, or the number that the kind names.
    pub(crate) number: u64,
    /// The bytes that follow.
    pub(crate) len: u32,
    pub(crate) kind: RecordKind,
}

impl StreamRecordHead {
    pub(crate) fn bytes(self) -> [u8; RECORD_HEAD] {
        let mut bytes = [0; RECORD_HEAD];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12] = self.kind as u8;
        bytes
    }

    /// Takes a head off the input; `None`: it is not whole.
    #[inline]
    pub(crate) fn take(input: &mut &[u8]) -> Option<StreamRecordHead> {
        let (head, rest) = input.split_first_chunk::<RECORD_HEAD>()?;
        let (number, after) = head.split_first_chunk::<8>()?;
        let (len, after) = after.split_first_chunk::<4>()?;
        *input = rest;
        Some(StreamRecordHead {
            number: u64::from_le_bytes(*number),
            len: u32::from_le_bytes(*len),
            kind: RecordKind::of(after[0]),
        })
    }
}

/// Appends a record.
pub(crate) fn put_record(kind: RecordKind, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    // Nothing that is longer is put at once.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&StreamRecordHead { number, len, kind }.bytes());
    out.extend_from_slice(&bytes[..len as usize]);
}

/// The whole records of the input, one after the other.
pub(crate) fn each_record(mut input: &[u8]) -> impl Iterator<Item = (StreamRecordHead, &[u8])> {
    std::iter::from_fn(move || {
        let head = StreamRecordHead::take(&mut input)?;
        let (bytes, rest) = input.split_at_checked(head.len as usize)?;
        input = rest;
        Some((head, bytes))
    })
}
