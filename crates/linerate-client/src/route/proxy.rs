//! Which proxy the connections of a URL take: what a program says, or the variables that curl reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::no_proxy;

/// curl's, for a proxy whose URL names none.
const PROXY_PORT: u16 = 1080;

const EXAMPLE: &str = "write for example http://USER:PASSWORD@127.0.0.1:3128";

/// An HTTP proxy, as connections use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// Its URL without user and password.
    pub url: String,
    /// Its source: a flag or setting, or a variable of the environment.
    pub from: String,
    /// `user:password` for it.
    pub user: Option<String>,
    /// It is asked to connect us to this `host:port` (RFC 9110 section 9.3.6). `None`: it forwards requests.
    pub tunnel: Option<String>,
}

impl Proxy {
    /// The value of Proxy-Authorization, if there is a user (RFC 7617).
    pub fn authorization(&self) -> Option<String> {
        self.user.as_ref().map(|user| format!("Basic {}", STANDARD.encode(user)))
    }
}

/// Where a proxy is, and what named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedProxy {
    /// Its name or address, an IPv6 one without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// `user:password` for it.
    pub user: Option<String>,
    /// A flag or setting, or a variable of the environment.
    pub from: String,
}

/// Why a text names no proxy. The text is not in it, because it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProblem {
    /// What is wrong.
    pub words: String,
    /// What would be right.
    pub hint: &'static str,
}

impl NamedProxy {
    /// The proxy for a URL of this host. `said`: a text and what it comes from, instead of the variables `http_proxy`
    /// (in small letters only), `https_proxy` and `all_proxy`; an empty text means none. `excepted`: hosts without a
    /// proxy, instead of those of `no_proxy`.
    ///
    /// # Errors
    /// The text names no HTTP proxy.
    pub fn of(
        is_https: bool,
        host: &str,
        said: Option<(&str, &str)>,
        excepted: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<NamedProxy>, ProxyProblem> {
        let either = |small: &str| {
            [small.to_owned(), small.to_uppercase()]
                .into_iter()
                .find_map(|name| Some((variable(&name)?, name)))
        };
        let found = match said {
            Some((text, from)) => Some((text.to_owned(), from.to_owned())),
            None => {
                // HTTP_PROXY is what a CGI program gets for a client's field "Proxy:".
                let own = if is_https {
                    either("https_proxy")
                } else {
                    variable("http_proxy").map(|text| (text, "http_proxy".to_owned()))
                };
                own.or_else(|| either("all_proxy"))
            }
        };
        let Some((text, from)) = found.filter(|(text, _)| !text.is_empty()) else { return Ok(None) };
        let excepted = excepted.map(str::to_owned).or_else(|| either("no_proxy").map(|(list, _)| list));
        if excepted.is_some_and(|list| no_proxy::covers(&list, host)) {
            return Ok(None);
        }
        NamedProxy::parse(&text, &from).map(Some)
    }

    fn parse(text: &str, from: &str) -> Result<NamedProxy, ProxyProblem> {
        let bad = |why: &str, hint| ProxyProblem { words: format!("{from}: {why}"), hint };
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => {
                return Err(bad("TLS with the proxy itself is not spoken", "name its http:// address"));
            }
            _ => {
                let why = format!("a proxy of the kind {scheme:?} is not spoken to");
                return Err(bad(&why, "an HTTP proxy is: http://HOST:PORT"));
            }
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (user, place) = rest[..end].rsplit_once('@').map_or((None, &rest[..end]), |(u, p)| (Some(u), p));
        let (host, port) =
            split(place).ok_or_else(|| bad(&format!("{place:?} is no host and port"), EXAMPLE))?;
        let user = user.map(|user| String::from_utf8(decode_percent(user))).transpose();
        let user = user.map_err(|_| bad("the user is not UTF-8", EXAMPLE))?;
        // A name alone stands for NAME with an empty password.
        let user = user.map(|user| if user.contains(':') { user } else { format!("{user}:") });
        Ok(NamedProxy { host: host.to_owned(), port, user, from: from.to_owned() })
    }

    /// The proxy for connections; `tunnel`: the `host:port` that it shall connect us to.
    pub fn to(&self, tunnel: Option<String>) -> Proxy {
        let url = format!("http://{}", authority(&self.host, self.port));
        Proxy { url, from: self.from.clone(), user: self.user.clone(), tunnel }
    }
}

/// `host:port`, as the request line of CONNECT has it.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Host and port of an authority without credentials; an IPv6 address is in brackets there alone.
fn split(place: &str) -> Option<(&str, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || "\"<>\\^`{|}%[]".contains(c);
    if host.is_empty() || host.contains(is_strange) {
        return None;
    }
    match port {
        "" | ":" => Some((host, PROXY_PORT)),
        port => Some((host, port.strip_prefix(':')?.parse().ok().filter(|port| *port != 0)?)),
    }
}

/// The bytes of a text in which `%` and two hexadecimal digits stand for one (RFC 3986 section 2.1). Any other `%` stays.
pub fn decode_percent(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(url: (bool, &str), said: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        let variable =
            |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        let found = NamedProxy::of(url.0, url.1, said.map(|text| (text, "proxy")), None, &variable);
        let found = found.expect("sound");
        found.map(|n| format!("{} {} {:?}", n.from, authority(&n.host, n.port), n.user))
    }

    fn by_variables(is_https: bool, variables: &[(&str, &str)]) -> Option<String> {
        by((is_https, "h"), None, variables)
    }

    #[test]
    fn variables_as_curl_reads_them() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(by_variables(false, &[]), None);
        assert_eq!(by_variables(false, &[("http_proxy", "p:1")]), some("http_proxy p:1 None"));
        assert_eq!(by_variables(false, &[("HTTP_PROXY", "p:1")]), None, "small letters only");
        assert_eq!(by_variables(true, &[("http_proxy", "p:1")]), None);
        assert_eq!(by_variables(true, &[("HTTPS_PROXY", "p:1")]), some("HTTPS_PROXY p:1 None"));
        let both = [("HTTPS_PROXY", "big:1"), ("https_proxy", "small:1")];
        assert_eq!(by_variables(true, &both), some("https_proxy small:1 None"));
        let all = [("ALL_PROXY", "a:1"), ("http_proxy", "p:1")];
        assert_eq!(by_variables(false, &all), some("http_proxy p:1 None"));
        assert_eq!(by_variables(true, &all), some("ALL_PROXY a:1 None"));
        let none = [("http_proxy", ""), ("all_proxy", "a:1")];
        assert_eq!(by_variables(false, &none), None, "empty: none");
        let user = [("http_proxy", "http://ada:p%40ss@[::1]:3128/")];
        assert_eq!(by_variables(false, &user), some("http_proxy [::1]:3128 Some(\"ada:p@ss\")"));
        assert_eq!(by_variables(false, &[("all_proxy", "http://p")]), some("all_proxy p:1080 None"));
    }

