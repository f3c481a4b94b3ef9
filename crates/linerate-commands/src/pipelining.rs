//! `linerate explain --pipelining`: whether pipelining pays at a server, and what would.

use std::io::{Write, stderr};
use std::thread;
use std::time::{Duration, SystemTime};

use linerate_load::plan::http::Http;
use linerate_load::plan::{Expectation, Order, Request, Stop};
use linerate_load::{Outcome, Plan};
use linerate_report::pipelining::{self, PipeliningFigures, document};
use linerate_report::schema::pipelining::{PipelineWay, PipelineWayName, PipeliningDocument};

use crate::args::LoadArgs;
use crate::fault::{CommandFault, Exit};
use crate::load::output::ReportSinks;
use crate::load::{Interrupt, plan as load_plan};
use crate::{environment, terminal};

/// Requests in flight.
const DEPTH: u32 = 10;
/// Time of each way. Reason: a server that takes 100 ms shows some turns of ten in it.
const TIME: Duration = Duration::from_millis(1_500);
/// Opening connections is not what is compared.
const WARM_UP: Duration = Duration::from_millis(200);
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where nothing is, so that the response is told from that of the call by its status.
const NOWHERE: &str = "/linerate-asks-for-what-is-not-here";
/// Requests by which the order is seen.
const ORDERED: u64 = 100;
/// Bursts of them, all in order, before that is said. Reason: on a busy machine requests may reach the
/// server one at a time, and then any server answers in order.
const BURSTS: usize = 3;
/// Requests by which a status is known.
const ASKED: u64 = 3;

/// The only status of all responses.
fn status(outcome: &Outcome) -> Option<u16> {
    let mut all = outcome.status.keys();
    all.next().copied().filter(|_| all.next().is_none())
}

/// Responses to two kinds of requests in turns, of which each must have its own status: `Some(false)` if
/// they came in another order. `None`: not to be told, as where both kinds get the same status.
fn in_order(outcome: &Outcome, statuses: [u16; 2]) -> Option<bool> {
    let known = outcome.status.keys().all(|status| statuses.contains(status));
    let (answered, bad) = (outcome.requests.answered, outcome.bad.total());
    match bad {
        0 => (known && answered >= ORDERED / 2).then_some(true),
        _ => known.then_some(false),
    }
}

/// Whether responses come in the order of their requests; `None`: not to be told.
fn order(plan: &Plan, usual: Option<u16>, interrupt: &Interrupt) -> Result<Option<bool>, CommandFault> {
    let Some((usual, call)) = usual.zip(plan.requests.first()) else { return Ok(None) };
    let nowhere = Request {
        name: "nowhere".to_owned(),
        method: "GET".to_owned(),
        path: NOWHERE.to_owned(),
        body: None,
        ..call.clone()
    };
    let stop = |requests| Stop { requests: Some(requests), duration: Some(TIME) };
    let plan = Plan { warm_up: Duration::ZERO, save_responses: 0, connections: 1, ..plan.clone() };
    let alone = Plan {
        requests: vec![nowhere.clone()],
        order: Order::Listed(vec![0]),
        depth: 1,
        stop: stop(ASKED),
        ..plan.clone()
    };
    let Some(outcome) = measure(&alone, interrupt)? else { return Ok(None) };
    let Some(other) = status(&outcome).filter(|other| *other != usual) else { return Ok(None) };
    let expect = |request: &Request, status| {
        let expect = Expectation { status: vec![status], ..Expectation::default() };
        Request { expect, ..request.clone() }
    };
    let requests = vec![expect(call, usual), expect(&nowhere, other)];
    let turns =
        Plan { requests, order: Order::Listed(vec![0, 1]), depth: DEPTH, stop: stop(ORDERED), ..plan };
    for _ in 0..BURSTS {
        let Some(outcome) = measure(&turns, interrupt)? else { return Ok(None) };
        match in_order(&outcome, [usual, other]) {
            Some(true) => {}
            told => return Ok(told),
        }
    }
    Ok(Some(true))
}

/// What one way of sending gave.
fn way(name: PipelineWayName, plan: &Plan, outcome: &Outcome) -> PipelineWay {
    let requests = &outcome.requests;
    let bad = requests.failed + requests.unknown + outcome.bad.total();
    let closed = outcome.connections.closed_by_peer;
    PipelineWay {
        name,
        connections: plan.connections,
        in_flight: plan.depth,
        rate_rps: Some(outcome.rate_rps()),
        not_measured: None,
        failed_share: bad as f64 / requests.sent.max(1) as f64,
        closes_after: (closed > 0).then(|| requests.answered as f64 / closed as f64),
    }
}

/// The proxy that a response names.
fn proxy(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let head = text.split("\r\n\r\n").next()?;
    let via = head.lines().find(|line| line.to_ascii_lowercase().starts_with("via:"));
    via.map(|line| line.chars().filter(|c| !c.is_control()).take(80).collect())
}

fn measure(plan: &Plan, interrupt: &Interrupt) -> Result<Option<Outcome>, CommandFault> {
    let running = linerate_load::start(plan.clone())?;
    while !running.finished() {
        if interrupt.asked() {
            running.stop();
        }
        thread::sleep(Duration::from_millis(20));
    }
    let outcome = running.join();
    Ok(Some(outcome).filter(|_| !interrupt.asked()))
}

