//! Which request follows a redirect (RFC 9110 section 15.4).

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE,
    COOKIE, HOST, HeaderName, LAST_MODIFIED, LOCATION, ORIGIN, PROXY_AUTHORIZATION, REFERER,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::origin::HttpOrigin;
use super::reference::resolve;
use crate::client::error::{Error, ErrorDetail};

/// What becomes of redirects: 301, 302, 303, 307 and 308 with a field Location.
///
/// A request that follows one has the method of the first, but becomes a GET without body after 303, and after 301 and
/// 302 if it was a POST. To another origin it goes without Authorization, Cookie, Proxy-Authorization, Origin and
/// Referer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirects {
    most: u32,
}

impl Redirects {
    /// A redirect is the response.
    pub fn none() -> Redirects {
        Redirects { most: 0 }
    }

    /// Follows this many in a row. One more is [`Error::Redirect`], as is a request that was sent before.
    pub fn up_to(most: u32) -> Redirects {
        Redirects { most }
    }
}

impl Default for Redirects {
    fn default() -> Redirects {
        Redirects::up_to(10)
    }
}

/// The requests of one call so far.
pub(super) struct Trail {
    redirects: Redirects,
    sent: Vec<(Method, Uri)>,
}

/// Fields that only the server of the first request may see.
const PRIVATE: [HeaderName; 5] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, ORIGIN, REFERER];

/// Fields about a body that goes.
const ABOUT_BODY: [HeaderName; 7] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_TYPE,
    LAST_MODIFIED,
    TRANSFER_ENCODING,
];

impl Trail {
    pub(super) fn new(redirects: Redirects) -> Trail {
        Trail { redirects, sent: Vec::new() }
    }

    /// The request to send after this response; `None`: it is the last one.
    pub(super) fn next<B>(
        &mut self,
        request: &Request<Bytes>,
        response: &Response<B>,
    ) -> Result<Option<Request<Bytes>>, Error> {
        let Some(location) = location(response).filter(|_| self.redirects.most > 0) else { return Ok(None) };
        self.sent.push((request.method().clone(), request.uri().clone()));
        let text = String::from_utf8_lossy(location);
        let bad = |e: http::uri::InvalidUri| {
            let words = format!("{} redirects to {text:?}, which is no URI: {e}", request.uri());
            Error::Redirect(ErrorDetail::by(words, e))
        };
        let uri = resolve(request.uri(), &text).map_err(bad)?;
        let to = HttpOrigin::of(&uri)
            .map_err(|e| Error::Redirect(ErrorDetail::by(format!("{} redirects: {e}", request.uri()), e)))?;
        let mut next = request.clone();
        next.headers_mut().remove(HOST);
        if becomes_get(response.status(), request.method()) {
            *next.method_mut() = Method::GET;
            *next.body_mut() = Bytes::new();
            remove(next.headers_mut(), &ABOUT_BODY);
        }
        if to != HttpOrigin::of(request.uri())? {
            remove(next.headers_mut(), &PRIVATE);
        }
        *next.uri_mut() = uri;
        self.check(next.method(), next.uri())?;
        Ok(Some(next))
    }

    /// Whether one more may be followed.
    fn check(&self, method: &Method, uri: &Uri) -> Result<(), Error> {
        let before = self.sent.iter().position(|(m, u)| m == method && u == uri);
        if let Some(before) = before {
            let mut round: Vec<String> = self.sent[before..].iter().map(|(_, uri)| uri.to_string()).collect();
            round.push(uri.to_string());
            return Err(Error::Redirect(format!("they go round: {}", round.join(" -> ")).into()));
        }
        if self.sent.len() > self.redirects.most as usize {
            let words = format!("more than {} in a row, the last to {uri}", self.redirects.most);
            return Err(Error::Redirect(format!("{words}\nhint: raise Redirects::up_to").into()));
        }
        Ok(())
    }
}

fn remove(fields: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        fields.remove(name);
    }
}

