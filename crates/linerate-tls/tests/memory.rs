//! Two sessions that talk to each other in memory: at any cut, with any bytes in between, and with every kind of certificate.

mod identity;

use std::net::{Ipv4Addr, SocketAddr};

use identity::{CLIENT, LOCALHOST, SERVER, client_options, identity, layer, pem};
use linerate_net::layer::{Layer, Progress, Session};
use linerate_net::{Listener, NetErrorKind};
use linerate_tls::{
    ClientOptions, HandshakeCounts, Identity, Roots, ServerOptions, TlsError, TlsLayer, TlsSession, Version,
};
use proptest::prelude::*;

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 443);

fn pair(layer: &mut TlsLayer) -> (TlsSession, TlsSession) {
    let client = layer.connect(CLIENT, PEER).expect("a session").expect("with TLS");
    let server = layer.accept(Listener::new(0), SERVER, PEER).expect("with TLS");
    (client, server)
}

fn usual() -> TlsLayer {
    layer(&client_options(&LOCALHOST), &ServerOptions::new(identity(&LOCALHOST)))
}

/// Moves bytes from one to the other in pieces of at most `cut`; what arrives is appended to `got`.
fn carry(wire: &mut Vec<u8>, to: &mut TlsSession, cut: usize, got: &mut Vec<u8>) -> (Progress, Vec<u8>) {
    let mut progress = Progress::Open;
    for piece in std::mem::take(wire).chunks_mut(cut.max(1)) {
        if progress == Progress::Open {
            progress = to.open(piece, &mut |plain| got.extend_from_slice(plain));
        }
    }
    let mut replies = Vec::new();
    to.reply(&mut replies);
    (progress, replies)
}

/// Both shake hands; the first failure of either side.
fn shake(client: &mut TlsSession, server: &mut TlsSession, cut: usize) -> Progress {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    client.begin(&mut up);
    for _ in 0..8 {
        let (progress, mut replies) = carry(&mut up, server, cut, &mut Vec::new());
        down.append(&mut replies);
        if progress != Progress::Open {
            // The client hears of it.
            carry(&mut down, client, cut, &mut Vec::new());
            return progress;
        }
        let (progress, mut replies) = carry(&mut down, client, cut, &mut Vec::new());
        up.append(&mut replies);
        if progress != Progress::Open {
            // The server hears of it.
            carry(&mut up, server, cut, &mut Vec::new());
            return progress;
        }
    }
    Progress::Open
}

fn counts(layer: &TlsLayer) -> HandshakeCounts {
    layer.counts().lock().expect("nobody panics").clone()
}

/// Why the handshake fails, as the counts of both sides tell it.
fn failure(client: &ClientOptions, server: &ServerOptions) -> Vec<String> {
    let mut layer = layer(client, server);
    let (mut one, mut other) = pair(&mut layer);
    let failed = Progress::Failed(linerate_net::NetError::of(NetErrorKind::Handshake));
    assert_eq!(shake(&mut one, &mut other, usize::MAX), failed);
    let counts = counts(&layer);
    // A TLS 1.3 client is ready before the server has looked at its certificate.
    assert_eq!((counts.full, counts.agreed.len()), (0, 0), "{:?}", counts.failed);
    counts.failed.into_keys().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_cut_gives_the_same_bytes(cut in 1usize..5000, len in 0usize..60_000) {
        let mut layer = usual();
        let (mut client, mut server) = pair(&mut layer);
        prop_assert_eq!(shake(&mut client, &mut server, cut), Progress::Open);
        prop_assert!(client.is_ready() && server.is_ready());
        let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let (mut wire, mut got) = (Vec::new(), Vec::new());
        client.seal(&sent, &mut wire);
        prop_assert!(wire.len() <= client.sealed_len(len));
        client.finish(&mut wire);
        let (progress, _) = carry(&mut wire, &mut server, cut, &mut got);
        prop_assert_eq!(progress, Progress::Ended);
        prop_assert!(got == sent);
        prop_assert_eq!(counts(&layer).full, 2, "each side counts its own");
    }

    /// Whatever comes, in whatever state: a session continues or fails; it neither panics nor grows.
    #[test]
    fn any_bytes_at_any_time(
        bytes in prop::collection::vec(any::<u8>(), 1..2000),
        begins_as_tls in any::<bool>(),
        rounds in 0usize..4,
        to_server in any::<bool>(),
        cut in 1usize..600,
    ) {
        let mut layer = usual();
        let (mut client, mut server) = pair(&mut layer);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.begin(&mut up);
        for _ in 0..rounds {
            down.append(&mut carry(&mut up, &mut server, cut, &mut Vec::new()).1);
            up.append(&mut carry(&mut down, &mut client, cut, &mut Vec::new()).1);
        }
        let mut bytes = bytes;
        if begins_as_tls {
            let head = [22, 3, 3, (bytes.len() >> 8) as u8, bytes.len() as u8];
            bytes.splice(0..0, head);
        }
        let subject = if to_server { &mut server } else { &mut client };
        let (progress, replies) = carry(&mut bytes, subject, cut, &mut Vec::new());
        prop_assert!(progress != Progress::Ended, "nobody said so");
        prop_assert!(replies.len() < 20_000);
    }
}

