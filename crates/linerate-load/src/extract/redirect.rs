//! Where a redirect leads (RFC 9110, section 10.2.2; RFC 3986, section 5.2).

use std::fmt::Write as _;

use linerate_http::client::{resolve_path, split_scheme};

/// Whether a response of this status redirects; whether the next request is a GET in any case.
pub(crate) fn redirects(status: u16) -> Option<bool> {
    match status {
        301..=303 => Some(true),
        307 | 308 => Some(false),
        _ => None,
    }
}

/// The target that `location` means, from a request to `base` at `authority`.
///
/// # Errors
/// It leads to another host, which users of flows do not go to.
pub(crate) fn resolve(
    location: &[u8],
    base: &[u8],
    (is_https, authority): (bool, &str),
) -> Result<Vec<u8>, String> {
    let location = location.split(|b| *b == b'#').next().unwrap_or_default().trim_ascii();
    let other = || format!("redirect to another host: {}", String::from_utf8_lossy(location));
    let encoded_location = encoded(location);
    let (scheme, usual) = if is_https { ("https", ":443") } else { ("http", ":80") };
    let (has_scheme, reference) = match split_scheme(&encoded_location) {
        Some((its, rest)) if its.eq_ignore_ascii_case(scheme) => (true, rest),
        Some(_) => return Err(other()),
        None => (false, encoded_location.as_str()),
    };
    let target = match reference.strip_prefix("//") {
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            let plain = |text: &str| text.strip_suffix(usual).unwrap_or(text).to_ascii_lowercase();
            if plain(host) != plain(authority) {
                return Err(other());
            }
            let slash = if path.starts_with('/') { "" } else { "/" };
            resolve_path("/", &format!("{slash}{path}"))
        }
        None if has_scheme => return Err(other()),
        None => resolve_path(&encoded(base), reference),
    };
    Ok(target.into_bytes())
}

/// What cannot stand in a target is percent-encoded, as browsers do.
fn encoded(target: &[u8]) -> String {
    target.iter().fold(String::with_capacity(target.len()), |mut out, byte| {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(byte) => out.push(char::from(*byte)),
            // A string takes all that is written.
            _ => _ = write!(out, "%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(location: &str) -> Result<String, String> {
        let found = resolve(location.as_bytes(), b"/a/b?c=1", (false, "shop.example:8080"));
        found.map(|target| String::from_utf8(target).unwrap())
    }

    #[test]
    fn references_are_resolved() {
        for (location, target) in [
            ("/x?y#z", "/x?y"),
            ("http://SHOP.example:8080/x", "/x"),
            ("HTTP://shop.example:8080", "/"),
            ("http://shop.example:8080?q", "/?q"),
            ("//shop.example:8080/x", "/x"),
            ("x", "/a/x"),
            ("../x", "/x"),
            ("../../../x/./y/..", "/x/"),
            ("?d", "/a/b?d"),
            ("", "/a/b?c=1"),
            ("/a b/\u{e4}", "/a%20b/%C3%A4"),
            ("x:y", ""),
        ] {
            match target {
                "" => assert!(to(location).is_err(), "{location}"),
                _ => assert_eq!(to(location).as_deref(), Ok(target), "{location}"),
            }
        }
    }

    #[test]
    fn other_hosts_are_named() {
        for location in
            ["http://other/", "https://shop.example:8080/", "//shop.example/", "ftp://x/", "http:x"]
        {
            assert!(to(location).is_err_and(|why| why.contains(location)), "{location}");
        }
        let usual = resolve(b"https://h/x", b"/", (true, "h:443")).unwrap();
        assert_eq!(usual, b"/x");
    }
}
