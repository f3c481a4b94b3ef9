//! Explains errors to the person who must act.

use rustls::{AlertDescription, CertificateError, CipherSuite, Error, PeerIncompatible};

use crate::issuer::why_unknown;
use crate::limits::{FIRST_BYTES, NAMES_LISTED};

/// What is told of alert 40, which has no reason with it.
const NO_REASON: &str = "handshake_failure (alert 40), often for no cipher, curve or certificate in common";
/// The same, of a peer with which other handshakes succeeded.
const NO_REASON_HERE: &str = "handshake_failure (alert 40), while other handshakes succeed";

/// A reason for which a handshake failed, where others with the same configuration succeeded.
pub(crate) fn beside_success(why: &str) -> Option<String> {
    why.contains(NO_REASON).then(|| why.replace(NO_REASON, NO_REASON_HERE))
}

/// The registered name of a cipher suite (IANA), where rustls has one of its own.
pub(crate) fn suite_name(suite: CipherSuite) -> String {
    let name = format!("{suite:?}");
    name.strip_prefix("TLS13_").map_or(name.clone(), |rest| format!("TLS_{rest}"))
}

/// Whether an alert is about the handshake, although it may come when that is over for the client (RFC 8446
/// section 4.4.2.4).
pub(crate) fn is_of_handshake(error: &Error) -> bool {
    use AlertDescription as Alert;
    let Error::AlertReceived(alert) = error else { return false };
    matches!(
        alert,
        Alert::HandshakeFailure
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::IllegalParameter
    )
}

/// Describes an error of rustls. For an unknown issuer it is to be called in the thread that got the
/// error, which knows more of it.
pub fn describe(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            why_unknown().unwrap_or_else(|| "the certificate's issuer is unknown".to_owned())
        }
        Error::InvalidCertificate(why) => certificate(why),
        Error::AlertReceived(alert) => format!("the peer refused: {}", alert_words(*alert)),
        Error::PeerIncompatible(why) => incompatible(why),
        Error::InvalidMessage(_) => "the peer does not speak TLS, or breaks its rules".to_owned(),
        Error::NoCertificatesPresented => "the peer shows no certificate".to_owned(),
        Error::DecryptError => "a record cannot be decrypted".to_owned(),
        Error::PeerSentOversizedRecord => "a record is too large".to_owned(),
        Error::NoApplicationProtocol => "no protocol in common (ALPN)".to_owned(),
        other => other.to_string(),
    }
}

/// Describes an error on a connection that worked.
pub(crate) fn describe_on_working(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => format!("the peer ended the connection by an alert: {alert:?}"),
        other => describe(other),
    }
}

/// What a server speaks whose first bytes are no record of TLS, as far as they tell it.
pub(crate) fn other_protocol(first: &[u8]) -> Option<String> {
    if first.starts_with(b"HTTP/") {
        return Some(
            "the peer does not speak TLS: it answers in plain HTTP (use http:// instead of https://)"
                .to_owned(),
        );
    }
    // A server of HTTP/2 begins with SETTINGS (RFC 9113 section 3.4), on stream 0.
    if let [0, 0, _, 4, _, 0, 0, 0, 0, ..] = first {
        return Some(
            "the peer does not speak TLS: it answers in plain HTTP/2 (use http:// instead of https://, and --http2)"
                .to_owned(),
        );
    }
    let line = first.iter().take(FIRST_BYTES).take_while(|byte| matches!(byte, b' '..=b'~'));
    let line: String = line.map(|byte| char::from(*byte)).collect();
    (line.len() >= 3).then(|| format!("the peer does not speak TLS: its first bytes are {line:?}"))
}

/// Describes an error that a server got.
pub(crate) fn describe_client(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the client's certificate is self-signed, or no trusted authority has issued it".to_owned()
        }
        Error::InvalidCertificate(why) if is_authority(why) => {
            "the client's certificate is an authority's (CA:TRUE), not a client's".to_owned()
        }
        Error::InvalidCertificate(why) => {
            let words = certificate(why);
            words
                .strip_prefix("the certificate")
                .map_or(words.clone(), |rest| format!("the client's certificate{rest}"))
        }
        Error::NoCertificatesPresented => "the client shows no certificate".to_owned(),
        other => describe(other),
    }
}

