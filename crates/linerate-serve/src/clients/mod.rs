//! Who asks: limits for each client's address, and proxies that say for whom they ask.

mod forwarded;
mod network;
mod proxy;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_http::server::RequestHead;
use linerate_net::Time;

pub use self::network::{BadNetwork, Network};
pub(crate) use self::proxy::{Preface, preface};

/// Clients that are remembered at a time. Reason: an entry takes 50 bytes; who comes beyond is not limited, and finds the limits of
/// all.
const CLIENTS: usize = 1 << 16;
/// Tables they are spread over. Reason: threads seldom want the same at the same moment.
const SHARDS: usize = 16;

/// What is granted to each client, and whom a proxy may speak for. A client is an IPv4 address, or the /64 of an IPv6 address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRules {
    /// Connections open at once; those beyond are closed at once. Trusted proxies are not limited.
    pub connections: Option<u32>,
    /// Requests per second; as many may come at once. Those beyond are answered with 429.
    pub rate: Option<f64>,
    /// Proxies whose `Forwarded` and `X-Forwarded-For` count: the client is the last address of them that is not trusted.
    pub trusted: Vec<Network>,
    /// Connections of trusted proxies begin with the PROXY protocol, version 1 or 2.
    pub proxy_protocol: bool,
}

impl ClientRules {
    /// Whether this peer may speak for others.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// For whom a request is asked.
    pub(crate) fn client(&self, head: &RequestHead, peer: SocketAddr) -> SocketAddr {
        if self.trusted.is_empty() || !self.trusts(peer.ip()) {
            return peer;
        }
        forwarded::client(head, |ip| self.trusts(ip)).unwrap_or(peer)
    }
}

/// What all threads of a server know of its clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    shards: [Mutex<HashMap<IpAddr, Client>>; SHARDS],
}

#[derive(Clone, Copy, Debug)]
struct Client {
    open: u32,
    /// Requests that may come now, and when that was so.
    tokens: f64,
    at: Time,
}

impl Clients {
    /// A connection is there; `false`: it is one too many.
    pub(crate) fn open(&self, peer: IpAddr, most: u32, now: Time) -> bool {
        self.with(peer, now, |client| {
            let granted = client.open < most;
            client.open += u32::from(granted);
            granted
        })
        .unwrap_or(true)
    }

    /// One that was granted is over.
    pub(crate) fn closed(&self, peer: IpAddr) {
        let key = key(peer);
        if let Some(client) = self.shard(key).get_mut(&key) {
            client.open = client.open.saturating_sub(1);
        }
    }

    /// Whether a request may be handled.
    pub(crate) fn may_ask(&self, peer: IpAddr, rate: f64, now: Time) -> bool {
        let burst = rate.max(1.0);
        self.with(peer, now, |client| {
            let gained = (now - client.at).as_secs_f64() * rate;
            client.tokens = (client.tokens + gained).min(burst);
            client.at = now;
            let granted = client.tokens >= 1.0;
            client.tokens -= if granted { 1.0 } else { 0.0 };
            granted
        })
        .unwrap_or(true)
    }

    /// `None`: nothing is known of this client, and there is no room to remember it.
    fn with<T>(&self, peer: IpAddr, now: Time, then: impl FnOnce(&mut Client) -> T) -> Option<T> {
        let key = key(peer);
        let mut shard = self.shard(key);
        if shard.len() >= CLIENTS / SHARDS && !shard.contains_key(&key) {
            // Those that nothing is owed to any more: a second has refilled what they may ask.
            shard.retain(|_, client| client.open > 0 || now < client.at + std::time::Duration::from_secs(1));
            if shard.len() >= CLIENTS / SHARDS {
                return None;
            }
        }
        let client = shard.entry(key).or_insert(Client { open: 0, tokens: f64::INFINITY, at: now });
        Some(then(client))
    }

    fn shard(&self, key: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, Client>> {
        let last = match key {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(ip) => ip.octets()[7],
        };
        self.shards[usize::from(last) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What belongs to one client: of IPv6 everybody has 2^64 addresses.
fn key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn connections_of_a_client() {
        let (clients, now) = (Clients::default(), Time::ZERO);
        assert!(clients.open(ip("192.0.2.1"), 2, now) && clients.open(ip("192.0.2.1"), 2, now));
        assert!(!clients.open(ip("192.0.2.1"), 2, now) && clients.open(ip("192.0.2.2"), 2, now));
        clients.closed(ip("192.0.2.1"));
        assert!(clients.open(ip("::ffff:192.0.2.1"), 2, now) && !clients.open(ip("192.0.2.1"), 2, now));
        assert!(clients.open(ip("2001:db8::1"), 1, now) && !clients.open(ip("2001:db8::2:3"), 1, now));
        assert!(clients.open(ip("2001:db8:0:1::1"), 1, now));
    }

    #[test]
    fn requests_per_second() {
        let clients = Clients::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let granted = |ms, rate| (0..100).filter(|_| clients.may_ask(ip("192.0.2.1"), rate, at(ms))).count();
        assert_eq!(granted(0, 10.0), 10);
        assert_eq!(granted(0, 10.0), 0);
        assert_eq!(granted(250, 10.0), 2);
        assert_eq!(granted(300, 10.0), 1, "halves are kept");
        assert_eq!(granted(60_000, 10.0), 10);
        // Less than one per second.
        let slow = |ms| clients.may_ask(ip("192.0.2.9"), 0.1, at(ms));
        assert!(slow(0) && !slow(5_000) && slow(10_000));
    }

    #[test]
    fn the_table_has_an_end() {
        let clients = Clients::default();
        let at = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..2 * CLIENTS as u32 {
            assert!(clients.open(at(n), 1, Time::ZERO), "who is not remembered is not limited");
        }
        let known = || clients.shards.iter().map(|s| s.lock().expect("not poisoned").len()).sum::<usize>();
        assert_eq!(known(), CLIENTS);
        assert!(!clients.open(at(0), 1, Time::ZERO));
        for n in 0..CLIENTS as u32 {
            clients.closed(at(n));
        }
        assert!(clients.open(at(3 << 20), 1, Time::ZERO + Duration::from_secs(2)));
        assert!(known() < CLIENTS);
    }
}
