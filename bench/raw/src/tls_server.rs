//! A bare server over TLS: a thread per connection, and one record for all responses that are due.
//!
//! For pipelined requests: it encrypts copies of one response, so it does less than any client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use crate::requests::{AfterRequest, Matcher, Partial};

/// Bytes of plaintext that rustls holds back, at most. Reason: the responses to one read of the
/// deepest pipelines.
const HELD: usize = 1 << 20;
/// Copies of the response that are written at once, at most.
const BATCH: u64 = 1024;

/// A server that listens.
#[derive(Debug)]
pub struct RawTlsServer {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    answers: Arc<Vec<u8>>,
}

impl RawTlsServer {
    /// Listens. Each response has a body of `body` bytes.
    pub fn bind(listen: SocketAddrV4, body: usize, config: Arc<ServerConfig>) -> io::Result<RawTlsServer> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: bare\r\nContent-Type: text/plain\r\nContent-Length: {body}\r\n\r\n"
        );
        let answer = [head.as_bytes(), &vec![b'x'; body]].concat();
        let answers = Arc::new(answer.repeat(BATCH as usize));
        Ok(RawTlsServer { listener: TcpListener::bind(listen)?, config, answers })
    }

    /// Where it listens.
    pub fn at(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn run(&self) -> io::Result<()> {
        for stream in self.listener.incoming() {
            let stream = stream?;
            stream.set_nodelay(true)?;
            let mut tls = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(HELD));
            let answers = self.answers.clone();
            // The end of a connection concerns only its client, which knows it.
            std::thread::spawn(move || serve(stream, tls, &answers));
        }
        Ok(())
    }
}

fn serve(mut stream: TcpStream, mut tls: ServerConnection, answers: &[u8]) -> io::Result<()> {
    let (mut matcher, mut at) = (Matcher::default(), Partial::default());
    let (one, mut plain) = (answers.len() / BATCH as usize, vec![0; 64 << 10]);
    loop {
        if tls.read_tls(&mut stream)? == 0 {
            return Ok(());
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        let (mut due, mut closes) = (0, false);
        while !closes {
            let n = match tls.reader().read(&mut plain) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            };
            let counted = matcher.count(&mut at, &plain[..n]).ok_or(ErrorKind::InvalidData)?;
            (due, closes) = (due + counted.requests, counted.after == AfterRequest::Close);
        }
        while due > 0 {
            let now = due.min(BATCH);
            tls.writer().write_all(&answers[..now as usize * one])?;
            due -= now;
            send(&mut tls, &mut stream)?;
        }
        if closes {
            tls.send_close_notify();
        }
        send(&mut tls, &mut stream)?;
        if closes {
            return stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

fn send(tls: &mut ServerConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    Ok(())
}
