//! Listening sockets that the program which started this process has opened for it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::check;

/// Takes over a descriptor that was passed at the start, if it is a socket that listens. To be called once for each number, before
/// the process opens descriptors of its own: the number then can only be what was passed.
pub(crate) fn inherited_listener(number: RawFd) -> io::Result<OwnedFd> {
    let mut listens: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int, and so is the room for it; both live through the call.
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
    // SAFETY: the descriptor is open, as the calls above show. Whoever started the process passed it for the process to own, and
    // the caller takes each number once, before anything here could have opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
