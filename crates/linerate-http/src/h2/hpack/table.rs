//! The static table (RFC 7541, appendix A).

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
