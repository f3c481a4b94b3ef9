//! What HTTP/2 says on a connection of ours.

use std::sync::Arc;

use linerate_http::client::{Fields, HeadView};
use linerate_http::h2::{Block, BlockCache, Client, ClientOptions, Lost as StreamLost, ResponseSink};

use super::answer::Answering;

/// A connection's streams. Each carries the place of its response.
pub(super) struct Streams {
    pub(super) client: Client<u32>,
    blocks: BlockCache,
    pub(super) window: u32,
    /// Nothing was read yet.
    silent: bool,
}

/// Matches what a connection hears with its responses.
struct Hearing<'a> {
    answers: &'a mut [Answering],
}

impl Hearing<'_> {
    fn at(&mut self, stream: u32, then: impl FnOnce(&mut Answering)) {
        if let Some(answer) = self.answers.get_mut(stream as usize) {
            answer.touched = true;
            then(answer);
        }
    }
}

impl<'i> ResponseSink<'i, u32> for Hearing<'_> {
    fn wants_parts(&self) -> bool {
        true
    }

    fn whole(&mut self, stream: u32, head: &Arc<Block>, body: &'i [u8]) {
        self.at(stream, |answer| {
            answer.head(&head.head());
            answer.body(body);
            answer.stream_ended();
        });
    }

    fn interim(&mut self, stream: &mut u32, _: u16) {
        if let Some(answer) = self.answers.get_mut(*stream as usize) {
            answer.interim = true;
        }
    }

    fn begun(&mut self, stream: &mut u32) {
        self.at(*stream, |_| ());
    }

    fn head(&mut self, stream: &mut u32, head: &HeadView<'_>) {
        self.at(*stream, |answer| answer.head(head));
    }

    fn body(&mut self, stream: &mut u32, piece: &[u8]) {
        self.at(*stream, |answer| answer.body(piece));
    }

    fn trailers(&mut self, stream: &mut u32, _: Fields<'_>) {
        self.at(*stream, |_| ());
    }

    fn end(&mut self, stream: u32, _: u16) {
        self.at(stream, Answering::stream_ended);
    }

    fn lost(&mut self, stream: u32, how: StreamLost, begun: bool) {
        self.at(stream, |answer| answer.stream_lost(how, begun));
    }
}

impl Streams {
    pub(super) fn new(window: u32) -> Streams {
        Streams {
            client: Client::new(ClientOptions { window }),
            blocks: BlockCache::new(),
            window,
            silent: true,
        }
    }

    pub(super) fn hear(&mut self, plain: &[u8], answers: &mut [Answering]) {
        let by_other = std::mem::take(&mut self.silent) && plain.starts_with(b"HTTP/1.");
        let mut hearing = Hearing { answers };
        if let Err(error) = self.client.read(plain, &mut self.blocks, &mut hearing) {
            let words = match by_other {
                true => {
                    "the server answers by HTTP/1.1, not by HTTP/2: leave out --http2, or --http 2".to_owned()
                }
                false => format!("HTTP/2: {error}"),
            };
            hearing.answers.iter_mut().for_each(|answer| answer.broken(&words));
            return;
        }
        // It will not answer those (RFC 9113, section 6.8).
        for id in self.client.refused() {
            if let (Some((at, begun)), Some(code)) = (self.client.take(id), self.client.go_away()) {
                hearing.at(at, |answer| answer.stream_lost(StreamLost::Reset(code.into()), begun));
            }
        }
    }
}
