//! Reasons of failed requests in words, and what helps.

use linerate_load::outcome::{Failure, Requests};
use linerate_load::plan::units::shown_duration;
use linerate_load::{Outcome, Plan};

use super::page::{Mark, SummaryText};
use crate::{figures, units};

pub(super) fn write(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let requests = &outcome.requests;
    let share = |n: u64, of: u64| units::percent(n as f64 / of.max(1) as f64);
    if requests.failed > 0 {
        page.blank();
        let failed = units::several(requests.failed, "request", "requests");
        let text = format!("{failed} ({})", share(requests.failed, requests.sent));
        page.marked(Mark::Bad, &text);
        for why in Failure::ALL.into_iter().filter(|why| outcome.failures.count(*why) > 0) {
            for line in reasons(why, plan, outcome) {
                page.labelled("", &line);
            }
        }
    }
    if requests.resent > 0 {
        page.blank();
        page.labelled("resent", &resent(requests));
    }
    unsolicited(page, plan, outcome);
    if requests.unknown > 0 {
        page.blank();
        let text = format!(
            "{} ({}): they left and no answer came, and whether they were acted on cannot be known: what is not \
             idempotent is not sent twice, and what was still under way when time was up is not counted as failed",
            units::several(requests.unknown, "request has an unknown end", "requests have an unknown end"),
            share(requests.unknown, requests.sent)
        );
        page.labelled("unknown", &text);
    }
    if requests.unsent > 0 && plan.counts_from_due() {
        page.blank();
        let due = requests.sent + requests.unsent;
        let text = format!(
            "{} ({} of those due){}",
            units::several(requests.unsent, "request never left", "requests never left"),
            share(requests.unsent, due),
            figures::unsent_because(requests).map_or(String::new(), |why| format!(": {why}"))
        );
        page.labelled("unsent", &text);
    }
}

/// Requests that went out again, by what had become of them.
fn resent(requests: &Requests) -> String {
    let (refused, reset, alone) = (requests.resent_refused, requests.resent_reset, requests.resent_alone);
    let closed = requests.resent.saturating_sub(refused + reset + alone);
    let reasons = [
        (closed, "the server closed the connection without a byte of the response"),
        (refused, "the server refused the stream without processing the request"),
        (alone, "an error ended the connection (each went out alone)"),
        (reset, "the server reset the stream without a byte of the response"),
    ];
    let reasons: Vec<_> = reasons.into_iter().filter(|(n, _)| *n > 0).collect();
    let why = match &reasons[..] {
        [(_, why)] => format!("because {why}"),
        several => {
            let each = several.iter().map(|(n, why)| format!("{} because {why}", units::count(*n)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    let what = units::several(requests.resent, "request went out", "requests went out");
    format!("{what} a second time, {why}; each counts once (--resend never lets them fail)")
}

/// Unsolicited responses.
fn unsolicited(page: &mut SummaryText, plan: &Plan, outcome: &Outcome) {
    let requests = &outcome.requests;
    if requests.unsolicited_responses > 0 {
        page.blank();
        let n = units::several(requests.unsolicited_responses, "response", "responses");
        let mut text = format!("{n} that no request had asked for");
        if plan.depth > 1 && plan.tag.is_none() {
            text += "; in a pipeline only the surplus is visible, --tag shows each";
        }
        page.marked(Mark::Bad, &text);
        if let Some(sample) = outcome.samples.iter().find(|s| s.why == "unsolicited") {
            page.labelled("", &format!("the first bytes: {}", sample.head.escape_debug()));
        }
    }
}

/// Details of one reason that have a line of their own: the most frequent.
const DETAILS_SHOWN: usize = 6;

/// A line for each detail where a reason has several, and else one for all.
fn reasons(why: Failure, plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let total = outcome.failures.count(why);
    let line = |n: u64, detail: Option<&str>| format!("{} x {}", units::count(n), words(why, plan, detail));
    let first = outcome.failures.details.get(why.name()).map(String::as_str);
    let Some(several) = outcome.failures.in_detail().get(why.name()).filter(|details| details.len() > 1)
    else {
        return vec![line(total, first)];
    };
    let mut several: Vec<_> = several.iter().map(|(detail, n)| (detail.as_str(), *n)).collect();
    several.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    several.truncate(DETAILS_SHOWN);
    let left = total.saturating_sub(several.iter().map(|(_, n)| n).sum());
    let mut lines: Vec<_> = several.into_iter().map(|(detail, n)| line(n, Some(detail))).collect();
    // Words without a detail would be the same on each line.
    if lines.len() > 1 && words(why, plan, Some("a")) == words(why, plan, Some("b")) {
        return vec![line(total, first)];
    }
    if left > 0 {
        lines.push(line(left, None));
    }
    lines
}

/// A reason of failure in words, with what helps.
fn words(why: Failure, plan: &Plan, detail: Option<&str>) -> String {
    let with = |text: &str| detail.map_or_else(|| text.to_owned(), |d| format!("{text} ({d})"));
    match why {
        Failure::Connect => with("no connection"),
        Failure::Timeout => {
            let late = format!("no whole answer within {} (--timeout)", shown_duration(plan.timeout));
            // That of every request says the same once more.
            detail.filter(|d| d.contains("window")).map_or(late.clone(), |d| format!("{late}: {d}"))
        }
        Failure::Reset => with("a reset before a byte of the response came"),
        Failure::ClosedEarly => with("the connection was closed before a byte of the response came"),
        Failure::Truncated => with("a response began and broke off"),
        Failure::RefusedStream => with("refused without being processed"),
        Failure::Malformed => with("what came is not a valid HTTP answer"),
        Failure::PortsExhausted => format!(
            "every local port towards {} is in use: raise net.ipv4.ip_local_port_range, add --from addresses, or use \
             fewer or longer connections (a port rests for a minute after its connection)",
            detail.unwrap_or(&plan.target.authority)
        ),
        Failure::DescriptorsExhausted => {
            "no file descriptor was left: raise the limit (ulimit -n) or use fewer connections".to_owned()
        }
        Failure::NoMemory => {
            with("the kernel had no buffer space: use fewer connections or raise net.ipv4.tcp_mem")
        }
    }
}
