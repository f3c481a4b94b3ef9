//! Handlers that take a connection: CONNECT (RFC 9110 section 9.3.6) and `Upgrade` (section 7.8).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::{CheckedFields, Framing, Method, RequestHead};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::message::body::SharedUpload;
use crate::message::hand_over::HandOver;
use crate::message::tunnel::{TunnelBody, TunnelIo};
use crate::message::websocket;
use crate::{Draining, Response};

/// Whether a request's connection can be handed over.
pub(crate) fn is_offered(head: &RequestHead) -> bool {
    // HTTP/2 by Upgrade is obsolete (RFC 9113 section 3.1). A request with a body can be repeated
    // without it.
    let upgrades = head.upgrade() && head.field("upgrade").is_some_and(|to| !to.eq_ignore_ascii_case(b"h2c"));
    (upgrades || head.method() == Method::Connect) && head.framing() == Framing::None
}

/// A connection that can be handed over.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) draining: Draining,
    /// The bytes it will receive.
    pub(crate) incoming: Arc<SharedUpload>,
}

impl Offer {
    pub(crate) fn new(draining: &Draining) -> Box<Offer> {
        Box::new(Offer { draining: draining.clone(), incoming: Arc::default() })
    }
}

/// The right to take a connection over, from [`Request::upgrade`](crate::Request::upgrade).
///
/// A CONNECT proxy:
///
/// ```
/// use linerate_serve::{Request, Response};
/// use tokio::io::copy_bidirectional;
/// use tokio::net::TcpStream;
///
/// async fn proxy(mut request: Request) -> Response {
///     let Some(upgrade) = request.upgrade() else { return Response::status(405) };
///     match TcpStream::connect(request.head().target()).await {
///         Ok(mut target) => upgrade.accept(async move |mut tunnel| {
///             let _ = copy_bidirectional(&mut tunnel, &mut target).await;
///         }),
///         Err(error) => Response::text(format!("{error}\n")).with_status(502),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Upgrade {
    /// The protocols that the client offers; empty: it asks for a tunnel.
    protocols: Vec<String>,
    chosen: usize,
    offer: Offer,
}

impl Upgrade {
    /// `None`: the client names no protocol.
    pub(crate) fn of(head: &RequestHead, offer: Offer) -> Option<Upgrade> {
        if head.method() == Method::Connect {
            return Some(Upgrade { protocols: Vec::new(), chosen: 0, offer });
        }
        let fields = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
        let lists = fields.filter_map(|(_, value)| std::str::from_utf8(value).ok());
        let names = lists.flat_map(|list| list.split(',')).map(str::trim).filter(|name| !name.is_empty());
        let protocols: Vec<_> = names.map(str::to_owned).collect();
        (!protocols.is_empty()).then_some(Upgrade { protocols, chosen: 0, offer })
    }

    /// The protocols that the client offers, its preferred one first; empty for CONNECT.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.protocols.iter().map(String::as_str)
    }

    /// Selects a protocol; the first one is the default. `false`: the client does not offer it.
    pub fn choose(&mut self, protocol: &str) -> bool {
        let place = self.protocols.iter().position(|offered| offered.eq_ignore_ascii_case(protocol));
        self.chosen = place.unwrap_or(self.chosen);
        place.is_some()
    }

    /// Takes the connection. The returned response (200 to CONNECT, otherwise 101 with the selected
    /// protocol) may get more fields. With another status or a body it no longer takes the
    /// connection.
    ///
    /// The connection's event loop polls the future of `drive`, as it polls handlers, and it may
    /// use tokio as they do. It need not be `Send`. The connection ends when the [`Tunnel`] is shut
    /// down or dropped, wherever it is then. A future that still runs is dropped with its
    /// connection, so work that must not stop in the middle belongs in a task.
    pub fn accept<F>(self, drive: impl FnOnce(Tunnel) -> F) -> Response
    where
        F: Future<Output = ()> + 'static,
    {
        let Upgrade { protocols, chosen, offer: Offer { draining, incoming } } = self;
        let (draining, watched) = draining.of_connection();
        let mut body = TunnelBody::new(Bytes::new(), &incoming, |io| drive(Tunnel { io, draining }));
        let (mut status, mut fields) = (200, CheckedFields::new());
        if let Some(protocol) = protocols.get(chosen) {
            status = 101;
            // Part of a valid value is a valid value.
            let _ = fields.add("upgrade", protocol);
            if protocol.eq_ignore_ascii_case("websocket") {
                body.close_on_drain(watched, websocket::WebSocketBytes::behind_head());
            }
        }
        let mut response = Response::status(200).with_stream(body);
        (response.status, response.fields) = (status, fields);
        response.tunnel = Some(HandOver::new(incoming, true));
        response
    }
}

/// A connection that a handler has taken. Reading returns what the client sends, beginning with the
/// bytes that followed the head in the same segment. Writing sends to the client. It may be used
/// from other threads and runtimes.
///
/// Both directions are bounded, so that a slow end slows the other one down. Reads end when the
/// client has ended, and when the connection is lost; writes then fail with
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe). A client that reads nothing for
/// [`Limits::write_time`](crate::Limits) is cut. A tunnel without traffic has no timeout.
#[derive(Debug)]
pub struct Tunnel {
    io: TunnelIo,
    draining: Draining,
}

impl Tunnel {
    /// Signals that the server drains. The tunnel may continue until the drain's time is over, then
    /// it is cut.
    pub fn draining(&self) -> &Draining {
        &self.draining
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io.poll_take(context, into.remaining(), |bytes| into.put_slice(bytes))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_put(context, bytes)
    }

    /// The loop sends written bytes without being asked.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Sends the written bytes, then ends the connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.end();
        Poll::Ready(Ok(()))
    }
}
