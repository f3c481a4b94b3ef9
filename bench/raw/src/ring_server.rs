//! The bare server on io_uring, for long connections. It uses a multishot receive for each, and
//! sends without success notifications, since the bytes stay where they are. That is the minimum
//! for any server on io_uring.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use std::time::SystemTime;

use io_uring::types::{Fd, Fixed};
use io_uring::{cqueue, opcode, squeue};

use crate::requests::{AfterRequest, Matcher, Partial};
use crate::sys;
use crate::uring::{GROUP, RawRing, RingBuffers};

/// Concurrent connections.
const CONNECTIONS: usize = 8192;
/// Bytes of one receive.
const READ: usize = 16 << 10;

const ACCEPT: u64 = 1 << 32;
const RECEIVE: u64 = 2 << 32;
const QUIET: u64 = 3 << 32;
const KIND: u64 = !0 << 32;

/// A running server.
pub struct RawRingServer {
    ring: RawRing,
    buffers: RingBuffers,
    listener: RawFd,
    body: usize,
    answer: &'static [u8],
    second: u64,
    matcher: Matcher,
    partial: Vec<Partial>,
}

impl std::fmt::Debug for RawRingServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({} bytes of body)", self.body)
    }
}

impl RawRingServer {
    /// Binds; returns the server and the address it got.
    pub fn bind(listen: SocketAddrV4, body: usize) -> io::Result<(RawRingServer, SocketAddrV4)> {
        let (listener, at) = sys::listen(listen)?;
        let mut ring = RawRing::new(1024)?;
        ring.direct(CONNECTIONS as u32)?;
        let buffers = RingBuffers::new(&ring, READ)?;
        ring.push(&[accept(listener)])?;
        let partial = (0..CONNECTIONS).map(|_| Partial::default()).collect();
        let matcher = Matcher::default();
        Ok((RawRingServer { ring, buffers, listener, body, answer: b"", second: 0, matcher, partial }, at))
    }

    /// Serves until a signal asks for the end.
    pub fn run(mut self) -> io::Result<()> {
        while !sys::asked_to_end() {
            self.ring.wait()?;
            self.write_answer();
            while let Some(e) = self.ring.next() {
                let slot = (e.user_data() & !KIND) as usize;
                match e.user_data() & KIND {
                    ACCEPT => self.accepted(&e)?,
                    RECEIVE => self.received(slot, &e)?,
                    // The peer is gone.
                    _ => {}
                }
            }
            self.buffers.publish();
        }
        Ok(())
    }

    /// The response with this second's Date. It is never freed, since a send may still use it: some
    /// 150 bytes each second.
    fn write_answer(&mut self) {
        let second = sys::now_us() / 1_000_000;
        if second != self.second {
            let date = httpdate::fmt_http_date(SystemTime::now());
            let mut text = format!(
                "HTTP/1.1 200 OK\r\nServer: bare\r\nDate: {date}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
                self.body
            );
            text.extend("Hello, World!\n".chars().cycle().take(self.body));
            (self.second, self.answer) = (second, text.leak().as_bytes());
        }
    }

    fn accepted(&mut self, e: &cqueue::Entry) -> io::Result<()> {
        if e.result() >= 0 {
            let slot = e.result() as usize;
            self.partial[slot] = Partial::default();
            self.ring.push(&[receive(slot)])?;
        }
        if cqueue::more(e.flags()) { Ok(()) } else { self.ring.push(&[accept(self.listener)]) }
    }

    fn received(&mut self, slot: usize, e: &cqueue::Entry) -> io::Result<()> {
        let mut after = AfterRequest::Keep;
        if let Some(id) = cqueue::buffer_select(e.flags()) {
            let bytes = self.buffers.bytes(id, e.result().max(0) as usize);
            let counted = self.matcher.count(&mut self.partial[slot], bytes);
            self.buffers.give(id);
            after = counted.map_or(AfterRequest::Close, |c| c.after);
            for _ in 0..counted.map_or(0, |c| c.requests) {
                self.ring.push(&[self.send(slot)])?;
            }
        }
        let ended = e.result() <= 0 && e.result() != -libc::ENOBUFS;
        match (cqueue::more(e.flags()), ended || after == AfterRequest::Close) {
            (false, true) => {
                self.ring.push(&[opcode::Close::new(Fixed(slot as u32)).build().user_data(QUIET)])
            }
            (false, false) => self.ring.push(&[receive(slot)]),
            // The receive ends with the connection, and closes it.
            (true, true) => {
                let shut = opcode::Shutdown::new(Fixed(slot as u32), libc::SHUT_RDWR).build();
                self.ring.push(&[shut.flags(squeue::Flags::SKIP_SUCCESS).user_data(QUIET)])
            }
            (true, false) => Ok(()),
        }
    }

    fn send(&self, slot: usize) -> squeue::Entry {
        let (start, len) = (self.answer.as_ptr(), self.answer.len() as u32);
        let entry =
            opcode::Send::new(Fixed(slot as u32), start, len).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL);
        entry.build().flags(squeue::Flags::SKIP_SUCCESS).user_data(QUIET)
    }
}

fn accept(listener: RawFd) -> squeue::Entry {
    opcode::AcceptMulti::new(Fd(listener)).allocate_file_index(true).build().user_data(ACCEPT)
}

fn receive(slot: usize) -> squeue::Entry {
    opcode::RecvMulti::new(Fixed(slot as u32), GROUP).build().user_data(RECEIVE | slot as u64)
}

/// Tests that query it over a socket; they say so if the kernel has no io_uring.
#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn it_answers_and_closes_when_asked() {
        let (told, tell) = std::sync::mpsc::channel();
        // The thread ends with the process.
        std::thread::spawn(move || {
            match RawRingServer::bind("127.0.0.1:0".parse().expect("an address"), 14) {
                Ok((server, at)) => {
                    told.send(Ok(at)).expect("a receiver");
                    server.run()
                }
                Err(e) => {
                    told.send(Err(e.to_string())).expect("a receiver");
                    Ok(())
                }
            }
        });
        let at = match tell.recv().expect("the thread tells") {
            Ok(at) => at,
            Err(e) => return linerate_skips::skip(linerate_skips::need::IO_URING, e),
        };
        let mut peer = TcpStream::connect(at).expect("a connection");
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
        write!(peer, "{request}GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        let mut all = String::new();
        peer.read_to_string(&mut all).expect("answers, then the end");
        assert_eq!(all.matches("HTTP/1.1 200 OK\r\n").count(), 4, "{all}");
        assert_eq!(all.matches("\r\n\r\nHello, World!\n").count(), 4);
    }
}
