//! The streams that a client opens to say something beside requests (RFC 9114, section 6.2).

use super::super::frame::{frame_kind, stream_kind};
use super::super::varint::varint;
use super::super::{H3Code, H3Error, H3FrameReader, H3Piece, H3Settings, QpackDecoder};

/// The longest integer.
const VARINT: usize = 8;

/// Bytes of an instruction of QPACK's encoder to us that has not come whole. Reason: it is one integer.
const INSTRUCTION: usize = 10;

/// What a stream is for.
#[derive(Debug)]
enum PeerStream {
    /// The integer that says so has not come whole.
    Unknown(Vec<u8>),
    Control(H3FrameReader),
    Encoder,
    /// The beginning of an instruction.
    Decoder(Vec<u8>),
    /// Of a kind that we do not know.
    Ignored,
}

/// What came on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerNews {
    Nothing,
    /// The stream is of a kind that we do not know: no more of it is wanted.
    Unwanted,
    /// So many frames.
    Frames(u32),
}

/// The client's unidirectional streams.
#[derive(Debug, Default)]
pub(super) struct PeerStreams {
    open: Vec<(u64, PeerStream)>,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    has_settings: bool,
    /// The last IDs of GOAWAY and MAX_PUSH_ID.
    goodbye: Option<u64>,
    pushes: Option<u64>,
}

impl PeerStreams {
    /// Bytes of a stream have come.
    pub(super) fn receive(
        &mut self,
        stream: u64,
        mut bytes: &[u8],
        decoder: &mut QpackDecoder,
    ) -> Result<PeerNews, H3Error> {
        let at = match self.open.iter().position(|(id, _)| *id == stream) {
            Some(at) => at,
            None => {
                self.open.push((stream, PeerStream::Unknown(Vec::new())));
                self.open.len() - 1
            }
        };
        if let PeerStream::Unknown(begun) = &mut self.open[at].1 {
            let Some(kind) = stream_kind_of(begun, &mut bytes) else { return Ok(PeerNews::Nothing) };
            self.open[at].1 = self.begin(kind)?;
            if matches!(self.open[at].1, PeerStream::Ignored) {
                return Ok(PeerNews::Unwanted);
            }
        }
        let mut known = std::mem::replace(&mut self.open[at].1, PeerStream::Ignored);
        let mut frames = 0;
        match &mut known {
            PeerStream::Control(reader) => {
                while let Some(piece) = reader.next(&mut bytes)? {
                    if let H3Piece::Frame(kind, payload) = piece {
                        frames += 1;
                        self.control(kind, payload)?;
                    }
                }
            }
            PeerStream::Encoder => decoder.read_instructions(bytes)?,
            PeerStream::Decoder(carry) => decoder_instructions(carry, bytes)?,
            PeerStream::Unknown(_) | PeerStream::Ignored => {}
        }
        self.open[at].1 = known;
        Ok(PeerNews::Frames(frames))
    }

    /// The client has ended a stream, or given it up.
    pub(super) fn ended(&mut self, stream: u64) -> Result<(), H3Error> {
        let Some(at) = self.open.iter().position(|(id, _)| *id == stream) else { return Ok(()) };
        match self.open.swap_remove(at).1 {
            PeerStream::Control(_) => Err(closed("the control stream")),
            PeerStream::Encoder => Err(closed("the stream of QPACK's encoder")),
            PeerStream::Decoder(_) => Err(closed("the stream of QPACK's decoder")),
            PeerStream::Unknown(_) | PeerStream::Ignored => Ok(()),
        }
    }

    fn begin(&mut self, kind: u64) -> Result<PeerStream, H3Error> {
        let refused = |why: &str| Err(H3Error::new(H3Code::STREAM_CREATION_ERROR, why));
        let (seen, stream) = match kind {
            stream_kind::CONTROL => (&mut self.has_control, PeerStream::Control(H3FrameReader::of_control())),
            stream_kind::QPACK_ENCODER => (&mut self.has_encoder, PeerStream::Encoder),
            stream_kind::QPACK_DECODER => (&mut self.has_decoder, PeerStream::Decoder(Vec::new())),
            stream_kind::PUSH => return refused("a client opens a stream for a push"),
            _ => return Ok(PeerStream::Ignored),
        };
        if std::mem::replace(seen, true) {
            return refused("the client opens a second stream where one is allowed");
        }
        Ok(stream)
    }

    /// A frame on the control stream.
    fn control(&mut self, kind: u64, payload: &[u8]) -> Result<(), H3Error> {
        if kind == frame_kind::SETTINGS {
            H3Settings::read(payload)?;
            if std::mem::replace(&mut self.has_settings, true) {
                return Err(H3Error::new(H3Code::FRAME_UNEXPECTED, "SETTINGS come twice"));
            }
            return Ok(());
        }
        let mut rest = payload;
        let id = varint(&mut rest).filter(|_| rest.is_empty()).ok_or_else(|| {
            H3Error::new(H3Code::FRAME_ERROR, format!("a frame of kind {kind:#x} is not one number long"))
        })?;
        let wrong = |why: &str| Err(H3Error::new(H3Code::ID_ERROR, why));
        match kind {
            frame_kind::GOAWAY if self.goodbye.is_some_and(|last| id > last) => {
                wrong("a GOAWAY takes back what the one before said")
            }
            frame_kind::GOAWAY => {
                self.goodbye = Some(id);
                Ok(())
            }
            frame_kind::MAX_PUSH_ID if self.pushes.is_some_and(|last| id < last) => {
                wrong("a MAX_PUSH_ID is smaller than the one before")
            }
            frame_kind::MAX_PUSH_ID => {
                self.pushes = Some(id);
                Ok(())
            }
            // We promise none.
            frame_kind::CANCEL_PUSH => wrong("a push is cancelled that was never promised"),
            _ => Ok(()),
        }
    }
}

/// Reads the integer that a stream begins with.
fn stream_kind_of(begun: &mut Vec<u8>, bytes: &mut &[u8]) -> Option<u64> {
    let before = begun.len();
    begun.extend_from_slice(&bytes[..bytes.len().min(VARINT - before)]);
    let mut ahead = &begun[..];
    match varint(&mut ahead) {
        Some(kind) => {
            *bytes = &bytes[begun.len() - ahead.len() - before..];
            Some(kind)
        }
        None => {
            *bytes = &[];
            None
        }
    }
}

/// Instructions of the client's decoder. We insert no entries, so that only the end of a stream can be
/// told (RFC 9204, section 4.4).
fn decoder_instructions(carry: &mut Vec<u8>, bytes: &[u8]) -> Result<(), H3Error> {
    let wrong = |why: &str| Err(H3Error::new(H3Code::QPACK_DECODER_STREAM_ERROR, why));
    for byte in bytes {
        let ends = match carry.first() {
            Some(_) => byte & 0x80 == 0,
            None if byte & 0xc0 == 0x40 => byte & 0x3f != 0x3f,
            None if byte & 0x80 != 0 => return wrong("a field section is acknowledged that needs no entry"),
            None => return wrong("entries are acknowledged that were never inserted"),
        };
        if ends {
            carry.clear();
            continue;
        }
        carry.push(*byte);
        if carry.len() > INSTRUCTION {
            return wrong("a number on the decoder stream is too large");
        }
    }
    Ok(())
}

fn closed(what: &str) -> H3Error {
    H3Error::new(H3Code::CLOSED_CRITICAL_STREAM, format!("the client closes {what}"))
}
