//! Finds the end of a head or trailer section in one pass, however the bytes arrive.

use memchr::memchr;

/// Progress of the search for the empty line; independent of how the bytes are cut.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    /// Start of the current line.
    line: u32,
    /// No LF between `line` and here.
    seen: u32,
    /// A line began with white space: the section has an obs-fold (RFC 9112, section 5.2).
    pub(super) folded: bool,
}

impl Scan {
    /// Continues in `section`, which begins with the bytes of the last call. Returns the section's
    /// length, with its empty line, once it is complete. A single LF ends a line as CRLF does (RFC
    /// 9112, section 2.2).
    pub(super) fn find_end(&mut self, section: &[u8]) -> Option<usize> {
        loop {
            let line = self.line as usize;
            match section.get(line) {
                None => return None,
                Some(b'\n') => return Some(line + 1),
                Some(b'\r') => match section.get(line + 1) {
                    None => return None,
                    Some(b'\n') => return Some(line + 2),
                    Some(_) => {}
                },
                Some(b' ' | b'\t') if line > 0 => self.folded = true,
                Some(_) => {}
            }
            let from = (self.seen as usize).max(line);
            match memchr(b'\n', &section[from..]) {
                Some(i) => {
                    self.line = (from + i + 1) as u32;
                    self.seen = self.line;
                }
                None => {
                    self.seen = section.len() as u32;
                    return None;
                }
            }
        }
    }
}

/// Replaces each obs-fold by spaces, in place (RFC 9112, section 5.2: "one or more SP octets").
pub(super) fn unfold(section: &mut [u8]) {
    let mut i = 0;
    while let Some(found) = memchr(b'\n', &section[i..]) {
        let lf = i + found;
        i = lf + 1;
        if matches!(section.get(i), Some(b' ' | b'\t')) {
            section[lf] = b' ';
            if lf > 0 && section[lf - 1] == b'\r' {
                section[lf - 1] = b' ';
            }
        }
    }
}
