//! Heads: a request's becomes the one that handlers know, a response's becomes HTTP/2 fields.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, request};
use linerate_http::server::{Fault, Fields, HeadReader, HttpDate, Limits, RequestHead};

use crate::Response;

/// Fields that belong to a connection of HTTP/1.1 (RFC 9113 section 8.2.2).
const OF_A_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    header::UPGRADE,
    header::TRANSFER_ENCODING,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Fields that a WebSocket's client sends in HTTP/1.1 and not in HTTP/2 (RFC 8441 section 5). The key is
/// constant: it protects against confused caches, which HTTP/2 has not.
const WEBSOCKET: &[u8] =
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: bGluZXJhdGUuLi4uLi4uLg==\r\n";

/// Translates heads of requests. One serves all connections of a thread.
#[derive(Debug)]
pub(crate) struct Heads {
    reader: HeadReader,
    /// The head last translated.
    text: Vec<u8>,
}

impl Heads {
    pub(crate) fn new(limits: Limits) -> Heads {
        Heads { reader: HeadReader::for_http2(limits), text: Vec::new() }
    }

    /// The head as HTTP/1.1 would have it, with all its checks. `websocket`: it is an extended
    /// CONNECT, which becomes the request for an upgrade that handlers know.
    pub(crate) fn translate(
        &mut self,
        parts: &request::Parts,
        websocket: bool,
    ) -> Result<Rc<RequestHead>, Fault> {
        self.text.clear();
        write(parts, websocket, &mut self.text);
        // A head that ends is either complete or refused.
        let head = self.reader.read(&self.text, 0)?.ok_or(Fault::FieldValue)?.0;
        if head.bytes().len() == self.text.len() { Ok(head) } else { Err(Fault::FieldValue) }
    }

    /// The first line of the head last translated, for the log.
    pub(crate) fn first_line(&self) -> &[u8] {
        &self.text
    }
}

fn write(parts: &request::Parts, websocket: bool, out: &mut Vec<u8>) {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let method = if websocket { "GET" } else { parts.method.as_str() };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    let target = match parts.uri.path_and_query() {
        Some(target) => target.as_str(),
        None if parts.method == http::Method::CONNECT => authority.unwrap_or_default(),
        None => "/",
    };
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/2.0\r\n");
    if let Some(authority) = authority {
        line(out, b"host", authority.as_bytes());
    }
    let mut cookies = 0;
    for (name, value) in &parts.headers {
        if name == header::COOKIE {
            cookies += 1;
        } else if name != header::HOST || authority.is_none() {
            line(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    if cookies > 0 {
        // Clients may send each in a field of its own (RFC 9113 section 8.2.3).
        out.extend_from_slice(b"cookie: ");
        for (i, value) in parts.headers.get_all(header::COOKIE).iter().enumerate() {
            out.extend_from_slice(if i > 0 { b"; " } else { b"" });
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    if websocket {
        out.extend_from_slice(WEBSOCKET);
    }
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The head of a response. `length`: of its body, if known.
pub(crate) fn response_head(response: &Response, length: Option<u64>, date: &HttpDate) -> http::Response<()> {
    let mut head = http::Response::new(());
    *head.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = head.headers_mut();
    fields.reserve(8);
    let date = HeaderValue::from_bytes(date.as_bytes());
    fields.extend(date.ok().map(|date| (header::DATE, date)));
    if let Some(kind) = response.content_type {
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if let Some(length) = length {
        fields.insert(header::CONTENT_LENGTH, length.into());
    }
    add(fields, &response.fields);
    head
}

/// The fields of a trailer section.
pub(crate) fn trailers(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::new();
    add(&mut map, fields);
    map
}

fn add(map: &mut HeaderMap, fields: &Fields) {
    for (name, value) in fields.iter() {
        let name = HeaderName::from_bytes(name);
        let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value));
        if let (Ok(name), Ok(value)) = (name, value)
            && !OF_A_CONNECTION.contains(&name)
        {
            map.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_http::server::{Method, Version};

    fn translated(request: http::request::Builder) -> Result<Rc<RequestHead>, Fault> {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        Heads::new(Limits::default()).translate(&parts, false)
    }

    fn request(target: &str) -> http::request::Builder {
        http::Request::builder().uri(target)
    }

    #[test]
    fn handlers_see_what_http_1_1_would_show_them() {
        let head = translated(
            request("https://example.org/a?b=c")
                .method("PUT")
                .header("cookie", "a=1")
                .header("host", "other.example")
                .header("x", "1")
                .header("cookie", "b=2")
                .header("content-length", "7"),
        )
        .expect("sound");
        assert_eq!((head.method(), head.path(), head.query()), (Method::Put, "/a", Some("b=c")));
        assert_eq!((head.version(), head.host()), (Version::Http2, Some("example.org")));
        assert_eq!(head.field("cookie"), Some(&b"a=1; b=2"[..]));
        assert_eq!(head.fields().filter(|(name, _)| *name == "host" || *name == "cookie").count(), 2);
        assert!(head.keep_alive() && !head.upgrade());
    }

    #[test]
    fn the_checks_are_those_of_http_1_1() {
        assert_eq!(translated(request("/")).map(|_| ()), Err(Fault::HostMissing));
        let user = translated(request("http://user@example.org/"));
        assert_eq!(user.map(|_| ()), Err(Fault::Host));
        let many = (0..200).fold(request("http://h/"), |request, i| request.header(format!("f{i}"), "v"));
        assert_eq!(translated(many).map(|_| ()), Err(Fault::HeadTooLarge));
        let large = request("http://h/").header("f", "v".repeat(40_000));
        assert_eq!(translated(large).map(|_| ()), Err(Fault::HeadTooLarge));
        let long = translated(request(&format!("http://h/{}", "a".repeat(20_000))));
        assert_eq!(long.map(|_| ()), Err(Fault::TargetTooLong));
    }

    #[test]
    fn fields_of_a_connection_are_left_out() {
        let mut response = Response::text("x");
        for (name, value) in [("upgrade", "h2c"), ("X-Own", "1"), ("keep-alive", "timeout=5")] {
            let _ = response.fields.add(name, value);
        }
        let head = response_head(&response, Some(1), &HttpDate::from_unix(0));
        let names: Vec<&str> = head.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["date", "content-type", "content-length", "x-own"]);
    }

    #[test]
    fn a_websocket_is_an_upgrade() {
        let request = request("http://h/chat").method("CONNECT").header("sec-websocket-version", "13");
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let head = Heads::new(Limits::default()).translate(&parts, true).expect("sound");
        assert_eq!((head.method(), head.path(), head.upgrade()), (Method::Get, "/chat", true));
        assert_eq!(head.field_text("upgrade"), Some("websocket"));
    }
}
