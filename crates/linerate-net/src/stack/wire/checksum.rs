//! The Internet checksum (RFC 1071).

use super::Addr;

/// A sum under way. Everything added but the last must have an even length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes. The sum is taken in the machine's own byte order, eight bytes at a time: RFC 1071 section 2 (B) and (C).
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        let (mut low, mut high) = (0u64, 0u64);
        for chunk in &mut chunks {
            let word = chunk.first_chunk().map_or(0, |c| u64::from_ne_bytes(*c));
            low += word & 0xffff_ffff;
            high += word >> 32;
        }
        let mut last = [0; 8];
        let rest = chunks.remainder();
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        let word = u64::from_ne_bytes(last);
        // Packets are far too short for these to overflow.
        self.0 += low + high + (word & 0xffff_ffff) + (word >> 32);
    }

    /// The pseudo header of TCP (RFC 9293 section 3.1; IPv6: RFC 8200 section 8.1).
    pub(crate) fn add_pseudo_header(&mut self, src: &Addr, dst: &Addr, len: usize) {
        for address in [src, dst] {
            // What makes an IPv4 address one of IPv6 is 0xffff, which is nothing in this sum.
            for word in address.words() {
                self.0 += (word & 0xffff_ffff) + (word >> 32);
            }
        }
        self.0 += u64::from(u32::from_ne_bytes((len as u32).to_be_bytes()));
        self.0 += u64::from(u16::from_ne_bytes([0, super::ip::TCP]));
    }

    /// The checksum. Of bytes that contain their own, it is 0.
    pub(crate) fn finish(self) -> u16 {
        let mut sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(!(sum as u16))
    }
}
