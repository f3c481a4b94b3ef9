//! Alternative services that a response announces (RFC 7838 section 3): the field `Alt-Svc`.

use std::net::Ipv6Addr;

/// Bytes of all values of the field in one response. Reason: servers send about 100; a list costs its reader memory.
pub const ALT_SVC_BYTES: usize = 4 << 10;

/// Alternatives of one response that count. Reason: servers name one for each version of a protocol.
pub const ALT_SERVICES: usize = 16;

/// Seconds for which an alternative is fresh whose value does not say (RFC 7838 section 3.1).
const DEFAULT_AGE: u64 = 24 * 60 * 60;

/// Bytes of a host's name (RFC 1035 section 2.3.4).
const HOST_BYTES: usize = 253;

/// An alternative service of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AltService {
    /// The name of its protocol in ALPN, decoded, for example `h3`.
    pub protocol: Vec<u8>,
    /// A name, or an address without brackets. Empty: the host of the origin.
    pub host: String,
    /// Never 0.
    pub port: u16,
    /// Seconds for which it is fresh, from when the response was made (`ma`).
    pub max_age: u64,
    /// It stays when the client's network changes (`persist=1`).
    pub is_persistent: bool,
}

/// The value of `Alt-Svc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltServices {
    /// All that were announced before are invalid.
    Clear,
    /// These take the place of all that were announced before, the preferred one first.
    Listed(Vec<AltService>),
}

/// Reads the value of `Alt-Svc`; several values of one response are joined by commas before. `None`: it is longer than
/// [`ALT_SVC_BYTES`], or not what RFC 7838 section 3 allows, and means nothing.
///
/// Parameters other than `ma` and `persist` mean nothing. An alternative whose host or port no client could use, or
/// that is behind the first [`ALT_SERVICES`], is left out.
///
/// ```
/// use linerate_http::client::{AltServices, alt_services};
///
/// let Some(AltServices::Listed(found)) = alt_services(br#"h3=":443"; ma=3600, h2="b.example:8443""#) else { panic!() };
/// assert_eq!((&found[0].protocol[..], &*found[0].host, found[0].port, found[0].max_age), (&b"h3"[..], "", 443, 3600));
/// assert_eq!((&*found[1].host, found[1].port), ("b.example", 8443));
/// assert_eq!(alt_services(b"clear"), Some(AltServices::Clear));
/// ```
pub fn alt_services(value: &[u8]) -> Option<AltServices> {
    if value.len() > ALT_SVC_BYTES {
        return None;
    }
    if value.trim_ascii() == b"clear" {
        return Some(AltServices::Clear);
    }
    let mut text = FieldText(value);
    let mut found = Vec::new();
    loop {
        // Elements of a list may be empty (RFC 9110 section 5.6.1.2).
        text.skip_spaces();
        if text.0.is_empty() {
            return Some(AltServices::Listed(found));
        }
        if text.skip(b',') {
            continue;
        }
        let service = text.service()?;
        if found.len() < ALT_SERVICES {
            found.extend(service);
        }
        text.skip_spaces();
        if !text.0.is_empty() && !text.skip(b',') {
            return None;
        }
    }
}

/// What is left of a value.
struct FieldText<'a>(&'a [u8]);

impl<'a> FieldText<'a> {
    fn skip(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        while self.skip(b' ') || self.skip(b'\t') {}
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| !is_token(*byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    /// A quoted string (RFC 9110 section 5.6.4), without its quotes and escapes.
    fn quoted(&mut self) -> Option<Vec<u8>> {
        if !self.skip(b'"') {
            return None;
        }
        let mut content = Vec::new();
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(content),
                b'\\' => {
                    let (&escaped, rest) = self.0.split_first()?;
                    self.0 = rest;
                    content.push(escaped);
                }
                byte => content.push(byte),
            }
        }
    }

    /// `alt-value`; `Some(None)`: one that no client could use.
    fn service(&mut self) -> Option<Option<AltService>> {
        let protocol = percent_decoded(self.token()?)?;
        if !self.skip(b'=') {
            return None;
        }
        let authority = self.quoted()?;
        let (mut max_age, mut is_persistent) = (None, false);
        loop {
            let before = self.0;
            self.skip_spaces();
            if !self.skip(b';') {
                self.0 = before;
                break;
            }
            self.skip_spaces();
            let name = self.token()?;
            if !self.skip(b'=') {
                return None;
            }
            let value = if self.0.first() == Some(&b'"') { self.quoted()? } else { self.token()?.to_vec() };
            if name.eq_ignore_ascii_case(b"ma") {
                // Both are well-formed where they are digits; the first counts.
                max_age = max_age.or(Some(delta_seconds(&value)?));
            } else if name.eq_ignore_ascii_case(b"persist") {
                is_persistent = value == b"1";
            }
        }
        let place = host_and_port(&authority);
        let max_age = max_age.unwrap_or(DEFAULT_AGE);
        Some(place.map(|(host, port)| AltService { protocol, host, port, max_age, is_persistent }))
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn percent_decoded(token: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut decoded, mut rest) = (Vec::with_capacity(token.len()), token);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        decoded.push((digit(high)? << 4 | digit(low)?) as u8);
        rest = after;
    }
    Some(decoded)
}

/// RFC 9111 section 1.2.2: what is too large for us is the largest.
fn delta_seconds(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    is_number.then(|| value.iter().fold(0, add).min(u64::from(u32::MAX)))
}

