//! Our client of HTTP/2 and the `h2` crate, both in memory: whatever a server sends, both clients
//! hear the same; and whatever our client sends, the crate's server hears, and is heard.
#![allow(clippy::unwrap_used)]

mod h2_pipe;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use h2_pipe::{Pipe, context};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use linerate_http::client::{Expect, Fields, HeadView};
use linerate_http::h2::fuzz::{Heard, read};
use linerate_http::h2::{
    Block, BlockCache, Client, ClientOptions, FrameHead, Lost, PREFACE, ResponseSink, flag, kind,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&FrameHead { len: payload.len() as u32, kind, flags, stream }.bytes(), payload].concat()
}

/// A field as a literal without indexing.
fn field(name: &str, value: &str, block: &mut Vec<u8>) {
    block.push(0);
    for text in [name, value] {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
}

/// Fields with names of their own.
fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    vec(("x-[a-z0-9]{1,8}", "([!-~]([ -~]{0,20}[!-~])?)?"), 0..4)
}

/// What a client hears of a response, in the order of its fields' names: the crate's map has no
/// other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Whole {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

fn sorted(fields: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut all: Vec<_> = fields.into_iter().collect();
    // Stable: values of the same name keep their order.
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn of_map(map: &HeaderMap) -> Vec<(String, String)> {
    sorted(map.iter().map(|(n, v)| (n.to_string(), String::from_utf8(v.as_bytes().to_vec()).unwrap())))
}

fn of_lines(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8(head.to_vec()).unwrap();
    let lines = text.split("\r\n").skip(1).filter(|line| !line.is_empty());
    sorted(lines.map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.into(), v.into())))
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Whole(Whole),
    Reset(u32),
    /// With the connection, or because of a rule that the server broke.
    Broken,
}

// What a server sends.

/// A server's response: its frames are sent in turn with those of others.
#[derive(Clone, Debug)]
struct Sent {
    interim: u8,
    fields: Vec<(String, String)>,
    status: usize,
    /// Where the block is cut in two.
    cut: Option<prop::sample::Index>,
    pieces: Vec<(u16, Option<u8>)>,
    trailers: Option<Vec<(String, String)>>,
    /// The server resets the stream after this many of its frames.
    reset: Option<(prop::sample::Index, u8)>,
}

/// Blocks of a single byte.
const STATUSES: [(u8, u16); 3] = [(0x88, 200), (0x8d, 404), (0x8e, 500)];

fn sent() -> impl Strategy<Value = Sent> {
    let pieces = vec((0..3000u16, prop::option::weighted(0.2, 0..9u8)), 0..5);
    let reset = prop::option::weighted(0.15, (any::<prop::sample::Index>(), 1..13u8));
    let cut = prop::option::weighted(0.3, any::<prop::sample::Index>());
    let trailers = prop::option::weighted(0.3, fields());
    (0..3u8, fields(), 0..3usize, cut, pieces, trailers, reset).prop_map(
        |(interim, fields, status, cut, pieces, trailers, reset)| Sent {
            interim,
            fields,
            status,
            cut,
            pieces,
            trailers,
            reset,
        },
    )
}

impl Sent {
    /// Its frames. Those of one block stay together.
    fn frames(&self, stream: u32) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for _ in 0..self.interim {
            all.push(frame(kind::HEADERS, flag::END_HEADERS, stream, b"\x08\x03103"));
        }
        let mut block = vec![STATUSES[self.status].0];
        self.fields.iter().for_each(|(name, value)| field(name, value, &mut block));
        let ends = if self.pieces.is_empty() && self.trailers.is_none() { flag::END_STREAM } else { 0 };
        all.push(match &self.cut {
            Some(cut) => {
                let (first, second) = block.split_at(cut.index(block.len()));
                let second = frame(kind::CONTINUATION, flag::END_HEADERS, stream, second);
                [frame(kind::HEADERS, ends, stream, first), second].concat()
            }
            None => frame(kind::HEADERS, ends | flag::END_HEADERS, stream, &block),
        });
        for (i, (len, pad)) in self.pieces.iter().enumerate() {
            let last = self.trailers.is_none() && i + 1 == self.pieces.len();
            let (flags, content) = (u8::from(last), vec![b'a' + i as u8; usize::from(*len)]);
            all.push(match pad {
                Some(pad) => {
                    let payload = [&[*pad][..], &content, &vec![0; usize::from(*pad)]].concat();
                    frame(kind::DATA, flags | flag::PADDED, stream, &payload)
                }
                None => frame(kind::DATA, flags, stream, &content),
            });
        }
        if let Some(trailers) = &self.trailers {
            let mut block = Vec::new();
            trailers.iter().for_each(|(name, value)| field(name, value, &mut block));
            all.push(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block));
        }
        if let Some((after, code)) = &self.reset {
            // Before its last frame: what comes after a whole response changes nothing.
            all.truncate(after.index(all.len()));
            all.push(frame(kind::RST_STREAM, 0, stream, &u32::from(*code).to_be_bytes()));
        }
        all
    }
}

