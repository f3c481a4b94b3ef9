//! The flags of how connections get to the target, as curl has them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linerate_load::plan::file::RouteKeys;
use linerate_load::plan::route::HaproxyVersion;
use linerate_load::plan::units::quoted;

use super::request::WHERE;

/// How connections get to the target.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RouteFlags {
    /// Connect to this Unix socket instead of the URL's host, as in curl; Host stays the URL's
    #[arg(long, value_name = "PATH", help_heading = WHERE)]
    pub(crate) unix_socket: Option<PathBuf>,

    /// For HOST1:PORT1 of a URL connect to HOST2:PORT2, as in curl; empty parts stand for any, or for the same; repeatable
    ///
    /// Host and TLS stay those of the URL. The first one that fits counts.
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", value_parser = ConnectTo::parse, help_heading = WHERE)]
    pub(crate) connect_to: Vec<ConnectTo>,

    /// Use this HTTP proxy: [http://][USER:PASSWORD@]HOST[:PORT], port 1080 without one; "" uses none
    ///
    /// https:// URLs go through CONNECT; of http:// URLs the proxy forwards each request. Without it the variables http_proxy
    /// (in small letters only), https_proxy, all_proxy and no_proxy decide, as they do for curl.
    #[arg(short = 'x', long, value_name = "URL", help_heading = WHERE)]
    pub(crate) proxy: Option<String>,

    /// Hosts that are reached without a proxy: names, domains, addresses, networks as 10.0.0.0/8; * for all
    #[arg(long, value_name = "LIST", help_heading = WHERE)]
    pub(crate) noproxy: Option<String>,

    /// Begin each connection with a line of HAProxy's PROXY protocol; v2 is its binary form [default: v1]
    #[arg(
        long,
        value_name = "VERSION",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "v1",
        help_heading = WHERE
    )]
    pub(crate) haproxy_protocol: Option<Haproxy>,
}

/// `--haproxy-protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Haproxy {
    /// A line of text, as curl sends it
    V1,
    /// Binary
    V2,
}

impl From<Haproxy> for HaproxyVersion {
    fn from(version: Haproxy) -> HaproxyVersion {
        match version {
            Haproxy::V1 => HaproxyVersion::V1,
            Haproxy::V2 => HaproxyVersion::V2,
        }
    }
}

/// `--connect-to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectTo {
    /// For this host; `None`: for any.
    host: Option<String>,
    port: Option<u16>,
    /// The host to connect to; `None`: the same.
    to_host: Option<String>,
    to_port: Option<u16>,
}

impl ConnectTo {
    /// Reads `HOST1:PORT1:HOST2:PORT2`.
    pub(crate) fn parse(text: &str) -> Result<ConnectTo, String> {
        const EXAMPLE: &str =
            "write HOST1:PORT1:HOST2:PORT2, for example example.com:443:127.0.0.1:8443 or ::127.0.0.1:8443";
        let (host, rest) = host_of(text).ok_or_else(|| format!("{}: {EXAMPLE}", quoted(text)))?;
        let (port, rest) = rest.split_once(':').ok_or_else(|| format!("{}: {EXAMPLE}", quoted(text)))?;
        let (to_host, to_port) = host_of(rest).ok_or_else(|| format!("{}: {EXAMPLE}", quoted(text)))?;
        let port_of = |port: &str| match port.parse::<u16>() {
            _ if port.is_empty() => Ok(None),
            Ok(port @ 1..) => Ok(Some(port)),
            _ => Err(format!("port {} is not between 1 and 65535; {EXAMPLE}", quoted(port))),
        };
        let given = |host: &str| (!host.is_empty()).then(|| bare(host).to_ascii_lowercase());
        Ok(ConnectTo {
            host: given(host),
            port: port_of(port)?,
            to_host: given(to_host),
            to_port: port_of(to_port)?,
        })
    }

    /// Where to connect for this host and port; `None`: it is not for them.
    pub(crate) fn instead_of(&self, host: &str, port: u16) -> Option<(String, u16)> {
        let fits = self.host.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(host))
            && self.port.is_none_or(|own| own == port);
        fits.then(|| (self.to_host.clone().unwrap_or_else(|| host.to_owned()), self.to_port.unwrap_or(port)))
    }
}

/// A host, which may be an IPv6 address in brackets, and what follows the colon behind it.
fn host_of(text: &str) -> Option<(&str, &str)> {
    let end = match text.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => text.find(':')?,
    };
    let (host, rest) = text.split_at_checked(end)?;
    Some((host, rest.strip_prefix(':')?))
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

impl RouteFlags {
    /// These flags laid over what a plan file or a curl command says.
    pub(crate) fn over(&self, file: &RouteKeys) -> Result<RouteFlags, String> {
        let parsed = file
            .connect_to
            .iter()
            .map(|text| ConnectTo::parse(text).map_err(|why| format!("connect_to: {why}")));
        let mut connect_to = self.connect_to.clone();
        connect_to.extend(parsed.collect::<Result<Vec<_>, _>>()?);
        let haproxy = |version| if version == HaproxyVersion::V1 { Haproxy::V1 } else { Haproxy::V2 };
        Ok(RouteFlags {
            unix_socket: self.unix_socket.clone().or_else(|| file.unix_socket.clone()),
            connect_to,
            proxy: self.proxy.clone().or_else(|| file.proxy.clone()),
            noproxy: self.noproxy.clone().or_else(|| file.noproxy.clone()),
            haproxy_protocol: self.haproxy_protocol.or(file.haproxy_protocol.map(haproxy)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instead(text: &str, host: &str, port: u16) -> Option<(String, u16)> {
        ConnectTo::parse(text).expect("well-formed").instead_of(host, port)
    }

    #[test]
    fn connect_to_as_in_curl() {
        let to = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(instead("h:80:127.0.0.1:81", "h", 80), to("127.0.0.1", 81));
        assert_eq!(instead("H:80:127.0.0.1:81", "h", 80), to("127.0.0.1", 81));
        assert_eq!(instead("h:80:127.0.0.1:81", "h", 443), None);
        assert_eq!(instead("h:80:127.0.0.1:81", "g", 80), None);
        assert_eq!(instead("::g:", "h", 80), to("g", 80));
        assert_eq!(instead(":80::81", "h", 80), to("h", 81));
        assert_eq!(instead("[::1]:80:[::2]:81", "::1", 80), to("::2", 81));
        for text in ["", "h", "h:80", "h:80:g", "h:x:g:1", "h:80:g:0", "[::1:80:g:1", "h:80:g:99999"] {
            assert!(ConnectTo::parse(text).is_err(), "{text}");
        }
    }
}
