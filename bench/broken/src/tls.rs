//! TLS that misbehaves in the handshake, or offers what a client should not take.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};

use crate::limits::LIFE;
use crate::line::BrokenConnection;

/// What becomes of a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandshakeFault {
    /// It succeeds.
    #[default]
    Good,
    /// It begins so much later.
    Late(Duration),
    /// The server sends a fatal alert (RFC 8446, section 6.2).
    Alert(u8),
    /// The server sends these bytes instead.
    Says(&'static [u8]),
    /// The server sends the beginning of its flight, and closes.
    Half,
    /// The server closes.
    Close,
    /// The server resets.
    Reset,
    /// The server reads, and says nothing.
    Silent,
}

/// What the certificate is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// For 127.0.0.1, valid, and signed by itself.
    #[default]
    Good,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    Early,
    /// It is for another host.
    OtherHost,
}

/// How a server speaks TLS.
#[derive(Clone, Copy, Debug)]
pub struct BrokenTls {
    /// What becomes of the handshake of each connection, by its number from 0.
    pub handshake: fn(u64) -> HandshakeFault,
    /// Its certificate.
    pub certificate: Certificate,
    /// Whether it speaks HTTP/2, and HTTP/1.1 alone to clients without.
    pub alpn: &'static [&'static [u8]],
    /// It speaks TLS 1.2 alone.
    pub is_old: bool,
    /// Bytes of each record; `None`: as many as fit.
    pub record: Option<usize>,
}

impl Default for BrokenTls {
    fn default() -> BrokenTls {
        BrokenTls {
            handshake: |_| HandshakeFault::Good,
            certificate: Certificate::Good,
            alpn: &[b"http/1.1"],
            is_old: false,
            record: None,
        }
    }
}

impl BrokenTls {
    /// # Panics
    /// No certificate can be made.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions = if self.is_old { &[&rustls::version::TLS12] } else { rustls::ALL_VERSIONS };
        let (chain, key) = self.identity().expect("a certificate");
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let builder = builder.expect("versions that there are").with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).expect("key and certificate fit");
        config.alpn_protocols = self.alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    fn identity(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rcgen::Error> {
        let host = if self.certificate == Certificate::OtherHost { "example.org" } else { "127.0.0.1" };
        let mut params = rcgen::CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name.push(rcgen::DnType::CommonName, "linerate-broken");
        let years = match self.certificate {
            Certificate::Expired => (2001, 2002),
            Certificate::Early => (2090, 2091),
            Certificate::Good | Certificate::OtherHost => (2001, 2091),
        };
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = rcgen::KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok((vec![certificate.der().clone()], key))
    }

    /// The handshake of a connection; `None`: it fails as it was to, or by itself. An error in it is the client's.
    pub(crate) fn shake<'a>(
        &self,
        config: &Arc<ServerConfig>,
        mut stream: &'a TcpStream,
        nth: u64,
    ) -> Result<BrokenConnection<'a>, Broke> {
        let handshake = (self.handshake)(nth);
        let hello = |mut stream: &TcpStream| stream.read(&mut [0; 16 << 10]);
        let mut wrong = |bytes: &[u8]| -> io::Result<()> {
            hello(stream)?;
            stream.write_all(bytes)
        };
        let fault = match handshake {
            HandshakeFault::Good => None,
            HandshakeFault::Late(pause) => {
                thread::sleep(pause.min(LIFE));
                None
            }
            HandshakeFault::Alert(number) => Some(wrong(&[21, 3, 3, 0, 2, 2, number])),
            HandshakeFault::Says(bytes) => Some(wrong(bytes)),
            HandshakeFault::Half => Some(wrong(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03")),
            HandshakeFault::Close | HandshakeFault::Reset => Some(wrong(b"")),
            HandshakeFault::Silent => {
                let _ = hello(stream);
                // Until the client gives up.
                let _ = hello(stream);
                Some(Ok(()))
            }
        };
        if fault.is_some() {
            return Err(if handshake == HandshakeFault::Reset { Broke::Reset } else { Broke::Close });
        }
        let mut tls = ServerConnection::new(config.clone()).map_err(|_| Broke::Close)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|_| Broke::Client)?;
        }
        Ok(BrokenConnection::secure(stream, tls, self.record))
    }
}

/// How a handshake ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broke {
    /// As the script said, and the connection is closed.
    Close,
    /// As the script said, and the connection is reset.
    Reset,
    /// The client broke it off.
    Client,
}
