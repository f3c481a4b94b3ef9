//! Our server of HTTP/2 and the `h2` crate's client, both in memory: whatever the client sends, our
//! server hears, and whatever our server responds, the client hears.
#![allow(clippy::unwrap_used)]

mod h2_pipe;

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use h2_pipe::{Pipe, context};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use linerate_http::h2::Code;
use linerate_http::h2::fuzz;
use linerate_http::h2::server::{ClientEvent, Heads, ResponseBlocks, ResponseHead, Server, ServerOptions};
use linerate_http::server::{CheckedFields, HttpDate, RequestLimits};
use proptest::collection::vec;
use proptest::prelude::*;

type Names = Vec<(String, String)>;

/// Fields with names of their own.
fn fields() -> impl Strategy<Value = Names> {
    vec(("x-[a-z0-9]{1,8}", "([!-~]([ -~]{0,20}[!-~])?)?"), 0..4)
}

/// A request and its response.
#[derive(Clone, Debug)]
struct Exchange {
    fields: Names,
    body: Option<usize>,
    trailers: Option<Names>,
    answer_fields: Names,
    answer: usize,
    answer_trailers: Option<Names>,
    /// The server resets the stream instead.
    reset: bool,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let size = || prop_oneof![Just(0), 1..100usize, 1..100_000usize];
    let trailers = || prop::option::weighted(0.3, fields());
    let request = (fields(), prop::option::of(size()), trailers());
    (request, (fields(), size(), trailers()), prop::bool::weighted(0.1)).prop_map(
        |((fields, body, trailers), (answer_fields, answer, answer_trailers), reset)| Exchange {
            fields,
            body,
            trailers: trailers.filter(|fields| body.is_some() && !fields.is_empty()),
            answer_fields,
            answer,
            answer_trailers: answer_trailers.filter(|fields| !fields.is_empty()),
            reset,
        },
    )
}

/// A message as it is heard, its fields in the order of their names: the crate's map has no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    fields: Names,
    body: Vec<u8>,
    trailers: Names,
    reset: Option<u32>,
}

fn sorted(fields: impl IntoIterator<Item = (String, String)>) -> Names {
    let mut all: Names = fields.into_iter().collect();
    // Stable: values of the same name keep their order.
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn own(fields: impl IntoIterator<Item = (String, String)>) -> Names {
    sorted(fields.into_iter().filter(|(name, _)| name.starts_with("x-")))
}

fn of_map(map: &HeaderMap) -> Names {
    own(map.iter().map(|(n, v)| (n.to_string(), String::from_utf8(v.as_bytes().to_vec()).unwrap())))
}

fn map(fields: &Names) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn list(fields: &Names) -> CheckedFields {
    let mut list = CheckedFields::new();
    for (name, value) in fields {
        list.add(name, value).unwrap();
    }
    list
}

/// The server's end, with a handler that responds once the request has ended.
struct Serving<'a> {
    server: Server,
    heads: Heads,
    blocks: ResponseBlocks,
    all: &'a [Exchange],
    input: Vec<u8>,
    /// By stream: its number among the exchanges.
    numbers: BTreeMap<u32, usize>,
    heard: BTreeMap<usize, Heard>,
    /// By stream: bytes of the response that are left.
    sending: BTreeMap<u32, usize>,
}

