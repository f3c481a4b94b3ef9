//! Figures of all connections, and what they share.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;

use crate::passive::limits::{CLIENTS, CaptureLimits, SERVERS, UNREAD};
use crate::passive::observation::{
    BeyondTables, ConnectionFault, ConnectionSummary, LateSegments, Observation, ObservedCall, StreamLimit,
    Sums,
};
use crate::passive::tls::KeyLog;

use super::demand::Demand;
use super::figures::Figures;
use super::owners::OwnerTable;
use super::reassembly::Budget;
use super::sequence::MarkCounts;

/// State that all connections share.
pub(super) struct SharedRecord<'a> {
    pub(super) limits: &'a CaptureLimits,
    pub(super) budget: &'a Budget,
    pub(super) keys: Option<&'a KeyLog>,
    pub(super) record: &'a mut Record,
}

/// Figures of all connections, in one window of time or from the beginning on.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) marks: MarkCounts,
    pub(super) sums: Sums,
    pub(super) demand: Demand,
    connections: Vec<ConnectionSummary>,
    /// Place and weight of the least notable one, once it is known: many connections are alike.
    least: Option<(usize, (u64, Reverse<u64>))>,
    /// Of the calls to each server; first those beyond as many servers as are told apart.
    figures: Vec<Figures>,
    places: HashMap<SocketAddr, usize>,
    pub(super) faults: Vec<ConnectionFault>,
    stream_limits: Vec<StreamLimit>,
    unread: Vec<(String, u64)>,
    /// The shortest time in which each server acknowledged anything.
    bounds: Vec<(SocketAddr, i64)>,
    /// Calls by client process, where they are counted.
    pub(super) owners: Option<Box<OwnerTable>>,
}

impl Record {
    pub(super) fn new() -> Record {
        Record {
            marks: MarkCounts::default(),
            sums: Sums::default(),
            demand: Demand::default(),
            connections: Vec::new(),
            least: None,
            figures: vec![Figures::default()],
            places: HashMap::new(),
            faults: Vec::new(),
            stream_limits: Vec::new(),
            unread: Vec::new(),
            bounds: Vec::new(),
            owners: None,
        }
    }

    /// A connection of HTTP/2 is read no further.
    pub(super) fn unread(&mut self, why: &str) {
        self.unread_on(why, 1);
    }

    fn unread_on(&mut self, why: &str, more: u64) {
        if let Some((_, connections)) = self.unread.iter_mut().find(|(known, _)| known == why) {
            *connections += more;
        } else if self.unread.len() < UNREAD {
            self.unread.push((why.to_owned(), more));
        } else if let Some((last, connections)) = self.unread.last_mut() {
            *last = "for several reasons".to_owned();
            *connections += more;
        }
    }

    /// The client of a connection had as many streams open as its server admits.
    pub(super) fn stream_limit(&mut self, counts: StreamLimit, ends: (SocketAddr, SocketAddr), most: usize) {
        if self.stream_limits.len() < most {
            self.stream_limits.push(StreamLimit { ends: Some(ends), ..counts });
        }
    }

    /// A handshake's round trip.
    pub(super) fn opened(&mut self, server: SocketAddr, rtt_ns: i64) {
        let least = &mut self.of(Some(server)).sums.rtt_min_ns;
        *least = Some(least.map_or(rtt_ns, |least| least.min(rtt_ns)));
    }

    /// Data for that server was acknowledged so long after it was sent.
    pub(super) fn round_trip(&mut self, server: SocketAddr, took_ns: i64) {
        match self.bounds.iter_mut().find(|(known, _)| *known == server) {
            Some((_, least)) => *least = took_ns.min(*least),
            None => self.bounds.push((server, took_ns)),
        }
        self.bounds.truncate(CLIENTS);
    }

    /// An upper bound of the round trip to that server.
    pub(super) fn rtt_bound(&self, server: SocketAddr) -> Option<i64> {
        self.bounds.iter().find(|(known, _)| *known == server).map(|(_, least)| *least)
    }

    /// A call is whole. `trace` gives its segments, when they are wanted.
    pub(super) fn call(
        &mut self,
        call: ObservedCall,
        first: bool,
        limits: &CaptureLimits,
        trace: impl Fn(&mut ObservedCall),
    ) {
        let server = call.ends.map(|(_, server)| server);
        if let Some(owners) = &mut self.owners {
            owners.call(&call);
        }
        self.of(server).call(call, first, limits, trace);
    }

    /// Segments to and from that server that were counted as lost were not: they were repeated
    /// needlessly, or overtaken.
    pub(super) fn not_lost(&mut self, server: SocketAddr, segments: u64, overtaken: u64) {
        let figures = self.of(Some(server));
        figures.undone += segments;
        figures.late.needless += segments;
        figures.late.overtaken += overtaken;
    }

