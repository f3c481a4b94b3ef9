//! A captured packet and the TCP segment in it: link, VLAN, IP and TCP headers come off.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, SingleVlanHeaderSlice, TcpHeaderSlice, TcpOptionElement};

use super::limits::{IPV6_EXTENSIONS, VLAN_TAGS};

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
    /// The IPv4 identification, by which a packet that was captured twice is known; 0 where there
    /// is none.
    pub id: u16,
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

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;

/// The TCP segment in a packet.
///
/// # Errors
/// There is none; why.
pub fn segment<'a>(packet: &Packet<'a>) -> Result<Segment<'a>, Skip> {
    let cut = (packet.wire_len as usize).saturating_sub(packet.data.len());
    let (kind, ip) = network(packet.link, packet.data)?;
    match kind {
        IPV4 => ipv4(ip, cut),
        IPV6 => ipv6(ip, cut),
        _ => Err(Skip::NotTcp),
    }
}

fn be16(data: &[u8], at: usize) -> Result<u16, Skip> {
    data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]])).ok_or(Skip::Malformed)
}

fn after(data: &[u8], at: usize) -> Result<&[u8], Skip> {
    data.get(at..).ok_or(Skip::Malformed)
}

/// The EtherType and what follows the link's header and VLAN tags.
fn network(link: LinkType, data: &[u8]) -> Result<(u16, &[u8]), Skip> {
    match link {
        LinkType::Ethernet => untagged(be16(data, 12)?, after(data, 14)?),
        LinkType::LinuxSll => untagged(be16(data, 14)?, after(data, 16)?),
        LinkType::LinuxSll2 => untagged(be16(data, 0)?, after(data, 20)?),
        LinkType::Raw => by_version(data),
        // Families differ between systems (IPv6 is 10, 24, 28 or 30): the IP version says it
        // better.
        LinkType::Loopback => by_version(after(data, 4)?),
        LinkType::Nflog => by_version(nflog(data)?),
        LinkType::Other(number) => Err(Skip::Link(number)),
    }
}

fn by_version(data: &[u8]) -> Result<(u16, &[u8]), Skip> {
    match data.first().ok_or(Skip::Malformed)? >> 4 {
        4 => Ok((IPV4, data)),
        6 => Ok((IPV6, data)),
        _ => Err(Skip::NotTcp),
    }
}

fn untagged(mut kind: u16, mut data: &[u8]) -> Result<(u16, &[u8]), Skip> {
    for _ in 0..VLAN_TAGS {
        // 802.1Q, 802.1ad (QinQ), and what came before it.
        if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            return Ok((kind, data));
        }
        let tag = SingleVlanHeaderSlice::from_slice(data).map_err(|_| Skip::Malformed)?;
        kind = tag.ether_type().0;
        data = &data[tag.slice().len()..];
    }
    Err(Skip::NotTcp)
}

/// The payload of a netfilter log packet: records of type, length and value. The lengths are in the
/// byte order of the capturing machine, which the packet does not state: little-endian unless that
/// makes no sense.
fn nflog(data: &[u8]) -> Result<&[u8], Skip> {
    nflog_payload(data, u16::from_le_bytes).or_else(|_| nflog_payload(data, u16::from_be_bytes))
}

fn nflog_payload(data: &[u8], read: fn([u8; 2]) -> u16) -> Result<&[u8], Skip> {
    const PAYLOAD: u16 = 9;
    let mut rest = after(data, 4)?;
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let (len, kind) = (usize::from(read([head[0], head[1]])), read([head[2], head[3]]) & 0x7fff);
        if len < 4 {
            return Err(Skip::Malformed);
        }
        if kind == PAYLOAD {
            return Ok(&rest[4..len.min(rest.len())]);
        }
        rest = after(rest, len.next_multiple_of(4))?;
    }
    Err(Skip::NotTcp)
}

fn ipv4(data: &[u8], cut: usize) -> Result<Segment<'_>, Skip> {
    let header = Ipv4HeaderSlice::from_slice(data).map_err(|_| Skip::Malformed)?;
    if header.protocol().0 != TCP {
        return Err(Skip::NotTcp);
    }
    if header.is_fragmenting_payload() {
        return Err(Skip::Fragment);
    }
    let start = header.slice().len();
    let total = match usize::from(header.total_len()) {
        // The card was to fill it in (segmentation offload): all there is.
        0 => data.len() + cut,
        total => total,
    };
    let wire = total.checked_sub(start).ok_or(Skip::Malformed)?;
    let ends = |ports: (u16, u16)| {
        (Endpoint::v4(header.source(), ports.0), Endpoint::v4(header.destination(), ports.1))
    };
    let id = header.identification();
    tcp(&data[start..total.min(data.len()).max(start)], wire, ends).map(|s| Segment { id, ..s })
}

fn ipv6(data: &[u8], cut: usize) -> Result<Segment<'_>, Skip> {
    const HEADER: usize = 40;
    let header = Ipv6HeaderSlice::from_slice(data).map_err(|_| Skip::Malformed)?;
    let total = match usize::from(header.payload_length()) {
        0 => data.len() + cut,
        payload => HEADER + payload,
    };
    let (mut next, mut at) = (header.next_header().0, HEADER);
    for _ in 0..IPV6_EXTENSIONS {
        let length = |unit: usize, more: usize| {
            data.get(at + 1).map(|n| (usize::from(*n) + more) * unit).ok_or(Skip::Malformed)
        };
        let skip = match next {
            TCP => break,
            // Hop-by-hop, routing, destination, mobility: in units of 8 after the first 8.
            0 | 43 | 60 | 135 => length(8, 1)?,
            // Authentication: in units of 4 after the first 8.
            51 => length(4, 2)?,
            44 => fragment(data, at)?,
            _ => return Err(Skip::NotTcp),
        };
        next = data[at];
        at += skip;
    }
    if next != TCP {
        return Err(Skip::NotTcp);
    }
    let wire = total.checked_sub(at).ok_or(Skip::Malformed)?;
    let payload = data.get(at..total.min(data.len())).ok_or(Skip::Malformed)?;
    let ends = |ports: (u16, u16)| {
        (Endpoint::v6(header.source(), ports.0), Endpoint::v6(header.destination(), ports.1))
    };
    tcp(payload, wire, ends)
}

/// Bytes of an IPv6 fragment header (RFC 8200, section 4.5), when the whole packet follows it (RFC
/// 6946).
fn fragment(data: &[u8], at: usize) -> Result<usize, Skip> {
    const HEADER: usize = 8;
    let is_part = be16(data, at + 2)? & 0xfff9 != 0;
    match data[at] {
        _ if !is_part => Ok(HEADER),
        // TCP, or a header that may come before it.
        TCP | 51 | 60 | 135 => Err(Skip::Fragment),
        _ => Err(Skip::NotTcp),
    }
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
    let flags = header.slice()[13];
    let (mut mss, mut scale) = (None, None);
    if flags & flag::SYN != 0 {
        for option in header.options_iterator().map_while(Result::ok) {
            match option {
                TcpOptionElement::MaximumSegmentSize(n) => mss = Some(n),
                TcpOptionElement::WindowScale(n) => scale = Some(n.min(14)),
                _ => {}
            }
        }
    }
    Ok(Segment {
        src,
        dst,
        seq: header.sequence_number(),
        ack: header.acknowledgment_number(),
        flags,
        window: header.window_size(),
        len,
        data: &data[start..],
        mss,
        scale,
        id: 0,
    })
}

#[cfg(test)]
mod tests;
