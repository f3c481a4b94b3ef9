//! Runs servers on threads of their own.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_net::epoll::Epoll;
use linerate_net::layer::Layered;
use linerate_net::link::Middlewares;
use linerate_net::link::fault::{Fault, FaultOptions};
use linerate_net::link::pcap::{self, Pcap, PcapFile};
use linerate_net::link::xdp::{self, Steer, Xdp, XdpOptions};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::uring::Uring;
use linerate_net::{HostSecret, ListenOptions, Profile, Time, Transport, Waker, machine};
use linerate_tls::ServerTls;
use tokio::sync::oneshot;

use crate::access_log::AccessLog;
use crate::clients::{ClientRules, Clients};
use crate::counts::{Counts, ThreadCounts};
use crate::flows::{Desk, Scans};
use crate::gate::Gate;
use crate::limits::{self, Limits};
use crate::live_stats::LiveStats;
use crate::metrics::Metrics;
use crate::notice::{Lack, Misdirected, Notice, Notices};
use crate::reload::{Order, Post};
use crate::routes::Routes;
use crate::runtime::{Beside, TokioRuntime};
use crate::secure::Spoken;
use crate::server::Server;
use crate::site::{SharedContent, SitePlan};
use crate::watch::Watchdog;
use crate::{Address, Draining, Handler, ListeningSocket};

/// The I/O of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Io {
    /// epoll, which every kernel has and which uses less memory per idle connection.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// `io_uring`.
    Uring,
    /// User-space TCP over AF_XDP, on the options' `interface`.
    Xdp,
}

impl std::str::FromStr for Io {
    type Err = String;

    fn from_str(text: &str) -> Result<Io, String> {
        match text {
            "auto" => Ok(Io::Auto),
            "epoll" => Ok(Io::Epoll),
            "uring" => Ok(Io::Uring),
            "xdp" => Ok(Io::Xdp),
            _ => Err(format!("there is no way {text:?} of moving bytes; known are auto, epoll, uring, xdp")),
        }
    }
}

/// How long TCP_DEFER_ACCEPT waits for the first bytes. Reason: afterwards the connection is
/// accepted, and its timeout for a head begins.
const DEFER: Duration = Duration::from_secs(3);

/// The options of a server.
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
    /// Threads, each with its own loop, listeners and connections; 0 counts as 1.
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
    /// Binds the addresses, but accepts no connection before [`Handle::accept`]. The privileged
    /// work is then done, and privileges can be dropped before the first request.
    pub held: bool,
    /// Writes a log line per response.
    pub access_log: Option<AccessLog>,
    /// Whether to count and time responses by route, and time turns of the loops, for
    /// [`Handle::metrics`]. Costs one reading of the clock per turn.
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
            threads: 1,
            cores: Vec::new(),
            io: Io::default(),
            interface: None,
            busy_poll: None,
            pcap_out: None,
            fault: None,
            http2: true,
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
    /// How long the kernel keeps connections that have sent nothing.
    pub(crate) fn deferred(&self) -> Option<Duration> {
        self.defer_accept.then_some(DEFER)
    }
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    /// The current addresses of `listen`, then those of `sockets`.
    pub(crate) addresses: Vec<Address>,
    counts: Arc<Vec<Arc<ThreadCounts>>>,
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    threads: Vec<Running>,
    /// Ends with the last thread.
    ending: Mutex<Option<mpsc::Receiver<()>>>,
    /// How long stopping waits for the threads.
    pub(crate) drain: Duration,
    /// The address as requested for each address: port 0 means a chosen port.
    pub(crate) asked: Vec<Address>,
    /// The Unix sockets among them.
    pub(crate) bound: Vec<ListeningSocket>,
    /// The sockets from the caller.
    pub(crate) sockets: Vec<ListeningSocket>,
    pub(crate) spoken: Spoken,
    /// It uses a user-space TCP.
    own_tcp: bool,
    _tokio: Beside,
}

/// One of its threads.
#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    post: Post,
}