    /// The count of segments to and from that server that came late.
    pub(super) fn late(&mut self, server: SocketAddr) -> &mut LateSegments {
        &mut self.of(Some(server)).late
    }

    /// The figures of the calls to that server.
    fn of(&mut self, server: Option<SocketAddr>) -> &mut Figures {
        let known = server.and_then(|server| self.places.get(&server).copied());
        let place = known.unwrap_or_else(|| match server {
            Some(server) if self.places.len() < SERVERS => {
                self.figures.push(Figures::default());
                self.places.insert(server, self.figures.len() - 1);
                self.figures.len() - 1
            }
            _ => 0,
        });
        &mut self.figures[place]
    }

    /// A connection ended. The most notable ones are kept.
    pub(super) fn list(&mut self, summary: ConnectionSummary, most: usize) {
        self.of(Some(summary.server)).sums.connections += 1;
        self.keep(summary, most);
    }

    fn keep(&mut self, summary: ConnectionSummary, most: usize) {
        // Of two alike the first one: so it does not matter in which windows they ended.
        let weight = |c: &ConnectionSummary| {
            let marks: u64 = c.marks.iter().flat_map(MarkCounts::seen).map(|(_, n)| n).sum();
            (marks * 1000 + c.requests, Reverse(c.id))
        };
        if self.connections.len() < most {
            self.connections.push(summary);
            self.least = None;
            return;
        }
        let known = self.least.filter(|(at, _)| *at < self.connections.len());
        let least = known.or_else(|| {
            let all = self.connections.iter().map(weight).enumerate();
            all.min_by_key(|(_, weight)| *weight)
        });
        self.least = least;
        if let Some((at, _)) = least.filter(|(_, least)| *least < weight(&summary)) {
            self.connections[at] = summary;
            self.least = None;
        }
    }

    /// Ends a window: what is seen from now on is counted anew. What judges later packets stays: the
    /// bounds of round trips, and which connections are busy. `quiet`: see [`Demand::next_window`].
    pub(super) fn end_window(&mut self, quiet: i64) -> Record {
        let next =
            Record { demand: self.demand.next_window(quiet), bounds: self.bounds.clone(), ..Record::new() };
        std::mem::replace(self, next)
    }

    /// Adds the record of the window after it: the same as if there had been one window.
    pub(super) fn add(&mut self, later: Record, limits: &CaptureLimits) {
        self.marks.add(&later.marks);
        self.sums.add(&later.sums);
        self.demand.add(later.demand);
        later.connections.into_iter().for_each(|c| self.keep(c, limits.listed));
        let mut servers = vec![None; later.figures.len()];
        later.places.into_iter().for_each(|(server, place)| servers[place] = Some(server));
        // In the order in which the servers were first seen, behind those that are not told apart.
        for (server, figures) in servers.into_iter().zip(later.figures) {
            self.of(server).add(figures, limits);
        }
        let room = limits.listed.saturating_sub(self.faults.len());
        self.faults.extend(later.faults.into_iter().take(room));
        let room = limits.listed.saturating_sub(self.stream_limits.len());
        self.stream_limits.extend(later.stream_limits.into_iter().take(room));
        later.unread.iter().for_each(|(why, connections)| self.unread_on(why, *connections));
        self.bounds = later.bounds;
    }

    pub(super) fn into_observation(mut self, limits: &CaptureLimits) -> Observation {
        self.connections.sort_by_key(|c| c.id);
        let left_out = BeyondTables {
            servers: if self.places.len() < SERVERS { 0 } else { self.figures[0].sums.answered },
            clients: self.demand.beyond,
            costs: self.figures.iter().map(|figures| figures.costs_beyond).sum(),
        };
        let shared = Observation {
            marks: self.marks,
            connections: self.connections,
            pools: self.demand.pools(),
            faults: self.faults,
            stream_limits: self.stream_limits,
            ..Observation::default()
        };
        let mut servers = Vec::new();
        if self.places.len() > 1 {
            let mut names = vec![None; self.figures.len()];
            self.places.iter().for_each(|(server, place)| names[*place] = Some(*server));
            let each = self
                .figures
                .iter()
                .cloned()
                .zip(names)
                .filter(|(f, name)| f.sums.answered > 0 || name.is_some());
            servers
                .extend(each.map(|(figures, name)| (name, figures.of_server(name, &shared, &self.bounds))));
        }
        let mut all = Figures::default();
        self.figures.into_iter().for_each(|figures| all.add(figures, limits));
        let seen = all.into_observation();
        let mut sums = self.sums.with_calls(seen.sums);
        sums.rtt_bound_ns = self.bounds.iter().map(|(_, least)| *least).min();
        Observation {
            servers,
            left_out,
            sums,
            late: seen.late,
            slowest: seen.slowest,
            seen: seen.seen,
            unread: self.unread,
            ..shared
        }
    }
}
