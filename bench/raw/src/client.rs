//! What both raw clients share: the request, the length of a response, and the counters.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::RawFd;
use std::time::Duration;

use memchr::memmem;

use crate::sys::{self, PeerAddress};

/// Responses from this size on get a large receive buffer at once. The kernel would grow the buffer
/// while responses wait for it: 5,600 instead of 9,300 responses of 1 MB per second. At 32 kB it
/// makes no difference.
pub const LARGE: usize = 64 << 10;

/// Size of that buffer, bytes. Half and four times as much gave the same rate.
const ROOM: i32 = 1 << 20;

/// Options of a raw client.
#[derive(Clone, Debug)]
pub struct RawClientOptions {
    /// The server.
    pub target: SocketAddrV4,
    /// Connections held open.
    pub connections: usize,
    /// Requests in flight on each.
    pub depth: usize,
    /// A new connection for each request.
    pub short: bool,
    /// Duration of the run.
    pub lasts: Duration,
    /// The core it runs on.
    pub core: Option<usize>,
    /// Bytes per receive, at most; `None`: the best value of each client.
    pub receive: Option<usize>,
    /// Header fields beyond Host, as lines with their CRLF.
    pub fields: String,
}

/// Counters of a raw client.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawClientCounts {
    /// Complete responses (by length alone).
    pub answered: u64,
    /// Bytes received.
    pub received: u64,
    /// Connections that ended unexpectedly.
    pub broken: u64,
    /// Reads that returned bytes.
    pub reads: u64,
    /// From the first request to the end.
    pub elapsed: Duration,
}

impl RawClientOptions {
    /// One request, as a load generator sends it by default.
    pub fn request(&self) -> Vec<u8> {
        let close = if self.short { "Connection: close\r\n" } else { "" };
        format!("GET / HTTP/1.1\r\nHost: {}\r\n{}{close}\r\n", self.target, self.fields).into_bytes()
    }

    /// A connected, non-blocking socket.
    pub fn connect(&self, answer: usize) -> io::Result<RawFd> {
        let fd = sys::socket(false)?;
        if answer > LARGE {
            sys::set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM)?;
        }
        sys::connect(fd, &PeerAddress::new(self.target))?;
        sys::set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        sys::set_nonblocking(fd)?;
        Ok(fd)
    }

    /// Sends one request and returns the length of the response, the only one that is ever parsed.
    pub fn learn(&self) -> io::Result<usize> {
        let mut s = TcpStream::connect(self.target)?;
        s.set_read_timeout(Some(Duration::from_secs(5)))?;
        s.write_all(&self.request())?;
        let (mut all, mut part) = (Vec::new(), [0u8; 16 << 10]);
        loop {
            let n = s.read(&mut part)?;
            all.extend_from_slice(&part[..n]);
            match answer_len(&all) {
                Some(len) if all.len() == len => return Ok(len),
                Some(len) if all.len() > len => {
                    return Err(io::Error::other("more bytes than the answer has"));
                }
                _ if n == 0 => return Err(io::Error::other("the server closed before a whole answer")),
                _ => {}
            }
        }
    }
}

fn answer_len(bytes: &[u8]) -> Option<usize> {
    let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let body: usize = text.lines().find_map(|l| l.strip_prefix("content-length:"))?.trim().parse().ok()?;
    Some(head + body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_an_answer() {
        assert_eq!(answer_len(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), Some(41));
        assert_eq!(answer_len(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"), None);
    }
}
