//! The bytes of a connection, in clear text or by TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustls::ServerConnection;

use crate::reply::Then;

/// A record of application data that no key decrypts (RFC 8446, section 5.2).
const GARBAGE: &[u8] = b"\x17\x03\x03\x00\x20no key decrypts these thirty-two..";

/// A connection as the server sees it.
pub(crate) struct BrokenConnection<'a> {
    stream: &'a TcpStream,
    tls: Option<Box<ServerConnection>>,
    /// Bytes of each record; `None`: as many as fit.
    record: Option<usize>,
}

impl<'a> BrokenConnection<'a> {
    pub(crate) fn plain(stream: &'a TcpStream) -> BrokenConnection<'a> {
        BrokenConnection { stream, tls: None, record: None }
    }

    pub(crate) fn secure(
        stream: &'a TcpStream,
        tls: ServerConnection,
        record: Option<usize>,
    ) -> BrokenConnection<'a> {
        BrokenConnection { stream, tls: Some(Box::new(tls)), record }
    }

    /// How long the next read may take.
    pub(crate) fn read_within(&mut self, time: Duration) {
        let _ = self.stream.set_read_timeout(Some(time));
    }

    /// What ALPN agreed on.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.alpn_protocol() == Some(b"h2"))
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(buffer),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes) };
        for piece in bytes.chunks(self.record.unwrap_or(usize::MAX)) {
            let mut line = rustls::Stream::new(&mut **tls, &mut self.stream);
            line.write_all(piece)?;
            line.flush()?;
        }
        Ok(())
    }

    /// Ends the connection's TLS as it was said; TCP ends with the stream.
    pub(crate) fn end(&mut self, then: Then) {
        let Some(tls) = &mut self.tls else { return };
        match then {
            Then::Close => tls.send_close_notify(),
            Then::Alert => {
                // What cannot be decrypted is answered by an alert (RFC 8446, section 5.2).
                let _ = tls.read_tls(&mut &GARBAGE[..]);
                let _ = tls.process_new_packets();
            }
            Then::Garble => drop(self.stream.write_all(GARBAGE)),
            Then::Keep | Then::Reset | Then::Cut => return,
        }
        while tls.wants_write() {
            if tls.write_tls(&mut self.stream).is_err() {
                return;
            }
        }
        // The client's bytes that were not read would turn the close into a reset.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
