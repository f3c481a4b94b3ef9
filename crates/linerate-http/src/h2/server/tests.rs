use super::super::frame::{FRAME_HEAD, PREFACE, flag, number, put};
use super::*;
use crate::server::{CheckedFields, HttpDate, Method, RequestLimits, Version};

const END: u8 = flag::END_HEADERS | flag::END_STREAM;
const GET: &[u8] = b"\x82\x86\x84\x01\x01h";
const POST: &[u8] = b"\x83\x86\x84\x01\x01h";

fn options() -> ServerOptions {
    ServerOptions {
        streams: 4,
        stream_window: 1000,
        connection_window: 70_000,
        head_list: Heads::new(RequestLimits::default()).list_bytes(),
        resets_caused: 3,
        resets_at_once: 3,
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(kind, flags, stream, payload, &mut out);
    out
}

fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END, stream, GET)
}

fn post(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, stream, POST)
}

fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    all.iter().for_each(|(id, value)| settings::put(*id, *value, &mut payload));
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// A server and its reader of heads.
struct End {
    server: Server,
    heads: Heads,
}

impl End {
    /// The client's preface and settings have come.
    fn begun() -> End {
        let mut end = End { server: Server::new(options()), heads: Heads::new(RequestLimits::default()) };
        assert!(end.says(&[PREFACE, &settings(&[])].concat()).is_empty());
        end.server.out().clear();
        end
    }

    /// The events of whole frames, in words.
    fn says(&mut self, bytes: &[u8]) -> Vec<String> {
        let (mut rest, mut events) = (bytes, Vec::new());
        while let Some(event) = self.server.next(&mut rest, &mut self.heads) {
            events.push(match event {
                ClientEvent::Request(request) => match request.head {
                    Ok(head) => format!("{} {} {}", request.stream, head.method_name(), head.target()),
                    Err(fault) => format!("{} {}", request.stream, fault.status()),
                },
                ClientEvent::Data { stream, content, ends } => format!("{stream} {} {ends}", content.len()),
                ClientEvent::Trailers { stream, fields } => format!("{stream} trailers {}", fields.len()),
                ClientEvent::Refused { stream, status } => format!("{stream} refused {status}"),
                ClientEvent::Reset { stream } => format!("{stream} reset"),
            });
        }
        events
    }

    fn responds(&mut self, stream: u32, content: &[u8]) -> usize {
        self.server.respond(stream, b"\x88", false);
        self.server.write_data(stream, content, true)
    }

    /// The frames written since: kind, flags, stream, payload.
    fn written(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let out = std::mem::take(self.server.out());
        let (mut rest, mut frames) = (&out[..], Vec::new());
        while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
            let head = FrameHead::read(head);
            let (payload, behind) = behind.split_at(head.len as usize);
            frames.push((head.kind, head.flags, head.stream, payload.to_vec()));
            rest = behind;
        }
        frames
    }

    /// The code of the GOAWAY that ended the connection.
    fn ended(&mut self) -> Code {
        assert!(self.server.is_over());
        let (kind, _, _, payload) = self.written().pop().expect("a GOAWAY");
        assert_eq!(kind, kind::GOAWAY);
        Code(number(&payload, 4))
    }
}

#[test]
fn a_request_and_its_response() {
    let mut end = End::begun();
    assert_eq!(end.says(&[get(1), post(3)].concat()), ["1 GET /", "3 POST /"]);
    assert_eq!(end.responds(1, b"hello"), 5);
    assert_eq!(end.says(&frame(kind::DATA, 0, 3, b"abc")), ["3 3 false"]);
    assert_eq!(end.says(&frame(kind::HEADERS, END, 3, b"\x00\x01x\x01y")), ["3 trailers 1"]);
    end.responds(3, b"");
    assert_eq!(end.server.open_streams(), 0);
    // The first block says that we use no table.
    assert_eq!(
        end.written(),
        [
            (kind::HEADERS, flag::END_HEADERS, 1, b"\x20\x88".to_vec()),
            (kind::DATA, flag::END_STREAM, 1, b"hello".to_vec()),
            (kind::HEADERS, flag::END_HEADERS, 3, b"\x88".to_vec()),
            (kind::DATA, flag::END_STREAM, 3, vec![]),
        ]
    );
}

