//! A request, as a script describes it.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rquickjs::{Array, ArrayBuffer, Ctx, Object, Result, Value};

use super::state::UserState;
use super::values::{bytes_of, statuses, tags_of, text_of, thrown, wrong_tag};
use crate::action::{QueuedRequest, ResponseKind, UserRequest, UserResponse};
use crate::sample::RequestTags;

/// Until a response is there, unless a request says otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a request of `[method, url, body, params, content type]`.
pub(super) fn build<'js>(ctx: &Ctx<'js>, state: &UserState, entry: &Array<'js>) -> Result<QueuedRequest> {
    let (method, address): (String, Value<'js>) = (entry.get(0)?, entry.get(1)?);
    let (url, name) = match address.as_object().filter(|_| !address.is_string()) {
        Some(template) if template.contains_key("__isUrl")? => {
            (template.get::<_, String>("url")?, Some(template.get::<_, String>("name")?))
        }
        _ => (text_of(ctx, &address)?, None),
    };
    let body = bytes_of(ctx, &entry.get::<Value<'js>>(2)?)?;
    let options = state.program.options();
    let discards = options.is_some_and(|options| options.discard_bodies);
    let mut request = UserRequest {
        method,
        url: nowhere(),
        headers: Vec::new(),
        body,
        timeout: USUAL_TIMEOUT,
        redirects: options.map_or(10, |options| options.max_redirects),
        tags: RequestTags { name, group: state.group(), custom: Vec::new() },
        expected: state.expected.borrow().clone(),
        response: if discards { ResponseKind::Nothing } else { ResponseKind::Text },
        cookies: Vec::new(),
        jar: 0,
    };
    let params: Value<'js> = entry.get(3)?;
    if let Some(params) = params.as_object()
        && let Some(error) = set_params(ctx, &mut request, params)?
    {
        // As k6 has it: the request fails and is not sent.
        return Ok(Err(Box::new((request, UserResponse { error, ..UserResponse::default() }))));
    }
    let has = |request: &UserRequest, wanted: &str| {
        request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    if let Ok(kind) = entry.get::<String>(4)
        && !has(&request, "content-type")
    {
        request.headers.push(("Content-Type".to_owned(), kind));
    }
    if !has(&request, "user-agent") {
        let own = options.and_then(|options| options.user_agent.clone());
        let agent = own.unwrap_or_else(|| concat!("linerate/", env!("CARGO_PKG_VERSION")).to_owned());
        request.headers.push(("User-Agent".to_owned(), agent));
    }
    Ok(address_of(&mut request, &url).map_or_else(
        |why| {
            let response = UserResponse { error: why, error_code: 1020, ..UserResponse::default() };
            Err(Box::new((request.clone(), response)))
        },
        |()| Ok(request.clone()),
    ))
}

/// The place of a URL that is not known yet.
fn nowhere() -> url::Url {
    url::Url::parse("http://invalid./").unwrap_or_else(|_| unreachable!("a constant URL"))
}

/// Sets the URL; its user and password become a field.
fn address_of(request: &mut UserRequest, text: &str) -> std::result::Result<(), String> {
    let mut url = url::Url::parse(&escaped_path(text)).map_err(|e| format!("invalid URL {text:?}: {e}"))?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none() {
        return Err(format!("invalid URL {text:?}: it has to begin with http:// or https://"));
    }
    url.set_fragment(None);
    let (user, password) = (url.username().to_owned(), url.password().map(str::to_owned));
    if !user.is_empty() || password.is_some() {
        let decoded = |text: &str| String::from_utf8_lossy(&percent_decoded(text)).into_owned();
        let pair = format!("{}:{}", decoded(&user), decoded(&password.unwrap_or_default()));
        // A URL with a host takes both.
        let _ = (url.set_username(""), url.set_password(None));
        request.headers.push(("Authorization".to_owned(), format!("Basic {}", STANDARD.encode(pair))));
    }
    request.url = url;
    Ok(())
}

/// A URL whose path is escaped as Go's net/url does, and so k6: a path with a byte that cannot stand there is
/// escaped anew as a whole, and any other stays as it is.
fn escaped_path(text: &str) -> Cow<'_, str> {
    let authority = text.find("://").map_or(0, |at| at + 3);
    let end = text[authority..].find(['?', '#']).map_or(text.len(), |at| authority + at);
    let Some(start) = text[authority..end].find('/').map(|at| authority + at) else { return text.into() };
    let path = &text[start..end];
    let may_stand = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]/%".contains(&b);
    if path.bytes().all(may_stand) {
        return text.into();
    }
    let mut whole = text[..start].to_owned();
    for byte in percent_decoded(path) {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            whole.push(char::from(byte));
        } else {
            whole.push_str(&format!("%{byte:02X}"));
        }
    }
    whole.push_str(&text[end..]);
    whole.into()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut all, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex.filter(|_| bytes[at] == b'%') {
            Some(byte) => (all.push(byte), at += 3).0,
            None => (all.push(bytes[at]), at += 1).0,
        }
    }
    all
}

