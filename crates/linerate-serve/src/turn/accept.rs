//! Accepts connections, and handles the lack of file descriptors.

use std::net::SocketAddr;

use linerate_net::{Close, Conn, ListenOptions, Listener, NetError, Profile, Time, Transport};

use super::Server;
use crate::connection::{NextBytes, ServedConnection};
use crate::waits::Waits;
use crate::{Address, Handler, ListeningSocket, limits};

impl<T: Transport, H: Handler> Server<T, H> {
    /// Listens on an address, and returns it with the chosen port.
    ///
    /// # Errors
    /// As the transport reports.
    pub fn listen(&mut self, at: SocketAddr, options: &ListenOptions) -> Result<SocketAddr, NetError> {
        let (listener, address) = self.transport.listen(at, options)?;
        self.remember(listener, Address::Tcp(address));
        self.accepting.own.push(listener);
        Ok(address)
    }

    /// An address of [`Server::listen`] speaks HTTP/3 too: responses over HTTP/1.1 and HTTP/2 say so.
    pub(crate) fn advertise(&mut self, at: SocketAddr) {
        let mut listening = self.accepting.listeners.iter().rev();
        if let Some((_, listener)) = listening.find(|(known, _)| *known == Address::Tcp(at)) {
            self.engine.alternatives.add(*listener, at);
        }
    }

    /// Accepts from an existing listening socket. All servers that were given the same socket share
    /// its connections.
    ///
    /// # Errors
    /// As the transport reports: user-space TCP cannot.
    pub fn adopt(&mut self, socket: &ListeningSocket) -> Result<(), NetError> {
        self.adopt_with(socket, Profile::default())
    }

    /// The same, with a profile of the layer for its connections.
    pub(crate) fn adopt_with(&mut self, socket: &ListeningSocket, profile: Profile) -> Result<(), NetError> {
        let listener = self.transport.adopt(socket.duplicate()?)?;
        self.transport.set_profile(listener, profile);
        self.remember(listener, socket.address().clone());
        Ok(())
    }

    fn remember(&mut self, listener: Listener, address: Address) {
        if self.leaving.count == 0 {
            let kept = &self.accepting.listeners;
            self.engine.places.keep(|known| kept.iter().any(|(_, listener)| *listener == known));
        }
        self.engine.places.add(listener, address.clone());
        self.accepting.listeners.push((address, listener));
    }

    /// The listening addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.accepting.listeners.iter().map(|(at, _)| at)
    }

    pub(super) fn accept(&mut self, conn: Conn, listener: Listener, peer: SocketAddr) {
        self.engine.counts.accepted();
        self.accepting.accepted += 1;
        if self.open >= self.engine.limits.connections {
            self.engine.counts.refused();
            self.engine.counts.closed();
            self.transport.close(conn, Close::Abort);
            return;
        }
        if self.connections.len() <= conn.slot() {
            self.connections.resize_with(conn.slot() + 1, || None);
        }
        let mut c = ServedConnection::new(conn, listener, peer, self.engine.now);
        // QUIC's handshake is complete, and no proxy's preface precedes it.
        c.tls = self.transport.about(conn).and_then(|about| about.downcast().ok());
        let agreed = c.tls.as_ref().and_then(|tls| tls.agreed.alpn.as_deref());
        let is_http3 = agreed == Some("h3");
        let rules = &self.engine.admission.rules;
        if !is_http3 && rules.proxy_protocol && rules.trusts(peer.ip()) {
            c.next = NextBytes::Preface;
        }
        if !self.engine.admit(&mut c) {
            self.engine.counts.refused();
            self.engine.counts.closed();
            self.transport.close(conn, Close::Abort);
            return;
        }
        if is_http3 {
            self.engine.begin_http3(&mut c);
        }
        self.timeouts.arm(conn.slot(), self.deadline(&c));
        self.connections[conn.slot()] = Some(c);
        self.open += 1;
        self.engine.states[Waits::Idle as usize] += 1;
    }

    /// Reports when file descriptors are used up and when they are available again. Meanwhile idle
    /// connections are closed to make room: a waiting client probably has a request.
    pub(super) fn look_at_accepting(&mut self) {
        let trouble = self.transport.accept_trouble();
        let (Some(lack), now) = (&self.accepting.lack, self.engine.now) else { return };
        if trouble.is_none() && self.accepting.lacking.is_none() && !lack.is_felt() {
            return;
        }
        match trouble {
            Some(why) => {
                lack.felt(now, why);
                self.accepting.lacking = Some(Time::NEVER);
            }
            None if self.accepting.lacking.is_some() => self.accepting.lacking = lack.over(now),
            None => {}
        }
        for slot in 0..self.connections.len() {
            let idle = |c: &mut ServedConnection| {
                c.waits == Waits::Idle && c.requests > 0 && c.since + limits::SPARED_IDLE <= now
            };
            if let Some(c) = self.connections[slot].take_if(idle) {
                self.close(c, Close::Now);
            }
        }
    }
}
