//! The way of a process that has given its queues up while it has connections ([`super::handover`] is the
//! lender's side): it reads a virtual interface, and sends by a packet socket. Each frame costs a system call.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::Socket;

use crate::sys::tap::LARGEST_FRAME;

/// How far a process has left its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetourStep {
    /// The lender has not been told which connections there are.
    Offered,
    /// It has been told.
    Told,
    /// Frames come on the detour; some may be left in the queues.
    Begun,
    /// The queues are another process's.
    Alone,
}

/// The detour of this process.
pub(super) struct ProcessDetour {
    frames: File,
    sender: Socket,
    buffer: Box<[u8]>,
    pub(super) step: DetourStep,
    /// The last frame found no room.
    pub(super) is_full: bool,
    /// The interface was removed.
    pub(super) is_gone: bool,
}

impl ProcessDetour {
    /// By these descriptors.
    pub(super) fn offered(passed: Vec<OwnedFd>) -> Option<ProcessDetour> {
        let [frames, sender] = <[OwnedFd; 2]>::try_from(passed).ok()?;
        Some(ProcessDetour {
            frames: frames.into(),
            sender: sender.into(),
            buffer: vec![0; LARGEST_FRAME].into(),
            step: DetourStep::Offered,
            is_full: false,
            is_gone: false,
        })
    }

    /// The lender sends frames this way.
    pub(super) fn begin(&mut self) {
        if self.step == DetourStep::Told {
            self.step = DetourStep::Begun;
        }
    }

    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.frames.as_fd(), self.sender.as_fd()]
    }

    /// Ready to read when frames have come.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.frames.as_fd()
    }

    /// Lends up to `max` received frames to `take`; returns how many.
    pub(super) fn receive(&mut self, max: usize, mut take: impl FnMut(&mut [u8])) -> usize {
        for count in 0..max {
            match self.frames.read(&mut self.buffer) {
                Ok(len) => take(&mut self.buffer[..len]),
                Err(e) => {
                    let passes = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&e.kind());
                    self.is_gone |= !passes;
                    return count;
                }
            }
        }
        max
    }

    /// Sends a frame of `len` bytes that `fill` writes. `false`: there is no room.
    pub(super) fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(frame) = self.buffer.get_mut(..len) else { return false };
        fill(frame);
        let sent = self.sender.send(frame);
        let full = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS));
        // Any other failure is a lost packet; what became of the interface is heard elsewhere.
        self.is_full = sent.is_err_and(|e| full(&e));
        !self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::passing;

    #[test]
    fn a_detour_needs_both_descriptors() {
        let (one, other) = passing::pair().expect("sockets");
        assert!(ProcessDetour::offered(vec![one]).is_none());
        let (third, _fourth) = passing::pair().expect("sockets");
        let mut detour = ProcessDetour::offered(vec![other, third]).expect("a detour");
        detour.begin();
        assert_eq!(detour.step, DetourStep::Offered, "nobody was told yet");
        assert!(!detour.transmit(LARGEST_FRAME + 1, |_| ()));
    }
}
