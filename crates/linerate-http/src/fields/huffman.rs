//! The Huffman code of HPACK and QPACK (RFC 7541, section 5.2 and appendix B).

use super::CodingError;

/// Bits of each byte's code. The code is canonical, so that the lengths say all of it.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23,
    23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26,
    27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const LONGEST: usize = 30;

struct Code {
    /// Bytes in the order of their codes.
    bytes: [u8; 256],
    /// By length: the first code, and where its byte is in `bytes`.
    first: [u32; LONGEST + 1],
    place: [u16; LONGEST + 1],
    /// By length: the first code that is longer, left-aligned in 32 bits.
    end: [u32; LONGEST + 1],
}

const CODE: Code = {
    let mut code =
        Code { bytes: [0; 256], first: [0; LONGEST + 1], place: [0; LONGEST + 1], end: [0; LONGEST + 1] };
    let (mut next, mut placed, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.place[length] = placed as u16;
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                code.bytes[placed] = byte as u8;
                placed += 1;
                next += 1;
            }
            byte += 1;
        }
        code.end[length] = next << (32 - length);
        length += 1;
    }
    code
};

/// Codes of at most eight bits, by the eight bits that begin with them: length and byte. Length 0:
/// the code is longer.
const SHORT: [(u8, u8); 256] = {
    let mut table = [(0, 0); 256];
    let mut bits = 0;
    while bits < 256 {
        let window = (bits as u32) << 24;
        let mut length = 5;
        while length <= 8 {
            if table[bits].0 == 0 && window < CODE.end[length] {
                table[bits] = (length as u8, symbol(window, length));
            }
            length += 1;
        }
        bits += 1;
    }
    table
};

const fn symbol(window: u32, length: usize) -> u8 {
    let nth = (window >> (32 - length)) - CODE.first[length];
    CODE.bytes[CODE.place[length] as usize + nth as usize]
}

/// Appends the bytes that `coded` stands for.
///
/// # Errors
/// The code of the end of a string, or padding that is not the beginning of it.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let mut input = coded.iter();
    // The next bits, left-aligned; below them ones, as padding has them.
    let (mut bits, mut held) = (u64::MAX, 0);
    loop {
        while held <= 56
            && let Some(byte) = input.next()
        {
            let shift = 56 - held;
            bits = bits & !(0xff << shift) | u64::from(*byte) << shift;
            held += 8;
        }
        if held == 0 {
            return Ok(());
        }
        let (length, byte) = next(bits)?.unwrap_or((u32::MAX, 0));
        if length > held {
            // Only the padding is left: less than a byte of ones.
            return if held < 8 && bits == u64::MAX { Ok(()) } else { Err(CodingError::Huffman) };
        }
        out.push(byte);
        held -= length;
        bits = bits << length | ((1 << length) - 1);
    }
}

/// Length and byte of the code that the bits begin with; `None`: the end of a string.
fn next(bits: u64) -> Result<Option<(u32, u8)>, CodingError> {
    let window = (bits >> 32) as u32;
    let (length, byte) = SHORT[(window >> 24) as usize];
    if length > 0 {
        return Ok(Some((u32::from(length), byte)));
    }
    let length = (9..=LONGEST).find(|length| window < CODE.end[*length]);
    match length {
        Some(length) => Ok(Some((length as u32, symbol(window, length)))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    /// The code of each byte, as RFC 7541, appendix B, lists it.
    fn coded(bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut bits, mut held) = (Vec::new(), 0u64, 0);
        for byte in bytes {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let begin = usize::from(CODE.place[length]);
            let nth = CODE.bytes[begin..].iter().position(|b| b == byte).unwrap() as u32;
            bits = bits << length | u64::from(CODE.first[length] + nth);
            held += length;
            while held >= 8 {
                held -= 8;
                out.push((bits >> held) as u8);
            }
        }
        if held > 0 {
            out.push((bits << (8 - held)) as u8 | ((1u16 << (8 - held)) - 1) as u8);
        }
        out
    }

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&coded(&all)).unwrap(), all);
        for byte in 0..=255 {
            assert_eq!(decoded(&coded(&[byte])).unwrap(), [byte]);
        }
    }

    #[test]
    fn rfc7541_appendix_b_has_these_codes() {
        assert_eq!(CODE.end[LONGEST], 0x3fff_ffff << 2, "the last code is the end of a string");
        assert_eq!(coded(b"www.example.com"), *b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(coded(b"\n"), *b"\xff\xff\xff\xf3");
    }

    #[test]
    fn rfc7541_5_2_padding_is_less_than_a_byte_of_ones() {
        assert_eq!(decoded(b"\x1f").unwrap(), b"a");
        assert_eq!(decoded(b"\x18"), Err(CodingError::Huffman), "zeros");
        assert_eq!(decoded(b"\x1f\xff"), Err(CodingError::Huffman), "a whole byte");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), Err(CodingError::Huffman), "the end of a string");
    }
}
