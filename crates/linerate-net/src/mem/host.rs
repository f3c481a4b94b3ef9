//! Scripted peers over any transport: what [`Mem`](super::Mem) does for its own peers. With
//! [`Stack`](crate::stack::Stack) over [`link::sim`](crate::link::sim), a test has real TCP between
//! itself and a script.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use super::peer::{Accept, Action, Peer, PeerActions, PeerConn};
use crate::{After, Close, Conn, ConnectOptions, Event, ListenOptions, Listener, NetError, Time, Transport};

/// Runs scripted peers over a transport. It supports `Now` and `Refuse` (by a reset) of [`Accept`],
/// no others.
pub struct PeerHost<T> {
    net: T,
    /// Peers of listeners, then those of outgoing connections.
    peers: Vec<Box<dyn Peer>>,
    listeners: Vec<(Listener, usize)>,
    /// Indexed by slot: the connection, its number and its peer.
    conns: Vec<Option<(Conn, PeerConn, usize)>>,
    /// Scheduled actions, by time and then in the order they were given.
    later: BTreeMap<(Time, u64), (PeerConn, Action)>,
    said: u64,
    next: u64,
}

impl<T: Transport> PeerHost<T> {
    /// Wraps a transport.
    pub fn new(net: T) -> PeerHost<T> {
        PeerHost {
            net,
            peers: Vec::new(),
            listeners: Vec::new(),
            conns: Vec::new(),
            later: BTreeMap::new(),
            said: 0,
            next: 0,
        }
    }

    /// Lets a scripted peer accept connections at this address.
    pub fn serve(&mut self, at: SocketAddr, peer: impl Peer + 'static) -> Result<SocketAddr, NetError> {
        let (listener, at) = self.net.listen(at, &ListenOptions::default())?;
        self.listeners.push((listener, self.peers.len()));
        self.peers.push(Box::new(peer));
        Ok(at)
    }

    /// Lets a scripted peer connect.
    pub fn dial(&mut self, to: SocketAddr, peer: impl Peer + 'static) -> Result<PeerConn, NetError> {
        let conn = self.net.connect(to, &ConnectOptions::default())?;
        self.peers.push(Box::new(peer));
        Ok(self.add(conn, self.peers.len() - 1))
    }

    /// Runs until `done` is true, or until no event can happen any more.
    pub fn run(&mut self, mut done: impl FnMut() -> bool) -> io::Result<()> {
        let mut events = Vec::new();
        while !done() {
            let until = self.later.keys().next().map(|(at, _)| *at);
            match self.net.turn(until, &mut events) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Ok(()),
                other => other?,
            }
            for event in std::mem::take(&mut events) {
                self.handle(event);
            }
            self.act_due();
        }
        Ok(())
    }

    fn add(&mut self, conn: Conn, peer: usize) -> PeerConn {
        let number = PeerConn(self.next);
        self.next += 1;
        if conn.slot() >= self.conns.len() {
            self.conns.resize(conn.slot() + 1, None);
        }
        self.conns[conn.slot()] = Some((conn, number, peer));
        number
    }

    fn of(&self, conn: Conn) -> Option<(PeerConn, usize)> {
        let (known, number, peer) = (*self.conns.get(conn.slot())?)?;
        (known == conn).then_some((number, peer))
    }

    /// Calls a connection's peer and carries out its actions.
    fn call(&mut self, conn: Conn, call: impl FnOnce(&mut dyn Peer, Time, PeerConn, &mut PeerActions)) {
        let Some((number, peer)) = self.of(conn) else { return };
        let mut out = PeerActions::default();
        let now = self.net.now();
        call(&mut *self.peers[peer], now, number, &mut out);
        for (after, conn, action) in out.list {
            self.said += 1;
            self.later.insert((now + after, self.said), (conn, action));
        }
        self.act_due();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, conn, .. } => {
                let Some(&(_, peer)) = self.listeners.iter().find(|(l, _)| *l == listener) else { return };
                let now = self.net.now();
                if self.peers[peer].accept(now) == Accept::Refuse {
                    return self.net.close(conn, Close::Abort);
                }
                self.add(conn, peer);
                self.call(conn, |peer, now, conn, out| peer.connected(now, conn, out));
            }
            Event::Connected { conn, .. } => {
                self.call(conn, |peer, now, conn, out| peer.connected(now, conn, out));
            }
            Event::Readable { conn, data } => {
                let mut bytes = Vec::new();
                let after = self.net.receive(data, |piece| bytes.extend_from_slice(piece));
                if !bytes.is_empty() {
                    self.call(conn, |peer, now, conn, out| peer.received(now, conn, &bytes, out));
                }
                match after {
                    After::Ended => self.call(conn, |peer, now, conn, out| peer.ended(now, conn, out)),
                    After::Failed(_) => self.failed(conn),
                    After::Open | After::Gone => {}
                }
            }
            Event::Failed { conn, .. } => self.failed(conn),
            Event::Drained { .. } | Event::Woken => {}
        }
    }

    fn failed(&mut self, conn: Conn) {
        self.call(conn, |peer, now, conn, out| peer.failed(now, conn, out));
        self.net.close(conn, Close::Abort);
        if let Some(place) = self.conns.get_mut(conn.slot()) {
            *place = None;
        }
    }

    /// Carries out the actions that are due.
    fn act_due(&mut self) {
        loop {
            let now = self.net.now();
            let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) else { return };
            let (number, action) = first.remove();
            let known = self.conns.iter().flatten().find(|(_, n, _)| *n == number);
            if let Some(&(conn, ..)) = known {
                self.act(conn, action);
            }
        }
    }

    fn act(&mut self, conn: Conn, action: Action) {
        match action {
            Action::Send(bytes) => {
                // A failed connection reports itself by an event.
                let _ = self.net.send(conn, &bytes);
            }
            Action::End | Action::Close | Action::Reset => {
                let how = if matches!(action, Action::Reset) { Close::Abort } else { Close::Now };
                self.net.close(conn, how);
                self.conns[conn.slot()] = None;
            }
            Action::Pause => self.net.pause(conn),
            Action::Resume => self.net.resume(conn),
            Action::Call => self.call(conn, |peer, now, conn, out| peer.called(now, conn, out)),
        }
    }
}
