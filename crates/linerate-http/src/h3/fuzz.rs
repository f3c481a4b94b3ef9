//! The code of the fuzz targets, and of the tests that replay their corpus.

use std::collections::BTreeMap;

use linerate_base::Time;

use super::server::{H3Server, H3ServerOptions, StreamRecord};
use super::{
    H3Error, H3FrameReader, H3Piece, H3Settings, QpackDecoder, QpackError, QpackSection, frame_kind,
};
use crate::h2::server::{ClientEvent, Heads};
use crate::server::RequestLimits;

/// Everything read from a stream. Content is joined, because its pieces depend on the cuts.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamTranscript {
    frames: Vec<(u64, Vec<u8>)>,
    too_long: u32,
    error: Option<H3Error>,
    in_frame: bool,
}

fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, mut reader: H3FrameReader) -> StreamTranscript {
    let mut seen = StreamTranscript::default();
    for piece in pieces {
        let mut input = piece;
        loop {
            match reader.next(&mut input) {
                Ok(Some(H3Piece::Data(content))) => match seen.frames.last_mut() {
                    Some((frame_kind::DATA, all)) => all.extend_from_slice(content),
                    _ => seen.frames.push((frame_kind::DATA, content.to_vec())),
                },
                Ok(Some(H3Piece::Frame(kind, payload))) => {
                    if kind == frame_kind::SETTINGS {
                        settings(payload);
                    }
                    seen.frames.push((kind, payload.to_vec()));
                }
                Ok(Some(H3Piece::SectionTooLong)) => seen.too_long += 1,
                Ok(None) => break,
                Err(error) => {
                    seen.error = Some(error);
                    return seen;
                }
            }
        }
        assert!(input.is_empty(), "input is left over");
    }
    seen.in_frame = reader.in_frame();
    seen
}

/// Settings that were read mean the same once they are written.
fn settings(payload: &[u8]) {
    let Ok(settings) = H3Settings::read(payload) else { return };
    let mut out = Vec::new();
    settings.write(&mut out);
    let mut input = &out[..];
    let mut reader = H3FrameReader::of_control();
    let again = reader.next(&mut input);
    let Ok(Some(H3Piece::Frame(frame_kind::SETTINGS, payload))) = again else {
        panic!("settings are not read again: {again:?}");
    };
    assert_eq!(H3Settings::read(payload), Ok(settings));
}

/// Bytes of a stream, read whole and in pieces whose length follows from the first byte.
pub fn frames(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let reader = || match how & 1 {
        0 => H3FrameReader::of_requests(1000),
        _ => H3FrameReader::of_control(),
    };
    let step = usize::from(how >> 1) + 1;
    assert_eq!(read([bytes], reader()), read(bytes.chunks(step), reader()), "pieces of {step} bytes");
}

/// A field section's fields, or how it ended.
type Decoded = (Vec<(Vec<u8>, Vec<u8>)>, Result<QpackSection, QpackError>);

/// Instructions and field sections, as `how` divides them: each part begins with its length, and
/// every other part is a section.
pub fn fields(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let capacity = usize::from(*how) * 16;
    let step = usize::from(how % 7) + 1;
    let decode = |decoder: &mut QpackDecoder, section: &[u8]| -> Decoded {
        let mut fields = Vec::new();
        let end = decoder.decode(4, section, 4096, |n, v| fields.push((n.to_vec(), v.to_vec())));
        (fields, end)
    };
    let (mut whole, mut cut) = (QpackDecoder::new(capacity), QpackDecoder::new(capacity));
    let mut rest = bytes;
    let mut is_section = false;
    while let Some((len, behind)) = rest.split_first() {
        let (part, behind) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = behind;
        if is_section {
            let decoded = decode(&mut whole, part);
            assert_eq!(decoded, decode(&mut cut, part));
            let bytes: usize = decoded.0.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(bytes <= 4096, "{bytes} bytes of fields");
        } else {
            let read = whole.read_instructions(part);
            let in_pieces = part.chunks(step).try_for_each(|piece| cut.read_instructions(piece));
            assert_eq!(read.is_ok(), in_pieces.is_ok());
            if read.is_err() {
                return;
            }
        }
        assert_eq!(whole.inserts(), cut.inserts());
        assert!(whole.table_bytes() <= capacity);
        assert_eq!(whole.instructions(), cut.instructions());
        is_section = !is_section;
    }
}

/// What a server of HTTP/3 made of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServedStreams {
    /// Of each request: its head or the status of its refusal, content, trailers, and whether it ended.
    requests: BTreeMap<u32, ServedStream>,
    error: Option<H3Error>,
    /// Bytes to be sent, without those that only give room.
    sent: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct ServedStream {
    head: Vec<u8>,
    refused: Option<u16>,
    content: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    ended: bool,
    reset: bool,
}

