//! What became of the segments of a call that came late: `tcpi_rcv_ooopack` counts what came before
//! a lost one and what overtook another one alike. The call's packets tell, or its time: what was
//! sent again comes a round trip later.

use crate::call::{Call, ms};
use crate::record::{Record, median_of};

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Some were lost.
    Lost,
    /// Others overtook them; `true`: its packets show that.
    Overtaken(bool),
    /// One or the other.
    Unclear,
}

impl Fate {
    /// Nothing was lost: others overtook what came late.
    pub(crate) fn is_overtaken(self) -> bool {
        matches!(self, Fate::Overtaken(_))
    }
}

/// Shorter round trips than this, milliseconds, tell nothing: a busy machine takes as long.
const TELLING_MS: f64 = 5.0;
/// What was sent again comes later by this share of a round trip, at least.
const AGAIN: f64 = 0.8;

/// The calls that may be compared, as far as they lost nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    /// What they take, milliseconds.
    pub(crate) total: f64,
    /// Between their first and their last byte.
    receive: f64,
    rtt: f64,
}

impl Usual {
    pub(crate) fn of(record: &Record, calls: &[&Call]) -> Usual {
        let clean: Vec<&Call> = calls.iter().copied().filter(|c| !c.lossy()).collect();
        Usual {
            total: median_of(&clean, |c| c.total),
            receive: median_of(&clean, |c| c.receive),
            rtt: record.rtt_ms(),
        }
    }

    /// Segments of this call were lost, or may have been.
    pub(crate) fn may_have_lost(&self, call: &Call) -> bool {
        self.fate(call).is_some_and(|fate| !fate.is_overtaken())
    }

    /// What became of the late segments of this call; `None`: it has none.
    pub(crate) fn fate(&self, call: &Call) -> Option<Fate> {
        if !call.lossy() {
            return None;
        }
        let (facts, late) = (&call.facts, call.late.unwrap_or_default());
        if late.lost > 0 {
            return Some(Fate::Lost);
        }
        if late.overtaken > 0 {
            return Some(Fate::Overtaken(true));
        }
        if facts.total_retrans > 0 && facts.total_retrans <= facts.dsack_dups && facts.reord_seen > 0 {
            return Some(Fate::Overtaken(false));
        }
        if facts.total_retrans > 0 || facts.total_rto > 0 || facts.rcv_ooopack == 0 {
            return Some(Fate::Lost);
        }
        // All of a response that comes at once: the end waits for what was sent again.
        let at_once = self.receive < self.rtt / 2.0 && self.rtt >= TELLING_MS;
        let late = (ms(call.total) - self.total).max(ms(call.held_behind));
        let soon = late < AGAIN * self.rtt;
        Some(if at_once && soon { Fate::Overtaken(false) } else { Fate::Unclear })
    }
}
