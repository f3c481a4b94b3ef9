//! Requests and responses, between JavaScript and the run.

use std::rc::Rc;

use rquickjs::function::Opt;
use rquickjs::{Array, Ctx, Object, Result, Value};

use super::requests;
use super::state::UserState;
use super::values::{Natives, bytes_of, cut_off, texts, thrown, value_of};
use crate::action::{
    QueuedRequest, ResponseKind, UserAction, UserBatch, UserReply, UserRequest, UserResponse,
};
use crate::jar::{ScriptJar, SetCookieField};
use crate::limits::{BATCH, JARS};

pub(super) fn install<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("send", move |ctx: Ctx<'js>, entries: Array<'js>| send(&ctx, &of, &entries))?;
    natives.add("canonical", |name: String| canonical(&name))?;
    natives.add("statusText", status_text)?;
    natives.add("formEncode", |text: String| {
        url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
    })?;
    natives.add("multipart", |ctx: Ctx<'js>, parts: Array<'js>, boundary: Opt<String>| {
        requests::multipart(&ctx, &parts, boundary.0)
    })?;
    natives.add("parseJson", |ctx: Ctx<'js>, body: Value<'js>| {
        ctx.json_parse(bytes_of(&ctx, &body)?).map_err(|_| {
            let _ = ctx.catch();
            thrown(&ctx, "cannot parse JSON: the body is no valid JSON")
        })
    })?;
    natives
        .add("pickJson", |ctx: Ctx<'js>, body: Value<'js>, selector: String| pick(&ctx, &body, &selector))?;
    natives.add("setCookies", |ctx: Ctx<'js>, flat: Vec<String>| set_cookies(&ctx, &flat))?;
    jars(natives, state)
}

/// Sends requests and waits for all responses.
fn send<'js>(ctx: &Ctx<'js>, state: &UserState, entries: &Array<'js>) -> Result<Array<'js>> {
    if state.is_loading.get() {
        return Err(thrown(ctx, "making http requests in the init context is not supported"));
    }
    if entries.len() > BATCH {
        return Err(thrown(ctx, &format!("more than {BATCH} requests in a batch")));
    }
    let mut queued = Vec::with_capacity(entries.len());
    for entry in entries.iter::<Array<'js>>() {
        queued.push(requests::build(ctx, state, &entry?)?);
    }
    let options = state.program.options();
    let at_once = options.map_or((20, 6), |options| (options.batch, options.batch_per_host));
    answers(ctx, state, queued, at_once, options.is_some_and(|options| options.throw))
}

/// Sends requests, so many at once and so many of these to one host, and waits for all responses.
pub(super) fn answers<'js>(
    ctx: &Ctx<'js>,
    state: &UserState,
    queued: Vec<QueuedRequest>,
    (at_once, per_host): (usize, usize),
    throws: bool,
) -> Result<Array<'js>> {
    if state.is_stopped() {
        return Err(cut_off(ctx));
    }
    let mut places = Vec::with_capacity(queued.len());
    let mut ready = Vec::with_capacity(queued.len());
    for request in queued {
        match request {
            Ok(request) => {
                places.push(None);
                ready.push(request);
            }
            Err(refused) => places.push(Some(refused)),
        }
    }
    let mut ended = Vec::new();
    if !ready.is_empty() {
        let batch = UserBatch { requests: ready, at_once, per_host };
        match state.ask(UserAction::Send(batch)) {
            UserReply::Responses(all) => ended = all,
            _ => return Err(cut_off(ctx)),
        }
    }
    let (all, mut ended) = (Array::new(ctx.clone())?, ended.into_iter());
    for (at, place) in places.into_iter().enumerate() {
        let (request, response) = match place {
            Some(refused) => *refused,
            None => ended.next().ok_or_else(|| cut_off(ctx))?,
        };
        if !response.error.is_empty() {
            if throws {
                return Err(thrown(ctx, &response.error));
            }
            let words = format!("request failed: {} {}: {}", request.method, request.url, response.error);
            state.host.log("warning", &words);
        }
        all.set(at, raw(ctx, &request, &response)?)?;
    }
    Ok(all)
}

