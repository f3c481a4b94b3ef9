//! The connections of a server's process to servers behind it, while calls are made: which of them wait
//! for an answer. Pure functions over what the kernel lists; who asks it is [`crate::driver`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::call::Call;

/// A connection of the process to a server behind it, at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSocket {
    /// Its own end.
    pub local: SocketAddr,
    /// The server behind.
    pub peer: SocketAddr,
    /// The handshake is still under way.
    pub connecting: bool,
    /// Milliseconds since it sent data.
    pub sent_ago_ms: u32,
    /// Milliseconds since it received data.
    pub received_ago_ms: u32,
    /// Milliseconds since an acknowledgement came, with data or without.
    pub acked_ago_ms: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments with data received.
    pub received: u32,
    /// Segments with data sent.
    pub sent: u32,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
}

/// All of them at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawLook {
    /// Since the calls began; those before have zero.
    pub at: Duration,
    /// The connections.
    pub sockets: Vec<UpstreamSocket>,
    /// Connections of callers with a request that the server has not read, or that it has not accepted.
    pub unread: u16,
}

/// The connections to one server behind, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLook {
    /// Established ones.
    pub open: u16,
    /// Of these, that have sent after they received last: they wait for an answer.
    pub busy: u16,
    /// Of these, that did both within one tick of the kernel's clock, so that nothing tells.
    pub unclear: u16,
    /// Those that are being opened.
    pub connecting: u16,
}

/// A look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamLook {
    /// Since the calls began.
    pub at: Duration,
    /// By server behind.
    pub peers: BTreeMap<SocketAddr, PeerLook>,
    /// Connections of callers with a request that the server has not read, or that it has not accepted.
    pub unread: u16,
}

/// What was seen of the connections behind a server while calls were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamSeen {
    /// The calls, in the order they ended.
    pub calls: Vec<Call>,
    /// The call to another target of the server meanwhile.
    pub beside: Option<Call>,
    /// The looks, in order.
    pub looks: Vec<UpstreamLook>,
    /// Connections that were opened meanwhile: to where, and their round trip.
    pub opened: Vec<(SocketAddr, Duration)>,
    /// Servers behind with which data was exchanged meanwhile.
    pub used: Vec<SocketAddr>,
}

/// Whether a connection waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketTurn {
    Busy,
    Idle,
    Unclear,
}

/// What a look at a connection alone tells.
fn turn(socket: &UpstreamSocket) -> SocketTurn {
    match (socket.sent, socket.sent_ago_ms.cmp(&socket.received_ago_ms)) {
        (0, _) => SocketTurn::Idle,
        (_, std::cmp::Ordering::Less) => SocketTurn::Busy,
        (_, std::cmp::Ordering::Greater) => SocketTurn::Idle,
        (_, std::cmp::Ordering::Equal) if socket.received == 0 => SocketTurn::Busy,
        (_, std::cmp::Ordering::Equal) => SocketTurn::Unclear,
    }
}

/// What is told of a connection that did both within a tick: by what it did until the next look, or
/// since before the calls, when it was idle. `then`: how many segments it had received and sent then.
fn told(one: &UpstreamSocket, next: Option<&(UpstreamSocket, SocketTurn)>, then: (u32, u32)) -> SocketTurn {
    let (received, sent) = (one.received.wrapping_sub(then.0), one.sent.wrapping_sub(then.1));
    if (received, sent) == (0, 0) {
        return SocketTurn::Idle;
    }
    match next.map(|(next, later)| (next.received != one.received, next.sent != one.sent, *later)) {
        Some((true, false, _)) => return SocketTurn::Busy,
        Some((false, true, _)) => return SocketTurn::Idle,
        Some((false, false, later)) if later != SocketTurn::Unclear => return later,
        _ => {}
    }
    // What was sent before the last answer is acknowledged by that.
    if one.unacked > 0 || one.acked_ago_ms < one.received_ago_ms {
        return SocketTurn::Busy;
    }
    // Questions and answers take turns; an answer may have several segments.
    match sent.cmp(&received) {
        std::cmp::Ordering::Greater => SocketTurn::Busy,
        std::cmp::Ordering::Equal => SocketTurn::Idle,
        std::cmp::Ordering::Less => SocketTurn::Unclear,
    }
}

