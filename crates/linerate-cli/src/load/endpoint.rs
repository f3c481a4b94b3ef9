//! `--watch URL`: the page that a server has for Prometheus, read beside the run.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime};

use linerate_http::client::{Expect, HeadCache, HeadView, Limits, Part, ResponseReader};
use linerate_load::Outcome;
use linerate_report::schema::outcome as schema;

use super::beside::{Look, Looking, SECOND, for_each_request, round, rounded};
use super::exposition::{Tally, parse};
use super::target::Url;
use crate::fault::{Fault, said};

/// How long a page may take. Reason: the results wait for the last one.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest page. Reason: thousands of series are a megabyte.
const MOST_BYTES: usize = 4 << 20;

/// The page's address.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
}

impl Endpoint {
    /// From `--watch`. Without a path it is `/metrics`.
    pub(super) fn parse(text: &str) -> Result<Endpoint, Fault> {
        let mut url = Url::parse(text)?;
        let refused =
            |why: &str, hint: &str| Err(Fault::input(format!("--watch: {why}")).hint(hint.to_owned()));
        if url.is_https() {
            return refused(
                "pages over https cannot be read",
                "name the page's http address, or a proxy's on this machine",
            );
        }
        if url.user.is_some() {
            return refused("the URL must not contain credentials", "name a page that needs none");
        }
        if url.path == "/" {
            "/metrics".clone_into(&mut url.path);
        }
        Ok(Endpoint { url })
    }

    /// Reads it once a second until [`Watching::finish`].
    pub(super) fn watch(self, from: SystemTime) -> Result<Watching, Fault> {
        let name = self.url.shown();
        let now = Instant::now();
        let pages = Pages { endpoint: self, address: None, begun: now, next: now, seen: Seen::default() };
        Ok(Watching { looking: Looking::start("watch", from, pages)?, name })
    }

    /// The page. `address` keeps what the name stood for.
    fn read(&self, address: &mut Option<SocketAddr>) -> io::Result<String> {
        // HTTP/1.0: the end of the connection is that of the page, and nothing is chunked.
        let head = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain;version=0.0.4\r\nUser-Agent: linerate\r\n\
             Connection: close\r\n\r\n",
            self.url.path, self.url.authority
        );
        let until = Instant::now() + PATIENCE;
        let page = body_of(&self.url, &[head.as_bytes()], address, until)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }
}

/// Sends a request of HTTP/1.0, and returns the body of its response. `address` keeps what the name
/// stood for.
pub(super) fn body_of(
    url: &Url,
    request: &[&[u8]],
    address: &mut Option<SocketAddr>,
    until: Instant,
) -> io::Result<Vec<u8>> {
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let to = match *address {
        Some(known) => known,
        None => (url.host(), url.port()).to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?,
    };
    let timed = |e: io::Error| if e.kind() == ErrorKind::WouldBlock { late() } else { e };
    let mut stream = TcpStream::connect_timeout(&to, left())?;
    *address = Some(to);
    for part in request {
        stream.set_write_timeout(Some(left()))?;
        stream.write_all(part).map_err(timed)?;
    }
    let mut page = Page::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        stream.set_read_timeout(Some(left()))?;
        let read = stream.read(&mut buffer).map_err(timed)?;
        if read == 0 {
            return page.end();
        }
        if page.take(&buffer[..read])? {
            return Ok(page.body);
        }
        if Instant::now() >= until {
            return Err(late());
        }
    }
}

pub(super) fn late() -> io::Error {
    io::Error::other(format!("the page took longer than {} s", PATIENCE.as_secs()))
}

/// A page while its response comes.
#[derive(Debug)]
struct Page {
    reader: ResponseReader,
    cache: HeadCache,
    body: Vec<u8>,
}

impl Default for Page {
    fn default() -> Page {
        Page { reader: ResponseReader::new(Limits::default()), cache: HeadCache::new(), body: Vec::new() }
    }
}

