//! Client identity: limits for each client's address, and proxies that name the client they act
//! for.

mod access;
mod forwarded;
mod network;
mod proxy;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_http::server::RequestHead;
use linerate_net::Time;

pub use self::access::NetworkAccess;
pub use self::network::{BadNetwork, Network};
pub(crate) use self::proxy::{Preface, preface};

/// Clients remembered at a time. Reason: an entry takes 50 bytes. Further clients have no limits of
/// their own, only the server's.
const CLIENTS: usize = 1 << 16;
/// Shards of the table. Reason: threads then rarely contend for the same lock.
const SHARDS: usize = 16;
/// How long a full table is not searched again. Reason: a search takes microseconds, and a flood of
/// addresses would cause one for each.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Seconds after which a client is treated as unknown again, however slow the rate.
const LONGEST_REST: f64 = 86_400.0;

/// Limits for each client, and the proxies that may name clients. A client is an IPv4 address, or
/// the /64 of an IPv6 address.
///
/// ```
/// use linerate_serve::{ClientRules, ServerOptions};
///
/// let clients = ClientRules {
///     connections: Some(100),
///     rate: Some(50.0),
///     trusted: vec!["10.0.0.0/8".parse()?],
///     ..ClientRules::default()
/// };
/// let options = ServerOptions { clients, ..ServerOptions::default() };
/// # Ok::<(), linerate_serve::BadNetwork>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRules {
    /// Concurrent connections; more are closed at once. Trusted proxies are not limited; clients
    /// that the PROXY protocol names are.
    pub connections: Option<u32>,
    /// Requests per second, and the size of a burst. Further requests get 429.
    pub rate: Option<f64>,
    /// Proxies whose `Forwarded` and `X-Forwarded-For` are used: the client is the last address in
    /// them that is not trusted. If both exist and name different clients, neither is used.
    pub trusted: Vec<Network>,
    /// Connections of trusted proxies begin with the PROXY protocol, version 1 or 2.
    pub proxy_protocol: bool,
    /// Clients that are served. Requests of others get 403.
    pub access: NetworkAccess,
}

impl ClientRules {
    /// Whether this peer may name other clients.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// The client of a request.
    pub(crate) fn client(&self, head: &RequestHead, peer: SocketAddr) -> SocketAddr {
        if self.trusted.is_empty() || !self.trusts(peer.ip()) {
            return peer;
        }
        forwarded::client(head, |ip| self.trusts(ip)).unwrap_or(peer)
    }
}

/// The clients of a server, known to all its threads.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    clients: HashMap<IpAddr, CountedClient>,
    /// All entries were in use: until then no search for a free one.
    full_until: Time,
}

#[derive(Clone, Copy, Debug)]
struct CountedClient {
    open: u32,
    /// Requests allowed now, and when that was computed.
    tokens: f64,
    at: Time,
    /// From then on the client can be treated as unknown.
    rested: Time,
}

/// Whether a connection is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// [`Clients::closed`] must follow.
    Counted,
    /// There is no room to remember its client.
    Uncounted,
    Refused,
}

impl Clients {
    /// A connection was accepted.
    pub(crate) fn open(&self, peer: IpAddr, most: u32, now: Time) -> Admission {
        self.with(peer, now, |client| {
            if client.open >= most {
                return Admission::Refused;
            }
            client.open += 1;
            Admission::Counted
        })
        .unwrap_or(Admission::Uncounted)
    }

    /// A counted connection has ended.
    pub(crate) fn closed(&self, peer: IpAddr) {
        let key = key(peer);
        if let Some(client) = self.shard(key).clients.get_mut(&key) {
            client.open = client.open.saturating_sub(1);
        }
    }

    /// Whether a request may be handled. The error is the number of seconds until one may.
    pub(crate) fn may_ask(&self, peer: IpAddr, rate: f64, now: Time) -> Result<(), u64> {
        let burst = rate.max(1.0);
        self.with(peer, now, |client| {
            let gained = (now - client.at).as_secs_f64() * rate;
            client.tokens = (client.tokens + gained).min(burst);
            // Threads read the clock once per turn: a thread whose clock lags must not grant a
            // request twice.
            client.at = client.at.max(now);
            let granted = client.tokens >= 1.0;
            client.tokens -= if granted { 1.0 } else { 0.0 };
            let until = |tokens: f64| ((tokens - client.tokens) / rate).clamp(0.0, LONGEST_REST);
            client.rested = client.at + Duration::try_from_secs_f64(until(burst)).unwrap_or_default();
            if granted { Ok(()) } else { Err(until(1.0).ceil().max(1.0) as u64) }
        })
        .unwrap_or(Ok(()))
    }