/// Makes looks of what the kernel listed; the first of `raw` is from before the calls. Connections that
/// waited before and all the time (a subscription, a poll) are left out.
pub(crate) fn behind(raw: &[RawLook], calls: Vec<Call>, beside: Option<Call>) -> UpstreamSeen {
    let Some((before, later)) = raw.split_first() else {
        return UpstreamSeen { calls, beside, ..UpstreamSeen::default() };
    };
    let mut series: BTreeMap<(SocketAddr, SocketAddr), Vec<(usize, UpstreamSocket)>> = BTreeMap::new();
    for (n, look) in later.iter().enumerate() {
        for socket in &look.sockets {
            series.entry((socket.peer, socket.local)).or_default().push((n, *socket));
        }
    }
    let mut looks: Vec<UpstreamLook> = later
        .iter()
        .map(|raw| UpstreamLook { at: raw.at, unread: raw.unread, ..UpstreamLook::default() })
        .collect();
    let (mut opened, mut used) = (Vec::new(), Vec::new());
    for ((peer, local), seen) in &series {
        let was = before.sockets.iter().find(|s| (s.peer, s.local) == (*peer, *local));
        if was.is_none() {
            let trips = seen.iter().map(|(_, s)| s.rtt_us).filter(|us| *us > 0);
            opened.push((*peer, Duration::from_micros(trips.min().unwrap_or(0).into())));
        }
        let moved =
            |s: &UpstreamSocket| was.is_none_or(|was| (s.sent, s.received) != (was.sent, was.received));
        if seen.iter().any(|(_, s)| moved(s) && s.sent > 0) && !used.contains(peer) {
            used.push(*peer);
        }
        let stands =
            was.is_some_and(|was| turn(was) == SocketTurn::Busy) && !seen.iter().any(|(_, s)| moved(s));
        let mut next = None;
        for (n, socket) in seen.iter().rev() {
            let then = was.map_or((0, 0), |was| (was.received, was.sent));
            let now = match turn(socket) {
                SocketTurn::Unclear => told(socket, next.as_ref(), then),
                told => told,
            };
            next = Some((*socket, now));
            if stands {
                continue;
            }
            let at = looks[*n].peers.entry(*peer).or_default();
            at.connecting += u16::from(socket.connecting);
            at.open += u16::from(!socket.connecting);
            at.busy += u16::from(!socket.connecting && now == SocketTurn::Busy);
            at.unclear += u16::from(!socket.connecting && now == SocketTurn::Unclear);
        }
    }
    UpstreamSeen { calls, beside, looks, opened, used }
}

impl UpstreamSeen {
    /// How long, until `end`, the connections to that server were so.
    pub(crate) fn time(&self, peer: SocketAddr, end: Duration, so: fn(&PeerLook) -> bool) -> Duration {
        let one = |(n, look): (usize, &UpstreamLook)| {
            look.peers.get(&peer).filter(|at| so(at))?;
            let until = self.looks.get(n + 1).map_or(end, |next| next.at).min(end);
            Some(until.saturating_sub(look.at))
        };
        self.looks.iter().enumerate().filter_map(one).sum()
    }

    /// The most connections that waited for an answer at once, to all servers behind.
    pub(crate) fn most_busy(&self) -> u16 {
        self.looks.iter().map(|look| look.peers.values().map(|p| p.busy).sum()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 7], 5432);

    fn socket(port: u16, segments: (u32, u32), ago: (u32, u32)) -> UpstreamSocket {
        UpstreamSocket {
            local: ([10, 0, 0, 1], port).into(),
            peer: PEER.into(),
            connecting: false,
            sent_ago_ms: ago.0,
            received_ago_ms: ago.1,
            acked_ago_ms: ago.1,
            unacked: 0,
            received: segments.1,
            sent: segments.0,
            rtt_us: 500,
        }
    }

