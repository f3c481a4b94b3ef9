//! How many connections of a client are busy at once, and whether calls seem to wait in it for one
//! of them (a pool that is too small).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// It was reached, in this window or before.
    reached: bool,
    /// Since when, this burst.
    run: i64,
    /// When it was left last.
    left: i64,
    /// Bursts that reached this level.
    runs: u64,
    /// Time between bursts.
    between: i64,
    /// Responses that ended then.
    ended: u64,
    /// Of them, those that were followed at once.
    followed: u64,
    /// The longest that the requests which followed can have waited: since all were busy.
    waited: i64,
}

impl Level {
    /// The same level, of which nothing is counted.
    fn uncounted(self) -> Level {
        Level { reached: self.reached, run: self.run, left: self.left, ..Level::default() }
    }

    /// Adds what was counted of it later.
    fn add(&mut self, later: &Level) {
        self.runs += later.runs;
        self.between = self.between.saturating_add(later.between);
        self.ended += later.ended;
        self.followed += later.followed;
        self.waited = self.waited.saturating_add(later.waited);
        (self.reached, self.run, self.left) = (later.reached, later.run, later.left);
    }
}

/// A client and a server.
#[derive(Clone, Debug)]
struct DemandGroup {
    busy: usize,
    /// Times that one more was busy.
    times: u64,
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
        let here = self.levels.iter_mut().enumerate().skip(busy).take_while(|(_, l)| l.reached);
        here.filter(move |(at, l)| *at == busy || now - l.left <= moment).map(|(_, l)| l)
    }
}

/// All clients and servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    groups: HashMap<(IpAddr, SocketAddr), DemandGroup>,
    /// Times that a connection became busy of a client and a server for which there was no room.
    pub(super) beyond: u64,
}

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
        if !self.groups.contains_key(&key) && self.groups.len() >= CLIENTS {
            self.beyond += 1;
            return;
        }
        let group = self.groups.entry(key).or_insert_with(|| DemandGroup {
            busy: 0,
            times: 0,
            levels: vec![Level::default(); LEVELS + 1],
            begun: now,
            last: now,
            beyond: false,
        });
        group.last = now;
        group.busy += 1;
        group.times += 1;
        if group.busy > LEVELS {
            group.beyond = true;
            return;
        }
        let level = &mut group.levels[group.busy];
        if !level.reached || now - level.left >= BETWEEN_NS + to_client_ns {
            level.between += if level.reached { now - level.left } else { 0 };
            level.reached = true;
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
        let Some(group) = self.groups.get_mut(&(client.ip(), server)) else { return };
        group.last = now;
        if group.busy <= LEVELS {
            group.full(now, AT_ONCE_NS).for_each(|level| level.ended += 1);
            group.levels[group.busy].left = now;
        }
        group.busy = group.busy.saturating_sub(1);
    }

    /// The same clients with what is busy now, of which nothing is counted yet. Where the table is
    /// full, those that are quiet since `quiet` make room.
    pub(super) fn next_window(&self, quiet: i64) -> Demand {
        let full = self.groups.len() >= CLIENTS;
        let stays = |group: &DemandGroup| !full || group.busy > 0 || group.last >= quiet;
        let next = |group: &DemandGroup| DemandGroup {
            busy: group.busy,
            times: 0,
            levels: group.levels.iter().map(|level| level.uncounted()).collect(),
            begun: group.last,
            last: group.last,
            beyond: group.busy > LEVELS,
        };
        let kept = self.groups.iter().filter(|(_, group)| stays(group));
        Demand { groups: kept.map(|(key, group)| (*key, next(group))).collect(), beyond: 0 }
    }

    /// Adds what was counted in the window after it.
    pub(super) fn add(&mut self, later: Demand) {
        self.beyond += later.beyond;
        for (key, group) in later.groups {
            let full = self.groups.len() >= CLIENTS;
            match self.groups.entry(key) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    known.levels.iter_mut().zip(&group.levels).for_each(|(mine, level)| mine.add(level));
                    known.busy = group.busy;
                    known.times += group.times;
                    known.last = group.last;
                    known.beyond |= group.beyond;
                }
                Entry::Vacant(_) if full => self.beyond += group.times,
                Entry::Vacant(place) => {
                    place.insert(group);
                }
            }
        }
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
        let mut pools: Vec<ObservedPool> = self.groups.into_iter().filter_map(pool).collect();
        pools.sort_by_key(|p| (std::cmp::Reverse(p.waited_ns), p.client, p.server));
        pools
    }
}
