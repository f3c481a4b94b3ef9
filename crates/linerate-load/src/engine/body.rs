//! The body of a response while it is read: its beginning for samples, and the text that a check looks for.

use memchr::memmem::Finder;

use crate::extract::decode::{self, Coding};
use crate::limits::{ENCODED_BYTES, ENCODED_KEPT, SAMPLE_BODY_BYTES, SAMPLE_ENCODED_BYTES, SAVED_BODY_BYTES};

/// The inspected part of a body: its beginning, and whether the sought text was found.
#[derive(Debug, Default)]
pub(crate) struct BodyView {
    /// Its first bytes as they came.
    start: Vec<u8>,
    kept: usize,
    found: SoughtText,
    codings: Vec<Coding>,
    /// As it came, to be decoded when it is whole.
    encoded: Vec<u8>,
    problem: Option<String>,
    /// All of it as it came, where it is to be kept.
    whole: Option<Vec<u8>>,
}

/// The text sought, also across pieces.
#[derive(Debug, Default)]
struct SoughtText {
    yes: bool,
    /// The last bytes so far, as many as the text might have begun in.
    tail: Vec<u8>,
}

impl BodyView {
    /// A body begins. `encoding`: its Content-Encoding; `checked`: a text is looked for; `whole`: all of it is
    /// to be kept.
    pub(crate) fn begin(&mut self, encoding: Option<&[u8]>, checked: bool, whole: bool) {
        self.start.clear();
        self.found.yes = false;
        self.found.tail.clear();
        self.codings.clear();
        self.encoded.clear();
        self.encoded.shrink_to(ENCODED_KEPT);
        self.problem = None;
        self.whole = whole.then(Vec::new);
        self.kept = if encoding.is_some() { SAMPLE_ENCODED_BYTES } else { SAMPLE_BODY_BYTES };
        if let (Some(value), true) = (encoding, checked) {
            match decode::codings(value) {
                Ok(codings) => self.codings = codings,
                Err(problem) => self.problem = Some(problem),
            }
        }
    }

    /// A piece of it as it came.
    pub(crate) fn piece(&mut self, piece: &[u8], finder: Option<&Finder<'_>>) {
        let room = self.kept.saturating_sub(self.start.len());
        if room > 0 {
            self.start.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        if let Some(whole) = &mut self.whole {
            let room = SAVED_BODY_BYTES.saturating_sub(whole.len());
            whole.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let Some(finder) = finder else { return };
        if self.codings.is_empty() {
            self.found.search(finder, piece);
        } else if self.encoded.len() + piece.len() <= ENCODED_BYTES {
            self.encoded.extend_from_slice(piece);
        } else {
            self.problem =
                Some(format!("it has more than {} MiB, too much to be decoded", ENCODED_BYTES >> 20));
        }
    }

    /// It is whole: takes its coding off, if it has one. Says whether it has the text.
    pub(crate) fn end(&mut self, finder: Option<&Finder<'_>>) -> bool {
        let Some(finder) = finder else { return true };
        if self.problem.is_none() && !self.encoded.is_empty() {
            let found = &mut self.found;
            self.problem =
                decode::decode(&self.codings, &self.encoded, |piece| found.search(finder, piece)).err();
        }
        self.found.yes
    }

    /// Whether nothing of what is still to come is looked at, where no text is looked for.
    pub(crate) fn has_enough(&self) -> bool {
        self.whole.is_none() && self.start.len() >= self.kept
    }

    /// Why it could not be decoded.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// All of it as it came, where it is to be kept.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.whole.as_deref()
    }

    /// Its first bytes as they came.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }
}

impl SoughtText {
    fn search(&mut self, finder: &Finder<'_>, piece: &[u8]) {
        if self.yes {
            return;
        }
        let keep = finder.needle().len().saturating_sub(1);
        let seam = piece.len().min(keep);
        self.tail.extend_from_slice(&piece[..seam]);
        self.yes = finder.find(&self.tail).is_some() || finder.find(piece).is_some();
        if piece.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len() - keep..]);
        } else if self.tail.len() > keep {
            self.tail.drain(..self.tail.len() - keep);
        }
    }
}

/// Text as it came, without a character that was cut; bytes that are no UTF-8 are escaped.
fn text(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(SAMPLE_BODY_BYTES)];
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(e) if e.error_len().is_none() => String::from_utf8_lossy(&bytes[..e.valid_up_to()]).into_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// The first bytes of a body for people to read, without its coding where that can be taken off.
pub(crate) fn shown(head: &[u8], start: &[u8]) -> String {
    let field = |line: &[u8]| {
        let (name, value) = line.split_at(line.iter().position(|b| *b == b':')?);
        name.eq_ignore_ascii_case(b"content-encoding").then(|| value[1..].trim_ascii().to_vec())
    };
    let encoding = head.split(|b| *b == b'\n').find_map(field);
    let Some(Ok(codings)) = encoding.map(|value| decode::codings(&value)) else { return text(start) };
    let mut plain = Vec::new();
    // Only its beginning is there, so that it breaks off.
    let _ = decode::decode(&codings, start, |piece| {
        let room = SAMPLE_BODY_BYTES - plain.len();
        plain.extend_from_slice(&piece[..piece.len().min(room)]);
    });
    if plain.is_empty() { text(start) } else { text(&plain) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept_as_it_came_and_bytes_are_escaped() {
        let json = "{\"error\": \"caf\u{e9} closed\"}\n";
        assert_eq!(shown(b"HTTP/1.1 500 Oh\r\n", json.as_bytes()), json);
        assert_eq!(text(b"\xff\x00\n"), "\\xff\\x00\\n");
        let long = "\u{e9}".repeat(SAMPLE_BODY_BYTES);
        assert_eq!(text(&long.as_bytes()[1..]).len(), SAMPLE_BODY_BYTES * 4);
        assert_eq!(text(format!("a{long}").as_bytes()), format!("a{}", "\u{e9}".repeat(99)));
    }
}
