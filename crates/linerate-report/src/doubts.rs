//! Reasons to doubt a figure, said aloud. What the engine warned of comes first.

use std::time::Duration;

use linerate_load::outcome::HeadFlaw;
use linerate_load::plan::Pace;
use linerate_load::{Outcome, Plan};

use crate::{figures, units};

/// Everything the reader should know before believing the figures.
pub fn warnings(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let mut all = outcome.warnings.clone();
    all.extend(looked_up(outcome));
    all.extend(dead_addresses(outcome));
    all.extend(proxy_refused(plan, outcome));
    if outcome.unreachable.is_some() {
        return all;
    }
    all.extend(silent(outcome));
    all.extend(all_alike(plan, outcome));
    all.extend(all_of_grpc(plan, outcome));
    all.extend(tolerated(outcome));
    all.extend(set_up(plan, outcome));
    all.extend(few_samples(plan, outcome));
    all.extend(short(outcome));
    all.extend(dropped_here(outcome));
    all.extend(suspended(outcome));
    all.extend(stood_still(plan, outcome).or_else(|| disturbed(plan, outcome)));
    all.extend(rate_missed(plan, outcome));
    all.extend(unsteady(plan, outcome));
    all.extend(mostly_bad(outcome));
    all.extend(hidden_stall(plan, outcome));
    all.extend(one_after_another(plan, outcome));
    all
}

/// The name was looked up again since its addresses could not be reached.
fn looked_up(outcome: &Outcome) -> Option<String> {
    let lookups = outcome.lookups.as_ref()?;
    let times = units::several(lookups.again, "time", "times");
    let mut text = format!("no address could be reached, so the name was looked up again {times}");
    if lookups.changed > 0 {
        let now: Vec<String> = lookups.addresses.iter().map(|address| address.ip().to_string()).collect();
        text += &format!(", addresses changed: {}", now.join(", "));
    } else if lookups.failed < lookups.again {
        text += ", addresses did not change";
    }
    if lookups.failed > 0 {
        text += &format!("; {} brought none", units::several(lookups.failed, "lookup", "lookups"));
    }
    Some(text)
}

/// Addresses that could not be reached while others could.
fn dead_addresses(outcome: &Outcome) -> Option<String> {
    let dead = || outcome.addresses.iter().filter(|(_, counts)| counts.opened == 0 && counts.failed > 0);
    let alive = outcome.addresses.values().any(|counts| counts.opened > 0);
    let each: Vec<String> = dead()
        .map(|(address, counts)| {
            let attempts = units::several(counts.failed, "attempt", "attempts");
            format!("{address} ({}, {attempts})", counts.why)
        })
        .collect();
    (alive && !each.is_empty()).then(|| {
        let all = outcome.addresses.len();
        let each = each.join(", ");
        format!(
            "{} of {all} addresses could not be reached: {each}; the others had all of the load",
            dead().count()
        )
    })
}

/// Datagrams that this machine lost: QUIC sends them again, which looks like a slow server.
fn dropped_here(outcome: &Outcome) -> Option<String> {
    let dropped = outcome.quic.as_ref()?.dropped_here();
    if dropped == 0 {
        return None;
    }
    let dropped = units::several(dropped, "datagram", "datagrams");
    Some(format!(
        "this machine dropped {dropped} for lack of room in its sockets, and QUIC had to send them again: raise \
         net.core.rmem_max and net.core.wmem_max to 4194304 (sysctl -w)"
    ))
}

/// The one status of all responses, if it says that something else was asked for.
fn all_alike(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let mut statuses = outcome.status.iter().filter(|(_, n)| **n > 0).map(|(status, _)| *status);
    let (status, None) = (statuses.next()?, statuses.next()) else { return None };
    if plan.requests.iter().any(|request| request.expect.status.contains(&status)) {
        return None;
    }
    match status {
        301 | 302 | 303 | 307 | 308 => Some(format!(
            "every response was a redirect ({status}), which is not followed: name the URL that it leads to (curl -I shows it)"
        )),
        404 => Some("every response was 404, not found: the server has nothing at this path".to_owned()),
        _ => None,
    }
}

