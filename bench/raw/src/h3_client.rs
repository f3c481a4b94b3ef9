//! The raw client of HTTP/3: one request after another on each stream's place, bytes counted, nothing
//! parsed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionError, Dir, StreamId};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::client::{RawClientCounts, RawClientOptions};
use crate::quic::{self, NumberedConnection, RawDatagramCounts, RawQuicEnd, RawStreamUser};

/// The longest that the connections may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Handshakes in progress at once. Reason: what a server holds for a handshake, beyond what it holds for the connection, shall not
/// count for all of them.
const HANDSHAKES: usize = 64;

const WAIT: Duration = Duration::from_millis(50);

struct RawH3Client {
    request: Vec<u8>,
    depth: usize,
    connected: usize,
    counts: RawClientCounts,
    /// Bytes of each response; 0: none has ended.
    response: usize,
    /// Bytes of the responses that are coming, by connection and stream.
    coming: HashMap<(usize, StreamId), usize>,
    /// Requests that the server admitted no stream for, by connection.
    owed: HashMap<usize, usize>,
}

/// Runs until the time is over; responses in flight then are not counted.
///
/// # Errors
/// A connection is lost, or responses differ in length.
pub fn run(o: &RawClientOptions) -> io::Result<(RawClientCounts, RawDatagramCounts)> {
    let mut end = RawQuicEnd::new(None)?;
    let config = config()?;
    let mut client = RawH3Client {
        request: request(o),
        depth: o.depth,
        connected: 0,
        counts: RawClientCounts::default(),
        response: 0,
        coming: HashMap::new(),
        owed: HashMap::new(),
    };
    let (mut start, mut begun) = (Instant::now(), 0);
    while client.connected < o.connections {
        while begun < o.connections.min(client.connected + HANDSHAKES) {
            end.connect(&config, o.target)?;
            begun += 1;
        }
        end.turn(&mut client, WAIT)?;
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other("the server does not complete the handshakes"));
        }
    }
    start = Instant::now();
    client.counts = RawClientCounts::default();
    end.counts = RawDatagramCounts::default();
    loop {
        end.turn(&mut client, WAIT)?;
        client.counts.elapsed = start.elapsed();
        if client.counts.elapsed >= o.lasts {
            client.counts.reads = end.counts.received.1;
            return Ok((client.counts, end.counts));
        }
    }
}

/// One request as a HEADERS frame: method, scheme, path and authority.
fn request(o: &RawClientOptions) -> Vec<u8> {
    let authority = o.target.to_string();
    let mut section = vec![0, 0, 0xd1, 0xd7, 0xc1, 0x50, authority.len() as u8];
    section.extend_from_slice(authority.as_bytes());
    let mut frame = vec![1, section.len() as u8];
    frame.extend_from_slice(&section);
    frame
}

fn config() -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RawRawTrust))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(quic::transport()?);
    Ok(config)
}

impl RawH3Client {
    fn ask(&mut self, on: NumberedConnection<'_>, times: usize) -> io::Result<()> {
        for asked in 0..times {
            let Some(id) = on.connection.streams().open(Dir::Bi) else {
                *self.owed.entry(on.number).or_default() += times - asked;
                return Ok(());
            };
            let mut stream = on.connection.send_stream(id);
            let written = stream.write(&self.request).map_err(io::Error::other)?;
            if written < self.request.len() {
                return Err(io::Error::other("the server's windows do not admit a request"));
            }
            stream.finish().map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl RawStreamUser for RawH3Client {
    fn connected(&mut self, on: NumberedConnection<'_>) -> io::Result<()> {
        self.connected += 1;
        quic::open_control(on.connection)?;
        self.ask(on, self.depth)
    }

    fn available(&mut self, on: NumberedConnection<'_>) -> io::Result<()> {
        let owed = self.owed.remove(&on.number).unwrap_or(0);
        self.ask(on, owed)
    }

    fn bytes(&mut self, on: NumberedConnection<'_>, id: StreamId, len: usize, ends: bool) -> io::Result<()> {
        self.counts.received += len as u64;
        if id.dir() == Dir::Uni {
            return Ok(());
        }
        if !ends {
            *self.coming.entry((on.number, id)).or_default() += len;
            return Ok(());
        }
        let whole = len + self.coming.remove(&(on.number, id)).unwrap_or(0);
        if self.response > 0 && whole != self.response {
            return Err(io::Error::other(format!(
                "a response of {whole} bytes, and one of {}",
                self.response
            )));
        }
        self.response = whole;
        self.counts.answered += 1;
        self.ask(on, 1)
    }

    fn writable(&mut self, _: NumberedConnection<'_>, _: StreamId) -> io::Result<()> {
        Ok(())
    }

    fn lost(&mut self, _: usize, reason: ConnectionError) -> io::Result<()> {
        Err(io::Error::other(reason))
    }
}

/// Takes any certificate: what is measured is no secret.
#[derive(Debug)]
struct RawRawTrust;

impl ServerCertVerifier for RawRawTrust {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA256,
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::h3_server::RawH3Server;

    fn server(body: usize) -> SocketAddrV4 {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
        let chain = vec![own.cert.der().clone()];
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.expect("a certificate that fits its key");
        config.alpn_protocols = vec![b"h3".to_vec()];
        let at = SocketAddrV4::new([127, 0, 0, 1].into(), 0);
        let server = RawH3Server::bind(at, body, Arc::new(config)).expect("a free port");
        let at = server.at().expect("its port");
        std::thread::spawn(|| server.run());
        at
    }

    #[test]
    fn both_ends_understand_each_other() {
        // The last one is larger than the windows of a stream.
        for (connections, depth, body) in [(1, 1, 0), (3, 20, 1000), (1, 2, 2_000_000)] {
            let options = RawClientOptions {
                target: server(body),
                connections,
                depth,
                short: false,
                lasts: Duration::from_millis(300),
                core: None,
                receive: None,
                fields: String::new(),
            };
            let (counts, datagrams) = run(&options).expect("a run without errors");
            assert!(counts.received > 0 && datagrams.sent.0 > 0, "{counts:?}");
            assert!(
                counts.answered > 0 || body > 1_000_000,
                "{counts:?}: a large one may take longer than the run"
            );
            assert_eq!(counts.broken, 0);
        }
    }
}
