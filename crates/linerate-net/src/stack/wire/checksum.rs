//! The Internet checksum (RFC 1071).

use super::Addr;

/// A running sum in ones' complement. All slices added, except the last, must have an even length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes. The sum is computed in native byte order, eight bytes at a time: RFC 1071
    /// section 2 (B) and (C).
    #[inline]
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (rows, rest) = bytes.as_chunks::<32>();
        let mut sum = self.0;
        for row in rows {
            let [a, b, c, d] = words(row);
            // One chain of carries, which processors have an instruction for.
            let (next, carry) = sum.overflowing_add(a);
            let (next, carry) = next.carrying_add(b, carry);
            let (next, carry) = next.carrying_add(c, carry);
            let (next, carry) = next.carrying_add(d, carry);
            sum = add(next, u64::from(carry));
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sum = add(sum, u64::from_ne_bytes(*word));
        }
        // Headers have zero or four more bytes.
        let (half, rest) = rest.as_chunks::<4>();
        if let [word] = half {
            sum = add(sum, u64::from(u32::from_ne_bytes(*word)));
        }
        let word = match *rest {
            [] => 0,
            [a] => u32::from_ne_bytes([a, 0, 0, 0]),
            [a, b] => u32::from_ne_bytes([a, b, 0, 0]),
            [a, b, c, ..] => u32::from_ne_bytes([a, b, c, 0]),
        };
        self.0 = add(sum, u64::from(word));
    }

    /// Adds TCP's pseudo header (RFC 9293 section 3.1; IPv6: RFC 8200 section 8.1).
    pub(crate) fn add_pseudo_header(&mut self, src: &Addr, dst: &Addr, len: usize) {
        for address in [src, dst] {
            // The prefix of a mapped IPv4 address is 0xffff, which is zero in this sum.
            for word in address.words() {
                self.0 = add(self.0, word);
            }
        }
        let protocol = u64::from(u16::from_ne_bytes([0, super::ip::TCP]));
        self.0 = add(self.0, u64::from(u32::from_ne_bytes((len as u32).to_be_bytes())) + protocol);
    }

    /// The checksum. It is 0 for bytes that contain their own checksum.
    pub(crate) fn finish(self) -> u16 {
        let (sum, carry) = (self.0 as u32).overflowing_add((self.0 >> 32) as u32);
        let sum = sum + u32::from(carry);
        let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
        u16::from_be(!(sum + u16::from(carry)))
    }
}

/// Adds in ones' complement: a carry comes back in at the other end.
#[inline]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

fn words(row: &[u8; 32]) -> [u64; 4] {
    let (words, _) = row.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_ne_bytes(words[i]))
}