/// Names and values, one after the other.
fn joined(fields: &[(String, String)]) -> String {
    let mut text =
        String::with_capacity(fields.iter().map(|(name, value)| name.len() + value.len() + 2).sum());
    for (name, value) in fields {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(name);
        text.push('\n');
        text.push_str(value);
    }
    text
}

/// What `Response` is made of.
fn raw<'js>(ctx: &Ctx<'js>, request: &UserRequest, response: &UserResponse) -> Result<Array<'js>> {
    let raw = Array::new(ctx.clone())?;
    raw.set(0, response.status)?;
    raw.set(1, request.url.as_str())?;
    raw.set(
        2,
        match request.response {
            _ if response.status == 0 => Value::new_null(ctx.clone()),
            ResponseKind::Nothing => Value::new_null(ctx.clone()),
            kind => value_of(ctx, &response.body, kind == ResponseKind::Binary)?,
        },
    )?;
    raw.set(3, response.error.as_str())?;
    raw.set(4, response.error_code)?;
    raw.set(5, response.proto.as_str())?;
    raw.set(6, joined(&response.headers))?;
    let t = &response.timings;
    let times = [t.blocked, t.connecting, t.tls_handshaking, t.sending, t.waiting, t.receiving];
    for (at, time) in times.into_iter().enumerate() {
        raw.set(7 + at, time)?;
    }
    raw.set(13, response.remote.map_or(String::new(), |remote| remote.ip().to_string()))?;
    raw.set(14, response.remote.map_or(0, |remote| remote.port()))?;
    raw.set(15, request.method.as_str())?;
    raw.set(16, String::from_utf8_lossy(&request.body).as_ref())?;
    raw.set(17, joined(&request.headers))?;
    Ok(raw)
}

/// A field's name as Go writes it.
fn canonical(name: &str) -> String {
    let mut upper = true;
    let letter = |c: char| {
        let letter = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        upper = c == '-';
        letter
    };
    name.chars().map(letter).collect()
}

fn status_text(status: u16) -> &'static str {
    match status {
        200 => "200 OK",
        201 => "201 Created",
        202 => "202 Accepted",
        204 => "204 No Content",
        206 => "206 Partial Content",
        301 => "301 Moved Permanently",
        302 => "302 Found",
        303 => "303 See Other",
        304 => "304 Not Modified",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        400 => "400 Bad Request",
        401 => "401 Unauthorized",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Method Not Allowed",
        409 => "409 Conflict",
        418 => "418 I'm a teapot",
        422 => "422 Unprocessable Entity",
        429 => "429 Too Many Requests",
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        502 => "502 Bad Gateway",
        503 => "503 Service Unavailable",
        504 => "504 Gateway Timeout",
        _ => "",
    }
}

/// `res.json('a.b')`: reads no more of the body than it must.
fn pick<'js>(ctx: &Ctx<'js>, body: &Value<'js>, selector: &str) -> Result<Value<'js>> {
    let bytes = bytes_of(ctx, body)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| thrown(ctx, "cannot parse JSON: the body is no UTF-8"))?;
    if !gjson::valid(text) {
        return Err(thrown(ctx, "cannot parse JSON: the body is no valid JSON"));
    }
    let found = gjson::get(text, selector);
    if found.exists() { ctx.json_parse(found.json()) } else { Ok(Value::new_undefined(ctx.clone())) }
}

