//! The fate of a lost agent's share. No I/O: the coordinator says which agents are there.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::document::{OnLoss, RunShare, SCHEMA, Takeover};
use crate::merge::Merger;
use crate::presence::Presence;

/// An agent that has reported nothing for so long is looked for. Reason: it reports each second.
pub const LOOK: Duration = Duration::from_secs(2);

/// An agent that has reported nothing for so long, and renews its key no more, is lost.
pub const LAG: Duration = Duration::from_secs(4);

/// From the decision to the takeover, at least. Reason: the order reaches the agent in less; if not,
/// the agent joins a second later.
const NOTICE: Duration = Duration::from_millis(500);

/// Most shares that are taken over in a run. Reason: agents that die one after the other.
const MOST_TAKEOVERS: u32 = 256;

/// Losses of one run.
#[derive(Debug)]
pub struct Losses {
    run: String,
    handled: BTreeSet<RunShare>,
    takeovers: u32,
}

/// What the coordinator does about a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Gives a share to another agent; the takeover's number.
    Give(u32, Takeover),
    /// No agent can take it over.
    Nobody(RunShare),
    /// Ends the run.
    Abort(RunShare),
}

impl Losses {
    /// None yet, or those that another coordinator handled.
    pub fn new(run: String, before: &[Takeover]) -> Losses {
        Losses { run, handled: BTreeSet::new(), takeovers: u32::try_from(before.len()).unwrap_or(u32::MAX) }
    }

    /// What to do about agents that lag and are lost. `elapsed`: since the run's start.
    pub(crate) fn remedies(
        &mut self,
        on_loss: OnLoss,
        merger: &Merger,
        presence: &Presence,
        elapsed: Duration,
    ) -> Vec<Remedy> {
        let lagging = merger.lagging(elapsed, LAG);
        let is_lost = |share: &&RunShare| presence.is_lost(share) && !self.handled.contains(*share);
        let lost: Vec<RunShare> = lagging.iter().filter(is_lost).cloned().collect();
        let is_alive = |share: &&RunShare| !presence.is_lost(share) && !lagging.contains(*share);
        let alive: Vec<&RunShare> = merger.unfinished().filter(is_alive).collect();
        let mut remedies = Vec::new();
        for share in lost {
            self.handled.insert(share.clone());
            remedies.extend(match on_loss {
                OnLoss::Continue => None,
                OnLoss::Abort => Some(Remedy::Abort(share)),
                OnLoss::Rebalance => Some(self.give(merger, &alive, share, elapsed)),
            });
        }
        remedies
    }

    fn give(&mut self, merger: &Merger, alive: &[&RunShare], lost: RunShare, elapsed: Duration) -> Remedy {
        let plan = merger.plan();
        let at = Duration::from_secs((elapsed + NOTICE).as_secs() + 1);
        let over = plan.stop.duration.is_some_and(|duration| at >= plan.warm_up + duration);
        // The agent with the fewest threads takes it; shares already given count.
        let load = |agent: &RunShare| {
            let same = merger.shares().iter().filter(|s| s.incarnation == agent.incarnation);
            same.map(|s| s.threads).sum::<u32>()
        };
        let taker = alive.iter().min_by_key(|share| (load(share), share.agent.clone()));
        let (Some(taker), false, true) = (taker, over, self.takeovers < MOST_TAKEOVERS) else {
            return Remedy::Nobody(lost);
        };
        self.takeovers += 1;
        let (seconds, sent) = merger.reported(&lost);
        let accounted = match seconds {
            0 => Duration::ZERO,
            seconds => plan.warm_up + Duration::from_secs(seconds),
        };
        let share = RunShare {
            agent: taker.agent.clone(),
            incarnation: taker.incarnation.clone(),
            first_thread: lost.first_thread,
            threads: lost.threads,
            part: self.takeovers,
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let takeover = Takeover {
            schema: SCHEMA.to_owned(),
            run: self.run.clone(),
            share,
            lost: lost.agent,
            accounted_ns: nanos(accounted),
            sent,
            at_ns: nanos(at),
        };
        Remedy::Give(self.takeovers, takeover)
    }
}
