//! Packets as bytes and as values. Each header has the same functions: `parse` checks bytes and
//! returns a value, `len` is the number of bytes that a value takes, `emit` writes them.

pub(crate) mod checksum;
mod icmp;
mod ip;
mod malformed;
mod options;
mod seq;
mod tcp;

pub(crate) use self::icmp::{IcmpMeaning, Message};
pub(crate) use self::ip::{Addr, IpHeader};
pub(crate) use self::malformed::Malformed;
pub(crate) use self::options::{Options, Sack};
pub(crate) use self::seq::Seq;
pub(crate) use self::tcp::{Flags, TCP_HEADER, TcpHeader};

use self::checksum::Sum;
pub(crate) use crate::ecn::Ecn;
use crate::link::Checksums;

/// A received segment with its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) src: Addr,
    pub(crate) dst: Addr,
    pub(crate) tcp: TcpHeader,
    /// Where in the packet the payload begins and ends.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Packet {
    /// Parses a packet that begins with its IP header.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], checksums: Checksums) -> Result<Packet, Malformed> {
        let ip = IpHeader::parse(bytes, checksums)?;
        let whole = bytes.get(ip.from..ip.to).ok_or(Malformed::Short)?;
        if checksums == Checksums::Full {
            let mut sum = Sum::default();
            sum.add_pseudo_header(&ip.src, &ip.dst, whole.len());
            sum.add(whole);
            if sum.finish() != 0 {
                return Err(Malformed::Checksum);
            }
        }
        let (tcp, header) = TcpHeader::parse(whole, ip.ecn)?;
        Ok(Packet { src: ip.src, dst: ip.dst, tcp, from: ip.from + header, to: ip.to })
    }
}

/// Bytes of headers before the payload.
pub(crate) fn headers_len(to: &Addr, tcp: &TcpHeader) -> usize {
    to.header_len() + tcp.len()
}

/// Writes headers and checksums around a payload that `fill` writes. `packet` must have the total
/// length.
pub(crate) fn emit(src: &Addr, dst: &Addr, tcp: &TcpHeader, packet: &mut [u8], fill: impl FnOnce(&mut [u8])) {
    let (ip, whole) = packet.split_at_mut(dst.header_len());
    IpHeader::emit(src, dst, whole.len(), tcp.ecn, ip);
    let (header, payload) = whole.split_at_mut(tcp.len());
    tcp.emit(header);
    fill(payload);
    let mut sum = Sum::default();
    sum.add_pseudo_header(src, dst, whole.len());
    sum.add(whole);
    whole[tcp::CHECKSUM].copy_from_slice(&sum.finish().to_be_bytes());
}

#[cfg(test)]
mod tests;
