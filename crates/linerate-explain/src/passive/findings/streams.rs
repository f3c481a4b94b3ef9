//! Findings about HTTP/2's streams.

use super::super::flow::ms;
use super::super::observation::{Observation, StreamLimit};
use super::finding::{Confidence, FOLLOWED, Finding, LEAST_NS, SHARE, per};
use crate::causes::h2_stream_limit;

/// Share of the time below the limit. A program that makes its calls in a closed loop keeps all
/// streams busy all the time, and nothing waits in it.
const SLACK: f64 = 0.1;
/// Turns at the limit up to which a burst is no closed loop.
const TURNS: u64 = 10;

/// Requests leave as soon as a stream ends, and never more than the server admits.
pub(super) fn limit(seen: &Observation) -> Option<Finding> {
    let waits = |l: &&StreamLimit| {
        let slack = (l.full_ns as f64) <= (1.0 - SLACK) * l.watched_ns as f64;
        l.followed >= FOLLOWED.max(l.times)
            && 2 * l.followed >= l.ended
            && (slack || l.followed <= TURNS * l.limit)
    };
    let all: Vec<&StreamLimit> = seen.stream_limits.iter().filter(waits).collect();
    let worst = *all.iter().max_by_key(|l| l.waited_ns)?;
    let sum = |of: fn(&StreamLimit) -> u64| all.iter().map(|l| of(l)).sum::<u64>();
    let followed = sum(|l| l.followed);
    let all_ns = all.iter().fold(0i64, |sum, l| sum.saturating_add(l.waited_ns));
    let cost_ns = per(all_ns, followed);
    if cost_ns < LEAST_NS || (all_ns as f64) < SHARE * seen.sums.total_ns as f64 {
        return None;
    }
    let (client, server) = worst.ends?;
    let mut evidence = vec![
        format!(
            "{server} admits {} streams at once (SETTINGS_MAX_CONCURRENT_STREAMS), and {client} came to that {} times; of {} streams that \
             ended then, {} were followed by the next request at once (within 5 ms)",
            worst.limit, worst.times, worst.ended, worst.followed
        ),
        format!(
            "those requests left up to {} after all streams had become busy: if they were there by then, they waited that long",
            ms(cost_ns)
        ),
    ];
    let refused = sum(|l| l.refused);
    match refused {
        0 => evidence
            .push("a client that has as many workers as the server admits streams looks the same".to_owned()),
        n => evidence.push(format!("the server refused {n} streams beyond those (REFUSED_STREAM)")),
    }
    Some(Finding {
        calls: followed.min(seen.sums.answered),
        of: seen.sums.answered,
        cost_ns,
        all_ns,
        confidence: if refused > 0 { Confidence::Likely } else { Confidence::Possible },
        evidence,
        example: seen.slowest.first().cloned(),
        ..Finding::of(&h2_stream_limit::CAUSE)
    })
}
