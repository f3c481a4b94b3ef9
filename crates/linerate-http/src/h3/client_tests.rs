//! The client's machine against a server that is a list of frames.

use super::*;
use crate::client::{Expect, Fields, HeadView};
use crate::h2::{Block, BlockCache, Lost, ResponseSink};
use std::sync::Arc;

/// Hears of responses, in words.
#[derive(Default)]
struct Heard {
    parts: bool,
    lines: Vec<String>,
}

impl<'i> ResponseSink<'i, u32> for Heard {
    fn wants_parts(&self) -> bool {
        self.parts
    }

    fn whole(&mut self, stream: u32, head: &Arc<Block>, body: &'i [u8]) {
        self.lines.push(format!("{stream} whole {} {}", head.status(), body.escape_ascii()));
    }

    fn interim(&mut self, stream: &mut u32, status: u16) {
        self.lines.push(format!("{stream} interim {status}"));
    }

    fn begun(&mut self, _: &mut u32) {}

    fn head(&mut self, stream: &mut u32, head: &HeadView<'_>) {
        self.lines.push(format!("{stream} head {}", head.status()));
    }

    fn body(&mut self, stream: &mut u32, piece: &[u8]) {
        self.lines.push(format!("{stream} body {}", piece.escape_ascii()));
    }

    fn trailers(&mut self, stream: &mut u32, mut fields: Fields<'_>) {
        let (name, value) = fields.next().unwrap();
        self.lines.push(format!("{stream} trailer {}={}", name.escape_ascii(), value.escape_ascii()));
    }

    fn end(&mut self, stream: u32, status: u16) {
        self.lines.push(format!("{stream} end {status}"));
    }

    fn lost(&mut self, stream: u32, how: Lost, begun: bool) {
        self.lines.push(format!("{stream} lost {how:?} begun {begun}"));
    }
}

fn section(fields: &[(&str, &str)], out: &mut Vec<u8>) {
    let mut section = Vec::new();
    section_prefix(&mut section);
    fields.iter().for_each(|(n, v)| field_line(n.as_bytes(), v.as_bytes(), &mut section));
    put_frame(frame_kind::HEADERS, &section, out);
}

fn response(fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    section(fields, &mut out);
    if !body.is_empty() {
        put_data_head(body.len() as u64, &mut out);
        out.extend_from_slice(body);
    }
    out
}

struct H3ClientBed {
    client: H3Client<u32>,
    blocks: BlockCache,
    heard: Heard,
}

impl H3ClientBed {
    /// With so many requests in flight.
    fn of(requests: u32) -> H3ClientBed {
        let mut client = H3Client::default();
        for n in 0..requests {
            assert_eq!(client.open(n, Expect::Usual), u64::from(n) * 4);
        }
        H3ClientBed { client, blocks: BlockCache::new(), heard: Heard::default() }
    }

    fn read(&mut self, id: u64, bytes: &[u8], ends: bool) -> Result<(), H3Code> {
        // What is told lives no longer than this.
        let mut heard = Heard { parts: self.heard.parts, lines: Vec::new() };
        let read = self.client.read(id, bytes, ends, &mut self.blocks, &mut heard);
        self.heard.lines.append(&mut heard.lines);
        read.map_err(|error| error.code)
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.heard.lines)
    }
}

#[test]
fn a_response_in_one_piece_is_told_at_once_and_in_any_order() {
    let mut bed = H3ClientBed::of(3);
    let hello = response(&[(":status", "200"), ("content-length", "5")], b"hello");
    bed.read(8, &hello, true).unwrap();
    bed.read(0, &hello, true).unwrap();
    bed.read(4, &response(&[(":status", "204")], b""), true).unwrap();
    assert_eq!(bed.lines(), ["2 whole 200 hello", "0 whole 200 hello", "1 whole 204 "]);
    assert_eq!((bed.client.open_streams(), bed.blocks.decoded()), (0, 2));
}

