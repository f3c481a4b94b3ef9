//! A client of HTTP/3 over a UDP socket: what it sends is up to the test.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_base::Time;
use linerate_http::h3::{
    H3FrameReader, H3Piece, QpackDecoder, field_line, frame_kind, put_data_head, put_frame, section_prefix,
};
use linerate_quic::{
    QuicConn, QuicEndpoint, QuicEvent, QuicLost, QuicOptions, QuicStream, StreamRead, StreamWrite,
};

/// No test waits longer.
const LONGEST: Duration = Duration::from_secs(20);

/// What came on a request's stream.
#[derive(Debug, Default)]
pub(crate) struct H3Response {
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) ended: bool,
    /// The code of a reset.
    pub(crate) reset: Option<u64>,
    bytes: Vec<u8>,
}

impl H3Response {
    pub(crate) fn status(&self) -> &str {
        self.field(":status").unwrap_or("none")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }

    fn read(&mut self) {
        let mut reader = H3FrameReader::of_requests(1 << 20);
        let bytes = std::mem::take(&mut self.bytes);
        let mut input = &bytes[..];
        while let Some(piece) = reader.next(&mut input).unwrap() {
            match piece {
                H3Piece::Data(content) => self.body.extend_from_slice(content),
                H3Piece::Frame(frame_kind::HEADERS, section) => {
                    let mut fields = Vec::new();
                    let each = |name: &[u8], value: &[u8]| {
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                        fields.push((text(name), text(value)));
                    };
                    QpackDecoder::new(0).decode(0, section, 1 << 20, each).unwrap();
                    if self.fields.is_empty() { self.fields = fields } else { self.trailers = fields }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The fields of a request.
pub(crate) fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    section_prefix(&mut section);
    let usual = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    for (name, value) in usual.iter().chain(more) {
        field_line(name.as_bytes(), value.as_bytes(), &mut section);
    }
    let mut out = Vec::new();
    put_frame(frame_kind::HEADERS, &section, &mut out);
    out
}

pub(crate) fn data(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_data_head(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// TLS of a client that trusts this certificate.
fn tls(certificate: &[u8]) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    Arc::new(tls)
}

/// The first datagram of a client that never says more; each number makes another one.
pub(crate) fn first_datagram(server: SocketAddr, certificate: &[u8], number: u64) -> Vec<u8> {
    let mut end = QuicEndpoint::client(&QuicOptions::default(), tls(certificate), number).unwrap();
    end.connect(Time::ZERO, server, "localhost").unwrap();
    let mut datagram = Vec::new();
    end.next_transmit(Time::ZERO, 1, &mut datagram).unwrap();
    datagram
}

pub(crate) struct H3TestClient {
    end: QuicEndpoint,
    socket: UdpSocket,
    server: SocketAddr,
    pub(crate) conn: QuicConn,
    began: Instant,
    responses: HashMap<QuicStream, H3Response>,
    waiting: HashMap<QuicStream, (Vec<u8>, bool)>,
    pub(crate) lost: Option<QuicLost>,
    is_connected: bool,
    /// Nothing is read of streams.
    pub(crate) is_deaf: bool,
}

impl H3TestClient {
    /// Connects, with the client's control stream begun.
    pub(crate) fn new(server: SocketAddr, certificate: &[u8], options: &QuicOptions) -> H3TestClient {
        let mut client = H3TestClient::raw(server, certificate, options);
        client.until("the handshake", |client| client.is_connected);
        let control = client.end.open(client.conn, true).unwrap();
        client.send(control, &[0, 4, 0], false);
        client
    }

    fn raw(server: SocketAddr, certificate: &[u8], options: &QuicOptions) -> H3TestClient {
        let mut end = QuicEndpoint::client(options, tls(certificate), 7).unwrap();
        let conn = end.connect(Time::ZERO, server, "localhost").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        H3TestClient {
            end,
            socket,
            server,
            conn,
            began: Instant::now(),
            responses: HashMap::new(),
            waiting: HashMap::new(),
            lost: None,
            is_connected: false,
            is_deaf: false,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Sends, waits a moment for the server, and takes what comes.
    pub(crate) fn step(&mut self) {
        let mut out = Vec::new();
        while let Some(transmit) = self.end.next_transmit(self.now(), 1, &mut out) {
            self.socket.send_to(&out, transmit.to).unwrap();
            out.clear();
        }
        let mut datagram = [0; 2000];
        self.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        if let Ok((len, _)) = self.socket.recv_from(&mut datagram) {
            self.end.receive(self.now(), self.server, None, 0, &datagram[..len]);
            self.socket.set_nonblocking(true).unwrap();
            while let Ok((len, _)) = self.socket.recv_from(&mut datagram) {
                self.end.receive(self.now(), self.server, None, 0, &datagram[..len]);
            }
            self.socket.set_nonblocking(false).unwrap();
        }
        self.end.run_timers(self.now());
        while let Some(event) = self.end.next_event() {
            match event {
                QuicEvent::Connected { .. } => self.is_connected = true,
                QuicEvent::Readable { stream, .. } if !self.is_deaf => self.read(stream),
                QuicEvent::Writable { stream, .. } => self.write(stream),
                QuicEvent::Lost { how, .. } => self.lost = Some(how),
                _ => {}
            }
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut H3TestClient) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < LONGEST, "{what} takes too long: {:?} {:?}", self.lost, self.responses);
            self.step();
        }
    }

    fn read(&mut self, stream: QuicStream) {
        let Some(response) = self.responses.get_mut(&stream) else {
            self.end.read(self.conn, stream, |_| {});
            return;
        };
        match self.end.read(self.conn, stream, |bytes| response.bytes.extend_from_slice(bytes)) {
            StreamRead::Ended => response.ended = true,
            StreamRead::Reset(code) => response.reset = Some(code),
            StreamRead::Open | StreamRead::Gone => {}
        }
    }

    fn write(&mut self, stream: QuicStream) {
        let Some((bytes, ends)) = self.waiting.get_mut(&stream) else { return };
        if let StreamWrite::Taken(taken) = self.end.write(self.conn, stream, bytes) {
            bytes.drain(..taken);
            if !bytes.is_empty() {
                return;
            }
            if *ends {
                self.end.finish(self.conn, stream);
            }
        }
        self.waiting.remove(&stream);
    }

    /// A stream for a request.
    pub(crate) fn open(&mut self) -> QuicStream {
        let mut opened = None;
        self.until("room for a stream", |client| {
            opened = client.end.open(client.conn, false);
            opened.is_some() || client.lost.is_some()
        });
        let stream = opened.unwrap();
        self.responses.insert(stream, H3Response::default());
        stream
    }

    /// A stream of the client's own.
    pub(crate) fn open_one_way(&mut self) -> QuicStream {
        self.end.open(self.conn, true).unwrap()
    }

    pub(crate) fn send(&mut self, stream: QuicStream, bytes: &[u8], ends: bool) {
        let waiting = self.waiting.entry(stream).or_default();
        waiting.0.extend_from_slice(bytes);
        waiting.1 |= ends;
        self.write(stream);
    }

    pub(crate) fn reset(&mut self, stream: QuicStream, code: u64) {
        self.end.reset(self.conn, stream, code);
        self.end.stop(self.conn, stream, code);
    }

    /// Sends from another port from now on.
    pub(crate) fn moves(&mut self) {
        self.socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    }

    /// Begins a request.
    pub(crate) fn begin(
        &mut self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> QuicStream {
        let stream = self.open();
        self.send(stream, &head(method, path, more), body.is_none());
        if let Some(body) = body {
            self.send(stream, &data(body), true);
        }
        stream
    }

    /// The response, once it is whole or the connection is lost.
    pub(crate) fn response(&mut self, stream: QuicStream) -> H3Response {
        self.until("a response", |client| client.lost.is_some() || client.responses[&stream].is_over());
        let mut response = self.responses.remove(&stream).unwrap();
        response.read();
        response
    }

    pub(crate) fn get(&mut self, path: &str) -> H3Response {
        let stream = self.begin("GET", path, &[], None);
        self.response(stream)
    }

    /// The code that the server closed the connection with.
    pub(crate) fn code(&mut self) -> u64 {
        self.until("the end of the connection", |client| client.lost.is_some());
        match &self.lost {
            Some(QuicLost::ClosedByPeer { code, .. }) => *code,
            other => panic!("{other:?}"),
        }
    }
}
