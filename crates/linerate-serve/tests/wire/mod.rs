//! Clients of HTTP/1.1 and HTTP/2, in clear text and over TLS, that say just what they are told.
#![allow(dead_code)] // each test program uses its part

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use linerate_http::h2::{FrameHead, PREFACE, field, flag, kind};
use linerate_serve::{Handle, ServerOptions, TlsIdentity, TlsOptions};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::every_io;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, with TLS or without.
pub(crate) enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    pub(crate) fn open(to: SocketAddr, tls: Option<&CertificateDer<'static>>, http2: bool) -> Wire {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let Some(cert) = tls else { return Wire::Plain(socket) };
        let mut roots = RootCertStore::empty();
        roots.add(cert.clone()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Wire::Tls(Box::new(StreamOwned::new(connection, socket)))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            Wire::Plain(socket) => socket.write_all(bytes).unwrap(),
            Wire::Tls(stream) => {
                stream.write_all(bytes).unwrap();
                stream.flush().unwrap();
            }
        }
    }

    /// Sends as much as fits without waiting for the server; returns how much that was.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> usize {
        self.socket().set_nonblocking(true).unwrap();
        let mut at = 0;
        let outcome: io::Result<()> = loop {
            let sent = match self {
                Wire::Plain(socket) => socket.write(&bytes[at..]),
                // It keeps what it has encrypted, and says so by an error before it takes more.
                Wire::Tls(stream) => stream.write(&bytes[at..]),
            };
            match sent {
                Ok(0) => break Ok(()),
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.socket().set_nonblocking(false).unwrap();
        outcome.unwrap();
        at
    }

    /// Reads until it has come so often.
    pub(crate) fn read_times(&mut self, what: &[u8], times: usize) {
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while all.windows(what.len()).filter(|window| *window == what).count() < times {
            let n = match self {
                Wire::Plain(socket) => socket.read(&mut piece),
                Wire::Tls(stream) => stream.read(&mut piece),
            };
            match n.unwrap() {
                0 => panic!("it ended: {}", String::from_utf8_lossy(&all)),
                n => all.extend_from_slice(&piece[..n]),
            }
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(stream) => &stream.sock,
        }
    }

    /// Sends the FIN, behind the session's end if there is one.
    pub(crate) fn half_close(&mut self) {
        if let Wire::Tls(stream) = self {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
        self.socket().shutdown(Shutdown::Write).unwrap();
    }

    /// Everything until the end.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let read = match self {
            Wire::Plain(socket) => socket.read_to_end(&mut all),
            Wire::Tls(stream) => stream.read_to_end(&mut all),
        };
        match read {
            Ok(_) => all,
            // A connection without a response may end by a reset, or without the session's end.
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "the connection stays open");
                all
            }
        }
    }
}

/// Requests for `paths`, all at once.
pub(crate) fn requests(paths: &[&str], http2: bool) -> Vec<u8> {
    if !http2 {
        return paths
            .iter()
            .flat_map(|path| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes())
            .collect();
    }
    let mut bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat();
    for (number, path) in paths.iter().enumerate() {
        let stream = number as u32 * 2 + 1;
        let flags = flag::END_HEADERS | flag::END_STREAM;
        bytes.extend(frame(kind::HEADERS, flags, stream, &block("GET", path)));
    }
    bytes
}

/// A frame of HTTP/2 (RFC 9113 section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.bytes(), payload].concat()
}

/// The head of a request over HTTP/2.
pub(crate) fn block(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")] {
        field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    block
}

/// Runs a test over every TCP: in clear text and over TLS, then for HTTP/1.1 and HTTP/2. The test gets the
/// certificate to trust, and whether to speak HTTP/2.
pub(crate) fn in_every_way(
    options: ServerOptions,
    spawn: impl Fn(ServerOptions) -> io::Result<Handle> + Sync,
    test: impl Fn(&Handle, Option<&CertificateDer<'static>>, bool) + Sync,
) {
    let key = rcgen::KeyPair::generate().unwrap();
    let cert =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (pem, key) = (cert.pem(), key.serialize_pem());
    let identity = TlsIdentity::from_pem(("cert.pem", pem.as_bytes()), ("key.pem", key.as_bytes())).unwrap();
    let mut tls = TlsOptions::new(identity);
    tls.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = tls.build().unwrap();
    for tls in [None, Some(tls)] {
        let cert = tls.as_ref().map(|_| cert.der());
        let options = ServerOptions { tls, ..options.clone() };
        // Over xdp the thread stays in another network, so it is a thread of its own.
        std::thread::scope(|scope| {
            let run = || {
                every_io::with(options, &spawn, |server| {
                    [false, true].into_iter().for_each(|http2| test(&server, cert, http2));
                });
            };
            scope.spawn(run).join().unwrap();
        });
    }
}
