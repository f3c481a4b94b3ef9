//! What the borrowers of a lender do: each counts in memory of its own, which the lender reads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::sys::passing;
use crate::sys::tallies::SharedNumbers;

use super::shares::BorrowerId;

/// Numbers of a borrower.
const NUMBERS: usize = 9;

/// What a borrower has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowerCounts {
    /// Connections accepted in user space.
    pub accepted: u64,
    /// Connections of other machines accepted from the kernel's listeners of the same addresses.
    pub accepted_of_kernel: u64,
    /// Open connections in user space, including closing ones.
    pub connections: u64,
    /// Bytes that the program has received in user space.
    pub bytes_in: u64,
    /// Bytes that the program has sent in user space.
    pub bytes_out: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Packets lost on this machine, because they were read too slowly or were too large for a frame.
    pub lost: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// Connections of this machine, which come over no interface: they are always the kernel's.
    pub accepted_here: u64,
}

impl BorrowerCounts {
    fn of(numbers: [u64; NUMBERS]) -> BorrowerCounts {
        let [
            accepted,
            accepted_of_kernel,
            connections,
            bytes_in,
            bytes_out,
            retransmits,
            lost,
            resets_out,
            accepted_here,
        ] = numbers;
        BorrowerCounts {
            accepted,
            accepted_of_kernel,
            connections,
            bytes_in,
            bytes_out,
            retransmits,
            lost,
            resets_out,
            accepted_here,
        }
    }

    fn plus(self, more: BorrowerCounts) -> BorrowerCounts {
        // A borrower writes what it likes.
        let sum = u64::saturating_add;
        BorrowerCounts {
            accepted: sum(self.accepted, more.accepted),
            accepted_of_kernel: sum(self.accepted_of_kernel, more.accepted_of_kernel),
            connections: sum(self.connections, more.connections),
            bytes_in: sum(self.bytes_in, more.bytes_in),
            bytes_out: sum(self.bytes_out, more.bytes_out),
            retransmits: sum(self.retransmits, more.retransmits),
            lost: sum(self.lost, more.lost),
            resets_out: sum(self.resets_out, more.resets_out),
            accepted_here: sum(self.accepted_here, more.accepted_here),
        }
    }
}

/// One of a borrower's numbers that only rise.
#[derive(Clone, Copy, Debug)]
pub enum BorrowerCounter {
    /// [`BorrowerCounts::accepted`].
    Accepted = 0,
    /// [`BorrowerCounts::accepted_of_kernel`].
    AcceptedOfKernel = 1,
    /// [`BorrowerCounts::bytes_in`].
    BytesIn = 3,
    /// [`BorrowerCounts::bytes_out`].
    BytesOut = 4,
    /// [`BorrowerCounts::accepted_here`].
    AcceptedHere = 8,
}

/// The numbers of this process, which its lender reads.
#[derive(Debug)]
pub struct BorrowerTally(SharedNumbers<NUMBERS>);

impl BorrowerTally {
    pub(super) fn new() -> io::Result<(BorrowerTally, OwnedFd)> {
        let (numbers, file) = SharedNumbers::new()?;
        Ok((BorrowerTally(numbers), file))
    }

    /// Counts.
    pub fn add(&self, what: BorrowerCounter, count: usize) {
        self.0.at(what as usize).fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Notes what the stack counts.
    pub fn note(&self, connections: u64, retransmits: u64, lost: u64, resets_out: u64) {
        for (at, number) in [(2, connections), (5, retransmits), (6, lost), (7, resets_out)] {
            self.0.at(at).store(number, Ordering::Relaxed);
        }
    }
}

/// A borrower as its lender sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorrowerStatus {
    /// The process.
    pub pid: u32,
    /// Its receive queues; none while it serves from the kernel.
    pub queues: Vec<u32>,
    /// Another process has its queues, and its last connections end.
    pub is_replaced: bool,
    /// When it asked for queues.
    pub since: SystemTime,
    /// What it has done.
    pub counts: BorrowerCounts,
}

/// A lender and its borrowers at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenderStatus {
    /// Receive queues of the interface.
    pub queues: u32,
    /// Processes that have queues or wait for some, in the order in which they asked.
    pub borrowers: Vec<BorrowerStatus>,
    /// Processes that have ended.
    pub ended: u64,
    /// What those did.
    pub ended_counts: BorrowerCounts,
}

impl LenderStatus {
    /// What all processes have done together.
    pub fn counts(&self) -> BorrowerCounts {
        self.borrowers.iter().map(|borrower| borrower.counts).fold(self.ended_counts, BorrowerCounts::plus)
    }
}

