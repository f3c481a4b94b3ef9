//! Checks that a body is what its Content-Encoding says. Pure functions.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;

use crate::limits::{CODED_BYTES, UNPACKED_BYTES};

/// A body in a coding that can be checked, as it comes.
#[derive(Debug)]
pub(crate) struct Coded {
    coding: String,
    bytes: Vec<u8>,
    /// It is larger than what is kept, so that it is not checked.
    is_large: bool,
}

impl Coded {
    /// `None`: the body has no coding that can be checked, or is a part of one (206).
    pub(crate) fn of(status: u16, coding: &str) -> Option<Coded> {
        let coding = coding.trim().to_ascii_lowercase();
        let known = matches!(coding.as_str(), "gzip" | "x-gzip" | "deflate") && status != 206;
        known.then(|| Coded { coding, bytes: Vec::new(), is_large: false })
    }

    /// More of the body.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.is_large |= self.bytes.len() + piece.len() > CODED_BYTES;
        if !self.is_large {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// How the body contradicts its Content-Encoding, in words that follow the server's name.
    pub(crate) fn fault(&self) -> Option<String> {
        // A response without a body (to HEAD, or 304) may name the coding that it would have.
        if self.is_large || self.bytes.is_empty() {
            return None;
        }
        let (what, body) = (&self.coding, self.bytes.as_slice());
        let error = match what.as_str() {
            // Many servers send the bare format under this name, and clients take both.
            "deflate" => unpack(ZlibDecoder::new(body)).and_then(|_| unpack(DeflateDecoder::new(body))),
            _ => unpack(GzDecoder::new(body)),
        }?;
        let begins = String::from_utf8_lossy(&body[..body.len().min(12)]);
        Some(match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                format!(
                    "says Content-Encoding: {what}, and its body ends in the middle of that ({} bytes)",
                    body.len()
                )
            }
            _ if what != "deflate" && body.starts_with(&[0x1f, 0x8b]) => {
                format!("says Content-Encoding: {what}, and its body is damaged: {error}")
            }
            _ => format!(
                "says Content-Encoding: {what}, and its body is something else: it begins with {begins:?}"
            ),
        })
    }
}

/// The share that gzip leaves of it.
pub(crate) fn packed_share(content: &[u8]) -> Option<f64> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(content).ok()?;
    Some(gzip.finish().ok()?.len() as f64 / content.len().max(1) as f64)
}

/// Why it cannot be unpacked.
fn unpack(mut from: impl Read) -> Option<std::io::Error> {
    let (mut buffer, mut all) = ([0; 16 << 10], 0);
    while all < UNPACKED_BYTES {
        match from.read(&mut buffer) {
            Ok(0) => return None,
            Ok(n) => all += n as u64,
            Err(e) => return Some(e),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use flate2::write::{DeflateEncoder, ZlibEncoder};

    use super::*;

    fn fault(coding: &str, body: &[u8]) -> Option<String> {
        let mut coded = Coded::of(200, coding).expect("a known coding");
        body.chunks(7).for_each(|piece| coded.take(piece));
        coded.fault()
    }

    #[test]
    fn a_body_is_what_its_coding_says_or_not() {
        let text = b"hello hello hello hello".repeat(20);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&text).expect("memory");
        let gzip = gzip.finish().expect("memory");
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).expect("memory");
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&text).expect("memory");
        assert_eq!(fault("gzip", &gzip), None);
        assert_eq!(fault(" GZIP", &[gzip.as_slice(), b"more"].concat()), None, "clients leave what follows");
        assert_eq!(fault("deflate", &zlib.finish().expect("memory")), None);
        assert_eq!(fault("deflate", &bare.finish().expect("memory")), None);
        assert_eq!(fault("gzip", b""), None, "the response to a HEAD");
        let word = |fault: Option<String>| fault.expect("a fault");
        assert!(word(fault("gzip", b"plain text")).contains("something else: it begins with \"plain text\""));
        assert!(word(fault("gzip", &gzip[..gzip.len() - 12])).contains("in the middle"));
        let mut damaged = gzip.clone();
        let last = damaged.len() - 6;
        damaged[last] ^= 0xff;
        assert!(word(fault("gzip", &damaged)).contains("damaged"), "its checksum");
        assert!(word(fault("deflate", b"plain text")).contains("something else"));
    }

    #[test]
    fn what_cannot_be_checked_is_not() {
        assert!(Coded::of(200, "br").is_none() && Coded::of(206, "gzip").is_none());
        assert_eq!(fault("gzip", &vec![b'x'; CODED_BYTES + 1]), None);
    }
}
