//! The code of the fuzz targets, and of the tests that replay their corpus.

use super::{
    H3Error, H3FrameReader, H3Piece, H3Settings, QpackDecoder, QpackError, QpackSection, frame_kind,
};

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
