//! Reading and writing HTTP, from and to plain memory.

use std::hint::black_box;
use std::sync::Arc;

use linerate_http::client::{
    Expect, HeadCache, Pipeline, RequestSpec, ResponseLimits, ResponsePart, ResponseReader, Run, Template,
    Values,
};
use linerate_http::client::{Fields as ResponseFields, HeadView};
use linerate_http::h2::server::{ClientEvent, Heads, ResponseBlocks, ResponseHead, Server, ServerOptions};
use linerate_http::h2::{
    self, Block, BlockCache, Client, ClientOptions, FRAME_HEAD, FrameHead, Lost, ResponseSink,
};
use linerate_http::server::{
    self, AnswerFraming, AnswerHead, CheckedFields, HeadReader, HeadWriter, HttpDate, Persistence,
};

use crate::scenario::WorkUnit;

/// Bytes handed over in one piece, as a receive buffer would be.
const READ: usize = 64 << 10;

pub(super) const SCENARIOS: &[WorkUnit] = &[
    WorkUnit {
        name: "take_same",
        about: "an answer: 123-byte head, 5-byte body",
        run: |n| taken(n, answers(), ""),
    },
    WorkUnit { name: "take_same_with", about: "the same, each handed to a closure", run: handed },
    WorkUnit {
        name: "take_same_tag",
        about: "an answer with a tag that differs",
        run: |n| taken(n, tagged(), "x-tag"),
    },
    WorkUnit {
        name: "take_same_mixed",
        about: "an answer, of two kinds in turn",
        run: |n| taken(n, mixed(), ""),
    },
    WorkUnit { name: "take_same_cut", about: "an answer, in segments of 1448 bytes", run: cut },
    WorkUnit {
        name: "next_known",
        about: "an answer read in parts, its head known",
        run: |n| parts(n, answers()),
    },
    WorkUnit { name: "next_chunked", about: "a chunked answer of two chunks", run: |n| parts(n, chunked()) },
    WorkUnit { name: "next_unknown", about: "an answer whose head is parsed", run: |n| parts(n, lengths()) },
    WorkUnit { name: "render_fixed", about: "a request without slots", run: |n| rendered(n, "/", "") },
    WorkUnit {
        name: "render_slots",
        about: "a request with three slots",
        run: |n| rendered(n, "/{{seq}}?r={{rand:1-1000}}", "{{now_ms}}"),
    },
    WorkUnit {
        name: "request_known",
        about: "a request that was seen before",
        run: |n| requested(n, filled(|_| request(""))),
    },
    WorkUnit {
        name: "request_parsed",
        about: "a request whose head is parsed",
        run: |n| requested(n, filled(|i| request(&format!("X-Pad: {}\r\n", "p".repeat(i % 7 + 1))))),
    },
    WorkUnit { name: "head_known", about: "a head of an answer as the last one", run: |n| written(n, 0) },
    WorkUnit { name: "head_made", about: "a head of an answer unlike the last one", run: |n| written(n, 1) },
    WorkUnit {
        name: "h2_same",
        about: "an HTTP/2 request and its response, 100 streams at once",
        run: streamed,
    },
    WorkUnit {
        name: "h2_served",
        about: "an HTTP/2 request read and its response written, 100 streams at once",
        run: served,
    },
    WorkUnit { name: "pipeline", about: "a request pushed and answered, in runs of 16", run: piped },
];

fn answer(fields: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nServer: bare\r\nDate: Tue, 09 Nov 2010 14:49:00 GMT\r\nContent-Type: text/plain\r\n{fields}Content-Length: 5\r\n\r\nhello"
    )
}

fn request(fields: &str) -> String {
    format!("GET /some/path?and=query HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n{fields}Accept: */*\r\n\r\n")
}

/// A receive buffer full of messages.
fn filled(mut answer: impl FnMut(usize) -> String) -> Vec<u8> {
    let mut stream = String::new();
    for i in 0.. {
        let next = answer(i);
        if stream.len() + next.len() > READ {
            break;
        }
        stream += &next;
    }
    stream.into_bytes()
}

fn answers() -> Vec<u8> {
    filled(|_| answer(""))
}

fn tagged() -> Vec<u8> {
    filled(|i| answer(&format!("X-Tag: {:08}\r\n", i + 1)))
}

fn mixed() -> Vec<u8> {
    filled(|i| answer(["", "X: y\r\n"][i % 2]))
}

fn lengths() -> Vec<u8> {
    filled(|i| answer(&format!("X-Pad: {}\r\n", "p".repeat(i % 7 + 1))))
}

fn chunked() -> Vec<u8> {
    let head = answer("Transfer-Encoding: chunked\r\n").replace("Content-Length: 5\r\n\r\nhello", "\r\n");
    filled(|_| format!("{head}5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"))
}

fn cache(tag: &str) -> HeadCache {
    if tag.is_empty() { HeadCache::new() } else { HeadCache::with_tag(tag) }
}

