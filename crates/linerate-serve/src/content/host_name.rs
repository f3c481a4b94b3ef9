//! Host names that have a site of their own.

use std::fmt;
use std::str::FromStr;

/// A name such as `example.org`, or `*.example.org` for all names beneath it; without a port.
///
/// ```
/// use linerate_serve::HostName;
///
/// assert_eq!("*.Example.org".parse::<HostName>()?.to_string(), "*.example.org");
/// assert!("example.org:8080".parse::<HostName>().is_err());
/// # Ok::<(), linerate_serve::BadHostName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// In lower case, without `*.`.
    name: String,
    wildcard: bool,
}

/// Not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a host is a name such as \"example.org\", or \"*.example.org\" for all names beneath it, without a port"
)]
pub struct BadHostName;

impl FromStr for HostName {
    type Err = BadHostName;

    fn from_str(text: &str) -> Result<HostName, BadHostName> {
        let (wildcard, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        let rest = rest.strip_suffix('.').unwrap_or(rest);
        let label = |l: &str| {
            (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        let v6 = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']'));
        let address = !wildcard && v6.is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok());
        if !address && (rest.len() > 253 || !rest.split('.').all(label)) {
            return Err(BadHostName);
        }
        Ok(HostName { name: rest.to_ascii_lowercase(), wildcard })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.wildcard { "*." } else { "" }, self.name)
    }
}

impl HostName {
    /// How well it matches a requested host, as [`without_port`] returns it; higher is better.
    pub(crate) fn fit(&self, host: &str) -> Option<usize> {
        let ends = |host: &str| {
            let at = host.len().checked_sub(self.name.len())?;
            // Compares bytes: a foreign host may have multi-byte characters.
            host.as_bytes()[at..].eq_ignore_ascii_case(self.name.as_bytes()).then_some(at)
        };
        match (self.wildcard, ends(host)?) {
            (false, 0) => Some(usize::MAX),
            (true, at) if at >= 2 && host.as_bytes()[at - 1] == b'.' => Some(self.name.len()),
            _ => None,
        }
    }
}

/// The name in `host` or `host:port`. A trailing dot is dropped.
pub(crate) fn without_port(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_whole_labels() {
        let fit = |name: &str, host: &str| name.parse::<HostName>().expect(name).fit(without_port(host));
        for host in ["example.org", "EXAMPLE.org:8080", "example.org.", "example.org.:80"] {
            assert_eq!(fit("Example.Org", host), Some(usize::MAX), "{host}");
        }
        for host in ["a.example.org", "A.B.example.org:1"] {
            assert_eq!(fit("*.example.org", host), Some(11), "{host}");
            assert_eq!(fit("example.org", host), None, "{host}");
        }
        for host in ["example.org", ".example.org", "badexample.org", "org", "", "example.org.evil"] {
            assert_eq!(fit("*.example.org", host), None, "{host}");
        }
        assert!(fit("[::1]", "[::1]:80").is_some() && fit("127.0.0.1", "127.0.0.1:80").is_some());
    }

    #[test]
    fn what_is_no_name() {
        for text in [
            "",
            "*",
            "*.",
            "a b",
            "a..b",
            ".a",
            "example.org:80",
            "http://a",
            "[::g]",
            "*.[::1]",
            "a/b",
            "ex*.org",
        ] {
            assert_eq!(text.parse::<HostName>(), Err(BadHostName), "{text}");
        }
    }
}
