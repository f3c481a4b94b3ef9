//! Each thread's scan of its own table, a few places in each turn.

use std::collections::VecDeque;

use linerate_net::{FlowInfo, FlowState, Transport};
use tokio::sync::oneshot;

use crate::limits;

const STATES: usize = FlowState::ALL.len();

/// A request to one thread.
pub(crate) struct Ask {
    pub(crate) skip: usize,
    pub(crate) most: usize,
    pub(crate) tell: oneshot::Sender<FlowScan>,
}

/// Flows counted by state, on one or several threads, and a page of them.
#[derive(Debug, Default)]
pub(crate) struct FlowScan {
    pub(super) total: usize,
    pub(super) by_state: [usize; STATES],
    pub(super) handshakes: u64,
    pub(super) time_wait: u64,
    pub(super) shown: Vec<FlowInfo>,
}

impl FlowScan {
    pub(super) fn see(&mut self, flow: FlowInfo, skip: usize, most: usize) {
        if self.total >= skip && self.shown.len() < most {
            self.shown.push(flow);
        }
        self.total += 1;
        self.by_state[flow.state as usize] += 1;
    }

    pub(super) fn add(&mut self, other: FlowScan) {
        self.total += other.total;
        self.by_state.iter_mut().zip(other.by_state).for_each(|(sum, more)| *sum += more);
        self.handshakes += other.handshakes;
        self.time_wait += other.time_wait;
        self.shown.extend(other.shown);
    }
}

/// Requests that one thread handles, one after the other.
#[derive(Default)]
pub(crate) struct Scans(pub(super) VecDeque<Scan>);

pub(super) struct Scan {
    ask: Ask,
    /// The place of the table to continue from.
    place: usize,
    seen: FlowScan,
}

impl Scans {
    /// Beyond the limit it drops the request, which tells its sender.
    pub(crate) fn add(&mut self, ask: Ask) {
        if self.0.len() < limits::FLOW_ASKERS {
            self.0.push_back(Scan { ask, place: 0, seen: FlowScan::default() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Scans some more places.
    pub(crate) fn go_on<T: Transport>(&mut self, transport: &T) {
        let Some(mut scan) = self.0.pop_front() else { return };
        if scan.ask.tell.is_closed() {
            return;
        }
        let (seen, skip, most) = (&mut scan.seen, scan.ask.skip, scan.ask.most);
        match transport.flows(scan.place, limits::FLOW_PLACES, |flow| seen.see(flow, skip, most)) {
            Some(place) => self.0.push_front(Scan { place, ..scan }),
            None => {
                if let Some(totals) = transport.totals() {
                    (scan.seen.handshakes, scan.seen.time_wait) = (totals.handshakes, totals.time_wait);
                }
                // The requester may be gone.
                let _ = scan.ask.tell.send(scan.seen);
            }
        }
    }
}
