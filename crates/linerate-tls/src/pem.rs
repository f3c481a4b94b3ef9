//! Certificates and keys in PEM (RFC 7468).

use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::words::describe;
use crate::x509::{CertificateFacts, Validity};

/// Why a configuration cannot be built, in words that name the place and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A session cannot begin.
    #[error("{why}")]
    NoSession {
        /// The reason.
        why: String,
    },
    /// A file lacks what it should contain.
    #[error("{place}: no {what}\nhint: a PEM file with `-----BEGIN {begin}-----` is expected")]
    Nothing {
        /// The file's name.
        place: String,
        /// "certificate" or "private key".
        what: &'static str,
        /// The first line of such a block.
        begin: &'static str,
    },
    /// A block cannot be parsed.
    #[error("{place}: {why}")]
    Unreadable {
        /// The file's name.
        place: String,
        /// The reason.
        why: String,
    },
    /// The key is encrypted.
    #[error(
        "{place}: the private key is encrypted\nhint: decrypt it with `openssl pkey -in {place} -out key.pem`"
    )]
    EncryptedKey {
        /// The file's name.
        place: String,
    },
    /// The key does not belong to the certificate.
    #[error(
        "{key}: this key does not belong to the certificate in {certificate}\nhint: of a pair, `openssl x509 -noout -pubkey -in \
         {certificate}` and `openssl pkey -pubout -in {key}` print the same"
    )]
    OtherKey {
        /// The key file's name.
        key: String,
        /// The certificate file's name.
        certificate: String,
    },
    /// The key's certificate is not the first of its file.
    #[error(
        "{certificate}: the certificate of {key} is number {number} in this file, and must be the first\nhint: put the \
         key's certificate first, and behind each certificate the one that issued it"
    )]
    Order {
        /// The key file's name.
        key: String,
        /// The certificate file's name.
        certificate: String,
        /// The place of the key's certificate, counted from one.
        number: usize,
    },
    /// Options that exclude each other.
    #[error("{0}")]
    Options(String),
}

/// A certificate chain, the server's or client's own certificate first, and its key.
///
/// ```
/// use linerate_tls::Identity;
///
/// let error = Identity::from_pem(("cert.pem", b"not a certificate"), ("key.pem", b"")).unwrap_err();
/// assert!(error.to_string().contains("cert.pem"), "{error}");
/// ```
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
}

/// All certificates of a PEM text.
pub(crate) fn certificates(place: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| unreadable(place, &error))?;
    if found.is_empty() {
        let place = place.to_owned();
        return Err(TlsError::Nothing { place, what: "certificate", begin: "CERTIFICATE" });
    }
    Ok(found)
}

fn unreadable(place: &str, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let end = String::from_utf8_lossy(end_marker);
            format!("the line \"-----END {}-----\" is missing", end.escape_debug())
        }
        error => error.to_string(),
    };
    TlsError::Unreadable { place: place.to_owned(), why }
}

fn private_key(place: &str, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let place = place.to_owned();
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(_) if is_encrypted(text) => Err(TlsError::EncryptedKey { place }),
        Err(pem::Error::NoItemsFound) => {
            Err(TlsError::Nothing { place, what: "private key", begin: "PRIVATE KEY" })
        }
        Err(error) => Err(unreadable(&place, &error)),
    }
}

/// PKCS #8 marks it in the label (RFC 7468 section 11), OpenSSL's older form in a header.
fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

const KEY_KINDS: &str = "this kind of private key is not supported\nhint: make a key of RSA with 2048 bits or more, \
     ECDSA (P-256, P-384 or P-521) or Ed25519";

/// The place, counted from one, of the certificate in a chain that belongs to its key.
fn own_number(chain: &CertifiedKey) -> Option<usize> {
    let fits = |one: &CertificateDer<'static>| {
        CertifiedKey::new(vec![one.clone()], chain.key.clone()).keys_match().is_ok()
    };
    chain.cert.iter().position(fits).map(|at| at + 1)
}

impl Identity {
    /// Parses the texts of two PEM files; `places` are the names that errors use.
    pub fn from_pem(
        (chain_place, chain): (&str, &[u8]),
        (key_place, key): (&str, &[u8]),
    ) -> Result<Identity, TlsError> {
        let chain = certificates(chain_place, chain)?;
        let key = private_key(key_place, key)?;
        let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
        let signing = signing
            .map_err(|_| TlsError::Unreadable { place: key_place.to_owned(), why: KEY_KINDS.to_owned() })?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                let (key, certificate) = (key_place.to_owned(), chain_place.to_owned());
                Err(match own_number(&certified) {
                    Some(number) => TlsError::Order { key, certificate, number },
                    None => TlsError::OtherKey { key, certificate },
                })
            }
            Err(error @ rustls::Error::InvalidCertificate(_)) => {
                Err(TlsError::Unreadable { place: chain_place.to_owned(), why: describe(&error) })
            }
            // Keys that cannot be checked are accepted.
            Ok(()) | Err(_) => Ok(Identity { key: Arc::new(certified) }),
        }
    }

    /// Adds this OCSP response (RFC 6960, in DER), for clients that ask for one.
    #[must_use]
    pub fn with_ocsp(self, response: Vec<u8>) -> Identity {
        let mut key = CertifiedKey::clone(&self.key);
        key.ocsp = Some(response);
        Identity { key: Arc::new(key) }
    }

    /// When its own certificate is valid, if that can be parsed.
    pub fn validity(&self) -> Option<Validity> {
        self.key.cert.first().and_then(|certificate| CertificateFacts::of(certificate).validity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rcgen::{CertificateParams, KeyPair};

    fn said(chain: &str, key: &str) -> String {
        match Identity::from_pem(("chain", chain.as_bytes()), ("key", key.as_bytes())) {
            Ok(_) => "good".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_pair_is_told_apart() {
        let made = || {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
        };
        let ((own, key), (other, _)) = (made(), made());
        assert_eq!(said(&format!("{own}{other}"), &key), "good");
        let turned = said(&format!("{other}{own}"), &key);
        assert!(turned.contains("the certificate of key is number 2 in this file"), "{turned}");
        let foreign = said(&other, &key);
        assert!(foreign.contains("does not belong to the certificate"), "{foreign}");
        let unknown = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        let kinds = said(&own, unknown);
        assert!(kinds.contains("not supported\nhint: make a key of RSA with 2048 bits"), "{kinds}");
    }
}
