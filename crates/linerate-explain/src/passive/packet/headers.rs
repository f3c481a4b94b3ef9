//! Takes off what is before TCP: the link's header, VLAN tags, labels, tunnels, IP. Each step takes
//! off one header, and there are at most [`HEADERS`] of them.

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice};

use super::{Endpoint, LinkType, Packet, Segment, Skip, tcp};
use crate::passive::limits::{HEADERS, IPV6_EXTENSIONS};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE: u16 = 0x8864;
const MPLS: u16 = 0x8847;
/// An Ethernet frame in another protocol.
const BRIDGED: u16 = 0x6558;

const TCP: u8 = 6;
const UDP: u8 = 17;
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const AUTHENTICATION: u8 = 51;

/// The next header, and what follows it.
#[derive(Clone, Copy, Debug)]
enum Layer<'a> {
    Ethernet(&'a [u8]),
    /// What an EtherType announces.
    Typed(u16, &'a [u8]),
    /// IP of the version that its first four bits name.
    Ip(&'a [u8]),
    Ppp(&'a [u8]),
    Tcp(Segment<'a>),
}

/// The TCP segment in a packet.
///
/// # Errors
/// There is none; why.
pub fn segment<'a>(packet: &Packet<'a>) -> Result<Segment<'a>, Skip> {
    let cut = (packet.wire_len as usize).saturating_sub(packet.data.len());
    let mut layer = outermost(packet.link, packet.data)?;
    for depth in 0..HEADERS {
        layer = match layer {
            Layer::Ethernet(data) => Layer::Typed(be16(data, 12)?, after(data, 14)?),
            Layer::Typed(kind, data) => typed(kind, data)?,
            Layer::Ip(data) => match data.first().ok_or(Skip::Malformed)? >> 4 {
                4 => ipv4(data, cut)?,
                6 => ipv6(data, cut)?,
                _ => return Err(Skip::NotTcp),
            },
            Layer::Ppp(data) => ppp(data)?,
            Layer::Tcp(segment) => return Ok(Segment { depth, ..segment }),
        }
    }
    Err(Skip::NotTcp)
}

fn be16(data: &[u8], at: usize) -> Result<u16, Skip> {
    data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]])).ok_or(Skip::Malformed)
}

fn after(data: &[u8], at: usize) -> Result<&[u8], Skip> {
    data.get(at..).ok_or(Skip::Malformed)
}

fn outermost(link: LinkType, data: &[u8]) -> Result<Layer<'_>, Skip> {
    Ok(match link {
        LinkType::Ethernet => Layer::Ethernet(data),
        LinkType::LinuxSll => Layer::Typed(be16(data, 14)?, after(data, 16)?),
        LinkType::LinuxSll2 => Layer::Typed(be16(data, 0)?, after(data, 20)?),
        LinkType::CiscoHdlc => Layer::Typed(be16(data, 2)?, after(data, 4)?),
        LinkType::PppoE => Layer::Typed(PPPOE, data),
        LinkType::Mpls => Layer::Typed(MPLS, data),
        LinkType::Ppp => Layer::Ppp(data),
        LinkType::Raw => Layer::Ip(data),
        // Families differ between systems (IPv6 is 10, 24, 28 or 30): the IP version says it
        // better.
        LinkType::Loopback => Layer::Ip(after(data, 4)?),
        LinkType::Nflog => Layer::Ip(nflog(data)?),
        LinkType::Other(number) => return Err(Skip::Link(number)),
    })
}

fn typed(kind: u16, data: &[u8]) -> Result<Layer<'_>, Skip> {
    Ok(match kind {
        IPV4 | IPV6 => Layer::Ip(data),
        // 802.1Q, 802.1ad (QinQ), and what came before it.
        0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => Layer::Typed(be16(data, 2)?, after(data, 4)?),
        // 802.1ah: an Ethernet frame within one.
        0x88e7 => Layer::Ethernet(after(data, 4)?),
        BRIDGED => Layer::Ethernet(data),
        MPLS | 0x8848 => label(data)?,
        PPPOE => {
            // Padding may follow it.
            let end = 6 + usize::from(be16(data, 4)?);
            Layer::Ppp(data.get(6..end.min(data.len())).ok_or(Skip::Malformed)?)
        }
        0x880b => Layer::Ppp(data),
        // A length (802.3): SNAP may follow.
        0..0x600 => match data.strip_prefix(&[0xaa, 0xaa, 3, 0, 0, 0]) {
            Some(rest) => Layer::Typed(be16(rest, 0)?, after(rest, 2)?),
            None => return Err(Skip::NotTcp),
        },
        _ => return Err(Skip::NotTcp),
    })
}

/// A label of MPLS. The last one does not say what follows: IP, or an Ethernet frame, mostly behind
/// a word that begins with four zero bits (RFC 4385).
fn label(data: &[u8]) -> Result<Layer<'_>, Skip> {
    let rest = after(data, 4)?;
    if data[2] & 1 == 0 {
        return Ok(Layer::Typed(MPLS, rest));
    }
    Ok(match rest.first().ok_or(Skip::Malformed)? >> 4 {
        4 | 6 => Layer::Ip(rest),
        0 => Layer::Ethernet(after(rest, 4)?),
        _ => Layer::Ethernet(rest),
    })
}

fn ppp(data: &[u8]) -> Result<Layer<'_>, Skip> {
    let data = data.strip_prefix(&[0xff, 3]).unwrap_or(data);
    match *data {
        // IPv4 and IPv6; the first byte may be left out (RFC 1661, section 6.5).
        [0, 0x21 | 0x57, ..] => Ok(Layer::Ip(&data[2..])),
        [0x21 | 0x57, ..] => Ok(Layer::Ip(&data[1..])),
        _ => Err(Skip::NotTcp),
    }
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

