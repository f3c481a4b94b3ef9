//! Both ends over a network in memory, in virtual time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_base::{Random, Time};
use rustls::pki_types::PrivateKeyDer;

use super::*;

/// TLS of both ends: one certificate, which the client trusts.
fn tls() -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let own = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let chain = vec![own.cert.der().clone()];
    let mut server =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    server.alpn_protocols = vec![b"h3".to_vec()];
    let mut client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h3".to_vec()];
    (Arc::new(client), Arc::new(server))
}

/// A way from one end to the other.
#[derive(Clone, Copy, Debug)]
struct MemoryPathFaults {
    loss: f64,
    duplicates: f64,
    /// Delays differ by at most this.
    jitter: Duration,
}

const CLEAN: MemoryPathFaults = MemoryPathFaults { loss: 0.0, duplicates: 0.0, jitter: Duration::ZERO };

const DELAY: Duration = Duration::from_millis(10);

struct TestNetwork {
    /// The client's and the server's.
    ends: [QuicEndpoint; 2],
    /// Datagrams on their way: when they arrive, a number, at which end, and bytes.
    way: Vec<(Time, u64, usize, Vec<u8>)>,
    now: Time,
    faults: MemoryPathFaults,
    random: Random,
    sent: u64,
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8 + 1], 443))
}

impl TestNetwork {
    fn new(client: &QuicOptions, server: &QuicOptions, faults: MemoryPathFaults, seed: u64) -> TestNetwork {
        let (client_tls, server_tls) = tls();
        let ends = [
            QuicEndpoint::client(client, client_tls, seed).unwrap(),
            QuicEndpoint::server(server, server_tls, seed + 1).unwrap(),
        ];
        TestNetwork { ends, way: Vec::new(), now: Time::ZERO, faults, random: Random::new(seed), sent: 0 }
    }

    fn send(&mut self) {
        for end in 0..2 {
            let mut out = Vec::new();
            while let Some(transmit) = self.ends[end].next_transmit(self.now, 10, &mut out) {
                assert_eq!((transmit.to, transmit.len), (address(1 - end), out.len()));
                for datagram in out.chunks(transmit.segment) {
                    let copies = u64::from(!self.random.happens(self.faults.loss))
                        + u64::from(self.random.happens(self.faults.duplicates));
                    for _ in 0..copies {
                        let late = self.faults.jitter.mul_f64(self.random.fraction());
                        self.sent += 1;
                        self.way.push((self.now + DELAY + late, self.sent, 1 - end, datagram.to_vec()));
                    }
                }
                out.clear();
            }
        }
    }

    /// Goes on to the next thing that happens; `false`: nothing ever will.
    fn step(&mut self) -> bool {
        self.send();
        let arrival = self.way.iter().map(|(at, ..)| *at).min();
        let timers = self.ends.iter().filter_map(QuicEndpoint::deadline);
        let Some(next) = timers.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        self.way.sort();
        let later = self.way.partition_point(|(at, ..)| *at <= self.now);
        for (_, _, end, datagram) in self.way.drain(..later) {
            self.ends[end].receive(self.now, address(1 - end), None, 0, &datagram);
        }
        self.ends.iter_mut().for_each(|end| end.run_timers(self.now));
        true
    }

    /// The first event that the client has.
    fn client_event(&mut self) -> Option<QuicEvent> {
        for _ in 0..10_000 {
            if let Some(event) = self.ends[0].next_event() {
                return Some(event);
            }
            while self.ends[1].next_event().is_some() {}
            if !self.step() {
                return None;
            }
        }
        panic!("nothing happens for 10,000 steps");
    }
}

/// What an end knows of its streams: what came, and what is left to write.
#[derive(Default)]
struct TestStreams {
    came: HashMap<(QuicConn, QuicStream), Vec<u8>>,
    left: HashMap<(QuicConn, QuicStream), Vec<u8>>,
    ended: Vec<(QuicConn, QuicStream)>,
}

impl TestStreams {
    fn read(&mut self, end: &mut QuicEndpoint, conn: QuicConn, stream: QuicStream) -> bool {
        let came = self.came.entry((conn, stream)).or_default();
        match end.read(conn, stream, |bytes| came.extend_from_slice(bytes)) {
            StreamRead::Ended => {
                self.ended.push((conn, stream));
                true
            }
            StreamRead::Open | StreamRead::Gone => false,
            StreamRead::Reset(code) => panic!("a reset with {code}"),
        }
    }

    fn write(&mut self, end: &mut QuicEndpoint, conn: QuicConn, stream: QuicStream) {
        let Some(left) = self.left.get_mut(&(conn, stream)) else { return };
        match end.write(conn, stream, left) {
            StreamWrite::Taken(taken) => drop(left.drain(..taken)),
            other => panic!("{other:?}"),
        }
        if left.is_empty() {
            assert!(end.finish(conn, stream));
            self.left.remove(&(conn, stream));
        }
    }
}