/// Names of gRPC's status codes.
const GRPC: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// No gRPC call ended well, and nothing in the plan asks for that.
fn all_of_grpc(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let said: u64 = outcome.grpc_status.values().sum();
    let is_asked = plan.requests.iter().any(|request| request.expect.trailer.is_some());
    let well = outcome.grpc_status.get(&0).copied().unwrap_or(0);
    if is_asked || said == well {
        return None;
    }
    let others = outcome.grpc_status.iter().filter(|(status, _)| **status != 0);
    let (status, n) = others.max_by_key(|(_, n)| **n)?;
    let name = GRPC.get(usize::from(*status)).copied().unwrap_or("no code of gRPC's");
    let begin = if well == 0 {
        "no gRPC call ended well".to_owned()
    } else {
        format!("{} of the gRPC calls did not end well", units::percent((said - well) as f64 / said as f64))
    };
    Some(format!(
        "{begin}: {} of {} responses have grpc-status {status} ({name}); expect_trailer = \"grpc-status: 0\" in a plan \
         counts them as bad",
        units::count(*n),
        units::count(outcome.requests.answered)
    ))
}

/// Heads that this reader accepts and others may not.
fn tolerated(outcome: &Outcome) -> impl Iterator<Item = String> {
    let said = |flaw: HeadFlaw| {
        let n = *outcome.tolerated.get(flaw.name())?;
        Some(format!("{} {}", units::several(n, "response", "responses"), flaw.words()))
    };
    HeadFlaw::ALL.into_iter().filter_map(said)
}

/// Requests of an open loop that waited for the first connections, in the figures because there was no warm-up.
fn set_up(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let at_once = plan.per_connection.is_none() && outcome.connections.opened <= u64::from(plan.connections);
    if plan.all_tls().next().is_none() || !plan.counts_from_due() || !plan.warm_up.is_zero() || !at_once {
        return None;
    }
    let (due, sent) = (outcome.latency.main().percentile(99.0), outcome.latency.sent().percentile(99.0));
    let part = due.ns.saturating_sub(sent.ns);
    // A server that has too few places for the load makes requests wait, too, and longer than a handshake.
    let handshakes = outcome.latency.tls.max_ns() + outcome.latency.connect.max_ns();
    let fits = !due.at_least && outcome.requests.unsent == 0 && part <= handshakes;
    (fits && part * 5 >= due.ns).then(|| {
        let time = |ns: u64| units::time_ns(ns as f64, true);
        format!(
            "of the p99 of {}, up to {} is waiting for the first connections, which took up to {} to open, TLS handshake and all: \
             --warm-up 1s leaves that out",
            time(due.ns),
            time(part),
            time(handshakes)
        )
    })
}

/// A proxy that forwards requests answers some of them itself.
fn proxy_refused(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let proxy = plan.route.forwarder()?;
    let refused = outcome.status.get(&407).filter(|count| **count > 0)?;
    let advice = match proxy.user {
        Some(_) => "it does not accept this user and password",
        None => "it wants a user and a password: --proxy http://USER:PASSWORD@HOST:PORT",
    };
    let times = units::several(*refused, "time", "times");
    Some(format!("the proxy {} ({}) answered 407 {times}: {advice}", proxy.url, proxy.from))
}

/// The longest time without a response, if it is long.
fn silent(outcome: &Outcome) -> Option<String> {
    const LONG: Duration = Duration::from_secs(1);
    let silence = outcome.silence().filter(|silence| silence.lasted > LONG)?;
    Some(format!(
        "no response came for {}, while requests were due or in flight",
        crate::verdict::lasting(silence)
    ))
}

