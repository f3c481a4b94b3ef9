//! Undoes content codings (RFC 9110 section 8.4.1) where a check reads the body. Decoded bytes are
//! passed on in pieces and never held as a whole.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::limits::{CODINGS, DECODED_BYTES};

/// A coding that can be taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Reads a Content-Encoding: the codings in the order in which they were applied.
///
/// # Errors
/// One is unknown, or there are too many.
pub(crate) fn codings(value: &[u8]) -> Result<Vec<Coding>, String> {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    let mut found = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "identity") {
        found.push(match name {
            "gzip" | "x-gzip" => Coding::Gzip,
            "deflate" => Coding::Deflate,
            "br" => Coding::Brotli,
            "zstd" => Coding::Zstd,
            _ => {
                return Err(format!(
                    "{:?} is no coding that can be taken off",
                    name.chars().take(20).collect::<String>()
                ));
            }
        });
    }
    if found.len() > CODINGS { Err(format!("more than {CODINGS} codings")) } else { Ok(found) }
}

/// Takes the codings off and hands on what is in them, at most [`DECODED_BYTES`].
///
/// # Errors
/// In words, what is broken; everything before it was handed on.
pub(crate) fn decode(codings: &[Coding], encoded: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let mut reader: Box<dyn BufRead + '_> = Box::new(encoded);
    for coding in codings.iter().rev() {
        reader = Box::new(BufReader::new(take_off(*coding, reader)));
    }
    let mut decoded = 0;
    loop {
        let piece = match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(piece) => piece,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(codings, &e)),
        };
        decoded += piece.len();
        if decoded > DECODED_BYTES {
            return Err(format!("it has more than {} MiB when the coding is taken off", DECODED_BYTES >> 20));
        }
        each(piece);
        let n = piece.len();
        reader.consume(n);
    }
}

/// A body whose content codings cannot be taken off: why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UndecodableBody(String);

/// Takes the codings of a Content-Encoding off a body (RFC 9110 section 8.4): gzip, deflate, br and zstd.
///
/// # Errors
/// A coding is unknown, or the body is not what it should be.
pub fn decode_body(content_encoding: &[u8], body: &[u8]) -> Result<Vec<u8>, UndecodableBody> {
    let codings = codings(content_encoding).map_err(UndecodableBody)?;
    let mut decoded = Vec::new();
    decode(&codings, body, |piece| decoded.extend_from_slice(piece)).map_err(UndecodableBody)?;
    Ok(decoded)
}

fn broken(codings: &[Coding], error: &io::Error) -> String {
    let names: Vec<&str> = codings.iter().map(|coding| coding.name()).collect();
    let names = names.join(", ");
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("{names}: it ends too early"),
        _ => format!("{names}: {error}"),
    }
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
}

fn take_off<'a>(coding: Coding, mut from: Box<dyn BufRead + 'a>) -> Box<dyn Read + 'a> {
    match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(from)),
        // "deflate" means the zlib format; some servers send it without (RFC 9110 section 8.4.1.2).
        Coding::Deflate => match from.fill_buf() {
            Ok([first, second, ..])
                if first & 15 == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0 =>
            {
                Box::new(ZlibDecoder::new(from))
            }
            _ => Box::new(DeflateDecoder::new(from)),
        },
        Coding::Brotli => Box::new(brotli_decompressor::Decompressor::new(from, 4096)),
        Coding::Zstd => Box::new(Zstd { from: Some(from), frame: None }),
    }
}

type Frame<'a> = ruzstd::decoding::StreamingDecoder<Box<dyn BufRead + 'a>, ruzstd::decoding::FrameDecoder>;

/// Consecutive frames (RFC 8878 section 3). The checksum of each is verified.
struct Zstd<'a> {
    from: Option<Box<dyn BufRead + 'a>>,
    frame: Option<Box<Frame<'a>>>,
}

