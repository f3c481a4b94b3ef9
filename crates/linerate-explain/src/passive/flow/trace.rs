//! The segments of what a connection is doing now: its beginning and its end, the middle as a
//! count.

use std::collections::VecDeque;

use crate::passive::observation::{ObservedCall, Traced};

/// A segment, kept before it is known which end is the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptSegment {
    pub(super) dir: usize,
    pub(super) traced: Traced,
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    head: Vec<KeptSegment>,
    tail: VecDeque<KeptSegment>,
    left_out: u64,
    /// A call has used it: the next one begins anew.
    pub(super) spent: bool,
}

impl Trace {
    pub(super) fn push(&mut self, kept: KeptSegment, limit: usize) {
        if self.head.len() < limit {
            self.head.push(kept);
            return;
        }
        if self.tail.len() >= limit {
            self.tail.pop_front();
            self.left_out += 1;
        }
        self.tail.push_back(kept);
    }

    /// A call begins with the last segment.
    pub(super) fn restart(&mut self) {
        let last = self.tail.pop_back().or_else(|| self.head.pop());
        self.head.clear();
        self.tail.clear();
        self.head.extend(last);
        self.left_out = 0;
        self.spent = false;
    }

    /// When the last of those kept that `is` so was seen.
    pub(super) fn last_time(&self, is: impl Fn(&Traced) -> bool) -> Option<i64> {
        self.tail.iter().rev().chain(self.head.iter().rev()).find(|k| is(&k.traced)).map(|k| k.traced.time_ns)
    }

    /// Into a call, those from its start on.
    pub(super) fn give(&self, call: &mut ObservedCall, client: usize) {
        let from = |kept: &&KeptSegment| kept.traced.time_ns >= call.start_ns;
        let seen = |kept: &KeptSegment| Traced { from_client: kept.dir == client, ..kept.traced };
        let mut segments: Vec<Traced> = self.head.iter().filter(from).map(seen).collect();
        let left_out_at = segments.len();
        segments.extend(self.tail.iter().filter(from).map(seen));
        call.left_out_at = left_out_at;
        // The segments left out precede the tail: none of them belongs to a call that began within
        // it.
        let whole = self.head.last().is_some_and(|kept| kept.traced.time_ns >= call.start_ns);
        call.left_out = if whole { self.left_out } else { 0 };
        call.segments = segments;
    }
}
