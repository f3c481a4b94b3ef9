//! Findings about connections as such.

use super::super::flow::ms;
use super::super::observation::{ConnectionFault, FaultKind, Observation};
use super::finding::{Confidence, Finding};
use crate::causes::{client_slow_reader, died, packet_loss, refused, request_held, response_cut, syn_loss};
use crate::parts::CONNECTIONS_OPEN;
use crate::rule::Cause;

/// Connections on which that is no chance; of fewer, more than one in as many.
const CUTS: u64 = 10;

/// How calls ended, in words.
fn how_cut(all: &[&ConnectionFault]) -> String {
    let count = |is: fn(bool, bool) -> bool| {
        all.iter().filter(|f| matches!(f.kind, FaultKind::Cut { reset, begun } if is(reset, begun))).count()
    };
    let kinds = [
        (count(|reset, begun| reset && begun), "by a reset within the answer"),
        (count(|reset, begun| reset && !begun), "by a reset before its first byte"),
        (count(|reset, _| !reset), "closed (FIN) before the end that its head announced"),
    ];
    kinds.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("; {n} {how}")).collect()
}

/// The faults, the cause, and its description where that differs from the cause's own.
type FaultRow = (fn(FaultKind) -> bool, &'static Cause, Option<&'static str>);

/// More than half of all connections were refused: one beside others that were not is what a client
/// does that tries ::1 before 127.0.0.1.
pub(super) fn are_refused(seen: &Observation) -> bool {
    let refused = seen.faults.iter().filter(|f| f.kind == FaultKind::Refused).count() as u64;
    2 * refused > seen.sums.connections
}

/// Connections that never opened, died, or closed their window for good.
pub(super) fn from_faults(seen: &Observation) -> Vec<Finding> {
    let kinds: [FaultRow; 7] = [
        (
            |k| matches!(k, FaultKind::NotOpened { .. }),
            &syn_loss::CAUSE,
            Some("connections were asked for and never opened: no SYN got an answer"),
        ),
        (|k| k == FaultKind::Refused, &refused::CAUSE, None),
        (
            |k| k == FaultKind::WindowClosed { of_client: false },
            &request_held::ZERO_WINDOW,
            Some("the server's window closed, and never opened again: it stopped reading"),
        ),
        (
            |k| k == FaultKind::WindowClosed { of_client: true },
            &client_slow_reader::CAUSE,
            Some("the client's window closed, and never opened again: it stopped reading"),
        ),
        (|k| matches!(k, FaultKind::Died { .. }), &died::CAUSE, None),
        (|k| matches!(k, FaultKind::Cut { .. }), &response_cut::CAUSE, None),
        (|k| k == FaultKind::Lossy, &packet_loss::CAUSE, None),
    ];
    // One refused beside others that were not is what a client does that tries ::1 before
    // 127.0.0.1.
    let matters = |f: &Finding| {
        let few = f.cause == &refused::CAUSE && 2 * f.calls <= f.of;
        let chance = f.cause == &response_cut::CAUSE && f.calls < CUTS && CUTS * f.calls <= f.of;
        !few && !chance
    };
    kinds.iter().filter_map(|(is, cause, title)| of_kind(seen, *is, cause, *title)).filter(matters).collect()
}

fn of_kind(
    seen: &Observation,
    is: fn(FaultKind) -> bool,
    cause: &'static Cause,
    title: Option<&'static str>,
) -> Option<Finding> {
    let all: Vec<&ConnectionFault> = seen.faults.iter().filter(|f| is(f.kind)).collect();
    let first = all.first()?;
    // A single SYN at the end of a capture may get its reply later: the cause needs a retransmitted
    // one, or several.
    let once = all.iter().all(|f| matches!(f.kind, FaultKind::NotOpened { syns: 0..=1 }));
    if once && all.len() < 3 {
        return None;
    }
    let mut costs: Vec<i64> = all.iter().map(|f| f.cost_ns).collect();
    costs.sort_unstable();
    let (client, server) = first.ends;
    let syns: u32 =
        all.iter().map(|f| if let FaultKind::NotOpened { syns } = f.kind { syns } else { 0 }).sum();
    let segments: u64 = all.iter().map(|f| f.segments).sum();
    let mut words = format!(
        "{} of {} connections, {client} to {server} first; the longest for {}",
        all.len(),
        seen.sums.connections,
        ms(*costs.last()?)
    );
    if syns > 0 {
        words.push_str(&format!("; {syns} SYNs got no answer"));
    }
    if segments > 0 {
        words.push_str(&format!("; {segments} segments were sent again"));
    }
    words.push_str(&how_cut(&all));
    let of_cause = Finding::of(cause);
    Some(Finding {
        title: title.unwrap_or(of_cause.title),
        calls: all.len() as u64,
        of: seen.sums.connections,
        cost_ns: costs[costs.len() / 2],
        all_ns: costs.iter().fold(0, |sum: i64, c| sum.saturating_add(*c)),
        // One or two SYNs without a reply at the capture's end may get it later.
        confidence: if matches!(first.kind, FaultKind::NotOpened { .. }) && syns < 3 {
            Confidence::Possible
        } else {
            Confidence::Likely
        },
        evidence: vec![words],
        verify: CONNECTIONS_OPEN,
        ..of_cause
    })
}
