//! Queries each name server directly, to see which of them respond (RFC 1035).

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::limits::{NAME_SERVER_TIME, NAME_SERVERS};
use crate::probe::NameServer;

const A: u16 = 1;
const AAAA: u16 = 28;

/// Asks all that resolv.conf names, within so much time.
pub(super) fn ask_all(host: &str, within: Duration) -> Vec<NameServer> {
    let end = Instant::now() + within;
    let conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    servers(&conf)
        .into_iter()
        // A server is not asked if no time is left to wait: silence for an instant would prove
        // nothing.
        .take_while(|_| Instant::now() + 2 * NAME_SERVER_TIME <= end)
        .map(|address| NameServer { address, v4: ask(address, host, A), v6: ask(address, host, AAAA) })
        .collect()
}

/// The name servers of a resolv.conf(5), as many as the resolver uses.
fn servers(conf: &str) -> Vec<IpAddr> {
    let named = conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let address = |rest: &str| rest.trim().split('%').next()?.parse().ok();
    named.filter_map(address).take(NAME_SERVERS).collect()
}

/// Time until any reply about the name.
fn ask(server: IpAddr, host: &str, kind: u16) -> Option<Duration> {
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
            return Some(start.elapsed());
        }
    }
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
    fn servers_of_a_resolv_conf() {
        let conf = "# x\nsearch a b\nnameserver 10.0.0.1\n nameserver fe80::1%eth0\nnameserver x\nnameserver ::1\nnameserver 8.8.8.8\n";
        let all: Vec<String> = servers(conf).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.0.0.1", "fe80::1", "::1"]);
    }
}
