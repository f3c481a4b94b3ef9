//! A captured packet and the TCP segment in it. `headers` takes off what is before TCP.

mod headers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::TcpHeaderSlice;

pub use headers::segment;

/// The outermost header of a packet (the numbers are those of capture files,
/// <https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// BSD loopback: the address family in the byte order of the capturing machine (NULL), or in
    /// network order (LOOP).
    Loopback,
    /// Ethernet (EN10MB).
    Ethernet,
    /// An IP header at once (RAW, IPV4, IPV6).
    Raw,
    /// Linux "any" (LINUX_SLL).
    LinuxSll,
    /// Linux "any", second version (LINUX_SLL2).
    LinuxSll2,
    /// Linux netfilter log (NFLOG).
    Nflog,
    /// PPP, with or without its address and control bytes (PPP, PPP_SERIAL).
    Ppp,
    /// A PPPoE session, without the Ethernet header (PPP_ETHER).
    PppoE,
    /// Cisco HDLC: two bytes, then an EtherType (C_HDLC).
    CiscoHdlc,
    /// A label stack (MPLS).
    Mpls,
    /// Another link type, whose packets are not read.
    Other(i32),
}

impl LinkType {
    /// From the number in a capture file.
    pub fn from_number(number: i32) -> LinkType {
        match number {
            0 | 108 => LinkType::Loopback,
            1 => LinkType::Ethernet,
            12 | 14 | 101 | 228 | 229 => LinkType::Raw,
            113 => LinkType::LinuxSll,
            276 => LinkType::LinuxSll2,
            239 => LinkType::Nflog,
            9 | 50 => LinkType::Ppp,
            51 => LinkType::PppoE,
            104 => LinkType::CiscoHdlc,
            219 => LinkType::Mpls,
            other => LinkType::Other(other),
        }
    }
}

/// A packet as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When, in nanoseconds since 1970 (UTC).
    pub time_ns: i64,
    /// The outermost header of `data`.
    pub link: LinkType,
    /// The bytes that were kept.
    pub data: &'a [u8],
    /// Bytes it had on the wire; more than `data` when the capture kept only the start of each
    /// packet.
    pub wire_len: u32,
}

/// One end of a connection: IPv4 addresses are held as mapped IPv6 ones, so that both are compared
/// and hashed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    ip: u128,
    port: u16,
}

impl Endpoint {
    fn v4(ip: [u8; 4], port: u16) -> Endpoint {
        Endpoint { ip: 0xffff_0000_0000 | u128::from(u32::from_be_bytes(ip)), port }
    }

    fn v6(ip: [u8; 16], port: u16) -> Endpoint {
        Endpoint { ip: u128::from_be_bytes(ip), port }
    }

    /// The end at that address; an IPv4 address may also be written as an IPv6 one.
    pub(super) fn of(address: SocketAddr) -> Endpoint {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Endpoint { ip: ip.to_bits(), port: address.port() }
    }

    /// The port number.
    pub fn port(self) -> u16 {
        self.port
    }

    /// As an address.
    pub fn addr(self) -> SocketAddr {
        let ip = match self.ip >> 32 {
            0xffff => IpAddr::V4(Ipv4Addr::from(self.ip as u32)),
            _ => IpAddr::V6(Ipv6Addr::from(self.ip)),
        };
        SocketAddr::new(ip, self.port)
    }
}

/// TCP's flags, as in the header.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sender.
    pub src: Endpoint,
    /// The receiver.
    pub dst: Endpoint,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// [`flag`]s.
    pub flags: u8,
    /// The window as in the header, not scaled.
    pub window: u16,
    /// Bytes of data on the wire.
    pub len: u32,
    /// The data, as far as it was captured: at most `len` bytes.
    pub data: &'a [u8],
    /// Maximum segment size, from a SYN's option.
    pub mss: Option<u16>,
    /// Window scale, from a SYN's option.
    pub scale: Option<u8>,
    /// The timestamp option (RFC 7323): the sender's clock, and the peer's that it echoes.
    pub stamps: Option<(u32, u32)>,
    /// The first two blocks of the SACK option (RFC 2018): each from its first byte to behind its
    /// last.
    pub sacks: [Option<(u32, u32)>; 2],
    /// The IPv4 identification, by which a packet that was captured twice is known; 0 where there
    /// is none.
    pub id: u16,
    /// How many headers were before it: more inside a tunnel than outside.
    pub depth: u8,
}

impl Segment<'_> {
    /// Any of these flags is set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// Reasons why a packet yields no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Not IP, or not TCP.
    NotTcp,
    /// Part of a fragmented IP packet with TCP in it.
    Fragment,
    /// The headers were cut off, or contradict themselves.
    Malformed,
    /// A link type we don't know.
    Link(i32),
}

/// `wire`: bytes of header and data on the wire.
fn tcp(
    data: &[u8],
    wire: usize,
    ends: impl FnOnce((u16, u16)) -> (Endpoint, Endpoint),
) -> Result<Segment<'_>, Skip> {
    let header = TcpHeaderSlice::from_slice(data).map_err(|_| Skip::Malformed)?;
    let start = header.slice().len();
    let len = wire.checked_sub(start).and_then(|n| u32::try_from(n).ok()).ok_or(Skip::Malformed)?;
    let (src, dst) = ends((header.source_port(), header.destination_port()));
    let mut segment = Segment {
        src,
        dst,
        seq: header.sequence_number(),
        ack: header.acknowledgment_number(),
        flags: header.slice()[13],
        window: header.window_size(),
        len,
        data: &data[start..],
        mss: None,
        scale: None,
        stamps: None,
        sacks: [None; 2],
        id: 0,
        depth: 0,
    };
    options(&mut segment, header.options());
    Ok(segment)
}

fn be32(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Reads the options that matter. A malformed one ends them.
fn options(segment: &mut Segment<'_>, mut rest: &[u8]) {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    let syn = segment.flags & flag::SYN != 0;
    while let [kind, tail @ ..] = rest {
        match *kind {
            END => return,
            NOTHING => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        let Some(len) = tail.first().map(|n| usize::from(*n)).filter(|n| (2..=rest.len()).contains(n)) else {
            return;
        };
        let value = &rest[2..len];
        match (*kind, value) {
            (2, [a, b]) if syn => segment.mss = Some(u16::from_be_bytes([*a, *b])),
            (3, [n]) if syn => segment.scale = Some((*n).min(14)),
            (5, blocks) => {
                let block = |b: &[u8]| Some((be32(b)?, be32(b.get(4..)?)?));
                for (place, bytes) in segment.sacks.iter_mut().zip(blocks.chunks_exact(8)) {
                    *place = block(bytes);
                }
            }
            (8, stamps) if stamps.len() == 8 => segment.stamps = be32(stamps).zip(be32(&stamps[4..])),
            _ => {}
        }
        rest = &rest[len..];
    }
}

#[cfg(test)]
mod tests;
