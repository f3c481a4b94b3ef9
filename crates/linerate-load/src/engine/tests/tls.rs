//! The engine over TLS, both sides over user-space TCP in virtual time: packets that are lost,
//! doubled and reordered, and connections that are cut or reset at any byte, inside the handshake
//! and later. Each request ends in exactly one outcome, and no broken response counts as whole.
//!
//! A seed is a bug report: `LINERATE_SEED=n` runs one. `LINERATE_SEEDS=n` runs this many (`cargo
//! xtask soak tls`: 10,000), starting at `LINERATE_FROM`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex};
use std::thread;

use linerate_net::layer::{Layer, Layered, Progress, Session};
use linerate_net::link::sim::{Sim, SimEnd, SimOptions};
use linerate_net::mem::{Peer, PeerActions, PeerConn, PeerHost};
use linerate_net::stack::{Stack, StackOptions};
use linerate_net::{Listener, NetError, NetErrorKind, Profile, TransportLimits};
use linerate_tls::{Identity, ServerOptions, ServerTls, TlsLayer, TlsSession};

use super::*;
use crate::plan::tls::{PemFile, TargetTls, TlsVersion, Trust};
use crate::route::RouteTo;
use linerate_base::Random;

/// Seeds of an ordinary run. Reason: each takes some tens of milliseconds.
const SEEDS: u64 = 40;
const REQUESTS: u64 = 30;
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The end of each body: a response without it is broken.
const LAST: &str = "the end of it";

/// A server's TLS, and the certificate that its clients trust.
static SERVER: LazyLock<(ServerTls, String)> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    let identity = Identity::from_pem(("cert", cert.as_bytes()), ("key", key.as_bytes())).unwrap();
    (ServerOptions::new(identity).build().unwrap(), cert)
});

fn once_in(random: &mut Random, n: u64) -> bool {
    random.below(n) == 0
}

/// A session of the server whose bytes end at any place.
struct Cut {
    session: TlsSession,
    /// Bytes that may still leave, if it will be cut.
    left: Option<usize>,
}

impl Cut {
    fn is_cut(&self) -> bool {
        self.left == Some(0)
    }

    /// Forgets what leaves behind the cut.
    fn limit(&mut self, wire: &mut Vec<u8>, from: usize) {
        if let Some(left) = &mut self.left {
            wire.truncate(from + *left);
            *left -= (wire.len() - from).min(*left);
        }
    }
}

impl Session for Cut {
    fn begin(&mut self, wire: &mut Vec<u8>) {
        self.session.begin(wire);
    }

    fn open(&mut self, wire: &mut [u8], take: &mut dyn FnMut(&mut [u8])) -> Progress {
        match self.is_cut() {
            true => Progress::Failed(NetError::of(NetErrorKind::Handshake)),
            false => self.session.open(wire, take),
        }
    }

    fn reply(&mut self, wire: &mut Vec<u8>) {
        let from = wire.len();
        self.session.reply(wire);
        self.limit(wire, from);
    }

    fn is_ready(&self) -> bool {
        self.session.is_ready()
    }

    fn seal(&mut self, bytes: &[u8], wire: &mut Vec<u8>) {
        let from = wire.len();
        self.session.seal(bytes, wire);
        self.limit(wire, from);
    }

    fn sealed_len(&self, len: usize) -> usize {
        self.session.sealed_len(len)
    }

    fn finish(&mut self, wire: &mut Vec<u8>) {
        let from = wire.len();
        self.session.finish(wire);
        self.limit(wire, from);
    }

    fn cut(&mut self) -> Progress {
        self.session.cut()
    }
}

/// Makes them: every connection has TLS, and one in a few will be cut.
struct Cutting {
    tls: TlsLayer,
    profile: Profile,
    random: Random,
    one_in: u64,
}

impl Layer for Cutting {
    type Session = Cut;

    fn connect(&mut self, _: Profile, _: SocketAddr) -> Result<Option<Cut>, NetError> {
        Ok(None)
    }

