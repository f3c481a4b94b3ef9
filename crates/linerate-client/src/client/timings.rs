//! Where the time of a call went.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http::Version;

use super::connection::ConnectionInfo;

/// Where the time of a call went, on clients built with [`Builder::timings`](super::Builder::timings).
///
/// The parts follow each other: `queue`, `behind`, `server`, `receive`. Together they are `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// From handing the call over to sending its request, the last time if it was sent again.
    pub queue: Duration,
    /// Within it, looking the server's name up, if that ended after the call was handed over.
    pub dns: Option<Duration>,
    /// Within it, for a connection or an origin of a [`Hosts`](super::Hosts) that had as many as it may have, all in use.
    pub limited: Duration,
    /// TCP's handshake, if the connection carried nothing before. Over QUIC it contains that of TLS.
    pub connect: Option<Duration>,
    /// The handshake of TLS, likewise; `None` over QUIC.
    pub tls: Option<Duration>,
    /// Behind the responses of earlier requests on the connection, without the way to the server.
    pub behind: Duration,
    /// How many requests were before it on its connection when it was sent.
    pub requests_before: u32,
    /// From there to the first byte of the response: the server, and the way there and back.
    pub server: Duration,
    /// From the first byte to the last.
    pub receive: Duration,
    /// From handing the call over to the whole response.
    pub total: Duration,
    /// How often the request was sent.
    pub attempts: u32,
    /// Segments that were sent again on the connection meanwhile, where the transport tells.
    pub retransmits: u32,
    /// The number of the connection, from 0 in the order in which the client established them.
    pub connection: u64,
    /// The connection carried requests before.
    pub is_reused: bool,
    /// The address that the connection leads to.
    pub address: Option<SocketAddr>,
    /// The version of HTTP that the connection speaks: [`Version::HTTP_3`] means that it is QUIC's.
    pub version: Version,
}

/// The URI that a response came from, among its extensions.
#[derive(Clone, Debug)]
pub(super) struct FinalUri(pub(super) http::Uri);

/// What took most of a call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It waited for a place on a connection.
    Place,
    /// It waited while a [`Hosts`](super::Hosts) had as many connections or origins as it may have.
    Limit,
    /// It waited for a new connection, or for the server's name.
    Connecting,
    /// Its connection was lost, and it was sent again.
    SentAgain,
    /// It waited behind the responses of earlier requests on its connection.
    Behind,
    /// Segments were lost and sent again.
    Retransmitted,
    /// The server took it.
    Server,
    /// The response took long to arrive.
    Receiving,
}

impl Timings {
    /// Whether the connection was one of QUIC (HTTP/3), and not of TCP.
    pub fn is_quic(&self) -> bool {
        self.version == Version::HTTP_3
    }

    /// What took most of its time.
    pub fn why(&self) -> Why {
        let parts = [
            (self.queue, self.queue_reason()),
            (self.behind, Why::Behind),
            (self.server, if self.retransmits > 0 { Why::Retransmitted } else { Why::Server }),
            (self.receive, if self.retransmits > 0 { Why::Retransmitted } else { Why::Receiving }),
        ];
        parts.into_iter().max_by_key(|(part, _)| *part).map_or(Why::Server, |(_, why)| why)
    }

    fn queue_reason(&self) -> Why {
        let opening = [self.dns, self.connect, self.tls].into_iter().flatten().sum::<Duration>();
        match self.attempts {
            _ if self.limited > self.queue / 2 => Why::Limit,
            0 | 1 if opening > self.queue / 2 => Why::Connecting,
            0 | 1 => Why::Place,
            _ => Why::SentAgain,
        }
    }
}

/// In words, with the times.
impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timings { queue, behind, server, receive, total, .. } = self;
        match self.why() {
            Why::Place => write!(f, "{queue:.1?} of {total:.1?}: waited for a place on a connection"),
            Why::Limit => {
                write!(
                    f,
                    "{queue:.1?} of {total:.1?}: waited while all connections that Hosts may have were in use"
                )
            }
            Why::Connecting => {
                let by = if self.is_quic() { " by QUIC" } else { "" };
                write!(f, "{queue:.1?} of {total:.1?}: waited for a new connection{by}")
            }
            Why::SentAgain => {
                write!(
                    f,
                    "{queue:.1?} of {total:.1?}: was sent {} times, as connections were lost",
                    self.attempts
                )
            }
            Why::Behind => {
                let before = self.requests_before;
                write!(
                    f,
                    "{behind:.1?} of {total:.1?}: waited behind {before} earlier requests of its connection"
                )
            }
            Why::Retransmitted => {
                write!(
                    f,
                    "{:.1?} of {total:.1?}: segments were lost ({} sent again)",
                    *server + *receive,
                    self.retransmits
                )
            }
            Why::Server => write!(f, "{server:.1?} of {total:.1?}: the server and the way there and back"),
            Why::Receiving => write!(f, "{receive:.1?} of {total:.1?}: the response took long to arrive"),
        }
    }
}

/// The status of a response that says that the request failed (RFC 9110 sections 15.5 and 15.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusError(pub http::StatusCode);

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the status is {}", self.0)
    }
}

impl std::error::Error for StatusError {}

/// What a response tells beside its fields and body.
pub trait ResponseExt {
    /// Where its time went, if the client was built with [`Builder::timings`](super::Builder::timings).
    fn timings(&self) -> Option<&Timings>;

    /// What took most of it.
    fn why(&self) -> Option<Why> {
        self.timings().map(Timings::why)
    }

    /// The connection that it came on, if the client was built with
    /// [`Builder::connection_info`](super::Builder::connection_info).
    fn connection(&self) -> Option<&ConnectionInfo>;

    /// The response itself, or an error where its status is 400 or more.
    ///
    /// # Errors
    /// The status says that the request failed.
    fn error_for_status(self) -> Result<Self, StatusError>
    where
        Self: Sized;

    /// The URI that it came from, after redirects, if a [`Hosts`](super::Hosts) sent the request.
    fn uri(&self) -> Option<&http::Uri>;
}

impl<B> ResponseExt for http::Response<B> {
    fn timings(&self) -> Option<&Timings> {
        self.extensions().get::<Timings>()
    }

    fn connection(&self) -> Option<&ConnectionInfo> {
        self.extensions().get()
    }

    fn error_for_status(self) -> Result<Self, StatusError> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() { Err(StatusError(status)) } else { Ok(self) }
    }

    fn uri(&self) -> Option<&http::Uri> {
        self.extensions().get::<FinalUri>().map(|FinalUri(uri)| uri)
    }
}
