//! The keys of TLS records, and how a record is opened (RFC 8446, sections 5.2 and 7; RFC 5246,
//! section 6; RFC 5288; RFC 7905).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;

/// The algorithms of a cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    /// One that can be opened.
    Known { aead: Aead, sha384: bool },
    /// CBC, and so a MAC before the padding.
    Cbc,
    /// Another one.
    Other,
}

/// An algorithm for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aead {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl Suite {
    /// By its number (IANA's TLS Cipher Suites).
    pub(crate) fn of(number: u16) -> Suite {
        use Aead::{Aes128Gcm, Aes256Gcm, ChaCha20Poly1305};
        let known = |aead, sha384| Suite::Known { aead, sha384 };
        match number {
            0x1301 | 0x009c | 0x009e | 0x00a0 | 0x00a2 | 0x00a8 | 0x00aa => known(Aes128Gcm, false),
            0xc02b | 0xc02d | 0xc02f | 0xc031 | 0xd001 => known(Aes128Gcm, false),
            0x1302 | 0x009d | 0x009f | 0x00a1 | 0x00a3 | 0x00a9 | 0x00ab => known(Aes256Gcm, true),
            0xc02c | 0xc02e | 0xc030 | 0xc032 | 0xd002 => known(Aes256Gcm, true),
            0x1303 | 0xcca8..=0xccae => known(ChaCha20Poly1305, false),
            0x000a | 0x000d | 0x0010 | 0x0013 | 0x0016 | 0x002f..=0x0040 | 0x0041..=0x0046 => Suite::Cbc,
            0x0067..=0x006d | 0x0084..=0x0089 | 0x008b..=0x0095 | 0x00ae..=0x00c5 => Suite::Cbc,
            0xc003..=0xc005 | 0xc008..=0xc00a | 0xc00d..=0xc00f | 0xc012..=0xc014 => Suite::Cbc,
            0xc017..=0xc019 | 0xc01a..=0xc02a | 0xc034..=0xc038 | 0xc072..=0xc079 => Suite::Cbc,
            _ => Suite::Other,
        }
    }
}

impl Aead {
    fn key_len(self) -> usize {
        match self {
            Aead::Aes128Gcm => 16,
            Aead::Aes256Gcm | Aead::ChaCha20Poly1305 => 32,
        }
    }

    fn key(self, bytes: &[u8]) -> Option<LessSafeKey> {
        let algorithm = match self {
            Aead::Aes128Gcm => &aead::AES_128_GCM,
            Aead::Aes256Gcm => &aead::AES_256_GCM,
            Aead::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, bytes).ok().map(LessSafeKey::new)
    }
}

/// Opens the records of one direction, by one key.
#[derive(Debug)]
pub(crate) struct Cipher {
    key: LessSafeKey,
    iv: [u8; 12],
    how: How,
    /// The number of the next record.
    pub(crate) next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// TLS 1.3.
    New,
    /// TLS 1.2 with eight bytes of the nonce in each record.
    Explicit,
    /// TLS 1.2 with `ChaCha20-Poly1305`.
    Implicit,
}

/// Bytes of a tag of all these algorithms.
pub(crate) const TAG: usize = 16;

impl Cipher {
    /// Of TLS 1.3, from a traffic secret.
    pub(crate) fn of_secret(aead: Aead, sha384: bool, secret: &[u8]) -> Option<Cipher> {
        let key = aead.key(&expand_label(sha384, secret, b"key", aead.key_len()))?;
        let iv = expand_label(sha384, secret, b"iv", 12).try_into().ok()?;
        Some(Cipher { key, iv, how: How::New, next: 0 })
    }

    /// Of TLS 1.2: the client's and the server's.
    pub(crate) fn of_master(
        aead: Aead,
        sha384: bool,
        master: &[u8],
        client: &[u8; 32],
        server: &[u8; 32],
    ) -> Option<[Cipher; 2]> {
        let (keys, implicit) = (aead.key_len(), aead == Aead::ChaCha20Poly1305);
        let ivs = if implicit { 12 } else { 4 };
        let seed = [b"key expansion", server.as_slice(), client].concat();
        let block = prf(sha384, master, &seed, 2 * (keys + ivs));
        let how = if implicit { How::Implicit } else { How::Explicit };
        let one = |n: usize| {
            let key = aead.key(&block[n * keys..(n + 1) * keys])?;
            let mut iv = [0; 12];
            iv[..ivs].copy_from_slice(&block[2 * keys + n * ivs..2 * keys + (n + 1) * ivs]);
            Some(Cipher { key, iv, how, next: 0 })
        };
        Some([one(0)?, one(1)?])
    }

