//! Memory mappings.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use super::check;

/// A file of zeros that is memory only, as long as a descriptor or a mapping of it lives.
pub(crate) fn memory_file(len: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero.
    let fd = check(unsafe { libc::memfd_create(c"linerate".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: it takes no pointer.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), len) })?;
    Ok(fd)
}

/// Pages from the kernel, zeroed.
pub(super) struct KernelPages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and only its one owner reaches its
// contents.
unsafe impl Send for KernelPages {}

impl KernelPages {
    /// Fresh memory, zeroed.
    pub(super) fn new(len: usize) -> io::Result<KernelPages> {
        KernelPages::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Memory shared with the kernel behind a descriptor.
    pub(super) fn shared(fd: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<KernelPages> {
        KernelPages::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<KernelPages> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unmapped address, so no memory of ours is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(KernelPages { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Asks for huge pages, which cause fewer TLB misses. The kernel may decline.
    pub(super) fn wish_huge(&self) {
        // SAFETY: advice on our own mapping; its contents do not change.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// A forked child does not get the memory. Reason: the kernel writes to these pages, and a copy in a
    /// child would cost as much as they do. The kernel may decline.
    pub(super) fn keep_from_children(&self) {
        // SAFETY: advice on our own mapping; its contents do not change.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTFORK) };
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for KernelPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives this struct.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