/// What RFC 9113 section 5.1 says of frames on streams in each state, and other rules of the connection.
#[test]
fn a_broken_rule_has_its_code() {
    let headers = |stream, flags| frame(kind::HEADERS, flags, stream, GET);
    let data = |stream| frame(kind::DATA, 0, stream, b"x");
    let reset = |stream| frame(kind::RST_STREAM, 0, stream, &[0; 4]);
    let window = |stream, more: u32| frame(kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    let cases: &[(&str, Vec<u8>, Code)] = &[
        ("DATA on an idle stream", data(1), Code::PROTOCOL_ERROR),
        ("RST_STREAM on an idle stream", reset(1), Code::PROTOCOL_ERROR),
        ("WINDOW_UPDATE on an idle stream", window(1, 1), Code::PROTOCOL_ERROR),
        ("an even number", headers(2, END), Code::PROTOCOL_ERROR),
        ("DATA on stream 0", data(0), Code::PROTOCOL_ERROR),
        ("HEADERS on stream 0", headers(0, END), Code::PROTOCOL_ERROR),
        ("HEADERS on stream 0, in parts", headers(0, 0), Code::PROTOCOL_ERROR),
        ("a number that was skipped", [get(5), get(3)].concat(), Code::PROTOCOL_ERROR),
        ("DATA behind a reset", [post(1), reset(1), data(1)].concat(), Code::STREAM_CLOSED),
        ("HEADERS behind a reset", [post(1), reset(1), get(1)].concat(), Code::STREAM_CLOSED),
        ("a CONTINUATION of nothing", frame(kind::CONTINUATION, END, 1, GET), Code::PROTOCOL_ERROR),
        (
            "a PING in a block",
            [headers(1, 0), frame(kind::PING, 0, 0, &[0; 8])].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a CONTINUATION of another stream",
            [headers(1, 0), frame(kind::CONTINUATION, END, 3, b"")].concat(),
            Code::PROTOCOL_ERROR,
        ),
        ("a long frame", frame(kind::DATA, 0, 1, &[0; 16_385]), Code::FRAME_SIZE_ERROR),
        ("a short PING", frame(kind::PING, 0, 0, &[0; 7]), Code::FRAME_SIZE_ERROR),
        ("SETTINGS that break off", frame(kind::SETTINGS, 0, 0, &[0; 5]), Code::FRAME_SIZE_ERROR),
        ("an ACK with settings", frame(kind::SETTINGS, 1, 0, &[0; 6]), Code::FRAME_SIZE_ERROR),
        ("a push", settings(&[(id::ENABLE_PUSH, 2)]), Code::PROTOCOL_ERROR),
        ("a window of 2^31", settings(&[(id::INITIAL_WINDOW_SIZE, 1 << 31)]), Code::FLOW_CONTROL_ERROR),
        ("a short PRIORITY on an idle stream", frame(kind::PRIORITY, 0, 1, &[0; 4]), Code::FRAME_SIZE_ERROR),
        ("PUSH_PROMISE", frame(kind::PUSH_PROMISE, 4, 1, &[0; 9]), Code::PROTOCOL_ERROR),
        ("a window that grows by nothing", window(0, 0), Code::PROTOCOL_ERROR),
        ("a window that overflows", window(0, 0x7fff_ffff), Code::FLOW_CONTROL_ERROR),
        ("padding that is too long", frame(kind::DATA, flag::PADDED, 1, b"\x05abc"), Code::PROTOCOL_ERROR),
        ("a table's index", frame(kind::HEADERS, END, 1, b"\xff\x7f"), Code::COMPRESSION_ERROR),
    ];
    for (name, bytes, code) in cases {
        let mut end = End::begun();
        end.says(bytes);
        assert_eq!(end.ended(), *code, "{name}");
    }
    let mut end = End { server: Server::new(options()), heads: Heads::new(RequestLimits::default()) };
    end.says(b"PRI * HTTP/2.1");
    assert_eq!(end.ended(), Code::PROTOCOL_ERROR);
    let mut end = End { server: Server::new(options()), heads: Heads::new(RequestLimits::default()) };
    end.says(&[PREFACE, &frame(kind::PING, 0, 0, &[0; 8])].concat());
    assert_eq!(end.ended(), Code::PROTOCOL_ERROR);
}

#[test]
fn a_broken_rule_of_a_stream_ends_the_stream() {
    let window = |more: u32| frame(kind::WINDOW_UPDATE, 0, 1, &more.to_be_bytes());
    let with = |fields: &[u8]| frame(kind::HEADERS, END, 1, &[GET, fields].concat());
    let length = frame(kind::HEADERS, flag::END_HEADERS, 1, &[POST, b"\x0f\x0d\x015"].concat());
    let data = |flags, bytes: &[u8]| frame(kind::DATA, flags, 1, bytes);
    let cases: &[(&str, Vec<u8>, Code)] = &[
        ("DATA behind the end", [get(1), data(0, b"x")].concat(), Code::STREAM_CLOSED),
        ("HEADERS behind the end", [get(1), get(1)].concat(), Code::STREAM_CLOSED),
        ("trailers that do not end", [post(1), post(1)].concat(), Code::PROTOCOL_ERROR),
        ("a pseudo-field in trailers", [post(1), get(1)].concat(), Code::PROTOCOL_ERROR),
        ("a window that grows by nothing", [get(1), window(0)].concat(), Code::PROTOCOL_ERROR),
        ("a window that overflows", [get(1), window(0x7fff_ffff)].concat(), Code::FLOW_CONTROL_ERROR),
        ("more than the window", [post(1), data(0, &[0; 1001])].concat(), Code::FLOW_CONTROL_ERROR),
        ("more than announced", [&length[..], &data(0, b"123456")].concat(), Code::PROTOCOL_ERROR),
        ("less than announced", [&length[..], &data(1, b"1234")].concat(), Code::PROTOCOL_ERROR),
        ("nothing of what was announced", with(b"\x0f\x0d\x015"), Code::PROTOCOL_ERROR),
        ("an upper-case name", with(b"\x00\x01X\x01y"), Code::PROTOCOL_ERROR),
        ("a value with a line end", with(b"\x00\x01x\x03a\r\n"), Code::PROTOCOL_ERROR),
        ("a name with a colon", with(b"\x00\x03x:y\x01z"), Code::PROTOCOL_ERROR),
        ("a field of the connection", with(b"\x00\x0aconnection\x01x"), Code::PROTOCOL_ERROR),
        ("te", with(b"\x00\x02te\x04gzip"), Code::PROTOCOL_ERROR),
        ("a pseudo-field twice", with(b"\x82"), Code::PROTOCOL_ERROR),
        ("a pseudo-field of responses", with(b"\x88"), Code::PROTOCOL_ERROR),
        ("a pseudo-field behind others", with(b"\x00\x01x\x01y\x82"), Code::PROTOCOL_ERROR),
        (
            "a space in the path",
            frame(kind::HEADERS, END, 1, b"\x82\x86\x04\x03/ x\x01\x01h"),
            Code::PROTOCOL_ERROR,
        ),
        ("no path", frame(kind::HEADERS, END, 1, b"\x82\x86\x01\x01h"), Code::PROTOCOL_ERROR),
        ("an empty path", frame(kind::HEADERS, END, 1, b"\x82\x86\x04\x00"), Code::PROTOCOL_ERROR),
        ("no method", frame(kind::HEADERS, END, 1, b"\x86\x84"), Code::PROTOCOL_ERROR),
        ("no scheme", frame(kind::HEADERS, END, 1, b"\x82\x84"), Code::PROTOCOL_ERROR),
        ("an empty scheme", frame(kind::HEADERS, END, 1, b"\x82\x84\x06\x00"), Code::PROTOCOL_ERROR),
        // RFC 9113 section 8.2.1.
        ("a value that begins with a space", with(b"\x00\x01x\x02 y"), Code::PROTOCOL_ERROR),
        ("a value that ends with a tab", with(b"\x00\x01x\x02y\t"), Code::PROTOCOL_ERROR),
        ("a value of white space", with(b"\x00\x01x\x01 "), Code::PROTOCOL_ERROR),
        (
            "a space around a trailer",
            [post(1), frame(kind::HEADERS, END, 1, b"\x00\x01x\x02y ")].concat(),
            Code::PROTOCOL_ERROR,
        ),
        // RFC 9113 section 6.3.
        (
            "a short PRIORITY",
            [post(1), frame(kind::PRIORITY, 0, 1, &[0; 4])].concat(),
            Code::FRAME_SIZE_ERROR,
        ),
    ];
    for (name, bytes, code) in cases {
        let mut end = End::begun();
        end.says(bytes);
        let written = end.written();
        let reset = (kind::RST_STREAM, 0, 1, code.0.to_be_bytes().to_vec());
        assert!(written.contains(&reset), "{name}: {written:?}");
        // What was under way is ignored, and its windows are given back.
        end.says(&frame(kind::DATA, flag::END_STREAM, 1, b"late"));
        assert_eq!(end.says(&get(3)), ["3 GET /"], "{name}: {:?}", end.server.error());
    }
}

#[test]
fn equal_blocks_mean_the_same_only_while_the_table_does() {
    let mut end = End::begun();
    let path = |path: &[u8]| [b"\x82\x86\x01\x01h\x44", &[path.len() as u8][..], path].concat();
    let again = b"\x82\x86\x01\x01h\xbe";
    let get = |stream, block: &[u8]| frame(kind::HEADERS, END, stream, block);
    assert_eq!(end.says(&get(1, &path(b"/a"))), ["1 GET /a"]);
    for stream in [3, 5, 7] {
        assert_eq!(end.says(&get(stream, again)), [format!("{stream} GET /a")]);
        end.responds(stream, b"");
    }
    end.responds(1, b"");
    assert_eq!(end.says(&get(9, &path(b"/b"))), ["9 GET /b"]);
    assert_eq!(end.says(&get(11, again)), ["11 GET /b"]);
    // The table is emptied: the index means nothing.
    end.says(&get(13, &[b"\x20\x3f\xe1\x1f", GET].concat()));
    end.says(&get(15, again));
    assert_eq!(end.ended(), Code::COMPRESSION_ERROR);
}

#[test]
fn a_head_that_is_too_large_is_refused_and_the_table_stays_in_step() {
    let mut end = End::begun();
    let mut bomb = [GET, b"\x40\x01x\x7f\xa1\x1e", &[b'y'; 4000]].concat();
    bomb.extend([0xbe; 3000]);
    bomb.extend(b"\x44\x02/z");
    assert_eq!(end.says(&frame(kind::HEADERS, flag::END_HEADERS, 1, &bomb)), ["1 refused 431"]);
    let written = end.written();
    assert_eq!(written[0], (kind::HEADERS, END, 1, b"\x20\x08\x03431".to_vec()));
    assert_eq!(written[1], (kind::RST_STREAM, 0, 1, vec![0; 4]));
    assert_eq!(end.says(&frame(kind::HEADERS, END, 3, b"\x82\x86\xbe\x01\x01h")), ["3 GET /z"]);
    // Without end, it is too much.
    end.says(&frame(kind::HEADERS, 0, 5, GET));
    for _ in 0..100 {
        end.says(&frame(kind::CONTINUATION, 0, 5, &[0; 10_000]));
    }
    assert_eq!(end.ended(), Code::ENHANCE_YOUR_CALM);
    let mut end = End::begun();
    end.says(&frame(kind::HEADERS, 0, 5, GET));
    for _ in 0..100 {
        end.says(&frame(kind::CONTINUATION, 0, 5, b""));
    }
    assert_eq!(end.ended(), Code::ENHANCE_YOUR_CALM);
}

#[test]
fn content_waits_for_the_windows() {
    let mut end = End::begun();
    end.says(&[settings(&[(id::INITIAL_WINDOW_SIZE, 3)]), get(1)].concat());
    assert_eq!(end.server.room(1), Some(3));
    assert_eq!(end.responds(1, b"abcdef"), 3);
    // A smaller window makes it negative.
    end.says(&settings(&[(id::INITIAL_WINDOW_SIZE, 2)]));
    assert_eq!(end.server.room(1), Some(0));
    end.says(&frame(kind::WINDOW_UPDATE, 0, 1, &2u32.to_be_bytes()));
    assert_eq!(end.server.room(1), Some(1));
    assert_eq!(end.server.write_data(1, b"def", true), 1);
    end.says(&settings(&[(id::INITIAL_WINDOW_SIZE, 100_000), (id::MAX_FRAME_SIZE, 20_000)]));
    end.written();
    // The connection's window has 65,535 bytes, of which 4 are used.
    assert_eq!(end.server.write_data(1, &[b'x'; 70_000], true), 65_531);
    let lengths: Vec<usize> = end.written().iter().map(|frame| frame.3.len()).collect();
    assert_eq!(lengths, [20_000, 20_000, 20_000, 5531]);
    end.says(&frame(kind::WINDOW_UPDATE, 0, 0, &100u32.to_be_bytes()));
    assert_eq!(end.server.write_data(1, b"end", true), 3);
    assert_eq!(end.server.open_streams(), 0);
}

#[test]
fn windows_open_again_as_content_is_read() {
    let mut end = End::begun();
    end.says(&post(1));
    assert_eq!(end.says(&frame(kind::DATA, 0, 1, &[0; 900])), ["1 900 false"]);
    assert!(end.written().is_empty());
    end.server.release(1, 400);
    assert!(end.written().is_empty());
    end.server.release(1, 200);
    assert_eq!(end.written(), [(kind::WINDOW_UPDATE, 0, 1, 600u32.to_be_bytes().to_vec())]);
    assert_eq!(end.says(&frame(kind::DATA, 0, 1, &[0; 700])), ["1 700 false"]);
    // Padding is nothing that anybody reads.
    end.says(&post(3));
    for _ in 0..400 {
        let padded = [&[200][..], &[0; 200]].concat();
        end.says(&frame(kind::DATA, flag::PADDED, 3, &padded));
    }
    assert!(!end.server.is_over(), "{:?}", end.server.error());
}

#[test]
fn a_body_that_is_all_there_comes_with_its_request() {
    let mut end = End::begun();
    let body = frame(kind::DATA, flag::END_STREAM, 1, b"abc");
    assert_eq!(end.says(&post(1)), ["1 POST /"]);
    for cut in 0..body.len() {
        assert_eq!(end.server.whole_body(1, 3, &mut &body[..cut]), None);
    }
    assert_eq!(end.server.whole_body(1, 2, &mut &body[..]), None);
    assert_eq!(end.server.whole_body(3, 3, &mut &body[..]), None);
    assert_eq!(end.server.whole_body(1, 3, &mut &body[..]), Some(&b"abc"[..]));
    assert_eq!(end.server.whole_body(1, 3, &mut &body[..]), None);
    end.responds(1, b"");
    assert_eq!(end.server.open_streams(), 0);
    // A frame that is too long is none, here either.
    end.says(&post(3));
    let long = frame(kind::DATA, flag::END_STREAM, 3, &[0; 16_385]);
    assert_eq!(end.server.whole_body(3, 1 << 20, &mut &long[..]), None);
    end.says(&long);
    assert_eq!(end.ended(), Code::FRAME_SIZE_ERROR);
}

#[test]
fn goodbye_is_said_twice() {
    let mut end = End::begun();
    end.says(&get(1));
    end.server.say_goodbye();
    end.server.say_goodbye();
    let last = |last: u32| [last.to_be_bytes(), [0; 4]].concat();
    let written = end.written();
    assert_eq!(written[0], (kind::GOAWAY, 0, 0, last(0x7fff_ffff)));
    assert_eq!((written[1].0, written.len()), (kind::PING, 2));
    // Sent before the client knew.
    assert_eq!(end.says(&get(3)), ["3 GET /"]);
    end.says(&frame(kind::PING, flag::ACK, 0, &written[1].3));
    assert_eq!(end.written(), [(kind::GOAWAY, 0, 0, last(3))]);
    // Too late; but its fields are read.
    assert!(end.says(&[post(5), frame(kind::DATA, 1, 5, b"x")].concat()).is_empty());
    end.responds(1, b"a");
    assert!(!end.server.is_over());
    end.responds(3, b"a");
    assert!(end.server.is_over() && end.server.error().is_none());
}

#[test]
fn a_client_may_not_cause_too_many_resets() {
    // Streams that break a rule.
    let mut end = End::begun();
    for n in 0..4 {
        end.says(&frame(kind::HEADERS, END, 2 * n + 1, b"\x82"));
    }
    assert_eq!(end.ended(), Code::ENHANCE_YOUR_CALM);
    // Requests that are cancelled at once, in a turn or in several.
    let both = |stream| [get(stream), frame(kind::RST_STREAM, 0, stream, &[0; 4])].concat();
    let mut end = End::begun();
    for n in 0..20 {
        end.server.begin_turn();
        end.says(&both(2 * n + 1));
    }
    assert!(!end.server.is_over());
    for n in 20..24 {
        end.says(&both(2 * n + 1));
    }
    assert_eq!(end.ended(), Code::ENHANCE_YOUR_CALM);
    // And streams above the limit are refused.
    let mut end = End::begun();
    let all: Vec<u8> = (0..5).flat_map(|n| get(2 * n + 1)).collect();
    assert_eq!(end.says(&all).len(), 4);
    assert_eq!(end.written(), [(kind::RST_STREAM, 0, 9, vec![0, 0, 0, 7])]);
}

#[test]
fn what_the_owner_leaves_is_reset() {
    let mut end = End::begun();
    end.says(&[post(1), post(3), get(5)].concat());
    end.responds(1, b"");
    end.written();
    [1, 3, 5, 5, 7].into_iter().for_each(|stream| end.server.close(stream));
    let codes: Vec<(u32, u8)> = end.written().iter().map(|frame| (frame.2, frame.3[3])).collect();
    assert_eq!(codes, [(1, 0), (3, 8), (5, 8)]);
    assert_eq!(end.server.open_streams(), 0);
}

#[test]
fn a_long_head_takes_several_frames() {
    let mut end = End::begun();
    end.says(&get(1));
    end.server.respond(1, &[0; 40_000], true);
    let frames: Vec<_> = end.written().iter().map(|f| (f.0, f.1, f.3.len())).collect();
    let whole = [(kind::HEADERS, 1, 16_384), (kind::CONTINUATION, 0, 16_384), (kind::CONTINUATION, 4, 7233)];
    assert_eq!(frames, whole);
}

fn head_of(fields: &[(&str, &str)]) -> Result<Rc<RequestHead>, u16> {
    let mut block = Vec::new();
    fields
        .iter()
        .for_each(|(name, value)| super::super::field(name.as_bytes(), value.as_bytes(), &mut block));
    let mut end = End::begun();
    let mut bytes = Vec::new();
    let mut pieces = block.chunks(16_384).peekable();
    let mut kind = kind::HEADERS;
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_some() { 0 } else { flag::END_HEADERS };
        put(kind, flags, 1, piece, &mut bytes);
        kind = kind::CONTINUATION;
    }
    match end.server.next(&mut &bytes[..], &mut end.heads) {
        Some(ClientEvent::Request(request)) => request.head.map_err(|fault| fault.status()),
        _ => Err(0),
    }
}

