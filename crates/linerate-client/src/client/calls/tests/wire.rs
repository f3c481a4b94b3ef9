//! Between a hostile server and the wire: what it says later, and TLS if there is any, with faults of its own.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use linerate_base::Random;
use linerate_net::layer::{Layer, Progress, Session};
use linerate_net::mem::{Accept, Peer, PeerActions, PeerConn};
use linerate_net::{Listener, Profile, Time};
use linerate_tls::{Identity, ServerOptions, ServerTls, TlsLayer, TlsSession, Version};

use super::random_up_to;

/// An action of a server on a connection.
enum Act {
    Send(Vec<u8>),
    Close,
    End,
    Reset,
}

/// Actions of a server, each after a while.
#[derive(Default)]
pub(super) struct Acts(Vec<(Duration, PeerConn, Act)>);

impl Acts {
    pub(super) fn send_after(&mut self, after: Duration, conn: PeerConn, bytes: impl Into<Vec<u8>>) {
        self.0.push((after, conn, Act::Send(bytes.into())));
    }

    pub(super) fn close_after(&mut self, after: Duration, conn: PeerConn) {
        self.0.push((after, conn, Act::Close));
    }

    /// Sends a FIN and keeps reading.
    pub(super) fn end_after(&mut self, after: Duration, conn: PeerConn) {
        self.0.push((after, conn, Act::End));
    }

    pub(super) fn reset_after(&mut self, after: Duration, conn: PeerConn) {
        self.0.push((after, conn, Act::Reset));
    }
}

/// A server by its plain bytes.
pub(super) trait Hostile: Send {
    fn accept(&mut self, now: Time) -> Accept;
    fn connected(&mut self, _now: Time, _conn: PeerConn, _out: &mut Acts) {}
    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut Acts);
    fn gone(&mut self, conn: PeerConn);
}

/// The name that the certificate proves.
pub(super) const NAME: &str = "server";

/// The server's identity, and the certificate that its clients trust. Signatures of this kind always have the same
/// length, so that a seed repeats its cuts.
static IDENTITY: LazyLock<(Identity, String)> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let (cert, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    (Identity::from_pem(("cert", cert.as_bytes()), ("key", key.as_bytes())).unwrap(), cert)
});

/// The certificate to trust.
pub(super) fn certificate() -> &'static str {
    &IDENTITY.1
}

fn server(alpn: &[u8], most: Version) -> ServerTls {
    let mut options = ServerOptions::new(IDENTITY.0.clone());
    options.alpn = vec![alpn.to_vec()];
    options.most = most;
    options.build().unwrap()
}

/// TLS of a server, and what goes wrong with it.
pub(super) struct Tls {
    layer: TlsLayer,
    profile: Profile,
    random: Random,
    /// Per thousand: handshakes that fail, sends with a wrong byte, closes without notice.
    shakes: u64,
    corrupts: u64,
    cuts: u64,
    well_from: Time,
    sessions: HashMap<PeerConn, TlsSession>,
}

impl Tls {
    /// It agrees to this protocol alone.
    pub(super) fn of(random: &mut Random, alpn: &[u8], well_from: Time) -> Tls {
        let most = if random_up_to(random, 2) == 0 { Version::Tls12 } else { Version::Tls13 };
        let mut layer = TlsLayer::new();
        let profile = layer.add_server(&server(alpn, most));
        let mut some = |most| if random_up_to(random, 1) == 0 { 0 } else { random_up_to(random, most) };
        let (shakes, corrupts, cuts) = (some(200), some(10), some(1000));
        Tls {
            layer,
            profile,
            random: random.clone(),
            shakes,
            corrupts,
            cuts,
            well_from,
            sessions: HashMap::new(),
        }
    }

    fn happens(&mut self, now: Time, per_thousand: u64) -> bool {
        random_up_to(&mut self.random, 999) < if now >= self.well_from { 0 } else { per_thousand }
    }

    /// A handshake may go wrong from the beginning.
    fn begin(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        if !self.happens(now, self.shakes) {
            let peer = SocketAddr::from(([10, 0, 0, 1], 1));
            let session = self.layer.accept(Listener::new(0), self.profile, peer).unwrap();
            self.sessions.insert(conn, session);
            return;
        }
        match random_up_to(&mut self.random, 3) {
            // Says nothing.
            0 => {}
            1 => out.close(conn),
            2 => out.reset(conn),
            _ => out.send(conn, *b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        }
    }

    fn seal(&mut self, now: Time, conn: PeerConn, bytes: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.seal(bytes, &mut wire);
        }
        if self.happens(now, self.corrupts) && !wire.is_empty() {
            let at = random_up_to(&mut self.random, wire.len() as u64 - 1) as usize;
            wire[at] ^= 1 << random_up_to(&mut self.random, 7);
        }
        wire
    }

