//! One thread of a running server: its transport, its listeners, its turns.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use linerate_net::datagrams::UdpEpoll;
use linerate_net::layer::Layered;
use linerate_net::link::pcap::PcapFile;
use linerate_net::open::{ThreadOptions, Unopened, UseTransport};
use linerate_net::share::{Companion, CompanionStep};
use linerate_net::{ListenOptions, Profile, Time, Transport, TransportLimits, Waker, machine};

use crate::clients::Clients;
use crate::flows::Scans;
use crate::http3::WithQuic;
use crate::listening::until_free;
use crate::notice::{Lack, Misdirected, Notice};
use crate::options::ServerOptions;
use crate::orders::Order;
use crate::stats::counts::ThreadCounts;
use crate::threads::gate::Gate;
use crate::threads::secure::Spoken;
use crate::turn::Server;
use crate::watch::Watchdog;
use crate::{Address, Handler, ListeningSocket, limits};

/// A thread's knowledge of its server.
pub(crate) struct Thread {
    pub(crate) index: usize,
    pub(crate) options: ServerOptions,
    pub(crate) counts: Arc<ThreadCounts>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) lack: Lack,
    pub(crate) misdirected: Misdirected,
    pub(crate) inbox: mpsc::Receiver<Order>,
    /// Pending requests for connections.
    pub(crate) scans: Scans,
    /// The file that packets are recorded in.
    pub(crate) capture: Option<Arc<PcapFile>>,
    /// Unix sockets, bound for all threads.
    pub(crate) bound: Vec<ListeningSocket>,
    pub(crate) spoken: Spoken,
    /// Dropped with the thread.
    pub(crate) _alive: mpsc::Sender<()>,
}

pub(crate) type Told = io::Result<(Vec<Address>, Waker)>;

fn adopt<T: Transport, H: Handler>(
    server: &mut Server<T, H>,
    socket: &ListeningSocket,
    profile: Profile,
) -> io::Result<()> {
    server.adopt_with(socket, profile).map_err(|e| io::Error::other(format!("{}: {e}", socket.address())))
}

/// A thread, its handler to be, and who waits for it to listen.
struct Serving<'a, M> {
    thread: Thread,
    make: M,
    tell: &'a mpsc::Sender<Told>,
}

impl<H: Handler, C: Companion, M: FnOnce() -> io::Result<(H, C)>> UseTransport for Serving<'_, M> {
    type Output = ();

    fn with<T: Transport>(self, transport: T) {
        match (self.make)() {
            Ok((handler, companion)) => {
                let (wire, beside) = companion.join(transport);
                self.thread.serve_over(wire, handler, beside, self.tell);
            }
            // Sending fails only if the caller is gone.
            Err(error) => drop(self.tell.send(Err(error))),
        }
    }
}

impl Thread {
    /// Opens the transport, and serves over it.
    pub(crate) fn run<H: Handler, C: Companion>(
        self,
        transport: Unopened,
        make: impl FnOnce() -> io::Result<(H, C)>,
        tell: &mpsc::Sender<Told>,
    ) {
        let serving = Serving { thread: self, make, tell };
        let limits = TransportLimits { reads_per_turn: limits::READS_PER_TURN, ..TransportLimits::default() };
        if let Err(error) = transport.open(ThreadOptions { limits, ..ThreadOptions::default() }, serving) {
            // Sending fails only if the caller is gone.
            let _ = tell.send(Err(error));
        }
    }

    /// Serves with TLS over the transport, if any is configured.
    fn serve_over<T: Transport, H: Handler>(
        self,
        wire: T,
        handler: H,
        beside: impl CompanionStep,
        tell: &mpsc::Sender<Told>,
    ) {
        let Some(layer) = self.spoken.layer() else { return self.serve(wire, handler, beside, tell) };
        self.counts.set_tls(layer.counts());
        let wire = Layered::new(wire, layer, TransportLimits::default());
        if !self.options.http3 {
            return self.serve(wire, handler, beside, tell);
        }
        match self.with_quic(wire) {
            Ok(wire) => self.serve(wire, handler, beside, tell),
            // Sending fails only if the caller is gone.
            Err(error) => drop(tell.send(Err(error))),
        }
    }

