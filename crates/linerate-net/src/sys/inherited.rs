//! Listening sockets that the parent process opened for this one.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::check;

/// Takes over a descriptor passed at the start, if it is a listening socket. Call it once for each
/// number, before the process opens descriptors of its own: the number can then only be a passed
/// one.
pub(crate) fn inherited_listener(number: RawFd) -> io::Result<OwnedFd> {
    let mut listens: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int, and so is its buffer; both live through the call.
    check(unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut listens).cast(),
            &raw mut len,
        )
    })?;
    if listens == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    // SAFETY: takes no pointers.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open, as the calls above show. The parent process passed it for
    // this process to own. The caller takes each number once, before anything here could have
    // opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
