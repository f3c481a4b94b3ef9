//! Content codings (RFC 9110 section 12.5.3).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Request;

/// A content coding, the preferred ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Brotli,
    Gzip,
}

impl Encoding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Encoding::Brotli => "br",
            Encoding::Gzip => "gzip",
        }
    }

    pub(super) fn suffix(self) -> &'static str {
        match self {
            Encoding::Brotli => ".br",
            Encoding::Gzip => ".gz",
        }
    }
}

/// A list that may span several field lines (RFC 9110 section 5.3).
pub(super) fn list<'r>(request: &'r Request, name: &str) -> Option<Cow<'r, str>> {
    let fields = request.head().fields().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut lines = fields.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    let first = Cow::Borrowed(lines.next()?);
    Some(lines.fold(first, |all, line| {
        let mut all = all.into_owned();
        all.push(',');
        all.push_str(line);
        Cow::Owned(all)
    }))
}

/// The codings that the client accepts, by its preference and then by size.
pub(super) fn accepted(request: &Request) -> impl Iterator<Item = Encoding> + use<> {
    let list = list(request, "accept-encoding").unwrap_or_default();
    preferred(&list).into_iter().flatten()
}

fn preferred(list: &str) -> [Option<Encoding>; 2] {
    let mut codings = [Encoding::Brotli, Encoding::Gzip].map(|e| (e, weight(list, e.name()).unwrap_or(0)));
    codings.sort_by_key(|(_, weight)| Reverse(*weight));
    // A client that prefers the plain file names `identity`; a `*` does not.
    let plain = named(list, "identity").unwrap_or(0).max(1);
    codings.map(|(encoding, weight)| (weight >= plain).then_some(encoding))
}

/// The client's weight of a coding, in thousandths; `None` if it does not mention the coding.
fn weight(list: &str, name: &str) -> Option<u16> {
    named(list, name).or_else(|| named(list, "*"))
}

fn named(list: &str, name: &str) -> Option<u16> {
    let mut items = list.split(',').map(|item| item.split(';').map(str::trim));
    let mut parts = items.find_map(|mut parts| parts.next()?.eq_ignore_ascii_case(name).then_some(parts))?;
    let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
    let q = q.and_then(|q| q.trim().parse::<f32>().ok()).filter(|q| !q.is_nan());
    Some(q.map_or(1000, |q| (q.clamp(0.0, 1.0) * 1000.0).round() as u16))
}

/// Compresses a file, at a level from 1 (fast) to 9 (small).
pub(super) fn gzip(file: &File, size: u64, level: u8) -> io::Result<Vec<u8>> {
    let mut text = vec![0; size as usize];
    file.read_exact_at(&mut text, 0)?;
    let mut encoder =
        GzEncoder::new(Vec::with_capacity(text.len() / 3), Compression::new(u32::from(level.clamp(1, 9))));
    encoder.write_all(&text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken() {
        let takes = |list: &str| preferred(list).contains(&Some(Encoding::Gzip));
        for list in ["gzip", "br, gzip;q=0.5", "*", "GZIP", "identity, gzip ; q=1", "*;q=0, gzip;q=0.001"] {
            assert!(takes(list), "{list}");
        }
        for list in ["", "br", "gzip;q=0", "gzip; q=0.0, *", "*;q=0", "xgzip", "identity, gzip;q=0.9"] {
            assert!(!takes(list), "{list}");
        }
    }

    #[test]
    fn what_is_worth_more_comes_first() {
        let (br, gzip) = (Some(Encoding::Brotli), Some(Encoding::Gzip));
        for list in ["gzip, br", "*", "br;q=0.5, gzip;q=0.5", "br, gzip;q=0.9", "gzip;q=0.2, *;q=0.3"] {
            assert_eq!(preferred(list), [br, gzip], "{list}");
        }
        for list in
            ["gzip, br;q=0.9", "br;q=0.001, gzip;q=0.002", "*;q=0.5, gzip", "identity;q=0.1, br;q=0.1, gzip"]
        {
            assert_eq!(preferred(list), [gzip, br], "{list}");
        }
        assert_eq!(preferred("gzip, br;q=0.5, identity;q=0.7"), [gzip, None]);
    }
}
