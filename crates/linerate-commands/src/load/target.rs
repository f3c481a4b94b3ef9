//! Where to: a URL taken apart, its host's addresses found.
//!
//! A name that has addresses of both families is reached by IPv4 alone unless `-6` or an IPv6 source address says
//! otherwise: both at once would measure two paths as one, and testing which one responds would be a connection
//! outside the plan.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use linerate_load::plan::parts;
use linerate_load::plan::units::quoted;

use crate::args::Resolve;
use crate::fault::CommandFault;
use crate::sources::decode_percent;

const EXAMPLE: &str = "write for example http://127.0.0.1:8080/path";

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Host as it is looked up: a name in ASCII, or an address without brackets.
    host: String,
    /// As in the Host field: with brackets, and the port where it is not the scheme's own (RFC 9110 section 7.2).
    pub(crate) authority: String,
    port: u16,
    /// Whether it is reached over TLS.
    is_https: bool,
    /// Path and query as they are sent, slots left alone.
    pub(crate) path: String,
    /// `NAME:PASS`, decoded.
    pub(crate) user: Option<String>,
}

impl Url {
    /// Takes a URL apart. What has no scheme is taken as `http://`.
    pub(crate) fn parse(text: &str) -> Result<Url, CommandFault> {
        Url::parse_with(text, 80)
    }

    /// As [`Url::parse`], with this port for `http://` without one.
    pub(crate) fn parse_with(text: &str, usual: u16) -> Result<Url, CommandFault> {
        let bad = |why: String| CommandFault::input(format!("URL {}: {why}", quoted(text))).hint(EXAMPLE);
        let (is_https, rest) = after_scheme(text).map_err(bad)?;
        let (usual, of_scheme) = if is_https { (443, 443) } else { (usual, 80) };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, host_port) = match authority.rsplit_once('@') {
            Some((user, host_port)) => (
                Some(
                    String::from_utf8(decode_percent(user))
                        .map_err(|_| bad("the user is not UTF-8".to_owned()))?,
                ),
                host_port,
            ),
            None => (None, authority),
        };
        let (host, port) = split_port(host_port, usual).map_err(bad)?;
        if host.is_empty() {
            return Err(bad("there is no host in it".to_owned()));
        }
        let host = url::Host::parse(host).map_err(|e| bad(format!("the host {}: {e}", quoted(host))))?;
        let authority = if port == of_scheme { host.to_string() } else { format!("{host}:{port}") };
        let without_fragment = rest.split('#').next().unwrap_or_default();
        let path = parts::encode_target(without_fragment);
        let path = if path.starts_with('/') { path.into_owned() } else { format!("/{path}") };
        // A name alone may stand for NAME with an empty password.
        let user = user.map(|u| if u.contains(':') { u } else { format!("{u}:") });
        let host = host.to_string().trim_matches(['[', ']']).to_owned();
        Ok(Url { host, authority, port, is_https, path, user })
    }

    /// The host as it is looked up.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is reached over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// "http" or "https".
    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// As it is reported: without user and password.
    pub(crate) fn shown(&self) -> String {
        self.shown_with(&self.path)
    }

    /// The same with another path.
    pub(crate) fn shown_with(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme(), self.authority)
    }

    /// The addresses connections are spread over: of one family, at least one. And whether the other family has some.
    pub(crate) fn addresses(&self, wish: &Wish<'_>) -> Result<(Vec<SocketAddr>, bool), CommandFault> {
        let found = self.place().addresses(wish)?;
        Ok((found.addresses, found.others))
    }

    /// Its host and port.
    pub(crate) fn place(&self) -> HostPort<'_> {
        HostPort { host: &self.host, port: self.port, what: "the URL asks for" }
    }
}

/// A host and a port to connect to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPort<'a> {
    /// A name in ASCII, or an address without brackets.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// What it is, as in "the URL asks for".
    pub(crate) what: &'static str,
}

/// What a place was found to be.
#[derive(Clone, Debug)]
pub(crate) struct FoundTarget {
    /// Of one family, at least one.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether the other family has some.
    pub(crate) others: bool,
    /// They were looked up by name.
    pub(crate) is_name: bool,
}

