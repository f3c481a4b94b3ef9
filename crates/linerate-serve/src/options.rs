//! The options of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use linerate_net::link::fault::FaultOptions;
use linerate_net::{Io, IoOptions};
use linerate_tls::ServerTls;

use crate::access_log::AccessLog;
use crate::clients::ClientRules;
use crate::limits::{self, Limits};
use crate::notice::Notices;
use crate::threads::runtime::TokioRuntime;
use crate::{Address, Draining, ListeningSocket};

/// How long TCP_DEFER_ACCEPT waits for the first bytes. Reason: afterwards the connection is
/// accepted, and its timeout for a head begins.
const DEFER: Duration = Duration::from_secs(3);

/// The options of a server.
///
/// ```
/// use std::time::Duration;
///
/// use linerate_serve::{Limits, ServerOptions};
///
/// let options = ServerOptions {
///     listen: vec!["127.0.0.1:0".parse()?, "unix:/run/app.sock".parse()?],
///     threads: 2,
///     drain: Duration::from_secs(5),
///     limits: Limits { connections: 10_000, ..Limits::default() },
///     ..ServerOptions::default()
/// };
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The addresses to listen on; port 0 picks one. A Unix socket's file is removed when the
    /// server stops.
    pub listen: Vec<Address>,
    /// Existing listening sockets, in addition to `listen`.
    pub sockets: Vec<ListeningSocket>,
    /// TLS on all of them (HTTPS); `None`: plain HTTP.
    pub tls: Option<ServerTls>,
    /// Exceptions from `tls`, by index in `listen`, continued in `sockets`; `None`: plain HTTP.
    pub tls_at: Vec<(usize, Option<ServerTls>)>,
    /// Threads, each with its own loop, listeners and connections; 0: one for each core that this
    /// process may use.
    pub threads: usize,
    /// CPUs to pin the threads to, in turn; none: not pinned.
    pub cores: Vec<usize>,
    /// The I/O to use.
    pub io: Io,
    /// The interface of [`Io::Xdp`]: it takes packets to the listening addresses from there.
    /// Packets by other ways (for instance from this machine itself) are not seen.
    pub interface: Option<String>,
    /// For [`Io::Xdp`]: the working threads poll the interface's queues, for this long at a time.
    pub busy_poll: Option<Duration>,
    /// For [`Io::Xdp`]: records every packet in this pcap file, up to 1 GiB.
    pub pcap_out: Option<PathBuf>,
    /// For [`Io::Xdp`]: faults to inject.
    pub fault: Option<FaultOptions>,
    /// Speaks HTTP/2 beside HTTP/1.1: by prior knowledge, and over TLS if its `alpn` has `h2`.
    pub http2: bool,
    /// Speaks HTTP/3 over QUIC, on UDP at the addresses with TLS. Not with [`Io::Xdp`].
    pub http3: bool,
    /// Requests after which a connection is closed.
    pub close_after: Option<u32>,
    /// Accept a connection only once its first bytes have arrived (TCP_DEFER_ACCEPT): cheaper for
    /// short connections.
    pub defer_accept: bool,
    /// Other processes may listen on the same addresses (SO_REUSEPORT), if they set this too and
    /// run as the same user. The kernel distributes new connections over all of them by a hash of
    /// the addresses. Without it that is an error.
    pub share_port: bool,
    /// Limits of connections.
    pub limits: Limits,
    /// Limits of each client, and the proxies that may name clients.
    pub clients: ClientRules,
    /// Binds the addresses, but accepts no connection before [`Handle::accept`](crate::Handle::accept). The privileged
    /// work is then done, and privileges can be dropped before the first request.
    pub held: bool,
    /// Writes a log line per response.
    pub access_log: Option<AccessLog>,
    /// Whether to count and time responses by route, and time turns of the loops, for
    /// [`Handle::metrics`](crate::Handle::metrics). Costs one reading of the clock per turn.
    pub measure: bool,
    /// Whether to detect and name handlers that hold their loop.
    pub watchdog: bool,
    /// The receiver of messages for the operator.
    pub notices: Notices,
    /// How long a stopped server waits for responses in flight.
    pub drain: Duration,
    /// The tokio runtime for handlers.
    pub runtime: TokioRuntime,
    /// Signals that the server stops: endless responses should end then. Servers with clones of
    /// these options share it unless they are given their own.
    pub draining: Draining,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()],
            sockets: Vec::new(),
            tls: None,
            tls_at: Vec::new(),
            threads: 0,
            cores: Vec::new(),
            io: Io::default(),
            interface: None,
            busy_poll: None,
            pcap_out: None,
            fault: None,
            http2: true,
            http3: false,
            close_after: None,
            defer_accept: false,
            share_port: false,
            limits: Limits::default(),
            clients: ClientRules::default(),
            held: false,
            access_log: None,
            measure: false,
            watchdog: true,
            notices: Notices::default(),
            drain: limits::DRAIN_TIME,
            runtime: TokioRuntime::default(),
            draining: Draining::default(),
        }
    }
}

impl ServerOptions {
    /// The number of threads.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            // Where it cannot be known, one serves too.
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// The transport to open.
    pub(crate) fn transport(&self) -> IoOptions {
        IoOptions {
            io: self.io,
            interface: self.interface.clone(),
            busy_poll: self.busy_poll,
            pcap_out: self.pcap_out.clone(),
            fault: self.fault,
        }
    }

    /// How long the kernel keeps connections that have sent nothing.
    pub(crate) fn deferred(&self) -> Option<Duration> {
        self.defer_accept.then_some(DEFER)
    }
}
