//! What became of handshakes.

use std::collections::BTreeMap;

use rustls::{CommonState, HandshakeKind};

use crate::limits::REASONS;
use crate::x509::Facts;

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agreed {
    /// "TLSv1.3", "TLSv1.2".
    pub version: String,
    /// The cipher suite's registered name, as "TLS13_AES_256_GCM_SHA384".
    pub cipher: String,
    /// The protocol chosen by ALPN, as "http/1.1".
    pub alpn: Option<String>,
}

/// What the handshake of one connection came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// What both sides agreed on.
    pub agreed: Agreed,
    /// Resumed from an earlier session.
    pub is_resumed: bool,
    /// What the client proved to be, where it was asked.
    pub client: Option<ClientCertificate>,
}

/// The certificate that a client showed. It was checked against the server's `client_roots`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject as RFC 4514 writes it, such as `CN=ann,O=Example`. Control characters are escaped.
    pub subject: String,
    /// The certificate in DER, and those behind it that the client sent.
    pub chain: Vec<Vec<u8>>,
}

impl TlsInfo {
    pub(crate) fn of(state: &CommonState) -> TlsInfo {
        let client = state.peer_certificates().and_then(|chain| {
            let subject = Facts::of(chain.first()?).subject;
            Some(ClientCertificate { subject, chain: chain.iter().map(|der| der.to_vec()).collect() })
        });
        let is_resumed = state.handshake_kind() == Some(HandshakeKind::Resumed);
        TlsInfo { agreed: Agreed::of(state), is_resumed, client }
    }
}

/// Counts of one layer, to be merged with those of other threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handshakes {
    /// With certificates and a key exchange.
    pub full: u64,
    /// Resumed from an earlier session.
    pub resumed: u64,
    /// How often what was agreed on.
    pub agreed: BTreeMap<Agreed, u64>,
    /// How often what went wrong, in words.
    pub failed: BTreeMap<String, u64>,
}

impl Handshakes {
    /// What most of them agreed on.
    pub fn usual(&self) -> Option<&Agreed> {
        self.agreed.iter().max_by_key(|(_, count)| **count).map(|(agreed, _)| agreed)
    }

    pub(crate) fn ready(&mut self, state: &CommonState) {
        match state.handshake_kind() {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            Some(_) | None => self.full += 1,
        }
        *self.agreed.entry(Agreed::of(state)).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, why: String) {
        let why = if self.failed.len() >= REASONS && !self.failed.contains_key(&why) {
            "another reason".to_owned()
        } else {
            why
        };
        *self.failed.entry(why).or_default() += 1;
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        for (agreed, count) in &other.agreed {
            *self.agreed.entry(agreed.clone()).or_default() += count;
        }
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
    }
}

impl Agreed {
    pub(crate) fn of(state: &CommonState) -> Agreed {
        let version = match state.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let cipher = state.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let alpn = state.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        Agreed { version, cipher: cipher.unwrap_or_default(), alpn }
    }
}