const PSEUDO: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")];

#[test]
fn handlers_see_what_http_1_1_would_show_them() {
    let head = head_of(&[
        (":path", "/a?b=c"),
        (":method", "PUT"),
        (":authority", "example.org"),
        (":scheme", "https"),
        ("cookie", "a=1"),
        ("host", "Example.org"),
        ("x", "1"),
        ("cookie", "b=2"),
        ("content-length", "7"),
    ])
    .expect("sound");
    assert_eq!((head.method(), head.path(), head.query()), (Method::Put, "/a", Some("b=c")));
    assert_eq!((head.version(), head.host()), (Version::Http2, Some("example.org")));
    assert_eq!(head.field("cookie"), Some(&b"a=1; b=2"[..]));
    assert_eq!(head.fields().filter(|(name, _)| *name == "host" || *name == "cookie").count(), 2);
    assert!(head.keep_alive() && !head.upgrade());
}

#[test]
fn the_checks_are_those_of_http_1_1() {
    let status = |fields: &[(&str, &str)]| head_of(fields).map(|_| ());
    let [method, scheme, authority, path] = PSEUDO;
    assert_eq!(status(&[method, scheme, path]), Err(400));
    assert_eq!(status(&[method, scheme, path, ("host", "h")]), Ok(()));
    assert_eq!(status(&[method, scheme, path, (":authority", "user@example.org")]), Err(400));
    let names: Vec<String> = (0..200).map(|i| format!("f{i}")).collect();
    let many: Vec<_> = PSEUDO.into_iter().chain(names.iter().map(|name| (&name[..], "v"))).collect();
    assert_eq!(status(&many), Err(431));
    let large = "v".repeat(35_000);
    assert_eq!(status(&[method, scheme, authority, path, ("f", &large)]), Err(431));
    let long = format!("/{}", "a".repeat(20_000));
    assert_eq!(status(&[method, scheme, authority, (":path", &long)]), Err(414));
}