fn echo(network: &mut TestNetwork, streams: &mut TestStreams) {
    while let Some(event) = network.ends[1].next_event() {
        let end = &mut network.ends[1];
        match event {
            QuicEvent::Opened { conn, stream } | QuicEvent::Readable { conn, stream } => {
                if streams.read(end, conn, stream) {
                    let mut response = streams.came[&(conn, stream)].clone();
                    response.reverse();
                    streams.left.insert((conn, stream), response);
                    streams.write(end, conn, stream);
                }
            }
            QuicEvent::Writable { conn, stream } => streams.write(end, conn, stream),
            QuicEvent::Accepted { .. } | QuicEvent::Connected { .. } | QuicEvent::Room { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Requests of all sizes over several connections: each response is that of its request, whole and once.
fn exchange(seed: u64, faults: MemoryPathFaults) {
    let small = QuicOptions {
        streams: 4,
        stream_window: 20_000,
        connection_window: 50_000,
        ..QuicOptions::default()
    };
    let mut network = TestNetwork::new(&small, &small, faults, seed);
    let (mut client, mut server) = (TestStreams::default(), TestStreams::default());
    let mut owed: HashMap<QuicConn, u64> = HashMap::new();
    let mut asked = HashMap::new();
    let mut random = Random::new(seed ^ 0x5eed);
    for _ in 0..3 {
        let conn = network.ends[0].connect(network.now, address(1), "a.example").unwrap();
        owed.insert(conn, 12);
    }
    while client.ended.len() < 36 {
        echo(&mut network, &mut server);
        while let Some(event) = network.ends[0].next_event() {
            let end = &mut network.ends[0];
            match event {
                QuicEvent::Connected { conn } | QuicEvent::Room { conn, unidirectional: false } => {
                    let owed = owed.get_mut(&conn).unwrap();
                    while *owed > 0
                        && let Some(stream) = end.open(conn, false)
                    {
                        *owed -= 1;
                        let request: Vec<u8> = (0..random.few(60_000)).map(|n| (n ^ seed) as u8).collect();
                        asked.insert((conn, stream), request.clone());
                        client.left.insert((conn, stream), request);
                        client.write(end, conn, stream);
                    }
                }
                QuicEvent::Readable { conn, stream } => drop(client.read(end, conn, stream)),
                QuicEvent::Writable { conn, stream } => client.write(end, conn, stream),
                QuicEvent::Room { .. } => {}
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(client.ended.len() == 36 || network.step(), "seed {seed}: nothing happens any more");
        assert!(network.now < Time::ZERO + Duration::from_secs(300), "seed {seed} takes minutes");
    }
    for (of, request) in asked {
        let mut response = client.came.remove(&of).unwrap();
        response.reverse();
        assert!(response == request, "seed {seed}: another response on {of:?}");
    }
}

#[test]
fn each_response_is_that_of_its_request() {
    exchange(1, CLEAN);
}

#[test]
fn loss_duplicates_and_reordering_change_nothing() {
    for seed in 0..20 {
        let faults = MemoryPathFaults { loss: 0.05, duplicates: 0.05, jitter: Duration::from_millis(15) };
        exchange(seed, faults);
    }
}

#[test]
fn the_peers_code_and_words_are_told_and_the_memory_comes_back() {
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), CLEAN, 1);
    let conn = network.ends[0].connect(Time::ZERO, address(1), "a.example").unwrap();
    let mut accepted = None;
    let lost = loop {
        while let Some(event) = network.ends[1].next_event() {
            match event {
                QuicEvent::Accepted { conn, peer } => accepted = Some((conn, peer)),
                QuicEvent::Connected { conn } => network.ends[1].close(network.now, conn, 0x10b, "enough"),
                other => panic!("{other:?}"),
            }
        }
        match network.ends[0].next_event() {
            Some(QuicEvent::Lost { how, conn: of }) if of == conn => break how,
            Some(_) => {}
            None => assert!(network.step()),
        }
    };
    assert_eq!(accepted.map(|(_, peer)| peer), Some(address(0)));
    assert_eq!(lost, QuicLost::ClosedByPeer { code: 0x10b, reason: "enough".to_owned() });
    assert_eq!(lost.to_string(), "the peer closed the connection with code 0x10b (\"enough\")");
    while network.step() {}
    assert_eq!(network.ends.each_ref().map(QuicEndpoint::connections), [0, 0]);
    assert_eq!(network.ends[0].open(conn, false), None);
}

#[test]
fn a_silent_peer_ends_by_the_idle_timeout() {
    let dead = MemoryPathFaults { loss: 1.0, ..CLEAN };
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), dead, 1);
    let conn = network.ends[0].connect(Time::ZERO, address(1), "a.example").unwrap();
    assert_eq!(network.client_event(), Some(QuicEvent::Lost { conn, how: QuicLost::TimedOut }));
    assert_eq!(network.now.as_nanos() / 1_000_000_000, 30);
    while network.step() {}
    assert_eq!(network.ends[0].connections(), 0);
}

#[test]
fn a_certificate_for_another_name_ends_the_handshake() {
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), CLEAN, 1);
    network.ends[0].connect(Time::ZERO, address(1), "b.example").unwrap();
    let Some(QuicEvent::Lost { how: QuicLost::Broken(why), .. }) = network.client_event() else {
        panic!("the connection is not lost")
    };
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn more_connections_than_admitted_are_refused() {
    let few = QuicOptions { connections: 2, ..QuicOptions::default() };
    let mut network = TestNetwork::new(&QuicOptions::default(), &few, CLEAN, 1);
    for _ in 0..5 {
        network.ends[0].connect(Time::ZERO, address(1), "a.example").unwrap();
    }
    let (mut connected, mut refused) = (0, 0);
    while connected + refused < 5 {
        match network.client_event() {
            Some(QuicEvent::Connected { .. }) => connected += 1,
            // CONNECTION_REFUSED (RFC 9000, section 20.1).
            Some(QuicEvent::Lost { how: QuicLost::EndedByPeer { code: 2, .. }, .. }) => refused += 1,
            Some(QuicEvent::Room { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((connected, refused), (2, 3));
}

#[test]
fn stops_and_resets_carry_their_codes() {
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), CLEAN, 1);
    network.ends[0].connect(Time::ZERO, address(1), "a.example").unwrap();
    let (mut stopped, mut reset) = (None, None);
    while stopped.is_none() || reset.is_none() {
        while let Some(event) = network.ends[1].next_event() {
            if let QuicEvent::Opened { conn, stream } = event {
                assert!(network.ends[1].stop(conn, stream, 0x10c));
                assert!(network.ends[1].reset(conn, stream, 0x102));
            }
        }
        while let Some(event) = network.ends[0].next_event() {
            match event {
                QuicEvent::Connected { conn } => {
                    let stream = network.ends[0].open(conn, false).unwrap();
                    assert_eq!(
                        (stream.id(), stream.is_unidirectional(), stream.is_of_client()),
                        (0, false, true)
                    );
                    assert_eq!(network.ends[0].write(conn, stream, b"a request"), StreamWrite::Taken(9));
                }
                QuicEvent::Stopped { code, conn, stream } => {
                    stopped = Some(code);
                    assert_eq!(network.ends[0].write(conn, stream, b"more"), StreamWrite::Stopped(code));
                }
                QuicEvent::Readable { conn, stream } => {
                    let end = network.ends[0].read(conn, stream, |_| panic!("bytes"));
                    reset = reset.or((end == StreamRead::Reset(0x102)).then_some(0x102));
                }
                _ => {}
            }
        }
        assert!(network.step());
    }
    assert_eq!((stopped, reset), (Some(0x10c), Some(0x102)));
}

/// A flood of datagrams that need a reply takes no memory beyond its limit.
#[test]
fn replies_have_a_limit() {
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), CLEAN, 1);
    // A long header of a version that does not exist.
    let mut unknown = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0];
    unknown.resize(1200, 0);
    (0..10_000).for_each(|_| network.ends[1].receive(Time::ZERO, address(0), None, 0, &unknown));
    let (mut out, mut replies) = (Vec::new(), 0);
    while network.ends[1].next_transmit(Time::ZERO, 10, &mut out).is_some() {
        replies += 1;
    }
    assert_eq!(replies, 64);
    assert_eq!(network.ends[1].connections(), 0);
}

