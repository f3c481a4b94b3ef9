//! A client of records: requests, rules that it breaks, windows and ends.

use super::super::{field_line, put_data_head, put_frame, put_go_away, put_varint, section_prefix};
use super::*;
use crate::h2::server::{ClientEvent, Heads, ResponseHead};
use crate::server::{CheckedFields, HttpDate, RequestLimits};

fn options() -> H3ServerOptions {
    H3ServerOptions {
        stream_window: 1000,
        connection_window: 4000,
        stream_room: 1000,
        connection_room: 4000,
        head_list: Heads::new(RequestLimits::default()).list_bytes(),
        table_capacity: 4096,
        blocked_streams: 2,
        resets_caused: 3,
        resets_at_once: 3,
    }
}

/// Both ends: bytes for the server collect in `input`.
struct Pair {
    server: H3Server,
    heads: Heads,
    input: Vec<u8>,
}

/// An event without its borrow.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Request(u32, String, bool),
    Data(u32, Vec<u8>, bool),
    Trailers(u32, Vec<(String, Vec<u8>)>),
    Refused(u32, u16),
    Reset(u32),
}

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    section_prefix(&mut out);
    fields.iter().for_each(|(name, value)| field_line(name.as_bytes(), value.as_bytes(), &mut out));
    out
}

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(frame_kind::HEADERS, &section(fields), &mut out);
    out
}

fn data(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_data_head(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(kind, payload, &mut out);
    out
}

/// A frame of one number.
fn number(kind: u64, id: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    put_varint(id, &mut payload);
    frame(kind, &payload)
}

fn goodbye(id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_go_away(id, &mut out);
    out
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];

fn with(more: &[(&'static str, &'static str)]) -> Vec<u8> {
    headers(&[&GET[..], more].concat())
}

impl Pair {
    fn new() -> Pair {
        let mut server = H3Server::new(options(), Time::ZERO);
        let out = std::mem::take(server.out());
        let Some(StreamRecord::Bytes { stream: 3, bytes: [0, 4, ..], ends: false }) =
            StreamRecord::read(&mut &out[..])
        else {
            panic!("{out:?}")
        };
        Pair { server, heads: Heads::new(RequestLimits::default()), input: Vec::new() }
    }

    /// A client whose control stream has begun.
    fn begun() -> Pair {
        let mut pair = Pair::new();
        pair.send(2, &[&[0][..], &frame(frame_kind::SETTINGS, &[])].concat(), false);
        assert_eq!(pair.told(), []);
        pair.sent();
        pair
    }

    fn send(&mut self, stream: u64, bytes: &[u8], ends: bool) {
        StreamRecord::Bytes { stream, bytes, ends }.write(&mut self.input);
    }

    fn told(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some(event) = self.server.next(&mut rest, &mut self.heads) {
            told.push(match event {
                ClientEvent::Request(request) => {
                    let head = request.head.expect("a sound head");
                    Told::Request(
                        request.stream,
                        format!("{} {}", head.method_name(), head.path()),
                        request.ends,
                    )
                }
                ClientEvent::Data { stream, content, ends } => Told::Data(stream, content.to_vec(), ends),
                ClientEvent::Trailers { stream, fields } => Told::Trailers(stream, fields),
                ClientEvent::Refused { stream, status } => Told::Refused(stream, status),
                ClientEvent::Reset { stream } => Told::Reset(stream),
            });
        }
        told
    }

    fn sent(&mut self) -> Vec<(String, Vec<u8>)> {
        let out = std::mem::take(self.server.out());
        let (mut rest, mut sent) = (&out[..], Vec::new());
        while let Some(record) = StreamRecord::read(&mut rest) {
            sent.push(match record {
                StreamRecord::Bytes { stream, bytes, ends } => {
                    (format!("{stream} bytes {ends}"), bytes.to_vec())
                }
                other => (format!("{other:?}"), Vec::new()),
            });
        }
        assert!(rest.is_empty());
        sent
    }

    /// The code that the connection ended with.
    fn code(&mut self) -> &'static str {
        self.told();
        self.server.error().map_or("none", |error| error.code.name())
    }
}

