//! A table of byte classes, and small helpers for byte strings.

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;
const HEX: u8 = 16;

const CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric() || is_in(b, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        if b == b'\t' || (b >= 0x20 && b != 0x7f) {
            class |= VALUE;
        }
        // More than RFC 3986 allows: browsers send [ ] { } | ^ ` and, in a query, \ unescaped.
        if b > 0x20 && b < 0x7f && !is_in(b, b"\"<>#") {
            class |= TARGET;
        }
        // reg-name without the comma, which only ever separates two smuggled hosts.
        if b.is_ascii_alphanumeric() || is_in(b, b"-._~!$&'()*+;=%") {
            class |= HOST;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        table[i] = class;
        i += 1;
    }
    table
}

const fn is_in(b: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == b {
            return true;
        }
        i += 1;
    }
    false
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&b| CLASS[b as usize] & class != 0)
}

pub(super) fn is_token_byte(b: u8) -> bool {
    CLASS[b as usize] & TOKEN != 0
}

pub(super) fn is_value_byte(b: u8) -> bool {
    CLASS[b as usize] & VALUE != 0
}

/// RFC 9110 section 5.6.2; not empty.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// RFC 9110 section 5.5: visible, obs-text, SP and HTAB.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    // Without an early return the compiler can vectorize it.
    bytes.iter().fold(true, |all, &b| all & ((b >= 0x20) & (b != 0x7f) | (b == b'\t')))
}

pub(super) fn is_target(bytes: &[u8]) -> bool {
    all(bytes, TARGET)
}

pub(super) fn is_reg_name(bytes: &[u8]) -> bool {
    if !all(bytes, HOST) {
        return false;
    }
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| b == b'%') {
        if rest.len() < at + 3 || !all(&rest[at + 1..at + 3], HEX) {
            return false;
        }
        rest = &rest[at + 3..];
    }
    true
}

/// Strips SP and HTAB at both ends.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = bytes.iter().position(|b| !blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !blank(b)).map_or(start, |i| i + 1);
    &bytes[start..end]
}

/// 1*DIGIT that fits a u64.
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |n, &b| {
        b.is_ascii_digit().then_some(())?;
        n.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// Appends a number in decimal digits.
pub fn push_decimal(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number in lower-case hexadecimal digits.
pub fn push_hex(out: &mut Vec<u8>, n: u64) {
    let digits = (64 - n.leading_zeros()).div_ceil(4).max(1);
    for i in (0..digits).rev() {
        out.push(b"0123456789abcdef"[((n >> (i * 4)) & 15) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for n in [0, 1, 9, 10, 15, 16, 255, 256, 1_000_000, u64::MAX] {
            let (mut d, mut h) = (Vec::new(), Vec::new());
            push_decimal(&mut d, n);
            push_hex(&mut h, n);
            assert_eq!(d, n.to_string().into_bytes());
            assert_eq!(h, format!("{n:x}").into_bytes());
            assert_eq!(decimal(&d), Some(n));
        }
        for bad in ["", "+1", "-1", "1 ", "0x1", "1_0", "18446744073709551616"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn classes_of_bytes() {
        assert!(is_token(b"X-Abc_1") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a["));
        assert!(is_value(b"a \t\xff") && !is_value(b"\0") && !is_value(b"\x7f") && !is_value(b"\r"));
        assert!(
            is_reg_name(b"a%20b") && !is_reg_name(b"a%2") && !is_reg_name(b"a@b") && !is_reg_name(b"a,b")
        );
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
    }
}
