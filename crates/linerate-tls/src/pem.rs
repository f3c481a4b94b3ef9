//! Certificates and keys in PEM (RFC 7468).

use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::words::describe;
use crate::x509::{Facts, Validity};

/// Why a configuration cannot be built, in words that name the place and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
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
    /// Options that exclude each other.
    #[error("{0}")]
    Options(String),
}

/// A certificate chain, the server's or client's own certificate first, and its key.
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

impl Identity {
    /// Parses the texts of two PEM files; `places` are the names that errors use.
    pub fn from_pem(
        (chain_place, chain): (&str, &[u8]),
        (key_place, key): (&str, &[u8]),
    ) -> Result<Identity, TlsError> {
        let chain = certificates(chain_place, chain)?;
        let key = private_key(key_place, key)?;
        let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
        let signing = signing.map_err(|error| TlsError::Unreadable {
            place: key_place.to_owned(),
            why: format!("this kind of private key is not supported ({})", describe(&error)),
        })?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(TlsError::OtherKey { key: key_place.to_owned(), certificate: chain_place.to_owned() })
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
        self.key.cert.first().and_then(|certificate| Facts::of(certificate).validity)
    }
}