#[test]
fn a_request_has_its_response() {
    let mut pair = Pair::begun();
    pair.send(0, &with(&[]), true);
    assert_eq!(pair.told(), [Told::Request(0, "GET /".to_owned(), true)]);
    let mut blocks = response_blocks();
    let head =
        ResponseHead { status: 200, content_type: None, length: Some(2), fields: &CheckedFields::new() };
    let block = blocks.of(&head, &HttpDate::from_unix(0)).to_vec();
    pair.server.respond(0, &block, false);
    assert_eq!(pair.server.write_data(0, b"hi", true), 2);
    let sent = pair.sent();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0].0, "0 bytes false");
    assert_eq!(sent[1], ("0 bytes true".to_owned(), vec![0, 2, b'h', b'i']));
    let mut fields = Vec::new();
    let mut decoder = QpackDecoder::new(0);
    decoder
        .decode(0, &sent[0].1[2..], 1 << 16, |name, value| {
            fields.push((
                String::from_utf8_lossy(name).into_owned(),
                String::from_utf8_lossy(value).into_owned(),
            ));
        })
        .expect("a sound section");
    assert_eq!(fields[0], (":status".to_owned(), "200".to_owned()));
    assert_eq!(fields[2], ("content-length".to_owned(), "2".to_owned()));
    assert_eq!(pair.server.room(0), None, "it is over");
}

/// However a stream is cut, its events are the same.
#[test]
fn any_cut_means_the_same() {
    let post = [&with(&[("content-length", "5")])[..], &data(b"hel"), &frame(0x21, b"grease"), &data(b"lo")]
        .concat();
    let stream = [&post[..], &headers(&[("x-end", "1")])].concat();
    for cut in 1..stream.len() {
        let mut pair = Pair::begun();
        let mut pieces = stream.chunks(cut).peekable();
        let mut told = Vec::new();
        while let Some(piece) = pieces.next() {
            pair.send(0, piece, pieces.peek().is_none());
            told.extend(pair.told());
        }
        let content: Vec<u8> = told
            .iter()
            .filter_map(
                |told| if let Told::Data(0, content, false) = told { Some(content.clone()) } else { None },
            )
            .flatten()
            .collect();
        assert_eq!(content, b"hello", "cut at {cut}");
        assert_eq!(told.first(), Some(&Told::Request(0, "GET /".to_owned(), false)));
        assert_eq!(told.last(), Some(&Told::Trailers(0, vec![("x-end".to_owned(), b"1".to_vec())])));
    }
}

#[test]
fn a_whole_body_is_taken_at_once() {
    let mut pair = Pair::begun();
    pair.send(0, &[with(&[]), data(b"hello")].concat(), true);
    let input = std::mem::take(&mut pair.input);
    let mut rest = &input[..];
    let Some(ClientEvent::Request(request)) = pair.server.next(&mut rest, &mut pair.heads) else { panic!() };
    assert!(!request.ends);
    assert_eq!(pair.server.whole_body(0, 4, &mut rest), None, "more than wanted");
    assert_eq!(pair.server.whole_body(0, 5, &mut rest), Some(&b"hello"[..]));
    assert!(rest.is_empty() && pair.server.next(&mut rest, &mut pair.heads).is_none());
}

/// Rules of messages (RFC 9114, section 4.1.2): the stream ends, the connection does not.
#[test]
fn malformed_requests_end_their_stream() {
    let cases: [Vec<u8>; 8] = [
        headers(&GET[..3]),
        headers(&[&GET[..], &GET[..1]].concat()),
        with(&[("Upper", "1")]),
        with(&[("connection", "close")]),
        with(&[("te", "gzip")]),
        with(&[(":late", "1")]),
        headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "")]),
        with(&[("content-length", "3")]),
    ];
    for request in cases {
        let mut pair = Pair::begun();
        pair.send(0, &request, true);
        assert_eq!(pair.told().last(), Some(&Told::Refused(0, 400)), "{request:?}");
        let sent = pair.sent();
        let reset = format!("Reset {{ stream: 0, code: {} }}", H3Code::MESSAGE_ERROR.0);
        assert!(sent.iter().any(|(what, _)| *what == reset), "{sent:?}");
        pair.send(4, &with(&[]), true);
        assert_eq!(pair.told(), [Told::Request(1, "GET /".to_owned(), true)]);
    }
    let mut pair = Pair::begun();
    pair.send(0, &[with(&[("content-length", "3")]), data(b"four")].concat(), false);
    assert_eq!(pair.told().last(), Some(&Told::Reset(0)));
    pair.send(4, b"", true);
    assert_eq!(pair.told(), [Told::Reset(1)], "nothing is no request");
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let long = "x".repeat(options().head_list as usize + 1);
    let mut pair = Pair::begun();
    pair.send(0, &headers(&[GET[0], GET[1], GET[2], GET[3], ("x", &long)]), true);
    assert_eq!(pair.told(), [Told::Refused(0, 431)]);
    let sent = pair.sent();
    assert!(sent.iter().any(|(what, _)| what == "0 bytes true"), "{sent:?}");
    pair.send(4, &with(&[]), true);
    assert_eq!(pair.told(), [Told::Request(1, "GET /".to_owned(), true)]);
}

