//! The client's end of a connection, by scripts of frames.

use super::frame::{flag, put, put_reset, put_window};
use super::fuzz::{Heard, Transcript, read};
use super::limits::{BLOCK_FRAMES, IDLE_FRAMES};
use super::*;
use crate::client::Expect;

const OK: &[u8] = b"\x88";
const END: u8 = flag::END_STREAM | flag::END_HEADERS;

/// The bytes of a server.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    fn new() -> Script {
        Script::default().frame(kind::SETTINGS, 0, 0, b"").frame(kind::SETTINGS, flag::ACK, 0, b"")
    }

    fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Script {
        put(kind, flags, stream, payload, &mut self.0);
        self
    }

    fn headers(self, stream: u32, block: &[u8]) -> Script {
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, block)
    }

    fn data(self, stream: u32, content: &[u8], ends: bool) -> Script {
        self.frame(kind::DATA, u8::from(ends), stream, content)
    }

    /// The events of eight requests, however the bytes are cut.
    fn read(&self) -> Transcript {
        let options = ClientOptions::default();
        let whole = read([&self.0[..]], 8, options, false);
        for parts in [false, true] {
            for step in [1, 2, 7, 10, 100] {
                assert_eq!(read(self.0.chunks(step), 8, options, parts), whole, "pieces of {step}");
            }
        }
        whole
    }

    fn error(&self) -> Code {
        self.read().error.expect("an error").code
    }

    /// How the first stream was lost.
    fn lost(&self) -> Lost {
        let read = self.read();
        assert_eq!(read.error, None);
        read.ended[0].1.lost.expect("the stream is lost").0
    }
}

fn is_malformed(script: &Script) -> bool {
    matches!(script.lost(), Lost::Malformed(_))
}

fn whole(head: &str, body: &[u8], trailers: &[(&str, &str)], status: u16) -> Heard {
    let bytes = |text: &&str| text.as_bytes().to_vec();
    Heard {
        head: head.as_bytes().to_vec(),
        body: body.to_vec(),
        trailers: trailers.iter().map(|(n, v)| (bytes(n), bytes(v))).collect(),
        ended: Some(status),
        lost: None,
    }
}

#[test]
fn responses_come_in_any_order_and_interleaved() {
    let script = Script::new()
        .headers(3, OK)
        .headers(1, b"\x8d")
        .data(3, b"hel", false)
        .data(1, b"gone", true)
        .data(3, b"lo", true)
        .frame(kind::HEADERS, END, 5, b"\x89");
    let read = script.read();
    let expected = [
        (0, whole("HTTP/2 404\r\n\r\n", b"gone", &[], 404)),
        (1, whole("HTTP/2 200\r\n\r\n", b"hello", &[], 200)),
        (2, whole("HTTP/2 204\r\n\r\n", b"", &[], 204)),
    ];
    assert_eq!(read.ended, expected);
    assert_eq!(read.error, None);
}

#[test]
fn interim_responses_padding_continuations_and_trailers_are_read() {
    let interim = b"\x08\x03103";
    let script = Script::new()
        .headers(1, interim)
        .frame(kind::HEADERS, flag::PADDED | flag::PRIORITY, 1, b"\x02\0\0\0\0\x10\x88\0\0")
        .frame(kind::CONTINUATION, 0, 1, b"")
        .frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"\0\x01a\x01b")
        .frame(kind::DATA, flag::PADDED, 1, b"\x03hi\0\0\0")
        .frame(kind::PRIORITY, 0, 1, &[0; 5])
        .frame(kind::DATA, flag::PADDED, 1, b"\0")
        .frame(0x77, 0xff, 1, b"a kind that nobody knows")
        .frame(kind::HEADERS, END, 1, b"\0\x0bgrpc-status\x010");
    let read = script.read();
    let heard = whole("HTTP/2 200\r\na: b\r\n\r\n", b"hi", &[("grpc-status", "0")], 200);
    assert_eq!(read.ended, [(0, heard)]);
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let script = Script::new().frame(kind::PING, 0, 0, b"12345678").frame(kind::PING, flag::ACK, 0, &[0; 8]);
    let control = script.read().control;
    let mut expected = Vec::new();
    put(kind::SETTINGS, flag::ACK, 0, b"", &mut expected);
    put(kind::PING, flag::ACK, 0, b"12345678", &mut expected);
    assert!(control.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    assert!(control.ends_with(&expected), "{control:?}");
}