#[test]
fn a_path_begins_with_a_slash() {
    let [method, scheme, authority, path] = PSEUDO;
    for path in ["http://evil/", "a", "?b", "*"] {
        assert!(matches!(head_of(&[method, scheme, authority, (":path", path)]), Err(0)), "{path}");
    }
    let options = (":method", "OPTIONS");
    assert_eq!(head_of(&[options, scheme, authority, (":path", "*")]).expect("sound").target(), "*");
    assert_eq!(head_of(&[method, scheme, authority, path]).expect("sound").target(), "/");
}

/// RFC 9113 section 8.3.1: such a request should be treated as malformed.
#[test]
fn host_names_the_same_server_as_authority() {
    let [method, scheme, _, path] = PSEUDO;
    let with = |authority, host| head_of(&[method, scheme, (":authority", authority), path, ("host", host)]);
    assert_eq!(with("h:1", "H:1").expect("the same").host(), Some("h:1"));
    for host in ["other.example", "h", "h:2", ""] {
        assert!(matches!(with("h:1", host), Err(0)), "{host}");
    }
}

/// Spaces within a value, and an empty one, are sound.
#[test]
fn a_value_has_no_white_space_around_it() {
    let with = |value| head_of(&[&PSEUDO[..], &[("x", value)]].concat());
    for value in ["", "a b", "a\tb"] {
        assert_eq!(with(value).expect("sound").field("x"), Some(value.as_bytes()));
    }
    for value in [" ", "\t", " a", "a ", "\ta", "a\t"] {
        assert!(matches!(with(value), Err(0)), "{value:?}");
    }
}