/// A stream, what comes on it, and whether it ends then.
type StreamBytes = (u64, Vec<u8>, bool);

/// What ends a connection, and with which code (RFC 9114, section 8.1).
#[test]
fn broken_rules_end_the_connection() {
    let control =
        |frames: &[u8]| vec![(2, [&[0][..], &frame(frame_kind::SETTINGS, &[]), frames].concat(), false)];
    let on_request = |bytes: Vec<u8>| vec![(0, bytes, false)];
    let cases: Vec<(&str, Vec<StreamBytes>)> = vec![
        ("H3_MISSING_SETTINGS", vec![(2, [&[0][..], &goodbye(0)].concat(), false)]),
        ("H3_FRAME_UNEXPECTED", control(&frame(frame_kind::SETTINGS, &[]))),
        ("H3_FRAME_UNEXPECTED", control(&data(b"x"))),
        ("H3_FRAME_UNEXPECTED", control(&frame(6, b"x"))),
        ("H3_SETTINGS_ERROR", vec![(2, [&[0][..], &frame(frame_kind::SETTINGS, &[2, 0])].concat(), false)]),
        (
            "H3_SETTINGS_ERROR",
            vec![(2, [&[0][..], &frame(frame_kind::SETTINGS, &[1, 0, 1, 0])].concat(), false)],
        ),
        ("H3_ID_ERROR", control(&[goodbye(4), goodbye(8)].concat())),
        (
            "H3_ID_ERROR",
            control(&[number(frame_kind::MAX_PUSH_ID, 4), number(frame_kind::MAX_PUSH_ID, 3)].concat()),
        ),
        ("H3_ID_ERROR", control(&number(frame_kind::CANCEL_PUSH, 1))),
        ("H3_FRAME_ERROR", control(&frame(frame_kind::MAX_PUSH_ID, &[1, 1]))),
        (
            "H3_CLOSED_CRITICAL_STREAM",
            vec![(2, [&[0][..], &frame(frame_kind::SETTINGS, &[])].concat(), true)],
        ),
        ("H3_CLOSED_CRITICAL_STREAM", vec![(2, vec![2], true)]),
        ("H3_CLOSED_CRITICAL_STREAM", vec![(2, vec![3], true)]),
        ("H3_STREAM_CREATION_ERROR", vec![(2, vec![1, 0], false)]),
        ("H3_STREAM_CREATION_ERROR", vec![(2, vec![2], false), (6, vec![2], false)]),
        ("H3_FRAME_UNEXPECTED", on_request(data(b"x"))),
        ("H3_FRAME_UNEXPECTED", on_request(frame(frame_kind::SETTINGS, &[]))),
        ("H3_FRAME_UNEXPECTED", on_request(frame(frame_kind::PUSH_PROMISE, &[0]))),
        ("H3_FRAME_UNEXPECTED", on_request(frame(2, b"x"))),
        ("H3_FRAME_UNEXPECTED", on_request([with(&[]), headers(&[("x", "1")]), data(b"x")].concat())),
        (
            "H3_FRAME_UNEXPECTED",
            on_request([with(&[]), headers(&[("x", "1")]), headers(&[("x", "1")])].concat()),
        ),
        ("H3_FRAME_ERROR", vec![(0, with(&[])[..5].to_vec(), true)]),
        ("H3_FRAME_ERROR", vec![(0, [with(&[]), data(b"more")[..3].to_vec()].concat(), true)]),
        ("QPACK_DECOMPRESSION_FAILED", on_request(frame(frame_kind::HEADERS, &[0, 0, 0xff, 0xff]))),
        (
            "QPACK_DECOMPRESSION_FAILED",
            [0, 4, 8].map(|stream| (stream, frame(frame_kind::HEADERS, &[2, 0, 0x80]), false)).to_vec(),
        ),
        ("QPACK_ENCODER_STREAM_ERROR", vec![(2, vec![2, 0x3f, 0xff, 0xff, 0x03], false)]),
        ("QPACK_DECODER_STREAM_ERROR", vec![(2, vec![3, 0x80], false)]),
        ("QPACK_DECODER_STREAM_ERROR", vec![(2, vec![3, 0x01], false)]),
    ];
    for (code, streams) in cases {
        let mut pair = Pair::new();
        for (stream, bytes, ends) in &streams {
            pair.send(*stream, bytes, *ends);
        }
        assert_eq!(pair.code(), code, "{streams:?}");
        let sent = pair.sent();
        assert!(sent.last().is_some_and(|(what, _)| what.starts_with("Close")), "{sent:?}");
    }
}

