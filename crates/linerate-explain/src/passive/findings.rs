//! From what was seen to what it means: pure functions over an [`Observation`].

mod connections;
mod doubt;
mod finding;
mod streams;

use super::flow::ms;
use super::observation::{Observation, Sums};
use crate::causes::{
    client_nagle, client_pool, client_slow_reader, head_of_line, no_keep_alive, packet_loss, refused,
    reordering, server_nagle, server_think,
};
pub(super) use doubt::{is_wide, missing};
pub use finding::{Confidence, Finding};
use finding::{FOLLOWED, LEAST_NS, SHARE, per};

/// Time of the server from which on it is named, nanoseconds.
const THINK_NS: i64 = 10_000_000;

/// The causes that cost time, most costly first. Where there are several servers, each is judged by
/// its own calls.
pub fn of(seen: &Observation) -> Vec<Finding> {
    let mut found: Vec<Finding> = if seen.servers.is_empty() {
        of_server(seen, 0)
    } else {
        let refused = connections::are_refused(seen);
        let each = seen.servers.iter().flat_map(|(server, part)| {
            of_server(part, ENOUGH).into_iter().map(|f| Finding { server: *server, ..f })
        });
        each.filter(|f| f.cause != &refused::CAUSE || refused).collect()
    };
    // A few calls to each of many servers say something together.
    if !seen.servers.is_empty() && found.iter().all(|f| f.cause != &server_think::CAUSE) {
        found.extend(server_think(seen, &found));
    }
    if is_wide(seen) {
        found.iter_mut().for_each(|f| f.confidence = Confidence::Possible);
    }
    found.sort_by_key(|f| (std::cmp::Reverse(f.all_ns), f.server));
    found
}

/// Calls from which on a server's own time is told from that of others.
const ENOUGH: u64 = 3;

/// `enough`: calls from which on the server's own time is judged.
fn of_server(seen: &Observation, enough: u64) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.seen.iter().filter_map(|s| from_notes(seen, s)).collect();
    merge(&mut found);
    found.extend(connections::from_faults(seen));
    if seen.sums.answered >= enough {
        found.extend(server_think(seen, &found));
    }
    found.extend(head_of_line(seen, &found));
    found.extend(no_keep_alive(seen));
    found.extend(client_pool(seen));
    found.extend(streams::limit(seen));
    found
}

/// One cause is named once: with the larger count of the two.
fn merge(found: &mut Vec<Finding>) {
    found.sort_by_key(|f| (f.cause.id, std::cmp::Reverse(f.all_ns)));
    found.dedup_by(|again, first| {
        let is = again.cause == first.cause;
        if is {
            first.all_ns = first.all_ns.saturating_add(again.all_ns);
            first.calls = first.calls.max(again.calls);
        }
        is
    });
}

