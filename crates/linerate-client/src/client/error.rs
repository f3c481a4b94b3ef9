//! How a call ends without a response.

use std::fmt;

use bytes::Bytes;

use super::limits::LARGEST_HEAD;
use crate::Failure;

/// How a call ended without a response. Each call ends in exactly one response or one of these.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The client cannot be built as it was described.
    Builder(String),
    /// The request cannot be sent as it is: nothing left.
    Request(String),
    /// No connection to the server could be opened. The request was not sent.
    Connect(String),
    /// No whole response came in time, and sending the request again does no harm.
    Timeout(Phase),
    /// The request was sent and failed: the connection ended, or the response broke the rules.
    Failed {
        /// The kind of failure.
        failure: Failure,
        /// A description for people.
        detail: String,
    },
    /// The response exceeds a limit of the client.
    TooLarge {
        /// The part that is too large.
        part: Part,
        /// The limit, bytes.
        limit: usize,
    },
    /// The tag of a response names no request in flight on its connection. The client closed that
    /// connection.
    Mismatch(String),
    /// The request was sent, no response came, and it is not idempotent. The server may have acted
    /// on it, so the client does not send it again (RFC 9110 section 9.2.2).
    OutcomeUnknown(Box<Unknown>),
    /// The client has ended: its tokio runtime was shut down.
    Closed,
}

/// A request whose outcome is unknown.
#[derive(Debug)]
pub struct Unknown {
    /// The request as it was given to the client.
    pub request: http::Request<Bytes>,
    /// Why no response came, in words.
    pub why: String,
}

/// The wait that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For a place on a connection.
    Queue,
    /// For the first byte of the response.
    FirstByte,
    /// For the whole response.
    Response,
}

/// A part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Status line and fields.
    Head,
    /// The content.
    Body,
}

impl Error {
    /// The outcome of `request` is unknown: `why` no response came.
    pub(super) fn unknown(request: http::Request<Bytes>, why: &str) -> Error {
        Error::OutcomeUnknown(Box::new(Unknown { request, why: why.to_owned() }))
    }

    /// The request inside, if its outcome is unknown.
    pub fn into_request(self) -> Option<http::Request<Bytes>> {
        if let Error::OutcomeUnknown(unknown) = self { Some(unknown.request) } else { None }
    }

    /// Whether the server cannot have acted on the request: no byte of it was sent.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Error::Request(_) | Error::Connect(_) | Error::Timeout(Phase::Queue))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Builder(problem) => f.write_str(problem),
            Error::Request(problem) => write!(f, "the request cannot be sent: {problem}"),
            Error::Connect(why) => write!(f, "no connection: {why}"),
            Error::Timeout(Phase::Queue) => f.write_str("timeout: no connection had a place for the request"),
            Error::Timeout(Phase::FirstByte) => f.write_str("timeout: the response did not begin"),
            Error::Timeout(Phase::Response) => f.write_str("timeout: the response was not whole"),
            Error::Failed { detail, .. } => f.write_str(detail),
            Error::TooLarge { part: Part::Head, limit } => {
                write!(f, "the head of the response exceeds {limit} bytes")?;
                // Builder::max_head goes no further.
                if *limit < LARGEST_HEAD { f.write_str("\nhint: raise Builder::max_head") } else { Ok(()) }
            }
            Error::TooLarge { part: Part::Body, limit } => {
                write!(f, "the body of the response exceeds {limit} bytes\nhint: raise Builder::max_body")
            }
            Error::Mismatch(what) => write!(f, "mismatched response: {what}"),
            Error::OutcomeUnknown(unknown) => {
                write!(
                    f,
                    "the outcome is unknown: {}\nhint: look whether the server acted on ",
                    unknown.why
                )?;
                write!(f, "{} {}", unknown.request.method(), unknown.request.uri())?;
                f.write_str(" before you send it again")
            }
            Error::Closed => f.write_str("the client has ended: its tokio runtime was shut down"),
        }
    }
}

impl std::error::Error for Error {}
