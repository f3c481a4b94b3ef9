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

#[cfg(test)]
mod tests {
    use super::super::PlanFile;
    use super::*;

    fn route(text: &str) -> RouteKeys {
        PlanFile::parse(text, Path::new("plans/plan.toml")).expect(text).route
    }

    #[test]
    fn keys_as_the_flags_have_them() {
        let keys = route(
            "unix_socket = \"s.sock\"\nconnect_to = [\"::a:1\", \"b:2:c:3\"]\nresolve = \"h:80:::1\"\nproxy = \"p:3128\"\n\
             noproxy = \"*\"\nhaproxy-protocol = true",
        );
        assert_eq!(keys.unix_socket, Some("plans/s.sock".into()));
        assert_eq!(
            (keys.connect_to, keys.resolve),
            (vec!["::a:1".into(), "b:2:c:3".into()], vec!["h:80:::1".into()])
        );
        assert_eq!((keys.proxy.as_deref(), keys.noproxy.as_deref()), (Some("p:3128"), Some("*")));
        assert_eq!(keys.haproxy_protocol, Some(HaproxyVersion::V1));
        assert_eq!(route("unix_socket = \"/run/s\"").unix_socket, Some("/run/s".into()));
        assert_eq!(route("haproxy_protocol = \"v2\"").haproxy_protocol, Some(HaproxyVersion::V2));
        assert_eq!(route("haproxy_protocol = false"), RouteKeys::default());
        for text in ["haproxy_protocol = \"v3\"", "unix_socket = 1", "connect_to = [1]"] {
            assert!(PlanFile::parse(text, Path::new("plan.toml")).is_err(), "{text}");
        }
    }
}
