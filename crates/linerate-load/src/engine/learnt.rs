//! How many requests the server answers on a connection before it closes it, learnt from what it does, so that the tail of
//! a pipeline isn't sent in vain again and again (nginx: `keepalive_requests`).

use crate::limits::PROBE_EVERY;

/// What is known of the server's limit.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    limit: Option<u32>,
    opened: u32,
}

impl Learnt {
    /// The peer closed a connection after so many answers, while more requests were on their way or welcome.
    pub(crate) fn closed_after(&mut self, answers: u32) {
        if answers > 0 {
            self.limit = Some(answers);
        }
    }

    /// The peer answered more than the limit said.
    pub(crate) fn answered(&mut self, answers: u32) {
        if self.limit.is_some_and(|limit| answers > limit) {
            self.limit = None;
        }
    }

    /// Requests the next connection may carry.
    pub(crate) fn budget(&mut self) -> u32 {
        self.opened = self.opened.wrapping_add(1);
        match self.limit {
            Some(limit) if !self.opened.is_multiple_of(PROBE_EVERY) => limit,
            _ => u32::MAX,
        }
    }

    /// The limit, if one was learnt.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_but_probed_now_and_then() {
        let mut learnt = Learnt::default();
        assert_eq!(learnt.budget(), u32::MAX);
        learnt.closed_after(100);
        let budgets: Vec<u32> = (0..PROBE_EVERY).map(|_| learnt.budget()).collect();
        assert_eq!(budgets.iter().filter(|b| **b == u32::MAX).count(), 1);
        assert!(budgets.iter().all(|b| *b == 100 || *b == u32::MAX));
    }

    #[test]
    fn a_connection_that_answers_more_unlearns_it() {
        let mut learnt = Learnt::default();
        learnt.closed_after(3);
        learnt.answered(3);
        assert_eq!(learnt.limit(), Some(3));
        learnt.answered(4);
        assert_eq!(learnt.limit(), None);
    }

    #[test]
    fn a_connection_that_answered_nothing_teaches_nothing() {
        let mut learnt = Learnt::default();
        learnt.closed_after(0);
        assert_eq!(learnt.limit(), None);
    }
}
