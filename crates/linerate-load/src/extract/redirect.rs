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

/// A host of the plan: whether it is reached over TLS, and its authority.
type PlanOrigin<'a> = (bool, &'a str);

/// The host and the target that `location` means, from a request for the target `base` at host number `at`.
///
/// # Errors
/// It leads to a host that is not the plan's.
pub(crate) fn resolve(
    location: &[u8],
    base: &[u8],
    at: usize,
    hosts: &[PlanOrigin<'_>],
) -> Result<(usize, Vec<u8>), String> {
    let location = location.split(|b| *b == b'#').next().unwrap_or_default().trim_ascii();
    let other = || format!("redirect to another host: {}", String::from_utf8_lossy(location));
    let encoded_location = encoded(location);
    let of_base = hosts.get(at).is_some_and(|(is_https, _)| *is_https);
    let (scheme, reference) = match split_scheme(&encoded_location) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Some(true), rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Some(false), rest),
        Some(_) => return Err(other()),
        None => (None, encoded_location.as_str()),
    };
    if let Some(rest) = reference.strip_prefix("//") {
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let is_https = scheme.unwrap_or(of_base);
        let usual = if is_https { ":443" } else { ":80" };
        let plain = |text: &str| text.strip_suffix(usual).unwrap_or(text).to_ascii_lowercase();
        let is_it = |own: &PlanOrigin<'_>| own.0 == is_https && plain(own.1) == plain(host);
        let to = hosts.iter().position(is_it).ok_or_else(other)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        return Ok((to, resolve_path("/", &format!("{slash}{path}")).into_bytes()));
    }
    if scheme.is_some() {
        return Err(other());
    }
    Ok((at, resolve_path(&encoded(base), reference).into_bytes()))
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
        let found = resolve(location.as_bytes(), b"/a/b?c=1", 0, &[(false, "shop.example:8080")]);
        found.map(|(_, target)| String::from_utf8(target).unwrap())
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
        let usual = resolve(b"https://h/x", b"/", 0, &[(true, "h:443")]).unwrap();
        assert_eq!(usual, (0, b"/x".to_vec()));
    }

    #[test]
    fn hosts_of_the_plan_are_known() {
        let hosts = [(false, "shop:80"), (true, "auth"), (true, "shop")];
        for (location, at, to) in [
            ("https://auth/a", 0, Some((1, "/a"))),
            ("//shop/b", 1, Some((2, "/b"))),
            ("//shop/b", 0, Some((0, "/b"))),
            ("http://shop", 2, Some((0, "/"))),
            ("c", 1, Some((1, "/c"))),
            ("http://auth/", 1, None),
        ] {
            let found = resolve(location.as_bytes(), b"/", at, &hosts).ok();
            assert_eq!(found, to.map(|(host, target)| (host, target.as_bytes().to_vec())), "{location}");
        }
    }
}
