//! Bytes that pass over a connection before TLS or HTTP with the target begins. Sans-IO.
//!
//! CONNECT is RFC 9110 section 9.3.6. The PROXY protocol is HAProxy's `proxy-protocol.txt`; as in curl, its line goes through the
//! tunnel of a proxy, and the addresses in it are those of our connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linerate_http::client::{Expect, HeadCache, HeadView, ResponseLimits, ResponsePart, ResponseReader};

use serde::{Deserialize, Serialize};

use super::proxy::Proxy;
use crate::limits::{CONNECT_HEAD_BYTES, REFUSAL_CHARS};

/// Which form the line of the PROXY protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HaproxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl HaproxyVersion {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            HaproxyVersion::V1 => "v1",
            HaproxyVersion::V2 => "v2",
        }
    }
}

/// The first bytes of connections that go the same way.
#[derive(Debug)]
pub struct Preamble {
    connect: Option<Connect>,
    haproxy: Option<HaproxyVersion>,
}

/// The request for a tunnel.
#[derive(Debug)]
struct Connect {
    head: Vec<u8>,
    to: String,
    proxy: String,
    has_user: bool,
}

impl Preamble {
    /// `None`: nothing comes before TLS or HTTP.
    pub fn new(proxy: Option<&Proxy>, haproxy: Option<HaproxyVersion>) -> Option<Arc<Preamble>> {
        let connect = proxy.and_then(Connect::through);
        (connect.is_some() || haproxy.is_some()).then(|| Arc::new(Preamble { connect, haproxy }))
    }
}

impl Connect {
    fn through(proxy: &Proxy) -> Option<Connect> {
        let to = proxy.tunnel.clone()?;
        let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        if let Some(value) = proxy.authorization() {
            head.push_str(&format!("Proxy-Authorization: {value}\r\n"));
        }
        head.push_str("\r\n");
        Some(Connect {
            head: head.into_bytes(),
            to,
            proxy: proxy.url.clone(),
            has_user: proxy.user.is_some(),
        })
    }

    fn refused(&self, head: HeadView<'_>) -> String {
        let reason = readable(head.reason());
        let by = match head.get(b"server").or(head.get(b"via")).map(readable) {
            Some(by) if !by.is_empty() => format!(" (said by {by})"),
            _ => String::new(),
        };
        let more = match (head.status(), self.has_user) {
            // Some proxies say 401.
            (401 | 407, false) => {
                ": it wants a user and a password in the proxy's URL, http://USER:PASSWORD@HOST:PORT"
            }
            (401 | 407, true) => ": it does not accept this user and password",
            (403, _) => ": it does not connect to this host and port",
            (502..=504, _) => ": it could not reach the server",
            _ => "",
        };
        let status = format!("{} {reason}", head.status());
        format!("the proxy {} answered CONNECT {} with {}{by}{more}", self.proxy, self.to, status.trim_end())
    }
}

/// A peer's own words, for a terminal.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|c| !c.is_control()).take(REFUSAL_CHARS).collect()
}

/// How far a connection's preamble has come.
enum PreambleStage {
    /// The proxy has not responded.
    Asked(Box<(ResponseReader, HeadCache)>),
    Done,
    /// Why, and the proxy's status if it responded.
    Failed(String, Option<u16>),
}

/// The proxy of a connection has not opened a tunnel: it refused, failed, or has not responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxySilence {
    /// The status of its response to CONNECT.
    pub status: Option<u16>,
}

/// The preamble of one connection.
pub(super) struct Introduction {
    preamble: Arc<Preamble>,
    stage: PreambleStage,
    peer: SocketAddr,
    local: Option<SocketAddr>,
}

/// The proxy opened no tunnel; [`Introduction::reason`] says why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused;

