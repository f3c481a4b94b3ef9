//! The raw server of HTTP/3: the same response to each stream that ends, whatever it asked for.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{ConnectionError, Dir, ServerConfig, StreamId, WriteError};

use crate::quic::{self, NumberedConnection, RawQuicEnd, RawStreamUser};
use crate::sys;

const WAIT: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct RawH3Server {
    end: RawQuicEnd,
    responses: RawH3Responses,
    fd: RawFd,
}

impl std::fmt::Debug for RawH3Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawH3Server({})", self.fd)
    }
}

struct RawH3Responses {
    response: Vec<u8>,
    requests: u64,
    /// Bytes sent of the responses that the client's windows hold up, by connection and stream.
    held_up: HashMap<(usize, StreamId), usize>,
}

impl RawH3Server {
    /// Listens. Each response has a body of `body` bytes.
    ///
    /// # Errors
    /// The address cannot be had, or the certificate cannot be used for QUIC.
    pub fn bind(
        listen: SocketAddrV4,
        body: usize,
        tls: Arc<rustls::ServerConfig>,
    ) -> io::Result<RawH3Server> {
        let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(quic::transport()?);
        let end = RawQuicEnd::new(Some(Arc::new(config)))?;
        let fd = sys::udp_socket(Some(listen), None)?;
        end.watch(fd)?;
        let responses = RawH3Responses { response: response(body), requests: 0, held_up: HashMap::new() };
        Ok(RawH3Server { end, responses, fd })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn at(&self) -> io::Result<SocketAddrV4> {
        sys::local_address(self.fd)
    }

    /// Responds until a signal asks it to end; returns the number of requests.
    ///
    /// # Errors
    /// A socket fails.
    pub fn run(mut self) -> io::Result<u64> {
        while !sys::asked_to_end() {
            self.end.turn(&mut self.responses, WAIT)?;
        }
        Ok(self.responses.requests)
    }
}

/// Status 200, the length, and content.
fn response(body: usize) -> Vec<u8> {
    let length = body.to_string();
    let mut section = vec![0, 0, 0xd9, 0x54, length.len() as u8];
    section.extend_from_slice(length.as_bytes());
    let mut out = vec![1, section.len() as u8];
    out.extend_from_slice(&section);
    out.push(0);
    out.extend_from_slice(&(body as u32 | 0x8000_0000).to_be_bytes());
    out.resize(out.len() + body, b'x');
    out
}

impl RawH3Responses {
    fn send(&mut self, on: NumberedConnection<'_>, id: StreamId) -> io::Result<()> {
        let mut at = self.held_up.remove(&(on.number, id)).unwrap_or(0);
        let mut stream = on.connection.send_stream(id);
        while at < self.response.len() {
            match stream.write(&self.response[at..]) {
                Ok(written) => at += written,
                // Only a write that was refused is followed by a word that the stream takes bytes again.
                Err(WriteError::Blocked) => {
                    self.held_up.insert((on.number, id), at);
                    return Ok(());
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        stream.finish().map_err(io::Error::other)
    }
}

impl RawStreamUser for RawH3Responses {
    fn connected(&mut self, on: NumberedConnection<'_>) -> io::Result<()> {
        quic::open_control(on.connection)
    }

    fn available(&mut self, _: NumberedConnection<'_>) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&mut self, on: NumberedConnection<'_>, id: StreamId, _: usize, ends: bool) -> io::Result<()> {
        if id.dir() == Dir::Uni || !ends {
            return Ok(());
        }
        self.requests += 1;
        self.send(on, id)
    }

    fn writable(&mut self, on: NumberedConnection<'_>, id: StreamId) -> io::Result<()> {
        match self.held_up.contains_key(&(on.number, id)) {
            true => self.send(on, id),
            false => Ok(()),
        }
    }

    fn lost(&mut self, number: usize, _: ConnectionError) -> io::Result<()> {
        self.held_up.retain(|(of, _), _| *of != number);
        Ok(())
    }
}