/// An error without a variant in webpki has only its name.
pub(crate) fn is_authority(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(error) if error.to_string() == "CaUsedAsEndEntity")
}

fn certificate(why: &CertificateError) -> String {
    let words = match why {
        CertificateError::Expired => "the certificate has expired",
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / linerate_base::DAY_S;
            return format!("the certificate has expired, {days} days ago");
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet (or this machine's clock is wrong)"
        }
        CertificateError::NotValidForName => "the certificate is for another host",
        CertificateError::NotValidForNameContext { expected, presented } => {
            return other_host(&expected.to_str(), presented);
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is for another purpose"
        }
        CertificateError::Revoked => "the certificate was revoked",
        CertificateError::BadEncoding => "the certificate cannot be read",
        CertificateError::BadSignature => {
            "the certificate was not signed by the trusted authority of its issuer's name, which has another key"
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is not signed by the issuer that it names"
        }
        why if is_authority(why) => {
            "the certificate is an authority's (CA:TRUE), not a server's; openssl req -x509 makes a server's with -addext basicConstraints=CA:FALSE"
        }
        other => return format!("the certificate is not accepted: {other:?}"),
    };
    words.to_owned()
}

fn other_host(expected: &str, presented: &[String]) -> String {
    if presented.is_empty() {
        return format!("the certificate is not for {expected}: it has no names");
    }
    // DnsName("localhost"), IpAddress(127.0.0.1)
    let plain = |name: &String| match name.split_once('(') {
        Some((_, rest)) => rest.trim_end_matches(')').trim_matches('"').to_owned(),
        None => name.clone(),
    };
    let listed: Vec<String> = presented.iter().take(NAMES_LISTED).map(plain).collect();
    let more = match presented.len().saturating_sub(NAMES_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the certificate is not for {expected}, but for {}{more}", listed.join(", "))
}

fn incompatible(why: &PeerIncompatible) -> String {
    match why {
        PeerIncompatible::NoCipherSuitesInCommon => "no cipher suite in common".to_owned(),
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls13RequiredForQuic => "no TLS version in common".to_owned(),
        other => format!("nothing in common with the peer: {other:?}"),
    }
}

fn alert_words(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::HandshakeFailure => NO_REASON,
        AlertDescription::ProtocolVersion => "no TLS version in common",
        AlertDescription::CertificateRequired => "it wants a client certificate",
        AlertDescription::BadCertificate => "it does not accept our certificate",
        AlertDescription::UnknownCA => "it does not know who issued our certificate",
        AlertDescription::CertificateExpired => "our certificate has expired",
        AlertDescription::CertificateUnknown => "it does not accept our certificate",
        AlertDescription::UnrecognisedName => "it has no host of this name",
        AlertDescription::NoApplicationProtocol => "no protocol in common (ALPN)",
        AlertDescription::InternalError => "it has a problem of its own",
        other => return format!("alert {other:?}"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{is_of_handshake, other_protocol, suite_name};
    use rustls::{AlertDescription, CipherSuite, Error};

    #[test]
    fn suites_have_their_registered_names() {
        assert_eq!(suite_name(CipherSuite::TLS13_AES_256_GCM_SHA384), "TLS_AES_256_GCM_SHA384");
        let of_tls_1_2 = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        assert_eq!(suite_name(of_tls_1_2), "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    }

    #[test]
    fn alerts_about_certificates_belong_to_the_handshake() {
        let is = |alert| is_of_handshake(&Error::AlertReceived(alert));
        assert!(is(AlertDescription::CertificateRequired) && is(AlertDescription::UnknownCA));
        assert!(!is(AlertDescription::InternalError) && !is(AlertDescription::UnexpectedMessage));
    }

    #[test]
    fn what_speaks_no_tls_is_named() {
        let said = |first: &[u8]| other_protocol(first).unwrap_or_default();
        assert!(said(b"HTTP/1.1 400 Bad Request").contains("in plain HTTP (use http://"));
        assert!(said(b"\0\0\x12\x04\0\0\0\0\0\0\x03").contains("in plain HTTP/2"));
        assert!(said(b"SSH-2.0-OpenSSH").contains("\"SSH-2.0"));
        assert_eq!(said(b"\x15\x03\x01\0\x02"), "");
    }
}