/// The ways of HTTP/1.1, each with its words, connections and requests in flight on each.
const WAYS: [(PipelineWayName, &str, u32, u32); 3] = [
    (PipelineWayName::Alone, "one at a time", 1, 1),
    (PipelineWayName::Pipelined, "ten in a pipeline", 1, DEPTH),
    (PipelineWayName::Connections, "ten connections", DEPTH, 1),
];

/// Streams of HTTP/2, where the server speaks it. `None`: interrupted.
fn http2(plan: &Plan, interrupt: &Interrupt) -> Option<PipelineWay> {
    let mut plan = Plan { connections: 1, depth: DEPTH, ..plan.clone() };
    plan.http.version = Http::Two;
    let unmeasured = |why: String| PipelineWay {
        name: PipelineWayName::Http2,
        connections: plan.connections,
        in_flight: plan.depth,
        rate_rps: None,
        not_measured: Some(why),
        failed_share: 0.0,
        closes_after: None,
    };
    let outcome = match measure(&plan, interrupt) {
        Ok(outcome) => outcome?,
        Err(why) => return Some(unmeasured(why.to_string())),
    };
    let way = way(PipelineWayName::Http2, &plan, &outcome);
    let spoken = outcome.unreachable.is_none() && outcome.requests.answered > 0 && way.failed_share < 0.5;
    Some(if spoken { way } else { unmeasured("the server does not speak it here".to_owned()) })
}

/// Runs the command.
pub(crate) fn run(load: &LoadArgs, sinks: &ReportSinks, quiet: bool) -> Result<Exit, CommandFault> {
    let base = load_plan::of(load)?.plan;
    crate::load::flows::refuse(&base, "explain --pipelining")?;
    let started_at = linerate_report::json::rfc3339(SystemTime::now());
    let interrupt = Interrupt::listen()?;
    let say = |words: &str| {
        if !quiet {
            let _ = writeln!(stderr(), "{words}");
        }
    };
    let mut plan = Plan {
        stop: Stop { requests: None, duration: Some(TIME) },
        threads: Some(1),
        timeout: TIMEOUT,
        warm_up: WARM_UP,
        save_responses: 1,
        ..base
    };
    plan.http.version = Http::One;
    let mut ways = Vec::new();
    let (mut via, mut usual) = (None, None);
    for (name, words, connections, depth) in WAYS {
        say(words);
        let plan = Plan { connections, depth, ..plan.clone() };
        let Some(outcome) = measure(&plan, &interrupt)? else {
            return Ok(Exit::Interrupted);
        };
        if let Some(why) = &outcome.unreachable {
            return Err(CommandFault::unreachable(format!(
                "{} cannot be reached: {why}",
                plan.target.authority
            )));
        }
        usual = usual.or_else(|| status(&outcome));
        via = via.or_else(|| outcome.saved.first().and_then(|saved| proxy(&saved.bytes)));
        ways.push(way(name, &plan, &outcome));
    }
    say("two kinds of requests in a pipeline");
    let in_order = order(&plan, usual, &interrupt)?;
    if interrupt.asked() {
        return Ok(Exit::Interrupted);
    }
    say("HTTP/2");
    let Some(streams) = http2(&plan, &interrupt) else { return Ok(Exit::Interrupted) };
    ways.push(streams);
    let environment = linerate_report::json::environment(&environment::here(), "");
    let target = plan.target.url;
    report(
        &document(PipeliningFigures { target, started_at, proxy: via, in_order, ways, environment }),
        sinks,
    )
}

/// Prints the verdict, and writes the document and the page.
fn report(document: &PipeliningDocument, sinks: &ReportSinks) -> Result<Exit, CommandFault> {
    let to_stderr = sinks.to_stderr();
    let text = pipelining::text(document, terminal::style_beside(to_stderr));
    let printed = terminal::print_beside(&text, to_stderr);
    sinks
        .write("pipelining", &pipelining::json(document), || pipelining::page(document))
        .and(printed)
        .map(|()| if !document.pays && document.cure.is_some() { Exit::CheckFailed } else { Exit::Fine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_by_its_head() {
        let head = b"HTTP/1.1 200 OK\r\nvia: 1.1 varnish\r\nContent-Length: 4\r\n\r\nVia: no";
        assert_eq!(proxy(head).as_deref(), Some("via: 1.1 varnish"));
        assert_eq!(proxy(b"HTTP/1.1 200 OK\r\n\r\nVia: no"), None);
    }

    #[test]
    fn an_order_is_seen_by_statuses() {
        let outcome = |bad: u64, statuses: &[u16]| {
            let mut outcome = Outcome::default();
            outcome.requests.answered = 100;
            outcome.bad.status = bad;
            outcome.status = statuses.iter().map(|status| (*status, 50)).collect();
            outcome
        };
        assert_eq!(in_order(&outcome(0, &[200, 404]), [200, 404]), Some(true));
        assert_eq!(in_order(&outcome(40, &[200, 404]), [200, 404]), Some(false));
        // A server that refuses some says nothing of their order.
        assert_eq!(in_order(&outcome(40, &[200, 404, 429]), [200, 404]), None);
        assert_eq!((status(&outcome(0, &[200])), status(&outcome(0, &[200, 503]))), (Some(200), None));
    }
}