#[test]
fn sessions_are_resumed_unless_that_is_off() {
    for (resume, resumed) in [(true, 2), (false, 0)] {
        for version in [Version::Tls12, Version::Tls13] {
            let mut client = client_options(&LOCALHOST);
            (client.resume, client.most) = (resume, version);
            let mut layer = layer(&client, &ServerOptions::new(identity(&LOCALHOST)));
            for _ in 0..2 {
                let (mut client, mut server) = pair(&mut layer);
                assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
            }
            let counts = counts(&layer);
            assert_eq!((counts.full, counts.resumed), (4 - resumed, resumed), "{version:?}");
            let agreed = counts.agreed.keys().next().expect("one");
            assert_eq!(agreed.version, if version == Version::Tls12 { "TLSv1.2" } else { "TLSv1.3" });
        }
    }
}

#[test]
fn a_cut_is_not_an_end() {
    let mut layer = usual();
    let (mut client, mut server) = pair(&mut layer);
    assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
    assert_eq!(client.cut(), Progress::Failed(linerate_net::NetError::of(NetErrorKind::Cut)));
    assert_eq!(server.cut(), Progress::Ended, "requests tell their own end");
    let (mut client, _) = pair(&mut layer);
    assert_eq!(client.cut(), Progress::Failed(linerate_net::NetError::of(NetErrorKind::Handshake)));
    assert_eq!(counts(&layer).failed["the peer closed the connection during the handshake"], 1);
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let server = ServerOptions::new(identity(&LOCALHOST));
    let other = pem("elsewhere.example");
    let unknown = failure(&client_options(&other), &server);
    assert!(unknown.iter().any(|why| why.contains("self-signed")), "{unknown:?}");
    let elsewhere = failure(&client_options(&other), &ServerOptions::new(identity(&other)));
    assert!(
        elsewhere.contains(&"the certificate is not for localhost, but for elsewhere.example".to_owned()),
        "{elsewhere:?}"
    );

    let mut believes = client_options(&other);
    believes.roots = Roots::Insecure;
    let mut layer = layer(&believes, &server);
    let (mut client, mut server) = pair(&mut layer);
    assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open, "insecure believes everybody");
}

#[test]
fn no_common_version_is_said() {
    let mut client = client_options(&LOCALHOST);
    client.most = Version::Tls12;
    let mut server = ServerOptions::new(identity(&LOCALHOST));
    server.least = Version::Tls13;
    let why = failure(&client, &server);
    assert!(why.iter().any(|why| why.contains("no TLS version in common")), "{why:?}");
}

#[test]
fn a_client_certificate_is_asked_for() {
    let mut server = ServerOptions::new(identity(&LOCALHOST));
    server.client_roots = Some(("ca.pem".to_owned(), LOCALHOST.certificate.clone().into_bytes()));
    let mut client = client_options(&LOCALHOST);
    client.most = Version::Tls12;
    let why = failure(&client, &server);
    assert!(why.iter().any(|why| why.contains("certificate")), "{why:?}");
    client.most = Version::Tls13;
    let why = failure(&client, &server);
    assert!(why.contains(&"the peer refused: it wants a client certificate".to_owned()), "{why:?}");
    client.identity = Some(identity(&LOCALHOST));
    let mut layer = layer(&client, &server);
    let (mut client, mut server) = pair(&mut layer);
    // A certificate for servers only would be refused; this one is for both.
    assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
}