impl Handle {
    /// The first TCP address it listens on; `0.0.0.0:0` if there is none.
    pub fn addr(&self) -> SocketAddr {
        let first = self.addresses.iter().find_map(Address::tcp);
        first.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// All addresses it listens on: those of the options' `listen`, then those of `sockets`.
    pub fn addrs(&self) -> &[Address] {
        &self.addresses
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        sum(&self.counts)
    }

    /// A function that returns the counts, for another thread or a handler.
    pub fn counter(&self) -> impl Fn() -> Counts + Clone + Send + Sync + use<> {
        let counts = Arc::clone(&self.counts);
        move || sum(&counts)
    }

    /// Its metrics, for another thread or a handler.
    pub fn metrics(&self) -> Metrics {
        Metrics::new(Arc::clone(&self.counts))
    }

    /// Its loops and connections while it runs, for an address of their own.
    pub fn live_stats(&self) -> LiveStats {
        let flows = self.own_tcp.then(Desk::default);
        if let Some(desk) = &flows {
            desk.open(self.posts());
        }
        LiveStats { metrics: self.metrics(), listening: self.addresses.clone(), flows }
    }

    /// Stops the server: no received request is lost, and responses close their connections. Waits
    /// until that is done, at most for the options' `drain`, and returns the final counts. A thread
    /// that a handler holds beyond that is abandoned.
    pub fn stop(mut self) -> Counts {
        self.shut_down();
        sum(&self.counts)
    }

    /// Waits for `shutdown`, then stops as [`Handle::stop`] does, without blocking the polling
    /// thread. It needs no runtime. Dropping the future early stops the server at once.
    pub async fn stop_when(self, shutdown: impl Future<Output = ()>) -> Counts {
        shutdown.await;
        let (tell, told) = oneshot::channel();
        let counts = Arc::clone(&self.counts);
        let stopping = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
            // The receiver may be gone.
            let _ = tell.send(self.stop());
        });
        // If no thread could be started, dropping the handle has stopped it here.
        if stopping.is_ok()
            && let Ok(counts) = told.await
        {
            return counts;
        }
        sum(&counts)
    }

    /// Whether all its threads have ended by themselves, which only happens if the transport fails.
    pub fn is_dead(&self) -> bool {
        self.threads.iter().all(|running| running.thread.is_finished())
    }

    /// Runs `act` when all its threads have ended by themselves (only the first call counts).
    /// Stopping the server does not run it.
    pub fn when_dead(&mut self, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let ending = self.ending.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ending) = ending else { return Ok(()) };
        let stop = Arc::clone(&self.stop);
        let wait = move || {
            // Nothing is ever sent: it fails when the last thread has ended.
            let _ = ending.recv();
            if !stop.load(Ordering::SeqCst) {
                act();
            }
        };
        std::thread::Builder::new().name("serve-ending".to_owned()).spawn(wait).map(drop)
    }

    pub(crate) fn posts(&self) -> impl Iterator<Item = &Post> {
        self.threads.iter().map(|running| &running.post)
    }

    /// Starts to accept connections, if [`ServerOptions::held`] was set.
    pub fn accept(&self) {
        self.gate.open();
    }

    /// All its threads listen now.
    fn begin(&mut self, desk: &Desk, ending: mpsc::Receiver<()>, held: bool) {
        self.addresses.extend(self.sockets.iter().map(|socket| socket.address().clone()));
        desk.open(self.posts());
        self.ending = Mutex::new(Some(ending));
        if !held {
            self.accept();
        }
    }

    fn shut_down(&mut self) {
        // From now on clients cannot connect to a Unix socket; those that have connected are
        // accepted.
        self.bound.iter().for_each(ListeningSocket::remove_file);
        self.stop.store(true, Ordering::SeqCst);
        self.gate.open();
        for running in &self.threads {
            running.post.waker.wake();
        }
        let until = Instant::now() + self.drain + limits::DRAIN_GRACE;
        for running in self.threads.drain(..) {
            // A join has no timeout; polling sees its end soon enough.
            while !running.thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if running.thread.is_finished() {
                // It can only fail by a panic, which was printed already.
                let _ = running.thread.join();
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn sum(counts: &[Arc<ThreadCounts>]) -> Counts {
    let mut all = Counts::default();
    for thread in counts {
        all.add(thread);
    }
    all
}

/// Starts a server with the built-in routes ([`Routes`]).
///
/// # Errors
/// An address cannot be listened on, or the kernel lacks a feature.
pub fn spawn(options: ServerOptions) -> io::Result<Handle> {
    spawn_site(options, SharedContent::default())
}

/// Starts a server with files of a directory, the built-in routes, or both.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_site(options: ServerOptions, content: SharedContent) -> io::Result<Handle> {
    let own_tcp = options.io == Io::Xdp;
    spawn_counting(options, |counts, flows| {
        let routes = Routes::new(counts);
        let routes = if own_tcp { routes.with_flows(flows) } else { routes };
        let plan = SitePlan::new(routes, content);
        move || {
            let site = plan.site();
            move |request| site.clone().answer(request)
        }
    })
}

/// Starts a server; `make` gives each thread its handler, on that thread.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with<M, H>(options: ServerOptions, make: M) -> io::Result<Handle>
where
    M: Fn() -> H + Clone + Send + 'static,
    H: Handler,
{
    spawn_counting(options, |_, _| make)
}

type CountsFn = Arc<dyn Fn() -> Counts + Send + Sync>;

fn spawn_counting<M, H>(options: ServerOptions, make: impl FnOnce(CountsFn, Desk) -> M) -> io::Result<Handle>
where
    M: Fn() -> H + Clone + Send + 'static,
    H: Handler,
{
    let mut options = options;
    let asked = options.listen.clone();
    kernels_alone(&options)?;
    let mut links = take_interface(&mut options)?.into_iter();
    let over = middlewares(&options)?;
    let count = options.threads.max(1);
    let counts: Arc<Vec<Arc<ThreadCounts>>> = Arc::new((0..count).map(|_| Arc::default()).collect());
    let desk = Desk::default();
    let make = make(summing(&counts), desk.clone());
    let bound = bind_all(&options.listen)?;
    let tokio = Beside::start(&options.runtime, count)?;
    let mut handle = Handle {
        addresses: options.listen.clone(),
        counts,
        stop: Arc::new(AtomicBool::new(false)),
        gate: Arc::default(),
        threads: Vec::new(),
        ending: Mutex::new(None),
        drain: options.drain,
        asked,
        bound,
        sockets: options.sockets.clone(),
        spoken: Spoken::new(&options),
        own_tcp: options.io == Io::Xdp,
        _tokio: tokio,
    };
    let (alive, ending) = mpsc::channel();
    let watchdog = if options.watchdog { Some(Watchdog::spawn(options.notices.clone())?) } else { None };
    let clients = Arc::<Clients>::default();
    let lack = Lack::new(options.notices.clone());
    let misdirected = Misdirected::new(options.notices.clone());
    for index in 0..count {
        let ((tell, told), (orders, inbox)) = (mpsc::channel(), mpsc::channel());
        let thread = Thread {
            index,
            options: ServerOptions { listen: handle.addresses.clone(), ..options.clone() },
            counts: Arc::clone(&handle.counts[index]),
            clients: Arc::clone(&clients),
            stop: Arc::clone(&handle.stop),
            gate: Arc::clone(&handle.gate),
            watchdog: watchdog.clone(),
            lack: lack.clone(),
            misdirected: misdirected.clone(),
            inbox,
            scans: Scans::default(),
            link: links.next(),
            over: over.clone(),
            bound: handle.bound.clone(),
            spoken: handle.spoken.clone(),
            _alive: alive.clone(),
        };
        let (tokio, make) = (handle._tokio.handle().clone(), make.clone());
        let thread = std::thread::Builder::new().name(format!("serve-{index}")).spawn(move || {
            let _inside = tokio.enter();
            thread.run(make, &tell);
        })?;
        let (addresses, waker) = told.recv().map_err(|_| io::Error::other("the server's thread ended"))??;
        handle.addresses = addresses;
        handle.threads.push(Running { thread, post: Post { orders, waker } });
    }
    handle.begin(&desk, ending, options.held);
    Ok(handle)
}

/// Sums the threads' counts at each call.
fn summing(counts: &Arc<Vec<Arc<ThreadCounts>>>) -> CountsFn {
    let counts = Arc::clone(counts);
    Arc::new(move || sum(&counts))
}

/// Refuses options that only the kernel's TCP supports.
fn kernels_alone(options: &ServerOptions) -> io::Result<()> {
    let sockets = !options.sockets.is_empty() || options.listen.iter().any(|at| at.tcp().is_none());
    if options.io == Io::Xdp && sockets {
        let words = "Unix sockets and sockets that listen already are the kernel's; with io xdp TCP is not";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    Ok(())
}

/// Binds the Unix sockets among these addresses, once for all threads. The error names the address.
pub(crate) fn bind_all(addresses: &[Address]) -> io::Result<Vec<ListeningSocket>> {
    let unix =
        addresses.iter().filter_map(|at| if let Address::Unix(path) = at { Some((at, path)) } else { None });
    unix.map(|(at, path)| {
        ListeningSocket::bind(path).map_err(|e| io::Error::new(e.kind(), format!("{at}: {e}")))
    })
    .collect()
}

pub(crate) struct Thread {
    index: usize,
    pub(crate) options: ServerOptions,
    counts: Arc<ThreadCounts>,
    clients: Arc<Clients>,
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    watchdog: Option<Watchdog>,
    lack: Lack,
    misdirected: Misdirected,
    inbox: mpsc::Receiver<Order>,
    /// Pending requests for connections.
    pub(crate) scans: Scans,
    link: Option<Xdp>,
    over: Middlewares,
    /// Unix sockets, bound for all threads.
    pub(crate) bound: Vec<ListeningSocket>,
    spoken: Spoken,
    /// Dropped with the thread.
    _alive: mpsc::Sender<()>,
}

enum Moving {
    Epoll(Box<Epoll>),
    Uring(Box<Uring>),
    Xdp(Box<Stack<Xdp>>),
    Watched(Box<Stack<Pcap<Fault<Xdp>>>>),
}

/// The stages on top of each link.
fn middlewares(options: &ServerOptions) -> io::Result<Middlewares> {
    let asked = options.pcap_out.is_some() || options.fault.is_some();
    if asked && options.io != Io::Xdp {
        let words = "captures and faults are for TCP in user space; elsewhere tcpdump and tc do it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    let create = |path: &PathBuf| {
        PcapFile::create(path, pcap::FILE_BYTES, machine::wall_offset_ns()).map_err(|e| {
            io::Error::new(e.kind(), format!("the capture {} cannot be written: {e}", path.display()))
        })
    };
    Ok(Middlewares { fault: options.fault, pcap: options.pcap_out.as_ref().map(create).transpose()? })
}

/// For [`Io::Xdp`]: opens a link for each thread. It may reduce the threads, and chooses ports.
fn take_interface(options: &mut ServerOptions) -> io::Result<Vec<Xdp>> {
    if options.io != Io::Xdp {
        return Ok(Vec::new());
    }
    let Some(interface) = options.interface.clone() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "TCP in user space needs the name of an interface",
        ));
    };
    let wanted = XdpOptions {
        threads: options.threads.max(1),
        busy_poll: options.busy_poll,
        ..XdpOptions::new(interface, Steer::Listen(options.listen.iter().filter_map(Address::tcp).collect()))
    };
    let opened = xdp::open(&wanted).map_err(|e| io::Error::new(io::ErrorKind::Unsupported, e))?;
    opened.notes.into_iter().for_each(|note| options.notices.tell(&Notice::Interface(note)));
    options.threads = opened.links.len();
    options.listen = opened.listen.into_iter().map(Address::Tcp).collect();
    Ok(opened.links)
}