impl Read for Zstd<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let invalid = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        loop {
            if let Some(mut from) = self.from.take() {
                if from.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.frame = Some(Box::new(Frame::new(from).map_err(|e| invalid(&e))?));
            }
            let Some(mut frame) = self.frame.take() else { return Ok(0) };
            let n = frame.read(to)?;
            if n > 0 || to.is_empty() {
                self.frame = Some(frame);
                return Ok(n);
            }
            let decoder = &frame.decoder;
            if let Some(said) = decoder.get_checksum_from_data()
                && decoder.get_calculated_checksum() != Some(said)
            {
                return Err(invalid(&"the checksum of a frame is another"));
            }
            self.from = Some(frame.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The text by Node's `brotliCompressSync`.
    const BROTLI: &[u8] = &[
        0x1b, 0xb7, 0x88, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x09, 0x52, 0x86, 0x96, 0x6c, 0x2c, 0x6f, 0x71,
        0x5b, 0x24, 0x70, 0x0d, 0x10, 0xe0, 0x38,
    ];

    fn text() -> Vec<u8> {
        b"hello, ".repeat(5000)
    }

    fn encoded(coding: Coding) -> Vec<u8> {
        let level = flate2::Compression::default();
        match coding {
            Coding::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
                gzip.write_all(&text()).unwrap();
                gzip.finish().unwrap()
            }
            Coding::Deflate => {
                let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
                zlib.write_all(&text()).unwrap();
                zlib.finish().unwrap()
            }
            Coding::Brotli => BROTLI.to_vec(),
            Coding::Zstd => {
                ruzstd::encoding::compress_to_vec(&text()[..], ruzstd::encoding::CompressionLevel::Fastest)
            }
        }
    }

    fn decoded(codings: &[Coding], bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        decode(codings, bytes, |piece| all.extend_from_slice(piece)).map(|()| all)
    }

    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    #[test]
    fn what_was_encoded_comes_out() {
        for coding in ALL {
            assert!(decoded(&[coding], &encoded(coding)) == Ok(text()), "{coding:?}");
        }
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        raw.write_all(&text()).unwrap();
        assert!(decoded(&[Coding::Deflate], &raw.finish().unwrap()) == Ok(text()));
        for coding in [Coding::Gzip, Coding::Zstd] {
            let twice = encoded(coding).repeat(2);
            assert!(decoded(&[coding], &twice) == Ok(text().repeat(2)), "{coding:?}");
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&encoded(Coding::Zstd)).unwrap();
        assert!(decoded(&[Coding::Zstd, Coding::Gzip], &gzip.finish().unwrap()) == Ok(text()));
    }

    #[test]
    fn what_is_broken_is_an_error_and_never_a_panic() {
        for coding in ALL {
            let whole = encoded(coding);
            for cut in 1..whole.len() {
                assert!(
                    decoded(&[coding], &whole[..cut]).is_err(),
                    "{coding:?} cut at {cut} of {}",
                    whole.len()
                );
            }
            for at in 0..whole.len() {
                let mut wrong = whole.clone();
                wrong[at] ^= 0x55;
                let _ = decoded(&[coding], &wrong);
            }
            assert!(decoded(&[coding], b"plain text, not encoded at all").is_err(), "{coding:?}");
        }
        let mut wrong = encoded(Coding::Gzip);
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert!(decoded(&[Coding::Gzip], &wrong).is_err());
    }

    #[test]
    fn what_swells_beyond_the_limit_is_given_up() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::copy(&mut std::io::repeat(0).take(DECODED_BYTES as u64 + 1), &mut gzip).unwrap();
        let mut most = 0;
        let error =
            decode(&[Coding::Gzip], &gzip.finish().unwrap(), |piece| most += piece.len()).unwrap_err();
        assert!(error.contains("more than") && most <= DECODED_BYTES, "{error}");
    }

    #[test]
    fn codings_are_read_in_their_order() {
        assert_eq!(codings(b"gzip"), Ok(vec![Coding::Gzip]));
        assert_eq!(codings(b"zstd, X-GZIP,br"), Ok(vec![Coding::Zstd, Coding::Gzip, Coding::Brotli]));
        assert_eq!(codings(b"identity"), Ok(vec![]));
        assert!(codings(b"compress").unwrap_err().contains("compress"));
        assert!(codings(b"br,br,br,br,br").is_err());
    }
}
