//! Socket options and kernel stamps of one TCP socket.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::SockRef;

use super::{check, check_size, thread};
use crate::Time;
use crate::instrument::{Facts, Stamp, Stamped};

/// linux/tcp.h; not in libc yet.
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// What `wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstrumentEvent {
    Read,
    Write,
}

/// Waits; returns `false` after `time`. A failed connection counts as ready.
pub(crate) fn wait(fd: &(impl AsRawFd + AsFd), what: InstrumentEvent, time: Duration) -> io::Result<bool> {
    let events = if what == InstrumentEvent::Read { libc::POLLIN } else { libc::POLLOUT };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: one entry, as its count says; it and the timespec live through the call; no signal
    // mask is given.
    match check(unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        // Stamps in the error queue also wake it: only the awaited event, or an end, counts.
        Ok(n)
            if n > 0 && poll.revents & (events | libc::POLLHUP) == 0 && poll.revents & libc::POLLERR != 0 =>
        {
            match SockRef::from(fd).take_error()? {
                Some(error) => Err(error),
                None => {
                    std::thread::sleep(Duration::from_micros(50));
                    Ok(false)
                }
            }
        }
        other => other.map(|n| n > 0),
    }
}

/// Sends as much as the socket takes, without SIGPIPE.
pub(crate) fn send(fd: &impl AsRawFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: the kernel reads at most `len` bytes from a slice of that length.
    check_size(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

fn set(fd: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option is an int that lives through the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

pub(crate) fn set_quick_ack(fd: &impl AsRawFd) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
}

pub(crate) fn set_delayed_ack(fd: &impl AsRawFd, time: Duration) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
}

pub(crate) fn set_max_segment(fd: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes)
}

pub(crate) fn set_receive_buffer(fd: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

pub(crate) fn set_send_buffer(fd: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

/// Has the kernel note when received bytes arrive.
pub(crate) fn set_arrival_stamps(fd: &impl AsRawFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

pub(crate) fn set_stamps(fd: &impl AsRawFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_TX_SCHED
        | libc::SOF_TIMESTAMPING_TX_ACK
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

/// The local address.
pub(crate) fn local(fd: &impl AsFd) -> Option<SocketAddr> {
    SockRef::from(fd).local_addr().ok().and_then(|a| a.as_socket())
}

/// The peer's address.
pub(crate) fn peer(fd: &impl AsFd) -> Option<SocketAddr> {
    SockRef::from(fd).peer_addr().ok().and_then(|a| a.as_socket())
}

/// Buffer for the control data of one stamp.
#[repr(align(8))]
struct Control([u8; 256]);

/// Receives what is there, with the arrival time of the last byte if the kernel stamped it.
pub(crate) fn recv_stamped(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Time>)> {
    let mut control = Control([0; 256]);
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain data: all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the one piece and the control buffer have the lengths given and live through the
    // call.
    let n = check_size(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) })?;
    let mut at = None;
    // SAFETY: the kernel filled `message`; the buffer it points to is alive and aligned as cmsghdr
    // needs.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers within the buffer only.
        let (level, kind, data) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, libc::CMSG_DATA(header)) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING {
            // SAFETY: this message carries three timespecs, the first of which is the software
            // stamp; any bytes are a value.
            at = Some(unsafe { data.cast::<libc::timespec>().read_unaligned() });
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    // The kernel writes a zero timestamp for "no stamp".
    Ok((n, at.filter(|at| at.tv_sec > 0).map(monotonic)))
}

/// Converts a wall-clock stamp to the monotonic clock. Their offset does not change noticeably
/// during a call of milliseconds.
fn monotonic(at: libc::timespec) -> Time {
    let wall = (at.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(at.tv_nsec as u64);
    Time::from_nanos(thread::monotonic_ns().saturating_sub(thread::wall_ns().saturating_sub(wall)))
}

/// Takes one message from the error queue; `Ok(None)` if it was not a stamp.
pub(crate) fn take_stamp(fd: &impl AsRawFd) -> io::Result<Option<Stamp>> {
    let mut control = Control([0; 256]);
    // SAFETY: msghdr is plain data: all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the control buffer has the length given and lives through the call; no data is asked
    // for.
    check_size(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    let (mut at, mut what) = (None, None);
    // SAFETY: the kernel filled `message`; the buffer it points to is alive and aligned as cmsghdr
    // needs.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers within the buffer only.
        let (level, kind, data) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, libc::CMSG_DATA(header)) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING {
            // SAFETY: this message carries three timespecs, the first of which is the software
            // stamp; any bytes are a value.
            at = Some(unsafe { data.cast::<libc::timespec>().read_unaligned() });
        } else if (level == libc::IPPROTO_IP && kind == libc::IP_RECVERR)
            || (level == libc::IPPROTO_IPV6 && kind == libc::IPV6_RECVERR)
        {
            // SAFETY: this message carries a sock_extended_err, plain data.
            what = Some(unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() });
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(at.zip(what).and_then(|(at, what)| stamp(at, what)))
}

fn stamp(at: libc::timespec, what: libc::sock_extended_err) -> Option<Stamp> {
    const SCHEDULED: u32 = 1;
    const ACKNOWLEDGED: u32 = 2;
    let kind = match what.ee_info {
        SCHEDULED => Stamped::Sent,
        ACKNOWLEDGED => Stamped::Acknowledged,
        _ => return None,
    };
    Some(Stamp { what: kind, last_byte: what.ee_data, at: monotonic(at) })
}

/// Large enough for TCP_INFO of the newest kernels; older ones fill a shorter prefix.
const ROOM: usize = 512;

/// Reads TCP_INFO in full.
pub(crate) fn facts(fd: &impl AsRawFd) -> io::Result<Facts> {
    let mut room = [MaybeUninit::<u8>::uninit(); ROOM];
    let mut len = ROOM as libc::socklen_t;
    let at = room.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes into room of that length, and sets `len` to
    // what it wrote.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len) })?;
    let written = (len as usize).min(ROOM);
    // SAFETY: the kernel wrote the first `written` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), written) };
    Ok(Facts::parse(bytes))
}
