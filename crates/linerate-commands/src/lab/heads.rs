//! Head-of-line blocking in words: which quick requests waited, and for what. Each sentence follows
//! from the figures of its row and of the rows beside it.

use linerate_lab::figures::RunFigures;
use linerate_load::Plan;
use linerate_load::plan::http::Http;
use linerate_netbox::LineShape;
use linerate_report::schema::lab::QuickRequests;
use linerate_report::{lab, units};

/// A share of quick requests from which on it is worth a reason. Reason: other programs on the
/// machine hold up a few in a thousand.
const MANY: f64 = 0.01;

/// A row, and how its quick requests fared.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldUpRow {
    /// Requests in flight on each connection.
    depth: u32,
    /// They are streams of HTTP/2 or HTTP/3.
    streams: bool,
    /// A lost packet holds up its own stream alone: HTTP/3.
    apart: bool,
    quick: Option<QuickRequests>,
}

impl HeldUpRow {
    pub(super) fn of(name: &str, plan: &Plan, runs: &[RunFigures]) -> HeldUpRow {
        let apart = plan.http.version == Http::Three;
        let streams = apart || plan.http.version == Http::Two;
        HeldUpRow { depth: plan.depth, streams, apart, quick: lab::quick(runs, name) }
    }

    fn share(&self) -> Option<f64> {
        self.quick.filter(|q| q.requests > 0).map(|q| q.held_up as f64 / q.requests as f64)
    }
}

/// A sentence for each row of a group over this line.
pub(super) fn words(rows: &[HeldUpRow], line: Option<LineShape>) -> Vec<String> {
    // On connections of their own requests are held up by nothing but their own packets.
    let alone = || rows.iter().filter(|r| r.depth == 1).filter_map(|r| r.quick);
    let held_up: u64 = alone().map(|q| q.held_up).sum();
    let apart = held_up as f64 / alone().map(|q| q.requests).sum::<u64>().max(1) as f64;
    let lossy = line.is_some_and(|line| line.loss > 0.0);
    rows.iter().map(|row| of_row(row, apart, lossy)).collect()
}

fn of_row(row: &HeldUpRow, apart: f64, lossy: bool) -> String {
    let (Some(quick), Some(share)) = (row.quick, row.share()) else { return String::new() };
    if quick.held_up == 0 {
        return format!("None of {} quick requests was held up.", units::count(quick.requests));
    }
    let said = format!(
        "{} of {} quick requests ({}) were held up",
        units::count(quick.held_up),
        units::count(quick.requests),
        units::percent(share)
    );
    let on_a_connection = row.depth > 1 && share >= MANY && share > 2.0 * apart;
    let slow = quick.others_p50_us.filter(|_| !row.streams);
    match (on_a_connection, slow, lossy) {
        (true, Some(slow), false) => format!(
            "{said}: they wait for slow ones ({}) on their connection, whose responses come first.",
            units::time_us(slow, true)
        ),
        (true, Some(slow), true) => format!(
            "{said}: they wait for slow ones ({}), whose responses come first, and for lost segments.",
            units::time_us(slow, true)
        ),
        (true, None, true) if !row.apart => {
            format!("{said}: a lost segment holds up all {} in flight on its connection.", row.depth)
        }
        _ => format!("{said}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(depth: u32, streams: bool, held_up: u64, others: Option<f64>) -> HeldUpRow {
        let quick =
            QuickRequests { requests: 1000, held_up, others_p50_us: others, ..QuickRequests::default() };
        HeldUpRow { depth, streams, apart: false, quick: Some(quick) }
    }

    #[test]
    fn a_reason_is_said_only_where_the_figures_have_one() {
        let slow = Some(50_000.0);
        let said = words(
            &[
                row(1, false, 0, slow),
                row(1, false, 2, slow),
                row(8, false, 300, slow),
                row(8, true, 0, slow),
            ],
            None,
        );
        assert_eq!(said[0], "None of 1,000 quick requests was held up.");
        assert_eq!(said[1], "2 of 1,000 quick requests (0.20 %) were held up.");
        assert!(said[2].contains("wait for slow ones (50.0 ms)"), "{}", said[2]);
        assert_eq!(said[3], said[0]);
        let lossy = "20ms,loss=1%".parse().ok();
        let said = words(&[row(1, false, 15, None), row(8, true, 90, None), row(8, false, 25, None)], lossy);
        assert!(said[1].contains("a lost segment holds up all 8 in flight"), "{}", said[1]);
        assert!(said[2].ends_with("were held up."), "not more than on connections of their own: {}", said[2]);
        let by_quic = HeldUpRow { apart: true, ..row(8, true, 90, None) };
        let said = words(&[row(1, false, 15, None), by_quic], lossy);
        assert!(
            said[1].ends_with("were held up."),
            "streams of QUIC do not wait for each other: {}",
            said[1]
        );
        let none = HeldUpRow { depth: 1, streams: false, apart: false, quick: None };
        assert_eq!(words(&[none], None), [""]);
    }
}
