//! Faults in the TLS handshake, with `--tls` alone.

use crate::bench::explain::case::{Case, CaseServer, Fixed, PLAIN};

const TLS: Case = Case { over_tls: true, rtts: &[40], ..PLAIN };

pub(super) static CASES: &[Case] = &[
    Case {
        name: "tls-nothing-resumed",
        truth: "tls-full-handshake",
        server: CaseServer::Nginx(
            "ssl_protocols TLSv1.2; ssl_session_tickets off; ssl_session_cache off; return 200 hello;",
        ),
        behind: &["tls-old-version"],
        ..TLS
    },
    Case {
        name: "tls-limited-client",
        truth: "tls-old-version",
        server: CaseServer::Nginx("ssl_protocols TLSv1.2 TLSv1.3; return 200 hello;"),
        flags: &["--tls-max", "1.2", "--tls-resume", "off"],
        behind: &["tls-full-handshake"],
        ..TLS
    },
    Case {
        name: "tls-other-group",
        truth: "tls-hello-retry",
        server: CaseServer::Nginx("ssl_protocols TLSv1.3; ssl_ecdh_curve secp384r1; return 200 hello;"),
        fixed: Fixed::Server(CaseServer::Nginx("ssl_protocols TLSv1.3; return 200 hello;")),
        ..TLS
    },
    Case {
        name: "tls-healthy-nginx",
        alike: true,
        server: CaseServer::Nginx("ssl_protocols TLSv1.2 TLSv1.3; return 200 hello;"),
        rtts: &[0, 40],
        ..TLS
    },
    Case {
        name: "tls-healthy-old",
        alike: true,
        server: CaseServer::Nginx("ssl_protocols TLSv1.2; return 200 hello;"),
        rtts: &[0, 40],
        ..TLS
    },
];