/// RFC 9113, sections 6.5.2, 6.9 and 5.2.
#[test]
fn bodies_obey_both_windows() {
    let mut client: Client<u32> = Client::new(ClientOptions::default());
    let mut blocks = BlockCache::new();
    let mut out = Vec::new();
    let id = client.open(0, b"\x83\x84\x86", Expect::Usual, false, &mut out);
    assert_eq!(client.data_room(id), Some(16_384));
    let mut settings = Vec::new();
    super::settings::put(4, 100, &mut settings);
    let mut script = Vec::new();
    put(kind::SETTINGS, 0, 0, &settings, &mut script);
    client.read(&script, &mut blocks, &mut Nobody).unwrap();
    assert_eq!(client.data_room(id), Some(100), "the new window holds for open streams");
    client.write_data(id, 100, false, &mut out);
    assert_eq!(client.data_room(id), Some(0));
    script.clear();
    put_window(id, 70_000, &mut script);
    client.read(&script, &mut blocks, &mut Nobody).unwrap();
    for _ in 0..3 {
        client.write_data(id, 16_384, false, &mut out);
    }
    assert_eq!(client.data_room(id), Some(65_535 - 100 - 3 * 16_384), "the connection's window");
    client.write_data(id, 65_535 - 100 - 3 * 16_384, false, &mut out);
    assert!(client.is_held_up());
    script.clear();
    put_window(0, 5, &mut script);
    client.read(&script, &mut blocks, &mut Nobody).unwrap();
    assert_eq!(client.data_room(id), Some(5));
    client.cancel(id);
    assert_eq!(client.data_room(id), None);
}

/// Counts surplus responses.
struct Surplus(u64);

