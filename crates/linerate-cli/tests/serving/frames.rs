//! A client of HTTP/2 that sends any frames, right and wrong ones.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{PATIENCE, Server};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// `ENHANCE_YOUR_CALM` (RFC 9113 section 7).
pub(crate) const CALM: u32 = 0xb;

/// A frame as it came.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The last four bytes at `at`, such as an error code.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block of a request: static entries, and literals without Huffman (RFC 7541).
pub(crate) fn block(method: &str, path: &str) -> Vec<u8> {
    let mut block = vec![0x86];
    // Indexed names: :method, :path, :authority.
    for (index, value) in [(0x02, method), (0x04, path), (0x01, "localhost")] {
        block.extend([index, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    block
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    /// Connects, and says these settings.
    pub(crate) fn with(server: &Server, settings: &[(u16, u32)]) -> Client {
        let stream = server.connect();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { stream, unread: Vec::new() };
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(&frame(SETTINGS, 0, 0, &payload)).unwrap();
        client
    }

    pub(crate) fn new(server: &Server) -> Client {
        Client::with(server, &[])
    }

    /// It fails once the server has closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn ask(&mut self, stream: u32, path: &str) {
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", path))).unwrap();
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, s0, s1, s2, s3, rest @ ..] = &self.unread[..] {
                let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if rest.len() >= len {
                    let stream = u32::from_be_bytes([*s0 & 0x7f, *s1, *s2, *s3]);
                    let frame = Frame { kind: *kind, flags: *flags, stream, payload: rest[..len].to_vec() };
                    self.unread.drain(..9 + len);
                    return Some(frame);
                }
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.unread.extend_from_slice(&bytes[..len]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("no frame comes")
                }
                Err(_) => return None,
            }
        }
    }

    /// The next frame of this kind.
    pub(crate) fn wait_for(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().unwrap_or_else(|| panic!("the connection ended before a frame {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The reason of the last GOAWAY before the connection ends.
    pub(crate) fn end(mut self) -> Option<u32> {
        let mut reason = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                reason = Some(frame.number(4));
            }
        }
        reason
    }

    /// The begin of what came instead of frames.
    pub(crate) fn end_of_text(mut self) -> String {
        let mut text = Vec::new();
        // A reset is an end as well.
        let _ = self.stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text[..text.len().min(12)]).into_owned()
    }

    /// Sends the same bytes again and again, reading nothing, until the server has had enough or
    /// `most` bytes are sent. Returns how many were.
    pub(crate) fn flood(&mut self, bytes: &[u8], most: usize) -> usize {
        let batch = bytes.repeat((16 << 10) / bytes.len() + 1);
        self.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut sent = 0;
        while sent < most && self.send(&batch).is_ok() {
            sent += batch.len();
        }
        sent
    }
}