    /// The same transport, and QUIC beside it.
    fn with_quic<T: Transport>(&self, mut wire: T) -> io::Result<WithQuic<T, UdpEpoll>> {
        let datagrams = UdpEpoll::new(limits::QUIC_SOCKETS)?;
        wire.watch(datagrams.descriptor()?).map_err(|_| {
            let words =
                format!("HTTP/3 needs the kernel's sockets, which io {} does not use", self.options.io);
            io::Error::new(io::ErrorKind::Unsupported, words)
        })?;
        let listening = self.spoken.quic(&self.options, self.index);
        Ok(WithQuic::new(wire, datagrams, listening))
    }

    fn serve<T: Transport, H: Handler>(
        mut self,
        transport: T,
        handler: H,
        mut beside: impl CompanionStep,
        tell: &mpsc::Sender<Told>,
    ) {
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
        if let Err(error) = self.turns(&mut server, &mut beside) {
            tracing::error!("thread {} ended: {error}", self.index);
        }
    }

    fn listen_at_all<T: Transport, H: Handler>(&self, server: &mut Server<T, H>) -> io::Result<Vec<Address>> {
        let options = &self.options;
        // Only now: a reload must not hold up the connections of this thread.
        let until = Instant::now() + limits::SOCKET_ENDS;
        let listen = |(index, at)| {
            let profile = self.spoken.profile(options.tls_of(index))?;
            until_free(until, || self.listen(server, at, profile))
        };
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
        if self.options.io.is_user_space() && !self.options.listen.contains(&Address::Tcp(at)) {
            let words = format!("{at}: with io xdp the addresses stay as they were when the server began");
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        // With xdp the port is reserved already.
        let alone = listen.reuse_port && !self.options.share_port;
        if self.index == 0 && alone && at.port() != 0 && !self.options.io.is_user_space() {
            // Another multi-threaded server of the same user would share the port with us
            // unnoticed.
            drop(std::net::TcpListener::bind(at).map_err(named)?);
        }
        let listening = server.listen(at, &listen).map_err(|e| match e.errno {
            0 => io::Error::other(format!("{at}: {e}")),
            errno => named(io::Error::from_raw_os_error(errno)),
        })?;
        if self.options.http3 && profile != linerate_tls::PLAIN {
            server.advertise(listening);
        }
        Ok(Address::Tcp(listening))
    }

    /// When to wake for the counters of a user-space TCP, even if nothing happens.
    fn until(&self) -> Option<Time> {
        if !self.scans.is_empty() {
            return Some(Time::ZERO);
        }
        (self.options.io.is_user_space()).then(|| machine::monotonic_now() + limits::TOTALS)
    }

    fn note_totals<T: Transport, H: Handler>(&self, server: &mut Server<T, H>, due: &mut Time) {
        let now = machine::monotonic_now();
        if now >= *due {
            *due = now + limits::TOTALS;
            self.counts.set_tcp(server.transport().totals());
            if let Some(trouble) = self.capture.as_ref().and_then(|file| file.trouble()) {
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

    fn turns<T: Transport, H: Handler>(
        &mut self,
        server: &mut Server<T, H>,
        beside: &mut impl CompanionStep,
    ) -> io::Result<()> {
        let mut totals_due = Time::ZERO;
        while !self.stop.load(Ordering::SeqCst) {
            beside.step()?;
            server.turn(self.until())?;
            if self.options.io.is_user_space() {
                self.note_totals(server, &mut totals_due);
            }
            self.hear(server, false);
        }
        // Clients in the accept queue may have sent their request already.
        for _ in 0..limits::LAST_ACCEPTS {
            let before = server.counts().accepted;
            beside.step()?;
            server.turn(Some(Time::ZERO))?;
            if server.counts().accepted == before {
                break;
            }
        }
        server.drain();
        let until = machine::monotonic_now() + self.options.drain;
        // The last responses may still be in flight after the last connection has ended.
        while (server.unfinished() > 0 || server.is_closing_listeners()) && machine::monotonic_now() < until {
            beside.step()?;
            server.turn(if self.scans.is_empty() { Some(until) } else { Some(Time::ZERO) })?;
            self.hear(server, true);
        }
        server.log_what_is_cut();
        Ok(())
    }
}