/// Sets what a script gives with a request; why its tags are wrong.
fn set_params<'js>(
    ctx: &Ctx<'js>,
    request: &mut UserRequest,
    params: &Object<'js>,
) -> Result<Option<String>> {
    for entry in params.props::<String, Value<'js>>() {
        let (key, value) = entry?;
        if value.is_undefined() || value.is_null() && key != "responseCallback" {
            continue;
        }
        match key.as_str() {
            "headers" => headers(ctx, request, &value)?,
            "tags" => {
                if let Some(why) = wrong_tag(&value)? {
                    return Ok(Some(why));
                }
                tags(ctx, request, value)?;
            }
            "cookies" => cookies(ctx, request, &value)?,
            "timeout" => request.timeout = timeout(ctx, &value)?,
            "redirects" => request.redirects = value.as_number().unwrap_or(0.0) as u32,
            "jar" => request.jar = value.as_object().map_or(Ok(0), |jar| jar.get("__jar"))?,
            "responseType" => {
                request.response = match text_of(ctx, &value)?.as_str() {
                    "text" => ResponseKind::Text,
                    "binary" => ResponseKind::Binary,
                    "none" => ResponseKind::Nothing,
                    other => {
                        return Err(thrown(ctx, &format!("responseType is {other:?}: text, binary or none")));
                    }
                };
            }
            "responseCallback" => {
                let ranges: Option<Vec<Vec<u16>>> = value.get()?;
                request.expected = ranges.map(|ranges| statuses(&ranges));
            }
            "auth" => match text_of(ctx, &value)?.as_str() {
                "basic" => {}
                other => return Err(thrown(ctx, &format!("auth {other:?} is not supported by linerate"))),
            },
            "compression" => {
                return Err(thrown(ctx, "the param compression is not supported by linerate"));
            }
            _ => {}
        }
    }
    Ok(None)
}

fn headers<'js>(ctx: &Ctx<'js>, request: &mut UserRequest, value: &Value<'js>) -> Result<()> {
    let Some(object) = value.as_object() else { return Err(thrown(ctx, "headers have to be an object")) };
    for entry in object.props::<String, Value<'js>>() {
        let (name, value) = entry?;
        let value = text_of(ctx, &value)?;
        if value.contains(['\r', '\n']) || name.contains(['\r', '\n', ':', ' ']) {
            return Err(thrown(ctx, &format!("the header {name:?} has a line break or a space in it")));
        }
        request.headers.push((name, value));
    }
    Ok(())
}

fn tags<'js>(ctx: &Ctx<'js>, request: &mut UserRequest, value: Value<'js>) -> Result<()> {
    for (name, value) in tags_of(ctx, Some(value))? {
        if name == "name" {
            request.tags.name = Some(value);
        } else {
            request.tags.custom.push((name, value));
        }
    }
    Ok(())
}

fn cookies<'js>(ctx: &Ctx<'js>, request: &mut UserRequest, value: &Value<'js>) -> Result<()> {
    let Some(object) = value.as_object() else { return Err(thrown(ctx, "cookies have to be an object")) };
    for entry in object.props::<String, Value<'js>>() {
        let (name, value) = entry?;
        match value.as_object().filter(|_| !value.is_string()) {
            Some(cookie) => {
                let replaces = cookie.get::<_, Option<bool>>("replace")?.unwrap_or(false);
                request.cookies.push((name, text_of(ctx, &cookie.get("value")?)?, replaces));
            }
            None => request.cookies.push((name, text_of(ctx, &value)?, false)),
        }
    }
    Ok(())
}

fn timeout<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Duration> {
    let json = match value.as_number() {
        Some(number) => serde_json::json!(number),
        None => serde_json::Value::String(text_of(ctx, value)?),
    };
    crate::duration::duration(&json).map_err(|why| thrown(ctx, &format!("timeout: {why}")))
}

/// The body of a form with files (RFC 7578), and its type. Parts: `[name, data, filename, type]`.
pub(super) fn multipart<'js>(
    ctx: &Ctx<'js>,
    parts: &Array<'js>,
    boundary: Option<String>,
) -> Result<Array<'js>> {
    let mut all = Vec::new();
    for part in parts.iter::<Array<'js>>() {
        let part = part?;
        let (name, data): (String, Value<'js>) = (part.get(0)?, part.get(1)?);
        let file = match part.len() {
            4 => Some((part.get::<String>(2)?, part.get::<String>(3)?)),
            _ => None,
        };
        all.push((name, bytes_of(ctx, &data)?, file));
    }
    let is_within = |boundary: &str| {
        all.iter().any(|(_, data, _)| data.windows(boundary.len()).any(|part| part == boundary.as_bytes()))
    };
    let boundary = boundary.unwrap_or_else(|| {
        let mut boundary = String::from("linerate-form-7d1f0b");
        while is_within(&boundary) {
            boundary.push('x');
        }
        boundary
    });
    let quoted = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    let mut body = Vec::new();
    for (name, data, file) in &all {
        body.extend(
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", quoted(name)).bytes(),
        );
        if let Some((filename, kind)) = file {
            body.extend(format!("; filename=\"{}\"\r\nContent-Type: {kind}", quoted(filename)).bytes());
        }
        body.extend(b"\r\n\r\n");
        body.extend(data);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    let pair = Array::new(ctx.clone())?;
    pair.set(0, ArrayBuffer::new_copy(ctx.clone(), &body)?)?;
    pair.set(1, format!("multipart/form-data; boundary={boundary}"))?;
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_in_k6() {
        for (text, sent) in [
            ("http://h/api/[object Object]", "http://h/api/%5Bobject%20Object%5D"),
            ("http://h/a[0]/(x)?q=[1]", "http://h/a[0]/(x)?q=[1]"),
            ("http://h/(a b)%2Fc?d e#f g", "http://h/%28a%20b%29/c?d e#f g"),
            ("http://h/caf\u{e9}%", "http://h/caf%C3%A9%25"),
            ("http://h?x=/a b", "http://h?x=/a b"),
            ("http://h", "http://h"),
        ] {
            assert_eq!(escaped_path(text), sent);
        }
    }
}
