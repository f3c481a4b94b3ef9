//! Finds heads in received bytes, and recognizes repetitions of recent ones.

use std::rc::Rc;

use super::fault::RequestFault;
use super::head::RequestHead;
use super::limits::{LEADING_EMPTY_LINES, RequestLimits};

/// Heads remembered. Reason: clients repeat themselves; a few cover a mix of requests, and each
/// costs one comparison.
const REMEMBERED: usize = 4;

/// Reads request heads. One per thread serves any number of connections: an incomplete head stays
/// in the connection's own buffer and is passed again with more bytes.
///
/// A head is a pure function of its bytes. So if the bytes begin with a recently parsed head, that
/// head is returned after a comparison, without parsing and without an allocation.
#[derive(Debug)]
pub struct HeadReader {
    limits: RequestLimits,
    translated: bool,
    recent: [Rc<RequestHead>; REMEMBERED],
    replace: usize,
}

impl HeadReader {
    /// A reader with these limits.
    pub fn new(limits: RequestLimits) -> HeadReader {
        HeadReader { limits, translated: false, recent: Default::default(), replace: 0 }
    }

    /// A reader of heads that were translated from HTTP/2 or HTTP/3. Their version is written `HTTP/2.0`
    /// or `HTTP/3.0`, which no client of HTTP/1.1 can send. All checks are those of HTTP/1.1.
    pub fn for_http2(limits: RequestLimits) -> HeadReader {
        HeadReader { translated: true, ..HeadReader::new(limits) }
    }

    /// Its limits.
    pub fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Looks for a head at the start of `bytes`, of which the first `seen` were passed before and
    /// did not suffice. Returns it with the number of bytes it took (including empty lines before
    /// it, RFC 9112 section 2.2), or `None` if more bytes are needed.
    ///
    /// # Errors
    /// A [`RequestFault`]: respond with its status and close.
    pub fn read(
        &mut self,
        bytes: &[u8],
        seen: usize,
    ) -> Result<Option<(Rc<RequestHead>, usize)>, RequestFault> {
        // Heads end with a line: without a new line end there is nothing to parse, unless a limit
        // was exceeded.
        let tail = bytes.get(seen..).unwrap_or_default();
        // The byte after them shows whether a CR begins another empty line or is stray.
        let skippable = 2 * LEADING_EMPTY_LINES + 1;
        let crossed = |limit| seen < limit + skippable && bytes.len() >= limit;
        let passed_limit = crossed(self.limits.request_line) || crossed(self.limits.head);
        if seen > skippable && !passed_limit && memchr::memchr(b'\n', tail).is_none() {
            return Ok(None);
        }
        let Some(skipped) = empty_lines(bytes)? else { return Ok(None) };
        let rest = &bytes[skipped..];
        for head in &self.recent {
            if !head.bytes().is_empty() && rest.starts_with(head.bytes()) {
                return Ok(Some((Rc::clone(head), skipped + head.bytes().len())));
            }
        }
        let slot = &mut self.recent[self.replace];
        if Rc::get_mut(slot).is_none() {
            *slot = Rc::default();
        }
        let Some(head) = Rc::get_mut(slot) else { return Ok(None) };
        match head.parse(rest, &self.limits, self.translated) {
            Ok(Some(taken)) => {
                let head = Rc::clone(slot);
                self.replace = (self.replace + 1) % REMEMBERED;
                Ok(Some((head, skipped + taken)))
            }
            outcome => {
                // A refused or incomplete head must never be recognized later.
                head.clear();
                outcome.map(|_| None)
            }
        }
    }
}

/// How many bytes of empty lines come first; `None` while unknown.
fn empty_lines(bytes: &[u8]) -> Result<Option<usize>, RequestFault> {
    let mut at = 0;
    for _ in 0..=LEADING_EMPTY_LINES {
        match &bytes[at..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => at += 2,
            [b'\r', ..] => return Err(RequestFault::RequestLine),
            [b'\n', ..] => return Err(RequestFault::BareLf),
            _ => return Ok(Some(at)),
        }
    }
    Err(RequestFault::RequestLine)
}
