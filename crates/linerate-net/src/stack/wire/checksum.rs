//! The Internet checksum (RFC 1071).

use super::Addr;

/// A running sum. All slices added, except the last, must have an even length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes. The sum is computed in native byte order, eight bytes at a time: RFC 1071
    /// section 2 (B) and (C).
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // Two sums, which become vectors. Chains of carries take fewer instructions and more time: 18 ns
        // instead of 11 for 640 bytes.
        let (words, rest) = bytes.as_chunks::<8>();
        let (mut low, mut high) = (0u64, 0u64);
        for word in words {
            let word = u64::from_ne_bytes(*word);
            low += word & 0xffff_ffff;
            high += word >> 32;
        }
        // Headers have zero or four more bytes.
        let (half, rest) = rest.as_chunks::<4>();
        if let [word] = half {
            low += u64::from(u32::from_ne_bytes(*word));
        }
        let word = match *rest {
            [] => 0,
            [a] => u32::from_ne_bytes([a, 0, 0, 0]),
            [a, b] => u32::from_ne_bytes([a, b, 0, 0]),
            [a, b, c, ..] => u32::from_ne_bytes([a, b, c, 0]),
        };
        // Packets are far too short for an overflow.
        self.0 += low + high + u64::from(word);
    }

    /// Adds TCP's pseudo header (RFC 9293 section 3.1; IPv6: RFC 8200 section 8.1).
    pub(crate) fn add_pseudo_header(&mut self, src: &Addr, dst: &Addr, len: usize) {
        for address in [src, dst] {
            // The prefix of a mapped IPv4 address is 0xffff, which is zero in this sum.
            for word in address.words() {
                self.0 += (word & 0xffff_ffff) + (word >> 32);
            }
        }
        self.0 += u64::from(u32::from_ne_bytes((len as u32).to_be_bytes()));
        self.0 += u64::from(u16::from_ne_bytes([0, super::ip::TCP]));
    }

    /// The checksum. It is 0 for bytes that contain their own checksum.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(!(sum as u16))
    }
}
