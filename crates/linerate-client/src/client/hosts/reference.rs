//! References to URIs, as the field Location has them (RFC 3986 section 5).

use http::Uri;

use crate::client::path::percent_encoded;

/// The URI that `reference` means, read at `base`, which is whole. The fragment goes.
pub(super) fn resolve(base: &Uri, reference: &str) -> Result<Uri, http::uri::InvalidUri> {
    let reference = percent_encoded(reference.trim());
    let reference = reference.split('#').next().unwrap_or("");
    if has_scheme(reference) {
        return reference.parse();
    }
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", |authority| authority.as_str());
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse();
    }
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let (path, query) = match path {
        "" => (base.path().to_owned(), query.or(base.query())),
        path if path.starts_with('/') => (without_dots(path), query),
        path => {
            let folder = base.path().rfind('/').map_or("/", |end| &base.path()[..=end]);
            (without_dots(&format!("{folder}{path}")), query)
        }
    };
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{authority}{path}{query}").parse()
}

/// RFC 3986 section 3.1.
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// RFC 3986 section 5.2.4, for a path that begins with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            segment => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3986 sections 5.4.1 and 5.4.2 that HTTP can have.
    #[test]
    fn rfc3986_5_4_examples() {
        let base: Uri = "http://a/b/c/d;p?q".parse().unwrap();
        for (reference, expected) in [
            ("http:// a", None),
            ("https://x/y", Some("https://x/y")),
            ("g", Some("http://a/b/c/g")),
            ("./g", Some("http://a/b/c/g")),
            ("g/", Some("http://a/b/c/g/")),
            ("/g", Some("http://a/g")),
            ("//g", Some("http://g/")),
            ("?y", Some("http://a/b/c/d;p?y")),
            ("g?y", Some("http://a/b/c/g?y")),
            ("#s", Some("http://a/b/c/d;p?q")),
            ("g#s", Some("http://a/b/c/g")),
            (";x", Some("http://a/b/c/;x")),
            ("g;x?y#s", Some("http://a/b/c/g;x?y")),
            ("", Some("http://a/b/c/d;p?q")),
            (".", Some("http://a/b/c/")),
            ("./", Some("http://a/b/c/")),
            ("..", Some("http://a/b/")),
            ("../g", Some("http://a/b/g")),
            ("../..", Some("http://a/")),
            ("../../g", Some("http://a/g")),
            ("../../../g", Some("http://a/g")),
            ("/./g", Some("http://a/g")),
            ("/../g", Some("http://a/g")),
            ("g..", Some("http://a/b/c/g..")),
            ("./g/.", Some("http://a/b/c/g/")),
            ("g;x=1/../y", Some("http://a/b/c/y")),
            ("g?y/../x", Some("http://a/b/c/g?y/../x")),
            ("ü x", Some("http://a/b/c/%C3%BC%20x")),
        ] {
            let uri = resolve(&base, reference).ok();
            let expected = expected.map(|uri| uri.parse::<Uri>().unwrap());
            assert_eq!(uri, expected, "{reference:?}");
        }
    }
}
