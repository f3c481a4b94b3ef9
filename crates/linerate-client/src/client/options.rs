//! Options of a client: connections, timeouts, limits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use linerate_http::client::StreamFieldCoding;
use linerate_http::h3::QPACK;
use linerate_net::ConnectOptions;

use super::connection_limit::ConnectionLimit;
use super::limits::{
    CALLS_QUEUED, CONNECT_ATTEMPTS, CONNECT_TIME, DISCARDED_BODY, FEW_PIPES, FIRST_BYTE_TIME, IDLE_TIME,
    LARGEST_BODY, LARGEST_HEAD, RESPONSE_TIME,
};
use super::proxy::ClientProxy;
use crate::Resend;

/// Which versions of HTTP a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Over TLS what the server prefers, HTTP/2 or HTTP/1.1 (ALPN, RFC 7301); otherwise HTTP/1.1.
    #[default]
    Either,
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone. Without TLS the client expects the server to speak it (RFC 9113 section 3.3).
    Http2,
    /// HTTP/3 alone, over QUIC (RFC 9114): to UDP on the URL's port, which must be `https`. It needs the crate's
    /// feature for it, and neither proxy nor Unix socket.
    Http3,
    /// As [`Either`](Protocol::Either), and HTTP/3 over QUIC once a response has announced it (Alt-Svc, RFC 7838): the
    /// client opens a connection over QUIC while calls go on over TCP, and sends later calls on it. Where QUIC does not
    /// work they stay on TCP. Without `https`, and with a proxy or a Unix socket, it is `Either`. It needs the crate's
    /// feature for HTTP/3.
    AltSvc,
}

/// Options of one request. It carries them among its extensions (`http::request::Builder::extension`), through all
/// layers of tower; [`ResponseFuture`](super::ResponseFuture) has setters for them too.
///
/// ```
/// # extern crate linerate_client as linerate;
/// use std::time::Duration;
///
/// use linerate::client::RequestOptions;
///
/// let options = RequestOptions::default().timeout(Duration::from_millis(200));
/// let request = http::Request::get("/items/7").extension(options).body(())?;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestOptions {
    /// From handing the request over to its whole response, instead of the client's.
    pub timeout: Option<Duration>,
    /// How much of its time was over before its client got it.
    pub(super) waited: Duration,
}

impl RequestOptions {
    /// From handing the request over to its whole response, instead of the client's `timeout`. The client's
    /// `first_byte_timeout` does not count then.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> RequestOptions {
        self.timeout = Some(timeout);
        self
    }

    pub(super) fn of<B>(request: &http::Request<B>) -> RequestOptions {
        request.extensions().get().copied().unwrap_or_default()
    }

    /// The time that it has left, where `usual` is the client's.
    pub(super) fn left(self, usual: Duration) -> Duration {
        self.timeout.unwrap_or(usual).saturating_sub(self.waited)
    }
}

/// Options of the client's state machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallOptions {
    /// Connections, at most.
    pub pipes: u32,
    /// The client opens more than a few of them only while responses are slow.
    pub adapts: bool,
    /// Requests in flight on each by HTTP/1.1, at most.
    pub depth: u32,
    /// Streams on each by HTTP/2 or HTTP/3, at most; the server may admit fewer.
    pub streams: u32,
    /// Calls that wait or are in flight, at most.
    pub queue: u32,
    /// For a connection to be established.
    pub connect_timeout: Duration,
    /// From the time a request is the oldest on its connection to the first byte of its response.
    pub first_byte_timeout: Duration,
    /// From handing a request over to its whole response.
    pub timeout: Duration,
    /// After this time without requests a connection closes.
    pub idle_timeout: Duration,
    /// Bytes of a response's head. The parser's own limit is 64 KiB.
    pub max_head: usize,
    /// Bytes of a response's body.
    pub max_body: usize,
    /// Bytes of the response to an abandoned call that are read. Beyond them its connection closes.
    pub max_discarded: usize,
    /// Attempts to connect that fail before the waiting calls fail.
    pub connect_attempts: u32,
    /// Which requests are sent again after their connection was lost.
    pub resend: Resend,
    /// A field that carries a number in requests and comes back in responses.
    pub tag: Option<http::HeaderName>,
    /// The value of Host.
    pub host: http::HeaderValue,
    /// A Unix socket that connections go to, instead of an address.
    pub unix: Option<Arc<Path>>,
    /// The proxy that connections go to.
    pub(super) proxy: Option<ClientProxy>,
    /// Which versions of HTTP the connections speak.
    pub protocol: Protocol,
    /// Connections by HTTP/2 or HTTP/3, at most.
    pub h2_connections: u32,
    /// The client opens more than one of them only while responses are slow.
    pub h2_adapts: bool,
    /// Responses tell where their time went.
    pub timings: bool,
    /// Responses tell which connection they came on.
    pub connection_info: bool,
    /// Requests go to an `https` server.
    pub secure: bool,
    /// The limit that its connections share with those of other clients.
    pub(super) limit: Option<Arc<ConnectionLimit>>,
    /// Alternatives on other hosts than the server's do not count: the program said where connections go.
    pub(super) own_host_only: bool,
    /// The profile by which a layer of the transport treats the connections.
    pub profile: linerate_net::Profile,
    /// Determines the random part of pauses.
    pub seed: u64,
}

impl CallOptions {
    pub(super) fn connecting(&self) -> ConnectOptions {
        ConnectOptions { profile: self.profile, unix: self.unix.clone(), ..ConnectOptions::default() }
    }

    /// How the fields of requests on streams of a connection are encoded, by its version of HTTP.
    pub(super) fn field_coding(version: Version) -> StreamFieldCoding {
        if version == Version::HTTP_3 { QPACK } else { StreamFieldCoding::HPACK }
    }

    /// The version of HTTP that it speaks on streams from the beginning.
    pub(super) fn first_streams(&self) -> Version {
        if self.protocol == Protocol::Http3 { Version::HTTP_3 } else { Version::HTTP_2 }
    }

    /// Connections by HTTP/1.1 while responses are quick.
    pub(super) fn usual_pipes(&self) -> u32 {
        if self.adapts { self.pipes.min(FEW_PIPES) } else { self.pipes }
    }

    /// Those by HTTP/2 or HTTP/3.
    pub(super) fn usual_h2_connections(&self) -> u32 {
        if self.h2_adapts { 1 } else { self.h2_connections }
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        CallOptions {
            pipes: FEW_PIPES,
            adapts: false,
            depth: 64,
            streams: 64,
            queue: CALLS_QUEUED,
            connect_timeout: CONNECT_TIME,
            first_byte_timeout: FIRST_BYTE_TIME,
            timeout: RESPONSE_TIME,
            idle_timeout: IDLE_TIME,
            max_head: LARGEST_HEAD,
            max_body: LARGEST_BODY,
            max_discarded: DISCARDED_BODY,
            connect_attempts: CONNECT_ATTEMPTS,
            resend: Resend::Idle,
            tag: None,
            host: http::HeaderValue::from_static("localhost"),
            unix: None,
            proxy: None,
            protocol: Protocol::Http1,
            h2_connections: 1,
            h2_adapts: false,
            timings: false,
            connection_info: false,
            secure: false,
            limit: None,
            own_host_only: false,
            profile: linerate_net::Profile::default(),
            seed: 0,
        }
    }
}
