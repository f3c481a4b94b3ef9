//! How a call ends without a response.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;

use bytes::Bytes;
use linerate_net::NetError;

use super::limits::LARGEST_HEAD;
use crate::Failure;

/// What went wrong, in words, with the server's address and the error behind it where there are any. It derefs to the
/// words.
#[derive(Debug)]
pub struct ErrorDetail {
    words: String,
    address: Option<SocketAddr>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ErrorDetail {
    /// `words`, because of `source`.
    pub(super) fn by(
        words: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> ErrorDetail {
        ErrorDetail { words: words.into(), address: None, source: Some(source.into()) }
    }

    /// `words`, because of an error of the kernel, if it was one.
    pub(super) fn by_net(words: impl Into<String>, error: Option<NetError>) -> ErrorDetail {
        let errno = error.map_or(0, |error| error.errno);
        match errno {
            0 => words.into().into(),
            errno => ErrorDetail::by(words, io::Error::from_raw_os_error(errno)),
        }
    }
}

impl From<String> for ErrorDetail {
    fn from(words: String) -> ErrorDetail {
        ErrorDetail { words, address: None, source: None }
    }
}

impl From<&str> for ErrorDetail {
    fn from(words: &str) -> ErrorDetail {
        words.to_owned().into()
    }
}

impl Deref for ErrorDetail {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// How a call ended without a response. Each call ends in exactly one response or one of these.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The client cannot be built as it was described.
    Builder(String),
    /// The request cannot be sent as it is: nothing left.
    Request(ErrorDetail),
    /// No connection to the server could be opened. The request was not sent.
    Connect(ErrorDetail),
    /// The proxy opened no way to the server: it cannot be reached, refused, or did not respond. The request was not sent.
    Proxy {
        /// The status of its response to CONNECT, for example 407 (RFC 9110 section 15.5.8).
        status: Option<http::StatusCode>,
        /// A description for people, which names the proxy.
        detail: ErrorDetail,
    },
    /// No whole response came in time, and sending the request again does no harm.
    Timeout {
        /// The wait that took too long.
        phase: Phase,
        /// The server that the request was sent to.
        address: Option<SocketAddr>,
    },
    /// The request was sent and failed: the connection ended, or the response broke the rules.
    Failed {
        /// The kind of failure.
        failure: Failure,
        /// A description for people.
        detail: ErrorDetail,
        /// The request as it was given to the client, unless its body was a stream.
        request: Option<Box<http::Request<Bytes>>>,
    },
    /// The response exceeds a limit of the client.
    TooLarge {
        /// The part that is too large.
        part: FailedPart,
        /// The limit, bytes.
        limit: usize,
        /// The server that sent it.
        address: Option<SocketAddr>,
    },
    /// A redirect cannot be followed: it leads nowhere or round, or there were too many. The server responded to the request.
    Redirect(ErrorDetail),
    /// Responses on a connection cannot be told apart: a tag names no request in flight there, or there were more
    /// responses than requests. The client closed that connection.
    Mismatch(ErrorDetail),
    /// The request was sent, no response came, and it is not idempotent. The server may have acted
    /// on it, so the client does not send it again (RFC 9110 section 9.2.2).
    OutcomeUnknown(Box<Unknown>),
    /// The client has ended: its tokio runtime was shut down.
    Closed,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Builder`].
    Builder,
    /// [`Error::Request`].
    Request,
    /// [`Error::Connect`].
    Connect,
    /// [`Error::Proxy`].
    Proxy,
    /// [`Error::Timeout`].
    Timeout,
    /// [`Error::Failed`].
    Failed,
    /// [`Error::TooLarge`].
    TooLarge,
    /// [`Error::Redirect`].
    Redirect,
    /// [`Error::Mismatch`].
    Mismatch,
    /// [`Error::OutcomeUnknown`].
    OutcomeUnknown,
    /// [`Error::Closed`].
    Closed,
}

/// A request whose outcome is unknown.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unknown {
    /// The request as it was given to the client.
    pub request: http::Request<Bytes>,
    /// Why no response came, in words.
    pub why: ErrorDetail,
}

/// The wait that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For a place on a connection.
    Queue,
    /// For a place too, while a [`Hosts`](super::Hosts) had as many connections or origins as it may have, all of them in
    /// use.
    Limit,
    /// For the first byte of the response.
    FirstByte,
    /// For the whole response.
    Response,
}

/// A part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedPart {
    /// Status line and fields.
    Head,
    /// The content.
    Body,
}

impl Error {
    pub(super) fn timeout(phase: Phase) -> Error {
        Error::Timeout { phase, address: None }
    }

    pub(super) fn failed(failure: Failure, detail: impl Into<ErrorDetail>) -> Error {
        Error::Failed { failure, detail: detail.into(), request: None }
    }

    /// The outcome of `request` is unknown: `why` no response came.
    pub(super) fn unknown(request: http::Request<Bytes>, why: impl Into<ErrorDetail>) -> Error {
        Error::OutcomeUnknown(Box::new(Unknown { request, why: why.into() }))
    }

    /// With the server's address, where it has a place for it.
    pub(super) fn at(mut self, to: Option<SocketAddr>) -> Error {
        match &mut self {
            Error::Request(detail)
            | Error::Connect(detail)
            | Error::Redirect(detail)
            | Error::Mismatch(detail) => {
                detail.address = detail.address.or(to);
            }
            Error::Failed { detail, .. } | Error::Proxy { detail, .. } => {
                detail.address = detail.address.or(to);
            }
            Error::OutcomeUnknown(unknown) => unknown.why.address = unknown.why.address.or(to),
            Error::Timeout { address, .. } | Error::TooLarge { address, .. } => *address = address.or(to),
            Error::Builder(_) | Error::Closed => {}
        }
        self
    }

    /// With the request, where it has a place for it.
    pub(super) fn with_request(mut self, given: http::Request<Bytes>) -> Error {
        if let Error::Failed { request, .. } = &mut self {
            *request = Some(Box::new(given));
        }
        self
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Builder(_) => ErrorKind::Builder,
            Error::Request(_) => ErrorKind::Request,
            Error::Connect(_) => ErrorKind::Connect,
            Error::Proxy { .. } => ErrorKind::Proxy,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::Failed { .. } => ErrorKind::Failed,
            Error::TooLarge { .. } => ErrorKind::TooLarge,
            Error::Redirect(_) => ErrorKind::Redirect,
            Error::Mismatch(_) => ErrorKind::Mismatch,
            Error::OutcomeUnknown(_) => ErrorKind::OutcomeUnknown,
            Error::Closed => ErrorKind::Closed,
        }
    }

    fn detail(&self) -> Option<&ErrorDetail> {
        match self {
            Error::Request(detail)
            | Error::Connect(detail)
            | Error::Redirect(detail)
            | Error::Mismatch(detail) => Some(detail),
            Error::Failed { detail, .. } | Error::Proxy { detail, .. } => Some(detail),
            Error::OutcomeUnknown(unknown) => Some(&unknown.why),
            Error::Builder(_) | Error::Timeout { .. } | Error::TooLarge { .. } | Error::Closed => None,
        }
    }

    /// The server's address that the request was sent to, or that was connected to last. With a proxy it is the proxy's.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Error::Timeout { address, .. } | Error::TooLarge { address, .. } => *address,
            _ => self.detail()?.address,
        }
    }

    /// The request inside, if it was sent and has no response.
    pub fn into_request(self) -> Option<http::Request<Bytes>> {
        match self {
            Error::OutcomeUnknown(unknown) => Some(unknown.request),
            Error::Failed { request, .. } => request.map(|request| *request),
            _ => None,
        }
    }

    /// Whether the server cannot have acted on the request: no byte of it was sent.
    pub fn is_unsent(&self) -> bool {
        match self {
            Error::Request(_) | Error::Connect(_) | Error::Proxy { .. } => true,
            Error::Timeout { phase, .. } => matches!(phase, Phase::Queue | Phase::Limit),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Builder(problem) => f.write_str(problem),
            Error::Request(problem) => write!(f, "the request cannot be sent: {problem}"),
            Error::Connect(why) | Error::Proxy { detail: why, .. } => write!(f, "no connection: {why}"),
            Error::Timeout { phase: Phase::Queue, .. } => {
                f.write_str("timeout: no connection had a place for the request")
            }
            Error::Timeout { phase: Phase::Limit, .. } => f.write_str(
                "timeout: all connections that Hosts may have were in use\nhint: raise connections() or origins() of its \
                 builder, or lower the timeout of the calls that keep them",
            ),
            Error::Timeout { phase: Phase::FirstByte, .. } => {
                f.write_str("timeout: the response did not begin")
            }
            Error::Timeout { phase: Phase::Response, .. } => {
                f.write_str("timeout: the response was not whole")
            }
            Error::Failed { detail, .. } => f.write_str(detail),
            Error::TooLarge { part: FailedPart::Head, limit, .. } => {
                write!(f, "the head of the response exceeds {limit} bytes")?;
                // Builder::max_head goes no further.
                if *limit < LARGEST_HEAD { f.write_str("\nhint: raise Builder::max_head") } else { Ok(()) }
            }
            Error::TooLarge { part: FailedPart::Body, limit, .. } => {
                write!(f, "the body of the response exceeds {limit} bytes\nhint: raise Builder::max_body")
            }
            Error::Redirect(what) => write!(f, "redirects cannot be followed: {what}"),
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

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.detail()?.source.as_deref()?;
        Some(source)
    }
}
