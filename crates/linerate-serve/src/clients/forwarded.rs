//! `Forwarded` (RFC 7239) and `X-Forwarded-For`: addresses that proxies have written down, each behind the last.

use std::net::{IpAddr, SocketAddr};

use linerate_http::server::RequestHead;

/// Most addresses that are looked at, from the last one on. Reason: each proxy adds one; clients can add as many as they like.
const HOPS: usize = 32;

/// The last address that is not a trusted proxy's. What is written before it may have been made up, so it counts for nothing; nor does
/// anything behind which something stands that is no address. `Forwarded` comes first, where there is one.
pub(super) fn client(head: &RequestHead, trusted: impl Fn(IpAddr) -> bool) -> Option<SocketAddr> {
    let lines = |name: &str| -> Vec<&str> {
        let fields = head.fields().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        fields.filter_map(|(_, value)| std::str::from_utf8(value).ok()).collect()
    };
    let forwarded = lines("forwarded");
    let hops: Vec<Option<SocketAddr>> = if forwarded.is_empty() {
        let lines = lines("x-forwarded-for");
        let hops = lines.iter().flat_map(|line| line.split(','));
        hops.map(|hop| address(hop.trim())).collect()
    } else {
        forwarded.iter().flat_map(|line| elements(line)).map(for_of).collect()
    };
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

/// The elements of a list whose values may be quoted.
fn elements(line: &str) -> impl Iterator<Item = &str> {
    split_unquoted(line, b',')
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

/// What the `for` of an element says.
fn for_of(element: &str) -> Option<SocketAddr> {
    let pairs = split_unquoted(element, b';').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?.1.trim();
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    address(value)
}

/// An address, with a port or without, an IPv6 one with brackets or without.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    ip.or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use linerate_http::server::{HeadReader, Limits};

    use super::*;

    fn of(fields: &str) -> Option<String> {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (head, _) =
            HeadReader::new(Limits::default()).read(head.as_bytes(), 0).expect("sound").expect("whole");
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
            ("Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 1.1.1.1\r\n", Some("192.0.2.1:0")),
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
