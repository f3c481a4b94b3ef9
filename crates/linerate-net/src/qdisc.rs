//! Packets that the queueing disciplines of this network namespace dropped, as its kernel counts them
//! (rtnetlink(7), RTM_GETQDISC), without privileges.

use std::collections::BTreeMap;
use std::io;

use crate::netlink::{LINK_HEADER, LINK_NAME, NetlinkRequest, NetlinkSocket, find, flag, kind, u32_at};

/// TCA_STATS2 (linux/rtnetlink.h), and TCA_STATS_QUEUE within it (linux/gen_stats.h).
const STATS: u16 = 7;
const QUEUE: u16 = 3;
/// Bytes of `struct tcmsg`.
const TCMSG: usize = 20;

/// Dropped packets by the interface's name, where an interface has a discipline: of several on one
/// interface the most, since the outer ones count what the inner ones drop.
///
/// # Errors
/// The kernel has no rtnetlink, or seccomp forbids it here.
pub fn dropped() -> io::Result<BTreeMap<String, u64>> {
    let mut netlink = NetlinkSocket::open(libc::NETLINK_ROUTE)?;
    let (mut names, mut drops) = (BTreeMap::new(), BTreeMap::new());
    let links = NetlinkRequest::new(kind::GET_LINK, flag::DUMP, &[0; LINK_HEADER]);
    netlink.ask(links, |_, body| names.extend(named(body)))?;
    let disciplines = NetlinkRequest::new(kind::GET_QDISC, flag::DUMP, &[0; TCMSG]);
    netlink.ask(disciplines, |kind, body| take(kind, body, &mut drops))?;
    let by_name = |(interface, dropped): (u32, u64)| {
        (names.remove(&interface).unwrap_or_else(|| format!("interface {interface}")), dropped)
    };
    Ok(drops.into_iter().map(by_name).collect())
}

/// Adds what a message says of a discipline.
fn take(kind: u16, body: &[u8], drops: &mut BTreeMap<u32, u64>) {
    if let Some((interface, dropped)) = entry(body).filter(|_| kind == kind::NEW_QDISC) {
        let most = drops.entry(interface).or_default();
        *most = (*most).max(dropped);
    }
}

/// The index and the name of a link (`struct ifinfomsg`).
fn named(body: &[u8]) -> Option<(u32, String)> {
    let name = find(body.get(LINK_HEADER..)?, LINK_NAME)?.split(|byte| *byte == 0).next()?;
    Some((u32_at(body, 4)?, String::from_utf8_lossy(name).into_owned()))
}

/// The interface of `struct tcmsg`, and `drops` of `struct gnet_stats_queue` behind it.
fn entry(body: &[u8]) -> Option<(u32, u64)> {
    let queue = find(find(body.get(TCMSG..)?, STATS)?, QUEUE)?;
    Some((u32_at(body, 4)?, u64::from(u32_at(queue, 8)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;

    #[test]
    fn the_kernel_lists_its_disciplines() {
        // Each namespace has at least that of its loopback, or none that counts.
        dropped().expect("rtnetlink is there");
        let mut netlink = NetlinkSocket::open(libc::NETLINK_ROUTE).expect("rtnetlink is there");
        let mut names = BTreeMap::new();
        let links = NetlinkRequest::new(kind::GET_LINK, flag::DUMP, &[0; LINK_HEADER]);
        netlink.ask(links, |_, body| names.extend(named(body))).expect("a list");
        assert!(names.values().any(|name| name == "lo"), "{names:?}");
    }

    #[test]
    fn drops_are_found_behind_other_attributes() {
        let queue: Vec<u8> = [1u32, 2, 77, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let stats = NetlinkRequest::new(0, 0, &[]).with(1, &[0; 12]).with(QUEUE, &queue).finish(0);
        let message = |interface: u32, stats: &[u8]| {
            let mut fixed = [0; TCMSG];
            fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
            let request = NetlinkRequest::new(kind::NEW_QDISC, 0, &fixed);
            request.with(1, b"netem\0").with(STATS | 0x8000, stats).finish(1)
        };
        let mut drops = BTreeMap::new();
        let take_all = |bytes: &[u8], drops: &mut _| {
            messages(bytes).for_each(|(kind, _, body)| take(kind, body, drops));
        };
        let stats = &stats[16..];
        take_all(&[message(3, stats), message(4, &[])].concat(), &mut drops);
        assert_eq!(drops, BTreeMap::from([(3, 77)]));
        for len in [0u32, 1, 15, 16, 35, 36, 40, u32::MAX] {
            let mut damaged = message(5, stats);
            damaged[..4].copy_from_slice(&len.to_ne_bytes());
            take_all(&damaged, &mut drops);
        }
        assert_eq!(drops, BTreeMap::from([(3, 77)]));
    }
}