fn ipv4(data: &[u8], cut: usize) -> Result<Layer<'_>, Skip> {
    let header = Ipv4HeaderSlice::from_slice(data).map_err(|_| Skip::Malformed)?;
    let start = header.slice().len();
    let total = match usize::from(header.total_len()) {
        // The card was to fill it in (segmentation offload): all there is.
        0 => data.len() + cut,
        total => total,
    };
    let wire = total.checked_sub(start).ok_or(Skip::Malformed)?;
    let payload = &data[start..total.min(data.len()).max(start)];
    if header.is_fragmenting_payload() {
        return Err(of_fragment(header.protocol().0));
    }
    if header.protocol().0 != TCP {
        return carried(header.protocol().0, payload);
    }
    let ends = |ports: (u16, u16)| {
        (Endpoint::v4(header.source(), ports.0), Endpoint::v4(header.destination(), ports.1))
    };
    let id = header.identification();
    tcp(payload, wire, ends).map(|s| Layer::Tcp(Segment { id, ..s }))
}

fn ipv6(data: &[u8], cut: usize) -> Result<Layer<'_>, Skip> {
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
            // Hop-by-hop, routing, destination, mobility: in units of 8 after the first 8.
            0 | 43 | 60 | 135 => length(8, 1)?,
            // In units of 4 after the first 8.
            AUTHENTICATION => length(4, 2)?,
            44 => fragment(data, at)?,
            _ => break,
        };
        next = data[at];
        at += skip;
    }
    let wire = total.checked_sub(at).ok_or(Skip::Malformed)?;
    let payload = data.get(at..total.min(data.len())).ok_or(Skip::Malformed)?;
    if next != TCP {
        return carried(next, payload);
    }
    let ends = |ports: (u16, u16)| {
        (Endpoint::v6(header.source(), ports.0), Endpoint::v6(header.destination(), ports.1))
    };
    tcp(payload, wire, ends).map(Layer::Tcp)
}

/// Part of a packet: of TCP, or of a header that may come before it.
fn of_fragment(protocol: u8) -> Skip {
    match protocol {
        TCP | IP_IN_IP | IPV6_IN_IP | GRE | AUTHENTICATION | 60 | 135 => Skip::Fragment,
        _ => Skip::NotTcp,
    }
}

/// Bytes of an IPv6 fragment header (RFC 8200, section 4.5), when the whole packet follows it (RFC
/// 6946).
fn fragment(data: &[u8], at: usize) -> Result<usize, Skip> {
    const HEADER: usize = 8;
    let is_part = be16(data, at + 2)? & 0xfff9 != 0;
    if is_part { Err(of_fragment(data[at])) } else { Ok(HEADER) }
}

/// What an IP packet carries that is not TCP: a tunnel.
fn carried(protocol: u8, data: &[u8]) -> Result<Layer<'_>, Skip> {
    match protocol {
        IP_IN_IP | IPV6_IN_IP => Ok(Layer::Ip(data)),
        GRE => gre(data),
        UDP => udp(data),
        AUTHENTICATION => match *data {
            [IP_IN_IP | IPV6_IN_IP, n, ..] => Ok(Layer::Ip(after(data, 4 * (usize::from(n) + 2))?)),
            _ => Err(Skip::NotTcp),
        },
        _ => Err(Skip::NotTcp),
    }
}

/// Generic routing encapsulation (RFC 2784, RFC 2890; version 1: RFC 2637).
fn gre(data: &[u8]) -> Result<Layer<'_>, Skip> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const NUMBER: u16 = 0x1000;
    const ACKNOWLEDGED: u16 = 0x0080;
    let (flags, kind) = (be16(data, 0)?, be16(data, 2)?);
    let version = flags & 7;
    let optional = if version == 1 { [KEY, NUMBER, ACKNOWLEDGED] } else { [CHECKSUM, KEY, NUMBER] };
    let rest = after(data, 4 + 4 * optional.iter().filter(|flag| flags & **flag != 0).count())?;
    Ok(match (version, kind) {
        (1, _) => Layer::Ppp(rest),
        // A mirrored port (ERSPAN): its second version has a number and a header.
        (_, 0x88be) if flags & NUMBER == 0 => Layer::Ethernet(rest),
        (_, 0x88be) => Layer::Ethernet(after(rest, 8)?),
        (_, 0x22eb) => {
            let more = if *rest.get(11).ok_or(Skip::Malformed)? & 1 == 0 { 0 } else { 8 };
            Layer::Ethernet(after(rest, 12 + more)?)
        }
        _ => Layer::Typed(kind, rest),
    })
}

/// Tunnels over UDP, by the port that they are sent to.
fn udp(data: &[u8]) -> Result<Layer<'_>, Skip> {
    let rest = after(data, 8)?;
    match be16(data, 2)? {
        // VXLAN (RFC 7348), and the port that Linux used before. The flag says that it has a
        // number.
        4789 | 8472 if rest.first().is_some_and(|flags| flags & 8 != 0) => {
            Ok(Layer::Ethernet(after(rest, 8)?))
        }
        // VXLAN-GPE names what follows.
        4790 => match rest.get(3) {
            Some(1 | 2) => Ok(Layer::Ip(after(rest, 8)?)),
            Some(3) => Ok(Layer::Ethernet(after(rest, 8)?)),
            _ => Err(Skip::NotTcp),
        },
        // Geneve (RFC 8926).
        6081 => {
            let options = 4 * usize::from(rest.first().ok_or(Skip::Malformed)? & 0x3f);
            Ok(Layer::Typed(be16(rest, 2)?, after(rest, 8 + options)?))
        }
        _ => Err(Skip::NotTcp),
    }
}
