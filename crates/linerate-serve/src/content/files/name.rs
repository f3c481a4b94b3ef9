//! File names as request paths spell them.

/// The name beneath the root that a path means, as bytes, which need not be UTF-8. It drops empty
/// and `.` segments and decodes percent-encoding. It refuses `..`, hidden files (except
/// `.well-known`, RFC 8615) and encoded separators.
pub(crate) fn file_name(path: &str) -> Result<Vec<u8>, u16> {
    let mut name = Vec::new();
    for segment in path.split('/').filter(|s| !s.is_empty() && *s != ".") {
        let decoded = decode(segment).ok_or(400u16)?;
        if decoded.iter().any(|b| matches!(b, b'/' | 0)) || decoded == b".." {
            return Err(400);
        }
        if decoded.starts_with(b".") && decoded != b".well-known" {
            return Err(404);
        }
        if !name.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(&decoded);
    }
    Ok(name)
}

pub(super) fn decode(segment: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [b, tail @ ..] = rest {
        if *b == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            let digit = |b: u8| char::from(b).to_digit(16);
            bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
            rest = tail;
        } else {
            bytes.push(*b);
            rest = tail;
        }
    }
    Some(bytes)
}