impl Page {
    /// Takes bytes; says whether the page is whole.
    fn take(&mut self, mut input: &[u8]) -> io::Result<bool> {
        let Page { reader, cache, body } = self;
        loop {
            let part = reader.next(cache, &mut input, Expect::Usual);
            match part.map_err(|e| io::Error::other(format!("the response has status none, not 200: {e}")))? {
                None => return Ok(false),
                Some(Part::Head(head)) => check(&head)?,
                Some(Part::Body(bytes)) if body.len() + bytes.len() > MOST_BYTES => {
                    let words = format!("the page is larger than {} MiB", MOST_BYTES >> 20);
                    return Err(io::Error::other(words));
                }
                Some(Part::Body(bytes)) => body.extend_from_slice(bytes),
                Some(Part::End(_)) => return Ok(true),
                Some(Part::Interim(_) | Part::Trailers(_)) => {}
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

/// What the pages said.
#[derive(Debug, Default)]
struct Seen {
    tally: Tally,
    looks: u32,
    failed: u32,
    /// The last failure.
    why: String,
}

/// The pages of a run, one each second.
#[derive(Debug)]
struct Pages {
    endpoint: Endpoint,
    /// What the name stood for.
    address: Option<SocketAddr>,
    begun: Instant,
    next: Instant,
    seen: Seen,
}

impl Look for Pages {
    fn begin(&mut self) -> Instant {
        self.begun = Instant::now();
        self.next = self.begun;
        self.next
    }

    fn look(&mut self, is_last: bool) -> Instant {
        self.next = (self.next + SECOND).max(Instant::now());
        let seen = &mut self.seen;
        seen.looks += 1;
        match self.endpoint.read(&mut self.address) {
            Ok(page) => seen.tally.add(self.begun.elapsed().as_secs_f64(), parse(&page), is_last),
            Err(e) => {
                seen.failed += 1;
                seen.why = said(&e);
            }
        }
        self.next
    }
}

/// A page that is being read.
#[derive(Debug)]
pub(super) struct Watching {
    looking: Looking<Pages>,
    name: String,
}

impl Watching {
    /// Ends it, and says what the server used; what is not known is a warning.
    pub(super) fn finish(self, outcome: &mut Outcome) -> Option<schema::Server> {
        let Seen { tally, looks, failed, why } =
            self.looking.finish().map(|pages| pages.seen).unwrap_or_default();
        let name = self.name;
        if failed > 0 {
            outcome.warnings.push(format!("--watch {name}: {failed} of {looks} reads failed: {why}"));
        }
        if tally.lacks_cpu() {
            let lacks = "the page has no process_cpu_seconds_total, so the server's CPU time is not known";
            outcome.warnings.push(format!("--watch {name}: {lacks}"));
        }
        if tally.cpu_s.is_none() && tally.rss.is_none() {
            return None;
        }
        let answered = outcome.requests.answered;
        Some(schema::Server {
            pid: None,
            name,
            processes: 0,
            cpu_s: tally.cpu_s.map(round),
            cpu_us_per_request: tally.cpu_s.and_then(|cpu| for_each_request(cpu, answered)),
            useful_share: None,
            context_switches: tally.switches.map(|n| n as u64),
            run_queue_wait_s: None,
            rss_mb: tally.rss.map(|bytes| round(bytes / 1e6)),
            series: rounded(&tally.series),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(response: &[u8]) -> io::Result<String> {
        let mut page = Page::default();
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

    #[test]
    fn the_usual_path_need_not_be_written() {
        let shown = |text| Endpoint::parse(text).map(|endpoint| endpoint.url.shown());
        assert_eq!(shown("http://h:9090").unwrap(), "http://h:9090/metrics");
        assert_eq!(shown("http://h/actuator/prometheus").unwrap(), "http://h/actuator/prometheus");
        assert!(shown("https://h/metrics").is_err() && shown("http://a:b@h/metrics").is_err());
    }
}