#[test]
fn what_a_client_may_do_ends_nothing() {
    let mut pair = Pair::new();
    pair.send(2, &[0], false);
    pair.send(2, &frame(frame_kind::SETTINGS, &[0x40, 0x55, 1]), false);
    pair.send(
        2,
        &[goodbye(8), goodbye(4), number(frame_kind::MAX_PUSH_ID, 3), frame(0x21, b"grease")].concat(),
        false,
    );
    pair.send(6, &[0x40, 0x21], false);
    pair.send(10, &[3, 0x40, 0x7f, 1], false);
    assert_eq!(pair.code(), "none");
}

#[test]
fn cancelled_requests_have_a_limit() {
    let mut pair = Pair::begun();
    pair.server.begin_turn(Time::ZERO);
    for n in 0..4u64 {
        pair.send(n * 4, &with(&[]), true);
        StreamRecord::Stop { stream: n * 4, code: H3Code::REQUEST_CANCELLED.0 }.write(&mut pair.input);
    }
    assert_eq!(pair.code(), "H3_EXCESSIVE_LOAD");
    assert_eq!(pair.server.take_spent().1, 4);
}

#[test]
fn windows_bound_what_is_written_and_read() {
    let mut pair = Pair::begun();
    pair.send(0, &with(&[]), false);
    pair.told();
    assert_eq!(pair.server.room(0), Some(1000));
    assert_eq!(pair.server.write_data(0, &[7; 5000], true), 1000);
    assert_eq!(pair.server.room(0), Some(0));
    StreamRecord::Room { stream: 0, bytes: 1003 }.write(&mut pair.input);
    pair.told();
    assert_eq!(pair.server.room(0), Some(1000));
    pair.sent();
    pair.send(0, &data(&[1; 600]), false);
    pair.told();
    assert_eq!(pair.sent(), [], "nobody has read it");
    pair.server.release(0, 600);
    let sent = pair.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].0.starts_with("Room { stream: 0, bytes: 6"), "{sent:?}");
}

#[test]
fn a_goodbye_names_the_last_request() {
    let mut pair = Pair::begun();
    pair.send(0, &with(&[]), true);
    pair.told();
    pair.server.say_goodbye();
    pair.send(4, &with(&[]), true);
    assert_eq!(pair.told().len(), 1, "the client does not know yet");
    pair.server.say_goodbye();
    let sent = pair.sent();
    assert_eq!(sent.last(), Some(&("3 bytes false".to_owned(), vec![7, 1, 8])));
    pair.send(8, &with(&[]), true);
    assert_eq!(pair.told(), []);
    let rejected = format!("Reset {{ stream: 8, code: {} }}", H3Code::REQUEST_REJECTED.0);
    assert!(pair.sent().iter().any(|(what, _)| *what == rejected));
    pair.server.write_data(0, b"x", true);
    assert!(!pair.server.is_over());
    pair.server.write_data(1, b"x", true);
    assert!(pair.server.is_over(), "all requests have their responses");
    assert!(
        pair.sent()
            .last()
            .is_some_and(|(what, _)| *what == format!("Close {{ code: {} }}", H3Code::NO_ERROR.0))
    );
}

/// Entries that the client inserts are used by the sections that refer to them.
#[test]
fn the_dynamic_table_is_read() {
    let mut pair = Pair::begun();
    // Capacity 220, then `x: 1` as a literal.
    pair.send(6, &[2, 0x3f, 0xbd, 0x01, 0x41, b'x', 1, b'1'], false);
    let mut request = section(&GET);
    // Required Insert Count 1, Base 1, and the newest entry.
    request[0] = 2;
    request.push(0x80);
    pair.send(0, &frame(frame_kind::HEADERS, &request), true);
    assert_eq!(pair.told(), [Told::Request(0, "GET /".to_owned(), true)]);
    let decoder: Vec<u8> = pair
        .sent()
        .into_iter()
        .filter(|(what, _)| what == "7 bytes false")
        .flat_map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(decoder, [3, 1, 0x80], "an increment, and the section acknowledged");
}

/// The instruction that inserts `x: 1`.
const INSERT: [u8; 4] = [0x41, b'x', 1, b'1'];

