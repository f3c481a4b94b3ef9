//! The one call on rtnetlink sockets that nobody has in safe words.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::check;

/// Has the kernel tell this socket of what a group of rtnetlink is about (linux/rtnetlink.h, RTNLGRP_...).
pub(crate) fn join_group(socket: BorrowedFd<'_>, group: u32) -> io::Result<()> {
    // SAFETY: the option is a number that lives through the call, and its size is told.
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