/// `[ uri-host ] ":" port`, if a client can use it.
fn host_and_port(authority: &[u8]) -> Option<(String, u16)> {
    let text = std::str::from_utf8(authority).ok()?;
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = is_number.then(|| port.parse().ok())??;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
        None => {
            let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            let is_host = host.len() <= HOST_BYTES && host.bytes().all(is_usual);
            is_host.then(|| host.to_ascii_lowercase())?
        }
    };
    (port != 0).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(value: &str) -> Vec<AltService> {
        match alt_services(value.as_bytes()) {
            Some(AltServices::Listed(found)) => found,
            other => panic!("{value}: {other:?}"),
        }
    }

    fn service(protocol: &str, host: &str, port: u16, max_age: u64) -> AltService {
        let (protocol, host) = (protocol.as_bytes().to_vec(), host.to_owned());
        AltService { protocol, host, port, max_age, is_persistent: false }
    }

    /// The examples of RFC 7838 section 3, and what servers send.
    #[test]
    fn rfc7838_3_values() {
        assert_eq!(listed(r#"h2=":8000""#), [service("h2", "", 8000, 86_400)]);
        assert_eq!(listed(r#"h2="new.example.org:80""#), [service("h2", "new.example.org", 80, 86_400)]);
        assert_eq!(listed(r#"w%3Dx%3Ay#z=":443""#), [service("w=x:y#z", "", 443, 86_400)]);
        assert_eq!(listed(r#"x%25y=":443""#), [service("x%y", "", 443, 86_400)]);
        let both = listed(r#"h2="alt.example.com:8000", h2=":443"; ma=3600"#);
        assert_eq!(both, [service("h2", "alt.example.com", 8000, 86_400), service("h2", "", 443, 3600)]);
        assert!(listed(r#"h2=":443"; ma=2592000; persist=1"#)[0].is_persistent);
        assert!(!listed(r#"h2=":443"; persist=2"#)[0].is_persistent);
        assert_eq!(listed(r#"h3=":443"; ma=86400, h3-29=":443"; ma=86400"#).len(), 2);
        assert_eq!(listed(r#"h3="[2001:db8::1]:443""#)[0].host, "2001:db8::1");
        assert_eq!(alt_services(b" clear "), Some(AltServices::Clear));
    }

    #[test]
    fn quotes_spaces_unknown_parameters_and_empty_elements() {
        let value = "\t, ,h3=\"\\:4\\43\" ;v=\"46,\\\"43\" ; x=1;MA=\"60\",, h2=\":1\"\t,";
        assert_eq!(listed(value), [service("h3", "", 443, 60), service("h2", "", 1, 86_400)]);
        assert_eq!(listed(""), []);
        assert_eq!(listed(r#"h3=":443"; ma=99999999999999999999999"#)[0].max_age, u64::from(u32::MAX));
        assert_eq!(listed(r#"h3=":443"; ma=0"#)[0].max_age, 0);
    }

    #[test]
    fn what_no_client_could_use_is_left_out() {
        for authority in ["", "443", "host", ":0", ":65536", ":+1", ":", "a b:1", "[::1:1", "[a]:1", "u@h:1"]
        {
            let value = format!(r#"h3="{authority}", h3=":8443""#);
            assert_eq!(listed(&value), [service("h3", "", 8443, 86_400)], "{value}");
        }
        let long = format!(r#"h3="{}:1""#, "a".repeat(254));
        assert_eq!(listed(&long), []);
    }

    #[test]
    fn malformed_values_mean_nothing() {
        for value in [
            "h3",
            "h3=:443",
            "=\":443\"",
            "h3=\":443",
            "h3=\":443\\",
            "h3=\":443\" ma=1",
            "h3=\":443\";",
            "h3=\":443\"; ma",
            "h3=\":443\"; ma=",
            "h3=\":443\"; ma=x",
            "h3=\":443\"; ma=-1",
            "h%3=\":443\"",
            "h%zz=\":443\"",
            "clear, h3=\":443\"",
            "Clear",
        ] {
            assert_eq!(alt_services(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn lists_have_limits() {
        let many = vec![r#"h3=":443""#; 100].join(",");
        assert_eq!(listed(&many).len(), ALT_SERVICES);
        let long = format!("h3=\":443\"{}", " ".repeat(ALT_SVC_BYTES));
        assert_eq!(alt_services(long.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(AltServices::Listed(found)) = alt_services(&value) {
                prop_assert!(found.iter().all(|service| service.port > 0 && service.host.len() <= HOST_BYTES));
            }
        }

        #[test]
        fn what_a_server_writes_is_read_back(
            services in proptest::collection::vec(("[a-z0-9-]{1,8}", "[a-z0-9.-]{0,20}", 1..u16::MAX, 0..100_000_u64), 0..8),
        ) {
            let write = |(protocol, host, port, age): &(String, String, u16, u64)| {
                format!("{protocol}=\"{host}:{port}\"; ma={age}; unknown=\"a, b\"")
            };
            let value: Vec<String> = services.iter().map(write).collect();
            let wanted: Vec<AltService> =
                services.iter().map(|(protocol, host, port, age)| service(protocol, host, *port, *age)).collect();
            prop_assert_eq!(listed(&value.join(" , ")), wanted);
        }
    }
}
