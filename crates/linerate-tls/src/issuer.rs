//! Why a certificate's issuer is not accepted: rustls says only that it is unknown.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use crate::words::is_authority;
use crate::x509::{CertificateFacts, Signed, Validity, name};

const SELF_SIGNED: &str = "the certificate is self-signed, and is not among the trusted ones";

thread_local! {
    /// The reason of the last [`CertificateError::UnknownIssuer`] in this thread. The error itself
    /// has no place for it, and another error would send the server another alert.
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The reason of an unknown issuer, of which this thread has the error.
pub(crate) fn why_unknown() -> Option<String> {
    WHY.with_borrow(Clone::clone)
}

/// Verifies as webpki does, notes why an issuer is unknown, and accepts a trusted certificate at a
/// server even if it says CA:TRUE, as `openssl req -x509` writes it. webpki refuses these.
#[derive(Debug)]
pub(crate) struct Explaining {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

impl Explaining {
    pub(crate) fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Explaining, String> {
        let algorithms = provider.signature_verification_algorithms.all;
        let webpki = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider).build();
        let webpki = webpki.map_err(|error| error.to_string())?;
        Ok(Explaining { webpki, roots, algorithms })
    }

    /// Judges a server's certificate that says CA:TRUE, if it is self-signed. It is then a chain of
    /// its own, whose end is trusted or not.
    fn authority(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Option<Result<ServerCertVerified, Error>> {
        let signed = Signed::of(own)?;
        let validity = CertificateFacts::of(own).validity?;
        if !signed.is_by_itself(self.algorithms) {
            return None;
        }
        let is_it = |anchor: &TrustAnchor<'_>| {
            *anchor.subject == *signed.subject && *anchor.subject_public_key_info == *signed.key_info
        };
        if !self.roots.roots.iter().any(is_it) {
            WHY.set(Some(SELF_SIGNED.to_owned()));
            return Some(Err(CertificateError::UnknownIssuer.into()));
        }
        let verified = within(validity, now)
            .and_then(|()| verify_server_name(&ParsedCertificate::try_from(own)?, name))
            .map(|()| ServerCertVerified::assertion());
        Some(verified)
    }
}

/// Whether a certificate is valid now.
fn within(validity: Validity, now: UnixTime) -> Result<(), Error> {
    let at = |seconds: i64| {
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    };
    let (not_before, not_after) = (at(validity.from), at(validity.until));
    if now.as_secs() < not_before.as_secs() {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    if now.as_secs() > not_after.as_secs() {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    Ok(())
}

/// Why the issuer of `own` is unknown to a client that got `sent` with it.
pub(crate) fn why(
    algorithms: &[&dyn SignatureVerificationAlgorithm],
    own: &CertificateDer<'_>,
    sent: &[CertificateDer<'_>],
) -> Option<String> {
    let own = Signed::of(own)?;
    if own.is_by_itself(algorithms) {
        return Some(SELF_SIGNED.to_owned());
    }
    let sent: Vec<Signed<'_>> = sent.iter().filter_map(|der| Signed::of(der)).collect();
    let (mut top, mut length) = (&own, 0);
    while let Some(issuer) = sent.iter().find(|one| one.subject == top.issuer)
        && top.subject != top.issuer
        && length < sent.len()
    {
        (top, length) = (issuer, length + 1);
    }
    let issuer = shown(top.issuer);
    Some(if top.issuer == top.subject {
        format!("the issuer is unknown: the chain ends at {issuer}, which is not trusted")
    } else if top.has_issuers_address {
        format!("the server does not send the intermediate certificate {issuer}")
    } else {
        format!("the issuer {issuer} is not trusted, and the server does not send its certificate")
    })
}

/// A name, for a line of text.
fn shown(content: &[u8]) -> String {
    match name(content) {
        name if name.is_empty() => "without a name".to_owned(),
        name => name.chars().take(crate::limits::NAME_CHARS).collect(),
    }
}

impl ServerCertVerifier for Explaining {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match &verified {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                WHY.set(why(self.algorithms, end_entity, intermediates));
                verified
            }
            // A trusted authority of the same name has another key.
            Err(Error::InvalidCertificate(
                CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            )) if Signed::of(end_entity).is_some_and(|own| own.is_by_itself(self.algorithms)) => {
                WHY.set(Some(SELF_SIGNED.to_owned()));
                Err(CertificateError::UnknownIssuer.into())
            }
            Err(Error::InvalidCertificate(error)) if is_authority(error) => {
                self.authority(end_entity, server_name, now).unwrap_or(verified)
            }
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.webpki.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.webpki.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    /// An authority of this name: its certificate, and what signs by it.
    fn authority(name: &str, by: Option<&Issuer<'_, KeyPair>>) -> (Certificate, Issuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(Vec::new()).expect("no name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let made = match by {
            Some(by) => params.signed_by(&key, by),
            None => params.self_signed(&key),
        };
        (made.expect("a certificate"), Issuer::new(params, key))
    }

    fn leaf(by: Option<&Issuer<'_, KeyPair>>, has_issuers_address: bool) -> Certificate {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        if has_issuers_address {
            let address = b"\x30\x16\x30\x14\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x08http://a";
            let oid = [1, 3, 6, 1, 5, 5, 7, 1, 1];
            params.custom_extensions.push(rcgen::CustomExtension::from_oid_content(&oid, address.to_vec()));
        }
        let key = KeyPair::generate().expect("a key");
        match by {
            Some(by) => params.signed_by(&key, by).expect("a certificate"),
            None => params.self_signed(&key).expect("a certificate"),
        }
    }

    fn said(trusted: &Certificate, own: &Certificate, sent: &[&Certificate]) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Explaining::new(Arc::new(roots), provider).expect("roots");
        let sent: Vec<CertificateDer<'_>> = sent.iter().map(|one| one.der().clone()).collect();
        let name = ServerName::try_from("localhost").expect("a name");
        match verifier.verify_server_cert(own.der(), &sent, &name, &[], UnixTime::now()) {
            Ok(_) => "good".to_owned(),
            Err(error) => crate::describe(&error),
        }
    }

    /// A self-signed certificate of an authority for this name, valid for these years.
    fn own_authority(name: &str, years: std::ops::Range<i32>) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate")
    }

    /// As `openssl req -x509` makes them unless told otherwise; curl and Go accept them too.
    #[test]
    fn a_trusted_certificate_may_be_an_authority() {
        let own = own_authority("localhost", 2020..2090);
        assert_eq!(said(&own, &own, &[]), "good");
        let another = own_authority("localhost", 2020..2090);
        assert_eq!(
            said(&another, &own, &[]),
            "the certificate is self-signed, and is not among the trusted ones"
        );
        let elsewhere = own_authority("example.org", 2020..2090);
        assert_eq!(
            said(&elsewhere, &elsewhere, &[]),
            "the certificate is not for localhost, but for example.org"
        );
        let old = own_authority("localhost", 2020..2021);
        assert!(said(&old, &old, &[]).starts_with("the certificate has expired"));
        let early = own_authority("localhost", 2080..2090);
        assert!(said(&early, &early, &[]).starts_with("the certificate is not valid yet"));
        let (root, by_root) = authority("root", None);
        let (between, _) = authority("between", Some(&by_root));
        assert!(said(&root, &between, &[]).contains("CA:TRUE"));
    }

    #[test]
    fn what_is_wrong_with_an_issuer_is_told_apart() {
        let (root, by_root) = authority("root", None);
        let (between, by_between) = authority("between", Some(&by_root));
        let (other, by_other) = authority("other", None);
        let (same_name, by_same_name) = authority("root", None);
        let whole = leaf(Some(&by_between), true);
        assert_eq!(said(&root, &whole, &[&between]), "good");
        assert_eq!(
            said(&root, &leaf(None, false), &[]),
            "the certificate is self-signed, and is not among the trusted ones"
        );
        // `serve --tls-self-signed` on a machine that trusts another certificate of the same name.
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519] {
            let named = |algorithm| {
                let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
                params.distinguished_name.push(DnType::CommonName, "localhost");
                let key = KeyPair::generate_for(algorithm).expect("a key");
                params.self_signed(&key).expect("a certificate")
            };
            let (own, another) = (named(&rcgen::PKCS_ECDSA_P256_SHA256), named(algorithm));
            assert_eq!(
                said(&another, &own, &[]),
                "the certificate is self-signed, and is not among the trusted ones"
            );
        }
        assert_eq!(
            said(&root, &whole, &[]),
            "the server does not send the intermediate certificate CN=between"
        );
        assert_eq!(
            said(&root, &leaf(Some(&by_between), false), &[&other]),
            "the issuer CN=between is not trusted, and the server does not send its certificate"
        );
        let by_another = leaf(Some(&by_other), false);
        assert_eq!(
            said(&root, &by_another, &[&other]),
            "the issuer is unknown: the chain ends at CN=other, which is not trusted"
        );
        assert_eq!(
            said(&root, &leaf(Some(&by_same_name), false), &[&same_name]),
            "the certificate was not signed by the trusted authority of its issuer's name, which has another key"
        );
    }
}
