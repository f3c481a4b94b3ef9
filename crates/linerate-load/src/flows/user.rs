//! One user: where it is in its flow, what it sends next, and its connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use linerate_base::{Random, Time, derive};
use linerate_net::Conn;

use crate::extract::jar::CookieJar;

#[derive(Debug)]
pub(super) struct JourneyUser {
    pub(super) random: Random,
    /// Its number in the whole run, from 0.
    pub(super) number: u64,
    /// Its own connections.
    conns: Vec<UserConnection>,
    /// Requests in flight, and those of them that have no connection yet.
    pub(super) flying: usize,
    unplaced: usize,
    /// Requests of this step or group that have not left.
    pub(super) pending: VecDeque<StepRequest>,
    /// The ticket of its place in a queue.
    pub(super) ticket: Option<u64>,
    /// Values that requests of this step or group took, by step.
    pub(super) taken: Vec<(usize, Vec<Vec<u8>>)>,
    /// Why its iteration fails once nothing is in flight.
    pub(super) broken: Option<BrokenIteration>,
    /// The run ends before its iteration.
    pub(super) halted: bool,
    /// The step of an iteration, and how often it was made in a row. `None`: between two iterations.
    pub(super) at: Option<StepPlace>,
    /// When the iteration was due.
    pub(super) since: Time,
    /// The row of its templates: data, values, and those of a request's own: what a script made, and two more.
    pub(super) cells: Vec<Box<[u8]>>,
    pub(super) jar: CookieJar,
}

/// The step, or the first one of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepPlace {
    pub(super) flow: usize,
    pub(super) step: usize,
    pub(super) made: u32,
}

/// A request of a step that has not left.
#[derive(Debug)]
pub(super) struct StepRequest {
    pub(super) step: usize,
    /// The number of the host that it goes to.
    pub(super) host: usize,
    pub(super) due: Time,
    /// Redirects so far, whether it is a GET because of them, and where the last one leads.
    pub(super) redirects: u32,
    pub(super) by_get: bool,
    pub(super) location: Box<[u8]>,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct StepFlight {
    pub(super) user: u32,
    pub(super) kind: u16,
    pub(super) request: StepRequest,
    pub(super) target: Vec<u8>,
    pub(super) cookies: Box<[u8]>,
    /// What a script made for it; none without a script.
    pub(super) made: Vec<Box<[u8]>>,
    /// The connection of its user that carries it.
    pub(super) conn: Option<Conn>,
}

/// The first failure of an iteration.
#[derive(Debug)]
pub(super) struct BrokenIteration {
    pub(super) cause: String,
    /// Requests that will not be sent.
    pub(super) skipped: u64,
    /// How long the user waits before its next iteration.
    pub(super) pause: Duration,
}

#[derive(Debug)]
struct UserConnection {
    conn: Conn,
    host: usize,
    carries: usize,
    /// It takes nothing more.
    closing: bool,
}

impl StepRequest {
    pub(super) fn of(step: usize, host: usize, due: Time) -> StepRequest {
        StepRequest { step, host, due, redirects: 0, by_get: false, location: Box::default() }
    }
}

impl JourneyUser {
    pub(super) fn new(seed: u64, number: u64, cells: usize) -> JourneyUser {
        JourneyUser {
            random: Random::new(derive(seed, 0x75_73_65_72 + number)),
            number,
            conns: Vec::new(),
            flying: 0,
            unplaced: 0,
            pending: VecDeque::new(),
            ticket: None,
            taken: Vec::new(),
            broken: None,
            halted: false,
            at: None,
            since: Time::ZERO,
            cells: vec![Box::default(); cells],
            jar: CookieJar::default(),
        }
    }

    /// The host of the request that leaves next; that of its first step is known once it begins.
    pub(super) fn next_host(&self) -> usize {
        self.pending.front().map_or(0, |request| request.host)
    }

    /// Its connection that could take the next request, as far as it knows.
    pub(super) fn free_connection(&self, has_streams: bool) -> Option<Conn> {
        let host = self.next_host();
        let is_free = |c: &&UserConnection| c.host == host && !c.closing && (has_streams || c.carries == 0);
        self.conns.iter().rev().find(is_free).map(|c| c.conn)
    }

