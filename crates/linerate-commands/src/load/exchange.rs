//! One request and its response beside a run, in clear text or over TLS: pages that are watched, and
//! collectors of figures.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_http::client::{Expect, HeadCache, HeadView, ResponseLimits, ResponsePart, ResponseReader};
use linerate_tls::{ClientOptions, describe};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::target::Url;
use crate::fault::CommandFault;

/// How long an exchange may take. Reason: the results wait for the last one, and the next one is due
/// after a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Largest page. Reason: thousands of series are a megabyte.
const MOST_BYTES: usize = 4 << 20;

/// TLS towards a peer: what is trusted, and the name that its certificate must have.
#[derive(Clone, Debug)]
pub(super) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secure {
    /// Towards the host of `url`. `flag`, for errors: what names the URL.
    pub(super) fn towards(flag: &str, url: &Url, options: &ClientOptions) -> Result<Secure, CommandFault> {
        let config = options.build().map_err(|e| CommandFault::input(format!("{flag}: {e}")))?;
        let name = ServerName::try_from(url.host().to_owned()).map_err(|_| {
            CommandFault::input(format!("{flag}: {} is no name that a certificate can have", url.host()))
        })?;
        Ok(Secure { config, name })
    }
}

/// Where requests go, one on each connection.
#[derive(Debug)]
pub(super) struct Peer {
    host: (String, u16),
    secure: Option<Secure>,
    /// What the name stood for.
    address: Option<SocketAddr>,
}

impl Peer {
    pub(super) fn new(url: &Url, secure: Option<Secure>) -> Peer {
        Peer { host: (url.host().to_owned(), url.port()), secure, address: None }
    }

    /// Sends a request of HTTP/1.0, and returns the body of its response.
    pub(super) fn exchange(&mut self, request: &[&[u8]], until: Instant) -> io::Result<Vec<u8>> {
        let to = match self.address {
            Some(known) => known,
            None => {
                let (host, port) = &self.host;
                (host.as_str(), *port).to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?
            }
        };
        let socket = TcpStream::connect_timeout(&to, left(until)?).map_err(timed)?;
        self.address = Some(to);
        let socket = Timed { socket, until };
        match &self.secure {
            None => talk(socket, request),
            Some(Secure { config, name }) => {
                let session = ClientConnection::new(Arc::clone(config), name.clone()).map_err(plainly)?;
                talk(StreamOwned::new(session, socket), request)
            }
        }
    }
}

fn talk(mut stream: impl Read + Write, request: &[&[u8]]) -> io::Result<Vec<u8>> {
    for part in request {
        stream.write_all(part).map_err(in_words)?;
    }
    stream.flush().map_err(in_words)?;
    let mut page = PageExchange::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut buffer).map_err(in_words)?;
        if read == 0 {
            return page.end();
        }
        if page.take(&buffer[..read])? {
            return Ok(page.body);
        }
    }
}

/// An error of TLS in our words; others as they are.
fn in_words(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => io::Error::other(describe(tls)),
        None => error,
    }
}

fn plainly(error: rustls::Error) -> io::Error {
    io::Error::other(describe(&error))
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(late()) } else { Ok(left.max(Duration::from_millis(1))) }
}

fn late() -> io::Error {
    io::Error::other(format!("the page took longer than {} s", PATIENCE.as_secs()))
}

fn timed(error: io::Error) -> io::Error {
    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) { late() } else { error }
}

/// A socket with one time limit for everything that is done with it, whatever layers are above.
#[derive(Debug)]
struct Timed {
    socket: TcpStream,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(left(self.until)?))?;
        self.socket.read(buffer).map_err(timed)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(left(self.until)?))?;
        self.socket.write(bytes).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A page while its response comes.
#[derive(Debug)]
struct PageExchange {
    reader: ResponseReader,
    cache: HeadCache,
    body: Vec<u8>,
}

impl Default for PageExchange {
    fn default() -> PageExchange {
        PageExchange {
            reader: ResponseReader::new(ResponseLimits::default()),
            cache: HeadCache::new(),
            body: Vec::new(),
        }
    }
}

impl PageExchange {
    /// Takes bytes; says whether the page is whole.
    fn take(&mut self, mut input: &[u8]) -> io::Result<bool> {
        let PageExchange { reader, cache, body } = self;
        loop {
            let part = reader.next(cache, &mut input, Expect::Usual);
            match part.map_err(|e| io::Error::other(format!("the response has status none, not 200: {e}")))? {
                None => return Ok(false),
                Some(ResponsePart::Head(head)) => check(&head)?,
                Some(ResponsePart::Body(bytes)) if body.len() + bytes.len() > MOST_BYTES => {
                    let words = format!("the page is larger than {} MiB", MOST_BYTES >> 20);
                    return Err(io::Error::other(words));
                }
                Some(ResponsePart::Body(bytes)) => body.extend_from_slice(bytes),
                Some(ResponsePart::End(_)) => return Ok(true),
                Some(ResponsePart::Interim(_) | ResponsePart::Trailers(_)) => {}
            }
        }
    }

    /// The connection has ended: the page, if it is whole.
    fn end(mut self) -> io::Result<Vec<u8>> {
        match self.reader.finish() {
            Ok(Some(_)) => Ok(self.body),
            Ok(None) | Err(_) => Err(io::Error::other("the response broke off")),
        }
    }
}

/// Whether a page follows this head.
fn check(head: &HeadView<'_>) -> io::Result<()> {
    if head.status() != 200 {
        return Err(io::Error::other(format!("the response has status {}, not 200", head.status())));
    }
    if head.get(b"transfer-encoding").is_some() || head.get(b"content-encoding").is_some() {
        return Err(io::Error::other("the response to HTTP/1.0 is encoded"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(response: &[u8]) -> io::Result<String> {
        let mut page = PageExchange::default();
        let body = if page.take(response)? { page.body } else { page.end()? };
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    #[test]
    fn only_a_whole_page_counts() {
        let ok = |text: &str| page(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(ok("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na\n"), Ok("a\n".to_owned()));
        for (response, why) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na\n", "broke off"),
            ("HTTP/1.1 200 OK\r\nContent-", "broke off"),
            ("HTTP/1.1 404 No\r\n\r\n", "status 404"),
            ("SSH-2.0-x\r\n\r\n", "status none"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n0\r\n\r\n", "encoded"),
        ] {
            assert!(ok(response).unwrap_err().contains(why), "{response}");
        }
    }
}
