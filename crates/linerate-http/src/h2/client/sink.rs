//! Who hears of responses.

use std::sync::Arc;

use super::super::block::Block;
use crate::ResetCode;
use crate::client::{Fields, HeadView};

/// How a stream ended without a whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The server reset it.
    Reset(ResetCode),
    /// The server broke the rules on this stream: how, in words.
    Malformed(&'static str),
    /// The head of its response exceeds so many bytes.
    HeadTooLong(usize),
}

/// Hears of responses. `S` is what the owner keeps of each stream.
pub trait ResponseSink<'i, S> {
    /// Whether each response is to be handed over part by part.
    fn wants_parts(&self) -> bool;

    /// A response came in one piece.
    fn whole(&mut self, stream: S, head: &Arc<Block>, body: &'i [u8]);

    /// A response came in one piece, right behind that of the stream before it, which was opened together
    /// with this one. It has the same head, and content of the same length.
    fn again(&mut self, stream: S, head: &Arc<Block>, body: &'i [u8]) {
        self.whole(stream, head, body);
    }

    /// An interim response (1xx) came.
    fn interim(&mut self, _stream: &mut S, _status: u16) {}

    /// The head of a response came, and not yet its end.
    fn begun(&mut self, stream: &mut S);

    /// The head of a response that is handed over part by part.
    fn head(&mut self, stream: &mut S, head: &HeadView<'_>);

    /// The next piece of its body.
    fn body(&mut self, stream: &mut S, piece: &[u8]);

    /// Its trailers.
    fn trailers(&mut self, stream: &mut S, fields: Fields<'_>);

    /// It is whole.
    fn end(&mut self, stream: S, status: u16);

    /// The stream ended without a whole response; `begun`: part of it came.
    fn lost(&mut self, stream: S, how: Lost, begun: bool);

    /// Part of a response came on a stream whose response was whole, or that the server itself had ended. `responses`: 1 where
    /// one begins, and 0 where it goes on.
    fn surplus(&mut self, _bytes: &[u8], _responses: u64) {}
}
