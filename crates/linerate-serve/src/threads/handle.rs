//! A running server, as the program that started it sees it.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::flows::Desk;
use crate::orders::Post;
use crate::stats::counts::{Counts, ThreadCounts};
use crate::stats::live_stats::LiveStats;
use crate::stats::metrics::Metrics;
use crate::threads::gate::Gate;
use crate::threads::runtime::RuntimeThread;
use crate::threads::secure::Spoken;
use crate::{Address, ListeningSocket, limits};

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    /// The current addresses of `listen`, then those of `sockets`.
    pub(crate) addresses: Vec<Address>,
    pub(crate) counts: Arc<Vec<Arc<ThreadCounts>>>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) threads: Vec<RunningThread>,
    /// Ends with the last thread.
    pub(crate) ending: ThreadsEnd,
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
    pub(crate) own_tcp: bool,
    pub(crate) _tokio: RuntimeThread,
}

/// Tells when the last thread has ended, to as many as ask.
#[derive(Clone, Debug)]
pub(crate) struct ThreadsEnd(Arc<Mutex<mpsc::Receiver<()>>>);

impl ThreadsEnd {
    /// Of threads that hold the sender.
    pub(crate) fn of(threads: mpsc::Receiver<()>) -> ThreadsEnd {
        ThreadsEnd(Arc::new(Mutex::new(threads)))
    }

    fn wait(&self) {
        // Nothing is ever sent: it fails when the last thread has ended.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
    }
}

/// Stops a server from another thread or from a handler; see [`Handle::stopper`].
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    gate: Arc<Gate>,
    posts: Vec<Post>,
}

impl Stopper {
    /// Tells the server to stop as [`Handle::stop`] does, and does not wait for that.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.gate.open();
        for post in &self.posts {
            post.waker.wake();
        }
    }
}

/// One of its threads.
#[derive(Debug)]
pub(crate) struct RunningThread {
    pub(crate) thread: JoinHandle<()>,
    pub(crate) post: Post,
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
    ///
    /// ```
    /// let server = linerate_serve::spawn(linerate_serve::ServerOptions::default())?;
    /// let counts = server.stop();
    /// assert_eq!(counts.requests, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(mut self) -> Counts {
        self.shut_down();
        sum(&self.counts)
    }

    /// Blocks until the server ends, and returns the final counts: when a [`Stopper`] stops it, or
    /// when all its threads have ended by themselves, which only happens if the transport fails.
    ///
    /// ```
    /// let server = linerate_serve::spawn(linerate_serve::ServerOptions::default())?;
    /// let stopper = server.stopper();
    /// std::thread::spawn(move || stopper.stop());
    /// assert_eq!(server.wait().requests, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(self) -> Counts {
        self.ending.wait();
        self.stop()
    }

    /// As [`Handle::wait`], without blocking the polling thread. It needs no runtime. Dropping the
    /// future early stops the server at once.
    ///
    /// ```
    /// # async fn example() -> std::io::Result<()> {
    /// let server = linerate_serve::spawn(linerate_serve::ServerOptions::default())?;
    /// server.stopper().stop();
    /// assert_eq!(server.stopped().await.requests, 0);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(example())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn stopped(self) -> Counts {
        let (tell, told) = oneshot::channel();
        let ending = self.ending.clone();
        let waiting = std::thread::Builder::new().name("serve-ending".to_owned()).spawn(move || {
            ending.wait();
            // The receiver may be gone.
            let _ = tell.send(());
        });
        match waiting {
            // It fails only if that thread does.
            Ok(_) => drop(told.await),
            Err(_) => self.ending.wait(),
        }
        self.stop()
    }

    /// What stops the server from another thread or from a handler.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            stop: Arc::clone(&self.stop),
            gate: Arc::clone(&self.gate),
            posts: self.posts().cloned().collect(),
        }
    }

    /// Waits for `shutdown`, then stops as [`Handle::stop`] does, without blocking the polling
    /// thread. It needs no runtime. Dropping the future early stops the server at once.
    ///
    /// ```
    /// use linerate_serve::{ServerOptions, spawn};
    ///
    /// # async fn example() -> std::io::Result<()> {
    /// let (tell, told) = tokio::sync::oneshot::channel::<()>();
    /// let server = spawn(ServerOptions::default())?;
    /// tell.send(()).expect("it is waited for");
    /// let counts = server.stop_on(async { told.await.unwrap_or_default() }).await;
    /// assert_eq!(counts.requests, 0);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(example())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn stop_on(self, shutdown: impl Future<Output = ()>) -> Counts {
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

    /// Runs `act` when all its threads have ended by themselves.
    /// Stopping the server does not run it.
    pub fn when_dead(&self, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let ending = self.ending.clone();
        let stop = Arc::clone(&self.stop);
        let wait = move || {
            ending.wait();
            if !stop.load(Ordering::SeqCst) {
                act();
            }
        };
        std::thread::Builder::new().name("serve-ending".to_owned()).spawn(wait).map(drop)
    }

    pub(crate) fn posts(&self) -> impl Iterator<Item = &Post> {
        self.threads.iter().map(|running| &running.post)
    }

    /// Starts to accept connections, if [`ServerOptions::held`](crate::ServerOptions::held) was set.
    pub fn accept(&self) {
        self.gate.open();
    }

    /// All its threads listen now, and have an `alive` of their own.
    pub(crate) fn begin(&mut self, desk: &Desk, alive: mpsc::Sender<()>, held: bool) {
        drop(alive);
        self.addresses.extend(self.sockets.iter().map(|socket| socket.address().clone()));
        desk.open(self.posts());
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

pub(crate) fn sum(counts: &[Arc<ThreadCounts>]) -> Counts {
    let mut all = Counts::default();
    for thread in counts {
        all.add(thread);
    }
    all
}
