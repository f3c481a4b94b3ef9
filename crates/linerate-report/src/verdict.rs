//! Whether a run was fine: the exit code, the page's heading and JUnit say the same.

use std::time::Duration;

use linerate_load::outcome::{Down, Silence};
use linerate_load::plan::Expectation;
use linerate_load::{Outcome, Plan};

use crate::units;

/// Why a run was not fine, whatever its checks found: nothing if it was.
pub fn reasons(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(outcome.unreachable.as_ref().map(|why| format!("the target could not be reached: {why}")));
    all.extend(outcome.broken.as_ref().map(|why| format!("the run broke off early: {why}")));
    all.extend(outcome.aborted.as_ref().map(|why| format!("--abort-on ended the run: {why}")));
    if outcome.unreachable.is_some() {
        return all;
    }
    let r = &outcome.requests;
    let (bad, answered) = (outcome.bad.total(), r.answered);
    if answered == 0 && r.sent > 0 {
        all.push("no request was answered".to_owned());
    }
    let steps = plan.flows.iter().flat_map(|flows| &flows.flows).flat_map(|flow| &flow.steps);
    let expects = plan.requests.iter().any(|request| request.expect != Expectation::default())
        || steps.into_iter().any(|step| step.expect.is_some() || step.hooks.judge.is_some());
    if answered > 0 && bad == answered {
        all.push("not one response was good".to_owned());
    } else if expects && bad > 0 {
        let n = units::several(bad, "response was", "responses were");
        all.push(format!("{n} not what was expected"));
    }
    let (mut done, mut failed) = (0, 0);
    outcome.flows.values().for_each(|flow| (done, failed) = (done + flow.done, failed + flow.failed));
    if all.is_empty() && done == 0 && failed > 0 {
        all.push("not one iteration of a flow went well".to_owned());
    }
    if r.out_of_order_responses > 0 {
        all.push(out_of_order(r.out_of_order_responses));
    }
    all.extend(out_of_reach(outcome).filter(|_| outcome.was_down()));
    all
}

/// Responses in another order than their requests.
fn out_of_order(responses: u64) -> String {
    let n = units::several(responses, "response came", "responses came");
    format!("{n} in another order than the requests (RFC 9112 section 9.3.2)")
}

/// So much of the time without a response is all of it.
const NEARLY_ALL: f64 = 0.9;

/// How the server was out of reach, be it for a moment.
pub(crate) fn out_of_reach(outcome: &Outcome) -> Option<String> {
    let down = outcome.down.as_ref().filter(|down| down.at_end || !down.spans.total().is_zero());
    let outage = outcome.outage();
    // Where connections come and go, it is the time without a response that says what happened. One
    // that lasts hardly longer than no connection could be had is the same: the last response came
    // before the end of connections, and the first one after the first of them.
    let is_all = |down: &&Down| {
        outage.is_none_or(|outage| down.at_end || down.spans.total() >= outage.lasted.mul_f64(NEARLY_ALL))
    };
    if let Some(down) = down.filter(is_all) {
        let seconds = |time: Duration| units::short_seconds(time.as_secs_f64());
        return Some(format!(
            "the server was unreachable for {} of {} s{}",
            seconds(down.spans.total()),
            seconds(outcome.duration.max(down.spans.total())),
            if down.at_end { ", and still was at the end" } else { "" }
        ));
    }
    if let Some(outage) = outage {
        return Some(format!("no response arrived for {}, and requests failed", lasting(outage)));
    }
    let text = "for a second or more every attempt to connect failed and no response arrived, on the open connections either";
    outcome.down.as_ref().is_some_and(Down::had_a_bad_second).then(|| text.to_owned())
}

/// `3.5 s (from 1.2 s on)`.
pub(crate) fn lasting(silence: Silence) -> String {
    let seconds = |time: Duration| units::short_seconds(time.as_secs_f64());
    format!("{} s (from {} s on)", seconds(silence.lasted), seconds(silence.from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use linerate_load::outcome::{Quiet, QuietSpan};

    #[test]
    fn a_good_run_has_no_reasons_and_each_fault_has_one() {
        let plan = testing::plan_closed();
        let fine = testing::quiet_outcome();
        assert_eq!(reasons(&plan, &fine), Vec::<String>::new());
        let only = |outcome: &Outcome| reasons(&plan, outcome).join("; ");
        let mut swapped = fine.clone();
        swapped.requests.out_of_order_responses = 2;
        assert!(only(&swapped).starts_with("2 responses came in another order"));
        let mut bad = fine.clone();
        bad.bad.status = bad.requests.answered;
        assert_eq!(only(&bad), "not one response was good");
        let mut flows = fine.clone();
        flows.flows.entry("shop".to_owned()).or_default().failed = 3;
        assert_eq!(only(&flows), "not one iteration of a flow went well");
        flows.flows.entry("list".to_owned()).or_default().done = 1;
        assert_eq!(only(&flows), "");
        let mut silent = fine.clone();
        let mut span = QuietSpan { from_ns: 1_200_000_000, to_ns: 4_700_000_000, ..QuietSpan::default() };
        span.failed.push(2_000_000_000, 2_000_000_001);
        let spans = vec![span];
        silent.quiet = Some(Quiet { spans, until_ns: 5_000_000_000, sending_ns: 5_000_000_000 });
        let said = "no response arrived for 3.5 s (from 1.2 s on), and requests failed";
        assert_eq!(only(&silent), said);
        // A moment without a connection does not hide it.
        let mut down = Down::default();
        down.spans.push(1_200_000_000, 1_204_000_000);
        silent.down = Some(down);
        assert_eq!(only(&silent), said);
        silent.down.as_mut().unwrap().spans.push(2_000_000_000, 5_900_000_000);
        assert!(only(&silent).starts_with("the server was unreachable for 3.9 of"), "{}", only(&silent));
        // Nor does a response that came a moment before the end of all connections.
        let mut killed = silent;
        let mut down = Down::default();
        down.spans.push(1_203_000_000, 4_690_000_000);
        killed.down = Some(down);
        assert!(only(&killed).starts_with("the server was unreachable for 3.5 of"), "{}", only(&killed));
    }
}
