//! The results of handshakes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use rustls::{CommonState, HandshakeKind};

use crate::limits::REASONS;
use crate::words::{beside_success, suite_name};
use crate::x509::{CertificateFacts, ServerKey};

/// The negotiated parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AgreedParameters {
    /// The version, such as "TLSv1.3".
    pub version: String,
    /// The cipher suite's registered name (IANA), such as "TLS_AES_256_GCM_SHA384".
    pub cipher: String,
    /// The protocol selected by ALPN, such as "http/1.1".
    pub alpn: Option<String>,
}

/// The result of one connection's handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// The negotiated parameters.
    pub agreed: AgreedParameters,
    /// Whether it resumed an earlier session.
    pub is_resumed: bool,
    /// The client's certificate, if one was requested.
    pub client: Option<ClientCertificate>,
}

/// What a client saw of a server in a handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHandshake {
    /// The negotiated parameters.
    pub agreed: AgreedParameters,
    /// Whether it resumed an earlier session.
    pub is_resumed: bool,
    /// The server asked for another key share (HelloRetryRequest, RFC 8446 section 4.1.4).
    pub is_retried: bool,
    /// The group of the key exchange, such as "X25519".
    pub group: Option<String>,
    /// Certificates that the server sent; none where a session was resumed.
    pub certificates: usize,
    /// Their bytes.
    pub chain_bytes: usize,
    /// The key of the server's own certificate.
    pub key: Option<ServerKey>,
}

impl ServerHandshake {
    pub(crate) fn by(state: &CommonState) -> ServerHandshake {
        let is_resumed = state.handshake_kind() == Some(HandshakeKind::Resumed);
        let chain = state.peer_certificates().unwrap_or_default();
        // Of a resumed session the certificates are remembered, not sent.
        let sent = if is_resumed { &[][..] } else { chain };
        ServerHandshake {
            agreed: AgreedParameters::of(state),
            is_resumed,
            is_retried: state.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest),
            group: state.negotiated_key_exchange_group().map(|group| format!("{:?}", group.name())),
            certificates: sent.len(),
            chain_bytes: sent.iter().map(|der| der.len()).sum(),
            key: chain.first().and_then(|der| CertificateFacts::of(der).key),
        }
    }
}

/// A certificate from a client, which was checked against the server's `client_roots`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its subject in the format of RFC 4514, such as `CN=ann,O=Example`. Control characters are
    /// escaped.
    pub subject: String,
    /// The certificate in DER, and those that the client sent after it.
    pub chain: Vec<Vec<u8>>,
}

impl TlsInfo {
    /// Of a connection over QUIC, with the protocol that was agreed on (ALPN) and the client's certificates
    /// in DER. QUIC does not say which cipher suite it is.
    pub fn of_quic(protocol: Option<&[u8]>, certificates: Vec<Vec<u8>>) -> TlsInfo {
        let subject = certificates.first().map(|der| CertificateFacts::of(der).subject);
        TlsInfo {
            agreed: AgreedParameters {
                version: "TLSv1.3".to_owned(),
                cipher: String::new(),
                alpn: protocol.map(|name| String::from_utf8_lossy(name).into_owned()),
            },
            is_resumed: false,
            client: subject.map(|subject| ClientCertificate { subject, chain: certificates }),
        }
    }

    pub(crate) fn of(state: &CommonState) -> TlsInfo {
        let client = state.peer_certificates().and_then(|chain| {
            let subject = CertificateFacts::of(chain.first()?).subject;
            Some(ClientCertificate { subject, chain: chain.iter().map(|der| der.to_vec()).collect() })
        });
        let is_resumed = state.handshake_kind() == Some(HandshakeKind::Resumed);
        TlsInfo { agreed: AgreedParameters::of(state), is_resumed, client }
    }
}

/// Counts of one layer, to be merged with those of other threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandshakeCounts {
    /// Handshakes with certificates and a key exchange.
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Counts by negotiated parameters.
    #[serde(with = "pairs")]
    pub agreed: BTreeMap<AgreedParameters, u64>,
    /// Counts of failures, by their description.
    pub failed: BTreeMap<String, u64>,
}

/// A map as a list of its entries. Reason: the keys of a JSON object are text, and these are structs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::AgreedParameters;

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<AgreedParameters, u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<AgreedParameters, u64>, D::Error> {
        Vec::<(AgreedParameters, u64)>::deserialize(from).map(|pairs| pairs.into_iter().collect())
    }
}

impl HandshakeCounts {
    /// The most frequent parameters.
    pub fn usual(&self) -> Option<&AgreedParameters> {
        self.agreed.iter().max_by_key(|(_, count)| **count).map(|(agreed, _)| agreed)
    }

    pub(crate) fn ready(&mut self, state: &CommonState) {
        match state.handshake_kind() {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            Some(_) | None => self.full += 1,
        }
        *self.agreed.entry(AgreedParameters::of(state)).or_default() += 1;
        self.revise();
    }

    /// A handshake that succeeded refutes what was supposed of those that failed.
    fn revise(&mut self) {
        if self.full + self.resumed == 0 {
            return;
        }
        let refuted: Vec<_> =
            self.failed.keys().filter_map(|why| Some((why.clone(), beside_success(why)?))).collect();
        for (supposed, why) in refuted {
            let count = self.failed.remove(&supposed).unwrap_or(0);
            *self.failed.entry(why).or_default() += count;
        }
    }

    /// The peer refused what this side had counted as complete.
    pub(crate) fn refused(&mut self, state: &CommonState, why: String) {
        let counted = match state.handshake_kind() {
            Some(HandshakeKind::Resumed) => &mut self.resumed,
            Some(_) | None => &mut self.full,
        };
        *counted = counted.saturating_sub(1);
        let agreed = AgreedParameters::of(state);
        if let Some(count) = self.agreed.get_mut(&agreed) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.agreed.remove(&agreed);
            }
        }
        self.failed(why);
    }

    pub(crate) fn failed(&mut self, why: String) {
        let why = if self.failed.len() >= REASONS && !self.failed.contains_key(&why) {
            "another reason".to_owned()
        } else {
            why
        };
        *self.failed.entry(why).or_default() += 1;
        self.revise();
    }

    /// The reason as it stands among others.
    pub fn told(&self, why: String) -> String {
        let succeeded = self.full + self.resumed > 0;
        succeeded.then(|| beside_success(&why)).flatten().unwrap_or(why)
    }

    /// Adds another thread's counts.
    pub fn merge(&mut self, other: &HandshakeCounts) {
        self.full += other.full;
        self.resumed += other.resumed;
        for (agreed, count) in &other.agreed {
            *self.agreed.entry(agreed.clone()).or_default() += count;
        }
        for (why, count) in &other.failed {
            *self.failed.entry(why.clone()).or_default() += count;
        }
        self.revise();
    }
}

impl AgreedParameters {
    pub(crate) fn of(state: &CommonState) -> AgreedParameters {
        let version = match state.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let cipher = state.negotiated_cipher_suite().map(|suite| suite_name(suite.suite()));
        let alpn = state.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        AgreedParameters { version, cipher: cipher.unwrap_or_default(), alpn }
    }
}