/// Sequence numbers of a later server continue where this one ends.
fn of_this_machine() -> StackOptions {
    StackOptions { host: HostSecret::of_this_machine(), ..StackOptions::default() }
}

type Told = io::Result<(Vec<Address>, Waker)>;

fn adopt<T: Transport, H: Handler>(
    server: &mut Server<T, H>,
    socket: &ListeningSocket,
    profile: Profile,
) -> io::Result<()> {
    server.adopt_with(socket, profile).map_err(|e| io::Error::other(format!("{}: {e}", socket.address())))
}

impl Thread {
    fn run<H: Handler>(mut self, make: impl FnOnce() -> H, tell: &mpsc::Sender<Told>) {
        let link = self.link.take();
        let transport = || match (link, self.options.io) {
            (Some(link), _) if self.over.is_nothing() => {
                Ok(Moving::Xdp(Box::new(Stack::new(link, of_this_machine()))))
            }
            (Some(link), _) => {
                let link = self.over.over(link, self.index);
                Ok(Moving::Watched(Box::new(Stack::new(link, of_this_machine()))))
            }
            (None, Io::Uring) => Uring::new().map(|uring| Moving::Uring(Box::new(uring))),
            (None, _) => Epoll::new().map(|epoll| Moving::Epoll(Box::new(epoll))),
        };
        match transport() {
            Ok(Moving::Epoll(epoll)) => self.serve_over(*epoll, make(), tell),
            Ok(Moving::Uring(uring)) => self.serve_over(*uring, make(), tell),
            Ok(Moving::Xdp(stack)) => self.serve_over(*stack, make(), tell),
            Ok(Moving::Watched(stack)) => self.serve_over(*stack, make(), tell),
            Err(error) => {
                // Sending fails only if the caller is gone.
                let _ = tell.send(Err(error));
            }
        }
    }

