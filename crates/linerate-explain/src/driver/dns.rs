//! Queries each name server directly, to see which of them respond (RFC 1035).

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::limits::{NAME_SERVER_TIME, NAME_SERVERS};
use crate::probe::NameServer;

const A: u16 = 1;
const AAAA: u16 = 28;

/// Asks all that resolv.conf names, within so much time; and the first one for the names that a
/// resolver tries before this one.
pub(super) fn ask_all(host: &str, within: Duration) -> Vec<NameServer> {
    let end = Instant::now() + within;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut before = tried_before(&conf, host);
    servers(&conf)
        .into_iter()
        // A server is not asked if no time is left to wait: silence for an instant would prove
        // nothing.
        .take_while(|_| Instant::now() + NAME_SERVER_TIME <= end)
        .map(|address| {
            let [v4, v6] = ask_both(address, host);
            let asked = std::mem::take(&mut before);
            let in_time = |_: &String| Instant::now() + NAME_SERVER_TIME <= end;
            let asked = asked.into_iter().take_while(in_time).map(|name| {
                let [a, aaaa] = ask_both(address, &name).map(|reply| reply.map(|r| r.took));
                (name, a.max(aaaa))
            });
            let asked = asked.collect();
            NameServer { address, v4: v4.map(|r| r.took), v6: v6.map(|r| r.took), asked }
        })
        .collect()
}

/// The addresses that the first name server to reply has, of both families, each asked for on a socket of
/// its own: where the system's resolver waits for one of the replies, a caller may continue with the other.
pub(super) fn addresses(host: &str, within: Duration) -> Vec<IpAddr> {
    let end = Instant::now() + within;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let in_time = |_: &IpAddr| Instant::now() + NAME_SERVER_TIME <= end;
    let found = servers(&conf).into_iter().take_while(in_time).map(|server| {
        ask_both(server, host).into_iter().flatten().flat_map(|reply| reply.addresses).collect::<Vec<_>>()
    });
    found.into_iter().find(|addresses| !addresses.is_empty()).unwrap_or_default()
}

/// The name servers of a resolv.conf(5), as many as the resolver uses.
fn servers(conf: &str) -> Vec<IpAddr> {
    let named = conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let address = |rest: &str| rest.trim().split('%').next()?.parse().ok();
    named.filter_map(address).take(NAME_SERVERS).collect()
}

