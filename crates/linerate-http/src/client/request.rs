//! A request as text with slots, the values that fill them, and what can be wrong with it.

use std::ops::Range;
use std::sync::Arc;

use super::body::Body;

/// A request as text with slots.
///
/// A slot is in double braces, in the target, in field values or in the body:
///
/// - `{{seq}}`: the request's number.
/// - `{{now_ms}}`: milliseconds since the Unix epoch.
/// - `{{date:%F %T}}`: the time in UTC.
/// - `{{rand:1-1000}}`: a random number, both ends included.
/// - `{{rand_text:8}}`: random letters and digits.
/// - `{{uuid}}`: a random UUID.
/// - `{{NAME.COLUMN}}`: a column of a data file.
///
/// Filters may follow: `{{NAME.COLUMN|json}}` (escaped for a JSON string), `|url`, `|base64`. Four
/// opening braces stand for two literal ones: `{{{{` is `{{`. Closing braces outside a slot are
/// literal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSpec {
    /// The method, a token, in the case to be sent.
    pub method: String,
    /// The request target: `/path?query`, an absolute URI (to a proxy), `host:port` (CONNECT) or
    /// `*` (OPTIONS).
    pub target: String,
    /// The fields in order, including Host; without Content-Length, which is computed.
    pub fields: Vec<(String, String)>,
    /// The body, whose slots are filled too.
    pub body: Body,
}

/// A stretch of a rendered request.
#[derive(Debug)]
pub enum Rendered<'a> {
    /// Bytes made for this request.
    Copied(&'a [u8]),
    /// A range of the body as given, which all requests share.
    Shared(&'a Arc<[u8]>, Range<usize>),
}

/// Values for the slots of one request.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The request's number.
    pub seq: u64,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// With `seq` and the slot's place, the source of random numbers: the same request gets the
    /// same numbers again.
    pub seed: u64,
    /// The row of the data files, by the columns given to [`Template::compile`](super::Template::compile).
    pub row: &'a [Box<[u8]>],
}

/// The part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// In the method.
    Method,
    /// In the target.
    Target,
    /// In the field of that name.
    Field(String),
    /// In the body.
    Body,
}

impl std::fmt::Display for RequestPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RequestPart::Method => f.write_str("the method"),
            RequestPart::Target => f.write_str("the target"),
            RequestPart::Field(name) => write!(f, "field {name:?}"),
            RequestPart::Body => f.write_str("the body"),
        }
    }
}

/// A request that cannot be sent as written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}, byte {at}: {problem}")]
pub struct TemplateError {
    /// The part with the problem.
    pub place: RequestPart,
    /// Bytes from the start of that part.
    pub at: usize,
    /// The fault, and how to mend it.
    pub problem: String,
}

impl TemplateError {
    pub(super) fn new(place: &RequestPart, at: usize, problem: impl Into<String>) -> TemplateError {
        TemplateError { place: place.clone(), at, problem: problem.into() }
    }
}