impl HostPort<'_> {
    /// The addresses connections are spread over.
    pub(crate) fn addresses(&self, wish: &Wish<'_>) -> Result<FoundTarget, CommandFault> {
        let given = self.resolved_by_hand(wish.resolve)?;
        let is_name = given.is_none() && self.host.parse::<IpAddr>().is_err();
        let all = match given {
            Some(given) => given,
            None => self.looked_up()?,
        };
        let family = wish.family()?;
        let v6 = family.unwrap_or_else(|| all.iter().all(SocketAddr::is_ipv6));
        let mut kept: Vec<SocketAddr> = Vec::new();
        for address in all.iter().filter(|a| a.is_ipv6() == v6) {
            if !kept.contains(address) {
                kept.push(*address);
            }
        }
        if kept.is_empty() {
            let (has, asked) = if v6 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            let message = format!("{} has only {has} addresses, and {asked} was asked for", self.host);
            return Err(CommandFault::input(message).hint(wish.family_hint()));
        }
        let others = all.iter().any(|a| a.is_ipv6() != v6);
        Ok(FoundTarget { addresses: kept, others, is_name })
    }

    /// Whether an address given by hand is for it.
    pub(super) fn is_given(&self, resolve: &Resolve) -> bool {
        let is_for = resolve.host == "*" || resolve.host.trim_matches(['[', ']']) == self.host;
        is_for && resolve.port == self.port
    }

    fn resolved_by_hand(&self, resolve: &[Resolve]) -> Result<Option<Vec<SocketAddr>>, CommandFault> {
        // As in curl, the last one counts, and * is for hosts that have none of their own.
        let given = || resolve.iter().rev().filter(|r| self.is_given(r));
        if let Some(found) = given().find(|r| r.host != "*").or_else(|| given().next()) {
            return Ok(Some(found.addresses.clone()));
        }
        let Some(other) = resolve.first() else { return Ok(None) };
        let message = format!(
            "--resolve names {}:{}, but {} {}:{}",
            other.host, other.port, self.what, self.host, self.port
        );
        Err(CommandFault::input(message)
            .hint("--resolve has to name the host and port that are connected to"))
    }

    fn looked_up(&self) -> Result<Vec<SocketAddr>, CommandFault> {
        let found = (self.host, self.port).to_socket_addrs();
        let all: Vec<SocketAddr> = found
            .map_err(|e| {
                let why = e.to_string();
                let why = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
                CommandFault::unreachable(format!("the name {} has no address: {why}", quoted(self.host)))
                    .hint(format!("--resolve {}:{}:ADDRESS gives it one", self.host, self.port))
            })?
            .collect();
        if all.is_empty() {
            return Err(CommandFault::unreachable(format!("the name {} has no address", quoted(self.host))));
        }
        Ok(all)
    }
}

/// What decides among addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish<'a> {
    pub(crate) resolve: &'a [Resolve],
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) from: &'a [IpAddr],
}

impl Wish<'_> {
    /// Whether IPv6 must be used, or must not; `None`: either.
    fn family(&self) -> Result<Option<bool>, CommandFault> {
        let from_v6 = self.from.first().map(IpAddr::is_ipv6);
        if self.from.iter().any(|a| Some(a.is_ipv6()) != from_v6) {
            return Err(
                CommandFault::input("--from mixes IPv4 and IPv6 addresses").hint("use addresses of one kind")
            );
        }
        let flag = self.ipv6.then_some(true).or(self.ipv4.then_some(false));
        match (flag, from_v6) {
            (Some(flag), Some(from)) if flag != from => {
                let (flag, other) = if flag { ("-6", "IPv4") } else { ("-4", "IPv6") };
                Err(CommandFault::input(format!("{flag} contradicts --from with {other} addresses")))
            }
            (Some(v6), _) | (None, Some(v6)) => Ok(Some(v6)),
            // Of both kinds, IPv4; of one kind, that one.
            (None, None) => Ok(None),
        }
    }

    fn family_hint(&self) -> &'static str {
        if self.from.is_empty() {
            "leave out -4 and -6"
        } else {
            "the --from addresses must be of the target's kind"
        }
    }
}

/// Whether the scheme is https, and what follows it.
fn after_scheme(text: &str) -> Result<(bool, &str), String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if let Some(at) = text.find(|c: char| c.is_control() || (c == ' ' && !text.contains('/'))) {
        return Err(format!("character {} cannot stand in a URL", text[..at].chars().count() + 1));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("http:") || lower.starts_with("https:") {
            return Err("two slashes follow the scheme".to_owned());
        }
        return Ok((false, text));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok((false, rest)),
        "https" => Ok((true, rest)),
        "" => Err("there is no scheme before ://".to_owned()),
        // "host/path?u=http://..." has no scheme of its own.
        _ if scheme.contains(['/', '?', '#']) => Ok((false, text)),
        _ => Err(format!("the scheme {} is unknown; linerate speaks http and https", quoted(scheme))),
    }
}

