//! The cookies of a user, of all hosts that it speaks to (RFC 6265). As k6's, it knows no list of public suffixes.

use std::time::Duration;

use linerate_base::Time;
use url::{Host, Url};

use crate::limits::{COOKIE_BYTES, COOKIES};

/// A `Set-Cookie` field, as its server wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetCookieField {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) domain: String,
    pub(crate) path: String,
    pub(crate) expires: String,
    pub(crate) max_age: Option<i64>,
    pub(crate) secure: bool,
    pub(crate) http_only: bool,
}

impl SetCookieField {
    /// Reads a field's value by section 5.2; `None`: it sets nothing.
    pub(crate) fn parse(field: &str) -> Option<SetCookieField> {
        if field.len() > COOKIE_BYTES {
            return None;
        }
        let mut parts = field.split(';');
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.is_empty() || name.bytes().chain(value.bytes()).any(|b| b < b' ' || b == 127) {
            return None;
        }
        let mut cookie =
            SetCookieField { name: name.to_owned(), value: value.to_owned(), ..SetCookieField::default() };
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().to_owned();
            match key.trim().to_ascii_lowercase().as_str() {
                "domain" => cookie.domain = value.trim_start_matches('.').to_ascii_lowercase(),
                "path" => cookie.path = value,
                "expires" => cookie.expires = value,
                "max-age" => cookie.max_age = value.parse().ok(),
                "secure" => cookie.secure = true,
                "httponly" => cookie.http_only = true,
                _ => {}
            }
        }
        Some(cookie)
    }

    /// How long it lasts; `None`: as long as its user. An Expires date of a year before 2001 is how servers
    /// delete cookies; later ones end behind any run.
    fn lifetime(&self) -> Option<Duration> {
        if let Some(seconds) = self.max_age {
            return Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        }
        let digits = self.expires.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 4);
        let year = digits.and_then(|year| year.parse::<u16>().ok())?;
        (year <= 2000).then_some(Duration::ZERO)
    }
}

#[derive(Clone, Debug)]
struct KeptCookie {
    name: String,
    value: String,
    domain: String,
    /// Hosts below the domain get it too.
    has_subdomains: bool,
    path: String,
    secure: bool,
    until: Option<Time>,
}

/// Cookies.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptJar {
    cookies: Vec<KeptCookie>,
}

impl KeptCookie {
    fn goes_to(&self, url: &Url, now: Time) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_below = || {
            self.has_subdomains
                && matches!(url.host(), Some(Host::Domain(_)))
                && host.strip_suffix(&self.domain).is_some_and(|rest| rest.ends_with('.'))
        };
        let path = url.path();
        let is_path = path
            .strip_prefix(&self.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/'));
        (host == self.domain || is_below())
            && is_path
            && (!self.secure || url.scheme() == "https")
            && self.until.is_none_or(|until| now < until)
    }
}

impl ScriptJar {
    pub(crate) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Stores a cookie of a response by section 5.3.
    pub(crate) fn store(&mut self, cookie: &SetCookieField, url: &Url, now: Time) {
        let host = url.host_str().unwrap_or_default();
        let is_ours = cookie.domain.is_empty()
            || host == cookie.domain
            || (matches!(url.host(), Some(Host::Domain(_)))
                && host.strip_suffix(&cookie.domain).is_some_and(|rest| rest.ends_with('.')));
        if !is_ours {
            return;
        }
        let domain = if cookie.domain.is_empty() { host } else { &cookie.domain };
        let path = if cookie.path.starts_with('/') { cookie.path.clone() } else { default_path(url) };
        let is_same =
            |kept: &KeptCookie| kept.name == cookie.name && kept.domain == domain && kept.path == path;
        let place = self.cookies.iter().position(is_same);
        let lifetime = cookie.lifetime();
        if lifetime == Some(Duration::ZERO) {
            drop(place.map(|place| self.cookies.remove(place)));
            return;
        }
        let kept = KeptCookie {
            name: cookie.name.clone(),
            value: cookie.value.clone(),
            domain: domain.to_owned(),
            has_subdomains: !cookie.domain.is_empty(),
            path,
            secure: cookie.secure,
            until: lifetime.map(|time| now + time),
        };
        // One that is set again keeps its place (section 5.4: earlier creation times come first).
        match place {
            Some(place) => self.cookies[place] = kept,
            None if self.cookies.len() < COOKIES => self.cookies.push(kept),
            None => {}
        }
    }

    /// Cookies for a request, those with longer paths first.
    pub(crate) fn cookies(&self, url: &Url, now: Time) -> Vec<(String, String)> {
        let mut fitting: Vec<_> = self.cookies.iter().filter(|cookie| cookie.goes_to(url, now)).collect();
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        fitting.into_iter().map(|cookie| (cookie.name.clone(), cookie.value.clone())).collect()
    }

    /// Removes the cookies that a URL would get; with a name, that one alone.
    pub(crate) fn remove(&mut self, url: &Url, name: Option<&str>, now: Time) {
        self.cookies
            .retain(|cookie| !cookie.goes_to(url, now) || name.is_some_and(|name| name != cookie.name));
    }
}

fn default_path(url: &Url) -> String {
    match url.path().rfind('/') {
        None | Some(0) => "/".to_owned(),
        Some(at) => url.path()[..at].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn cookies_stay_with_their_host_and_path() {
        let mut jar = ScriptJar::default();
        let store = |jar: &mut ScriptJar, field: &str, from: &str| {
            jar.store(&SetCookieField::parse(field).unwrap(), &url(from), Time::ZERO);
        };
        store(&mut jar, "a=1", "http://one.test/x/y");
        store(&mut jar, "b=2; Path=/; Domain=.one.test; HttpOnly", "http://www.one.test/");
        store(&mut jar, "c=3; Path=/; Secure; Max-Age=10", "https://one.test/");
        store(&mut jar, "d=4; Domain=two.test", "http://one.test/");
        let sent = |jar: &ScriptJar, to: &str, seconds| {
            let cookies = jar.cookies(&url(to), Time::ZERO + Duration::from_secs(seconds));
            cookies.into_iter().map(|(name, _)| name).collect::<String>()
        };
        assert_eq!(sent(&jar, "http://one.test/x/z", 0), "ab");
        assert_eq!(sent(&jar, "https://one.test/", 9), "bc");
        assert_eq!(sent(&jar, "https://one.test/", 10), "b");
        assert_eq!(sent(&jar, "http://two.test/", 0), "");
        assert_eq!(sent(&jar, "http://xone.test/", 0), "");
        store(&mut jar, "a=; Path=/x; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "http://one.test/x/y");
        assert_eq!(sent(&jar, "http://one.test/x/y", 0), "b");
    }
}
