//! The unidirectional streams of a peer (RFC 9114, section 6.2; RFC 9204, section 4.2).

use std::collections::BTreeMap;

use super::frame::{frame_kind, stream_kind};
use super::reader::{H3FrameReader, H3Piece};
use super::varint::varint;
use super::{H3Code, H3Error, H3Settings, QpackDecoder};

/// Unidirectional streams of a peer at once. Reason: three are needed, and the others cost memory.
const MOST_STREAMS: usize = 64;

/// What the peer says on its control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H3ControlEvent {
    /// Its settings, once.
    Settings(H3Settings),
    /// GOAWAY, with its stream or push ID.
    GoAway(u64),
    /// How many pushes a client takes.
    MaxPushId(u64),
    /// A push that is given up.
    CancelPush(u64),
    /// The peer opened this stream, of a kind that we do not know: it is not to be read any more, and may
    /// be stopped with `H3_STREAM_CREATION_ERROR`.
    Unknown(u64),
}

/// A stream of the peer.
#[derive(Debug)]
enum H3PeerStream {
    /// The integer that says its kind has not come whole.
    Begun(Vec<u8>),
    Control(H3FrameReader),
    Encoder,
    Decoder,
    /// It is left out.
    Ignored,
}

/// Reads the unidirectional streams of a peer.
#[derive(Debug)]
pub struct H3PeerStreams {
    /// The peer is the server.
    is_server: bool,
    streams: BTreeMap<u64, H3PeerStream>,
    /// The control stream, and those of QPACK's encoder and decoder, have begun.
    begun: [bool; 3],
}

impl H3PeerStreams {
    /// Those of a server.
    pub fn of_server() -> H3PeerStreams {
        H3PeerStreams { is_server: true, streams: BTreeMap::new(), begun: [false; 3] }
    }

    /// Those of a client.
    pub fn of_client() -> H3PeerStreams {
        H3PeerStreams { is_server: false, ..H3PeerStreams::of_server() }
    }

    /// Takes bytes of stream `id`; `ends`: its end too. `decoder` gets the instructions of the peer's
    /// encoder.
    ///
    /// # Errors
    /// The peer broke the rules: the connection carries nothing more.
    pub fn read(
        &mut self,
        id: u64,
        bytes: &[u8],
        ends: bool,
        decoder: &mut QpackDecoder,
        mut each: impl FnMut(H3ControlEvent),
    ) -> Result<(), H3Error> {
        if !self.streams.contains_key(&id) && self.streams.len() >= MOST_STREAMS {
            let why = format!("more than {MOST_STREAMS} unidirectional streams");
            return Err(H3Error::new(H3Code::EXCESSIVE_LOAD, why));
        }
        let mut bytes = bytes;
        let stream = self.streams.entry(id).or_insert_with(|| H3PeerStream::Begun(Vec::new()));
        let mut carried = Vec::new();
        if let H3PeerStream::Begun(head) = stream {
            head.extend_from_slice(bytes);
            carried = std::mem::take(head);
            bytes = &carried;
            let Some(kind) = varint(&mut bytes) else {
                let head = std::mem::take(&mut carried);
                // A stream may end before it says its kind (RFC 9114, section 6.2).
                match ends {
                    true => drop(self.streams.remove(&id)),
                    false => *stream = H3PeerStream::Begun(head),
                }
                return Ok(());
            };
            *stream = begin(kind, self.is_server, &mut self.begun)?;
            if matches!(stream, H3PeerStream::Ignored) {
                each(H3ControlEvent::Unknown(id));
            }
        }
        match stream {
            H3PeerStream::Control(reader) => read_control(reader, bytes, &mut each)?,
            H3PeerStream::Encoder => decoder.read_instructions(bytes)?,
            // We insert nothing into a table, so that there is nothing to learn from it.
            H3PeerStream::Decoder | H3PeerStream::Ignored | H3PeerStream::Begun(_) => {}
        }
        if ends {
            self.ended(id)?;
        }
        drop(carried);
        Ok(())
    }

    /// Stream `id` was reset.
    ///
    /// # Errors
    /// The connection needs it: it carries nothing more.
    pub fn ended(&mut self, id: u64) -> Result<(), H3Error> {
        match self.streams.remove(&id) {
            Some(H3PeerStream::Control(_) | H3PeerStream::Encoder | H3PeerStream::Decoder) => {
                let why = "a stream that the connection needs has ended";
                Err(H3Error::new(H3Code::CLOSED_CRITICAL_STREAM, why))
            }
            _ => Ok(()),
        }
    }
}

fn begin(kind: u64, is_server: bool, begun: &mut [bool; 3]) -> Result<H3PeerStream, H3Error> {
    let (nth, stream) = match kind {
        stream_kind::CONTROL => (0, H3PeerStream::Control(H3FrameReader::of_control())),
        stream_kind::QPACK_ENCODER => (1, H3PeerStream::Encoder),
        stream_kind::QPACK_DECODER => (2, H3PeerStream::Decoder),
        stream_kind::PUSH if is_server => {
            return Err(H3Error::new(H3Code::ID_ERROR, "the server pushes, which we did not allow"));
        }
        stream_kind::PUSH => {
            return Err(H3Error::new(H3Code::STREAM_CREATION_ERROR, "a client opens a push stream"));
        }
        _ => return Ok(H3PeerStream::Ignored),
    };
    if std::mem::replace(&mut begun[nth], true) {
        let why = format!("a second unidirectional stream of kind {kind}");
        return Err(H3Error::new(H3Code::STREAM_CREATION_ERROR, why));
    }
    Ok(stream)
}

fn read_control(
    reader: &mut H3FrameReader,
    mut bytes: &[u8],
    each: &mut impl FnMut(H3ControlEvent),
) -> Result<(), H3Error> {
    while let Some(piece) = reader.next(&mut bytes)? {
        let H3Piece::Frame(kind, payload) = piece else { continue };
        if kind == frame_kind::SETTINGS {
            each(H3ControlEvent::Settings(H3Settings::read(payload)?));
            continue;
        }
        let mut rest = payload;
        let Some(id) = varint(&mut rest).filter(|_| rest.is_empty()) else {
            let why = format!("a frame of kind {kind:#x} is not one number");
            return Err(H3Error::new(H3Code::FRAME_ERROR, why));
        };
        match kind {
            frame_kind::GOAWAY => each(H3ControlEvent::GoAway(id)),
            frame_kind::MAX_PUSH_ID => each(H3ControlEvent::MaxPushId(id)),
            _ => each(H3ControlEvent::CancelPush(id)),
        }
    }
    Ok(())
}
