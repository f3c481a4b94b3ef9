//! What gave way, from looks as they would be measured.

use super::*;

/// A look at so many requests a second, of which a share never left, with responses after so long.
fn looked(rate: f64, unsent: u64, responds: Duration) -> Looked {
    let mut outcome = Outcome { duration: Duration::from_secs(1), ..Outcome::default() };
    let sent = rate as u64 - unsent;
    (outcome.requests.sent, outcome.requests.answered) = (sent, sent);
    outcome.requests.unsent = unsent;
    outcome.latency.from_sent.record(responds.as_nanos() as u64, sent);
    let step = SearchStep {
        rate,
        lasts: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        burst: false,
        whole: true,
    };
    Looked {
        step,
        unit: LoadUnit::Rate,
        outcome,
        score: 0.0,
        over: 0.0,
        full: unsent > 0,
        server: None,
        disturbed: false,
    }
}

/// Eight connections to a server that takes 20 ms whatever comes: it has no queue, we have.
#[test]
fn connections_are_the_limit_of_errors_where_the_server_stays_quick() {
    let limit = Limit::of(&Check::parse("errors<1%").expect("a check")).expect("a limit");
    let quick = Duration::from_millis(20);
    let gave_way_with = |responds: Duration| {
        let looks = [looked(50.0, 0, quick), looked(400.0, 40, responds)];
        gave_way(&limit, &looks[1], &looks)
    };
    let (kind, why) = gave_way_with(quick);
    assert_eq!(kind, "connections", "{why}");
    // One that answers one after the other makes all of them wait.
    let (kind, why) = gave_way_with(Duration::from_millis(160));
    assert_eq!(kind, "queue", "{why}");
}