    fn accept(&mut self, listener: Listener, _: Profile, peer: SocketAddr) -> Option<Cut> {
        let session = self.tls.accept(listener, self.profile, peer)?;
        // A handshake has about 1,500 bytes here.
        let most = [1_600, 8_000][self.random.below(2) as usize];
        let left = once_in(&mut self.random, self.one_in).then(|| 1 + self.random.below(most) as usize);
        Some(Cut { session, left })
    }
}

/// The requests that the server saw, by their path: `/g7`, `/p8`.
type Saw = Arc<Mutex<HashMap<String, u64>>>;

/// Responds with every framing, and closes, breaks off and resets.
struct Unreliable {
    saw: Saw,
    random: Random,
    unread: HashMap<PeerConn, Vec<u8>>,
    trouble: u64,
}

impl Unreliable {
    fn answer(&mut self, conn: PeerConn, out: &mut PeerActions) {
        let body = "x".repeat(self.random.below(3_000) as usize) + LAST;
        let wait = Duration::from_micros(self.random.below(4_000));
        let (head, body, closes) = match self.random.below(6) {
            0 => {
                let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
                ("Transfer-Encoding: chunked".to_owned(), chunk, false)
            }
            1 => ("Connection: close".to_owned(), body, true),
            _ => (format!("Content-Length: {}", body.len()), body, false),
        };
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").into_bytes();
        let breaks = once_in(&mut self.random, self.trouble);
        if breaks {
            bytes.truncate(self.random.below(bytes.len() as u64) as usize);
        }
        // A body that lasts until the close is whole behind close_notify, so it breaks off by a reset.
        let resets = once_in(&mut self.random, self.trouble) || (breaks && closes);
        out.send_after(wait, conn, bytes);
        if resets {
            out.reset_after(wait, conn);
        } else if closes || breaks || once_in(&mut self.random, 4 * self.trouble) {
            out.close_after(wait, conn);
        }
        if resets || closes || breaks {
            self.unread.remove(&conn);
        }
    }
}

impl Peer for Unreliable {
    fn connected(&mut self, _: Time, conn: PeerConn, out: &mut PeerActions) {
        self.unread.insert(conn, Vec::new());
        if once_in(&mut self.random, 2 * self.trouble) {
            // The handshake takes about as long.
            out.reset_after(Duration::from_micros(self.random.below(20_000)), conn);
        }
    }

    fn received(&mut self, _: Time, conn: PeerConn, bytes: &[u8], out: &mut PeerActions) {
        self.unread.entry(conn).or_default().extend_from_slice(bytes);
        while let Some(unread) = self.unread.get_mut(&conn)
            && let Some(end) = memchr::memmem::find(unread, b"\r\n\r\n")
        {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().to_owned();
            *self.saw.lock().unwrap().entry(path).or_default() += 1;
            self.answer(conn, out);
        }
    }
}

fn network(seed: u64, random: &mut Random) -> SimOptions {
    let mut some = |most: u64| if once_in(random, 2) { 0 } else { random.below(most) as u32 };
    SimOptions {
        seed,
        loss_ppm: some(50_000),
        reorder_ppm: some(50_000),
        duplicate_ppm: some(20_000),
        corrupt_ppm: some(5_000),
        delay: Duration::from_micros(100 + u64::from(some(5_000))),
        ..SimOptions::default()
    }
}

