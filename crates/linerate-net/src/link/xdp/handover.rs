//! Takes queues back from a process that lets its last connections end, for its successor: a generation of
//! workers that a reload replaces. From then on the program sends the frames of these connections to a
//! virtual interface, which that process alone reads, and it sends by a packet socket. So nothing lies
//! between it and the kernel, and the end of any other process does not touch it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::sys::passing;
use crate::sys::tap::{TapInterface, frame_sender};

use super::flow_key::FLOW_KEY;
use super::lender::{Lender, LentTo};
use super::limits::{GENERATIONS, LENT_FLOWS};
use super::loan::kind;
use super::shares::{BorrowerId, LendingStep};

/// The names of the interfaces.
const NAME: &str = "linerate%d";

impl Lender {
    /// Asks a process for its queues. If it cannot have a detour, it keeps them until its last connection ends.
    pub(super) fn ask_back(&mut self, id: BorrowerId, say: &mut impl FnMut(&str)) -> Vec<LendingStep> {
        let steps = self.make_room(say);
        if let Err(error) = self.offer_detour(id) {
            say(&format!(
                "an old process keeps its receive queue of {} until its last connection ends: {error}",
                self.name
            ));
        }
        steps
    }

    fn offer_detour(&mut self, id: BorrowerId) -> io::Result<()> {
        let tap = TapInterface::open(NAME)?;
        let sender = frame_sender(self.terms.interface)?;
        let borrower = self.borrower(id)?;
        passing::send(borrower.control.as_fd(), &[kind::DETOUR], &[tap.frames.as_fd(), sender.as_fd()])?;
        borrower.detour = Some(tap.index);
        Ok(())
    }

    /// Ends the oldest process that takes a detour, if there are as many as may be.
    fn make_room(&mut self, say: &mut impl FnMut(&str)) -> Vec<LendingStep> {
        let (shares, _) = self.shares.count();
        let takes_detour = |borrower: &LentTo| borrower.detour.is_some();
        let oldest = self.borrowers.iter().position(takes_detour);
        let Some(oldest) = oldest.filter(|_| {
            self.borrowers.iter().filter(|borrower| takes_detour(borrower)).count() >= GENERATIONS * shares
        }) else {
            return Vec::new();
        };
        let oldest = self.borrowers.remove(oldest);
        let who = passing::maker(oldest.control.as_fd());
        let who = who.map_or_else(|_| "an old process".to_owned(), |pid| format!("process {pid}"));
        say(&format!(
            "{who} still has connections after {GENERATIONS} reloads, and they are reset\n  hint: \
             worker_shutdown_timeout ends nginx's earlier"
        ));
        // If it cannot be told, it sees our end of the pair closed.
        let _ = passing::send(oldest.control.as_fd(), &[kind::TOO_OLD], &[]);
        self.end(&oldest)
    }

    /// Whether any process takes a detour.
    pub(super) fn has_detours(&self) -> bool {
        self.borrowers.iter().any(|borrower| borrower.detour.is_some())
    }

    /// Sends the frames of a process's connections its way from now on. `passed`: a file with their keys.
    /// Connections beyond the map's size are reset once they send.
    pub(super) fn steer_to_detour(&mut self, at: usize, passed: Vec<OwnedFd>, say: &mut impl FnMut(&str)) {
        let Some(interface) = self.borrowers[at].detour else { return };
        let Some(file) = passed.into_iter().next().map(File::from) else { return };
        let steered = each_key(&file, |key| self.maps.detours.set(key, interface));
        if let Err((steered, error)) = steered {
            say(&format!(
                "an old process keeps {steered} connections, and its others are reset when they send: {error}"
            ));
        }
    }

    /// The connections of a process that has ended: those of its queues, or those of its detour, which it takes
    /// no more. Those that their peers have closed are not among them.
    pub(super) fn flows_of(&self, queues: &[u32], detour: Option<u32>) -> Vec<[u8; FLOW_KEY]> {
        let maps = &self.maps;
        let mut keys = Vec::new();
        if let Some(interface) = detour {
            keys = maps.detours.keys(LENT_FLOWS as usize);
            keys.retain(|key| maps.detours.get(*key) == Some(interface));
            keys.iter().for_each(|key| drop(maps.detours.remove(*key)));
            keys.retain(|key| maps.flows.get(*key).is_some());
        }
        if !queues.is_empty() {
            let others = self.has_detours();
            let of_queues = maps.flows.keys(LENT_FLOWS as usize).into_iter().filter(|key| {
                maps.flows.get(*key).is_some_and(|queue| queues.contains(&queue))
                    && !(others && maps.detours.get(*key).is_some())
            });
            keys.extend(of_queues);
        }
        keys
    }
}

/// Calls `each` with each key of a file, of at most [`LENT_FLOWS`]; an error comes with the number of keys before it.
fn each_key(
    file: &impl FileExt,
    mut each: impl FnMut([u8; FLOW_KEY]) -> io::Result<()>,
) -> Result<(), (u64, io::Error)> {
    let mut key = [0; FLOW_KEY];
    for n in 0..u64::from(LENT_FLOWS) {
        match file.read_exact_at(&mut key, n * FLOW_KEY as u64).and_then(|()| each(key)) {
            Ok(()) => {}
            // No more.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err((n, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of this many keys whose reading fails after them.
    struct Keys(u64, io::ErrorKind);

    impl FileExt for Keys {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            let n = offset / FLOW_KEY as u64;
            if n < self.0 { Ok(buf.len()) } else { Err(self.1.into()) }
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }
    }

    #[test]
    fn the_end_of_the_keys_is_no_error_and_a_full_map_is() {
        let mut steered = 0;
        let mut steer = |_: [u8; FLOW_KEY]| {
            steered += 1;
            if steered > 5 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        };
        assert!(each_key(&Keys(3, io::ErrorKind::UnexpectedEof), &mut steer).is_ok());
        let (kept, error) = each_key(&Keys(9, io::ErrorKind::UnexpectedEof), &mut steer).expect_err("full");
        assert_eq!((kept, error.kind()), (2, io::ErrorKind::StorageFull));
        let (kept, error) = each_key(&Keys(1, io::ErrorKind::Other), |_| Ok(())).expect_err("unreadable");
        assert_eq!((kept, error.kind()), (1, io::ErrorKind::Other));
    }
}
