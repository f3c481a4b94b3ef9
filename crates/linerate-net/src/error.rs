//! Why a connection failed, in words a report can use.

use std::io;

/// The kind of a failure, independent of the transport and the errno it used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NetErrorKind {
    /// No socket listens there (RST to our SYN).
    Refused,
    /// The peer reset an established connection.
    Reset,
    /// The peer did not respond within the kernel's time.
    TimedOut,
    /// No route to the host or network.
    Unreachable,
    /// Every local port towards this peer is in use (`EADDRNOTAVAIL`).
    PortsExhausted,
    /// The process may not open more descriptors (`EMFILE`, `ENFILE`).
    DescriptorsExhausted,
    /// A table or queue of ours, or of the kernel, is full (`ENOBUFS`, `ENOMEM`).
    NoMemory,
    /// The address is in use by another listener.
    AddressInUse,
    /// Not permitted.
    NotPermitted,
    /// A call that makes no sense, such as sending a range that was not lent.
    Misuse,
    /// A [layer](crate::layer)'s handshake failed (TLS).
    Handshake,
    /// A proxy in front of the peer opened no tunnel to it.
    Proxy,
    /// The peer closed the connection without the end that its protocol has (TLS: without `close_notify`).
    Cut,
    /// The peer broke the rules of a layer on a connection that worked (TLS).
    Garbled,
    /// Anything else; the message has the kernel's words.
    Other,
}

/// A failed operation: its kind and the kernel's error number where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
pub struct NetError {
    /// The kind of failure.
    pub kind: NetErrorKind,
    /// The kernel's errno, 0 when the transport is not the kernel's.
    pub errno: i32,
}

impl NetError {
    /// From an errno value (positive).
    pub fn from_errno(errno: i32) -> NetError {
        let kind = match errno {
            libc::ECONNREFUSED => NetErrorKind::Refused,
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => NetErrorKind::Reset,
            libc::ETIMEDOUT => NetErrorKind::TimedOut,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
                NetErrorKind::Unreachable
            }
            libc::EADDRNOTAVAIL => NetErrorKind::PortsExhausted,
            libc::EMFILE | libc::ENFILE => NetErrorKind::DescriptorsExhausted,
            libc::ENOBUFS | libc::ENOMEM => NetErrorKind::NoMemory,
            libc::EADDRINUSE => NetErrorKind::AddressInUse,
            libc::EACCES | libc::EPERM => NetErrorKind::NotPermitted,
            _ => NetErrorKind::Other,
        };
        NetError { kind, errno }
    }

    /// Of a kind, without an errno.
    pub fn of(kind: NetErrorKind) -> NetError {
        NetError { kind, errno: 0 }
    }

    fn describe(&self) -> String {
        let words = match self.kind {
            NetErrorKind::Refused => "connection refused",
            NetErrorKind::Reset => "connection reset by the peer",
            NetErrorKind::TimedOut => "connection timed out",
            NetErrorKind::Unreachable => "no route to the host",
            NetErrorKind::PortsExhausted => "no local port left towards this address",
            NetErrorKind::DescriptorsExhausted => "no file descriptor left",
            NetErrorKind::NoMemory => "no buffer space left",
            NetErrorKind::AddressInUse => "address in use",
            NetErrorKind::NotPermitted => "not permitted",
            NetErrorKind::Misuse => "a call that makes no sense",
            NetErrorKind::Handshake => "the handshake failed",
            NetErrorKind::Proxy => "the proxy opened no path to the server",
            NetErrorKind::Cut => "connection cut off by the peer",
            NetErrorKind::Garbled => "the peer broke the rules of its connection",
            NetErrorKind::Other if self.errno == 0 => "failed",
            NetErrorKind::Other => return io::Error::from_raw_os_error(self.errno).to_string(),
        };
        words.to_owned()
    }
}

impl From<io::Error> for NetError {
    fn from(e: io::Error) -> NetError {
        e.raw_os_error().map_or_else(|| NetError::of(NetErrorKind::Other), NetError::from_errno)
    }
}