    /// Serves with TLS over the transport, if any is configured.
    fn serve_over<T: Transport, H: Handler>(self, wire: T, handler: H, tell: &mpsc::Sender<Told>) {
        let Some(layer) = self.spoken.layer() else { return self.serve(wire, handler, tell) };
        self.counts.set_tls(layer.counts());
        self.serve(Layered::new(wire, layer, linerate_net::Limits::default()), handler, tell);
    }

    fn serve<T: Transport, H: Handler>(mut self, transport: T, handler: H, tell: &mpsc::Sender<Told>) {
        if let Some(&core) = self.options.cores.get(self.index % self.options.cores.len().max(1)) {
            // Without pinning it is slower, not wrong.
            let _ = machine::pin_to_core(core);
        }
        self.counts.thread.store(machine::thread_id().unwrap_or(0), Ordering::Relaxed);
        let waker = transport.waker();
        let mut server = Server::new(transport, handler, self.options.limits)
            .with_counts(Arc::clone(&self.counts))
            .with_close_after(self.options.close_after)
            .with_client_rules(self.options.clients.clone())
            .with_clients(Arc::clone(&self.clients))
            .with_access_log(self.options.access_log.clone())
            .with_log_clock(machine::monotonic_now)
            .with_watchdog(self.watchdog.as_ref())
            .with_lack(self.lack.clone())
            .with_misdirected(self.misdirected.clone())
            .with_measure(self.options.measure)
            .with_http2(self.options.http2)
            .with_draining(self.options.draining.clone());
        let addresses = self.listen_at_all(&mut server);
        let failed = addresses.is_err();
        let told = addresses.map(|a| (a, waker));
        if tell.send(told).is_err() || failed {
            return;
        }
        self.gate.pass();
        if let Err(error) = self.turns(&mut server) {
            tracing::error!("thread {} ended: {error}", self.index);
        }
    }

