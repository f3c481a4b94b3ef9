//! How a plan's connections speak TLS: plain data, from which each machine makes its own configuration.

use std::sync::Arc;

use linerate_net::Profile;
use linerate_tls::{ClientOptions, Identity, Roots, TlsError, TlsLayer, Version};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

/// TLS towards the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetTls {
    /// The name that the server must prove to have, or its address.
    pub name: String,
    /// Whose certificates are believed beside or instead of the machine's own.
    pub trust: Trust,
    /// The certificate and key that a server may ask for.
    pub identity: Option<ClientCertificate>,
    /// The least version.
    pub least: TlsVersion,
    /// The highest version.
    pub most: TlsVersion,
    /// Cipher suites by their registered names; empty: the usual ones.
    pub ciphers: Vec<String>,
    /// Resume sessions, as browsers do.
    pub resume: bool,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// Those that the machine which sends trusts.
    #[default]
    System,
    /// Those of a PEM file.
    Pem(PemFile),
    /// All: nothing is checked.
    Anybody,
}

/// A PEM file: its name, for errors, and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemFile {
    /// As the user wrote it.
    pub path: String,
    /// The file's contents.
    pub text: String,
}

/// A client's certificate and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The chain, the client's own certificate first.
    pub chain: PemFile,
    /// Its key.
    pub key: PemFile,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    Tls13,
}

impl From<TlsVersion> for Version {
    fn from(version: TlsVersion) -> Version {
        match version {
            TlsVersion::Tls12 => Version::Tls12,
            TlsVersion::Tls13 => Version::Tls13,
        }
    }
}

impl TargetTls {
    /// As browsers do it.
    pub fn towards(name: &str) -> TargetTls {
        TargetTls {
            name: name.to_owned(),
            trust: Trust::System,
            identity: None,
            least: TlsVersion::Tls12,
            most: TlsVersion::Tls13,
            ciphers: Vec::new(),
            resume: true,
        }
    }

    /// Why secrets cannot be written to the file that the variable SSLKEYLOGFILE names, if it is set: without a word nothing would be
    /// in it.
    pub fn key_log_trouble() -> Option<String> {
        let path = std::env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty())?;
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(&path);
        let why = opened.err()?;
        Some(format!("SSLKEYLOGFILE: {} cannot be written, so no secrets are there: {why}", path.display()))
    }

    /// TLS state that all threads share: sessions are resumed across them. `alpn`: the protocols to offer.
    pub(crate) fn client(&self, alpn: Vec<Vec<u8>>) -> Result<TlsClient, TlsError> {
        let name = ServerName::try_from(self.name.clone()).map_err(|_| {
            TlsError::Options(format!("{} is no name that a certificate can have", self.name))
        })?;
        let mut options = self.options()?;
        options.alpn = alpn;
        Ok(TlsClient { config: options.build()?, name })
    }

    /// The options of a client that speaks it; ALPN offers HTTP/1.1.
    ///
    /// # Errors
    /// A certificate or key cannot be read.
    pub fn options(&self) -> Result<ClientOptions, TlsError> {
        let mut options = ClientOptions::default();
        options.roots = match &self.trust {
            Trust::System => Roots::System,
            Trust::Pem(file) => Roots::Pem(file.path.clone(), file.text.clone().into_bytes()),
            Trust::Anybody => Roots::Insecure,
        };
        if let Some(ClientCertificate { chain, key }) = &self.identity {
            let chain = (chain.path.as_str(), chain.text.as_bytes());
            options.identity = Some(Identity::from_pem(chain, (&key.path, key.text.as_bytes()))?);
        }
        (options.least, options.most) = (self.least.into(), self.most.into());
        options.ciphers.clone_from(&self.ciphers);
        options.resume = self.resume;
        options.alpn = vec![b"http/1.1".to_vec()];
        Ok(options)
    }
}

/// A configuration that is ready for use.
#[derive(Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// What QUIC makes its handshakes with.
    pub(crate) fn config(&self) -> (Arc<ClientConfig>, String) {
        (Arc::clone(&self.config), self.name.to_str().into_owned())
    }

    /// Gives a thread's layer this configuration; the profile of its connections.
    pub(crate) fn add_to(&self, layer: &mut TlsLayer) -> Profile {
        layer.add_client(self.config.clone(), self.name.clone())
    }
}
