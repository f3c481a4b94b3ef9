//! A user's cookies (RFC 6265), for the hosts of a plan. A cookie for another host is dropped, and so is one for a
//! domain of one label such as `com`; longer public suffixes such as `co.uk` are not told apart from other domains.

use std::time::Duration;

use linerate_base::Time;

use crate::limits::{COOKIE_BYTES, COOKIES};

/// A `Set-Cookie` field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetCookie {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    domain: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    secure: bool,
    /// From Max-Age; an Expires date that has passed is the same as 0.
    lifetime: Option<Duration>,
}

impl SetCookie {
    /// Reads a field's value by section 5.2; `None`: it sets nothing.
    pub(crate) fn parse(field: &[u8]) -> Option<SetCookie> {
        if field.len() > COOKIE_BYTES {
            return None;
        }
        let mut parts = field.split(|b| *b == b';');
        let pair = parts.next()?;
        let equals = pair.iter().position(|b| *b == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        let is_sendable = |b: &u8| *b >= b' ' && *b != 127;
        if name.is_empty() || !name.iter().chain(value).all(is_sendable) {
            return None;
        }
        let (name, value) = (name.to_vec(), value.to_vec());
        let mut cookie = SetCookie { name, value, domain: None, path: None, secure: false, lifetime: None };
        let mut expired = false;
        let mut max_age = None;
        for part in parts {
            let at = part.iter().position(|b| *b == b'=').unwrap_or(part.len());
            let (key, value) = (part[..at].trim_ascii(), part.get(at + 1..).unwrap_or_default().trim_ascii());
            match key.to_ascii_lowercase().as_slice() {
                b"domain" if !value.is_empty() => {
                    let value = value.strip_prefix(b".").unwrap_or(value);
                    cookie.domain = Some(value.to_ascii_lowercase());
                }
                b"path" => cookie.path = Some(value.to_vec()).filter(|path| path.starts_with(b"/")),
                b"secure" => cookie.secure = true,
                b"max-age" => max_age = lifetime(value).or(max_age),
                b"expires" => expired = is_long_past(value),
                _ => {}
            }
        }
        cookie.lifetime = max_age.or(expired.then_some(Duration::ZERO));
        Some(cookie)
    }
}

/// Max-Age in seconds; negative ones are over at once.
fn lifetime(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let seconds: i64 = text.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether an Expires date deletes its cookie. Servers do that by a date in the years 1970 to 2000;
/// later dates end behind any run.
fn is_long_past(value: &[u8]) -> bool {
    let year = value.split(|b| !b.is_ascii_digit()).find(|digits| digits.len() == 4);
    year.and_then(|year| std::str::from_utf8(year).ok()?.parse::<u16>().ok()).is_some_and(|year| year <= 2000)
}

/// Cookies of one user.
#[derive(Clone, Debug, Default)]
pub(crate) struct CookieJar {
    cookies: Vec<StoredCookie>,
}

#[derive(Clone, Debug)]
struct StoredCookie {
    name: Vec<u8>,
    value: Vec<u8>,
    /// The host that set it, or the domain that it is for.
    domain: Vec<u8>,
    is_for_hosts_below: bool,
    path: Vec<u8>,
    secure: bool,
    until: Option<Time>,
}

/// A host that requests go to.
#[derive(Clone, Debug, Default)]
pub(crate) struct CookieHost {
    /// Its name in small letters, or its address.
    pub(crate) name: String,
    pub(crate) is_https: bool,
}

impl CookieHost {
    /// That of an authority, `host[:port]`.
    pub(crate) fn of(authority: &str, is_https: bool) -> CookieHost {
        let name = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        CookieHost { name: name.map_or(authority, |(name, _)| name).to_ascii_lowercase(), is_https }
    }

    /// Whether a domain is this host's or one above it (section 5.1.3).
    fn is_in(&self, domain: &[u8]) -> bool {
        let host = self.name.as_bytes();
        host == domain || (!is_address(host) && host.ends_with(&[b".", domain].concat()))
    }
}

impl CookieJar {
    pub(crate) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Stores a cookie by section 5.3; `target`: path and query of the request.
    pub(crate) fn store(&mut self, cookie: &SetCookie, host: &CookieHost, target: &[u8], now: Time) {
        let domain = cookie.domain.as_deref().unwrap_or(host.name.as_bytes());
        let is_ours = host.is_in(domain) && (domain == host.name.as_bytes() || domain.contains(&b'.'));
        if !is_ours || (cookie.secure && !host.is_https) {
            return;
        }
        let path = cookie.path.clone().unwrap_or_else(|| default_path(target));
        let is_same = |stored: &StoredCookie| {
            stored.name == cookie.name && stored.path == path && stored.domain == domain
        };
        let place = self.cookies.iter().position(is_same);
        if cookie.lifetime == Some(Duration::ZERO) {
            if let Some(place) = place {
                self.cookies.remove(place);
            }
            return;
        }
        let stored = StoredCookie {
            name: cookie.name.clone(),
            value: cookie.value.clone(),
            secure: cookie.secure,
            until: cookie.lifetime.map(|lifetime| now + lifetime),
            domain: domain.to_vec(),
            is_for_hosts_below: cookie.domain.is_some(),
            path,
        };
        match place {
            Some(place) => self.cookies[place] = stored,
            None if self.cookies.len() < COOKIES => self.cookies.push(stored),
            // The oldest gives way.
            None => {
                self.cookies.remove(0);
                self.cookies.push(stored);
            }
        }
    }

    /// The value of the Cookie field (section 5.4): longer paths first. Empty: none is sent.
    pub(crate) fn field(&self, host: &CookieHost, target: &[u8], now: Time) -> Vec<u8> {
        let path = path_of(target);
        let is_sent = |cookie: &&StoredCookie| {
            let is_for = match cookie.is_for_hosts_below {
                true => host.is_in(&cookie.domain),
                false => cookie.domain == host.name.as_bytes(),
            };
            is_for
                && path_matches(&cookie.path, path)
                && (!cookie.secure || host.is_https)
                && cookie.until.is_none_or(|until| now < until)
        };
        let mut sent: Vec<_> = self.cookies.iter().filter(is_sent).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let mut field = Vec::new();
        for cookie in sent {
            field.extend_from_slice(if field.is_empty() { b"" } else { b"; " });
            field.extend_from_slice(&cookie.name);
            field.push(b'=');
            field.extend_from_slice(&cookie.value);
        }
        field
    }
}

fn is_address(host: &[u8]) -> bool {
    std::str::from_utf8(host).is_ok_and(|host| host.parse::<std::net::IpAddr>().is_ok())
}

fn path_of(target: &[u8]) -> &[u8] {
    &target[..target.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(target.len())]
}

/// Section 5.1.4.
fn default_path(target: &[u8]) -> Vec<u8> {
    let path = path_of(target);
    match path.iter().rposition(|b| *b == b'/') {
        Some(1..) if path.starts_with(b"/") => {
            path[..path.iter().rposition(|b| *b == b'/').unwrap_or(1)].to_vec()
        }
        _ => b"/".to_vec(),
    }
}

fn path_matches(cookie: &[u8], request: &[u8]) -> bool {
    request
        .strip_prefix(cookie)
        .is_some_and(|rest| rest.is_empty() || cookie.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> CookieHost {
        CookieHost { name: name.to_owned(), is_https: false }
    }

    fn jar(host: &CookieHost, target: &str, fields: &[&str]) -> CookieJar {
        let mut jar = CookieJar::default();
        for field in fields {
            if let Some(cookie) = SetCookie::parse(field.as_bytes()) {
                jar.store(&cookie, host, target.as_bytes(), Time::ZERO);
            }
        }
        jar
    }

    fn sent(jar: &CookieJar, host: &CookieHost, target: &str) -> String {
        String::from_utf8(jar.field(host, target.as_bytes(), Time::ZERO)).unwrap()
    }

    #[test]
    fn cookies_come_back_to_their_paths() {
        let host = host("a.example");
        let fields =
            ["s=1; Path=/", "t=2", "u=3; Path=/shop/cart", "s=4; path=/; HttpOnly", "bad", "=x", "e=a=b"];
        let jar = jar(&host, "/shop/list?x=/y", &fields);
        assert_eq!(sent(&jar, &host, "/shop/cart/1"), "u=3; t=2; e=a=b; s=4");
        assert_eq!(sent(&jar, &host, "/shopping"), "s=4");
        assert_eq!(sent(&jar, &host, "/shop?q"), "t=2; e=a=b; s=4");
    }

    #[test]
    fn cookies_of_other_hosts_and_secure_ones_are_dropped() {
        let here = host("a.shop.example");
        let fields = [
            "a=1; Domain=other.example",
            "b=2; Domain=.Shop.Example",
            "c=3; Domain=a.shop.example",
            "d=4; Secure",
            "e=5; Domain=x.a.shop.example",
            "f=6; Domain=example",
        ];
        assert_eq!(sent(&jar(&here, "/", &fields), &here, "/"), "b=2; c=3");
        let address = host("127.0.0.1");
        assert_eq!(sent(&jar(&address, "/", &["a=1; Domain=0.0.1"]), &address, "/"), "");
        let https = CookieHost { name: "a.example".to_owned(), is_https: true };
        assert_eq!(sent(&jar(&https, "/", &["d=4; Secure"]), &https, "/"), "d=4");
    }

    #[test]
    fn each_host_gets_its_own_and_those_of_domains_above() {
        let (shop, auth) = (host("a.shop.example"), CookieHost::of("auth.SHOP.example:8443", true));
        let mut both = jar(&shop, "/", &["own=1", "shared=2; Domain=shop.example"]);
        for field in ["own=3", "shared=4; Domain=shop.example", "safe=5; Domain=shop.example; Secure"] {
            let cookie = SetCookie::parse(field.as_bytes()).expect("a cookie");
            both.store(&cookie, &auth, b"/", Time::ZERO);
        }
        assert_eq!(sent(&both, &shop, "/"), "own=1; shared=4");
        assert_eq!(sent(&both, &auth, "/"), "shared=4; own=3; safe=5");
        assert_eq!(sent(&both, &host("elsewhere"), "/"), "");
    }

    #[test]
    fn cookies_end() {
        let host = host("h");
        for end in ["s=; Max-Age=0", "s=x; max-age=-5", "s=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(sent(&jar(&host, "/", &["s=1", end]), &host, "/"), "", "{end}");
        }
        let jar = jar(
            &host,
            "/",
            &[
                "s=1; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
                "t=2; Expires=Wed, 09 Jun 2099 10:18:14 GMT",
            ],
        );
        assert_eq!(sent(&jar, &host, "/"), "s=1; t=2");
        assert_eq!(jar.field(&host, b"/", Time::ZERO + Duration::from_secs(10)), b"t=2");
    }

    #[test]
    fn a_jar_has_limits() {
        let host = host("h");
        let many: Vec<String> = (0..COOKIES + 5).map(|n| format!("c{n}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let jar = jar(&host, "/", &many);
        assert_eq!(jar.cookies.len(), COOKIES);
        assert_eq!(SetCookie::parse(&vec![b'a'; COOKIE_BYTES + 1]), None);
        assert_eq!(SetCookie::parse(b"a=b\r\nX: y"), None);
    }
}
