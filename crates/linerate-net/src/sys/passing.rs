//! Messages between processes of one program that carry descriptors (SCM_RIGHTS).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{check, check_size};

/// Descriptors of one message, at most (SCM_MAX_FD of linux/include/net/scm.h).
pub(crate) const MOST_PASSED: usize = 253;

/// Room for the control message, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct PassedRoom([u8; 32 + 4 * MOST_PASSED]);

/// Two connected sockets that keep messages apart, closed by `execve`.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    Ok((ours.into(), theirs.into()))
}

/// The process that made a pair of sockets, by either end.
pub(crate) fn maker(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut told = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&told) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a structure of that size, of plain numbers.
    check(unsafe {
        let to = (&raw mut told).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    })?;
    Ok(told.pid.cast_unsigned())
}

/// A copy of a descriptor that `execve` keeps open, out of the way of programs, which are used to small
/// numbers.
pub(crate) fn inheritable(fd: BorrowedFd<'_>, from: RawFd) -> io::Result<OwnedFd> {
    copied(fd.as_raw_fd(), libc::F_DUPFD, from)
}

/// A descriptor that this process inherited, for a call or two.
///
/// # Errors
/// There is no such descriptor.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    copied(number, libc::F_DUPFD_CLOEXEC, 0)
}

fn copied(fd: RawFd, how: libc::c_int, from: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let copy = check(unsafe { libc::fcntl(fd, how, from) })?;
    // SAFETY: the kernel just gave us this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn header(part: &mut libc::iovec, control: &mut PassedRoom) -> libc::msghdr {
    // SAFETY: the structure is plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    message
}

/// Sends a message with copies of these descriptors. Never waits, never raises SIGPIPE.
pub(crate) fn send(to: BorrowedFd<'_>, bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    if passed.len() > MOST_PASSED {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = PassedRoom([0; 32 + 4 * MOST_PASSED]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = header(&mut part, &mut control);
    let len = size_of_val(passed) as libc::c_uint;
    // SAFETY: sizes only.
    message.msg_controllen = if passed.is_empty() { 0 } else { unsafe { libc::CMSG_SPACE(len) as usize } };
    // SAFETY: the control message fits the buffer, which is aligned for it; its descriptors are open.
    // The kernel only reads the bytes.
    check_size(unsafe {
        if let Some(first) = libc::CMSG_FIRSTHDR(&raw const message).as_mut() {
            first.cmsg_level = libc::SOL_SOCKET;
            first.cmsg_type = libc::SCM_RIGHTS;
            first.cmsg_len = libc::CMSG_LEN(len) as usize;
            let numbers = libc::CMSG_DATA(first).cast::<RawFd>();
            for (at, fd) in passed.iter().enumerate() {
                numbers.add(at).write_unaligned(fd.as_raw_fd());
            }
        }
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    })
    .map(|_| ())
}

/// The next message, without waiting: its length and descriptors. No bytes: the other side is gone.
pub(crate) fn receive(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = PassedRoom([0; 32 + 4 * MOST_PASSED]);
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut message = header(&mut part, &mut control);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let mut passed = Vec::new();
    // SAFETY: the buffers have the lengths that the header gives. The kernel has put descriptors into
    // the control messages that nothing else owns.
    let len = unsafe {
        let len = check_size(libc::recvmsg(from.as_raw_fd(), &raw mut message, flags))?;
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(entry) = at.as_ref() {
            if entry.cmsg_level == libc::SOL_SOCKET && entry.cmsg_type == libc::SCM_RIGHTS {
                let bytes = entry.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let numbers = libc::CMSG_DATA(at).cast::<RawFd>();
                for n in 0..bytes / size_of::<RawFd>() {
                    passed.push(OwnedFd::from_raw_fd(numbers.add(n).read_unaligned()));
                }
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
        len
    };
    if message.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        return Err(io::Error::other("a message is cut off"));
    }
    Ok((len, passed))
}

/// Waits until one of these can be read, at most `limit`. Returns which can.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> = (fds.iter())
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let millis = limit.map_or(-1, |limit| i32::try_from(limit.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: the list is a vector's, which lives through the call.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(polled.iter().map(|entry| entry.revents != 0).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_message_and_an_end_is_no_message() {
        let (ours, theirs) = pair().expect("two sockets");
        assert_eq!(maker(ours.as_fd()).expect("a process"), std::process::id());
        let file = File::open("/proc/self/stat").expect("a file");
        send(ours.as_fd(), b"first", &[file.as_fd(), file.as_fd()]).expect("sent");
        send(ours.as_fd(), b"second", &[]).expect("sent");
        let mut bytes = [0; 64];
        let (len, mut passed) = receive(theirs.as_fd(), &mut bytes).expect("a message");
        assert_eq!((&bytes[..len], passed.len()), (&b"first"[..], 2));
        let mut text = String::new();
        File::from(passed.remove(0)).read_to_string(&mut text).expect("its contents");
        assert!(text.starts_with(&std::process::id().to_string()));
        assert_eq!(receive(theirs.as_fd(), &mut bytes).expect("a message").0, 6);
        let nothing = receive(theirs.as_fd(), &mut bytes).expect_err("nothing");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let waited = wait(&[theirs.as_fd()], Some(Duration::from_millis(1))).expect("waited");
        assert_eq!(waited, [false]);
        drop(ours);
        assert_eq!(wait(&[theirs.as_fd()], None).expect("waited"), [true]);
        assert_eq!(receive(theirs.as_fd(), &mut bytes).expect("the end").0, 0);
        assert!(send(theirs.as_fd(), b"x", &[]).is_err());
    }
}
