//! Finds heads in received bytes, and knows again the ones it has just seen.

use std::rc::Rc;

use super::fault::Fault;
use super::head::RequestHead;
use super::limits::{LEADING_EMPTY_LINES, Limits};

/// Heads remembered. Reason: clients repeat themselves; a handful covers a mix of requests and costs one comparison each.
const REMEMBERED: usize = 4;

/// Reads request heads. One per thread serves any number of connections: what a connection has not completed stays in its
/// own buffer and is offered again with more behind it.
///
/// A head is a pure function of its bytes, so one that begins with the very bytes of a head parsed lately *is* that head: it
/// is compared, not parsed again, and handed out without an allocation.
#[derive(Debug)]
pub struct HeadReader {
    limits: Limits,
    recent: [Rc<RequestHead>; REMEMBERED],
    replace: usize,
}

impl HeadReader {
    /// With these limits.
    pub fn new(limits: Limits) -> HeadReader {
        HeadReader { limits, recent: Default::default(), replace: 0 }
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Looks for a head at the start of `bytes`, of which the first `seen` were offered before and were not enough.
    /// Returns it and how many bytes it took (with the empty lines that may come before it, RFC 9112 section 2.2), or
    /// `None` when more must come.
    ///
    /// # Errors
    /// A [`Fault`]: answer with its status and close.
    pub fn read(&mut self, bytes: &[u8], seen: usize) -> Result<Option<(Rc<RequestHead>, usize)>, Fault> {
        // Heads end with a line: without a new one there is nothing to parse again, unless a limit was passed.
        let tail = bytes.get(seen..).unwrap_or_default();
        // The byte behind them tells a CR that begins one more from a stray one.
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
        match head.parse(rest, &self.limits) {
            Ok(Some(taken)) => {
                let head = Rc::clone(slot);
                self.replace = (self.replace + 1) % REMEMBERED;
                Ok(Some((head, skipped + taken)))
            }
            outcome => {
                // A head that was refused or is not complete must never be known again.
                head.clear();
                outcome.map(|_| None)
            }
        }
    }
}

/// How many bytes of empty lines come first; `None` when that isn't known yet.
fn empty_lines(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let mut at = 0;
    for _ in 0..=LEADING_EMPTY_LINES {
        match &bytes[at..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => at += 2,
            [b'\r', ..] => return Err(Fault::RequestLine),
            [b'\n', ..] => return Err(Fault::BareLf),
            _ => return Ok(Some(at)),
        }
    }
    Err(Fault::RequestLine)
}
