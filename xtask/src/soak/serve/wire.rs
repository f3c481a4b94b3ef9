//! A client that looks at every byte it gets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Longest time of a response. A later one counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest head and largest body that are taken.
const HEAD: usize = 16 << 10;
const BODY: usize = 16 << 20;

/// A connection.
#[derive(Debug)]
pub(super) struct SoakConnection {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct SoakResponse {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl SoakResponse {
    /// Whether the server announced the close.
    pub(super) fn closes(&self) -> bool {
        self.head.contains("\r\nconnection: close\r\n")
    }
}

impl SoakConnection {
    pub(super) fn connect(to: SocketAddr) -> Result<SoakConnection> {
        let stream = TcpStream::connect(to).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(SoakConnection { stream, unread: Vec::new() })
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref()).context("cannot send")
    }

    pub(super) fn get(&mut self, path: &str) -> Result<()> {
        self.send(get(path))
    }

    /// No more is sent.
    pub(super) fn half_close(&self) -> Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Reads more; `false` at the end.
    fn more(&mut self) -> Result<bool> {
        let mut piece = [0; 16 << 10];
        let n = loop {
            match self.stream.read(&mut piece) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                read => break read.context("cannot read")?,
            }
        };
        self.unread.extend_from_slice(&piece[..n]);
        Ok(n > 0)
    }

    /// The next response; `None` if the connection ends before its first byte.
    pub(super) fn answer(&mut self, bodiless: bool) -> Result<Option<SoakResponse>> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(self.unread.len() < HEAD, "a head without an end");
            if !self.more()? {
                ensure!(self.unread.is_empty(), "cut in the middle of a head");
                return Ok(None);
            }
        };
        let head = String::from_utf8(self.unread.drain(..end).collect())?;
        let status =
            head.get(9..12).and_then(|s| s.parse().ok()).with_context(|| format!("no status: {head}"))?;
        let field = |name: &str| head.split(name).nth(1)?.split('\r').next();
        let body = match field("\r\ncontent-length: ") {
            _ if bodiless || matches!(status, 204 | 304) => Vec::new(),
            Some(length) => self.exactly(length.parse()?)?,
            None if head.contains("\r\ntransfer-encoding: chunked\r\n") => self.chunks()?,
            None => bail!("an answer without framing: {head}"),
        };
        Ok(Some(SoakResponse { status, head, body }))
    }

    /// The next response, which must arrive.
    pub(super) fn must(&mut self) -> Result<SoakResponse> {
        self.answer(false)?.context("the connection ended without the answer")
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        ensure!(length <= BODY, "{length} bytes of body");
        while self.unread.len() < length {
            ensure!(self.more()?, "cut in the middle of a body, at {} of {length}", self.unread.len());
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match self.unread.windows(2).position(|w| w == b"\r\n") {
                    Some(end) => break end,
                    None => ensure!(self.more()?, "cut in the middle of a chunk's size"),
                }
            };
            let line: Vec<u8> = self.unread.drain(..end + 2).collect();
            let size = usize::from_str_radix(std::str::from_utf8(&line[..end])?, 16)?;
            let data = self.exactly(size + 2)?;
            ensure!(data.ends_with(b"\r\n"), "a chunk that does not end");
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&data[..size]);
        }
    }

    /// Nothing but the end follows. A reset is an end where `resets`.
    pub(super) fn ends(&mut self, resets: bool) -> Result<()> {
        match self.more() {
            Ok(more) => ensure!(!more && self.unread.is_empty(), "bytes behind the last answer"),
            Err(e) => ensure!(resets, "{e:#}"),
        }
        Ok(())
    }
}

/// A request without a body.
pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: soak\r\n\r\n")
}

/// The body of /bytes/N.
pub(super) fn pattern(n: usize) -> Vec<u8> {
    let all = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-\n";
    all.iter().copied().cycle().take(n).collect()
}
