//! The checks of the fuzz targets; ordinary tests replay their corpora.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::PoisonError;

use linerate_net::layer::{Layer, Progress, Session};
use linerate_net::{Listener, NetError, NetErrorKind, Profile};
use rustls::pki_types::{CertificateDer, ServerName};

use crate::issuer::why;
use crate::limits::HELD;
use crate::x509::CertificateFacts;
use crate::{ClientOptions, Identity, Roots, ServerOptions, TlsLayer, TlsSession, Version};

const CLIENT: Profile = Profile(1);
const SERVER: Profile = Profile(2);
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
/// Valid for a hundred years. Its key is no secret.
const CERTIFICATE: &[u8] = include_bytes!("localhost.pem");
const KEY: &[u8] = include_bytes!("localhost.key.pem");
/// Bytes that a script has one side send. Reason: an input of a few bytes could ask for gigabytes.
const SENT: usize = 256 << 10;

/// One side of the connection.
struct FuzzedEnd {
    session: TlsSession,
    /// Its last progress; after another than `Open` it takes no bytes.
    progress: Progress,
    /// What it sent that has not arrived.
    wire: Vec<u8>,
    /// What its application has sent and received.
    sent: usize,
    received: usize,
    is_finished: bool,
    /// Bytes came to it that were never sent, or not all that were sent.
    is_disturbed: bool,
}

impl FuzzedEnd {
    fn new(session: TlsSession) -> FuzzedEnd {
        let (progress, wire) = (Progress::Open, Vec::new());
        FuzzedEnd { session, progress, wire, sent: 0, received: 0, is_finished: false, is_disturbed: false }
    }

    /// Takes bytes from the wire.
    fn open(&mut self, bytes: &mut [u8], from: &SentBytes) {
        // rustls asserts in debug builds that no alert follows `close_notify`, which a faulty peer
        // can cause; in others the alert is sent.
        if self.progress != Progress::Open || self.is_finished && self.is_disturbed {
            return;
        }
        let received = &mut self.received;
        self.progress = self.session.open(bytes, &mut |plain: &mut [u8]| {
            for byte in plain.iter() {
                assert_eq!(*byte, nth(*received), "{} bytes sent", from.bytes);
                *received += 1;
            }
            assert!(*received <= from.bytes, "bytes that nobody sent");
        });
        if self.progress == Progress::Ended {
            assert!(from.is_finished || !self.session.is_ready(), "an end that nobody sent");
        }
        assert!(self.session.held() <= HELD + bytes.len(), "bounded");
        let before = self.wire.len();
        self.session.reply(&mut self.wire);
        assert!(self.wire.len() - before <= 32 << 10, "a reply of {} bytes", self.wire.len() - before);
        self.look();
    }

    /// None of these may panic, whatever the state.
    fn look(&self) {
        let _ = (self.session.reason(), self.session.protocol(), self.session.seen(), self.session.about());
    }

    fn send(&mut self, len: usize) {
        let len = len.min(SENT.saturating_sub(self.sent));
        if !self.session.is_ready() || self.is_finished || len == 0 {
            return;
        }
        let bytes: Vec<u8> = (self.sent..self.sent + len).map(nth).collect();
        let before = self.wire.len();
        self.session.seal(&bytes, &mut self.wire);
        let sealed = self.wire.len() - before;
        assert!(sealed <= self.session.sealed_len(len) + 4096, "sealed in {sealed} bytes");
        self.sent += len;
    }

    fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.session.finish(&mut self.wire);
        }
    }

    fn what_was_sent(&self) -> SentBytes {
        SentBytes { bytes: self.sent, is_finished: self.is_finished }
    }
}

struct SentBytes {
    bytes: usize,
    is_finished: bool,
}

/// The n-th byte that an application sends.
fn nth(n: usize) -> u8 {
    (n % 251) as u8
}

/// Two sides, by the bits of the first byte of a script: TLS 1.2, a client certificate, a resumed
/// session.
fn layer(bits: u8) -> Option<TlsLayer> {
    let identity = Identity::from_pem(("certificate", CERTIFICATE), ("key", KEY)).ok()?;
    let roots = || ("certificate".to_owned(), CERTIFICATE.to_vec());
    let mut client = ClientOptions { key_log: false, ..ClientOptions::default() };
    client.roots = Roots::Pem(roots().0, roots().1);
    client.alpn = vec![b"http/1.1".to_vec()];
    let mut server = ServerOptions::new(identity.clone());
    server.alpn.clone_from(&client.alpn);
    if bits & 1 != 0 {
        client.most = Version::Tls12;
    }
    if bits & 2 != 0 {
        server.client_roots = Some(roots());
        client.identity = Some(identity);
    }
    let mut layer = TlsLayer::new();
    let name = ServerName::try_from("localhost").ok()?;
    (layer.add_client(client.build().ok()?, name) == CLIENT
        && layer.add_server(&server.build().ok()?) == SERVER)
        .then_some(layer)
}

fn pair(layer: &mut TlsLayer) -> Option<(FuzzedEnd, FuzzedEnd)> {
    let mut client = FuzzedEnd::new(layer.connect(CLIENT, PEER).ok()??);
    let server = FuzzedEnd::new(layer.accept(Listener::new(0), SERVER, PEER)?);
    client.session.begin(&mut client.wire);
    Some((client, server))
}

/// Delivers everything, until nothing is on the wire.
fn settle(client: &mut FuzzedEnd, server: &mut FuzzedEnd) {
    while !client.wire.is_empty() || !server.wire.is_empty() {
        let (mut up, mut down) = (std::mem::take(&mut client.wire), std::mem::take(&mut server.wire));
        server.open(&mut up, &client.what_was_sent());
        client.open(&mut down, &server.what_was_sent());
    }
}

