//! `linerate explain --pipelining`: whether pipelining pays at a server, and what would.

use std::io::{Write, stderr};
use std::thread;
use std::time::Duration;

use linerate_load::plan::Stop;
use linerate_load::plan::http::Http;
use linerate_load::{Outcome, Plan};
use linerate_report::units;

use crate::args::LoadArgs;
use crate::fault::{CommandFault, Exit};
use crate::load::{Interrupt, plan as load_plan};
use crate::terminal;

/// Requests in flight.
const DEPTH: u32 = 10;
/// Time of each way. Reason: a server that takes 100 ms shows some turns of ten in it.
const TIME: Duration = Duration::from_millis(1_500);
/// Opening connections is not what is compared.
const WARM_UP: Duration = Duration::from_millis(200);
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What one way of sending gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PipelineWay {
    /// Responses per second.
    rate: f64,
    /// Requests without a good response, as a share of all.
    failed: f64,
    /// Responses on a connection before the server closed it, where it did.
    closes_after: Option<f64>,
}

impl PipelineWay {
    fn of(outcome: &Outcome) -> PipelineWay {
        let requests = &outcome.requests;
        let sent = requests.sent.max(1) as f64;
        let bad = requests.failed + requests.unknown + outcome.bad.total();
        let closed = outcome.connections.closed_by_peer;
        PipelineWay {
            rate: outcome.rate_rps(),
            failed: bad as f64 / sent,
            closes_after: (closed > 0).then(|| requests.answered as f64 / closed as f64),
        }
    }
}

/// All ways at one server.
#[derive(Clone, Debug, Default, PartialEq)]
struct PipelineWays {
    alone: PipelineWay,
    pipelined: PipelineWay,
    connections: PipelineWay,
    /// `None`: the server does not speak it.
    http2: Option<PipelineWay>,
    /// What the response says of a proxy.
    proxy: Option<String>,
}

/// From this factor on a way pays.
const PAYS: f64 = 1.5;
/// Below this share of what as many connections give, requests of a pipeline are served one after another.
const ONE_BY_ONE: f64 = 0.5;
/// Share of failed requests from which on a way does not work.
const FAILS: f64 = 0.05;

impl PipelineWays {
    /// Pipelining pays here.
    fn pays(&self) -> bool {
        self.pipelined.failed < FAILS && self.pipelined.rate >= PAYS * self.alone.rate
    }

    /// The best way that is not pipelining, where it beats it.
    fn cure(&self) -> Option<(&'static str, f64)> {
        let works = |way: &PipelineWay| way.failed < FAILS;
        let mut ways = vec![("ten connections", self.connections)];
        ways.extend(self.http2.map(|way| ("HTTP/2 on one connection", way)));
        ways.retain(|(_, way)| works(way));
        let best = ways.into_iter().max_by(|a, b| a.1.rate.total_cmp(&b.1.rate))?;
        let least =
            self.alone.rate.max(if self.pipelined.failed < FAILS { self.pipelined.rate } else { 0.0 });
        (best.1.rate >= PAYS * least).then_some((best.0, best.1.rate))
    }

