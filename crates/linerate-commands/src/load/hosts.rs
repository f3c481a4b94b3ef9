//! The hosts of flows beside the plan's target: their URLs, addresses and TLS.

use std::net::SocketAddr;

use linerate_load::plan::Target;
use linerate_load::plan::flow::{FlowHost, FlowPlan};
use linerate_load::plan::route::Route;
use linerate_load::plan::tls::TargetTls;

use super::target::Url;
use crate::args::Resolve;
use crate::args::route::RouteFlags;
use crate::fault::CommandFault;

/// The URLs of hosts, each once and without the target's. Steps get the numbers of theirs.
pub(super) fn settle(flows: Option<&mut FlowPlan>, target: &Url) -> Result<Vec<Url>, CommandFault> {
    let Some(flows) = flows else { return Ok(Vec::new()) };
    let mut urls: Vec<Url> = Vec::new();
    let mut numbers = vec![0];
    let same = |a: &Url, b: &Url| a.is_https() == b.is_https() && a.authority == b.authority;
    for host in &flows.hosts {
        let url = Url::parse(&host.target.url)?;
        if same(&url, target) {
            numbers.push(0);
            continue;
        }
        let known = urls.iter().position(|known| same(known, &url));
        numbers.push(known.unwrap_or(urls.len()) as u32 + 1);
        if known.is_none() {
            urls.push(url);
        }
    }
    for step in flows.flows.iter_mut().flat_map(|flow| &mut flow.steps) {
        step.host = numbers.get(step.host as usize).copied().unwrap_or(0);
    }
    flows.hosts.clear();
    Ok(urls)
}

/// The host of a URL.
pub(super) fn found(
    url: &Url,
    (route, addresses): (Route, Vec<SocketAddr>),
    tls: Option<TargetTls>,
) -> Result<FlowHost, CommandFault> {
    if let Some(proxy) = &route.proxy {
        let message = format!("{} would be reached through the proxy {}", url.authority, proxy.url);
        return Err(CommandFault::input(format!("{message}, and flows that go to several hosts use none"))
            .hint("leave it out with --noproxy '*'"));
    }
    let target = Target { url: url.shown_with(""), authority: url.authority.clone(), addresses };
    Ok(FlowHost { target, lookup: route.lookup, tls })
}

/// Of flags that name hosts, those for this one of several.
pub(super) fn for_host(url: &Url, flags: &mut RouteFlags, resolve: &mut Vec<Resolve>) {
    flags.connect_to.retain(|rule| rule.instead_of(url.host(), url.port()).is_some());
    resolve.retain(|given| url.place().is_given(given));
}

/// Whether each flag that names a host is for one of these.
///
/// # Errors
/// One is for none of them.
pub(super) fn check_flags(urls: &[Url], flags: &RouteFlags, resolve: &[Resolve]) -> Result<(), CommandFault> {
    let known = || urls.iter().map(|url| url.authority.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(given) = resolve.iter().find(|given| !urls.iter().any(|url| url.place().is_given(given))) {
        let message = format!("--resolve names {}:{}, which is no host of the plan", given.host, given.port);
        return Err(CommandFault::input(message).hint(format!("its hosts are {}", known())));
    }
    let is_for =
        |url: &Url| flags.connect_to.iter().any(|rule| rule.instead_of(url.host(), url.port()).is_some());
    if !flags.connect_to.is_empty() && !urls.iter().any(is_for) {
        let message = "no --connect-to is for a host of the plan";
        return Err(CommandFault::input(message).hint(format!("its hosts are {}", known())));
    }
    Ok(())
}
