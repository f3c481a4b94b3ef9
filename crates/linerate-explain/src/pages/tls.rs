//! In the TLS handshake of a new connection.

use super::page::PictureStep::{From, Then, To, Wait};
use super::page::{CausePage, fix, page};

pub(super) static PAGES: &[CausePage] = &[
    page(
        "tls-full-handshake",
        "At the end of a TLS handshake the server may give the client a ticket. With it the next connection resumes the session: no \
         certificates are sent, nobody signs anything, and with TLS 1.2 one round trip is enough instead of two. Where the server gives no \
         ticket, or the next machine behind the same address cannot read it, each new connection pays for a full handshake again.",
        &[
            To("ClientHello, without a ticket"),
            Wait(6.0, "the server signs"),
            From("certificates, signature"),
            To("Finished, request"),
            From("answer"),
        ],
        &[
            fix(
                "browsers, curl",
                "browsers resume by themselves; curl does within one command and with --ssl-sessions FILE (8.12)",
            ),
            fix(
                "Python",
                "requests.Session or httpx.Client keeps connections; ssl resumes only where wrap_socket gets session=",
            ),
        ],
    ),
    page(
        "tls-old-version",
        "The handshake of TLS 1.2 takes two round trips before the request may leave: one to agree on how to talk, one to exchange keys. \
         TLS 1.3 (2018) sends the key with the first message, so that one round trip is enough. Far from the server that is the largest \
         part of what a new connection costs.",
        &[
            To("ClientHello"),
            From("ServerHello, certificates"),
            To("key exchange, Finished"),
            Wait(40.0, "a round trip more than TLS 1.3"),
            From("Finished"),
            To("request"),
        ],
        &[fix("macOS, Windows", "TLS 1.3 is there since macOS 10.14 and Windows Server 2022 (Schannel)")],
    ),
    page(
        "tls-hello-retry",
        "A client of TLS 1.3 sends its part of the key exchange with the first message, before it knows which curve the server likes. Nearly \
         all send X25519. A server that wants another curve has to ask for it, and the client begins again: one more round trip for \
         each new connection.",
        &[
            To("ClientHello, share of X25519"),
            From("HelloRetryRequest: secp384r1"),
            To("ClientHello, share of secp384r1"),
            Wait(40.0, "a round trip more"),
            From("ServerHello, certificates"),
        ],
        &[fix("OpenSSL", "Groups = X25519:P-256:P-384 in the section of openssl.cnf that the server uses")],
    ),
    page(
        "tls-long-chain",
        "A new connection may send ten packets, some 14 kB, and then waits for an acknowledgement. A server's certificates usually have 2 to \
         4 kB. Where they have more, since the chain has certificates that nobody needs, or hundreds of names, the handshake waits a round \
         trip in its middle.",
        &[
            To("ClientHello"),
            From("certificates, 14480 bytes"),
            Wait(40.0, "the window is full until our ACK arrives"),
            From("certificates, the rest"),
            To("Finished, request"),
        ],
        &[fix("openssl", "openssl s_client -connect HOST:443 -showcerts lists what is sent")],
    ),
    page(
        "tls-slow-key",
        "In each full handshake the server signs with its private key, to prove that it is who it says. A key of ECDSA P-256 signs in 30 \
         microseconds, RSA 2048 in 1 millisecond, RSA 4096 in 5 to 10; a key that lies in an HSM or behind a service takes what the way \
         there takes. The client waits, and so do all others if the server has one thread for it.",
        &[
            To("ClientHello"),
            Then(0.2, "the network"),
            Wait(6.0, "the server signs with RSA 4096"),
            From("certificates, signature"),
            To("Finished, request"),
        ],
        &[fix(
            "openssl",
            "openssl speed rsa4096 ecdsap256 shows what a signature takes on the server's machine",
        )],
    ),
];
