//! Whether a request as written is a valid HTTP/1.1 message.

use super::parse::{in_value, is_token};
use super::request::{RequestPart, RequestSpec, TemplateError};
use super::slots::TemplatePiece;

/// Checks what does not depend on the slots: the method, the field names, and rules between fields.
pub(super) fn check(spec: &RequestSpec) -> Result<(), TemplateError> {
    method(&spec.method)?;
    for (name, _) in &spec.fields {
        field_name(name)?;
    }
    connection_options(spec)?;
    content(spec)
}

/// Checks the same of a request over HTTP/2.
pub(super) fn check_streamed(spec: &RequestSpec) -> Result<(), TemplateError> {
    method(&spec.method)?;
    if spec.method == "CONNECT" {
        return Err(TemplateError::new(&RequestPart::Method, 0, "CONNECT is not sent over HTTP/2"));
    }
    for (name, _) in &spec.fields {
        field_name(name)?;
    }
    if field(spec, "host").count() != 1 {
        return bad("Host", "a request has exactly one Host field: it becomes :authority (RFC 9113, 8.3.1)");
    }
    if field(spec, "te").any(|value| !value.eq_ignore_ascii_case("trailers")) {
        return bad("TE", "over HTTP/2 it says \"trailers\" and nothing else (RFC 9113, 8.2.2)");
    }
    if field(spec, "upgrade").next().is_some() {
        return bad("Upgrade", "HTTP/2 has no upgrades (RFC 9113, 8.2.2)");
    }
    content(spec)
}

/// Whether a byte is allowed in a request target: visible ASCII except `#`, which begins a fragment
/// (RFC 9112, section 3.2).
pub(super) fn in_target(b: u8) -> bool {
    b.is_ascii_graphic() && b != b'#'
}

/// Why a byte must not stand in a target; `None`: it may.
pub(super) fn target_problem(b: u8) -> Option<&'static str> {
    match b {
        _ if in_target(b) => None,
        b' ' => Some("a space ends the target: write %20"),
        b'#' => Some("a fragment is not sent to servers: leave it out, or write %23"),
        0x80.. => Some("only ASCII may stand in a target: percent-encode it"),
        _ => Some("a control character: percent-encode it"),
    }
}

/// Whether a body of this length has a Content-Length: also an empty one, if the method gives a
/// body a meaning (RFC 9110, section 8.6).
pub(super) fn announces_length(method: &str, length: usize) -> bool {
    length > 0 || matches!(method, "POST" | "PUT" | "PATCH")
}

/// Why a byte must not stand in a field value; `None`: it may.
pub(super) fn value_problem(b: u8) -> Option<&'static str> {
    (!in_value(b))
        .then_some("a field value holds no control characters, line ends among them (RFC 9110, 5.5)")
}

/// Whether the request asks to close the connection.
pub(super) fn closes(spec: &RequestSpec) -> bool {
    has_option(spec, "close")
}

fn method(method: &str) -> Result<(), TemplateError> {
    let bad = |at, problem| Err(TemplateError::new(&RequestPart::Method, at, problem));
    if method.is_empty() {
        return bad(0, "the method is empty: write GET, POST ...");
    }
    match method.bytes().position(|b| !is_token(b)) {
        Some(at) => bad(at, "a method is one word of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, 9.1)"),
        None => Ok(()),
    }
}

fn field_name(name: &str) -> Result<(), TemplateError> {
    let bad = |at, problem| Err(TemplateError::new(&RequestPart::Field(name.to_owned()), at, problem));
    const NAME: &str = "a field name is one word of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, 5.1)";
    if name.is_empty() {
        return bad(0, NAME);
    }
    if let Some(at) = name.bytes().position(|b| !is_token(b)) {
        return bad(at, NAME);
    }
    match () {
        () if name.eq_ignore_ascii_case("content-length") => {
            bad(0, "the length is computed from the body: leave this field out")
        }
        () if name.eq_ignore_ascii_case("transfer-encoding") => {
            bad(0, "bodies are sent with Content-Length, which excludes this field (RFC 9112, 6.2)")
        }
        () => Ok(()),
    }
}