impl<S> ResponseSink<'_, S> for Surplus {
    fn wants_parts(&self) -> bool {
        false
    }
    fn whole(&mut self, _: S, _: &std::sync::Arc<Block>, _: &[u8]) {}
    fn begun(&mut self, _: &mut S) {}
    fn head(&mut self, _: &mut S, _: &crate::client::HeadView<'_>) {}
    fn body(&mut self, _: &mut S, _: &[u8]) {}
    fn trailers(&mut self, _: &mut S, _: crate::client::Fields<'_>) {}
    fn end(&mut self, _: S, _: u16) {}
    fn lost(&mut self, _: S, _: Lost, _: bool) {}
    fn surplus(&mut self, _: &[u8], responses: u64) {
        self.0 += responses;
    }
}

struct Nobody;

impl<S> ResponseSink<'_, S> for Nobody {
    fn wants_parts(&self) -> bool {
        false
    }
    fn whole(&mut self, _: S, _: &std::sync::Arc<Block>, _: &[u8]) {}
    fn begun(&mut self, _: &mut S) {}
    fn head(&mut self, _: &mut S, _: &crate::client::HeadView<'_>) {}
    fn body(&mut self, _: &mut S, _: &[u8]) {}
    fn trailers(&mut self, _: &mut S, _: crate::client::Fields<'_>) {}
    fn end(&mut self, _: S, _: u16) {}
    fn lost(&mut self, _: S, _: Lost, _: bool) {}
}

#[test]
fn the_servers_limits_are_obeyed() {
    let mut client: Client<u32> = Client::new(ClientOptions::default());
    let mut blocks = BlockCache::new();
    assert_eq!(client.room(), 100, "before its settings");
    let mut settings = Vec::new();
    super::settings::put(3, 2, &mut settings);
    let mut script = Vec::new();
    put(kind::SETTINGS, 0, 0, &settings, &mut script);
    client.read(&script, &mut blocks, &mut Nobody).unwrap();
    let mut out = Vec::new();
    for n in 0..2 {
        client.open(n, OK, Expect::Usual, true, &mut out);
    }
    assert_eq!((client.room(), client.settings().max_concurrent_streams), (0, Some(2)));
    let mut script = Vec::new();
    put(kind::GOAWAY, 0, 0, b"\0\0\0\x01\0\0\0\0bye", &mut script);
    put_reset(1, Code::REFUSED_STREAM, &mut script);
    client.read(&script, &mut blocks, &mut Nobody).unwrap();
    assert_eq!((client.go_away(), client.refused()), (Some(Code::NO_ERROR), vec![3]));
    assert_eq!((client.room(), client.open_streams()), (0, 1));
}

#[test]
fn requests_of_a_row_are_those_opened_one_by_one() {
    let block = b"\x82\x84\x86";
    for expect in [Expect::Usual, Expect::Head] {
        let mut together: Client<u32> = Client::new(ClientOptions::default());
        let mut singly: Client<u32> = Client::new(ClientOptions::default());
        let (mut all, mut each) = (Vec::new(), Vec::new());
        let mut kept = 0;
        for count in [0, 1, 7, 1, 64, 100] {
            together.open_together(&kept, count, block, expect, &mut all);
            for n in 0..count {
                singly.open(kept + n, block, expect, true, &mut each);
            }
            kept += count;
        }
        assert_eq!(all, each);
        assert_eq!((together.open_streams(), together.ids()), (singly.open_streams(), singly.ids()));
        for id in singly.ids().into_iter().rev() {
            assert_eq!(together.take(id), singly.take(id), "stream {id}");
        }
    }
}

#[test]
fn a_block_that_comes_again_is_not_decoded_again() {
    let script = Script::new().frame(kind::HEADERS, END, 1, OK).frame(kind::HEADERS, END, 3, OK);
    let mut blocks = BlockCache::new();
    let mut client: Client<u32> = Client::new(ClientOptions::default());
    let mut out = Vec::new();
    for _ in 0..2 {
        client.open(0, OK, Expect::Usual, true, &mut out);
    }
    client.read(&script.0, &mut blocks, &mut Nobody).unwrap();
    assert_eq!((blocks.decoded(), client.open_streams()), (1, 0));
}

#[test]
fn what_breaks_a_stream_costs_no_other() {
    let long = |name: &str, value: &str| {
        let mut block = OK.to_vec();
        field(name.as_bytes(), value.as_bytes(), &mut block);
        block
    };
    let wrong = [
        Script::new().headers(1, &long("Upper", "x")),
        Script::new().headers(1, &long("a", "x\r\ny: z")),
        Script::new().headers(1, &long("a", " x")),
        Script::new().headers(1, &long("connection", "close")),
        Script::new().headers(1, &long("transfer-encoding", "chunked")),
        Script::new().headers(1, &long("content-length", "1x")),
        Script::new().headers(1, &long(":status", "200")),
        Script::new().headers(1, b"\x82"),
        Script::new().headers(1, b"\x08\x0299"),
        Script::new().headers(1, b"\x08\x03101"),
        Script::new().frame(kind::HEADERS, END, 1, b"\x08\x03100"),
        Script::new().data(1, b"x", true),
        Script::new().headers(1, &long("content-length", "5")).data(1, b"four", true),
        Script::new().headers(1, &long("content-length", "5")).data(1, b"sixsix", false),
        Script::new().frame(kind::HEADERS, END, 1, &long("content-length", "5")),
        Script::new().headers(1, OK).headers(1, b"\0\x01a\x01b"),
        Script::new().headers(1, OK).frame(kind::HEADERS, END, 1, OK),
        Script::new().frame(kind::WINDOW_UPDATE, 0, 1, &[0; 4]),
        Script::new().frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
    ];
    for (n, script) in wrong.into_iter().enumerate() {
        let script = script.frame(kind::HEADERS, END, 3, OK);
        assert!(is_malformed(&script), "case {n}");
        assert_eq!(script.read().ended[1].1.ended, Some(200), "case {n}");
    }
}

#[test]
fn a_response_to_head_announces_a_length_and_has_no_body() {
    let mut block = OK.to_vec();
    field(b"content-length", b"5", &mut block);
    let read = Script::new().frame(kind::HEADERS, END, 15, &block).read();
    assert_eq!(read.ended[0].0, 7);
    assert_eq!(read.ended[0].1.ended, Some(200));
    for announced in [OK, &block] {
        let read = Script::new().headers(15, announced).data(15, b"hello", true).read();
        assert!(matches!(read.ended[0].1.lost, Some((Lost::Malformed(_), _))), "it has content");
    }
}

/// RFC 9113, sections 5.1 and 8.1: behind the end of a response only RST_STREAM, WINDOW_UPDATE and PRIORITY may follow.
#[test]
fn what_follows_a_whole_response_is_surplus() {
    let ok = || Script::new().headers(1, OK).data(1, b"hello", true);
    let mut reset = ok();
    put_reset(1, Code::NO_ERROR, &mut reset.0);
    let may_follow = [
        ok(),
        reset,
        ok().frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]),
        ok().frame(2, 0, 1, &[0, 0, 0, 0, 9]),
    ];
    let surplus = [
        (ok().headers(1, OK).data(1, b"hello", true), 1),
        (ok().frame(kind::HEADERS, END, 1, OK).frame(kind::HEADERS, END, 1, OK), 2),
        (ok().headers(1, OK).headers(1, OK), 2),
        (ok().data(1, b"more", true), 1),
        (ok().data(1, b"more", false).data(1, b"and more", true), 1),
        (ok().data(1, b"", false).data(1, b"x", true).data(1, b"y", true), 2),
        (ok().headers(1, b"\x08\x03103").headers(1, OK).data(1, b"x", true), 1),
        (Script::new().frame(kind::HEADERS, END, 1, OK).frame(kind::HEADERS, END, 1, OK), 1),
        (ok().headers(3, OK).headers(1, OK).data(3, b"x", true).data(1, b"y", true), 1),
    ];
    let cases = may_follow.into_iter().map(|script| (script, 0)).chain(surplus);
    for (n, (script, surplus)) in cases.enumerate() {
        let read = script.frame(kind::HEADERS, END, 5, OK).read();
        assert_eq!((read.error, read.surplus), (None, surplus), "case {n}");
        assert!(
            read.ended.iter().any(|(stream, heard)| *stream == 2 && heard.ended == Some(200)),
            "case {n}"
        );
    }
}

