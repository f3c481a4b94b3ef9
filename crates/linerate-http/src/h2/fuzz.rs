//! The code of the fuzz target, and of the tests that replay its corpus.

use std::sync::Arc;

use super::server::{ClientEvent, Heads, ResponseBlocks, ResponseHead, Server, ServerOptions};
use super::{Block, BlockCache, Client, ClientOptions, H2Error, Lost, PREFACE, ResponseSink};
use crate::client::{Expect, Fields, HeadView};
use crate::server::{self, HttpDate};

/// The outcome of a stream. Content is joined, because its pieces depend on the cuts of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The head of the response.
    pub head: Vec<u8>,
    /// Its content.
    pub body: Vec<u8>,
    /// Its trailers.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The status of a response that ended.
    pub ended: Option<u16>,
    /// How the stream was lost.
    pub lost: Option<(Lost, bool)>,
}

/// Everything read from a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The streams in the order in which they ended; with each, its number among the requests.
    pub ended: Vec<(usize, Heard)>,
    /// The error that ended the reading.
    pub error: Option<H2Error>,
    /// Responses that no request had asked for.
    pub surplus: u64,
    /// Control frames that the client sends beside requests.
    pub control: Vec<u8>,
}

struct FuzzListener {
    parts: bool,
    heard: Vec<Heard>,
    ended: Vec<(usize, Heard)>,
    surplus: u64,
}

impl FuzzListener {
    fn finish(&mut self, stream: usize) {
        let heard = std::mem::take(&mut self.heard[stream]);
        self.ended.push((stream, heard));
    }
}

impl ResponseSink<'_, usize> for FuzzListener {
    fn wants_parts(&self) -> bool {
        self.parts
    }

    fn whole(&mut self, stream: usize, head: &Arc<Block>, body: &[u8]) {
        self.heard[stream].head = head.head().raw().to_vec();
        self.heard[stream].body = body.to_vec();
        self.end(stream, head.status());
    }

    fn begun(&mut self, _: &mut usize) {}

    fn head(&mut self, stream: &mut usize, head: &HeadView<'_>) {
        self.heard[*stream].head = head.raw().to_vec();
    }

    fn body(&mut self, stream: &mut usize, piece: &[u8]) {
        self.heard[*stream].body.extend_from_slice(piece);
    }

    fn trailers(&mut self, stream: &mut usize, fields: Fields<'_>) {
        self.heard[*stream].trailers = fields.map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    }

    fn end(&mut self, stream: usize, status: u16) {
        self.heard[stream].ended = Some(status);
        self.finish(stream);
    }

    fn lost(&mut self, stream: usize, how: Lost, begun: bool) {
        // How much of a head was handed out before depends on the cuts.
        self.heard[stream] = Heard { lost: Some((how, begun)), ..Heard::default() };
        self.finish(stream);
    }

    fn surplus(&mut self, _: &[u8], responses: u64) {
        self.surplus += responses;
    }
}

/// Reads in pieces what a server sends to a client with `requests` requests in flight.
pub fn read<'p>(
    pieces: impl IntoIterator<Item = &'p [u8]>,
    requests: usize,
    options: ClientOptions,
    parts: bool,
) -> Transcript {
    let mut client = Client::new(options);
    let mut out = Vec::new();
    for stream in 0..requests {
        let expect = if stream % 8 == 7 { Expect::Head } else { Expect::Usual };
        client.open(stream, b"\x82\x84\x86", expect, stream % 4 != 2, &mut out);
    }
    let mut blocks = BlockCache::new();
    let heard = vec![Heard::default(); requests];
    let mut listening = FuzzListener { parts, heard, ended: Vec::new(), surplus: 0 };
    let mut error = None;
    for piece in pieces {
        if let Err(e) = client.read(piece, &mut blocks, &mut listening) {
            error = Some(e);
            break;
        }
    }
    let control = std::mem::take(client.take_control());
    Transcript { ended: listening.ended, error, surplus: listening.surplus, control }
}

/// Bytes as a server sends them, read whole and in pieces whose lengths follow from the first byte.
pub fn frames(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let options = ClientOptions { window: if how & 1 == 0 { 1 << 20 } else { 65_535 } };
    let whole = read([bytes], 12, options, how & 2 == 0);
    let step = usize::from(how >> 2) + 1;
    let cut = read(bytes.chunks(step), 12, options, how & 2 == 0);
    assert_eq!(whole, cut, "pieces of {step} bytes");
    let other = read([bytes], 12, options, how & 2 != 0);
    assert_eq!(whole, other, "part by part and whole");
    assert!(whole.control.len() <= 20 * bytes.len() + 200, "more replies than frames");
}