/// Checks the forms of RFC 9112, section 3.2. A slot at the beginning is checked with its row.
pub(super) fn check_target(spec: &RequestSpec, pieces: &[TemplatePiece]) -> Result<(), TemplateError> {
    let bad = |problem: &str| Err(TemplateError::new(&RequestPart::Target, 0, problem));
    let text = match pieces {
        [] => return bad("the target is empty: write / for the root"),
        [TemplatePiece::Literal(text), ..] => std::str::from_utf8(text).unwrap_or_default(),
        [TemplatePiece::Slot(_) | TemplatePiece::Shared(..), ..] => return Ok(()),
    };
    let whole = pieces.len() == 1;
    match &*spec.method {
        "CONNECT" if whole && !is_authority(text) => bad("CONNECT takes HOST:PORT (RFC 9112, 3.2.3)"),
        "CONNECT" => Ok(()),
        "OPTIONS" if whole && text == "*" => Ok(()),
        _ if text.starts_with('/') => Ok(()),
        _ => match absolute(text) {
            Some(authority) if authority.contains('@') => {
                bad("user and password do not stand in a target: send Authorization (RFC 9110, 4.2.4)")
            }
            Some(authority) if whole && field(spec, "host").next() != Some(authority) => {
                bad("Host must be what the target names, HOST or HOST:PORT (RFC 9112, 3.2)")
            }
            Some(_) => Ok(()),
            None => bad("a target begins with / (or is a whole URI, to a proxy; * for OPTIONS)"),
        },
    }
}

fn is_authority(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', '@']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// The authority of an absolute URI.
fn absolute(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    (named && !authority.is_empty()).then_some(authority)
}

fn connection_options(spec: &RequestSpec) -> Result<(), TemplateError> {
    if field(spec, "host").count() != 1 {
        return bad("Host", "an HTTP/1.1 request has exactly one Host field (RFC 9112, 3.2)");
    }
    if field(spec, "te").next().is_some() && !has_option(spec, "te") {
        return bad("TE", "it also needs Connection: TE (RFC 9110, 10.1.4)");
    }
    let codings = field(spec, "te").flat_map(|v| v.split(','));
    if codings.filter_map(|c| c.split(';').next()).any(|c| c.trim().eq_ignore_ascii_case("chunked")) {
        return bad("TE", "chunked is always understood and must not be listed (RFC 9112, 7.4)");
    }
    if field(spec, "upgrade").next().is_some() && !has_option(spec, "upgrade") {
        return bad("Upgrade", "it also needs Connection: Upgrade (RFC 9110, 7.8)");
    }
    Ok(())
}

fn content(spec: &RequestSpec) -> Result<(), TemplateError> {
    if spec.method == "TRACE" {
        if !spec.body.is_empty() {
            return Err(TemplateError::new(&RequestPart::Body, 0, "TRACE has no body (RFC 9110, 9.3.8)"));
        }
        for secret in ["Authorization", "Proxy-Authorization", "Cookie"] {
            if field(spec, secret).next().is_some() {
                return bad(secret, "TRACE would show it to whoever sees the answer (RFC 9110, 9.3.8)");
            }
        }
    }
    let waits = field(spec, "expect").any(|v| v.trim().eq_ignore_ascii_case("100-continue"));
    if waits && spec.body.is_empty() {
        return bad("Expect", "there is no body to wait with (RFC 9110, 10.1.1)");
    }
    Ok(())
}

fn bad(name: &str, problem: &str) -> Result<(), TemplateError> {
    Err(TemplateError::new(&RequestPart::Field(name.to_owned()), 0, problem))
}

/// The values of the fields of that name.
fn field<'s>(spec: &'s RequestSpec, name: &'s str) -> impl Iterator<Item = &'s str> {
    spec.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn has_option(spec: &RequestSpec, option: &str) -> bool {
    field(spec, "connection").flat_map(|v| v.split(',')).any(|o| o.trim().eq_ignore_ascii_case(option))
}
