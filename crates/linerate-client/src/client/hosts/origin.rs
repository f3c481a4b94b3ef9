//! What a server is told apart by.

use std::fmt;

use http::Uri;

use crate::client::error::Error;

/// Scheme, host and port (RFC 9110 section 4.3.1), of which the first two are without case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HttpOrigin {
    secure: bool,
    /// An IPv6 address is in brackets.
    host: String,
    port: u16,
}

impl HttpOrigin {
    pub(super) fn of(uri: &Uri) -> Result<HttpOrigin, Error> {
        let problem = |what: &str| Err(Error::Request(format!("its URI {uri} {what}").into()));
        let secure = match uri.scheme_str() {
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => false,
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => true,
            Some(_) => return problem("begins neither with http:// nor with https://"),
            None => return problem("names no server\nhint: write http://HOST:PORT/PATH"),
        };
        let Some(authority) = uri.authority() else { return problem("names no server") };
        if authority.as_str().contains('@') {
            return Err(Error::Request(
                "its URI contains credentials\nhint: send them in the field Authorization".into(),
            ));
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(HttpOrigin { secure, host: authority.host().to_ascii_lowercase(), port })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpOrigin { secure, host, port } = self;
        match (secure, port) {
            (true, 443) => write!(f, "https://{host}"),
            (true, port) => write!(f, "https://{host}:{port}"),
            (false, 80) => write!(f, "http://{host}"),
            (false, port) => write!(f, "http://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(uri: &str) -> Result<HttpOrigin, Error> {
        HttpOrigin::of(&uri.parse().unwrap())
    }

    #[test]
    fn case_and_the_usual_port_make_no_difference() {
        for (uri, same) in [
            ("http://Example.org:80/a", "http://example.org"),
            ("HTTPS://example.org:443/?b", "https://example.org"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
        ] {
            assert_eq!(origin(uri).unwrap(), origin(same).unwrap());
            assert_eq!(origin(uri).unwrap().to_string(), same);
        }
        assert_ne!(origin("http://a").unwrap(), origin("https://a").unwrap());
        assert_ne!(origin("http://a").unwrap(), origin("http://a:81").unwrap());
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for (uri, problem) in
            [("/path", "names no server"), ("ftp://a/", "neither"), ("http://u:p@a/", "credentials")]
        {
            let error = origin(uri).unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("u:p"), "{error}");
        }
    }
}
