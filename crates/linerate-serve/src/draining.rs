//! Notification of a drain, for holders of connections that do not end by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::watch;

/// Signals that a server drains: it stops accepting, responds to received requests, and ends within
/// its options' `drain`.
///
/// Ordinary requests need not know. Endless ones should end: a stream of events at an event, a
/// WebSocket with its last messages and a Close frame. Those still open when the time is over are
/// cut.
///
/// There are three ways to get it:
///
/// - A service behind [`tower`](crate::tower()) finds it among the extensions of a request for an
///   upgrade.
/// - A handler that has taken a connection calls [`Tunnel::draining`](crate::Tunnel::draining).
/// - Others clone [`ServerOptions::draining`](crate::ServerOptions) into the handler.
///
/// Waiting for it works on any thread and in any runtime.
///
/// If a WebSocket's handler has not taken it from its request, the server sends a Close frame
/// between two frames of the handler: 1001, "going away" (RFC 6455 section 7.4.1). Frames that the
/// handler writes later are dropped. If anything has queried the one in the options, that may be
/// the handler, so the server waits half a second before it sends the frame.
///
/// ```
/// use linerate_serve::{Draining, Request, Response, ServerOptions, spawn_with};
///
/// let draining = Draining::default();
/// let options = ServerOptions { draining: draining.clone(), ..ServerOptions::default() };
/// let server = spawn_with(options, move || {
///     let draining = draining.clone();
///     move |_: Request| {
///         let draining = draining.clone();
///         async move { Response::text(if draining.has_begun() { "last\n" } else { "more\n" }) }
///     }
/// })?;
/// server.stop();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Draining {
    shared: Arc<DrainState>,
    /// Set once the handler of its connection has taken it.
    taken: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
struct DrainState {
    begun: watch::Sender<bool>,
    /// One without a connection was queried.
    asked: AtomicBool,
}

impl Default for Draining {
    fn default() -> Self {
        let shared = DrainState { begun: watch::Sender::new(false), asked: AtomicBool::new(false) };
        Draining { shared: Arc::new(shared), taken: None }
    }
}

impl Clone for Draining {
    /// Taking it from a request clones it.
    fn clone(&self) -> Self {
        if let Some(taken) = &self.taken {
            taken.store(true, Relaxed);
        }
        Draining { shared: Arc::clone(&self.shared), taken: self.taken.clone() }
    }
}

impl Draining {
    /// Whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.asks();
        *self.shared.begun.borrow()
    }

    /// Waits until the drain begins; returns at once if it has.
    pub async fn begun(&self) {
        self.asks();
        self.shared.begins().await;
    }

    fn asks(&self) {
        self.taken.as_deref().unwrap_or(&self.shared.asked).store(true, Relaxed);
    }

    /// Begins the drain. Several threads may call it.
    pub(crate) fn begin(&self) {
        self.shared.begun.send_if_modified(|begun| !std::mem::replace(begun, true));
    }

    /// One for the handler of a connection, and the server's view of it.
    pub(crate) fn of_connection(&self) -> (Draining, Watched) {
        let taken: Arc<AtomicBool> = Arc::default();
        let watched = Watched { shared: Arc::clone(&self.shared), taken: Arc::clone(&taken) };
        (Draining { shared: Arc::clone(&self.shared), taken: Some(taken) }, watched)
    }
}

impl DrainState {
    async fn begins(&self) {
        let mut told = self.begun.subscribe();
        // The channel cannot be closed: the sender is here.
        let _ = told.wait_for(|begun| *begun).await;
    }
}

/// The server's view of a connection's `Draining`.
#[derive(Debug)]
pub(crate) struct Watched {
    shared: Arc<DrainState>,
    taken: Arc<AtomicBool>,
}

impl Watched {
    /// Waits until the drain begins, without counting as a query.
    pub(crate) async fn begins(self: Arc<Self>) {
        self.shared.begins().await;
    }

    /// Whether the handler of the connection knows of it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    /// Whether a handler may know of it in another way.
    pub(crate) fn may_be_known(&self) -> bool {
        self.shared.asked.load(Relaxed)
    }
}