/// RFC 7541, section 2.3.2: each field block changes the table, also that of a surplus response.
#[test]
fn a_surplus_response_keeps_the_table() {
    // A literal with indexing, before the server knows our settings, and a reference to it.
    let script = Script::default().frame(kind::SETTINGS, 0, 0, b"").frame(kind::HEADERS, END, 1, OK);
    let script =
        script.frame(kind::HEADERS, END, 1, b"\x88\x40\x01a\x01b").frame(kind::HEADERS, END, 3, b"\x88\xbe");
    let read = script.read();
    assert_eq!((read.error, read.surplus), (None, 1));
    assert_eq!(read.ended[1].1.head, b"HTTP/2 200\r\na: b\r\n\r\n");
}

/// What left the server before our RST_STREAM arrived is no fault of its (RFC 9113, section 5.1).
#[test]
fn late_frames_on_streams_that_we_reset_are_forgiven() {
    let mut client: Client<u32> = Client::new(ClientOptions::default());
    let (mut blocks, mut out, mut heard) = (BlockCache::new(), Vec::new(), Surplus(0));
    let resets = super::limits::RESETS_KNOWN as u32 + 2;
    let ids: Vec<u32> = (0..resets).map(|n| client.open(n, OK, Expect::Usual, true, &mut out)).collect();
    let whole = client.open(resets, OK, Expect::Usual, true, &mut out);
    for id in &ids {
        assert!(client.cancel(*id).is_some());
    }
    let mut script = Script::new();
    for id in [ids[0], ids[1], ids[2], ids[ids.len() - 1], whole] {
        script = script.headers(id, OK).data(id, b"late", true);
    }
    client.read(&script.0, &mut blocks, &mut heard).unwrap();
    assert_eq!(heard.0, 0);
    let again = Script::default().headers(whole, OK).data(whole, b"again", true);
    client.read(&again.0, &mut blocks, &mut heard).unwrap();
    assert_eq!(heard.0, 1);
}

#[test]
fn resets_say_why_and_later_frames_are_ignored() {
    let mut script = Script::new();
    put_reset(1, Code::REFUSED_STREAM, &mut script.0);
    assert_eq!(script.lost(), Lost::Reset(Code::REFUSED_STREAM.into()));
    let mut late = Script::new().frame(kind::HEADERS, END, 1, OK).headers(1, OK).data(1, b"x", true);
    put_reset(1, Code::NO_ERROR, &mut late.0);
    let read = late.read();
    assert_eq!((read.ended.len(), read.error), (1, None), "RFC 9113, 8.1: no failure");
    assert_eq!(read.surplus, 1, "a second response");
}

