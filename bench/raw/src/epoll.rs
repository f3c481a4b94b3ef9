//! The raw client on edge-triggered epoll: counts bytes, parses nothing.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

use crate::client::{RawClientCounts, RawClientOptions};
use crate::sys::{self, PeerAddress, RawEpoll};

const WAIT_MS: i32 = 50;

/// Bytes per receive: holds every window measured, and more makes no difference.
const RECEIVE: usize = 32 << 10;

struct EpollClientConnection {
    fd: RawFd,
    /// Bytes received of the current response.
    got: usize,
    /// Bytes of requests that may be sent and were not.
    unsent: usize,
    /// Offset of the next byte in the request.
    at: usize,
}

/// Runs until the time is over; responses in flight then are not counted.
pub fn run(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    if o.short { short(o) } else { kept(o) }
}

/// The order of work in a turn of the loop. Which is faster depends on how much one connection
/// delivers.
struct LoopOrder {
    /// Receive from all ready connections first, then send to all: the same code runs in a row.
    sends_last: bool,
    /// How often to poll for events before sleeping.
    looks: u32,
}

impl LoopOrder {
    /// Chooses by the bytes in flight per connection. With small windows, receiving from all first
    /// saves 1 to 3 % of the time. With large ones the server should get its work at once, and
    /// sleeping costs more than polling three times (2 to 3 %).
    fn best_for(window: usize) -> LoopOrder {
        let small = window <= 4 << 10;
        LoopOrder { sends_last: small, looks: if small { 0 } else { 3 } }
    }

    fn wait(&self, epoll: &mut RawEpoll) -> io::Result<usize> {
        for _ in 0..self.looks {
            match epoll.wait(0)? {
                0 => {}
                n => return Ok(n),
            }
        }
        epoll.wait(WAIT_MS)
    }
}

struct KeptConnections {
    row: Vec<u8>,
    request: usize,
    answer: usize,
    buffer: Vec<u8>,
    counts: RawClientCounts,
}

fn kept(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    let request = o.request();
    let answer = o.learn()?;
    let mut epoll = RawEpoll::new()?;
    let mut connections = Vec::with_capacity(o.connections);
    for i in 0..o.connections {
        let fd = o.connect(answer)?;
        epoll.add(fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, i as u64)?;
        connections.push(EpollClientConnection { fd, got: 0, unsent: o.depth * request.len(), at: 0 });
    }
    // One extra request, so that a slice of `depth` requests exists from any offset in a request.
    let row = request.repeat(o.depth + 1);
    let buffer = vec![0; o.receive.unwrap_or(RECEIVE)];
    let mut k =
        KeptConnections { row, request: request.len(), answer, buffer, counts: RawClientCounts::default() };
    let start = Instant::now();
    for c in &mut connections {
        k.send(c)?;
    }
    let turn = LoopOrder::best_for(o.depth * answer);
    loop {
        let n = turn.wait(&mut epoll)?;
        for i in 0..n {
            let (token, events) = epoll.event(i);
            let c = &mut connections[token as usize];
            if events & libc::EPOLLIN != 0 {
                k.receive(c)?;
            }
            if !turn.sends_last {
                k.send(c)?;
            }
        }
        for i in (0..n).filter(|_| turn.sends_last) {
            k.send(&mut connections[epoll.event(i).0 as usize])?;
        }
        k.counts.elapsed = start.elapsed();
        if k.counts.elapsed >= o.lasts {
            return Ok(k.counts);
        }
    }
}

impl KeptConnections {
    fn receive(&mut self, c: &mut EpollClientConnection) -> io::Result<()> {
        loop {
            let n = match sys::recv(c.fd, &mut self.buffer) {
                Ok(0) => return Err(io::Error::other("the server closed a connection")),
                Ok(n) => n,
                Err(e) if sys::would_block(&e) => return Ok(()),
                Err(e) => return Err(e),
            };
            let whole = (c.got + n) / self.answer;
            c.got = (c.got + n) % self.answer;
            c.unsent += whole * self.request;
            self.counts.answered += whole as u64;
            self.counts.received += n as u64;
            self.counts.reads += 1;
            // A short read: the socket is empty, and the edge will report more.
            if n < self.buffer.len() {
                return Ok(());
            }
        }
    }

    fn send(&self, c: &mut EpollClientConnection) -> io::Result<()> {
        while c.unsent > 0 {
            let end = self.row.len().min(c.at + c.unsent);
            match sys::send(c.fd, &self.row[c.at..end], false) {
                Ok(n) => {
                    c.unsent -= n;
                    c.at = (c.at + n) % self.request;
                }
                Err(e) if sys::would_block(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// A new connection for each request, `connections` at a time.
fn short(o: &RawClientOptions) -> io::Result<RawClientCounts> {
    let request = o.request();
    let answer = o.learn()?;
    let peer = PeerAddress::new(o.target);
    let mut epoll = RawEpoll::new()?;
    let mut buffer = vec![0; o.receive.unwrap_or(RECEIVE)];
    let mut counts = RawClientCounts::default();
    let start = Instant::now();
    let mut slots = Vec::with_capacity(o.connections);
    for i in 0..o.connections {
        slots.push(open(&epoll, &peer, &request, i)?);
    }
    loop {
        let n = epoll.wait(WAIT_MS)?;
        for i in 0..n {
            let (token, events) = epoll.event(i);
            let c = &mut slots[token as usize];
            if c.unsent > 0 && events & libc::EPOLLOUT != 0 && sys::send(c.fd, &request, false).is_ok() {
                c.unsent = 0;
            }
            let done = match sys::recv(c.fd, &mut buffer) {
                Ok(n) => {
                    c.got += n;
                    counts.received += n as u64;
                    counts.reads += 1;
                    n == 0 || c.got >= answer
                }
                Err(e) => !sys::would_block(&e),
            };
            if done {
                if c.got == answer {
                    counts.answered += 1;
                } else {
                    counts.broken += 1;
                }
                sys::close(c.fd);
                *c = open(&epoll, &peer, &request, token as usize)?;
            }
        }
        counts.elapsed = start.elapsed();
        if counts.elapsed >= o.lasts {
            return Ok(counts);
        }
    }
}

fn open(
    epoll: &RawEpoll,
    peer: &PeerAddress,
    request: &[u8],
    slot: usize,
) -> io::Result<EpollClientConnection> {
    let fd = sys::socket(true)?;
    sys::connect(fd, peer)?;
    // On loopback the handshake is complete when connect returns; elsewhere the send waits for
    // EPOLLOUT.
    let sent = sys::send(fd, request, false).is_ok();
    let events = if sent { libc::EPOLLIN } else { libc::EPOLLIN | libc::EPOLLOUT };
    epoll.add(fd, events | libc::EPOLLET, slot as u64)?;
    Ok(EpollClientConnection { fd, got: 0, unsent: usize::from(!sent), at: 0 })
}