fn from_notes(seen: &Observation, s: &super::TroubleCount) -> Option<Finding> {
    // The median, because a single outlier does not represent all calls.
    let cost_ns = s.median_ns;
    if cost_ns < LEAST_NS || (s.cost_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    // Once may be a server that happened to be ready just then.
    let waits = s.cause == &server_nagle::CAUSE || s.cause == &client_nagle::CAUSE;
    let confidence = if waits && s.calls < 3 { Confidence::Possible } else { Confidence::Likely };
    // Taken for lost, and the first ones came after all: in their place those that had overtaken
    // them waited.
    let late = seen.late;
    let came = s.cause == &packet_loss::CAUSE && 4 * late.lost <= late.told;
    let cause = if came { &reordering::CAUSE } else { s.cause };
    let mut evidence = s.evidence.clone();
    if came {
        evidence.insert(
            0,
            format!(
                "of {} segments that were sent again {} had arrived, or came after all: later ones had overtaken them",
                late.told,
                late.told - late.lost
            ),
        );
    }
    Some(Finding {
        calls: s.calls,
        of: seen.sums.answered,
        cost_ns,
        all_ns: s.cost_ns,
        confidence,
        evidence,
        example: Some(s.example.clone()),
        ..Finding::of(cause)
    })
}

/// The server's own time, when it is most of the calls' time and long.
fn server_think(seen: &Observation, found: &[Finding]) -> Option<Finding> {
    let s: &Sums = &seen.sums;
    let cost_ns = s.slow_think_median_ns;
    // Other causes that hold back the first byte are not thinking.
    let others = found.iter().filter(|f| f.cause != &packet_loss::CAUSE);
    let explained = others.fold(0i64, |sum, f| sum.saturating_add(f.all_ns));
    let most = (s.slow_think_ns as f64) < 0.4 * s.total_ns as f64;
    if s.slow_thinks == 0 || cost_ns < THINK_NS || most || explained > s.slow_think_ns {
        return None;
    }
    let example = seen.slowest.iter().max_by_key(|c| c.think_ns);
    let [median, _, p99, longest] = s.think_quantiles_ns;
    Some(Finding {
        calls: s.slow_thinks,
        of: s.answered,
        cost_ns,
        all_ns: s.slow_think_ns,
        // One slow call of many may be anything.
        confidence: if s.rtt_min_ns.is_some() && (s.slow_thinks > 1 || s.answered == 1) {
            Confidence::Likely
        } else {
            Confidence::Possible
        },
        evidence: vec![format!(
            "from the request's last byte to the answer's first, the network's round trip taken off: median {}, 99 % within {}, at most {}{}",
            ms(median),
            ms(p99),
            ms(longest),
            bound(s)
        )],
        example: example.cloned(),
        ..Finding::of(&server_think::CAUSE)
    })
}

/// How the round trip is known if no handshake shows it, in words.
fn bound(s: &Sums) -> String {
    match (s.rtt_min_ns, s.rtt_bound_ns) {
        (None, Some(bound)) => format!(
            "; no opening is in the capture: the round trip is at most {}, the shortest time until a server acknowledged anything",
            ms(bound)
        ),
        _ => String::new(),
    }
}

fn head_of_line(seen: &Observation, found: &[Finding]) -> Option<Finding> {
    let s = &seen.sums;
    // Answers wait behind earlier ones that their client does not read: that is the reason.
    let unread = found.iter().filter(|f| f.cause == &client_slow_reader::CAUSE).map(|f| f.all_ns).max();
    if unread.is_some_and(|ns| ns.saturating_mul(2) >= s.queued_ns) {
        return None;
    }
    let cost_ns = per(s.queued_ns, s.queued);
    if s.queued == 0 || cost_ns < LEAST_NS || (s.queued_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    Some(Finding {
        calls: s.queued,
        of: s.answered,
        cost_ns,
        all_ns: s.queued_ns,
        evidence: vec![format!(
            "{} calls waited for the end of the answer before theirs: their requests were sent before it (pipelining)",
            s.queued
        )],
        example: seen.slowest.iter().max_by_key(|c| c.queued_ns).cloned(),
        ..Finding::of(&head_of_line::CAUSE)
    })
}

fn no_keep_alive(seen: &Observation) -> Option<Finding> {
    let s = &seen.sums;
    let first = s.first_calls as f64 / s.answered.max(1) as f64;
    let cost_ns = per(s.connect_ns, s.first_calls);
    // Each client's first call pays in any case.
    let clients = seen.connections.iter().filter_map(|c| c.handshake.map(|_| (c.client.ip(), c.server)));
    let clients = clients.collect::<std::collections::HashSet<_>>().len() as u64;
    let often = s.first_calls >= 5 && s.first_calls >= 3 * clients && first > 0.8;
    if !often || cost_ns < LEAST_NS || (s.connect_ns as f64) < SHARE * s.total_ns as f64 {
        return None;
    }
    Some(Finding {
        calls: s.first_calls,
        of: s.answered,
        cost_ns,
        all_ns: s.connect_ns,
        evidence: vec![format!(
            "{} of {} calls were the first on their connection; opening took {} each",
            s.first_calls,
            s.answered,
            ms(cost_ns)
        )],
        example: seen.slowest.iter().max_by_key(|c| c.connect_ns).cloned(),
        ..Finding::of(&no_keep_alive::CAUSE)
    })
}

/// Bursts in which all connections were busy; fewer are chance.
const BURSTS: u64 = 3;
/// Share of the time that lies between bursts. A program that makes its calls in a closed loop (a
/// load generator, workers that never run out of work) keeps all of them busy all the time, and
/// nothing waits in it.
const SLACK: f64 = 0.1;

/// Calls come in bursts and are never more at once than some number. While they are that many, each
/// response is followed by the next request at once: the rest of the burst waits in the caller.
fn client_pool(seen: &Observation) -> Option<Finding> {
    let waits = |p: &&super::ObservedPool| {
        p.connections >= 2
            && p.times >= BURSTS
            && p.followed >= FOLLOWED.max(p.times)
            && 2 * p.followed >= p.ended
            && p.between_ns as f64 >= SLACK * p.watched_ns as f64
    };
    let pool = seen.pools.iter().filter(waits).max_by_key(|p| p.waited_ns)?;
    let cost_ns = per(pool.waited_ns, pool.followed);
    if cost_ns < LEAST_NS || (pool.waited_ns as f64) < SHARE * seen.sums.total_ns as f64 {
        return None;
    }
    Some(Finding {
        calls: pool.followed.min(seen.sums.answered),
        of: seen.sums.answered,
        cost_ns,
        all_ns: pool.waited_ns,
        // From its packets a fixed number of workers looks the same, whose work comes in bursts.
        confidence: Confidence::Possible,
        evidence: vec![
            format!(
                "{} has never more than {} calls to {} at once; {} times it came to that, and of {} answers then {} were followed by the \
                 next request on the same connection at once (within 3 ms)",
                pool.client, pool.connections, pool.server, pool.times, pool.ended, pool.followed
            ),
            format!(
                "those requests left up to {} after all connections had become busy: if they were there by then, they waited that long",
                ms(cost_ns)
            ),
            format!(
                "as many workers (threads) as connections look the same from outside: the pool's own figures, or a thread dump of {}, tell",
                pool.client
            ),
        ],
        example: seen.slowest.first().cloned(),
        ..Finding::of(&client_pool::CAUSE)
    })
}
