//! Which clients are served, by their address.

use std::net::{IpAddr, SocketAddr};

use super::Network;

/// Networks whose clients are served, and networks whose clients are not.
///
/// Of the networks that have a client's address, the smallest decides; one that is in both lists
/// denies. Clients in none of them are served unless `allow` has some. Clients of a Unix socket have
/// no address: the permissions of its folder decide.
///
/// ```
/// use linerate_serve::NetworkAccess;
///
/// let access = NetworkAccess { allow: vec!["10.0.0.0/8".parse()?], deny: vec!["10.9.0.0/16".parse()?] };
/// assert!(access.admits("10.1.2.3".parse()?) && !access.admits("10.9.2.3".parse()?));
/// assert!(!access.admits("192.0.2.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkAccess {
    /// These clients are served, and others are not; empty: all are.
    pub allow: Vec<Network>,
    /// These clients are not served.
    pub deny: Vec<Network>,
}

impl NetworkAccess {
    /// Whether it refuses nobody.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether a client with this address is served. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn admits(&self, ip: IpAddr) -> bool {
        let smallest = |of: &[Network]| of.iter().filter(|net| net.contains(ip)).map(|net| net.bits()).max();
        match (smallest(&self.allow), smallest(&self.deny)) {
            (Some(allow), Some(deny)) => allow > deny,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.allow.is_empty(),
        }
    }

    /// The same; `None` has no address.
    pub(crate) fn admits_peer(&self, peer: Option<SocketAddr>) -> bool {
        self.is_open() || peer.is_none_or(|peer| self.admits(peer.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(allow: &str, deny: &str) -> NetworkAccess {
        let networks = |text: &str| text.split_whitespace().map(|net| net.parse().expect(net)).collect();
        NetworkAccess { allow: networks(allow), deny: networks(deny) }
    }

    #[test]
    fn the_smallest_network_decides() {
        for (allow, deny, admitted, refused) in [
            ("", "", "10.0.0.1 ::1", ""),
            ("10.0.0.0/8", "", "10.1.2.3 ::ffff:10.1.2.3", "11.0.0.1 ::1 ::ffff:11.0.0.1"),
            ("", "10.0.0.0/8 2001:db8::/32", "11.0.0.1 2001:db9::1", "10.1.2.3 ::ffff:10.1.2.3 2001:db8::1"),
            ("10.0.0.0/8", "10.9.0.0/16", "10.8.0.1", "10.9.0.1 11.0.0.1"),
            ("10.9.1.0/24 0.0.0.0/0 ::/0", "10.9.0.0/16", "10.9.1.1 11.0.0.1 ::1", "10.9.2.1"),
            ("10.0.0.1", "10.0.0.1", "", "10.0.0.1"),
            ("::ffff:10.0.0.0/104", "", "10.1.2.3", "11.1.2.3"),
            ("2001:db8::/32", "2001:db8:1::/48", "2001:db8:2::1", "2001:db8:1::1 10.0.0.1"),
        ] {
            let access = access(allow, deny);
            let ips =
                |text: &str| -> Vec<IpAddr> { text.split(' ').filter_map(|ip| ip.parse().ok()).collect() };
            for ip in ips(admitted) {
                assert!(access.admits(ip), "{ip}: allow {allow}, deny {deny}");
            }
            for ip in ips(refused) {
                assert!(!access.admits(ip), "{ip}: allow {allow}, deny {deny}");
            }
            assert!(access.admits_peer(None));
        }
    }
}
