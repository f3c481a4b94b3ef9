//! Integers of QUIC (RFC 9000, section 16).

/// The largest integer.
pub(super) const LARGEST: u64 = (1 << 62) - 1;

/// Reads an integer; `None`, and nothing is read: its end has not come.
#[inline]
pub fn varint(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let len = 1 << (first >> 6);
    let (bytes, rest) = input.split_at_checked(len)?;
    let all = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    *input = rest;
    // Without the two bits that say its length.
    Some(all & (u64::MAX >> (66 - 8 * len)))
}

/// Appends an integer in its shortest form. It is below 2^62.
#[inline]
pub fn put_varint(value: u64, out: &mut Vec<u8>) {
    debug_assert!(value <= LARGEST, "{value}");
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}
