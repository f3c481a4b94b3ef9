//! How many bytes of request bodies may wait for their handlers: many, until all connections of a
//! thread together have too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{H2_CONNECTION_WINDOW, UNREAD_TOGETHER};

/// What the connections of a thread hold for handlers. Handlers on other threads may read it, so it
/// is shared.
#[derive(Debug, Default)]
pub(crate) struct UnreadLedger {
    /// Bytes that wait.
    bytes: AtomicUsize,
    /// Connections whose window for uploads is wide.
    wide: AtomicUsize,
}

impl UnreadLedger {
    /// Whether so much waits that a body is read only as far as its handler asks for it.
    pub(crate) fn is_scarce(&self) -> bool {
        self.bytes() >= UNREAD_TOGETHER
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A wide window for a connection, if its client may fill it without harm.
    pub(crate) fn widen(self: &Arc<UnreadLedger>) -> Option<WideWindow> {
        let most = UNREAD_TOGETHER / H2_CONNECTION_WINDOW as usize;
        if self.is_scarce() || self.wide.load(Ordering::Relaxed) >= most {
            return None;
        }
        self.wide.fetch_add(1, Ordering::Relaxed);
        Some(WideWindow(Arc::clone(self)))
    }
}

/// A connection's right to a wide window, while it lasts.
#[derive(Debug)]
pub(crate) struct WideWindow(Arc<UnreadLedger>);

impl Drop for WideWindow {
    fn drop(&mut self) {
        self.0.wide.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_windows_are_wide_as_fit() {
        let ledger = Arc::<UnreadLedger>::default();
        let mut wide: Vec<WideWindow> = std::iter::from_fn(|| ledger.widen()).collect();
        assert_eq!(wide.len() * H2_CONNECTION_WINDOW as usize, UNREAD_TOGETHER);
        wide.pop();
        assert!(ledger.widen().is_some(), "another may have it");
        ledger.add(UNREAD_TOGETHER);
        assert!(ledger.is_scarce() && ledger.widen().is_none());
    }
}
