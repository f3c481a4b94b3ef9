//! How many requests the server answers on a connection before it closes it, learnt from what it does, so that the tail of
//! a pipeline isn't sent in vain again and again (nginx: `keepalive_requests`).

use crate::limits::{EQUAL_OBSERVATIONS, PROBE_EVERY};

/// Observations of the server's requests-per-connection limit.
#[derive(Debug, Default)]
pub struct Learnt {
    /// Responses on the connection that the peer closed last.
    last: u32,
    equal: u32,
    limit: Option<u32>,
    /// Connections on which the limit was seen.
    seen: u64,
    opened: u32,
}

impl Learnt {
    /// The peer closed a connection after `answers` responses, while more requests were in flight or could be sent.
    pub fn closed_after(&mut self, answers: u32) {
        if answers == 0 {
            return;
        }
        self.equal = if answers == self.last { self.equal.saturating_add(1) } else { 1 };
        self.last = answers;
        if self.limit == Some(answers) {
            self.seen += 1;
        } else if self.equal >= EQUAL_OBSERVATIONS {
            self.limit = Some(answers);
            self.seen = u64::from(self.equal);
        }
    }

    /// The peer answered more than the limit said.
    pub fn answered(&mut self, answers: u32) {
        if self.limit.is_some_and(|limit| answers > limit) {
            self.forget();
        }
    }

    /// The server was down. Its end closed all connections at once, and those in step after as many responses: that is no limit.
    pub fn forget(&mut self) {
        *self = Learnt { opened: self.opened, ..Learnt::default() };
    }

    /// Requests the next connection may carry.
    pub fn budget(&mut self) -> u32 {
        self.opened = self.opened.wrapping_add(1);
        match self.limit {
            Some(limit) if !self.opened.is_multiple_of(PROBE_EVERY) => limit,
            _ => u32::MAX,
        }
    }

    /// The limit, if one was learnt, and on how many connections it was seen.
    pub fn limit(&self) -> (Option<u32>, u64) {
        (self.limit, self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(closes: &[u32]) -> Learnt {
        let mut learnt = Learnt::default();
        closes.iter().for_each(|answers| learnt.closed_after(*answers));
        learnt
    }

    #[test]
    fn one_early_close_teaches_nothing_and_three_equal_ones_do() {
        assert_eq!(after(&[100]).limit(), (None, 0));
        assert_eq!(after(&[100, 100, 7, 100, 100]).limit(), (None, 0));
        assert_eq!(after(&[100, 100, 100]).limit(), (Some(100), 3));
        assert_eq!(after(&[100, 100, 100, 7, 100]).limit(), (Some(100), 4));
    }

    #[test]
    fn a_limit_is_kept_but_probed_now_and_then() {
        let mut learnt = after(&[100, 100, 100]);
        let budgets: Vec<u32> = (0..PROBE_EVERY).map(|_| learnt.budget()).collect();
        assert_eq!(budgets.iter().filter(|b| **b == u32::MAX).count(), 1);
        assert!(budgets.iter().all(|b| *b == 100 || *b == u32::MAX));
    }

    #[test]
    fn a_connection_that_answers_more_unlearns_it() {
        let mut learnt = after(&[3, 3, 3]);
        learnt.answered(3);
        assert_eq!(learnt.limit(), (Some(3), 3));
        learnt.answered(4);
        assert_eq!(learnt.limit(), (None, 0));
    }

    #[test]
    fn what_was_learnt_of_a_server_that_ended_is_forgotten() {
        let mut learnt = after(&[100, 100, 100]);
        learnt.forget();
        assert_eq!((learnt.limit(), learnt.budget()), ((None, 0), u32::MAX));
        learnt.closed_after(100);
        assert_eq!(learnt.limit(), (None, 0));
    }

    #[test]
    fn a_connection_that_answered_nothing_teaches_nothing() {
        assert_eq!(after(&[0, 0, 0]).limit(), (None, 0));
    }
}