#[test]
fn what_breaks_a_connection() {
    let cases = [
        (Script::default().frame(kind::PING, 0, 0, &[0; 8]), Code::PROTOCOL_ERROR),
        (Script(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::SETTINGS, 0, 0, &[0; 5]), Code::FRAME_SIZE_ERROR),
        (Script::new().frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Code::FRAME_SIZE_ERROR),
        (Script::new().frame(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1]), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), Code::FLOW_CONTROL_ERROR),
        (Script::new().frame(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::SETTINGS, 0, 1, b""), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::PING, 0, 0, b"short"), Code::FRAME_SIZE_ERROR),
        (Script::new().frame(kind::GOAWAY, 0, 0, b"short"), Code::FRAME_SIZE_ERROR),
        (Script::new().frame(kind::RST_STREAM, 0, 99, &[0; 4]), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::RST_STREAM, 0, 2, &[0; 4]), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]), Code::FLOW_CONTROL_ERROR),
        (Script::new().frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, b"\0\0\0\x02"), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::CONTINUATION, 0, 1, b""), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::HEADERS, 0, 1, OK).data(1, b"x", true), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::HEADERS, 0, 1, OK).frame(kind::PING, 0, 0, &[0; 8]), Code::PROTOCOL_ERROR),
        (Script::new().headers(99, OK), Code::PROTOCOL_ERROR),
        (Script::new().data(99, b"x", true), Code::PROTOCOL_ERROR),
        (Script::new().headers(1, b"\xbe"), Code::COMPRESSION_ERROR),
        (Script::new().headers(1, OK).frame(kind::DATA, flag::PADDED, 1, b"\x02x"), Code::PROTOCOL_ERROR),
        (Script::new().headers(1, OK).frame(kind::DATA, flag::PADDED, 1, b""), Code::PROTOCOL_ERROR),
        (Script::new().frame(kind::HEADERS, flag::PADDED | END, 1, b"\x09\x88"), Code::PROTOCOL_ERROR),
        (
            Script::new().frame(kind::GOAWAY, 0, 0, &[0; 8]).frame(
                kind::GOAWAY,
                0,
                0,
                &[0, 0, 0, 9, 0, 0, 0, 0],
            ),
            Code::PROTOCOL_ERROR,
        ),
    ];
    for (n, (script, code)) in cases.into_iter().enumerate() {
        assert_eq!(script.error(), code, "case {n}");
    }
}

/// CVE-2024-27316 and its like, CVE-2019-9512, CVE-2019-9515 and CVE-2019-9518.
#[test]
fn floods_are_cut_off() {
    let mut endless = Script::new().frame(kind::HEADERS, 0, 1, OK);
    for _ in 0..=BLOCK_FRAMES {
        endless = endless.frame(kind::CONTINUATION, 0, 1, b"");
    }
    assert_eq!(endless.error(), Code::ENHANCE_YOUR_CALM);
    let mut long = Script::new().frame(kind::HEADERS, 0, 1, OK);
    for _ in 0..BLOCK_FRAMES - 1 {
        long = long.frame(kind::CONTINUATION, 0, 1, &[0x88; 16_384]);
    }
    let at_most = read([&long.0[..]], 8, ClientOptions::default(), false);
    assert_eq!(at_most.error, None, "it may still end");
    let long = long.frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"");
    let error = read([&long.0[..]], 8, ClientOptions::default(), false).error;
    assert_eq!(error.map(|e| e.code), Some(Code::ENHANCE_YOUR_CALM));
    let floods: [(u8, u32, &[u8]); 4] =
        [(kind::PING, 0, &[0; 8]), (kind::SETTINGS, 0, b""), (kind::DATA, 1, b""), (0x50, 1, b"")];
    for (kind, stream, payload) in floods {
        let mut flood = Script::new().headers(1, OK).0;
        for _ in 0..=IDLE_FRAMES {
            put(kind, 0, stream, payload, &mut flood);
        }
        let read = read([&flood[..]], 8, ClientOptions::default(), false);
        assert_eq!(read.error.map(|e| e.code), Some(Code::ENHANCE_YOUR_CALM), "kind {kind}");
        assert!(read.control.len() <= 17 * IDLE_FRAMES as usize + 200);
    }
}