    fn listen_at_all<T: Transport, H: Handler>(&self, server: &mut Server<T, H>) -> io::Result<Vec<Address>> {
        let options = &self.options;
        let listen = |(index, at)| self.listen(server, at, self.spoken.profile(options.tls_of(index))?);
        let addresses = options.listen.iter().enumerate().map(listen).collect::<io::Result<_>>()?;
        for (index, socket) in (options.listen.len()..).zip(&options.sockets) {
            adopt(server, socket, self.spoken.profile(options.tls_of(index))?)?;
        }
        Ok(addresses)
    }

    /// Listens on one more address; the error names it.
    pub(crate) fn listen<T: Transport, H: Handler>(
        &self,
        server: &mut Server<T, H>,
        at: &Address,
        profile: Profile,
    ) -> io::Result<Address> {
        let at = match at {
            Address::Tcp(at) => *at,
            Address::Unix(_) => {
                let bound = self.bound.iter().find(|socket| socket.address() == at);
                let socket = bound.ok_or_else(|| io::Error::other(format!("{at}: it is not bound")))?;
                return adopt(server, socket, profile).map(|()| at.clone());
            }
        };
        let listen = ListenOptions {
            reuse_port: self.options.threads > 1 || self.options.share_port,
            defer: self.options.deferred(),
            profile,
            ..ListenOptions::default()
        };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{at}: {e}"));
        if self.options.io == Io::Xdp && !self.options.listen.contains(&Address::Tcp(at)) {
            let words = format!("{at}: with io xdp the addresses stay as they were when the server began");
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        // With xdp the port is reserved already.
        let alone = listen.reuse_port && !self.options.share_port;
        if self.index == 0 && alone && at.port() != 0 && self.options.io != Io::Xdp {
            // Another multi-threaded server of the same user would share the port with us
            // unnoticed.
            drop(std::net::TcpListener::bind(at).map_err(named)?);
        }
        server.listen(at, &listen).map(Address::Tcp).map_err(|e| match e.errno {
            0 => io::Error::other(format!("{at}: {e}")),
            errno => named(io::Error::from_raw_os_error(errno)),
        })
    }

    /// When to wake for the counters of a user-space TCP, even if nothing happens.
    fn until(&self) -> Option<Time> {
        if !self.scans.is_empty() {
            return Some(Time::ZERO);
        }
        (self.options.io == Io::Xdp).then(|| machine::monotonic_now() + limits::TOTALS)
    }

    fn note_totals<T: Transport, H: Handler>(&self, server: &mut Server<T, H>, due: &mut Time) {
        let now = machine::monotonic_now();
        if now >= *due {
            *due = now + limits::TOTALS;
            self.counts.set_tcp(server.transport().totals());
            if let Some(trouble) = self.over.pcap.as_ref().and_then(|file| file.trouble()) {
                self.options.notices.tell(&Notice::CaptureEnds(trouble));
            }
            while let Some(news) = server.transport().news() {
                self.options.notices.tell(&Notice::Interface(news));
            }
        }
    }

    /// Handles pending orders. A server that is about to end only reports connections.
    fn hear<T: Transport, H: Handler>(&mut self, server: &mut Server<T, H>, ending: bool) {
        if server.take_woken() {
            while let Ok(order) = self.inbox.try_recv() {
                if !ending || matches!(order, Order::Flows(_)) {
                    self.obey(server, order);
                }
            }
        }
        if !self.scans.is_empty() {
            self.scans.go_on(server.transport());
        }
    }

    fn turns<T: Transport, H: Handler>(&mut self, server: &mut Server<T, H>) -> io::Result<()> {
        let mut totals_due = Time::ZERO;
        while !self.stop.load(Ordering::SeqCst) {
            server.turn(self.until())?;
            if self.options.io == Io::Xdp {
                self.note_totals(server, &mut totals_due);
            }
            self.hear(server, false);
        }
        // Clients in the accept queue may have sent their request already.
        for _ in 0..limits::LAST_ACCEPTS {
            let before = server.counts().accepted;
            server.turn(Some(Time::ZERO))?;
            if server.counts().accepted == before {
                break;
            }
        }
        server.drain();
        let until = machine::monotonic_now() + self.options.drain;
        // The last responses may still be in flight after the last connection has ended.
        while (server.unfinished() > 0 || server.is_closing_listeners()) && machine::monotonic_now() < until {
            server.turn(if self.scans.is_empty() { Some(until) } else { Some(Time::ZERO) })?;
            self.hear(server, true);
        }
        server.log_what_is_cut();
        Ok(())
    }
}
