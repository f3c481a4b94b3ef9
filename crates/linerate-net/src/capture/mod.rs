//! Packets that this machine sends and receives, captured read-only by AF_PACKET. Needs
//! CAP_NET_RAW.
//!
//! A captured packet begins with its IP header, whatever the interface. On loopback each packet is
//! seen once, on receive.

mod filter;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

pub use crate::link::xdp::interface_towards;
use crate::sys::packet_ring::{PacketRing, interface_index};

/// The packets to capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Captures on this interface only; on all of them when `None`.
    pub interface: Option<String>,
    /// Captures only on the interface that the route to this address uses (loopback for an address
    /// of this machine), so that a bridge does not show a packet twice. `interface` takes
    /// precedence.
    pub towards: Option<IpAddr>,
    /// Captures only TCP with this port at one end.
    pub port: Option<u16>,
    /// Captures only this many bytes of each packet; all of them when `None`.
    pub snap: Option<u32>,
}

/// Why a capture cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process lacks CAP_NET_RAW.
    #[error("capturing packets needs the capability CAP_NET_RAW, which this process does not have")]
    NotPermitted,
    /// No interface has this name.
    #[error("there is no network interface {0}")]
    NoInterface(String),
    /// The kernel has no packet sockets.
    #[error("this kernel has no packet sockets (CONFIG_PACKET)")]
    Unsupported,
    /// Any other failure.
    #[error("packets cannot be captured: {0}")]
    Io(#[source] io::Error),
}

/// A captured packet, from its IP header on.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// When the kernel saw it, nanoseconds since 1970.
    pub time_ns: i64,
    /// The captured bytes, from the IP header on.
    pub data: &'a [u8],
    /// Length of the packet before it was cut to `snap`.
    pub wire_len: u32,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    ring: PacketRing,
}

impl Capture {
    /// Starts capturing.
    ///
    /// # Errors
    /// The capability is missing, the interface does not exist, or the kernel refuses.
    pub fn open(options: &CaptureOptions) -> Result<Capture, CaptureError> {
        let loopback = interface_index("lo").unwrap_or(0);
        let index = match (&options.interface, options.towards) {
            (Some(name), _) => {
                interface_index(name).ok_or_else(|| CaptureError::NoInterface(name.clone()))?
            }
            (None, Some(to)) => interface_towards(to).unwrap_or(loopback),
            (None, None) => 0,
        };
        // Loopback shows each packet twice, sent and received; other interfaces show it once.
        let incoming_only = index != 0 && index == loopback;
        let program = filter::program(options.port, loopback, options.snap.unwrap_or(u32::MAX));
        PacketRing::open(index, incoming_only, &program).map(|ring| Capture { ring }).map_err(|e| {
            match e.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => CaptureError::NotPermitted,
                Some(libc::EAFNOSUPPORT) => CaptureError::Unsupported,
                _ => CaptureError::Io(e),
            }
        })
    }

    /// Lends the captured packets to `each` and returns how many there were. Waits up to `wait` if
    /// none is ready.
    ///
    /// # Errors
    /// The interface is gone, or waiting failed.
    pub fn next(&mut self, wait: Duration, mut each: impl FnMut(Captured<'_>)) -> io::Result<u64> {
        /// Blocks taken in one turn: a full ring. Reason: the caller must read its clock now and
        /// then.
        const TURN: u32 = crate::sys::packet_ring::BLOCKS;
        let mut n = 0;
        let mut lend = |p: crate::sys::packet_ring::RingPacket<'_>| {
            n += 1;
            each(Captured { time_ns: p.time_ns, data: p.data, wire_len: p.wire_len });
        };
        if !self.ring.block(&mut lend) {
            self.ring.wait(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX))?;
        }
        for _ in 0..TURN {
            if !self.ring.block(&mut lend) {
                break;
            }
        }
        Ok(n)
    }

    /// Packets lost since the last call because the ring was full.
    pub fn dropped(&mut self) -> u64 {
        self.ring.dropped()
    }
}
