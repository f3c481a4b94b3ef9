//! `Forwarded` (RFC 7239) and `X-Forwarded-For`: addresses that proxies append, each after the
//! last.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use linerate_http::server::RequestHead;

/// How many addresses are examined, from the last one on. Reason: each proxy adds one; clients can
/// add any number.
const HOPS: usize = 32;

/// The last address that does not belong to a trusted proxy. Entries before it may be forged, so
/// they are ignored. So is everything before an entry that is not an address.
///
/// Proxies write `Forwarded` or `X-Forwarded-For`, and pass the other one on as the client sent it.
/// If both exist and name different clients, one of them may be forged, so neither is used.
pub(super) fn client(head: &RequestHead, trusted: impl Fn(IpAddr) -> bool) -> Option<SocketAddr> {
    // Bytes that are not text keep their place, as an entry that is not an address.
    let lines = |name: &str| -> Vec<Cow<'_, str>> {
        let fields = head.fields().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| String::from_utf8_lossy(value)).collect()
    };
    let (forwarded, x_forwarded) = (lines("forwarded"), lines("x-forwarded-for"));
    let hops = forwarded.iter().flat_map(|line| split_unquoted(line, b',')).map(for_of).collect();
    let by_forwarded = last(hops, &trusted);
    let hops = x_forwarded.iter().flat_map(|line| line.split(',')).map(|hop| address(hop.trim())).collect();
    let by_x_forwarded = last(hops, &trusted);
    if forwarded.is_empty() {
        return by_x_forwarded;
    }
    let same = || by_forwarded.map(|at| at.ip()) == by_x_forwarded.map(|at| at.ip());
    by_forwarded.filter(|_| x_forwarded.is_empty() || same())
}

fn last(hops: Vec<Option<SocketAddr>>, trusted: impl Fn(IpAddr) -> bool) -> Option<SocketAddr> {
    let mut last = None;
    for hop in hops.into_iter().rev().take(HOPS) {
        let Some(hop) = hop else { break };
        last = Some(hop);
        if !trusted(hop.ip()) {
            break;
        }
    }
    last
}

fn split_unquoted(text: &str, at: u8) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        let was_escaped = escaped;
        escaped = quoted && !was_escaped && c == '\\';
        if c == '"' && !was_escaped {
            quoted = !quoted;
        }
        !quoted && c == char::from(at)
    })
}

/// The address in the `for` of an element. A malformed element gives nothing: a client that leaves
/// a quote open could otherwise absorb what proxies append.
fn for_of(element: &str) -> Option<SocketAddr> {
    let mut found = None;
    for pair in split_unquoted(element, b';') {
        let (name, value) = pair.split_once('=')?;
        let value = unquoted(value.trim())?;
        if name.trim().eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
    }
    address(found?)
}

/// The contents of quotes, or a value without quotes.
fn unquoted(value: &str) -> Option<&str> {
    let Some(quoted) = value.strip_prefix('"') else { return (!value.contains('"')).then_some(value) };
    let inner = quoted.strip_suffix('"')?;
    let mut escaped = false;
    for c in inner.chars() {
        if c == '"' && !escaped {
            return None;
        }
        escaped = c == '\\' && !escaped;
    }
    (!escaped).then_some(inner)
}

/// An address, with or without a port; IPv6 with or without brackets.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    // The unspecified address belongs to no client; elsewhere it stands for a Unix socket, which is
    // not limited.
    ip.or_else(|| text.parse().ok()).filter(|at| !at.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use linerate_http::server::{HeadReader, RequestLimits};

    use super::*;

    fn of(fields: &str) -> Option<String> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (head, _) = HeadReader::new(RequestLimits::default())
            .read(head.as_bytes(), 0)
            .expect("sound")
            .expect("whole");
        client(&head, |ip| ip.to_string().starts_with("10.")).map(|at| at.to_string())
    }

    #[test]
    fn the_last_that_is_not_trusted_counts() {
        for (fields, client) in [
            ("X-Forwarded-For: 192.0.2.1\r\n", Some("192.0.2.1:0")),
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.1, 10.0.0.1\r\n", Some("192.0.2.1:0")),
            ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 192.0.2.1:5,10.0.0.1\r\n", Some("192.0.2.1:5")),
            ("X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", Some("10.0.0.2:0")),
            ("X-Forwarded-For: 1.1.1.1, unknown, 10.0.0.1\r\n", Some("10.0.0.1:0")),
            ("X-Forwarded-For: unknown\r\n", None),
            ("X-Forwarded-For:\r\n", None),
            ("X-Forwarded-For: 2001:db8::1\r\n", Some("[2001:db8::1]:0")),
            ("X-Forwarded-For: [2001:db8::1]:7\r\n", Some("[2001:db8::1]:7")),
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 1.1.1.1\r\n", None),
            ("Forwarded: for=1.1.1.1\r\nX-Forwarded-For: unknown\r\n", None),
            ("Forwarded: for=unknown\r\nX-Forwarded-For: 1.1.1.1\r\n", None),
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1:5\r\n", Some("192.0.2.1:0")),
            ("X-Forwarded-For: \u{e9}, 192.0.2.1\r\n", Some("192.0.2.1:0")),
            ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: \u{e9}\r\n", None),
            ("X-Forwarded-For: 1.1.1.1, 0.0.0.0\r\n", None),
            ("Forwarded: for=1.1.1.1;x=\", for=192.0.2.1\r\n", None),
            ("Forwarded: for=1.1.1.1;x=\", for=\"192.0.2.1\"\r\n", None),
            ("Forwarded: for=1.1.1.1;x=\", for=\"192.0.2.1\";host=\"a\\\"b\"\r\n", None),
            ("Forwarded: for=1.1.1.1;x=\"\\, for=192.0.2.1\r\n", None),
            ("Forwarded: for=1.1.1.1;for=192.0.2.1\r\n", None),
            ("Forwarded: For=\"[2001:db8::1]:7\";proto=http, for=10.0.0.1;by=x\r\n", Some("[2001:db8::1]:7")),
            ("Forwarded: host=\"a,for=1.1.1.1\";for=192.0.2.1\r\n", Some("192.0.2.1:0")),
            ("Forwarded: host=\"\\\",for=1.1.1.1\";for=192.0.2.1\r\n", Some("192.0.2.1:0")),
            ("Forwarded: for=1.1.1.1, for=_hidden\r\n", None),
            ("Forwarded: proto=http\r\n", None),
            ("", None),
        ] {
            assert_eq!(of(fields).as_deref(), client, "{fields}");
        }
    }
}
