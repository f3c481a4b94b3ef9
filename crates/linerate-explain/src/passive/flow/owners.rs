//! Whose calls they are: the calls of each client process, where the sockets of this machine tell
//! which process has a connection.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::passive::limits::{CLIENTS, UNOWNED};
use crate::passive::observation::{ClientProcess, ClientTrouble, ObservedCall};
use crate::rule::Cause;

/// A client's address, its server, and its process; 0 where that is not known.
type ClientKey = (IpAddr, SocketAddr, u32);

/// Calls of a client.
#[derive(Clone, Debug, Default)]
struct ClientTally {
    calls: u64,
    assumed: u64,
    total_ns: i64,
    /// Of those calls, what cost them time.
    troubles: Vec<ClientTrouble>,
}

impl ClientTally {
    fn add(&mut self, other: ClientTally) {
        self.calls += other.calls;
        self.assumed += other.assumed;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        for trouble in other.troubles {
            let known = self.trouble(trouble.cause);
            known.calls += trouble.calls;
            known.cost_ns = known.cost_ns.saturating_add(trouble.cost_ns);
        }
    }

    /// The tally of a cause.
    fn trouble(&mut self, cause: &'static Cause) -> &mut ClientTrouble {
        let at = self.troubles.iter().position(|known| known.cause == cause).unwrap_or_else(|| {
            self.troubles.push(ClientTrouble { cause, calls: 0, cost_ns: 0 });
            self.troubles.len() - 1
        });
        &mut self.troubles[at]
    }

    /// A call with its costs; each cause counts once.
    fn of(call: &ObservedCall) -> ClientTally {
        let mut tally = ClientTally { calls: 1, total_ns: call.total_ns, ..ClientTally::default() };
        for note in &call.notes {
            let known = tally.trouble(note.cause);
            known.calls = 1;
            known.cost_ns = known.cost_ns.saturating_add(note.cost_ns);
        }
        tally
    }
}

/// The calls of this window by client process.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerTable {
    /// The process of each connection where it is known, by the connection's number.
    owners: HashMap<u64, u32>,
    tallies: HashMap<ClientKey, ClientTally>,
    /// Calls on connections of which the process is not known, in this window.
    unowned: HashMap<u64, (IpAddr, SocketAddr, ClientTally)>,
    /// Calls of clients for which there was no room.
    beyond: u64,
}

impl OwnerTable {
    /// A call is whole.
    pub(super) fn call(&mut self, call: &ObservedCall) {
        let Some((client, server)) = call.ends else { return };
        let tally = ClientTally::of(call);
        let pid = self.owners.get(&call.connection).copied();
        match pid {
            None if self.unowned.len() < UNOWNED || self.unowned.contains_key(&call.connection) => {
                let place = self.unowned.entry(call.connection);
                place.or_insert_with(|| (client.ip(), server, ClientTally::default())).2.add(tally);
            }
            _ => self.count((client.ip(), server, pid.unwrap_or(0)), tally),
        }
    }

    fn count(&mut self, key: ClientKey, tally: ClientTally) {
        if self.tallies.len() >= CLIENTS && !self.tallies.contains_key(&key) {
            self.beyond += tally.calls;
            return;
        }
        self.tallies.entry(key).or_default().add(tally);
    }

    /// That process has the connection; 0: it is not known which one.
    pub(super) fn owned(&mut self, connection: u64, pid: u32) {
        self.owners.insert(connection, pid);
        if let Some((client, server, tally)) = self.unowned.remove(&connection) {
            self.count((client, server, pid), tally);
        }
    }

    /// The connection's process is known.
    pub(super) fn knows(&self, connection: u64) -> bool {
        self.owners.contains_key(&connection)
    }

    /// The connection is forgotten.
    pub(super) fn forget(&mut self, connection: u64) {
        if !self.knows(connection) {
            self.owned(connection, 0);
        }
        self.owners.remove(&connection);
    }

    /// Ends a window: its clients, those with most calls first, and the calls of clients for which
    /// there was no room.
    pub(super) fn end_window(&mut self) -> (Vec<ClientProcess>, u64) {
        for (_, (client, server, tally)) in std::mem::take(&mut self.unowned) {
            self.count((client, server, 0), tally);
        }
        let tallies = std::mem::take(&mut self.tallies);
        let keys: Vec<ClientKey> = tallies.keys().copied().collect();
        let mut clients: HashMap<ClientKey, ClientTally> = HashMap::new();
        for ((client, server, pid), mut tally) in tallies {
            // Of an address from which one process alone was seen, connections that were too short to be
            // looked up are its own, too.
            let mut pids = keys.iter().filter(|key| (key.0, key.1) == (client, server) && key.2 != 0);
            let only = pids.next().map(|key| key.2).filter(|_| pid == 0 && pids.next().is_none());
            if only.is_some() {
                tally.assumed = tally.calls;
            }
            clients.entry((client, server, only.unwrap_or(pid))).or_default().add(tally);
        }
        let process = |((client, server, pid), tally): (ClientKey, ClientTally)| ClientProcess {
            client,
            server,
            pid: Some(pid).filter(|pid| *pid != 0),
            calls: tally.calls,
            assumed: tally.assumed,
            total_ns: tally.total_ns,
            troubles: tally.troubles,
        };
        let mut clients: Vec<ClientProcess> = clients.into_iter().map(process).collect();
        clients.sort_by_key(|c| (Reverse(c.calls), c.client, c.server, c.pid));
        (clients, std::mem::take(&mut self.beyond))
    }
}