/// The fuzz target for sessions. Each byte string is a script for both ends of a connection and the
/// network between them: bytes arrive in pieces of any size, get lost, change, or come from
/// somebody else, in every state.
///
/// # Panics
/// If an application gets bytes or an end that the other side did not send, if an undisturbed
/// connection loses any, or if a session grows without a limit.
pub fn session(data: &[u8]) {
    let Some((&bits, script)) = data.split_first() else { return };
    let mut layer = layer(bits).expect("both configurations can be built");
    let mut connections = 1;
    if bits & 4 != 0 {
        connections += 1;
        let (mut client, mut server) = pair(&mut layer).expect("both sides have profiles");
        settle(&mut client, &mut server);
    }
    let (mut client, mut server) = pair(&mut layer).expect("both sides have profiles");
    play(&mut client, &mut server, script);
    settle(&mut client, &mut server);
    if !client.is_disturbed && !server.is_disturbed {
        assert!(client.session.is_ready() && server.session.is_ready());
        assert_eq!((client.sent, server.sent), (server.received, client.received));
    }
    let counts = layer.counts();
    drop((client, server, layer));
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let ended = counts.full + counts.resumed + counts.failed.values().sum::<u64>();
    assert!(ended <= 2 * connections, "each side counts its handshake once: {counts:?}");
    assert_eq!(counts.agreed.values().sum::<u64>(), counts.full + counts.resumed);
}

/// Each step has an operation, a side and a number.
fn play(client: &mut FuzzedEnd, server: &mut FuzzedEnd, script: &[u8]) {
    let mut rest = script;
    while let Some((&[what, low, high], tail)) = rest.split_first_chunk::<3>() {
        rest = tail;
        let n = usize::from(u16::from_le_bytes([low, high]));
        let (one, other) =
            if what & 1 == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
        match (what >> 1) % 10 {
            // Half of the operations deliver, so that scripts come beyond the handshake.
            0..=2 => {
                let len = n.min(one.wire.len());
                let mut piece: Vec<u8> = one.wire.drain(..len).collect();
                other.open(&mut piece, &one.what_was_sent());
            }
            3 => one.send(n),
            4 => one.finish(),
            5 => {
                let len = n.min(tail.len()).min(256);
                let mut piece = tail[..len].to_vec();
                rest = &tail[len..];
                other.is_disturbed |= len > 0;
                other.open(&mut piece, &one.what_was_sent());
            }
            6 => {
                if let Some(byte) = one.wire.get_mut(n) {
                    *byte ^= 1 << (low & 7);
                    other.is_disturbed = true;
                }
            }
            7 => {
                other.is_disturbed |= n > 0 && !one.wire.is_empty();
                one.wire.drain(..n.min(one.wire.len()));
            }
            8 => {
                one.is_disturbed = true;
                if one.progress == Progress::Open {
                    one.progress = one.session.cut();
                    assert_ne!(one.progress, Progress::Open, "nothing comes behind a FIN");
                }
            }
            _ => {
                one.is_disturbed = true;
                if !one.session.is_ready() {
                    one.session.lost(NetError::of(NetErrorKind::Reset));
                    one.progress = Progress::Failed(NetError::of(NetErrorKind::Reset));
                }
            }
        }
        one.look();
    }
}

/// The fuzz target for certificates, which peers choose: parses them, and describes one whose
/// issuer is unknown. Each certificate follows its length, in two bytes.
///
/// # Panics
/// If a text for a terminal has control characters.
pub fn certificate(data: &[u8]) {
    let mut sent: Vec<CertificateDer<'_>> = Vec::new();
    let mut rest = data;
    while let Some((length, tail)) = rest.split_first_chunk() {
        let (one, tail) = tail.split_at(usize::from(u16::from_le_bytes(*length)).min(tail.len()));
        sent.push(one.into());
        rest = tail;
    }
    let Some((own, sent)) = sent.split_first() else { return };
    let facts = CertificateFacts::of(own);
    assert!(facts.subject.chars().all(|c| !c.is_control()), "for a terminal: {:?}", facts.subject);
    if let Some(validity) = facts.validity {
        for now in [i64::from(i32::MIN), 0, i64::from(u32::MAX)] {
            let _ = validity.trouble(now);
        }
    }
    let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
    if let Some(why) = why(algorithms, own, sent) {
        assert!(why.chars().all(|c| !c.is_control()), "for a terminal: {why:?}");
    }
    let _ = Identity::from_pem(("certificate", data), ("key", KEY));
    let _ = Identity::from_pem(("certificate", CERTIFICATE), ("key", data));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    /// Runs each file of a target's corpus; returns how many there were.
    fn replay(target: &str, run: fn(&[u8])) -> usize {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target);
        let entries = fs::read_dir(&folder).expect("the corpus is part of the repository");
        let files = entries.map(|entry| entry.expect("a file").path());
        files.map(|path| run(&fs::read(path).expect("readable"))).count()
    }

    #[test]
    fn the_corpora() {
        assert!(replay("session", session) >= 20);
        assert!(replay("certificate", certificate) >= 6);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_session(
            bits in 0u8..8,
            steps in prop::collection::vec((0u8..20, 0u16..3000), 0..40),
            others in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let steps = steps.into_iter().flat_map(|(what, n)| [what, n as u8, (n >> 8) as u8]);
            session(&std::iter::once(bits).chain(steps).chain(others).collect::<Vec<u8>>());
        }
    }
}
