//! The field of IP headers for congestion (RFC 3168 section 5). The stack reads and writes it, and
//! simulated routers mark packets.

/// What a packet says about congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ecn {
    /// Routers must drop it in congestion.
    #[default]
    NotCapable = 0,
    /// Routers may mark it instead; what the RFC's ECT(1) and ECT(0) mean.
    Capable1 = 1,
    Capable = 2,
    /// A router has marked it.
    Marked = 3,
}

impl Ecn {
    /// The field in the second byte of an IPv4 header.
    pub(crate) fn of_v4(byte: u8) -> Ecn {
        match byte & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable,
            _ => Ecn::Marked,
        }
    }

    /// The field in the second byte of an IPv6 header.
    pub(crate) fn of_v6(byte: u8) -> Ecn {
        Ecn::of_v4(byte >> 4)
    }

    /// The second byte of an IPv4 header whose other bits are zero.
    pub(crate) fn to_v4(self) -> u8 {
        self as u8
    }

    /// The second byte of an IPv6 header whose other bits are zero.
    pub(crate) fn to_v6(self) -> u8 {
        (self as u8) << 4
    }

    /// What a router does in congestion: marks a packet that may be marked. Returns whether it was.
    pub(crate) fn mark(packet: &mut [u8]) -> bool {
        let Some((first, rest)) = packet.split_first_mut() else { return false };
        match (*first >> 4, rest) {
            (4, [class, _, _, _, _, _, _, _, _, sum0, sum1, ..]) if Ecn::of_v4(*class) != Ecn::NotCapable => {
                let added = Ecn::Marked.to_v4() - (*class & 3);
                *class += added;
                // RFC 1624: the checksum falls by what was added.
                let sum = u32::from(u16::from_be_bytes([*sum0, *sum1])) + 0xffff - u32::from(added);
                [*sum0, *sum1] = (((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
                true
            }
            (6, [class, ..]) if Ecn::of_v6(*class) != Ecn::NotCapable => {
                *class |= Ecn::Marked.to_v6();
                true
            }
            _ => false,
        }
    }
}