/// Frames that end a connection wherever they come (RFC 9113, sections 5.4.1 and 6).
fn forbidden(which: usize) -> Vec<u8> {
    match which {
        0 => frame(kind::DATA, 0, 0, b"x"),
        1 => frame(kind::HEADERS, flag::END_HEADERS, 0, b"\x88"),
        2 => frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
        3 => frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
        4 => frame(kind::PING, 0, 0, &[0; 7]),
        5 => frame(kind::PING, 0, 1, &[0; 8]),
        6 => frame(kind::SETTINGS, 0, 0, &[0; 5]),
        7 => frame(kind::SETTINGS, 0, 1, b""),
        8 => frame(kind::SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 0]),
        9 => frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"\x88"),
        10 => frame(kind::RST_STREAM, 0, 0, &[0; 4]),
        11 => frame(kind::HEADERS, flag::END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
        12 => [frame(kind::HEADERS, 0, 1, b"\x88"), frame(kind::PING, 0, 0, &[0; 8])].concat(),
        13 => frame(kind::DATA, 0, 201, b"x"),
        _ => frame(kind::PING, 0, 0, &[0; 20_000]),
    }
}

const REQUESTS: usize = 12;
const KINDS_FORBIDDEN: usize = 15;

/// Frames of all responses: which of them comes next is chosen by dice.
fn mixed(all: &[Sent], dice: &[prop::sample::Index], wrong: Option<(prop::sample::Index, usize)>) -> Vec<u8> {
    let mut queues: Vec<Vec<Vec<u8>>> =
        all.iter().enumerate().map(|(i, s)| s.frames(2 * i as u32 + 1)).collect();
    queues.iter_mut().for_each(|frames| frames.reverse());
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut dice = dice.iter().cycle();
    while let open @ 1.. = queues.iter().filter(|queue| !queue.is_empty()).count() {
        let die = dice.next().unwrap();
        let queue = queues.iter_mut().filter(|queue| !queue.is_empty()).nth(die.index(open)).unwrap();
        out.extend(queue.pop());
        if die.index(7) == 3 {
            out.push(frame(kind::PING, 0, 0, b"12345678"));
        }
        if die.index(11) == 3 {
            out.push(frame(0x77, 0xff, 3, b"unknown"));
        }
    }
    if let Some((at, which)) = wrong {
        out.insert(at.index(out.len() + 1), forbidden(which));
    }
    out.concat()
}

fn our_end(heard: &Heard) -> End {
    match heard.lost {
        Some((Lost::Reset(code), _)) => End::Reset(code.number as u32),
        Some((Lost::Malformed(_) | Lost::HeadTooLong(_), _)) => End::Broken,
        None => {
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
            End::Whole(Whole {
                status: heard.ended.unwrap(),
                fields: of_lines(&heard.head),
                body: heard.body.clone(),
                trailers: sorted(heard.trailers.iter().map(|(n, v)| (text(n), text(v)))),
            })
        }
    }
}

/// Polls what is left of a response; `None`: more must come.
fn rest_of(whole: &mut Whole, body: &mut RecvStream) -> Option<End> {
    let broken = |e: h2::Error| {
        e.is_reset().then(|| e.reason()).flatten().map_or(End::Broken, |r| End::Reset(r.into()))
    };
    loop {
        match body.poll_data(&mut context()) {
            Poll::Pending => return None,
            Poll::Ready(Some(Ok(piece))) => {
                let _ = body.flow_control().release_capacity(piece.len());
                whole.body.extend_from_slice(&piece);
            }
            Poll::Ready(Some(Err(e))) => return Some(broken(e)),
            Poll::Ready(None) => break,
        }
    }
    match body.poll_trailers(&mut context()) {
        Poll::Pending => None,
        Poll::Ready(Ok(trailers)) => {
            whole.trailers = trailers.iter().flat_map(of_map).collect();
            Some(End::Whole(std::mem::take(whole)))
        }
        Poll::Ready(Err(e)) => Some(broken(e)),
    }
}

