//! Samples `TCP_INFO` during the run: of some connections many times a second, in turn, and of each
//! connection before it is closed.

use std::time::Duration;

use linerate_client::{Conversation, PooledConnection};
use linerate_net::{FlowInfo, Time, Transport};

use super::responses::ResponseReading;
use super::{Engine, EngineConnection};
use crate::limits::{
    FLOW_PLACES, FLOW_PLACES_ALL, FLOWS_SHOWN, LOOKS_PER_SECOND, LOOKS_SPREAD, SHORT_INFO_EVERY,
};

/// The time of the next sample, and where to continue.
#[derive(Debug)]
pub(super) struct Looks {
    next: Time,
    slot: usize,
    /// When measuring begins, until it has.
    begin: Option<Time>,
    /// Short connections closed so far.
    closed_short: u32,
    /// Connections of user-space TCP, collected for a watcher: the next index of the stack's table,
    /// and the connections found so far.
    flow_place: usize,
    flows: Vec<FlowInfo>,
}

impl Looks {
    pub(super) fn new(measure_from: Time) -> Looks {
        Looks {
            next: Time::ZERO,
            slot: 0,
            begin: Some(measure_from),
            closed_short: 0,
            flow_place: 0,
            flows: Vec::new(),
        }
    }

    pub(super) fn next(&self) -> Time {
        self.next
    }
}

impl<T: Transport, C: Conversation<Reading = ResponseReading>> Engine<T, C> {
    /// Looks at the next few connections.
    pub(super) fn look_around(&mut self, now: Time) {
        let looks = &mut self.looks;
        looks.next = now + Duration::from_secs(1) / LOOKS_SPREAD;
        if let Some(begin) = looks.begin {
            if begin <= now {
                looks.begin = None;
                self.recorder.begin(self.transport.totals());
            } else {
                looks.next = looks.next.min(begin);
            }
        }
        if self.board.flows_wanted() {
            self.look_for_flows();
        }
        let spread = LOOKS_SPREAD as usize;
        let most = self.pool.slots().div_ceil(spread).min(LOOKS_PER_SECOND / spread);
        // Free places cost a look as well: a table that was larger once must not hold the loop up.
        for _ in 0..most {
            self.looks.slot = (self.looks.slot + 1) % self.pool.slots().max(1);
            let Some(connection) = self.pool.at_mut(self.looks.slot).filter(|c| c.established) else {
                continue;
            };
            if let Some(info) = self.transport.info(connection.conn) {
                self.recorder.look(connection.beside.looked.as_ref(), &info);
                connection.beside.looked = Some(info);
            }
        }
    }

    /// Some places more of the table; those with the longest queues are shown in the end.
    fn look_for_flows(&mut self) {
        let Looks { flow_place, flows, .. } = &mut self.looks;
        let next = self.transport.flows(*flow_place, FLOW_PLACES, |flow| flows.push(flow));
        let queued = |f: &FlowInfo| f.unread_bytes + f.unsent_bytes + f.unacked_bytes;
        flows.sort_by_key(|flow| std::cmp::Reverse(queued(flow)));
        flows.truncate(FLOWS_SHOWN);
        match next.filter(|place| *place < FLOW_PLACES_ALL) {
            Some(place) => *flow_place = place,
            None => {
                *flow_place = 0;
                self.board.show_flows(std::mem::take(flows));
            }
        }
    }

    /// The last look at a connection, before it is closed. Of `short` ones a sample is looked at.
    pub(super) fn look_at_last(&mut self, connection: &PooledConnection<C, EngineConnection>, short: bool) {
        if short {
            self.looks.closed_short = self.looks.closed_short.wrapping_add(1);
            if !self.looks.closed_short.is_multiple_of(SHORT_INFO_EVERY) {
                return;
            }
        }
        if let Some(info) = self.transport.info(connection.conn) {
            self.recorder.look(connection.beside.looked.as_ref(), &info);
        }
    }

    /// A second is over.
    pub(super) fn mark(&mut self) {
        self.recorder.hand_over_log();
        self.board.mark(&self.recorder, self.transport.totals());
    }
}