/// Names that a resolver asks for before a name with fewer dots than `ndots`: with each of the search
/// domains behind it (resolv.conf(5)).
fn tried_before(conf: &str, host: &str) -> Vec<String> {
    let words = |key: &str| {
        let line = conf.lines().rev().find_map(|line| line.trim().strip_prefix(key).map(str::to_owned));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let options = conf.lines().filter_map(|line| line.trim().strip_prefix("options"));
    let mut ndots =
        options.flat_map(str::split_whitespace).filter_map(|o| o.strip_prefix("ndots:")?.parse().ok());
    let ndots: usize = ndots.next_back().unwrap_or(1);
    let mut domains = words("search");
    if domains.is_empty() {
        domains = words("domain");
    }
    if host.ends_with('.') || host.matches('.').count() >= ndots {
        return Vec::new();
    }
    domains.iter().take(SEARCHED).map(|domain| format!("{host}.{}", domain.trim_end_matches('.'))).collect()
}

/// Search domains that are looked at. Reason: the resolver's own limit (MAXDNSRCH).
const SEARCHED: usize = 6;

/// A reply about a name.
struct DnsReply {
    took: Duration,
    addresses: Vec<IpAddr>,
}

/// For both kinds of addresses at once.
fn ask_both(server: IpAddr, host: &str) -> [Option<DnsReply>; 2] {
    std::thread::scope(|scope| {
        let asked = [A, AAAA].map(|kind| scope.spawn(move || ask(server, host, kind)));
        asked.map(|reply| reply.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Any reply about the name.
fn ask(server: IpAddr, host: &str, kind: u16) -> Option<DnsReply> {
    let local: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(local).ok()?;
    socket.connect((server, 53)).ok()?;
    let start = Instant::now();
    let id = (start.elapsed().subsec_nanos() as u16) ^ std::process::id() as u16 ^ kind;
    socket.send(&query(id, host, kind)?).ok()?;
    let mut buffer = [0; 1500];
    loop {
        let left = NAME_SERVER_TIME.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
        socket.set_read_timeout(Some(left)).ok()?;
        let n = socket.recv(&mut buffer).ok()?;
        if is_answer(&buffer[..n], id) {
            let addresses = addresses_in(&buffer[..n]).unwrap_or_default();
            return Some(DnsReply { took: start.elapsed(), addresses });
        }
    }
}

/// The addresses in a reply (RFC 1035, section 4.1.3); `None`: it is cut short.
fn addresses_in(reply: &[u8]) -> Option<Vec<IpAddr>> {
    let number = |at: usize| Some(u16::from_be_bytes(reply.get(at..at + 2)?.try_into().ok()?));
    let name_end = |mut at: usize| loop {
        match *reply.get(at)? {
            0 => return Some(at + 1),
            // The rest of the name is elsewhere (section 4.1.4).
            length if length & 0xc0 != 0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    };
    let mut at = 12;
    for _ in 0..number(4)? {
        at = name_end(at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..number(6)? {
        at = name_end(at)?;
        let (kind, length) = (number(at)?, usize::from(number(at + 8)?));
        let data = reply.get(at + 10..at + 10 + length)?;
        match kind {
            A => found.extend(<[u8; 4]>::try_from(data).ok().map(IpAddr::from)),
            AAAA => found.extend(<[u8; 16]>::try_from(data).ok().map(IpAddr::from)),
            _ => {}
        }
        at += 10 + length;
    }
    Some(found)
}

/// A query for one kind of record (RFC 1035, section 4.1). `None`: the name cannot be written so.
fn query(id: u16, host: &str, kind: u16) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend(id.to_be_bytes());
    // Recursion desired; one question.
    bytes.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in host.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|n| (1..=63).contains(n))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    Some(bytes)
}

/// Whether it is the reply to our question: its number, and the response bit.
fn is_answer(bytes: &[u8], id: u16) -> bool {
    bytes.len() >= 12 && bytes[..2] == id.to_be_bytes() && bytes[2] & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_as_the_rfc_has_it() {
        let bytes = query(0x1234, "a.example.", AAAA).expect("a name");
        let wanted = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x1c\x00\x01";
        assert_eq!(bytes, wanted);
        assert_eq!(query(1, "a..b", A), None);
        assert_eq!(query(1, &"x".repeat(64), A), None);
        let mut answer = bytes.clone();
        assert!(!is_answer(&answer, 0x1234), "a question is no answer");
        answer[2] |= 0x80;
        assert!(
            is_answer(&answer, 0x1234) && !is_answer(&answer, 0x1235) && !is_answer(&answer[..11], 0x1234)
        );
    }

    #[test]
    fn addresses_of_a_reply_and_names_that_are_tried_before() {
        let mut reply = query(7, "a.example", A).expect("a name");
        (reply[2], reply[7]) = (0x81, 2);
        // An alias, then an address of it.
        reply.extend(b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x00\x00\x04\x01b\xc0\x0e");
        reply.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x0a\x00\x00\x07");
        assert_eq!(addresses_in(&reply), Some(vec![IpAddr::from([10, 0, 0, 7])]));
        assert_eq!(addresses_in(&reply[..reply.len() - 1]), None);
        let conf = "search x.svc.local svc.local\nnameserver ::1\noptions timeout:1 ndots:5\n";
        assert_eq!(
            tried_before(conf, "api.example.com"),
            ["api.example.com.x.svc.local", "api.example.com.svc.local"]
        );
        assert_eq!(tried_before(conf, "api.example.com."), [""; 0]);
        assert_eq!(tried_before("search x\n", "api.example.com"), [""; 0]);
        assert_eq!(tried_before("domain x\n", "api"), ["api.x"]);
    }

    #[test]
    fn servers_of_a_resolv_conf() {
        let conf = "# x\nsearch a b\nnameserver 10.0.0.1\n nameserver fe80::1%eth0\nnameserver x\nnameserver ::1\nnameserver 8.8.8.8\n";
        let all: Vec<String> = servers(conf).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.0.0.1", "fe80::1", "::1"]);
    }
}