/// `res.cookies`
fn set_cookies<'js>(ctx: &Ctx<'js>, flat: &[String]) -> Result<Object<'js>> {
    let all = Object::new(ctx.clone())?;
    for pair in flat.chunks_exact(2).filter(|pair| pair[0].eq_ignore_ascii_case("set-cookie")) {
        let Some(cookie) = SetCookieField::parse(&pair[1]) else { continue };
        let object = Object::new(ctx.clone())?;
        object.set("name", cookie.name.as_str())?;
        object.set("value", cookie.value)?;
        object.set("domain", cookie.domain)?;
        object.set("path", cookie.path)?;
        object.set("http_only", cookie.http_only)?;
        object.set("secure", cookie.secure)?;
        object.set("max_age", cookie.max_age.unwrap_or(0) as f64)?;
        object.set("expires", cookie.expires)?;
        let known: Option<Array<'js>> = all.get(cookie.name.as_str())?;
        let list = match known {
            Some(list) => list,
            None => Array::new(ctx.clone())?,
        };
        list.set(list.len(), object)?;
        all.set(cookie.name, list)?;
    }
    Ok(all)
}

fn url_of(ctx: &Ctx<'_>, text: &str) -> Result<url::Url> {
    url::Url::parse(text).map_err(|e| thrown(ctx, &format!("{text:?} is no URL: {e}")))
}

fn jars<'js>(natives: &Natives<'js>, state: &Rc<UserState>) -> Result<()> {
    let of = Rc::clone(state);
    natives.add("newJar", move |ctx: Ctx<'js>| {
        let mut jars = of.jars.0.borrow_mut();
        if jars.len() > JARS {
            return Err(thrown(&ctx, &format!("more than {JARS} cookie jars in one iteration")));
        }
        jars.push(ScriptJar::default());
        Ok(jars.len() - 1)
    })?;
    let of = Rc::clone(state);
    natives.add("jarCookies", move |ctx: Ctx<'js>, jar: usize, url: String| {
        let url = url_of(&ctx, &url)?;
        let jars = of.jars.0.borrow();
        let all = Object::new(ctx.clone())?;
        for (name, value) in jars.get(jar).map_or(Vec::new(), |jar| jar.cookies(&url, of.host.now())) {
            let known: Option<Vec<String>> = all.get(name.as_str())?;
            let mut values = known.unwrap_or_default();
            values.push(value);
            all.set(name, texts(&ctx, values)?)?;
        }
        Ok::<_, rquickjs::Error>(all)
    })?;
    let of = Rc::clone(state);
    natives.add(
        "jarSet",
        move |ctx: Ctx<'js>, jar: usize, url: String, name: String, value: String, options: Object<'js>| {
            let url = url_of(&ctx, &url)?;
            let cookie = cookie_of(name, value, &options)?;
            if let Some(jar) = of.jars.0.borrow_mut().get_mut(jar) {
                jar.store(&cookie, &url, of.host.now());
            }
            Ok::<_, rquickjs::Error>(())
        },
    )?;
    let of = Rc::clone(state);
    natives.add("jarClear", move |ctx: Ctx<'js>, jar: usize, url: String| {
        let url = url_of(&ctx, &url)?;
        if let Some(jar) = of.jars.0.borrow_mut().get_mut(jar) {
            jar.remove(&url, None, of.host.now());
        }
        Ok::<_, rquickjs::Error>(())
    })?;
    let of = Rc::clone(state);
    natives.add("jarDelete", move |ctx: Ctx<'js>, jar: usize, url: String, name: Opt<String>| {
        let url = url_of(&ctx, &url)?;
        if let Some(jar) = of.jars.0.borrow_mut().get_mut(jar) {
            jar.remove(&url, name.0.as_deref(), of.host.now());
        }
        Ok::<_, rquickjs::Error>(())
    })
}

fn cookie_of(name: String, value: String, options: &Object<'_>) -> Result<SetCookieField> {
    let text = |key: &str| options.get::<_, Option<String>>(key).map(Option::unwrap_or_default);
    Ok(SetCookieField {
        name,
        value,
        domain: text("domain")?.trim_start_matches('.').to_ascii_lowercase(),
        path: match text("path")? {
            path if path.is_empty() => "/".to_owned(),
            path => path,
        },
        expires: text("expires")?,
        max_age: options.get::<_, Option<f64>>("max_age")?.map(|seconds| seconds as i64),
        secure: options.get::<_, Option<bool>>("secure")?.unwrap_or(false),
        http_only: options.get::<_, Option<bool>>("http_only")?.unwrap_or(false),
    })
}