/// A borrower and its numbers.
struct RosterEntry {
    id: BorrowerId,
    status: BorrowerStatus,
    numbers: OwnedFd,
}

impl RosterEntry {
    /// Reads its numbers. Those that it has spoiled stay as they were.
    fn look(&mut self) {
        if let Ok(numbers) = SharedNumbers::read(self.numbers.as_fd()) {
            self.status.counts = BorrowerCounts::of(numbers);
        }
    }
}

#[derive(Default)]
struct RosterState {
    entries: Vec<RosterEntry>,
    ended: u64,
    ended_counts: BorrowerCounts,
}

/// The borrowers of a lender, for other threads to look at.
#[derive(Clone)]
pub struct LenderRoster {
    queues: u32,
    state: Arc<Mutex<RosterState>>,
}

impl std::fmt::Debug for LenderRoster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LenderRoster").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl LenderRoster {
    pub(super) fn new(queues: u32) -> LenderRoster {
        LenderRoster { queues, state: Arc::default() }
    }

    /// Nothing that is locked is left half changed.
    fn state(&self) -> MutexGuard<'_, RosterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process asks. `control`: its socket, `numbers`: the file with its counters.
    pub(super) fn joins(&self, id: BorrowerId, control: &OwnedFd, numbers: OwnedFd) -> io::Result<()> {
        let status = BorrowerStatus {
            pid: passing::maker(control.as_fd())?,
            queues: Vec::new(),
            is_replaced: false,
            since: SystemTime::now(),
            counts: BorrowerCounts::default(),
        };
        self.state().entries.push(RosterEntry { id, status, numbers });
        Ok(())
    }

    /// It has these queues now.
    pub(super) fn has(&self, id: BorrowerId, queues: &[u32]) {
        for entry in self.state().entries.iter_mut().filter(|entry| entry.id == id) {
            entry.status.queues = queues.to_vec();
        }
    }

    /// Another process gets its queues.
    pub(super) fn takes_detour(&self, id: BorrowerId) {
        for entry in self.state().entries.iter_mut().filter(|entry| entry.id == id) {
            (entry.status.queues, entry.status.is_replaced) = (Vec::new(), true);
        }
    }

    /// It has ended.
    pub(super) fn ends(&self, id: BorrowerId) {
        let mut state = self.state();
        let Some(at) = state.entries.iter().position(|entry| entry.id == id) else { return };
        let mut entry = state.entries.remove(at);
        entry.look();
        let last = BorrowerCounts { connections: 0, ..entry.status.counts };
        state.ended += 1;
        state.ended_counts = state.ended_counts.plus(last);
    }

    /// What all of them do now.
    pub fn status(&self) -> LenderStatus {
        let mut state = self.state();
        state.entries.iter_mut().for_each(RosterEntry::look);
        LenderStatus {
            queues: self.queues,
            borrowers: state.entries.iter().map(|entry| entry.status.clone()).collect(),
            ended: state.ended,
            ended_counts: state.ended_counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_processes_that_end_stay_in_the_sum() {
        let roster = LenderRoster::new(2);
        let (control, _theirs) = passing::pair().expect("sockets");
        let (tally, numbers) = BorrowerTally::new().expect("memory");
        roster.joins(1, &control, numbers).expect("joined");
        roster.has(1, &[0, 1]);
        tally.add(BorrowerCounter::Accepted, 5);
        tally.add(BorrowerCounter::AcceptedOfKernel, 1);
        tally.add(BorrowerCounter::AcceptedHere, 6);
        tally.add(BorrowerCounter::BytesIn, 70);
        tally.add(BorrowerCounter::BytesOut, 80);
        tally.note(3, 2, 4, 9);
        let counts = BorrowerCounts {
            accepted: 5,
            accepted_of_kernel: 1,
            connections: 3,
            bytes_in: 70,
            bytes_out: 80,
            retransmits: 2,
            lost: 4,
            resets_out: 9,
            accepted_here: 6,
        };
        let status = roster.status();
        assert_eq!((status.queues, status.ended), (2, 0));
        let borrower = &status.borrowers[0];
        assert_eq!((borrower.pid, &borrower.queues[..]), (std::process::id(), &[0, 1][..]));
        assert_eq!((borrower.counts, borrower.is_replaced), (counts, false));
        roster.takes_detour(1);
        let borrower = &roster.status().borrowers[0];
        assert_eq!((borrower.is_replaced, borrower.queues.len()), (true, 0));
        roster.ends(1);
        roster.ends(1);
        let status = roster.status();
        assert_eq!((status.borrowers.len(), status.ended), (0, 1));
        assert_eq!(status.counts(), BorrowerCounts { connections: 0, ..counts });
    }
}
