//! The parts that HPACK and QPACK share: integers with a prefix, strings and Huffman codes
//! (RFC 7541 section 5, RFC 9204 section 4.1).

mod huffman;
mod table;

pub(crate) use table::DynamicTable;

/// Bytes that an entry of a dynamic table costs beside its own (RFC 7541 section 4.1, RFC 9204
/// section 3.2.1).
pub(crate) const ENTRY_COST: usize = 32;

/// The largest length or index in a field block. Reason: nothing in one is longer than a block may
/// be.
const LARGEST: u64 = 1 << 24;

/// A part that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodingError {
    /// The input ends in the middle of it.
    Short,
    /// An integer is larger than any that makes sense here.
    Integer,
    /// A Huffman code is not valid.
    Huffman,
    /// A string is longer than so many bytes.
    TooLong(usize),
}

/// Reads an integer with a prefix of `prefix` bits (RFC 7541, section 5.1).
pub(crate) fn integer(input: &mut &[u8], prefix: u32) -> Result<u64, CodingError> {
    integer_up_to(input, prefix, LARGEST)
}

/// Reads an integer that is at most `largest`, below 2^62.
pub(crate) fn integer_up_to(input: &mut &[u8], prefix: u32, largest: u64) -> Result<u64, CodingError> {
    let most = (1u64 << prefix) - 1;
    let (first, mut rest) = input.split_first().ok_or(CodingError::Short)?;
    let mut value = u64::from(*first) & most;
    if value == most {
        // Beyond 62 bits only zeros could follow, and nobody needs them.
        for shift in (0..=56).step_by(7) {
            let (byte, behind) = rest.split_first().ok_or(CodingError::Short)?;
            rest = behind;
            value += u64::from(byte & 0x7f) << shift;
            if value > largest {
                return Err(CodingError::Integer);
            }
            if byte & 0x80 == 0 {
                *input = rest;
                return Ok(value);
            }
        }
        return Err(CodingError::Integer);
    }
    *input = rest;
    Ok(value)
}

/// Appends the bytes of a string whose length has a prefix of `prefix` bits; the bit above them says
/// whether it is Huffman-coded. It may have `most` bytes as it is coded.
pub(crate) fn string(
    input: &mut &[u8],
    prefix: u32,
    most: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodingError> {
    let huffman = input.first().ok_or(CodingError::Short)? & 1 << prefix != 0;
    let len = integer(input, prefix)? as usize;
    // The shortest code has five bits, so that bytes grow by less than two thirds.
    if len > most {
        return Err(CodingError::TooLong(most));
    }
    let (bytes, rest) = input.split_at_checked(len).ok_or(CodingError::Short)?;
    *input = rest;
    if huffman {
        return huffman::decode(bytes, out);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends an integer with a prefix of `prefix` bits (RFC 7541, section 5.1).
#[inline]
pub(crate) fn put_integer(value: u64, prefix: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1 << prefix) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The bytes that hexadecimal digits stand for.
#[cfg(test)]
pub(crate) fn of_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back_up_to_the_largest_and_no_further() {
        for (value, prefix) in
            [(0, 1), (1, 1), (6, 3), (7, 3), (8, 3), (1337, 5), (1 << 40, 6), ((1 << 62) - 1, 8)]
        {
            let mut coded = Vec::new();
            put_integer(value, prefix, 0, &mut coded);
            let mut input = &coded[..];
            assert_eq!(integer_up_to(&mut input, prefix, value), Ok(value));
            assert!(input.is_empty(), "{value}");
            if coded.len() > 1 {
                let below = integer_up_to(&mut &coded[..], prefix, value - 1);
                assert_eq!(below, Err(CodingError::Integer), "{value}");
            }
            for end in 0..coded.len() {
                assert_eq!(integer_up_to(&mut &coded[..end], prefix, value), Err(CodingError::Short));
            }
        }
    }

    #[test]
    fn an_integer_without_end_is_refused() {
        for zeros in [b"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80".as_slice(), &[0xff; 64]] {
            assert_eq!(integer_up_to(&mut &zeros[..], 8, (1 << 62) - 1), Err(CodingError::Integer));
        }
    }

    #[test]
    fn strings_have_their_flag_above_the_prefix() {
        let mut out = Vec::new();
        string(&mut &b"\x03abc"[..], 7, 3, &mut out).unwrap();
        string(&mut &b"\x29\x1f"[..], 3, 3, &mut out).unwrap();
        assert_eq!(out, b"abca");
        assert_eq!(string(&mut &b"\x04abcd"[..], 7, 3, &mut out), Err(CodingError::TooLong(3)));
    }
}
