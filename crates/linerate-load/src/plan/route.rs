//! How a plan's connections get to the target: plain data. Without any of it, they go to the target's addresses.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use linerate_client::route::Preamble;
pub use linerate_client::route::{
    HaproxyVersion, NamedProxy, Proxy, ProxyProblem, authority, decode_percent, no_proxy,
};
use serde::{Deserialize, Serialize};

/// The way of connections, up to where HTTP begins, or TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// A Unix socket instead of the target's addresses, which are [`NO_ADDRESS`] alone.
    pub unix: Option<PathBuf>,
    /// A proxy, whose addresses are the target's.
    pub proxy: Option<Proxy>,
    /// A line of the PROXY protocol goes before everything else.
    pub haproxy: Option<HaproxyVersion>,
    /// The name that is looked up again when no address can be reached; `None`: addresses were given.
    pub lookup: Option<Lookup>,
    /// Replaces the URL's host and port, as `host:port`, if given (`--connect-to`).
    pub instead: Option<String>,
}

/// Stands for the address of a target that has none.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A name, and which of its addresses are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The name.
    pub host: String,
    /// The port that belongs to its addresses.
    pub port: u16,
    /// IPv6 addresses are used, and otherwise IPv4 ones.
    pub ipv6: bool,
}

impl Route {
    /// What connections need before TLS or HTTP begins on them.
    pub(crate) fn preamble(&self) -> Option<Arc<Preamble>> {
        Preamble::new(self.proxy.as_ref(), self.haproxy)
    }

    /// Where the proxy shall connect us to.
    pub fn tunnel(&self) -> Option<&str> {
        self.proxy.as_ref()?.tunnel.as_deref()
    }

    /// The proxy that forwards requests, which then name the whole URL.
    pub fn forwarder(&self) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|proxy| proxy.tunnel.is_none())
    }

    /// The route as a reader has to know it beside the URL, with a space before it; empty: nothing.
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        // Writing into a String cannot fail.
        if let Some(instead) = &self.instead {
            let _ = write!(shown, " at {instead}");
        }
        if let Some(path) = &self.unix {
            let _ = write!(shown, " over the Unix socket {}", path.display());
        }
        if let Some(proxy) = &self.proxy {
            let _ = write!(shown, " through the proxy {} ({})", proxy.url, proxy.from);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_line_says_of_it() {
        let mut route = Route::default();
        assert_eq!(route.shown(), "");
        route.proxy = Some(Proxy {
            url: "http://p:3128".to_owned(),
            from: "https_proxy".to_owned(),
            user: Some("ada:secret".to_owned()),
            tunnel: None,
        });
        assert_eq!(route.shown(), " through the proxy http://p:3128 (https_proxy)");
        route.instead = Some("127.0.0.1:81".to_owned());
        assert_eq!(route.shown(), " at 127.0.0.1:81 through the proxy http://p:3128 (https_proxy)");
        let proxy = route.proxy.expect("set above");
        assert_eq!(proxy.authorization().as_deref(), Some("Basic YWRhOnNlY3JldA=="));
        let unix = Route { unix: Some("/run/s".into()), ..Route::default() };
        assert_eq!(unix.shown(), " over the Unix socket /run/s");
    }
}
