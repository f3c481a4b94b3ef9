//! One transport, several equal users in one thread, each with the connections that it opened.

use std::any::Any;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::{
    After, Ahead, Close, Conn, ConnectOptions, Data, Event, Lent, ListenOptions, Listener, NetError,
    ReceivedPiece, TcpInfo, TcpTotals, Time, Transport, Waker,
};

struct PartsState<T> {
    transport: T,
    /// The number of the part that opened a connection, by the connection's slot.
    owners: Vec<usize>,
    /// Events that each part has not taken.
    events: Vec<Vec<Event>>,
    told: Vec<Event>,
}

impl<T> PartsState<T> {
    /// All parts know a connection by the transport's own name.
    fn of_part(&self, conn: Conn) -> Conn {
        conn
    }

    fn sort(&mut self) {
        for event in self.told.drain(..) {
            let conn = match &event {
                Event::Woken => None,
                // Nobody listens.
                Event::Accepted { .. } => continue,
                Event::Readable { conn, .. }
                | Event::Connected { conn, .. }
                | Event::Drained { conn }
                | Event::Failed { conn, .. } => Some(*conn),
            };
            // Where a slot is used again, the part that has it now knows that an earlier connection is gone.
            let owner = conn.and_then(|conn| self.owners.get(conn.slot()).copied()).unwrap_or(0);
            self.events[owner].push(event);
        }
    }
}

/// A part of a transport that was [divided](divide). Only turns whose time lies ahead, and not even at the beginning
/// of time, wait for events; what they bring for the other parts waits for turns of those.
///
/// After a turn of one part that waited, each other part takes a turn until [`Time::ZERO`] before anyone waits again,
/// because a claim on received bytes ends with the next wait.
pub struct Part<T> {
    state: Rc<RefCell<PartsState<T>>>,
    number: usize,
}

/// Divides a transport among so many users (at least 1) in the same thread. None of them listens.
pub fn divide<T: Transport>(transport: T, parts: usize) -> Vec<Part<T>> {
    let parts = parts.max(1);
    let events = (0..parts).map(|_| Vec::new()).collect();
    let state = PartsState { transport, owners: Vec::new(), events, told: Vec::new() };
    let state = Rc::new(RefCell::new(state));
    (0..parts).map(|number| Part { state: Rc::clone(&state), number }).collect()
}

impl<T> Part<T> {
    fn is_last(&self) -> bool {
        self.number + 1 == self.state.borrow().events.len()
    }
}

impl<T: Transport> Transport for Part<T> {
    passed_on!(of_part);

    /// Fails: parts open connections alone.
    fn listen(&mut self, _: SocketAddr, _: &ListenOptions) -> Result<(Listener, SocketAddr), NetError> {
        Err(NetError::from_errno(libc::EOPNOTSUPP))
    }

    fn unlisten(&mut self, _: Listener) {}

    fn connect(&mut self, to: SocketAddr, options: &ConnectOptions) -> Result<Conn, NetError> {
        let state = &mut *self.state.borrow_mut();
        let conn = state.transport.connect(to, options)?;
        if state.owners.len() <= conn.slot() {
            state.owners.resize(conn.slot() + 1, 0);
        }
        state.owners[conn.slot()] = self.number;
        Ok(conn)
    }

    fn turn(&mut self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        let mut turned = Ok(());
        if state.events[self.number].is_empty() && until != Some(Time::ZERO) {
            turned = state.transport.turn(until, &mut state.told);
            state.sort();
        }
        events.append(&mut state.events[self.number]);
        turned
    }

    fn send_last(&mut self, conn: Conn, bytes: &[u8], how: Close) -> Result<(), NetError> {
        self.state.borrow_mut().transport.send_last(conn, bytes, how)
    }

    fn close(&mut self, conn: Conn, how: Close) {
        self.state.borrow_mut().transport.close(conn, how);
    }

    /// Of all parts, told to the last one: who waits for it has closed the others' connections before.
    fn unfinished(&self) -> usize {
        if self.is_last() { self.state.borrow().transport.unfinished() } else { 0 }
    }

    /// As [`unfinished`](Transport::unfinished).
    fn half_closed(&self) -> usize {
        if self.is_last() { self.state.borrow().transport.half_closed() } else { 0 }
    }

    fn reset_closed(&mut self, most: usize) -> usize {
        self.state.borrow_mut().transport.reset_closed(most)
    }

    fn news(&mut self) -> Option<String> {
        self.state.borrow_mut().transport.news()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_base::Random;

    use super::*;
    use crate::mem::{Mem, PeerActions, PeerConn};

    fn echo(_: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        out.send_after(Duration::from_millis(3), conn, bytes.to_vec());
    }

    /// Three parts open, send and close as a seed says: each hears its own letter alone.
    #[test]
    fn each_part_hears_its_own() {
        let to: SocketAddr = "10.0.0.2:80".parse().expect("an address");
        let mut heard = 0;
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut mem = Mem::default();
            mem.serve(to, echo).expect("a peer");
            let mut parts = divide(mem, 3);
            let mut open: Vec<Vec<Conn>> = vec![Vec::new(); 3];
            for _ in 0..200 {
                let number = random.below(3) as usize;
                let part = &mut parts[number];
                let nth = random.below(open[number].len() as u64 + 1) as usize;
                match (random.below(3), open[number].get(nth).copied()) {
                    (_, None) => {
                        open[number].push(part.connect(to, &ConnectOptions::default()).expect("it opens"));
                    }
                    (0, Some(conn)) => {
                        part.close(conn, Close::Now);
                        open[number].swap_remove(nth);
                    }
                    (_, Some(conn)) => part.send(conn, &[number as u8; 5]).expect("taken"),
                }
                let waits = random.below(3) as usize;
                let soon = parts[waits].now() + Duration::from_millis(2);
                for number in (0..3).map(|n| (waits + n) % 3) {
                    let until = if number == waits { soon } else { Time::ZERO };
                    let mut events = Vec::new();
                    parts[number].turn(Some(until), &mut events).expect("a turn");
                    for event in events {
                        let Event::Readable { conn, data } = event else { continue };
                        let is_open = open[number].contains(&conn);
                        parts[number].receive(data, |bytes| {
                            assert!(is_open && bytes.iter().all(|byte| *byte == number as u8));
                            heard += bytes.len();
                        });
                    }
                }
            }
        }
        assert!(heard > 10_000, "{heard}");
    }
}