/// What a server made of a connection: each request's stream, head or fault, content, whether it
/// ended, and trailers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// In the order of their heads.
    pub requests: Vec<Asked>,
    /// The error that ended the connection.
    pub error: Option<H2Error>,
    /// Everything to be sent.
    pub out: Vec<u8>,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its stream.
    pub stream: u32,
    /// Its head as HTTP/1.1 would have it, or why it is refused.
    pub head: Result<Vec<u8>, u16>,
    /// Its content.
    pub body: Vec<u8>,
    /// Its trailers.
    pub trailers: Vec<(String, Vec<u8>)>,
    /// All of it has come; or the client has reset it.
    pub ended: Option<bool>,
}

/// Responds to a client that sends these pieces. The streams' numbers say how: at once, once the
/// request has ended, or never, and whether content is released.
pub fn serve<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, options: ServerOptions) -> Served {
    let (mut server, mut served) = (Server::new(options), Served::default());
    let (mut heads, mut blocks) = (Heads::new(server::RequestLimits::default()), ResponseBlocks::default());
    let (fields, date) = (server::CheckedFields::new(), HttpDate::from_unix(0));
    let mut input = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut rest = &input[..];
        while let Some(event) = server.next(&mut rest, &mut heads) {
            let (stream, mut ended) = match event {
                ClientEvent::Request(request) => {
                    let head = request.head.map_err(|fault| fault.status());
                    let head = head.map(|head| head.bytes().to_vec());
                    served.requests.push(Asked {
                        stream: request.stream,
                        head,
                        body: Vec::new(),
                        trailers: Vec::new(),
                        ended: None,
                    });
                    (request.stream, request.ends.then_some(true))
                }
                ClientEvent::Data { stream, content, ends } => {
                    let asked = served.asked(stream);
                    asked.body.extend_from_slice(content);
                    if stream % 16 != 7 {
                        server.release(stream, content.len());
                    }
                    (stream, ends.then_some(true))
                }
                ClientEvent::Trailers { stream, fields } => {
                    served.asked(stream).trailers = fields;
                    (stream, Some(true))
                }
                // Nothing was reported of it before.
                ClientEvent::Refused { stream, .. } => {
                    assert!(served.requests.iter().all(|asked| asked.stream != stream));
                    continue;
                }
                ClientEvent::Reset { stream } => {
                    // PRIORITY may break a rule on a stream that the client skipped.
                    served.known(stream).into_iter().for_each(|asked| asked.ended = Some(false));
                    continue;
                }
            };
            let asked = served.asked(stream);
            assert_eq!(asked.ended, None, "stream {stream} goes on behind its end");
            asked.ended = ended;
            if stream % 8 == 1 {
                ended = Some(true);
            }
            if ended == Some(true) && stream % 8 != 5 {
                let head = ResponseHead { status: 200, content_type: None, length: None, fields: &fields };
                server.respond(stream, blocks.of(&head, &date), false);
                server.write_data(stream, b"hello", true);
            }
        }
        let read = input.len() - rest.len();
        input.drain(..read);
        assert!(server.is_over() || input.len() < 9 + (1 << 14), "whole frames are not read");
        if server.is_over() {
            break;
        }
    }
    served.error = server.error().cloned();
    served.out = std::mem::take(server.out());
    served
}

impl Served {
    fn known(&mut self, stream: u32) -> Option<&mut Asked> {
        self.requests.iter_mut().rev().find(|asked| asked.stream == stream)
    }

    fn asked(&mut self, stream: u32) -> &mut Asked {
        self.known(stream).expect("a frame of a request that came")
    }
}

/// Bytes as a client sends them, read whole and in pieces whose lengths follow from the first byte.
pub fn requests(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let options = ServerOptions {
        streams: 8,
        stream_window: if how & 1 == 0 { 1 << 16 } else { 100 },
        connection_window: 1 << 16,
        head_list: Heads::new(server::RequestLimits::default()).list_bytes(),
        resets_caused: 8,
        resets_at_once: 8,
    };
    let mut all = Vec::new();
    if how & 2 == 0 {
        all.extend_from_slice(PREFACE);
        all.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0");
    }
    all.extend_from_slice(bytes);
    let whole = serve([&all[..]], options);
    let step = usize::from(how >> 2) + 1;
    assert_eq!(whole, serve(all.chunks(step), options), "pieces of {step} bytes");
    assert!(whole.out.len() <= 20 * all.len() + 200, "more replies than frames");
}
