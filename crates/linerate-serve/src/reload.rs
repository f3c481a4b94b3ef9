//! A running server is told something else: addresses, limits, log. All threads do it, or none.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use linerate_net::{Transport, Waker};

use crate::Handler;
use crate::flows::Ask;
use crate::server::Server;
use crate::spawn::{Handle, ServerOptions, Thread};

/// How long a thread may take to obey. Reason: a handler that holds its loop must not hold whoever reloads for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a thread is told.
pub(crate) enum Order {
    /// Listen at these addresses as well, all or none, and say where.
    Open(Vec<SocketAddr>, Sender<io::Result<Vec<SocketAddr>>>),
    /// Stop listening at these: they were opened a moment ago, and not everywhere.
    Abandon(Vec<SocketAddr>),
    /// From now on: these options. Addresses that are not among theirs are drained.
    Settle(Box<ServerOptions>),
    /// Show connections.
    Flows(Ask),
}

/// Where a thread gets its orders.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) orders: Sender<Order>,
    pub(crate) waker: Waker,
}

impl Post {
    pub(crate) fn send(&self, order: Order) {
        // A thread that has ended obeys nothing.
        let _ = self.orders.send(order);
        self.waker.wake();
    }

    fn open(&self, addresses: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
        let (tell, told) = mpsc::channel();
        self.send(Order::Open(addresses.to_vec(), tell));
        told.recv_timeout(PATIENCE).map_err(|_| io::Error::other("a thread does not answer"))?
    }
}

impl Handle {
    /// Goes on with other options: new addresses are listened on, those that are gone are drained as [`Server::unlisten`] does
    /// it, limits and the access log hold from the next request on, `defer_accept` from the next connection on. `threads`, `cores`, `io`,
    /// `share_port`, `watchdog`, `notices` and `draining` stay as they were. An address that was asked for with port 0 and is asked for again stays the same.
    ///
    /// # Errors
    /// When a new address can't be listened on; then nothing has changed.
    pub fn reload(&mut self, options: &ServerOptions) -> io::Result<()> {
        // Port 0 may be asked for more than once.
        let known = |(i, at): (usize, &SocketAddr)| {
            let nth = options.listen[..i].iter().filter(|a| *a == at).count();
            let mut same = self.asked.iter().zip(&self.addresses).filter(|(asked, _)| *asked == at);
            same.nth(nth).map(|(_, chosen)| *chosen)
        };
        let mut addresses: Vec<Option<SocketAddr>> = options.listen.iter().enumerate().map(known).collect();
        let mut new: Vec<SocketAddr> =
            options.listen.iter().zip(&addresses).filter(|(_, a)| a.is_none()).map(|(at, _)| *at).collect();
        if !new.is_empty() {
            for (count, post) in self.posts().enumerate() {
                match post.open(&new) {
                    // The first thread chooses the ports.
                    Ok(opened) => new = opened,
                    Err(error) => {
                        self.posts().take(count).for_each(|p| p.send(Order::Abandon(new.clone())));
                        return Err(error);
                    }
                }
            }
        }
        let mut new = new.into_iter();
        for address in &mut addresses {
            if address.is_none() {
                *address = new.next();
            }
        }
        self.addresses = addresses.into_iter().flatten().collect();
        self.asked.clone_from(&options.listen);
        let settled = ServerOptions { listen: self.addresses.clone(), ..options.clone() };
        self.posts().for_each(|post| post.send(Order::Settle(Box::new(settled.clone()))));
        Ok(())
    }
}

impl Thread {
    pub(crate) fn obey<T: Transport, H: Handler>(&mut self, server: &mut Server<T, H>, order: Order) {
        match order {
            Order::Open(wanted, tell) => {
                let mut opened = Vec::new();
                for at in &wanted {
                    match self.listen(server, *at) {
                        Ok(at) => opened.push(at),
                        Err(error) => {
                            opened.iter().for_each(|at| server.unlisten(*at, Duration::ZERO));
                            return drop(tell.send(Err(error)));
                        }
                    }
                }
                // Who asked may have lost patience, and says so.
                let _ = tell.send(Ok(opened));
            }
            Order::Abandon(addresses) => {
                addresses.iter().for_each(|at| server.unlisten(*at, Duration::ZERO));
            }
            Order::Flows(ask) => self.scans.add(ask),
            Order::Settle(options) => {
                let gone = server.addresses().filter(|at| !options.listen.contains(at)).collect::<Vec<_>>();
                gone.into_iter().for_each(|at| server.unlisten(at, options.drain));
                server.set_limits(options.limits);
                server.set_close_after(options.close_after);
                server.set_defer(options.deferred());
                server.set_access_log(options.access_log.clone());
                let kept = &self.options;
                self.options = ServerOptions {
                    threads: kept.threads,
                    cores: kept.cores.clone(),
                    io: kept.io,
                    interface: kept.interface.clone(),
                    share_port: kept.share_port,
                    watchdog: kept.watchdog,
                    notices: kept.notices.clone(),
                    draining: kept.draining.clone(),
                    ..*options
                };
            }
        }
    }
}
