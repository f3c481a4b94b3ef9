//! The memory that a socket shares with the kernel.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::pages::KernelPages;

/// The right to touch one frame. Each frame has one, made with the memory or handed back by the
/// kernel.
#[derive(Debug)]
pub(super) struct Frame(u32);

/// Frames of one size, contiguous.
pub(super) struct Umem {
    pages: KernelPages,
    frame_bytes: usize,
}

impl Umem {
    /// Allocates `count` frames and the rights to all of them. `frame_bytes`: a power of two.
    pub(super) fn new(count: u32, frame_bytes: usize) -> io::Result<(Umem, Vec<Frame>)> {
        debug_assert!(frame_bytes.is_power_of_two());
        let pages = KernelPages::new(count as usize * frame_bytes)?;
        pages.wish_huge();
        Ok(Umem::over(pages, count, frame_bytes))
    }

    /// The same in a file of memory, which another process may have registered with the kernel.
    pub(super) fn of_file(
        file: BorrowedFd<'_>,
        count: u32,
        frame_bytes: usize,
    ) -> io::Result<(Umem, Vec<Frame>)> {
        let pages = KernelPages::shared(file, count as usize * frame_bytes, 0)?;
        Ok(Umem::over(pages, count, frame_bytes))
    }

    fn over(pages: KernelPages, count: u32, frame_bytes: usize) -> (Umem, Vec<Frame>) {
        pages.keep_from_children();
        (Umem { pages, frame_bytes }, (0..count).map(Frame).collect())
    }

    pub(super) fn start(&self) -> u64 {
        self.pages.start() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// A frame's offset from the start of the memory, as rings use it.
    pub(super) fn address(&self, frame: &Frame) -> u64 {
        u64::from(frame.0) * self.frame_bytes as u64
    }

    /// The frame that the kernel returned in a ring; `None` if the address lies outside of the
    /// memory.
    pub(super) fn returned(&self, address: u64) -> Option<Frame> {
        let inside = usize::try_from(address).is_ok_and(|a| a < self.pages.len());
        inside.then(|| Frame((address / self.frame_bytes as u64) as u32))
    }

    /// `len` bytes of a frame from `offset` on; `None` if the frame is shorter.
    pub(super) fn bytes(&mut self, frame: &mut Frame, offset: usize, len: usize) -> Option<&mut [u8]> {
        if offset.checked_add(len)? > self.frame_bytes {
            return None;
        }
        // SAFETY: frames are numbered below the count that the mapping has room for, and the range
        // was checked to lie within this one. The memory is initialised (zeroed pages). The owner
        // of a `Frame` has exclusive access: by the rings' protocol the kernel does not have it,
        // and both `self` and the frame are borrowed mutably.
        Some(unsafe {
            let start = self.pages.start().add(frame.0 as usize * self.frame_bytes + offset);
            std::slice::from_raw_parts_mut(start, len)
        })
    }

    /// Prefetches the first bytes of a frame that a ring names.
    #[inline]
    pub(super) fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.pages.start().wrapping_add(address as usize);
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_own_bytes_and_no_others() {
        let (mut umem, mut frames) = Umem::new(4, 2048).expect("memory");
        assert_eq!((frames.len(), umem.len()), (4, 8192));
        umem.bytes(&mut frames[1], 0, 2048).expect("all of it").fill(1);
        umem.bytes(&mut frames[2], 2047, 1).expect("the last").fill(2);
        assert!(umem.bytes(&mut frames[0], 0, 2048).expect("own").iter().all(|&b| b == 0));
        assert!(umem.bytes(&mut frames[2], 0, 2047).expect("own").iter().all(|&b| b == 0));
        assert!(umem.bytes(&mut frames[2], 2047, 2).is_none());
        assert!(umem.bytes(&mut frames[2], usize::MAX, 2).is_none());
    }

    #[test]
    fn the_kernels_word_is_held_against_the_memory() {
        let (umem, frames) = Umem::new(2, 2048).expect("memory");
        assert_eq!(umem.address(&frames[1]), 2048);
        assert_eq!(umem.returned(2048 + 270).map(|f| f.0), Some(1));
        assert!(umem.returned(4096).is_none());
        assert!(umem.returned(u64::MAX).is_none());
    }
}
