use linerate_http::h2::{FrameHead, PREFACE, field, flag, kind};

use super::*;
use crate::passive::flow::Budget;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = FrameHead { len: payload.len() as u32, kind, flags, stream }.bytes().to_vec();
    out.extend(payload);
    out
}

fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|(name, value)| field(name.as_bytes(), value.as_bytes(), &mut out));
    out
}

/// The frames in pieces of one direction; `<` and a number is a hole.
fn read(reader: &mut FrameReader, pieces: &[&[u8]]) -> Vec<String> {
    let (budget, mut told) = (Budget::new(1 << 20), Vec::new());
    for piece in pieces {
        let mut data = *piece;
        if let Some(n) = piece.strip_prefix(b"<") {
            let n = std::str::from_utf8(n).expect("a number").parse().expect("a number");
            told.extend(reader.hole(n, &budget).map(|(frame, _)| words(&frame)));
            continue;
        }
        let mut starts = true;
        loop {
            match reader.next(&mut data, starts, Spot::default(), &budget) {
                Ok(Some((frame, _))) => told.push(words(&frame)),
                Ok(None) => break,
                Err(why) => {
                    told.push(why);
                    reader.drop_held(&budget);
                    assert!(budget.take(1 << 20), "all was given back");
                    return told;
                }
            }
            starts = false;
        }
    }
    reader.drop_held(&budget);
    assert!(budget.take(1 << 20), "all was given back");
    told
}

fn words(frame: &Frame) -> String {
    match frame {
        Frame::Data { stream, bytes, ends, is_missing } => {
            let (ends, missing) =
                (if *ends { " end" } else { "" }, if *is_missing { " missing" } else { "" });
            format!("data {stream} {bytes}{ends}{missing}")
        }
        Frame::Block { stream, block, ends, .. } => {
            format!("fields {stream} {:?}{}", block.as_ref().map(Vec::len), if *ends { " end" } else { "" })
        }
        Frame::Settings(settings) => format!("settings {:?}", settings.as_ref().map(Vec::len)),
        Frame::Room { stream, bytes } => format!("room {stream} {bytes:?}"),
        Frame::Reset { stream, code } => format!("reset {stream} {code:?}"),
        Frame::GoAway { last } => format!("goaway {last:?}"),
        Frame::Lost => "lost".to_owned(),
    }
}

fn reader() -> FrameReader {
    FrameReader::new(false, false, 1 << 15)
}

#[test]
fn frames_are_read_through_any_cut() {
    let block = fields(&[(":status", "200"), ("server", "x")]);
    let mut padded = vec![2];
    padded.extend([0, 0, 0, 0, 7]);
    padded.extend(&block[..3]);
    padded.extend([0, 0]);
    let all = [
        frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, 0]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        frame(kind::HEADERS, flag::PADDED | flag::PRIORITY | flag::END_STREAM, 3, &padded),
        frame(kind::CONTINUATION, flag::END_HEADERS, 3, &block[3..]),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 5]),
        frame(0x10, 0x7f, 0, b"PRIORITY_UPDATE"),
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]),
        frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0, b'w']),
        frame(kind::DATA, flag::END_STREAM, 1, &[]),
    ]
    .concat();
    let told = read(&mut reader(), &[&all]);
    let fields = format!("fields 3 Some({}) end", block.len());
    let expected =
        ["settings Some(6)", &fields, "room 0 Some(5)", "reset 5 Some(8)", "goaway Some(3)", "data 1 0 end"];
    assert_eq!(told, expected);
    for cut in 1..all.len() {
        let (a, b) = all.split_at(cut);
        assert_eq!(read(&mut reader(), &[a, b]), told, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = all.chunks(1).collect();
    assert_eq!(read(&mut reader(), &bytes), told);
}

#[test]
fn holes_in_content_are_counted_and_others_lose_the_frames() {
    let data = frame(kind::DATA, flag::END_STREAM, 1, &[7; 100]);
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let room = frame(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 9]);
    let told = read(&mut reader(), &[&data[..50], b"<30", &data[80..], &room]);
    assert_eq!(told, ["data 1 41", "data 1 30 missing", "data 1 29 end", "room 3 Some(9)"]);
    let told = read(&mut reader(), &[&data[..50], b"<59", &room]);
    assert_eq!(told, ["data 1 41", "data 1 59 end missing", "room 3 Some(9)"]);
    // Within fields: the frame's end is known, its fields are not.
    let block = frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x82; 20]);
    let told = read(&mut reader(), &[&block[..15], b"<14", &room]);
    assert_eq!(told, ["fields 1 None", "room 3 Some(9)"]);
    // Beyond it: the next segment that begins with frames.
    let both = [&ping[..], &room].concat();
    let told = read(&mut reader(), &[&data[..50], b"<60", &data[70..], b"\0\0\0 no frame", &both]);
    assert_eq!(told, ["data 1 41", "lost", "room 3 Some(9)"]);
    let told = read(&mut FrameReader::new(false, true, 100), &[&data[50..], &both]);
    assert_eq!(told, ["room 3 Some(9)"]);
}