/// A block in as many frames as it takes.
fn in_frames(script: Script, ends: u8, stream: u32, block: &[u8]) -> Script {
    let mut frames = block.chunks(16_384).peekable();
    let (mut script, mut kind, mut flags) = (script, kind::HEADERS, ends);
    while let Some(piece) = frames.next() {
        let last = if frames.peek().is_none() { flag::END_HEADERS } else { 0 };
        script = script.frame(kind, flags | last, stream, piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
    script
}

/// A head or trailers with a field of so many bytes.
fn long_block(first: &[u8], bytes: usize) -> Vec<u8> {
    let mut block = first.to_vec();
    field(b"x-long", &vec![b'~'; bytes], &mut block);
    block
}

/// RFC 9113, section 10.5.1.
#[test]
fn a_field_block_that_is_too_long_costs_its_stream_alone() {
    let too_long = Lost::HeadTooLong(64 << 10);
    let mut huffman = OK.to_vec();
    // A literal whose value has 70,000 times the five bits of '0': the block is short.
    huffman.extend_from_slice(b"\0\x01a\xff\xe7\xd4\x02");
    huffman.extend_from_slice(&[0; 70_000 * 5 / 8]);
    let blocks = [
        long_block(OK, 70_000),
        long_block(&[b"\x20", OK].concat(), 70_000),
        long_block(OK, 900_000),
        huffman,
    ];
    for (n, block) in blocks.into_iter().enumerate() {
        for ends in [0, flag::END_STREAM] {
            let script = Script::new().headers(3, OK);
            let script = in_frames(script, ends, 1, &block)
                .data(3, b"hello", true)
                .data(1, b"late", true)
                .frame(kind::HEADERS, END, 5, b"\x89");
            let read = script.read();
            assert_eq!(read.error, None, "case {n}");
            let lost = Heard { lost: Some((too_long, true)), ..Heard::default() };
            let expected = [
                (0, lost),
                (1, whole("HTTP/2 200\r\n\r\n", b"hello", &[], 200)),
                (2, whole("HTTP/2 204\r\n\r\n", b"", &[], 204)),
            ];
            assert_eq!(read.ended, expected, "case {n}");
            let mut reset = Vec::new();
            put_reset(1, Code::CANCEL, &mut reset);
            assert_eq!(read.control.windows(reset.len()).filter(|w| *w == reset).count(), 1, "case {n}");
        }
    }
}

#[test]
fn trailers_that_are_too_long_cost_their_stream_alone() {
    let script = Script::new().headers(1, OK).data(1, b"hello", false);
    let script = in_frames(script, flag::END_STREAM, 1, &long_block(b"", 70_000));
    let script = script.frame(kind::HEADERS, END, 3, OK);
    assert!(is_malformed(&script));
    let read = script.read();
    assert_eq!((read.ended.len(), read.ended[1].1.ended), (2, Some(200)));
}

#[test]
fn a_block_that_is_too_long_on_a_closed_stream_changes_nothing() {
    let script = Script::new().frame(kind::HEADERS, END, 1, OK);
    let script = in_frames(script, 0, 1, &long_block(OK, 70_000)).frame(kind::HEADERS, END, 3, OK);
    let read = script.read();
    assert_eq!((read.error, read.ended.len()), (None, 2));
}

/// Until the server knows that our table has no room, a block that is dropped may have entries for it.
#[test]
fn a_dropped_block_costs_the_connection_if_the_table_may_have_changed() {
    let before = || Script::default().frame(kind::SETTINGS, 0, 0, b"");
    let block = long_block(OK, 70_000);
    assert_eq!(in_frames(before(), 0, 1, &block).error(), Code::ENHANCE_YOUR_CALM);
    // Unless the block itself empties the table.
    let emptied = long_block(&[b"\x3f\xe1\x1f\x20", OK].concat(), 70_000);
    let read = in_frames(before(), 0, 1, &emptied).read();
    assert_eq!((read.error, read.ended.len()), (None, 1));
    let grown = long_block(&[b"\x21", OK].concat(), 70_000);
    assert_eq!(in_frames(Script::new(), 0, 1, &grown).error(), Code::COMPRESSION_ERROR);
}

#[test]
fn content_beyond_a_window_is_refused_and_windows_grow_as_it_is_read() {
    let options = ClientOptions { window: 65_535 };
    let mut script = Script::new().headers(1, OK);
    for _ in 0..40 {
        script = script.data(1, &[b'x'; 10_000], false);
    }
    let script = script.data(1, b"", true);
    let read = read(script.0.chunks(5000), 8, options, false);
    assert_eq!(read.ended[0].1.body.len(), 400_000);
    let updates = read.control.windows(4).filter(|w| *w == [0, 4, 8, 0]).count();
    assert!((10..=30).contains(&updates), "{updates} window updates");
    // Without a look at our updates more than the window cannot come.
    let tiny = ClientOptions { window: 10 };
    let script = Script::new().headers(1, OK).data(1, &[b'x'; 100], true);
    let lost = super::fuzz::read([&script.0[..]], 8, tiny, false).ended[0].1.lost;
    assert!(matches!(lost, Some((Lost::Malformed(_), true))), "{lost:?}");
}
