//! Request targets and Host (RFC 9112 section 3.2).

use super::bytes::{decimal, is_reg_name, is_target};
use super::fault::RequestFault;
use super::head::Method;

/// The form of a request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`.
    Origin,
    /// `http://host/path`, which proxies receive and servers must accept. The numbers are offsets
    /// from the target's start.
    Absolute {
        /// First byte of the authority.
        authority: u16,
        /// First byte of the path; the target's length if it has none.
        path: u16,
    },
    /// `host:port`, for CONNECT alone.
    Authority,
    /// `*`, for OPTIONS alone.
    Asterisk,
}

pub(super) fn check(method: Method, target: &[u8]) -> Result<Form, RequestFault> {
    if !is_target(target) {
        return Err(RequestFault::Target);
    }
    if method == Method::Connect {
        let has_port = target.iter().rposition(|&b| b == b':').is_some_and(|i| i + 1 < target.len());
        return if has_port && is_authority(target) {
            Ok(Form::Authority)
        } else {
            Err(RequestFault::Target)
        };
    }
    match target {
        [b'/', ..] => path(target).map(|()| Form::Origin),
        b"*" if method == Method::Options => Ok(Form::Asterisk),
        _ => absolute(target),
    }
}

fn path(target: &[u8]) -> Result<(), RequestFault> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    // Some servers behind us treat a backslash as a separator.
    if memchr::memchr(b'\\', &target[..end]).is_some() { Err(RequestFault::Target) } else { Ok(()) }
}

fn absolute(target: &[u8]) -> Result<Form, RequestFault> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|s| target.len() > s.len() && target[..s.len()].eq_ignore_ascii_case(s))
        .ok_or(RequestFault::Target)?;
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    // User information in it is an attempt to deceive (RFC 9110 section 4.2.4); an authority has no
    // other @.
    if !is_authority(&rest[..end]) {
        return Err(RequestFault::Target);
    }
    path(&rest[end..])?;
    let narrow = |n: usize| u16::try_from(n).map_err(|_| RequestFault::TargetTooLong);
    Ok(Form::Absolute { authority: narrow(scheme.len())?, path: narrow(scheme.len() + end)? })
}

/// `uri-host [ ":" port ]`, the host not empty (RFC 9110 sections 4.2.1 and 7.2).
pub(super) fn is_authority(bytes: &[u8]) -> bool {
    let host_end = if let [b'[', inner @ ..] = bytes {
        let Some(end) = memchr::memchr(b']', inner) else { return false };
        let literal = &inner[..end];
        if literal.len() < 2 || !literal.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')) {
            return false;
        }
        end + 2
    } else {
        memchr::memchr(b':', bytes).unwrap_or(bytes.len())
    };
    let (host, port) = bytes.split_at(host_end);
    if host.is_empty() || (host[0] != b'[' && !is_reg_name(host)) {
        return false;
    }
    match port {
        [] | [b':'] => true,
        [b':', digits @ ..] => decimal(digits).is_some_and(|n| n <= 65535),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for good in
            ["a", "a:1", "a:", "127.0.0.1:65535", "[::1]", "[::1]:80", "a_b.c", "a%41", "0.0.0.0=5000"]
        {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "a:b", "a:65536", "u@a", "a/b", "a b", "a, b", "[::1", "[]", "[::1]x", "[g::]",
            "a:1:2",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn forms() {
        let get = |t: &str| check(Method::Get, t.as_bytes());
        assert_eq!(get("/"), Ok(Form::Origin));
        assert_eq!(get("/a?b=\\{|}"), Ok(Form::Origin));
        assert_eq!(get("http://h:1/a"), Ok(Form::Absolute { authority: 7, path: 10 }));
        assert_eq!(get("HTTPS://h"), Ok(Form::Absolute { authority: 8, path: 9 }));
        assert_eq!(get("http://h?q"), Ok(Form::Absolute { authority: 7, path: 8 }));
        for bad in [
            "",
            "*",
            "a",
            "../x",
            "/a#b",
            "/a\\b",
            "/\u{e9}",
            "/a\"",
            "http://",
            "http:///x",
            "ftp://h/",
            "http://u@h/",
            "h:80",
        ] {
            assert_eq!(get(bad), Err(RequestFault::Target), "{bad}");
        }
        assert_eq!(check(Method::Options, b"*"), Ok(Form::Asterisk));
        assert_eq!(check(Method::Connect, b"h:443"), Ok(Form::Authority));
        for bad in ["/", "h", "h:", "*"] {
            assert_eq!(check(Method::Connect, bad.as_bytes()), Err(RequestFault::Target), "{bad}");
        }
    }
}
