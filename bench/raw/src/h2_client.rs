//! The raw client of HTTP/2 on edge-triggered epoll: numbers its requests, counts bytes, parses
//! nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{IntoRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::client::{RawClientCounts, RawClientOptions};
use crate::h2::{self, RawFrame};
use crate::sys::{self, RawEpoll};

const WAIT_MS: i32 = 50;
const RECEIVE: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

struct StreamClientConnection {
    fd: RawFd,
    /// Bytes received of the current response.
    got: usize,
    /// The next stream's number.
    stream: u32,
    out: Vec<u8>,
    sent: usize,
}

/// Runs until the time is over; responses in flight then are not counted.
///
/// # Errors
/// The server closes a connection, or its responses differ in length.
pub fn run(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    let request = request(o);
    let mut epoll = RawEpoll::new()?;
    let mut response = 0;
    let mut connections = Vec::with_capacity(o.connections);
    for i in 0..o.connections {
        let (fd, len) = open(o, &request)?;
        if i > 0 && len != response {
            return Err(io::Error::other("responses differ in length"));
        }
        response = len;
        epoll.add(fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, i as u64)?;
        connections.push(StreamClientConnection { fd, got: 0, stream: 3, out: Vec::new(), sent: 0 });
    }
    let mut buffer = vec![0; o.receive.unwrap_or(RECEIVE)];
    let mut counts = RawClientCounts::default();
    let start = Instant::now();
    for c in &mut connections {
        ask(c, &request, o.depth);
        send(c)?;
    }
    loop {
        let n = epoll.wait(WAIT_MS)?;
        for i in 0..n {
            let (token, events) = epoll.event(i);
            let c = &mut connections[token as usize];
            if events & libc::EPOLLIN != 0 {
                let whole = receive(c, &mut buffer, response, &mut counts)?;
                ask(c, &request, whole);
            }
            send(c)?;
        }
        counts.elapsed = start.elapsed();
        if counts.elapsed >= o.lasts {
            return Ok(counts);
        }
    }
}

/// One request, as `linerate load` sends it by default.
fn request(o: &RawClientOptions) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84];
    h2::put_field(1, &o.target.to_string(), &mut block);
    let mut frame = Vec::new();
    h2::put(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, 0, &block, &mut frame);
    frame
}

/// A connection on which the settings were exchanged and the first response has come, with the
/// length of that response.
fn open(o: &RawClientOptions, request: &[u8]) -> io::Result<(RawFd, usize)> {
    let mut s = TcpStream::connect(o.target)?;
    s.set_nodelay(true)?;
    s.set_read_timeout(Some(PATIENCE))?;
    let mut hello = h2::PREFACE.to_vec();
    h2::put_settings(&[(h2::HEADER_TABLE_SIZE, 0), (h2::INITIAL_WINDOW_SIZE, h2::WINDOW)], &mut hello);
    h2::put(h2::WINDOW_UPDATE, 0, 0, &h2::MORE_WINDOW.to_be_bytes(), &mut hello);
    h2::put(h2::SETTINGS, h2::ACK, 0, b"", &mut hello);
    let first = hello.len();
    hello.extend_from_slice(request);
    h2::number(&mut hello, first, 1);
    s.write_all(&hello)?;
    let (mut all, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let mut rest = &all[..];
        let (mut len, mut acknowledged, mut ended) = (0, false, false);
        while let Some(frame) = h2::next(&mut rest) {
            let RawFrame { kind, stream, payload, .. } = frame;
            acknowledged |= kind == h2::SETTINGS && frame.has(h2::ACK);
            if stream == 1 && (kind == h2::HEADERS || kind == h2::DATA) {
                len += h2::HEAD + payload.len();
                ended |= frame.has(h2::END_STREAM);
            }
        }
        if acknowledged && ended && rest.is_empty() {
            break s.set_nonblocking(true).map(|()| (s.into_raw_fd(), len));
        }
        match s.read(&mut part)? {
            0 => break Err(io::Error::other("the server closed before a whole response")),
            n => all.extend_from_slice(&part[..n]),
        }
    }
}

fn receive(
    c: &mut StreamClientConnection,
    buffer: &mut [u8],
    response: usize,
    counts: &mut RawClientCounts,
) -> io::Result<usize> {
    let mut all = 0;
    loop {
        let n = match sys::recv(c.fd, buffer) {
            Ok(0) => return Err(io::Error::other("the server closed a connection")),
            Ok(n) => n,
            Err(e) if sys::would_block(&e) => return Ok(all),
            Err(e) => return Err(e),
        };
        let whole = (c.got + n) / response;
        c.got = (c.got + n) % response;
        all += whole;
        counts.answered += whole as u64;
        counts.received += n as u64;
        counts.reads += 1;
        if n < buffer.len() {
            return Ok(all);
        }
    }
}

/// Adds requests on new streams.
fn ask(c: &mut StreamClientConnection, request: &[u8], times: usize) {
    for _ in 0..times {
        let at = c.out.len();
        c.out.extend_from_slice(request);
        h2::number(&mut c.out, at, c.stream);
        c.stream += 2;
    }
}

fn send(c: &mut StreamClientConnection) -> io::Result<()> {
    while c.sent < c.out.len() {
        match sys::send(c.fd, &c.out[c.sent..], false) {
            Ok(n) => c.sent += n,
            Err(e) if sys::would_block(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    c.out.clear();
    c.sent = 0;
    Ok(())
}
