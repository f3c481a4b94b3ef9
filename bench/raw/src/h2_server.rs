//! The bare server of HTTP/2: responds to each request with the same bytes, and decodes no field.
//! It must never be the limit of a measurement.

use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ServerConfig, ServerConnection};

use crate::h2::{self, HEAD};
use crate::sys;

/// Bytes per read, at most.
const READ: usize = 256 << 10;
/// Streams that a client may open at once. Reason: more than any run opens.
const STREAMS: u32 = 1000;
/// Longest body. Reason: it fits one frame of the size that every client takes.
const LONGEST_BODY: usize = 16_000;
/// Bytes of an incomplete frame that are kept: no client sends frames larger than it may.
const LONGEST_FRAME: usize = 32 << 10;
const WAIT_MS: i32 = 100;
const TEXT: &[u8] = b"Hello, World!\n";
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct RawStreamServerOptions {
    /// The listening address; port 0 picks one.
    pub listen: SocketAddrV4,
    /// Bytes of body in each response.
    pub body: usize,
    /// Polls for events without ever sleeping.
    pub spin: bool,
    /// Stops when standard input ends.
    pub until_stdin_ends: bool,
    /// Over TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// The two frames of a response, of which only the stream's number differs.
struct RawResponseFrames {
    bytes: Vec<u8>,
    /// Where the DATA frame begins.
    data: usize,
    /// The second in which it was made, so that the Date is never older.
    second: u64,
}

impl RawResponseFrames {
    fn new(body: usize) -> RawResponseFrames {
        // The fields of the bare server of HTTP/1.1.
        let mut block = vec![0x88];
        h2::put_field(54, "bare", &mut block);
        h2::put_field(33, &httpdate::fmt_http_date(SystemTime::now()), &mut block);
        h2::put_field(31, "text/plain", &mut block);
        h2::put_field(28, &body.to_string(), &mut block);
        let mut bytes = Vec::new();
        h2::put(h2::HEADERS, h2::END_HEADERS, 0, &block, &mut bytes);
        let data = bytes.len();
        let body: Vec<u8> = TEXT.iter().cycle().take(body).copied().collect();
        h2::put(h2::DATA, h2::END_STREAM, 0, &body, &mut bytes);
        RawResponseFrames { bytes, data, second: sys::now_us() / 1_000_000 }
    }

    #[inline]
    fn put(&self, stream: u32, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&self.bytes);
        h2::number(out, at, stream);
        h2::number(out, at + self.data, stream);
    }
}

struct StreamServerConnection {
    fd: RawFd,
    tls: Option<ServerConnection>,
    /// The beginning of a frame.
    carry: Vec<u8>,
    begun: bool,
    /// Bytes of bodies that the client admits on the connection.
    window: i64,
    out: Vec<u8>,
    sent: usize,
}

/// A running server.
pub struct RawStreamServer {
    options: RawStreamServerOptions,
    listener: RawFd,
    epoll: sys::RawEpoll,
    response: RawResponseFrames,
    connections: Vec<Option<StreamServerConnection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    requests: u64,
}

impl std::fmt::Debug for RawStreamServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?}, {} requests)", self.options, self.requests)
    }
}

