//! The HTTP proxy of a client.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use linerate_net::NetError;

use super::error::{Error, ErrorDetail};
use super::options::Protocol;
use super::target::Target;
use crate::route::{NamedProxy, Preamble, Proxy, ProxyProblem, no_proxy};

/// What a program says of proxies.
#[derive(Clone, Default)]
pub(super) struct ProxySettings {
    /// Its URL; empty: none. Otherwise the variables of the environment decide.
    pub(super) url: Option<String>,
    /// Hosts without one, instead of those of the environment.
    pub(super) excepted: Option<String>,
}

/// The URL may hold a password.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings").field("excepted", &self.excepted).finish_non_exhaustive()
    }
}

impl ProxySettings {
    /// The proxy for a target; `is_placed`: the program says itself where connections go.
    pub(super) fn choose(
        &self,
        target: &Target,
        protocol: Protocol,
        is_placed: bool,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<(NamedProxy, ClientProxy)>, Error> {
        if let Some(entry) = self.excepted.as_deref().and_then(no_proxy::impossible) {
            let words = format!("no_proxy_for: {entry:?} is no network");
            return Err(Error::Builder(format!("{words}\nhint: write for example 10.0.0.0/8 or fd00::/8")));
        }
        let said = self.url.as_deref().map(|url| (url, "proxy()"));
        if is_placed && said.is_none_or(|(url, _)| url.is_empty()) {
            return Ok(None);
        }
        let named = NamedProxy::of(target.secure, target.host(), said, self.excepted.as_deref(), variable);
        let named =
            named.map_err(|ProxyProblem { words, hint }| Error::Builder(format!("{words}\nhint: {hint}")))?;
        let Some(named) = named else { return Ok(None) };
        if is_placed {
            let words =
                "proxy() connects to the server by its name, so resolve() and unix_socket() lead nowhere";
            return Err(Error::Builder(format!("{words}\nhint: leave out one of the two")));
        }
        // A proxy forwards requests of HTTP/1.1 alone.
        let tunnels = target.secure || protocol == Protocol::Http2;
        let proxy = named.to(tunnels.then(|| target.authority()));
        let authorization = proxy.authorization().map(HeaderValue::try_from).transpose();
        let mut authorization = authorization
            .map_err(|_| Error::Builder(format!("{}: its user has control characters", named.from)))?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Some((named, ClientProxy { proxy: Arc::new(proxy), authorization })))
    }
}

/// The proxy that a client's connections go to.
#[derive(Clone)]
pub(super) struct ClientProxy {
    proxy: Arc<Proxy>,
    authorization: Option<HeaderValue>,
}

/// Without the user's password.
impl fmt::Debug for ClientProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProxy").field("url", &self.proxy.url).finish_non_exhaustive()
    }
}

impl ClientProxy {
    /// It forwards requests, which then name the whole URL (RFC 9112 section 3.2.2).
    pub(super) fn forwards(&self) -> bool {
        self.proxy.tunnel.is_none()
    }

    /// What it wants to see in each request that it forwards.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// What goes over a connection before TLS or HTTP.
    pub(super) fn preamble(&self) -> Option<Arc<Preamble>> {
        Preamble::new(Some(&self.proxy), None)
    }

    /// No connection to it could be opened.
    pub(super) fn words(&self, why: &str) -> String {
        let Proxy { url, from, .. } = &*self.proxy;
        if why.contains(url.as_str()) { why.to_owned() } else { format!("the proxy {url} ({from}): {why}") }
    }
}

/// Why no connection could be opened.
pub(super) struct ConnectFailure {
    pub(super) words: String,
    pub(super) net: Option<NetError>,
    /// It is the proxy's, with the status of its response to CONNECT.
    pub(super) by_proxy: Option<Option<u16>>,
}

impl ConnectFailure {
    /// The proxy's, with the status of its response, if a connection went to one; else the server's.
    pub(super) fn of(
        proxy: Option<&ClientProxy>,
        words: String,
        net: Option<NetError>,
        status: Option<u16>,
    ) -> ConnectFailure {
        match proxy {
            Some(proxy) => ConnectFailure { words: proxy.words(&words), net, by_proxy: Some(status) },
            None => ConnectFailure { words, net, by_proxy: None },
        }
    }

    /// The server's.
    pub(super) fn of_server(words: impl Into<String>) -> ConnectFailure {
        ConnectFailure { words: words.into(), net: None, by_proxy: None }
    }

    /// Another attempt would end alike: the proxy refuses us, or this server.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.by_proxy, Some(Some(400..500)))
    }

    /// For a call whose request did not leave.
    pub(super) fn error(&self) -> Error {
        let detail = ErrorDetail::by_net(self.words.as_str(), self.net);
        match self.by_proxy {
            Some(status) => {
                let status = status.and_then(|status| http::StatusCode::from_u16(status).ok());
                Error::Proxy { status, detail }
            }
            None => Error::Connect(detail),
        }
    }
}
