//! The PROXY protocol of HAProxy, versions 1 and 2: a preface that names the client of a
//! connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest line of version 1.
const LINE: usize = 107;
/// The longest accepted preface of version 2. Reason: addresses take 36 bytes, and proxies add some
/// hundred more.
const MOST: usize = 2048;
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The beginning of a connection: a PROXY preface, or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preface {
    /// The beginning of a preface.
    Partial,
    /// A preface of this length, and the client; `None` if the proxy speaks for itself, or does not
    /// know the client.
    Whole(usize, Option<SocketAddr>),
    /// No preface.
    Wrong,
}

/// Parses a preface at the beginning of the received bytes.
pub(crate) fn preface(bytes: &[u8]) -> Preface {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(a, b)| a == b);
    if begins(SIGNATURE) {
        return if bytes.len() < 16 { Preface::Partial } else { second(bytes) };
    }
    if !begins(b"PROXY ") {
        return Preface::Wrong;
    }
    match bytes.iter().take(LINE).position(|b| *b == b'\n') {
        Some(end) => first(&bytes[..=end]).map_or(Preface::Wrong, |client| Preface::Whole(end + 1, client)),
        None if bytes.len() < LINE => Preface::Partial,
        None => Preface::Wrong,
    }
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`; the outer `None`: malformed.
fn first(line: &[u8]) -> Option<Option<SocketAddr>> {
    let line = std::str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let (from, to): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let port = |word: &str| word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse::<u16>().ok())?;
    let (from_port, _) = (port(words.next()?)?, port(words.next()?)?);
    let fits = match family {
        "TCP4" => from.is_ipv4() && to.is_ipv4(),
        "TCP6" => from.is_ipv6() && to.is_ipv6(),
        _ => false,
    };
    (fits && words.next().is_none()).then(|| somebody(SocketAddr::new(from, from_port)))
}

/// The unspecified address belongs to no client; elsewhere it stands for a Unix socket, which is
/// not limited.
fn somebody(client: SocketAddr) -> Option<SocketAddr> {
    (!client.ip().is_unspecified()).then_some(client)
}

fn second(bytes: &[u8]) -> Preface {
    let (command, family) = (bytes[12], bytes[13]);
    let len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let whole = 16 + len;
    if command >> 4 != 2 || command & 15 > 1 || whole > MOST {
        return Preface::Wrong;
    }
    let Some(body) = bytes.get(16..whole) else { return Preface::Partial };
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let client = match family {
        // LOCAL: a health check by the proxy itself.
        _ if command & 15 == 0 => None,
        0x11 if len >= 12 => {
            let ip = Ipv4Addr::new(body[0], body[1], body[2], body[3]);
            somebody(SocketAddr::new(ip.into(), port(8)))
        }
        0x21 if len >= 36 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&body[..16]);
            somebody(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32)))
        }
        0x11 | 0x21 => return Preface::Wrong,
        // Unix sockets and unknown families: no client to name.
        _ => None,
    };
    Preface::Whole(whole, client)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family], &len, body].concat()
    }

    #[test]
    fn prefaces() {
        let v4 = Some("192.0.2.1:258".parse().expect("an address"));
        let v6 = Some("[2001:db8::1]:258".parse().expect("an address"));
        let body4 = [192, 0, 2, 1, 10, 0, 0, 1, 1, 2, 0, 80, 99];
        let ip6: Ipv6Addr = "2001:db8::1".parse().expect("an address");
        let body6 = [&ip6.octets()[..], &[0; 16], &[1, 2, 0, 80]].concat();
        let good = [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 258 80\r\n".to_vec(), v4),
            (b"PROXY TCP6 2001:db8::1 ::1 258 80\r\n".to_vec(), v6),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN what ever\r\n".to_vec(), None),
            (v2(0x21, 0x11, &body4), v4),
            (v2(0x21, 0x21, &body6), v6),
            (b"PROXY TCP4 0.0.0.0 10.0.0.1 258 80\r\n".to_vec(), None),
            (v2(0x21, 0x21, &[0; 36]), None),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ];
        for (bytes, client) in good {
            let len = bytes.len();
            for cut in 0..len {
                assert_eq!(preface(&bytes[..cut]), Preface::Partial, "{cut} of {bytes:?}");
            }
            assert_eq!(preface(&bytes), Preface::Whole(len, client));
            assert_eq!(preface(&[&bytes[..], b"GET /"].concat()), Preface::Whole(len, client));
        }
        let wrong: [&[u8]; 9] = [
            b"GET / HTTP/1.1\r\n",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 258\r\n",
            b"PROXY TCP4 ::1 ::1 258 80\r\n",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 65536 80\r\n",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 +25 80\r\n",
            b"PROXY UDP4 192.0.2.1 10.0.0.1 258 80\r\n",
            b"PROXY UNKNOWN\n",
            &v2(0x11, 0x11, &body4),
            &v2(0x21, 0x11, &body4[..8]),
        ];
        for bytes in wrong {
            assert_eq!(preface(bytes), Preface::Wrong, "{bytes:?}");
        }
        assert_eq!(preface(&[b"PROXY ", &[b'x'; 200][..]].concat()), Preface::Wrong);
        assert_eq!(preface(&v2(0x21, 0x11, &[0; 4000])), Preface::Wrong);
    }
}