/// Where a redirect leads. Without the field, it is a response like any other.
fn location<B>(response: &Response<B>) -> Option<&[u8]> {
    matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308)
        .then(|| response.headers().get(LOCATION))
        .flatten()
        .map(http::HeaderValue::as_bytes)
}

/// RFC 9110 sections 15.4.2 to 15.4.4.
fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(status: u16, to: &str) -> Response<()> {
        Response::builder().status(status).header(LOCATION, to).body(()).unwrap()
    }

    fn request(method: &str, uri: &str) -> Request<Bytes> {
        let request = Request::builder().method(method).uri(uri).header(AUTHORIZATION, "secret");
        request.header(COOKIE, "a=b").header(CONTENT_TYPE, "text/plain").body(Bytes::from("body")).unwrap()
    }

    fn after(status: u16, method: &str, to: &str) -> Request<Bytes> {
        let mut trail = Trail::new(Redirects::default());
        trail.next(&request(method, "http://a/b"), &redirect(status, to)).unwrap().unwrap()
    }

    #[test]
    fn rfc9110_15_4_the_method_and_body_of_what_follows() {
        for (status, method, expected) in [
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (303, "POST", "GET"),
            (303, "PUT", "GET"),
            (303, "HEAD", "HEAD"),
            (301, "PUT", "PUT"),
            (302, "DELETE", "DELETE"),
            (307, "POST", "POST"),
            (308, "POST", "POST"),
        ] {
            let next = after(status, method, "/c");
            assert_eq!(next.method(), expected, "{status} after {method}");
            let is_bare = expected == "GET";
            assert_eq!(next.body().is_empty(), is_bare, "{status} after {method}");
            assert_eq!(next.headers().contains_key(CONTENT_TYPE), !is_bare, "{status} after {method}");
        }
    }

    #[test]
    fn another_origin_gets_no_secrets() {
        for (to, keeps) in [
            ("/c", true),
            ("http://A:80/c", true),
            ("https://a/c", false),
            ("http://a:81/c", false),
            ("//b/c", false),
        ] {
            let next = after(302, "GET", to);
            for name in [AUTHORIZATION, COOKIE] {
                assert_eq!(next.headers().contains_key(name), keeps, "{to}");
            }
        }
    }

    #[test]
    fn what_is_no_redirect_is_the_response() {
        let mut trail = Trail::new(Redirects::default());
        let given = request("GET", "http://a/b");
        for status in [200, 300, 304, 305, 404] {
            assert!(trail.next(&given, &redirect(status, "/c")).unwrap().is_none(), "{status}");
        }
        let bare = Response::builder().status(302).body(()).unwrap();
        assert!(trail.next(&given, &bare).unwrap().is_none());
        let mut none = Trail::new(Redirects::none());
        assert!(none.next(&given, &redirect(302, "/c")).unwrap().is_none());
    }

    #[test]
    fn rounds_are_named_and_chains_end() {
        let mut trail = Trail::new(Redirects::default());
        let second = trail.next(&request("GET", "http://a/1"), &redirect(302, "/2")).unwrap().unwrap();
        let error = trail.next(&second, &redirect(302, "/1")).unwrap_err().to_string();
        assert!(error.contains("http://a/1 -> http://a/2 -> http://a/1"), "{error}");
        let mut trail = Trail::new(Redirects::up_to(3));
        let mut next = request("GET", "http://a/0");
        for n in 1..=3 {
            next = trail.next(&next, &redirect(302, &format!("/{n}"))).unwrap().unwrap();
        }
        let error = trail.next(&next, &redirect(302, "/4")).unwrap_err().to_string();
        assert!(error.contains("more than 3"), "{error}");
    }

    #[test]
    fn what_is_no_uri_of_http_is_named() {
        for to in ["ftp://a/", "http://u:p@a/", "javascript:alert(1)", "http://["] {
            let mut trail = Trail::new(Redirects::default());
            let error = trail.next(&request("GET", "http://a/b"), &redirect(302, to)).unwrap_err();
            assert!(matches!(error, Error::Redirect(_)), "{error}");
        }
    }
}