    /// The end-of-stream message, unless the connection is cut. Later bytes on it are ignored.
    fn finish(&mut self, now: Time, conn: PeerConn) -> Vec<u8> {
        let mut wire = Vec::new();
        let is_cut = self.happens(now, self.cuts);
        if let Some(mut session) = self.sessions.remove(&conn)
            && !is_cut
        {
            session.finish(&mut wire);
        }
        wire
    }
}

/// A server on the wire.
pub(super) struct Wire<S> {
    server: S,
    tls: Option<Tls>,
    /// Later actions, by time and then in the order they were scheduled.
    later: BTreeMap<(Time, u64), (PeerConn, Act)>,
    said: u64,
}

impl<S: Hostile> Wire<S> {
    pub(super) fn new(server: S, tls: Option<Tls>) -> Wire<S> {
        Wire { server, tls, later: BTreeMap::new(), said: 0 }
    }

    fn add(&mut self, now: Time, acts: Acts, out: &mut PeerActions) {
        for (after, conn, act) in acts.0 {
            self.said += 1;
            self.later.insert((now + after, self.said), (conn, act));
            if after > Duration::ZERO {
                out.call_after(after, conn);
            }
        }
        self.act_due(now, out);
    }

    fn act_due(&mut self, now: Time, out: &mut PeerActions) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let (conn, act) = first.remove();
            self.act(now, conn, act, out);
        }
    }

    fn act(&mut self, now: Time, conn: PeerConn, act: Act, out: &mut PeerActions) {
        let last = match (&mut self.tls, &act) {
            (None, Act::Send(bytes)) => bytes.clone(),
            (Some(tls), Act::Send(bytes)) => tls.seal(now, conn, bytes),
            (Some(tls), Act::Close | Act::End) => tls.finish(now, conn),
            _ => Vec::new(),
        };
        if !last.is_empty() {
            out.send(conn, last);
        }
        match act {
            Act::Send(_) => {}
            Act::Close => out.close(conn),
            Act::End => out.end_after(Duration::ZERO, conn),
            Act::Reset => out.reset(conn),
        }
    }

    fn forget(&mut self, conn: PeerConn) {
        self.server.gone(conn);
        self.later.retain(|_, (of, _)| *of != conn);
        if let Some(tls) = &mut self.tls {
            tls.sessions.remove(&conn);
        }
    }
}

impl<S: Hostile> Peer for Wire<S> {
    fn accept(&mut self, now: Time) -> Accept {
        self.server.accept(now)
    }

    fn connected(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        if let Some(tls) = &mut self.tls {
            return tls.begin(now, conn, out);
        }
        let mut acts = Acts::default();
        self.server.connected(now, conn, &mut acts);
        self.add(now, acts, out);
    }

    fn received(&mut self, now: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        let mut acts = Acts::default();
        let Some(tls) = &mut self.tls else {
            self.server.received(now, conn, bytes, &mut acts);
            return self.add(now, acts, out);
        };
        let Some(session) = tls.sessions.get_mut(&conn) else { return };
        let (was_ready, mut plain, mut reply) = (session.is_ready(), Vec::new(), Vec::new());
        let progress = session.open(&mut bytes.to_vec(), &mut |piece| plain.extend_from_slice(piece));
        session.reply(&mut reply);
        if !reply.is_empty() {
            out.send(conn, reply);
        }
        if session.is_ready() && !was_ready {
            self.server.connected(now, conn, &mut acts);
        }
        if !plain.is_empty() {
            self.server.received(now, conn, &plain, &mut acts);
        }
        self.add(now, acts, out);
        if matches!(progress, Progress::Failed(_)) {
            out.close(conn);
            self.forget(conn);
        }
    }

    fn ended(&mut self, now: Time, conn: PeerConn, out: &mut PeerActions) {
        self.act(now, conn, Act::Close, out);
        self.forget(conn);
    }

    fn failed(&mut self, _: Time, conn: PeerConn, _: &mut PeerActions) {
        self.forget(conn);
    }

    fn called(&mut self, now: Time, _: PeerConn, out: &mut PeerActions) {
        self.act_due(now, out);
    }
}
