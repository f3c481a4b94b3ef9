//! The requests in flight on a connection: runs of consecutive requests that were sent together.

use std::collections::VecDeque;

use super::framing::Expect;
use super::limits::PIPELINE_DEPTH;

/// Consecutive requests that share a time stamp and a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<S> {
    /// When they were due or sent, or whatever else the caller measures from.
    pub stamp: S,
    /// Sequence number of the first; the others are consecutive.
    pub first: u64,
    /// Number of requests.
    pub count: u32,
    /// The index of the caller's request template.
    pub kind: u16,
    /// How their responses are framed.
    pub expect: Expect,
    /// They may be retried if their outcome is unknown (RFC 9110, section 9.2.2).
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

/// The request that a response with a tag belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMatch<S> {
    /// The oldest request in flight, as RFC 9112, section 9.3.2 demands.
    InOrder(Run<S>),
    /// A later one: the server responds out of order, or skipped a response.
    OutOfOrder(Run<S>),
    /// None of those in flight.
    Unknown,
}

/// Requests sent and not yet answered by a response, in the order sent.
#[derive(Clone, Debug)]
pub struct Pipeline<S> {
    /// The oldest run. Stored apart: with one request in flight at a time, `later` is never
    /// touched.
    oldest: Option<Run<S>>,
    /// The runs after it.
    later: VecDeque<Run<S>>,
    len: usize,
}

impl<S> Default for Pipeline<S> {
    fn default() -> Self {
        Pipeline { oldest: None, later: VecDeque::new(), len: 0 }
    }
}

impl<S: Copy + PartialEq> Pipeline<S> {
    /// An empty pipeline, without an allocation.
    pub fn new() -> Pipeline<S> {
        Pipeline::default()
    }

    /// Number of requests in flight.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest run in flight, to whose first request the next response belongs.
    pub fn front(&self) -> Option<&Run<S>> {
        self.oldest.as_ref()
    }

    /// The runs in flight, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run<S>> {
        self.oldest.iter().chain(&self.later)
    }

    /// Records sent requests. Joins them to the last run if stamp, kind and other properties agree
    /// and the numbers are consecutive.
    ///
    /// # Panics
    /// More than a million requests are in flight: the caller does not limit its depth.
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

    /// Removes the `n` oldest requests, which got their responses, and hands them to `each` as
    /// runs, in order. Returns their number: less than `n` if there were more responses than
    /// requests in flight.
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

    /// Removes the request that a response names, wherever it is.
    pub fn answered_tag(&mut self, seq: u64) -> TagMatch<S> {
        // Puts all runs in one queue for now.
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
        // The rest of the run belongs after the request, and the part split off before it.
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

    /// Changes the stamps, oldest run first, when queued requests have really left.
    pub fn restamp(&mut self, mut each: impl FnMut(&mut S)) {
        self.oldest.iter_mut().chain(&mut self.later).for_each(|run| each(&mut run.stamp));
    }

    /// Removes all requests, oldest first: the connection is gone.
    pub fn drain(&mut self) -> impl Iterator<Item = Run<S>> + '_ {
        self.len = 0;
        self.oldest.take().into_iter().chain(self.later.drain(..))
    }
}
