//! A response in its place in the order of a connection's requests, and what is logged of it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use linerate_http::server::RequestHead;
use linerate_net::Time;
use linerate_tls::TlsInfo;

use crate::limits::{FILE_COUNTS_AS, LOGGED_LINE, WAITING_COUNTS_AS};
use crate::message::file_body::FileBody;
use crate::message::stream::Streamed;

/// The facts of a request that its response depends on.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The client of the request.
    pub(crate) peer: SocketAddr,
    /// `None`: the bytes were not a request.
    pub(crate) head: Option<Rc<RequestHead>>,
    pub(crate) http10: bool,
    pub(crate) head_only: bool,
    pub(crate) keep: bool,
    /// The first line of bytes that are not a request.
    pub(crate) line: Box<[u8]>,
    /// When its head was read.
    pub(crate) began: Time,
    pub(crate) tls: Option<Arc<TlsInfo>>,
}

impl Asked {
    /// For bytes that are not a request, as far as they were received.
    pub(crate) fn by_none(peer: SocketAddr, bytes: &[u8], began: Time) -> Asked {
        let begin = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(bytes.len());
        let line = bytes[begin..].split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
        let line = line[..line.len().min(LOGGED_LINE)].into();
        Asked { peer, head: None, http10: false, head_only: false, keep: false, line, began, tls: None }
    }
}

/// The access log line of a response, written once the response has left or broken off.
#[derive(Debug)]
pub(crate) struct Unlogged {
    pub(crate) asked: Asked,
    pub(crate) status: u16,
    /// Where the body begins and ends in the bytes handed over on its connection; `None`: not
    /// begun.
    pub(crate) from: Option<u64>,
    pub(crate) until: Option<u64>,
}

impl Unlogged {
    /// Bytes of the body in the first `left` handed over.
    pub(crate) fn bytes(&self, left: u64) -> u64 {
        let until = self.until.unwrap_or(u64::MAX).min(left);
        self.from.map_or(0, |from| until.saturating_sub(from))
    }
}

/// A response in its place in the order.
pub(crate) enum OrderedResponse {
    /// Its handler is still running.
    /// `body`: bytes of its request's body that wait with it and count nowhere else.
    Waiting { task: u32, asked: Asked, body: u16 },
    /// Ready to send. `last`: nothing may follow on this connection.
    Bytes { bytes: Vec<u8>, last: bool },
    /// A head with a large body, sent without copying.
    Large { head: Vec<u8>, body: Bytes, at: usize, last: bool, line: Option<Box<Unlogged>> },
    /// A body that is produced while it is sent.
    Stream {
        task: u32,
        head: Vec<u8>,
        stream: Streamed,
        end: StreamEnd,
        last: bool,
        line: Option<Box<Unlogged>>,
    },
    /// Ranges of a file. The task is woken once missing pages are in memory.
    File { task: u32, head: Vec<u8>, body: FileBody, last: bool, line: Option<Box<Unlogged>> },
}

/// How a streamed body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Chunked,
    Length(u64),
    Close,
    /// HEAD: no body is sent.
    Nothing,
}

impl OrderedResponse {
    /// Its line for the access log.
    pub(crate) fn line(&mut self) -> Option<&mut Option<Box<Unlogged>>> {
        match self {
            OrderedResponse::Large { line, .. }
            | OrderedResponse::Stream { line, .. }
            | OrderedResponse::File { line, .. } => Some(line),
            OrderedResponse::Waiting { .. } | OrderedResponse::Bytes { .. } => None,
        }
    }

    /// Bytes of it that are ready and not handed over. A file counts as some, and so does a request
    /// that waits.
    pub(crate) fn ready_bytes(&self) -> usize {
        match self {
            OrderedResponse::Waiting { asked, body, .. } => {
                let head = asked.head.as_ref().map_or(0, |head| head.bytes().len());
                (head + usize::from(*body)) * WAITING_COUNTS_AS
            }
            OrderedResponse::Bytes { bytes, .. } => bytes.len(),
            OrderedResponse::Large { head, body, at, .. } => head.len() + body.len() - at,
            OrderedResponse::Stream { head, .. } => head.len(),
            OrderedResponse::File { head, .. } => head.len() + FILE_COUNTS_AS,
        }
    }
}

impl std::fmt::Debug for OrderedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OrderedResponse::Waiting { task, .. } => write!(f, "Waiting({task})"),
            OrderedResponse::Bytes { bytes, .. } => write!(f, "Bytes({})", bytes.len()),
            OrderedResponse::Large { body, at, .. } => write!(f, "Large({at} of {})", body.len()),
            OrderedResponse::Stream { end, .. } => write!(f, "Stream({end:?})"),
            OrderedResponse::File { body, .. } => write!(f, "File({})", body.len()),
        }
    }
}
