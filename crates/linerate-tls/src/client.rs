//! The client's expectations of servers.

use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, KeyLog, KeyLogFile, NamedGroup, RootCertStore,
    SignatureScheme,
};

use crate::Version;
use crate::issuer::Explaining;
use crate::pem::{Identity, TlsError, certificates};
use crate::words::{describe, suite_name};

/// Which certificates a client trusts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Roots {
    /// The trusted roots of this machine.
    System,
    /// Those in a PEM text, with the name that errors use.
    Pem(String, Vec<u8>),
    /// The trusted roots of this machine, and those in a PEM text, with the name that errors use.
    SystemAnd(String, Vec<u8>),
    /// All certificates, without any check.
    Insecure,
}

/// The TLS options of a client.
///
/// ```
/// use linerate_tls::{ClientOptions, Version};
///
/// let mut options = ClientOptions::default();
/// options.least = Version::Tls13;
/// options.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
/// # options.roots = linerate_tls::Roots::Insecure;
/// let config = options.build()?;
/// assert_eq!(config.alpn_protocols.len(), 2);
/// # Ok::<(), linerate_tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Which certificates it trusts.
    pub roots: Roots,
    /// The lowest version.
    pub least: Version,
    /// The highest version.
    pub most: Version,
    /// Cipher suites by their registered names, in order of preference; empty: the defaults.
    pub ciphers: Vec<String>,
    /// Protocols for ALPN, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Resume sessions, as browsers do.
    pub resume: bool,
    /// The client certificate, for servers that request one.
    pub identity: Option<Identity>,
    /// Write secrets to the file in the variable SSLKEYLOGFILE, if it is set.
    pub key_log: bool,
    /// Begin with key shares of X25519MLKEM768 and X25519, as browsers do; else with X25519 alone,
    /// which costs less.
    pub post_quantum_first: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            roots: Roots::System,
            least: Version::Tls12,
            most: Version::Tls13,
            ciphers: Vec::new(),
            alpn: Vec::new(),
            resume: true,
            identity: None,
            key_log: true,
            post_quantum_first: false,
        }
    }
}

impl ClientOptions {
    /// Builds the configuration for rustls. The first one with [`Roots::System`] reads this machine's store.
    pub fn build(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut provider = provider(&self.ciphers)?;
        if self.post_quantum_first {
            // A stable sort: the others keep their order.
            provider.kx_groups.sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
        }
        let provider = Arc::new(provider);
        let versions = Version::within(self.least, self.most);
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&versions).map_err(|error| no_common(&error))?;
        let builder = match &self.roots {
            Roots::Insecure => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            }
            Roots::System => {
                let verifier = verifier(system_roots()?, provider)?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Roots::SystemAnd(place, text) => {
                let mut roots = roots_of(place, text)?;
                // A machine without any has at least those.
                if let Ok(system) = system_roots() {
                    roots.extend(system.roots.iter().cloned());
                }
                let verifier = verifier(Arc::new(roots), provider)?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            Roots::Pem(place, text) => {
                let verifier = verifier(Arc::new(roots_of(place, text)?), provider)?;
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let resolver = rustls::sign::SingleCertAndKey::from(identity.key.clone());
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        if !self.resume {
            config.resumption = Resumption::disabled();
        }
        if self.key_log {
            let log: Arc<dyn KeyLog> = Arc::new(KeyLogFile::new());
            config.key_log = log;
        }
        Ok(Arc::new(config))
    }
}

fn no_common(error: &Error) -> TlsError {
    TlsError::Options(format!(
        "these ciphers and versions do not fit together ({})\nhint: suites of TLS 1.3 begin with TLS_AES or TLS_CHACHA20, the others are TLS 1.2's",
        describe(error).trim_start_matches("unexpected error: ")
    ))
}

/// A suite's name whoever wrote it: IANA (`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`), rustls (`TLS13_...`) or OpenSSL
/// (`ECDHE-RSA-AES128-GCM-SHA256`).
fn plain_cipher(name: &str) -> String {
    let name = name.to_ascii_uppercase().replace("TLS13_", "TLS_").replace('-', "_");
    let name = name.replace("_WITH_", "_").replace("AES128", "AES_128").replace("AES256", "AES_256");
    let name = name.strip_prefix("TLS_").unwrap_or(&name);
    // OpenSSL does not say the hash of these.
    if name.ends_with("_CHACHA20_POLY1305") { format!("{name}_SHA256") } else { name.to_owned() }
}

/// Whether there is a cipher suite of this name.
pub fn is_cipher(name: &str) -> bool {
    let known = aws_lc_rs::default_provider().cipher_suites;
    known.iter().any(|suite| plain_cipher(&suite_name(suite.suite())) == plain_cipher(name))
}

/// Has this thread's random numbers seeded. The first seed of a process takes tens of milliseconds, which would count
/// as the time that the first connections took.
pub(crate) fn seed(provider: &CryptoProvider) {
    // A handshake meets the same fault, and reports it.
    let _ = provider.secure_random.fill(&mut [0; 1]);
}

/// The provider with the configured suites.
pub(crate) fn provider(ciphers: &[String]) -> Result<CryptoProvider, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    seed(&provider);
    if ciphers.is_empty() {
        return Ok(provider);
    }
    let known = provider.cipher_suites.clone();
    let name = |suite: &rustls::SupportedCipherSuite| suite_name(suite.suite());
    let find = |wanted: &String| {
        known.iter().find(|suite| plain_cipher(&name(suite)) == plain_cipher(wanted)).copied().ok_or_else(
            || {
                let names: Vec<String> = known.iter().map(&name).collect();
                TlsError::Options(format!("no cipher suite {wanted}\nhint: one of {}", names.join(", ")))
            },
        )
    };
    provider.cipher_suites = ciphers.iter().map(find).collect::<Result<_, _>>()?;
    Ok(provider)
}

fn verifier(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Arc<Explaining>, TlsError> {
    Explaining::new(roots, provider).map(Arc::new).map_err(TlsError::Options)
}

/// The trusted roots of this machine, which are read once: that takes milliseconds, and some programs make a
/// configuration for each server. What fails is tried again.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static READ: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = READ.get() {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        let words = format!(
            "this machine has no trusted certificates{why}\nhint: install the package ca-certificates, or name a file with --cacert"
        );
        return Err(TlsError::Options(words));
    }
    Ok(Arc::clone(READ.get_or_init(|| Arc::new(roots))))
}

pub(crate) fn roots_of(place: &str, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(place, text)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Unreadable { place: place.to_owned(), why: describe(&error) })?;
    }
    Ok(roots)
}

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
