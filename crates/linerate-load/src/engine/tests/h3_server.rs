//! A server of HTTP/3 in memory that does what a script says. The tests of `linerate-client` use it too.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use linerate_http::h3::{self, H3FrameReader, H3Piece, H3Settings, QpackDecoder, frame_kind};
use linerate_net::Time;
use linerate_net::datagrams::{DatagramPeer, PathFaults};
use linerate_quic::{QuicConn, QuicEndpoint, QuicEvent, QuicOptions, QuicStream, StreamRead, StreamWrite};
use rustls::pki_types::PrivateKeyDer;

const MS: Duration = Duration::from_millis(1);

/// A path without faults.
pub(crate) const CLEAN: PathFaults = PathFaults {
    delay: MS,
    jitter: Duration::ZERO,
    loss: 0.0,
    duplicates: 0.0,
    marked: 0.0,
    most_bytes: 1472,
};

/// A server's TLS, and the certificate that its clients trust.
pub(crate) static SERVER: LazyLock<(Arc<rustls::ServerConfig>, String)> = LazyLock::new(|| {
    let own = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let chain = vec![own.cert.der().clone()];
    let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    (Arc::new(tls), own.cert.pem())
});

/// What the server does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Answer,
    /// RESET_STREAM and STOP_SENDING with this code.
    Reset(u64),
    /// Part of a response, then the end of the connection with this code.
    Cut(u64),
    /// GOAWAY with this stream's ID, which is thus not processed.
    GoAway,
    /// Closes the connection with this code.
    Close(u64),
    /// Nothing at all.
    Silence,
}

type Script = Box<dyn FnMut(u64) -> Deed>;

/// A server of HTTP/3 that does what a script says.
pub(crate) struct Scripted {
    end: QuicEndpoint,
    /// Says what to do with the nth request.
    script: Script,
    /// Requests so far, and those that it answered.
    pub(crate) seen: Rc<RefCell<(u64, u64)>>,
    readers: HashMap<(QuicConn, QuicStream), H3FrameReader>,
    left: HashMap<(QuicConn, QuicStream), Vec<u8>>,
    control: HashMap<QuicConn, QuicStream>,
    /// Connections that it closes with a code, and when.
    cut: Vec<(Time, QuicConn, u64)>,
    body: usize,
    /// Method and path of each whole request, and the bytes of its content.
    pub(crate) asked: Rc<RefCell<Vec<(String, usize)>>>,
    heard: HashMap<(QuicConn, QuicStream), (String, usize)>,
    /// The stream that it never reads, on each connection.
    pub(crate) unread: Option<u64>,
    /// The status of its responses, and their `Alt-Svc`.
    pub(crate) status: Rc<Cell<u16>>,
    pub(crate) alt_svc: Rc<RefCell<Option<String>>>,
}

impl Scripted {
    pub(crate) fn new(script: impl FnMut(u64) -> Deed + 'static, body: usize, seed: u64) -> Scripted {
        let mut options = QuicOptions::default();
        (options.streams, options.idle) = (20, Duration::from_secs(5));
        let end = QuicEndpoint::server(&options, Arc::clone(&SERVER.0), seed).unwrap();
        Scripted {
            end,
            script: Box::new(script),
            seen: Rc::default(),
            readers: HashMap::new(),
            left: HashMap::new(),
            control: HashMap::new(),
            cut: Vec::new(),
            body,
            asked: Rc::default(),
            heard: HashMap::new(),
            unread: None,
            status: Rc::new(Cell::new(200)),
            alt_svc: Rc::default(),
        }
    }

    fn work(&mut self, now: Time) {
        while let Some(event) = self.end.next_event() {
            match event {
                QuicEvent::Connected { conn } => {
                    let control = self.end.open(conn, true).unwrap();
                    let mut bytes = vec![0];
                    H3Settings::default().write(&mut bytes);
                    // A client may not mind streams and frames of kinds that mean nothing.
                    h3::put_frame(0x21, b"grease", &mut bytes);
                    self.end.write(conn, control, &bytes);
                    let grease = self.end.open(conn, true).unwrap();
                    self.end.write(conn, grease, &[0x40, 0x21, 1, 2, 3]);
                    self.control.insert(conn, control);
                }
                QuicEvent::Opened { conn, stream } | QuicEvent::Readable { conn, stream } => {
                    self.read(now, conn, stream);
                }
                QuicEvent::Writable { conn, stream } => self.write(conn, stream),
                _ => {}
            }
        }
    }