impl<'a> Serving<'a> {
    fn new(all: &'a [Exchange], options: ServerOptions) -> Serving<'a> {
        Serving {
            server: Server::new(options),
            heads: Heads::new(RequestLimits::default()),
            blocks: ResponseBlocks::default(),
            all,
            input: Vec::new(),
            numbers: BTreeMap::new(),
            heard: BTreeMap::new(),
            sending: BTreeMap::new(),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some(event) = self.server.next(&mut rest, &mut self.heads) {
            self.event(event);
        }
        self.input = rest.to_vec();
    }

    fn event(&mut self, event: ClientEvent<'_>) {
        match event {
            ClientEvent::Request(request) => {
                let head = request.head.unwrap();
                let text = |v: &[u8]| String::from_utf8(v.to_vec()).unwrap();
                let i = head.field_text("i").unwrap().parse().unwrap();
                let fields = own(head.fields().map(|(n, v)| (n.to_owned(), text(v))));
                assert_eq!((head.path(), head.host()), ("/p", Some("h")));
                self.numbers.insert(request.stream, i);
                let before = self.heard.insert(i, Heard { fields, ..Heard::default() });
                assert!(before.is_none());
                if request.ends {
                    self.respond(request.stream);
                }
            }
            ClientEvent::Data { stream, content, ends } => {
                self.heard.get_mut(&self.numbers[&stream]).unwrap().body.extend_from_slice(content);
                self.server.release(stream, content.len());
                if ends {
                    self.respond(stream);
                }
            }
            ClientEvent::Trailers { stream, fields } => {
                let text = |v: Vec<u8>| String::from_utf8(v).unwrap();
                let fields = sorted(fields.into_iter().map(|(n, v)| (n, text(v))));
                self.heard.get_mut(&self.numbers[&stream]).unwrap().trailers = fields;
                self.respond(stream);
            }
            ClientEvent::Refused { stream, .. } => panic!("stream {stream} is refused"),
            ClientEvent::Reset { stream } => panic!("stream {stream} is reset"),
        }
    }

    fn respond(&mut self, stream: u32) {
        let exchange = &self.all[self.numbers[&stream]];
        if exchange.reset {
            return self.server.reset(stream, Code::INTERNAL_ERROR);
        }
        let fields = list(&exchange.answer_fields);
        let length = exchange.answer_trailers.is_none().then_some(exchange.answer as u64);
        let head = ResponseHead { status: 200, content_type: Some("text/plain"), length, fields: &fields };
        let ends = exchange.answer == 0 && exchange.answer_trailers.is_none();
        let block = self.blocks.of(&head, &HttpDate::from_unix(0));
        self.server.respond(stream, block, ends);
        if !ends {
            self.sending.insert(stream, exchange.answer);
        }
    }

    /// Sends what the windows admit.
    fn send(&mut self) -> Vec<u8> {
        let content = [b'r'; 70_000];
        self.sending.retain(|stream, left| {
            let trailers = &self.all[self.numbers[stream]].answer_trailers;
            while *left > 0 {
                let piece = &content[..content.len().min(*left)];
                let ends = piece.len() == *left && trailers.is_none();
                let written = self.server.write_data(*stream, piece, ends);
                *left -= written;
                if written == 0 {
                    return true;
                }
            }
            if let Some(trailers) = trailers {
                self.server.write_trailers(*stream, &list(trailers));
            }
            false
        });
        std::mem::take(self.server.out())
    }
}

/// The client's end of one exchange.
struct Asking {
    i: usize,
    body: Option<(SendStream<Bytes>, Bytes)>,
    response: Option<ResponseFuture>,
    content: Option<RecvStream>,
    heard: Heard,
}

impl Asking {
    /// Takes a step; whether the response is complete.
    fn step(&mut self, exchange: &Exchange) -> bool {
        if let Some((send, left)) = &mut self.body {
            send.reserve_capacity(left.len());
            let piece = left.split_to(send.capacity().min(left.len()));
            let last = left.is_empty();
            let trailers = exchange.trailers.as_ref();
            if !piece.is_empty() || (last && trailers.is_none()) {
                send.send_data(piece, last && trailers.is_none()).unwrap();
            }
            if let Some(trailers) = trailers.filter(|_| last) {
                send.send_trailers(map(trailers)).unwrap();
            }
            if last {
                self.body = None;
            }
        }
        let reset = |e: h2::Error| e.reason().map(u32::from);
        if let Some(response) = &mut self.response {
            match pin!(response).poll(&mut context()) {
                Poll::Pending => return false,
                Poll::Ready(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    assert_eq!(head.status.as_u16(), 200);
                    assert_eq!(head.headers["content-type"], "text/plain");
                    assert_eq!(head.headers["date"], "Thu, 01 Jan 1970 00:00:00 GMT");
                    self.heard.fields = of_map(&head.headers);
                    (self.response, self.content) = (None, Some(body));
                }
                Poll::Ready(Err(e)) => {
                    self.heard.reset = reset(e);
                    return true;
                }
            }
        }
        let body = self.content.as_mut().unwrap();
        loop {
            match body.poll_data(&mut context()) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(piece))) => {
                    let _ = body.flow_control().release_capacity(piece.len());
                    self.heard.body.extend_from_slice(&piece);
                }
                Poll::Ready(Some(Err(e))) => panic!("{e}"),
                Poll::Ready(None) => break,
            }
        }
        match body.poll_trailers(&mut context()) {
            Poll::Pending => false,
            Poll::Ready(trailers) => {
                self.heard.trailers = trailers.unwrap().iter().flat_map(of_map).collect();
                true
            }
        }
    }
}

/// Whether the client's connection is over, which no error may cause.
fn ends(polled: Poll<Result<(), h2::Error>>) -> bool {
    match polled {
        Poll::Pending => false,
        Poll::Ready(Ok(())) => true,
        Poll::Ready(Err(e)) => panic!("the client gives up: {e:?}"),
    }
}

fn options(streams: u32, window: u32) -> ServerOptions {
    ServerOptions {
        streams,
        stream_window: window,
        connection_window: 100_000,
        head_list: Heads::new(RequestLimits::default()).list_bytes(),
        resets_caused: 8,
        resets_at_once: 8,
    }
}

