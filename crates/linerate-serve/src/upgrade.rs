//! Handlers that take a connection: CONNECT (RFC 9110 section 9.3.6) and `Upgrade` (section 7.8).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use linerate_http::server::{Fields, Framing, Method, RequestHead};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::{BodyError, Shared};
use crate::tunnel::{TunnelBody, TunnelIo};
use crate::{Draining, Response, websocket};

/// Whether a request's connection can be handed over.
pub(crate) fn is_offered(head: &RequestHead) -> bool {
    // HTTP/2 by Upgrade is no more (RFC 9113 section 3.1); a request with a body can be asked again without.
    let upgrades = head.upgrade() && head.field("upgrade").is_some_and(|to| !to.eq_ignore_ascii_case(b"h2c"));
    (upgrades || head.method() == Method::Connect) && head.framing() == Framing::None
}

/// A connection that can be handed over.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) draining: Draining,
    /// What it will receive.
    pub(crate) incoming: Arc<Shared>,
}

impl Offer {
    pub(crate) fn new(draining: &Draining) -> Box<Offer> {
        Box::new(Offer { draining: draining.clone(), incoming: Arc::default() })
    }
}

/// A connection that is handed over, beside the response that says so.
#[derive(Debug)]
pub(crate) struct HandOver {
    incoming: Option<Arc<Shared>>,
    /// The response's head is not among what is written into the tunnel.
    pub(crate) needs_head: bool,
}

impl HandOver {
    pub(crate) fn new(incoming: Arc<Shared>, needs_head: bool) -> Box<HandOver> {
        Box::new(HandOver { incoming: Some(incoming), needs_head })
    }

    /// Where what the connection receives goes.
    pub(crate) fn take(mut self) -> Arc<Shared> {
        self.incoming.take().unwrap_or_default()
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        // The response is not sent: nothing will come.
        if let Some(incoming) = self.incoming.take() {
            incoming.end(Err(BodyError::Ended), Vec::new());
        }
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
    /// Those that the client offers; none: it asks for a tunnel.
    protocols: Vec<String>,
    chosen: usize,
    offer: Offer,
}

impl Upgrade {
    /// `None`: it names no protocol.
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

    /// The protocols that the client offers, the one it likes best first. None of CONNECT.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.protocols.iter().map(String::as_str)
    }

    /// Chooses one of these; the first is chosen already. `false`: the client does not offer it.
    pub fn choose(&mut self, protocol: &str) -> bool {
        let place = self.protocols.iter().position(|offered| offered.eq_ignore_ascii_case(protocol));
        self.chosen = place.unwrap_or(self.chosen);
        place.is_some()
    }

    /// Takes the connection. The response that says so (200 to CONNECT, else 101 with the protocol that was chosen) may get more
    /// fields; with another status or a body it takes no connection any more.
    ///
    /// The future of `drive` is polled by the connection's event loop, as handlers are, and may use tokio as they do. It need not be
    /// `Send`. The connection ends when the [`Tunnel`] is shut down or dropped, wherever it is then; a future that still runs is
    /// dropped with its connection, so what must not stop in the middle belongs into a task.
    pub fn accept<F>(self, drive: impl FnOnce(Tunnel) -> F) -> Response
    where
        F: Future<Output = ()> + 'static,
    {
        let Upgrade { protocols, chosen, offer: Offer { draining, incoming } } = self;
        let (draining, watched) = draining.of_connection();
        let mut body = TunnelBody::new(Bytes::new(), &incoming, |io| drive(Tunnel { io, draining }));
        let (mut status, mut fields) = (200, Fields::new());
        if let Some(protocol) = protocols.get(chosen) {
            status = 101;
            // A part of a field's value is one.
            let _ = fields.add("upgrade", protocol);
            if protocol.eq_ignore_ascii_case("websocket") {
                body.close_on_drain(watched, websocket::Outgoing::behind_head());
            }
        }
        let mut response = Response::status(200).with_stream(body);
        (response.status, response.fields) = (status, fields);
        response.tunnel = Some(HandOver::new(incoming, true));
        response
    }
}

/// A connection that a handler has taken: what the client sends is read from it, beginning with what came in the same segment as the
/// head, and what is written to it is sent. It may be used from other threads and runtimes.
///
/// Both directions are bounded, so that a slow end slows the other one down. Reads end when the client has ended, and when the
/// connection is lost; writes then fail with [`BrokenPipe`](io::ErrorKind::BrokenPipe). A client that takes nothing for
/// [`Limits::write_time`](crate::Limits) is cut. A tunnel without traffic has no limit of time.
#[derive(Debug)]
pub struct Tunnel {
    io: TunnelIo,
    draining: Draining,
}

impl Tunnel {
    /// Tells that the server drains. The tunnel may go on until the time for that is over, then it is cut.
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

    /// The loop sends what is written without being asked.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// What was written is sent, then the connection ends.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.end();
        Poll::Ready(Ok(()))
    }
}