    /// The content of a record, and its kind, where it is record `number`. `header`: its first five
    /// bytes.
    pub(crate) fn open(&self, number: u64, header: [u8; 5], record: &[u8]) -> Option<(u8, Vec<u8>)> {
        let (nonce, sealed) = match self.how {
            How::Explicit => {
                let (explicit, sealed) = record.split_at_checked(8)?;
                let mut nonce = self.iv;
                nonce[4..].copy_from_slice(explicit);
                (nonce, sealed)
            }
            How::New | How::Implicit => {
                let mut nonce = self.iv;
                nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(n, b)| *n ^= b);
                (nonce, record)
            }
        };
        let len = sealed.len().checked_sub(TAG)?;
        let [kind, ..] = header;
        let aad = match self.how {
            How::New => header.to_vec(),
            How::Explicit | How::Implicit => {
                let length = u16::try_from(len).ok()?.to_be_bytes();
                [number.to_be_bytes().as_slice(), &header[..3], &length].concat()
            }
        };
        let mut bytes = sealed.to_vec();
        self.key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(&aad), &mut bytes).ok()?;
        bytes.truncate(len);
        if self.how != How::New {
            return Some((kind, bytes));
        }
        // The kind is the last byte that is not zero; what follows it is padding.
        let at = bytes.iter().rposition(|b| *b != 0)?;
        let kind = bytes[at];
        bytes.truncate(at);
        Some((kind, bytes))
    }

    /// Bytes of content in a record of this length; with TLS 1.3 at most, since padding may be there.
    pub(crate) fn content_len(&self, record: usize) -> usize {
        let extra = match self.how {
            How::New => 1,
            How::Explicit => 8,
            How::Implicit => 0,
        };
        record.saturating_sub(TAG + extra)
    }
}

/// The secret that follows after a `KeyUpdate` (RFC 8446, section 7.2).
pub(crate) fn updated(sha384: bool, secret: &[u8]) -> Vec<u8> {
    expand_label(sha384, secret, b"traffic upd", secret.len())
}

fn hash(sha384: bool) -> hmac::Algorithm {
    if sha384 { hmac::HMAC_SHA384 } else { hmac::HMAC_SHA256 }
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) without a context, of at most one block.
fn expand_label(sha384: bool, secret: &[u8], label: &[u8], len: usize) -> Vec<u8> {
    let mut info = (len as u16).to_be_bytes().to_vec();
    info.push((6 + label.len()) as u8);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label);
    info.extend([0, 1]);
    let mut out = hmac::sign(&hmac::Key::new(hash(sha384), secret), &info).as_ref().to_vec();
    out.truncate(len);
    out
}

/// The pseudorandom function of TLS 1.2 (RFC 5246, section 5); `seed` begins with the label.
fn prf(sha384: bool, secret: &[u8], seed: &[u8], len: usize) -> Vec<u8> {
    let key = hmac::Key::new(hash(sha384), secret);
    let (mut a, mut out) = (hmac::sign(&key, seed), Vec::new());
    while out.len() < len {
        out.extend_from_slice(hmac::sign(&key, &[a.as_ref(), seed].concat()).as_ref());
        a = hmac::sign(&key, a.as_ref());
    }
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).expect("ASCII"), 16).expect("hex");
        digits.chunks(2).map(pair).collect()
    }

    /// RFC 8448, section 3: the server's handshake secret, key and IV.
    #[test]
    fn keys_of_a_traffic_secret() {
        let secret = hex(
            "b6 7b 7d 69 0c c1 6c 4e 75 e5 42 13 cb 2d 37 b4 e9 c9 12 bc de d9 10 5d 42 be fd 59 d3 91 ad 38",
        );
        assert_eq!(
            expand_label(false, &secret, b"key", 16),
            hex("3f ce 51 60 09 c2 17 27 d0 f2 e4 e8 6e e4 03 bc")
        );
        assert_eq!(expand_label(false, &secret, b"iv", 12), hex("5d 31 3e b2 67 12 76 ee 13 00 0b 30"));
    }

    /// The widely used test vector for P_SHA256.
    #[test]
    fn the_pseudorandom_function_of_tls_1_2() {
        let secret = hex("9b be 43 6b a9 40 f0 17 b1 76 52 84 9a 71 db 35");
        let seed = [b"test label".to_vec(), hex("a0 ba 9f 93 6c da 31 18 27 a6 f7 96 ff d5 19 8c")].concat();
        let out = prf(false, &secret, &seed, 100);
        assert_eq!(out[..16], hex("e3 f2 29 ba 72 7b e1 7b 8d 12 26 20 55 7c d4 53"));
        assert_eq!(out.len(), 100);
    }

    #[test]
    fn suites_by_their_number() {
        assert_eq!(Suite::of(0x1302), Suite::Known { aead: Aead::Aes256Gcm, sha384: true });
        assert_eq!(Suite::of(0xc02f), Suite::Known { aead: Aead::Aes128Gcm, sha384: false });
        assert_eq!(Suite::of(0xcca9), Suite::Known { aead: Aead::ChaCha20Poly1305, sha384: false });
        assert_eq!(
            (Suite::of(0xc014), Suite::of(0x002f), Suite::of(0x1304)),
            (Suite::Cbc, Suite::Cbc, Suite::Other)
        );
    }

    #[test]
    fn no_record_is_too_short_to_be_refused() {
        let cipher = Cipher::of_secret(Aead::Aes128Gcm, false, &[7; 32]).expect("a key");
        for len in 0..40 {
            assert_eq!(cipher.open(0, [23, 3, 3, 0, len as u8], &vec![0; len]), None);
        }
        let old = Cipher::of_master(Aead::Aes128Gcm, false, &[7; 48], &[1; 32], &[2; 32]).expect("keys");
        assert_eq!(old[0].open(0, [23, 3, 3, 0, 4], &[0; 4]), None);
        assert_eq!((old[0].content_len(24), old[1].content_len(30)), (0, 6));
    }
}