/// RFC 8446 section 5.1: nothing comes between the fragments of a message. Section 6.2: the peer is
/// sent an alert, here in plain since no keys are agreed on.
#[test]
fn each_fault_of_a_first_message_is_followed_by_an_alert() {
    let whole = |len: usize| {
        let mut message = vec![1, (len >> 16) as u8, (len >> 8) as u8, len as u8];
        message.resize(4 + len, 0);
        let record =
            |piece: &[u8]| [&[22, 3, 1, (piece.len() >> 8) as u8, piece.len() as u8], piece].concat();
        message.chunks(16_000).flat_map(record).collect::<Vec<u8>>()
    };
    let interleaved = [&whole(40)[..5 + 20], &[23, 3, 3, 0, 1, 0]].concat();
    for (name, mut bytes, what) in [
        ("too large", whole(70_000), 50),
        ("interleaved", [&[22, 3, 1, 0, 20][..], &interleaved[5..]].concat(), 10),
        ("no ClientHello", vec![22, 3, 1, 0, 4, 0, 0, 0, 0], 10),
        ("nonsense", whole(40), 50),
    ] {
        let mut layer = usual();
        let (_, mut server) = pair(&mut layer);
        let (progress, reply) = carry(&mut bytes, &mut server, 1000, &mut Vec::new());
        assert!(matches!(progress, Progress::Failed(_)), "{name}: {progress:?}");
        assert_eq!(reply, [21, 3, 3, 0, 2, 2, what], "{name}");
    }
}

/// A record of application data that no key decrypts.
const GARBAGE: &[u8] = b"\x17\x03\x03\x00\x20no key decrypts these thirty-two..";

/// RFC 8446 section 6.2: a fatal alert ends a connection that worked. The handshake had succeeded.
#[test]
fn what_ends_a_working_connection_is_no_failed_handshake() {
    for (carried, garbled) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut layer = usual();
        let (mut client, mut server) = pair(&mut layer);
        assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
        if carried {
            let mut wire = Vec::new();
            server.seal(b"response", &mut wire);
            assert_eq!(carry(&mut wire, &mut client, usize::MAX, &mut Vec::new()).0, Progress::Open);
        }
        let mut wire = GARBAGE.to_vec();
        if !garbled {
            // The server answers by an alert.
            let (_, alert) = carry(&mut wire, &mut server, usize::MAX, &mut Vec::new());
            wire = alert;
        }
        let (progress, _) = carry(&mut wire, &mut client, usize::MAX, &mut Vec::new());
        let (kind, words) = match garbled {
            true => (NetErrorKind::Garbled, "a record cannot be decrypted"),
            false => (NetErrorKind::Cut, "the peer ended the connection by an alert: BadRecordMac"),
        };
        assert_eq!(progress, Progress::Failed(linerate_net::NetError::of(kind)), "{carried} {garbled}");
        assert!(client.reason().is_some_and(|why| why.contains(words)), "{:?}", client.reason());
        let counts = counts(&layer);
        assert_eq!((counts.full, counts.failed.len()), (2, 0), "{:?}", counts.failed);
    }
}

/// Alert 40 says nothing of its reason: none is supposed where other handshakes succeed.
#[test]
fn alert_40_beside_handshakes_that_succeed_has_no_reason() {
    let mut layer = usual();
    let refuse = |layer: &mut TlsLayer| {
        let mut client = layer.connect(CLIENT, PEER).expect("a session").expect("with TLS");
        client.begin(&mut Vec::new());
        carry(&mut vec![21, 3, 3, 0, 2, 2, 40], &mut client, usize::MAX, &mut Vec::new());
        client.reason().expect("it failed")
    };
    assert!(refuse(&mut layer).contains("often for no cipher"));
    let (mut client, mut server) = pair(&mut layer);
    assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
    let words = "handshake_failure (alert 40), while other handshakes succeed";
    assert!(refuse(&mut layer).contains(words));
    let failed = counts(&layer).failed;
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(format!("the peer refused: {words}"), 2)]);
}

