//! A client over QUIC: the pool, the calls and the task of every client, on the transport of `linerate load`'s HTTP/3.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linerate_net::Transport;
use linerate_net::datagrams::UdpEpoll;
use linerate_net::epoll::Epoll;
use linerate_net::layer::Layered;
use linerate_quic::{QuicEndpoint, QuicOptions};

use super::board::SharedBoard;
use super::calls::{CallReading, Calls};
use super::driver::{Watched, watched};
use super::dual::{DualConversation, DualShared, DualTransport};
use super::limits::{
    ALT_QUIC_IDLE, ALT_QUIC_IDLE_LEAST, QUIC_CONNECTION_WINDOW, QUIC_IDLE, QUIC_KEEP_ALIVE,
    QUIC_STREAM_WINDOW,
};
use super::mover::{Mover, connections, limits, shared_by};
use super::options::CallOptions;
use super::secure::Secure;
use super::target::Target;
use crate::route::RouteLayer;
use crate::{H3, H3Shared, QuicTransport, QuicWay};

/// QUIC over the kernel's UDP.
pub(super) type QuicWire = QuicTransport<UdpEpoll>;

/// TCP with TLS, and QUIC beside it.
pub(super) type DualWire = DualTransport<Layered<Epoll, RouteLayer>, QuicWire>;

/// A transport for a client's connections, and its descriptor, by which tokio knows that datagrams came.
pub(super) fn open(options: &CallOptions, secure: Option<&Secure>) -> io::Result<(QuicWire, Watched)> {
    let (transport, ready) = wire(options, secure, &quic_options())?;
    Ok((transport, watched(Arc::new(ready))?))
}

/// A transport for a client's connections, and a descriptor that is readable when datagrams came.
fn wire(
    options: &CallOptions,
    secure: Option<&Secure>,
    behaviour: &QuicOptions,
) -> io::Result<(QuicWire, OwnedFd)> {
    let (tls, name) = secure.map(Secure::quic).ok_or_else(|| io::Error::other("QUIC needs TLS"))?;
    let net = UdpEpoll::new(limits(connections(options)).connections)?;
    let ready = net.descriptor()?;
    let endpoint = QuicEndpoint::client(behaviour, tls, options.seed).map_err(io::Error::other)?;
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

/// How QUIC behaves beside TCP: calls go over that when it dies, long before their own time is over.
pub(super) fn beside_options(options: &CallOptions) -> QuicOptions {
    let mut quic = quic_options();
    let patience = options.timeout.min(options.first_byte_timeout);
    quic.idle = (patience / 3).clamp(ALT_QUIC_IDLE_LEAST, ALT_QUIC_IDLE);
    // Two signs of life fit into it.
    quic.keep_alive = Some(quic.idle * 2 / 5);
    quic
}

/// The mover of a client's bytes over TCP, and over QUIC beside it.
pub(super) fn mover_beside(
    epoll: Epoll,
    shared: Arc<SharedBoard>,
    options: &CallOptions,
    target: Target,
    secure: Option<&Secure>,
) -> io::Result<Mover<DualWire, DualConversation<CallReading>>> {
    let mut options = options.clone();
    let (layer, profile) = Secure::layer(secure, None);
    options.profile = profile;
    let mut tcp = Layered::new(epoll, layer, limits(connections(&options)));
    let (quic, ready) = wire(&options, secure, &beside_options(&options))?;
    // The task waits for one descriptor.
    tcp.watch(ready).map_err(io::Error::other)?;
    let both = DualShared { tcp: shared_by(&options), quic: H3Shared::default() };
    let calls = Calls::new(DualTransport::new(tcp, quic), options, target.addresses(), both);
    Ok(Mover::new(shared, calls, target))
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