    /// `None`: this client is unknown, and there is no room to remember it.
    fn with<T>(&self, peer: IpAddr, now: Time, then: impl FnOnce(&mut CountedClient) -> T) -> Option<T> {
        let key = key(peer);
        let Shard { clients, full_until } = &mut *self.shard(key);
        if clients.len() >= CLIENTS / SHARDS && !clients.contains_key(&key) {
            if now < *full_until {
                return None;
            }
            clients.retain(|_, client| client.open > 0 || now < client.rested);
            if clients.len() >= CLIENTS / SHARDS {
                *full_until = now + LOOK_AGAIN;
                return None;
            }
        }
        let client = clients.entry(key).or_insert(CountedClient {
            open: 0,
            tokens: f64::INFINITY,
            at: now,
            rested: now,
        });
        Some(then(client))
    }

    fn shard(&self, key: IpAddr) -> MutexGuard<'_, Shard> {
        let last = match key {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(ip) => ip.octets()[7],
        };
        self.shards[usize::from(last) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of one client: an IPv6 user has 2^64 addresses.
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
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn connections_of_a_client() {
        let clients = Clients::default();
        let open = |at, most| clients.open(ip(at), most, Time::ZERO) == Admission::Counted;
        assert!(open("192.0.2.1", 2) && open("192.0.2.1", 2));
        assert!(!open("192.0.2.1", 2) && open("192.0.2.2", 2));
        clients.closed(ip("192.0.2.1"));
        assert!(open("::ffff:192.0.2.1", 2) && !open("192.0.2.1", 2));
        assert!(open("2001:db8::1", 1) && !open("2001:db8::2:3", 1));
        assert!(open("2001:db8:0:1::1", 1));
    }

    #[test]
    fn requests_per_second() {
        let clients = Clients::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let granted =
            |ms, rate| (0..100).filter(|_| clients.may_ask(ip("192.0.2.1"), rate, at(ms)).is_ok()).count();
        assert_eq!(granted(0, 10.0), 10);
        assert_eq!(granted(0, 10.0), 0);
        assert_eq!(granted(250, 10.0), 2);
        assert_eq!(granted(300, 10.0), 1, "halves are kept");
        assert_eq!(granted(60_000, 10.0), 10);
        // A thread whose clock lags grants nothing twice.
        assert_eq!(granted(59_000, 10.0), 0);
        assert_eq!(granted(60_000, 10.0), 0);
        // Less than one per second.
        let slow = |ms| clients.may_ask(ip("192.0.2.9"), 0.1, at(ms));
        assert_eq!([slow(0), slow(5_500), slow(10_000)], [Ok(()), Err(5), Ok(())]);
    }

    #[test]
    fn the_table_has_an_end() {
        let clients = Clients::default();
        let at = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..2 * CLIENTS as u32 {
            let admission = clients.open(at(n), 1, Time::ZERO);
            assert_eq!(admission == Admission::Counted, n < CLIENTS as u32, "{n}");
            assert_ne!(admission, Admission::Refused, "a client that is not remembered is not limited");
        }
        let known =
            || clients.shards.iter().map(|s| s.lock().expect("not poisoned").clients.len()).sum::<usize>();
        assert_eq!(known(), CLIENTS);
        assert_eq!(clients.open(at(0), 1, Time::ZERO), Admission::Refused);
        for n in 0..CLIENTS as u32 {
            clients.closed(at(n));
        }
        assert_eq!(clients.open(at(3 << 20), 1, Time::ZERO + LOOK_AGAIN), Admission::Counted);
        assert!(known() < CLIENTS);
    }

    #[test]
    fn a_client_is_forgotten_once_it_has_rested() {
        let clients = Clients::default();
        let (of, now) =
            (|n: u32| IpAddr::from((n << 8).to_be_bytes()), |s| Time::ZERO + Duration::from_secs(s));
        // All in one shard, at 0.1 requests per second: ten seconds until they are forgotten.
        for n in 0..(CLIENTS / SHARDS) as u32 {
            assert_eq!(clients.may_ask(of(n), 0.1, now(0)), Ok(()));
        }
        let known = |n| clients.shard(of(n)).clients.contains_key(&of(n));
        assert_eq!(clients.may_ask(of(1 << 20), 0.1, now(9)), Ok(()));
        assert!(known(0) && !known(1 << 20), "nobody has room to ask twice");
        assert_eq!(clients.may_ask(of(1 << 20), 0.1, now(10)), Ok(()));
        assert!(!known(0) && known(1 << 20));
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let _ = clients.may_ask(ip("192.0.2.1"), odd, now(11));
        }
    }
}
