//! A blocking stream, with TLS above it if the server speaks TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use linerate_net::layer::{Progress, Session};
use linerate_tls::TlsSession;

/// Bytes of one read. Reason: a record of TLS fits into it.
const READ: usize = 17 << 10;

pub(super) struct Channel {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    /// The peer sends nothing more.
    has_ended: bool,
}

impl Channel {
    pub(super) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Channel {
        Channel { stream, tls: tls.map(Box::new), has_ended: false }
    }

    /// Appends what one read brings; returns whether more may come. A read may bring nothing: a part
    /// of a handshake.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        let mut buffer = [0; READ];
        let n = self.stream.read(&mut buffer)?;
        let Some(tls) = &mut self.tls else {
            into.extend_from_slice(&buffer[..n]);
            return Ok(n > 0);
        };
        let progress = match n {
            0 => tls.cut(),
            n => tls.open(&mut buffer[..n], &mut |plain: &mut [u8]| into.extend_from_slice(plain)),
        };
        let mut reply = Vec::new();
        tls.reply(&mut reply);
        self.stream.write_all(&reply)?;
        if let Progress::Failed(error) = progress {
            // Unread bytes would cause a reset, which destroys the alert.
            self.stream.shutdown(Shutdown::Write)?;
            let _ = self.stream.read(&mut buffer);
            return Err(io::Error::other(error.to_string()));
        }
        self.has_ended = progress == Progress::Ended;
        Ok(!self.has_ended)
    }

    /// Writes all of it by one call, as a record of its own behind TLS.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes) };
        let mut wire = Vec::with_capacity(tls.sealed_len(bytes.len()));
        tls.seal(bytes, &mut wire);
        self.stream.write_all(&wire)
    }

    /// Sends nothing more.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            let mut wire = Vec::new();
            tls.finish(&mut wire);
            self.stream.write_all(&wire)?;
        }
        self.stream.shutdown(Shutdown::Write)
    }
}
