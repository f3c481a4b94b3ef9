//! Files: sendfile, and which of their pages are in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::{check, check_size};

/// Moves at most `len` bytes from `at` in `file` to a socket; 0 if the file ends before `at`. It
/// neither uses nor moves the file's position, so threads may share the file. sendfile has no
/// MSG_NOSIGNAL, but Rust programs ignore SIGPIPE from their start.
pub(crate) fn send(socket: &impl AsRawFd, file: &File, at: u64, len: usize) -> io::Result<usize> {
    let mut at = offset(at)?;
    // SAFETY: the offset lives through the call; both descriptors are borrowed, so they are open.
    check_size(unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut at, len) })
}

/// A lock of a whole file against other processes (F_SETLKW), also those with the same open file description.
/// It ends with its process.
pub(crate) struct FileLock<'a>(&'a File);

impl FileLock<'_> {
    /// Waits for the lock.
    pub(crate) fn of_process(file: &File) -> io::Result<FileLock<'_>> {
        loop {
            match set_lock(file, libc::F_WRLCK) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                locked => return locked.map(|()| FileLock(file)),
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        self.0
    }
}

impl Drop for FileLock<'_> {
    fn drop(&mut self) {
        // It cannot fail for a lock that is held.
        let _ = set_lock(self.0, libc::F_UNLCK);
    }
}

fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, for which zero is a value: here, the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the descriptor is borrowed, and the kernel reads the structure, which lives through the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) }).map(drop)
}

/// `struct cachestat_range` and `struct cachestat` of linux/mman.h.
#[repr(C)]
struct CacheRange {
    at: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many pages of this range are in memory. Needs Linux 6.5 and a file that this user owns or
/// may write.
pub(crate) fn cached_pages(file: &File, range: &Range<u64>) -> io::Result<u64> {
    let asked = CacheRange { at: range.start, len: range.end - range.start };
    let mut told = CacheStat::default();
    // SAFETY: both structures have the kernel's layout and live through the call, which reads the
    // first and writes the second.
    check(unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut told, 0) as libc::c_int
    })?;
    Ok(told.cached)
}

/// The number is the same on all architectures; the C library does not name it yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// Reads without blocking on a disk: `WouldBlock` if nothing is cached, fewer bytes if some are
/// not.
pub(crate) fn read_cached(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let (fd, at) = (file.as_raw_fd(), offset(at)?);
    // SAFETY: the kernel writes at most `iov_len` bytes through the one piece, which describes
    // `bytes`.
    check_size(unsafe { libc::preadv2(fd, &raw const piece, 1, at, libc::RWF_NOWAIT) })
}

/// The page size of this machine, bytes.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf takes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_or(4096, |size| size.max(1))
}

fn offset(at: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}