fn taken(n: u64, stream: Vec<u8>, tag: &str) {
    let (mut cache, mut reader) = (cache(tag), ResponseReader::new(ResponseLimits::default()));
    let mut left = n;
    while left > 0 {
        let mut input = black_box(&stream[..]);
        while left > 0 && !input.is_empty() {
            match reader.take_same(&mut cache, &mut input, u32::try_from(left).unwrap_or(u32::MAX)) {
                0 => left -= u64::from(next_answer(&mut reader, &mut cache, &mut input)),
                taken => left -= u64::from(taken),
            }
        }
    }
}

fn cut(n: u64) {
    let stream = answers();
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let mut left = n;
    for mut input in stream.chunks(1448).cycle() {
        loop {
            let taken = reader.take_same(&mut cache, &mut input, u32::MAX);
            left = left.saturating_sub(u64::from(taken));
            if left == 0 {
                return;
            }
            if !next_answer(&mut reader, &mut cache, &mut input) {
                break;
            }
            left -= 1;
        }
    }
}

fn handed(n: u64) {
    let stream = answers();
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let (mut left, mut bytes) = (n, 0u64);
    while left > 0 {
        let mut input = black_box(&stream[..]);
        let most = u32::try_from(left).unwrap_or(u32::MAX);
        let each = |_: &[u8], body: &[u8]| bytes += u64::from(body[0]);
        match reader.take_same_with(&mut cache, &mut input, most, each) {
            0 => left -= u64::from(next_answer(&mut reader, &mut cache, &mut input)),
            taken => left -= u64::from(taken),
        }
    }
    black_box(bytes);
}

