//! Changes a running server: addresses, limits, log. Either all threads change, or none.

use std::io;
use std::time::Duration;

use linerate_net::{Profile, Transport};

use crate::listening::bind_all;
use crate::options::ServerOptions;
use crate::orders::Order;
use crate::threads::handle::Handle;
use crate::threads::thread::Thread;
use crate::turn::Server;
use crate::{Address, Handler, ListeningSocket};

impl Handle {
    /// Changes the options of a running server:
    ///
    /// - It listens on new addresses and drains removed ones as [`Server::unlisten`] does.
    /// - Limits and the access log apply from the next request on, `defer_accept` from the next
    ///   connection on.
    /// - `tls` and `tls_at` apply to new addresses of a server that started with TLS.
    ///   [`ServerTls`](crate::ServerTls) itself changes what the others speak.
    /// - `threads`, `cores`, `io`, `share_port`, `sockets`, `runtime`, `watchdog`, `notices` and
    ///   `draining` do not change.
    ///
    /// An address with port 0 that is given again stays the same.
    ///
    /// # Errors
    /// A new address cannot be listened on. Then nothing has changed.
    pub fn reload(&mut self, options: &ServerOptions) -> io::Result<()> {
        // Port 0 may occur more than once.
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

    /// Makes all threads listen on these addresses too, or none. Chooses the ports and binds Unix
    /// sockets.
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
    /// Stops listening on addresses that were just opened.
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
                // The requester may have timed out, and reports that itself.
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
                server.set_http2(options.http2);
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
