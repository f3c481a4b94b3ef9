//! The server of a client.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use http::uri::Scheme;
use http::{HeaderValue, Uri};

use super::error::Error;
use crate::route::authority;

/// Scheme, host and port.
#[derive(Clone, Debug)]
pub(super) struct Target {
    host: String,
    port: u16,
    /// `https`.
    pub(super) secure: bool,
    pub(super) field: HeaderValue,
    /// Addresses instead of those of its name.
    given: Vec<SocketAddr>,
    /// Host and port of the proxy that connections go to instead.
    proxy: Option<(String, u16)>,
}

impl Target {
    /// Of a URL without a path.
    pub(super) fn parse(url: &str) -> Result<Target, Error> {
        let bad = |problem: &str| Error::Builder(format!("the URL {url:?} {problem}"));
        let uri: Uri = url.parse().map_err(|e| bad(&format!("is none: {e}")))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(_) => return Err(bad("must begin with http:// or https://")),
            None => return Err(bad("has no scheme\nhint: write http://HOST:PORT")),
        };
        let authority = uri.authority().ok_or_else(|| bad("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("contains credentials\nhint: send them in the field Authorization"));
        }
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(bad("has a path\nhint: give the path to each request"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("names no host"));
        }
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let field = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("names no host"))?;
        Ok(Target { host, port, secure, field, given: Vec::new(), proxy: None })
    }

    /// The name or address that its certificate has to prove.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// For people to read.
    pub(super) fn shown(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", String::from_utf8_lossy(self.field.as_bytes()))
    }

    /// Connections go to these addresses.
    pub(super) fn give(&mut self, addresses: Vec<SocketAddr>) {
        self.given = addresses;
    }

    /// The program said to which addresses connections go.
    pub(super) fn is_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Connections go to this proxy.
    pub(super) fn go_through(&mut self, host: String, port: u16) {
        self.proxy = Some((host, port));
    }

    /// `host:port`, with the port.
    pub(super) fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// Host and port that connections go to.
    fn place(&self) -> (&str, u16) {
        self.proxy.as_ref().map_or((&self.host, self.port), |(host, port)| (host, *port))
    }

    fn ip(&self) -> Option<IpAddr> {
        self.place().0.parse().ok()
    }

    /// The server's name, or the proxy's, as an error of looking it up names it.
    pub(super) fn looked_up(&self) -> String {
        match &self.proxy {
            Some((host, _)) => format!("the name {host} of the proxy"),
            None => "the name".to_owned(),
        }
    }

    pub(super) fn has_name(&self) -> bool {
        self.ip().is_none() && self.given.is_empty()
    }

    /// Its addresses, if they were given or the URL has one.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        if !self.given.is_empty() {
            return self.given.clone();
        }
        self.ip().map(|ip| SocketAddr::new(ip, self.place().1)).into_iter().collect()
    }

    /// All addresses, by the system's resolver.
    pub(super) async fn look_up(self) -> io::Result<Vec<SocketAddr>> {
        if !self.has_name() {
            return Ok(self.addresses());
        }
        let (host, port) = self.proxy.unwrap_or((self.host, self.port));
        addresses_of(host, port).await
    }
}

/// All addresses of a name, by the system's resolver.
pub(super) async fn addresses_of(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return Ok(tokio::net::lookup_host((host, port)).await?.collect());
    }
    // The system's resolver waits.
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
        // The client may have ended meanwhile.
        let _ = tell.send((host, port).to_socket_addrs().map(Iterator::collect));
    })?;
    told.await.unwrap_or_else(|_| Err(io::Error::other("the lookup broke off")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let target = Target::parse("http://[::1]:8080").unwrap();
        assert_eq!(target.addresses(), ["[::1]:8080".parse().unwrap()]);
        assert_eq!(target.field, "[::1]:8080");
        let target = Target::parse("http://example.org/").unwrap();
        assert!(target.has_name() && target.addresses().is_empty() && target.port == 80);
        let target = Target::parse("https://example.org").unwrap();
        assert!(target.secure && target.port == 443 && target.host() == "example.org");
        for (url, problem) in [
            ("example.org", "no scheme"),
            ("ftp://example.org", "http://"),
            ("http://a:b@example.org", "credentials"),
            ("http://example.org/path", "path"),
            ("http://", "is none"),
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
