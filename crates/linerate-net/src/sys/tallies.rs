//! Counters in memory that another process reads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::check_size;
use super::pages::{KernelPages, memory_file};

/// `N` numbers in a file of memory, which this process writes.
pub(crate) struct SharedNumbers<const N: usize> {
    pages: KernelPages,
}

// SAFETY: all access to the memory is atomic.
unsafe impl<const N: usize> Sync for SharedNumbers<N> {}

impl<const N: usize> SharedNumbers<N> {
    /// Zeros, and the file in which others read them. A child that this process forks shares them.
    pub(crate) fn new() -> io::Result<(SharedNumbers<N>, OwnedFd)> {
        let file = memory_file(N * size_of::<u64>())?;
        let pages = KernelPages::shared(file.as_fd(), N * size_of::<u64>(), 0)?;
        Ok((SharedNumbers { pages }, file))
    }

    /// One of the numbers.
    pub(crate) fn at(&self, at: usize) -> &AtomicU64 {
        assert!(at < N, "number {at} of {N}");
        // SAFETY: the mapping has room for `N` numbers, starts at a page, and lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.pages.start().cast::<u64>().add(at)) }
    }

    /// What the numbers of another process are now.
    ///
    /// # Errors
    /// The file is too short, which its owner can make it.
    pub(crate) fn read(file: BorrowedFd<'_>) -> io::Result<[u64; N]> {
        let mut numbers = [0_u64; N];
        // SAFETY: the kernel writes at most the bytes of the list, for which every pattern is valid.
        let len = check_size(unsafe {
            libc::pread(file.as_raw_fd(), numbers.as_mut_ptr().cast(), size_of_val(&numbers), 0)
        })?;
        if len < size_of_val(&numbers) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(numbers)
    }
}

impl<const N: usize> std::fmt::Debug for SharedNumbers<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries((0..N).map(|at| self.at(at).load(Ordering::Relaxed))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_their_file_and_a_short_file_is_an_error() {
        let (numbers, file) = SharedNumbers::<3>::new().expect("memory");
        numbers.at(2).store(7, Ordering::Relaxed);
        assert_eq!(SharedNumbers::<3>::read(file.as_fd()).expect("numbers"), [0, 0, 7]);
        assert!(SharedNumbers::<4>::read(file.as_fd()).is_err());
    }
}
