//! Connections that are watched without end: what was seen is counted window by window, and ended
//! connections are forgotten.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::owners::OwnerTable;
use super::record::{Record, SharedRecord};
use super::{Flows, sorted};
use crate::passive::observation::{ClientProcess, Observation};
use crate::passive::packet::Endpoint;

/// Clients that were quiet for so long make room for others where their table is full, nanoseconds.
/// Reason: a burst of calls is over by then.
const QUIET_NS: i64 = 60_000_000_000;

impl Flows {
    /// Counts the calls of each client process from now on.
    pub(in crate::passive) fn count_owners(&mut self) {
        self.record.owners = Some(Box::new(OwnerTable::default()));
    }

    /// Forgets the connections that have ended, or were idle for long.
    pub(in crate::passive) fn sweep(&mut self, now: i64) {
        let mut at = 0;
        while at < self.connections.len() {
            if !self.connections[at].is_over(now) {
                at += 1;
                continue;
            }
            let over = self.connections.swap_remove(at);
            self.by_ends.remove(&sorted(over.ends));
            if let Some(moved) = self.connections.get(at) {
                self.by_ends.insert(sorted(moved.ends), at);
            }
            let mut shared = SharedRecord {
                limits: &self.limits,
                budget: &self.budget,
                keys: self.keys.as_deref(),
                record: &mut self.record,
            };
            over.finish(&mut shared);
        }
        // Places have changed.
        self.last = None;
        self.hand = 0;
    }

    /// Ends a window at `now`, and returns what was seen in it; of connections that go on, what they
    /// carry. Also the calls of each client process, where they are counted.
    pub(in crate::passive) fn end_window(&mut self, now: i64) -> (Observation, Vec<ClientProcess>) {
        let mut clients = Vec::new();
        let mut owners = self.record.owners.take();
        if let Some(owners) = &mut owners {
            let (all, beyond) = owners.end_window();
            self.record.demand.beyond += beyond;
            clients = all;
        }
        let window = self.record.end_window(now.saturating_sub(QUIET_NS));
        self.record.owners = owners;
        let began = std::mem::replace(&mut self.window_began, now);
        let mut shown = window.clone();
        self.show(began, &mut shown);
        match &mut self.earlier {
            Some(earlier) => earlier.add(window, &self.limits),
            none => *none = Some(Box::new(window)),
        }
        (shown.into_observation(&self.limits), clients)
    }

    /// What was seen from the beginning on.
    pub(in crate::passive) fn so_far(&self) -> Observation {
        let mut whole = match &self.earlier {
            None => Record::clone(&self.record),
            Some(earlier) => {
                let mut whole = Record::clone(earlier);
                whole.add(self.record.clone(), &self.limits);
                whole
            }
        };
        self.show(i64::MIN, &mut whole);
        whole.into_observation(&self.limits)
    }

    /// Adds connections that go on and had a packet since then.
    fn show(&self, since: i64, record: &mut Record) {
        let busy = self.connections.iter().filter(|connection| connection.last_ns() >= since);
        busy.for_each(|connection| connection.show(self.limits.listed, record));
    }

    /// Connections that are watched now.
    pub(in crate::passive) fn open(&self) -> usize {
        self.connections.len()
    }

    /// Calls that wait for the end of their response, by server: how many, and since when the oldest
    /// one does.
    pub(in crate::passive) fn waiting(&self) -> HashMap<SocketAddr, (u64, i64)> {
        let mut all = HashMap::new();
        for connection in &self.connections {
            let Some((since, calls)) = connection.waiting() else { continue };
            let of = all.entry(connection.addresses().1).or_insert((0, since));
            *of = (of.0 + calls, of.1.min(since));
        }
        all
    }

    /// Client and server of connections whose process is not known.
    pub(in crate::passive) fn unowned(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let Some(owners) = &self.record.owners else { return Vec::new() };
        let unknown = self.connections.iter().filter(|c| !owners.knows(c.id));
        unknown.map(|connection| connection.addresses()).collect()
    }

    /// That process has the client's end of a connection.
    pub(in crate::passive) fn owned(&mut self, client: SocketAddr, server: SocketAddr, pid: u32) {
        let ends = sorted([Endpoint::of(client), Endpoint::of(server)]);
        let connection = self.by_ends.get(&ends).map(|at| self.connections[*at].id);
        if let Some((owners, connection)) = self.record.owners.as_mut().zip(connection) {
            owners.owned(connection, pid);
        }
    }
}
