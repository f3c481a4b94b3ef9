//! A server's end, for whoever holds a connection that does not end by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::watch;

/// Tells that a server drains: it stops accepting, answers what it was asked, and ends within its options' `drain`.
///
/// Requests need not know. What goes on without an end does: a stream of events ends at an event, a WebSocket says its last words
/// and a Close frame. Those still there when the time is over are cut.
///
/// A service behind [`tower`](crate::tower()) finds it among the extensions of a request that asks for an upgrade, a handler that has taken
/// a connection in [`Tunnel::draining`](crate::Tunnel::draining); elsewhere it is in [`ServerOptions::draining`](crate::ServerOptions), and a clone of that one goes into a handler. Waiting for it works on any
/// thread and in any runtime.
///
/// A WebSocket whose handler has not taken it from its request gets a Close frame of the server: 1001, "going away" (RFC 6455
/// section 7.4.1), between two frames that the handler writes. What the handler writes behind it is dropped. Where something has asked
/// the one of the options, that frame comes half a second later, since it may be the handler.
#[derive(Debug)]
pub struct Draining {
    shared: Arc<Shared>,
    /// Set once the handler of the connection that it was made for has taken it.
    taken: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
struct Shared {
    begun: watch::Sender<bool>,
    /// One that was made for no connection was asked.
    asked: AtomicBool,
}

impl Default for Draining {
    fn default() -> Self {
        let shared = Shared { begun: watch::Sender::new(false), asked: AtomicBool::new(false) };
        Draining { shared: Arc::new(shared), taken: None }
    }
}

impl Clone for Draining {
    /// Who takes it from a request, clones it.
    fn clone(&self) -> Self {
        if let Some(taken) = &self.taken {
            taken.store(true, Relaxed);
        }
        Draining { shared: Arc::clone(&self.shared), taken: self.taken.clone() }
    }
}

impl Draining {
    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.asks();
        *self.shared.begun.borrow()
    }

    /// Waits until it begins; at once when it has.
    pub async fn begun(&self) {
        self.asks();
        self.shared.begins().await;
    }

    fn asks(&self) {
        self.taken.as_deref().unwrap_or(&self.shared.asked).store(true, Relaxed);
    }

    /// It begins. Several threads may say so.
    pub(crate) fn begin(&self) {
        self.shared.begun.send_if_modified(|begun| !std::mem::replace(begun, true));
    }

    /// For the handler of one connection, and what tells the server of it.
    pub(crate) fn of_connection(&self) -> (Draining, Watched) {
        let taken: Arc<AtomicBool> = Arc::default();
        let watched = Watched { shared: Arc::clone(&self.shared), taken: Arc::clone(&taken) };
        (Draining { shared: Arc::clone(&self.shared), taken: Some(taken) }, watched)
    }
}

impl Shared {
    async fn begins(&self) {
        let mut told = self.begun.subscribe();
        // It can't be closed: the sender is here.
        let _ = told.wait_for(|begun| *begun).await;
    }
}

/// The server's side of a connection's.
#[derive(Debug)]
pub(crate) struct Watched {
    shared: Arc<Shared>,
    taken: Arc<AtomicBool>,
}

impl Watched {
    /// Waits until it begins, which counts as no question.
    pub(crate) async fn begins(self: Arc<Self>) {
        self.shared.begins().await;
    }

    /// Whether the handler of the connection knows of it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.load(Relaxed)
    }

    /// Whether a handler may know of it by another way.
    pub(crate) fn may_be_known(&self) -> bool {
        self.shared.asked.load(Relaxed)
    }
}