    fn read(&mut self, now: Time, conn: QuicConn, stream: QuicStream) {
        if self.unread == Some(stream.id()) {
            return;
        }
        let mut bytes = Vec::new();
        let read = self.end.read(conn, stream, |piece| bytes.extend_from_slice(piece));
        if stream.is_unidirectional() {
            return;
        }
        let reader =
            self.readers.entry((conn, stream)).or_insert_with(|| H3FrameReader::of_requests(1 << 14));
        let mut input = &bytes[..];
        let (asked, content) = self.heard.entry((conn, stream)).or_default();
        while let Some(piece) = reader.next(&mut input).unwrap() {
            match piece {
                H3Piece::Data(bytes) => *content += bytes.len(),
                H3Piece::Frame(frame_kind::HEADERS, section) => *asked = line_of(section),
                other => panic!("{other:?}"),
            }
        }
        if read == StreamRead::Ended {
            assert!(!reader.in_frame());
            self.readers.remove(&(conn, stream));
            self.asked.borrow_mut().extend(self.heard.remove(&(conn, stream)));
            self.request(now, conn, stream);
        }
    }

    fn request(&mut self, now: Time, conn: QuicConn, stream: QuicStream) {
        let nth = self.seen.borrow().0;
        self.seen.borrow_mut().0 += 1;
        let deed = (self.script)(nth);
        let mut response = Vec::new();
        if matches!(deed, Deed::Answer | Deed::Cut(_)) {
            let mut section = Vec::new();
            h3::section_prefix(&mut section);
            h3::field_line(b":status", self.status.get().to_string().as_bytes(), &mut section);
            if let Some(value) = &*self.alt_svc.borrow() {
                h3::field_line(b"alt-svc", value.as_bytes(), &mut section);
            }
            h3::put_frame(frame_kind::HEADERS, &section, &mut response);
            h3::put_data_head(self.body as u64, &mut response);
            response.resize(response.len() + self.body, b'x');
        }
        match deed {
            Deed::Answer => {
                self.seen.borrow_mut().1 += 1;
                self.left.insert((conn, stream), response);
                self.write(conn, stream);
            }
            Deed::Reset(code) => {
                self.end.reset(conn, stream, code);
            }
            Deed::Cut(code) => {
                self.end.write(conn, stream, &response[..response.len() / 2]);
                self.cut.push((now + MS, conn, code));
            }
            Deed::GoAway => {
                let mut bytes = Vec::new();
                h3::put_go_away(stream.id(), &mut bytes);
                let control = self.control[&conn];
                self.end.write(conn, control, &bytes);
            }
            Deed::Close(code) => self.end.close(now, conn, code, "as the script says"),
            Deed::Silence => {}
        }
    }

    fn write(&mut self, conn: QuicConn, stream: QuicStream) {
        let Some(left) = self.left.get_mut(&(conn, stream)) else { return };
        match self.end.write(conn, stream, left) {
            StreamWrite::Taken(taken) => drop(left.drain(..taken)),
            StreamWrite::Stopped(_) | StreamWrite::Gone => left.clear(),
        }
        if left.is_empty() {
            self.end.finish(conn, stream);
            self.left.remove(&(conn, stream));
        }
    }
}

impl DatagramPeer for Scripted {
    fn receive(&mut self, now: Time, from: SocketAddr, ecn: u8, datagram: &[u8]) {
        self.end.receive(now, from, None, ecn, datagram);
    }

    fn send(&mut self, now: Time, out: &mut dyn FnMut(SocketAddr, u8, &[u8])) {
        self.end.run_timers(now);
        self.work(now);
        let due: Vec<_> = self.cut.extract_if(.., |(at, ..)| *at <= now).collect();
        due.into_iter().for_each(|(_, conn, code)| self.end.close(now, conn, code, "in the middle"));
        let mut bytes = Vec::new();
        while let Some(transmit) = self.end.next_transmit(now, 10, &mut bytes) {
            bytes.chunks(transmit.segment.max(1)).for_each(|one| out(transmit.to, transmit.ecn, one));
            bytes.clear();
        }
    }

    fn deadline(&self) -> Option<Time> {
        let cut = self.cut.iter().map(|(at, ..)| *at).min();
        self.end.deadline().into_iter().chain(cut).min()
    }
}

/// The method and path of a request.
fn line_of(section: &[u8]) -> String {
    let (mut method, mut path) = (String::new(), String::new());
    let each = |name: &[u8], value: &[u8]| match name {
        b":method" => method = String::from_utf8_lossy(value).into_owned(),
        b":path" => path = String::from_utf8_lossy(value).into_owned(),
        _ => {}
    };
    QpackDecoder::new(0).decode(0, section, 1 << 16, each).unwrap();
    format!("{method} {path}")
}
