//! Orders to the threads of a running server.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use linerate_net::{Profile, Waker};

use crate::flows::Ask;
use crate::options::ServerOptions;
use crate::{Address, ListeningSocket};

/// Timeout of a thread. Reason: a handler that holds its loop must not block the reload forever.
const PATIENCE: Duration = Duration::from_secs(30);

/// An order to a thread.
pub(crate) enum Order {
    /// Listen on these addresses too, all or none, and reply with them. Their Unix sockets are
    /// bound already.
    Open(Vec<(Address, Profile)>, Vec<ListeningSocket>, Sender<io::Result<Vec<Address>>>),
    /// Stop listening on these: another thread failed to open them.
    Abandon(Vec<Address>),
    /// Use these options from now on. Addresses that they do not name are drained.
    Settle(Box<ServerOptions>),
    /// Report connections.
    Flows(Ask),
}

/// Sends orders to a thread.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) orders: Sender<Order>,
    pub(crate) waker: Waker,
}

impl Post {
    pub(crate) fn send(&self, order: Order) {
        // A thread that has ended ignores it.
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    pub(crate) fn open(
        &self,
        addresses: &[(Address, Profile)],
        bound: &[ListeningSocket],
    ) -> io::Result<Vec<Address>> {
        let (tell, told) = mpsc::channel();
        self.send(Order::Open(addresses.to_vec(), bound.to_vec(), tell));
        told.recv_timeout(PATIENCE).map_err(|_| io::Error::other("a thread does not answer"))?
    }
}