    #[test]
    fn exceptions_and_what_a_program_says() {
        let one = [("http_proxy", "p:1"), ("NO_PROXY", "g,h")];
        assert_eq!(by((false, "h"), None, &one), None);
        assert!(by((false, "i"), None, &one).is_some());
        assert_eq!(by((false, "i"), Some("q:2"), &one).as_deref(), Some("proxy q:2 None"));
        assert_eq!(by((false, "i"), Some(""), &one), None);
        let own_list =
            NamedProxy::of(false, "h", Some(("q:2", "proxy")), Some(""), &|_| Some("h".to_owned()));
        assert!(own_list.expect("sound").is_some(), "the program's own list alone counts");
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        for (text, expected) in [
            ("https://p:1", "TLS with the proxy"),
            ("socks5://p:1", "a proxy of the kind \"socks5\""),
            ("http://ada:secret@:1", "is no host and port"),
            ("http://ada:secret@p:x", "is no host and port"),
            ("http://ada:secret@p:0", "is no host and port"),
            ("http://ada:secret@p q:1", "is no host and port"),
            ("http://ada:secret@[::1", "is no host and port"),
            ("http://ada:secret@[::1]1", "is no host and port"),
            ("http://ada:secret@::1", "is no host and port"),
        ] {
            let said = NamedProxy::of(false, "h", Some((text, "--proxy")), None, &|_| None).expect_err(text);
            assert!(said.words.contains("--proxy: ") && said.words.contains(expected), "{text}: {said:?}");
            assert!(!said.words.contains("secret"), "{said:?}");
        }
    }
}
