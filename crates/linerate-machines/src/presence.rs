//! Which agents are at work, by what the bus said at each look. No I/O and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bus::PresentAgent;
use crate::document::RunShare;

/// Two looks further apart than this say nothing together. Reason: they are a second apart.
const APART: Duration = Duration::from_secs(4);

/// An agent that has not renewed its key for so long, while the bus answers, is gone. Reason: it
/// renews it each second.
const RENEWS_WITHIN: Duration = Duration::from_secs(2);

/// How long agents may take to find their way to brokers that were away. Reason: clients try again
/// up to 4 s apart, and keys that have ended come back with the next renewal.
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

/// How long after no agent is at work their messages are waited for.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// What each look said.
#[derive(Debug)]
pub(crate) struct Presence {
    run: String,
    /// By incarnation.
    agents: BTreeMap<String, Renewal>,
    last: Option<Duration>,
    /// Since when the bus has answered each look.
    answers_since: Option<Duration>,
    was_away: bool,
    /// Since when no agent of the run that has not ended is at work.
    gone_since: Option<Duration>,
}

/// The last renewal of an agent's key.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    revision: u64,
    at: Duration,
    is_there: bool,
    works_for_us: bool,
}

impl Presence {
    /// Nothing is known yet.
    pub(crate) fn new(run: String) -> Presence {
        Presence {
            run,
            agents: BTreeMap::new(),
            last: None,
            answers_since: None,
            was_away: false,
            gone_since: None,
        }
    }

    /// A look at the agents that have not ended; `None`: the bus did not answer, which says nothing
    /// about agents.
    pub(crate) fn note<'a>(
        &mut self,
        now: Duration,
        there: Option<&[PresentAgent]>,
        unfinished: impl Iterator<Item = &'a RunShare>,
    ) {
        let is_apart = self.last.is_some_and(|last| now > last + APART);
        self.last = Some(now);
        let Some(there) = there else {
            self.forget();
            self.was_away = true;
            return;
        };
        if is_apart {
            self.forget();
        }
        self.answers_since.get_or_insert(now);
        self.agents.values_mut().for_each(|renewal| renewal.is_there = false);
        for PresentAgent { card, revision } in there {
            let works_for_us = card.run.as_ref() == Some(&self.run);
            let new = Renewal { revision: *revision, at: now, is_there: true, works_for_us };
            let known = self.agents.entry(card.incarnation.clone()).or_insert(new);
            known.is_there = true;
            if known.revision != *revision {
                *known = new;
            }
        }
        let mut unfinished = unfinished.peekable();
        let some_works = unfinished.peek().is_some() && unfinished.any(|share| self.has_key(share));
        self.gone_since = if some_works { None } else { Some(self.gone_since.unwrap_or(now)) };
    }

    fn forget(&mut self) {
        self.agents.clear();
        (self.answers_since, self.gone_since) = (None, None);
    }

    fn has_key(&self, share: &RunShare) -> bool {
        self.agents.get(&share.incarnation).is_some_and(|renewal| renewal.is_there && renewal.works_for_us)
    }

    /// Whether the agent of a share does not work on it any more. Only looks that the bus answered
    /// decide.
    pub(crate) fn is_lost(&self, share: &RunShare) -> bool {
        let Some((now, since)) = self.last.zip(self.answers_since) else { return false };
        let patience = if self.was_away { RETURNS_WITHIN } else { RENEWS_WITHIN };
        if now < since + patience {
            return false;
        }
        match self.agents.get(&share.incarnation) {
            Some(renewal) if renewal.is_there => !renewal.works_for_us || now >= renewal.at + RENEWS_WITHIN,
            _ => true,
        }
    }

    /// Whether an agent is there and works on this run no more.
    pub(crate) fn is_idle(&self, share: &RunShare) -> bool {
        self.agents.get(&share.incarnation).is_some_and(|renewal| renewal.is_there && !renewal.works_for_us)
    }

    /// Whether nothing more will come.
    pub(crate) fn all_gone(&self) -> bool {
        self.last.zip(self.gone_since).is_some_and(|(now, since)| now >= since + GONE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::AgentCard;

    fn share() -> RunShare {
        RunShare { agent: "a".to_owned(), incarnation: "1".to_owned(), first_thread: 0, threads: 1, part: 0 }
    }

    fn seen(revision: u64, run: Option<&str>) -> PresentAgent {
        let run = run.map(str::to_owned);
        let incarnation = "1".to_owned();
        PresentAgent {
            card: AgentCard { name: "a".to_owned(), incarnation, run, ..AgentCard::default() },
            revision,
        }
    }

    /// Looks a second apart; which of them find the agent lost, and which find all gone.
    fn looks(looks: impl IntoIterator<Item = Option<Vec<PresentAgent>>>) -> (Vec<u64>, Vec<u64>) {
        let mut presence = Presence::new("r".to_owned());
        let (mut lost, mut gone) = (Vec::new(), Vec::new());
        for (second, look) in (0..).zip(looks) {
            presence.note(Duration::from_secs(second), look.as_deref(), [share()].iter());
            if presence.is_lost(&share()) {
                lost.push(second);
            }
            if presence.all_gone() {
                gone.push(second);
            }
        }
        (lost, gone)
    }

    #[test]
    fn an_agent_is_lost_once_it_renews_its_key_no_more() {
        let renews = (0..20).map(|n| Some(vec![seen(n, Some("r"))]));
        assert_eq!(looks(renews), (vec![], vec![]));
        let stops = (0..8).map(|n| Some(vec![seen(u64::min(n, 3), Some("r"))]));
        assert_eq!(looks(stops), (vec![5, 6, 7], vec![]));
        let none = (0..12).map(|_| Some(Vec::new()));
        assert_eq!(looks(none), ((2..12).collect(), vec![10, 11]));
    }

    #[test]
    fn an_idle_agent_is_at_work_no_more() {
        let idle = (0..12).map(|n| Some(vec![seen(n, (n < 1).then_some("r"))]));
        assert_eq!(looks(idle), ((2..12).collect(), vec![11]));
        let other = (0..3).map(|n| Some(vec![seen(n, Some("other"))]));
        assert_eq!(looks(other).0, [2]);
    }

    /// Keys end while the brokers are away; agents renew them when they have found their way back.
    #[test]
    fn a_silent_bus_says_nothing_about_agents() {
        let away = (0..60).map(|n| match n {
            0..5 => Some(vec![seen(n, Some("r"))]),
            5..30 => None,
            30..36 => Some(Vec::new()),
            _ => Some(vec![seen(n, Some("r"))]),
        });
        assert_eq!(looks(away), (vec![], vec![]));
        let never_back = (0..45).map(|n| match n {
            0..5 => Some(vec![seen(n, Some("r"))]),
            5..30 => None,
            _ => Some(Vec::new()),
        });
        assert_eq!(looks(never_back), ((40..45).collect(), (40..45).collect()));
    }
}