/// The head of a POST that refers to as many entries as were inserted, and so waits for them.
fn waiting(inserts: u8) -> Vec<u8> {
    let mut request = section(&[(":method", "POST"), GET[1], GET[2], GET[3]]);
    request[0] = inserts + 1;
    request.push(0x80);
    frame(frame_kind::HEADERS, &request)
}

impl Pair {
    /// A client whose encoder has made a table.
    fn with_table() -> Pair {
        let mut pair = Pair::begun();
        pair.send(6, &[2, 0x3f, 0xbd, 0x01], false);
        assert_eq!(pair.told(), []);
        pair
    }

    /// The bytes that the server wants once more come again. Returns how many.
    fn come_again(&mut self) -> usize {
        let out = std::mem::take(self.server.out());
        let (mut rest, mut came) = (&out[..], 0);
        while let Some(record) = StreamRecord::read(&mut rest) {
            if let StreamRecord::Again { bytes, .. } = record {
                record.write(&mut self.input);
                came += bytes.len();
            }
        }
        came
    }
}

#[test]
fn rfc9204_2_1_2_streams_wait_for_entries_and_lose_nothing() {
    let mut pair = Pair::with_table();
    pair.send(0, &[waiting(1), data(b"one")].concat(), false);
    pair.send(0, &data(b"two"), false);
    pair.send(4, &with(&[]), true);
    assert_eq!(pair.told(), [Told::Request(1, "GET /".to_owned(), true)], "others go on");
    assert_eq!(pair.server.head_since(), Some(Time::ZERO), "it counts as a head that has not come");
    pair.send(6, &INSERT, false);
    assert_eq!(pair.told(), []);
    let again = pair.come_again();
    assert_eq!(again, [waiting(1), data(b"one"), data(b"two")].concat().len());
    // These were sent before the others came back: they are next.
    let mut input = std::mem::take(&mut pair.input);
    pair.send(0, &data(b"three"), false);
    pair.send(0, &[], true);
    pair.input.append(&mut input);
    let request = Told::Request(0, "POST /".to_owned(), false);
    let content = |bytes: &[u8], ends| Told::Data(0, bytes.to_vec(), ends);
    assert_eq!(pair.told(), [request, content(b"one", false), content(b"two", false)]);
    assert_eq!(pair.come_again(), data(b"three").len());
    assert_eq!(pair.told(), [content(b"three", true)]);
    assert!(pair.server.error().is_none() && pair.server.head_since().is_none());
}

#[test]
fn rfc9204_2_1_2_trailers_wait_too() {
    let mut pair = Pair::with_table();
    let trailers = frame(frame_kind::HEADERS, &[3, 0, 0x80]);
    pair.send(0, &[waiting(1), data(b"x"), trailers].concat(), true);
    assert_eq!(pair.told(), []);
    pair.send(6, &INSERT, false);
    assert_eq!(pair.told(), []);
    pair.come_again();
    let told = [Told::Request(0, "POST /".to_owned(), false), Told::Data(0, b"x".to_vec(), false)];
    assert_eq!(pair.told(), told);
    assert_eq!(pair.come_again(), 0);
    pair.send(6, &[0x41, b'y', 1, b'2'], false);
    assert_eq!(pair.told(), []);
    pair.come_again();
    assert_eq!(pair.told(), [Told::Trailers(0, vec![("y".to_owned(), b"2".to_vec())])]);
}

/// Each stream that waits and is given up leaves nothing behind: neither its place nor room of the
/// connection that was never taken.
#[test]
fn streams_that_wait_and_are_given_up_leave_nothing() {
    let mut pair = Pair::with_table();
    let (mut room, mut sent) = (0, 0);
    for nth in 0..200 {
        let bytes = [waiting(1), data(&[b'x'; 50])].concat();
        sent += bytes.len() as u64;
        pair.server.begin_turn(Time::ZERO);
        pair.send(nth * 4, &bytes, false);
        StreamRecord::Reset { stream: nth * 4, code: 0x10c }.write(&mut pair.input);
        assert_eq!(pair.told(), [Told::Reset(nth as u32)]);
        let out = std::mem::take(pair.server.out());
        let mut rest = &out[..];
        while let Some(record) = StreamRecord::read(&mut rest) {
            match record {
                StreamRecord::Room { stream: ALL_STREAMS, bytes } => room += bytes,
                StreamRecord::Again { .. } => panic!("it is gone"),
                _ => {}
            }
        }
        StreamRecord::Room { stream: 7, bytes: 100 }.write(&mut pair.input);
    }
    let window = u64::from(options().connection_window);
    assert!(room <= sent && room + window / 2 + 1 >= sent, "{room} of {sent} bytes");
}
