//! References to URIs, as the field Location has them (RFC 3986 section 5).

use http::Uri;
use linerate_http::client::{resolve_path, split_scheme};

use crate::client::path::percent_encoded;

/// The URI that `reference` means, read at `base`, which is whole. The fragment goes.
pub(super) fn resolve(base: &Uri, reference: &str) -> Result<Uri, http::uri::InvalidUri> {
    let reference = percent_encoded(reference.trim());
    let reference = reference.split('#').next().unwrap_or("");
    if split_scheme(reference).is_some() {
        return reference.parse();
    }
    let scheme = base.scheme_str().unwrap_or("http");
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse();
    }
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let target = base.path_and_query().map_or("/", |target| target.as_str());
    format!("{scheme}://{authority}{}", resolve_path(target, reference)).parse()
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
