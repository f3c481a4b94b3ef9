//! A server that does on purpose what slow servers do by mistake, for teaching and for tests.
//!
//! It has a blocking thread per connection, so that every `write` is visible in the code. The fast
//! server contains none of it. Each [`MisbehaviourKind`] documents its symptom.

mod channel;
mod connection;
mod faults;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_base::Random;
use linerate_net::layer::Layer;
use linerate_net::{Listener, Profile};
use linerate_tls::{ServerTls, TlsLayer, TlsSession};
use socket2::{Domain, Protocol, Socket, Type};

pub use faults::{KNOWN, Misbehaviour, MisbehaviourKind, ParseFaultError};

use crate::content::routes::Routes;
use crate::stats::counts::{Counts, ThreadCounts};

/// Concurrent connections. Reason: each has a thread.
const CONNECTIONS: usize = 1024;
/// How often a waiting thread checks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
/// How long stopping waits for responses in flight. Reason: a client that reads nothing would hold
/// it forever.
const DRAIN: Duration = Duration::from_secs(10);

/// A running misbehaving server. Dropping it stops it.
#[derive(Debug)]
pub struct MisbehavingServer {
    address: SocketAddr,
    shared: Arc<SharedMisbehaviour>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedMisbehaviour {
    how: Misbehaviour,
    counts: Mutex<Arc<ThreadCounts>>,
    open: AtomicUsize,
    stop: AtomicBool,
    lanes: Lanes,
    workers: Lanes,
    /// Random state for the times of `think`.
    chance: AtomicU64,
    /// The layer that makes the sessions, and their profile.
    tls: Option<(Mutex<TlsLayer>, Profile)>,
}

impl MisbehavingServer {
    /// Listens on `at` and misbehaves.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn spawn(at: SocketAddr, how: Misbehaviour) -> io::Result<MisbehavingServer> {
        MisbehavingServer::spawn_with(at, how, None)
    }

    /// The same over TLS, if `tls` is given. It should offer HTTP/1.1 alone.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn spawn_with(
        at: SocketAddr,
        how: Misbehaviour,
        tls: Option<&ServerTls>,
    ) -> io::Result<MisbehavingServer> {
        let listener = listen(at, &how)?;
        let address = listener.local_addr()?;
        let tls = tls.map(|tls| {
            let mut layer = TlsLayer::new();
            let profile = layer.add_server(tls);
            (layer, profile)
        });
        let counts = ThreadCounts::default();
        if let Some((layer, _)) = &tls {
            counts.set_tls(layer.counts());
        }
        let shared = Arc::new(SharedMisbehaviour {
            lanes: Lanes::new(how.lanes),
            workers: Lanes::new(how.workers),
            chance: AtomicU64::new(0),
            how,
            counts: Mutex::new(Arc::new(counts)),
            tls: tls.map(|(layer, profile)| (Mutex::new(layer), profile)),
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("misbehave".to_owned())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(MisbehavingServer { address, shared, thread: Some(thread) })
    }

    /// The listening address.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.sum()
    }
}

impl Drop for MisbehavingServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
        for _ in 0..DRAIN.as_millis() / LOOK.as_millis() {
            if self.shared.open.load(Ordering::SeqCst) == 0 {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl SharedMisbehaviour {
    /// Its threads are many and slow, so they share one set of counters behind a lock.
    fn count<R>(&self, f: impl FnOnce(&ThreadCounts) -> R) -> R {
        f(&self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sum(&self) -> Counts {
        let mut counts = Counts::default();
        self.count(|c| counts.add(c));
        counts
    }

    /// The TLS of a new connection.
    fn session(&self, peer: SocketAddr) -> Option<TlsSession> {
        let (layer, profile) = self.tls.as_ref()?;
        let mut layer = layer.lock().unwrap_or_else(PoisonError::into_inner);
        layer.accept(Listener::new(0), *profile, peer)
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// A number from 0 up to 1, a new one each time.
    fn chance(&self) -> f64 {
        Random::new(self.chance.fetch_add(1, Ordering::Relaxed)).fraction()
    }

    /// Sleeps, unless the server stops.
    fn pause(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() && !self.stopping() {
            let step = left.min(LOOK);
            std::thread::sleep(step);
            left -= step;
        }
    }
}

fn listen(at: SocketAddr, how: &Misbehaviour) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if how.slow_read.is_some() {
        // Its connections inherit it: their window closes soon.
        socket.set_recv_buffer_size(4096)?;
    }
    socket.bind(&at.into())?;
    // A backlog of one is full as soon as no thread accepts.
    socket.listen(if how.accept_delay.is_some() { 1 } else { 1024 })?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, shared: &Arc<SharedMisbehaviour>) {
    let counts = Arc::clone(shared);
    let routes = Routes::new(Arc::new(move || counts.sum()));
    while !shared.stopping() {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        shared.count(ThreadCounts::accepted);
        if shared.open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
            shared.open.fetch_sub(1, Ordering::SeqCst);
            shared.count(|c| {
                c.refused();
                c.closed();
            });
            continue;
        }
        let (mine, routes) = (Arc::clone(shared), routes.clone());
        let spawned = std::thread::Builder::new().spawn(move || {
            // The end of a connection concerns only its client, which knows it.
            let _ = connection::serve(stream, peer, &mine, &routes);
            mine.count(ThreadCounts::closed);
            mine.open.fetch_sub(1, Ordering::SeqCst);
        });
        if spawned.is_err() {
            shared.open.fetch_sub(1, Ordering::SeqCst);
            shared.count(ThreadCounts::closed);
        }
        if let Some(delay) = shared.how.accept_delay {
            shared.pause(delay);
        }
    }
}

/// Limits how many requests are worked on at once; the others wait in the order they came.
#[derive(Debug)]
struct Lanes {
    line: Mutex<MisbehavingLine>,
    moved: Condvar,
}

#[derive(Debug)]
struct MisbehavingLine {
    free: usize,
    /// The number of the next request.
    last: u64,
    /// The number whose turn it is.
    first: u64,
}

impl Lanes {
    fn new(lanes: Option<usize>) -> Lanes {
        let line = MisbehavingLine { free: lanes.unwrap_or(usize::MAX), last: 0, first: 0 };
        Lanes { line: Mutex::new(line), moved: Condvar::new() }
    }

    fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let place = line.last;
        line.last += 1;
        while line.free == 0 || line.first != place {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.first += 1;
        line.free -= 1;
        drop(line);
        // There may be a lane for the next one too.
        self.moved.notify_all();
        let result = work();
        self.line.lock().unwrap_or_else(PoisonError::into_inner).free += 1;
        self.moved.notify_all();
        result
    }
}
