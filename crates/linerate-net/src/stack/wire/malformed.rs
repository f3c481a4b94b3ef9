//! What can be wrong with a packet.

/// Why a packet was rejected; each kind is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Shorter than its headers say.
    Short,
    /// Not TCP over IPv4 or IPv6, or a fragment: the link should not have passed it.
    NotOurs,
    /// A header that contradicts itself.
    Header,
    /// A checksum that does not match.
    Checksum,
}
