//! Which process has which receive queues of a lender. It does no I/O and reads no clock.
//!
//! The processes that ask within a moment share the queues. One that asks later gets the queues of one
//! that has ended, and waits until then. If it replaces a process that is about to end, as workers do
//! when a server reloads, connections that begin meanwhile must not reach the old one's queue: its
//! program closes its listener soon. So they are the kernel's for a second, or, once the listener is
//! closed, until the new one has the queue. The old one is asked for it if it does not end at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;

/// For how long after the first process asks others may ask for a share. Reason: a server forks its
/// workers within milliseconds.
const SETTLING: Duration = Duration::from_millis(100);
/// How long new connections are the kernel's because a process has asked that may be a successor. Reason:
/// nginx tells old workers to leave 0.1 s after it has started new ones.
const SUCCESSION: Duration = Duration::from_secs(1);
/// How long a process must have had its queues before one that asks may be its successor. Reason: those that
/// were started with it and found no queue have asked by then.
const SETTLED: Duration = Duration::from_millis(300);
/// How long a process that has closed its listeners is left its queues. Reason: most requests are answered by
/// then, and a process without connections ends.
const GRACE: Duration = Duration::from_millis(100);

/// When a queue is tried again that its last process has just left. Reason: the kernel needs some
/// milliseconds.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A process that has asked.
pub(super) type BorrowerId = u64;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LendingStep {
    /// Lend these queues.
    Lend(BorrowerId, Vec<u32>),
    /// Tell it that it must wait.
    Wait(BorrowerId),
    /// New connections of these queues are the kernel's.
    ToKernel(Vec<u32>),
    /// They are the borrower's again.
    ToBorrower(Vec<u32>),
    /// A process is to give its queues up, and keeps its connections.
    AskBack(BorrowerId),
}

/// How far the owner of a share has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShareLeave {
    /// It accepts connections.
    Stays,
    /// It has closed its listeners, and is to be asked for the queues then.
    AskAt(Time),
    /// The same, and nobody waited for the queues when it was time to ask.
    Unasked,
    /// It was asked for them.
    Asked,
}

#[derive(Debug)]
struct QueueShare {
    queues: Vec<u32>,
    owner: Option<BorrowerId>,
    since: Time,
    /// New connections are the kernel's until then.
    to_kernel_until: Option<Time>,
    leave: ShareLeave,
}

impl QueueShare {
    /// The owner has closed its listeners.
    fn leaves(&self) -> bool {
        self.leave != ShareLeave::Stays
    }

    fn ask_at(&self) -> Option<Time> {
        if let ShareLeave::AskAt(at) = self.leave { Some(at) } else { None }
    }
}

/// The shares of an interface.
#[derive(Debug)]
pub(super) struct QueueShares {
    queues: u32,
    shares: Vec<QueueShare>,
    waiting: VecDeque<BorrowerId>,
    settled_at: Option<Time>,
    /// When a queue is tried again that could not be lent yet.
    again_at: Option<Time>,
}

impl QueueShares {
    pub(super) fn new(queues: u32) -> QueueShares {
        QueueShares { queues, shares: Vec::new(), waiting: VecDeque::new(), settled_at: None, again_at: None }
    }