/// Reads one response in parts; true if there was one.
fn next_answer(reader: &mut ResponseReader, cache: &mut HeadCache, input: &mut &[u8]) -> bool {
    loop {
        match reader.next(cache, input, Expect::Usual) {
            Ok(Some(ResponsePart::End(end))) => {
                black_box(end);
                return true;
            }
            Ok(Some(part)) => _ = black_box(part),
            Ok(None) => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn parts(n: u64, stream: Vec<u8>) {
    let (mut cache, mut reader) = (HeadCache::new(), ResponseReader::new(ResponseLimits::default()));
    let mut left = n;
    while left > 0 {
        let mut input = black_box(&stream[..]);
        while left > 0 && next_answer(&mut reader, &mut cache, &mut input) {
            left -= 1;
        }
    }
}

fn rendered(n: u64, target: &str, body: &str) {
    let spec = RequestSpec {
        method: if body.is_empty() { "GET" } else { "POST" }.to_owned(),
        target: target.to_owned(),
        fields: vec![
            ("Host".to_owned(), "127.0.0.1:8080".to_owned()),
            ("Accept".to_owned(), "*/*".to_owned()),
        ],
        body: body.into(),
    };
    let template = Template::compile(&spec, &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut out = Vec::with_capacity(READ);
    for seq in 0..n {
        if out.len() + 2 * template.len_hint() > READ {
            black_box(&out);
            out.clear();
        }
        template.render(&Values { seq, now_ms: 1_700_000_000_000 + seq, seed: 1, row: &[] }, &mut out);
    }
    black_box(&out);
}

fn requested(n: u64, stream: Vec<u8>) {
    let mut reader = HeadReader::new(server::RequestLimits::default());
    let (mut left, mut bytes) = (n, 0);
    while left > 0 {
        let mut input = black_box(&stream[..]);
        while left > 0 && !input.is_empty() {
            let (head, taken) = reader.read(input, 0).unwrap_or_else(|e| panic!("{e}")).unwrap_or_default();
            bytes += head.path().len();
            input = &input[taken..];
            left -= 1;
        }
    }
    black_box(bytes);
}

/// Heads of responses whose length changes by `step` from one to the next.
fn written(n: u64, step: u64) {
    let (mut writer, date) = (HeadWriter::default(), HttpDate::from_unix(784_111_777));
    let fields = CheckedFields::new();
    let mut out = Vec::with_capacity(READ);
    for i in 0..n {
        if out.len() + 512 > READ {
            black_box(&out);
            out.clear();
        }
        let head = AnswerHead {
            status: 200,
            persistence: Persistence::Implied,
            framing: AnswerFraming::Length(1000 + i % 100 * step),
            content_type: Some("text/plain"),
            fields: &fields,
        };
        writer.write(&head, &mut out, &date);
    }
    black_box(&out);
}

fn piped(n: u64) {
    let mut pipeline = Pipeline::new();
    let mut seen = 0;
    for first in (0..n).step_by(16) {
        let count = (n - first).min(16) as u32;
        let run = Run { stamp: first, first, count, kind: 0, expect: Expect::Usual, idempotent: true };
        for i in 0..count {
            pipeline.push(Run { first: first + u64::from(i), count: 1, ..run });
        }
        pipeline.answered(count, &mut |run| seen += u64::from(run.count));
    }
    assert_eq!(black_box(seen), n);
}

/// Counts responses.
struct ResponseCounter(u64);

impl ResponseSink<'_, u64> for ResponseCounter {
    fn wants_parts(&self) -> bool {
        false
    }

    fn whole(&mut self, _: u64, _: &Arc<Block>, body: &[u8]) {
        self.0 += u64::from(body.len() == 5);
    }

    fn begun(&mut self, _: &mut u64) {}
    fn head(&mut self, _: &mut u64, _: &HeadView<'_>) {}
    fn body(&mut self, _: &mut u64, _: &[u8]) {}
    fn trailers(&mut self, _: &mut u64, _: ResponseFields<'_>) {}
    fn end(&mut self, _: u64, _: u16) {}
    fn lost(&mut self, _: u64, how: Lost, _: bool) {
        panic!("{how:?}");
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { len: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

fn streamed(n: u64) {
    const AT_ONCE: u64 = 100;
    let mut response = Vec::new();
    let block = [b"\x88\x0f\x0d\x015\x0f\x12\x1d".as_slice(), b"Tue, 09 Nov 2010 14:49:00 GMT"].concat();
    frame(h2::kind::HEADERS, h2::flag::END_HEADERS, 0, &block, &mut response);
    let data = response.len();
    frame(h2::kind::DATA, h2::flag::END_STREAM, 0, b"hello", &mut response);
    let mut client = Client::new(ClientOptions::default());
    let (mut blocks, mut sink) = (BlockCache::new(), ResponseCounter(0));
    let (mut out, mut input) = (Vec::with_capacity(READ), Vec::with_capacity(READ));
    frame(h2::kind::SETTINGS, 0, 0, b"", &mut input);
    frame(h2::kind::SETTINGS, h2::flag::ACK, 0, b"", &mut input);
    for first in (0..n).step_by(AT_ONCE as usize) {
        let count = AT_ONCE.min(n - first) as u32;
        client.open_together(&first, count, b"\x82\x86\x84\x01\x09localhost", Expect::Usual, &mut out);
        for i in first..n.min(first + AT_ONCE) {
            let stream = 2 * i as u32 + 1;
            let at = input.len();
            input.extend_from_slice(&response);
            for frame in [at, at + data] {
                input[frame + 5..frame + FRAME_HEAD].copy_from_slice(&stream.to_be_bytes());
            }
        }
        black_box(&out);
        client.take_control().clear();
        client.read(black_box(&input), &mut blocks, &mut sink).unwrap_or_else(|e| panic!("{e}"));
        out.clear();
        input.clear();
    }
    assert_eq!(black_box(sink.0), n);
}

/// What a client sends at first, and then again and again: 100 requests, and windows for their responses.
fn asked(first: bool, stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let begin = b"\x82\x84\x86\x41\x09localhost\x7a\x04test\x53\x03*/*";
    if first {
        out.extend_from_slice(h2::PREFACE);
        frame(h2::kind::SETTINGS, 0, 0, b"", &mut out);
    }
    frame(h2::kind::WINDOW_UPDATE, 0, 0, &1400u32.to_be_bytes(), &mut out);
    for n in 0..100 {
        let block = if first && n == 0 { &begin[..] } else { b"\x82\x84\x86\xc0\xbf\xbe" };
        let flags = h2::flag::END_HEADERS | h2::flag::END_STREAM;
        frame(h2::kind::HEADERS, flags, stream + 2 * n, block, &mut out);
    }
    out
}

fn served(n: u64) {
    let limits = server::RequestLimits::default();
    let (mut heads, mut blocks) = (Heads::new(limits), ResponseBlocks::default());
    let mut server = Server::new(ServerOptions {
        streams: 128,
        stream_window: 256 << 10,
        connection_window: 1 << 20,
        head_list: heads.list_bytes(),
        resets_caused: 64,
        resets_at_once: 32,
    });
    let (fields, date) = (CheckedFields::new(), HttpDate::from_unix(1_289_314_140));
    let (mut out, mut count) = (Vec::with_capacity(READ), 0);
    for batch in 0..n.div_ceil(100) {
        let bytes = asked(batch == 0, 200 * batch as u32 + 1);
        let mut input = black_box(&bytes[..]);
        std::mem::swap(server.out(), &mut out);
        while let Some(event) = server.next(&mut input, &mut heads) {
            let ClientEvent::Request(request) = event else { continue };
            let path = request.head.as_ref().map_or("", |head| head.path());
            let status = if path == "/" { 200 } else { 404 };
            let content_type = Some("text/plain; charset=utf-8");
            let head = ResponseHead { status, content_type, length: Some(14), fields: &fields };
            server.respond(request.stream, blocks.of(&head, &date), false);
            server.write_data(request.stream, b"Hello, World!\n", true);
            count += 1;
        }
        std::mem::swap(server.out(), &mut out);
        black_box(&out);
        out.clear();
    }
    assert_eq!(count, 100 * n.div_ceil(100));
}
