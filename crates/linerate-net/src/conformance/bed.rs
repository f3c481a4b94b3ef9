//! A transport under test, a listener on it, and what was observed on its connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::PATIENCE;
use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, ListenOptions, Listener, NetError, ReceivedPiece,
    Time, Transport, machine,
};

/// Events and bytes observed on one connection.
#[derive(Debug, Default)]
pub(super) struct ObservedConnection {
    pub(super) connected: u32,
    pub(super) received: Vec<u8>,
    pub(super) ended: bool,
    pub(super) failed: Option<NetError>,
    pub(super) failures: u32,
    pub(super) drained: u32,
    /// The listener accepted it.
    pub(super) is_server: bool,
}

pub(super) struct Bed<T> {
    pub(super) net: T,
    pub(super) listener: Listener,
    pub(super) at: SocketAddr,
    pub(super) seen: HashMap<Conn, ObservedConnection>,
    pub(super) accepted: Vec<(Conn, SocketAddr)>,
    pub(super) woken: u32,
    /// Accepted connections send back what they receive.
    pub(super) echo: bool,
    /// If set, received data is kept here unread.
    pub(super) held: Option<Vec<Data>>,
    /// Bytes to come on a connection that are not looked at.
    pub(super) unseen: HashMap<Conn, u64>,
    /// Turns until a connection had its first bytes.
    pub(super) turns: u64,
    events: Vec<Event>,
}

impl<T: Transport> Bed<T> {
    pub(super) fn new(net: T, at: IpAddr) -> Bed<T> {
        Bed::listening(net, at, &ListenOptions::default())
    }

    pub(super) fn listening(mut net: T, at: IpAddr, options: &ListenOptions) -> Bed<T> {
        // A thousand connections have two thousand ends.
        let _ = machine::raise_nofile();
        let (listener, at) = net.listen(SocketAddr::new(at, 0), options).expect("can listen");
        Bed {
            net,
            listener,
            at,
            seen: HashMap::new(),
            accepted: Vec::new(),
            woken: 0,
            echo: false,
            held: None,
            unseen: HashMap::new(),
            turns: 0,
            events: Vec::new(),
        }
    }

    pub(super) fn connect(&mut self) -> Conn {
        let conn = self.net.connect(self.at, &ConnectOptions::default()).expect("can connect");
        self.seen.insert(conn, ObservedConnection::default());
        conn
    }

    /// A connection seen from both ends: the connecting one and the accepting one.
    pub(super) fn pair(&mut self) -> (Conn, Conn) {
        let before = self.accepted.len();
        let client = self.connect();
        self.until("a connection", |bed| bed.of(client).connected == 1 && bed.accepted.len() > before);
        // A layer's own handshake may still be in flight.
        let server = self.accepted[before].0;
        self.until("nothing waits", |bed| bed.net.unsent(client) + bed.net.unsent(server) == 0);
        self.for_a_while(Duration::from_millis(1));
        for conn in [client, server] {
            self.seen.get_mut(&conn).expect("known").drained = 0;
        }
        (client, server)
    }

    pub(super) fn of(&self, conn: Conn) -> &ObservedConnection {
        &self.seen[&conn]
    }

    pub(super) fn received(&self, conn: Conn) -> usize {
        self.of(conn).received.len()
    }

    /// Runs turns until `holds` is true.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Bed<T>) -> bool) {
        let limit = self.net.now() + PATIENCE;
        while !holds(self) {
            assert!(self.net.now() < limit, "{}: waited in vain for {what}", self.net.name());
            self.turn(limit);
        }
    }

    /// Runs turns for some time, to check that nothing happens in it.
    pub(super) fn for_a_while(&mut self, while_: Duration) {
        let limit = self.net.now() + while_;
        while self.net.now() < limit {
            self.turn(limit);
        }
    }

    /// Runs one turn and handles all of its events.
    pub(super) fn turn(&mut self, until: Time) {
        let mut events = std::mem::take(&mut self.events);
        self.net.turn(Some(until), &mut events).expect("a turn");
        self.turns += 1;
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, conn, peer } => {
                assert_eq!(listener, self.listener);
                let before = self.seen.insert(
                    conn,
                    ObservedConnection { connected: 1, is_server: true, ..ObservedConnection::default() },
                );
                assert!(before.is_none(), "a Conn is handed out once");
                self.accepted.push((conn, peer));
            }
            Event::Connected { conn, at, .. } => {
                assert!(at <= self.net.now());
                let seen = self.seen.get_mut(&conn).expect("known");
                assert_eq!(seen.received.len(), 0, "connected comes before bytes");
                seen.connected += 1;
            }
            Event::Readable { conn, data } => {
                assert_eq!(data.conn(), conn);
                match &mut self.held {
                    Some(held) => held.push(data),
                    None => self.receive(data),
                }
            }
            Event::Drained { conn } => self.seen.get_mut(&conn).expect("known").drained += 1,
            Event::Failed { conn, error } => {
                let seen = self.seen.get_mut(&conn).expect("known");
                seen.failed = Some(error);
                seen.failures += 1;
            }
            Event::Woken => self.woken += 1,
        }
    }

    pub(super) fn receive(&mut self, data: Data) {
        let conn = data.conn();
        let mut bytes = Vec::new();
        let unseen = self.unseen.entry(conn).or_default();
        let after = self.net.receive_or_discard(data, |piece| {
            match piece {
                ReceivedPiece::Bytes(piece) => {
                    assert!(!piece.is_empty(), "pieces are not empty");
                    bytes.extend_from_slice(piece);
                    *unseen = unseen.saturating_sub(piece.len() as u64);
                    // Transports lend received bytes mutably, because TLS decrypts in place.
                    piece.fill(0);
                }
                ReceivedPiece::Discarded(len) => {
                    assert!((1..=*unseen).contains(&len), "{len} of {unseen} bytes are discarded");
                    bytes.resize(bytes.len() + len as usize, 0);
                    *unseen -= len;
                }
            }
            Ahead { bytes: *unseen, unseen: true }
        });
        if after == After::Gone {
            assert!(bytes.is_empty(), "nothing comes from a connection that is gone");
            return;
        }
        let seen = self.seen.get_mut(&conn).expect("known");
        assert_eq!(seen.connected, 1, "bytes come after connected");
        assert!(!seen.ended || bytes.is_empty(), "no bytes after the end");
        seen.received.extend_from_slice(&bytes);
        match after {
            After::Ended => seen.ended = true,
            After::Failed(error) => {
                seen.failed = Some(error);
                seen.failures += 1;
            }
            After::Open | After::Gone => {}
        }
        if self.echo && seen.is_server {
            let _ = self.net.send(conn, &bytes);
            if after == After::Ended {
                self.net.close(conn, Close::Now);
            }
        }
    }
}