/// What the crate's client hears of these bytes: the ends of streams, and whether the connection
/// broke.
fn crate_hears(bytes: &[u8]) -> (BTreeMap<usize, End>, bool) {
    let pipe = Pipe::default();
    let mut builder = h2::client::Builder::new();
    builder.header_table_size(0).enable_push(false).initial_window_size(1 << 20);
    builder.initial_connection_window_size(1 << 24);
    let mut shake = pin!(builder.handshake::<_, Bytes>(pipe.clone()));
    let Poll::Ready(Ok((mut requests, connection))) = shake.as_mut().poll(&mut context()) else {
        panic!("a client's handshake waits for nothing")
    };
    let mut connection = pin!(connection);
    let mut waiting: Vec<(usize, ResponseFuture, SendStream<Bytes>)> = (0..REQUESTS)
        .map(|i| {
            let method = if i % 8 == 7 { "HEAD" } else { "GET" };
            let request = Request::builder().method(method).uri("http://h/").body(()).unwrap();
            let (response, body) = requests.send_request(request, i % 4 != 2).unwrap();
            (i, response, body)
        })
        .collect();
    let _ = connection.as_mut().poll(&mut context());
    pipe.push(bytes);
    let (mut ends, mut bodies, mut broken) = (BTreeMap::new(), Vec::new(), false);
    for _ in 0..3 {
        broken |= matches!(connection.as_mut().poll(&mut context()), Poll::Ready(Err(_)));
        waiting.retain_mut(|(i, response, _)| match pin!(response).poll(&mut context()) {
            Poll::Pending => true,
            Poll::Ready(Ok(response)) => {
                let (head, body) = response.into_parts();
                let whole =
                    Whole { status: head.status.as_u16(), fields: of_map(&head.headers), ..Whole::default() };
                bodies.push((*i, whole, body));
                false
            }
            Poll::Ready(Err(e)) => {
                let reset = e.is_reset().then(|| e.reason()).flatten();
                ends.insert(*i, reset.map_or(End::Broken, |r| End::Reset(r.into())));
                false
            }
        });
        bodies.retain_mut(|(i, whole, body)| {
            rest_of(whole, body).is_none_or(|end| {
                ends.insert(*i, end);
                false
            })
        });
    }
    (ends, broken)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_clients_hear_the_same(
        all in vec(sent(), 0..REQUESTS),
        dice in vec(any::<prop::sample::Index>(), 1..60),
        wrong in prop::option::weighted(0.3, (any::<prop::sample::Index>(), 0..KINDS_FORBIDDEN)),
        cut in 1..3000usize,
    ) {
        let mut all = all;
        if let Some(head) = all.get_mut(7) {
            // The response to HEAD has no content.
            head.pieces.clear();
        }
        let mut bytes = frame(kind::SETTINGS, 0, 0, b"");
        bytes.extend(frame(kind::SETTINGS, flag::ACK, 0, b""));
        bytes.extend(mixed(&all, &dice, wrong));
        let options = ClientOptions { window: 1 << 20 };
        let ours = read(bytes.chunks(cut), REQUESTS, options, cut % 2 == 0);
        let (theirs, broken) = crate_hears(&bytes);
        prop_assert_eq!(ours.error.is_some(), broken, "{:?}", ours.error);
        if let Some((_, which)) = wrong {
            prop_assert!(broken, "frame {} is forbidden", which);
        }
        let ours: BTreeMap<usize, End> = ours.ended.iter().map(|(i, heard)| (*i, our_end(heard))).collect();
        for i in 0..REQUESTS {
            // When its connection breaks, the crate also drops what it has of whole responses.
            match (ours.get(&i), theirs.get(&i)) {
                (_, Some(End::Broken)) | (None, None) if broken => {}
                (ours, theirs) => prop_assert_eq!(ours, theirs, "stream {}", 2 * i + 1),
            }
        }
    }
}

