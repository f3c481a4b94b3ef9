//! Messages: sendmsg(2), recvmsg(2) and their forms for several.

use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t, timespec};

use super::streams::{receive_parts, send_parts};
use super::{CallOwner, by_owner, fail, note_listener, who_answers};
use crate::claim;
use crate::kernel::{self, real};
use crate::messages::tell_once;
use crate::table::{self, DescriptorKind};

/// A process has handed these to us (SCM_RIGHTS): HAProxy's workers get their listeners so, and never call listen(2).
///
/// # Safety
/// As recvmsg(2), after it.
unsafe fn look_at_handed(message: *const msghdr) {
    let mut is_named = false;
    // SAFETY: as the caller's.
    unsafe {
        any_right(message, |fd| {
            is_named |= note_listener(fd);
            false
        });
    }
    if is_named {
        let before = kernel::errno();
        claim::is_handed();
        kernel::set_errno(before);
    }
}

/// recvmsg(2): TCP tells no address and, here, nothing beside the bytes.
///
/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe {
            let got = real::recvmsg(fd, message, flags);
            if got >= 0 {
                look_at_handed(message);
            }
            got
        },
        // SAFETY: as the caller's.
        || unsafe {
            let Some(message) = message.as_mut() else { return fail(libc::EFAULT) };
            let got = receive_parts(fd, message.msg_iov, message.msg_iovlen, flags);
            if got >= 0 {
                (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
            }
            got
        },
    )
}

/// Whether a message would hand one of our connections to another process (SCM_RIGHTS).
///
/// # Safety
/// As sendmsg(2).
unsafe fn hands_over_ours(message: *const msghdr) -> bool {
    let ours = |fd| matches!(table::kind(fd), DescriptorKind::Connection | DescriptorKind::Orphan);
    // SAFETY: as the caller's.
    unsafe { any_right(message, ours) }
}

/// Whether this holds for a descriptor in a message.
///
/// # Safety
/// As sendmsg(2).
unsafe fn any_right(message: *const msghdr, mut holds: impl FnMut(c_int) -> bool) -> bool {
    // SAFETY: as the caller's; the macros stay within the control bytes.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() {
            return false;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let len = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                let numbers = libc::CMSG_DATA(header).cast::<c_int>();
                if (0..len).any(|at| holds(numbers.add(at).read_unaligned())) {
                    return true;
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
        false
    }
}

/// sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    by_owner(
        fd,
        // SAFETY: as the caller's.
        || unsafe {
            if hands_over_ours(message) {
                tell_once("a connection in user space cannot be handed to another process (SCM_RIGHTS)");
                return fail(libc::EOPNOTSUPP);
            }
            real::sendmsg(fd, message, flags)
        },
        // SAFETY: as the caller's.
        || unsafe {
            let Some(message) = message.as_ref() else { return fail(libc::EFAULT) };
            send_parts(fd, message.msg_iov, message.msg_iovlen, flags)
        },
    )
}

/// recvmmsg(2): ours return the first message, which has all there is.
///
/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    time: *mut timespec,
) -> c_int {
    if matches!(who_answers(fd), CallOwner::Kernel) {
        // SAFETY: as the caller's; so many messages came.
        return unsafe {
            let got = real::recvmmsg(fd, messages, count, flags, time);
            (0..usize::try_from(got).unwrap_or(0))
                .for_each(|at| look_at_handed(&raw const (*messages.add(at)).msg_hdr));
            got
        };
    }
    if count == 0 {
        return 0;
    }
    // SAFETY: as the caller's.
    unsafe {
        let got = recvmsg(fd, &raw mut (*messages).msg_hdr, flags & !libc::MSG_WAITFORONE);
        if got < 0 {
            return -1;
        }
        (*messages).msg_len = got as c_uint;
    }
    1
}

/// sendmmsg(2).
///
/// # Safety
/// As sendmmsg(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if matches!(who_answers(fd), CallOwner::Kernel) {
        // SAFETY: as the caller's.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let mut done = 0;
    for at in 0..count as usize {
        // SAFETY: as the caller's.
        unsafe {
            let message = messages.add(at);
            let sent = sendmsg(fd, &raw const (*message).msg_hdr, flags);
            if sent < 0 {
                break;
            }
            (*message).msg_len = sent as c_uint;
        }
        done += 1;
    }
    if done == 0 && count > 0 { -1 } else { done }
}
