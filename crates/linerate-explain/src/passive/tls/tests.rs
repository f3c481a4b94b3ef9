//! Conversations that rustls has with itself, as packets.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::passive::packet::flag;
use crate::passive::{CaptureLimits, KeyLog, LinkType, Observation, ObservedCall, Observer, Packet};

const MS: i64 = 1_000_000;

/// Notes the secrets of a session as lines of a key log.
#[derive(Debug, Default)]
struct Lines(Mutex<String>);

impl rustls::KeyLog for Lines {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(random), hex(secret));
        self.0.lock().expect("not poisoned").push_str(&line);
    }
}

/// A conversation: its packets with their times, and its key log.
struct Talk {
    frames: Vec<(i64, Vec<u8>)>,
    keys: String,
}

/// Both ends, and the packets between them.
struct Pair {
    ends: [Connection; 2],
    next: [u32; 2],
    now: i64,
    /// The bytes that each end has read.
    read: [Vec<u8>; 2],
    frames: Vec<(i64, Vec<u8>)>,
}

impl Pair {
    /// Sends what end `from` has to send, in segments of 1000 bytes, and tells the other end.
    fn send(&mut self, from: usize) {
        let mut bytes = Vec::new();
        while self.ends[from].wants_write() {
            self.ends[from].write_tls(&mut bytes).expect("memory");
        }
        for part in bytes.chunks(1000) {
            self.segment(from, flag::ACK | flag::PSH, part);
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            self.ends[1 - from].read_tls(&mut rest).expect("memory");
            self.ends[1 - from].process_new_packets().expect("valid records");
            // At the end of what is there it would block.
            let _ = self.ends[1 - from].reader().read_to_end(&mut self.read[1 - from]);
        }
        self.now += MS;
    }

    fn segment(&mut self, from: usize, flags: u8, data: &[u8]) {
        let (seq, ack) = (self.next[from], self.next[1 - from]);
        let mut frame = vec![0x45, 0];
        frame.extend(((40 + data.len()) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from as u8, 10, 0, 0, 1 - from as u8]);
        let ports = [40_000u16, 443];
        frame.extend(ports[from].to_be_bytes());
        frame.extend(ports[1 - from].to_be_bytes());
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(data);
        self.frames.push((self.now, frame));
        self.next[from] =
            seq.wrapping_add(data.len() as u32 + u32::from(flags & (flag::SYN | flag::FIN) != 0));
    }

    /// A request, `think` of nothing, and its response.
    fn call(&mut self, request: &[u8], response: &[u8], think: i64) {
        self.ends[0].writer().write_all(request).expect("memory");
        self.send(0);
        self.now += think;
        self.ends[1].writer().write_all(response).expect("memory");
        self.send(1);
        assert_eq!(std::mem::take(&mut self.read[0]), response);
        self.now += 5 * MS;
    }
}

/// Two calls by this suite, the first one small and after 50 ms, the second one of 40,000 bytes and
/// after 20 ms.
fn talk(suite: CipherSuite) -> Talk {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    let mut provider: CryptoProvider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|s| s.suite() == suite);
    let provider = Arc::new(provider);
    let versions = [provider.cipher_suites[0].version()];
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let lines = Arc::new(Lines::default());
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.key_log = lines.clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate");
    let name = ServerName::try_from("a.example").expect("a name");
    let client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let server = ServerConnection::new(Arc::new(server)).expect("a server");
    let mut pair = Pair {
        ends: [client.into(), server.into()],
        next: [1000, 5000],
        now: 1_000 * MS,
        read: Default::default(),
        frames: Vec::new(),
    };
    pair.segment(0, flag::SYN, &[]);
    pair.now += MS;
    pair.segment(1, flag::SYN | flag::ACK, &[]);
    pair.segment(0, flag::ACK, &[]);
    pair.send(0);
    while pair.ends.iter().any(|end| end.is_handshaking()) {
        pair.send(1);
        pair.send(0);
    }
    pair.call(
        b"GET /small HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        50 * MS,
    );
    let large =
        [b"HTTP/1.1 404 Not Found\r\nContent-Length: 40000\r\n\r\n".as_slice(), &[b'x'; 40_000]].concat();
    pair.call(b"POST /large HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody", &large, 20 * MS);
    for end in [0, 1] {
        pair.ends[end].send_close_notify();
        pair.send(end);
        pair.segment(end, flag::ACK | flag::FIN, &[]);
    }
    let keys = lines.0.lock().expect("not poisoned").clone();
    Talk { frames: pair.frames, keys }
}

