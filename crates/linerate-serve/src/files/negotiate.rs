//! Content codings (RFC 9110 section 12.5.3).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Request;

/// A coding, the preferred ones first.
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

/// The codings that the client takes, the smallest first.
pub(super) fn accepted(request: &Request) -> impl Iterator<Item = Encoding> + use<> {
    let list = super::list(request, "accept-encoding").unwrap_or_default();
    let takes = [Encoding::Brotli, Encoding::Gzip].map(|e| (e, takes(&list, e.name())));
    takes.into_iter().filter_map(|(encoding, takes)| takes.then_some(encoding))
}

fn takes(list: &str, name: &str) -> bool {
    let mut any = false;
    for item in list.split(',') {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let refused = parts
            .filter_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")))
            .any(|q| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0));
        if coding.eq_ignore_ascii_case(name) {
            return !refused;
        }
        any |= coding == "*" && !refused;
    }
    any
}

/// A file, compressed quickly.
pub(super) fn gzip(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut text = vec![0; size as usize];
    file.read_exact_at(&mut text, 0)?;
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 3), Compression::new(5));
    encoder.write_all(&text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken() {
        for list in ["gzip", "br, gzip;q=0.5", "*", "GZIP", "identity, gzip ; q=1"] {
            assert!(takes(list, "gzip"), "{list}");
        }
        for list in ["", "br", "gzip;q=0", "gzip; q=0.0, *", "*;q=0", "xgzip"] {
            assert!(!takes(list, "gzip"), "{list}");
        }
    }
}