// What our client sends.

/// A request and its response.
#[derive(Clone, Debug)]
struct Exchange {
    fields: Vec<(String, String)>,
    body: usize,
    response: usize,
    trailers: Option<Vec<(String, String)>>,
    reset: bool,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let size = || prop_oneof![Just(0), 1..100usize, 1..100_000usize];
    (fields(), size(), size(), prop::option::weighted(0.3, fields()), prop::bool::weighted(0.1)).prop_map(
        |(fields, body, response, trailers, reset)| Exchange { fields, body, response, trailers, reset },
    )
}

/// What our client hears.
#[derive(Default)]
struct Ears {
    parts: bool,
    whole: BTreeMap<usize, Whole>,
    ends: BTreeMap<usize, End>,
}

impl ResponseSink<'_, usize> for Ears {
    fn wants_parts(&self) -> bool {
        self.parts
    }

    fn whole(&mut self, i: usize, head: &Arc<Block>, body: &[u8]) {
        let whole = self.whole.entry(i).or_default();
        (whole.fields, whole.body) = (of_lines(head.head().raw()), body.to_vec());
        self.end(i, head.status());
    }

    fn begun(&mut self, _: &mut usize) {}

    fn head(&mut self, i: &mut usize, head: &HeadView<'_>) {
        self.whole.entry(*i).or_default().fields = of_lines(head.raw());
    }

    fn body(&mut self, i: &mut usize, piece: &[u8]) {
        self.whole.entry(*i).or_default().body.extend_from_slice(piece);
    }

    fn trailers(&mut self, i: &mut usize, fields: Fields<'_>) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.whole.entry(*i).or_default().trailers = sorted(fields.map(|(n, v)| (text(n), text(v))));
    }

    fn end(&mut self, i: usize, status: u16) {
        let whole = Whole { status, ..self.whole.remove(&i).unwrap_or_default() };
        assert_eq!(self.ends.insert(i, End::Whole(whole)), None);
    }

    fn lost(&mut self, i: usize, how: Lost, _: bool) {
        let end = if let Lost::Reset(code) = how { End::Reset(code.number as u32) } else { End::Broken };
        assert_eq!(self.ends.insert(i, end), None);
    }
}

/// A request at the crate's server.
enum Serving {
    Receiving(usize, Whole, RecvStream, h2::server::SendResponse<Bytes>),
    Sending(usize, Bytes, SendStream<Bytes>),
}

fn map(fields: &[(String, String)]) -> HeaderMap {
    let each = |(n, v): &(String, String)| {
        (HeaderName::from_bytes(n.as_bytes()).unwrap(), HeaderValue::from_str(v).unwrap())
    };
    let mut map = HeaderMap::new();
    fields.iter().map(each).for_each(|(n, v)| {
        map.append(n, v);
    });
    map
}

/// Takes a step; `None`: it is done.
fn serve(serving: Serving, all: &[Exchange], seen: &mut BTreeMap<usize, Whole>) -> Option<Serving> {
    match serving {
        Serving::Receiving(i, mut whole, mut body, mut respond) => {
            let Some(end) = rest_of(&mut whole, &mut body) else {
                return Some(Serving::Receiving(i, whole, body, respond));
            };
            let End::Whole(whole) = end else { panic!("request {i}: {end:?}") };
            seen.insert(i, whole);
            let exchange = &all[i];
            if exchange.reset {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return None;
            }
            let mut head = Response::new(());
            *head.headers_mut() = map(&exchange.fields);
            let ends = exchange.response == 0 && exchange.trailers.is_none();
            let send = respond.send_response(head, ends).unwrap();
            (!ends).then(|| Serving::Sending(i, vec![b'r'; exchange.response].into(), send))
        }
        Serving::Sending(i, mut left, mut send) => {
            send.reserve_capacity(left.len());
            let piece = left.split_to(send.capacity().min(left.len()));
            let last = left.is_empty();
            let trailers = all[i].trailers.as_ref();
            if !piece.is_empty() || (last && trailers.is_none()) {
                send.send_data(piece, last && trailers.is_none()).unwrap();
            }
            match trailers {
                Some(trailers) if last => send.send_trailers(map(trailers)).unwrap(),
                _ => {}
            }
            (!last).then_some(Serving::Sending(i, left, send))
        }
    }
}

