//! A server's end, for whoever holds a connection that does not end by itself.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells that a server drains: it stops accepting, answers what it was asked, and ends within its options' `drain`.
///
/// Requests need not know. What goes on without an end does: a WebSocket says a close frame of its own (1001, RFC 6455 section
/// 7.4.1), a stream of events ends at an event. Those still there when the time is over are cut.
///
/// A service behind [`tower`](crate::tower()) finds it among the extensions of a request that asks for an upgrade; elsewhere it is in
/// [`ServerOptions::draining`](crate::ServerOptions), and a clone of that one goes into a handler. Waiting for it works on any
/// thread and in any runtime.
#[derive(Clone, Debug)]
pub struct Draining(Arc<watch::Sender<bool>>);

impl Default for Draining {
    fn default() -> Self {
        Draining(Arc::new(watch::Sender::new(false)))
    }
}

impl Draining {
    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it begins; at once when it has.
    pub async fn begun(&self) {
        let mut told = self.0.subscribe();
        // It can't be closed: the sender is here.
        let _ = told.wait_for(|begun| *begun).await;
    }

    /// It begins. Several threads may say so.
    pub(crate) fn begin(&self) {
        self.0.send_if_modified(|begun| !std::mem::replace(begun, true));
    }
}
