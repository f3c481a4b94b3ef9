//! Counts the requests in a read at the speed of memcmp.
//!
//! A load generator repeats the same bytes. The first request is parsed properly. After that, one
//! `memcmp` compares a read with a long row of the known request, and a division gives the count.

use memchr::memmem;

/// Bytes of repeated requests that a read is compared with. A longer read is parsed.
pub const ROW: usize = 512 << 10;

/// Different requests that are remembered. Others are parsed each time.
const KNOWN: usize = 8;

/// Longest request. More bytes without an end are not HTTP.
const LONGEST: usize = 64 << 10;

/// What a request demands for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRequest {
    /// Keep it.
    Keep,
    /// Keep it, and say so in the response (HTTP/1.0).
    KeepAndSay,
    /// Close it.
    Close,
}

/// The result of counting one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRequests {
    /// Complete requests.
    pub requests: u64,
    /// What the last of them demands.
    pub after: AfterRequest,
}

#[derive(Debug)]
struct KnownRequest {
    len: usize,
    row: Vec<u8>,
    after: AfterRequest,
}

/// The position of a connection inside a request.
#[derive(Debug, Default)]
pub struct Partial {
    known: usize,
    matched: usize,
    carry: Vec<u8>,
}

/// The requests seen so far.
#[derive(Debug, Default)]
pub struct Matcher {
    known: Vec<KnownRequest>,
}

impl Matcher {
    /// Counts the requests in `bytes`, which continue at `at`. `None`: not a request.
    pub fn count(&mut self, at: &mut Partial, bytes: &[u8]) -> Option<CountedRequests> {
        if at.carry.is_empty()
            && let Some(k) = self.known.get(at.known)
            && let Some(expected) = k.row.get(at.matched..at.matched + bytes.len())
            && expected == bytes
        {
            let whole = at.matched + bytes.len();
            at.matched = whole % k.len;
            return Some(CountedRequests { requests: (whole / k.len) as u64, after: k.after });
        }
        self.count_slowly(at, bytes)
    }

    fn count_slowly(&mut self, at: &mut Partial, bytes: &[u8]) -> Option<CountedRequests> {
        let mut all = std::mem::take(&mut at.carry);
        if let Some(k) = self.known.get(at.known) {
            all.extend_from_slice(&k.row[..at.matched]);
        }
        at.matched = 0;
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        let mut counted = CountedRequests { requests: 0, after: AfterRequest::Keep };
        while counted.after != AfterRequest::Close {
            let Some((len, after)) = self.next(at, rest) else { break };
            rest = &rest[len..];
            counted = CountedRequests { requests: counted.requests + 1, after };
        }
        match self.known.iter().position(|k| k.len > rest.len() && k.row.starts_with(rest)) {
            Some(i) => (at.known, at.matched) = (i, rest.len()),
            None => at.carry = rest.to_vec(),
        }
        (at.carry.len() <= LONGEST).then_some(counted)
    }

    /// The first complete request in `bytes`: its length and what it demands.
    fn next(&mut self, at: &mut Partial, bytes: &[u8]) -> Option<(usize, AfterRequest)> {
        if let Some(i) = self.known.iter().position(|k| bytes.starts_with(&k.row[..k.len])) {
            at.known = i;
            return Some((self.known[i].len, self.known[i].after));
        }
        let (len, after) = read(bytes)?;
        if self.known.len() < KNOWN && len <= ROW / 4 {
            let row = bytes[..len].repeat(ROW / len);
            at.known = self.known.len();
            self.known.push(KnownRequest { len, row, after });
        }
        Some((len, after))
    }
}

/// Parses one request: its length including the body, and what it demands.
fn read(bytes: &[u8]) -> Option<(usize, AfterRequest)> {
    let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let field = |name: &str| {
        let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    };
    let body: usize = field("content-length").map_or(Some(0), |v| v.parse().ok())?;
    let old = text.lines().next().is_some_and(|l| l.ends_with("http/1.0"));
    let after = match field("connection") {
        Some("close") => AfterRequest::Close,
        Some("keep-alive") if old => AfterRequest::KeepAndSay,
        _ if old => AfterRequest::Close,
        _ => AfterRequest::Keep,
    };
    (bytes.len() >= head + body).then_some((head + body, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";

    fn count_in_pieces(bytes: &[u8], piece: usize) -> (u64, AfterRequest) {
        let (mut matcher, mut at) = (Matcher::default(), Partial::default());
        let mut sum = CountedRequests { requests: 0, after: AfterRequest::Keep };
        for part in bytes.chunks(piece) {
            let c = matcher.count(&mut at, part).expect("requests");
            sum.requests += c.requests;
            if c.requests > 0 {
                sum.after = c.after;
            }
        }
        (sum.requests, sum.after)
    }

    #[test]
    fn every_cut_counts_the_same() {
        let mixed = [GET, GET, POST, POST, GET, LAST].concat();
        for piece in 1..mixed.len() + 1 {
            assert_eq!(count_in_pieces(&mixed, piece), (6, AfterRequest::Close), "pieces of {piece}");
        }
        let many = GET.repeat(40_000);
        for piece in [7, GET.len(), 4096, 65_536, many.len()] {
            assert_eq!(count_in_pieces(&many, piece), (40_000, AfterRequest::Keep), "pieces of {piece}");
        }
    }

    #[test]
    fn requests_that_never_repeat() {
        let all: Vec<u8> =
            (0..500).flat_map(|i| format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()).collect();
        for piece in [1, 13, 1000, all.len()] {
            assert_eq!(count_in_pieces(&all, piece), (500, AfterRequest::Keep));
        }
    }

    #[test]
    fn what_a_request_asks_for() {
        assert_eq!(read(b"GET / HTTP/1.0\r\n\r\n"), Some((18, AfterRequest::Close)));
        assert_eq!(
            read(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").map(|r| r.1),
            Some(AfterRequest::KeepAndSay)
        );
        assert_eq!(read(LAST).map(|r| r.1), Some(AfterRequest::Close));
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost"), None);
    }

    #[test]
    fn what_is_no_request_is_given_up() {
        let (mut matcher, mut at) = (Matcher::default(), Partial::default());
        assert_eq!(matcher.count(&mut at, &vec![b'x'; LONGEST + 1]), None);
    }
}
