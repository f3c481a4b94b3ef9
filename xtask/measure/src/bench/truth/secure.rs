//! TLS's rows of docs/LOAD-TRUTH.md.

use std::time::Duration;

use linerate_broken::{
    Broken, BrokenTls, CUT, Certificate, HandshakeFault, Manner, Reply, ScriptRequest, Then,
};

use super::way::Truth::Handshakes;
use super::way::TruthExpectation::{AtLeast, AtMost, Counts, Says};
use super::way::{Over, TruthShape, TruthWay};
use super::ways::{BROKE_OFF, NOTHING};

/// Each request on a connection of its own, so that there are as many handshakes.
const EACH: TruthShape = TruthShape::requests(300).more("--insecure --per-connection 1");
const ALL_OF_THEM: TruthShape = TruthShape::requests(1000).more("--insecure");
const NEVER: TruthShape = TruthShape::requests(1000).more("--insecure --resend never");

fn secure(tls: BrokenTls, script: impl Fn(&ScriptRequest<'_>) -> Reply + Send + Sync + 'static) -> Broken {
    Broken::with(Manner { tls: Some(tls), ..Manner::default() }, script)
}

fn handshakes(handshake: fn(u64) -> HandshakeFault) -> Broken {
    secure(BrokenTls { handshake, ..BrokenTls::default() }, |_| Reply::good())
}

fn certificate(certificate: Certificate) -> Broken {
    secure(BrokenTls { certificate, ..BrokenTls::default() }, |_| Reply::good())
}

fn old_version() -> Broken {
    secure(BrokenTls { is_old: true, ..BrokenTls::default() }, |_| Reply::good())
}

/// A server that breaks three replies in ten.
fn three_in_ten(bad: fn() -> Reply) -> Broken {
    secure(BrokenTls::default(), move |asked| if asked.nth % 10 < 3 { bad() } else { Reply::good() })
}

/// What TLS adds.
pub(super) const ALL: &[TruthWay] = &[
    TruthWay {
        name: "tls-alert-40",
        what: "answers 3 handshakes in 10 by alert 40 (handshake_failure)",
        server: || {
            handshakes(|nth| if nth % 10 < 3 { HandshakeFault::Alert(40) } else { HandshakeFault::Good })
        },
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("alert 40")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-alert-80",
        what: "answers 3 handshakes in 10 by alert 80 (internal_error)",
        server: || {
            handshakes(|nth| if nth % 10 < 3 { HandshakeFault::Alert(80) } else { HandshakeFault::Good })
        },
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("it has a problem of its own")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-closes-handshake",
        what: "closes during 3 handshakes in 10",
        server: || handshakes(|nth| if nth % 10 < 3 { HandshakeFault::Close } else { HandshakeFault::Good }),
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("during the handshake")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-resets-handshake",
        what: "resets during 3 handshakes in 10",
        server: || handshakes(|nth| if nth % 10 < 3 { HandshakeFault::Reset } else { HandshakeFault::Good }),
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("during the handshake")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-half-handshake",
        what: "closes in the middle of its first message, 3 in 10",
        server: || handshakes(|nth| if nth % 10 < 3 { HandshakeFault::Half } else { HandshakeFault::Good }),
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("during the handshake")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-ssh-handshake",
        what: "speaks SSH, 3 in 10",
        server: || {
            handshakes(|nth| {
                if nth % 10 < 3 {
                    HandshakeFault::Says(b"SSH-2.0-OpenSSH_9.6\r\n")
                } else {
                    HandshakeFault::Good
                }
            })
        },
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("its first bytes are")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-plain-handshake",
        what: "answers in plain HTTP, 3 in 10",
        server: || {
            handshakes(|nth| {
                if nth % 10 < 3 {
                    HandshakeFault::Says(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                } else {
                    HandshakeFault::Good
                }
            })
        },
        over: Over::Tls,
        shape: EACH,
        named: &[Counts("failures.connect"), Says("it answers in plain HTTP")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-silent-handshake",
        what: "says nothing in 1 handshake in 5",
        server: || handshakes(|nth| if nth % 5 == 4 { HandshakeFault::Silent } else { HandshakeFault::Good }),
        over: Over::Tls,
        shape: TruthShape::requests(40).more("--insecure --per-connection 1"),
        named: &[Counts("failures.connect")],
        truth: Handshakes,
        ..NOTHING
    },
    TruthWay {
        name: "tls-late-handshake",
        what: "begins each handshake 200 ms late",
        server: || handshakes(|_| HandshakeFault::Late(Duration::from_millis(200))),
        over: Over::Tls,
        shape: TruthShape::requests(100).more("--insecure"),
        named: &[AtLeast("latency_us.tls.max", 190e3), AtMost("requests.failed", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-expired",
        what: "has a certificate that has expired",
        server: || certificate(Certificate::Expired),
        over: Over::Tls,
        shape: TruthShape::requests(100),
        named: &[Says("the certificate")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-early",
        what: "has a certificate that is not valid yet",
        server: || certificate(Certificate::Early),
        over: Over::Tls,
        shape: TruthShape::requests(100),
        named: &[Says("the certificate")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-other-host",
        what: "has a certificate for another host",
        server: || certificate(Certificate::OtherHost),
        over: Over::Tls,
        shape: TruthShape::requests(100),
        named: &[Says("the certificate")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-self-signed",
        what: "has a certificate that it signed itself",
        server: || certificate(Certificate::Good),
        over: Over::Tls,
        shape: TruthShape::requests(100),
        named: &[Says("self-signed")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-old-version",
        what: "speaks TLS 1.2 where 1.3 is asked for",
        server: old_version,
        over: Over::Tls,
        shape: TruthShape::requests(100).more("--insecure --tls-min 1.3"),
        named: &[Says("no TLS version in common")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-no-h2",
        what: "does not agree to HTTP/2 (ALPN)",
        server: || certificate(Certificate::Good),
        over: Over::Tls,
        shape: TruthShape::requests(100).more("--insecure --http2"),
        named: &[Says("no protocol in common (ALPN)")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-cut",
        what: "closes without close_notify instead of 3 responses in 10",
        server: || three_in_ten(|| Reply::broken("", Then::Cut)),
        over: Over::Tls,
        shape: NEVER,
        named: &[Counts("failures.closed_early"), Says("close_notify")],
        ..NOTHING
    },
    TruthWay {
        name: "tls-cut-body",
        what: "closes without close_notify in the middle of 3 bodies in 10",
        server: || three_in_ten(|| Reply::broken(CUT, Then::Cut)),
        over: Over::Tls,
        shape: ALL_OF_THEM,
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-close-body",
        what: "closes with close_notify in the middle of 3 bodies in 10",
        server: || three_in_ten(|| Reply::broken(CUT, Then::Close)),
        over: Over::Tls,
        shape: ALL_OF_THEM,
        named: &[Counts("failures.truncated"), Says(BROKE_OFF)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-alert-working",
        what: "sends a fatal alert instead of 3 responses in 10",
        server: || three_in_ten(|| Reply::broken("", Then::Alert)),
        over: Over::Tls,
        shape: NEVER,
        named: &[
            Counts("failures.closed_early"),
            AtMost("failures.connect", 0.0),
            Says("by an alert: BadRecordMac"),
        ],
        ..NOTHING
    },
    TruthWay {
        name: "tls-alert-body",
        what: "sends a fatal alert in the middle of 3 bodies in 10",
        server: || three_in_ten(|| Reply::broken(CUT, Then::Alert)),
        over: Over::Tls,
        shape: ALL_OF_THEM,
        named: &[Counts("failures.truncated"), AtMost("failures.connect", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-garbled",
        what: "sends a record that no key decrypts instead of 3 responses in 10",
        server: || three_in_ten(|| Reply::broken("", Then::Garble)),
        over: Over::Tls,
        shape: NEVER,
        named: &[Counts("failures.malformed"), AtMost("failures.connect", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-garbled-body",
        what: "the same in the middle of 3 bodies in 10",
        server: || three_in_ten(|| Reply::broken(CUT, Then::Garble)),
        over: Over::Tls,
        shape: ALL_OF_THEM,
        named: &[Counts("requests.failed"), AtMost("failures.connect", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-tiny-records",
        what: "sends each byte in a record of its own",
        server: || secure(BrokenTls { record: Some(1), ..BrokenTls::default() }, |_| Reply::good()),
        over: Over::Tls,
        shape: TruthShape::requests(200).more("--insecure"),
        named: &[AtMost("requests.failed", 0.0)],
        ..NOTHING
    },
    TruthWay {
        name: "tls-post-cut",
        what: "closes without close_notify instead of 3 responses in 10 to POST",
        server: || three_in_ten(|| Reply::broken("", Then::Cut)),
        over: Over::Tls,
        shape: TruthShape::requests(1000).more("--insecure -X POST --body 0123456789"),
        named: &[Counts("requests.unknown")],
        ..NOTHING
    },
];
