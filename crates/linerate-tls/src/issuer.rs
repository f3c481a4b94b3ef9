//! Why a certificate's issuer is not accepted: rustls says only that it is unknown.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::x509::{Signed, name};

thread_local! {
    /// The reason of the last [`CertificateError::UnknownIssuer`] in this thread. The error itself
    /// has no place for it, and another error would send the server another alert.
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The reason of an unknown issuer, of which this thread has the error.
pub(crate) fn why_unknown() -> Option<String> {
    WHY.with_borrow(Clone::clone)
}

/// Verifies as webpki does, and notes why an issuer is unknown.
#[derive(Debug)]
pub(crate) struct Explaining {
    webpki: Arc<WebPkiServerVerifier>,
    algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

impl Explaining {
    pub(crate) fn new(webpki: Arc<WebPkiServerVerifier>, provider: &CryptoProvider) -> Explaining {
        Explaining { webpki, algorithms: provider.signature_verification_algorithms.all }
    }
}

/// Why the issuer of `own` is unknown to a client that got `sent` with it.
pub(crate) fn why(
    algorithms: &[&dyn SignatureVerificationAlgorithm],
    own: &CertificateDer<'_>,
    sent: &[CertificateDer<'_>],
) -> Option<String> {
    let own = Signed::of(own)?;
    if own.is_by_itself(algorithms) {
        return Some("the certificate is self-signed, and is not among the trusted ones".to_owned());
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
        if let Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) = &verified {
            WHY.set(why(self.algorithms, end_entity, intermediates));
        }
        verified
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
    use rustls::RootCertStore;

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
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        let verifier = Explaining::new(webpki.expect("roots"), &provider);
        let sent: Vec<CertificateDer<'_>> = sent.iter().map(|one| one.der().clone()).collect();
        let name = ServerName::try_from("localhost").expect("a name");
        match verifier.verify_server_cert(own.der(), &sent, &name, &[], UnixTime::now()) {
            Ok(_) => "good".to_owned(),
            Err(error) => crate::describe(&error),
        }
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
