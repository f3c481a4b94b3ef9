//! Calls whose request and response bodies are streams.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use linerate_net::Time;

use crate::client::limits::STREAMED_MARK;

/// An event of a call whose bodies are streams, before its end.
#[derive(Debug)]
pub enum News {
    /// The head of its response came.
    Head(u64, Response<()>),
    /// The next piece of the response's body. The owner says with [`Calls::taken`](super::Calls::taken) when it has no use for it any more.
    Piece(u64, Bytes),
    /// The number of bytes of the request's body that have left.
    Left(u64, usize),
}

/// A call whose bodies are streams.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) upload: Option<Upload>,
    /// Bytes of the response that the owner holds.
    pub(super) held: usize,
    pub(super) paused: bool,
    /// When anything moved last.
    pub(super) touched: Time,
}

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    /// Its length, if that is known.
    pub(super) length: Option<u64>,
    pub(super) given: u64,
    pub(super) pending: VecDeque<Bytes>,
    pub(super) ended: bool,
}

impl Streaming {
    /// Whether the server, and not the owner, has to do something next.
    pub(super) fn waits_for_server(&self) -> bool {
        let owner_gives =
            self.upload.as_ref().is_some_and(|upload| !upload.ended && upload.pending.is_empty());
        !self.paused && !owner_gives
    }

    /// The owner should take some of the response first.
    pub(super) fn is_full(&self) -> bool {
        self.held > STREAMED_MARK && !self.paused
    }
}