impl RawStreamServer {
    /// Binds; returns the server and the address it got.
    pub fn bind(options: RawStreamServerOptions) -> io::Result<(RawStreamServer, SocketAddrV4)> {
        if options.body > LONGEST_BODY {
            return Err(io::Error::other(format!("a body of up to {LONGEST_BODY} bytes")));
        }
        let (listener, at) = sys::listen(options.listen)?;
        let epoll = sys::RawEpoll::new()?;
        epoll.add(listener, libc::EPOLLIN, LISTENER)?;
        if options.until_stdin_ends {
            epoll.add(0, libc::EPOLLIN, STDIN)?;
        }
        let server = RawStreamServer {
            response: RawResponseFrames::new(options.body),
            options,
            listener,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; READ],
            plain: Vec::new(),
            requests: 0,
        };
        Ok((server, at))
    }

    /// Serves until a signal asks for the end; returns the number of requests.
    pub fn run(mut self) -> io::Result<u64> {
        let mut ended = false;
        while !ended && !sys::asked_to_end() {
            let most = if self.options.spin { Duration::ZERO } else { Duration::from_millis(WAIT_MS as u64) };
            let n = self.epoll.wait_for(most)?;
            if n > 0 && sys::now_us() / 1_000_000 != self.response.second {
                self.response = RawResponseFrames::new(self.options.body);
            }
            for i in 0..n {
                match self.epoll.event(i) {
                    (LISTENER, _) => self.accept()?,
                    (STDIN, _) => ended = sys::stdin_ended(),
                    (token, _) => self.serve(token as usize),
                }
            }
        }
        Ok(self.requests)
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok(fd) = sys::accept(self.listener) {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let tls =
                self.options.tls.clone().map(ServerConnection::new).transpose().map_err(io::Error::other)?;
            let mut c = StreamServerConnection {
                fd,
                tls,
                carry: Vec::new(),
                begun: false,
                window: 65_535,
                out: Vec::new(),
                sent: 0,
            };
            if let Some(tls) = &mut c.tls {
                tls.set_buffer_limit(None);
            }
            self.connections[slot] = Some(c);
            let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
            self.epoll.add(fd, events, slot as u64)?;
        }
        Ok(())
    }

    fn serve(&mut self, slot: usize) {
        let Some(mut c) = self.connections[slot].take() else { return };
        match self.turn(&mut c) {
            Ok(true) => self.connections[slot] = Some(c),
            // Whatever went wrong, the client notices.
            Ok(false) | Err(_) => {
                sys::close(c.fd);
                self.free.push(slot);
            }
        }
    }

    /// Reads and writes as much as possible; returns whether the connection still exists.
    fn turn(&mut self, c: &mut StreamServerConnection) -> io::Result<bool> {
        loop {
            // A peer that does not read gets no more responses.
            if !flush(c)? {
                return Ok(true);
            }
            let n = match sys::recv(c.fd, &mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(e) if sys::would_block(&e) => return Ok(true),
                Err(e) => return Err(e),
            };
            let buffer = std::mem::take(&mut self.buffer);
            let taken = self.receive(c, &buffer[..n]);
            self.buffer = buffer;
            taken?;
            if n < self.buffer.len() {
                return flush(c).map(|_| true);
            }
        }
    }

    fn receive(&mut self, c: &mut StreamServerConnection, bytes: &[u8]) -> io::Result<()> {
        let Some(mut tls) = c.tls.take() else { return self.take(c, bytes) };
        let mut rest = bytes;
        let mut plain = std::mem::take(&mut self.plain);
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            plain.resize(state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut plain)?;
            self.take(c, &plain)?;
        }
        self.plain = plain;
        let mut sealed = Vec::new();
        tls.writer().write_all(&c.out)?;
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        c.out = sealed;
        c.tls = Some(tls);
        Ok(())
    }

    /// Responds to the requests in some bytes.
    fn take(&mut self, c: &mut StreamServerConnection, bytes: &[u8]) -> io::Result<()> {
        if c.carry.is_empty() {
            let rest = self.frames(c, bytes)?;
            c.carry.extend_from_slice(rest);
            return Ok(());
        }
        let mut carry = std::mem::take(&mut c.carry);
        carry.extend_from_slice(bytes);
        let left = self.frames(c, &carry)?.len();
        carry.drain(..carry.len() - left);
        c.carry = carry;
        Ok(())
    }

    /// Responds to the requests in whole frames; returns the rest.
    fn frames<'a>(&mut self, c: &mut StreamServerConnection, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let mut rest = bytes;
        if !c.begun {
            if rest.len() < h2::PREFACE.len() {
                return Ok(rest);
            }
            rest = rest.strip_prefix(h2::PREFACE).ok_or_else(|| io::Error::other("not HTTP/2"))?;
            c.begun = true;
            h2::put_settings(&[(h2::MAX_CONCURRENT_STREAMS, STREAMS)], &mut c.out);
        }
        while let Some(frame) = h2::next(&mut rest) {
            match frame.kind {
                h2::HEADERS | h2::DATA if frame.has(h2::END_STREAM) => {
                    c.window -= self.options.body as i64;
                    if c.window < 0 {
                        return Err(io::Error::other("the client's window is used up"));
                    }
                    self.requests += 1;
                    self.response.put(frame.stream, &mut c.out);
                }
                h2::SETTINGS if !frame.has(h2::ACK) => h2::put(h2::SETTINGS, h2::ACK, 0, b"", &mut c.out),
                h2::PING if !frame.has(h2::ACK) => h2::put(h2::PING, h2::ACK, 0, frame.payload, &mut c.out),
                h2::WINDOW_UPDATE if frame.stream == 0 => {
                    let more = frame.payload.first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
                    c.window += i64::from(more & h2::WINDOW);
                }
                _ => {}
            }
        }
        if rest.len() > LONGEST_FRAME + HEAD { Err(io::Error::other("too long a frame")) } else { Ok(rest) }
    }
}

/// Sends what is left; returns whether all of it was sent.
fn flush(c: &mut StreamServerConnection) -> io::Result<bool> {
    while c.sent < c.out.len() {
        match sys::send(c.fd, &c.out[c.sent..], false) {
            Ok(n) => c.sent += n,
            Err(e) if sys::would_block(&e) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    c.out.clear();
    c.sent = 0;
    Ok(true)
}