/// The owner hears of it, and of none that ends for another reason.
#[test]
fn a_malformed_request_is_reported() {
    let mut end = End::begun();
    let malformed = frame(kind::HEADERS, END, 1, b"\x82\x84");
    assert_eq!(end.says(&[malformed, get(3)].concat()), ["1 refused 400", "3 GET /"]);
    let grows = frame(kind::WINDOW_UPDATE, 0, 3, &[0; 4]);
    assert_eq!(end.says(&grows), ["3 reset"]);
}

#[test]
fn connect_has_its_own_form() {
    let method = (":method", "CONNECT");
    let head = head_of(&[method, (":authority", "h:1")]).expect("sound");
    assert_eq!((head.method(), head.target()), (Method::Connect, "h:1"));
    let [_, scheme, authority, path] = PSEUDO;
    assert!(matches!(head_of(&[method, scheme, authority, path]), Err(0)));
    let version = ("sec-websocket-version", "13");
    let head = head_of(&[method, scheme, authority, (":path", "/chat"), (":protocol", "websocket"), version]);
    let head = head.expect("sound");
    assert_eq!((head.method(), head.path(), head.upgrade()), (Method::Get, "/chat", true));
    assert_eq!(head.field_text("upgrade"), Some("websocket"));
    let [get, ..] = PSEUDO;
    assert!(matches!(head_of(&[get, scheme, authority, path, (":protocol", "websocket")]), Err(0)));
}