#[test]
fn parts_come_as_they_come_with_interim_responses_and_trailers() {
    let mut stream = Vec::new();
    section(&[(":status", "103")], &mut stream);
    stream.extend(response(&[(":status", "200")], b"ab"));
    put_frame(0x21, b"grease", &mut stream);
    section(&[("x-sum", "7")], &mut stream);
    for step in 1..=stream.len() {
        let mut bed = H3ClientBed::of(1);
        for piece in stream.chunks(step) {
            bed.read(0, piece, false).unwrap();
        }
        assert!(bed.client.in_response());
        bed.read(0, b"", true).unwrap();
        let lines = bed.lines().join("; ").replace("0 body a; 0 body b", "0 body ab");
        assert_eq!(lines, "0 interim 103; 0 head 200; 0 body ab; 0 trailer x-sum=7; 0 end 200", "{step}");
        assert!(!bed.client.in_response());
    }
}

#[test]
fn rfc9114_4_1_2_malformed_responses_cost_their_stream_alone() {
    let ok = (":status", "200");
    let cases: [(Vec<u8>, &str); 6] = [
        (response(&[ok, ("content-length", "4")], b"hello"), "differs"),
        (response(&[ok, ("content-length", "9")], b"hello"), "differs"),
        (response(&[ok, ("content-length", "9")], b""), "ends before"),
        (response(&[ok, ("Upper", "1")], b""), "name"),
        (response(&[("x", "1")], b""), "no status"),
        (Vec::new(), "without a response"),
    ];
    for (stream, why) in cases {
        let mut bed = H3ClientBed::of(2);
        bed.read(0, &stream, true).unwrap();
        let lines = bed.lines();
        assert!(lines.len() == 1 && lines[0].contains("Malformed") && lines[0].contains(why), "{lines:?}");
        assert_eq!(*bed.client.given_up(), [(0, H3Code::MESSAGE_ERROR)]);
        assert_eq!(bed.client.open_streams(), 1);
    }
}

#[test]
fn rfc9114_4_1_frames_out_of_place_end_the_connection() {
    let mut data = Vec::new();
    put_data_head(1, &mut data);
    data.push(b'x');
    let whole = response(&[(":status", "200")], b"a");
    let mut trailed = whole.clone();
    section(&[("x", "1")], &mut trailed);
    let mut again = trailed.clone();
    section(&[("x", "1")], &mut again);
    trailed.extend_from_slice(&data);
    let mut push = Vec::new();
    put_frame(frame_kind::PUSH_PROMISE, &[0, 0, 0], &mut push);
    let cases = [
        (data, H3Code::FRAME_UNEXPECTED),
        (trailed, H3Code::FRAME_UNEXPECTED),
        (again, H3Code::FRAME_UNEXPECTED),
        (push, H3Code::ID_ERROR),
        (whole[..whole.len() - 1].to_vec(), H3Code::FRAME_ERROR),
        (vec![1, 2, 0x05, 0x00], H3Code::QPACK_DECOMPRESSION_FAILED),
    ];
    for (stream, code) in cases {
        let mut bed = H3ClientBed::of(1);
        assert_eq!(bed.read(0, &stream, true), Err(code));
        assert_eq!(bed.client.faulty(), Some(0));
    }
}

#[test]
fn a_response_to_head_has_its_length_and_no_content() {
    let mut bed = H3ClientBed::of(0);
    bed.client.open(7, Expect::Head);
    bed.read(0, &response(&[(":status", "200"), ("content-length", "5")], b""), true).unwrap();
    assert_eq!(bed.lines(), ["7 whole 200 "]);
    // Read part by part, or with its end in a later packet.
    for status in ["200", "304"] {
        let mut bed = H3ClientBed::of(0);
        bed.heard.parts = true;
        let expect = if status == "304" { Expect::Usual } else { Expect::Head };
        bed.client.open(7, expect);
        bed.read(0, &response(&[(":status", status), ("content-length", "5")], b""), false).unwrap();
        bed.read(0, b"", true).unwrap();
        assert_eq!(bed.lines().last().unwrap(), &format!("7 end {status}"));
    }
    // An empty DATA frame is no content.
    for ends in [false, true] {
        let mut bed = H3ClientBed::of(0);
        bed.client.open(7, Expect::Head);
        let mut bytes = response(&[(":status", "200"), ("content-length", "5")], b"");
        bytes.extend([0, 0]);
        bed.read(0, &bytes, ends).unwrap();
        assert_eq!(bed.client.open_streams(), u32::from(!ends));
        bed.read(0, b"", true).unwrap();
        assert_eq!(bed.lines(), ["7 whole 200 "]);
    }
}