    /// In sentences, the most important first.
    fn words(&self) -> Vec<String> {
        let rate = |r: f64| format!("{}/s", units::rate(r));
        let times = self.pipelined.rate / self.alone.rate.max(1e-9);
        let mut words = Vec::new();
        if self.pipelined.failed >= FAILS {
            words.push(format!(
                "Pipelining does not work here: {:.0} % of the requests that were sent without waiting got no good answer.",
                100.0 * self.pipelined.failed
            ));
        } else if self.pays() {
            words.push(format!(
                "Pipelining pays here: {DEPTH} requests in flight on one connection give {}, one at a time {} ({times:.1} times as many).",
                rate(self.pipelined.rate),
                rate(self.alone.rate)
            ));
        } else {
            words.push(format!(
                "Pipelining does not pay here: {DEPTH} requests in flight on one connection give {}, one at a time {} ({times:.1} times as many).",
                rate(self.pipelined.rate),
                rate(self.alone.rate)
            ));
        }
        if self.pipelined.rate < ONE_BY_ONE * self.connections.rate {
            words.push(format!(
                "The requests of a pipeline are served one after another: as many on {DEPTH} connections give {}.",
                rate(self.connections.rate)
            ));
        } else if self.pays() {
            words.push(
                "The requests of a pipeline are served at once, or it spares their round trips.".to_owned(),
            );
        }
        if let Some(n) = self.pipelined.closes_after {
            words.push(format!("The server closes a connection after {n:.0} answers: what was sent behind them goes out again."));
        }
        if let Some(proxy) = &self.proxy {
            words.push(format!(
                "A proxy answers ({proxy}): proxies serve a pipeline one request after another, whatever the server behind them does."
            ));
        }
        if let Some((way, best)) = self.cure() {
            words.push(format!("What pays: {way}, {}.", rate(best)));
        }
        words.push(match self.http2 {
            Some(way) => format!("HTTP/2 with {DEPTH} streams on one connection gives {}.", rate(way.rate)),
            None => "HTTP/2 was not had: the server does not speak it here.".to_owned(),
        });
        words
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

/// Runs the command.
pub(crate) fn run(load: &LoadArgs, quiet: bool) -> Result<Exit, CommandFault> {
    let base = load_plan::of(load)?.plan;
    crate::load::flows::refuse(&base, "explain --pipelining")?;
    let interrupt = Interrupt::listen()?;
    let say = |words: &str| {
        if !quiet {
            let _ = writeln!(stderr(), "{words}");
        }
    };
    let mut plan = Plan {
        connections: 1,
        depth: 1,
        stop: Stop { requests: None, duration: Some(TIME) },
        threads: Some(1),
        timeout: TIMEOUT,
        warm_up: WARM_UP,
        save_responses: 1,
        ..base
    };
    plan.http.version = Http::One;
    let mut ways = PipelineWays::default();
    for (words, connections, depth) in
        [("one at a time", 1, 1), ("ten in a pipeline", 1, DEPTH), ("ten connections", DEPTH, 1)]
    {
        say(words);
        let Some(outcome) = measure(&Plan { connections, depth, ..plan.clone() }, &interrupt)? else {
            return Ok(Exit::Interrupted);
        };
        if let Some(why) = &outcome.unreachable {
            return Err(CommandFault::unreachable(format!(
                "{} cannot be reached: {why}",
                plan.target.authority
            )));
        }
        let way = PipelineWay::of(&outcome);
        match (connections, depth) {
            (1, 1) => {
                ways.proxy = outcome.saved.first().and_then(|saved| proxy(&saved.bytes));
                ways.alone = way;
            }
            (1, _) => ways.pipelined = way,
            _ => ways.connections = way,
        }
    }
    say("HTTP/2");
    plan.http.version = Http::Two;
    if let Ok(outcome) = measure(&Plan { depth: DEPTH, ..plan }, &interrupt) {
        let Some(outcome) = outcome else { return Ok(Exit::Interrupted) };
        let way = PipelineWay::of(&outcome);
        ways.http2 = (outcome.unreachable.is_none() && outcome.requests.answered > 0 && way.failed < 0.5)
            .then_some(way);
    }
    let style = terminal::style(&std::io::stdout());
    let text: String = ways.words().iter().map(|line| format!("{}\n", style.wrapped("", line))).collect();
    terminal::print(&text)?;
    Ok(if !ways.pays() && ways.cure().is_some() { Exit::CheckFailed } else { Exit::Fine })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(rate: f64) -> PipelineWay {
        PipelineWay { rate, ..PipelineWay::default() }
    }

    #[test]
    fn what_pays_is_said_with_its_figures() {
        // A proxy before a server that takes 20 ms.
        let mut ways = PipelineWays {
            alone: way(48.0),
            pipelined: way(49.0),
            connections: way(470.0),
            http2: Some(way(323.0)),
            proxy: Some("Via: 1.1 x".to_owned()),
        };
        let words = ways.words().join(" ");
        assert!(
            words.starts_with("Pipelining does not pay here") && words.contains("one after another"),
            "{words}"
        );
        assert!(words.contains("What pays: ten connections, 470/s."), "{words}");
        assert_eq!(ways.cure().map(|c| c.0), Some("ten connections"));
        ways.pipelined = way(384.0);
        let words = ways.words().join(" ");
        assert!(words.starts_with("Pipelining pays here") && words.contains("8.0 times"), "{words}");
        assert_eq!(ways.cure(), None);
        ways.pipelined.failed = 0.5;
        assert!(!ways.pays() && ways.words()[0].contains("does not work"), "{ways:?}");
    }

    #[test]
    fn a_proxy_is_named_by_its_head() {
        let head = b"HTTP/1.1 200 OK\r\nvia: 1.1 varnish\r\nContent-Length: 4\r\n\r\nVia: no";
        assert_eq!(proxy(head).as_deref(), Some("via: 1.1 varnish"));
        assert_eq!(proxy(b"HTTP/1.1 200 OK\r\n\r\nVia: no"), None);
    }
}