    /// Shares, and those that a process has.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.shares.len(), self.shares.iter().filter(|share| share.owner.is_some()).count())
    }

    /// Whether new connections of this queue are its borrower's alone.
    pub(super) fn is_whole(&self, queue: u32) -> bool {
        let share = self.shares.iter().find(|share| share.queues.contains(&queue));
        share.is_some_and(|share| !share.leaves() && share.to_kernel_until.is_none())
    }

    /// The queues that a process has.
    pub(super) fn queues_of(&self, who: BorrowerId) -> Vec<u32> {
        let shares = self.shares.iter().filter(|share| share.owner == Some(who));
        shares.flat_map(|share| share.queues.iter().copied()).collect()
    }

    /// A process asks for queues.
    pub(super) fn asked(&mut self, who: BorrowerId, now: Time) -> Vec<LendingStep> {
        self.waiting.push_back(who);
        if self.shares.is_empty() {
            self.settled_at.get_or_insert(now + SETTLING);
            return Vec::new();
        }
        let mut steps = self.lend_free(now);
        if self.waiting.contains(&who) {
            steps.push(LendingStep::Wait(who));
            let settled = |share: &&mut QueueShare| !share.leaves() && share.since + SETTLED <= now;
            // With several, each that asks stands for another one that leaves.
            let next = self.shares.iter_mut().filter(settled).min_by_key(|share| share.to_kernel_until);
            if let Some(share) = next {
                share.to_kernel_until = Some(now + SUCCESSION);
                steps.push(LendingStep::ToKernel(share.queues.clone()));
            }
            // It may ask after the old ones have begun to leave.
            for share in self.shares.iter_mut().filter(|share| share.leave == ShareLeave::Unasked) {
                share.leave = ShareLeave::AskAt(now);
            }
        }
        steps
    }

    /// A process has got a listener from another one, and its workers will ask: servers that pass listeners on
    /// tell the old workers to leave before the new ones wait for connections.
    pub(super) fn successor_starts(&mut self, now: Time) -> Vec<LendingStep> {
        let stay = self.shares.iter_mut().filter(|share| !share.leaves());
        let to_kernel = |share: &mut QueueShare| {
            share.to_kernel_until = Some(now + SUCCESSION);
            LendingStep::ToKernel(share.queues.clone())
        };
        stay.map(to_kernel).collect()
    }

    /// A borrower has closed its listeners.
    pub(super) fn leaves(&mut self, who: BorrowerId, now: Time) -> Vec<LendingStep> {
        let Some(share) = self.shares.iter_mut().find(|share| share.owner == Some(who)) else {
            return Vec::new();
        };
        share.leave = ShareLeave::AskAt(now + GRACE);
        vec![LendingStep::ToKernel(share.queues.clone())]
    }

    /// A process has ended, or gives its queues back.
    pub(super) fn ended(&mut self, who: BorrowerId, now: Time) -> Vec<LendingStep> {
        self.waiting.retain(|waiting| *waiting != who);
        for share in self.shares.iter_mut().filter(|share| share.owner == Some(who)) {
            (share.owner, share.to_kernel_until, share.leave) = (None, None, ShareLeave::Stays);
        }
        self.lend_free(now)
    }

    /// A process could not be lent its queues yet.
    pub(super) fn again(&mut self, who: BorrowerId, now: Time) {
        for share in self.shares.iter_mut().filter(|share| share.owner == Some(who)) {
            share.owner = None;
        }
        self.waiting.push_front(who);
        self.again_at = Some(now + TRY_AGAIN);
    }

    /// When [`QueueShares::tick`] has something to do.
    pub(super) fn next(&self) -> Option<Time> {
        let ends =
            self.shares.iter().filter(|share| !share.leaves()).filter_map(|share| share.to_kernel_until);
        let asks = self.shares.iter().filter_map(QueueShare::ask_at);
        ends.chain(asks).chain(self.settled_at).chain(self.again_at).min()
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Time) -> Vec<LendingStep> {
        let mut steps = Vec::new();
        if self.settled_at.is_some_and(|at| at <= now) {
            self.settled_at = None;
            self.part(now);
            steps = self.lend_free(now);
            steps.extend(self.waiting.iter().map(|who| LendingStep::Wait(*who)));
        }
        for share in self.shares.iter_mut().filter(|share| !share.leaves()) {
            if share.to_kernel_until.is_some_and(|until| until <= now) {
                share.to_kernel_until = None;
                steps.push(LendingStep::ToBorrower(share.queues.clone()));
            }
        }
        if self.again_at.is_some_and(|at| at <= now) {
            self.again_at = None;
            steps.extend(self.lend_free(now));
        }
        steps.extend(self.ask_back(now));
        steps
    }

    /// Asks those that leave for their queues, as long as others wait.
    fn ask_back(&mut self, now: Time) -> Vec<LendingStep> {
        let asked = self.shares.iter().filter(|share| share.leave == ShareLeave::Asked).count();
        let mut wanted = self.waiting.len().saturating_sub(asked);
        let mut steps = Vec::new();
        for share in self.shares.iter_mut().filter(|share| share.ask_at().is_some_and(|at| at <= now)) {
            share.leave = ShareLeave::Unasked;
            if let (Some(owner), 1..) = (share.owner, wanted) {
                (share.leave, wanted) = (ShareLeave::Asked, wanted - 1);
                steps.push(LendingStep::AskBack(owner));
            }
        }
        steps
    }

    /// Parts the queues among those who have asked so far.
    fn part(&mut self, now: Time) {
        let count = (self.waiting.len() as u32).min(self.queues);
        self.shares = (0..count)
            .map(|n| QueueShare {
                queues: (n..self.queues).step_by(count as usize).collect(),
                owner: None,
                since: now,
                to_kernel_until: None,
                leave: ShareLeave::Stays,
            })
            .collect();
    }

    fn lend_free(&mut self, now: Time) -> Vec<LendingStep> {
        let mut steps = Vec::new();
        for share in self.shares.iter_mut().filter(|share| share.owner.is_none()) {
            let Some(who) = self.waiting.pop_front() else { break };
            (share.owner, share.since) = (Some(who), now);
            steps.push(LendingStep::Lend(who, share.queues.clone()));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::LendingStep::{AskBack, Lend, ToBorrower, ToKernel, Wait};
    use super::*;

    const fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn settled(queues: u32, processes: u64) -> (QueueShares, Vec<LendingStep>) {
        let mut shares = QueueShares::new(queues);
        for who in 1..=processes {
            assert_eq!(shares.asked(who, at(who)), []);
        }
        assert_eq!(shares.next(), Some(at(101)));
        assert_eq!(shares.tick(at(100)), []);
        let steps = shares.tick(at(101));
        (shares, steps)
    }

    #[test]
    fn processes_that_ask_at_once_share_the_queues_and_the_rest_wait() {
        assert_eq!(settled(4, 1).1, [Lend(1, vec![0, 1, 2, 3])]);
        assert_eq!(settled(3, 2).1, [Lend(1, vec![0, 2]), Lend(2, vec![1])]);
        let (shares, steps) = settled(1, 2);
        assert_eq!(steps, [Lend(1, vec![0]), Wait(2)]);
        assert_eq!((shares.count(), shares.next()), ((1, 1), None));
        assert_eq!((shares.queues_of(1), shares.queues_of(2)), (vec![0], vec![]));
        assert!(shares.is_whole(0) && !shares.is_whole(1));
    }

    #[test]
    fn the_queue_of_a_process_that_dies_goes_to_the_next_that_asks() {
        let (mut shares, _) = settled(1, 1);
        assert_eq!(shares.ended(1, at(5000)), []);
        assert_eq!(shares.asked(2, at(5001)), [Lend(2, vec![0])]);
        let (mut shares, _) = settled(1, 2);
        assert_eq!(shares.ended(1, at(5000)), [Lend(2, vec![0])]);
        assert_eq!(shares.ended(2, at(6000)), []);
        assert_eq!(shares.ended(2, at(6000)), [], "twice");
    }

    #[test]
    fn a_successor_gets_the_queue_once_its_predecessor_has_ended() {
        let (mut shares, _) = settled(1, 1);
        assert_eq!(shares.asked(2, at(5000)), [Wait(2), ToKernel(vec![0])]);
        assert!(!shares.is_whole(0));
        assert_eq!(shares.leaves(1, at(5010)), [ToKernel(vec![0])]);
        assert_eq!(shares.next(), Some(at(5110)));
        assert_eq!(shares.ended(1, at(5050)), [Lend(2, vec![0])]);
        assert!(shares.is_whole(0));
        assert_eq!((shares.next(), shares.tick(at(60_000))), (None, vec![]));
    }

    #[test]
    fn a_predecessor_with_connections_is_asked_for_the_queue_once() {
        let (mut shares, _) = settled(1, 1);
        shares.asked(2, at(5000));
        shares.leaves(1, at(5010));
        assert_eq!(shares.tick(at(5109)), []);
        assert_eq!(shares.tick(at(5110)), [AskBack(1)]);
        assert_eq!((shares.next(), shares.tick(at(60_000))), (None, vec![]), "it has its time");
        assert_eq!(shares.asked(3, at(60_000)), [Wait(3)]);
        assert_eq!(shares.tick(at(60_000)), []);
        assert_eq!(shares.ended(1, at(60_001)), [Lend(2, vec![0])], "it has given the queue up");
        assert_eq!(shares.ended(1, at(60_002)), [], "its last connection has ended");
        // The same again, and it is killed before it has left.
        assert_eq!(shares.leaves(2, at(70_000)), [ToKernel(vec![0])]);
        assert_eq!(shares.tick(at(70_100)), [AskBack(2)]);
        assert_eq!(shares.ended(2, at(70_101)), [Lend(3, vec![0])]);
        assert_eq!(shares.queues_of(3), [0]);
    }

    #[test]
    fn a_queue_that_is_not_free_yet_is_tried_again() {
        let (mut shares, _) = settled(1, 2);
        assert_eq!(shares.ended(1, at(5000)), [Lend(2, vec![0])]);
        shares.again(2, at(5001));
        assert_eq!((shares.count(), shares.next()), ((1, 0), Some(at(5021))));
        assert_eq!(shares.tick(at(5021)), [Lend(2, vec![0])]);
        shares.again(2, at(5022));
        assert_eq!(shares.ended(2, at(5023)), [], "it does not wait any more");
        assert_eq!(shares.tick(at(5042)), []);
    }

    #[test]
    fn those_that_leave_are_asked_only_while_others_wait() {
        let (mut shares, _) = settled(2, 2);
        assert_eq!(shares.asked(3, at(5000)), [Wait(3), ToKernel(vec![0])]);
        shares.leaves(1, at(5010));
        shares.leaves(2, at(5010));
        assert_eq!(shares.tick(at(5110)), [AskBack(1)], "one waits");
        assert_eq!(shares.next(), None);
        assert_eq!(shares.asked(4, at(5200)), [Wait(4)]);
        assert_eq!(shares.next(), Some(at(5200)));
        assert_eq!(shares.tick(at(5200)), [AskBack(2)]);
        assert_eq!(shares.ended(2, at(5201)), [Lend(3, vec![1])]);
        assert_eq!(shares.ended(1, at(5202)), [Lend(4, vec![0])]);
    }

    #[test]
    fn a_process_that_succeeds_nobody_takes_new_connections_away_for_a_second() {
        let (mut shares, _) = settled(1, 2);
        assert_eq!(shares.asked(3, at(400)), [Wait(3)], "too early to be a successor");
        assert_eq!(shares.asked(4, at(5000)), [Wait(4), ToKernel(vec![0])]);
        assert_eq!(shares.asked(5, at(5001)), [Wait(5), ToKernel(vec![0])], "there is no second share");
        assert_eq!(shares.next(), Some(at(6001)));
        assert_eq!(shares.tick(at(6001)), [ToBorrower(vec![0])]);
        assert_eq!(shares.leaves(7, at(6002)), [], "it has no share");
    }

    #[test]
    fn new_connections_are_the_kernels_from_when_a_listener_is_passed_on() {
        let (mut shares, _) = settled(1, 1);
        assert_eq!(shares.successor_starts(at(1000)), [ToKernel(vec![0])]);
        assert!(!shares.is_whole(0));
        assert_eq!(shares.leaves(1, at(1010)), [ToKernel(vec![0])], "before the new one has asked");
        assert_eq!(shares.asked(2, at(1050)), [Wait(2)]);
        assert_eq!(shares.tick(at(1110)), [AskBack(1)]);
        let (mut shares, _) = settled(1, 1);
        shares.successor_starts(at(1000));
        assert_eq!(shares.tick(at(1999)), []);
        assert_eq!(shares.tick(at(2000)), [ToBorrower(vec![0])], "nobody came");
    }

    #[test]
    fn each_successor_stands_for_another_predecessor() {
        let (mut shares, _) = settled(2, 2);
        assert_eq!(shares.asked(3, at(5000)), [Wait(3), ToKernel(vec![0])]);
        assert_eq!(shares.asked(4, at(5001)), [Wait(4), ToKernel(vec![1])]);
    }
}
