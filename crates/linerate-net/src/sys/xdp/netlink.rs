//! The one rtnetlink socket option for which no safe wrapper exists.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::check;

/// Subscribes a socket to a group of rtnetlink notifications (linux/rtnetlink.h, RTNLGRP_...).
pub(crate) fn join_group(socket: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    // SAFETY: the option is a number that lives through the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            (&raw const group).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}
