//! The two hellos of a handshake (RFC 8446, section 4.1; RFC 5246, section 7.4.1).

use super::keylog::Random;
use crate::passive::limits::TLS_NAME;

/// The parts of a client's hello that decryption needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientHello {
    pub(super) random: Random,
    /// The server's name (RFC 6066, section 3).
    pub(super) name: Option<String>,
}

/// The parts of a server's hello that decryption needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) random: Random,
    pub(super) suite: u16,
    /// It is TLS 1.3; else 1.2 or older.
    pub(super) is_new: bool,
}

/// The random number of a `HelloRetryRequest`, which is a `ServerHello` in form.
const RETRY: Random = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    /// A vector with a length prefix of `bytes` bytes (RFC 8446, section 3.4).
    fn counted(&mut self, bytes: usize) -> Option<Reader<'a>> {
        let n = self.number(bytes)?;
        self.take(n).map(Reader)
    }
}

/// The body of the first message, of this kind; what of it is in the record, since a hello may go on
/// in the next one.
fn message(record: &[u8], kind: u8) -> Option<Reader<'_>> {
    let mut reader = Reader(record);
    let found = reader.take(1)?[0];
    let len = reader.number(3)?;
    (found == kind).then(|| Reader(&reader.0[..len.min(reader.0.len())]))
}

/// Bodies of extensions by their numbers.
fn extension<'a>(list: &mut Reader<'a>, wanted: usize) -> Option<Reader<'a>> {
    loop {
        let (number, body) = (list.number(2)?, list.counted(2)?);
        if number == wanted {
            return Some(body);
        }
    }
}

/// Reads a `ClientHello` from the first record of a client.
pub(super) fn client(record: &[u8]) -> Option<ClientHello> {
    let mut body = message(record, 1)?;
    body.take(2)?;
    let random = body.take(32)?.try_into().ok()?;
    let mut name = || {
        body.counted(1)?;
        body.counted(2)?;
        body.counted(1)?;
        // The rest may be in the next record.
        body.take(2)?;
        let mut names = extension(&mut body, 0)?.counted(2)?;
        let is_host = names.take(1)? == [0];
        let name = names.counted(2)?.0;
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._".contains(b);
        let good = is_host && name.len() <= TLS_NAME && name.iter().all(plain);
        good.then(|| String::from_utf8_lossy(name).into_owned())
    };
    Some(ClientHello { random, name: name() })
}

/// Reads a `ServerHello` from the first record of a server. `None`: it is none, or one that asks for
/// another `ClientHello`.
pub(super) fn server(record: &[u8]) -> Option<ServerHello> {
    let mut body = message(record, 2)?;
    body.take(2)?;
    let random: Random = body.take(32)?.try_into().ok()?;
    body.counted(1)?;
    let suite = u16::try_from(body.number(2)?).ok()?;
    body.take(1)?;
    let version = body.counted(2).and_then(|mut list| extension(&mut list, 43)?.number(2));
    (random != RETRY).then_some(ServerHello { random, suite, is_new: version == Some(0x0304) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with these extensions after what all have.
    fn hello(kind: u8, middle: &[u8], extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend(middle);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut out = vec![kind, 0];
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn a_client_says_its_random_number_and_the_servers_name() {
        let name = [0, 0, 0, 8, 0, 6, 0, 0, 3, b'a', b'.', b'b'];
        let other = [0, 10, 0, 1, 9];
        let middle = [0, 0, 2, 0x13, 1, 1, 0];
        let whole = hello(1, &middle, &[other.as_slice(), &name].concat());
        let read = client(&whole).expect("a hello");
        assert_eq!((read.random, read.name.as_deref()), ([7; 32], Some("a.b")));
        assert_eq!(client(&whole[..60]).and_then(|h| h.name), None, "it goes on in the next record");
        assert!(client(&whole[..20]).is_none() && server(&whole).is_none());
    }

    #[test]
    fn a_server_says_the_suite_and_the_version() {
        let new = hello(2, &[0, 0x13, 1, 0], &[0, 51, 0, 1, 0, 0, 43, 0, 2, 3, 4]);
        assert_eq!(server(&new), Some(ServerHello { random: [7; 32], suite: 0x1301, is_new: true }));
        let old = hello(2, &[1, 9, 0xc0, 0x2f, 0], &[]);
        assert_eq!(server(&old), Some(ServerHello { random: [7; 32], suite: 0xc02f, is_new: false }));
        let mut retry = new;
        retry[6..38].copy_from_slice(&RETRY);
        assert_eq!(server(&retry), None);
    }
}
