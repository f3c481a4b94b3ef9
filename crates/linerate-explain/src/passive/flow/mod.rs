//! TCP connections of a capture.

mod admission;
mod calls;
mod connection;
mod demand;
mod figures;
mod http2;
mod lately;
mod order;
mod owners;
mod pending;
mod reassembly;
mod record;
mod room;
mod sealed;
mod sequence;
mod stall;
mod streams;
mod tally;
mod trace;
mod window;
mod windows;

use std::collections::HashMap;
use std::sync::Arc;

pub(super) use lately::Lately;
pub(crate) use pending::ms;
pub(crate) use reassembly::{Budget, StreamPiece};
pub use sequence::{MarkCounts, Marks};
pub use tally::{RemarkedSegment, Tally};

use connection::FlowConnection;
use record::{Record, SharedRecord};

use super::limits::CaptureLimits;
use super::observation::Observation;
use super::packet::{Endpoint, Segment};
use super::tls::KeyLog;

/// Both ends in an order that does not depend on the direction.
fn sorted([one, other]: [Endpoint; 2]) -> [Endpoint; 2] {
    if one <= other { [one, other] } else { [other, one] }
}

/// The connections being watched.
#[derive(Debug)]
pub(super) struct Flows {
    limits: CaptureLimits,
    keys: Option<Arc<KeyLog>>,
    budget: Budget,
    record: Record,
    /// What was seen in the windows before this one.
    earlier: Option<Box<Record>>,
    window_began: i64,
    by_ends: HashMap<[Endpoint; 2], usize>,
    connections: Vec<FlowConnection>,
    /// Ends of the last segment and their place: segments come in runs.
    last: Option<([Endpoint; 2], usize)>,
    /// Where the search for a quiet connection continues.
    hand: usize,
    ids: u64,
}

impl Flows {
    pub(super) fn new(limits: CaptureLimits) -> Flows {
        Flows {
            limits,
            keys: None,
            budget: Budget::new(limits.held_bytes),
            record: Record::new(),
            earlier: None,
            window_began: i64::MIN,
            by_ends: HashMap::new(),
            connections: Vec::new(),
            last: None,
            hand: 0,
            ids: 0,
        }
    }

    pub(super) fn set_keys(&mut self, keys: Option<Arc<KeyLog>>) {
        self.keys = keys;
    }

    pub(super) fn segment(&mut self, s: &Segment<'_>, now: i64) {
        let ends = sorted([s.src, s.dst]);
        let found = match self.last {
            Some((last, at)) if last == ends => Some(at),
            _ => self.by_ends.get(&ends).copied(),
        };
        let mut reused = false;
        let at = match found {
            Some(at) if self.connections[at].is_reused_by(s) => {
                reused = true;
                self.replace(at, s, now, ends);
                at
            }
            Some(at) => at,
            None => self.add(s, now, ends),
        };
        self.last = Some((ends, at));
        let mut shared = SharedRecord {
            limits: &self.limits,
            budget: &self.budget,
            keys: self.keys.as_deref(),
            record: &mut self.record,
        };
        self.connections[at].segment(s, now, reused, &mut shared);
    }

    fn fresh(&mut self, s: &Segment<'_>, now: i64) -> FlowConnection {
        self.ids += 1;
        self.record.sums.connections += 1;
        FlowConnection::new(self.ids, s, now, &self.limits)
    }

    /// Adds a connection. If the table is full, the quietest one is dropped.
    fn add(&mut self, s: &Segment<'_>, now: i64, ends: [Endpoint; 2]) -> usize {
        if self.connections.len() < self.limits.connections.max(1) {
            let fresh = self.fresh(s, now);
            self.connections.push(fresh);
            self.by_ends.insert(ends, self.connections.len() - 1);
            return self.connections.len() - 1;
        }
        // Drops a connection that had no packet since the clock hand last passed it.
        loop {
            self.hand = (self.hand + 1) % self.connections.len();
            if !std::mem::take(&mut self.connections[self.hand].recent) {
                break;
            }
        }
        let at = self.hand;
        self.record.sums.evicted += u64::from(!self.connections[at].has_ended());
        self.replace(at, s, now, ends);
        at
    }

    fn replace(&mut self, at: usize, s: &Segment<'_>, now: i64, ends: [Endpoint; 2]) {
        let fresh = self.fresh(s, now);
        let old = std::mem::replace(&mut self.connections[at], fresh);
        self.by_ends.remove(&sorted(old.ends));
        self.by_ends.insert(ends, at);
        let mut shared = SharedRecord {
            limits: &self.limits,
            budget: &self.budget,
            keys: self.keys.as_deref(),
            record: &mut self.record,
        };
        old.finish(&mut shared);
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.record.sums.requests + self.earlier.as_ref().map_or(0, |earlier| earlier.sums.requests)
    }

    pub(super) fn finish(mut self) -> Observation {
        for connection in std::mem::take(&mut self.connections) {
            let mut shared = SharedRecord {
                limits: &self.limits,
                budget: &self.budget,
                keys: self.keys.as_deref(),
                record: &mut self.record,
            };
            connection.finish(&mut shared);
        }
        let whole = match self.earlier {
            None => self.record,
            Some(mut earlier) => {
                earlier.add(self.record, &self.limits);
                *earlier
            }
        };
        whole.into_observation(&self.limits)
    }
}