    /// Whether a request in flight is about to have a connection.
    pub(super) fn is_connecting(&self) -> bool {
        self.unplaced > 0
    }

    /// A request leaves for a host, on this connection if that is known.
    pub(super) fn leaves(&mut self, host: usize, conn: Option<Conn>) {
        self.flying += 1;
        match conn {
            Some(conn) => self.carry(host, conn),
            None => self.unplaced += 1,
        }
    }

    /// A request that left has a connection, in place of the one that it had. Returns a connection that is to be closed.
    pub(super) fn placed(&mut self, host: usize, before: Option<Conn>, conn: Conn) -> Option<Conn> {
        self.carry(host, conn);
        let Some(before) = before else {
            self.unplaced -= 1;
            return None;
        };
        self.lighten(before, true)
    }

    /// A request ended. Returns a connection that is to be closed.
    pub(super) fn landed(&mut self, conn: Option<Conn>) -> Option<Conn> {
        self.flying -= 1;
        let Some(conn) = conn else {
            self.unplaced -= 1;
            return None;
        };
        self.lighten(conn, false)
    }

    /// A connection takes nothing more. Returns it, if it carries nothing either.
    pub(super) fn shut(&mut self, conn: Conn) -> Option<Conn> {
        let at = self.conns.iter().position(|c| c.conn == conn)?;
        self.conns[at].closing = true;
        (self.conns[at].carries == 0).then(|| self.conns.swap_remove(at).conn)
    }

    /// It is gone, and its connections with it: the host of each.
    pub(super) fn release(&mut self) -> impl Iterator<Item = (usize, Conn)> + '_ {
        self.conns.drain(..).map(|c| (c.host, c.conn))
    }

    fn carry(&mut self, host: usize, conn: Conn) {
        match self.conns.iter_mut().find(|c| c.conn == conn) {
            Some(c) => c.carries += 1,
            None => self.conns.push(UserConnection { conn, host, carries: 1, closing: false }),
        }
    }

    fn lighten(&mut self, conn: Conn, closes: bool) -> Option<Conn> {
        let at = self.conns.iter().position(|c| c.conn == conn)?;
        let found = &mut self.conns[at];
        found.carries -= 1;
        (found.carries == 0 && (closes || found.closing)).then(|| self.conns.swap_remove(at).conn)
    }

    /// The run ends before what has not left could.
    pub(super) fn halt(&mut self) {
        self.pending.clear();
        self.ticket = None;
        self.halted = true;
    }
}

/// Users by when they are due. Tickets that their users no longer hold are void.
#[derive(Debug, Default)]
pub(super) struct UserQueue(BinaryHeap<Reverse<(Time, u32, u64)>>);

impl UserQueue {
    /// A user joins, with the ticket that it holds.
    pub(super) fn push(&mut self, (due, user, ticket): (Time, u32, u64)) {
        self.0.push(Reverse((due, user, ticket)));
    }

    /// The user that is due first.
    pub(super) fn first(&mut self, users: &[JourneyUser]) -> Option<(Time, u32)> {
        loop {
            let Reverse((due, user, ticket)) = *self.0.peek()?;
            if users[user as usize].ticket == Some(ticket) {
                return Some((due, user));
            }
            self.0.pop();
        }
    }

    /// Users that are due by this time, in no order.
    pub(super) fn due_by(&self, now: Time, users: &[JourneyUser]) -> impl Iterator<Item = u32> {
        let due = self.0.iter().map(|Reverse(entry)| *entry);
        let due = due
            .filter(move |(due, user, ticket)| *due <= now && users[*user as usize].ticket == Some(*ticket));
        due.map(|(_, user, _)| user)
    }

    /// Takes the user that is due first; it holds its ticket on.
    pub(super) fn pop(&mut self, users: &[JourneyUser]) -> Option<(Time, u32)> {
        let first = self.first(users);
        self.0.pop();
        first
    }
}