fn few_samples(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let latency = outcome.latency.main();
    let samples = figures::main_latency(plan, outcome).map(|_| latency.count())?;
    let thin: Vec<&str> = [(50.0, "p50"), (90.0, "p90"), (95.0, "p95"), (99.0, "p99"), (99.9, "p99.9")]
        .iter()
        .filter(|(percent, _)| !figures::rests_on_enough(samples, *percent))
        // A bound is firm.
        .filter(|(percent, _)| !latency.percentile(*percent).at_least)
        .map(|(_, name)| *name)
        .collect();
    let first = thin.first()?;
    let what = if thin.len() == 1 { (*first).to_owned() } else { format!("{first} and above") };
    Some(format!(
        "{what}: with {} fewer than 10 lie beyond it; a longer run makes it firm",
        units::several(samples, "answer", "answers")
    ))
}

fn short(outcome: &Outcome) -> Option<String> {
    let short = outcome.duration < Duration::from_secs(1) && outcome.requests.answered > 0;
    short.then(|| {
        format!(
            "the run lasted {}: opening connections and cold caches weigh much in it",
            units::time_ns(outcome.duration.as_nanos() as f64, true)
        )
    })
}

fn suspended(outcome: &Outcome) -> Option<String> {
    let lasted = outcome.client.suspended;
    (!lasted.is_zero()).then(|| {
        format!(
            "this machine was suspended for {}, or its clock was set: latencies around that time are not the server's",
            units::time_ns(lasted.as_nanos() as f64, true)
        )
    })
}

/// The client itself stood still: what was due or arrived meanwhile waited for it.
fn stood_still(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let (longest, all) = (outcome.client.stood_still, outcome.client.stood_still_in_all);
    let p99 = figures::main_latency(plan, outcome)?.percentile_ns(99.0);
    let matters = !longest.is_zero() && longest.as_nanos() >= u128::from(p99 / 10);
    matters.then(|| {
        let time = |time: Duration| units::time_ns(time.as_nanos() as f64, true);
        let in_all = if all > longest { format!(", {} in all", time(all)) } else { String::new() };
        let who = outcome.client.stood_still_agent.as_ref();
        let who = who.map_or("this client".to_owned(), |agent| format!("agent {agent}"));
        format!(
            "{who} stood still for up to {}{in_all}: it was stopped or had no core, so latencies of that time are its \
             own, not the server's",
            time(longest)
        )
    })
}

fn disturbed(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let most = outcome.client.disturbed;
    let p99 = figures::main_latency(plan, outcome)?.percentile_ns(99.0);
    // Below a tenth of what is slow anyway it changes no figure.
    let matters = most >= Duration::from_millis(1) && most.as_nanos() >= u128::from(p99 / 10);
    (matters && !outcome.client.saturated).then(|| {
        format!(
            "this machine added up to {} to some latencies: a sending thread waited for its core, in all {} of the time it \
             wanted to run (--threads with fewer than all cores leaves room for other work)",
            units::time_ns(most.as_nanos() as f64, true),
            units::percent(figures::wait_share(outcome))
        )
    })
}

fn rate_missed(plan: &Plan, outcome: &Outcome) -> Option<String> {
    if !plan.counts_from_due() || outcome.interrupted || outcome.aborted.is_some() {
        return None;
    }
    let requests = &outcome.requests;
    let missed = requests.unsent as f64 / requests.due().max(1) as f64;
    (missed > 0.001).then(|| {
        let advice = if requests.unsent_full * 2 > requests.unsent {
            "; more -c or -p gives room, if the server can take it"
        } else {
            ""
        };
        let why = figures::unsent_because(requests).map_or(String::new(), |why| format!(" ({why}{advice})"));
        format!(
            "the rate asked for was not reached: {} of the requests that were due never left{why}",
            units::percent(missed)
        )
    })
}

fn unsteady(plan: &Plan, outcome: &Outcome) -> Option<String> {
    // Only whole seconds, and neither the first nor the last: they begin and end in mid-air.
    if plan.pace != Pace::Closed || outcome.series.len() < 6 {
        return None;
    }
    let inner = &outcome.series[1..outcome.series.len() - 1];
    let least = inner.iter().map(|i| i.rate_rps).fold(f64::INFINITY, f64::min);
    let most = inner.iter().map(|i| i.rate_rps).fold(0.0, f64::max);
    (least < 0.7 * most).then(|| {
        format!(
            "the rate was not steady: between {}/s and {}/s from second to second",
            units::rate(least),
            units::rate(most)
        )
    })
}