#[test]
fn what_is_no_http2_ends_in_words() {
    let endless = frame(kind::HEADERS, 0, 1, &[0; 9]);
    let more = frame(kind::CONTINUATION, 0, 1, &[]);
    let flood = [&endless[..], &more.repeat(100)].concat();
    let large = [&endless[..], &frame(kind::CONTINUATION, 0, 1, &[0; 40_000])].concat();
    for (bytes, why) in [
        (frame(kind::SETTINGS, 0, 1, &[]), "a frame (SETTINGS) on stream 1"),
        (frame(kind::HEADERS, 0, 0, &[]), "a frame (HEADERS) on stream 0"),
        (frame(kind::PING, 0, 0, &[0; 9]), "a frame (PING) of 9 bytes"),
        (frame(kind::HEADERS, 0, 1, &[0; 1 << 17]), "a frame (HEADERS) of 131072 bytes"),
        (frame(kind::CONTINUATION, 0, 1, &[]), "a CONTINUATION frame continues nothing"),
        (
            [&endless[..], &frame(kind::DATA, 0, 1, &[])].concat(),
            "a frame (DATA) stands within the fields of stream 1",
        ),
        (
            frame(kind::HEADERS, flag::PADDED, 1, &[]),
            "a frame with fields is shorter than what stands before them",
        ),
        (flood, "a field block of 9 bytes in 65 frames"),
        (large, "a field block of 40009 bytes in 2 frames"),
    ] {
        assert_eq!(read(&mut reader(), &[&bytes]), [why]);
    }
    let mut client = FrameReader::new(true, false, 100);
    assert_eq!(
        read(&mut client, &[b"PRI * HTTP/1"]),
        ["the client does not begin with the preface of HTTP/2"]
    );
}

#[test]
fn first_bytes_tell() {
    let sniff = |pieces: &[&[u8]]| {
        let mut sniff = Sniff::default();
        pieces.iter().map(|piece| sniff.look(piece)).collect::<Vec<_>>()
    };
    let bytes: Vec<&[u8]> = PREFACE.chunks(1).collect();
    let told = sniff(&bytes);
    assert!(told[..23].iter().all(|s| *s == Sniffed::NotYet) && told[23] == Sniffed::Preface);
    assert_eq!(sniff(&[b"P", b"O"]), [Sniffed::NotYet, Sniffed::No]);
    assert_eq!(sniff(&[b"GET / HTTP/1.1\r\n"]), [Sniffed::No]);
    let settings = frame(kind::SETTINGS, 0, 0, &[0; 12]);
    assert_eq!(sniff(&[&settings[..5], &settings[5..]]), [Sniffed::NotYet, Sniffed::Settings]);
    assert_eq!(sniff(&[&[0; 4], &[0; 20]]), [Sniffed::No, Sniffed::No]);
}

#[test]
fn the_middle_of_a_connection_is_known_by_frames() {
    let request = frame(kind::HEADERS, 5, 7, &fields(&[(":method", "GET"), (":path", "/")]));
    let response = frame(kind::HEADERS, 4, 7, &fields(&[(":status", "200")]));
    let data = frame(kind::DATA, 0, 7, &[1; 50]);
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    assert_eq!(begins(&request), Some(Some(true)));
    assert_eq!(begins(&[&data[..], &response].concat()), Some(Some(false)));
    assert_eq!(begins(&ping), Some(None));
    for no in
        [&data[..], &data[..20], &[0; 60], &ping[..8], b"\0\0\x08\x06\0\0\0\0\x01", b"GET / HTTP/1.1\r\n"]
    {
        assert_eq!(begins(no), None, "{no:?}");
    }
}
