//! Versions of HTTP.

use linerate_http::client::{RequestSpec, StreamTemplate};

/// Which HTTP calls speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http {
    /// Over TLS what the peers agree on by ALPN, otherwise HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    One,
    /// HTTP/2: by ALPN over TLS, without asking in clear text.
    Two,
}

impl Http {
    /// The protocols to offer by ALPN, the best first.
    pub fn alpn(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Http::Auto => &[b"h2", b"http/1.1"],
            Http::One => &[b"http/1.1"],
            Http::Two => &[b"h2"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }

    /// HTTP/1.1 where HTTP/2 was not asked for and cannot carry the request.
    #[must_use]
    pub fn fitting(self, spec: &RequestSpec) -> Http {
        let fits = StreamTemplate::compile(spec, &[], true).is_ok();
        if self == Http::Auto && !fits { Http::One } else { self }
    }
}