    fn seen(looks: &[&[UpstreamSocket]]) -> UpstreamSeen {
        let raw = |(n, sockets): (usize, &&[UpstreamSocket])| RawLook {
            at: Duration::from_millis(n as u64),
            sockets: sockets.to_vec(),
            unread: 0,
        };
        let raw: Vec<RawLook> = looks.iter().enumerate().map(raw).collect();
        behind(&raw, Vec::new(), None)
    }

    fn busy(behind: &UpstreamSeen) -> Vec<(u16, u16)> {
        let at = |look: &UpstreamLook| look.peers.get(&PEER.into()).map_or((0, 0), |p| (p.busy, p.unclear));
        behind.looks.iter().map(at).collect()
    }

    #[test]
    fn a_connection_that_sent_last_waits() {
        let idle = socket(1, (4, 4), (90, 60));
        let found = seen(&[&[idle], &[socket(1, (5, 4), (2, 62))], &[socket(1, (5, 5), (30, 1))]]);
        assert_eq!(busy(&found), [(1, 0), (0, 0)]);
        assert_eq!((found.opened.len(), found.used.len()), (0, 1));
    }

    #[test]
    fn what_came_next_tells_of_one_tick() {
        let before = socket(1, (4, 4), (90, 60));
        let tick = socket(1, (5, 5), (0, 0));
        // It received once more, and had sent nothing meanwhile: it had been waiting.
        assert_eq!(
            busy(&seen(&[&[before], &[tick], &[tick], &[socket(1, (5, 6), (9, 1))]])),
            [(1, 0), (1, 0), (0, 0)]
        );
        assert_eq!(busy(&seen(&[&[before], &[tick], &[socket(1, (6, 5), (1, 9))]])), [(0, 0), (1, 0)]);
        // A question for each answer: it is idle; acknowledged after the answer, or not yet: it asked again.
        assert_eq!(busy(&seen(&[&[before], &[tick]])), [(0, 0)]);
        let acked = UpstreamSocket { received_ago_ms: 9, sent_ago_ms: 9, acked_ago_ms: 5, ..tick };
        assert_eq!(busy(&seen(&[&[before], &[acked]])), [(1, 0)]);
        assert_eq!(busy(&seen(&[&[before], &[UpstreamSocket { unacked: 1, ..tick }]])), [(1, 0)]);
        assert_eq!(busy(&seen(&[&[before], &[UpstreamSocket { sent: 6, ..tick }]])), [(1, 0)]);
        assert_eq!(busy(&seen(&[&[before], &[UpstreamSocket { received: 9, ..tick }]])), [(0, 1)]);
        // Since before the calls nothing came or left.
        assert_eq!(busy(&seen(&[&[tick], &[tick], &[tick]])), [(0, 0), (0, 0)]);
    }

    #[test]
    fn a_subscription_is_nothing_that_a_call_waits_for() {
        let waits = socket(1, (1, 1), (5_000, 90_000));
        let found = seen(&[&[waits], &[waits], &[waits]]);
        assert_eq!((busy(&found), found.used.len()), (vec![(0, 0), (0, 0)], 0));
    }

    #[test]
    fn new_connections_are_counted_with_their_round_trip() {
        let connecting = UpstreamSocket { connecting: true, rtt_us: 0, ..socket(2, (0, 0), (0, 0)) };
        let found = seen(&[&[], &[connecting], &[socket(2, (1, 0), (0, 0))], &[socket(2, (1, 0), (1, 1))]]);
        assert_eq!(found.opened, [(PEER.into(), Duration::from_micros(500))]);
        assert_eq!(busy(&found), [(0, 0), (1, 0), (1, 0)]);
        assert_eq!(
            found.time(PEER.into(), Duration::from_millis(5), |p| p.busy > 0),
            Duration::from_millis(3)
        );
        assert_eq!(found.most_busy(), 1);
        assert_eq!(seen(&[]), UpstreamSeen::default());
    }
}