impl Introduction {
    pub(super) fn new(preamble: Arc<Preamble>, peer: SocketAddr) -> Introduction {
        let stage = match preamble.connect {
            Some(_) => {
                let limits = ResponseLimits { head_bytes: CONNECT_HEAD_BYTES, ..ResponseLimits::default() };
                PreambleStage::Asked(Box::new((ResponseReader::new(limits), HeadCache::new())))
            }
            None => PreambleStage::Done,
        };
        Introduction { preamble, stage, peer, local: None }
    }

    /// Whether the line of the PROXY protocol names our end.
    pub(super) fn wants_local(&self) -> bool {
        self.preamble.haproxy.is_some()
    }

    pub(super) fn set_local(&mut self, local: Option<SocketAddr>) {
        self.local = local;
    }

    /// Appends what leaves first.
    pub(super) fn begin(&self, wire: &mut Vec<u8>) {
        match &self.preamble.connect {
            Some(connect) => wire.extend_from_slice(&connect.head),
            None => self.introduce(wire),
        }
    }

    /// The path to the target is there, and nothing more is to be said.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, PreambleStage::Done)
    }

    /// Takes bytes of the proxy and appends the next bytes for it. Returns how many belonged to the proxy's response.
    pub(super) fn open(&mut self, bytes: &[u8], wire: &mut Vec<u8>) -> Result<usize, Refused> {
        let (PreambleStage::Asked(reading), Some(connect)) = (&mut self.stage, &self.preamble.connect) else {
            return Ok(0);
        };
        let (reader, cache) = &mut **reading;
        let mut input = bytes;
        let mut status = None;
        let why = loop {
            match reader.next(cache, &mut input, Expect::Connect) {
                Ok(None) => return Ok(bytes.len()),
                Ok(Some(ResponsePart::Head(head))) if !(200..300).contains(&head.status()) => {
                    status = Some(head.status());
                    break connect.refused(head);
                }
                Ok(Some(ResponsePart::End(_))) => {
                    self.stage = PreambleStage::Done;
                    self.introduce(wire);
                    return Ok(bytes.len() - input.len());
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    break format!("the proxy {} did not answer CONNECT in HTTP: {error}", connect.proxy);
                }
            }
        };
        Err(self.fail(why, status))
    }

    /// The proxy sent its FIN before its response.
    pub(super) fn cut(&mut self) -> Refused {
        let connect = self.preamble.connect.as_ref();
        let (proxy, to) = connect.map_or(("", ""), |c| (c.proxy.as_str(), c.to.as_str()));
        self.fail(format!("the proxy {proxy} closed the connection instead of answering CONNECT {to}"), None)
    }

    fn fail(&mut self, why: String, status: Option<u16>) -> Refused {
        self.stage = PreambleStage::Failed(why, status);
        Refused
    }

    /// The connection failed, in these words, before the proxy responded.
    pub(super) fn lost(&mut self, error: &str) {
        if let (PreambleStage::Asked(_), Some(connect)) = (&self.stage, &self.preamble.connect) {
            let why = format!("the proxy {} did not answer CONNECT {}: {error}", connect.proxy, connect.to);
            self.stage = PreambleStage::Failed(why, None);
        }
    }

    /// Why the proxy opened no tunnel, or that it has not responded.
    pub(super) fn reason(&self) -> Option<String> {
        match (&self.stage, &self.preamble.connect) {
            (PreambleStage::Failed(why, _), _) => Some(why.clone()),
            (PreambleStage::Asked(_), Some(c)) => {
                Some(format!("the proxy {} did not answer CONNECT {} in time", c.proxy, c.to))
            }
            _ => None,
        }
    }

    /// What is known of a proxy that has opened no tunnel.
    pub(super) fn silence(&self) -> Option<ProxySilence> {
        let status = match self.stage {
            PreambleStage::Done => return None,
            PreambleStage::Asked(_) => None,
            PreambleStage::Failed(_, status) => status,
        };
        Some(ProxySilence { status })
    }

    /// Appends the line of the PROXY protocol.
    fn introduce(&self, wire: &mut Vec<u8>) {
        match self.preamble.haproxy {
            Some(HaproxyVersion::V1) => line(self.local, self.peer, wire),
            Some(HaproxyVersion::V2) => binary(self.local, self.peer, wire),
            None => {}
        }
    }
}

