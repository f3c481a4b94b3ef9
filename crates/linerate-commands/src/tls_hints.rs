//! Hints for the person who must act when a TLS handshake failed.

use linerate_load::plan::http::Http;

/// Parts of a reason, and the hint for it. The first that fits counts.
const HINTS: [(&str, &str); 19] = [
    (
        "our certificate has expired",
        "renew the certificate of --cert; openssl x509 -noout -dates -in FILE shows until when it is valid",
    ),
    (
        "our certificate",
        "give with --cert FILE a certificate that an authority of the server's has signed, with its intermediates",
    ),
    ("has expired", "renew the server's certificate; --insecure calls the server without checking it"),
    (
        "is not valid yet",
        "compare the clocks of both machines (date -u); openssl x509 -noout -dates -in FILE shows from when it is valid",
    ),
    ("it has no names", "issue it with -addext subjectAltName=DNS:NAME; clients ignore its common name"),
    (
        "the certificate is not for",
        "put a name that it has into the URL, and reach the server with --resolve NAME:PORT:ADDRESS; or add the name to the certificate",
    ),
    (
        "the certificate is self-signed",
        "trust it with --cacert FILE; --insecure calls the server without checking it",
    ),
    ("for another purpose", "issue it for servers: -addext extendedKeyUsage=serverAuth"),
    (
        "does not send the intermediate certificate",
        "append the intermediate certificate to the server's certificate file (nginx: ssl_certificate, HAProxy: crt)",
    ),
    (
        "has another key",
        "the authority was made anew: give its current certificate with --cacert FILE, or issue the server's again",
    ),
    ("issuer", "trust the authority with --cacert FILE; --insecure calls the server without checking it"),
    (
        "no TLS version in common",
        "leave out --tls-min and --tls-max, or enable TLS 1.2 or 1.3 in the server (nginx: ssl_protocols)",
    ),
    ("in common (ALPN)", "leave out --http: the server chooses between the protocols that we offer"),
    (
        "in common",
        "leave out --ciphers and --tls-max, or enable more suites in the server (nginx: ssl_ciphers); its key must be RSA, ECDSA \
         on P-256, P-384 or P-521, or Ed25519; if it wants a client certificate, which some servers say so too, give one \
         with --cert FILE and --key FILE",
    ),
    ("wants a client certificate", "give one with --cert FILE and --key FILE"),
    ("its first bytes are", "check the port: another protocol is spoken there"),
    (
        "the connection during the handshake",
        "read the server's log: it may want a host name that it has, or speak no TLS at this port",
    ),
    (
        "does not answer the TLS handshake",
        "check the port: with plain HTTP there, write http:// instead of https://",
    ),
    ("has a problem of its own", "read the server's log: its key or certificate may be missing"),
];

/// The hint where no protocol was in common, which depends on what was offered.
pub(crate) fn of_offer(why: &str, offered: Http) -> Option<&'static str> {
    if !why.contains("in common (ALPN)") {
        return of(why);
    }
    Some(match offered {
        Http::One => "leave out --http 1.1: the server may speak HTTP/2 alone",
        Http::Two => "leave out --http 2: the server may speak HTTP/1.1 alone",
        Http::Three => "leave out --http 3: the server speaks another protocol over QUIC",
        Http::Auto => {
            "check the port: the server accepts neither h2 nor http/1.1, so it speaks another protocol there"
        }
    })
}

/// The hint for a reason that a server could not be reached, if TLS is that.
pub(crate) fn of(why: &str) -> Option<&'static str> {
    if !why.contains("TLS") {
        return None;
    }
    HINTS.iter().find(|(part, _)| why.contains(part)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::{Http, of, of_offer};

    #[test]
    fn no_hint_tells_to_leave_out_what_was_not_given() {
        let refused = "TLS: the peer refused: no protocol in common (ALPN)";
        let hint = |offered| of_offer(refused, offered).unwrap_or_default();
        assert!(hint(Http::One).contains("--http 1.1"));
        assert!(hint(Http::Two).contains("--http 2"));
        assert!(!hint(Http::Auto).contains("--http"));
        assert!(of_offer("TLS: the certificate has expired", Http::Auto).is_some());
    }

    #[test]
    fn our_certificate_is_not_taken_for_the_servers() {
        let theirs = of("localhost:443 could not be reached: TLS: the certificate has expired, 3 days ago");
        assert!(theirs.is_some_and(|hint| hint.contains("the server's certificate")));
        let ours = of("TLS: the peer refused: our certificate has expired");
        assert!(ours.is_some_and(|hint| hint.contains("--cert")));
        assert_eq!(of("connection refused"), None);
    }
}
