//! Where a redirect leads (RFC 9110, section 10.2.2; RFC 3986, section 5.2).

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
    let scheme = if is_https { "https" } else { "http" };
    let after_scheme = |text: &[u8]| {
        let prefix = text.get(..scheme.len() + 1)?;
        let is_it = prefix.eq_ignore_ascii_case(format!("{scheme}:").as_bytes());
        is_it.then(|| text[scheme.len() + 1..].to_vec())
    };
    let other = || format!("redirect to another host: {}", String::from_utf8_lossy(location));
    let has_scheme = location.iter().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(b));
    let has_scheme = has_scheme.is_some_and(|at| at > 0 && location[at] == b':');
    let reference = if has_scheme { after_scheme(location).ok_or_else(other)? } else { location.to_vec() };
    let target = match reference.strip_prefix(b"//") {
        Some(rest) => {
            let end = rest.iter().position(|b| b"/?".contains(b)).unwrap_or(rest.len());
            let usual = if is_https { ":443" } else { ":80" };
            let plain = |text: &str| text.strip_suffix(usual).unwrap_or(text).to_ascii_lowercase();
            if plain(&String::from_utf8_lossy(&rest[..end])) != plain(authority) {
                return Err(other());
            }
            if rest.get(end) == Some(&b'/') { rest[end..].to_vec() } else { [b"/", &rest[end..]].concat() }
        }
        None if has_scheme => return Err(other()),
        None => {
            let path_end = base.iter().position(|b| *b == b'?').unwrap_or(base.len());
            let folder = base[..path_end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
            match reference.first() {
                None => base.to_vec(),
                Some(b'/') => reference,
                Some(b'?') => [&base[..path_end], &reference].concat(),
                Some(_) => [&base[..folder], &reference].concat(),
            }
        }
    };
    Ok(encoded(&without_dots(&target)))
}

/// Removes the segments `.` and `..` of a path (RFC 3986, section 5.2.4); a query stays.
fn without_dots(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|b| *b == b'?').unwrap_or(target.len());
    let (path, query) = target.split_at(end);
    let mut kept: Vec<&[u8]> = Vec::new();
    let segments: Vec<&[u8]> = path.strip_prefix(b"/").unwrap_or(path).split(|b| *b == b'/').collect();
    for (i, segment) in segments.iter().enumerate() {
        let is_last = i + 1 == segments.len();
        match *segment {
            b"." | b".." => {
                if *segment == b".." {
                    kept.pop();
                }
                if is_last {
                    kept.push(b"");
                }
            }
            other => kept.push(other),
        }
    }
    [b"/", kept.join(&b'/').as_slice(), query].concat()
}

/// What cannot stand in a target is percent-encoded, as browsers do.
fn encoded(target: &[u8]) -> Vec<u8> {
    target.iter().fold(Vec::with_capacity(target.len()), |mut out, byte| {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(byte) => out.push(*byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
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