/// The observation of packets that were captured with a snap length of `most` bytes.
fn seen(frames: &[(i64, Vec<u8>)], keys: Option<&str>, most: usize) -> Observation {
    let keys = keys.map(|text| Arc::new(KeyLog::parse(text.as_bytes()).expect("a key log")));
    let mut observer = Observer::new(CaptureLimits::default()).with_keys(keys);
    for (time_ns, frame) in frames {
        let data = &frame[..frame.len().min(most)];
        observer.packet(&Packet {
            time_ns: *time_ns,
            link: LinkType::Raw,
            data,
            wire_len: frame.len() as u32,
        });
    }
    observer.finish()
}

/// The calls in their order: method, target, status, and milliseconds of the server.
fn calls(seen: &Observation) -> Vec<String> {
    let mut all: Vec<&ObservedCall> = seen.slowest.iter().collect();
    all.sort_by_key(|c| c.start_ns);
    all.iter().map(|c| format!("{} {} {} {}", c.method, c.target, c.status, c.think_ns / MS)).collect()
}

const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

#[test]
fn calls_inside_each_suite_are_read() {
    for suite in SUITES {
        let talk = talk(suite);
        let seen = seen(&talk.frames, Some(&talk.keys), usize::MAX);
        assert_eq!(calls(&seen), ["GET /small 200 50", "POST /large 404 20"], "{suite:?}");
        let s = &seen.sums;
        assert_eq!((s.tls_access.read, s.tls, s.http, s.timed), (1, 0, 1, 0), "{suite:?}");
        assert_eq!((s.answered, s.unanswered, s.orphans), (2, 0, 0), "{suite:?}");
    }
}

#[test]
fn without_keys_records_are_timed() {
    for suite in SUITES {
        let talk = talk(suite);
        for most in [usize::MAX, 96] {
            let seen = seen(&talk.frames, None, most);
            let s = &seen.sums;
            let name = if most == 96 { "10.0.0.1:443" } else { "a.example" };
            let expected = [50, 20].map(|think| format!("TLS {name} 0 {think}"));
            assert_eq!(calls(&seen), expected, "{suite:?} {most} {s:?} {:?}", seen.packets);
            // Of a hello in part the suite is not known.
            let access = s.tls_access.without_keys + s.tls_access.without_handshake;
            assert_eq!((access, s.tls, s.http, s.timed), (1, 1, 0, 2), "{suite:?} {most}");
        }
    }
}

#[test]
fn why_content_is_not_read() {
    let talk = talk(SUITES[0]);
    let other = format!("CLIENT_RANDOM {} {}\n", "11".repeat(32), "22".repeat(48));
    let access = |frames: &[(i64, Vec<u8>)], keys: &str| seen(frames, Some(keys), usize::MAX).sums.tls_access;
    assert_eq!(access(&talk.frames, &other).not_in_log, 1);
    // The same labels with another session's secrets.
    let wrong: String = talk
        .keys
        .lines()
        .map(|l| format!("{}{}\n", &l[..l.len() - 2], if l.ends_with("00") { "01" } else { "00" }))
        .collect();
    assert_eq!(access(&talk.frames, &wrong).wrong_keys, 1);
    // The capture began after the handshake.
    let late = &talk.frames[talk.frames.len() / 2..];
    assert_eq!(access(late, &talk.keys).without_handshake, 1);
    assert_eq!(seen(late, None, usize::MAX).sums.http, 0);
}

/// A segment that the capture lacks.
#[test]
fn holes_cost_what_they_hide_and_no_more() {
    for suite in [SUITES[1], SUITES[4]] {
        let talk = talk(suite);
        let large = talk.frames.iter().rposition(|(_, f)| f.len() == 1040).expect("a large response");
        let mut frames = talk.frames.clone();
        frames.remove(large - 3);
        let seen = seen(&frames, Some(&talk.keys), usize::MAX);
        assert_eq!(calls(&seen), ["GET /small 200 50", "POST /large 404 20"], "{suite:?}");
        assert!(seen.sums.holes > 0 && seen.sums.answers_incomplete == 1, "{suite:?}: {:?}", seen.sums);
    }
}

/// Any byte changed, any packet left out: in the worst case nothing is read.
#[test]
fn damaged_conversations_do_no_harm() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % n
    };
    for suite in [SUITES[0], SUITES[3], SUITES[5]] {
        let talk = talk(suite);
        for _ in 0..100 {
            let mut frames = talk.frames.clone();
            for _ in 0..1 + below(4) {
                let at = below(frames.len());
                let frame = &mut frames[at].1;
                let byte = 20 + below(frame.len() - 20);
                frame[byte] = below(256) as u8;
                if below(3) == 0 {
                    frames.remove(at);
                }
            }
            let with = seen(&frames, Some(&talk.keys), usize::MAX).sums;
            let without = seen(&frames, None, usize::MAX).sums;
            for sums in [with, without] {
                assert!(sums.answered + sums.unanswered <= sums.requests, "{sums:?}");
            }
        }
    }
}
