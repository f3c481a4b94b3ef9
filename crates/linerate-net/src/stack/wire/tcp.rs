//! TCP headers (RFC 9293 section 3.1).

use std::ops::{BitOr, Range};

use super::malformed::Malformed;
use super::{Options, Seq};
use crate::ecn::Ecn;

/// Bytes of a header without options.
pub(crate) const TCP_HEADER: usize = 20;
/// Where the checksum is.
pub(super) const CHECKSUM: Range<usize> = 16..18;

/// The control bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    pub(crate) const FIN: Flags = Flags(1);
    pub(crate) const SYN: Flags = Flags(2);
    pub(crate) const RST: Flags = Flags(4);
    pub(crate) const PSH: Flags = Flags(8);
    pub(crate) const ACK: Flags = Flags(16);
    pub(crate) const URG: Flags = Flags(32);
    /// RFC 3168 section 6.1.
    pub(crate) const ECE: Flags = Flags(64);
    pub(crate) const CWR: Flags = Flags(128);

    /// Whether any flag of `other` is set.
    pub(crate) fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all flags of `other` are set.
    pub(crate) fn has_all(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// All flags of both, those of `other` only if `when`.
    pub(crate) fn with(self, other: Flags, when: bool) -> Flags {
        if when { self | other } else { self }
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpHeader {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    /// As it is in the header, not scaled.
    pub(crate) window: u16,
    /// Valid only with [`Flags::URG`].
    pub(crate) urgent: u16,
    /// Of the IP header in front.
    pub(crate) ecn: Ecn,
    pub(crate) options: Options,
}

impl TcpHeader {
    /// Parses a header that came with this field in front; also returns its length.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], ecn: Ecn) -> Result<(TcpHeader, usize), Malformed> {
        let fixed: &[u8; TCP_HEADER] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, _, _, u0, u1] = *fixed;
        let len = usize::from(offset >> 4) * 4;
        if len < TCP_HEADER {
            return Err(Malformed::Header);
        }
        let options = Options::parse(bytes.get(TCP_HEADER..len).ok_or(Malformed::Short)?)?;
        let header = TcpHeader {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            seq: Seq(u32::from_be_bytes([q0, q1, q2, q3])),
            ack: Seq(u32::from_be_bytes([a0, a1, a2, a3])),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            urgent: u16::from_be_bytes([u0, u1]),
            ecn,
            options,
        };
        Ok((header, len))
    }

    /// Whether a SYN asks for ECN (RFC 3168 section 6.1.1). One that is marked itself came through a
    /// network that sets the field to anything.
    pub(crate) fn asks_for_ecn(&self) -> bool {
        self.flags.has_all(Flags::ECE | Flags::CWR) && self.ecn == Ecn::NotCapable
    }

    /// Whether a SYN-ACK agrees to ECN. Both flags are an echo of what we asked.
    pub(crate) fn agrees_to_ecn(&self) -> bool {
        self.flags.has(Flags::ECE) && !self.flags.has(Flags::CWR)
    }

    /// Bytes including options.
    pub(crate) fn len(&self) -> usize {
        TCP_HEADER + self.options.len()
    }

    /// Writes the header into `out`, which must have its length; the checksum stays zero.
    pub(crate) fn emit(&self, out: &mut [u8]) {
        // One array, because many small copies are many calls.
        let Some((fixed, options)) = out.split_first_chunk_mut::<TCP_HEADER>() else { return };
        let ([s0, s1], [d0, d1]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        let [q0, q1, q2, q3] = self.seq.0.to_be_bytes();
        let [a0, a1, a2, a3] = self.ack.0.to_be_bytes();
        let offset = ((self.len() / 4) << 4) as u8;
        let ([w0, w1], [u0, u1]) = (self.window.to_be_bytes(), self.urgent.to_be_bytes());
        *fixed = [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, self.flags.0, w0, w1, 0, 0, u0, u1];
        self.options.emit(options);
    }
}
