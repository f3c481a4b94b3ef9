//! Is a request as written a valid HTTP/1.1 message?

use super::head::{in_value, is_token};
use super::template::{Place, RequestSpec, TemplateError};

/// Checks everything that does not depend on the slots' values.
pub(super) fn check(spec: &RequestSpec) -> Result<(), TemplateError> {
    method(&spec.method)?;
    target(&spec.method, &spec.target)?;
    for (name, value) in &spec.fields {
        field(name, value)?;
    }
    combination(spec)
}

/// May stand in a request target: visible ASCII but `#`, which begins a fragment (RFC 9112, section 3.2).
pub(super) fn in_target(b: u8) -> bool {
    b.is_ascii_graphic() && b != b'#'
}

/// The request asks for the connection to be closed.
pub(super) fn closes(spec: &RequestSpec) -> bool {
    has_option(spec, "close")
}

fn method(method: &str) -> Result<(), TemplateError> {
    let bad = |at, problem| Err(TemplateError::new(&Place::Method, at, problem));
    if method.is_empty() {
        return bad(0, "the method is empty: write GET, POST ...");
    }
    match method.bytes().position(|b| !is_token(b)) {
        Some(at) => bad(at, "a method is one word of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, 9.1)"),
        None => Ok(()),
    }
}

/// The four forms of RFC 9112, section 3.2.
fn target(method: &str, target: &str) -> Result<(), TemplateError> {
    let bad = |at, problem: &str| Err(TemplateError::new(&Place::Target, at, problem));
    if let Some(at) = bytes_outside_slots(target.as_bytes()).find(|(_, b)| !in_target(*b)).map(|(at, _)| at) {
        return match target.as_bytes()[at] {
            b' ' => bad(at, "a space ends the target: write %20"),
            b'#' => bad(at, "a fragment is not sent to servers: leave it out, or write %23"),
            b if b >= 0x80 => bad(at, "only ASCII may stand in a target: percent-encode it"),
            _ => bad(at, "a control character: percent-encode it"),
        };
    }
    let slot = target.starts_with("{{") && !target.starts_with("{{{{");
    match method {
        "CONNECT" if target.is_empty() || target.contains('/') => {
            bad(0, "CONNECT takes HOST:PORT (RFC 9112, 3.2.3)")
        }
        "CONNECT" => Ok(()),
        "OPTIONS" if target == "*" => Ok(()),
        _ if target.starts_with('/') || slot || is_absolute(target) => Ok(()),
        _ => bad(0, "a target begins with / (or is a whole URI, to a proxy; * for OPTIONS)"),
    }
}

fn is_absolute(target: &str) -> bool {
    target.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            && !rest.is_empty()
    })
}

/// Bytes that are sent as they stand, with their places.
fn bytes_outside_slots(text: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut inside = false;
    text.iter().enumerate().filter_map(move |(at, b)| {
        match (&text[at..], inside) {
            ([b'{', b'{', ..], false) => inside = true,
            ([b'}', b'}', ..], true) => inside = false,
            _ => {}
        }
        (!inside).then_some((at, *b))
    })
}

fn field(name: &str, value: &str) -> Result<(), TemplateError> {
    let place = Place::Field(name.to_owned());
    let bad = |at, problem: &str| Err(TemplateError::new(&place, at, problem));
    if name.is_empty() || !name.bytes().all(is_token) {
        return bad(0, "a field name is one word of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, 5.1)");
    }
    if let Some(at) = value.bytes().position(|b| !in_value(b)) {
        return bad(at, "a field value holds no control characters, line ends among them (RFC 9110, 5.5)");
    }
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("content-length") {
        return bad(0, "the length is computed from the body: leave this field out");
    }
    if is("transfer-encoding") {
        return bad(0, "bodies are sent with Content-Length, which excludes this field (RFC 9112, 6.2)");
    }
    Ok(())
}

/// What fields demand of one another.
fn combination(spec: &RequestSpec) -> Result<(), TemplateError> {
    let bad = |name: &str, problem: &str| Err(TemplateError::new(&Place::Field(name.to_owned()), 0, problem));
    let count = |name: &str| spec.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count();
    if count("host") != 1 {
        return bad("Host", "an HTTP/1.1 request has exactly one (RFC 9112, 3.2)");
    }
    if count("te") > 0 && !has_option(spec, "te") {
        return bad("TE", "it also needs Connection: TE (RFC 9110, 10.1.4)");
    }
    if count("upgrade") > 0 && !has_option(spec, "upgrade") {
        return bad("Upgrade", "it also needs Connection: Upgrade (RFC 9110, 7.8)");
    }
    if count("expect") > 0 && spec.body.is_empty() {
        return bad("Expect", "there is no body to wait with (RFC 9110, 10.1.1)");
    }
    Ok(())
}

fn has_option(spec: &RequestSpec, option: &str) -> bool {
    let connection = spec.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case("connection"));
    connection.flat_map(|(_, v)| v.split(',')).any(|o| o.trim().eq_ignore_ascii_case(option))
}
