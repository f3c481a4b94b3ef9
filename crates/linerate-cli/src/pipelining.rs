//! `linerate explain --pipelining`: whether pipelining pays at a server, and what would.

use std::io::{Write, stderr};
use std::thread;
use std::time::{Duration, SystemTime};

use linerate_load::plan::Stop;
use linerate_load::plan::http::Http;
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
    let mut via = None;
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
        via = via.or_else(|| outcome.saved.first().and_then(|saved| proxy(&saved.bytes)));
        ways.push(way(name, &plan, &outcome));
    }
    say("HTTP/2");
    plan.http.version = Http::Two;
    let plan = Plan { connections: 1, depth: DEPTH, ..plan };
    let unmeasured = |why: String| PipelineWay {
        name: PipelineWayName::Http2,
        connections: plan.connections,
        in_flight: plan.depth,
        rate_rps: None,
        not_measured: Some(why),
        failed_share: 0.0,
        closes_after: None,
    };
    ways.push(match measure(&plan, &interrupt) {
        Ok(None) => return Ok(Exit::Interrupted),
        Ok(Some(outcome)) => {
            let way = way(PipelineWayName::Http2, &plan, &outcome);
            let spoken =
                outcome.unreachable.is_none() && outcome.requests.answered > 0 && way.failed_share < 0.5;
            if spoken { way } else { unmeasured("the server does not speak it here".to_owned()) }
        }
        Err(why) => unmeasured(why.to_string()),
    });
    let environment = linerate_report::json::environment(&environment::here(), "");
    let target = plan.target.url;
    report(&document(PipeliningFigures { target, started_at, proxy: via, ways, environment }), sinks)
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
}