#[test]
fn plain_http_to_a_tls_port_is_answered_in_plain() {
    let mut layer = usual();
    let (_, mut server) = pair(&mut layer);
    let mut wire = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let (progress, reply) = carry(&mut wire, &mut server, usize::MAX, &mut Vec::new());
    assert!(matches!(progress, Progress::Failed(_)));
    let reply = String::from_utf8(reply).expect("text");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a response");
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head} {}", body.len());
}

#[test]
fn another_protocol_behind_https_is_named_by_its_first_bytes() {
    for (bytes, expected) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "it answers in plain HTTP (use http:// instead of https://)",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its first bytes are \"SSH-2.0-OpenSSH_9.2\""),
        (b"220 mail.example ESMTP \x1b[2J", "its first bytes are \"220 mail.example ESMTP \""),
        (b"\x80\x2e\x01\x00\x02\x00", "or breaks its rules"),
        (b"\x16\x02\xff\x00\x02aa", "or breaks its rules"),
    ] {
        // A piece that is too short to tell is only reported as no TLS.
        for (cut, expected) in [(1, ""), (100, expected)] {
            let mut layer = usual();
            let (mut client, _) = pair(&mut layer);
            client.begin(&mut Vec::new());
            let (progress, _) = carry(&mut bytes.to_vec(), &mut client, cut, &mut Vec::new());
            assert!(matches!(progress, Progress::Failed(_)), "{bytes:?}");
            let said = client.reason().expect("a reason");
            assert!(said.contains("does not speak TLS") && said.contains(expected), "{said}");
        }
    }
}

#[test]
fn keys_and_certificates_that_cannot_be_used_are_named() {
    let (one, other) = (&*LOCALHOST, pem("localhost"));
    let made = |chain: &str, key: &str| {
        Identity::from_pem(("cert.pem", chain.as_bytes()), ("key.pem", key.as_bytes())).map(|_| ())
    };
    assert_eq!(made(&one.certificate, &one.key), Ok(()));
    let is = |result: Result<(), TlsError>, words: &str| {
        let said = result.expect_err("refused").to_string();
        assert!(said.contains(words), "{said}");
    };
    is(
        made(&one.certificate, &other.key),
        "key.pem: this key does not belong to the certificate in cert.pem",
    );
    is(made(&one.certificate, &other.key), "\nhint: of a pair, `openssl x509 -noout -pubkey -in cert.pem`");
    is(made("", &one.key), "cert.pem: no certificate");
    is(made(&one.certificate, ""), "key.pem: no private key");
    is(made(&one.key, &one.key), "cert.pem: no certificate");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    is(made(&one.certificate, encrypted), "the private key is encrypted");
    let half = &one.certificate[..one.certificate.len() / 2];
    is(made(half, &one.key), "cert.pem: the line \"-----END CERTIFICATE-----\" is missing");
}

#[test]
fn ciphers_have_the_names_of_openssl_too() {
    for name in ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_AES_256_GCM_SHA384"] {
        assert!(linerate_tls::is_cipher(name), "{name}");
    }
    assert!(!linerate_tls::is_cipher("DES-CBC3-SHA"));
}

#[test]
fn unknown_ciphers_are_refused_with_those_there_are() {
    let mut options = client_options(&LOCALHOST);
    options.ciphers = vec!["ROT13".to_owned()];
    let said = options.build().expect_err("refused").to_string();
    assert!(said.contains("no cipher suite ROT13") && said.contains("TLS_AES_128_GCM_SHA256"), "{said}");
    // By the registered name, and by rustls' own.
    for name in ["TLS_AES_128_GCM_SHA256", "TLS13_AES_128_GCM_SHA256", "tls_aes_128_gcm_sha256"] {
        options.ciphers = vec![name.to_owned()];
        let mut layer = layer(&options, &ServerOptions::new(identity(&LOCALHOST)));
        let (mut client, mut server) = pair(&mut layer);
        assert_eq!(shake(&mut client, &mut server, usize::MAX), Progress::Open);
        let counts = counts(&layer);
        assert_eq!(counts.agreed.keys().next().expect("one").cipher, "TLS_AES_128_GCM_SHA256");
    }
}