/// Our client's end of it: opens what there is room for, and sends what the windows admit.
fn send(
    client: &mut Client<usize>,
    all: &[Exchange],
    next: &mut usize,
    left: &mut BTreeMap<u32, usize>,
) -> Vec<u8> {
    let mut out = std::mem::take(client.take_control());
    while client.room() > 0 && *next < all.len() {
        let exchange = &all[*next];
        let mut block = vec![0x83, 0x86, 0x84];
        field("i", &next.to_string(), &mut block);
        exchange.fields.iter().for_each(|(name, value)| field(name, value, &mut block));
        let id = client.open(*next, &block, Expect::Usual, exchange.body == 0, &mut out);
        if exchange.body > 0 {
            left.insert(id, exchange.body);
        }
        *next += 1;
    }
    left.retain(|id, left| {
        while *left > 0 {
            let Some(room) = client.data_room(*id) else { return false };
            let len = (*left).min(room as usize);
            if len == 0 {
                return true;
            }
            *left -= len;
            client.write_data(*id, len as u32, *left == 0, &mut out);
            out.resize(out.len() + len, b'q');
        }
        false
    });
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_our_client_sends_the_crate_hears_and_answers(
        all in vec(exchange(), 1..30),
        window in prop_oneof![1..200u32, 1000..100_000u32],
        streams in 1..20u32,
        ours in prop_oneof![Just(65_535u32), 70_000..200_000u32],
        cut in 1..20_000usize,
        parts in any::<bool>(),
    ) {
        let pipe = Pipe::default();
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(window).max_concurrent_streams(streams);
        let mut shake = pin!(builder.handshake::<_, Bytes>(pipe.clone()));
        let mut client = Client::new(ClientOptions { window: ours });
        let mut blocks = BlockCache::new();
        let mut ears = Ears { parts, ..Ears::default() };
        let (mut next, mut left) = (0, BTreeMap::new());
        // Only the preface: the server's limit is known before the first request.
        let hello = std::mem::take(client.take_control());
        prop_assert!(hello.starts_with(PREFACE));
        pipe.push(&hello);
        let mut connection = loop {
            if let Poll::Ready(done) = shake.as_mut().poll(&mut context()) {
                break done.unwrap();
            }
        };
        let (mut serving, mut seen): (Vec<Serving>, _) = (Vec::new(), BTreeMap::new());
        let mut idle = 0;
        while idle < 3 {
            while let Poll::Ready(Some(accepted)) = connection.poll_accept(&mut context()) {
                let (request, respond) = accepted.unwrap();
                let (head, body) = request.into_parts();
                let i: usize = head.headers["i"].to_str().unwrap().parse().unwrap();
                let whole = Whole { fields: of_map(&head.headers), ..Whole::default() };
                serving.push(Serving::Receiving(i, whole, body, respond));
            }
            serving = serving.into_iter().filter_map(|s| serve(s, &all, &mut seen)).collect();
            while let Poll::Ready(Some(_)) = connection.poll_accept(&mut context()) {
                prop_assert!(false, "a request came from nowhere");
            }
            let said = pipe.take();
            for piece in said.chunks(cut) {
                prop_assert_eq!(client.read(piece, &mut blocks, &mut ears).err(), None);
            }
            let out = send(&mut client, &all, &mut next, &mut left);
            pipe.push(&out);
            idle = if said.is_empty() && out.is_empty() { idle + 1 } else { 0 };
        }
        prop_assert_eq!(client.open_streams(), 0);
        for (i, exchange) in all.iter().enumerate() {
            let own = [("i".to_owned(), i.to_string())];
            let fields = sorted(exchange.fields.iter().cloned().chain(own));
            let request = Whole { fields, body: vec![b'q'; exchange.body], ..Whole::default() };
            prop_assert_eq!(seen.get(&i), Some(&request));
            let end = match exchange.reset {
                true => End::Reset(Reason::INTERNAL_ERROR.into()),
                false => End::Whole(Whole {
                    status: 200,
                    fields: sorted(exchange.fields.iter().cloned()),
                    body: vec![b'r'; exchange.response],
                    trailers: sorted(exchange.trailers.iter().flatten().cloned()),
                }),
            };
            prop_assert_eq!(ears.ends.get(&i), Some(&end));
        }
    }
}
