//! How many connections of a client are busy at once, and whether calls seem to wait in it for one
//! of them (a pool that is too small).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::passive::limits::{CLIENTS, LEVELS};
use crate::passive::observation::ObservedPool;

/// A request that follows the previous response on its connection within this time had been
/// waiting: a program that looks at a response before the next call takes longer. Passing a
/// connection on takes 0.1 ms, and a few milliseconds on a busy machine.
const AT_ONCE_NS: i64 = 3_000_000;

/// If fewer connections were busy for this long, the burst was over, and the next calls belong to
/// another burst. A load generator that waits for a CPU pauses for about 10 ms as well.
const BETWEEN_NS: i64 = 100_000_000;

/// The number of busy connections now, or a moment ago: responses that arrive together end before
/// the next requests leave.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Since when, this burst.
    run: i64,
    /// Bursts that reached this level.
    runs: u64,
    /// When it was left last.
    left: i64,
    /// Time between bursts.
    between: i64,
    /// Responses that ended then.
    ended: u64,
    /// Of them, those that were followed at once.
    followed: u64,
    /// The longest that the requests which followed can have waited: since all were busy.
    waited: i64,
}

/// A client and a server.
#[derive(Debug)]
struct DemandGroup {
    busy: usize,
    levels: Vec<Level>,
    begun: i64,
    last: i64,
    /// More connections were busy than the table can distinguish.
    beyond: bool,
}

impl DemandGroup {
    /// This level and those above it that were left within `moment`.
    fn full(&mut self, now: i64, moment: i64) -> impl Iterator<Item = &mut Level> {
        let busy = self.busy;
        let here = self.levels.iter_mut().enumerate().skip(busy).take_while(|(_, l)| l.runs > 0);
        here.filter(move |(at, l)| *at == busy || now - l.left <= moment).map(|(_, l)| l)
    }
}

/// All clients and servers.
#[derive(Debug, Default)]
pub(super) struct Demand(HashMap<(IpAddr, SocketAddr), DemandGroup>);

impl Demand {
    /// A request began on a connection whose previous response ended at `last_end`. `to_client_ns`:
    /// the round trip from the capture to the client.
    pub(super) fn begun(
        &mut self,
        (client, server): (SocketAddr, SocketAddr),
        now: i64,
        last_end: Option<i64>,
        to_client_ns: i64,
    ) {
        let key = (client.ip(), server);
        if !self.0.contains_key(&key) && self.0.len() >= CLIENTS {
            return;
        }
        let group = self.0.entry(key).or_insert_with(|| DemandGroup {
            busy: 0,
            levels: vec![Level::default(); LEVELS + 1],
            begun: now,
            last: now,
            beyond: false,
        });
        group.last = now;
        group.busy += 1;
        if group.busy > LEVELS {
            group.beyond = true;
            return;
        }
        let level = &mut group.levels[group.busy];
        if level.runs == 0 || now - level.left >= BETWEEN_NS + to_client_ns {
            level.between += if level.runs > 0 { now - level.left } else { 0 };
            level.runs += 1;
            level.run = now;
            return;
        }
        let moment = AT_ONCE_NS + to_client_ns + to_client_ns / 4;
        if last_end.is_some_and(|end| now - end <= moment) {
            for level in group.full(now, moment) {
                level.followed += 1;
                level.waited = level.waited.saturating_add((now - level.run).max(0));
            }
        }
    }

    /// A connection is idle again, or closed.
    pub(super) fn ended(&mut self, (client, server): (SocketAddr, SocketAddr), now: i64) {
        let Some(group) = self.0.get_mut(&(client.ip(), server)) else { return };
        group.last = now;
        if group.busy <= LEVELS {
            group.full(now, AT_ONCE_NS).for_each(|level| level.ended += 1);
            group.levels[group.busy].left = now;
        }
        group.busy = group.busy.saturating_sub(1);
    }

    /// The figures of each client that repeatedly reached its largest number of busy connections.
    pub(super) fn pools(self) -> Vec<ObservedPool> {
        let pool = |((client, server), group): ((IpAddr, SocketAddr), DemandGroup)| {
            let most = group.levels.iter().rposition(|l| l.runs > 0)?;
            let level = group.levels[most];
            (!group.beyond).then(|| ObservedPool {
                client,
                server,
                connections: most as u64,
                times: level.runs,
                ended: level.ended,
                followed: level.followed,
                waited_ns: level.waited,
                between_ns: level.between,
                watched_ns: (group.last - group.begun).max(0),
            })
        };
        let mut pools: Vec<ObservedPool> = self.0.into_iter().filter_map(pool).collect();
        pools.sort_by_key(|p| (std::cmp::Reverse(p.waited_ns), p.client, p.server));
        pools
    }
}
