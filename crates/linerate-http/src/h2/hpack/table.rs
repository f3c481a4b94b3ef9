//! The static table (RFC 7541, appendix A) and the dynamic one (section 2.3.2).

use std::collections::VecDeque;

use crate::fields::ENTRY_COST;

pub(super) type Entry = (&'static str, &'static str);

#[rustfmt::skip]
pub(super) const STATIC: [Entry; 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// The entry of the static table that fits a field.
pub(super) enum StaticMatch {
    /// All of it, with this number.
    Both(u32),
    /// Its name, with this number.
    Name(u32),
    Nothing,
}

/// Looks a field up in the static table.
pub(super) fn find(name: &[u8], value: &[u8]) -> StaticMatch {
    let mut named = StaticMatch::Nothing;
    for (number, (n, v)) in (1..).zip(&STATIC) {
        if n.as_bytes() != name {
            continue;
        }
        if v.as_bytes() == value && !value.is_empty() {
            return StaticMatch::Both(number);
        }
        if matches!(named, StaticMatch::Nothing) {
            named = StaticMatch::Name(number);
        }
    }
    named
}

/// The dynamic table.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    /// The newest first: length of the name, then name and value.
    entries: VecDeque<(usize, Box<[u8]>)>,
    size: usize,
    most: usize,
}

impl Dynamic {
    pub(super) fn new(most: usize) -> Dynamic {
        Dynamic { most, ..Dynamic::default() }
    }

    /// The size that it may have.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The size that it has.
    pub(super) fn bytes(&self) -> usize {
        self.size
    }

    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
        self.make_room(0);
    }

    /// The field of a number, the newest is 0.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let (name_len, bytes) = self.entries.get(number)?;
        Some(bytes.split_at(*name_len))
    }

    /// Adds a field: name and value one after the other. One that is larger than the table empties
    /// it (RFC 7541, section 4.4).
    pub(super) fn add(&mut self, name_len: usize, bytes: &[u8]) {
        let cost = bytes.len() + ENTRY_COST;
        self.make_room(cost);
        if cost <= self.most {
            self.size += cost;
            self.entries.push_front((name_len, bytes.into()));
        }
    }

    fn make_room(&mut self, cost: usize) {
        while self.size + cost > self.most
            && let Some((_, bytes)) = self.entries.pop_back()
        {
            self.size -= bytes.len() + ENTRY_COST;
        }
    }
}
