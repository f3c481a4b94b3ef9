//! Which HTTP a plan's connections speak.

use linerate_client::Speaks;
use linerate_http::client::StreamFieldCoding;
use linerate_http::h2::WINDOW;
use linerate_http::h3::QPACK;
use linerate_net::Io;
use serde::{Deserialize, Serialize};

use super::limits::USER_CONNECTIONS;
use super::tls::TlsVersion;
use super::{Plan, Request, Way};

/// Which HTTP connections speak, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpOptions {
    /// The version.
    pub version: Http,
    /// With HTTP/2: the window of each stream and of the connection, bytes.
    pub h2_window: u32,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions { version: Http::Auto, h2_window: WINDOW }
    }
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Http {
    /// Over https what the peers agree on (ALPN), otherwise HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    One,
    /// HTTP/2: by ALPN over https, without asking in clear text.
    #[serde(rename = "2")]
    Two,
    /// HTTP/3, over QUIC. Nothing else leads to it.
    #[serde(rename = "3")]
    Three,
}

impl Http {
    /// All of them.
    pub const ALL: [Http; 4] = [Http::Auto, Http::One, Http::Two, Http::Three];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Http::Auto => "auto",
            Http::One => "1.1",
            Http::Two => "2",
            Http::Three => "3",
        }
    }
}

/// The smallest window. Reason: below, every few bytes need a frame of their own.
pub const LEAST_WINDOW: u32 = 1024;

/// The largest window (RFC 9113 section 6.9.1).
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

impl Plan {
    /// The protocols of connections; `None`: HTTP/1.1 alone.
    pub(crate) fn speaks(&self) -> Option<Speaks> {
        self.speaks_over(self.tls.is_some())
    }

    /// The same with a host that is reached over TLS, or is not.
    fn speaks_over(&self, tls: bool) -> Option<Speaks> {
        match (self.http.version, tls) {
            (Http::One | Http::Three, _) | (Http::Auto, false) => None,
            (Http::Auto, true) => {
                let fits = self.way == Way::Loop && self.requests.iter().all(Request::fits_http2);
                fits.then_some(Speaks::Either)
            }
            (Http::Two, false) => Some(Speaks::Http2),
            (Http::Two, true) => Some(Speaks::AgreedHttp2),
        }
    }

    /// Whether connections have streams, if that is known beforehand.
    pub(crate) fn has_streams(&self) -> Option<bool> {
        self.has_streams_over(self.tls.is_some())
    }

    /// The same of those to a host that is reached over TLS, or is not.
    pub(crate) fn has_streams_over(&self, tls: bool) -> Option<bool> {
        match self.speaks_over(tls) {
            None => Some(self.is_quic()),
            Some(Speaks::Either) => None,
            Some(Speaks::Http2 | Speaks::AgreedHttp2) => Some(true),
        }
    }

    /// Streams that a connection may have at once, where it has some.
    pub(crate) fn streams_at_once(&self) -> u32 {
        let of_users = self.flows.as_ref().map(|flows| u32::try_from(flows.widest()).unwrap_or(u32::MAX));
        of_users.unwrap_or(self.depth)
    }

    /// Connections of a user of flows, at most.
    pub fn connections_each(&self) -> u32 {
        let widest = self.flows.as_ref().map_or(1, |flows| flows.widest());
        let most = if self.has_streams() == Some(true) { 1 } else { USER_CONNECTIONS };
        u32::try_from(widest.min(most)).unwrap_or(u32::MAX)
    }

    /// As many connections as the users of its flows may have.
    pub fn fit_users(&mut self) {
        if let Some(flows) = &self.flows {
            self.connections = flows.users.saturating_mul(self.connections_each());
        }
    }

    /// Whether connections are QUIC's.
    pub(crate) fn is_quic(&self) -> bool {
        self.http.version == Http::Three
    }

    /// How requests' fields are encoded, where connections may have streams.
    pub(crate) fn field_coding(&self) -> Option<StreamFieldCoding> {
        match self.is_quic() {
            true => Some(QPACK),
            false => self.speaks().map(|_| StreamFieldCoding::HPACK),
        }
    }

    /// The protocols to offer by ALPN, the best first.
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        if self.is_quic() {
            return vec![b"h3".to_vec()];
        }
        let names: &[&[u8]] = match self.speaks() {
            None => &[b"http/1.1"],
            Some(Speaks::Either) => &[b"h2", b"http/1.1"],
            Some(Speaks::Http2 | Speaks::AgreedHttp2) => &[b"h2"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }

    /// What `http = "2"` excludes.
    pub(crate) fn validate_http(&self) -> Result<(), String> {
        let window = self.http.h2_window;
        if !(LEAST_WINDOW..=LARGEST_WINDOW).contains(&window) {
            return Err(format!(
                "the HTTP/2 window must be between {LEAST_WINDOW} and {LARGEST_WINDOW} bytes, not {window}"
            ));
        }
        if self.is_quic() {
            return self.validate_quic();
        }
        if self.http.version != Http::Two {
            return Ok(());
        }
        if self.way != Way::Loop {
            let way = self.way.name();
            return Err(format!("--way {way} does not speak HTTP/2: that needs --way loop"));
        }
        if self.requests.iter().any(Request::is_raw) {
            return Err("--raw sends bytes of HTTP/1.1, and HTTP/2 was asked for: leave out one of the two"
                .to_owned());
        }
        if self.route.forwarder().is_some() {
            return Err(
                "a proxy forwards http:// requests by HTTP/1.1, and HTTP/2 was asked for: leave out \
                        one of the two"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl Plan {
    /// What `http = "3"` excludes.
    fn validate_quic(&self) -> Result<(), String> {
        let most = self.tls.as_ref().map(|tls| tls.most);
        let excluded = match () {
            () if self.tls.is_none() => "http:// (a URL of https:// is needed)",
            () if self.route.unix.is_some() => "--unix-socket",
            () if self.route.haproxy.is_some() => "--haproxy-protocol",
            () if self.route.proxy.is_some() => {
                "a proxy (--proxy, or a variable such as https_proxy; --noproxy '*' leaves it out)"
            }
            () if most == Some(TlsVersion::Tls12) => "--tls-max 1.2",
            () if self.io == Io::Uring => "--io uring",
            () if self.io.is_user_space() => "--io xdp",
            () if self.way != Way::Loop => {
                let way = self.way.name();
                return Err(format!(
                    "--http 3 is over QUIC, which --way {way} does not have: that needs --way loop"
                ));
            }
            () if self.requests.iter().any(Request::is_raw) => "--raw, which sends bytes of HTTP/1.1",
            () => return Ok(()),
        };
        Err(format!("--http 3 is over QUIC, and does not go with {excluded}"))
    }
}

impl Request {
    /// Whether HTTP/2 can carry it.
    fn fits_http2(&self) -> bool {
        let has = |name: &str| self.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let te = |(n, v): &(String, String)| {
            n.eq_ignore_ascii_case("te") && !v.trim().eq_ignore_ascii_case("trailers")
        };
        !self.is_raw() && self.method != "CONNECT" && !has("upgrade") && !self.fields.iter().any(te)
    }
}