#[test]
fn rfc9114_4_1_a_whole_response_counts_before_a_reset_without_error() {
    let announced = response(&[(":status", "200"), ("content-length", "5")], b"hello");
    for (stream, code, end) in [
        (&announced, H3Code::NO_ERROR, "0 end 200"),
        (&announced, H3Code::INTERNAL_ERROR, "0 lost Reset"),
        (&response(&[(":status", "200")], b"hello"), H3Code::NO_ERROR, "0 lost Reset"),
    ] {
        let mut bed = H3ClientBed::of(1);
        bed.read(0, stream, false).unwrap();
        let mut heard = Heard::default();
        bed.client.reset(0, code, &mut heard).unwrap();
        assert!(heard.lines[0].starts_with(end), "{:?}", heard.lines);
        assert_eq!(bed.client.open_streams(), 0);
    }
}

#[test]
fn rfc9114_5_2_goaway_names_what_is_not_processed() {
    let mut bed = H3ClientBed::of(4);
    let mut control = vec![0];
    H3Settings::default().write(&mut control);
    put_go_away(8, &mut control);
    control.iter().for_each(|byte| bed.read(3, &[*byte], false).unwrap());
    assert!(bed.client.settings().is_some());
    assert_eq!((bed.client.go_away(), bed.client.refused()), (Some(8), vec![8, 12]));
    let mut later = Vec::new();
    put_go_away(4, &mut later);
    bed.read(3, &later, false).unwrap();
    assert_eq!(bed.client.refused(), [4, 8, 12]);
    later.clear();
    put_go_away(8, &mut later);
    assert_eq!(bed.read(3, &later, false), Err(H3Code::ID_ERROR));
}

#[test]
fn rfc9114_6_2_streams_of_the_server_keep_the_rules() {
    let mut settings = vec![0];
    H3Settings::default().write(&mut settings);
    let mut odd = settings.clone();
    put_go_away(5, &mut odd);
    let mut pushes = settings.clone();
    put_frame(frame_kind::MAX_PUSH_ID, &[1], &mut pushes);
    let cases: [(&[u8], bool, H3Code); 7] = [
        (&[0, 7, 1, 0], false, H3Code::MISSING_SETTINGS),
        (&settings, true, H3Code::CLOSED_CRITICAL_STREAM),
        (&[1, 0], false, H3Code::ID_ERROR),
        (&[2, 0x40, 0], false, H3Code::QPACK_ENCODER_STREAM_ERROR),
        (&[3], true, H3Code::CLOSED_CRITICAL_STREAM),
        (&odd, false, H3Code::ID_ERROR),
        (&pushes, false, H3Code::FRAME_UNEXPECTED),
    ];
    for (bytes, ends, code) in cases {
        assert_eq!(H3ClientBed::of(0).read(3, bytes, ends), Err(code), "{bytes:?}");
    }
    let mut bed = H3ClientBed::of(0);
    bed.read(3, &settings, false).unwrap();
    assert_eq!(bed.read(7, &settings, false), Err(H3Code::STREAM_CREATION_ERROR));
    // One of a kind that we do not know, and one that ends before it says its kind.
    bed.read(11, &[0x40, 0x21, 9, 9], false).unwrap();
    bed.read(15, &[0x40], false).unwrap();
    bed.read(15, &[], true).unwrap();
    assert_eq!(*bed.client.given_up(), [(11, H3Code::STREAM_CREATION_ERROR)]);
    assert_eq!(bed.read(1, b"", false), Err(H3Code::STREAM_CREATION_ERROR));
}
