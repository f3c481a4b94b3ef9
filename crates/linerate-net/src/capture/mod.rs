//! Packets of this machine as they pass by: AF_PACKET, read only. Needs CAP_NET_RAW.
//!
//! What is captured begins with the IP header, whatever the interface. On loopback each packet is seen once, as it comes in.

mod filter;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

pub use crate::link::xdp::interface_towards;
use crate::sys::packet_ring::{PacketRing, interface_index};

/// What to capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Of this interface; of all when `None`.
    pub interface: Option<String>,
    /// Only of the interface by which packets to this address leave (the loopback interface for an address of this machine), so that
    /// none is seen twice on its way through bridges. Where `interface` is given, that one counts.
    pub towards: Option<IpAddr>,
    /// Only TCP with this port at one end.
    pub port: Option<u16>,
    /// Only so many bytes of each packet; all when `None`.
    pub snap: Option<u32>,
}

/// Why nothing can be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// CAP_NET_RAW is missing.
    #[error("capturing packets needs the capability CAP_NET_RAW, which this process does not have")]
    NotPermitted,
    /// There is no such interface.
    #[error("there is no network interface {0}")]
    NoInterface(String),
    /// The kernel lacks packet sockets.
    #[error("this kernel has no packet sockets (CONFIG_PACKET)")]
    Unsupported,
    /// Something else.
    #[error("packets cannot be captured: {0}")]
    Io(#[source] io::Error),
}

/// A captured packet, from its IP header on.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// When the kernel saw it, nanoseconds since 1970.
    pub time_ns: i64,
    /// Its bytes.
    pub data: &'a [u8],
    /// Bytes it had.
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
        // On loopback what goes out comes in again; on other interfaces it does not.
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

    /// Lends what was captured to `each`; waits up to `wait` when there is nothing yet. How many packets there were.
    ///
    /// # Errors
    /// The interface is gone, or waiting failed.
    pub fn next(&mut self, wait: Duration, mut each: impl FnMut(Captured<'_>)) -> io::Result<u64> {
        /// Blocks taken in one turn: a ring full. Reason: the caller wants to look at its clock now and then.
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

    /// Packets lost for want of room since this was asked last.
    pub fn dropped(&mut self) -> u64 {
        self.ring.dropped()
    }
}
