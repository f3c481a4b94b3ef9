//! Moves clients to HTTPS: redirects, and `Strict-Transport-Security` (RFC 6797).

use std::str::FromStr;

use crate::content::host_name::without_port;
use crate::{HostName, Request, Response};

/// The default port of `https` (RFC 9110 section 4.2.2).
const HTTPS: u16 = 443;

/// Redirects to the same URL with `https`. Method and body are kept (RFC 9110 section 15.4.9).
pub(crate) fn redirect(request: &Request, port: u16) -> Response {
    let host = request.head().host().map(without_port);
    let Some(host) = host.filter(|host| host.parse::<HostName>().is_ok()) else {
        return Response::explained(400, "without a host name there is no address to go to by https");
    };
    let mut place = format!("https://{host}");
    if port != HTTPS {
        place += &format!(":{port}");
    }
    // `OPTIONS *` asks the server, which has no path (RFC 9110 section 7.1).
    if request.path() != "*" {
        place += request.path();
    }
    if let Some(query) = request.query() {
        place.push('?');
        place += query;
    }
    let mut answer = Response::explained(308, "it is reached by https");
    match answer.fields.add("location", &place) {
        Ok(()) => answer,
        Err(_) => Response::explained(400, "there is no such place"),
    }
}

/// The value of `Strict-Transport-Security`: for how long browsers use only HTTPS for the host.
///
/// ```
/// use linerate_serve::Hsts;
///
/// assert_eq!("max-age=600".parse::<Hsts>()?, Hsts::seconds(600));
/// # Ok::<(), linerate_serve::BadHsts>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hsts(String);

/// Not a value of `Strict-Transport-Security`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write how long, such as \"365d\", or the whole value, such as \"max-age=31536000; includeSubDomains\""
)]
pub struct BadHsts;

impl Hsts {
    /// A value with only `max-age`.
    pub fn seconds(seconds: u64) -> Hsts {
        Hsts(format!("max-age={seconds}"))
    }

    pub(crate) fn apply(&self, response: &mut Response) {
        // The handler's own field has precedence: browsers read only one (RFC 6797 section 8.1).
        if response.field("strict-transport-security").is_none() {
            // It was checked when it was made.
            let _ = response.fields.add("strict-transport-security", &self.0);
        }
    }
}

impl FromStr for Hsts {
    type Err = BadHsts;

    /// Directives, `max-age` among them (RFC 6797 section 6.1).
    fn from_str(text: &str) -> Result<Hsts, BadHsts> {
        let directives = || text.split(';').map(str::trim);
        let is_age = |directive: &str| {
            let age = directive.strip_prefix("max-age=");
            age.is_some_and(|age| !age.is_empty() && age.bytes().all(|b| b.is_ascii_digit()))
        };
        let is_known = |directive: &str| {
            is_age(directive)
                || directive.eq_ignore_ascii_case("includeSubDomains")
                || directive.eq_ignore_ascii_case("preload")
        };
        let is_right = directives().all(is_known) && directives().filter(|d| is_age(d)).count() == 1;
        if is_right { Ok(Hsts(text.trim().to_owned())) } else { Err(BadHsts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(request: Request, port: u16) -> (u16, Option<String>) {
        let answer = redirect(&request, port);
        (answer.code(), answer.field("location").map(str::to_owned))
    }

    #[test]
    fn the_same_url_with_https() {
        let get =
            |target: &str, host: &str| Request::builder("GET", target).field("host", host).build().unwrap();
        let to = |text: &str| (308, Some(text.to_owned()));
        assert_eq!(place(get("/a%20b?c=d", "example.org"), 443), to("https://example.org/a%20b?c=d"));
        assert_eq!(place(get("/", "Example.org:80"), 8443), to("https://Example.org:8443/"));
        assert_eq!(place(get("/", "[::1]:80"), 443), to("https://[::1]/"));
        assert_eq!(
            place(get("//evil.example/", "example.org"), 443),
            to("https://example.org//evil.example/")
        );
        assert_eq!(place(get("/", "a!b"), 443).0, 400);
        let options = Request::builder("OPTIONS", "*").field("host", "example.org").build().unwrap();
        assert_eq!(place(options, 8443), to("https://example.org:8443"));
    }

    #[test]
    fn values_of_hsts() {
        assert_eq!(Hsts::seconds(60).0, "max-age=60");
        for good in ["max-age=0", "max-age=31536000; includeSubDomains; preload"] {
            assert_eq!(good.parse::<Hsts>().map(|hsts| hsts.0), Ok(good.to_owned()));
        }
        for bad in
            ["", "max-age", "max-age=", "max-age=-1", "includeSubDomains", "max-age=1; evil\r\nx: y", "365d"]
        {
            assert_eq!(bad.parse::<Hsts>(), Err(BadHsts), "{bad}");
        }
    }
}
