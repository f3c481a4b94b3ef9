//! The static table (RFC 9204, appendix A) and the dynamic one (section 3.2).

use std::collections::VecDeque;

use crate::fields::ENTRY_COST;

pub(super) type StaticField = (&'static str, &'static str);

#[rustfmt::skip]
pub(super) const STATIC: [StaticField; 99] = [
    (":authority", ""), (":path", "/"), ("age", "0"), ("content-disposition", ""), ("content-length", "0"),
    ("cookie", ""), ("date", ""), ("etag", ""), ("if-modified-since", ""), ("if-none-match", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("referer", ""), ("set-cookie", ""),
    (":method", "CONNECT"), (":method", "DELETE"), (":method", "GET"), (":method", "HEAD"),
    (":method", "OPTIONS"), (":method", "POST"), (":method", "PUT"), (":scheme", "http"),
    (":scheme", "https"), (":status", "103"), (":status", "200"), (":status", "304"), (":status", "404"),
    (":status", "503"), ("accept", "*/*"), ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"), ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"), ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"), ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"), ("cache-control", "max-age=604800"), ("cache-control", "no-cache"),
    ("cache-control", "no-store"), ("cache-control", "public, max-age=31536000"), ("content-encoding", "br"),
    ("content-encoding", "gzip"), ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"), ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"), ("content-type", "image/gif"),
    ("content-type", "image/jpeg"), ("content-type", "image/png"), ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"), ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"), ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"), ("vary", "origin"), ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"), (":status", "100"), (":status", "204"), (":status", "206"),
    (":status", "302"), (":status", "400"), (":status", "403"), (":status", "421"), (":status", "425"),
    (":status", "500"), ("accept-language", ""), ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"), ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"), ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"), ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"), ("access-control-request-method", "get"),
    ("access-control-request-method", "post"), ("alt-svc", "clear"), ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"), ("expect-ct", ""), ("forwarded", ""), ("if-range", ""), ("origin", ""),
    ("purpose", "prefetch"), ("server", ""), ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"), ("user-agent", ""), ("x-forwarded-for", ""),
    ("x-frame-options", "deny"), ("x-frame-options", "sameorigin"),
];

/// Looks a field up in the static table: the index of its name, and whether its value is the same.
pub(super) fn find(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let of_name = |(_, (n, _)): &(usize, &StaticField)| n.as_bytes() == name;
    let named = STATIC.iter().enumerate().filter(of_name);
    let whole = named.clone().find(|(_, (_, v))| v.as_bytes() == value);
    let best = whole.or_else(|| named.clone().next())?;
    Some((best.0, whole.is_some()))
}

/// The dynamic table, by absolute indices (RFC 9204, section 3.2.4).
#[derive(Debug, Default)]
pub(super) struct InsertedFields {
    /// The oldest first: length of the name, then name and value.
    entries: VecDeque<(usize, Box<[u8]>)>,
    /// Entries that were evicted: the absolute index of the oldest one that is left.
    evicted: u64,
    bytes: usize,
    capacity: usize,
}

impl InsertedFields {
    /// Entries that were ever inserted.
    pub(super) fn count(&self) -> u64 {
        self.evicted + self.entries.len() as u64
    }

    /// Bytes of its entries, as QPACK counts them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.make_room(0);
    }

    /// The field with this absolute index: name and value.
    pub(super) fn get(&self, index: u64) -> Option<(&[u8], &[u8])> {
        let at = usize::try_from(index.checked_sub(self.evicted)?).ok()?;
        let (name_len, bytes) = self.entries.get(at)?;
        Some(bytes.split_at(*name_len))
    }

    /// The field of a relative index on the encoder stream, where 0 is the newest (RFC 9204, section
    /// 3.2.5).
    pub(super) fn newest(&self, index: u64) -> Option<(&[u8], &[u8])> {
        self.get(self.count().checked_sub(index)?.checked_sub(1)?)
    }

    /// Inserts a field: name and value one after the other. `false`: it does not fit (RFC 9204,
    /// section 3.2.2).
    #[must_use]
    pub(super) fn insert(&mut self, name_len: usize, bytes: &[u8]) -> bool {
        let cost = bytes.len() + ENTRY_COST;
        if cost > self.capacity {
            return false;
        }
        self.make_room(cost);
        self.bytes += cost;
        self.entries.push_back((name_len, bytes.into()));
        true
    }

    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.capacity
            && let Some((_, bytes)) = self.entries.pop_front()
        {
            self.bytes -= bytes.len() + ENTRY_COST;
            self.evicted += 1;
        }
    }
}