fn plan_of(random: &mut Random) -> Plan {
    let pem = PemFile { path: "cert.pem".to_owned(), text: SERVER.1.clone() };
    let version = [TlsVersion::Tls12, TlsVersion::Tls13][random.below(2) as usize];
    let resume = once_in(random, 2);
    let tls = TargetTls {
        trust: Trust::Pem(pem),
        least: version,
        most: version,
        resume,
        ..TargetTls::towards("localhost")
    };
    let expect = Expectation { body: Some(LAST.to_owned()), ..Expectation::default() };
    let get = Request { path: "/g{{seq}}".to_owned(), expect, ..request("GET") };
    let post = Request { path: "/p{{seq}}".to_owned(), ..Request { method: "POST".into(), ..get.clone() } };
    let target = Target { addresses: vec![SocketAddr::new(THEIRS, 443)], ..plan().target };
    Plan {
        target,
        requests: vec![get, post],
        tls: Some(tls),
        connections: 1 + random.below(4) as u32,
        depth: 1 + random.below(4) as u32,
        per_connection: once_in(random, 4).then(|| 1 + random.below(5) as u32),
        timeout: Duration::from_millis(500),
        // Time is virtual.
        stop: Stop { requests: Some(REQUESTS), duration: Some(Duration::from_secs(60)) },
        ..plan()
    }
}

fn stack(end: SimEnd, address: IpAddr, seed: u64) -> Stack<SimEnd> {
    let options = StackOptions { addresses: vec![address], seed: Some(seed), ..StackOptions::default() };
    Stack::new(end, options)
}

fn play(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let (plan, sim) = (plan_of(&mut random), Sim::new(network(seed, &mut random)));
    let ours = stack(sim.end(&[OURS]).unwrap(), OURS, seed);
    let mut tls = TlsLayer::new();
    let profile = tls.add_server(&SERVER.0);
    let (one_in, trouble) = (2 + random.below(6), 4 + random.below(30));
    let layer = Cutting { tls, profile, random: Random::new(seed + 1), one_in };
    let theirs = stack(sim.end(&[THEIRS]).unwrap(), THEIRS, seed + 2);
    let saw = Saw::default();
    let server =
        Unreliable { saw: saw.clone(), random: Random::new(seed + 3), unread: HashMap::new(), trouble };
    let mut host = PeerHost::new(Layered::new(theirs, layer, TransportLimits::default()));
    host.serve(SocketAddr::new(THEIRS, 443), server).unwrap();
    let server = thread::spawn(move || host.run(|| false));
    let route = RouteTo::of(&plan).unwrap();
    let part =
        CorePart { core: 0, cores: 1, start: Time::ZERO, route, names: None, joining: None, gap: None };
    let outcome = part.run(&plan, ours, board()).unwrap();
    server.join().unwrap().unwrap();
    let r = outcome.requests;
    assert_eq!(r.sent, r.answered + r.failed + r.unknown, "{r:?}");
    assert_eq!(r.failed, outcome.failures.total(), "{r:?}");
    assert_eq!(outcome.bad.total(), 0, "no broken response is whole: {r:?}");
    let saw = saw.lock().unwrap();
    let seen: u64 = saw.values().sum();
    assert!(r.answered <= seen && seen <= r.sent + r.resent, "the server saw {seen}: {r:?}");
    let twice = saw.iter().find(|(path, times)| path.starts_with("/p") && **times > 1);
    assert_eq!(twice, None, "whether a POST was acted on is not known, so it is not sent again");
    outcome
}

#[test]
fn each_request_over_tls_ends_once_whatever_breaks() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let from = number("LINERATE_FROM").unwrap_or(1);
    let seeds = match number("LINERATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + number("LINERATE_SEEDS").unwrap_or(SEEDS),
    };
    let is_one = seeds.end - seeds.start == 1;
    let (mut failed, mut answered, mut broken, mut handshakes) = (Vec::new(), 0, 0, 0);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| play(seed))) {
            Err(_) => failed.push(seed),
            Ok(outcome) => {
                answered += outcome.requests.answered;
                broken += outcome.requests.failed + outcome.requests.unknown;
                handshakes += outcome.tls.map_or(0, |tls| tls.failed.values().sum::<u64>());
            }
        }
    }
    println!("{answered} answered, {broken} failed or unknown, {handshakes} handshakes failed");
    assert!(failed.is_empty(), "LINERATE_SEED={}, and {} more", failed[0], failed.len() - 1);
    assert!(is_one || (answered > 0 && broken > 0 && handshakes > 0), "every fault occurs");
}
