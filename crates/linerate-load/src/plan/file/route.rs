//! The keys of how connections get to the target.

use std::path::{Path, PathBuf};

use super::FileError;
use super::table::{Item, Table};
use crate::plan::route::HaproxyVersion;

pub(super) const KEYS: &[&str] =
    &["unix_socket", "connect_to", "resolve", "proxy", "noproxy", "haproxy_protocol"];

/// What a plan file, or a command that a plan is made from, says of the way of connections. The text is as in the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteKeys {
    /// `unix_socket`; what is not absolute lies beside the plan.
    pub unix_socket: Option<PathBuf>,
    /// `connect_to`: each as `HOST1:PORT1:HOST2:PORT2`.
    pub connect_to: Vec<String>,
    /// `resolve`: each as `HOST:PORT:ADDRESS[,ADDRESS]`.
    pub resolve: Vec<String>,
    /// `proxy`: its URL.
    pub proxy: Option<String>,
    /// `noproxy`: hosts without it.
    pub noproxy: Option<String>,
    /// `haproxy_protocol`: `true`, `"v1"` or `"v2"`.
    pub haproxy_protocol: Option<HaproxyVersion>,
}

pub(super) fn read(top: &Table<'_>) -> Result<RouteKeys, FileError> {
    let text = |key: &str, what: &str| top.read(key, |i| i.text(what).map(str::to_owned));
    let several = |key: &str, what: &str| {
        let read = |item: &Item<'_>| {
            item.one_or_more().into_iter().map(|one| one.text(what).map(str::to_owned)).collect()
        };
        Ok(top.read(key, read)?.unwrap_or_default())
    };
    let socket = text("unix_socket", "the path of a socket, such as \"/run/app.sock\"")?;
    let beside = top.source.path.parent().unwrap_or(Path::new(""));
    let haproxy = top.read("haproxy_protocol", |item| match item.flag() {
        Ok(is_on) => Ok(is_on.then_some(HaproxyVersion::V1)),
        Err(_) => item.choice(&[("v1", Some(HaproxyVersion::V1)), ("v2", Some(HaproxyVersion::V2))]),
    })?;
    Ok(RouteKeys {
        unix_socket: socket.map(|socket| beside.join(socket)),
        connect_to: several("connect_to", "\"HOST1:PORT1:HOST2:PORT2\", or an array of such")?,
        resolve: several("resolve", "\"HOST:PORT:ADDRESS\", or an array of such")?,
        proxy: text("proxy", "the URL of a proxy, such as \"http://127.0.0.1:3128\"")?,
        noproxy: text("noproxy", "hosts separated by commas, or \"*\"")?,
        haproxy_protocol: haproxy.flatten(),
    })
}
