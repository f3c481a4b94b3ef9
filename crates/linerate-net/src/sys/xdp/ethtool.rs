//! The report of a network card about its queues (SIOCETHTOOL).

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::sys::check;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    rest: [u8; 160],
}

/// Asks about an interface.
///
/// # Safety
/// `question` must be the structure of its command.
unsafe fn ask<T>(interface: &str, question: &mut T) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: ifreq is plain data: all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: request and question live through the call; the kernel writes the structure of the
    // command into the question.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) }).map(|_| ())
}

/// How many receive queues an interface uses; 1 if its driver does not say.
pub(crate) fn receive_queues(interface: &str) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: the structure is the command's.
    match unsafe { ask(interface, &mut channels) } {
        Ok(()) => Ok((channels.rx + channels.combined).max(1)),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(e) => Err(e),
    }
}

/// Whether the interface is virtual (macvlan, bridge, veth), so that peers on this machine may
/// leave checksums out. The driver of a real card reports its bus address.
pub(crate) fn is_software(interface: &str) -> bool {
    // `version` and `fw_version` come before `bus_info`, 32 bytes each.
    driver(interface).is_none_or(|driver| driver.rest[64] == 0)
}

/// Whether it is one end of a pair of virtual interfaces.
pub(crate) fn is_veth(interface: &str) -> bool {
    driver(interface).is_some_and(|driver| driver.name.starts_with(b"veth\0"))
}

fn driver(interface: &str) -> Option<Driver> {
    let mut driver = Driver { command: ETHTOOL_GDRVINFO, name: [0; 32], rest: [0; 160] };
    // SAFETY: the structure is the command's.
    unsafe { ask(interface, &mut driver) }.is_ok().then_some(driver)
}
