//! References to URIs, as the field Location has them (RFC 3986 section 5).

/// The scheme of a reference and what follows its colon (RFC 3986 section 3.1); `None`: it has none.
pub fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then_some((scheme, rest))
}

/// The path and query that a reference means (RFC 3986 section 5.2.2), read at `base`, a path and query.
/// The reference has neither scheme nor authority, and no fragment.
///
/// ```
/// use linerate_http::client::resolve_path;
///
/// assert_eq!(resolve_path("/a/b?c", "../d?e"), "/d?e");
/// assert_eq!(resolve_path("/a/b?c", "?e"), "/a/b?e");
/// ```
pub fn resolve_path(base: &str, reference: &str) -> String {
    let (path, query) = split_query(reference);
    let (base_path, base_query) = split_query(base);
    let (path, query) = match path {
        "" => (base_path.to_owned(), query.or(base_query)),
        path if path.starts_with('/') => (without_dots(path), query),
        path => {
            let folder = base_path.rfind('/').map_or("/", |end| &base_path[..=end]);
            (without_dots(&format!("{folder}{path}")), query)
        }
    };
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

fn split_query(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

/// RFC 3986 section 5.2.4, for a path that begins with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
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
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}
