//! Frames, settings and codes, and what must be refused.

use super::*;

/// What a reader made of a stream that came in pieces of `step` bytes.
fn read(mut reader: H3FrameReader, bytes: &[u8], step: usize) -> (Vec<String>, Option<H3Code>, bool) {
    let mut seen: Vec<String> = Vec::new();
    for piece in bytes.chunks(step) {
        let mut input = piece;
        loop {
            match reader.next(&mut input) {
                Ok(Some(H3Piece::Frame(kind, payload))) => seen.push(format!("{kind}: {payload:?}")),
                Ok(Some(H3Piece::Data(content))) => {
                    seen.extend(content.iter().map(|byte| format!("data: {byte}")));
                }
                Ok(Some(H3Piece::SectionTooLong)) => seen.push("too long".to_owned()),
                Ok(None) => break,
                Err(error) => return (seen, Some(error.code), false),
            }
        }
    }
    let in_frame = reader.in_frame();
    (seen, None, in_frame)
}

#[test]
fn rfc9000_16_integers() {
    for value in [0, 63, 64, 15_293, 16_383, 16_384, 494_878_333, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
        let mut coded = Vec::new();
        put_varint(value, &mut coded);
        for end in 0..coded.len() {
            let mut input = &coded[..end];
            assert_eq!(varint(&mut input), None);
            assert_eq!(input.len(), end, "nothing is read");
        }
        let mut input = &coded[..];
        assert_eq!(varint(&mut input), Some(value));
        assert!(input.is_empty());
    }
    // Appendix A.1.
    let samples: [(&[u8], u64); 5] = [
        (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
        (&[0x40, 0x25], 37),
    ];
    for (mut bytes, value) in samples {
        assert_eq!(varint(&mut bytes), Some(value));
    }
}

#[test]
fn frames_come_out_however_they_are_cut() {
    let mut stream = Vec::new();
    put_frame(frame_kind::HEADERS, b"head", &mut stream);
    put_frame(0x21, &[7; 100], &mut stream);
    put_data_head(3, &mut stream);
    stream.extend_from_slice(b"abc");
    put_data_head(0, &mut stream);
    put_frame(frame_kind::HEADERS, b"", &mut stream);
    put_frame(frame_kind::HEADERS, &[1; 11], &mut stream);
    let expected = ["1: [104, 101, 97, 100]", "data: 97", "data: 98", "data: 99", "1: []", "too long"];
    for step in 1..=stream.len() {
        let seen = read(H3FrameReader::of_requests(10), &stream, step);
        assert_eq!(seen, (expected.map(str::to_owned).to_vec(), None, false), "pieces of {step}");
    }
    for end in 1..stream.len() {
        let between = [6, 109, 114, 116, 118].contains(&end);
        let (_, error, in_frame) = read(H3FrameReader::of_requests(10), &stream[..end], 5);
        assert_eq!((error, in_frame), (None, !between), "ends at {end}");
    }
}

#[test]
fn rfc9114_7_2_frames_stand_where_they_may() {
    let control = |kind: u64| {
        let mut stream = Vec::new();
        H3Settings::default().write(&mut stream);
        put_frame(kind, &[0], &mut stream);
        read(H3FrameReader::of_control(), &stream, 100).1
    };
    let request = |kind: u64| {
        let mut stream = Vec::new();
        put_frame(kind, &[0], &mut stream);
        read(H3FrameReader::of_requests(100), &stream, 100).1
    };
    let unexpected = Some(H3Code::FRAME_UNEXPECTED);
    for kind in [frame_kind::DATA, frame_kind::HEADERS, frame_kind::PUSH_PROMISE, frame_kind::SETTINGS] {
        assert_eq!(control(kind), unexpected, "{kind}");
    }
    for kind in [frame_kind::GOAWAY, frame_kind::CANCEL_PUSH, frame_kind::MAX_PUSH_ID] {
        assert_eq!((control(kind), request(kind)), (None, unexpected), "{kind}");
    }
    assert_eq!(request(frame_kind::SETTINGS), unexpected);
    for kind in [2, 6, 8, 9] {
        assert_eq!((control(kind), request(kind)), (unexpected, unexpected), "{kind}");
    }
    for kind in [0x21, 0x40, 1 << 40] {
        assert_eq!((control(kind), request(kind)), (None, None), "{kind}");
    }
    let mut first = Vec::new();
    put_go_away(0, &mut first);
    assert_eq!(read(H3FrameReader::of_control(), &first, 100).1, Some(H3Code::MISSING_SETTINGS));
}

#[test]
fn frames_that_cost_work_or_memory_have_limits() {
    let mut nothing = Vec::new();
    (0..2000).for_each(|_| put_frame(0x21, b"", &mut nothing));
    let mut empty = Vec::new();
    (0..2000).for_each(|_| put_data_head(0, &mut empty));
    for stream in [nothing, empty] {
        assert_eq!(read(H3FrameReader::of_requests(100), &stream, 64).1, Some(H3Code::EXCESSIVE_LOAD));
    }
    let mut long = Vec::new();
    put_varint(frame_kind::SETTINGS, &mut long);
    put_varint(1 << 61, &mut long);
    assert_eq!(read(H3FrameReader::of_control(), &long, 64).1, Some(H3Code::EXCESSIVE_LOAD));
    // Content and field sections of any length are not stored.
    for kind in [frame_kind::DATA, frame_kind::HEADERS, 0x21] {
        let mut long = Vec::new();
        put_varint(kind, &mut long);
        put_varint((1 << 62) - 1, &mut long);
        long.extend_from_slice(&[0; 1000]);
        let mut reader = H3FrameReader::of_requests(100);
        let mut input = &long[..];
        while let Some(piece) = reader.next(&mut input).unwrap() {
            assert!(matches!(piece, H3Piece::Data(_) | H3Piece::SectionTooLong));
        }
        assert!(reader.in_frame());
    }
}

#[test]
fn rfc9114_7_2_4_settings() {
    let settings = H3Settings {
        table_capacity: 4096,
        blocked_streams: 16,
        field_section_bytes: Some(1 << 16),
        extended_connect: true,
    };
    let mut out = Vec::new();
    settings.write(&mut out);
    assert_eq!(H3Settings::read(&out[2..]), Ok(settings));
    let of = |numbers: &[u64]| {
        let mut payload = Vec::new();
        numbers.iter().for_each(|number| put_varint(*number, &mut payload));
        H3Settings::read(&payload).map_err(|error| error.code)
    };
    assert_eq!(of(&[0x1f * 3 + 0x21, 77, 0x33, 1]), Ok(H3Settings::default()), "unknown ones");
    for broken in
        [&[0, 0][..], &[2, 0], &[3, 0], &[4, 0], &[5, 0], &[8, 2], &[1, 1, 1, 1], &[0x33, 0, 0x33, 0]]
    {
        assert_eq!(of(broken), Err(H3Code::SETTINGS_ERROR), "{broken:?}");
    }
    assert_eq!(of(&[1]), Err(H3Code::FRAME_ERROR));
    let many: Vec<u64> = (0..600).map(|n| 0x1000 + n / 2 * (1 - n % 2)).collect();
    assert!(of(&many).is_err());
}

#[test]
fn codes_have_their_registered_names() {
    assert_eq!(H3Code(0x100).to_string(), "H3_NO_ERROR");
    assert_eq!(H3Code(0x110).name(), "H3_VERSION_FALLBACK");
    assert_eq!(H3Code::REQUEST_REJECTED.name(), "H3_REQUEST_REJECTED");
    assert_eq!(H3Code::QPACK_DECODER_STREAM_ERROR.to_string(), "QPACK_DECODER_STREAM_ERROR");
    assert_eq!((H3Code(0x111).name(), H3Code(3).to_string().as_str()), ("other", "code 0x3"));
    assert_eq!(H3Code(u64::MAX).name(), "other");
}

proptest::proptest! {
    /// As the fuzz targets, over bytes that look like frames and instructions more often.
    #[test]
    fn any_bytes_read_the_same_however_they_are_cut(
        how in proptest::prelude::any::<u8>(),
        frames in proptest::collection::vec((0u64..16, proptest::collection::vec(0u8..=255, 0..90)), 0..12),
    ) {
        let mut bytes = vec![how];
        frames.iter().for_each(|(kind, payload)| put_frame(*kind, payload, &mut bytes));
        fuzz::frames(&bytes);
        let mut parts = vec![how, 3, 0x3f, 0xe1, 0x01];
        for (kind, payload) in &frames {
            parts.push(payload.len() as u8 + 2);
            parts.extend_from_slice(&[*kind as u8 + 1, 0]);
            parts.extend_from_slice(payload);
        }
        fuzz::fields(&parts);
    }
}