/// A table of 4,096 bytes, as `serve` announces it, and room for all that one input can hold.
const SERVER: H3ServerOptions = H3ServerOptions {
    stream_window: 1 << 20,
    connection_window: 1 << 20,
    stream_room: 1000,
    connection_room: 4000,
    head_list: 4096,
    table_capacity: 4096,
    blocked_streams: 2,
    resets_caused: 8,
    resets_at_once: 8,
};

/// What a client does on one stream.
enum StreamStep<'b> {
    Bytes { stream: u64, bytes: &'b [u8], ends: bool },
    Other(StreamRecord<'b>),
}

/// Serves a client whose steps come as records of at most `most` bytes.
fn serve(steps: &[StreamStep<'_>], most: usize) -> ServedStreams {
    let mut server = H3Server::new(SERVER, Time::ZERO);
    let (mut heads, mut served) = (Heads::new(RequestLimits::default()), ServedStreams::default());
    for step in steps {
        let mut input = Vec::new();
        match step {
            StreamStep::Other(record) => record.write(&mut input),
            StreamStep::Bytes { stream, bytes, ends } => {
                let pieces = bytes.len().div_ceil(most).max(1);
                for nth in 0..pieces {
                    let from = nth * most;
                    let piece = &bytes[from..bytes.len().min(from.saturating_add(most))];
                    let ends = *ends && nth + 1 == pieces;
                    StreamRecord::Bytes { stream: *stream, bytes: piece, ends }.write(&mut input);
                }
            }
        }
        while !input.is_empty() && !server.is_over() {
            let mut rest = &input[..];
            while let Some(event) = server.next(&mut rest, &mut heads) {
                served.hear(event);
            }
            input.clear();
            let out = std::mem::take(server.out());
            let mut out = &out[..];
            while let Some(record) = StreamRecord::read(&mut out) {
                match record {
                    StreamRecord::Bytes { bytes, .. } => served.sent += bytes.len(),
                    StreamRecord::Again { .. } => record.write(&mut input),
                    _ => {}
                }
            }
        }
    }
    served.error = server.error().cloned();
    served
}

impl ServedStreams {
    fn hear(&mut self, event: ClientEvent<'_>) {
        match event {
            ClientEvent::Request(request) => {
                let served = self.requests.entry(request.stream).or_default();
                assert!(served.head.is_empty(), "a second head");
                served.head = request.head.map(|head| head.bytes().to_vec()).unwrap_or_default();
                served.ended = request.ends;
            }
            ClientEvent::Data { stream, content, ends } => {
                let served = self.requests.entry(stream).or_default();
                assert!(!served.ended, "content behind the end");
                served.content.extend_from_slice(content);
                served.ended = ends;
            }
            ClientEvent::Trailers { stream, fields } => {
                let served = self.requests.entry(stream).or_default();
                (served.trailers, served.ended) = (fields, true);
            }
            ClientEvent::Refused { stream, status } => {
                self.requests.entry(stream).or_default().refused = Some(status);
            }
            ClientEvent::Reset { stream } => self.requests.entry(stream).or_default().reset = true,
        }
    }
}

/// What a client does on its streams, in records whole and cut. Each step begins with a byte that says on
/// which stream, and whether it ends or is given up there, and one of its length: 0 to 3 are requests, 4
/// is the control stream, 5 that of QPACK's encoder, 6 that of its decoder, and 7 any other.
pub fn requests(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let begin = |stream, bytes| StreamStep::Bytes { stream, bytes, ends: false };
    let mut steps = Vec::new();
    if how & 1 == 0 {
        steps.extend([begin(2, &[0, 4, 0][..]), begin(6, &[2]), begin(10, &[3])]);
    }
    let mut rest = bytes;
    while let [which, len, behind @ ..] = rest {
        let (part, behind) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = behind;
        let stream = [0, 4, 8, 12, 2, 6, 10, 14][usize::from(which & 7)];
        steps.push(match which >> 3 & 7 {
            0 => StreamStep::Other(StreamRecord::Reset { stream, code: 0x10c }),
            1 => StreamStep::Other(StreamRecord::Stop { stream, code: 0x10c }),
            how => StreamStep::Bytes { stream, bytes: part, ends: how == 2 },
        });
    }
    let mut whole = serve(&steps, usize::MAX);
    let most = usize::from(how >> 1) + 1;
    let mut cut = serve(&steps, most);
    assert_eq!(whole.error, cut.error, "records of {most} bytes");
    for served in [&mut whole, &mut cut] {
        // How many instructions of QPACK's decoder are one follows from the cuts.
        let sent = std::mem::take(&mut served.sent);
        assert!(sent <= 20 * data.len() + 200, "{sent} bytes for {}", data.len());
    }
    // What came right before an error may be told of or not.
    if whole.error.is_none() {
        assert_eq!(whole, cut, "records of {most} bytes");
    }
}
