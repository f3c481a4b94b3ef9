//! How connections get to the target: flags over the environment.

use std::net::SocketAddr;

use linerate_load::plan::route::{Lookup, NO_ADDRESS, NamedProxy, ProxyProblem, Route, authority, no_proxy};
use linerate_load::plan::units::quoted;

use super::target::{HostPort, Url, Wish};
use crate::args::route::{ConnectTo, RouteFlags};
use crate::fault::CommandFault;

/// Longest path of a Unix socket: the kernel's structure has 108 bytes, the last of which is 0.
const LONGEST_PATH: usize = 107;

/// The way to a URL, the addresses that connections go to, and whether there are others of another family.
pub(super) fn to(
    url: &Url,
    flags: &RouteFlags,
    wish: &Wish<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Route, Vec<SocketAddr>, bool), CommandFault> {
    if flags.unix_socket.is_some() {
        return over_unix(flags, wish).map(|route| (route, vec![NO_ADDRESS], false));
    }
    let instead = instead(url, &flags.connect_to)?;
    let (host, port) = match &instead {
        Some((host, port)) => (host.as_str(), *port),
        None => (url.host(), url.port()),
    };
    let shown = authority(host, port);
    let mut route = Route {
        haproxy: flags.haproxy_protocol.map(Into::into),
        instead: instead.as_ref().map(|_| shown.clone()),
        ..Route::default()
    };
    let Some(found) = proxy(url, flags, variable)? else {
        let what = if instead.is_some() { "--connect-to leads to" } else { "the URL asks for" };
        let place = HostPort { host, port, what };
        let found = place.addresses(wish)?;
        route.lookup = lookup(&place, found.is_name, &found.addresses);
        return Ok((route, found.addresses, found.others));
    };
    let place = HostPort { host: &found.host, port: found.port, what: "the proxy is" };
    let at =
        place.addresses(wish).map_err(|fault| fault.hint(format!("the proxy comes from {}", found.from)))?;
    route.lookup = lookup(&place, at.is_name, &at.addresses);
    // As curl does it: what a proxy forwards goes to the URL's own host, so another one needs a tunnel.
    let tunnels = url.is_https() || instead.is_some();
    route.proxy = Some(found.to(tunnels.then_some(shown)));
    Ok((route, at.addresses, at.others))
}

/// Over a Unix socket there is neither an address nor a proxy.
fn over_unix(flags: &RouteFlags, wish: &Wish<'_>) -> Result<Route, CommandFault> {
    let others = [
        ("--proxy", flags.proxy.as_ref().is_some_and(|proxy| !proxy.is_empty())),
        ("--connect-to", !flags.connect_to.is_empty()),
        ("--resolve", !wish.resolve.is_empty()),
        ("--from", !wish.from.is_empty()),
        ("-4", wish.ipv4),
        ("-6", wish.ipv6),
    ];
    if let Some((flag, _)) = others.iter().find(|(_, given)| *given) {
        let message = format!("{flag} is about addresses, and --unix-socket connects to none");
        return Err(CommandFault::input(message).hint("leave out one of the two"));
    }
    let path = flags.unix_socket.clone().unwrap_or_default();
    let len = path.as_os_str().len();
    if len == 0 || len > LONGEST_PATH {
        let message =
            format!("--unix-socket {}: a path has 1 to {LONGEST_PATH} bytes, not {len}", path.display());
        return Err(
            CommandFault::input(message).hint("name it from a folder that is nearer, or by a symbolic link")
        );
    }
    Ok(Route { unix: Some(path), haproxy: flags.haproxy_protocol.map(Into::into), ..Route::default() })
}

/// What stands for the URL's host and port, if something does.
pub(crate) fn instead(url: &Url, rules: &[ConnectTo]) -> Result<Option<(String, u16)>, CommandFault> {
    let found = rules.iter().find_map(|rule| rule.instead_of(url.host(), url.port()));
    if found.is_none() && !rules.is_empty() {
        let message = format!("no --connect-to is for {}:{}, which the URL asks for", url.host(), url.port());
        return Err(CommandFault::input(message).hint("leave HOST1 or PORT1 empty for any: ::HOST2:PORT2"));
    }
    Ok(found)
}

/// A name is looked up again should its addresses fail.
fn lookup(place: &HostPort<'_>, is_name: bool, addresses: &[SocketAddr]) -> Option<Lookup> {
    let ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    is_name.then(|| Lookup { host: place.host.to_owned(), port: place.port, ipv6 })
}

/// The proxy for a URL: the flag's, or that of the variables that curl reads for it.
fn proxy(
    url: &Url,
    flags: &RouteFlags,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<NamedProxy>, CommandFault> {
    // A variable is another program's business too, which may read more into it.
    if let Some(entry) = flags.noproxy.as_deref().and_then(no_proxy::impossible) {
        return Err(CommandFault::input(format!("--noproxy: {} is no network", quoted(entry)))
            .hint("write an address and the number of its bits, such as 10.0.0.0/8 or fd00::/8"));
    }
    let said = flags.proxy.as_deref().map(|text| (text, "--proxy"));
    NamedProxy::of(url.is_https(), url.host(), said, flags.noproxy.as_deref(), variable)
        .map_err(|ProxyProblem { words, hint }| CommandFault::input(words).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        url: &str,
        flags: &RouteFlags,
        variables: &[(&str, &str)],
    ) -> Result<Option<String>, CommandFault> {
        let variable =
            |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        let found = proxy(&Url::parse(url)?, flags, &variable)?;
        Ok(found.map(|n| format!("{} {}:{} {:?}", n.from, n.host, n.port, n.user)))
    }

    fn by_variables(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        chosen(url, &RouteFlags::default(), variables).expect("sound")
    }

    #[test]
    fn exceptions_and_flags() {
        let one = [("http_proxy", "p:1"), ("NO_PROXY", "g,h")];
        assert_eq!(by_variables("http://h/", &one), None);
        assert!(by_variables("http://i/", &one).is_some());
        let flags = RouteFlags { noproxy: Some(String::new()), ..RouteFlags::default() };
        assert!(chosen("http://h/", &flags, &one).expect("sound").is_some(), "the flag's list alone counts");
        let flags = RouteFlags { proxy: Some("q:2".to_owned()), ..RouteFlags::default() };
        let variables = [("http_proxy", "p:1")];
        assert_eq!(
            chosen("http://h/", &flags, &variables).expect("sound").as_deref(),
            Some("--proxy q:2 None")
        );
        let flags = RouteFlags { proxy: Some(String::new()), ..RouteFlags::default() };
        assert_eq!(chosen("http://h/", &flags, &variables), Ok(None));
    }

    #[test]
    fn a_network_that_cannot_be_is_refused() {
        let flags = RouteFlags { noproxy: Some("10.0.0.0/33".to_owned()), ..RouteFlags::default() };
        let said = chosen("http://h/", &flags, &[("http_proxy", "p:1")]).expect_err("no network");
        assert!(said.to_string().contains("--noproxy: \"10.0.0.0/33\" is no network"), "{said}");
        assert_eq!(by_variables("http://h/", &[("http_proxy", "p:1"), ("no_proxy", "h/33,h")]), None);
    }
}
