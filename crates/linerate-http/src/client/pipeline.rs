//! What is in flight on a connection: runs of consecutive requests that were sent together.

use std::collections::VecDeque;

use super::framing::Expect;
use super::limits::PIPELINE_DEPTH;

/// Consecutive requests that share a time stamp and a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<S> {
    /// When they were due, sent, or whatever the caller measures from.
    pub stamp: S,
    /// Sequence number of the first; the others follow on.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Which of the caller's request templates.
    pub kind: u16,
    /// How their answers are framed.
    pub expect: Expect,
    /// They may be sent again when their outcome is not known (RFC 9110, section 9.2.2).
    pub idempotent: bool,
}

impl<S> Run<S> {
    /// The sequence number after the last.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

impl<S: Copy + PartialEq> Run<S> {
    /// Splits off the first `n`.
    fn take(&mut self, n: u32) -> Run<S> {
        let front = Run { count: n, ..*self };
        self.first += u64::from(n);
        self.count -= n;
        front
    }

    fn continues(&self, before: &Run<S>) -> bool {
        before.end() == self.first
            && before.stamp == self.stamp
            && before.kind == self.kind
            && before.expect == self.expect
            && before.idempotent == self.idempotent
            && before.count.checked_add(self.count).is_some()
    }
}

/// Whose answer one with a tag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMatch<S> {
    /// That of the oldest request in flight, as RFC 9112, section 9.3.2 demands.
    InOrder(Run<S>),
    /// That of a later one: the server answers out of order, or skipped an answer.
    OutOfOrder(Run<S>),
    /// Of none in flight.
    Unknown,
}

/// Requests sent and not yet answered, in the order sent.
#[derive(Clone, Debug)]
pub struct Pipeline<S> {
    /// The oldest run. Not with the others: with one request in flight at a time, those are never touched.
    oldest: Option<Run<S>>,
    /// The runs after it; empty when there is none.
    later: VecDeque<Run<S>>,
    len: usize,
}

impl<S> Default for Pipeline<S> {
    fn default() -> Self {
        Pipeline { oldest: None, later: VecDeque::new(), len: 0 }
    }
}

impl<S: Copy + PartialEq> Pipeline<S> {
    /// Nothing in flight; allocates nothing yet.
    pub fn new() -> Pipeline<S> {
        Pipeline::default()
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest run in flight; its first request's answer comes next.
    pub fn front(&self) -> Option<&Run<S>> {
        self.oldest.as_ref()
    }

    /// The runs in flight, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run<S>> {
        self.oldest.iter().chain(&self.later)
    }

    /// Requests were sent. Joins the last run when stamp, kind and manner agree and the numbers are consecutive.
    ///
    /// # Panics
    /// With more than a million requests in flight: the caller has lost count of its depth.
    pub fn push(&mut self, run: Run<S>) {
        if run.count == 0 {
            return;
        }
        self.len += run.count as usize;
        assert!(self.len <= PIPELINE_DEPTH, "{} requests in flight on one connection", self.len);
        match self.later.back_mut().or(self.oldest.as_mut()) {
            None => self.oldest = Some(run),
            Some(last) if run.continues(last) => last.count += run.count,
            Some(_) => self.later.push_back(run),
        }
    }

    /// The `n` oldest requests were answered, in order: `each` gets them as runs. How many there were: less than `n` when
    /// more answers came than requests were in flight.
    pub fn answered(&mut self, n: u32, each: &mut impl FnMut(Run<S>)) -> u32 {
        let mut left = n;
        while left > 0 {
            let Some(oldest) = self.oldest.as_mut() else { break };
            let run = if oldest.count > left { oldest.take(left) } else { *oldest };
            if oldest.first == run.first {
                self.oldest = if self.later.is_empty() { None } else { self.later.pop_front() };
            }
            left -= run.count;
            self.len -= run.count as usize;
            each(run);
        }
        n - left
    }

    /// An answer that names its request: removes that request, wherever it is.
    pub fn answered_tag(&mut self, seq: u64) -> TagMatch<S> {
        // In one queue for the moment.
        if let Some(oldest) = self.oldest.take() {
            self.later.push_front(oldest);
        }
        let found = self.take_tagged(seq);
        self.oldest = self.later.pop_front();
        found
    }

    fn take_tagged(&mut self, seq: u64) -> TagMatch<S> {
        let Some(at) = self.later.iter().position(|r| (r.first..r.end()).contains(&seq)) else {
            return TagMatch::Unknown;
        };
        let in_order = at == 0 && self.later[0].first == seq;
        let run = &mut self.later[at];
        let before = (seq - run.first) as u32;
        let head = run.take(before);
        let one = run.take(1);
        // What is left of the run stands after the answered one, what was split off before it.
        let rest = *run;
        match (head.count, rest.count) {
            (0, 0) => drop(self.later.remove(at)),
            (0, _) => {}
            (_, 0) => self.later[at] = head,
            _ => {
                self.later[at] = head;
                self.later.insert(at + 1, rest);
            }
        }
        self.len -= 1;
        if in_order { TagMatch::InOrder(one) } else { TagMatch::OutOfOrder(one) }
    }

    /// Changes the stamps, oldest run first: when what was queued has really left.
    pub fn restamp(&mut self, mut each: impl FnMut(&mut S)) {
        self.oldest.iter_mut().chain(&mut self.later).for_each(|run| each(&mut run.stamp));
    }

    /// Takes everything out, oldest first: the connection is gone.
    pub fn drain(&mut self) -> impl Iterator<Item = Run<S>> + '_ {
        self.len = 0;
        self.oldest.take().into_iter().chain(self.later.drain(..))
    }
}
