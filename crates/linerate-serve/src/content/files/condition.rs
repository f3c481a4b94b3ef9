//! Conditional and range requests (RFC 9110 sections 13 and 14).

use std::ops::Range;

use linerate_http::server::{HttpDate, Method};

use super::negotiate::{Encoding, list};
use super::ranges::{self, Ranges};
use crate::Request;

/// Identifies one state of a file.
pub(super) struct Validators {
    pub(super) etag: String,
    pub(super) modified: HttpDate,
}

impl Validators {
    pub(super) fn new(
        size: u64,
        modified: (i64, i64),
        encoding: Option<Encoding>,
        on_the_fly: bool,
    ) -> Validators {
        let coding = encoding.map_or("", Encoding::name);
        let (seconds, nanos) = modified;
        // Compression on the fly need not give the same bytes each time.
        let weak = if on_the_fly { "W/" } else { "" };
        Validators {
            etag: format!("{weak}\"{seconds:x}.{nanos:x}-{size:x}{coding}\""),
            modified: HttpDate::from_unix(u64::try_from(seconds).unwrap_or(0)),
        }
    }
}

/// The outcome of a conditional or range request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    /// One or several ranges, none of them empty.
    Parts(Vec<Range<u64>>),
    NotModified,
    Failed,
    Unsatisfiable,
}

/// In the order of RFC 9110 section 13.2.2.
pub(super) fn evaluate(request: &Request, now: &Validators, size: u64) -> Outcome {
    let field = |name| request.field(name);
    let date = |name| field(name).and_then(HttpDate::parse);
    if let Some(tags) = list(request, "if-match") {
        if !matches(&tags, &now.etag, true) {
            return Outcome::Failed;
        }
    } else if date("if-unmodified-since").is_some_and(|d| now.modified.unix() > d.unix()) {
        return Outcome::Failed;
    }
    if let Some(tags) = list(request, "if-none-match") {
        if matches(&tags, &now.etag, false) {
            return Outcome::NotModified;
        }
    } else if date("if-modified-since").is_some_and(|d| now.modified.unix() <= d.unix()) {
        return Outcome::NotModified;
    }
    // RFC 9110 section 14.2: only for GET.
    let Some(range) = field("range").filter(|_| request.head().method() == Method::Get) else {
        return Outcome::Whole;
    };
    let same = match field("if-range") {
        None => true,
        Some(tag) if tag.contains('"') => matches(tag, &now.etag, true),
        Some(date) => HttpDate::parse(date).is_some_and(|d| d.unix() == now.modified.unix()),
    };
    match ranges::parse(range, size) {
        Ranges::Parts(parts) if same => Outcome::Parts(parts),
        Ranges::Unsatisfiable if same => Outcome::Unsatisfiable,
        _ => Outcome::Whole,
    }
}

/// Whether a list of entity tags has this one (RFC 9110 section 8.8.3.2).
fn matches(list: &str, etag: &str, strong: bool) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    list.trim() == "*"
        || list.split(',').map(str::trim).any(|tag| {
            if strong {
                tag == etag && !tag.starts_with("W/")
            } else {
                tag.contains('"') && opaque(tag) == opaque(etag)
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        assert!(matches("\"a\", \"b\"", "\"b\"", true));
        assert!(matches("W/\"b\"", "\"b\"", false) && !matches("W/\"b\"", "W/\"b\"", true));
        assert!(matches("*", "\"b\"", true) && !matches("b", "\"b\"", false));
    }
}
