//! A running server is told something else: addresses, limits, log. All threads do it, or none.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use linerate_net::{Profile, Transport, Waker};

use crate::flows::Ask;
use crate::server::Server;
use crate::spawn::{Handle, ServerOptions, Thread, bind_all};
use crate::{Address, Handler, ListeningSocket};

/// How long a thread may take to obey. Reason: a handler that holds its loop must not hold whoever reloads for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a thread is told.
pub(crate) enum Order {
    /// Listen at these addresses as well, all or none, and say where. The Unix sockets among them are bound already.
    Open(Vec<(Address, Profile)>, Vec<ListeningSocket>, Sender<io::Result<Vec<Address>>>),
    /// Stop listening at these: they were opened a moment ago, and not everywhere.
    Abandon(Vec<Address>),
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

    fn open(&self, addresses: &[(Address, Profile)], bound: &[ListeningSocket]) -> io::Result<Vec<Address>> {
        let (tell, told) = mpsc::channel();
        self.send(Order::Open(addresses.to_vec(), bound.to_vec(), tell));
        told.recv_timeout(PATIENCE).map_err(|_| io::Error::other("a thread does not answer"))?
    }
}

impl Handle {
    /// Goes on with other options: new addresses are listened on, those that are gone are drained as [`Server::unlisten`] does
    /// it, limits and the access log hold from the next request on, `defer_accept` from the next connection on. `threads`, `cores`, `io`,
    /// `share_port`, `sockets`, `runtime`, `watchdog`, `notices` and `draining` stay as they were. `tls` and `tls_at` are for new
    /// addresses, of a server that began with TLS; what others speak is changed by [`ServerTls`](crate::ServerTls) itself. An address that was asked for with port 0 and is asked for again stays the same.
    ///
    /// # Errors
    /// When a new address can't be listened on; then nothing has changed.
    pub fn reload(&mut self, options: &ServerOptions) -> io::Result<()> {
        // Port 0 may be asked for more than once.
        let known = |(i, at): (usize, &Address)| {
            let nth = options.listen[..i].iter().filter(|a| *a == at).count();
            let mut same = self.asked.iter().zip(&self.addresses).filter(|(asked, _)| *asked == at);
            same.nth(nth).map(|(_, chosen)| chosen.clone())
        };
        let mut addresses: Vec<Option<Address>> = options.listen.iter().enumerate().map(known).collect();
        let unknown = options.listen.iter().enumerate().filter(|(i, _)| addresses[*i].is_none());
        let profile = |i| self.spoken.profile(options.tls_of(i));
        let new = unknown.map(|(i, at)| Ok((at.clone(), profile(i)?))).collect::<io::Result<_>>()?;
        let (new, bound) = self.open(new)?;
        let mut new = new.into_iter();
        for address in &mut addresses {
            if address.is_none() {
                *address = new.next();
            }
        }
        self.addresses = addresses.into_iter().flatten().collect();
        self.asked.clone_from(&options.listen);
        self.bound.extend(bound);
        for gone in self.bound.extract_if(.., |socket| !self.asked.contains(socket.address())) {
            gone.remove_file();
        }
        self.drain = options.drain;
        let settled = ServerOptions { listen: self.addresses.clone(), ..options.clone() };
        self.posts().for_each(|post| post.send(Order::Settle(Box::new(settled.clone()))));
        self.addresses.extend(self.sockets.iter().map(|socket| socket.address().clone()));
        Ok(())
    }

    /// All threads listen at these addresses as well, or none. The ports are chosen then, and Unix sockets bound.
    fn open(&self, mut new: Vec<(Address, Profile)>) -> io::Result<(Vec<Address>, Vec<ListeningSocket>)> {
        let mut opened: Vec<Address> = new.iter().map(|(at, _)| at.clone()).collect();
        let bound = bind_all(&opened)?;
        if !new.is_empty() {
            for (count, post) in self.posts().enumerate() {
                match post.open(&new, &bound) {
                    // The first thread chooses the ports.
                    Ok(chosen) => opened = chosen,
                    Err(error) => {
                        self.posts().take(count).for_each(|p| p.send(Order::Abandon(opened.clone())));
                        return Err(error);
                    }
                }
                new.iter_mut().zip(&opened).for_each(|((at, _), chosen)| at.clone_from(chosen));
            }
        }
        Ok((opened, bound))
    }
}

impl Thread {
    /// Stops listening where it just began to.
    fn abandon<T: Transport, H: Handler>(&mut self, server: &mut Server<T, H>, addresses: &[Address]) {
        addresses.iter().for_each(|at| server.unlisten(at, Duration::ZERO));
        self.bound.retain(|socket| !addresses.contains(socket.address()));
    }

    pub(crate) fn obey<T: Transport, H: Handler>(&mut self, server: &mut Server<T, H>, order: Order) {
        match order {
            Order::Open(wanted, bound, tell) => {
                self.bound.extend(bound);
                let mut opened = Vec::new();
                for (at, profile) in &wanted {
                    match self.listen(server, at, *profile) {
                        Ok(at) => opened.push(at),
                        Err(error) => {
                            self.abandon(server, &opened);
                            return drop(tell.send(Err(error)));
                        }
                    }
                }
                // Who asked may have lost patience, and says so.
                let _ = tell.send(Ok(opened));
            }
            Order::Abandon(addresses) => self.abandon(server, &addresses),
            Order::Flows(ask) => self.scans.add(ask),
            Order::Settle(options) => {
                let stays = |at: &Address| {
                    let supplied = self.options.sockets.iter().any(|socket| socket.address() == at);
                    supplied || options.listen.contains(at)
                };
                let gone: Vec<Address> = server.addresses().filter(|at| !stays(at)).cloned().collect();
                gone.iter().for_each(|at| server.unlisten(at, options.drain));
                self.bound.retain(|socket| !gone.contains(socket.address()));
                server.set_limits(options.limits);
                server.set_measure(options.measure);
                server.set_close_after(options.close_after);
                server.set_client_rules(options.clients.clone());
                server.set_defer(options.deferred());
                server.set_access_log(options.access_log.clone());
                let kept = &self.options;
                self.options = ServerOptions {
                    threads: kept.threads,
                    cores: kept.cores.clone(),
                    io: kept.io,
                    interface: kept.interface.clone(),
                    share_port: kept.share_port,
                    sockets: kept.sockets.clone(),
                    runtime: kept.runtime.clone(),
                    watchdog: kept.watchdog,
                    notices: kept.notices.clone(),
                    draining: kept.draining.clone(),
                    ..*options
                };
            }
        }
    }
}