/// The names and values of a response's block.
fn fields_of(block: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let mut fields = Vec::new();
    let decoded = Decoder::default().decode(block, 1 << 20, |n, v| fields.push((text(n), text(v))));
    assert_eq!(decoded, Ok(()));
    fields
}

#[test]
fn fields_of_a_connection_are_left_out() {
    let mut fields = CheckedFields::new();
    for (name, value) in [("upgrade", "h2c"), ("X-Own", "1"), ("proxy-connection", "x")] {
        fields.add(name, value).expect("a field");
    }
    let head =
        ResponseHead { status: 418, content_type: Some("text/plain"), length: Some(1), fields: &fields };
    let all = fields_of(ResponseBlocks::default().of(&head, &HttpDate::from_unix(0)));
    let names: Vec<&str> = all.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [":status", "date", "content-type", "content-length", "x-own"]);
    assert_eq!((&all[0].1[..], &all[3].1[..]), ("418", "1"));
}

/// Whatever was written before, each head is written as if it were the first.
#[test]
fn every_head_is_as_if_it_were_the_first() {
    let (none, mut some, mut long) = (CheckedFields::new(), CheckedFields::new(), CheckedFields::new());
    some.add("a", "b").expect("a field");
    long.add("long", "x".repeat(600)).expect("a field");
    let mut heads = Vec::new();
    for status in [200, 404, 599] {
        for length in [None, Some(0), Some(14)] {
            for content_type in [None, Some(""), Some("a: b"), Some("text/plain")] {
                for fields in [&none, &some, &long] {
                    heads.push(ResponseHead { status, content_type, length, fields });
                }
            }
        }
    }
    let mut blocks = ResponseBlocks::default();
    for (i, head) in heads.iter().enumerate() {
        for other in [head, &heads[(i * 7 + 1) % heads.len()], head, head] {
            for date in [HttpDate::from_unix(0), HttpDate::from_unix(784_111_777)] {
                let alone = ResponseBlocks::default().of(other, &date).to_vec();
                assert_eq!(blocks.of(other, &date), alone, "{other:?}");
            }
        }
    }
}
