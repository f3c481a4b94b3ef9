//! Clients that have sent their FIN, or a reset behind it: over HTTP/1.1 and HTTP/2, in clear text and
//! over TLS, on every TCP.
#![allow(clippy::unwrap_used)]

mod every_io;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linerate_http::h2::{Code, FRAME_HEAD, FrameHead, PREFACE, field, flag, kind};
use linerate_serve::{
    Handle, Limits, Request, Response, ServerOptions, TlsIdentity, TlsOptions, sleep, spawn_with,
};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection, with TLS or without.
enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn open(to: SocketAddr, tls: Option<&CertificateDer<'static>>, http2: bool) -> Wire {
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

    fn send(&mut self, bytes: &[u8]) {
        match self {
            Wire::Plain(socket) => socket.write_all(bytes).unwrap(),
            Wire::Tls(stream) => {
                stream.write_all(bytes).unwrap();
                stream.flush().unwrap();
            }
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(stream) => &stream.sock,
        }
    }

    /// Sends the FIN, behind the session's end if there is one.
    fn half_close(&mut self) {
        if let Wire::Tls(stream) = self {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
        self.socket().shutdown(Shutdown::Write).unwrap();
    }

    /// Everything until the end.
    fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let read = match self {
            Wire::Plain(socket) => socket.read_to_end(&mut all),
            Wire::Tls(stream) => stream.read_to_end(&mut all),
        };
        match read {
            Ok(_) => all,
            // A connection without a response may end by a reset, or without the session's end.
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection stays open");
                all
            }
        }
    }
}

/// Requests for `paths`, all at once.
fn requests(paths: &[&str], http2: bool) -> Vec<u8> {
    if !http2 {
        return paths
            .iter()
            .flat_map(|path| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes())
            .collect();
    }
    let frame = |kind, flags, stream, payload: &[u8]| {
        let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
        [&head.bytes(), payload].concat()
    };
    let mut bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat();
    for (number, path) in paths.iter().enumerate() {
        let mut block = Vec::new();
        for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "h")] {
            field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        let stream = number as u32 * 2 + 1;
        bytes.extend(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block));
    }
    bytes
}

/// How many complete responses `bytes` are, and how many streams were cancelled.
fn responses(bytes: &[u8], http2: bool) -> (usize, usize) {
    if !http2 {
        return (String::from_utf8_lossy(bytes).matches("waited\n").count(), 0);
    }
    let (mut rest, mut complete, mut cancelled) = (bytes, 0, 0);
    while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD>() {
        let head = FrameHead::read(head);
        let (payload, behind) = behind.split_at(head.len as usize);
        match head.kind {
            kind::DATA if head.has(flag::END_STREAM) => complete += 1,
            kind::RST_STREAM => cancelled += usize::from(payload == Code::CANCEL.0.to_be_bytes()),
            _ => {}
        }
        rest = behind;
    }
    (complete, cancelled)
}

/// Counts the handlers that were begun, and those that were cancelled.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    cancelled: AtomicUsize,
}

struct Handling(Arc<Seen>, bool);

impl Drop for Handling {
    fn drop(&mut self) {
        self.0.cancelled.fetch_add(usize::from(!self.1), Ordering::SeqCst);
    }
}

/// `/MS` waits so long.
async fn wait(request: Request, seen: Arc<Seen>) -> Response {
    seen.begun.fetch_add(1, Ordering::SeqCst);
    let mut handling = Handling(seen, false);
    sleep(Duration::from_millis(request.path()[1..].parse().unwrap())).await;
    handling.1 = true;
    Response::text("waited\n")
}

/// Runs a test of servers with these limits, in every way to speak to them.
fn with(limits: Limits, test: impl Fn(&Handle, &Seen, Option<&CertificateDer<'static>>, bool) + Sync) {
    let key = rcgen::KeyPair::generate().unwrap();
    let cert =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let (pem, key) = (cert.pem(), key.serialize_pem());
    let identity = TlsIdentity::from_pem(("cert.pem", pem.as_bytes()), ("key.pem", key.as_bytes())).unwrap();
    let mut tls = TlsOptions::new(identity);
    tls.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = tls.build().unwrap();
    for tls in [None, Some(tls)] {
        let seen = Arc::new(Seen::default());
        let cert = tls.as_ref().map(|_| cert.der());
        let options = ServerOptions { tls: tls.clone(), limits, ..ServerOptions::default() };
        let spawn = |options| {
            let seen = Arc::clone(&seen);
            spawn_with(options, move || {
                let seen = Arc::clone(&seen);
                move |request| wait(request, Arc::clone(&seen))
            })
        };
        // Over xdp the thread stays in another network, so it is a thread of its own.
        std::thread::scope(|scope| {
            let run = || {
                every_io::with(options, spawn, |server| {
                    for http2 in [false, true] {
                        seen.begun.store(0, Ordering::SeqCst);
                        seen.cancelled.store(0, Ordering::SeqCst);
                        test(&server, &seen, cert, http2);
                    }
                });
            };
            scope.spawn(run).join().unwrap();
        });
    }
}

/// Waits until a count has come so far.
#[track_caller]
fn reached(count: &AtomicUsize, n: usize, what: &str) {
    let start = Instant::now();
    while count.load(Ordering::SeqCst) < n {
        assert!(start.elapsed() < PATIENCE, "waited in vain; {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn complete_requests_are_answered_behind_a_fin() {
    with(Limits::default(), |server, seen, tls, http2| {
        let mut wire = Wire::open(server.addr(), tls, http2);
        wire.send(&requests(&["/0", "/200", "/100"], http2));
        wire.half_close();
        assert_eq!(responses(&wire.read(), http2), (3, 0), "HTTP/2: {http2}, TLS: {}", tls.is_some());
        assert_eq!(seen.cancelled.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_handler_that_still_waits_a_second_later_is_cancelled() {
    with(Limits::default(), |server, seen, tls, http2| {
        let mut wire = Wire::open(server.addr(), tls, http2);
        wire.send(&requests(&["/0", "/3600000"], http2));
        let begun = Instant::now();
        wire.half_close();
        let what = format!("HTTP/2: {http2}, TLS: {}", tls.is_some());
        assert_eq!(responses(&wire.read(), http2), (1, usize::from(http2)), "{what}");
        assert!(begun.elapsed() > Duration::from_millis(900), "{what}: it has a second");
        reached(&seen.cancelled, 1, &what);
    });
}

/// Also behind the FIN of a client that would be waited for.
#[test]
fn a_reset_cancels_at_once() {
    let limits = Limits { half_close: true, idle_time: Duration::from_secs(3600), ..Limits::default() };
    with(limits, |server, seen, tls, http2| {
        for fin_first in [false, true] {
            let cancelled = seen.cancelled.load(Ordering::SeqCst);
            let begun = seen.begun.load(Ordering::SeqCst);
            let mut wire = Wire::open(server.addr(), tls, http2);
            wire.send(&requests(&["/3600000"], http2));
            let what = format!("HTTP/2: {http2}, TLS: {}", tls.is_some());
            reached(&seen.begun, begun + 1, &what);
            if fin_first {
                wire.half_close();
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(seen.cancelled.load(Ordering::SeqCst), cancelled, "it is waited for");
            }
            socket2::SockRef::from(wire.socket()).set_linger(Some(Duration::ZERO)).unwrap();
            drop(wire);
            reached(&seen.cancelled, cancelled + 1, &what);
        }
    });
}