/// Version 1: a line of text.
fn line(local: Option<SocketAddr>, peer: SocketAddr, wire: &mut Vec<u8>) {
    let text = match local.map(|local| (local.ip(), peer.ip(), local.port(), peer.port())) {
        Some((IpAddr::V4(from), IpAddr::V4(to), from_port, to_port)) => {
            format!("PROXY TCP4 {from} {to} {from_port} {to_port}\r\n")
        }
        Some((IpAddr::V6(from), IpAddr::V6(to), from_port, to_port)) => {
            format!("PROXY TCP6 {from} {to} {from_port} {to_port}\r\n")
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    };
    wire.extend_from_slice(text.as_bytes());
}

/// Version 2: a signature, version and command (PROXY), family and protocol (STREAM), a length, and both ends.
fn binary(local: Option<SocketAddr>, peer: SocketAddr, wire: &mut Vec<u8>) {
    wire.extend_from_slice(b"\r\n\r\n\0\r\nQUIT\n\x21");
    let mut ends = Vec::with_capacity(36);
    let family: u8 = match local.map(|local| (local.ip(), peer.ip())) {
        Some((IpAddr::V4(from), IpAddr::V4(to))) => {
            ends.extend_from_slice(&[from.octets(), to.octets()].concat());
            0x11
        }
        Some((IpAddr::V6(from), IpAddr::V6(to))) => {
            ends.extend_from_slice(&[from.octets(), to.octets()].concat());
            0x21
        }
        _ => 0x00,
    };
    if let (Some(local), 1..) = (local, family) {
        ends.extend_from_slice(&local.port().to_be_bytes());
        ends.extend_from_slice(&peer.port().to_be_bytes());
    }
    wire.push(family);
    // Two addresses and two ports are 36 bytes at most.
    wire.extend_from_slice(&(ends.len() as u16).to_be_bytes());
    wire.append(&mut ends);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduction(preamble: Option<Arc<Preamble>>, peer: &str, local: Option<&str>) -> Introduction {
        let preamble = preamble.expect("there is a preamble");
        let mut introduction = Introduction::new(preamble, peer.parse().expect("an address"));
        introduction.set_local(local.map(|local| local.parse().expect("an address")));
        introduction
    }

    fn tunnel(user: Option<&str>, haproxy: Option<HaproxyVersion>) -> Introduction {
        let proxy = Proxy {
            url: "http://proxy:3128".to_owned(),
            from: "--proxy".to_owned(),
            user: user.map(str::to_owned),
            tunnel: Some("h:443".to_owned()),
        };
        introduction(Preamble::new(Some(&proxy), haproxy), "127.0.0.1:3128", Some("127.0.0.1:4000"))
    }

    fn begun(introduction: &Introduction) -> String {
        let mut wire = Vec::new();
        introduction.begin(&mut wire);
        String::from_utf8(wire).expect("text")
    }

    fn refused(mut introduction: Introduction, answer: &str) -> String {
        assert_eq!(introduction.open(answer.as_bytes(), &mut Vec::new()), Err(Refused), "{answer}");
        introduction.reason().expect("noted")
    }

    #[test]
    fn connect_names_host_and_user() {
        let introduction = tunnel(Some("ada:secret"), None);
        let head =
            "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nProxy-Authorization: Basic YWRhOnNlY3JldA==\r\n\r\n";
        assert_eq!(begun(&introduction), head);
        assert!(!introduction.is_done());
    }

    /// RFC 9110 section 9.3.6: any 2xx opens the tunnel, and Content-Length in it means nothing.
    #[test]
    fn what_follows_the_answer_is_the_targets_whatever_the_cuts() {
        let answer =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\n";
        let all = [&answer[..], b"of the target"].concat();
        for cut in 1..=all.len() {
            let mut introduction = tunnel(None, Some(HaproxyVersion::V1));
            let (mut wire, mut rest) = (Vec::new(), Vec::new());
            for piece in [&all[..cut], &all[cut..]] {
                let used = if introduction.is_done() {
                    0
                } else {
                    introduction.open(piece, &mut wire).expect("2xx")
                };
                rest.extend_from_slice(&piece[used..]);
            }
            assert!(introduction.is_done());
            assert_eq!(rest, b"of the target", "{cut}");
            assert_eq!(wire, b"PROXY TCP4 127.0.0.1 127.0.0.1 4000 3128\r\n", "behind the tunnel, once");
        }
    }

    #[test]
    fn a_refusal_says_who_answered_what() {
        let said = refused(
            tunnel(None, None),
            "HTTP/1.1 407 Proxy Authentication Required\r\nServer: squid/5\r\n\r\n",
        );
        assert_eq!(
            said,
            "the proxy http://proxy:3128 answered CONNECT h:443 with 407 Proxy Authentication Required (said by squid/5): it wants \
             a user and a password in the proxy's URL, http://USER:PASSWORD@HOST:PORT"
        );
        let said = refused(tunnel(Some("a:b"), None), "HTTP/1.1 407 No\r\n\r\n");
        assert!(said.ends_with("with 407 No: it does not accept this user and password"), "{said}");
        let said = refused(tunnel(None, None), "HTTP/1.0 403\r\n\r\n");
        assert!(said.ends_with("with 403: it does not connect to this host and port"), "{said}");
        let said = refused(tunnel(None, None), "HTTP/1.1 502 Bad Gateway\r\n\r\n");
        assert!(said.ends_with("with 502 Bad Gateway: it could not reach the server"), "{said}");
        let said = refused(tunnel(None, None), "SSH-2.0-OpenSSH_9.2\r\n");
        assert!(said.contains("did not answer CONNECT in HTTP"), "{said}");
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(CONNECT_HEAD_BYTES as usize));
        let said = refused(tunnel(None, None), &long);
        assert!(said.contains("did not answer CONNECT in HTTP"), "{said}");
        let mut closed = tunnel(None, None);
        assert_eq!(closed.cut(), Refused);
        let said = closed.reason().expect("noted");
        assert_eq!(
            said,
            "the proxy http://proxy:3128 closed the connection instead of answering CONNECT h:443"
        );
    }

    #[test]
    fn the_line_of_the_proxy_protocol_as_its_text_has_it() {
        let of = |version, peer: &str, local: Option<&str>| {
            let introduction = introduction(Preamble::new(None, Some(version)), peer, local);
            assert!(introduction.is_done() && introduction.wants_local());
            let mut wire = Vec::new();
            introduction.begin(&mut wire);
            wire
        };
        let v1 = HaproxyVersion::V1;
        assert_eq!(
            of(v1, "192.0.2.1:80", Some("192.0.2.9:4000")),
            b"PROXY TCP4 192.0.2.9 192.0.2.1 4000 80\r\n"
        );
        assert_eq!(of(v1, "[::1]:80", Some("[::2]:4000")), b"PROXY TCP6 ::2 ::1 4000 80\r\n");
        assert_eq!(of(v1, "0.0.0.0:0", None), b"PROXY UNKNOWN\r\n");
        let v2 = HaproxyVersion::V2;
        assert_eq!(
            of(v2, "192.0.2.1:80", Some("192.0.2.9:4000")),
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x09\xc0\x00\x02\x01\x0f\xa0\x00\x50"
        );
        assert_eq!(of(v2, "[::1]:80", Some("[::2]:4000")).len(), 16 + 36);
        assert_eq!(of(v2, "0.0.0.0:0", None), b"\r\n\r\n\0\r\nQUIT\n\x21\x00\x00\x00");
    }
}