fn mostly_bad(outcome: &Outcome) -> Option<String> {
    let (bad, answered) = (outcome.bad.total(), outcome.requests.answered);
    (answered > 0 && bad * 2 > answered && bad < answered).then(|| {
        format!(
            "{} of the responses were not what was expected: the rate is mostly that of bad responses",
            units::percent(bad as f64 / answered as f64)
        )
    })
}

fn hidden_stall(plan: &Plan, outcome: &Outcome) -> Option<String> {
    if plan.pace != Pace::Closed || plan.flows.is_some() {
        return None;
    }
    let latency = figures::main_latency(plan, outcome)?;
    let (p99, max) = (latency.percentile_ns(99.0), latency.max_ns());
    (max > 100_000_000 && max > p99.saturating_mul(20)).then(|| {
        format!(
            "one answer took {} while p99 is {}: in a closed loop the requests that would have waited behind it were \
             never sent; --rate counts them",
            units::time_ns(max as f64, true),
            units::time_ns(p99 as f64, true)
        )
    })
}

/// Requests of a pipeline that are served one after another: each waits for all before it.
fn one_after_another(plan: &Plan, outcome: &Outcome) -> Option<String> {
    // Shorter service may be work of a core, which connections share.
    const LEAST_NS: u64 = 2_000_000;
    let latency = &outcome.latency;
    let pipelined =
        plan.depth > 1 && outcome.http.h2 + outcome.http.h3 == 0 && matches!(plan.pace, Pace::Closed);
    if !pipelined || plan.flows.is_some() || latency.from_sent.count() < 10 {
        return None;
    }
    // The first request on a connection waits for no other.
    let alone = latency.from_sent.min_ns().saturating_sub(latency.connect.min_ns());
    let rate = outcome.rate_rps() / f64::from(plan.connections);
    let follows = (0.6..1.5).contains(&(rate * alone as f64 / 1e9));
    let waits = latency.from_sent.percentile_ns(50.0) as f64 >= 0.5 * f64::from(plan.depth) * alone as f64;
    (alone >= LEAST_NS && follows && waits).then(|| {
        format!(
            "each connection's responses came one after another, {} apart, as long as one request takes: {} in flight on it gain \
             little. More connections or HTTP/2 may be served side by side: linerate explain --pipelining {} measures that",
            units::time_ns(1e9 / rate, true),
            plan.depth,
            plan.target.url
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use linerate_load::histogram::Histogram;
    use linerate_load::outcome::{Interval, Requests};

    fn only(outcome: &Outcome, plan: &Plan, word: &str) -> bool {
        warnings(plan, outcome).iter().any(|w| w.contains(word))
    }

    #[test]
    fn few_answers_are_named_from_the_first_thin_percentile_on() {
        for (samples, words) in [
            (9_999u64, "p99.9: with 9,999 answers"),
            (999, "p99 and above"),
            (19, "p50 and above"),
            (1, "with 1 answer fewer"),
        ] {
            let mut outcome = testing::quiet_outcome();
            outcome.latency.from_sent = Histogram::new();
            outcome.latency.from_sent.record(100_000, samples);
            assert!(only(&outcome, &testing::plan_closed(), words), "{samples}");
        }
        let mut outcome = testing::quiet_outcome();
        outcome.latency.from_sent = Histogram::new();
        outcome.latency.from_sent.record(100_000, 10_000);
        assert_eq!(warnings(&testing::plan_closed(), &outcome), Vec::<String>::new());
    }

    /// HAProxy before a server that takes 20 ms; a server that takes them at once; one that is far
    /// away; and a server whose core is busy.
    #[test]
    fn a_pipeline_that_is_served_one_after_another_is_said() {
        let told = |first_ms: u64, usual_ms: u64, rtt_ms: u64, answered: u64| {
            let mut outcome = testing::quiet_outcome();
            outcome.latency.from_sent = Histogram::new();
            outcome.latency.from_sent.record(first_ms * 1_000_000, 1);
            outcome.latency.from_sent.record(usual_ms * 1_000_000, 1_000);
            outcome.latency.connect = Histogram::new();
            outcome.latency.connect.record(rtt_ms * 1_000_000, 4);
            (outcome.window.answered, outcome.window.time) = (answered * 10, Duration::from_secs(10));
            let plan = Plan { connections: 4, depth: 10, ..testing::plan_closed() };
            only(&outcome, &plan, "one after another, 20.0 ms apart")
        };
        assert!(told(20, 200, 0, 200));
        assert!(told(60, 200, 40, 200));
        assert!(!told(20, 20, 0, 2_000));
        assert!(!told(41, 41, 40, 975));
        assert!(!told(20, 200, 0, 50));
        assert!(!told(1, 10, 0, 4_000));
    }

    #[test]
    fn what_this_machine_added_is_said_with_its_bound() {
        let mut outcome = testing::quiet_outcome();
        outcome.client.disturbed = Duration::from_micros(900);
        assert!(!only(&outcome, &testing::plan_closed(), "this machine added"));
        outcome.client.disturbed = Duration::from_millis(12);
        assert!(only(&outcome, &testing::plan_closed(), "this machine added up to 12.0 ms"));
        outcome.latency.from_sent.record(1_000_000_000, 1_000_000);
        assert!(!only(&outcome, &testing::plan_closed(), "this machine added"));
    }

    #[test]
    fn a_client_that_stood_still_is_named_instead_of_the_server() {
        let mut outcome = testing::quiet_outcome();
        outcome.client.disturbed = Duration::from_millis(12);
        outcome.client.stood_still = Duration::from_secs(2);
        outcome.client.stood_still_in_all = Duration::from_millis(2_500);
        assert!(only(
            &outcome,
            &testing::plan_closed(),
            "this client stood still for up to 2.00 s, 2.50 s in all"
        ));
        outcome.client.stood_still_agent = Some("eu-west-1".to_owned());
        assert!(only(&outcome, &testing::plan_closed(), "agent eu-west-1 stood still for up to 2.00 s"));
        let mut outcome = testing::quiet_outcome();
        outcome.client.suspended = Duration::from_secs(9);
        assert!(only(&outcome, &testing::plan_open(), "this machine was suspended for 9.00 s"));
    }

    #[test]
    fn an_open_loop_that_fell_short_is_said_and_an_interrupted_one_is_not() {
        let mut outcome = testing::quiet_outcome();
        outcome.requests = Requests { sent: 990, answered: 990, unsent: 10, ..Requests::default() };
        assert!(only(&outcome, &testing::plan_open(), "1.00 % of the requests that were due"));
        // With places free, more of them would be no help.
        assert!(!only(&outcome, &testing::plan_open(), "waiting for an answer"));
        assert!(!only(&outcome, &testing::plan_open(), "more -c or -p"));
        outcome.requests.unsent_full = 10;
        let full = "never left (every connection was waiting for an answer; more -c or -p gives room";
        assert!(only(&outcome, &testing::plan_open(), full));
        (outcome.requests.unsent_full, outcome.requests.unsent_missed) = (1, 9);
        let late = "(1 because every connection was waiting for an answer, 9 because an agent was not there";
        assert!(only(&outcome, &testing::plan_open(), late));
        assert!(!only(&outcome, &testing::plan_open(), "more -c or -p"));
        outcome.interrupted = true;
        assert!(!only(&outcome, &testing::plan_open(), "that were due"));
    }

    #[test]
    fn waiting_for_handshakes_is_told_from_waiting_for_the_server() {
        let mut plan = testing::plan_open();
        plan.tls = Some(linerate_load::plan::tls::TargetTls::towards("h"));
        let mut outcome = testing::outcome_open();
        outcome.connections.opened = 1;
        let due = outcome.latency.from_due.as_mut().expect("an open loop");
        due.record(90_000_000, 5_000);
        outcome.latency.tls.record(88_000_000, 1);
        assert!(!only(&outcome, &plan, "first connections"), "the wait is longer than any handshake");
        outcome.latency.tls.record(120_000_000, 1);
        assert!(only(&outcome, &plan, "is waiting for the first connections"));
        plan.warm_up = Duration::from_secs(1);
        assert!(!only(&outcome, &plan, "first connections"));
    }

    #[test]
    fn one_dead_address_of_two_is_named() {
        use linerate_load::outcome::AddressCounts;
        let mut outcome = testing::quiet_outcome();
        let counts = |at: &str, opened, failed| {
            let why = "connection refused".to_owned();
            (at.parse().expect("an address"), AddressCounts { opened, failed, why })
        };
        outcome.addresses = [counts("127.0.0.1:80", 8, 1), counts("127.0.0.2:80", 0, 12)].into();
        let said = "1 of 2 addresses could not be reached: 127.0.0.2:80 (connection refused, 12 attempts)";
        assert!(only(&outcome, &testing::plan_closed(), said));
        outcome.addresses.extend([counts("127.0.0.1:80", 0, 1)]);
        assert!(!only(&outcome, &testing::plan_closed(), "addresses could not"));
    }

    #[test]
    fn responses_that_all_say_something_else_are_named() {
        let mut plan = testing::plan_closed();
        let mut outcome = testing::quiet_outcome();
        let answered = outcome.requests.answered;
        for (status, said) in [(302, "a redirect (302)"), (404, "404, not found")] {
            outcome.status = [(status, answered)].into();
            assert!(only(&outcome, &plan, said), "{status}");
        }
        plan.requests[0].expect.status = vec![404];
        assert!(!only(&outcome, &plan, "404"));
        outcome.status = [(302, answered - 1), (200, 1)].into();
        assert!(!only(&outcome, &plan, "redirect"));
        outcome.tolerated = [("length_and_coding".to_owned(), 2)].into();
        assert!(only(&outcome, &plan, "2 responses had both Transfer-Encoding and Content-Length"));
        outcome.tolerated.clear();
        outcome.grpc_status = [(12, answered)].into();
        assert!(only(&outcome, &plan, "have grpc-status 12 (UNIMPLEMENTED)"));
        outcome.grpc_status = [(13, 1), (0, 3)].into();
        assert!(only(&outcome, &plan, "25.0 % of the gRPC calls did not end well: 1 of"));
        outcome.grpc_status = [(0, answered)].into();
        assert!(!only(&outcome, &plan, "gRPC"));
    }

    #[test]
    fn swings_count_only_between_whole_seconds() {
        let second = |i: usize, rate_rps| Interval { t_s: i as f64, rate_rps, ..Interval::default() };
        let mut outcome = testing::quiet_outcome();
        outcome.series = (0..8).map(|i| second(i, if i == 0 || i == 7 { 1.0 } else { 100.0 })).collect();
        assert!(!only(&outcome, &testing::plan_closed(), "steady"));
        outcome.series[3].rate_rps = 60.0;
        assert!(only(&outcome, &testing::plan_closed(), "between 60.0/s and 100/s"));
    }

    #[test]
    fn a_stall_that_a_closed_loop_hides_is_said() {
        let mut outcome = testing::quiet_outcome();
        outcome.latency.from_sent.record(1_000_000_000, 1);
        assert!(only(&outcome, &testing::plan_closed(), "--rate counts them"));
    }

    #[test]
    fn a_short_run_and_bad_answers_are_said() {
        let mut outcome = testing::quiet_outcome();
        outcome.duration = Duration::from_millis(999);
        outcome.bad.status = outcome.requests.answered / 2 + 1;
        assert!(only(&outcome, &testing::plan_closed(), "lasted 999 ms"));
        assert!(only(&outcome, &testing::plan_closed(), "not what was expected"));
    }

    #[test]
    fn what_the_engine_said_comes_first() {
        let mut outcome = testing::quiet_outcome();
        outcome.warnings = vec!["the engine's word".to_owned()];
        outcome.duration = Duration::from_millis(10);
        assert_eq!(warnings(&testing::plan_closed(), &outcome)[0], "the engine's word");
    }
}
