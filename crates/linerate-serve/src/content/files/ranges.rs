//! Ranges of a file (RFC 9110 section 14): parsing the request, and several ranges in one body.

use std::ops::Range;

use bytes::Bytes;

use crate::unpredictable::unpredictable;

/// Ranges of a request, at most. Reason: each costs a head of its own and a call. A request for
/// more gets the whole file, as RFC 9110 section 14.2 allows.
const MOST: usize = 16;

/// The meaning of a Range field for a file of some size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    /// None: it is malformed, or an attack.
    Ignored,
    /// All ranges begin behind the end.
    Unsatisfiable,
    /// These ranges, in the order of the request; none is empty.
    Parts(Vec<Range<u64>>),
}

/// Parses `bytes=0-4,10-`. A field with any error is ignored as a whole.
pub(super) fn parse(field: &str, size: u64) -> Ranges {
    let Some((unit, set)) = field.split_once('=') else { return Ranges::Ignored };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.split(',').count() > MOST {
        return Ranges::Ignored;
    }
    let mut parts = Vec::new();
    // Empty list elements are ignored (RFC 9110 section 5.6.1.2).
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        match range(spec, size) {
            None => return Ranges::Ignored,
            Some(part) if part.is_empty() => {}
            Some(part) => parts.push(part),
        }
    }
    if set.split(',').all(|spec| spec.trim().is_empty()) {
        return Ranges::Ignored;
    }
    match parts.len() {
        0 => Ranges::Unsatisfiable,
        1 => Ranges::Parts(parts),
        // Overlapping ranges would turn a small request into a large response (RFC 9110 section
        // 17.15).
        _ if overlapping(&parts) => Ranges::Ignored,
        _ => Ranges::Parts(parts),
    }
}

/// Parses one range; an empty one cannot be satisfied, and `None` is not a range.
fn range(spec: &str, size: u64) -> Option<Range<u64>> {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (first, last) = spec.split_once('-').filter(|(a, b)| digits(a) && digits(b))?;
    let number = |s: &str| s.parse::<u64>().unwrap_or(u64::MAX);
    let (start, end) = match (first, last) {
        ("", "") => return None,
        ("", suffix) => (size.saturating_sub(number(suffix)), if number(suffix) == 0 { 0 } else { size }),
        (first, "") => (number(first), size),
        (first, last) if number(last) < number(first) => return None,
        (first, last) => (number(first), number(last).saturating_add(1).min(size)),
    };
    Some(if start < end { start..end } else { 0..0 })
}

fn overlapping(parts: &[Range<u64>]) -> bool {
    let mut sorted: Vec<&Range<u64>> = parts.iter().collect();
    sorted.sort_by_key(|part| part.start);
    sorted.windows(2).any(|pair| pair[1].start < pair[0].end)
}

/// The text before each part and after the last; the boundary is for Content-Type.
pub(super) struct Multipart {
    pub(super) boundary: String,
    pub(super) parts: Vec<(Bytes, Range<u64>)>,
}

impl Multipart {
    /// RFC 9110 section 14.6. `kind`: the file's Content-Type.
    pub(super) fn new(parts: Vec<Range<u64>>, size: u64, kind: &str) -> Multipart {
        let boundary = boundary();
        let lead = |(i, part): (usize, Range<u64>)| {
            let line = if i == 0 { "" } else { "\r\n" };
            let (first, last) = (part.start, part.end - 1);
            let lead = format!(
                "{line}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n"
            );
            (Bytes::from(lead), part)
        };
        let mut parts: Vec<_> = parts.into_iter().enumerate().map(lead).collect();
        parts.push((Bytes::from(format!("\r\n--{boundary}--\r\n")), 0..0));
        Multipart { boundary, parts }
    }
}

/// It must not occur in the file, which is not searched for it: 128 unpredictable bits.
fn boundary() -> String {
    format!("{:016x}{:016x}", unpredictable(), unpredictable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let parts = |parts: &[(u64, u64)]| Ranges::Parts(parts.iter().map(|(from, to)| *from..*to).collect());
        let cases = [
            ("bytes=0-4", parts(&[(0, 5)])),
            ("bytes=5-", parts(&[(5, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("Bytes = 8-99999999999999999999", parts(&[(8, 10)])),
            ("bytes=0-1, 3-4", parts(&[(0, 2), (3, 5)])),
            ("bytes=-2,0-1", parts(&[(8, 10), (0, 2)])),
            ("bytes=0-1,,2-3,", parts(&[(0, 2), (2, 4)])),
            ("bytes=0-1,10-12", parts(&[(0, 2)])),
            ("bytes=10-", Ranges::Unsatisfiable),
            ("bytes=10-,20-30", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=4-2", Ranges::Ignored),
            ("bytes=0-1,4-2", Ranges::Ignored),
            ("bytes=0-5,4-8", Ranges::Ignored),
            ("bytes=0-,0-", Ranges::Ignored),
            ("bytes=a-b", Ranges::Ignored),
            ("bytes=-", Ranges::Ignored),
            ("bytes=", Ranges::Ignored),
            ("bytes=,", Ranges::Ignored),
            ("lines=1-2", Ranges::Ignored),
            ("bytes", Ranges::Ignored),
        ];
        for (field, ranges) in cases {
            assert_eq!(parse(field, 10), ranges, "{field}");
        }
        assert_eq!(parse("bytes=0-", 0), Ranges::Unsatisfiable);
        let many = |n: u64| (0..n).map(|i| format!("{}-{}", i * 2, i * 2)).collect::<Vec<_>>().join(",");
        assert!(matches!(parse(&format!("bytes={}", many(16)), 100), Ranges::Parts(p) if p.len() == 16));
        assert_eq!(parse(&format!("bytes={}", many(17)), 100), Ranges::Ignored);
    }

    #[test]
    fn parts_are_told_apart() {
        let many = Multipart::new(vec![0..2, 5..10], 10, "text/plain");
        let b = &many.boundary;
        assert_ne!(*b, boundary());
        let leads: Vec<_> = many.parts.iter().map(|(lead, _)| lead.clone()).collect();
        assert_eq!(
            leads[0],
            format!("--{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n")
        );
        assert_eq!(
            leads[1],
            format!("\r\n--{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 5-9/10\r\n\r\n")
        );
        assert_eq!(leads[2], format!("\r\n--{b}--\r\n"));
    }
}
