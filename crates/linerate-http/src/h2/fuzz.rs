//! The code of the fuzz target, and of the tests that replay its corpus.

use std::sync::Arc;

use super::{Block, BlockCache, Client, ClientOptions, H2Error, Lost, Sink};
use crate::client::{Expect, Fields, HeadView};

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
    /// Control frames that the client sends beside requests.
    pub control: Vec<u8>,
}

struct Listening {
    parts: bool,
    heard: Vec<Heard>,
    ended: Vec<(usize, Heard)>,
}

impl Listening {
    fn finish(&mut self, stream: usize) {
        let heard = std::mem::take(&mut self.heard[stream]);
        self.ended.push((stream, heard));
    }
}

impl Sink<'_, usize> for Listening {
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
    let mut listening = Listening { parts, heard: vec![Heard::default(); requests], ended: Vec::new() };
    let mut error = None;
    for piece in pieces {
        if let Err(e) = client.read(piece, &mut blocks, &mut listening) {
            error = Some(e);
            break;
        }
    }
    let control = std::mem::take(client.take_control());
    Transcript { ended: listening.ended, error, control }
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
