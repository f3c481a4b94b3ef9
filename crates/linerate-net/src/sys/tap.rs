//! A virtual interface whose frames a process reads (TAP, the kernel's tuntap.rst), and a socket that
//! sends frames over an interface.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use socket2::{Domain, Socket, Type};

use super::check;
use super::packet_ring::bind;

/// The largest MTU that the kernel gives such an interface: 65,535 bytes with the Ethernet header.
const MTU: libc::c_int = 65_521;
/// The largest frame, bytes.
pub(crate) const LARGEST_FRAME: usize = 65_535;
/// Unread frames, at most. Reason: as many as a receive queue has at normal load.
const UNREAD: libc::c_int = 2048;

/// An interface that ends with the last copy of its descriptor. Reading that gives a frame that was
/// sent to the interface, without waiting.
pub(crate) struct TapInterface {
    pub(crate) frames: OwnedFd,
    pub(crate) index: u32,
}

impl TapInterface {
    /// `name`: `%d` stands for the first free number. It needs CAP_NET_ADMIN.
    pub(crate) fn open(name: &str) -> io::Result<TapInterface> {
        let frames =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: ifreq is plain data: all zeros is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte of a name is a zero.
        let len = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name[..len].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        control(&frames, libc::TUNSETIFF as _, &mut request)?;
        let name: Vec<u8> = request.ifr_name.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8_lossy(&name);
        // The kernel would look for routers and neighbours there. It may do so if /proc is not ours.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None)?;
        request.ifr_ifru.ifru_mtu = MTU;
        control(&socket, libc::SIOCSIFMTU, &mut request)?;
        request.ifr_ifru.ifru_mtu = UNREAD;
        control(&socket, libc::SIOCSIFTXQLEN, &mut request)?;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        control(&socket, libc::SIOCSIFFLAGS, &mut request)?;
        control(&socket, libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the kernel wrote the number, and every bit pattern is one.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        Ok(TapInterface { frames: frames.into(), index: index.cast_unsigned() })
    }
}

/// A control call about an interface.
fn control(fd: &impl AsRawFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each of these calls reads and writes an ifreq, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) }).map(drop)
}

/// A socket that sends whole frames over an interface, without waiting, and receives none. It needs
/// CAP_NET_RAW to be made, and nothing to be used.
pub(crate) fn frame_sender(interface: u32) -> io::Result<OwnedFd> {
    let socket: OwnedFd = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?.into();
    bind(&socket, interface, 0)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::time::{Duration, Instant};

    use linerate_skips::{need, skip};

    use super::*;

    #[test]
    fn a_frame_sent_over_an_interface_is_read_from_its_descriptor() {
        let tap = match TapInterface::open("linetest%d") {
            Ok(tap) => tap,
            Err(error) => return skip(need::ROOT, error),
        };
        let sender = Socket::from(frame_sender(tap.index).expect("a socket"));
        let mut frame = [7u8; 1514];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        sender.send(&frame).expect("sent");
        let (mut file, mut buffer) = (File::from(tap.frames), vec![0; LARGEST_FRAME]);
        let begin = Instant::now();
        // The kernel may send frames of its own.
        loop {
            match file.read(&mut buffer) {
                Ok(len) if buffer[..len] == frame => break,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
                _ => assert!(begin.elapsed() < Duration::from_secs(20), "no frame"),
            }
        }
    }
}