/// Host and port of `host[:port]`; without one, the usual port.
fn split_port(text: &str, usual: u16) -> Result<(&str, u16), String> {
    let (host, port) = if let Some(end) = text.strip_prefix('[').and_then(|t| t.find(']')) {
        let (host, rest) = text.split_at(end + 2);
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(format!("{} follows the address in brackets", quoted(rest))),
        }
    } else if text.starts_with('[') {
        return Err("the bracket before the IPv6 address is not closed, as in http://[::1]:8080/".to_owned());
    } else if text.matches(':').count() > 1 {
        return Err(format!("an IPv6 address stands in brackets: http://[{text}]/"));
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    match port {
        None | Some("") => Ok((host, usual)),
        Some(port) => match port.parse::<u16>() {
            Ok(n) if n > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok((host, n)),
            _ => Err(format!("the port {} is not a number between 1 and 65535", quoted(port))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn said(text: &str) -> String {
        Url::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, authority, host, port, path) in [
            ("http://h", "h", "h", 80, "/"),
            ("http://H:80/a?b#c", "h", "h", 80, "/a?b"),
            ("HTTP://h:8080?q=1", "h:8080", "h", 8080, "/?q=1"),
            ("h:81/x", "h:81", "h", 81, "/x"),
            ("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1", 8080, "/"),
            ("http://[::1]:8080/", "[::1]:8080", "::1", 8080, "/"),
            ("http://[::1]/", "[::1]", "::1", 80, "/"),
            (
                "http://b\u{fc}cher.example/\u{fc} x",
                "xn--bcher-kva.example",
                "xn--bcher-kva.example",
                80,
                "/%C3%BC%20x",
            ),
            ("http://h/{{seq}}/../a?r={{rand:1-9}}", "h", "h", 80, "/{{seq}}/../a?r={{rand:1-9}}"),
            ("http://h:/x", "h", "h", 80, "/x"),
            ("https://h/x", "h", "h", 443, "/x"),
            ("HTTPS://h:443", "h", "h", 443, "/"),
            ("https://h:80/", "h:80", "h", 80, "/"),
            ("h/go?to=http://x/", "h", "h", 80, "/go?to=http://x/"),
        ] {
            let url = parsed(text);
            assert_eq!(
                (url.authority.as_str(), url.host.as_str(), url.port, url.path.as_str()),
                (authority, host, port, path),
                "{text}"
            );
        }
    }

    #[test]
    fn user_and_password_leave_the_url() {
        let url = parsed("http://ada:p%40ss:x@h:8080/");
        assert_eq!(url.user.as_deref(), Some("ada:p@ss:x"));
        assert_eq!(url.shown(), "http://h:8080/");
        assert_eq!(parsed("http://ada@h/").user.as_deref(), Some("ada:"));
    }

    #[test]
    fn each_fault_has_its_own_words() {
        let said: String = [
            "",
            "http://",
            "http:///path",
            "/path",
            "http://:80/",
            "ftp://h/",
            "://h/",
            "http:/h/",
            "http://h:x/",
            "http://h:0/",
            "http://h:99999/",
            "http://h:-1/",
            "http://::1/",
            "http://[::1/",
            "http://[::1]x/",
            "http://a b/",
            "http://h\r\nX: y/",
            "http://1.2.3.400/",
        ]
        .map(|text| format!("{}\n", said(text)))
        .concat();
        insta::assert_snapshot!(said);
    }

    fn resolve(text: &str) -> Resolve {
        Resolve {
            host: "h".to_owned(),
            port: 80,
            addresses: text.split(',').map(|a| SocketAddr::new(a.parse().unwrap(), 80)).collect(),
        }
    }

    #[test]
    fn one_family_is_kept_and_ipv4_where_there_are_both() {
        let url = parsed("http://h/");
        let both = [resolve("::1,127.0.0.1,127.0.0.2,127.0.0.1")];
        let found = |wish: Wish<'_>| {
            url.addresses(&wish).map(|(a, _)| a.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let wish = Wish { resolve: &both, ..Wish::default() };
        assert_eq!(found(wish), Ok(vec!["127.0.0.1:80".to_owned(), "127.0.0.2:80".to_owned()]));
        assert_eq!(found(Wish { ipv6: true, ..wish }), Ok(vec!["[::1]:80".to_owned()]));
        let v6: [IpAddr; 1] = ["::1".parse().unwrap()];
        assert_eq!(found(Wish { from: &v6, ..wish }), Ok(vec!["[::1]:80".to_owned()]));
        assert!(found(Wish { from: &v6, ipv4: true, ..wish }).is_err());
        let only_v4 = [resolve("127.0.0.1")];
        assert!(found(Wish { resolve: &only_v4, ipv6: true, ..Wish::default() }).is_err());
    }

    #[test]
    fn resolve_must_name_what_is_asked_for() {
        let given = [Resolve { port: 81, ..resolve("127.0.0.1") }];
        let fault = parsed("http://h/").addresses(&Wish { resolve: &given, ..Wish::default() }).unwrap_err();
        assert!(fault.to_string().contains("--resolve names h:81, but the URL asks for h:80"), "{fault}");
    }

    #[test]
    fn addresses_need_no_lookup() {
        assert_eq!(
            parsed("http://[::1]:9/").addresses(&Wish::default()),
            Ok((vec!["[::1]:9".parse().unwrap()], false))
        );
    }
}
