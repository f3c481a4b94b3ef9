//! A client over QUIC: the pool, the calls and the task of every client, on the transport of `linerate load`'s HTTP/3.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linerate_net::datagrams::UdpEpoll;
use linerate_quic::{QuicEndpoint, QuicOptions};
use tokio::io::unix::AsyncFd;

use super::board::SharedBoard;
use super::calls::{CallReading, Calls};
use super::driver::watched;
use super::limits::{QUIC_CONNECTION_WINDOW, QUIC_IDLE, QUIC_KEEP_ALIVE, QUIC_STREAM_WINDOW};
use super::mover::{Mover, connections, limits};
use super::options::CallOptions;
use super::secure::Secure;
use super::target::Target;
use crate::{H3, H3Shared, QuicTransport, QuicWay};

/// QUIC over the kernel's UDP.
pub(super) type QuicWire = QuicTransport<UdpEpoll>;

/// A transport for a client's connections, and its descriptor, by which tokio knows that datagrams came.
pub(super) fn open(
    options: &CallOptions,
    secure: Option<&Secure>,
) -> io::Result<(QuicWire, AsyncFd<OwnedFd>)> {
    let (tls, name) = secure.map(Secure::quic).ok_or_else(|| io::Error::other("QUIC needs TLS"))?;
    let net = UdpEpoll::new(limits(connections(options)).connections)?;
    let ready = watched(net.descriptor()?)?;
    let endpoint = QuicEndpoint::client(&quic_options(), tls, options.seed).map_err(io::Error::other)?;
    let way = QuicWay { name, depth: options.streams };
    Ok((QuicTransport::new(net, endpoint, way), ready))
}

/// How a client's QUIC behaves.
pub(super) fn quic_options() -> QuicOptions {
    let mut options = QuicOptions::default();
    // Servers open three streams, and some others that mean nothing (RFC 9114 section 6.2.3).
    (options.streams, options.unidirectional_streams) = (0, 16);
    (options.stream_window, options.connection_window) = (QUIC_STREAM_WINDOW, QUIC_CONNECTION_WINDOW);
    // While a response is under way the connection must stay (RFC 9114 section 5.1); one without requests is closed
    // by `idle_timeout`.
    (options.idle, options.keep_alive) = (QUIC_IDLE, Some(QUIC_KEEP_ALIVE));
    options
}

/// The mover of a client's bytes over QUIC.
pub(super) fn mover_by(
    transport: QuicWire,
    shared: Arc<SharedBoard>,
    options: &CallOptions,
    target: Target,
) -> Mover<QuicWire, H3<CallReading>> {
    let calls = Calls::new(transport, options.clone(), target.addresses(), H3Shared::default());
    Mover::new(shared, calls, target)
}