#[test]
fn a_unidirectional_stream_takes_nothing_the_other_way() {
    let mut network = TestNetwork::new(&QuicOptions::default(), &QuicOptions::default(), CLEAN, 1);
    network.ends[0].connect(Time::ZERO, address(1), "a.example").unwrap();
    let (mut ours, mut seen) = (None, false);
    while !seen {
        while let Some(event) = network.ends[1].next_event() {
            if let QuicEvent::Opened { conn, stream } = event {
                let end = &mut network.ends[1];
                assert_eq!(end.write(conn, stream, b"x"), StreamWrite::Gone);
                assert!(!end.reset(conn, stream, 1) && !end.finish(conn, stream));
                assert!(end.stop(conn, stream, 1));
                seen = true;
            }
        }
        while let Some(event) = network.ends[0].next_event() {
            if let QuicEvent::Connected { conn } = event {
                let end = &mut network.ends[0];
                let stream = *ours.insert(end.open(conn, true).unwrap());
                assert_eq!(end.write(conn, stream, b"x"), StreamWrite::Taken(1));
                assert_eq!(end.read(conn, stream, |_| panic!("bytes")), StreamRead::Gone);
                assert!(!end.stop(conn, stream, 1));
            }
        }
        assert!(seen || network.step());
    }
}
