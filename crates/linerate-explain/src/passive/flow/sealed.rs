//! Calls of a TLS connection whose content cannot be read: records of the client, then records of
//! the server. Where one ends is known when the next begins.

use crate::passive::limits::{SEALED_ANSWER, SEALED_REQUEST, TICKET_BYTES, TICKETS};

/// Pause after which the server's next small record is no second ticket, nanoseconds.
const TOGETHER_NS: i64 = 1_000_000;

/// An event of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// A request began.
    Request { begun: i64 },
    /// The request ended, and its response began.
    Answer { asked: i64, begun: i64 },
    /// The response ended.
    End { at: i64 },
}

/// The state of a connection's calls.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    /// The server's name.
    pub(super) name: Option<String>,
    /// Before its first response the server may send session tickets.
    pub(super) has_tickets: bool,
    /// The last record of the request.
    asked: Option<i64>,
    /// The last record of its response.
    answered: Option<i64>,
    /// Records that may be tickets: first byte, last byte.
    held: Vec<(i64, i64)>,
    /// The first response has begun.
    is_over: bool,
}

impl Sealed {
    /// A record of the client.
    pub(super) fn client(&mut self, len: usize, begun: i64, now: i64) -> Vec<Act> {
        if len < SEALED_REQUEST {
            return Vec::new();
        }
        let mut acts = self.finish();
        if self.asked.replace(now).is_none() {
            acts.push(Act::Request { begun });
        }
        acts
    }

    /// A record of the server.
    pub(super) fn server(&mut self, len: usize, begun: i64, now: i64) -> Vec<Act> {
        let Some(asked) = self.asked.filter(|_| len >= SEALED_ANSWER) else { return Vec::new() };
        let (largest, most) = (TICKET_BYTES, TICKETS);
        let first = self.answered.is_none();
        if first && self.has_tickets && !self.is_over && len <= largest && self.held.len() < most {
            self.held.push((begun, now));
            return Vec::new();
        }
        self.answered = Some(now);
        if !first {
            return Vec::new();
        }
        self.is_over = true;
        let begun = self.apart().unwrap_or(begun);
        self.held.clear();
        vec![Act::Answer { asked, begun }]
    }

    /// The second of two small records came later than a ticket would: the response began with it.
    fn apart(&self) -> Option<i64> {
        match self.held.as_slice() {
            [(_, first), (second, _)] if second - first >= TOGETHER_NS => Some(*second),
            _ => None,
        }
    }

    /// The response ends with what came so far, if there is one.
    pub(super) fn finish(&mut self) -> Vec<Act> {
        let Some(asked) = self.asked else { return Vec::new() };
        let mut acts = Vec::new();
        if let (None, Some((first, _)), Some((_, last))) =
            (self.answered, self.held.first(), self.held.last())
        {
            acts.push(Act::Answer { asked, begun: self.apart().unwrap_or(*first) });
            self.answered = Some(*last);
        }
        let Some(at) = self.answered.take() else { return acts };
        acts.push(Act::End { at });
        self.held.clear();
        self.asked = None;
        self.is_over = true;
        acts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn records_out_and_records_in_are_a_call() {
        let mut calls = Sealed::default();
        assert_eq!(calls.server(500, 0, 1), [], "nobody asked");
        assert_eq!(calls.client(100, 10, 11), [Act::Request { begun: 10 }]);
        assert_eq!(calls.client(2000, 12, 13), [], "the same request goes on");
        assert_eq!(calls.server(19, 14, 15), [], "an alert");
        assert_eq!(calls.server(900, 20, 21), [Act::Answer { asked: 13, begun: 20 }]);
        assert_eq!(calls.server(16_000, 22, 30), []);
        assert_eq!(calls.client(26, 31, 31), [], "no request is so short");
        assert_eq!(calls.client(100, 40, 41), [Act::End { at: 30 }, Act::Request { begun: 40 }]);
        assert_eq!(calls.finish(), [], "without an answer it is no call");
        assert_eq!(calls.server(100, 50, 51).len(), 1);
        assert_eq!(calls.finish(), [Act::End { at: 51 }]);
    }

    #[test]
    fn tickets_are_no_response() {
        let calls = || {
            let mut calls = Sealed { has_tickets: true, ..Sealed::default() };
            calls.client(100, 0, 0);
            assert_eq!(calls.server(250, MS, MS), []);
            calls
        };
        let mut two = calls();
        assert_eq!(two.server(250, MS, MS), []);
        assert_eq!(two.server(250, 50 * MS, 50 * MS), [Act::Answer { asked: 0, begun: 50 * MS }]);
        // One ticket, and a small response later.
        let mut one = calls();
        assert_eq!(one.server(250, 50 * MS, 51 * MS), []);
        assert_eq!(one.finish(), [Act::Answer { asked: 0, begun: 50 * MS }, Act::End { at: 51 * MS }]);
        // None: a small response.
        assert_eq!(calls().finish(), [Act::Answer { asked: 0, begun: MS }, Act::End { at: MS }]);
    }
}