/// Both ends have heard of every exchange what the other has sent; after a goodbye, all of it or
/// nothing.
fn understood(
    all: &[Exchange],
    serving: &Serving<'_>,
    heard: &BTreeMap<usize, Heard>,
    goodbye: bool,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(serving.server.open_streams(), 0);
    let mut whole = 0;
    for (i, exchange) in all.iter().enumerate() {
        // After a goodbye some were not sent, or not taken: never half of one.
        let (Some(request), Some(response)) = (serving.heard.get(&i), heard.get(&i)) else {
            prop_assert!(goodbye && !serving.heard.contains_key(&i), "{}", i);
            continue;
        };
        whole += 1;
        prop_assert_eq!(
            request,
            &Heard {
                fields: sorted(exchange.fields.iter().cloned()),
                body: vec![b'q'; exchange.body.unwrap_or(0)],
                trailers: sorted(exchange.trailers.iter().flatten().cloned()),
                reset: None,
            }
        );
        let expected = match exchange.reset {
            true => Heard { reset: Some(Code::INTERNAL_ERROR.0), ..Heard::default() },
            false => Heard {
                fields: sorted(exchange.answer_fields.iter().cloned()),
                body: vec![b'r'; exchange.answer],
                trailers: sorted(exchange.answer_trailers.iter().flatten().cloned()),
                reset: None,
            },
        };
        prop_assert_eq!(response, &expected);
    }
    prop_assert!(goodbye || whole == all.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_crates_client_and_our_server_understand_each_other(
        all in vec(exchange(), 1..30),
        streams in 1..20u32,
        ours in prop_oneof![1..200u32, 1000..100_000u32],
        theirs in prop_oneof![1..200u32, 1000..100_000u32],
        frame_size in prop_oneof![Just(16_384u32), 20_000..70_000u32],
        table in prop_oneof![Just(4096u32), Just(0u32), 1..200u32],
        cut in 1..20_000usize,
        goodbye in prop::option::weighted(0.3, 0..5usize),
    ) {
        let pipe = Pipe::default();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(theirs).max_frame_size(frame_size).header_table_size(table);
        let mut shake = pin!(builder.handshake::<_, Bytes>(pipe.clone()));
        let Poll::Ready(Ok((mut requests, connection))) = shake.as_mut().poll(&mut context()) else {
            panic!("a client's handshake waits for nothing")
        };
        let mut connection = pin!(connection);
        let mut serving = Serving::new(&all, options(streams, ours));
        // The server's limit is known before the first request.
        pipe.push(&serving.send());
        prop_assert!(!ends(connection.as_mut().poll(&mut context())));
        let (mut next, mut asking, mut heard) = (0, Vec::<Asking>::new(), BTreeMap::new());
        let (mut idle, mut round, mut ended) = (0, 0, false);
        while idle < 4 {
            while !ended && next < all.len() && requests.poll_ready(&mut context()).is_ready() {
                let exchange = &all[next];
                let mut request = Request::builder().method("POST").uri("http://h/p");
                *request.headers_mut().unwrap() = map(&exchange.fields);
                let request = request.header("i", next.to_string()).body(()).unwrap();
                let Ok((response, send)) = requests.send_request(request, exchange.body.is_none()) else { break };
                let body = exchange.body.map(|len| (send, Bytes::from(vec![b'q'; len])));
                let response = Some(response);
                asking.push(Asking { i: next, body, response, content: None, heard: Heard::default() });
                next += 1;
            }
            ended = ended || ends(connection.as_mut().poll(&mut context()));
            let said = pipe.take();
            for piece in said.chunks(cut) {
                serving.receive(piece);
            }
            prop_assert!(serving.server.error().is_none(), "{:?}", serving.server.error());
            if goodbye == Some(round) {
                serving.server.say_goodbye();
            }
            let out = serving.send();
            out.chunks(cut).for_each(|piece| pipe.push(piece));
            ended = ended || ends(connection.as_mut().poll(&mut context()));
            asking.retain_mut(|one| {
                let done = one.step(&all[one.i]);
                if done {
                    heard.insert(one.i, std::mem::take(&mut one.heard));
                }
                !done
            });
            idle = if said.is_empty() && out.is_empty() { idle + 1 } else { 0 };
            round += 1;
        }
        understood(&all, &serving, &heard, goodbye.is_some())?;
    }
}

/// A frame of any kind, mostly well-formed.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let block = prop_oneof![
        4 => Just(b"\x82\x86\x84\x41\x01h".to_vec()),
        2 => Just(b"\x82\x86\x84\xbe".to_vec()),
        2 => Just(b"\x83\x86\x84\x01\x01h".to_vec()),
        1 => Just(b"\x00\x01x\x01y".to_vec()),
        1 => vec(any::<u8>(), 0..30),
    ];
    let payload = prop_oneof![
        3 => block,
        1 => vec(any::<u8>(), 0..20),
        1 => Just(vec![0, 0, 0, 1]),
        1 => Just(vec![0, 4, 0, 0, 0, 9]),
        1 => Just(vec![0; 8]),
    ];
    let kind = prop_oneof![5 => Just(1u8), 3 => Just(0u8), 3 => 0..11u8];
    let flags = prop_oneof![4 => Just(5u8), 3 => Just(4u8), 1 => Just(0u8), 1 => any::<u8>()];
    (kind, flags, 0..20u32, payload).prop_map(|(kind, flags, stream, payload)| {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags], &stream.to_be_bytes(), &payload].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any frames, in any pieces: the same requests, the same responses, and no more of them than
    /// there were frames.
    #[test]
    fn any_cut_of_any_frames_means_the_same(how in any::<u8>(), frames in vec(any_frame(), 0..40)) {
        fuzz::requests(&[&[how & !2][..], &frames.concat()].concat());
    }
}
